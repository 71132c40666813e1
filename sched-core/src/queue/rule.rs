//! The rule against starvation for one pool, as [`super`] states it: how often waiters have been passed over, who is
//! parked, and the node that is reserved for one of them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use super::rank::Rank;
use super::{MAX_PARKED, PASSES_BEFORE_RESERVATION};
use crate::api::ids::{InstanceId, NodeKey};

/// The state of the rule for one pool.
#[derive(Debug, Default)]
pub(super) struct ReservationRule {
    /// How often waiters have been passed over; those that never were are not listed.
    passes: BTreeMap<Rank, u32>,
    /// Parked waiters, for which no node can be reserved, the latest last.
    pub(super) parked: VecDeque<Rank>,
    /// The node that is reserved, and for whom.
    pub(super) reservation: Option<Reservation>,
}

/// A node that is reserved for a waiter until a time.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) rank: Rank,
    pub(super) instance: InstanceId,
    pub(super) node: NodeKey,
    pub(super) until: Instant,
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

    /// Counts a pass of the head by what was `placed`, if the head comes before that and has no node reserved.
    pub(super) fn count_pass(&mut self, head: Rank, placed: Rank) {
        let has_node = matches!(&self.reservation, Some(kept) if kept.rank == head);
        if head < placed && !has_node {
            let passes = self.passes.entry(head).or_default();
            *passes = passes.saturating_add(1);
        }
    }

    /// Whether a node may be reserved: none is, and somebody has been passed over.
    pub(super) fn may_reserve(&self) -> bool {
        self.reservation.is_none() && !self.passes.is_empty()
    }

    /// Whether a waiter has been passed over so often that a node is to be reserved for it.
    pub(super) fn wants_node(&self, rank: Rank) -> bool {
        let passes = self.passes.get(&rank).copied().unwrap_or(0);
        passes >= PASSES_BEFORE_RESERVATION
    }

    /// Ends the reservation if this holds for it; the passes of its waiter are counted from 0 then.
    pub(super) fn end_if(
        &mut self,
        is_such: impl FnOnce(&Reservation) -> bool,
    ) -> Option<Reservation> {
        let ended = self.reservation.take_if(|kept| is_such(kept))?;
        self.passes.remove(&ended.rank);
        Some(ended)
    }

    /// Parks a waiter; the one parked longest is unparked if there are too many.
    pub(super) fn park(&mut self, rank: Rank) {
        self.passes.remove(&rank);
        self.parked.retain(|other| *other != rank);
        if self.parked.len() >= MAX_PARKED {
            self.parked.pop_front();
        }
        self.parked.push_back(rank);
    }
}
