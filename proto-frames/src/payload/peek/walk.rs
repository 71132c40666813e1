//! Walks a document of the plain block style, line by line, and hands what it finds to a [`Sink`].
//!
//! Each line is one of `key:`, `key: scalar`, `- key: scalar`, `- scalar`, a comment or empty; a scalar is one or
//! several words of unremarkable characters, or such words in double quotes, and in place of one may stand a list or
//! mapping that ends on its line ([`rarer`]). The indentation must be what YAML demands for such lines. Whatever else
//! stands there ends the walk without a result.

use super::word::{ends_line, is_plain, skip_comment, word_len, word_line};
use crate::payload::guard::{Limits, MAX_ENTRIES, MAX_INDICATORS, is_marker};
use crate::payload::scalar;
use sched_model::value::{Field, Shape};

mod rarer;

/// Levels of nesting that are walked; the deepest of the payloads, a resource of an instance in STATS, has five.
const MAX_DEPTH: usize = 8;

/// Longest key that is walked. YAML allows 1024 characters.
const MAX_KEY_LEN: usize = 128;

/// Most keys of a mapping with any keys that a key out of order is compared with. Peers write them in order; users' own
/// files, with a few variables and resources, do not.
const MAX_COMPARED: usize = 16;

/// Most bytes that the guard counts in a line of words; those of texts, comments and flow style are counted by their length.
const INDICATORS_PER_LINE: usize = 2;

/// Receives what a walk finds.
pub(super) trait Sink<'a> {
    /// Something was found; `None` ends the walk without a result.
    fn found(&mut self, at: &Place<'a>, what: Found<'a>) -> Option<()>;
}

/// Where something was found: the key, the mapping or list it is in, and what that one is in. All empty at the top.
pub(super) struct Place<'a> {
    /// Key of the mapping or list around `record`.
    pub(super) outer: &'static str,
    /// Key of the mapping or list that this is in.
    pub(super) record: &'static str,
    /// The key itself; empty for an entry of a list.
    pub(super) key: &'a str,
}

/// What was found.
pub(super) enum Found<'a> {
    /// A mapping with known keys begins.
    Mapping,
    /// Text (ASCII, of one line), for a key that takes text.
    Text(&'a [u8]),
    /// A number, for a key that takes one.
    Int(i64),
    /// A truth value, for a key that takes one.
    Bool(bool),
    /// Anything, for a key that takes anything.
    Anything,
}

/// Walks the first document of a payload, whose mapping has these keys. `None` where it is not of the plain style, or
/// not what the keys take, or longer than the limit.
pub(super) fn walk<'a, S: Sink<'a>>(
    payload: &'a [u8],
    fields: &'static [Field],
    limits: Limits,
    sink: &mut S,
) -> Option<()> {
    let mut walker = Walker::new(fields, sink);
    let mut at = if payload.starts_with(b"---\n") { 4 } else { 0 };
    let mut lines = 0;
    while at < payload.len() {
        match walker.line(payload, at)? {
            Next::Line(next) => at = next,
            Next::End => break,
        }
        lines += 1;
    }
    let indicators = lines * INDICATORS_PER_LINE + walker.extra;
    (at <= limits.max_len && indicators <= MAX_INDICATORS).then_some(())
}

enum Next {
    Line(usize),
    End,
}

/// A line of the kind that most are.
struct Usual<'a> {
    /// `None` = an empty list.
    found: Option<Found<'a>>,
    /// Bytes that are counted as those of texts and flow style are.
    extra: usize,
    /// Where the next line begins.
    next: usize,
}

/// An open mapping or list.
#[derive(Clone, Copy)]
struct Level {
    /// Column of its keys or dashes.
    column: usize,
    /// The key it stands under.
    name: &'static str,
    kind: LevelKind,
    /// Of a record the field expected next, else the entries so far.
    next: usize,
    /// Of a record, a bit for each field that was there.
    seen: u32,
}

#[derive(Clone, Copy)]
enum LevelKind {
    Record(&'static [Field]),
    Entries(&'static Shape),
    List(&'static Shape),
}

impl Level {
    fn new(column: usize, name: &'static str, kind: LevelKind) -> Self {
        Self {
            column,
            name,
            kind,
            next: 0,
            seen: 0,
        }
    }

    const fn is_list(&self) -> bool {
        matches!(self.kind, LevelKind::List(_))
    }
}

/// A key and what it takes.
#[derive(Clone, Copy)]
struct Slot<'a> {
    key: &'a str,
    /// The same as `key` where it is a known one.
    name: &'static str,
    shape: &'static Shape,
}

/// Name of what stands under keys that no one knows: no key is written like this.
const UNNAMED: &str = "?";

/// The mapping below which every key must be known: the full parser says of one that is not.
const STRICT: &str = "scheduling";

/// What a key begins behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Indent,
    Dash,
}

struct Walker<'s, 'a, S> {
    levels: [Level; MAX_DEPTH],
    depth: usize,
    /// The last key had no value on its line: one may follow on lines of its own.
    pending: Option<(&'static str, &'static Shape)>,
    /// Bytes of texts, comments and flow style.
    extra: usize,
    /// Lists and mappings of flow style that are not empty.
    brackets: usize,
    entry_keys: EntryKeys<'a>,
    sink: &'s mut S,
}

impl<'a, 's, S: Sink<'a>> Walker<'s, 'a, S> {
    fn new(fields: &'static [Field], sink: &'s mut S) -> Self {
        let root = Level::new(0, "", LevelKind::Record(fields));
        Self {
            levels: [root; MAX_DEPTH],
            depth: 1,
            pending: None,
            extra: 0,
            brackets: 0,
            entry_keys: EntryKeys::default(),
            sink,
        }
    }

    /// Reads the line that begins there; says where the next one begins.
    fn line(&mut self, payload: &'a [u8], start: usize) -> Option<Next> {
        if let Some(top) = self.levels[..self.depth].last_mut()
            && let LevelKind::Record(fields) = top.kind
            && let Some(field) = fields.get(top.next)
            && let Some(bit) = bit_of(top.next)
            && top.seen & bit == 0
            && self.pending.is_none()
            && let Some(usual) = usual_line(payload, start, top.column, field)
        {
            top.seen |= bit;
            top.next += 1;
            self.extra += usual.extra;
            if let Some(found) = usual.found {
                self.deliver(field.key, found)?;
            }
            return Some(Next::Line(usual.next));
        }
        let spaces = payload[start..]
            .iter()
            .take_while(|byte| **byte == b' ')
            .count();
        let at = start + spaces;
        match *payload.get(at)? {
            b'\n' if spaces == 0 => Some(Next::Line(at + 1)),
            b'#' => {
                let next = skip_comment(payload, at + 1)?;
                self.extra += next - at;
                Some(Next::Line(next))
            }
            b'-' if payload.get(at + 1) == Some(&b' ') => {
                self.begin_item(spaces)?;
                self.content(payload, at + 2, spaces + 2, Behind::Dash)
                    .map(Next::Line)
            }
            b'-' | b'.' => {
                let line = payload[at..].split(|byte| *byte == b'\n').next()?;
                (spaces == 0 && is_marker(line)).then_some(Next::End)
            }
            _ => self
                .content(payload, at, spaces, Behind::Indent)
                .map(Next::Line),
        }
    }

    /// Reads what stands behind the indentation or a dash: a key with or without a value, or an entry of a list.
    fn content(
        &mut self,
        payload: &'a [u8],
        start: usize,
        column: usize,
        behind: Behind,
    ) -> Option<usize> {
        if let Some(slot) = self.expected(payload.get(start..)?, column, behind)? {
            return self.behind_key(slot, payload, start + slot.key.len() + 1);
        }
        let end = start + word_len(&payload[start..]);
        match payload.get(start..end)? {
            [key @ .., b':']
                if is_plain(key) && key.len() <= MAX_KEY_LEN && !key.starts_with(b"-") =>
            {
                if behind == Behind::Dash {
                    self.begin_key(column, behind)?;
                }
                let slot = self.slot(key)?;
                self.behind_key(slot, payload, end)
            }
            _ if behind == Behind::Dash => self.entry(payload, start),
            _ => None,
        }
    }

    /// What the key takes that is next in order, if it is the one that stands there: peers write keys in order, and then
    /// none has to be looked for. What stands behind an indentation is in the innermost mapping from now on, which key
    /// it may be.
    fn expected(&mut self, rest: &[u8], column: usize, behind: Behind) -> Option<Option<Slot<'a>>> {
        match behind {
            Behind::Indent => self.begin_key(column, behind)?,
            Behind::Dash => match self.top()?.kind {
                LevelKind::List(Shape::Record([first, ..])) if begins_with(rest, first.key) => {
                    self.begin_key(column, behind)?;
                }
                _ => return Some(None),
            },
        }
        let top = self.top()?;
        let LevelKind::Record(fields) = top.kind else {
            return Some(None);
        };
        let found = fields.get(top.next).filter(|it| begins_with(rest, it.key));
        let Some(field) = found else {
            return Some(None);
        };
        let bit = bit_of(top.next)?;
        if top.seen & bit != 0 {
            return None;
        }
        top.seen |= bit;
        top.next += 1;
        Some(Some(Slot {
            key: field.key,
            name: field.key,
            shape: &field.shape,
        }))
    }

    /// Reads what stands behind a key and its colon.
    #[inline]
    fn behind_key(&mut self, slot: Slot<'a>, payload: &'a [u8], at: usize) -> Option<usize> {
        match payload.get(at) {
            None | Some(b'\n') => self.empty_value(slot).map(|()| at + 1),
            Some(b' ') => self.value(slot, payload, at + 1),
            _ => None,
        }
    }

    /// Makes the innermost level the list whose dashes stand in this column, and counts an entry.
    fn begin_item(&mut self, column: usize) -> Option<()> {
        if let Some((name, shape)) = self.pending.take()
            && column >= self.top()?.column
        {
            let entry = match shape {
                Shape::List(entry) => entry,
                Shape::Any => &Shape::Any,
                _ => return None,
            };
            self.push(Level::new(column, name, LevelKind::List(entry)))?;
        }
        while self
            .top()
            .is_some_and(|top| top.column > column || top.column == column && !top.is_list())
        {
            self.depth -= 1;
        }
        let top = self.top()?;
        top.next += 1;
        (top.column == column && top.is_list() && top.next <= MAX_ENTRIES).then_some(())
    }

    /// Makes the innermost level the mapping whose keys stand in this column.
    #[inline]
    fn begin_key(&mut self, column: usize, behind: Behind) -> Option<()> {
        if behind == Behind::Dash {
            let top = self.top()?;
            let LevelKind::List(shape) = top.kind else {
                return None;
            };
            let name = top.name;
            return self.push_mapping(column, name, shape);
        }
        if let Some((name, shape)) = self.pending.take()
            && column > self.top()?.column
        {
            return self.push_mapping(column, name, shape);
        }
        while self
            .top()
            .is_some_and(|top| top.column > column || top.column == column && top.is_list())
        {
            self.depth -= 1;
        }
        (self.top()?.column == column).then_some(())
    }

    fn push_mapping(
        &mut self,
        column: usize,
        name: &'static str,
        shape: &'static Shape,
    ) -> Option<()> {
        let kind = match shape {
            Shape::Record(fields) => LevelKind::Record(fields),
            Shape::Entries(value) => LevelKind::Entries(value),
            Shape::Any => LevelKind::Entries(&Shape::Any),
            _ => return None,
        };
        let outer = self.top()?.name;
        self.push(Level::new(column, name, kind))?;
        if let Shape::Record(_) = shape {
            self.sink.found(
                &Place {
                    outer,
                    record: name,
                    key: "",
                },
                Found::Mapping,
            )?;
        }
        Some(())
    }

    /// What the key takes in the innermost mapping; `None` for a known key that was there before.
    fn slot(&mut self, key: &'a [u8]) -> Option<Slot<'a>> {
        let top = self.top()?;
        match top.kind {
            LevelKind::Record(fields) => {
                let Some(index) = field_index(fields, top.next, key) else {
                    let levels = &self.levels[..self.depth];
                    if levels.iter().any(|level| level.name == STRICT) {
                        return None;
                    }
                    return Some(Slot {
                        key: UNNAMED,
                        name: UNNAMED,
                        shape: &Shape::Any,
                    });
                };
                let bit = bit_of(index)?;
                if top.seen & bit != 0 {
                    return None;
                }
                top.seen |= bit;
                top.next = index + 1;
                let field = &fields[index];
                Some(Slot {
                    key: field.key,
                    name: field.key,
                    shape: &field.shape,
                })
            }
            LevelKind::Entries(shape) => {
                // What stands under keys that mean nothing means nothing either, and may be within another such.
                let counts = !matches!(shape, Shape::Any);
                let before = top.next;
                top.next += 1;
                if counts && self.entry_keys.is_again(key, before) {
                    return None;
                }
                let key = std::str::from_utf8(key).ok()?;
                (before < MAX_ENTRIES).then_some(Slot {
                    key,
                    name: UNNAMED,
                    shape,
                })
            }
            LevelKind::List(_) => None,
        }
    }

    /// A key without a value on its line.
    fn empty_value(&mut self, slot: Slot<'a>) -> Option<()> {
        if let Shape::Text | Shape::Bool | Shape::Int { .. } = slot.shape {
            return None;
        }
        if let Shape::Any = slot.shape {
            self.deliver(slot.key, Found::Anything)?;
        }
        self.pending = Some((slot.name, slot.shape));
        Some(())
    }

    /// A key with its value on the same line.
    #[inline]
    fn value(&mut self, slot: Slot<'a>, payload: &'a [u8], start: usize) -> Option<usize> {
        if let Shape::Int { min, max } = slot.shape
            && let Some((value, len)) = scalar::leading_decimal(payload.get(start..)?)
            && ends_line(payload, start + len)
        {
            let is_within = (*min..=*max).contains(&value.into());
            let found = is_within.then_some(Found::Int(value))?;
            return self.deliver(slot.key, found).map(|()| start + len + 1);
        }
        match word_line(payload, start) {
            Some((word, next)) => self.text(slot.key, slot.shape, word).map(|()| next),
            None => self.rarer_line(slot, payload, start),
        }
    }

    /// An entry of a list that is one scalar, or stands on one line.
    fn entry(&mut self, payload: &'a [u8], start: usize) -> Option<usize> {
        let top = self.top()?;
        let LevelKind::List(shape) = top.kind else {
            return None;
        };
        let slot = Slot {
            key: "",
            name: top.name,
            shape,
        };
        self.value(slot, payload, start)
    }

    /// A scalar that is text.
    #[inline]
    fn text(&mut self, key: &'a str, shape: &'static Shape, text: &'a [u8]) -> Option<()> {
        let found = match shape {
            Shape::Text => Found::Text(text),
            Shape::Int { min, max } => {
                let value = scalar::int_of_bytes(text)?;
                if value < *min || value > *max {
                    return None;
                }
                Found::Int(i64::try_from(value).ok()?)
            }
            Shape::Bool => Found::Bool(scalar::boolean(std::str::from_utf8(text).ok()?)?),
            Shape::Any => Found::Anything,
            _ => return None,
        };
        self.deliver(key, found)
    }

    #[inline]
    fn deliver(&mut self, key: &'a str, found: Found<'a>) -> Option<()> {
        let outer = if self.depth > 1 {
            self.levels[self.depth - 2].name
        } else {
            ""
        };
        let record = self.top()?.name;
        self.sink.found(&Place { outer, record, key }, found)
    }

    fn top(&mut self) -> Option<&mut Level> {
        self.levels[..self.depth].last_mut()
    }

    fn push(&mut self, level: Level) -> Option<()> {
        *self.levels.get_mut(self.depth)? = level;
        self.depth += 1;
        Some(())
    }
}

/// The keys so far of the mapping with any keys that is walked. There is one at a time: what their values take is no such
/// mapping.
#[derive(Default)]
struct EntryKeys<'a> {
    /// The first of them.
    first: [&'a [u8]; MAX_COMPARED],
    /// The last in order of all.
    greatest: &'a [u8],
}

impl<'a> EntryKeys<'a> {
    /// Takes note of a key behind so many others; says whether it is one of them, or may be.
    fn is_again(&mut self, key: &'a [u8], before: usize) -> bool {
        let is_in_order = before == 0 || key > self.greatest;
        let is_again = !is_in_order
            && self
                .first
                .get(..before)
                .is_none_or(|keys| keys.contains(&key));
        if let Some(place) = self.first.get_mut(before) {
            *place = key;
        }
        if is_in_order {
            self.greatest = key;
        }
        is_again
    }
}

/// Looks whether the line that begins there is of the kind that most are: this key in this column, with a number, a word,
/// or nothing in quotes or brackets, as the key takes. `None` of any other line.
#[inline]
fn usual_line<'a>(
    payload: &'a [u8],
    start: usize,
    column: usize,
    field: &'static Field,
) -> Option<Usual<'a>> {
    let (indent, rest) = payload.get(start..)?.split_at_checked(column)?;
    if indent.iter().any(|byte| *byte != b' ') {
        return None;
    }
    let value = rest
        .strip_prefix(field.key.as_bytes())?
        .strip_prefix(b": ")?;
    let (found, len, extra) = match (&field.shape, value) {
        (Shape::Text, [b'"', b'"', ..]) => (Some(Found::Text(b"")), 2, 2),
        (Shape::Text, _) => {
            let (word, _) = word_line(value, 0)?;
            (Some(Found::Text(word)), word.len(), 0)
        }
        (Shape::Int { min, max }, _) => {
            let (number, len) = scalar::leading_decimal(value)?;
            let is_within = (*min..=*max).contains(&number.into());
            (Some(is_within.then_some(Found::Int(number))?), len, 0)
        }
        (Shape::List(_), [b'[', b']', ..]) => (None, 2, 2),
        _ => return None,
    };
    let next = payload.len() - value.len() + len + 1;
    ends_line(value, len).then_some(Usual { found, extra, next })
}

/// Whether this key stands there, with its colon.
fn begins_with(rest: &[u8], key: &str) -> bool {
    let behind = rest.strip_prefix(key.as_bytes());
    matches!(behind, Some([b':'] | [b':', b' ' | b'\n', ..]))
}

/// Of a record's fields seen, that of the field with this index; `None` if there are too many.
fn bit_of(index: usize) -> Option<u32> {
    1_u32.checked_shl(u32::try_from(index).ok()?)
}

/// The field with this key, looked for from the one that is expected on.
fn field_index(fields: &[Field], expected: usize, key: &[u8]) -> Option<usize> {
    let is_it = |field: &Field| field.key.as_bytes() == key;
    let (before, after) = fields.split_at(expected);
    let later = after.iter().position(is_it).map(|index| expected + index);
    later.or_else(|| before.iter().position(is_it))
}
