//! How many instances wait for room, for how long, and for what; for the metrics. Gathered in steps, as the totals are.

use std::time::{Duration, Instant};

use sched_model::ReasonKind;

use crate::Scheduler;
use crate::cluster::node::Pool;
use crate::placement::explain::BlockedBy;
use crate::queue::Rank;

/// Waiters that one step looks at: some 100 µs.
const WAITERS_PER_STEP: usize = 500;

/// Where the next step goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotalsCursor {
    pool: usize,
    after: Option<(u8, u64)>,
}

/// Sums over the instances that wait. Each is counted for one reason, the one that its row has in a word: what the nodes
/// lack that could run it at all, as the explanation of this moment has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotals {
    /// How many wait.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest: Duration,
    /// Those that wait for memory.
    pub memory: u64,
    /// Those that wait for virtual CPUs.
    pub vcpus: u64,
    /// Those that wait for disk.
    pub disk: u64,
    /// Those that wait for a custom resource.
    pub resource: u64,
    /// Those that wait for one node, which is not connected or takes no work.
    pub pinned: u64,
    /// Those that wait to be resumed.
    pub resume: u64,
    /// Those that wait for something else: a label, a lost or cordoned node, their group.
    pub placement: u64,
    /// Those of which it was not counted, because too many different ones wait.
    pub not_counted: u64,
}

impl QueueTotals {
    /// How many wait for what.
    #[must_use]
    pub fn blocked(&self) -> [(&'static str, u64); 8] {
        [
            ("memory", self.memory),
            ("vcpus", self.vcpus),
            ("disk", self.disk),
            ("resource", self.resource),
            ("pinned", self.pinned),
            ("resume", self.resume),
            ("placement", self.placement),
            ("not_counted", self.not_counted),
        ]
    }

    /// Counts one waiter; `None` for one that waits to be resumed.
    fn add(&mut self, blocked: Option<&BlockedBy>) {
        self.waiting += 1;
        let of = match blocked {
            None => &mut self.resume,
            Some(BlockedBy::Amount(ReasonKind::Memory)) => &mut self.memory,
            Some(BlockedBy::Amount(ReasonKind::Vcpus)) => &mut self.vcpus,
            Some(BlockedBy::Amount(_)) => &mut self.disk,
            Some(BlockedBy::Resource(_)) => &mut self.resource,
            Some(BlockedBy::Pinned) => &mut self.pinned,
            Some(BlockedBy::Other(_) | BlockedBy::NoNode) => &mut self.placement,
            Some(BlockedBy::NotCounted) => &mut self.not_counted,
        };
        *of += 1;
    }
}

impl Scheduler {
    /// Adds some of those that wait to a sum. Returns where to go on, `None` once all were added.
    pub fn add_queue_totals(
        &mut self,
        now: Instant,
        from: QueueTotalsCursor,
        sum: &mut QueueTotals,
    ) -> Option<QueueTotalsCursor> {
        let pool = *Pool::ALL.get(from.pool)?;
        let after = from
            .after
            .map(|(priority, order)| Rank::new(priority, order));
        let waiters = self.queue.iter_after(pool, after).take(WAITERS_PER_STEP);
        let waiters = waiters.map(|it| (it.instance().clone(), (it.priority(), it.order())));
        let waiters: Vec<_> = waiters.collect();
        let last = waiters.last().map(|(_, rank)| *rank);
        for (instance, _) in waiters {
            let blocked = self.blocked_by(now, &instance);
            sum.add(blocked.as_ref());
            if let Some(managed) = self.instances.get(&instance) {
                let waited = now.saturating_duration_since(managed.arrived());
                sum.oldest = sum.oldest.max(waited);
            }
        }
        match last {
            Some(_) => Some(QueueTotalsCursor {
                after: last,
                ..from
            }),
            None => Some(QueueTotalsCursor {
                pool: from.pool + 1,
                after: None,
            }),
        }
    }
}
