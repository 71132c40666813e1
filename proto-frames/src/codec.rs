//! Both encodings behind one face: push bytes into a buffer, pull [`Message`]s out of it.
//!
//! The first byte after the TLS handshake decides a connection's [`Encoding`] for as long as it lasts: 0 is the native
//! encoding (major byte of CONNECT), anything else a gob stream (length of its first message).
//!
//! ```
//! use bytes::BytesMut;
//! use proto_frames::{Connect, Decoder, Encoder, Encoding, Limits, Message, Role, Uuid};
//!
//! let connect = Message::Connect(Connect::new(Role::AGENT, Uuid::from_u128(7)));
//! let mut wire = BytesMut::new();
//! Encoder::new(Encoding::Gob).encode(&connect, &mut wire);
//!
//! let mut decoder = Decoder::server(Limits::default());
//! assert_eq!(decoder.decode(&mut wire), Ok(Some(connect)));
//! assert_eq!(decoder.encoding(), Some(Encoding::Gob));
//! assert_eq!(decoder.decode(&mut wire), Ok(None));
//! ```

mod gob;
mod native;
mod skip;

use bytes::{Buf, Bytes, BytesMut};

use self::skip::Skip;
pub use self::skip::{Received, TooLong};

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
    #[error("{what} of {len} is over the limit of {limit}")]
    TooLong {
        /// What the length belongs to, with its unit.
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
///
/// It keeps no bytes of its own: what is not a whole message yet stays in the caller's buffer, which never needs to
/// hold more than [`Limits::max_message_len`] bytes and what one read brings. A message that is too long is refused as
/// soon as its length prefix is there.
#[derive(Debug)]
pub struct Decoder {
    /// What is compared with each length before memory is taken.
    limits: Limits,
    /// Changes once, after the first message.
    expect: Expect,
    /// Known from the first byte on for a server, from the beginning for a client.
    wire: Wire,
    /// The frame whose payload is being skipped. Boxed, because it is rare.
    skipping: Option<Box<Skip>>,
    /// Bytes of the longest payload that is copied.
    copy_up_to: usize,
}

/// What is at the front of a stream, from either encoding's reader to the decoder.
#[derive(Debug)]
enum Decoded {
    /// A whole message; it has been taken off.
    Message(Message),
    /// A frame whose payload is to be skipped; what stands before that has been taken off.
    Skip(Skip),
}

/// Which message comes next; the layouts cannot be told apart without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A server's decoder at the start.
    Connect,
    /// A client's decoder at the start: CONNECTED, or an ERROR frame instead.
    Answer,
    /// Any frame, for the rest of the connection.
    Frame,
}

/// The encoding, with what is remembered of the stream so far.
#[derive(Debug)]
enum Wire {
    /// No byte has been seen.
    Unknown,
    /// Nothing is remembered: each message stands for itself.
    Native,
    /// The types that the stream has described so far.
    Gob(gob::Reader),
}

impl Decoder {
    /// The server's end: expects CONNECT first, in whichever encoding the first byte says.
    #[must_use]
    pub fn server(limits: Limits) -> Self {
        Self {
            limits,
            expect: Expect::Connect,
            wire: Wire::Unknown,
            skipping: None,
            copy_up_to: 0,
        }
    }

    /// The client's end: expects CONNECTED, or a refusing ERROR frame, first.
    #[must_use]
    pub fn client(encoding: Encoding, limits: Limits) -> Self {
        Self {
            limits,
            expect: Expect::Answer,
            wire: Wire::new(encoding),
            skipping: None,
            copy_up_to: 0,
        }
    }

    /// From now on payloads of up to so many bytes are copies: they do not keep the caller's buffer, which can be used
    /// again. By default none is. A connection that reads into a shared buffer sets it, so that one short message in a
    /// queue does not hold a whole batch.
    pub fn copy_payloads_up_to(&mut self, bytes: usize) {
        self.copy_up_to = bytes;
    }

    /// The encoding, once it is known.
    #[must_use]
    pub fn encoding(&self) -> Option<Encoding> {
        match self.wire {
            Wire::Unknown => None,
            Wire::Native => Some(Encoding::Native),
            Wire::Gob(_) => Some(Encoding::Gob),
        }
    }

    /// Takes the next whole message off the front of `src`; `None` = more bytes are needed.
    ///
    /// The payload is a part of `src`'s allocation, not a copy, and keeps that allocation alive, unless it is short
    /// ([`Decoder::copy_payloads_up_to`]).
    ///
    /// # Errors
    /// [`DecodeError`] where the bytes cannot be a message; close the connection then. The bytes stay in `src`, and
    /// calling again gives the same error.
    pub fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Message>, DecodeError> {
        let limits = Limits {
            max_skipped_len: 0,
            ..self.limits
        };
        match self.next(&limits, src)? {
            Some(Received::Message(message)) => Ok(Some(message)),
            // Nothing is skipped with these limits.
            Some(Received::TooLong(_)) | None => Ok(None),
        }
    }

    /// As [`Decoder::decode`]; but of a frame whose payload is over the limit, and within [`Limits::max_skipped_len`],
    /// only the beginning is kept, and the rest thrown away as it comes. The stream goes on behind it.
    ///
    /// # Errors
    /// As [`Decoder::decode`].
    pub fn decode_or_skip(&mut self, src: &mut BytesMut) -> Result<Option<Received>, DecodeError> {
        let limits = self.limits;
        self.next(&limits, src)
    }

    /// One step of both public methods: goes on skipping if a payload is being skipped, settles the encoding by the
    /// first byte, then asks its reader. A skip that begins may be complete within the same buffer, hence the second
    /// round.
    fn next(
        &mut self,
        limits: &Limits,
        src: &mut BytesMut,
    ) -> Result<Option<Received>, DecodeError> {
        if let Some(skip) = &mut self.skipping {
            let Some(refused) = skip.advance(src) else {
                return Ok(None);
            };
            self.skipping = None;
            return Ok(Some(Received::TooLong(refused)));
        }
        if let Wire::Unknown = self.wire {
            let Some(&first) = src.first() else {
                return Ok(None);
            };
            self.wire = Wire::new(if first == 0 {
                Encoding::Native
            } else {
                Encoding::Gob
            });
        }
        let decoded = match &mut self.wire {
            Wire::Unknown => None,
            Wire::Native => native::decode(self.expect, limits, self.copy_up_to, src)?,
            Wire::Gob(reader) => reader.decode(self.expect, limits, self.copy_up_to, src)?,
        };
        match decoded {
            None => Ok(None),
            Some(Decoded::Message(message)) => {
                self.expect = Expect::Frame;
                Ok(Some(Received::Message(message)))
            }
            Some(Decoded::Skip(skip)) => {
                self.skipping = Some(Box::new(skip));
                self.next(limits, src)
            }
        }
    }

    /// Whether a payload that is too long is being thrown away.
    #[must_use]
    pub fn is_skipping(&self) -> bool {
        self.skipping.is_some()
    }

    /// Whether, after [`Decoder::decode`] has returned `None`, the peer has begun a message that is not all there yet:
    /// that is when a deadline for the rest of it is due. An idle peer leaves `src` empty.
    #[must_use]
    pub fn is_mid_message(&self, src: &BytesMut) -> bool {
        !src.is_empty() || self.is_skipping()
    }
}

impl Wire {
    fn new(encoding: Encoding) -> Self {
        match encoding {
            Encoding::Native => Self::Native,
            Encoding::Gob => Self::Gob(gob::Reader::default()),
        }
    }
}

/// Turns messages into one direction of one connection's bytes.
///
/// Encoding cannot fail. What does not fit the format is cut: a path after 255 nodes, in the native encoding a label
/// after 255 bytes.
#[derive(Debug)]
pub struct Encoder {
    format: Format,
}

/// The encoding, with what the stream has been told so far.
#[derive(Debug)]
enum Format {
    Native,
    Gob(gob::Writer),
}

impl Encoder {
    /// An encoder at the start of its stream.
    #[must_use]
    pub fn new(encoding: Encoding) -> Self {
        let format = match encoding {
            Encoding::Native => Format::Native,
            Encoding::Gob => Format::Gob(gob::Writer::default()),
        };
        Self { format }
    }

    /// The encoding it writes.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        match self.format {
            Format::Native => Encoding::Native,
            Format::Gob(_) => Encoding::Gob,
        }
    }

    /// Appends the message's bytes to `dst`.
    ///
    /// # Panics
    /// If the payload is 4 GiB or longer, which no wire format can say.
    pub fn encode(&mut self, message: &Message, dst: &mut BytesMut) {
        match (&mut self.format, message) {
            (Format::Native, Message::Connect(connect)) => native::encode_connect(connect, dst),
            (Format::Native, Message::Connected(connected)) => {
                native::encode_connected(connected, dst)
            }
            (Format::Native, Message::Frame(frame)) => native::encode_frame(frame, dst),
            (Format::Gob(writer), Message::Connect(connect)) => writer.connect(connect, dst),
            (Format::Gob(writer), Message::Connected(connected)) => {
                writer.connected(connected, dst)
            }
            (Format::Gob(writer), Message::Frame(frame)) => writer.frame(frame, dst),
        }
    }

    /// Appends a frame's bytes to `dst`; what [`Encoder::encode`] does with a [`Message::Frame`], without needing one.
    /// In a gob stream the first frame brings its type descriptors along.
    ///
    /// # Panics
    /// If the payload is 4 GiB or longer, which no wire format can say.
    pub fn encode_frame(&mut self, frame: &Frame, dst: &mut BytesMut) {
        match &mut self.format {
            Format::Native => native::encode_frame(frame, dst),
            Format::Gob(writer) => writer.frame(frame, dst),
        }
    }
}

/// A version's major byte on the wire: bit 7 says that a trace (gob: a path trace) comes with the frame. So a major
/// version has seven bits.
const TRACE_BIT: u8 = 0x80;

/// The error for bytes that contradict the format; `what` follows the word "malformed".
const fn malformed(what: &'static str) -> DecodeError {
    DecodeError::Malformed { what }
}

/// Compares a length from the wire with its limit. Every length that a peer states goes through here.
///
/// # Errors
/// [`DecodeError::TooLong`], with `what` and its unit in the text.
fn within(what: &'static str, len: u64, limit: usize) -> Result<usize, DecodeError> {
    match usize::try_from(len) {
        Ok(len) if len <= limit => Ok(len),
        _ => Err(DecodeError::TooLong {
            what,
            len,
            limit: limit as u64,
        }),
    }
}

/// Takes a payload of `len` bytes off the front of `src`, which the caller has checked to be there; as a copy if it has
/// no more than `copy_up_to`.
fn take_payload(src: &mut BytesMut, len: usize, copy_up_to: usize) -> Bytes {
    if len > copy_up_to {
        return src.split_to(len).freeze();
    }
    let payload = Bytes::copy_from_slice(&src[..len]);
    src.advance(len);
    payload
}

/// A payload's length as both formats write it. Checked in this place alone; see the panics of [`Encoder::encode`].
fn payload_len(payload: &[u8]) -> u32 {
    u32::try_from(payload.len()).expect("a payload is shorter than 4 GiB")
}
