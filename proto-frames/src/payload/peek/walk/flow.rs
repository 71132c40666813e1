//! Lists and mappings on one line: `["zone = eu-1", b]`, `{id: web, max: 2}`, and such within such.
//!
//! A blank stands behind each colon, any number of them behind a comma, none elsewhere outside of texts. What is found
//! is handed on as if it stood on lines of its own.

use super::{Level, LevelKind, MAX_KEY_LEN, Sink, Walker};
use crate::payload::guard::{MAX_BRACKETS, MAX_ENTRIES};
use crate::payload::peek::word::{ends_line, flow_key, flow_scalar};
use crate::payload::value::Shape;

impl<'a, S: Sink<'a>> Walker<'_, S> {
    /// Reads a list or mapping that is the rest of a line; says where the next line begins.
    pub(super) fn flow_line(
        &mut self,
        name: &'static str,
        shape: &'static Shape,
        payload: &'a [u8],
        start: usize,
    ) -> Option<usize> {
        let rest = payload.get(start..)?;
        let len = self.flow(name, shape, rest)?;
        self.extra += len;
        ends_line(rest, len).then_some(start + len + 1)
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
