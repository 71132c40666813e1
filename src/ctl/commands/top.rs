//! `ciaoctl top`: nodes and instances by what they use.
//!
//! Two tables, cut to a number of rows each. The columns say what is used; what is claimed is only a column for nodes.

use std::cmp::Reverse;

use proto_frames::payload::{InstanceView, NodeView, QueryKind};
use serde_json::{Value, json};

use crate::ctl::args::TopArgs;
use crate::ctl::commands::listing::repeat;
use crate::ctl::commands::{CommandError, Context};
use crate::ctl::exit::Exit;
use crate::ctl::table::{Column, Columns, Row, Style, grid};
use crate::ctl::units::{UNKNOWN, count, mebibytes, megabytes, short, span};
use crate::printable::Printable;

/// `MEMORY USED` is what the node reports as used by everything on it; `CLAIMED` is what the scheduler has given away.
const NODES: Columns = &[
    Column::text("HOST"),
    Column::text("STATUS").dropped(3),
    Column::amount("LOAD").dropped(4),
    Column::amount("MEMORY USED"),
    Column::amount("%"),
    Column::amount("CLAIMED").dropped(2),
    Column::amount("DISK USED").dropped(5),
    Column::amount("VCPUS FREE").dropped(6),
    Column::amount("INSTANCES").dropped(1),
];

/// `% OF ASKED` is the memory used, of the memory that the START asked for.
const INSTANCES: Columns = &[
    Column::text("INSTANCE"),
    Column::text("HOST"),
    Column::amount("MEMORY USED"),
    Column::amount("% OF ASKED"),
    Column::amount("DISK USED").dropped(2),
    Column::amount("VCPUS").dropped(3),
    Column::amount("AGE").dropped(1),
    Column::text("PROGRAM").dropped(4),
];

/// Shows nodes and instances, those first that use most memory; again and again on a terminal.
///
/// A file, a pipe and `--json` get one look, as with `--once`.
///
/// # Errors
/// [`CommandError`].
pub async fn top(context: &mut Context<'_>, args: &TopArgs) -> Result<Exit, CommandError> {
    let is_live = context.out.is_terminal() && !args.once && !context.json;
    let interval = is_live.then_some(args.interval);
    repeat(context, interval, async |context| {
        show(context, args.rows).await
    })
    .await
}

/// Sorted here: the scheduler lists in its own order. Ties are broken by name, so that rows do not change places
/// between looks. JSON has the objects of `nodes` and `instances`, cut to the same rows.
async fn show(context: &mut Context<'_>, most: usize) -> Result<Exit, CommandError> {
    let client = &mut context.client;
    let mut nodes = client.list(QueryKind::Nodes, None).await?.nodes;
    let mut instances = client.list(QueryKind::Instances, None).await?.instances;
    nodes.sort_by_key(|node| (Reverse(share_used(node)), node.hostname.clone()));
    instances.sort_by_key(|it| (Reverse(it.mem_used_mb), it.instance_uuid.clone()));
    nodes.truncate(most);
    instances.truncate(most);
    if context.json {
        let rows = |rows: Vec<Value>| Value::Array(rows);
        let document = json!({
            "nodes": rows(nodes.iter().map(Row::json).collect()),
            "instances": rows(instances.iter().map(Row::json).collect()),
        });
        context.out.document(&document)?;
        return Ok(Exit::Done);
    }
    let style = Style::with_headers(context.out.width());
    let cells: Vec<_> = nodes.iter().map(node_cells).collect();
    context.out.lines(&grid(NODES, &cells, style))?;
    context.out.line(&Printable::default())?;
    let cells: Vec<_> = instances.iter().map(instance_cells).collect();
    context.out.lines(&grid(INSTANCES, &cells, style))?;
    Ok(Exit::Done)
}

/// Memory that a node uses, MiB; -1 where it is not known.
fn mem_used(node: &NodeView) -> i64 {
    used(node.mem_total_mb, node.mem_available_mb)
}

/// -1 if either is not known.
fn used(total: i64, free: i64) -> i64 {
    match total >= 0 && free >= 0 {
        true => total.saturating_sub(free).max(0),
        false => -1,
    }
}

/// How much of its memory a node uses, in percent; -1 where that is not known.
fn share_used(node: &NodeView) -> i64 {
    percent(mem_used(node), node.mem_total_mb)
}

/// A part of a whole in percent; -1 where either is not known.
fn percent(part: i64, whole: i64) -> i64 {
    if part < 0 || whole <= 0 {
        return -1;
    }
    let share = i128::from(part) * 100 / i128::from(whole);
    i64::try_from(share).unwrap_or(i64::MAX)
}

/// The cells of [`NODES`].
fn node_cells(node: &NodeView) -> Vec<String> {
    let host = match &*node.hostname {
        "" => short(&node.node_uuid),
        name => name,
    };
    vec![
        host.to_owned(),
        node.status.clone(),
        count(node.load),
        mebibytes(mem_used(node)),
        count(share_used(node)),
        mebibytes(used(node.mem_total_mb, node.mem_free_mb)),
        megabytes(used(node.disk_total_mb, node.disk_available_mb)),
        count(node.vcpus_free),
        node.instances.to_string(),
    ]
}

/// The cells of [`INSTANCES`]. An instance is named by its name, or else by the beginning of its UUID.
fn instance_cells(view: &InstanceView) -> Vec<String> {
    let or_unknown = |text: &str| match text {
        "" => UNKNOWN.to_owned(),
        text => text.to_owned(),
    };
    let name = match &*view.name {
        "" => short(&view.instance_uuid),
        name => name,
    };
    vec![
        name.to_owned(),
        or_unknown(&view.hostname),
        mebibytes(view.mem_used_mb),
        count(percent(view.mem_used_mb, view.mem_mb)),
        megabytes(view.disk_used_mb),
        count(view.vcpus),
        span(view.age_s),
        or_unknown(&view.program),
    ]
}

#[cfg(test)]
mod tests {
    use super::{NodeView, percent, share_used};

    #[test]
    fn shares_are_whole_and_what_is_not_known_has_none() {
        let node = |total, available| NodeView {
            mem_total_mb: total,
            mem_available_mb: available,
            ..NodeView::default()
        };
        assert_eq!(share_used(&node(1000, 250)), 75);
        assert_eq!(share_used(&node(-1, 250)), -1);
        assert_eq!(share_used(&node(0, 0)), -1);
        assert_eq!(share_used(&node(1000, 2000)), 0);
        assert_eq!(percent(i64::MAX, 1), i64::MAX);
    }
}
