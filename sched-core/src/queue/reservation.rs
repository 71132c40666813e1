//! How often waiters have been passed over, and the node that is reserved for one of them: the rule against starvation,
//! as [`super`] states it. At work in `workflow::reservations`.
//!
//! Passes are counted for the head of a pool alone: the first in order that is not parked. Each pool has at most one
//! reservation.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::{MAX_PARKED, PASSES_BEFORE_RESERVATION, Queue, RESERVATION_TIME, Rank, Waiter};
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::node::Pool;

/// The state of the rule for one pool.
#[derive(Debug, Default)]
pub(super) struct ReservationRule {
    /// How often waiters have been passed over; those that never were are not listed.
    passes: BTreeMap<Rank, u32>,
    /// Parked waiters, for which no node can be reserved, the latest last.
    parked: VecDeque<Rank>,
    reservation: Option<Reservation>,
}

/// A node that is reserved for a waiter until a time.
#[derive(Debug)]
struct Reservation {
    rank: Rank,
    instance: InstanceId,
    node: NodeKey,
    until: Instant,
}

impl ReservationRule {
    /// Forgets a waiter that has left the queue; a reservation for it ends.
    pub(super) fn forget(&mut self, rank: Rank) {
        self.passes.remove(&rank);
        self.parked.retain(|other| *other != rank);
        self.reservation.take_if(|kept| kept.rank == rank);
    }

    /// When the reservation ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.reservation.as_ref().map(|kept| kept.until)
    }

    /// All ranks it mentions, for the check that they are in the queue.
    pub(super) fn ranks(&self) -> impl Iterator<Item = Rank> {
        let kept = self.reservation.iter().map(|kept| kept.rank);
        self.passes.keys().chain(&self.parked).copied().chain(kept)
    }

    /// Ends the reservation if this holds for it; the passes of its waiter are counted from 0 then.
    fn end_if(&mut self, is_such: impl FnOnce(&Reservation) -> bool) -> Option<Reservation> {
        let ended = self.reservation.take_if(|kept| is_such(kept))?;
        self.passes.remove(&ended.rank);
        Some(ended)
    }
}

impl Queue {
    /// Counts a placement against the head of the pool, if it comes before what was placed and has no node reserved.
    /// `placed` is the rank of a waiter that has just left the queue, or [`Rank::newest`] for a START that did not
    /// wait.
    pub(crate) fn placed(&mut self, pool: Pool, placed: Rank) {
        let Some(head) = self.watched(pool).map(Waiter::rank) else {
            return;
        };
        let rule = &mut self.rules[pool as usize];
        let has_node = matches!(&rule.reservation, Some(kept) if kept.rank == head);
        if head < placed && !has_node {
            let passes = rule.passes.entry(head).or_default();
            *passes = passes.saturating_add(1);
        }
    }

    /// The head of a pool, if it has been passed over so often that a node is to be reserved for it, and none is kept
    /// for another.
    pub(crate) fn reserving(&self, pool: Pool) -> Option<&Waiter> {
        let rule = &self.rules[pool as usize];
        if rule.reservation.is_some() || rule.passes.is_empty() {
            return None;
        }
        let head = self.watched(pool)?;
        let passes = rule.passes.get(&head.rank()).copied().unwrap_or(0);
        (passes >= PASSES_BEFORE_RESERVATION).then_some(head)
    }

    /// Reserves a node for a waiter; whether it did: not if the instance does not wait, its pool has a reservation, or
    /// the node is reserved.
    pub(crate) fn reserve(&mut self, instance: &InstanceId, node: NodeKey, now: Instant) -> bool {
        let Some(waiter) = self.waiter(instance) else {
            return false;
        };
        let (pool, rank) = (waiter.pool, waiter.rank());
        if self.reservation(pool).is_some() || self.reserved(node).is_some() {
            return false;
        }
        self.rules[pool as usize].reservation = Some(Reservation {
            rank,
            instance: instance.clone(),
            node,
            until: now + RESERVATION_TIME,
        });
        true
    }

    /// The instance that a node is reserved for. Nothing else is placed there except what comes before it in the order.
    pub(crate) fn reserved(&self, node: NodeKey) -> Option<&InstanceId> {
        let mut kept = self
            .rules
            .iter()
            .filter_map(|rule| rule.reservation.as_ref());
        kept.find(|kept| kept.node == node)
            .map(|kept| &kept.instance)
    }

    /// Whether an instance of this rank and pool may be placed on a node: the node is not reserved, or for an instance
    /// of the same pool that is not before it.
    pub(crate) fn is_open(&self, node: NodeKey, pool: Pool, rank: Rank) -> bool {
        let mut reservations = Pool::ALL.into_iter().filter_map(|kept_for| {
            let kept = self.rules[kept_for as usize].reservation.as_ref()?;
            (kept.node == node).then_some((kept_for, kept.rank))
        });
        reservations.all(|(kept_for, kept)| kept_for == pool && rank <= kept)
    }

    /// The node that is reserved for an instance.
    pub(crate) fn node_kept_for(&self, instance: &InstanceId) -> Option<NodeKey> {
        let mut kept = self
            .rules
            .iter()
            .filter_map(|rule| rule.reservation.as_ref());
        kept.find(|kept| kept.instance == *instance)
            .map(|kept| kept.node)
    }

    /// The reservation of a pool: for whom, and which node.
    pub(crate) fn reservation(&self, pool: Pool) -> Option<(&InstanceId, NodeKey)> {
        let kept = self.rules[pool as usize].reservation.as_ref()?;
        Some((&kept.instance, kept.node))
    }

    /// Ends the reservation of a node, because it was lost or may not be able to run the waiter any more; returns that
    /// one.
    pub(crate) fn unreserve(&mut self, node: NodeKey) -> Option<InstanceId> {
        let mut rules = self.rules.iter_mut();
        let ended = rules.find_map(|rule| rule.end_if(|kept| kept.node == node))?;
        Some(ended.instance)
    }

    /// Ends a reservation whose time is over; returns its node, which is to be offered to all that wait.
    pub(crate) fn take_ended_reservation(&mut self, now: Instant) -> Option<NodeKey> {
        let mut rules = self.rules.iter_mut();
        let ended = rules.find_map(|rule| rule.end_if(|kept| kept.until <= now))?;
        Some(ended.node)
    }

    /// Parks a waiter as far as this rule goes: no node can be reserved for it as things are. It still waits as before.
    /// The one parked longest is unparked if there are too many.
    pub(crate) fn park(&mut self, instance: &InstanceId) {
        let Some(waiter) = self.waiter(instance) else {
            return;
        };
        let (pool, rank) = (waiter.pool, waiter.rank());
        let rule = &mut self.rules[pool as usize];
        rule.passes.remove(&rank);
        rule.parked.retain(|other| *other != rank);
        if rule.parked.len() >= MAX_PARKED {
            rule.parked.pop_front();
        }
        rule.parked.push_back(rank);
    }

    /// Unparks all waiters of a pool: a node has joined or changed.
    pub(crate) fn reconsider(&mut self, pool: Pool) {
        self.rules[pool as usize].parked.clear();
    }

    /// The waiter whose passes are counted: the first in order that is not parked.
    fn watched(&self, pool: Pool) -> Option<&Waiter> {
        let parked = &self.rules[pool as usize].parked;
        self.iter_after(pool, None)
            .find(|waiter| !parked.contains(&waiter.rank()))
    }
}
