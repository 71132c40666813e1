//! Reads documents of the plain block style, which peers really send, straight into values: in one pass, and without the
//! events and texts that the full parser makes of each line.
//!
//! A line is `key:`, `key: scalar`, `- key: scalar` or `- scalar`; a scalar is one or several words, text in double
//! quotes, a number, `true`, `false`, `null`, `[]` or `{}`. Whatever else stands there, also a key that the type does
//! not have or that stands twice, a number in an unusual form and a value that the key does not take, is left to the full parser, which reads
//! the document from its beginning and says what is wrong with it. So nothing is refused here, and property tests hold
//! the two equal in what is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sched_model::value::{FieldReader, Record, Text, Value, ValueReader};

use super::guard::MAX_ENTRIES;
use super::peek::word::{Scalar, block_scalar, ends_line, is_plain, word_len};
use super::scalar::leading_decimal;
use super::seen::Seen;

/// Longest key that is read, in bytes. YAML allows 1024 characters.
const MAX_KEY_LEN: usize = 128;

/// Reads a document that is one value; `None` where it is not of the plain style.
///
/// The document has passed [`super::guard::first_document`]: its length is within the limit, and it ends before the
/// document that follows it.
pub(super) fn read<T: Value>(document: &[u8]) -> Option<T> {
    let mut lines = Lines::of(document)?;
    let value = T::read(lines.place(0, Before::Nothing)).ok()?;
    lines.is_at_end().then_some(value)
}

/// Reads the value under the one key of a document, as [`read`] does; `None` also where there is another key.
pub(super) fn read_under<T: Value>(key: &str, document: &[u8]) -> Option<T> {
    let mut lines = Lines::of(document)?;
    if lines.take_key().ok()? != key {
        return None;
    }
    let value = T::read(lines.place(0, Before::Key)).ok()?;
    lines.is_at_end().then_some(value)
}

/// The document is not of the plain style, or not what the type takes: the full parser has to look.
#[derive(Debug)]
struct NotPlain;

/// A document, and how far it has been read.
struct Lines<'a> {
    document: &'a str,
    /// Where the first byte is that has not been read.
    at: usize,
}

/// What a value stands behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Nothing: it is the document.
    Nothing,
    /// A key and its colon.
    Key,
    /// The dash of an entry of a list.
    Dash,
}

/// A place in a document: what stands there is read next.
struct Place<'l, 'a> {
    lines: &'l mut Lines<'a>,
    /// Column of the key or dash that it stands behind.
    column: usize,
    before: Before,
}

/// A scalar, as it was written.
enum Word<'a> {
    Plain(&'a str),
    /// In quotes, without them: always a text.
    Quoted(Cow<'a, str>),
}

impl<'a> Lines<'a> {
    fn of(document: &'a [u8]) -> Option<Self> {
        let document = std::str::from_utf8(document).ok()?;
        let at = if document.starts_with("---\n") { 4 } else { 0 };
        Some(Self { document, at })
    }

    fn place(&mut self, column: usize, before: Before) -> Place<'_, 'a> {
        Place {
            lines: self,
            column,
            before,
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.document.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// Spaces at the beginning of the line that begins here; `None` at the end of the document.
    fn indent(&self) -> Option<usize> {
        let rest = self.rest();
        let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
        (!rest.is_empty()).then_some(spaces)
    }

    /// Takes the rest of this line, if it is this text.
    fn take_line(&mut self, text: &str) -> bool {
        let rest = self.rest();
        let is_it = rest.starts_with(text.as_bytes()) && ends_line(rest, text.len());
        if is_it {
            self.at += text.len() + 1;
        }
        is_it
    }

    /// Takes a key and its colon.
    fn take_key(&mut self) -> Result<&'a str, NotPlain> {
        let rest = self.rest();
        let [key @ .., b':'] = &rest[..word_len(rest)] else {
            return Err(NotPlain);
        };
        if !is_plain(key) || key.starts_with(b"-") || key.len() > MAX_KEY_LEN {
            return Err(NotPlain);
        }
        let text = &self.document[self.at..self.at + key.len()];
        self.at += key.len() + 1;
        Ok(text)
    }

    /// Takes a blank, a scalar, and the end of the line.
    fn take_scalar(&mut self) -> Result<Word<'a>, NotPlain> {
        let rest = self.rest().strip_prefix(b" ").ok_or(NotPlain)?;
        let start = self.at + 1;
        let (word, len) = if rest.starts_with(b"\"") {
            let (text, len) = quoted(&self.document[start..]).ok_or(NotPlain)?;
            (Word::Quoted(text), len)
        } else {
            let (Scalar::Text(text), len) = block_scalar(rest).ok_or(NotPlain)? else {
                return Err(NotPlain);
            };
            (Word::Plain(&self.document[start..start + text.len()]), len)
        };
        if !ends_line(rest, len) {
            return Err(NotPlain);
        }
        self.at = start + len + 1;
        Ok(word)
    }

    /// Takes a blank, a scalar without quotes, and the end of the line.
    fn take_plain(&mut self) -> Result<&'a str, NotPlain> {
        match self.take_scalar()? {
            Word::Plain(text) => Ok(text),
            Word::Quoted(_) => Err(NotPlain),
        }
    }

    /// Takes the entries of a mapping whose keys stand in this column, up to the first line that is further left. The
    /// first key stands right here if `is_in_line`, else on a line of its own. `entry` reads the value behind a key.
    fn take_mapping(
        &mut self,
        column: usize,
        is_in_line: bool,
        mut entry: impl FnMut(&mut Self, &'a str) -> Result<(), NotPlain>,
    ) -> Result<(), NotPlain> {
        if is_in_line {
            let key = self.take_key()?;
            entry(self, key)?;
        }
        while let Some(indent) = self.indent() {
            if indent < column {
                break;
            }
            // A line that is further right goes on with a text of several lines.
            if indent > column {
                return Err(NotPlain);
            }
            self.at += indent;
            if self.rest().starts_with(b"- ") {
                return Err(NotPlain);
            }
            let key = self.take_key()?;
            entry(self, key)?;
        }
        Ok(())
    }
}

impl<'a> Place<'_, 'a> {
    /// Reads a mapping in block style; `entry` reads the value behind a key, whose column it is given.
    fn mapping(
        self,
        mut entry: impl FnMut(&mut Lines<'a>, usize, &'a str) -> Result<(), NotPlain>,
    ) -> Result<(), NotPlain> {
        let lines = self.lines;
        let (column, is_in_line) = match self.before {
            Before::Nothing if lines.is_at_end() => return Err(NotPlain),
            Before::Nothing => (0, false),
            Before::Dash => {
                if !lines.rest().starts_with(b" ") {
                    return Err(NotPlain);
                }
                lines.at += 1;
                // Behind the dash and a blank.
                (self.column + 2, true)
            }
            Before::Key => {
                let column = lines.take_line("").then(|| lines.indent()).flatten();
                // A key without a value stands for null.
                let column = column.filter(|column| *column > self.column);
                (column.ok_or(NotPlain)?, false)
            }
        };
        lines.take_mapping(column, is_in_line, |lines, key| entry(lines, column, key))
    }
}

impl ValueReader for Place<'_, '_> {
    type Error = NotPlain;

    fn read_text<T: Text>(self) -> Result<T, NotPlain> {
        let parsed = match self.lines.take_scalar()? {
            Word::Plain(text) => T::parse(text),
            Word::Quoted(text) => T::parse(&text),
        };
        parsed.map_err(|_| NotPlain)
    }

    fn read_int<T: TryFrom<i128> + Default>(self, _: &'static str) -> Result<T, NotPlain> {
        let text = self.lines.take_plain()?;
        let (value, len) = leading_decimal(text.as_bytes()).ok_or(NotPlain)?;
        if len < text.len() {
            return Err(NotPlain);
        }
        T::try_from(value.into()).map_err(|_| NotPlain)
    }

    fn read_bool(self) -> Result<bool, NotPlain> {
        match self.lines.take_plain()? {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(NotPlain),
        }
    }

    fn read_optional<T: Value>(self) -> Result<Option<T>, NotPlain> {
        if self.lines.take_line(" null") {
            return Ok(None);
        }
        T::read(self).map(Some)
    }

    fn read_list<T: Value>(self) -> Result<Vec<T>, NotPlain> {
        let Self {
            lines,
            column,
            before,
        } = self;
        if lines.take_line(" []") {
            return Ok(Vec::new());
        }
        if before != Before::Key || !lines.take_line("") {
            return Err(NotPlain);
        }
        let mut list = Vec::new();
        // Its dashes may stand in the column of its key.
        let column = lines.indent().filter(|indent| *indent >= column);
        while let Some(column) = column
            && lines.indent() == Some(column)
            && lines.rest()[column..].starts_with(b"- ")
        {
            if list.len() == MAX_ENTRIES {
                return Err(NotPlain);
            }
            lines.at += column + 1;
            list.push(T::read(lines.place(column, Before::Dash))?);
        }
        // A key without a value stands for null.
        if list.is_empty() {
            return Err(NotPlain);
        }
        Ok(list)
    }

    fn read_entries<T: Value>(self) -> Result<BTreeMap<String, T>, NotPlain> {
        let mut entries = BTreeMap::new();
        if self.lines.take_line(" {}") {
            return Ok(entries);
        }
        self.mapping(|lines, column, key| {
            let value = T::read(lines.place(column, Before::Key))?;
            let before = entries.insert(key.to_owned(), value);
            let is_taken = before.is_none() && entries.len() <= MAX_ENTRIES;
            is_taken.then_some(()).ok_or(NotPlain)
        })?;
        Ok(entries)
    }

    fn read_record<T: Record>(self) -> Result<T, NotPlain> {
        let mut record = T::default();
        if self.lines.take_line(" {}") {
            return Ok(record);
        }
        let mut seen = Seen::of(T::FIELDS);
        self.mapping(|lines, column, key| {
            let is_known = record.set(key, &mut Field { lines, column })?;
            (is_known && !seen.is_again(key))
                .then_some(())
                .ok_or(NotPlain)
        })?;
        Ok(record)
    }
}

/// The value of the key of a record that was taken last.
struct Field<'l, 'a> {
    lines: &'l mut Lines<'a>,
    /// Column of the key.
    column: usize,
}

impl FieldReader for Field<'_, '_> {
    type Error = NotPlain;

    fn read_field<T: Value>(&mut self, _: &str) -> Result<T, NotPlain> {
        T::read(self.lines.place(self.column, Before::Key))
    }
}

/// The text in double quotes that begins here, with the escapes that this project writes, and how many bytes it takes
/// with its quotes. `None` of any other escape, of a line break, and of what YAML does not allow in a text.
fn quoted(from: &str) -> Option<(Cow<'_, str>, usize)> {
    let inner = from.strip_prefix('"')?;
    let len = inner.find(|c| matches!(c, '"' | '\\') || !is_printable(c))?;
    if inner[len..].starts_with('"') {
        return Some((Cow::Borrowed(&inner[..len]), len + 2));
    }
    let mut text = inner[..len].to_owned();
    let mut chars = inner[len..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(text), len + at + 2)),
            '\\' => text.push(match chars.next()?.1 {
                c @ ('"' | '\\') => c,
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'x' => hexadecimal(&mut chars, 2)?,
                'u' => hexadecimal(&mut chars, 4)?,
                _ => return None,
            }),
            c if is_printable(c) => text.push(c),
            _ => return None,
        }
    }
    None
}

/// The character whose number is the next so many digits.
fn hexadecimal(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Option<char> {
    let mut number = 0;
    for _ in 0..digits {
        number = number * 16 + chars.next()?.1.to_digit(16)?;
    }
    char::from_u32(number)
}

/// Whether YAML allows the character in a text of one line, and nothing more is meant by it.
fn is_printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}')
        || matches!(c, '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests;
