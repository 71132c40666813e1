//! A client's connection to the scheduler: TLS, CONNECT, CONNECTED, then frames both ways.

use proto_frames::{Connected, Encoding, Frame, Role, Uuid};

/// What a client says of itself in CONNECT, and how.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Roles to claim; the certificate must grant them.
    pub role: Role,
    /// The client's UUID.
    pub uuid: Uuid,
    /// The encoding to speak.
    pub encoding: Encoding,
}

/// An established connection: CONNECTED has been received.
#[derive(Debug)]
pub struct Link {
    /// The scheduler's answer, with the cluster configuration.
    pub connected: Connected,
    /// The outbound half; clones share one queue.
    pub sender: LinkSender,
    /// The inbound half.
    pub receiver: LinkReceiver,
}

/// Queues frames for the scheduler.
#[derive(Debug, Clone)]
pub struct LinkSender {}

/// Hands out the scheduler's frames in order.
#[derive(Debug)]
pub struct LinkReceiver {}

/// The connection is over; `0` says why, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("connection lost: {0}")]
pub struct LinkClosed(pub String);

impl LinkSender {
    /// Queues a frame; waits while the queue is full.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended.
    #[expect(clippy::unused_async, reason = "outline")]
    pub async fn send(&self, _frame: Frame) -> Result<(), LinkClosed> {
        unimplemented!()
    }

    /// Waits until everything queued has been written to the socket.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended.
    #[expect(clippy::unused_async, reason = "outline")]
    pub async fn flush(&self) -> Result<(), LinkClosed> {
        unimplemented!()
    }

    /// Ends the connection after what is queued has been written.
    pub fn close(&self) {
        unimplemented!()
    }
}

impl LinkReceiver {
    /// The next frame, in the order the scheduler sent them.
    ///
    /// # Errors
    /// [`LinkClosed`] once the connection has ended and every frame received before that was handed out.
    #[expect(clippy::unused_async, reason = "outline")]
    pub async fn recv(&mut self) -> Result<Frame, LinkClosed> {
        unimplemented!()
    }
}
