//! The upload server: `POST /upload` with a form of files, a priority and arguments, as the original's page and its
//! successor's send it. `GET /` is a page with such a form. It is plain HTTP/1.1 without authentication.
//!
//! | field | meaning |
//! | --- | --- |
//! | `myFile` | the program (original) |
//! | `bitstream` or `bitstream[]`, repeated | the files (successor) |
//! | `frequency` or `frequency[]`, repeated | a frequency for each file (successor) |
//! | `Priority` | `0` or `1` |
//! | `Arguments` | one line; further lines are dropped |
//!
//! Other fields are read and ignored. The answer is 200 once the task is accepted and on disk, with the original's
//! body; the task's number is in the header `x-funky-task`. A file goes to disk as it comes, under a name of the
//! store's; what it is called in the form is for people alone.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::multipart::{Field, Multipart, MultipartError};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use ciao_scheduler::printable::Printable;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::binaries::{Binaries, BinaryError};
use crate::command::{CommandError, Extras, MAX_COMMAND, MAX_FILES, Priority, check_counts};
use crate::coordinator::{Accepted, Order, Source};
use crate::task::{Binary, Shape, arguments};

/// Connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// Forms read at a time; others are told to come again (503). Each may write the longest file there may be.
const MAX_UPLOADS: usize = 4;

/// Fields of one form: each file may have a frequency, and there are a few others. More is a mistake or an attack.
const MAX_FIELDS: usize = 2 * MAX_FILES + 16;

/// Longest time until the head of a request is there.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Longest time without a byte of a form: a client that stands still does not keep its place.
const PROGRESS_TIME: Duration = Duration::from_secs(30);

/// Longest time for one form, also of a client that sends a byte now and then: a GiB at 300 KB/s.
const FORM_TIME: Duration = Duration::from_secs(3_600);

/// Pause where no connection can be accepted, as for want of open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest value of a field that is no file and not the arguments, bytes.
const MAX_VALUE: usize = 256;

/// Characters of a file's name that are kept, for people.
const MAX_NAME: usize = 200;

/// A page with the form, for people.
const PAGE: &str = r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>New task</title></head><body>
<form action="/upload" method="post" enctype="multipart/form-data">
<p><label>Program <input type="file" name="myFile" required></label></p>
<p><label><input type="radio" name="Priority" value="0"> high</label>
<label><input type="radio" name="Priority" value="1" checked> low</label></p>
<p><label>Arguments <input type="text" name="Arguments"></label></p>
<p><button>Run it</button></p>
</form></body></html>
"#;

/// Why an upload is no task; the text is the body of the answer, `UploadError::status` its code.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    /// Its `Origin` is another page than this server's (403).
    #[error("uploads from pages of other places are refused ({0})")]
    Foreign(String),
    /// There are [`MAX_UPLOADS`] at present (503).
    #[error("{MAX_UPLOADS} uploads are under way: try again")]
    Busy,
    /// The body is no `multipart/form-data`, or ends too early (400).
    #[error("the form cannot be read: {0}")]
    Form(#[from] MultipartError),
    /// Nothing came for [`PROGRESS_TIME`], or the form took longer than [`FORM_TIME`] (408).
    #[error("the form does not come in time")]
    Late,
    /// The form ended without this field (400).
    #[error("the form has no field '{0}'")]
    Missing(&'static str),
    /// A field is too long, or there are too many (413).
    #[error("the form has {0}")]
    TooMuch(String),
    /// This field is not UTF-8 (400).
    #[error("the field '{0}' is not UTF-8")]
    NotText(String),
    /// A priority, a count or a quotation mark is wrong, as at the socket (400).
    #[error("{0}")]
    Value(#[from] CommandError),
    /// A file cannot be stored (400, 413, 500 or 507).
    #[error("{0}")]
    Binary(#[from] BinaryError),
    /// The coordinator accepts no task at present (503).
    #[error("{0}")]
    NotAccepted(String),
}

/// What a form has said so far. Its files are counted as in use; dropping the form releases those that have not become
/// a task's.
struct Form<'a> {
    binaries: &'a Binaries,
    /// In the order of the form.
    files: Vec<Binary>,
    priority: Option<Priority>,
    extras: Extras,
    /// Whether a field had the successor's name; then the answer is the successor's.
    is_successor: bool,
}

/// What requests need; cloned for each.
#[derive(Debug, Clone)]
struct Shared {
    binaries: Binaries,
    coordinator: mpsc::Sender<Order>,
    /// One permit for each of [`MAX_UPLOADS`].
    uploads: Arc<Semaphore>,
    /// Where this server listens, to recognize its own page as an origin.
    address: SocketAddr,
    /// To check arguments before a task is made of them.
    shape: Arc<Shape>,
}

/// Answers requests until the coordinator is gone.
pub(crate) async fn serve(
    listener: TcpListener,
    binaries: Binaries,
    shape: Shape,
    coordinator: mpsc::Sender<Order>,
) {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return warn!(event = "uploads_off", "no uploads: {error}"),
    };
    let shared = Shared {
        binaries,
        coordinator: coordinator.clone(),
        uploads: Arc::new(Semaphore::new(MAX_UPLOADS)),
        address,
        shape: Arc::new(shape),
    };
    let router = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/upload", post(upload))
        // Files have limits of their own, and so has everything else in a form.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        attend(stream, router).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(event = "accept_failed", "cannot accept a connection for an upload: {error}");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
            () = coordinator.closed() => return,
        }
    }
}

/// Serves one connection, which has one request: without keep-alive, a place is free once the answer is written.
async fn attend(stream: TcpStream, router: Router) {
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    if let Err(error) = served.await {
        debug!("a connection for an upload ended: {error}");
    }
}

/// Answers `POST /upload`. Every error is answered, and logged at info.
async fn upload(State(shared): State<Shared>, headers: HeaderMap, form: Multipart) -> Response {
    let is_done = timeout(FORM_TIME, take(&shared, &headers, form)).await;
    match is_done.unwrap_or(Err(UploadError::Late)) {
        Ok(response) => response,
        Err(error) => {
            info!(
                event = "upload_refused",
                "an upload is refused: {}",
                Printable::new(&error)
            );
            (error.status(), format!("{}\n", Printable::new(&error))).into_response()
        }
    }
}

/// Reads a form and has the coordinator make a task of it.
///
/// The place in the coordinator's channel is reserved before the files leave the form: if this is dropped while it
/// waits, the form's `Drop` releases them.
///
/// # Errors
/// [`UploadError`]; the form's files are released.
async fn take(
    shared: &Shared,
    headers: &HeaderMap,
    form: Multipart,
) -> Result<Response, UploadError> {
    check_origin(headers, shared.address)?;
    let _permit = shared
        .uploads
        .try_acquire()
        .map_err(|_| UploadError::Busy)?;
    let mut read = Form {
        binaries: &shared.binaries,
        files: Vec::new(),
        priority: None,
        extras: Extras::default(),
        is_successor: false,
    };
    read.read(form).await?;
    let priority = read.priority.ok_or(UploadError::Missing("Priority"))?;
    if read.files.is_empty() {
        return Err(UploadError::Missing("myFile"));
    }
    check_counts(read.files.len(), read.extras.frequencies.len())?;
    arguments(&read.extras.args, &shared.shape)?;
    let done = match read.is_successor {
        true => "Successfully Uploaded File(s)\n",
        false => "Successfully Uploaded File\n",
    };
    let (answer, answered) = oneshot::channel();
    let place = shared.coordinator.reserve().await;
    let place =
        place.map_err(|_| UploadError::NotAccepted("this program is about to end".to_owned()))?;
    place.send(Order::New {
        source: Source::Stored(std::mem::take(&mut read.files)),
        priority,
        extras: std::mem::take(&mut read.extras),
        answer,
    });
    match answered.await {
        Ok(Ok(accepted)) => Ok((accepted_headers(&accepted), done).into_response()),
        Ok(Err(why)) => Err(UploadError::NotAccepted(why)),
        Err(_) => Err(UploadError::NotAccepted(
            "this program is about to end".to_owned(),
        )),
    }
}

/// The task's number, and what its client should know: the body is the original's.
fn accepted_headers(accepted: &Accepted) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Accepted::Queued { task, notice } = accepted {
        headers.insert("x-funky-task", HeaderValue::from(*task));
        let notice = HeaderValue::from_str(&Printable::new(notice));
        if let Ok(notice) = notice
            && !notice.is_empty()
        {
            headers.insert("x-funky-notice", notice);
        }
    }
    headers
}

/// Refuses forms that a browser sends from a page of another site.
///
/// A browser sends forms of any page to any address, this machine's loopback too, and names the page's site in
/// `Origin`. It has to be this server's. `Host` is checked as well: a name that an attacker's DNS has pointed to this
/// machine would make both equal. Clients that are no browsers send no `Origin` and pass.
///
/// # Errors
/// [`UploadError::Foreign`].
fn check_origin(headers: &HeaderMap, address: SocketAddr) -> Result<(), UploadError> {
    let text = |name| {
        headers
            .get(name)
            .map(|value: &HeaderValue| value.to_str().unwrap_or("?"))
    };
    let Some(origin) = text(header::ORIGIN) else {
        return Ok(());
    };
    let host = text(header::HOST).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    // A name could have been made to mean this machine.
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_here = is_address || name == "localhost" || host == address.to_string();
    if is_here && origin == format!("http://{host}") {
        return Ok(());
    }
    Err(UploadError::Foreign(origin.to_owned()))
}

impl Form<'_> {
    /// Reads the form's fields in their order, each within [`PROGRESS_TIME`].
    async fn read(&mut self, mut form: Multipart) -> Result<(), UploadError> {
        for _ in 0..MAX_FIELDS {
            let field = timeout(PROGRESS_TIME, form.next_field()).await;
            match field.map_err(|_| UploadError::Late)?? {
                Some(field) => self.field(field).await?,
                None => return Ok(()),
            }
        }
        Err(UploadError::TooMuch(format!(
            "more than {MAX_FIELDS} fields"
        )))
    }

    /// Reads one field; unknown ones are read too, for the next one follows behind it.
    async fn field(&mut self, field: Field<'_>) -> Result<(), UploadError> {
        let name = field.name().unwrap_or_default().to_owned();
        match &*name {
            "myFile" => self.file(field).await,
            "bitstream" | "bitstream[]" => {
                self.is_successor = true;
                self.file(field).await
            }
            "Priority" => {
                let text = value(field, &name, MAX_VALUE).await?;
                self.priority = Some(Priority::parse(&text)?);
                Ok(())
            }
            "frequency" | "frequency[]" => {
                self.extras
                    .frequencies
                    .push(value(field, &name, MAX_VALUE).await?);
                Ok(())
            }
            "Arguments" => {
                let text = value(field, &name, MAX_COMMAND).await?;
                // One line, as at the socket.
                let line = text.lines().next().unwrap_or_default();
                line.trim().clone_into(&mut self.extras.args);
                Ok(())
            }
            _ => value(field, &name, MAX_VALUE).await.map(drop),
        }
    }

    /// Stores a field's file, chunk by chunk. The writes block this worker thread.
    async fn file(&mut self, mut field: Field<'_>) -> Result<(), UploadError> {
        if self.files.len() >= MAX_FILES {
            return Err(CommandError::TooManyFiles(self.files.len() + 1).into());
        }
        let name = Printable::new(field.file_name().unwrap_or("upload"));
        let name: String = name.chars().take(MAX_NAME).collect();
        let mut partial = self.binaries.begin(name)?;
        while let Some(chunk) = next(&mut field).await? {
            tokio::task::block_in_place(|| partial.write(&chunk))?;
        }
        let file = tokio::task::block_in_place(|| partial.finish())?;
        self.files.push(file);
        Ok(())
    }
}

impl Drop for Form<'_> {
    fn drop(&mut self) {
        self.files.iter().for_each(|it| self.binaries.release(it));
    }
}

/// The next chunk of a field; `None` at its end.
async fn next(field: &mut Field<'_>) -> Result<Option<bytes::Bytes>, UploadError> {
    let chunk = timeout(PROGRESS_TIME, field.chunk()).await;
    Ok(chunk.map_err(|_| UploadError::Late)??)
}

/// The value of a field, of at most so many bytes.
async fn value(mut field: Field<'_>, name: &str, limit: usize) -> Result<String, UploadError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = next(&mut field).await? {
        if bytes.len() + chunk.len() > limit {
            let name = Printable::new(name);
            let what = format!("a field '{name}' of more than {limit} bytes");
            return Err(UploadError::TooMuch(what));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).map_err(|_| UploadError::NotText(name.to_owned()))
}

impl UploadError {
    /// The HTTP status of the answer.
    const fn status(&self) -> StatusCode {
        match self {
            Self::Foreign(_) => StatusCode::FORBIDDEN,
            Self::Busy | Self::NotAccepted(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::TooMuch(_) | Self::Binary(BinaryError::TooLong { .. }) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::Binary(BinaryError::NoSpace { .. } | BinaryError::NoRoom { .. }) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            Self::Binary(BinaryError::Unwritable { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Form(_)
            | Self::Missing(_)
            | Self::NotText(_)
            | Self::Value(_)
            | Self::Binary(_) => StatusCode::BAD_REQUEST,
        }
    }
}
