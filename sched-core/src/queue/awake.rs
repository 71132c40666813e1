//! Nodes that offer more than when the queue was searched for them last (*awake* nodes), in the order in which they are
//! to be searched for, and where in the queue to go on for each.
//!
//! A node is woken by a change of the cluster, any number of times within an input; the search for what fits on it is
//! done at the end of the input, in rounds of bounded length (`workflow::waiting`). A round that ends early puts the
//! node behind the others, so that one node cannot delay all of them.

use std::collections::VecDeque;

use indexmap::IndexMap;

use crate::api::ids::NodeKey;
use crate::queue::{Begin, Queue};

/// Nodes on which a waiter may fit.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// In the order of waking. May name a node more than once; only names that `begin` has as well count.
    in_order: VecDeque<NodeKey>,
    /// From where in the queue each node is to be searched for.
    begin: IndexMap<NodeKey, Begin>,
}

impl Queue {
    /// Marks a node as awake: the queue is searched for it from its head on. Does nothing while nothing waits.
    pub(crate) fn wake(&mut self, node: NodeKey) {
        if !self.is_empty() {
            self.awake.wake(node);
        }
    }

    /// Whether there is something to do at the end of an input: a node to search for, or an instance to find a node
    /// for.
    pub(crate) fn has_work(&self) -> bool {
        self.has_awake() || !self.together.is_empty()
    }

    /// Whether there is a node to search for.
    pub(crate) fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// The next node and where in the order to begin; `None` if there is none, or nothing waits any more. The node is
    /// not awake from then on.
    pub(crate) fn next_awake(&mut self) -> Option<(NodeKey, Begin)> {
        if self.is_empty() {
            self.awake = Awake::default();
        }
        self.awake.take()
    }

    /// Puts a node behind the others, to go on at a place. If it was woken meanwhile, it begins at the head instead.
    pub(crate) fn ask_later(&mut self, node: NodeKey, begin: Begin) {
        self.awake.go_on(node, begin);
    }
}

impl Awake {
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.begin.is_empty()
    }

    /// Adds a node, behind the others unless it is there already; the queue is asked about it from its head on.
    fn wake(&mut self, node: NodeKey) {
        if self.begin.insert(node, Begin::AtHead).is_none() {
            self.in_order.push_back(node);
        }
    }

    /// Adds a node that was searched for in part, unless it is awake again.
    fn go_on(&mut self, node: NodeKey, begin: Begin) {
        if !self.begin.contains_key(&node) {
            self.begin.insert(node, begin);
            self.in_order.push_back(node);
        }
    }

    /// Takes out the first node.
    fn take(&mut self) -> Option<(NodeKey, Begin)> {
        while let Some(node) = self.in_order.pop_front() {
            if let Some(begin) = self.begin.swap_remove(&node) {
                return Some((node, begin));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::{Awake, Begin, NodeKey};

    #[test]
    fn each_node_has_one_turn_in_the_order_of_waking() {
        let mut awake = Awake::default();
        for node in [1, 2, 1, 3] {
            awake.wake(NodeKey(node));
        }
        let mut order = Vec::new();
        while let Some((node, _)) = awake.take() {
            order.push(node.0);
        }
        assert_eq!(order, [1, 2, 3]);
        assert!(awake.is_empty());
    }

    #[test]
    fn what_was_asked_about_in_part_goes_on_unless_it_has_grown_again() {
        let mut awake = Awake::default();
        let after = Begin::After(crate::queue::Rank::newest(50));
        awake.go_on(NodeKey(1), after);
        assert_eq!(awake.take(), Some((NodeKey(1), after)));
        awake.wake(NodeKey(1));
        awake.go_on(NodeKey(1), after);
        assert_eq!(awake.take(), Some((NodeKey(1), Begin::AtHead)));
    }
}
