//! The two texts of the command `Ps:`, which `ciao-funky ps` prints: tables for people, JSON for programs. Pure
//! functions; the coordinator calls them with what it has in memory.
//!
//! ```text
//! TASK  STATE    PRIORITY  NODE  INSTANCE                              PROGRAM  DETAIL
//! 7     running  0         2     5f0c1e2a-0b4c-4a51-8f7e-6d2b9a3c1e00  /bin/a
//!
//! NODE  STATUS  HOSTNAME  UUID
//! 2     READY   node-2    c161398f-7c1b-4a7e-9a55-3f1f3f0f2d11
//! ```

use std::fmt::Write as _;

use ciao_scheduler::printable::Printable;
use serde_json::{Value, json};

use crate::nodes::Nodes;
use crate::task::Task;

/// Characters of a text that others chose (a path, an explanation) in one cell, so that a row stays readable.
const SHOWN: usize = 100;

/// What concerns all that is listed, and stands above it.
#[derive(Debug)]
pub(crate) struct Above<'a> {
    /// Why there is no connection with the scheduler, where there is none: the states below are those of before.
    pub(crate) cut_off: Option<&'a str>,
    /// What people should know of how the scheduler is set up.
    pub(crate) notice: Option<String>,
}

/// Tasks and nodes as two tables, below a line for each thing that is to be known first. No line end at the end; the
/// reply adds one.
pub(crate) fn text<'a>(
    tasks: impl Iterator<Item = &'a Task>,
    nodes: &Nodes,
    above: &Above<'_>,
) -> String {
    let mut rows = vec![
        [
            "TASK", "STATE", "PRIORITY", "NODE", "INSTANCE", "PROGRAM", "DETAIL",
        ]
        .map(str::to_owned),
    ];
    rows.extend(tasks.map(|task| {
        [
            task.record.id.to_string(),
            task.word().to_owned(),
            task.record.priority.number().to_string(),
            node_number(task, nodes).map_or_else(|| "-".to_owned(), |it| it.to_string()),
            task.record.instance.clone(),
            task.record
                .files
                .first()
                .map_or_else(String::new, |it| shown(&it.name)),
            shown(&task.detail()),
        ]
    }));
    let mut text = String::new();
    if let Some(why) = above.cut_off {
        // Writing to a text does not fail, here and below.
        let _ = writeln!(
            text,
            "the scheduler is not reachable: {}",
            Printable::new(why)
        );
    }
    if let Some(notice) = &above.notice {
        let _ = writeln!(text, "{notice}");
    }
    table(&mut text, &rows);
    let mut rows = vec![["NODE", "STATUS", "HOSTNAME", "UUID"].map(str::to_owned)];
    rows.extend(nodes.iter().map(|(number, node)| {
        let status = match &*node.status {
            "" => "-",
            status => status,
        };
        [
            number.to_string(),
            status.to_owned(),
            shown(&node.hostname),
            node.uuid.clone(),
        ]
    }));
    text.push('\n');
    table(&mut text, &rows);
    text.truncate(text.trim_end().len());
    text
}

/// The same as one line of JSON: `{"tasks": […], "nodes": […], "scheduler": {"reachable": true, "detail": ""},
/// "notices": […]}`. Texts are whole and not made printable; `node` is null for a task without one. The scheduler's
/// `detail` is why it is not reachable.
pub(crate) fn json<'a>(
    tasks: impl Iterator<Item = &'a Task>,
    nodes: &Nodes,
    above: &Above<'_>,
) -> String {
    // Row by row: only one is there twice.
    let tasks = tasks.map(|task| {
        let names: Vec<&str> = task.record.files.iter().map(|it| &*it.name).collect();
        json!({
            "task": task.record.id,
            "state": task.word(),
            "priority": task.record.priority.number(),
            "node": node_number(task, nodes),
            "instance": task.record.instance,
            "files": names,
            "args": task.record.args,
            "detail": task.detail(),
        })
    });
    let mut text = "{\"tasks\":".to_owned();
    array(&mut text, tasks);
    text.push_str(",\"nodes\":");
    let nodes = nodes.iter().map(|(number, node)| {
        json!({"node": number, "status": node.status, "hostname": node.hostname, "uuid": node.uuid})
    });
    array(&mut text, nodes);
    let scheduler = json!({
        "reachable": above.cut_off.is_none(),
        "detail": above.cut_off.unwrap_or_default(),
    });
    // Writing to a text does not fail.
    let _ = write!(text, ",\"scheduler\":{scheduler},\"notices\":");
    array(&mut text, above.notice.iter().map(|it| json!(it)));
    text.push('}');
    text
}

/// Appends these as one array.
fn array(text: &mut String, rows: impl Iterator<Item = Value>) {
    text.push('[');
    for (at, row) in rows.enumerate() {
        // Writing to a text does not fail.
        let _ = write!(text, "{}{row}", if at == 0 { "" } else { "," });
    }
    text.push(']');
}

/// The number of the node that a task is on.
fn node_number(task: &Task, nodes: &Nodes) -> Option<u32> {
    let (uuid, _) = task.node()?;
    nodes.known(uuid)
}

/// A text that others chose, fit for a cell: control characters replaced by [`Printable`], and cut to [`SHOWN`]
/// characters.
fn shown(text: &str) -> String {
    let text = Printable::new(text);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_string(),
    }
}

/// Appends a table whose columns are as wide as their widest cell, two blanks between them, no blanks at line ends. The
/// first row is the head.
fn table<const N: usize>(text: &mut String, rows: &[[String; N]]) {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}
