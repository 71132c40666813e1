//! Cuts instances out of a STATS as it came, without rewriting it.

use bytes::Bytes;

use super::stats::quick;

/// Keys at the top of a STATS whose lines are told apart.
const INSTANCES: &[u8] = b"instances:\n";
const ENDED: &[u8] = b"ended:";

/// The same STATS without some of its instances, and without its ends; every other byte stays. `rows` says where the
/// instances stand among those listed, counted from 0, in order. `None` where the payload is not of the plain block style,
/// with each instance on lines of its own, or does not list so many.
#[must_use]
pub fn stats_without(payload: &[u8], rows: &[u32]) -> Option<Bytes> {
    quick(payload)?;
    let mut cut = Cut {
        out: Vec::with_capacity(payload.len()),
        within: Within::Other,
        rows,
        next_row: 0,
        kept: 0,
    };
    let mut rest = payload;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let (line, next) = rest.split_at(end.map_or(rest.len(), |end| end + 1));
        if cut.line(line) == Next::End {
            break;
        }
        rest = next;
    }
    cut.finish()
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
    Instances {
        /// Where in the output its line ends, without the line break.
        heading: usize,
        /// Column of the dashes, once one was there.
        column: Option<usize>,
        /// The lines are those of an instance that is left out.
        leaves_out: bool,
    },
}

struct Cut<'a> {
    out: Vec<u8>,
    within: Within,
    /// The rows to leave out that are still to come.
    rows: &'a [u32],
    next_row: u32,
    kept: usize,
}

impl Cut<'_> {
    fn line(&mut self, line: &[u8]) -> Next {
        let spaces = line.iter().take_while(|byte| **byte == b' ').count();
        let content = &line[spaces..];
        let is_item = content.starts_with(b"- ");
        let is_blank = matches!(content.first(), None | Some(b'#' | b'\n'));
        if spaces == 0 && !is_item && !is_blank {
            if (content.starts_with(b"-") || content.starts_with(b".")) && !self.out.is_empty() {
                return Next::End;
            }
            self.leave_instances();
            self.within = if line == INSTANCES {
                Within::Instances {
                    heading: self.out.len() + INSTANCES.len() - 1,
                    column: None,
                    leaves_out: false,
                }
            } else if line.starts_with(ENDED) {
                Within::Ended
            } else {
                Within::Other
            };
        }
        let leaves_out = match &mut self.within {
            Within::Other => false,
            Within::Ended => true,
            Within::Instances {
                column, leaves_out, ..
            } => {
                if is_item && *column.get_or_insert(spaces) == spaces {
                    *leaves_out = self.rows.first() == Some(&self.next_row);
                    if *leaves_out {
                        self.rows = &self.rows[1..];
                    } else {
                        self.kept += 1;
                    }
                    self.next_row += 1;
                }
                *leaves_out
            }
        };
        if !leaves_out {
            self.out.extend_from_slice(line);
        }
        Next::Line
    }

    /// A list without entries is written as such: a key alone says that there is none.
    fn leave_instances(&mut self) {
        if let Within::Instances { heading, .. } = self.within
            && self.kept == 0
        {
            self.out.splice(heading..heading, *b" []");
        }
    }

    fn finish(mut self) -> Option<Bytes> {
        self.leave_instances();
        self.rows.is_empty().then(|| self.out.into())
    }
}
