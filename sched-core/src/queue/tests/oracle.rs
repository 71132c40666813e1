//! The same questions asked of a plain list of waiters, each of whom is looked at in turn.

use std::time::Instant;

use super::super::{AllowedNodes, Purpose, Rank, Room, Shape, Waiter};
use crate::api::ids::{InstanceId, NodeKey, canonical_uuid};
use crate::cluster::node::Pool;

/// Waiters, in the order in which they were put in.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    pub(super) all: Vec<Waiter>,
}

impl Oracle {
    pub(super) fn remove(&mut self, instance: &InstanceId) -> Option<Waiter> {
        let at = self.all.iter().position(|one| one.instance == *instance)?;
        Some(self.all.remove(at))
    }

    /// Those of a pool in order.
    pub(super) fn in_order(&self, pool: Pool) -> Vec<&Waiter> {
        let mut all: Vec<&Waiter> = self.all.iter().filter(|one| one.pool == pool).collect();
        all.sort_by_key(|one| (u8::MAX - one.priority, one.order));
        all
    }

    pub(super) fn position(&self, instance: &InstanceId) -> Option<usize> {
        let waiter = self.all.iter().find(|one| one.instance == *instance)?;
        let order = self.in_order(waiter.pool);
        let at = order.iter().position(|one| one.instance == *instance)?;
        Some(at + 1)
    }

    pub(super) fn candidate(
        &self,
        pool: Pool,
        room: &Room<'_>,
        after: Option<Rank>,
        may: impl Fn(&Shape) -> bool,
    ) -> Option<InstanceId> {
        let order = self.in_order(pool);
        let mut behind = order
            .iter()
            .filter(|one| after.is_none_or(|after| one.rank() > after));
        let found = behind.find(|one| could_go(one, room) && may(&one.shape))?;
        Some(found.instance.clone())
    }

    pub(super) fn outranks(
        &self,
        pool: Pool,
        room: &Room<'_>,
        priority: u8,
        may: impl Fn(&Shape) -> bool,
    ) -> bool {
        let mut order = self.in_order(pool).into_iter();
        order.any(|one| {
            one.priority > priority
                && one.purpose == Purpose::Start
                && could_go(one, room)
                && may(&one.shape)
        })
    }

    pub(super) fn waiting_for(&self, node: NodeKey) -> Vec<InstanceId> {
        let only = self
            .all
            .iter()
            .filter(|one| one.place == AllowedNodes::Only(node));
        let mut names: Vec<_> = only.map(|one| one.instance.clone()).collect();
        names.sort();
        names
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.all.iter().filter_map(|one| one.deadline).min()
    }

    pub(super) fn bytes(&self) -> usize {
        self.all.iter().map(|one| one.bytes).sum()
    }
}

/// Whether a waiter is pinned to no other node and fits.
fn could_go(waiter: &Waiter, room: &Room<'_>) -> bool {
    let request = waiter.shape.query().request();
    let is_named = match (waiter.place, &request.node_id, &request.hostname) {
        // What its shape names beside is for `may`.
        (AllowedNodes::Only(node), _, _) => node == room.node,
        (_, Some(id), _) => canonical_uuid(id) == Some(room.uuid),
        (_, None, Some(hostname)) => **hostname == *room.hostname,
        (_, None, None) => true,
    };
    is_named && room.free.covers(&waiter.asked)
}
