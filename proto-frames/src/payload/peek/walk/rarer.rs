//! The rest of a line where it is not a mere word: text in quotes or of several words, and lists and mappings on one
//! line, such as `["zone = eu-1", b]`, `{id: web, max: 2}`, and such within such.
//!
//! In these a blank stands behind each colon, any number of them behind a comma, none elsewhere outside of texts. What
//! is found is handed on as if it stood on lines of its own.

use super::{Found, Level, LevelKind, MAX_KEY_LEN, Sink, Slot, Walker};
use crate::payload::guard::{MAX_BRACKETS, MAX_ENTRIES};
use crate::payload::peek::word::{Scalar, block_scalar, ends_line, flow_key, flow_scalar};
use sched_model::value::Shape;

impl<'a, S: Sink<'a>> Walker<'_, 'a, S> {
    /// Reads the rest of a line; says where the next line begins.
    #[cold]
    pub(super) fn rarer_line(
        &mut self,
        slot: Slot<'a>,
        payload: &'a [u8],
        start: usize,
    ) -> Option<usize> {
        let rest = payload.get(start..)?;
        let len = match block_scalar(rest) {
            Some((scalar, len)) => self.scalar(slot.key, slot.shape, scalar).map(|()| len)?,
            None => self.flow(slot.name, slot.shape, rest)?,
        };
        self.extra += len;
        ends_line(rest, len).then_some(start + len + 1)
    }

    fn scalar(&mut self, key: &'a str, shape: &'static Shape, scalar: Scalar<'a>) -> Option<()> {
        match (shape, scalar) {
            // What is wrong with it the full parser says.
            (Shape::Int { .. } | Shape::Bool, Scalar::Quoted(_)) => None,
            (_, Scalar::Text(text) | Scalar::Quoted(text)) => self.text(key, shape, text),
            (Shape::List(_), Scalar::EmptyList) | (Shape::Entries(_), Scalar::EmptyMapping) => {
                Some(())
            }
            (Shape::Any, _) => self.deliver(key, Found::Anything),
            _ => None,
        }
    }

    /// Reads a list or mapping; says how many bytes it takes.
    fn flow(&mut self, name: &'static str, shape: &'static Shape, rest: &'a [u8]) -> Option<usize> {
        self.brackets += 1;
        if self.brackets > MAX_BRACKETS {
            return None;
        }
        let depth = self.depth;
        let len = match rest.first()? {
            b'[' => self.flow_list(name, shape, rest)?,
            b'{' => self.flow_mapping(name, shape, rest)?,
            _ => return None,
        };
        self.depth = depth;
        Some(len)
    }

    fn flow_list(
        &mut self,
        name: &'static str,
        shape: &'static Shape,
        rest: &'a [u8],
    ) -> Option<usize> {
        let entry = match shape {
            Shape::List(entry) => entry,
            Shape::Any => &Shape::Any,
            _ => return None,
        };
        self.push(Level::new(0, name, LevelKind::List(entry)))?;
        let mut at = 1;
        loop {
            let top = self.top()?;
            top.next += 1;
            if top.next > MAX_ENTRIES {
                return None;
            }
            at += self.flow_value("", name, entry, &rest[at..])?;
            match rest.get(at)? {
                b',' => at += separator_len(&rest[at..]),
                b']' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    fn flow_mapping(
        &mut self,
        name: &'static str,
        shape: &'static Shape,
        rest: &'a [u8],
    ) -> Option<usize> {
        self.push_mapping(0, name, shape)?;
        let mut at = 1;
        loop {
            let key = flow_key(&rest[at..])?;
            if key.len() > MAX_KEY_LEN {
                return None;
            }
            let slot = self.slot(key)?;
            at += key.len() + ": ".len();
            at += self.flow_value(slot.key, slot.name, slot.shape, &rest[at..])?;
            match rest.get(at)? {
                b',' => at += separator_len(&rest[at..]),
                b'}' => return Some(at + 1),
                _ => return None,
            }
        }
    }

    /// Reads an entry of a list or the value of a key; says how many bytes it takes.
    fn flow_value(
        &mut self,
        key: &'a str,
        name: &'static str,
        shape: &'static Shape,
        rest: &'a [u8],
    ) -> Option<usize> {
        match flow_scalar(rest) {
            Some((scalar, len)) => self.scalar(key, shape, scalar).map(|()| len),
            None => self.flow(name, shape, rest),
        }
    }
}

/// A comma and the blanks behind it.
fn separator_len(rest: &[u8]) -> usize {
    1 + rest[1..].iter().take_while(|byte| **byte == b' ').count()
}
