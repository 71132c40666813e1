//! What happens because time passed. A tick runs the timers that are due, kind by kind in the order of `Kind::ALL`, and
//! each kind as often as [`MAX_PER_TICK`] allows; what is left is due at once in the next tick. Between two ticks the
//! lock is released, so frames of peers are not kept waiting for long.

use std::time::Instant;

use crate::Scheduler;
use crate::api::action::Action;
use crate::instance::{Placing, State};
use crate::pending::batches::BATCHES_PER_TICK;
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
            Timer::QueueDeadlines => {
                self.fail_late_waiters(now, MAX_PER_TICK);
                self.end_late_arrays(now, MAX_PER_TICK);
            }
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
            || self.has_array_work()
            || self.cluster.has_stirred_drains()
            || self.sync.is_page_due(&self.peers)
            || self.has_failures_to_send();
        let [deadline, reservation, sweep] = self.queue.dues(self.now);
        let disk = earlier(
            self.pending.disk_due(),
            earlier(self.journal.due(), self.brief_due()),
        );
        let timers = &mut self.timers;
        timers.follow(Kind::Disk, disk);
        timers.follow(Kind::States, self.instances.due());
        let deadline = earlier(deadline, self.arrays.due());
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

    /// The deadlines of up to `most` states are over: each is handed to the workflow of its state. States of rest have
    /// none.
    fn states_due(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(instance) = self.instances.take_due(now) else {
                return;
            };
            let Some(managed) = self.instances.get(&instance) else {
                continue;
            };
            match managed.state().clone() {
                State::Placing(Placing { node, .. }) => self.victims_are_late(node, &instance),
                State::Suspending { .. } | State::Resuming { .. } => {
                    self.suspension_late(&instance)
                }
                State::Stopping { node, .. } => self.stop_is_late(node, &instance),
                State::Migrating { .. } => self.move_is_late(&instance),
                State::Updating { .. } => self.update_is_late(&instance),
                State::Lost { node, then, .. } => self.loss_is_final(&instance, node, then),
                State::Seeking { .. }
                | State::Waiting { .. }
                | State::Running { .. }
                | State::Suspended { .. } => {}
            }
        }
    }
}
