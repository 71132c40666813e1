//! The words that a line of the plain style is made of.

/// A value on the line of its key or dash.
pub(super) enum Scalar<'a> {
    /// A word, with or without quotes.
    Word(&'a [u8]),
    /// `[]`.
    EmptyList,
    /// `{}`.
    EmptyMapping,
}

/// The scalar that is the rest of a line, and where the next line begins.
pub(super) fn scalar_line(payload: &[u8], start: usize) -> Option<(Scalar<'_>, usize)> {
    let rest = payload.get(start..)?;
    let (scalar, len) = match rest {
        [b'"', quoted @ ..] => {
            let len = word_len(quoted);
            (quoted.get(len) == Some(&b'"')).then_some((Scalar::Word(&quoted[..len]), len + 2))?
        }
        [b'[', b']', ..] => (Scalar::EmptyList, 2),
        [b'{', b'}', ..] => (Scalar::EmptyMapping, 2),
        _ => {
            let word = &rest[..word_len(rest)];
            let null = word.len() == 4 && word.eq_ignore_ascii_case(b"null");
            (is_plain(word) && !null).then_some((Scalar::Word(word), word.len()))?
        }
    };
    matches!(rest.get(len), None | Some(b'\n')).then_some((scalar, start + len + 1))
}

/// Whether YAML takes the word for a plain scalar of one line: it neither begins like something else nor looks like a
/// key.
pub(super) fn is_plain(word: &[u8]) -> bool {
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
pub(super) fn word_len(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .position(|byte| !UNREMARKABLE[usize::from(*byte)])
        .unwrap_or(bytes.len())
}

/// The comment's line may hold what the guard does not count; says where the next line begins.
pub(super) fn skip_comment(payload: &[u8], start: usize) -> Option<usize> {
    let rest = payload.get(start..)?;
    let len = rest
        .iter()
        .position(|byte| !UNREMARKABLE[usize::from(*byte)] && *byte != b' ')
        .unwrap_or(rest.len());
    matches!(rest.get(len), None | Some(b'\n')).then_some(start + len + 1)
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
