//! gob's integers, and what they are read from ([`Input`]) and written to ([`Output`]).
//!
//! An unsigned integer below 128 is one byte; otherwise one byte holds the negated count of the big-endian bytes that
//! follow. A signed one is shifted left by one, complemented if negative, bit 0 its sign, and then written as unsigned.
//!
//! ```text
//! value      bytes
//! 7          07
//! 256        fe 01 00       two bytes follow: -2 is fe
//! int 1      02             shifted left
//! int -129   fe 01 01       !(-258) = 257
//! ```

use crate::codec::{DecodeError, malformed};

/// The most bytes an integer can take. One for the count, eight for 64 bits.
pub(super) const MAX_UINT_LEN: usize = 9;

/// A value that goes beyond its message: the message's length was checked, so no more bytes will make it whole.
const ENDS_EARLY: DecodeError = malformed("gob message: a value ends early");

/// Reads an unsigned integer off the front of a message that may not be all there: the integer and how many bytes it
/// took, or `None` where bytes are missing.
pub(super) fn peek_uint(bytes: &[u8]) -> Result<Option<(u64, usize)>, DecodeError> {
    let Some(&first) = bytes.first() else {
        return Ok(None);
    };
    if first < 0x80 {
        return Ok(Some((first.into(), 1)));
    }
    let len = usize::from(first.wrapping_neg());
    if len >= MAX_UINT_LEN {
        return Err(malformed("gob integer: it has more than 8 bytes"));
    }
    Ok(bytes
        .get(1..=len)
        .map(|digits| (big_endian(digits), 1 + len)))
}

/// The signed integer that was written as `unsigned`. Inverse of [`Output::int`].
pub(super) const fn signed(unsigned: u64) -> i64 {
    let magnitude = (unsigned >> 1).cast_signed();
    if unsigned & 1 == 0 {
        magnitude
    } else {
        !magnitude
    }
}

/// At most eight digits, as its caller has checked.
fn big_endian(digits: &[u8]) -> u64 {
    digits
        .iter()
        .fold(0, |value, &digit| value << 8 | u64::from(digit))
}

/// The rest of one message, all of which is there. Each reader takes off what it has read; an error leaves it in
/// between, which does not matter because the stream ends then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// All of a message behind its length.
    pub(super) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    /// How many bytes are left.
    pub(super) const fn len(&self) -> usize {
        self.rest.len()
    }

    /// An unsigned integer; the case of one byte, which most are, without a call.
    #[inline]
    pub(super) fn uint(&mut self) -> Result<u64, DecodeError> {
        if let [first @ ..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        let (value, len) = peek_uint(self.rest)?.ok_or(ENDS_EARLY)?;
        self.rest = &self.rest[len..];
        Ok(value)
    }

    /// A signed integer.
    pub(super) fn int(&mut self) -> Result<i64, DecodeError> {
        self.uint().map(signed)
    }

    /// An unsigned integer that must be below 256: one byte, or `ff` and one.
    #[inline]
    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        match self.rest {
            [value @ ..0x80, rest @ ..] | [0xff, value, rest @ ..] => {
                self.rest = rest;
                Ok(*value)
            }
            _ => u8::try_from(self.uint()?)
                .map_err(|_| malformed("gob value: it does not fit in a byte")),
        }
    }

    /// An unsigned integer that must be below 2³².
    pub(super) fn word(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.uint()?).map_err(|_| malformed("gob value: it does not fit in 32 bits"))
    }

    /// The count of elements that follow, each of at least one byte. A count that is greater than the bytes left is
    /// refused here, before memory is taken for it.
    pub(super) fn count(&mut self) -> Result<usize, DecodeError> {
        let count = self.uint()?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.rest.len())
            .ok_or(ENDS_EARLY)
    }

    /// A byte string: its length, then its bytes.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.count()?;
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }
}

/// Where bytes are written. A value is written twice: once to a [`usize`], which counts, so that the length can go in
/// front, and once to a [`Fill`]. A `Vec` serves tests.
pub(super) trait Output {
    /// One byte as it is.
    fn byte(&mut self, byte: u8);
    /// Bytes as they are, without a length.
    fn slice(&mut self, bytes: &[u8]);

    /// An unsigned integer, in as few bytes as it takes.
    #[inline]
    fn uint(&mut self, value: u64) {
        match u8::try_from(value) {
            Ok(value @ ..0x80) => self.byte(value),
            _ => {
                let bytes = value.to_be_bytes();
                let significant = &bytes[value.leading_zeros() as usize / 8..];
                self.byte((significant.len() as u8).wrapping_neg());
                self.slice(significant);
            }
        }
    }

    /// A signed integer; see [`signed`].
    #[inline]
    fn int(&mut self, value: i64) {
        let shifted = value.cast_unsigned() << 1;
        self.uint(if value < 0 { !shifted } else { shifted });
    }

    /// A byte string: its length, then its bytes.
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.uint(bytes.len() as u64);
        self.slice(bytes);
    }
}

impl Output for usize {
    #[inline]
    fn byte(&mut self, _byte: u8) {
        *self += 1;
    }

    #[inline]
    fn slice(&mut self, bytes: &[u8]) {
        *self += bytes.len();
    }
}

impl Output for Vec<u8> {
    fn byte(&mut self, byte: u8) {
        self.push(byte);
    }

    fn slice(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Fills a slice from its front; writing past its end is a bug of the caller, who has counted.
pub(super) struct Fill<'a> {
    slice: &'a mut [u8],
    at: usize,
}

impl<'a> Fill<'a> {
    /// The slice is as long as what was counted.
    pub(super) fn new(slice: &'a mut [u8]) -> Self {
        Self { slice, at: 0 }
    }
}

impl Output for Fill<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.slice[self.at] = byte;
        self.at += 1;
    }

    #[inline]
    fn slice(&mut self, bytes: &[u8]) {
        self.slice[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::{Input, Output, peek_uint};
    use crate::codec::malformed;

    /// Go's own examples, from the documentation of `encoding/gob`.
    #[test]
    fn integers_are_written_as_go_documents_them() {
        let mut out = Vec::new();
        out.uint(7);
        out.uint(256);
        out.int(-129);
        assert_eq!(out, [0x07, 0xfe, 0x01, 0x00, 0xfe, 0x01, 0x01]);
    }

    #[test]
    fn integers_of_every_width_survive_a_round_trip_and_their_length_is_counted() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                let (mut out, mut counted) = (Vec::new(), 0_usize);
                out.uint(value);
                out.int(value.cast_signed());
                out.int(-(value >> 1).cast_signed());
                counted.uint(value);
                counted.int(value.cast_signed());
                counted.int(-(value >> 1).cast_signed());
                assert_eq!(counted, out.len());
                let mut input = Input::new(&out);
                assert_eq!(input.uint(), Ok(value));
                assert_eq!(input.int(), Ok(value.cast_signed()));
                assert_eq!(input.int(), Ok(-(value >> 1).cast_signed()));
                assert_eq!(input.len(), 0);
            }
        }
    }

    #[test]
    fn an_integer_that_is_not_all_there_asks_for_more_and_one_too_wide_is_an_error() {
        assert_eq!(peek_uint(&[]), Ok(None));
        assert_eq!(peek_uint(&[0xfe, 1]), Ok(None));
        assert_eq!(peek_uint(&[0xfe, 1, 2]), Ok(Some((0x102, 3))));
        assert_eq!(
            peek_uint(&[0xf7]),
            Err(malformed("gob integer: it has more than 8 bytes"))
        );
        assert_eq!(
            peek_uint(&[0x80]),
            Err(malformed("gob integer: it has more than 8 bytes"))
        );
    }
}
