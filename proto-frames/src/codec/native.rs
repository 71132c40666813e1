//! The native encoding: fixed big-endian headers, lengths first. The bit layout of each message:
//!
//! ```text
//!  0      1      2      3         4      5      6      7
//! +------+------+------+---------+------+------+------+------+
//! | major| minor| type | operand | payload length, or role   |
//! +------+------+------+---------+------+------+------+------+
//! CONNECT    header(role) | source UUID 16 | destination UUID 16
//! CONNECTED  header(role) | server UUID 16 | client UUID 16 | payload length u32 | payload
//!            of version 0.4 and later, before the payload: generation u64 | revision u64 of the scheduler's term
//! any other  header(payload length) | trace block, only if major bit 7 is set | payload
//! trace      block length u32 | flags u8 (bit 0: path trace) | origin UUID 16 | label length u8, label
//!            | start i64, end i64 (ns since the Unix epoch, 0 = unset) | node count u8
//!            | node: UUID 16, role u32, tx i64, rx i64
//! ```
//!
//! CONNECT and CONNECTED open a stream. A frame of either kind later on has no layout, so it is refused.
//!
//! DELETE with a payload of five bytes and no trace, as hexadecimal digits:
//!
//! ```text
//! 00 01  00 04  00 00 00 05  68 65 6c 6c 6f
//! major minor | type operand | length | "hello"
//! ```
//!
//! A header is judged as soon as its eight bytes are there: a message that may not come, or a length over the limit, is
//! refused before anything of its body is waited for.

use crate::Uuid;
use bytes::{Buf, BufMut, BytesMut};

use super::{
    DecodeError, Decoded, Expect, Message, Skip, TRACE_BIT, malformed, payload_len, take_payload,
    within,
};
use crate::Role;
use crate::connect::{Connect, Connected, Term};
use crate::frame::{Frame, Version};
use crate::kind::{FrameType, Kind};
use crate::limits::{Limits, MAX_LABEL_LEN, MAX_TRACE_BLOCK_LEN, MAX_TRACE_NODES};
use crate::trace::{Timestamp, Trace, TraceNode};

/// Version, kind, and a word that is the payload's length or a role.
const HEADER_LEN: usize = 8;
const UUID_LEN: usize = 16;
/// A CONNECT, whole: it has no payload.
const CONNECT_LEN: usize = HEADER_LEN + 2 * UUID_LEN;
/// A CONNECTED up to its payload.
const CONNECTED_LEN: usize = CONNECT_LEN + 4;
/// Generation and revision.
const TERM_LEN: usize = 8 + 8;

/// Bit 0 of a trace block's flags: a path is traced. The other bits are not given out.
const FLAG_PATH: u8 = 1;
/// Flags, origin, label length, start, end and node count.
const TRACE_FIXED_LEN: usize = 1 + UUID_LEN + 1 + 8 + 8 + 1;
/// UUID, role and two times.
const NODE_LEN: usize = UUID_LEN + 4 + 8 + 8;

/// The eight bytes every message starts with.
struct Header {
    /// Whether a trace block follows: bit 7 of the major byte.
    traced: bool,
    version: Version,
    kind: Kind,
    /// Length of the payload; of CONNECT and CONNECTED the role.
    word: u32,
}

impl Header {
    /// Cannot fail: unknown types and operands are kept.
    fn decode(bytes: [u8; HEADER_LEN]) -> Self {
        let [major, minor, ty, operand, word @ ..] = bytes;
        Self {
            traced: major & TRACE_BIT != 0,
            version: Version {
                major: major & !TRACE_BIT,
                minor,
            },
            kind: Kind::new(ty, operand),
            word: u32::from_be_bytes(word),
        }
    }

    fn encode(&self) -> [u8; HEADER_LEN] {
        let major = (self.version.major & !TRACE_BIT) | if self.traced { TRACE_BIT } else { 0 };
        let [a, b, c, d] = self.word.to_be_bytes();
        [
            major,
            self.version.minor,
            self.kind.ty.0,
            self.kind.operand,
            a,
            b,
            c,
            d,
        ]
    }
}

/// Takes the next whole message off `src`; see [`super::Decoder::decode`]. `None` leaves `src` as it is.
///
/// # Errors
/// What may not come here (`expect`), a length over its limit, or a trace block that contradicts itself.
pub(super) fn decode(
    expect: Expect,
    limits: &Limits,
    copy_up_to: usize,
    src: &mut BytesMut,
) -> Result<Option<Decoded>, DecodeError> {
    let Some(&header) = src.first_chunk::<HEADER_LEN>() else {
        return Ok(None);
    };
    let header = Header::decode(header);
    match expect {
        Expect::Connect => decode_connect(&header, limits, src),
        Expect::Answer if header.kind == Kind::CONNECTED => decode_connected(&header, limits, src),
        Expect::Answer if header.kind.ty != FrameType::ERROR => Err(malformed("answer to CONNECT")),
        Expect::Frame if header.kind == Kind::CONNECT => Err(malformed("frame: a second CONNECT")),
        Expect::Frame if header.kind == Kind::CONNECTED => {
            Err(malformed("frame: a second CONNECTED"))
        }
        Expect::Answer | Expect::Frame => decode_frame(&header, expect, limits, copy_up_to, src),
    }
}

/// CONNECT. Its length is fixed, and compared with the limit for what an unknown peer may send.
fn decode_connect(
    header: &Header,
    limits: &Limits,
    src: &mut BytesMut,
) -> Result<Option<Decoded>, DecodeError> {
    if header.traced {
        return Err(malformed("CONNECT: it says it has a trace"));
    }
    within(
        "CONNECT, in bytes,",
        CONNECT_LEN as u64,
        limits.max_connect_len,
    )?;
    if src.len() < CONNECT_LEN {
        return Ok(None);
    }
    src.advance(HEADER_LEN);
    Ok(Some(Decoded::Message(Message::Connect(Connect {
        version: header.version,
        kind: header.kind,
        role: Role(header.word),
        source: take_uuid(src),
        destination: take_uuid(src),
    }))))
}

/// CONNECTED, or `None` until its payload is there. The payload is never copied: it comes once.
fn decode_connected(
    header: &Header,
    limits: &Limits,
    src: &mut BytesMut,
) -> Result<Option<Decoded>, DecodeError> {
    if header.traced {
        return Err(malformed("CONNECTED: it says it has a trace"));
    }
    if src.len() < CONNECTED_LEN {
        return Ok(None);
    }
    let term_len = term_len(header.version);
    let payload_len = (&src[CONNECT_LEN..]).get_u32();
    let payload_len = within(
        "payload, in bytes,",
        payload_len.into(),
        limits.max_payload_len,
    )?;
    if src.len() - CONNECTED_LEN < term_len + payload_len {
        return Ok(None);
    }
    src.advance(HEADER_LEN);
    let (source, destination) = (take_uuid(src), take_uuid(src));
    src.advance(4);
    let term = (term_len > 0).then(|| Term {
        generation: src.get_u64(),
        revision: src.get_u64(),
    });
    Ok(Some(Decoded::Message(Message::Connected(Connected {
        version: header.version,
        role: Role(header.word),
        source,
        destination,
        term,
        payload: src.split_to(payload_len).freeze(),
    }))))
}

/// Bytes of the term in a CONNECTED of this version.
fn term_len(version: Version) -> usize {
    match version.is_at_least(Version::SAYS_TERM) {
        true => TERM_LEN,
        false => 0,
    }
}

/// Any other message. Order: the payload's length, the trace block's length, whether all of it is there, the trace
/// block's contents. A payload that is over the limit and may be skipped needs only the head to be there; before the
/// first message of a connection it ends the stream instead.
fn decode_frame(
    header: &Header,
    expect: Expect,
    limits: &Limits,
    copy_up_to: usize,
    src: &mut BytesMut,
) -> Result<Option<Decoded>, DecodeError> {
    // `None`: over the limit, and to be skipped. An error already where it is too long for that as well.
    let payload_len = match within(
        "payload, in bytes,",
        header.word.into(),
        limits.max_payload_len,
    ) {
        Ok(len) => Some(len),
        Err(error) if expect != Expect::Frame => return Err(error),
        // Judged before anything else of it comes.
        Err(_) => Skip::new(header.kind, header.word.into(), 0, limits).map(|_| None)?,
    };
    let trace_len = if header.traced {
        let Some(mut length) = src.get(HEADER_LEN..HEADER_LEN + 4) else {
            return Ok(None);
        };
        4 + within(
            "trace block, in bytes,",
            length.get_u32().into(),
            MAX_TRACE_BLOCK_LEN,
        )?
    } else {
        0
    };
    // Of a payload that is skipped, nothing has to be there yet.
    let head_len = HEADER_LEN + trace_len;
    if src.len() - HEADER_LEN < trace_len + payload_len.unwrap_or(0) {
        return Ok(None);
    }
    let (origin, trace) = if header.traced {
        let (origin, trace) = decode_trace(&src[HEADER_LEN + 4..head_len])?;
        (origin, Some(Box::new(trace)))
    } else {
        (Uuid::nil(), None)
    };
    src.advance(head_len);
    let Some(payload_len) = payload_len else {
        let skip = Skip::new(header.kind, header.word.into(), 0, limits)?;
        return Ok(Some(Decoded::Skip(skip)));
    };
    let payload = if payload_len == 0 {
        bytes::Bytes::new()
    } else {
        take_payload(src, payload_len, copy_up_to)
    };
    Ok(Some(Decoded::Message(Message::Frame(Frame {
        version: header.version,
        kind: header.kind,
        origin,
        trace,
        payload,
    }))))
}

/// Reads a trace block behind its length field; the fields must fill it exactly, so that a block is read in one way
/// only.
fn decode_trace(mut block: &[u8]) -> Result<(Uuid, Trace), DecodeError> {
    const CONTRADICTORY: DecodeError = malformed("trace block: its length contradicts its content");
    if block.len() < TRACE_FIXED_LEN {
        return Err(CONTRADICTORY);
    }
    let flags = block.get_u8();
    if flags & !FLAG_PATH != 0 {
        return Err(malformed("trace block: unknown flags"));
    }
    let origin = take_uuid(&mut block);
    let label_len = usize::from(block.get_u8());
    // The label's length is the peer's: start, end and node count must fit behind it.
    if block.len() < label_len + 8 + 8 + 1 {
        return Err(CONTRADICTORY);
    }
    let label = block.copy_to_bytes(label_len);
    let start = Timestamp::from_unix_ns(block.get_i64());
    let end = Timestamp::from_unix_ns(block.get_i64());
    let count = usize::from(block.get_u8());
    if block.len() != count * NODE_LEN {
        return Err(CONTRADICTORY);
    }
    let path = match flags & FLAG_PATH {
        0 if count > 0 => return Err(malformed("trace block: nodes without a path trace")),
        0 => None,
        _ => Some(block.chunks_exact(NODE_LEN).map(decode_node).collect()),
    };
    Ok((
        origin,
        Trace {
            label,
            start,
            end,
            path,
        },
    ))
}

/// Reads one node from exactly its bytes.
fn decode_node(mut node: &[u8]) -> TraceNode {
    TraceNode {
        uuid: take_uuid(&mut node),
        role: Role(node.get_u32()),
        tx: Timestamp::from_unix_ns(node.get_i64()),
        rx: Timestamp::from_unix_ns(node.get_i64()),
    }
}

/// Takes a UUID off the front; the caller has checked that it is there.
fn take_uuid(src: &mut impl Buf) -> Uuid {
    let mut bytes = [0; UUID_LEN];
    src.copy_to_slice(&mut bytes);
    Uuid::from_bytes(bytes)
}

/// Appends CONNECT. Its first byte, the major version, must be 0: that is how a server knows the encoding.
pub(super) fn encode_connect(connect: &Connect, dst: &mut BytesMut) {
    let header = Header {
        traced: false,
        version: connect.version,
        kind: connect.kind,
        word: connect.role.0,
    };
    dst.reserve(CONNECT_LEN);
    dst.put_slice(&header.encode());
    dst.put_slice(connect.source.as_bytes());
    dst.put_slice(connect.destination.as_bytes());
}

/// Appends CONNECTED. The length of its payload stands behind the UUIDs, because the header's word is the role. Whether it
/// has a term its version says; one that is missing is 0.0.
pub(super) fn encode_connected(connected: &Connected, dst: &mut BytesMut) {
    let word = connected.role.0;
    let header = Header {
        traced: false,
        version: connected.version,
        kind: Kind::CONNECTED,
        word,
    };
    dst.reserve(CONNECTED_LEN + TERM_LEN + connected.payload.len());
    dst.put_slice(&header.encode());
    dst.put_slice(connected.source.as_bytes());
    dst.put_slice(connected.destination.as_bytes());
    dst.put_u32(payload_len(&connected.payload));
    if term_len(connected.version) > 0 {
        let term = connected.term;
        dst.put_u64(term.map_or(0, |it| it.generation));
        dst.put_u64(term.map_or(0, |it| it.revision));
    }
    dst.put_slice(&connected.payload);
}

/// Appends a frame. Its origin goes along only with a trace, because a receiver without one knows who sent it: the
/// connection's peer.
pub(super) fn encode_frame(frame: &Frame, dst: &mut BytesMut) {
    let word = payload_len(&frame.payload);
    let header = Header {
        traced: frame.trace.is_some(),
        version: frame.version,
        kind: frame.kind,
        word,
    };
    dst.reserve(HEADER_LEN + frame.payload.len());
    dst.put_slice(&header.encode());
    if let Some(trace) = &frame.trace {
        encode_trace(frame.origin, trace, dst);
    }
    dst.put_slice(&frame.payload);
}

/// Appends a trace block. A label and a path that are longer than the format can say are cut.
fn encode_trace(origin: Uuid, trace: &Trace, dst: &mut BytesMut) {
    let label = &trace.label[..trace.label.len().min(MAX_LABEL_LEN)];
    let path = trace.path.as_deref().unwrap_or_default();
    let path = &path[..path.len().min(MAX_TRACE_NODES)];
    let block_len = TRACE_FIXED_LEN + label.len() + path.len() * NODE_LEN;

    dst.reserve(4 + block_len);
    dst.put_u32(
        u32::try_from(block_len).expect("label and path were cut to what a trace block holds"),
    );
    dst.put_u8(if trace.path.is_some() { FLAG_PATH } else { 0 });
    dst.put_slice(origin.as_bytes());
    dst.put_u8(u8::try_from(label.len()).expect("the label was cut to 255 bytes"));
    dst.put_slice(label);
    dst.put_i64(trace.start.unix_ns());
    dst.put_i64(trace.end.unix_ns());
    dst.put_u8(u8::try_from(path.len()).expect("the path was cut to 255 nodes"));
    for node in path {
        dst.put_slice(node.uuid.as_bytes());
        dst.put_u32(node.role.0);
        dst.put_i64(node.tx.unix_ns());
        dst.put_i64(node.rx.unix_ns());
    }
}
