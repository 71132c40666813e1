//! The queue of who waits on its own, for `benches/queue.rs`: what it adds to a READY is less than a READY costs.

use std::sync::Arc;

use sched_model::Uuid;

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::queue::{Begin, Found, Queue, Rank, Room, Waiter};

/// Those who wait to be started, instance `n` as the `n`th that came.
#[derive(Debug, Default)]
pub struct BenchQueue(Queue);

/// What a search has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BenchFound {
    /// A waiter that fits.
    Waiter,
    /// No waiter fits.
    NoWaiter,
    /// It gave up, to go on later.
    GaveUp,
}

impl BenchQueue {
    /// Lets one wait, of this tenant, which is of another shape than those of others, and for this host if one is named.
    pub fn push(&mut self, order: u64, asked: Resources, tenant: u64, hostname: Option<&str>) {
        let request = StartRequest {
            asked,
            hostname: hostname.map(Into::into),
            tenant: Some(InstanceId::Uuid(Uuid::from_u128(tenant.into()))),
            ..StartRequest::plain(InstanceId::DryRun(0))
        };
        let query = Query::of(&Arc::new(request));
        let waiter = Waiter::to_start(instance(order), (0, order), &query);
        self.0
            .push(waiter)
            .expect("the benchmark stays within bounds");
    }

    /// Takes one out and puts it back.
    pub fn take_and_put_back(&mut self, order: u64) {
        if let Some(waiter) = self.0.remove(&instance(order)) {
            self.0.push(waiter).expect("it has just been there");
        }
    }

    /// One round of looking for who fits into so much on a node that may run any shape, or none.
    #[must_use]
    pub fn candidate(&self, free: Resources, may: bool) -> BenchFound {
        let begin = Begin::AtHead;
        match self
            .0
            .candidate(Pool::Compute, &room(free), begin, |_, _| may)
        {
            Found::First(_) => BenchFound::Waiter,
            Found::Nothing => BenchFound::NoWaiter,
            Found::GaveUp(_) => BenchFound::GaveUp,
        }
    }

    /// Whether a START above the lowest priority waits for a node with so much in all.
    #[must_use]
    pub fn outranks(&self, capacity: Resources) -> bool {
        self.0
            .outranks(Pool::Compute, &room(capacity), 0, |_, _| true)
    }

    /// Counts a placement that passes over the head.
    pub fn placed(&mut self) {
        self.0.placed(Pool::Compute, Rank::newest(0));
    }

    /// Which in the order one is.
    #[must_use]
    pub fn position(&self, order: u64) -> Option<usize> {
        self.0.position(&instance(order))
    }
}

fn instance(order: u64) -> InstanceId {
    InstanceId::Uuid(Uuid::from_u128(order.into()))
}

fn room(free: Resources) -> Room<'static> {
    Room {
        node: NodeKey(0),
        uuid: Uuid::from_u128(1),
        hostname: "node-0",
        free,
    }
}
