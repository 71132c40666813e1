//! What happens because time passed. A tick runs the timers that are due, kind by kind in the order of `Kind::ALL`, and
//! each kind as often as [`MAX_PER_TICK`] allows; what is left is due at once in the next tick. Between two ticks the
//! lock is released, so frames of peers are not kept waiting for long.

use std::time::Instant;

use crate::Scheduler;
use crate::api::action::Action;
use crate::api::ids::NodeKey;
use crate::batches::BATCHES_PER_TICK;
use crate::query::records::is_lost_with;
use crate::timers::{Kind, Timer, earlier};

/// STARTs that fail, or instances that are looked at, for one kind of timers in one tick before it ends; a tick that
/// has more to do is due again at once. Bounds how long the loss of many nodes delays everything else.
const MAX_PER_TICK: usize = 256;

impl Scheduler {
    /// Runs what is due. Timers that components keep in an order of their own are asked for their next time before each
    /// kind.
    pub(crate) fn tick(&mut self, now: Instant) {
        for kind in Kind::ALL {
            // What was run before may have more due by now.
            self.set_timers();
            let mut done = 0;
            while done < MAX_PER_TICK
                && let Some(timer) = self.timers.pop_due(kind, now)
            {
                done += self.run(now, timer);
            }
        }
        self.peers.forget_outcomes(now);
        self.give_back_memory();
    }

    /// Runs one timer. Returns how much of [`MAX_PER_TICK`] it used; kinds that deal with many things at a time use all
    /// of it, and set their timer again for what is left.
    fn run(&mut self, now: Instant, timer: Timer) -> usize {
        match timer {
            Timer::GiveUp(key) => return self.give_up(key),
            Timer::Lease(key) => {
                self.end_if_silent(now, key);
                return 0;
            }
            Timer::Drain(uuid) => {
                self.drain_is_late(uuid);
                return 0;
            }
            Timer::AskAgain(instance) => {
                self.ask_again(&instance);
                return 1;
            }
            Timer::LookAgain(instance) => {
                self.look_again(&instance);
                return 1;
            }
            Timer::Recovery => self.end_recovery(now),
            Timer::LateBatches => self.fail_late_batches(now),
            Timer::Disk => self.disk_due(now, MAX_PER_TICK),
            Timer::Sweep => self.sweep(now),
            Timer::QueueDeadlines => self.fail_late_waiters(now, MAX_PER_TICK),
            Timer::States => self.states_due(now, MAX_PER_TICK),
            Timer::Rest => {
                self.sync_if_due();
                self.send_unsent_failures();
            }
            Timer::Reservations => self.end_reservations(now),
            Timer::Reads => self.fail_late_reads(now, MAX_PER_TICK),
            Timer::DrainRetry => self.cluster.retry_drains(now),
        }
        MAX_PER_TICK
    }

    /// Sets the timers of what components keep in their own order.
    pub(crate) fn set_timers(&mut self) {
        let is_rest = self.queue.has_work()
            || self.cluster.has_stirred_drains()
            || self.sync.is_page_due(&self.peers)
            || self.has_failures_to_send();
        let [deadline, reservation, sweep] = self.queue.dues(self.now);
        let disk = earlier(self.journal.due(), self.brief_due());
        let timers = &mut self.timers;
        timers.follow(Kind::Disk, disk);
        timers.follow(Kind::States, self.instances.due());
        timers.follow(Kind::QueueDeadlines, deadline);
        timers.follow(Kind::Reservations, reservation);
        timers.follow(Kind::Sweep, sweep);
        timers.follow(Kind::DrainRetry, self.cluster.drain_retry_due());
        timers.follow(Kind::Reads, self.peers.reads().due());
        timers.follow(Kind::Rest, is_rest.then_some(self.now));
    }

    /// The recovery window closes if it is time to, and once it has what waited for that is tried again.
    fn end_recovery(&mut self, now: Instant) {
        if self.recovery.close_if_due(now) {
            self.lose_expected_nodes();
            self.act(Action::RememberNodes);
        }
        if !self.recovery.is_open() {
            self.retry_recovery(now, MAX_PER_TICK);
            self.retry_batches(now, BATCHES_PER_TICK);
        }
        self.set_recovery_timer();
    }

    /// Has the recovery window closed in time, and what waited for that tried again at once.
    pub(crate) fn set_recovery_timer(&mut self) {
        let mut due = self.recovery.due();
        if !self.recovery.is_open() {
            due = due.into_iter().chain(self.batches.complete_due()).min();
        }
        self.timers.put(Timer::Recovery, due);
    }

    /// Gives up a lost node once its in-doubt time is over: a drain of it ends, managed instances on it are placed
    /// again or reported, its claims are released, and STARTs in doubt on it have failed. Returns how many those were.
    /// From here on its key is not valid. Does nothing if the node is back.
    pub(crate) fn give_up(&mut self, key: NodeKey) -> usize {
        let cluster = &self.cluster;
        if !cluster.contains(key) || cluster.session(key).is_some() {
            return 0;
        }
        self.drained_node_is_lost(key);
        self.managed_given_up(key);
        self.timers.cancel(&Timer::GiveUp(key));
        self.timers.cancel(&Timer::Lease(key));
        let ledger = self.cluster.ledger(key);
        let claims = self
            .sight()
            .claims_of(ledger, is_lost_with(&self.cluster, key));
        let Some(node) = self.cluster.remove_node(key) else {
            return 0;
        };
        self.placement.forget_tries_on(key, |_| false);
        self.remember_lost(&node);
        self.remember_claims(&node, claims);
        for (instance, entry) in node.ledger().entries_from(0) {
            self.batches.note_lost(instance);
            if let Some(start) = entry.unconfirmed() {
                let place = (node.uuid(), node.hostname_text());
                self.fail_unconfirmed(instance, start, place, Some(entry.since()));
            }
        }
        self.act(Action::RememberNodes);
        node.ledger().unconfirmed()
    }

    /// Shrinks tables that have become far too large, so that the memory of a burst of nodes or instances is given
    /// back.
    pub(crate) fn give_back_memory(&mut self) {
        const SHRINK_ABOVE: usize = 4096;
        self.placement.forget_old(self.now);
        self.cluster.give_back_memory(SHRINK_ABOVE);
        self.peers.give_back_memory(SHRINK_ABOVE);
    }
}
