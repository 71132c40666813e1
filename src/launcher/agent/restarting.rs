//! An instance that is started again on this node, and the time that it may be there.
//!
//! ```text
//! Running ──ended──▶ Backoff ──pause over──▶ Starting ──▶ Running      the rule of its START says so (`restarts`)
//!                      │  └──time limit──▶ Exited (time_limit)
//!                      └──DELETE, EVACUATE, end of the lease──▶ Gone
//! ```
//! While it waits it keeps all that it holds, and is listed as an instance that does not run. What ends it for good comes
//! before a restart: a removal that is under way, its time limit, and the lease that it is under.

use std::time::{Duration, Instant};

use proto_frames::payload::RunProgress;
use tracing::info;

use super::ends::{Ran, Why};
use super::instances::{Instance, InstancePhase};
use super::restarts::{AfterEnd, RunEnd};
use super::{Agent, AgentAction, NodeClock, Processors, Removal, Respawn, Runs};

impl Instance {
    /// Notes figures of a run that is over. Of those that its supervisor could not say this node's count has one: how long
    /// it took.
    pub(super) fn note_ran(&mut self, now_ms: u64, ran: Ran) {
        if let Some(run_ms) = ran.counted_ms {
            self.terms.used.correct_run(now_ms, run_ms);
        }
        self.terms.is_over_time |= ran.why == Some(Why::TimeLimit);
        self.ran = ran;
    }

    /// Makes the figures of the latest run those of all of them, for its end to be told.
    pub(super) fn sum_up(&mut self, now_ms: u64) {
        if self.terms.is_over_time {
            self.ran.why = Some(Why::TimeLimit);
        }
        self.ran = self.ran.after(self.terms.earlier);
        if self.is_restarted() {
            self.ran.restarts = self.terms.restarts.count();
            self.ran.ran_ms = self.terms.used.since_begin(now_ms);
        }
        let limit = self.terms.time_limit_ms;
        self.ran.time_used_ms = limit.map(|_| self.terms.used.at(now_ms));
        // That was for this count alone.
        self.ran.counted_ms = None;
    }

    /// Its restarts, its time and its processors, as STATS says them; `None` where its START says nothing about these and
    /// instances have no processors of their own.
    pub(super) fn progress(
        &self,
        now_ms: u64,
        processors: Option<&Processors>,
    ) -> Option<RunProgress> {
        let terms = &self.terms;
        let next_ms = terms.restarts.next_ms();
        let unpinned = self.is_unpinned(processors);
        let is_said = terms.are_counted() || unpinned || !self.cpus.is_empty();
        is_said.then(|| RunProgress {
            restarts: terms.restarts.count(),
            last_exit_code: terms.restarts.last_code().map(i64::from),
            next_try_ms: next_ms.map(|next| next.saturating_sub(now_ms)),
            time_used_ms: terms.time_limit_ms.map(|_| terms.used.at(now_ms)),
            time_limit_ms: terms.time_limit_ms,
            cpus: self.cpus.to_string(),
            unpinned,
        })
    }

    /// Whether it ends because its time limit is reached.
    pub(super) fn is_over_time(&self) -> bool {
        self.terms.is_over_time
    }

    /// Whether it was ended because it held too much memory.
    pub(super) fn is_oom(&self) -> bool {
        self.ran.why == Some(Why::Oom)
    }
}

impl Agent {
    /// Whether an instance would be started again after an end with this code now: its START says so, its restarts are not
    /// used up, and its time is not over.
    pub(super) fn would_restart(&mut self, now: Instant, id: &str, code: Option<i32>) -> bool {
        let now_ms = self.count_at(now);
        let terms = self.instances.get(id).map(|instance| &instance.terms);
        terms.is_some_and(|terms| {
            let rule = terms.restart.as_ref().filter(|_| !terms.is_over_time);
            rule.is_some_and(|rule| terms.restarts.would_follow(rule, code, now_ms))
        })
    }

    /// Says which count of the node belongs to which moment: before anything else. Without it the count begins with the
    /// first thing that happens.
    pub fn set_clock(&mut self, clock: NodeClock) {
        self.clock = Some(clock);
    }

    /// The node's count at a moment, in milliseconds.
    pub(super) fn count_at(&mut self, now: Instant) -> u64 {
        self.node_clock(now).ms_at(now)
    }

    pub(super) fn node_clock(&mut self, now: Instant) -> NodeClock {
        *self.clock.get_or_insert(NodeClock { at: now, ms: 0 })
    }

    /// A run begins: its time is counted from now on.
    pub(super) fn count_run(&mut self, now: Instant, id: &str) {
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id)
            && instance.terms.are_counted()
        {
            instance.terms.used.begin_run(now_ms);
        }
        self.watch_limit(now, id);
    }

    /// It is frozen, or goes on: its time is not counted meanwhile.
    pub(super) fn count_pause(&mut self, now: Instant, id: &str, is_frozen: bool) {
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id)
            && instance.terms.are_counted()
        {
            match is_frozen {
                true => instance.terms.used.pause(now_ms),
                false => instance.terms.used.go_on(now_ms),
            }
        }
        self.watch_limit(now, id);
    }

    /// Sets when the time limit is reached of a workload that no supervisor watches.
    fn watch_limit(&mut self, now: Instant, id: &str) {
        let has_supervisor = self.settings.runs != Runs::Anything;
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id) {
            let left = instance.terms.time_left(now_ms);
            instance.limit_at = left.filter(|_| !has_supervisor).map(|left| now + left);
        }
    }

    /// A run has ended, and nothing has that comes before a restart: no removal, no time limit, no end of its lease. Whether
    /// the instance is started again.
    pub(super) fn back_off(&mut self, now: Instant, id: &str, code: Option<i32>) -> bool {
        let now_ms = self.count_at(now);
        let Some(instance) = self.instances.get_mut(id) else {
            return false;
        };
        let Some(rule) = instance.terms.restart else {
            return false;
        };
        let end = RunEnd {
            code,
            ran: Duration::from_millis(instance.terms.used.run_ms(now_ms)),
            at_ms: now_ms,
        };
        let pause = match instance.terms.restarts.after(&rule, end) {
            AfterEnd::After(pause) => pause,
            AfterEnd::NotWanted | AfterEnd::UsedUp => return false,
        };
        let used = instance.usage.take();
        // Taken: what ends it while it waits is told with the sum alone.
        instance.terms.earlier = std::mem::take(&mut instance.ran).after(instance.terms.earlier);
        self.give_back(used);
        self.give_up_change(id);
        self.wait_for_restart(now, id, pause);
        self.persist(id);
        self.order(AgentAction::Clear(id.to_owned()));
        info!(
            event = "instance_backs_off",
            instance = id,
            exit_code = code,
            pause_ms = pause.as_millis(),
            "an instance has ended and is started again after a pause"
        );
        self.report_soon(now);
        true
    }

    /// Takes up an instance that an earlier launcher was to start again. Past its lease it is cut off: it may be started
    /// elsewhere by now.
    pub(super) fn recover_backoff(&mut self, now: Instant, id: &str) {
        let now_ms = self.count_at(now);
        let holds = self.lease_holds(now);
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        if instance.leased && !holds {
            return self.stop(now, id, Removal::CutOff);
        }
        let pause = match instance.terms.restart {
            Some(rule) => instance.terms.restarts.pause_left(&rule, now_ms),
            None => Duration::ZERO,
        };
        self.wait_for_restart(now, id, pause);
        self.persist(id);
        self.order(AgentAction::Clear(id.to_owned()));
    }

    /// Has an instance wait for so long, or until its time limit is reached.
    fn wait_for_restart(&mut self, now: Instant, id: &str, pause: Duration) {
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id) {
            let left = instance.terms.time_left(now_ms);
            let wait = left.map_or(pause, |left| left.min(pause));
            instance.state = InstancePhase::Backoff { due: now + wait };
            instance.limit_at = None;
        }
    }

    /// Starts again what has waited for it, and ends what has been there for as long as it may.
    pub(super) fn restart_the_due(&mut self, now: Instant) {
        if self.instances.first_deadline().is_none_or(|at| at > now) {
            return;
        }
        let is_due = |instance: &Instance| {
            let is_kill = instance.is_stopping();
            !is_kill && instance.timeout().is_some_and(|at| at <= now)
        };
        for id in self.ids(is_due) {
            self.is_due(now, &id);
        }
    }

    /// What is due of one instance: its restart, or the end of its time.
    fn is_due(&mut self, now: Instant, id: &str) {
        let now_ms = self.count_at(now);
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        let is_over = instance
            .terms
            .time_left(now_ms)
            .is_some_and(|left| left.is_zero());
        let waits = matches!(instance.state, InstancePhase::Backoff { .. });
        instance.terms.is_over_time |= is_over;
        match (is_over, waits) {
            (true, true) => {
                let code = instance.terms.restarts.last_code();
                let order = self.next_end();
                self.end(now, id, InstancePhase::Exited { code, order });
            }
            (true, false) => self.terminate(now, id, Removal::Stopped),
            (false, true) => {
                let next_ms = instance.terms.restarts.next_ms();
                match next_ms.and_then(|next| next.checked_sub(now_ms)) {
                    Some(left) if left > 0 => {
                        self.wait_for_restart(now, id, Duration::from_millis(left));
                    }
                    _ => self.respawn(now, id),
                }
            }
            (false, false) => self.watch_limit(now, id),
        }
    }

    /// Starts an instance again, unless the state directory cannot be written: a launcher that crashed meanwhile would not
    /// find it again.
    fn respawn(&mut self, now: Instant, id: &str) {
        self.assign_processors(id);
        let now_ms = self.count_at(now);
        let has_storage = self.storage_fault.is_none();
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        if let Some(rule) = instance.terms.restart.filter(|_| !has_storage) {
            let pause = instance.terms.restarts.put_off(&rule, now_ms);
            return self.wait_for_restart(now, id, pause);
        }
        instance.terms.restarts.begun();
        instance.terms.used.begin_run(now_ms);
        instance.state = InstancePhase::Starting;
        instance.ran = Ran::default();
        let respawn = Respawn {
            instance: id.to_owned(),
            images: instance.images.clone(),
            env: instance
                .devices
                .variables(&self.settings.features.device_variables),
            mem_mb: instance.demand.mem_mb,
            vcpus: instance.demand.vcpus,
            cpus: instance.cpus.clone(),
            time_left: instance.terms.time_left(now_ms),
        };
        self.persist(id);
        self.order(AgentAction::Respawn(Box::new(respawn)));
        self.report_soon(now);
    }
}
