//! Texts cut to a length: what a peer writes for people is kept and repeated by others, however long it is.

use std::borrow::Cow;

/// Stands where the rest of a text was cut off.
const ELLIPSIS: char = '…';

/// Longest word that is none of those that a key may have, in bytes; a longer one is cut. The longest that this version
/// knows has 20.
pub const MAX_WORD_LEN: usize = 64;

/// A text of at most `max_len` bytes: as it is, or its beginning and an ellipsis. Cut between two characters.
///
/// A `max_len` below the three bytes of the ellipsis counts as three.
#[must_use]
pub fn cut(text: &str, max_len: usize) -> Cow<'_, str> {
    if text.len() <= max_len {
        return Cow::Borrowed(text);
    }
    let longest = max_len.saturating_sub(ELLIPSIS.len_utf8());
    let mut ends = (0..=longest).rev();
    let end = ends.find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let mut shorter = String::with_capacity(end + ELLIPSIS.len_utf8());
    shorter.push_str(&text[..end]);
    shorter.push(ELLIPSIS);
    Cow::Owned(shorter)
}

/// Text from a peer, cut to a length that suits a log line.
#[must_use]
pub fn shorten(text: &str) -> String {
    /// Long enough for a UUID and the name around it.
    const MAX_CHARS: usize = 60;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_WORD_LEN, cut};
    use crate::OnNodeLoss;

    #[test]
    fn a_text_is_cut_between_two_characters() {
        assert_eq!(cut("", 3), "");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcde", 4), "a…");
        assert_eq!(cut("äöüß", 7), "äö…");
        assert_eq!(cut("äöüß", 6), "ä…");
        assert_eq!(cut("abcd", 0), "…");
        for max_len in 3..40 {
            assert!(cut(&"a🦀é".repeat(9), max_len).len() <= max_len);
        }
    }

    #[test]
    fn a_word_that_no_one_knows_is_kept_up_to_a_length() {
        let known = |word: &str| OnNodeLoss::from(word).as_str().to_owned();
        let longest = "x".repeat(MAX_WORD_LEN);
        assert_eq!(known(&longest), longest);
        assert_eq!(known(&"x".repeat(250_000)).len(), MAX_WORD_LEN);
    }
}
