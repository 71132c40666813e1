//! Writes payloads the way Go's yaml.v2 prints them: block style, two spaces, lists not indented under their key,
//! strings quoted only when they would otherwise be read as something else.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched_model::value::{Record, Value, ValueWriter};

/// Longest key, in bytes as written, that is put on one line with its value. YAML parsers give up looking for the colon
/// after 1024 characters.
const MAX_SIMPLE_KEY_LEN: usize = 1000;

/// Bytes taken for a document at first: most answers and events fit.
const INITIAL_CAPACITY: usize = 256;

/// A document being written.
pub(super) struct Emitter {
    out: Vec<u8>,
    indent: usize,
    /// The next key stands behind a list's dash rather than on a line of its own.
    behind_dash: bool,
}

impl Emitter {
    /// Starts a document.
    pub(super) fn new() -> Self {
        Self {
            out: Vec::with_capacity(INITIAL_CAPACITY),
            indent: 0,
            behind_dash: false,
        }
    }

    /// The document.
    pub(super) fn finish(mut self) -> Bytes {
        if self.out.is_empty() {
            self.out.extend_from_slice(b"{}\n");
        }
        self.out.into()
    }

    /// Writes a key that is known to need no quotes; its value must follow.
    pub(super) fn key(&mut self, key: &str) {
        self.begin_key();
        self.out.extend_from_slice(key.as_bytes());
        self.out.push(b':');
    }

    /// Writes any string as a key; its value must follow.
    pub(super) fn any_key(&mut self, key: &str) {
        self.begin_key();
        let start = self.out.len();
        self.push_string(key);
        if self.out.len() - start > MAX_SIMPLE_KEY_LEN {
            self.out.splice(start..start, *b"? ");
            self.out.push(b'\n');
            self.push_indent();
        }
        self.out.push(b':');
    }

    /// Writes a string as the value of the last key or dash.
    pub(super) fn string(&mut self, text: &str) {
        self.behind_dash = false;
        self.out.push(b' ');
        self.push_string(text);
        self.out.push(b'\n');
    }

    /// Writes text that needs no quotes, such as a number, as the value of the last key or dash.
    pub(super) fn plain(&mut self, text: &str) {
        self.behind_dash = false;
        self.out.push(b' ');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'\n');
    }

    /// Writes a mapping, whose keys `fields` writes, as the value of the last key or dash.
    pub(super) fn mapping(&mut self, fields: impl FnOnce(&mut Self)) {
        let item = self.behind_dash;
        if !item {
            self.out.push(b'\n');
            self.indent += 2;
        }
        let start = self.out.len();
        fields(self);
        if !item {
            self.indent -= 2;
        }
        if self.out.len() == start {
            if !item {
                self.out.pop();
            }
            self.plain("{}");
        }
    }

    /// Writes a list as the value of the last key; `item` writes each value.
    pub(super) fn list<T>(&mut self, items: &[T], mut item: impl FnMut(&mut Self, &T)) {
        if items.is_empty() {
            return self.plain("[]");
        }
        self.out.push(b'\n');
        for value in items {
            self.push_indent();
            self.out.push(b'-');
            self.behind_dash = true;
            self.indent += 2;
            item(self, value);
            self.indent -= 2;
        }
    }

    fn begin_key(&mut self) {
        if std::mem::take(&mut self.behind_dash) {
            self.out.push(b' ');
        } else {
            self.push_indent();
        }
    }

    fn push_indent(&mut self) {
        self.out.extend(std::iter::repeat_n(b' ', self.indent));
    }

    fn push_string(&mut self, text: &str) {
        if is_plain(text) {
            self.out.extend_from_slice(text.as_bytes());
        } else {
            push_quoted(&mut self.out, text);
        }
    }
}

impl ValueWriter for Emitter {
    fn write_text(&mut self, text: &str) {
        self.string(text);
    }

    fn write_int(&mut self, value: i128) {
        self.plain(&value.to_string());
    }

    fn write_bool(&mut self, value: bool) {
        self.plain(if value { "true" } else { "false" });
    }

    fn write_null(&mut self) {
        self.plain("null");
    }

    fn write_list<T: Value>(&mut self, items: &[T]) {
        self.list(items, |out, value| value.write(out));
    }

    fn write_entries<T: Value>(&mut self, entries: &BTreeMap<String, T>) {
        self.mapping(|out| {
            for (key, value) in entries {
                out.any_key(key);
                value.write(out);
            }
        });
    }

    fn write_record<T: Record>(&mut self, record: &T) {
        self.mapping(|out| record.write_fields(out));
    }

    fn write_field<T: Value>(&mut self, key: &str, value: &T) {
        self.key(key);
        value.write(self);
    }
}

/// Whether a string may stand without quotes: every YAML reader, old and new, takes it for the same string.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !(first.is_ascii_alphanumeric() || matches!(first, b'/' | b'_'))
        || matches!(last, b':' | b' ')
    {
        return false;
    }
    let harmless = |b: &u8| {
        b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'/' | b'_' | b'-' | b'.' | b':' | b'+' | b'@' | b' ' | b'='
            )
    };
    if !bytes.iter().all(harmless) || text.contains(": ") {
        return false;
    }
    if first.is_ascii_digit() {
        !is_number_like(text)
    } else {
        !is_word_of_yaml(text)
    }
}

/// Whether some reader may take text that begins with a digit for a number, a sexagesimal number or a date.
fn is_number_like(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| *c != '_').collect();
    digits.parse::<f64>().is_ok()
        || digits.contains(':')
            && digits
                .bytes()
                .all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.'))
        || is_prefixed_number(&digits)
        || digits.find('-') == Some(4) && digits.as_bytes()[..4].iter().all(u8::is_ascii_digit)
}

/// Whether it is `0x`, `0o` or `0b` and digits of that kind. A UUID that begins so is none, and Go does not quote it.
fn is_prefixed_number(text: &str) -> bool {
    let radix = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => 16,
        [b'0', b'o' | b'O', ..] => 8,
        [b'0', b'b' | b'B', ..] => 2,
        _ => return false,
    };
    text[2..].chars().all(|c| c.is_digit(radix))
}

/// Whether some reader may take the word for a truth value, null or a number.
fn is_word_of_yaml(text: &str) -> bool {
    const WORDS: [&str; 13] = [
        "y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity",
        "none",
    ];
    text.len() <= 8 && WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            '\n' => out.extend_from_slice(b"\\n"),
            '\t' => out.extend_from_slice(b"\\t"),
            '\r' => out.extend_from_slice(b"\\r"),
            // Control characters, YAML's own line breaks, the byte order mark and non-characters.
            '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                out.extend_from_slice(format!("\\x{:02x}", u32::from(c)).as_bytes())
            }
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            _ => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}
