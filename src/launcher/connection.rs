//! The connection of one node, as its run loop sees it, and what the loop wakes up for.

use std::pin::Pin;
use std::time::Instant;

use proto_frames::payload::cut::cut;
use proto_frames::payload::{ConnectionAborted, OutputChunk, Payload, ReadImage};
use proto_frames::{Frame, Kind};

use super::agent::Input;
use super::answers::Answers;
use super::config::LauncherError;
use crate::net::link::{Link, LinkClosed};
use crate::printable::Printable;

/// Bytes of the scheduler's words that are shown when it refuses this launcher: a few lines.
const MAX_REFUSAL_LEN: usize = 1024;

/// The state of a node's connection.
pub(super) enum Connection {
    Dialling(Pin<Box<dyn Future<Output = Result<Link, LauncherError>> + Send>>),
    Up {
        link: Link,
        since: Instant,
        /// Frames known to be written to the socket.
        written: u64,
        /// Whether the scheduler answers reports.
        answers: Answers,
    },
}

/// What a node waits for.
pub(super) enum Wakeup {
    Happened(Input),
    Connected(Link),
    Received(Frame),
    /// What somebody wants to read.
    Read(OutputChunk),
    /// A chunk of an image is wanted.
    Wanted(ReadImage),
    /// The first frame of the outbox was taken.
    Sent,
    /// So many frames have been written to the socket.
    Written(u64),
    /// The scheduler should have answered by now.
    Due,
    Lost(LinkClosed),
    Ending,
}

/// Why the scheduler refuses this launcher for good, if the frame says so: one without words does not, as those of the
/// original do not.
pub(super) fn refusal(frame: &Frame) -> Option<Printable> {
    if frame.kind != Kind::CONNECTION_ABORTED {
        return None;
    }
    let aborted = ConnectionAborted::decode(&frame.payload).ok()?;
    (!aborted.detail.is_empty()).then(|| Printable::new(cut(&aborted.detail, MAX_REFUSAL_LEN)))
}

/// The next thing that happens on the connection. Nothing is lost where the wait is given up.
pub(super) async fn exchange(
    connection: &mut Connection,
    outgoing: Option<&Frame>,
) -> Result<Wakeup, LauncherError> {
    match (connection, outgoing) {
        (Connection::Dialling(dialling), _) => dialling.await.map(Wakeup::Connected),
        (Connection::Up { link, .. }, Some(frame)) => Ok(link
            .sender
            .send(frame.clone())
            .await
            .map_or_else(Wakeup::Lost, |()| Wakeup::Sent)),
        (Connection::Up { link, .. }, None) => Ok(link
            .receiver
            .recv()
            .await
            .map_or_else(Wakeup::Lost, Wakeup::Received)),
    }
}
