//! Both encodings behind one face: push bytes into a buffer, pull [`Message`]s out of it.
//!
//! The first byte after the TLS handshake decides a connection's [`Encoding`] for its whole life: 0 is the native
//! encoding (major byte of CONNECT), anything else a gob stream (length of its first message).

use bytes::BytesMut;

use crate::connect::{Connect, Connected};
use crate::frame::Frame;
use crate::limits::Limits;

/// How a connection's bytes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// This project's framing: fixed header, big-endian.
    Native,
    /// Go's `encoding/gob`, as original peers speak it.
    Gob,
}

/// One decoded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A client's first message.
    Connect(Connect),
    /// A server's first message, where it accepts.
    Connected(Connected),
    /// Everything else.
    Frame(Frame),
}

/// Why bytes are not a message. The stream cannot be read on after any of these.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A length on the wire is over its limit; nothing was allocated for it.
    #[error("{what} of {len} bytes is over the limit of {limit}")]
    TooLong {
        /// What the length belongs to.
        what: &'static str,
        /// The length the peer stated.
        len: u64,
        /// The limit it was compared with.
        limit: u64,
    },
    /// The bytes contradict the format.
    #[error("malformed {what}")]
    Malformed {
        /// What could not be read.
        what: &'static str,
    },
}

/// Turns one direction of one connection's bytes into messages.
#[derive(Debug)]
pub struct Decoder {
    limits: Limits,
}

impl Decoder {
    /// The server's end: expects CONNECT first, in whichever encoding the first byte says.
    #[must_use]
    pub fn server(limits: Limits) -> Self {
        Self { limits }
    }

    /// The client's end: expects CONNECTED, or a refusing ERROR frame, first.
    #[must_use]
    pub fn client(_encoding: Encoding, limits: Limits) -> Self {
        Self { limits }
    }

    /// The encoding, once it is known.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        None
    }

    /// Takes the next whole message off the front of `src`; `None` = more bytes are needed.
    ///
    /// # Errors
    /// [`DecodeError`] where the bytes cannot be a message; close the connection then.
    pub fn decode(&mut self, _src: &mut BytesMut) -> Result<Option<Message>, DecodeError> {
        let _ = self.limits;
        unimplemented!()
    }
}

/// Turns messages into one direction of one connection's bytes.
#[derive(Debug)]
pub struct Encoder {
    encoding: Encoding,
}

impl Encoder {
    /// An encoder at the start of its stream.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        Self { encoding }
    }

    /// Appends the message's bytes to `dst`.
    pub fn encode(&mut self, _message: &Message, _dst: &mut BytesMut) {
        let _ = self.encoding;
        unimplemented!()
    }

    /// Appends a frame's bytes to `dst`; what [`Encoder::encode`] does with a [`Message::Frame`], without the copy.
    pub fn encode_frame(&mut self, _frame: &Frame, _dst: &mut BytesMut) {
        unimplemented!()
    }
}
