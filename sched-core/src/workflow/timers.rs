//! What happens because time passed: lost nodes are given up, the settle window closes.

use std::time::Instant;

use crate::Scheduler;
use crate::api::action::Action;
use crate::api::ids::NodeKey;
use crate::cluster::node::Presence;
use crate::workflow::batches::BATCHES_PER_TICK;

/// STARTs that fail in one tick before it ends; a tick that has more to do is due again at once. What bounds how long
/// the loss of many nodes keeps everybody else waiting.
const MAX_FAILURES_PER_TICK: usize = 256;

impl Scheduler {
    pub(crate) fn tick(&mut self, now: Instant) {
        let mut starts = 0;
        while let Some(&(due, key)) = self.lost.front()
            && due <= now
            && starts < MAX_FAILURES_PER_TICK
        {
            self.lost.pop_front();
            starts += self.give_up(due, key);
        }
        if self.settling.close_if_due(now) {
            self.act(Action::RememberNodes);
        }
        if !self.settling.is_open() {
            self.retry_settling(now, MAX_FAILURES_PER_TICK);
            self.retry_batches(now, BATCHES_PER_TICK);
        }
        self.fail_late_batches(now);
        self.disk_due(now, MAX_FAILURES_PER_TICK);
        self.end_silent(now);
        self.sweep(now);
        self.fail_late_waiters(now, MAX_FAILURES_PER_TICK);
        self.instances_due(now, MAX_FAILURES_PER_TICK);
        if self.briefing.is_page_due(&self.peers) {
            self.brief_on();
        }
        self.end_reservations(now);
        self.look_at_evicted(now, MAX_FAILURES_PER_TICK);
        self.drains_due(now);
        self.outcomes.forget_old(now);
        self.forget_old_claims();
        self.give_back_memory();
    }

    /// Forgets a node that has not come back; STARTs in doubt on it have failed. Says how many those were.
    fn give_up(&mut self, due: Instant, key: NodeKey) -> usize {
        let is_due = self
            .cluster
            .nodes()
            .iter_from(key.0 as usize)
            .next()
            .is_some_and(|(found, node)| {
                found == key && matches!(node.presence, Presence::Lost(at) if at + self.config.in_doubt_time == due)
            });
        if !is_due {
            // It has come back since; if it was lost again, a later turn is its own.
            return 0;
        }
        self.drained_node_is_lost(key);
        self.kept_given_up(key);
        let Some(node) = self.cluster.remove_node(key) else {
            return 0;
        };
        self.tries.forget_on(key, |_| false);
        if !node.is_native {
            self.remember_claims(node.uuid, &node.ledger);
        }
        for (instance, entry) in node.ledger.entries_from(0) {
            self.batches.note_lost(instance);
            if let Some(start) = entry.unconfirmed() {
                self.fail_unconfirmed(instance, start);
            }
        }
        self.act(Action::RememberNodes);
        node.ledger.unconfirmed()
    }

    /// Shrinks what has become far too large, so that a burst of nodes or instances is not paid for for ever.
    pub(crate) fn give_back_memory(&mut self) {
        const SHRINK_ABOVE: usize = 4096;
        self.placement.forget_old(self.now);
        if self.lost.capacity() > SHRINK_ABOVE && self.lost.len() < self.lost.capacity() / 4 {
            self.lost.shrink_to(2 * self.lost.len());
        }
        self.cluster.give_back_memory(SHRINK_ABOVE);
        self.peers.give_back_memory(SHRINK_ABOVE);
    }
}
