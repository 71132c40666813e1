//! Nodes and their small numbers.
//!
//! Funky's clients name nodes 1, 2, 3 …; the scheduler names them by UUID. A node gets the next number when it is first
//! seen and keeps it for good, over restarts as well. Nodes are never removed from here.

use std::collections::{BTreeMap, HashMap};

use proto_frames::payload::NodeView;

use crate::store::Change;

/// Most nodes that have numbers: as many as the scheduler is built for. Further ones run tasks, but have no number to
/// be named by.
const MAX_NODES: usize = 100_000;

/// A node as clients see it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its host name; empty until a listing or a placement has named it.
    pub(crate) hostname: String,
    /// The scheduler's word, such as `READY` or `FULL`, or `CONNECTED` and `LOST` from events; empty where it has not
    /// been heard since the program or the connection began.
    pub(crate) status: String,
}

/// All nodes that were ever seen, by number and by UUID.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_number: BTreeMap<u32, Node>,
    /// The same, from UUID to number.
    numbers: HashMap<String, u32>,
}

impl Nodes {
    /// The nodes from the store. Their host names and statuses are not kept.
    pub(crate) fn new(kept: Vec<(u32, String)>) -> Self {
        let mut nodes = Self::default();
        for (number, uuid) in kept {
            nodes.insert(number, uuid);
        }
        nodes
    }

    /// The number of a node, which it gets now if it has none. In that case there is also the change that the caller
    /// has to write to the store. `None` if [`MAX_NODES`] have numbers and this one has not.
    pub(crate) fn number(&mut self, uuid: &str) -> Option<(u32, Option<Change>)> {
        if let Some(&number) = self.numbers.get(uuid) {
            return Some((number, None));
        }
        if self.numbers.len() >= MAX_NODES {
            return None;
        }
        let last = self.by_number.last_key_value();
        let number = last.map_or(1, |(last, _)| last + 1);
        self.insert(number, uuid.to_owned());
        Some((number, Some(Change::Node(number, uuid.to_owned()))))
    }

    /// The number of a node that has one; gives none out.
    pub(crate) fn known(&self, uuid: &str) -> Option<u32> {
        self.numbers.get(uuid).copied()
    }

    /// The node with this number.
    pub(crate) fn get(&self, number: u32) -> Option<&Node> {
        self.by_number.get(&number)
    }

    /// All, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.by_number.iter().map(|(number, node)| (*number, node))
    }

    /// Notes the status of a node that has a number, and its host name unless that is empty.
    pub(crate) fn note(&mut self, uuid: &str, hostname: &str, status: &str) {
        let number = self.numbers.get(uuid);
        if let Some(node) = number.and_then(|number| self.by_number.get_mut(number)) {
            status.clone_into(&mut node.status);
            if !hostname.is_empty() {
                hostname.clone_into(&mut node.hostname);
            }
        }
    }

    /// Empties all statuses, when the connection is lost.
    pub(crate) fn forget_statuses(&mut self) {
        self.by_number
            .values_mut()
            .for_each(|node| node.status.clear());
    }

    fn insert(&mut self, number: u32, uuid: String) {
        self.numbers.insert(uuid.clone(), number);
        let node = Node {
            uuid,
            ..Node::default()
        };
        self.by_number.insert(number, node);
    }
}

/// Whether it is a launcher for workloads. `roles` is the words of its certificate's roles with `|` between them.
pub(crate) fn is_compute(node: &NodeView) -> bool {
    node.roles.split('|').any(|role| role == "AGENT")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_its_number() {
        let mut nodes = Nodes::new(vec![(1, "a".to_owned()), (4, "b".to_owned())]);
        assert!(matches!(nodes.number("b"), Some((4, None))));
        assert!(matches!(
            nodes.number("c"),
            Some((5, Some(Change::Node(5, _))))
        ));
        assert_eq!(nodes.known("c"), Some(5));
        assert_eq!(nodes.known("d"), None);
    }
}
