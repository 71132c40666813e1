//! Texts that others chose, made fit for a terminal, a log and a pipe: one type, with one way to make it.
//!
//! Identifiers, host names, labels, details and reasons come from peers. A control character among them would be an
//! order to the terminal, a line end would forge a line of a log or of a list that another program reads, and a
//! character that turns the direction of writing around would show a text that is not there. [`is_unprintable`] says
//! which characters those are; what is on the way in and may not have any is refused by the same rule.

use std::fmt::{self, Display, Write as _};
use std::ops::Deref;

/// A text on one line, without any character that is not shown: each such character is escaped, as in a Rust literal.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Printable(String);

impl Printable {
    /// The only way to make one.
    #[must_use]
    pub fn new(text: impl Display) -> Self {
        let mut printable = Escaping(String::new());
        // A `Display` that fails leaves what it has written so far; writing to memory does not fail.
        let _ = write!(printable, "{text}");
        Self(printable.0)
    }

    /// The text without white space at its end.
    #[must_use]
    pub fn trimmed(mut self) -> Self {
        self.0.truncate(self.0.trim_end().len());
        self
    }
}

impl Deref for Printable {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl PartialEq<&str> for Printable {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl Display for Printable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Several lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines(Vec<Printable>);

impl Lines {
    /// Appends a line.
    pub fn push(&mut self, line: impl Display) {
        self.0.push(Printable::new(line));
    }

    /// Appends all lines of another text.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines in their order.
    pub fn iter(&self) -> std::slice::Iter<'_, Printable> {
        self.0.iter()
    }
}

impl FromIterator<Printable> for Lines {
    fn from_iter<I: IntoIterator<Item = Printable>>(lines: I) -> Self {
        Self(lines.into_iter().collect())
    }
}

impl Display for Lines {
    /// Each line with a line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Escapes what is written to it.
struct Escaping(String);

impl fmt::Write for Escaping {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(is_unprintable) {
            let (plain, from) = rest.split_at(at);
            self.0.push_str(plain);
            let mut chars = from.chars();
            self.0
                .extend(chars.next().into_iter().flat_map(char::escape_default));
            rest = chars.as_str();
        }
        self.0.push_str(rest);
        Ok(())
    }
}

/// Whether a character controls the program that shows it rather than being shown: the controls C0, DEL and C1
/// (Unicode category Cc), the separators of lines and paragraphs (Zl, Zp), and the format characters (Cf, Unicode 16),
/// among them those that turn the direction of writing around and those that have no width.
#[must_use]
pub const fn is_unprintable(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// A number of things: `1 node`, `2 nodes`.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

/// Whether a text can be handed to another program as one word of a list, as `ciaoctl … --quiet | xargs` does: nothing
/// that splits or quotes words, nothing that is not shown, and no beginning that makes an option of it.
#[must_use]
pub fn is_word(text: &str) -> bool {
    let is_split = |c: char| is_unprintable(c) || c.is_whitespace() || "'\"\\".contains(c);
    !text.is_empty() && !text.starts_with('-') && !text.contains(is_split)
}

/// A JSON text with everything that is not shown escaped: JSON itself demands that of the characters below U+0020
/// only. Line ends between values stay.
#[must_use]
pub fn json(text: String) -> String {
    // Nearly every text is plain ASCII, and many are long.
    if text
        .bytes()
        .all(|byte| byte == b'\n' || (b' '..0x7f).contains(&byte))
    {
        return text;
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || !is_unprintable(c) {
            escaped.push(c);
            continue;
        }
        let mut units = [0; 2];
        for unit in c.encode_utf16(&mut units) {
            // Writing to memory does not fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_shown_is_escaped_and_the_rest_stays() {
        for (text, shown) in [
            ("a é 本 b", "a é 本 b"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{1b}[2J\u{9b}1m\u{7f}", "\\u{1b}[2J\\u{9b}1m\\u{7f}"),
            (
                "x\u{202e}y\u{2028}\u{feff}",
                "x\\u{202e}y\\u{2028}\\u{feff}",
            ),
            ("\u{e0041}", "\\u{e0041}"),
        ] {
            let printable = Printable::new(text);
            assert_eq!(printable, shown);
            assert_eq!(Printable::new(&printable), printable, "it stays as it is");
        }
    }

    #[test]
    fn every_control_character_is_unprintable() {
        let controls = ('\0'..=char::MAX).filter(|c| c.is_control());
        assert!(controls.into_iter().all(is_unprintable));
        assert!((' '..='~').all(|c| !is_unprintable(c)));
    }

    #[test]
    fn a_line_is_one_line_whatever_was_put_into_it() {
        let mut lines = Lines::default();
        lines.push("a\nb");
        lines.push(format_args!("{}", "\u{85}c"));
        assert_eq!(lines.to_string(), "a\\nb\n\\u{85}c\n");
    }

    #[test]
    fn a_word_is_one_word_to_a_shell_and_to_xargs() {
        for word in ["11112222-3333-4444-8555-666677778888", "web_1", "é"] {
            assert!(is_word(word), "{word}");
        }
        for other in [
            "",
            "-x",
            "--all",
            "a b",
            "a\nb",
            "a\u{a0}b",
            "a'b",
            "a\"b",
            "a\\b",
            "a\u{200b}",
        ] {
            assert!(!is_word(other), "{other:?}");
        }
    }

    #[test]
    fn json_stays_what_it_is_to_a_program() {
        let value = serde_json::json!({"a\u{9b}": ["\u{1b}\u{7f}\u{202e}\u{e0041}\n", 1]});
        for text in [value.to_string(), format!("{value:#}")] {
            let shown = json(text.clone());
            assert!(!shown.contains(|c| c != '\n' && is_unprintable(c)));
            let back: serde_json::Value = serde_json::from_str(&shown).unwrap();
            assert_eq!(back, value);
        }
    }
}
