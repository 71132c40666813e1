//! Who has been passed over how often, and the node that is kept for one of them: the rule against starvation, as
//! [`super`] states it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::{MAX_SET_ASIDE, PASSES_BEFORE_RESERVATION, Queue, RESERVATION_TIME, Rank, Waiter};
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::node::Pool;

/// What is kept of the rule for one pool.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// How often waiters have been passed over; who is not in it never was.
    passes: BTreeMap<Rank, u32>,
    /// Those for which no node can be reserved, the latest last.
    aside: VecDeque<Rank>,
    reservation: Option<Reservation>,
}

/// A node that is kept for a waiter.
#[derive(Debug)]
struct Reservation {
    rank: Rank,
    instance: InstanceId,
    node: NodeKey,
    until: Instant,
}

impl Turns {
    /// Forgets a waiter that is taken out.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.passes.remove(&rank);
        self.aside.retain(|other| *other != rank);
        self.reservation.take_if(|kept| kept.rank == rank);
    }

    /// When the reservation ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.reservation.as_ref().map(|kept| kept.until)
    }

    /// Whom it knows of.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        let kept = self.reservation.iter().map(|kept| kept.rank);
        self.passes.keys().chain(&self.aside).copied().chain(kept)
    }

    /// Ends the reservation if it is such a one; the passes of its waiter begin again.
    fn end_if(&mut self, is_such: impl FnOnce(&Reservation) -> bool) -> Option<Reservation> {
        let ended = self.reservation.take_if(|kept| is_such(kept))?;
        self.passes.remove(&ended.rank);
        Some(ended)
    }
}

impl Queue {
    /// Counts a placement: of a waiter that has just been taken out, by the place it had, or of a START that came now,
    /// by [`Rank::newest`].
    pub(crate) fn placed(&mut self, pool: Pool, placed: Rank) {
        let Some(head) = self.watched(pool).map(Waiter::rank) else {
            return;
        };
        let turns = &mut self.turns[pool as usize];
        let has_node = matches!(&turns.reservation, Some(kept) if kept.rank == head);
        if head < placed && !has_node {
            let passes = turns.passes.entry(head).or_default();
            *passes = passes.saturating_add(1);
        }
    }

    /// The head of a pool, if it has been passed over so often that a node is to be reserved for it, and none is kept
    /// for another.
    pub(crate) fn reserving(&self, pool: Pool) -> Option<&Waiter> {
        let turns = &self.turns[pool as usize];
        if turns.reservation.is_some() || turns.passes.is_empty() {
            return None;
        }
        let head = self.watched(pool)?;
        let passes = turns.passes.get(&head.rank()).copied().unwrap_or(0);
        (passes >= PASSES_BEFORE_RESERVATION).then_some(head)
    }

    /// Keeps a node for a waiter from now on; whether it does: not if the instance does not wait, its pool has a
    /// reservation, or the node is kept for another.
    pub(crate) fn reserve(&mut self, instance: &InstanceId, node: NodeKey, now: Instant) -> bool {
        let Some(waiter) = self.waiter(instance) else {
            return false;
        };
        let (pool, rank) = (waiter.pool, waiter.rank());
        if self.reservation(pool).is_some() || self.reserved(node).is_some() {
            return false;
        }
        self.turns[pool as usize].reservation = Some(Reservation {
            rank,
            instance: instance.clone(),
            node,
            until: now + RESERVATION_TIME,
        });
        true
    }

    /// For whom a node is kept: nothing else is placed there but what stands before it in the order.
    pub(crate) fn reserved(&self, node: NodeKey) -> Option<&InstanceId> {
        let mut kept = self
            .turns
            .iter()
            .filter_map(|turns| turns.reservation.as_ref());
        kept.find(|kept| kept.node == node)
            .map(|kept| &kept.instance)
    }

    /// Whether a node is open to what has this place in the order of a pool: it is not kept for anybody, or for somebody of
    /// the same pool who does not stand before it.
    pub(crate) fn is_open(&self, node: NodeKey, pool: Pool, rank: Rank) -> bool {
        let mut reservations = Pool::ALL.into_iter().filter_map(|kept_for| {
            let kept = self.turns[kept_for as usize].reservation.as_ref()?;
            (kept.node == node).then_some((kept_for, kept.rank))
        });
        reservations.all(|(kept_for, kept)| kept_for == pool && rank <= kept)
    }

    /// The node that is kept for an instance.
    pub(crate) fn node_kept_for(&self, instance: &InstanceId) -> Option<NodeKey> {
        let mut kept = self
            .turns
            .iter()
            .filter_map(|turns| turns.reservation.as_ref());
        kept.find(|kept| kept.instance == *instance)
            .map(|kept| kept.node)
    }

    /// The reservation of a pool: for whom, and which node.
    pub(crate) fn reservation(&self, pool: Pool) -> Option<(&InstanceId, NodeKey)> {
        let kept = self.turns[pool as usize].reservation.as_ref()?;
        Some((&kept.instance, kept.node))
    }

    /// Gives a node free: it was lost, or cannot run the waiter any more. Names for whom it was kept.
    pub(crate) fn unreserve(&mut self, node: NodeKey) -> Option<InstanceId> {
        let mut turns = self.turns.iter_mut();
        let ended = turns.find_map(|turns| turns.end_if(|kept| kept.node == node))?;
        Some(ended.instance)
    }

    /// Ends a reservation whose time is over, and names its node: others may be placed there now.
    pub(crate) fn take_ended_reservation(&mut self, now: Instant) -> Option<NodeKey> {
        let mut turns = self.turns.iter_mut();
        let ended = turns.find_map(|turns| turns.end_if(|kept| kept.until <= now))?;
        Some(ended.node)
    }

    /// Says that no node can be reserved for a waiter as things are: it no longer stands before others in this.
    pub(crate) fn set_aside(&mut self, instance: &InstanceId) {
        let Some(waiter) = self.waiter(instance) else {
            return;
        };
        let (pool, rank) = (waiter.pool, waiter.rank());
        let turns = &mut self.turns[pool as usize];
        turns.passes.remove(&rank);
        turns.aside.retain(|other| *other != rank);
        if turns.aside.len() >= MAX_SET_ASIDE {
            turns.aside.pop_front();
        }
        turns.aside.push_back(rank);
    }

    /// No one is set aside any more: a node has joined, or is not what it was.
    pub(crate) fn reconsider(&mut self, pool: Pool) {
        self.turns[pool as usize].aside.clear();
    }

    /// Whose passes are counted: the first in order that is not set aside.
    fn watched(&self, pool: Pool) -> Option<&Waiter> {
        let aside = &self.turns[pool as usize].aside;
        self.iter_after(pool, None)
            .find(|waiter| !aside.contains(&waiter.rank()))
    }
}
