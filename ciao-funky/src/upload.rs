//! `POST /upload`: a form with files and a priority, as the original's page and its successor's send it. It is answered
//! with 200 once the task is accepted, and not before.
//!
//! A file goes to disk as it comes, under a name of the store's; what it is called in the form is for people alone.

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
use crate::desk::{Accepted, Order, Source};
use crate::task::{Binary, Shape, arguments};

/// Connections at a time; others wait to be accepted.
const MAX_CONNECTIONS: usize = 64;

/// Uploads at a time; others are told to come again.
const MAX_UPLOADS: usize = 4;

/// Fields of one form: each file may have a frequency, and there are a few others.
const MAX_FIELDS: usize = 2 * MAX_FILES + 16;

/// Longest time until the head of a request is there.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// Longest time without a byte of a form.
const PROGRESS_TIME: Duration = Duration::from_secs(30);

/// Longest time for one form: a GiB at 300 KB/s.
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

/// Why an upload is no task.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    /// It comes from a page of somebody else.
    #[error("uploads from pages of other places are refused ({0})")]
    Foreign(String),
    /// There are too many at a time.
    #[error("{MAX_UPLOADS} uploads are under way: try again")]
    Busy,
    /// It is no form, or ends too early.
    #[error("the form cannot be read: {0}")]
    Form(#[from] MultipartError),
    /// Nothing comes.
    #[error("the form does not come in time")]
    Late,
    /// A field is missing.
    #[error("the form has no field '{0}'")]
    Missing(&'static str),
    /// A field is too long, or there are too many.
    #[error("the form has {0}")]
    TooMuch(String),
    /// A field is no text.
    #[error("the field '{0}' is not UTF-8")]
    NotText(String),
    /// A value makes no sense.
    #[error("{0}")]
    Value(#[from] CommandError),
    /// A file is not stored.
    #[error("{0}")]
    Binary(#[from] BinaryError),
    /// The task is not accepted.
    #[error("{0}")]
    NotAccepted(String),
}

/// What a form says so far. Its files go again unless they become a task's.
struct Form<'a> {
    binaries: &'a Binaries,
    files: Vec<Binary>,
    priority: Option<Priority>,
    extras: Extras,
    /// Whether the fields are the successor's.
    is_successor: bool,
}

/// What requests need.
#[derive(Debug, Clone)]
struct Shared {
    binaries: Binaries,
    desk: mpsc::Sender<Order>,
    uploads: Arc<Semaphore>,
    address: SocketAddr,
    shape: Arc<Shape>,
}

/// Answers requests until the desk is gone.
pub(crate) async fn serve(
    listener: TcpListener,
    binaries: Binaries,
    shape: Shape,
    desk: mpsc::Sender<Order>,
) {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return warn!(event = "uploads_off", "no uploads: {error}"),
    };
    let shared = Shared {
        binaries,
        desk: desk.clone(),
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
            () = desk.closed() => return,
        }
    }
}

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
    let place = shared.desk.reserve().await;
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

/// Browsers send forms of any page to this machine: one that was not served here is refused.
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

async fn next(field: &mut Field<'_>) -> Result<Option<bytes::Bytes>, UploadError> {
    let chunk = timeout(PROGRESS_TIME, field.chunk()).await;
    Ok(chunk.map_err(|_| UploadError::Late)??)
}

/// The value of a field that is at most so long.
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
