//! Cuts instances out of a STATS as it came, without rewriting it.

use bytes::Bytes;
use memchr::memchr_iter;

use super::stats::plain_stats;

/// Keys at the top of a STATS whose lines are told apart.
const INSTANCES: &[u8] = b"instances:\n";
const ENDED: &[u8] = b"ended:";

/// The same STATS without some of its instances, and without its ends; every other byte stays. `rows` says where the
/// instances stand among those listed, counted from 0, in order. `None` where the payload is not of the plain block style,
/// with each instance on lines of its own, does not list so many, or says nothing else.
#[must_use]
pub fn stats_without(payload: &[u8], rows: &[u32]) -> Option<Bytes> {
    plain_stats(payload)?;
    plain_stats_without(payload, rows)
}

/// As [`stats_without`], of a payload that [`plain_stats`] has read: it is not looked at again whether it is of that style,
/// and what comes of another one means nothing.
#[must_use]
pub fn plain_stats_without(payload: &[u8], rows: &[u32]) -> Option<Bytes> {
    let mut cut = Cut {
        payload,
        out: Vec::with_capacity(payload.len()),
        within: Within::Other,
        leaves_out: false,
        kept_from: 0,
        heading: None,
        rows,
        next_row: 0,
        kept: 0,
    };
    let mut end = payload.len();
    let mut begin = 0;
    let mut breaks = memchr_iter(b'\n', payload).map(|at| at + 1);
    while begin < payload.len() {
        let next = breaks.next().unwrap_or(payload.len());
        if !cut.is_within(begin) && cut.line(begin, next) == Next::End {
            end = begin;
            break;
        }
        begin = next;
    }
    cut.finish(end)
}

#[derive(PartialEq, Eq)]
enum Next {
    Line,
    /// The first document is over.
    End,
}

enum Within {
    /// A key whose lines stay.
    Other,
    /// The ends.
    Ended,
    /// The instances, whose dashes stand in this column, once one was there.
    Instances(Option<usize>),
}

struct Cut<'a> {
    payload: &'a [u8],
    out: Vec<u8>,
    within: Within,
    /// Whether the line before is left out.
    leaves_out: bool,
    /// Where the lines begin that stay and are not in the output yet, unless the line before is left out.
    kept_from: usize,
    /// Where in the output the line above the instances ends, without the line break.
    heading: Option<usize>,
    /// The rows to leave out that are still to come.
    rows: &'a [u32],
    next_row: u32,
    kept: usize,
}

impl Cut<'_> {
    /// Whether a line is one of those that stand under a key or an instance, and goes where that goes.
    #[inline]
    fn is_within(&self, begin: usize) -> bool {
        let may_be_item = matches!(self.within, Within::Instances(column) if column != Some(0));
        self.payload[begin] == b' ' && !may_be_item
    }

    fn line(&mut self, begin: usize, end: usize) -> Next {
        let line = &self.payload[begin..end];
        let spaces = line.iter().take_while(|byte| **byte == b' ').count();
        let content = &line[spaces..];
        let is_item = content.starts_with(b"- ");
        let is_blank = matches!(content.first(), None | Some(b'#' | b'\n'));
        if spaces == 0 && !is_item && !is_blank {
            if (content.starts_with(b"-") || content.starts_with(b".")) && begin > 0 {
                return Next::End;
            }
            self.within = if line == INSTANCES {
                Within::Instances(None)
            } else if line.starts_with(ENDED) {
                Within::Ended
            } else {
                Within::Other
            };
            self.set_leaves_out(matches!(self.within, Within::Ended), begin);
            if let Within::Instances(_) = self.within {
                self.copy_up_to(end);
                self.heading = Some(self.out.len() - 1);
            }
        } else if is_item
            && let Within::Instances(column) = &mut self.within
            && *column.get_or_insert(spaces) == spaces
        {
            let leaves_out = self.rows.first() == Some(&self.next_row);
            if leaves_out {
                self.rows = &self.rows[1..];
            } else {
                self.kept += 1;
            }
            self.next_row += 1;
            self.set_leaves_out(leaves_out, begin);
        }
        Next::Line
    }

    fn set_leaves_out(&mut self, leaves_out: bool, begin: usize) {
        match (self.leaves_out, leaves_out) {
            (false, true) => self.copy_up_to(begin),
            (true, false) => self.kept_from = begin,
            _ => {}
        }
        self.leaves_out = leaves_out;
    }

    fn copy_up_to(&mut self, end: usize) {
        self.out
            .extend_from_slice(&self.payload[self.kept_from..end]);
        self.kept_from = end;
    }

    fn finish(mut self, end: usize) -> Option<Bytes> {
        self.set_leaves_out(true, end);
        // A list without entries is written as such: a key alone says that there is none.
        if let Some(heading) = self.heading
            && self.kept == 0
        {
            self.out.splice(heading..heading, *b" []");
        }
        // Without any key left it is no STATS.
        let has_keys = self.out.split(|&byte| byte == b'\n').any(is_key);
        (self.rows.is_empty() && has_keys).then(|| self.out.into())
    }
}

/// Whether a line has a key, and is not a comment alone.
fn is_key(line: &[u8]) -> bool {
    !line.trim_ascii_start().starts_with(b"#") && line.contains(&b':')
}
