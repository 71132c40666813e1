//! A writer of gob that does as it is told, to make the streams that no encoder would.

/// Go's own types.
pub(crate) const BOOL: i64 = 1;
pub(crate) const UINT: i64 = 3;
pub(crate) const BYTES: i64 = 5;
pub(crate) const STRING: i64 = 6;
pub(crate) const INTERFACE: i64 = 8;

pub(crate) fn cat(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

pub(crate) fn uint(value: u64) -> Vec<u8> {
    if value < 128 {
        return vec![value as u8];
    }
    let bytes = value.to_be_bytes();
    let significant = &bytes[value.leading_zeros() as usize / 8..];
    [&[(significant.len() as u8).wrapping_neg()], significant].concat()
}

pub(crate) fn int(value: i64) -> Vec<u8> {
    let shifted = value.cast_unsigned() << 1;
    uint(if value < 0 { !shifted } else { shifted })
}

pub(crate) fn bytes(value: &[u8]) -> Vec<u8> {
    cat(&[uint(value.len() as u64), value.to_vec()])
}

/// A message: a value of type `id`, or, for a negative id, a descriptor.
pub(crate) fn message(id: i64, body: &[u8]) -> Vec<u8> {
    bytes(&cat(&[int(id), body.to_vec()]))
}

/// The descriptor of a struct (`struct` is a keyword).
pub(crate) fn strukt(id: i64, fields: &[(&str, i64)]) -> Vec<u8> {
    let mut body = cat(&[uint(1), uint(fields.len() as u64)]);
    for (name, ty) in fields {
        body.extend(cat(&[
            uint(1),
            bytes(name.as_bytes()),
            uint(1),
            int(*ty),
            uint(0),
        ]));
    }
    descriptor(id, 3, body)
}

pub(crate) fn array(id: i64, element: i64, len: i64) -> Vec<u8> {
    descriptor(id, 1, cat(&[uint(1), int(element), uint(1), int(len)]))
}

pub(crate) fn slice(id: i64, element: i64) -> Vec<u8> {
    descriptor(id, 2, cat(&[uint(1), int(element)]))
}

pub(crate) fn map(id: i64, key: i64, element: i64) -> Vec<u8> {
    descriptor(id, 4, cat(&[uint(1), int(key), uint(1), int(element)]))
}

/// The descriptor of a type that encodes itself.
pub(crate) fn opaque(id: i64) -> Vec<u8> {
    descriptor(id, 5, vec![])
}

/// A descriptor of Go's `wireType`: which variant, its common part (name and id), and the rest.
fn descriptor(id: i64, variant: u64, rest: Vec<u8>) -> Vec<u8> {
    let common = cat(&[uint(1), uint(1), bytes(b"T"), uint(1), int(id), uint(0)]);
    message(-id, &cat(&[uint(variant), common, rest, uint(0), uint(0)]))
}
