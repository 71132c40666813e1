//! Counts of the core, to be compared before and after a change.

use std::collections::BTreeSet;

use crate::graph::{Files, mutual};
use crate::index::{Index, Owner};
use crate::modules::cycles;
use crate::rules::{FLOWS, methods};
use crate::source::{Source, lines};
use crate::walk::Calls;

/// Messages whose way is counted, and the function that takes each in.
const ENTRIES: &[(&str, &str)] = &[("START", "start"), ("STATS", "stats"), ("DELETE", "delete")];

/// The counts as a table.
pub(crate) fn table(sources: &[Source], index: &Index<'_>, calls: &Calls) -> String {
    let files = Files::new(index, calls);
    let scheduler = index.type_named("Scheduler");
    let is_method = |at: &usize| match (&index.fns[*at].owner, scheduler) {
        (Owner::Type(number), Some(scheduler)) => *number == scheduler,
        _ => false,
    };
    let own: Vec<usize> = (0..index.fns.len()).filter(is_method).collect();
    let with: BTreeSet<&str> = own.iter().map(|at| index.fns[*at].file.as_str()).collect();
    let cycles = cycles(&files.edges);
    let largest = cycles.iter().max_by_key(|it| it.len());
    let is_flow = |file: &str| {
        let folder = file.split('/').next().unwrap_or(file);
        FLOWS.contains(&folder)
    };
    let flows = largest.map_or(0, |it| it.iter().filter(|it| is_flow(it)).count());
    let (all, code) = lines(sources);
    let mut rows = vec![
        ("methods on Scheduler".to_owned(), own.len()),
        (
            "methods on Scheduler and in apply".to_owned(),
            methods(index).len(),
        ),
        ("files with an impl of Scheduler".to_owned(), with.len()),
        (
            "files in the largest cycle".to_owned(),
            largest.map_or(0, BTreeSet::len),
        ),
        ("of these, flows".to_owned(), flows),
        ("cycles".to_owned(), cycles.len()),
        (
            "files in any cycle".to_owned(),
            cycles.iter().map(BTreeSet::len).sum(),
        ),
        ("mutual pairs".to_owned(), mutual(&files.edges, |_| true)),
        (
            "mutual pairs of flows".to_owned(),
            mutual(&files.edges, is_flow),
        ),
    ];
    for (message, name) in ENTRIES {
        let entry = own.iter().find(|at| index.fns[**at].name == *name);
        let entered = entry
            .map(|at| entered(index, calls, *at))
            .unwrap_or_default();
        let files: BTreeSet<&str> = entered
            .iter()
            .map(|at| index.fns[*at].file.as_str())
            .collect();
        rows.push((format!("functions {message} may enter"), entered.len()));
        rows.push((format!("files {message} may enter"), files.len()));
    }
    rows.push(("files".to_owned(), sources.len()));
    rows.push(("lines without tests".to_owned(), all));
    rows.push(("the same without comments and empty ones".to_owned(), code));
    rows.push(("method calls of a known type".to_owned(), calls.known));
    rows.push((
        "method calls that count by name".to_owned(),
        calls.unknown.len(),
    ));
    rows.iter()
        .map(|(what, count)| format!("{count:>7}  {what}\n"))
        .collect()
}

/// The functions that may be entered from one, itself included.
fn entered(index: &Index<'_>, calls: &Calls, from: usize) -> BTreeSet<usize> {
    let (mut seen, mut left) = (BTreeSet::from([from]), vec![from]);
    while let Some(from) = left.pop() {
        for (_, to) in calls.edges.range((from, 0)..=(from, usize::MAX)) {
            if seen.insert(*to) {
                left.push(*to);
            }
        }
    }
    seen.retain(|at| index.fns[*at].signature.is_some());
    seen
}
