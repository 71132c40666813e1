//! The body of an answer: a piece at a time, together with the turn among those that are worked on, which it keeps until
//! the last piece is taken; and how long that may take.
//!
//! hyper copies a body that is in one piece as soon as the head is written, however slowly its client reads. In pieces it
//! takes what its own buffer has room for, and what is behind that stays here, where it is counted:
//!
//! ```text
//! answer ── Body: turn, rest ──piece──▶ hyper's buffer ──▶ Progress ──▶ socket
//!             │ dropped with the last piece      a write without a byte ends the connection
//!             └── Writing: by when ──▶ Door::serve ends the connection of a client that takes a byte now and then
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use super::limits::{BODY_PIECE, WRITE_DEADLINE};
use super::places::Place;

/// A body that is being written.
#[derive(Debug)]
pub(in crate::server) struct Body {
    rest: Bytes,
    /// `None` for an answer that nothing was worked out for.
    _turn: Option<Turn>,
}

/// A turn among the requests that are worked on. Dropped with the body, so also with a connection that has ended.
#[derive(Debug)]
struct Turn {
    writing: Writing,
    /// Its number among those of the connection.
    number: u64,
    _permit: OwnedSemaphorePermit,
}

/// By when the answers that a connection writes have to be taken: one at a time with HTTP/1.1, several with HTTP/2.
/// Clones are of the same connection.
#[derive(Debug, Clone)]
pub(in crate::server) struct Writing {
    open: Arc<watch::Sender<Open>>,
    client: Arc<Client>,
}

/// Who is at the other end of a connection.
#[derive(Debug)]
struct Client {
    from: SocketAddr,
    /// Its place among those that a token alone lets in; `None` for a client that has shown a certificate.
    place: Option<Place>,
    /// Whether it has shown a token that is not let in.
    has_failed: AtomicBool,
}

/// The answers that are being written, at most `MAX_REQUESTS` of all connections together.
#[derive(Debug, Default)]
struct Open {
    /// The number of the next one.
    next: u64,
    /// When each has to be taken. All have the same time for it, so that the first is the earliest.
    until: BTreeMap<u64, Instant>,
}

impl Body {
    /// A body, and the permit with which it was made.
    pub(super) fn new(
        body: Bytes,
        permit: Option<OwnedSemaphorePermit>,
        writing: &Writing,
    ) -> Self {
        let turn = permit.map(|permit| writing.begin(permit));
        Self {
            rest: body,
            _turn: turn,
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.rest.len().min(BODY_PIECE);
        let piece = self.rest.split_to(len);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    /// The length is known, and becomes `Content-Length`.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Writing {
    /// For a connection from this address that writes nothing yet, and has this place if it needs one.
    pub(in crate::server) fn new(from: SocketAddr, place: Option<Place>) -> Self {
        let client = Client {
            from,
            place,
            has_failed: AtomicBool::new(false),
        };
        Self {
            open: Arc::default(),
            client: Arc::new(client),
        }
    }

    /// An answer is there, to be taken within [`WRITE_DEADLINE`].
    fn begin(&self, permit: OwnedSemaphorePermit) -> Turn {
        let mut number = 0;
        self.open.send_modify(|open| {
            number = open.next;
            open.next += 1;
            open.until.insert(number, Instant::now() + WRITE_DEADLINE);
        });
        Turn {
            writing: self.clone(),
            number,
            _permit: permit,
        }
    }

    /// A token was shown that is let in.
    pub(super) fn admit(&self) {
        if let Some(place) = &self.client.place {
            place.show();
        }
    }

    /// A token was shown that is not. Where from, if that is to be logged: once for a connection, which can show any
    /// number.
    pub(super) fn turn_down(&self) -> Option<SocketAddr> {
        let is_first = !self.client.has_failed.swap(true, Ordering::Relaxed);
        is_first.then_some(self.client.from)
    }

    /// Waits until the connection has to end: an answer has not been taken in time, or it has shown no token for so long
    /// since it has come, or has none and another needs its place. The last two only where it needs a place.
    pub(in crate::server) async fn has_to_end(&self, time: Duration) {
        match &self.client.place {
            Some(place) => tokio::select! {
                () = self.is_late() => {}
                () = place.is_lost(time) => {}
            },
            None => self.is_late().await,
        }
    }

    /// Waits until an answer has not been taken in time.
    async fn is_late(&self) {
        let mut until = self.open.subscribe();
        loop {
            let deadline = until.borrow_and_update().until.values().next().copied();
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => return,
                // The sender is `self`'s, so it is there.
                _ = until.changed() => {}
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let number = self.number;
        self.writing.open.send_modify(|open| {
            open.until.remove(&number);
        });
    }
}
