//! The classes of waiters that concern the same nodes: all nodes, one node, or one host. Above them a tree of what the
//! waiters of each class ask for at least, and where the first of them is in the order, so that a search passes over
//! classes that cannot have what it looks for.

use super::rank::Key;
use super::summary::Promise;
use crate::api::resources::Resources;
use crate::slots::Slots;
use crate::tree::{Summary, Tree, first_leaf_below, right_of};

/// Which seat of a bunch a walk comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// This seat's class is worth a look.
    Seat(u32),
    /// No further one is.
    End,
    /// Steps are used up; this seat and those behind it have not been looked at.
    GaveUp(u32),
}

/// Classes, each in a seat that it keeps as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Bunch {
    /// Classes by their numbers.
    seats: Slots<u32>,
    /// Seats are its leaves.
    tree: Tree<Promise>,
}

impl Bunch {
    /// Gives a class a seat. It promises nothing before [`Bunch::promise`].
    pub(super) fn seat(&mut self, class: u32) -> u32 {
        self.seats.insert(class)
    }

    /// Takes a class from its seat. Returns whether no class is left, so that the bunch can be dropped.
    pub(super) fn leave(&mut self, seat: u32) -> bool {
        self.seats.remove(seat);
        let is_empty = self.seats.len() == 0;
        if is_empty {
            self.tree = Tree::default();
        } else {
            self.tree.put(seat as usize, Promise::NONE);
        }
        is_empty
    }

    /// Says what the class in a seat promises; after every change of its waiters.
    pub(super) fn promise(&mut self, seat: u32, promise: Promise) {
        self.tree.put(seat as usize, promise);
    }

    /// The class in a seat.
    pub(super) fn class(&self, seat: u32) -> Option<u32> {
        self.seats.at(seat).copied()
    }

    /// All classes.
    pub(super) fn classes(&self) -> impl Iterator<Item = u32> {
        self.seats.iter_from(0).map(|(_, &class)| class)
    }

    /// The next seat from this one on whose class may have a waiter that fits and is before a place. Takes its steps
    /// from `steps`.
    #[inline]
    pub(super) fn next(&self, from: u32, free: &Resources, before: Key, steps: &mut u32) -> Next {
        let leaves = self.tree.leaves();
        let from = from as usize;
        if from >= self.seats.end() || leaves == 0 {
            return Next::End;
        }
        let mut at = if from == 0 { 1 } else { leaves + from };
        loop {
            let seat = first_leaf_below(at, leaves);
            let Ok(seat) = u32::try_from(seat) else {
                return Next::End;
            };
            if seat as usize >= self.seats.end() {
                return Next::End;
            }
            if *steps == 0 {
                return Next::GaveUp(seat);
            }
            *steps -= 1;
            if !self.tree.node(at).holds(free, before) {
                match right_of(at) {
                    Some(right) => at = right,
                    None => return Next::End,
                }
            } else if at < leaves {
                at *= 2;
            } else {
                return Next::Seat(seat);
            }
        }
    }

    /// The seat of a class that may have a waiter that fits, and whose head is early in the order: one descent of the
    /// tree towards the earlier head. A good class to begin with, not certainly the best.
    pub(super) fn leader(&self, free: &Resources, steps: &mut u32) -> Option<u32> {
        let leaves = self.tree.leaves();
        let holds = |at: usize| self.tree.node(at).holds(free, Key::LAST);
        if leaves == 0 || !holds(1) {
            return None;
        }
        let mut at = 1;
        while at < leaves {
            *steps = steps.saturating_sub(1);
            let (left, right) = (2 * at, 2 * at + 1);
            let is_left_first = self.tree.node(left).head < self.tree.node(right).head;
            at = match (holds(left), holds(right)) {
                (true, true) if is_left_first => left,
                (true, false) => left,
                (_, true) => right,
                (false, false) => return None,
            };
        }
        u32::try_from(at - leaves).ok()
    }

    /// Whether the tree is of what the classes promise.
    pub(super) fn is_consistent(&self, promise: impl Fn(u32) -> Promise) -> bool {
        let promises: Vec<Promise> = (0..)
            .take(self.seats.end())
            .map(|seat| self.class(seat).map_or(Promise::NONE, &promise))
            .collect();
        self.tree.is_of(promises.into_iter())
    }
}
