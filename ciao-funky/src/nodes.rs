//! Nodes and their small numbers, which stay theirs; and how many vcpus a task is to ask for where no node may run two.

use std::collections::{BTreeMap, HashMap};

use proto_frames::payload::{InstanceView, LifeState, NodeView};

use crate::store::Change;

/// Most nodes that have numbers: as many as a scheduler is built for.
const MAX_NODES: usize = 100_000;

/// A node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Node {
    /// Its UUID.
    pub(crate) uuid: String,
    /// Its host name; empty where it has not been heard.
    pub(crate) hostname: String,
    /// How it is, in the scheduler's word; empty where it has not been heard.
    pub(crate) status: String,
}

/// All that were ever seen.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    by_number: BTreeMap<u32, Node>,
    numbers: HashMap<String, u32>,
}

impl Nodes {
    /// Those that were kept.
    pub(crate) fn new(kept: Vec<(u32, String)>) -> Self {
        let mut nodes = Self::default();
        for (number, uuid) in kept {
            nodes.insert(number, uuid);
        }
        nodes
    }

    /// The number of a node; where it is new, with the change that keeps it. `None` if there are too many.
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

    /// The number of a node that has one.
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

    /// Notes how a node is.
    pub(crate) fn note(&mut self, uuid: &str, hostname: &str, status: &str) {
        let number = self.numbers.get(uuid);
        if let Some(node) = number.and_then(|number| self.by_number.get_mut(number)) {
            status.clone_into(&mut node.status);
            if !hostname.is_empty() {
                hostname.clone_into(&mut node.hostname);
            }
        }
    }

    /// Forgets how all nodes are.
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

/// Whether a node runs tasks.
pub(crate) fn is_compute(node: &NodeView) -> bool {
    node.roles.split('|').any(|role| role == "AGENT")
}

/// Vcpus of which no node has twice as many, so that two tasks never share one; `None` where no node says how many it has.
pub(crate) fn vcpus_for_one(nodes: &[NodeView], instances: &[InstanceView]) -> Option<i64> {
    let mut claimed: HashMap<&str, i64> = HashMap::new();
    for instance in instances {
        let is_suspended = LifeState::from(&*instance.life) == LifeState::Suspended;
        if instance.vcpus > 0 && !is_suspended {
            *claimed.entry(&instance.node_uuid).or_default() += instance.vcpus;
        }
    }
    let is_on_offer = |node: &&NodeView| {
        is_compute(node) && matches!(&*node.status, "READY" | "FULL") && node.vcpus_free >= 0
    };
    let in_all = |node: &NodeView| {
        let claimed = claimed.get(&*node.node_uuid).copied().unwrap_or_default();
        node.vcpus_free.saturating_add(claimed)
    };
    let most = nodes.iter().filter(is_on_offer).map(in_all).max();
    most.filter(|most| *most > 0).map(|most| most / 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uuid: &str, vcpus_free: i64) -> NodeView {
        NodeView {
            node_uuid: uuid.to_owned(),
            roles: "AGENT".to_owned(),
            status: "READY".to_owned(),
            vcpus_free,
            ..NodeView::default()
        }
    }

    #[test]
    fn two_tasks_never_share_the_largest_node() {
        assert_eq!(vcpus_for_one(&[], &[]), None);
        assert_eq!(vcpus_for_one(&[node("a", 1)], &[]), Some(1));
        assert_eq!(vcpus_for_one(&[node("a", 4), node("b", 7)], &[]), Some(4));
        let running = InstanceView {
            node_uuid: "a".to_owned(),
            vcpus: 16,
            ..InstanceView::default()
        };
        assert_eq!(
            vcpus_for_one(&[node("a", 0)], std::slice::from_ref(&running)),
            Some(9)
        );
        let suspended = InstanceView {
            life: "suspended".to_owned(),
            ..running
        };
        assert_eq!(vcpus_for_one(&[node("a", 16)], &[suspended]), Some(9));
    }

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
