//! Messages out of a gob stream.
//!
//! A message is read in two steps: [`Envelope`] finds where it ends and what it is, without needing all of it;
//! [`Value`] reads its fields by a [`Plan`] and becomes a [`Message`]. The payload is not copied out while the fields
//! are read: its place in the buffer is noted, and it is split off last.

use crate::Uuid;
use bytes::{Buf, Bytes, BytesMut};

use super::number::{Input, peek_uint, signed};
use super::plan::{Plan, Step};
use super::types::{Name, TypeId, Types, next_field};
use crate::Role;
use crate::codec::{
    DecodeError, Decoded, Expect, Message, Skip, TRACE_BIT, malformed, take_payload, within,
};
use crate::connect::{Connect, Connected};
use crate::frame::{Frame, Version};
use crate::kind::{FrameType, Kind};
use crate::limits::{
    Limits, MAX_GOB_DESCRIPTOR_LEN, MAX_GOB_LABEL_LEN, MAX_GOB_OVERHEAD, MAX_TRACE_NODES,
};
use crate::trace::{Timestamp, Trace, TraceNode};

/// What one direction of a gob stream has said about itself so far.
#[derive(Debug, Default)]
pub(in crate::codec) struct Reader {
    /// Descriptors that came.
    types: Types,
    /// How to read the message type that came last. Forgotten with each new descriptor. In a stream there is one for
    /// the opening message and one for all frames.
    plan: Option<Plan>,
}

impl Reader {
    /// Takes the next whole message off `src`, and the descriptors before it; see [`crate::Decoder::decode`].
    ///
    /// For each message at the front: one that is too long is left to `decode_long`; one that is not all there waits; a
    /// descriptor is remembered and taken off; a value is read, its payload's length compared with the limit, and the
    /// whole message taken off.
    ///
    /// # Errors
    /// As the decoder's; `src` is unchanged but for descriptors.
    pub(in crate::codec) fn decode(
        &mut self,
        expect: Expect,
        limits: &Limits,
        copy_up_to: usize,
        src: &mut BytesMut,
    ) -> Result<Option<Decoded>, DecodeError> {
        let limit = match expect {
            Expect::Connect => limits.max_connect_len,
            Expect::Answer | Expect::Frame => limits.max_message_len(),
        };
        loop {
            // Too long for any message, and short enough to be skipped: known from the length alone, before more of it
            // comes.
            if expect == Expect::Frame
                && let Some((len, start)) = peek_uint(src)?
                && len > limit as u64
                && len <= limits.max_skipped_len as u64
            {
                return self.decode_long(start, len as usize, limits, src);
            }
            // The whole message must be there from here on.
            let Some(Envelope { id, body, end }) = Envelope::peek(src, limit)? else {
                return Ok(None);
            };
            let input = Input::new(&src[body..end]);
            if id < 0 {
                self.types
                    .describe(TypeId::new(id.saturating_neg())?, input)?;
                self.plan = None;
                src.advance(end);
                continue;
            }
            let plan = plan_for(&mut self.plan, &self.types, TypeId::new(id)?, expect)?;
            let value = Value::read(input, &self.types, plan)?;
            // Places in `src`, from what was left to read when the payload had been read.
            let payload_end = end - value.behind_payload;
            let payload_start = payload_end - value.payload_len;
            // All of the message is there, and its payload alone is over the limit: the fields took less than their
            // share.
            if let Err(error) = value.check_len(limits) {
                if expect != Expect::Frame || limits.max_skipped_len == 0 {
                    return Err(error);
                }
                let (len, behind) = (value.payload_len as u64, value.behind_payload);
                let skip = Skip::new(value.kind(), len, behind, limits)?;
                src.advance(payload_start);
                return Ok(Some(Decoded::Skip(skip)));
            }
            // An answer is CONNECTED if its type has the field Source; else it is a frame, which must be an ERROR.
            let mut message = match expect {
                Expect::Connect => value.into_connect().map(Message::Connect)?,
                Expect::Answer if plan.has(Name::Source) => {
                    value.into_connected().map(Message::Connected)?
                }
                Expect::Answer => value.into_refusal().map(Message::Frame)?,
                Expect::Frame => Message::Frame(value.into_frame()),
            };
            let mut payload = Bytes::new();
            if payload_end > payload_start {
                src.advance(payload_start);
                payload = take_payload(src, payload_end - payload_start, copy_up_to);
                src.advance(end - payload_end);
            } else {
                src.advance(end);
            }
            match &mut message {
                Message::Connect(_) => {}
                Message::Connected(connected) => connected.payload = payload,
                Message::Frame(frame) => frame.payload = payload,
            }
            // Frames have a type of their own.
            if expect != Expect::Frame {
                self.plan = None;
            }
            return Ok(Some(Decoded::Message(message)));
        }
    }

    /// A message longer than the limit for messages, and short enough to be skipped: what stands before its payload is
    /// read, which is at most [`MAX_GOB_OVERHEAD`] bytes, and the rest is thrown away as it comes. Fields behind the
    /// payload are not read.
    fn decode_long(
        &mut self,
        start: usize,
        len: usize,
        limits: &Limits,
        src: &mut BytesMut,
    ) -> Result<Option<Decoded>, DecodeError> {
        // All that may stand there; a message that is too long is longer.
        let Some(head) = src.get(start..start + MAX_GOB_OVERHEAD) else {
            return Ok(None);
        };
        let mut input = Input::new(head);
        let id = TypeId::new(input.int()?)?;
        let plan = plan_for(&mut self.plan, &self.types, id, Expect::Frame)?;
        let (value, payload_len) = Value::read_head(&mut input, &self.types, plan)?;
        // The fields before the payload, and the payload's field number and length.
        let before = head.len() - input.len();
        let behind = (len - before)
            .checked_sub(payload_len)
            .ok_or(malformed("gob message: a value ends early"))?;
        let skip = Skip::new(value.kind(), payload_len as u64, behind, limits)?;
        src.advance(start + before);
        Ok(Some(Decoded::Skip(skip)))
    }
}

/// The plan for messages of type `id`: the one in `plan`, or a new one that takes its place.
fn plan_for<'p>(
    plan: &'p mut Option<Plan>,
    types: &Types,
    id: TypeId,
    expect: Expect,
) -> Result<&'p Plan, DecodeError> {
    if plan.as_ref().is_some_and(|plan| plan.id != id) {
        *plan = None;
    }
    match plan {
        Some(plan) => Ok(plan),
        none => Ok(none.insert(Plan::new(types, id, expect)?)),
    }
}

/// Where a whole message is: `src[body..end]` is what comes behind its type id.
struct Envelope {
    /// Negative for a descriptor of type `-id`.
    id: i64,
    /// Where what follows the type id begins.
    body: usize,
    /// Where the next message begins.
    end: usize,
}

impl Envelope {
    /// Looks at the front of `src`; `None` = the message is not all there. Its length is judged as soon as it is.
    fn peek(src: &[u8], limit: usize) -> Result<Option<Self>, DecodeError> {
        let Some((len, start)) = peek_uint(src)? else {
            return Ok(None);
        };
        let len = within("gob message, in bytes,", len, limit)?;
        let end = start + len;
        let Some((id, id_len)) = peek_uint(&src[start..end.min(src.len())])? else {
            return if src.len() < end {
                Ok(None)
            } else {
                Err(malformed("gob message: it has no type id"))
            };
        };
        let id = signed(id);
        if id < 0 {
            within(
                "gob type descriptor, in bytes,",
                len as u64,
                MAX_GOB_DESCRIPTOR_LEN,
            )?;
        }
        Ok((src.len() >= end).then_some(Self {
            id,
            body: start + id_len,
            end,
        }))
    }
}

/// The fields of whichever message struct came; what did not come is zero, as in Go, which leaves zeros out.
#[derive(Default)]
struct Value {
    /// With bit 7 until the path was settled.
    major: u8,
    minor: u8,
    ty: u8,
    operand: u8,
    /// Of CONNECT and CONNECTED.
    role: u32,
    /// `None` where it did not come: unlike others it must be there.
    source: Option<Uuid>,
    /// `None` where it did not come.
    destination: Option<Uuid>,
    /// Zero where it did not come.
    origin: Uuid,
    /// Where the frame has one.
    trace: Option<Box<Trace>>,
    /// What PayloadLength says.
    stated_len: u32,
    /// Bytes of the payload that came.
    payload_len: usize,
    /// Bytes of the message behind the payload.
    behind_payload: usize,
}

impl Value {
    /// Reads all fields of a message and checks that they agree: PayloadLength with the payload, bit 7 of the major
    /// byte with the path, and that nothing is left over. Fields may come in any order that their type gives them.
    fn read(mut input: Input<'_>, types: &Types, plan: &Plan) -> Result<Self, DecodeError> {
        let mut value = Self::default();
        let mut number = 0;
        while let Some(name) = value.read_field(&mut input, &mut number, types, plan)? {
            if name == Name::Payload {
                value.payload_len = input.bytes()?.len();
                value.behind_payload = input.len();
            }
        }
        if input.len() > 0 {
            return Err(malformed("gob message: bytes are left over"));
        }
        if value.stated_len as usize != value.payload_len {
            return Err(malformed(
                "frame: PayloadLength is not the payload's length",
            ));
        }
        value.settle_path()?;
        Ok(value)
    }

    /// Reads what stands before a message's payload, and the length of that. Stops at the payload: what stands behind
    /// it has not come yet. PayloadLength is not compared.
    fn read_head(
        input: &mut Input<'_>,
        types: &Types,
        plan: &Plan,
    ) -> Result<(Self, usize), DecodeError> {
        let mut value = Self::default();
        let mut number = 0;
        while let Some(name) = value.read_field(input, &mut number, types, plan)? {
            if name == Name::Payload {
                let len = usize::try_from(input.uint()?);
                return len
                    .map(|len| (value, len))
                    .map_err(|_| malformed("gob message: a value ends early"));
            }
        }
        Err(malformed("gob message: bytes are left over"))
    }

    /// Reads the next field, but for the payload, of which only the name is said. `number` is the number of the field
    /// read last, 0 at first. `None`: the struct has ended.
    #[inline]
    fn read_field(
        &mut self,
        input: &mut Input<'_>,
        number: &mut usize,
        types: &Types,
        plan: &Plan,
    ) -> Result<Option<Name>, DecodeError> {
        let Some(step) = next_field(input, number, &plan.message)? else {
            return Ok(None);
        };
        let name = match *step {
            Step::Read(name) => name,
            Step::Skip(ty) => {
                types.skip(ty, input)?;
                return Ok(Some(Name::Unknown));
            }
        };
        match name {
            Name::Major => self.major = input.byte()?,
            Name::Minor => self.minor = input.byte()?,
            Name::Type => self.ty = input.byte()?,
            Name::Operand => self.operand = input.byte()?,
            Name::Role => self.role = input.word()?,
            Name::Source => {
                let source = read_uuid(input, "source UUID: it does not have 16 bytes")?;
                self.source = Some(source);
            }
            Name::Destination => {
                let destination = read_uuid(input, "destination UUID: it does not have 16 bytes")?;
                self.destination = Some(destination);
            }
            Name::Origin => self.origin = read_uuid_array(input)?,
            Name::PayloadLength => self.stated_len = input.word()?,
            Name::Trace => self.trace = Some(Box::new(read_trace(input, types, plan)?)),
            Name::Payload => {}
            _ => return Err(OTHER_STRUCT),
        }
        Ok(Some(name))
    }

    /// Compares the payload's length with the limit.
    fn check_len(&self, limits: &Limits) -> Result<(), DecodeError> {
        let len = self.payload_len as u64;
        within("payload, in bytes,", len, limits.max_payload_len).map(|_| ())
    }

    /// Brings the path in line with bit 7 of the major byte, which says whether there is one.
    fn settle_path(&mut self) -> Result<(), DecodeError> {
        let traced = self.major & TRACE_BIT != 0;
        self.major &= !TRACE_BIT;
        match &mut self.trace {
            None if traced => Err(malformed(
                "frame: it says it has a path trace and has no trace",
            )),
            Some(trace) if traced => {
                trace.path.get_or_insert_default();
                Ok(())
            }
            Some(trace) if trace.path.is_some() => {
                Err(malformed("trace: a path in a frame that says it has none"))
            }
            _ => Ok(()),
        }
    }

    fn version(&self) -> Version {
        Version {
            major: self.major,
            minor: self.minor,
        }
    }

    fn kind(&self) -> Kind {
        Kind::new(self.ty, self.operand)
    }

    /// CONNECT. The destination may be missing; it is nil then.
    fn into_connect(self) -> Result<Connect, DecodeError> {
        Ok(Connect {
            version: self.version(),
            kind: self.kind(),
            role: Role(self.role),
            source: self
                .source
                .ok_or(malformed("CONNECT: it has no source UUID"))?,
            destination: self.destination.unwrap_or_default(),
        })
    }

    /// The payload is filled in by the caller, here and below.
    fn into_connected(self) -> Result<Connected, DecodeError> {
        if self.kind() != Kind::CONNECTED {
            return Err(malformed("answer to CONNECT"));
        }
        Ok(Connected {
            version: self.version(),
            role: Role(self.role),
            source: self
                .source
                .ok_or(malformed("CONNECTED: it has no source UUID"))?,
            destination: self
                .destination
                .ok_or(malformed("CONNECTED: it has no destination UUID"))?,
            term: None,
            payload: Bytes::new(),
        })
    }

    /// An ERROR frame that came instead of CONNECTED; any other frame is no answer.
    fn into_refusal(self) -> Result<Frame, DecodeError> {
        if self.ty == FrameType::ERROR.0 {
            Ok(self.into_frame())
        } else {
            Err(malformed("answer to CONNECT"))
        }
    }

    /// A frame of any kind.
    fn into_frame(self) -> Frame {
        Frame {
            version: self.version(),
            kind: self.kind(),
            origin: self.origin,
            trace: self.trace,
            payload: Bytes::new(),
        }
    }
}

/// A plan names only the fields of its own struct, so this is never met.
const OTHER_STRUCT: DecodeError = malformed("gob struct: a field of another struct");

/// A trace, whose path's length must be as stated.
fn read_trace(input: &mut Input<'_>, types: &Types, plan: &Plan) -> Result<Trace, DecodeError> {
    let mut trace = Trace {
        label: Bytes::new(),
        start: Timestamp::UNSET,
        end: Timestamp::UNSET,
        path: None,
    };
    let mut stated_len = 0;
    let mut number = 0;
    while let Some(step) = next_field(input, &mut number, &plan.trace)? {
        match *step {
            Step::Read(Name::Label) => {
                let label = input.bytes()?;
                within(
                    "trace label, in bytes,",
                    label.len() as u64,
                    MAX_GOB_LABEL_LEN,
                )?;
                trace.label = Bytes::copy_from_slice(label);
            }
            Step::Read(Name::StartTimestamp) => trace.start = read_time(input)?,
            Step::Read(Name::EndTimestamp) => trace.end = read_time(input)?,
            Step::Read(Name::PathLength) => stated_len = input.byte()?,
            Step::Read(Name::Path) => trace.path = Some(read_path(input, types, plan)?),
            Step::Read(_) => return Err(OTHER_STRUCT),
            Step::Skip(ty) => types.skip(ty, input)?,
        }
    }
    if usize::from(stated_len) != trace.path.as_ref().map_or(0, Vec::len) {
        return Err(malformed("trace: PathLength is not the path's length"));
    }
    Ok(trace)
}

/// The nodes of a path; their number is compared with the limit before memory is taken.
fn read_path(
    input: &mut Input<'_>,
    types: &Types,
    plan: &Plan,
) -> Result<Vec<TraceNode>, DecodeError> {
    let count = within(
        "trace path, in nodes,",
        input.count()? as u64,
        MAX_TRACE_NODES,
    )?;
    let mut path = Vec::with_capacity(count);
    for _ in 0..count {
        path.push(read_node(input, types, plan)?);
    }
    Ok(path)
}

/// One node of a path; its UUID must be there.
fn read_node(input: &mut Input<'_>, types: &Types, plan: &Plan) -> Result<TraceNode, DecodeError> {
    const UUID: &str = "trace node UUID: it does not have 16 bytes";
    let mut uuid = None;
    let (mut role, mut tx, mut rx) = (0, Timestamp::UNSET, Timestamp::UNSET);
    let mut number = 0;
    while let Some(step) = next_field(input, &mut number, &plan.node)? {
        match *step {
            Step::Read(Name::Uuid) => uuid = Some(read_uuid(input, UUID)?),
            Step::Read(Name::Role) => role = input.word()?,
            Step::Read(Name::TxTimestamp) => tx = read_time(input)?,
            Step::Read(Name::RxTimestamp) => rx = read_time(input)?,
            Step::Read(_) => return Err(OTHER_STRUCT),
            Step::Skip(ty) => types.skip(ty, input)?,
        }
    }
    Ok(TraceNode {
        uuid: uuid.ok_or(malformed(UUID))?,
        role: Role(role),
        tx,
        rx,
    })
}

/// A UUID as `[]byte`.
fn read_uuid(input: &mut Input<'_>, what: &'static str) -> Result<Uuid, DecodeError> {
    Uuid::from_slice(input.bytes()?).map_err(|_| malformed(what))
}

/// A UUID as `[16]byte`: a count and 16 unsigned integers.
fn read_uuid_array(input: &mut Input<'_>) -> Result<Uuid, DecodeError> {
    let mut bytes = [0; 16];
    if input.uint()? != bytes.len() as u64 {
        return Err(malformed("origin UUID: it does not have 16 bytes"));
    }
    for byte in &mut bytes {
        *byte = input.byte()?;
    }
    Ok(Uuid::from_bytes(bytes))
}

/// A `time.Time`: version (1 or 2) | seconds since year 1 (i64) | ns (i32) | zone offset in minutes (i16) | version 2
/// only: seconds of the zone offset (i8). The zone is kept, so that a time leaves as it came.
fn read_time(input: &mut Input<'_>) -> Result<Timestamp, DecodeError> {
    const MALFORMED: DecodeError = malformed("time in a trace");
    let (mut fields, zone_seconds) = match input.bytes()? {
        [1, fields @ ..] if fields.len() == 14 => (fields, 0),
        [2, fields @ .., seconds] if fields.len() == 14 => (fields, seconds.cast_signed()),
        _ => return Err(MALFORMED),
    };
    let (seconds, nanos, zone_minutes) = (fields.get_i64(), fields.get_i32(), fields.get_i16());
    if !(0..1_000_000_000).contains(&nanos) {
        return Err(MALFORMED);
    }
    Ok(Timestamp {
        seconds,
        nanos,
        zone_minutes,
        zone_seconds,
    })
}
