//! The words and phrases that a line of the plain style is made of.

/// A value on the line of its key or dash.
pub(in crate::payload) enum Scalar<'a> {
    /// A word, or text of several, without quotes.
    Text(&'a [u8]),
    /// The same in quotes: never a number or a truth value.
    Quoted(&'a [u8]),
    /// `[]`.
    EmptyList,
    /// `{}`.
    EmptyMapping,
}

/// The word without quotes that is the rest of a line, and where the next line begins.
#[inline]
pub(super) fn word_line(payload: &[u8], start: usize) -> Option<(&[u8], usize)> {
    let rest = payload.get(start..)?;
    let word = &rest[..word_len(rest)];
    (is_plain(word) && !is_null(word) && ends_line(rest, word.len()))
        .then_some((word, start + word.len() + 1))
}

/// A scalar of a line that is not a mere word, and how many bytes it takes.
pub(in crate::payload) fn block_scalar(rest: &[u8]) -> Option<(Scalar<'_>, usize)> {
    match rest {
        [b'"', quoted @ ..] => {
            let len = word_len(quoted);
            if quoted.get(len) == Some(&b'"') {
                return Some((Scalar::Quoted(&quoted[..len]), len + 2));
            }
            let text = quoted_phrase(quoted)?;
            Some((Scalar::Quoted(text), text.len() + 2))
        }
        [b'[', b']', ..] => Some((Scalar::EmptyList, 2)),
        [b'{', b'}', ..] => Some((Scalar::EmptyMapping, 2)),
        _ => {
            let text = plain_phrase(rest, Around::Block)?;
            Some((Scalar::Text(text), text.len()))
        }
    }
}

/// A value within a flow list or mapping, and how many bytes it takes.
pub(super) fn flow_scalar(rest: &[u8]) -> Option<(Scalar<'_>, usize)> {
    match rest {
        [b'"', quoted @ ..] => {
            let text = quoted_phrase(quoted)?;
            Some((Scalar::Quoted(text), text.len() + 2))
        }
        [b'[', b']', ..] => Some((Scalar::EmptyList, 2)),
        [b'{', b'}', ..] => Some((Scalar::EmptyMapping, 2)),
        _ => {
            let text = plain_phrase(rest, Around::Flow)?;
            Some((Scalar::Text(text), text.len()))
        }
    }
}

/// A known or plain key of a flow mapping, without the colon and the blank that follow it.
pub(super) fn flow_key(rest: &[u8]) -> Option<&[u8]> {
    let key = &rest[..len_of(rest, |byte| is_word_byte(byte) && byte != b':')];
    (is_plain(key) && !key.starts_with(b"-") && rest[key.len()..].starts_with(b": ")).then_some(key)
}

/// Whether nothing but the line's end stands there.
#[inline]
pub(in crate::payload) fn ends_line(rest: &[u8], at: usize) -> bool {
    matches!(rest.get(at), None | Some(b'\n'))
}

/// What is around a text without quotes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Around {
    /// The line of a key or dash.
    Block,
    /// Brackets or braces on such a line, where a comma ends the text.
    Flow,
}

/// The text up to the closing quote, if that stands on this line and nothing before it needs a closer look.
fn quoted_phrase(quoted: &[u8]) -> Option<&[u8]> {
    let text = &quoted[..len_of(quoted, |byte| is_phrase_byte(byte) || byte == b',')];
    (quoted.get(text.len()) == Some(&b'"') && !has_dash_word(text)).then_some(text)
}

/// The text without quotes that begins there, if YAML takes it for that: nothing in it looks like a key, a comment, or
/// the end of what is around it.
fn plain_phrase(rest: &[u8], around: Around) -> Option<&[u8]> {
    let is_part = |byte| match around {
        Around::Block => is_phrase_byte(byte) || byte == b',',
        Around::Flow => is_phrase_byte(byte) && byte != b':',
    };
    let text = &rest[..len_of(rest, is_part)];
    let first = &text[..word_len(text)];
    let is_key = text.windows(2).any(|pair| pair == b": ");
    (is_plain(first) && !is_null(text) && !is_key && !has_dash_word(text))
        .then_some(text)
        .filter(|text| !text.ends_with(b" ") && !text.ends_with(b":"))
}

/// Whether a dash stands before a blank: the guard counts such ones.
fn has_dash_word(text: &[u8]) -> bool {
    text.windows(2).any(|pair| pair == b"- ")
}

fn is_null(word: &[u8]) -> bool {
    word.len() == 4 && word.eq_ignore_ascii_case(b"null")
}

/// Whether YAML takes the word for a plain scalar of one line: it neither begins like something else nor looks like a
/// key.
#[inline]
pub(in crate::payload) fn is_plain(word: &[u8]) -> bool {
    match word {
        [b'-', _, ..]
        | [
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'_' | b'.',
            ..,
        ] => !word.ends_with(b":"),
        _ => false,
    }
}

/// Bytes at the beginning that are unremarkable in any scalar, in quotes and outside.
#[inline]
pub(in crate::payload) fn word_len(bytes: &[u8]) -> usize {
    len_of(bytes, is_word_byte)
}

fn len_of(bytes: &[u8], is_part: impl Fn(u8) -> bool) -> usize {
    bytes
        .iter()
        .position(|byte| !is_part(*byte))
        .unwrap_or(bytes.len())
}

fn is_word_byte(byte: u8) -> bool {
    UNREMARKABLE[usize::from(byte)]
}

/// What expressions have beside words. None of it means anything to YAML where it does not begin a text.
fn is_phrase_byte(byte: u8) -> bool {
    is_word_byte(byte) || matches!(byte, b' ' | b'(' | b')' | b'<' | b'>' | b'!' | b'\'')
}

/// The comment's line may hold what the guard does not count; says where the next line begins.
pub(super) fn skip_comment(payload: &[u8], start: usize) -> Option<usize> {
    let rest = payload.get(start..)?;
    let len = rest
        .iter()
        .position(|byte| !UNREMARKABLE[usize::from(*byte)] && *byte != b' ')
        .unwrap_or(rest.len());
    (ends_line(rest, len) && !has_dash_word(&rest[..len])).then_some(start + len + 1)
}

/// Letters, digits and `/ _ . - : + @ =`.
const UNREMARKABLE: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric()
            || matches!(byte, b'/' | b'_' | b'.' | b'-' | b':' | b'+' | b'@' | b'=');
        byte += 1;
    }
    table
};
