//! What is looked at before a YAML parser sees a byte: which part of a payload is its first document, how long it is,
//! and whether it holds more than a few of the constructs that make the parser slow or hungry.
//!
//! Measured on the parser in use (two shared cores, times per document): everything else that was tried, from anchors
//! to tabs, escapes, comments and unclosed quotes, costs 3 to 70 ns and at most 160 bytes of memory per byte.
//! Aliases are dealt with while reading: what they expand to is charged to a budget.

use super::error::{Fault, PayloadError};

/// Entries of one list or mapping that are taken: instances of a STATS above all. A node with more instances than this
/// is beyond what a launcher can run.
pub const MAX_ENTRIES: usize = 16_384;

/// Most `[` and `{` bytes in a document, not counting those closed at once (`[]`, `{}`: original launchers write one
/// for each instance).
///
/// Parsers descended from libyaml are quadratic in open ones: 256 cost a quarter of a millisecond at most, 8 000 cost
/// 37. All are counted, wherever they stand: finding out which are inside strings is what the parser is for.
pub const MAX_BRACKETS: usize = 256;

/// Most list dashes and question marks that directly follow another one (`- - - x`): each is a level of nesting for two
/// bytes, and takes the parser 600 bytes of memory.
pub const MAX_NESTED_DASHES: usize = 256;

/// Most `%TAG` directives: each is compared with all others (half a second for 256 KiB of them).
pub const MAX_TAG_DIRECTIVES: usize = 16;

/// Most bytes that can begin a value (commas, and colons, dashes and question marks before a blank): each may be an
/// event of some 160 bytes in the parser's memory. A STATS with [`MAX_ENTRIES`] instances has about 330 000.
pub const MAX_INDICATORS: usize = 512 * 1024;

/// How much of a payload is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the first document.
    pub max_len: usize,
}

/// Limits for all but the payloads that are lists: a START with a long command line and environment fits.
pub const SMALL: Limits = Limits {
    max_len: 256 * 1024,
};

/// Limits for payloads with a list that grows with the cluster (STATS, QueryResult, TraceReport): a frame's own limit.
pub const LARGE: Limits = Limits {
    max_len: crate::limits::MAX_PAYLOAD_LEN,
};

/// The first document of a payload, if it may be parsed. Costs time in that document alone, not in what follows it.
///
/// # Errors
/// [`Fault::TooLong`], [`Fault::TooMuch`], or [`Fault::Syntax`] where it is not UTF-8.
pub fn first_document(payload: &[u8], limits: Limits) -> Result<&[u8], PayloadError> {
    let document = &payload[..first_document_len(payload, limits.max_len)];
    if document.len() > limits.max_len {
        let fault = Fault::TooLong {
            max: limits.max_len,
        };
        return Err(PayloadError::new("", fault));
    }
    if std::str::from_utf8(document).is_err() {
        return Err(PayloadError::new("", Fault::Syntax("not UTF-8".to_owned())));
    }
    Counts::of(document).check()?;
    Ok(document)
}

/// Whether a line ends the document before it: `...` or `---`, alone or before a blank.
pub(super) fn is_marker(line: &[u8]) -> bool {
    matches!(line, [b'.', b'.', b'.'] | [b'-', b'-', b'-'])
        || matches!(line, [b'.', b'.', b'.', blank, ..] | [b'-', b'-', b'-', blank, ..] if b" \t\r\n".contains(blank))
}

/// Bytes up to the line that ends the first document. Looks no further than a little behind `max_len`.
fn first_document_len(payload: &[u8], max_len: usize) -> usize {
    let looked_at = &payload[..payload.len().min(max_len.saturating_add(1))];
    let mut preamble = true;
    let mut start = 0;
    for line in looked_at.split_inclusive(|byte| *byte == b'\n') {
        if is_marker(line) && !preamble {
            return start;
        }
        // Blank lines, comments and directives may stand before the `---` that begins the document.
        preamble = preamble && matches!(line.trim_ascii_start(), [] | [b'#' | b'%', ..]);
        start += line.len();
    }
    looked_at.len()
}

/// How often a document has each of the constructs that are bounded.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    brackets: usize,
    nested_dashes: usize,
    tag_directives: usize,
    indicators: usize,
}

impl Counts {
    fn of(document: &[u8]) -> Self {
        let mut counts = Self::default();
        for (at, byte) in document.iter().enumerate() {
            if !INTERESTING[usize::from(*byte)] {
                continue;
            }
            let next = document.get(at + 1).copied().unwrap_or(b'\n');
            match byte {
                b'[' => counts.brackets += usize::from(next != b']'),
                b'{' => counts.brackets += usize::from(next != b'}'),
                b',' => counts.indicators += 1,
                b'%' => counts.tag_directives += usize::from(document[at..].starts_with(b"%TAG")),
                _ if is_blank(next) => {
                    counts.indicators += 1;
                    counts.nested_dashes +=
                        usize::from(*byte != b':' && follows_dash(&document[..at]));
                }
                _ => {}
            }
        }
        counts
    }

    fn check(&self) -> Result<(), PayloadError> {
        for (count, max, what) in [
            (self.brackets, MAX_BRACKETS, "brackets and braces"),
            (
                self.nested_dashes,
                MAX_NESTED_DASHES,
                "lists within lists on one line",
            ),
            (self.tag_directives, MAX_TAG_DIRECTIVES, "tag directives"),
            (self.indicators, MAX_INDICATORS, "values"),
        ] {
            if count > max {
                return Err(PayloadError::new("", Fault::TooMuch { what, max }));
            }
        }
        Ok(())
    }
}

/// Bytes that [`Counts`] looks at.
const INTERESTING: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"[{,%:-?";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether the byte is, or begins, what YAML takes for a space or a line break.
const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0xc2 | 0xe2)
}

/// Whether the last thing on this line is a dash or question mark of its own.
fn follows_dash(before: &[u8]) -> bool {
    let spaces = before
        .iter()
        .rev()
        .take_while(|byte| matches!(byte, b' ' | b'\t'))
        .count();
    spaces > 0 && matches!(before[..before.len() - spaces], [.., b'-' | b'?'])
}
