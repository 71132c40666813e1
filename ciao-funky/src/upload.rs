//! The upload server: `POST /upload` with a form of files, a priority and arguments, as the original's page and its
//! successor's send it. `GET /` is a page with such a form. It is plain HTTP/1.1; whose uploads are taken
//! the kernel is asked ([`owner`]).
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
//! store's; what it is called in the form is for people alone. A file field without a name and contents, and an empty
//! frequency, are what a browser sends of a row that was left empty, and are left out.
//!
//! [`places`] bounds the connections, [`body`] what is read ahead of a form, and [`page`] has the page and says whose
//! forms are taken.

mod body;
mod owner;
mod page;
mod places;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::multipart::{Field, Multipart, MultipartError, MultipartRejection};
use axum::extract::{DefaultBodyLimit, FromRequest as _, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use bytes::Bytes;
use ciao_scheduler::net::socket::accept;
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

pub(crate) use self::owner::Uploaders;
pub(crate) use self::page::NullOrigin;

use self::body::{Measured, Unparsed};
use self::owner::{Ends, UserError};
use self::page::{PAGE, check_origin};
use self::places::{Pace, Place, Places};

/// Uploads that write to disk at a time; the others wait for their turn, piece by piece. A disk is no faster for more.
const WRITES_AT_A_TIME: usize = 4;

/// Bytes of a connection that are read at a time, and the longest head of a request.
const READ_AT_A_TIME: usize = 64 * 1024;

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

/// Why an upload is no task; the text is the body of the answer, `UploadError::status` its code.
#[derive(Debug, thiserror::Error)]
enum UploadError {
    /// Its `Origin` is another page than this server's, or none of this machine (403).
    #[error(
        "uploads from pages of other places are refused ({0}): open this server's own page, / in place of /upload, \
         by an address or as localhost"
    )]
    Foreign(String),
    /// It is another user's, or nobody knows whose (403).
    #[error("{0}")]
    User(#[from] UserError),
    /// It comes slowly, all places are taken, and another client waits for one (408).
    #[error("the form comes too slowly while others wait: try again")]
    Slow,
    /// The request is no `multipart/form-data` (400).
    #[error("the form cannot be read: {0}")]
    NoForm(#[from] MultipartRejection),
    /// The body is wrong, or ends too early (400).
    #[error("the form cannot be read: {}", .0.body_text())]
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
    shared: &'a Shared,
    pace: &'a Pace,
    unparsed: &'a Unparsed,
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
    /// One permit for each of [`WRITES_AT_A_TIME`].
    writes: Arc<Semaphore>,
    /// Where this server listens, to recognize its own page as an origin.
    address: SocketAddr,
    null: NullOrigin,
    uploaders: Uploaders,
    /// To check arguments before a task is made of them.
    shape: Arc<Shape>,
}

/// Answers requests until the coordinator is gone.
pub(crate) async fn serve(
    listener: TcpListener,
    binaries: Binaries,
    (shape, null, uploaders): (Shape, NullOrigin, Uploaders),
    coordinator: mpsc::Sender<Order>,
) {
    let address = match listener.local_addr() {
        Ok(address) => address,
        Err(error) => return warn!(event = "uploads_off", "no uploads: {error}"),
    };
    let shared = Shared {
        binaries,
        coordinator: coordinator.clone(),
        writes: Arc::new(Semaphore::new(WRITES_AT_A_TIME)),
        address,
        null,
        uploaders,
        shape: Arc::new(shape),
    };
    let router = Router::new()
        .route("/", get(async || Html(PAGE)))
        .route("/upload", post(upload))
        // Files have limits of their own, and so has everything else in a form.
        .layer(DefaultBodyLimit::disable())
        .with_state(shared);
    let places = Places::new();
    let answering = async {
        loop {
            match accept(&listener).await {
                Ok((stream, _)) => {
                    let place = places.take().await;
                    tokio::spawn(attend(stream, router.clone(), place));
                }
                Err(error) => {
                    warn!(
                        event = "accept_failed",
                        "cannot accept a connection for an upload: {error}"
                    );
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    };
    tokio::select! {
        () = answering => {}
        () = coordinator.closed() => {}
    }
}

/// Serves one connection, which has one request: without keep-alive, a place is free once the answer is written. A
/// client that has closed its sending half gets its answer all the same.
async fn attend(stream: TcpStream, router: Router, place: Place) {
    let pace = &place.pace;
    let ends = match (stream.peer_addr(), stream.local_addr()) {
        (Ok(client), Ok(here)) => Ends { client, here },
        (Err(error), _) | (_, Err(error)) => {
            return debug!("a connection for an upload ended: {error}");
        }
    };
    let router = router
        .layer(Extension(Arc::clone(pace)))
        .layer(Extension(ends));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(READ_AT_A_TIME)
        .keep_alive(false)
        .half_close(true)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = &mut connection => served,
        () = pace.to_leave() => {
            if !pace.has_request() {
                return debug!("a connection for an upload said too little while others waited");
            }
            // The request is answered: what reads the form has been told as well.
            connection.await
        }
    };
    if let Err(error) = served {
        debug!("a connection for an upload ended: {error}");
    }
}

/// Answers `POST /upload`. Every error is answered, and logged at info.
async fn upload(
    State(shared): State<Shared>,
    Extension(pace): Extension<Arc<Pace>>,
    Extension(ends): Extension<Ends>,
    request: Request,
) -> Response {
    pace.note_request();
    // A look into the kernel's tables.
    let taken = match tokio::task::block_in_place(|| shared.uploaders.check(ends)) {
        Ok(()) => take(&shared, &pace, request).await,
        Err(error) => Err(error.into()),
    };
    match taken {
        Ok(response) => response,
        Err(error) => {
            match &error {
                UploadError::User(why) => {
                    warn!(event = "upload_user_refused", "an upload is refused: {why}")
                }
                _ => info!(
                    event = "upload_refused",
                    "an upload is refused: {}",
                    Printable::new(&error)
                ),
            }
            (error.status(), format!("{}\n", Printable::new(&error))).into_response()
        }
    }
}

/// Reads a form and has the coordinator make a task of it. Once the coordinator has it, it is waited for without a
/// limit: a task that was accepted is answered so.
///
/// The place in the coordinator's channel is reserved before the files leave the form: if this is dropped while it
/// waits, the form's `Drop` releases them.
///
/// # Errors
/// [`UploadError`]; the form's files are released.
async fn take(
    shared: &Shared,
    pace: &Arc<Pace>,
    request: Request,
) -> Result<Response, UploadError> {
    let checked = check_origin(request.headers(), shared.address, shared.null);
    checked.map_err(UploadError::Foreign)?;
    let unparsed = Arc::new(Unparsed::default());
    let (parts, body) = request.into_parts();
    let measured = Measured::new(
        body.into_data_stream(),
        Arc::clone(&unparsed),
        Arc::clone(pace),
    );
    let request = Request::from_parts(parts, Body::from_stream(measured));
    let form = Multipart::from_request(request, &()).await?;
    let mut read = Form {
        shared,
        pace,
        unparsed: &unparsed,
        files: Vec::new(),
        priority: None,
        extras: Extras::default(),
        is_successor: false,
    };
    let in_time = timeout(FORM_TIME, read.read(form)).await;
    in_time.unwrap_or(Err(UploadError::Late))?;
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

impl Form<'_> {
    /// Reads the form's fields in their order, each within [`PROGRESS_TIME`].
    async fn read(&mut self, mut form: Multipart) -> Result<(), UploadError> {
        for _ in 0..MAX_FIELDS {
            self.unparsed.about_to_parse();
            match self.sent(form.next_field()).await? {
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
                let text = self.value(field, &name, MAX_VALUE).await?;
                self.priority = Some(Priority::parse(&text)?);
                Ok(())
            }
            "frequency" | "frequency[]" => {
                let text = self.value(field, &name, MAX_VALUE).await?;
                self.extras
                    .frequencies
                    .extend(Some(text).filter(|it| !it.is_empty()));
                Ok(())
            }
            "Arguments" => {
                let text = self.value(field, &name, MAX_COMMAND).await?;
                // One line, as at the socket.
                let line = text.lines().next().unwrap_or_default();
                line.trim().clone_into(&mut self.extras.args);
                Ok(())
            }
            _ => self.value(field, &name, MAX_VALUE).await.map(drop),
        }
    }

    /// Stores a field's file, chunk by chunk. The writes block this worker thread, a few at a time.
    async fn file(&mut self, mut field: Field<'_>) -> Result<(), UploadError> {
        let mut chunk = self.next(&mut field).await?;
        if chunk.is_none() && field.file_name() == Some("") {
            // Nothing was chosen.
            return Ok(());
        }
        if self.files.len() >= MAX_FILES {
            return Err(CommandError::TooManyFiles(self.files.len() + 1).into());
        }
        let name = Printable::new(field.file_name().unwrap_or("upload"));
        let name: String = name.chars().take(MAX_NAME).collect();
        let mut partial = self.shared.binaries.begin(name)?;
        while let Some(bytes) = chunk {
            let turn = self.shared.writes.acquire().await;
            tokio::task::block_in_place(|| partial.write(&bytes))?;
            drop(turn);
            chunk = self.next(&mut field).await?;
        }
        let _turn = self.shared.writes.acquire().await;
        let file = tokio::task::block_in_place(|| partial.finish())?;
        self.files.push(file);
        Ok(())
    }

    /// The value of a field, of at most so many bytes.
    async fn value(
        &self,
        mut field: Field<'_>,
        name: &str,
        limit: usize,
    ) -> Result<String, UploadError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = self.next(&mut field).await? {
            if bytes.len() + chunk.len() > limit {
                let name = Printable::new(name);
                let what = format!("a field '{name}' of more than {limit} bytes");
                return Err(UploadError::TooMuch(what));
            }
            bytes.extend_from_slice(&chunk);
        }
        String::from_utf8(bytes).map_err(|_| UploadError::NotText(name.to_owned()))
    }

    /// The next chunk of a field, never an empty one; `None` at its end.
    async fn next(&self, field: &mut Field<'_>) -> Result<Option<Bytes>, UploadError> {
        loop {
            self.unparsed.about_to_parse();
            let chunk = self.sent(field.chunk()).await?;
            self.unparsed
                .handed_on(chunk.as_ref().map_or(0, Bytes::len));
            if chunk.as_ref().is_none_or(|it| !it.is_empty()) {
                return Ok(chunk);
            }
        }
    }

    /// Waits for what the client has to send, for at most [`PROGRESS_TIME`], and no longer once it has to leave.
    async fn sent<T>(
        &self,
        sent: impl Future<Output = Result<T, MultipartError>>,
    ) -> Result<T, UploadError> {
        tokio::select! {
            sent = timeout(PROGRESS_TIME, self.pace.wait_for(sent)) => {
                Ok(sent.map_err(|_| UploadError::Late)??)
            }
            () = self.pace.to_leave() => Err(UploadError::Slow),
        }
    }
}

impl Drop for Form<'_> {
    fn drop(&mut self) {
        let files = self.files.iter();
        files.for_each(|it| self.shared.binaries.release(it));
    }
}

impl UploadError {
    /// The HTTP status of the answer.
    const fn status(&self) -> StatusCode {
        match self {
            Self::Foreign(_) | Self::User(_) => StatusCode::FORBIDDEN,
            Self::NotAccepted(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late | Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::TooMuch(_) | Self::Binary(BinaryError::TooLong { .. }) => {
                StatusCode::PAYLOAD_TOO_LARGE
            }
            Self::Binary(BinaryError::NoSpace { .. } | BinaryError::NoRoom { .. }) => {
                StatusCode::INSUFFICIENT_STORAGE
            }
            Self::Binary(BinaryError::Unwritable { .. }) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Form(_)
            | Self::NoForm(_)
            | Self::Missing(_)
            | Self::NotText(_)
            | Self::Value(_)
            | Self::Binary(_) => StatusCode::BAD_REQUEST,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where it fails")]
mod tests;
