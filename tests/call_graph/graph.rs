//! Files that call each other, and what is a cycle of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::index::Index;
use crate::walk::Calls;

/// Which files each file calls.
pub(crate) type Edges = BTreeMap<String, BTreeSet<String>>;

/// Calls between files.
pub(crate) struct Files {
    pub(crate) edges: Edges,
}

impl Files {
    pub(crate) fn new(index: &Index<'_>, calls: &Calls) -> Self {
        let mut edges = Edges::new();
        for (from, to) in &calls.edges {
            let (from, to) = (&index.fns[*from].file, &index.fns[*to].file);
            if from != to {
                edges.entry(from.clone()).or_default().insert(to.clone());
                edges.entry(to.clone()).or_default();
            }
        }
        Self { edges }
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        let pairs = self.edges.iter();
        pairs.flat_map(|(from, to)| to.iter().map(move |to| (from.as_str(), to.as_str())))
    }
}

/// All that is reached from one.
pub(crate) fn reached<'e>(edges: &'e Edges, from: &str) -> BTreeSet<&'e str> {
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

/// The calls within a cycle.
pub(crate) fn edges_within<'e>(
    edges: &'e Edges,
    cycle: &BTreeSet<&'e str>,
) -> Vec<(&'e str, &'e str)> {
    let mut found = Vec::new();
    for from in cycle {
        let to = edges[*from].iter().map(String::as_str);
        found.extend(to.filter(|to| cycle.contains(to)).map(|to| (*from, to)));
    }
    found
}

/// Pairs of files of which each calls the other, among those that `is_counted`.
pub(crate) fn mutual(edges: &Edges, is_counted: impl Fn(&str) -> bool) -> usize {
    let calls = |from: &str, to: &str| edges.get(from).is_some_and(|it| it.contains(to));
    let pairs = edges
        .iter()
        .flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    pairs
        .filter(|(from, to)| from < to && calls(to, from))
        .filter(|(from, to)| is_counted(from) && is_counted(to))
        .count()
}
