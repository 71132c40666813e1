//! One that waits: for what, where it may go, and how long.

use std::sync::Arc;
use std::time::Instant;

use super::{Rank, Shape};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// To be started.
    Start,
    /// To be resumed: it is suspended on a node.
    Resume,
}

/// Where a waiter may go, beyond what its shape says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AllowedNodes {
    /// Wherever its shape allows.
    Anywhere,
    /// This node alone. The code that removes a node takes out or moves those who wait for it ([`Queue::waiting_for`](super::Queue::waiting_for)).
    Only(NodeKey),
}

/// One that waits.
#[derive(Debug, Clone)]
pub(crate) struct Waiter {
    pub(super) instance: InstanceId,
    pub(super) pool: Pool,
    /// 0 ..= 100, higher first.
    pub(super) priority: u8,
    /// Its arrival, from [`Queue::next_order`](super::Queue::next_order); kept when it is put back. No two waiters have the same.
    pub(super) order: u64,
    /// What has to be free now: of one that waits to be resumed vcpus alone.
    pub(super) asked: Resources,
    pub(super) place: AllowedNodes,
    pub(super) purpose: Purpose,
    pub(super) shape: Arc<Shape>,
    /// What is kept for it, counted towards [`MAX_QUEUED_BYTES`](super::MAX_QUEUED_BYTES).
    pub(super) bytes: usize,
    /// Whether an operator wants it started, rather than a controller.
    pub(super) is_operators: bool,
    /// How long it waits at most.
    pub(super) deadline: Option<Instant>,
}

impl Waiter {
    /// One that waits to be started wherever it may run.
    pub(crate) fn to_start(instance: InstanceId, rank: (u8, u64), query: &Query) -> Self {
        let (priority, order) = rank;
        Self {
            instance,
            pool: query.pool(),
            priority,
            order,
            asked: query.asked(),
            place: AllowedNodes::Anywhere,
            purpose: Purpose::Start,
            shape: Arc::new(Shape::of(query)),
            bytes: 0,
            is_operators: false,
            deadline: None,
        }
    }

    /// One that waits on its node for vcpus to be resumed.
    pub(crate) fn to_resume(
        instance: InstanceId,
        rank: (u8, u64),
        (node, pool): (NodeKey, Pool),
        vcpus: i64,
    ) -> Self {
        let plain = Arc::new(StartRequest::plain(instance.clone()));
        let asked = Resources {
            vcpus,
            ..Resources::ZERO
        };
        Self {
            pool,
            asked,
            place: AllowedNodes::Only(node),
            purpose: Purpose::Resume,
            ..Self::to_start(instance, rank, &Query::of(&plain))
        }
    }

    /// The same for an operator, if it is one's, with so many bytes kept for it.
    pub(crate) fn keeping(mut self, bytes: usize, is_operators: bool) -> Self {
        (self.bytes, self.is_operators) = (bytes, is_operators);
        self
    }

    /// The same until this moment at most.
    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Self {
        self.deadline = deadline;
        self
    }

    /// The same with another priority.
    pub(crate) fn with_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// The instance.
    pub(crate) fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// 0 ..= 100, higher first.
    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// Its arrival.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// What has to be free now.
    pub(crate) fn asked(&self) -> &Resources {
        &self.asked
    }

    /// Where it may go beyond what its shape says.
    pub(crate) fn place(&self) -> AllowedNodes {
        self.place
    }

    /// What it waits for.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// What decides which nodes could run it.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Its place in the order.
    pub(crate) fn rank(&self) -> Rank {
        Rank::new(self.priority, self.order)
    }
}
