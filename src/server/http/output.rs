//! `GET /v1/instances/{id}/output`: what a workload wrote, as it is.
//!
//! The scheduler keeps no output. Each answer opens a session of its own in the core and asks the instance's launcher
//! through it, a chunk of at most 64 KiB at a time; the next is asked for once hyper has taken the one before it, so
//! that a slow reader holds about one chunk and holds up no other:
//!
//! ```text
//! client ◀── Stream ◀── Reader ── ReadOutput ──▶ core ──▶ launcher
//!                          ▲──── Inbox ◀── Output, a frame with the chunk ◀──┘
//! ```
//!
//! The first chunk is fetched before the head is written, so that errors still become problem documents and the head
//! can say where the answer begins. After that an error can only cut the answer off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, StatusCode};
use hyper::body::Frame as BodyFrame;
use proto_frames::payload::{
    OutputChunk, OutputFailure, OutputPart, OutputStream, Payload, ReadOutput,
};
use proto_frames::{Frame, Kind, Role, Uuid};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::call::{Answer, Call, stream_response};
use super::limits::MAX_ANSWERS;
use super::problem::Problem;
use super::serve::App;
use super::shares::{NoPlace, Place};
use crate::net::budget::Budget;
use crate::server::hub::Door;
use crate::server::wire;
use sched_core::{Command, Input, Message, SessionId};

/// Longest time until a chunk: above the time after which the core gives up a launcher, so that its own answer, which
/// says more, comes first.
const CHUNK_DEADLINE: Duration = Duration::from_secs(45);

/// How often a reader that has begun asks once more where the core answers `busy`. With [`BUSY_PAUSE`] that is half a
/// minute, after which the answer is cut off.
const BUSY_TRIES: u32 = 60;

/// Pause between two of these tries.
const BUSY_PAUSE: Duration = Duration::from_millis(500);

/// `GET /v1/instances/{id}/output`. The head has `ciao-output-offset`, where the answer begins in bytes from the first
/// that the run wrote, `ciao-output-total`, how many were written by then, and `ciao-output-skipped`, how many that
/// were asked for are not kept any more.
///
/// Without `follow` the answer ends at what was written when it began; with it, when the run ends.
///
/// # Errors
/// 503 `too_many` without a free place; 404, 409, 410, 501, 502, 503, 504 as the core or the launcher says for the
/// first chunk.
pub(super) async fn output(call: Call) -> Answer {
    let place = match call.app.outputs.take(call.connection.identity.fingerprint) {
        Ok(place) => place,
        Err(no_place) => return Err(no_place.into()),
    };
    let offset = call.query.offset("offset");
    let mut reader = Reader::open(&call, place);
    reader.request = ReadOutput {
        instance_uuid: call.id.clone(),
        tail: call.query.number("tail").map(u64::from),
        offset,
        stream: call
            .query
            .text("stream")
            .map(OutputStream::from)
            .unwrap_or_default(),
        follow: false,
        ..ReadOutput::default()
    };
    // Asked for without `follow`, so that a reader that follows has its head, and what there is, at once.
    let first = reader.next().await?;
    reader.request.follow = call.query.flag("follow");
    reader.until = first.part.total;
    let (app, part) = (Arc::clone(&call.app), first.part.clone());
    let body = Stream {
        ready: Some(first),
        is_begun: false,
        state: ReaderState::Between(Box::new(reader)),
        leaving: Box::pin(async move { app.hub.leaving().await }),
    };
    let mut response = stream_response("text/plain; charset=utf-8", Body::new(body));
    let mut put = |name: &'static str, value: u64| {
        response
            .headers_mut()
            .insert(name, HeaderValue::from(value));
    };
    put("ciao-output-offset", part.offset);
    put("ciao-output-total", part.total);
    // A reader that asked for the last lines, or for all that is kept, misses nothing that it asked for.
    put("ciao-output-skipped", offset.map_or(0, |_| part.skipped));
    Ok(response)
}

/// A session that reads the output of one instance. It moves into the future that waits for a chunk and comes back with
/// it. Dropping it closes the session and gives the place back.
struct Reader {
    /// For asking, and for closing the session.
    app: Arc<App>,
    /// A session of a viewer, of its own, so that its answers cannot be taken for those of another reader.
    session: SessionId,
    /// What the core said to the session.
    received: mpsc::Receiver<Message>,
    /// What is asked for next. `id` ascends with each request; an answer with another one is late, and is passed over.
    request: ReadOutput,
    /// Where a reader that does not follow ends, in bytes: what the run had written at the first chunk. Otherwise a
    /// workload that writes faster than its reader reads would never let the answer end.
    until: u64,
    /// The reader's place among `App::outputs`, which is given back when this is dropped.
    _place: Place,
}

/// Takes the core's messages for a reader. Called under the core's lock.
#[derive(Debug)]
struct Inbox(mpsc::Sender<Message>);

impl Door for Inbox {
    fn take(&self, message: Message) {
        // One answer is waited for at a time; what does not fit is of no use.
        let _ = self.0.try_send(message);
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }
}

impl Reader {
    /// Opens a session and begins with an empty request, which the caller fills in.
    fn open(call: &Call, place: Place) -> Self {
        let (sender, received) = mpsc::channel(MAX_ANSWERS);
        let peer = (Uuid::new_v4(), Role::VIEWER);
        let certificate = Some(call.connection.identity.fingerprint);
        let inbox = Arc::new(Inbox(sender));
        let session = call.app.hub.open_door(peer, certificate, inbox);
        Self {
            app: Arc::clone(&call.app),
            session,
            received,
            request: ReadOutput::default(),
            until: 0,
            _place: place,
        }
    }

    /// The next chunk. A reader that has begun waits out `busy`, which says that as many chunks are read for others as
    /// may be; one that has not is told at once, so that its client gets a 503.
    ///
    /// # Errors
    /// The launcher or the core says that there is none, or none came in time.
    async fn next(&mut self) -> Result<OutputChunk, Problem> {
        for _ in 0..BUSY_TRIES {
            match self.ask().await {
                // A run number is known once a chunk has come.
                Ok(chunk) if chunk.part.failure == OutputFailure::Busy && self.request.run != 0 => {
                    sleep(BUSY_PAUSE).await;
                }
                other => return other.and_then(|chunk| self.take(chunk)),
            }
        }
        let chunk = self.ask().await?;
        self.take(chunk)
    }

    /// Asks for the next chunk, and waits for the answer. An answer that says why there is none is a chunk as well.
    ///
    /// # Errors
    /// 504 `timeout` after [`CHUNK_DEADLINE`].
    async fn ask(&mut self) -> Result<OutputChunk, Problem> {
        self.request.id += 1;
        let input = Input::Command {
            session: self.session,
            command: Command::ReadOutput(Box::new(self.request.clone())),
            parcel: wire::parcel(Frame::new(Kind::READ_OUTPUT, Uuid::nil(), Bytes::new())),
        };
        self.app.hub.handle([input], None);
        let answer = timeout(CHUNK_DEADLINE, self.answer()).await;
        let late = |_| Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", "no output came");
        answer.map_err(late)
    }

    /// Notes where the next chunk begins: behind this one, in the same run, even if the instance is started once more
    /// meanwhile.
    ///
    /// # Errors
    /// The part says why there is no output.
    fn take(&mut self, chunk: OutputChunk) -> Result<OutputChunk, Problem> {
        if chunk.part.is_failure() {
            return Err((&chunk.part).into());
        }
        self.request.run = chunk.part.run;
        self.request.offset = Some(chunk.part.end());
        self.request.tail = None;
        // Offsets begin again: the end that was noted before is of the output that was cut.
        if chunk.part.truncated {
            self.until = chunk.part.total;
        }
        Ok(chunk)
    }

    /// Waits for the answer to the latest request, without a deadline. Messages of other kinds, chunks that cannot be
    /// read and answers to earlier requests are passed over.
    async fn answer(&mut self) -> OutputChunk {
        loop {
            let chunk = match self.received.recv().await {
                Some(Message::Forward(parcel)) => {
                    OutputChunk::decode(&wire::frame_of(&parcel).payload).ok()
                }
                Some(Message::NoOutput(part)) => Some(OutputChunk::new(part.payload, Bytes::new())),
                Some(_) => None,
                // The hub holds the sender until the session is closed, which happens when this reader is dropped.
                None => std::future::pending().await,
            };
            if let Some(chunk) = chunk.filter(|chunk| chunk.part.id == self.request.id) {
                return chunk;
            }
        }
    }

    /// Whether nothing comes after this part.
    fn is_over(&self, part: &OutputPart) -> bool {
        part.ended || !self.request.follow && part.end() >= self.until
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.app.hub.close_door(self.session);
    }
}

/// The body of an answer, which hyper polls for the next bytes when the client has taken the last.
struct Stream {
    /// A chunk that has come and is not written yet.
    ready: Option<OutputChunk>,
    /// Whether a chunk was taken for writing. What is missing before the first is said in the head, later gaps in a
    /// line of their own.
    is_begun: bool,
    /// Whether a chunk is being waited for.
    state: ReaderState,
    /// Cuts the answer off when the scheduler is about to leave. Not polled any more once it has ended.
    leaving: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
}

/// A reader that waits for a chunk. It owns the reader and gives it back with the outcome, because the future is kept
/// between polls.
type Reading = Pin<Box<dyn Future<Output = (Box<Reader>, Result<OutputChunk, Problem>)> + Send>>;

/// What the stream does between two polls.
enum ReaderState {
    /// No chunk is asked for. The next poll asks.
    Between(Box<Reader>),
    /// A chunk is asked for.
    Reading(Reading),
    /// Nothing comes any more; the reader is dropped.
    Over,
}

impl Stream {
    /// The next bytes to be written, with a line before them where output is missing in the middle of the stream;
    /// `None` where there are none of this chunk. Also finds out whether the chunk was the last.
    fn take(&mut self) -> Option<Bytes> {
        let chunk = self.ready.take()?;
        if let ReaderState::Between(reader) = &self.state
            && reader.is_over(&chunk.part)
        {
            self.state = ReaderState::Over;
        }
        let is_first = !std::mem::replace(&mut self.is_begun, true);
        let left_out = match &chunk.part {
            // The head says what is missing before the first chunk.
            _ if is_first => None,
            part if part.truncated => Some("--- the workload has cut its output ---".to_owned()),
            part if part.skipped > 0 => Some(format!("--- left out: {} bytes ---", part.skipped)),
            _ => None,
        };
        match left_out {
            Some(line) => Some(
                [format!("\n{line}\n").as_bytes(), &chunk.data]
                    .concat()
                    .into(),
            ),
            None => (!chunk.data.is_empty()).then_some(chunk.data),
        }
    }
}

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, io::Error>>> {
        let this = self.get_mut();
        loop {
            if let Some(bytes) = this.take() {
                return Poll::Ready(Some(Ok(BodyFrame::data(bytes))));
            }
            let mut reading = match std::mem::replace(&mut this.state, ReaderState::Over) {
                ReaderState::Over => return Poll::Ready(None),
                // Something is missing then, as where a chunk does not come.
                _ if this.leaving.as_mut().poll(cx).is_ready() => {
                    return cut_off(&Problem::leaving());
                }
                ReaderState::Reading(reading) => reading,
                ReaderState::Between(mut reader) => Box::pin(async move {
                    let chunk = reader.next().await;
                    (reader, chunk)
                }),
            };
            match reading.as_mut().poll(cx) {
                Poll::Pending => {
                    this.state = ReaderState::Reading(reading);
                    return Poll::Pending;
                }
                Poll::Ready((reader, Ok(chunk))) => {
                    this.state = ReaderState::Between(reader);
                    this.ready = Some(chunk);
                }
                Poll::Ready((_, Err(problem))) => return cut_off(&problem),
            }
        }
    }
}

/// The end of an answer whose head is written and that is not whole: cut off, so that its reader knows.
fn cut_off(problem: &Problem) -> Poll<Option<Result<BodyFrame<Bytes>, io::Error>>> {
    Poll::Ready(Some(Err(io::Error::other(problem.text()))))
}

impl From<NoPlace> for Problem {
    fn from(no_place: NoPlace) -> Self {
        match no_place {
            NoPlace::Full => Self::busy("as many outputs are read as may be at a time"),
            NoPlace::OwnShare(most) => Self::busy(format!(
                "this certificate reads {most} outputs, as many as one may at a time"
            )),
        }
    }
}

impl From<&OutputPart> for Problem {
    fn from(part: &OutputPart) -> Self {
        let status = match part.failure {
            OutputFailure::NoInstance | OutputFailure::NoFile => StatusCode::NOT_FOUND,
            OutputFailure::NotPermitted => StatusCode::FORBIDDEN,
            OutputFailure::NeverBegan | OutputFailure::NotOver => StatusCode::CONFLICT,
            OutputFailure::NotKept => StatusCode::GONE,
            OutputFailure::NotSupported => StatusCode::NOT_IMPLEMENTED,
            OutputFailure::NodeLost | OutputFailure::Busy => StatusCode::SERVICE_UNAVAILABLE,
            OutputFailure::Timeout => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, part.failure.as_str(), &part.detail)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use http_body_util::BodyExt as _;

    use super::*;

    /// A stream of a scheduler that leaves.
    fn leaving(state: ReaderState, ready_chunk: Option<OutputChunk>) -> Stream {
        Stream {
            ready: ready_chunk,
            is_begun: true,
            state,
            leaving: Box::pin(ready(())),
        }
    }

    #[tokio::test]
    async fn an_answer_is_cut_off_where_the_scheduler_leaves_before_its_end() {
        let mut stream = leaving(ReaderState::Reading(Box::pin(pending())), None);
        let error = stream.frame().await.unwrap().unwrap_err();
        assert!(error.to_string().contains("leaving"), "{error}");
        assert!(stream.frame().await.is_none(), "it has ended");
    }

    #[tokio::test]
    async fn an_answer_that_is_whole_ends_as_such_although_the_scheduler_leaves() {
        let last = OutputChunk::new(OutputPart::default(), Bytes::from_static(b"end"));
        let mut stream = leaving(ReaderState::Over, Some(last));
        let frame = stream.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "end");
        assert!(stream.frame().await.is_none());
    }
}
