//! Pages: how much one may have, and where the next begins.
//!
//! A cursor is text that only this file reads; a client gives it back as it came. One that cannot be read is an error
//! for the client, and any that can be read is safe: it names a place, which need not exist. Examples:
//!
//! ```text
//!  nodes       "absent:UUID"  absent nodes from this UUID on    "17"            node with key 17 or the next
//!  instances   "none:ID"      on no node, behind ID             "17:5"          on node 17, 5 entries left
//!              "lost:ID"      plain, of a lost node, behind ID
//!  queue       "0:50:1234"    pool 0, behind priority 50, order 1234
//! ```
//!
//! The order of rows is such that what is there all the while is on some page, whatever else comes and goes between two
//! of them:
//!
//! - first nodes that are known only to have been there, by UUID; behind them the others in the order of their keys, which
//!   do not change while a node is known: so one that comes back after a restart is in neither place skipped;
//! - instances on no node are in the order of identifiers, and the cursor is the last one shown;
//! - those on a node are shown from the last to the first. When one leaves, the last takes its position, which was
//!   shown already: it may be shown twice, and none is skipped.
//!
//! What moves from one place to another meanwhile may be shown in both, which the HTTP API and `ciaoctl` show once, or in
//! neither; a client that must know follows the events.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use sched_model::{InstanceView, Query, QueryResult, Uuid};

use crate::api::cause::Cause;
use crate::api::explained::{Explained, QueryProblem, RowCauses};
use crate::api::ids::{InstanceId, canonical_uuid};

/// Rows looked at for one page, wanted or not: bounds the time that a page takes under the lock, even if nothing
/// matches.
const MAX_SCAN: usize = 4_000;

/// Bytes of labels, resources, groups and explanations on one page, beyond which it ends with a further page to come.
/// Each may be long and a row may have many. Even written with every character escaped, which takes four bytes for one,
/// and with the rest of [`sched_model::query::MAX_LIMIT`] rows beside them, they stay below the longest payload of a
/// frame.
const MAX_TEXT_LEN: usize = 256 * 1024;

/// What the YAML around a label or resource takes, in bytes: indentation, colon, dash, line ends.
const ENTRY_LEN: usize = 24;

/// A page of rows, with the causes of its rows in the same order beside them.
pub(super) type Page = Explained<QueryResult, RowCauses>;

/// An instance's row, and why it waits or ended.
pub(super) type InstanceRow = Explained<InstanceView>;

/// The rows of instances on a page, with the causes of the rows beside them and what the page may still have.
pub(crate) struct InstanceRows<'a> {
    rows: &'a mut Vec<InstanceView>,
    causes: &'a mut Vec<Cause>,
    pub(super) allowance: Allowance,
}

impl<'a> InstanceRows<'a> {
    /// Further rows of a page.
    pub(super) fn new(
        rows: &'a mut Vec<InstanceView>,
        causes: &'a mut Vec<Cause>,
        allowance: Allowance,
    ) -> Self {
        Self {
            rows,
            causes,
            allowance,
        }
    }

    /// Those of the page that answers a query.
    pub(super) fn of(page: &'a mut Page, query: &Query) -> Self {
        let allowance = Allowance::new(limit(query));
        let (rows, causes) = (&mut page.payload.instances, &mut page.cause.instances);
        Self::new(rows, causes, allowance)
    }

    /// Adds a row with texts of this length. Rows and causes must keep the same length and order: the server joins them
    /// by position.
    pub(super) fn push(&mut self, row: InstanceRow, text_len: usize) {
        self.allowance.take_row(text_len);
        self.rows.push(row.payload);
        self.causes.push(row.cause);
    }

    /// Adds the row of an instance that is there.
    pub(super) fn add(&mut self, row: InstanceRow) {
        let texts = row.group.len() + row.name.len() + row.program.len();
        let text_len = texts + row.cause.text_size() + amounts_len(&row.resources);
        self.push(row, text_len);
    }
}

/// What a page may still have: rows, bytes of text, and entries looked at. The page ends when any of them is used up.
#[derive(Debug)]
pub(crate) struct Allowance {
    rows: usize,
    text_len: usize,
    scan: usize,
}

impl Allowance {
    /// The allowance of a page of at most this many rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self {
            rows,
            text_len: MAX_TEXT_LEN,
            scan: MAX_SCAN,
        }
    }

    /// Whether the page ends here.
    pub(super) fn is_used_up(&self) -> bool {
        self.rows == 0 || self.text_len == 0 || self.scan == 0
    }

    /// Notes that an entry was looked at, whether or not it becomes a row.
    pub(super) fn look(&mut self) {
        self.scan = self.scan.saturating_sub(1);
    }

    /// Notes that so many entries were looked at for one row.
    pub(super) fn look_at(&mut self, count: usize) {
        self.scan = self.scan.saturating_sub(count);
    }

    /// Notes a row with texts of this length.
    pub(super) fn take_row(&mut self, text_len: usize) {
        self.rows = self.rows.saturating_sub(1);
        self.text_len = self.text_len.saturating_sub(text_len);
    }
}

/// The node that a page of nodes begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeCursor {
    /// Among nodes that are not in the store: the one with this UUID, or the next.
    Absent(Uuid),
    /// The node with this key, or the next one there is.
    Present(usize),
}

impl Default for NodeCursor {
    /// Before everything.
    fn default() -> Self {
        Self::Absent(Uuid::nil())
    }
}

/// Where a page of instances begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InstanceCursor {
    /// Among those on no node, behind this one; `None` = from the first.
    Nowhere(Option<InstanceId>),
    /// Among plain ones of lost nodes, behind this one; `None` = from the first.
    Lost(Option<InstanceId>),
    /// On the node with this key or the next, with this many of its entries still to be shown; `None` = all.
    Node(usize, Option<usize>),
}

impl Default for InstanceCursor {
    /// Before everything.
    fn default() -> Self {
        Self::Nowhere(None)
    }
}

/// A place in the queue: the pool, and priority and order of the last one looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct QueueCursor {
    pub(super) pool: usize,
    pub(super) after: Option<(u8, u64)>,
}

/// The prefix of cursors among nodes that are not connected.
const ABSENT: &str = "absent:";

/// The prefix of cursors among instances on no node.
const NOWHERE: &str = "none:";

/// The prefix of cursors among plain instances of lost nodes.
const LOST: &str = "lost:";

impl fmt::Display for NodeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Present(key) => key.fmt(f),
            Self::Absent(uuid) => write!(f, "{ABSENT}{uuid}"),
        }
    }
}

impl FromStr for NodeCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix(ABSENT) {
            Some(uuid) => canonical_uuid(uuid).map(Self::Absent).ok_or(()),
            None => text.parse().map(Self::Present).map_err(|_| ()),
        }
    }
}

impl fmt::Display for InstanceCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nowhere(None) => f.write_str(NOWHERE),
            Self::Nowhere(Some(instance)) => write!(f, "{NOWHERE}{instance}"),
            Self::Lost(None) => f.write_str(LOST),
            Self::Lost(Some(instance)) => write!(f, "{LOST}{instance}"),
            Self::Node(key, None) => key.fmt(f),
            Self::Node(key, Some(left)) => write!(f, "{key}:{left}"),
        }
    }
}

impl FromStr for InstanceCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(instance) = text.strip_prefix(NOWHERE) {
            let after = (!instance.is_empty()).then(|| InstanceId::new(instance));
            return Ok(Self::Nowhere(after));
        }
        if let Some(instance) = text.strip_prefix(LOST) {
            let after = (!instance.is_empty()).then(|| InstanceId::new(instance));
            return Ok(Self::Lost(after));
        }
        match text.split_once(':') {
            None => Ok(Self::Node(text.parse()?, None)),
            Some((key, left)) => Ok(Self::Node(key.parse()?, Some(left.parse()?))),
        }
    }
}

impl fmt::Display for QueueCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.after {
            None => self.pool.fmt(f),
            Some((priority, order)) => write!(f, "{}:{priority}:{order}", self.pool),
        }
    }
}

impl FromStr for QueueCursor {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (pool, rest) = text.split_once(':').unwrap_or((text, ""));
        let after = match rest.split_once(':') {
            Some((priority, order)) => Some((priority.parse()?, order.parse()?)),
            None if rest.is_empty() => None,
            None => Some((rest.parse()?, 0)),
        };
        Ok(Self {
            pool: pool.parse()?,
            after,
        })
    }
}

/// Bytes that these labels take on a page, as YAML; an estimate from above.
pub(super) fn labels_len(labels: &BTreeMap<String, Vec<String>>) -> usize {
    let of_key = |(key, values): (&String, &Vec<String>)| {
        let values = values.iter().map(|value| value.len() + ENTRY_LEN);
        key.len() + ENTRY_LEN + values.sum::<usize>()
    };
    labels.iter().map(of_key).sum()
}

/// The same of custom resources.
pub(super) fn amounts_len(amounts: &BTreeMap<String, i64>) -> usize {
    amounts.keys().map(|name| name.len() + ENTRY_LEN).sum()
}

/// Rows that a page may have.
pub(super) fn limit(query: &Query) -> usize {
    // The server refuses a limit that is out of range before the core hears of it.
    query.checked_limit().unwrap_or(1)
}

/// Where a page begins: at the cursor that an earlier page's `next` gave, else at the start. `None` if the cursor
/// cannot be read; the page then says so as its problem, and stays empty.
pub(super) fn start_of<C: FromStr + Default>(query: &Query, result: &mut Page) -> Option<C> {
    let Some(after) = query.after.as_deref() else {
        return Some(C::default());
    };
    let cursor = after.parse().ok();
    if cursor.is_none() {
        result.cause.problem = Some(QueryProblem::UnknownCursor(after.into()));
    }
    cursor
}

#[cfg(test)]
mod tests {
    use super::{InstanceCursor, InstanceId, QueueCursor};

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let web = InstanceId::new("web:1");
        let instances = [
            InstanceCursor::Nowhere(None),
            InstanceCursor::Nowhere(Some(web)),
            InstanceCursor::Node(7, None),
            InstanceCursor::Node(7, Some(0)),
        ];
        for cursor in instances {
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
        for after in [None, Some((100, 0)), Some((0, u64::MAX))] {
            let cursor = QueueCursor { pool: 1, after };
            assert_eq!(cursor.to_string().parse(), Ok(cursor));
        }
    }
}
