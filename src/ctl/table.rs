//! Listings in three forms: a table for people, one UUID or name a line for pipes, one document for programs. Pure:
//! rows in, text out. [`crate::ctl::commands`] fetches the rows and chooses the form; [`grid()`] lays out the cells.
//!
//! A kind of thing that can be listed implements [`Row`]. The cells are for people; the keys of
//! [`Row::json`] are an interface that scripts rely on.

use proto_frames::payload::{ControllerView, NodeView};
use serde_json::{Value, json};

use crate::ctl::units::{UNKNOWN, count, mebibytes, megabytes, prefix, span, unique_prefix_len};
use crate::printable::{Lines, Printable, is_word};

mod form;
mod grid;
mod instances;

pub use grid::{Column, Columns, Style, grid};
pub use instances::{Queued, WithEnded, retry};

use self::form::Form;

/// One kind of thing that can be listed.
pub trait Row {
    /// The name of the list in JSON.
    ///
    /// The same in the table that lists the usual columns, the wide one and the one with ended instances: a script
    /// does not have to know with which options the list was made.
    const LIST: &'static str;
    /// The columns.
    ///
    /// As many as [`Row::cells`] gives cells, in the same order: [`grid()`] addresses cells by the number of their
    /// column.
    const COLUMNS: Columns;

    /// Its UUID.
    ///
    /// [`table`] shortens all of them to one length, at which they still differ.
    fn id(&self) -> &str;
    /// What it is called; its UUID if nothing else.
    fn name(&self) -> &str {
        self.id()
    }
    /// The other UUID that a row shows, if there is one.
    ///
    /// It is shortened to the same length as [`Row::id`], so that a UUID copied from the table is unique in it.
    fn other_id(&self) -> Option<&str> {
        None
    }
    /// The cells; `id` shortens a UUID.
    ///
    /// They may contain anything a peer sent: [`grid()`] escapes them.
    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String>;
    /// An object with stable names; what is not known is null.
    ///
    /// Amounts are numbers in the unit that the name of the key ends with (`_mb`, `_s`, `_ms`), not texts.
    fn json(&self) -> Value;
}

/// A table; no lines for no rows without headers.
///
/// UUIDs are cut to the shortest length, at least eight characters, at which the UUIDs of this table still differ. An
/// operator can type such a beginning in another command; it is unique among the rows shown, not in the cluster.
#[must_use]
pub fn table<R: Row>(rows: &[R], style: Style) -> Lines {
    let len = unique_prefix_len(rows.iter().map(Row::id));
    let other = unique_prefix_len(rows.iter().filter_map(Row::other_id));
    let len = if style.full_ids {
        usize::MAX
    } else {
        len.max(other)
    };
    let cells = |row: &R| row.cells(&|id| prefix(id, len).to_owned());
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    grid(R::COLUMNS, &rows, style)
}

/// Whole UUIDs for another program, one a line; and how many identifiers are left out, because that program could take
/// them for something else: see [`is_word`]. No UUID is among them.
#[must_use]
pub fn ids<R: Row>(rows: &[R]) -> (Lines, usize) {
    let words = rows.iter().map(Row::id).filter(|id| is_word(id));
    let lines: Lines = words.map(Printable::new).collect();
    let left_out = rows.len() - lines.len();
    (lines, left_out)
}

/// Names for another program, one a line, and how many are left out, as of [`ids`].
///
/// A thing without a name is there with its UUID, so that no row is lost.
#[must_use]
pub fn names<R: Row>(rows: &[R]) -> (Lines, usize) {
    let words = rows.iter().map(Row::name).filter(|name| is_word(name));
    let lines: Lines = words.map(Printable::new).collect();
    let left_out = rows.len() - lines.len();
    (lines, left_out)
}

/// One document: `{"nodes": [...]}`.
#[must_use]
pub fn document<R: Row>(rows: &[R]) -> Value {
    json!({ R::LIST: rows.iter().map(Row::json).collect::<Vec<_>>() })
}

/// A figure of which -1 says that it is not known.
///
/// The protocol writes such figures as -1, because its readers know no null; JSON output has null.
fn known(figure: i64) -> Option<i64> {
    (figure >= 0).then_some(figure)
}

/// `FREE / TOTAL`, both with their units.
///
/// The names of the parameters are those of the lists of nodes. The list of instances passes what is used and what was
/// asked for.
fn of(free: &str, total: &str) -> String {
    format!("{free} / {total}")
}

/// The ranks say what a narrow terminal does without. Identity, host and status always stay.
impl Row for NodeView {
    const LIST: &'static str = "nodes";
    const COLUMNS: Columns = &[
        Column::text("NODE"),
        Column::text("HOST"),
        Column::text("STATUS"),
        Column::text("ROLES").dropped(9),
        Column::amount("MEMORY FREE").dropped(1),
        Column::amount("DISK FREE").dropped(6),
        Column::amount("VCPUS FREE").dropped(2),
        Column::amount("LOAD").dropped(8),
        Column::amount("INSTANCES").dropped(3),
        Column::amount("CONNECTED").dropped(7),
    ];

    fn id(&self) -> &str {
        &self.node_uuid
    }

    fn name(&self) -> &str {
        match &*self.hostname {
            "" => &self.node_uuid,
            name => name,
        }
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        // `5 (2 new)`: five instances, of which the node has not reported two yet.
        let unconfirmed = if self.unconfirmed > 0 {
            format!(" ({} new)", self.unconfirmed)
        } else {
            String::new()
        };
        vec![
            id(&self.node_uuid),
            self.hostname.clone(),
            status(self),
            self.roles.clone(),
            of(&mebibytes(self.mem_free_mb), &mebibytes(self.mem_total_mb)),
            of(
                &megabytes(self.disk_free_mb),
                &megabytes(self.disk_total_mb),
            ),
            count(self.vcpus_free),
            count(self.load),
            format!("{}{unconfirmed}", self.instances),
            span(self.connected_s),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "node_uuid": self.node_uuid,
            "hostname": self.hostname,
            "roles": self.roles,
            "status": self.status,
            "mem_total_mb": known(self.mem_total_mb),
            "mem_available_mb": known(self.mem_available_mb),
            "mem_free_mb": known(self.mem_free_mb),
            "disk_total_mb": known(self.disk_total_mb),
            "disk_available_mb": known(self.disk_available_mb),
            "disk_free_mb": known(self.disk_free_mb),
            "cpus_online": known(self.cpus_online),
            "vcpus_free": known(self.vcpus_free),
            "load": known(self.load),
            "instances": self.instances,
            "unconfirmed": self.unconfirmed,
            "connected_s": known(self.connected_s),
            "most_recently_used": self.most_recently_used,
            "labels": self.labels,
            "resources_total": self.resources_total,
            "resources_free": self.resources_free,
            "failures": self.failures.parse::<f64>().unwrap_or(0.0),
            "fault": (!self.fault.is_empty()).then_some(&self.fault),
            "cordoned": self.cordoned,
            "drain": (!self.drain.is_empty()).then_some(&self.drain),
            "capabilities": self.capabilities,
            "certificate_ends_at_s": self.certificate_ends_at_s,
            "lease_ms": self.lease_ms,
            "lost_s": self.lost_s,
            "reported_s": self.reported_s,
            "address": (!self.address.is_empty()).then_some(&self.address),
        })
    }
}

/// `READY`, `READY, cordoned`, `FULL, fault`, `LOST for 5m`.
fn status(node: &NodeView) -> String {
    let cordoned = if node.cordoned { ", cordoned" } else { "" };
    let fault = if node.fault.is_empty() { "" } else { ", fault" };
    let lost = node.lost_s.map(|it| format!(" for {}", span(it)));
    let lost = lost.unwrap_or_default();
    format!("{}{lost}{fault}{cordoned}", node.status)
}

/// Controllers, operators and viewers. The list is short, so that no column is ever left out.
impl Row for ControllerView {
    const LIST: &'static str = "controllers";
    const COLUMNS: Columns = &[
        Column::text("CONTROLLER"),
        Column::text("ROLE"),
        Column::amount("CONNECTED"),
    ];

    fn id(&self) -> &str {
        &self.uuid
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        vec![
            id(&self.uuid),
            self.standing.to_string(),
            span(self.connected_s),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "uuid": self.uuid,
            "standing": self.standing.as_str(),
            "connected_s": known(self.connected_s),
            "certificate_ends_at_s": self.certificate_ends_at_s,
        })
    }
}

/// A row with more columns than usual.
///
/// Its further columns have rank 0 and stay on every terminal: who asks for the wide form wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wide<R>(pub R);

/// The usual columns of a node by a short name: a constant slice cannot be spliced into another one, so that [`Wide`]
/// names each column by its number.
const NODE: Columns = NodeView::COLUMNS;

impl Form for Wide<NodeView> {
    type Of = NodeView;
    const COLUMNS: Columns = &[
        NODE[0],
        NODE[1],
        NODE[2],
        NODE[3],
        NODE[4],
        NODE[5],
        NODE[6],
        NODE[7],
        NODE[8],
        NODE[9],
        Column::amount("REPORTED"),
        Column::amount("FAILURES"),
        Column::text("RESOURCES FREE"),
        Column::text("DRAIN"),
        Column::text("FAULT"),
        Column::text("LABELS"),
    ];

    fn row(&self) -> &NodeView {
        &self.0
    }

    fn cells(&self, id: &dyn Fn(&str) -> String) -> Vec<String> {
        let node = &self.0;
        // A resource that is not listed as free has none left.
        let free = |name: &str| node.resources_free.get(name).copied().unwrap_or(0);
        let totals = node.resources_total.iter();
        let resources = totals.map(|(name, total)| format!("{name} {} / {total}", free(name)));
        let labels = node
            .labels
            .iter()
            .flat_map(|(key, values)| values.iter().map(move |value| format!("{key}={value}")));
        let failures = if node.failures.is_empty() {
            "0"
        } else {
            &node.failures
        };
        let mut cells = node.cells(id);
        let drain = [&node.drain].into_iter().filter(|drain| !drain.is_empty());
        let fault = [&node.fault].into_iter().filter(|fault| !fault.is_empty());
        let reported = node.reported_s.map(|ago| format!("{} ago", span(ago)));
        cells.extend([
            instances::or_unknown(reported.unwrap_or_default()),
            failures.to_owned(),
            list(resources),
            list(drain.cloned()),
            list(fault.cloned()),
            list(labels),
        ]);
        cells
    }
}

/// Texts with commas between them, or a dash for none.
///
/// For cells of the wide form, which can hold any number of labels, resources or remarks.
fn list(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = texts.collect();
    if texts.is_empty() {
        UNKNOWN.into()
    } else {
        texts.join(", ")
    }
}

#[cfg(test)]
mod tests;
