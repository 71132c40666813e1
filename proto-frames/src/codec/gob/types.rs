//! The types a gob stream has described so far, and skipping over values by them.
//!
//! A descriptor is itself a gob value, of Go's `wireType`: a struct with one pointer set.
//! ```text
//! wireType   { 1 ArrayT, 2 SliceT, 3 StructT, 4 MapT, 5 GobEncoderT, 6 BinaryMarshalerT, 7 TextMarshalerT }
//! each       { 1 common { 1 Name string, 2 Id int }, then
//!              array: 2 Elem int, 3 Len int | slice: 2 Elem int | struct: 2 Field [] { 1 Name string, 2 Id int }
//!              | map: 2 Key int, 3 Elem int }
//! ```
//!
//! Everything in here comes from a peer: the number of descriptors, their length, the number of fields and the depth of
//! nesting each have a limit in [`crate::limits`].

use super::number::Input;
use crate::codec::{DecodeError, malformed, within};
use crate::limits::{MAX_GOB_DEPTH, MAX_GOB_FIELDS, MAX_GOB_TYPES};

/// A type's number in one stream: Go's own types have fixed ones, described types get theirs from the sender. Ids below
/// 64 are Go's; a process gives out the others as it meets types, so that the same struct may have another id in
/// another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TypeId(u32);

impl TypeId {
    /// `bool`, on the wire 0 or 1.
    const BOOL: Self = Self(1);
    /// All signed integers, of whatever width.
    const INT: Self = Self(2);
    /// All unsigned integers: Go's `uint8`, `uint32` and so on are one type on the wire.
    pub(super) const UINT: Self = Self(3);
    /// Floating point, an unsigned integer on the wire with its bytes reversed.
    const FLOAT: Self = Self(4);
    /// `[]byte`: a length and the bytes. UUIDs other than a frame's origin are of this type.
    pub(super) const BYTES: Self = Self(5);
    /// `string`: as `[]byte`.
    const STRING: Self = Self(6);
    /// Two floating-point numbers.
    const COMPLEX: Self = Self(7);
    /// A value of any type, which names its type by text. SSNTP has none.
    const INTERFACE: Self = Self(8);

    /// Go gives out ids from here on; below are its own.
    const FIRST_DESCRIBED: Self = Self(64);

    /// # Errors
    /// It is negative or has more than 32 bits.
    pub(super) fn new(id: i64) -> Result<Self, DecodeError> {
        u32::try_from(id)
            .map(Self)
            .map_err(|_| malformed("gob type id"))
    }
}

/// What a described type is made of, and so what stands on the wire for a value of it:
///
/// - an array: a count that is always `len`, then so many elements;
/// - a slice, a map: a count, then so many elements, or pairs of key and element;
/// - a struct: for each field that is not zero the distance of its number to the last, and its value; then 0.
#[derive(Debug)]
pub(super) enum Type {
    Array {
        element: TypeId,
        len: u64,
    },
    Slice {
        element: TypeId,
    },
    Struct {
        fields: Box<[Field]>,
    },
    Map {
        key: TypeId,
        element: TypeId,
    },
    /// Encodes itself to bytes, as `time.Time` does; skipped by their length.
    Opaque,
}

/// A field of a described struct. Only names that this crate knows are told apart: the others need no memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: Name,
    pub(super) ty: TypeId,
}

/// The field names of the five structs of SSNTP: ConnectFrame, ConnectedFrame, Frame, FrameTrace and Node. One enum for
/// all, because names that stand in several mean the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    /// Major version in seven bits; bit 7 says that a path trace comes along.
    Major,
    /// Minor version.
    Minor,
    /// Type of the frame: command, status, event, error.
    Type,
    /// Which command, status, event or error it is.
    Operand,
    /// The sender's roles (CONNECT, CONNECTED), or a node's on the path.
    Role,
    /// UUID of the side that sends CONNECT or CONNECTED.
    Source,
    /// UUID of the other side.
    Destination,
    /// UUID of the peer that first sent the frame, as `[16]uint8` rather than `[]byte`.
    Origin,
    /// Length of `Payload` once more; both must agree.
    PayloadLength,
    /// YAML, or the bytes of a chunk; last in its struct.
    Payload,
    /// A FrameTrace; a frame without one leaves it out.
    Trace,
    /// The first sender's name for the frame.
    Label,
    /// When the first sender sent it.
    StartTimestamp,
    /// When the last receiver had it.
    EndTimestamp,
    /// Number of nodes in `Path`; both must agree.
    PathLength,
    /// The nodes that the frame passed.
    Path,
    /// UUID of a node on the path, `[]byte`.
    Uuid,
    /// When that node sent the frame on.
    TxTimestamp,
    /// When that node received it.
    RxTimestamp,
    /// Any other name: its values are skipped.
    Unknown,
}

impl Name {
    /// `UUID` is spelt as in Go.
    fn new(name: &[u8]) -> Self {
        match name {
            b"Major" => Self::Major,
            b"Minor" => Self::Minor,
            b"Type" => Self::Type,
            b"Operand" => Self::Operand,
            b"Role" => Self::Role,
            b"Source" => Self::Source,
            b"Destination" => Self::Destination,
            b"Origin" => Self::Origin,
            b"PayloadLength" => Self::PayloadLength,
            b"Payload" => Self::Payload,
            b"Trace" => Self::Trace,
            b"Label" => Self::Label,
            b"StartTimestamp" => Self::StartTimestamp,
            b"EndTimestamp" => Self::EndTimestamp,
            b"PathLength" => Self::PathLength,
            b"Path" => Self::Path,
            b"UUID" => Self::Uuid,
            b"TxTimestamp" => Self::TxTimestamp,
            b"RxTimestamp" => Self::RxTimestamp,
            _ => Self::Unknown,
        }
    }
}

/// Every type one stream has described. At most [`MAX_GOB_TYPES`].
#[derive(Debug, Default)]
pub(super) struct Types {
    /// Ordered by id.
    described: Vec<(TypeId, Type)>,
    /// Descriptors that came, those for an id that was described before included.
    received: usize,
}

impl Types {
    /// Takes in the descriptor of type `id`: all of `descriptor`. An id that was described before is described again,
    /// because an original peer that changes encoders under way may describe its types again.
    pub(super) fn describe(
        &mut self,
        id: TypeId,
        mut descriptor: Input<'_>,
    ) -> Result<(), DecodeError> {
        within(
            "gob type descriptors: their number",
            self.received as u64 + 1,
            MAX_GOB_TYPES,
        )?;
        if id < TypeId::FIRST_DESCRIBED {
            return Err(malformed(
                "gob type descriptor: it redefines one of Go's own types",
            ));
        }
        let ty = read_descriptor(&mut descriptor)?;
        if descriptor.len() > 0 {
            return Err(malformed("gob type descriptor: bytes are left over"));
        }
        self.received += 1;
        match self.described.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.described[at].1 = ty,
            Err(at) => self.described.insert(at, (id, ty)),
        }
        Ok(())
    }

    /// What the stream said `id` is; `None` also for Go's own types.
    pub(super) fn described(&self, id: TypeId) -> Option<&Type> {
        let at = self
            .described
            .binary_search_by_key(&id, |(id, _)| *id)
            .ok()?;
        Some(&self.described[at].1)
    }

    /// The fields of `id`, if it is a struct.
    pub(super) fn fields(&self, id: TypeId) -> Option<&[Field]> {
        match self.described(id) {
            Some(Type::Struct { fields }) => Some(fields),
            _ => None,
        }
    }

    /// Skips a value of type `id`. Takes time in proportion to the bytes skipped: every value has at least one.
    pub(super) fn skip(&self, id: TypeId, input: &mut Input<'_>) -> Result<(), DecodeError> {
        self.skip_nested(id, input, MAX_GOB_DEPTH)
    }

    /// `depth` is how many described types may still be nested in this one: a type that contains itself ends there.
    fn skip_nested(
        &self,
        id: TypeId,
        input: &mut Input<'_>,
        depth: usize,
    ) -> Result<(), DecodeError> {
        match id {
            TypeId::BOOL | TypeId::INT | TypeId::UINT | TypeId::FLOAT => {
                return input.uint().map(drop);
            }
            TypeId::BYTES | TypeId::STRING => return input.bytes().map(drop),
            TypeId::COMPLEX => return input.uint().and_then(|_| input.uint()).map(drop),
            TypeId::INTERFACE => {
                return Err(malformed(
                    "gob value: an interface value, which cannot be skipped",
                ));
            }
            _ => {}
        }
        let depth = depth
            .checked_sub(1)
            .ok_or(malformed("gob value: nested too deeply"))?;
        match self
            .described(id)
            .ok_or(malformed("gob value: its type was not described"))?
        {
            Type::Opaque => input.bytes().map(drop),
            Type::Array { element, len } => {
                let count = input.count()?;
                if count as u64 != *len {
                    return Err(malformed("gob array: its length is not its type's"));
                }
                (0..count).try_for_each(|_| self.skip_nested(*element, input, depth))
            }
            Type::Slice { element } => {
                let count = input.count()?;
                (0..count).try_for_each(|_| self.skip_nested(*element, input, depth))
            }
            Type::Map { key, element } => {
                let count = input.count()?;
                (0..count).try_for_each(|_| {
                    self.skip_nested(*key, input, depth)?;
                    self.skip_nested(*element, input, depth)
                })
            }
            Type::Struct { fields } => {
                let mut number = 0;
                while let Some(field) = next_field(input, &mut number, fields)? {
                    self.skip_nested(field.ty, input, depth)?;
                }
                Ok(())
            }
        }
    }
}

/// The field of a struct that comes next, by the distance from the one before it (`number`, at first 0); `None` = the
/// struct ends. `fields` may be fields or steps of a plan, indexed by number - 1.
#[inline]
pub(super) fn next_field<'f, F>(
    input: &mut Input<'_>,
    number: &mut usize,
    fields: &'f [F],
) -> Result<Option<&'f F>, DecodeError> {
    const UNKNOWN: DecodeError = malformed("gob struct: a field number its type does not have");
    let distance = input.uint()?;
    if distance == 0 {
        return Ok(None);
    }
    *number = usize::try_from(distance)
        .ok()
        .and_then(|distance| number.checked_add(distance))
        .ok_or(UNKNOWN)?;
    fields.get(*number - 1).map(Some).ok_or(UNKNOWN)
}

/// A descriptor that is not of Go's `wireType`.
const BAD_DESCRIPTOR: DecodeError = malformed("gob type descriptor");

/// Reads the struct that a descriptor is, calling `read` with each field's number.
fn read_struct<'a>(
    input: &mut Input<'a>,
    mut read: impl FnMut(u64, &mut Input<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut number = 0_u64;
    loop {
        match input.uint()? {
            0 => return Ok(()),
            distance => number = number.checked_add(distance).ok_or(BAD_DESCRIPTOR)?,
        }
        read(number, input)?;
    }
}

/// What a type is made of, by the one field of `wireType` that is set.
fn read_descriptor(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    let mut ty = None;
    read_struct(input, |variant, input| {
        let body = match variant {
            1 => read_array(input)?,
            2 => read_slice(input)?,
            3 => read_struct_type(input)?,
            4 => read_map(input)?,
            5..=7 => read_opaque(input)?,
            _ => return Err(BAD_DESCRIPTOR),
        };
        if ty.replace(body).is_some() {
            return Err(malformed("gob type descriptor: it is of two kinds at once"));
        }
        Ok(())
    })?;
    ty.ok_or(malformed("gob type descriptor: it is of no kind"))
}

/// Reads a name and an id, which is both Go's `CommonType` and its `fieldType`.
fn read_name_and_id(input: &mut Input<'_>) -> Result<(Name, i64), DecodeError> {
    let (mut name, mut id) = (Name::Unknown, 0);
    read_struct(input, |number, input| {
        match number {
            1 => name = Name::new(input.bytes()?),
            2 => id = input.int()?,
            _ => return Err(BAD_DESCRIPTOR),
        }
        Ok(())
    })?;
    Ok((name, id))
}

/// Reads the body of a descriptor that has, besides its name and id, up to two integers.
fn read_integers(input: &mut Input<'_>) -> Result<(i64, i64), DecodeError> {
    let (mut first, mut second) = (0, 0);
    read_struct(input, |number, input| {
        match number {
            1 => drop(read_name_and_id(input)?),
            2 => first = input.int()?,
            3 => second = input.int()?,
            _ => return Err(BAD_DESCRIPTOR),
        }
        Ok(())
    })?;
    Ok((first, second))
}

/// Elements and their fixed number.
fn read_array(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    let (element, len) = read_integers(input)?;
    let len = u64::try_from(len)
        .map_err(|_| malformed("gob type descriptor: an array of negative length"))?;
    Ok(Type::Array {
        element: TypeId::new(element)?,
        len,
    })
}

/// Elements of any number.
fn read_slice(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    let (element, _) = read_integers(input)?;
    Ok(Type::Slice {
        element: TypeId::new(element)?,
    })
}

/// Keys and elements.
fn read_map(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    let (key, element) = read_integers(input)?;
    Ok(Type::Map {
        key: TypeId::new(key)?,
        element: TypeId::new(element)?,
    })
}

/// GobEncoder, BinaryMarshaler or TextMarshaler: bytes on the wire in all three cases.
fn read_opaque(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    read_integers(input)?;
    Ok(Type::Opaque)
}

/// Names and types of fields, in the order of their numbers.
fn read_struct_type(input: &mut Input<'_>) -> Result<Type, DecodeError> {
    let mut fields = Vec::new();
    read_struct(input, |number, input| {
        match number {
            1 => drop(read_name_and_id(input)?),
            2 => {
                let count = within(
                    "gob struct type: its number of fields",
                    input.uint()?,
                    MAX_GOB_FIELDS,
                )?;
                for _ in 0..count {
                    let (name, id) = read_name_and_id(input)?;
                    fields.push(Field {
                        name,
                        ty: TypeId::new(id)?,
                    });
                }
            }
            _ => return Err(BAD_DESCRIPTOR),
        }
        Ok(())
    })?;
    Ok(Type::Struct {
        fields: fields.into(),
    })
}
