//! Nodes that offer more than when the queue was asked about them last, in the order in which they are to be asked about,
//! and where in the queue to go on for each.

use std::collections::VecDeque;

use indexmap::IndexMap;

use crate::api::ids::NodeKey;
use crate::queue::Begin;

/// Nodes that those who wait may have a use for.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// May name a node more than once; the first time counts.
    turns: VecDeque<NodeKey>,
    begin: IndexMap<NodeKey, Begin>,
}

impl Woken {
    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.begin.is_empty()
    }

    /// Adds a node, behind the others unless it is there already; the queue is asked about it from its head on.
    pub(crate) fn wake(&mut self, node: NodeKey) {
        if self.begin.insert(node, Begin::AtHead).is_none() {
            self.turns.push_back(node);
        }
    }

    /// Adds a node about which the queue was asked in part; unless it has been woken anew since.
    pub(crate) fn go_on(&mut self, node: NodeKey, begin: Begin) {
        if !self.begin.contains_key(&node) {
            self.begin.insert(node, begin);
            self.turns.push_back(node);
        }
    }

    /// Takes out the node whose turn it is.
    pub(crate) fn take(&mut self) -> Option<(NodeKey, Begin)> {
        while let Some(node) = self.turns.pop_front() {
            if let Some(begin) = self.begin.swap_remove(&node) {
                return Some((node, begin));
            }
        }
        None
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::{Begin, NodeKey, Woken};

    #[test]
    fn each_node_has_one_turn_in_the_order_of_waking() {
        let mut woken = Woken::default();
        for node in [1, 2, 1, 3] {
            woken.wake(NodeKey(node));
        }
        let mut order = Vec::new();
        while let Some((node, _)) = woken.take() {
            order.push(node.0);
        }
        assert_eq!(order, [1, 2, 3]);
        assert!(woken.is_empty());
    }

    #[test]
    fn what_was_asked_about_in_part_goes_on_unless_it_has_grown_again() {
        let mut woken = Woken::default();
        let after = Begin::After(crate::queue::Rank::newest(50));
        woken.go_on(NodeKey(1), after);
        assert_eq!(woken.take(), Some((NodeKey(1), after)));
        woken.wake(NodeKey(1));
        woken.go_on(NodeKey(1), after);
        assert_eq!(woken.take(), Some((NodeKey(1), Begin::AtHead)));
    }
}
