//! How a connection ended.

use std::io;
use std::time::Duration;

use proto_frames::DecodeError;

/// Why a connection ended. The texts follow the peer's role and UUID in the log.
#[derive(Debug, thiserror::Error)]
pub enum EndReason {
    /// The peer closed it, with TLS's close_notify.
    #[error("closed by the peer")]
    Closed,
    /// It ended without that: a crash, or a failed network.
    #[error("broken off by the peer, without a TLS close_notify")]
    Broken,
    /// This side closed it, after everything queued was written.
    #[error("closed")]
    Finished,
    /// This side ended it at once.
    #[error("ended by this side")]
    Shut,
    /// The peer's bytes are no messages.
    #[error("its bytes cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// Writes made no progress for this long.
    #[error("it has read nothing for {0:?}, or too little, while frames wait for it")]
    WriteStuck(Duration),
    /// A frame was begun and not completed for this long.
    #[error("it has not completed the frame it began {0:?} ago")]
    ReadStuck(Duration),
    /// The socket failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl EndReason {
    /// The reason of a read that failed: an end without close_notify, or a reset, is a peer that is gone rather than a
    /// failure of this side.
    pub(super) fn of_read(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Self::Broken,
            _ => error.into(),
        }
    }
}

/// How a connection ended.
#[derive(Debug)]
pub struct End<M> {
    /// Why it ended.
    pub reason: EndReason,
    /// Messages of which certainly not one byte was handed to the socket, in order. What is not in here may have
    /// arrived: a START of it is in doubt.
    pub unsent: Vec<M>,
}
