//! Nodes that offer more than when the queue was asked about them last, in the order in which they are to be asked about,
//! and where in the queue to go on for each.

use std::collections::VecDeque;

use indexmap::IndexMap;

use crate::api::ids::NodeKey;
use crate::queue::{Begin, Queue};

/// Nodes that those who wait may have a use for.
#[derive(Debug, Default)]
pub(super) struct Awake {
    /// May name a node more than once; the first time counts.
    turns: VecDeque<NodeKey>,
    begin: IndexMap<NodeKey, Begin>,
}

impl Queue {
    /// Has those who wait, if any do, asked about a node that may be of use to them, from the head on.
    pub(crate) fn wake(&mut self, node: NodeKey) {
        if !self.is_empty() {
            self.awake.wake(node);
        }
    }

    /// Whether there is something to do at the end of an input: a node to ask about, or to look for.
    pub(crate) fn has_work(&self) -> bool {
        self.has_awake() || self.preemptions.is_seeking()
    }

    /// Whether there is a node to ask about.
    pub(crate) fn has_awake(&self) -> bool {
        !self.awake.is_empty()
    }

    /// The node whose turn it is, and where in the order to begin; none if no one waits any more.
    pub(crate) fn next_awake(&mut self) -> Option<(NodeKey, Begin)> {
        if self.is_empty() {
            self.awake = Awake::default();
        }
        self.awake.take()
    }

    /// Has a node asked about once more behind the others; unless it was called meanwhile.
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
            self.turns.push_back(node);
        }
    }

    /// Adds a node about which the queue was asked in part; unless it was called again since.
    fn go_on(&mut self, node: NodeKey, begin: Begin) {
        if !self.begin.contains_key(&node) {
            self.begin.insert(node, begin);
            self.turns.push_back(node);
        }
    }

    /// Takes out the node whose turn it is.
    fn take(&mut self) -> Option<(NodeKey, Begin)> {
        while let Some(node) = self.turns.pop_front() {
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
