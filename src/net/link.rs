//! A client's connection to the scheduler: TLS, CONNECT, CONNECTED, then frames both ways.
//!
//! [`connect()`] opens one; launchers, controllers and operators' tools use it. One task serves it, the same
//! [`crate::net::peer`] that the daemon pumps its connections with: everything queued is written with one call, and
//! no buffer is kept while nothing moves, so that a process can hold thousands of links. Nothing here reconnects: that
//! is its user's business, with [`connect_first`] and [`crate::net::address::Backoff`].
//!
//! ```text
//! LinkSender ──▶ outbox ──▶ peer's task ──▶ TLS ──▶ scheduler
//! LinkReceiver ◀── inbound queue ◀── peer's task ◀── TLS
//! ```
//!
//! Both queues are bounded in bytes: senders wait ([`MAX_OUTBOUND_BYTES`]), and the socket is not read from while the
//! receiver does not take what came ([`MAX_INBOUND_BYTES`]).

mod connect;
mod queue;
mod rounds;

use std::sync::Arc;
use std::time::Instant;

use proto_frames::{Connected, Encoding, Frame, Role, Uuid};

pub use connect::{ConnectError, Timeouts};
use queue::Queues;
pub use queue::{MAX_INBOUND_BYTES, MAX_OUTBOUND_BYTES};
pub use rounds::{FIRST_PATIENCE, connect, connect_first};

/// What a client says of itself in CONNECT, and how.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Roles to claim in CONNECT; the certificate must grant them all.
    pub role: Role,
    /// The client's UUID; a launcher's is its node's. A certificate may be bound to one.
    pub uuid: Uuid,
    /// The encoding to speak. The scheduler takes both; one of the original takes gob alone.
    pub encoding: Encoding,
}

/// An established connection: CONNECTED has been received. Sender and receiver may be moved to different tasks.
#[derive(Debug)]
pub struct Link {
    /// The scheduler's answer, with the cluster configuration.
    pub connected: Connected,
    /// The outbound half; clones share one queue.
    pub sender: LinkSender,
    /// The inbound half.
    pub receiver: LinkReceiver,
}

/// Queues frames for the scheduler. Dropping the last sender and the receiver closes the connection.
#[derive(Debug, Clone)]
pub struct LinkSender {
    /// Shared with all clones and the receiver.
    held: Arc<Held>,
}

/// Hands out the scheduler's frames in order. While it is gone but a sender is left, received frames are thrown away.
#[derive(Debug)]
pub struct LinkReceiver {
    held: Arc<Held>,
}

/// The connection is over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection lost: {why}")]
pub struct LinkClosed {
    /// Why, for people.
    pub why: String,
    /// Whether the scheduler has ended it in order.
    pub how: Closing,
}

/// How the scheduler has ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    /// With TLS's close_notify, behind all that it had queued for this peer: a command that it has not answered by then, of a kind
    /// that is always answered, it has not read, or has not recorded in time. Look for it before it is sent again.
    InOrder,
    /// Otherwise: what becomes of commands that it has not answered is not known.
    Unclear,
}

impl LinkClosed {
    /// Not in order.
    #[must_use]
    pub fn unclear(why: String) -> Self {
        let how = Closing::Unclear;
        Self { why, how }
    }
}

/// The users' common hold on the queues: when the last is dropped, the connection is closed.
#[derive(Debug)]
struct Held(Arc<Queues>);

impl LinkSender {
    /// Queues a frame; waits while more than [`MAX_OUTBOUND_BYTES`] are queued. Frames of one sender leave in order.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended or is being closed.
    pub async fn send(&self, frame: Frame) -> Result<(), LinkClosed> {
        self.held.0.push_outbound(frame).await
    }

    /// Waits until everything queued so far has been written to the socket. They may still be on their way: nothing
    /// says that the scheduler has read them.
    ///
    /// # Errors
    /// [`LinkClosed`] if the connection ends before that.
    pub async fn flush(&self) -> Result<(), LinkClosed> {
        self.held.0.written().await
    }

    /// Waits until more than so many of the frames queued since the connection began have been written to the socket;
    /// how many have. For a client that has to know which frames may have left when a connection breaks.
    ///
    /// # Errors
    /// [`LinkClosed`] if the connection ends before that.
    pub async fn written_beyond(&self, frames: u64) -> Result<u64, LinkClosed> {
        self.held.0.written_beyond(frames).await
    }

    /// When something was last received of the scheduler, frames that nobody has taken yet included; `None` before the
    /// first.
    #[must_use]
    pub fn heard(&self) -> Option<Instant> {
        self.held.0.heard()
    }

    /// Ends the connection after what is queued has been written; [`LinkSender::closed`] waits for that. What is sent
    /// afterwards, through any clone, fails.
    pub fn close(&self) {
        self.held.0.begin_close();
    }

    /// Waits until the connection has ended, and says why. At once if it has ended already.
    pub async fn closed(&self) -> LinkClosed {
        self.held.0.ended().await
    }
}

impl LinkReceiver {
    /// The next frame, in the order the scheduler sent them. Cancelling it loses nothing.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended and every frame received before that was handed out.
    pub async fn recv(&mut self) -> Result<Frame, LinkClosed> {
        self.held.0.inbound(Queues::pop_inbound).await
    }

    /// The next frame if one is there already.
    ///
    /// # Errors
    /// As [`LinkReceiver::recv`].
    pub fn try_recv(&mut self) -> Result<Option<Frame>, LinkClosed> {
        self.held.0.pop_inbound()
    }
}

/// What will not be taken is thrown away, so that it does not keep the socket from being read.
impl Drop for LinkReceiver {
    fn drop(&mut self) {
        self.held.0.discard_inbound();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.begin_close();
    }
}

/// Both ends of a new link's queues.
fn halves(queues: &Arc<Queues>) -> (LinkSender, LinkReceiver) {
    let held = Arc::new(Held(Arc::clone(queues)));
    (
        LinkSender {
            held: Arc::clone(&held),
        },
        LinkReceiver { held },
    )
}
