//! The sources of a folder, and which of them reach each other, for tests that look at the structure of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Which others each file or module names or calls.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// The sources of a folder: path below it without `.rs`, and text.
pub(crate) fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut found, mut folders) = (Vec::new(), vec![root.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let below = path.strip_prefix(&root).unwrap().with_extension("");
                found.push((below.to_str().unwrap().replace('\\', "/"), text));
            }
        }
    }
    found
}

/// All that is reached from one.
fn reached<'e>(edges: &'e Edges, from: &str) -> BTreeSet<&'e str> {
    let mut reached = BTreeSet::new();
    let mut left: Vec<&str> = edges
        .get(from)
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    while let Some(file) = left.pop() {
        if reached.insert(file) {
            left.extend(edges.get(file).into_iter().flatten().map(String::as_str));
        }
    }
    reached
}

/// Files that reach each other, in groups of two or more.
pub(crate) fn cycles(edges: &Edges) -> Vec<BTreeSet<&str>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|from| (from.as_str(), reached(edges, from)))
        .collect();
    let mut cycles: Vec<BTreeSet<&str>> = Vec::new();
    for (from, reached) in &reach {
        let back = reached.iter().filter(|to| reach[*to].contains(from));
        let cycle: BTreeSet<&str> = back.copied().collect();
        if cycle.len() > 1 && !cycles.contains(&cycle) {
            cycles.push(cycle);
        }
    }
    cycles
}
