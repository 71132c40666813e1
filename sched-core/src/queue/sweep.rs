//! Tries some of those that wait from time to time. Some changes that let an instance fit wake no node, because no node
//! offers more by them: a member of a group has left another rack, or a node has fewer STARTs under way.

use std::time::{Duration, Instant};

use super::{Purpose, Queue, Rank};
use crate::api::ids::InstanceId;
use crate::cluster::node::Pool;

/// Time between two looks.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Waiters of each pool that are tried each time; the next time goes on behind them, and at the end from the head
/// again.
const SWEPT_AT_ONCE: usize = 16;

/// When the next sweep is, and behind which rank it begins in each pool.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    at: Option<Instant>,
    after: [Option<Rank>; 2],
}

impl Queue {
    /// When the next sweep is due; never while nothing waits.
    pub(crate) fn sweep_due(&self, now: Instant) -> Option<Instant> {
        (!self.is_empty()).then(|| self.sweep.at.unwrap_or(now))
    }

    /// Begins a sweep if one is due; whether there is something to try ([`Queue::take_swept`]).
    pub(crate) fn begin_sweep(&mut self, now: Instant) -> bool {
        if self.sweep_due(now).is_none_or(|due| due > now) {
            return false;
        }
        let is_first = self.sweep.at.is_none_or(|at| at + SWEEP_EVERY < now);
        self.sweep.at = Some(now + SWEEP_EVERY);
        // The first sweep after a pause tries nothing: those that wait were tried when they came.
        !is_first
    }

    /// The instances of a pool to be tried in this sweep. Only those that wait to be started: suspended ones have a
    /// timer of their own.
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
