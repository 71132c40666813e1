//! What a workload wrote, made fit for a terminal: line ends and tabs stay, every other character that is an order to
//! the terminal is escaped, and what is no UTF-8 is replaced. It comes in chunks, which may end in the middle of a
//! character.
//!
//! Without this a workload could change the title or the colours of the operator's terminal, or make it answer with
//! input. A file or pipe gets the bytes as they are.

use std::fmt::Write as _;
use std::str::from_utf8;

use crate::printable::{Printable, is_unprintable};

/// Bytes of a character of UTF-8 at most.
///
/// So an unfinished character is at most one byte less.
const MAX_CHAR_LEN: usize = 4;

/// The state between two chunks.
///
/// One for each stream of output.
#[derive(Debug, Default)]
pub struct Neutral {
    /// The beginning of a character.
    ///
    /// At most three bytes, from the end of the chunk before.
    rest: Vec<u8>,
}

impl Neutral {
    /// The next chunk as it may be shown.
    ///
    /// Bytes that cannot become valid are replaced by U+FFFD at once; those that are the beginning of a character wait
    /// for the next chunk. What waits when the stream ends is never shown.
    #[must_use]
    pub fn show(&mut self, chunk: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.rest);
        bytes.extend_from_slice(chunk);
        let mut shown = String::with_capacity(bytes.len());
        let mut left = &bytes[..];
        loop {
            let error = match from_utf8(left) {
                Ok(text) => {
                    show(text, &mut shown);
                    return shown;
                }
                Err(error) => error,
            };
            let (valid, behind) = left.split_at(error.valid_up_to());
            show(&String::from_utf8_lossy(valid), &mut shown);
            match error.error_len() {
                None => {
                    debug_assert!(behind.len() < MAX_CHAR_LEN);
                    self.rest = behind.to_vec();
                    return shown;
                }
                Some(len) => {
                    shown.push(char::REPLACEMENT_CHARACTER);
                    left = &behind[len..];
                }
            }
        }
    }
}

/// Characters that control the terminal become escapes such as `\u{1b}`, by the rule of [`is_unprintable`].
fn show(text: &str, shown: &mut String) {
    let is_order = |c: char| is_unprintable(c) && !matches!(c, '\n' | '\t');
    let mut rest = text;
    while let Some(at) = rest.find(is_order) {
        let (plain, from) = rest.split_at(at);
        shown.push_str(plain);
        let len = from.chars().next().map_or(0, char::len_utf8);
        let (order, behind) = from.split_at(len);
        // The end of a line as some programs write it.
        if !(order == "\r" && behind.starts_with('\n')) {
            // Writing to memory does not fail.
            let _ = write!(shown, "{}", Printable::new(order));
        }
        rest = behind;
    }
    shown.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::Neutral;

    #[test]
    fn orders_to_the_terminal_are_shown_and_not_obeyed() {
        let mut neutral = Neutral::default();
        let shown = neutral.show("a\tb\r\n\u{1b}[2J\u{9b}1m \rover \u{202e}x é\n".as_bytes());
        let expected = "a\tb\n\\u{1b}[2J\\u{9b}1m \\rover \\u{202e}x é\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn characters_come_whole_however_they_are_cut() {
        let text = "é本\u{1f980}\n";
        for at in 0..text.len() {
            let mut neutral = Neutral::default();
            let (first, second) = text.as_bytes().split_at(at);
            let shown = neutral.show(first) + &neutral.show(second);
            assert_eq!(shown, text, "{at}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_and_ends() {
        let mut neutral = Neutral::default();
        assert_eq!(neutral.show(b"a\xff\xc3"), "a\u{fffd}");
        assert_eq!(neutral.show(b"b"), "\u{fffd}b");
        assert_eq!(neutral.show(&[0x80; 3]), "\u{fffd}\u{fffd}\u{fffd}");
    }
}
