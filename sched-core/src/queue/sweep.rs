//! Looks at some of those that wait, every now and then: that a member of a group has left another rack, or that a node
//! starts less at a time, makes no node offer more, and so wakes none.

use std::time::{Duration, Instant};

use super::{Purpose, Queue, Rank};
use crate::api::ids::InstanceId;
use crate::cluster::node::Pool;

/// Time between two looks.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Those looked at then, of each pool; the next ones have their turn the next time.
const SWEPT_AT_ONCE: usize = 16;

/// Where the looks at those that wait are.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    at: Option<Instant>,
    after: [Option<Rank>; 2],
}

impl Queue {
    /// When some of those that wait are looked at next.
    pub(crate) fn sweep_due(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty()).then(|| self.sweep.at.unwrap_or(now))
    }

    /// Begins a look at those that wait; whether there is one now ([`Queue::take_swept`]).
    pub(crate) fn begin_sweep(&mut self, now: Instant) -> bool {
        if self.sweep_due(now).is_none_or(|due| due > now) {
            return false;
        }
        let is_first = self.sweep.at.is_none_or(|at| at + SWEEP_EVERY < now);
        self.sweep.at = Some(now + SWEEP_EVERY);
        // Those who wait now were looked at when they came, if this is the first.
        !is_first
    }

    /// Those of a pool to be looked at with this look that wait to be started.
    pub(crate) fn take_swept(&mut self, pool: Pool) -> Vec<InstanceId> {
        let after = self.sweep.after[pool as usize];
        let waiting = self.iter_after(pool, after).take(SWEPT_AT_ONCE);
        let waiting: Vec<_> = waiting
            .map(|waiter| (waiter.instance.clone(), waiter.purpose, waiter.rank()))
            .collect();
        let is_last = waiting.len() < SWEPT_AT_ONCE;
        let last = waiting.last().map(|(_, _, rank)| *rank);
        self.sweep.after[pool as usize] = last.filter(|_| !is_last);
        let starts = waiting.into_iter().filter(|it| it.1 == Purpose::Start);
        starts.map(|(instance, ..)| instance).collect()
    }
}
