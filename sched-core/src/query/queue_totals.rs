//! How many instances wait for room, for how long, and for what; for the metrics. Gathered in steps, as the totals are.

use std::time::{Duration, Instant};

use crate::Scheduler;
use crate::cluster::node::Pool;
use crate::query::totals::Totals;
use crate::queue::{AllowedNodes, Purpose, Rank, Waiter};

/// Waiters that one step looks at: some 100 µs.
const WAITERS_PER_STEP: usize = 500;

/// Where the next step goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotalsCursor {
    pool: usize,
    after: Option<(u8, u64)>,
}

/// Sums over the instances that wait. Each is counted for one reason only, the first of those below that holds. The
/// reasons compare with the most that is free on any one node, so they are quick to tell and not exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueTotals {
    /// How many wait.
    pub waiting: u64,
    /// How long the oldest of them has waited.
    pub oldest: Duration,
    /// Those that ask for more memory than any node has free.
    pub memory: u64,
    /// Of the others, those that ask for more virtual CPUs than any node has free.
    pub vcpus: u64,
    /// Of the others, those that ask for more disk than any node has free.
    pub disk: u64,
    /// Of the others, those that wait for one node.
    pub pinned: u64,
    /// Of the others, those that wait to be resumed.
    pub resume: u64,
    /// The others: no single node has everything they ask for, or they may not run where there is room.
    pub placement: u64,
}

impl QueueTotals {
    /// How many wait for what.
    #[must_use]
    pub fn blocked(&self) -> [(&'static str, u64); 6] {
        [
            ("memory", self.memory),
            ("vcpus", self.vcpus),
            ("disk", self.disk),
            ("pinned", self.pinned),
            ("resume", self.resume),
            ("placement", self.placement),
        ]
    }

    /// Counts one waiter.
    fn add(&mut self, waiter: &Waiter, largest: &Totals) {
        self.waiting += 1;
        let asked = waiter.asked();
        let of = if asked.mem_mib > largest.mem.largest_free {
            &mut self.memory
        } else if asked.vcpus > largest.vcpus.largest_free {
            &mut self.vcpus
        } else if asked.disk_mib > largest.disk.largest_free {
            &mut self.disk
        } else if waiter.purpose() == Purpose::Resume {
            &mut self.resume
        } else if waiter.place() != AllowedNodes::Anywhere {
            &mut self.pinned
        } else {
            &mut self.placement
        };
        *of += 1;
    }
}

impl Scheduler {
    /// Adds some of those that wait to a sum. Returns where to go on, `None` once all were added. `totals` must be
    /// complete: it has the most that is free on a node.
    pub fn add_queue_totals(
        &self,
        now: Instant,
        from: QueueTotalsCursor,
        totals: &Totals,
        sum: &mut QueueTotals,
    ) -> Option<QueueTotalsCursor> {
        let pool = *Pool::ALL.get(from.pool)?;
        let after = from
            .after
            .map(|(priority, order)| Rank::new(priority, order));
        let mut last = None;
        for waiter in self.queue.iter_after(pool, after).take(WAITERS_PER_STEP) {
            sum.add(waiter, totals);
            if let Some(managed) = self.instances.get(waiter.instance()) {
                let waited = now.saturating_duration_since(managed.arrived());
                sum.oldest = sum.oldest.max(waited);
            }
            last = Some((waiter.priority(), waiter.order()));
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
