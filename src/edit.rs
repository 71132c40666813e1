//! Puts single values into a START's text, without parsing it as YAML, so that all else stays as its author wrote it.
//! Knows block mappings and flow mappings that open on their key's line; the caller has to parse the result again.

use std::ops::Range;

use bytes::Bytes;

/// The text with `value` as the value of the key at the end of `path`, where there is a place for it that is plain to
/// see; the first key of the path must stand at the margin, on a line of its own.
pub(crate) fn set(text: &[u8], path: &[&str], value: &str) -> Option<Bytes> {
    let (root, path) = path.split_first()?;
    let top = lines(text).find(|(_, line)| is_key_alone(line, root))?;
    let mut block = Block {
        start: top.0 + top.1.len(),
        parent_indent: 0,
    };
    for (depth, key) in path.iter().enumerate() {
        let deeper = &path[depth + 1..];
        match block.find(text, key)? {
            KeyPosition::Missing { at, indent } => {
                let line = format!("{:indent$}{key}: {}\n", "", nested(deeper, value));
                return Some(splice(text, at..at, &line));
            }
            KeyPosition::Value(range) if deeper.is_empty() => {
                return Some(splice(text, range, &format!(" {value}")));
            }
            KeyPosition::Value(range) => match text[range.clone()].trim_ascii_start() {
                [] => block = block.below(text, range),
                [b'{', rest @ ..] => {
                    let at = range.end - rest.len();
                    return Some(splice(text, at..at, &entry(rest, deeper, value)));
                }
                _ => return None,
            },
        }
    }
    None
}

/// The lines under a key in block style.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Where its first line begins.
    start: usize,
    /// How far the key is indented.
    parent_indent: usize,
}

/// Where a key is, or could be put.
#[derive(Debug, PartialEq, Eq)]
enum KeyPosition {
    /// What stands behind its colon, on the same line, without a comment.
    Value(Range<usize>),
    /// There is no such key: a line goes here, indented so many spaces.
    Missing { at: usize, indent: usize },
}

impl Block {
    /// The place of a key among those right in this block; `None` if there is no line to go by.
    fn find(&self, text: &[u8], key: &str) -> Option<KeyPosition> {
        let mut first: Option<(usize, usize)> = None;
        for (at, line) in lines(&text[self.start..]) {
            let at = self.start + at;
            let indent = line.iter().take_while(|byte| **byte == b' ').count();
            let content = line[indent..].trim_ascii_end();
            if content.is_empty() || content[0] == b'#' {
                continue;
            }
            let (_, expected) = *first.get_or_insert((at, indent));
            if indent <= self.parent_indent || indent < expected {
                break;
            }
            let value = content
                .strip_prefix(key.as_bytes())
                .and_then(|rest| rest.strip_prefix(b":"));
            if let (true, Some(value)) = (indent == expected, value) {
                let begin = at + indent + key.len() + 1;
                return Some(KeyPosition::Value(begin..begin + without_comment(value)));
            }
        }
        let (at, indent) = first.filter(|(_, indent)| *indent > self.parent_indent)?;
        Some(KeyPosition::Missing { at, indent })
    }

    /// The block under a key whose value would end at the end of this range.
    fn below(&self, text: &[u8], key: Range<usize>) -> Self {
        let line_start = text[..key.start]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        let indent = text[line_start..]
            .iter()
            .take_while(|byte| **byte == b' ')
            .count();
        let line_len = text[line_start..]
            .iter()
            .position(|byte| *byte == b'\n')
            .map_or(text.len() - line_start, |at| at + 1);
        Self {
            start: line_start + line_len,
            parent_indent: indent,
        }
    }
}

/// Bytes of a value before a comment that follows it.
fn without_comment(value: &[u8]) -> usize {
    let comment = value.windows(2).position(|pair| pair == b" #");
    comment.unwrap_or(value.len())
}

/// `{a: {b: value}}` for the path `a`, `b`; the value itself for none.
fn nested(path: &[&str], value: &str) -> String {
    path.iter()
        .rev()
        .fold(value.to_owned(), |inner, key| format!("{{{key}: {inner}}}"))
}

/// A first entry of a flow mapping that goes on with `rest`.
fn entry(rest: &[u8], path: &[&str], value: &str) -> String {
    let is_last = rest.trim_ascii_start().first() == Some(&b'}');
    let comma = if is_last { "" } else { ", " };
    match path.split_first() {
        Some((key, deeper)) => format!("{key}: {}{comma}", nested(deeper, value)),
        None => String::new(),
    }
}

fn splice(text: &[u8], range: Range<usize>, new: &str) -> Bytes {
    [&text[..range.start], new.as_bytes(), &text[range.end..]]
        .concat()
        .into()
}

/// Whether a line is this key at the margin with nothing but a comment behind it.
fn is_key_alone(line: &[u8], key: &str) -> bool {
    let rest = line
        .strip_prefix(key.as_bytes())
        .and_then(|rest| rest.strip_prefix(b":"));
    rest.is_some_and(|rest| {
        let rest = rest.trim_ascii();
        rest.is_empty() || rest[0] == b'#'
    })
}

/// The lines of a text with the offset of each, line ends included.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut at = 0;
    text.split_inclusive(|byte| *byte == b'\n')
        .map(move |line| {
            at += line.len();
            (at - line.len(), line)
        })
}

#[cfg(test)]
mod tests {
    use super::set;

    fn edited(text: &str, path: &[&str], value: &str) -> Option<String> {
        let bytes = set(text.as_bytes(), path, value)?;
        Some(String::from_utf8(bytes.to_vec()).unwrap())
    }

    const PATH: [&str; 3] = ["start", "scheduling", "count"];

    #[test]
    fn a_value_is_put_where_its_key_is_or_belongs() {
        for (text, expected) in [
            (
                "start:\n  a: 1\n",
                "start:\n  scheduling: {count: 3}\n  a: 1\n",
            ),
            (
                "start:\n  a: 1\n  scheduling: # mine\n\n    # x\n    queue: 1s\n  b: 2\n",
                "start:\n  a: 1\n  scheduling: # mine\n\n    # x\n    count: 3\n    queue: 1s\n  b: 2\n",
            ),
            (
                "start:\n  scheduling:\n    count: 7 # seven\n",
                "start:\n  scheduling:\n    count: 3 # seven\n",
            ),
            (
                "start:\n  scheduling: {queue: 1s} # y\n",
                "start:\n  scheduling: {count: 3, queue: 1s} # y\n",
            ),
            (
                "start:\n  scheduling: { }\n",
                "start:\n  scheduling: {count: 3 }\n",
            ),
            (
                "start:\n  scheduling: {\n    queue: 1s}\n",
                "start:\n  scheduling: {count: 3, \n    queue: 1s}\n",
            ),
        ] {
            assert_eq!(
                edited(text, &PATH, "3").as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn where_the_place_is_not_plain_to_see_nothing_is_done() {
        for text in [
            "start: {a: 1}\n",
            "start:\n",
            "start:\n  scheduling: &anchor\n    queue: 1s\n",
            "start:\n  scheduling:\n  a: 1\n",
            "other:\n  a: 1\n",
        ] {
            assert_eq!(edited(text, &PATH, "3"), None, "{text}");
        }
    }
}
