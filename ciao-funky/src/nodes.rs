//! Nodes and their small numbers; and how many vcpus a task has to ask for where no node may run two.
//!
//! Funky's clients name nodes 1, 2, 3 …; the scheduler names them by UUID. A node gets the next number when it is first
//! seen and keeps it for good, over restarts as well. Nodes are never removed from here.

use std::collections::{BTreeMap, HashMap};

use proto_frames::payload::{InstanceView, NodeView, PhaseName};

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

/// What a task asks for of a node's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Virtual CPUs.
    pub(crate) vcpus: i64,
    /// Most processors that its node may have online; `None` = any number.
    pub(crate) online_at_most: Option<i64>,
}

/// The smallest number of vcpus of which two do not fit on any node: half of the largest node's vcpus, rounded down,
/// plus one. For a largest node of 8 that is 5, which a node of 4 cannot run at all.
///
/// A larger node that comes later would have room for two, so that the task is kept to nodes with no more processors
/// than the ones that are there. That holds as long as the scheduler counts the processors of all nodes alike.
///
/// A node has what it offers plus what instances on it have claimed; a suspended instance claims none. Only nodes that
/// are READY or FULL and say how many vcpus and processors they have count. `None` where there is no such node.
pub(crate) fn one_to_a_node(nodes: &[NodeView], instances: &[InstanceView]) -> Option<Processors> {
    let mut claimed: HashMap<&str, i64> = HashMap::new();
    for instance in instances {
        let is_suspended = PhaseName::from(&*instance.life) == PhaseName::Suspended;
        if instance.vcpus > 0 && !is_suspended {
            *claimed.entry(&instance.node_uuid).or_default() += instance.vcpus;
        }
    }
    let is_on_offer = |node: &&NodeView| {
        let says = node.vcpus_free >= 0 && node.cpus_online > 0;
        is_compute(node) && matches!(&*node.status, "READY" | "FULL") && says
    };
    let in_all = |node: &NodeView| {
        let claimed = claimed.get(&*node.node_uuid).copied().unwrap_or_default();
        node.vcpus_free.saturating_add(claimed)
    };
    let on_offer = || nodes.iter().filter(is_on_offer);
    let most = on_offer().map(in_all).max().filter(|most| *most > 0)?;
    Some(Processors {
        vcpus: most / 2 + 1,
        online_at_most: on_offer().map(|node| node.cpus_online).max(),
    })
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
            cpus_online: 8,
            ..NodeView::default()
        }
    }

    #[test]
    fn two_tasks_never_share_the_largest_node() {
        let vcpus_for_one = |nodes: &[NodeView], instances: &[InstanceView]| {
            one_to_a_node(nodes, instances).map(|it| it.vcpus)
        };
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
    fn a_task_is_kept_to_nodes_as_large_as_those_that_are_there() {
        let online = |cpus_online| NodeView {
            cpus_online,
            ..node("a", 4)
        };
        let at_most = |nodes: &[NodeView]| one_to_a_node(nodes, &[])?.online_at_most;
        assert_eq!(at_most(&[online(4), online(16)]), Some(16));
        assert_eq!(at_most(&[online(4), online(-1)]), Some(4));
        assert_eq!(at_most(&[online(-1)]), None);
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
