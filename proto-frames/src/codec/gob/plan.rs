//! From a struct's descriptor to the steps that read its values, worked out once per type: reading a frame then takes
//! an index instead of comparing names, and a descriptor whose types do not fit is refused before any value is read.
//!
//! ```text
//! descriptor of type 66   Major uint, Minor uint, Extra string, Type uint, …
//! plan                    Read(Major), Read(Minor), Skip(string), Read(Type), …
//! ```
//!
//! Fields are told by their names, in any order, because Go does so too: a peer may have more of them than this crate
//! knows, or leave some out.

use super::types::{Field, Name, Type, TypeId, Types};
use crate::codec::{DecodeError, Expect, malformed};

/// What to do with one field of a struct.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Read it; its type is the one that goes with the name.
    Read(Name),
    /// Skip over a value of this type.
    Skip(TypeId),
}

/// How to read the values of one message type. The slices are indexed by field number - 1.
#[derive(Debug)]
pub(super) struct Plan {
    /// The message type this is for.
    pub(super) id: TypeId,
    /// The steps of the message's own fields.
    pub(super) message: Box<[Step]>,
    /// The steps of the struct in its field `Trace`. Empty where the message has no such field; it is not asked for
    /// then.
    pub(super) trace: Box<[Step]>,
    /// The steps of the structs in that one's field `Path`; empty likewise.
    pub(super) node: Box<[Step]>,
}

impl Plan {
    /// Works out how to read `id` where `expect` is due.
    ///
    /// # Errors
    /// If `id` is not a described struct, or one of its known fields is not of its known type.
    pub(super) fn new(types: &Types, id: TypeId, expect: Expect) -> Result<Self, DecodeError> {
        let fields = types.fields(id).ok_or(malformed(
            "gob message: its type was not described as a struct",
        ))?;
        // A server that refuses sends a frame instead of CONNECTED, which has CONNECT's fields and a payload.
        let wanted: &[&[Name]] = match expect {
            Expect::Connect => &[CONNECT],
            Expect::Answer => &[CONNECT, FRAME],
            Expect::Frame => &[FRAME],
        };
        let message = steps(types, fields, wanted)?;
        let trace_fields = nested(types, fields, Name::Trace);
        let node_fields = nested(types, trace_fields, Name::Path);
        let trace = steps(types, trace_fields, &[TRACE])?;
        let node = steps(types, node_fields, &[NODE])?;
        Ok(Self {
            id,
            message,
            trace,
            node,
        })
    }

    /// Whether values have this field.
    pub(super) fn has(&self, name: Name) -> bool {
        self.message.contains(&Step::Read(name))
    }
}

/// The fields of CONNECT that are read.
const CONNECT: &[Name] = &[
    Name::Major,
    Name::Minor,
    Name::Type,
    Name::Operand,
    Name::Role,
    Name::Source,
    Name::Destination,
];

/// The fields of a frame that are read.
const FRAME: &[Name] = &[
    Name::Major,
    Name::Minor,
    Name::Type,
    Name::Operand,
    Name::Origin,
    Name::PayloadLength,
    Name::Trace,
    Name::Payload,
];

/// The fields of a trace that are read.
const TRACE: &[Name] = &[
    Name::Label,
    Name::StartTimestamp,
    Name::EndTimestamp,
    Name::PathLength,
    Name::Path,
];

/// The fields of a node of a trace's path that are read.
const NODE: &[Name] = &[Name::Uuid, Name::Role, Name::TxTimestamp, Name::RxTimestamp];

/// A step for each field: skipped where it is in no list of those that are wanted, read where its type fits.
///
/// # Errors
/// A wanted field has another type than SSNTP gives it. Refused rather than skipped, because the message would be read
/// as if the field were zero.
fn steps(types: &Types, fields: &[Field], wanted: &[&[Name]]) -> Result<Box<[Step]>, DecodeError> {
    let step = |field: &Field| match field.name {
        name if !wanted.iter().any(|names| names.contains(&name)) => Ok(Step::Skip(field.ty)),
        name if fits(types, *field) => Ok(Step::Read(name)),
        _ => Err(malformed(
            "gob struct type: a field has another type than SSNTP gives it",
        )),
    };
    fields.iter().map(step).collect()
}

/// The fields of the struct in field `name`, or of the structs in it where it is a slice.
fn nested<'t>(types: &'t Types, fields: &[Field], name: Name) -> &'t [Field] {
    let ty = fields
        .iter()
        .find(|field| field.name == name)
        .and_then(|field| match types.described(field.ty) {
            Some(Type::Slice { element }) => types.fields(*element),
            _ => types.fields(field.ty),
        });
    ty.unwrap_or_default()
}

/// Whether a field's type is the one its name has in SSNTP.
fn fits(types: &Types, field: Field) -> bool {
    let described = || types.described(field.ty);
    match field.name {
        Name::Major
        | Name::Minor
        | Name::Type
        | Name::Operand
        | Name::Role
        | Name::PayloadLength
        | Name::PathLength => field.ty == TypeId::UINT,
        Name::Source | Name::Destination | Name::Payload | Name::Label | Name::Uuid => {
            field.ty == TypeId::BYTES
        }
        Name::Origin => matches!(
            described(),
            Some(Type::Array {
                element: TypeId::UINT,
                len: 16
            })
        ),
        Name::StartTimestamp | Name::EndTimestamp | Name::TxTimestamp | Name::RxTimestamp => {
            matches!(described(), Some(Type::Opaque))
        }
        Name::Trace => matches!(described(), Some(Type::Struct { .. })),
        Name::Path => {
            matches!(described(), Some(Type::Slice { element }) if types.fields(*element).is_some())
        }
        Name::Unknown => false,
    }
}
