//! Files that call each other, and what is a cycle of them.

use std::collections::BTreeSet;

use crate::index::Index;
use crate::modules::Edges;
use crate::walk::Calls;

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
