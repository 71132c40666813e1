//! Messages into a gob stream, byte for byte as Go writes them.
//!
//! Go gives out type ids in the order in which a process first meets its types; these are the ones an original peer has
//! that first meets the message that opens the connection, then a frame.
//!
//! Each message is written twice by the same code: once to count its bytes, because the length stands in front, and
//! once into the space that was made for it. The payload's bytes are copied once.

use std::sync::LazyLock;

use bytes::{BufMut, BytesMut};

use super::number::{Fill, Output};
use crate::codec::{TRACE_BIT, payload_len};
use crate::connect::{Connect, Connected};
use crate::frame::{Frame, Version};
use crate::kind::Kind;
use crate::limits::MAX_TRACE_NODES;
use crate::trace::{Timestamp, Trace, TraceNode};

/// What one direction of a gob stream has been told so far. A direction opens with CONNECT or with CONNECTED (or with
/// neither), never with both, so that these share a type id. The descriptors of a type stand in the stream once, before
/// its first value.
#[derive(Debug, Default)]
pub(in crate::codec) struct Writer {
    /// Whether the descriptor of CONNECT or CONNECTED was written.
    described_opening: bool,
    /// Whether the descriptors of a frame's types were written.
    described_frame: bool,
}

impl Writer {
    /// Appends CONNECT, with its type's descriptor where it is the first.
    pub(in crate::codec) fn connect(&mut self, connect: &Connect, dst: &mut BytesMut) {
        if !std::mem::replace(&mut self.described_opening, true) {
            put_message(&CONNECT, &[], dst);
        }
        put_message(connect, &[], dst);
    }

    /// Appends CONNECTED, likewise.
    pub(in crate::codec) fn connected(&mut self, connected: &Connected, dst: &mut BytesMut) {
        if !std::mem::replace(&mut self.described_opening, true) {
            put_message(&CONNECTED, &[], dst);
        }
        put_message(connected, &connected.payload, dst);
    }

    /// Appends a frame. The first brings [`FRAME_DESCRIPTORS`] along.
    pub(in crate::codec) fn frame(&mut self, frame: &Frame, dst: &mut BytesMut) {
        if !std::mem::replace(&mut self.described_frame, true) {
            dst.put_slice(&FRAME_DESCRIPTORS);
        }
        put_message(frame, &frame.payload, dst);
    }
}

/// A message's type id and its fields up to where the payload's bytes follow.
trait Head {
    /// Writes the head; called twice, so it must write the same each time.
    fn write<O: Output>(&self, out: &mut O);
}

/// Appends a message: length, head, payload, and the 0 that ends its struct.
fn put_message(head: &impl Head, payload: &[u8], dst: &mut BytesMut) {
    let mut head_len = 0_usize;
    head.write(&mut head_len);
    let body_len = head_len + payload.len() + 1;
    let mut prefix_len = 0_usize;
    prefix_len.uint(body_len as u64);

    dst.reserve(prefix_len + body_len);
    let start = dst.len();
    dst.resize(start + prefix_len + head_len, 0);
    let mut fill = Fill::new(&mut dst[start..]);
    fill.uint(body_len as u64);
    head.write(&mut fill);
    dst.put_slice(payload);
    dst.put_u8(0);
}

/// Writes a struct's fields in ascending order, each with the distance to the one before it; zero values are left out,
/// as Go leaves them out.
struct Fields<'o, O> {
    out: &'o mut O,
    /// Number of the field written last.
    previous: u64,
}

impl<'o, O: Output> Fields<'o, O> {
    fn new(out: &'o mut O) -> Self {
        Self { out, previous: 0 }
    }

    /// Begins field `number`, counted from 1; its value follows.
    #[inline]
    fn begin(&mut self, number: u64) -> &mut O {
        self.out.uint(number - self.previous);
        self.previous = number;
        self.out
    }

    /// Writes field `number` unless it is 0.
    #[inline]
    fn uint(&mut self, number: u64, value: impl Into<u64>) {
        let value = value.into();
        if value != 0 {
            self.begin(number).uint(value);
        }
    }

    /// Writes field `number` unless it is 0.
    fn int(&mut self, number: u64, value: i64) {
        if value != 0 {
            self.begin(number).int(value);
        }
    }

    /// Writes field `number` unless it is empty.
    fn bytes(&mut self, number: u64, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.begin(number).bytes(bytes);
        }
    }

    /// Writes field `number` unless it is unset, which is Go's zero time.
    fn time(&mut self, number: u64, time: Timestamp) {
        if time != Timestamp::UNSET {
            write_time(time, self.begin(number));
        }
    }

    /// The payload's field number and length, behind which its bytes go.
    #[inline]
    fn payload(&mut self, number: u64, payload: &[u8]) {
        if !payload.is_empty() {
            self.begin(number).uint(payload.len() as u64);
        }
    }

    /// The first four fields of every message. `major` has bit 7 as the message needs it; the version's own is passed
    /// over.
    #[inline]
    fn header(&mut self, major: u8, version: Version, kind: Kind) {
        self.uint(1, major);
        self.uint(2, version.minor);
        self.uint(3, kind.ty.0);
        self.uint(4, kind.operand);
    }

    /// Ends the struct.
    fn end(self) {
        self.out.byte(0);
    }
}

impl Head for Connect {
    fn write<O: Output>(&self, out: &mut O) {
        out.int(OPENING_ID);
        let mut fields = Fields::new(out);
        fields.header(self.version.major & !TRACE_BIT, self.version, self.kind);
        fields.uint(5, self.role.0);
        fields.bytes(6, self.source.as_bytes());
        fields.bytes(7, self.destination.as_bytes());
    }
}

impl Head for Connected {
    fn write<O: Output>(&self, out: &mut O) {
        out.int(OPENING_ID);
        let mut fields = Fields::new(out);
        fields.header(
            self.version.major & !TRACE_BIT,
            self.version,
            Kind::CONNECTED,
        );
        fields.uint(5, self.role.0);
        fields.bytes(6, self.source.as_bytes());
        fields.bytes(7, self.destination.as_bytes());
        fields.uint(8, payload_len(&self.payload));
        fields.payload(9, &self.payload);
    }
}

/// The origin is an array, which Go writes even if all of it is zero.
impl Head for Frame {
    #[inline]
    fn write<O: Output>(&self, out: &mut O) {
        let traced = self
            .trace
            .as_ref()
            .is_some_and(|trace| trace.path.is_some());
        let major = (self.version.major & !TRACE_BIT) | if traced { TRACE_BIT } else { 0 };
        out.int(FRAME_ID);
        let mut fields = Fields::new(out);
        fields.header(major, self.version, self.kind);
        let out = fields.begin(5);
        out.uint(16);
        self.origin
            .as_bytes()
            .iter()
            .for_each(|&byte| out.uint(byte.into()));
        fields.uint(6, payload_len(&self.payload));
        if let Some(trace) = &self.trace {
            write_trace(trace, fields.begin(7));
        }
        fields.payload(8, &self.payload);
    }
}

/// A trace as field 7 of a frame; a path of more nodes than its length can say is cut.
fn write_trace<O: Output>(trace: &Trace, out: &mut O) {
    let path = trace.path.as_deref().unwrap_or_default();
    let path = &path[..path.len().min(MAX_TRACE_NODES)];
    let mut fields = Fields::new(out);
    fields.bytes(1, &trace.label);
    fields.time(2, trace.start);
    fields.time(3, trace.end);
    fields.uint(4, path.len() as u64);
    if !path.is_empty() {
        let out = fields.begin(5);
        out.uint(path.len() as u64);
        path.iter().for_each(|node| write_node(node, out));
    }
    fields.end();
}

/// One node of a path.
fn write_node<O: Output>(node: &TraceNode, out: &mut O) {
    let mut fields = Fields::new(out);
    fields.bytes(1, node.uuid.as_bytes());
    fields.uint(2, node.role.0);
    fields.time(3, node.tx);
    fields.time(4, node.rx);
    fields.end();
}

/// As `time.Time` encodes itself; see [`super::read`] for the layout.
fn write_time<O: Output>(time: Timestamp, out: &mut O) {
    let mut bytes = [0; 16];
    bytes[0] = 1;
    bytes[1..9].copy_from_slice(&time.seconds.to_be_bytes());
    bytes[9..13].copy_from_slice(&time.nanos.to_be_bytes());
    bytes[13..15].copy_from_slice(&time.zone_minutes.to_be_bytes());
    if time.zone_seconds == 0 {
        out.bytes(&bytes[..15]);
    } else {
        bytes[0] = 2;
        bytes[15] = time.zone_seconds.cast_unsigned();
        out.bytes(&bytes);
    }
}

/// Go's own type ids. They stand for the types in descriptors.
const UINT: i64 = 3;
const BYTES: i64 = 5;

/// The ids of the types that a stream describes, in the order in which Go gives them out: the opening message first.
const OPENING_ID: i64 = 65;
/// A frame; the same in a stream that opens with neither CONNECT nor CONNECTED.
const FRAME_ID: i64 = 66;
/// `[16]uint8`, a frame's origin.
const UUID_ID: i64 = 67;
/// A frame's trace.
const TRACE_ID: i64 = 68;
/// `time.Time`, which encodes itself.
const TIME_ID: i64 = 69;
/// A node of a trace's path.
const NODE_ID: i64 = 70;
/// `[]Node`, whose id comes behind that of its element.
const NODES_ID: i64 = 71;

/// A type as a stream is told about it: one message of its own, before the first value that needs it.
struct Descriptor {
    /// Its type's id; in front of the descriptor it is written negated.
    id: i64,
    /// The name of Go's type, without its package but for `[]ssntp.Node`. Receivers do not compare it.
    name: &'static str,
    shape: Shape,
}

/// What a type is made of; element and field types are ids. A `GobEncoder` encodes itself to bytes, as `time.Time`
/// does.
enum Shape {
    Array { element: i64, len: i64 },
    Slice { element: i64 },
    Struct(&'static [(&'static str, i64)]),
    GobEncoder,
}

/// The fields of ConnectedFrame, as the original declares it: those of ConnectFrame, and a payload.
const OPENING: &[(&str, i64)] = &[
    ("Major", UINT),
    ("Minor", UINT),
    ("Type", UINT),
    ("Operand", UINT),
    ("Role", UINT),
    ("Source", BYTES),
    ("Destination", BYTES),
    ("PayloadLength", UINT),
    ("Payload", BYTES),
];

/// How many of them ConnectFrame has.
const CONNECT_FIELDS: usize = 7;

/// ConnectFrame.
const CONNECT: Descriptor = Descriptor {
    id: OPENING_ID,
    name: "ConnectFrame",
    shape: Shape::Struct(OPENING.split_at(CONNECT_FIELDS).0),
};

/// ConnectedFrame. It has the id of ConnectFrame, as no stream has both.
const CONNECTED: Descriptor = Descriptor {
    id: OPENING_ID,
    name: "ConnectedFrame",
    shape: Shape::Struct(OPENING),
};

/// A frame and what it is made of, in the order in which Go describes it.
const FRAME: [Descriptor; 6] = [
    Descriptor {
        id: FRAME_ID,
        name: "Frame",
        shape: Shape::Struct(&[
            ("Major", UINT),
            ("Minor", UINT),
            ("Type", UINT),
            ("Operand", UINT),
            ("Origin", UUID_ID),
            ("PayloadLength", UINT),
            ("Trace", TRACE_ID),
            ("Payload", BYTES),
        ]),
    },
    Descriptor {
        id: UUID_ID,
        name: "UUID",
        shape: Shape::Array {
            element: UINT,
            len: 16,
        },
    },
    Descriptor {
        id: TRACE_ID,
        name: "FrameTrace",
        shape: Shape::Struct(&[
            ("Label", BYTES),
            ("StartTimestamp", TIME_ID),
            ("EndTimestamp", TIME_ID),
            ("PathLength", UINT),
            ("Path", NODES_ID),
        ]),
    },
    Descriptor {
        id: TIME_ID,
        name: "Time",
        shape: Shape::GobEncoder,
    },
    Descriptor {
        id: NODES_ID,
        name: "[]ssntp.Node",
        shape: Shape::Slice { element: NODE_ID },
    },
    Descriptor {
        id: NODE_ID,
        name: "Node",
        shape: Shape::Struct(&[
            ("UUID", BYTES),
            ("Role", UINT),
            ("TxTimestamp", TIME_ID),
            ("RxTimestamp", TIME_ID),
        ]),
    },
];

/// What goes in front of a stream's first frame, 349 bytes.
static FRAME_DESCRIPTORS: LazyLock<BytesMut> = LazyLock::new(|| {
    let mut descriptors = BytesMut::new();
    FRAME
        .iter()
        .for_each(|descriptor| put_message(descriptor, &[], &mut descriptors));
    descriptors
});

/// The layout is in [`super::types`].
impl Head for Descriptor {
    fn write<O: Output>(&self, out: &mut O) {
        out.int(-self.id);
        let variant = match self.shape {
            Shape::Array { .. } => 1,
            Shape::Slice { .. } => 2,
            Shape::Struct(_) => 3,
            Shape::GobEncoder => 5,
        };
        let mut wire_type = Fields::new(out);
        let mut body = Fields::new(wire_type.begin(variant));
        write_name_and_id(self.name, self.id, body.begin(1));
        match self.shape {
            Shape::Array { element, len } => {
                body.int(2, element);
                body.int(3, len);
            }
            Shape::Slice { element } => body.int(2, element),
            Shape::Struct(fields) => {
                let out = body.begin(2);
                out.uint(fields.len() as u64);
                fields
                    .iter()
                    .for_each(|(name, id)| write_name_and_id(name, *id, out));
            }
            Shape::GobEncoder => {}
        }
        body.end();
    }
}

/// A name and an id, which is both Go's `CommonType` and its `fieldType`.
fn write_name_and_id<O: Output>(name: &str, id: i64, out: &mut O) {
    let mut fields = Fields::new(out);
    fields.bytes(1, name.as_bytes());
    fields.int(2, id);
    fields.end();
}
