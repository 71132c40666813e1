//! How instances begin and end.
//!
//! ```text
//!                        Suspending -> Suspended -> Resuming    SUSPEND, RESUME (`life`)
//!                            ^    \                    |
//!                            |     v   (cannot)        v
//! START -> Starting -> Running <-----------------------/
//!                 \
//!                  \-> Gone (StartFailure)
//!
//! Running -> Backoff -> Starting                                        ended, and is started again (`restarting`)
//! each of Starting to Resuming -> Exited                                ended by itself
//!                              -> Stopping -> Gone -> forgotten         DELETE, EVACUATE, end of the lease
//!                                             (Gone lasts until the scheduler has it on record: `ends`)
//! ```
//! What holds an instance back (Suspending, Suspended, Resuming) is undone by the machine when it is to end. A suspended
//! instance holds its memory, disk and further resources, and no vcpus.
//!
//! An instance that ended by itself is reported by InstanceStopped, which tells the cluster that it is on no node any
//! more. So it is not listed in STATS from then on and holds nothing; it is only kept here, with its output, for a
//! DELETE that may come or for a START that runs it again.

use std::time::{Duration, Instant};

use proto_frames::payload::{Digest, Start, StartFailure, StartFailureReason};
use tracing::warn;

use super::ends::{How, Ran};
use super::terms::stop_signal;
use super::{
    About, Agent, AgentAction, Cpus, Demand, Devices, MAX_EXITED, Message, Removal, RunTerms, Runs,
    StopTerms, Usage, Workload, images_of,
};

/// What the agent knows of one instance.
#[derive(Debug)]
pub(super) struct Instance {
    /// What it asked for.
    pub(super) demand: Demand,
    /// The id of its group, empty for none; echoed in STATS.
    pub(super) group: String,
    /// Whether the START that began it was a restart; echoed in its failure.
    pub(super) restart: bool,
    /// What it uses, as last sampled.
    pub(super) usage: Option<Usage>,
    /// Whether it was ever known how much memory it uses.
    pub(super) is_measured: bool,
    /// Whether it may run only under the lease.
    pub(super) leased: bool,
    /// What it is to ask for, while its limits are being changed to that.
    pub(super) update: Option<Demand>,
    /// Which units of custom resources it has.
    pub(super) devices: Devices,
    /// Which processors are its own.
    pub(super) cpus: Cpus,
    /// While it is ordered to be thawed because it could not be frozen in time: how often that is tried again if it fails.
    pub(super) thaws_left: Option<u8>,
    pub(super) state: InstancePhase,
    /// The images that it has, its program first; none where its command names the program.
    pub(super) images: Vec<Digest>,
    /// What it is called and runs.
    pub(super) about: About,
    /// Since when it is there.
    pub(super) since: Instant,
    /// Whether the scheduler was told of that on the present connection.
    pub(super) is_introduced: bool,
    /// The numbers of its ends that are not on record, oldest first: also of earlier runs.
    pub(super) ends: Vec<u64>,
    /// What is known of the run that ends now; told with its end.
    pub(super) ran: Ran,
    /// For how long it may be there, how it is ended, and whether it is started again.
    pub(super) terms: RunTerms,
    /// When its time limit is reached, where the machine does not see to that.
    pub(super) limit_at: Option<Instant>,
}

/// How far an instance is on this node: the launcher's own state machine of it, beside which the scheduler keeps one of
/// its own. Reported in STATS by [`reports`](super::reports) as ciao's instance states, and recorded as a `Stage` in
/// the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstancePhase {
    /// Being started.
    Starting,
    /// Running.
    Running,
    /// Being frozen.
    Suspending,
    /// Frozen.
    Suspended,
    /// Being continued.
    Resuming,
    /// Ended, and to be started again.
    Backoff {
        /// When: or when its time limit is reached before that.
        due: Instant,
    },
    /// To end.
    Stopping {
        /// What its end is reported as.
        outcome: Removal,
        /// When it is killed; `None` = it has been, or it is still being started.
        kill_at: Option<Instant>,
        /// Whether it has been started, so that it can be signalled.
        running: bool,
    },
    /// Ended by itself.
    Exited {
        /// Its exit code, if known.
        code: Option<i32>,
        /// Its place among the ends of this launcher, counted up: the oldest exited instances are forgotten first.
        order: u64,
    },
    /// Removed; only the notice is left.
    Gone {
        /// What its end is reported as.
        outcome: Removal,
        /// Its exit code, if known.
        code: Option<i32>,
    },
}

/// Whose fault it is that a workload cannot run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchFault {
    /// The program is not there or not executable.
    Image,
    /// What has to be kept of it cannot be written.
    Storage,
    /// Everything else.
    Launch,
}

impl Instance {
    /// Whether it holds what it asked for.
    pub(super) fn is_live(&self) -> bool {
        !matches!(
            self.state,
            InstancePhase::Exited { .. } | InstancePhase::Gone { .. }
        )
    }

    /// How much it holds of what `of` tells; while it changes, the more of the two.
    pub(super) fn held(&self, of: impl Fn(&Demand) -> i64) -> i64 {
        let new = self.update.as_ref().map(&of);
        new.into_iter().fold(of(&self.demand), i64::max)
    }

    /// Memory and disk that it may still come to use of what it holds.
    pub(super) fn unused(&self) -> (i64, i64) {
        let unused =
            |asked: i64, used: Option<i64>| asked.saturating_sub(used.unwrap_or(0).max(0)).max(0);
        (
            unused(
                self.held(|demand| demand.mem_mb),
                self.usage.map(|usage| usage.mem_mb),
            ),
            unused(
                self.held(|demand| demand.disk_mb),
                self.usage.map(|usage| usage.disk_mb),
            ),
        )
    }

    /// How many vcpus it holds.
    pub(super) fn held_vcpus(&self) -> i64 {
        match self.state {
            InstancePhase::Suspended => 0,
            _ => self.held(|demand| demand.vcpus),
        }
    }

    /// Whether it lives, and only as long as the lease does.
    pub(super) fn is_under_lease(&self) -> bool {
        self.leased && self.is_live() && !self.is_killed()
    }

    /// Whether nothing more can be done to end it.
    fn is_killed(&self) -> bool {
        matches!(self.state, InstancePhase::Stopping { kill_at: None, .. })
    }

    pub(super) fn is_stopping(&self) -> bool {
        matches!(self.state, InstancePhase::Stopping { .. })
    }

    /// When something is to be done about it if nothing happens.
    pub(super) fn timeout(&self) -> Option<Instant> {
        match self.state {
            InstancePhase::Stopping { kill_at, .. } => kill_at,
            InstancePhase::Backoff { due } => Some(due),
            InstancePhase::Running => self.limit_at,
            _ => None,
        }
    }

    /// Whether it is, or is being, started again after an earlier run of this START.
    pub(super) fn is_restarted(&self) -> bool {
        self.terms.restarts.count() > 0
    }
}

impl Agent {
    /// Begins an instance that is known to fit.
    pub(super) fn begin(&mut self, now: Instant, start: &Start, demand: Demand) {
        let id = &start.instance_uuid;
        let (mem_mb, vcpus) = (demand.mem_mb, demand.vcpus);
        let leased = self.takes_lease(start);
        // What is not on record of an earlier run is told beside this one.
        let earlier = self.instances.remove(id);
        let ends = earlier.map(|earlier| earlier.ends).unwrap_or_default();
        let images = images_of(&start.image, &start.more_images);
        let terms = match self.settings.runs {
            Runs::Processes | Runs::Anything => RunTerms::of(start),
            Runs::Named(_) => RunTerms::default(),
        };
        let stop = StopTerms {
            signal: stop_signal(start.scheduling.as_ref()),
            grace: self.grace_of(&terms),
        };
        let time_left = terms.time_left(self.count_at(now));
        let instance = Instance {
            demand,
            group: group_id(start).unwrap_or_default(),
            restart: start.restart,
            usage: None,
            is_measured: false,
            leased,
            update: None,
            devices: Devices::default(),
            cpus: Cpus::default(),
            thaws_left: None,
            state: InstancePhase::Starting,
            ends,
            images: images.clone(),
            about: About::of(start),
            since: now,
            is_introduced: false,
            ran: Ran::default(),
            terms,
            limit_at: None,
        };
        self.instances.insert(id.clone(), instance);
        self.assign_devices(id);
        self.assign_processors(id);
        self.persist(id);
        self.order(AgentAction::Spawn(Box::new(Workload {
            instance: id.clone(),
            tenant: start.tenant_uuid.clone(),
            images,
            command: start.command.clone(),
            env: self.variables(start),
            working_dir: Some(start.working_dir.clone()).filter(|dir| !dir.is_empty()),
            mem_mb,
            vcpus,
            cpus: self.processors_of(id),
            leased,
            stop,
            time_left,
            split_output: start.scheduling.as_ref().is_some_and(|it| it.split_output),
        })));
    }

    /// How long after it is asked to end an instance with these terms is killed.
    fn grace_of(&self, terms: &RunTerms) -> Duration {
        terms
            .grace_ms
            .map_or(self.settings.stop_grace, Duration::from_millis)
    }

    /// The longest time that an instance has between being asked to end and being killed.
    #[must_use]
    pub fn longest_grace(&self) -> Duration {
        let live = self
            .live()
            .map(|(_, instance)| self.grace_of(&instance.terms));
        live.fold(self.settings.stop_grace, Duration::max)
    }

    pub(super) fn started(&mut self, now: Instant, id: &str) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        match instance.state {
            InstancePhase::Starting => {
                instance.state = InstancePhase::Running;
                self.count_run(now, id);
                self.persist(id);
                self.report_soon(now);
            }
            // It was to end before it had begun.
            InstancePhase::Stopping {
                outcome,
                running: false,
                ..
            } => self.terminate(now, id, outcome),
            _ => {}
        }
    }

    pub(super) fn start_failed(
        &mut self,
        now: Instant,
        id: &str,
        fault: LaunchFault,
        detail: String,
    ) {
        let Some(instance) = self.instances.get(id) else {
            return;
        };
        match instance.state {
            // It has run, and is known to: to the scheduler that is one more run which has failed.
            InstancePhase::Starting if instance.is_restarted() => {
                warn!(
                    event = "instance_not_restarted",
                    instance = id,
                    "an instance cannot be started again: {detail}"
                );
                self.exited(now, id, None, false);
            }
            InstancePhase::Starting => {
                let restart = instance.restart;
                let reason = match fault {
                    LaunchFault::Image => StartFailureReason::ImageFailure,
                    LaunchFault::Storage => StartFailureReason::FullComputeNode,
                    LaunchFault::Launch => StartFailureReason::LaunchFailure,
                };
                let failure = self.failure(id, reason, restart, detail);
                self.could_not_start(now, id, failure);
            }
            InstancePhase::Stopping {
                outcome,
                running: false,
                ..
            } => self.remove(now, id, outcome, None),
            _ => {}
        }
    }

    /// The failure is an end like any other: the sender of the START hears of it also where this connection is lost.
    fn could_not_start(&mut self, now: Instant, id: &str, failure: StartFailure) {
        if let Some(instance) = self.instances.get_mut(id) {
            instance.state = InstancePhase::Gone {
                outcome: Removal::Stopped,
                code: None,
            };
        }
        self.ended(now, id, How::failed(&failure), None, Some(failure));
    }

    /// Notes figures of a run whose end is told next.
    pub(super) fn note_ran(&mut self, now: Instant, id: &str, ran: Ran) {
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id) {
            instance.note_ran(now_ms, ran);
        }
    }

    /// All its processes have ended. If that was `by_itself`, a stop that it was to be ended with came too late: the
    /// scheduler would otherwise start again what has done its work.
    pub(super) fn exited(&mut self, now: Instant, id: &str, code: Option<i32>, by_itself: bool) {
        let would_restart = self.would_restart(now, id, code);
        let Some(instance) = self.instances.get(id) else {
            return;
        };
        let state = instance.state;
        let is_over_time = instance.is_over_time();
        // It was sent no signal, also where its lease had just run out; or it was, because it had no right to go on.
        let is_its_own = by_itself && code.is_some() || is_over_time || instance.is_oom();
        // It may be started elsewhere by now, and is not to be here: to those who wait it has not ended by itself.
        let is_past_its_lease = instance.leased && !self.lease_holds(now);
        match state {
            InstancePhase::Stopping { outcome, .. }
                if !is_its_own || would_restart || outcome == Removal::Deleted =>
            {
                self.remove(now, id, outcome, code);
            }
            InstancePhase::Stopping { .. }
            | InstancePhase::Starting
            | InstancePhase::Running
            | InstancePhase::Suspending
            | InstancePhase::Suspended
            | InstancePhase::Resuming => {
                if !is_its_own && self.was_cut_off(now, id, code) {
                    return self.remove(now, id, Removal::CutOff, code);
                }
                // One that was suspended has given its vcpus up, which others may have by now.
                let may_restart = !matches!(
                    state,
                    InstancePhase::Stopping { .. } | InstancePhase::Suspended
                );
                if may_restart && would_restart && is_past_its_lease {
                    return self.remove(now, id, Removal::CutOff, code);
                }
                if may_restart && !is_over_time && self.back_off(now, id, code) {
                    return;
                }
                let state = InstancePhase::Exited {
                    code,
                    order: self.next_end(),
                };
                self.end(now, id, state);
            }
            InstancePhase::Backoff { .. }
            | InstancePhase::Exited { .. }
            | InstancePhase::Gone { .. } => {}
        }
    }

    /// Has the instance end and be removed from this node; a removal under way is reported as the graver of the two.
    pub(super) fn stop(&mut self, now: Instant, id: &str, outcome: Removal) {
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        match &mut instance.state {
            InstancePhase::Starting => {
                instance.state = InstancePhase::Stopping {
                    outcome,
                    kill_at: None,
                    running: false,
                };
                let waits = !instance.images.is_empty();
                self.persist(id);
                if waits {
                    self.order(AgentAction::Abandon(id.to_owned()));
                }
                self.report_soon(now);
            }
            InstancePhase::Running
            | InstancePhase::Suspending
            | InstancePhase::Suspended
            | InstancePhase::Resuming => self.terminate(now, id, outcome),
            InstancePhase::Stopping {
                outcome: earlier, ..
            } => {
                if outcome == Removal::Deleted && *earlier != outcome {
                    *earlier = outcome;
                    self.persist(id);
                }
            }
            InstancePhase::Exited { code, .. } => {
                let code = *code;
                self.remove(now, id, outcome, code);
            }
            // Nothing of it runs.
            InstancePhase::Backoff { .. } => {
                let code = instance.terms.restarts.last_code();
                self.remove(now, id, outcome, code);
            }
            InstancePhase::Gone { .. } => {}
        }
    }

    /// Stops everything that runs, as removed from this node only.
    pub(super) fn stop_all(&mut self, now: Instant) {
        for id in self.ids(Instance::is_live) {
            self.stop(now, &id, Removal::Stopped);
        }
    }

    /// Kills what was asked to end and has not in time.
    pub(super) fn kill_the_late(&mut self, now: Instant) {
        if self.instances.first_deadline().is_none_or(|at| at > now) {
            return;
        }
        let late = |instance: &Instance| matches!(instance.state, InstancePhase::Stopping { kill_at: Some(at), .. } if at <= now);
        for id in self.ids(late) {
            if let Some(InstancePhase::Stopping { kill_at, .. }) =
                self.instances.get_mut(&id).map(|it| &mut it.state)
            {
                *kill_at = None;
            }
            self.order(AgentAction::Kill(id));
        }
    }

    /// Forgets those of these instances that ended by themselves and that the scheduler knows of. The others are named
    /// again.
    pub(super) fn forget_bare(&mut self, ids: &[String]) {
        for id in ids {
            let is_over = self.instances.get(id).is_some_and(|instance| {
                matches!(instance.state, InstancePhase::Exited { .. }) && instance.ends.is_empty()
            });
            if is_over {
                self.forget(id);
            }
        }
    }

    /// Forgets the oldest of too many instances that ended by themselves and that the scheduler knows of, where they
    /// leave nothing that says for how long they are to be remembered.
    pub(super) fn limit_exited(&mut self) {
        let leave_output = self.settings.runs == Runs::Processes;
        if leave_output || self.instances.sums().exited <= MAX_EXITED {
            return;
        }
        let ended = |instance: &Instance| match instance.state {
            InstancePhase::Exited { order, .. } if instance.ends.is_empty() => Some(order),
            _ => None,
        };
        let mut known: Vec<(u64, String)> = Vec::new();
        known.extend(
            self.instances
                .iter()
                .filter_map(|(id, instance)| Some((ended(instance)?, id.clone()))),
        );
        known.sort_unstable();
        let surplus = known.len().saturating_sub(MAX_EXITED);
        known[..surplus].iter().for_each(|(_, id)| self.forget(id));
    }

    pub(super) fn next_end(&mut self) -> u64 {
        self.exits += 1;
        self.exits
    }

    /// Answers a START that cannot be done.
    pub(super) fn refuse_start(
        &mut self,
        id: &str,
        reason: StartFailureReason,
        restart: bool,
        detail: String,
    ) {
        let failure = self.failure(id, reason, restart, detail);
        self.send(Message::StartFailure(failure));
    }

    fn failure(
        &self,
        id: &str,
        reason: StartFailureReason,
        restart: bool,
        detail: String,
    ) -> StartFailure {
        StartFailure {
            node_uuid: self.settings.node_uuid.to_string(),
            instance_uuid: id.to_owned(),
            reason,
            restart,
            detail: Some(detail),
            ..StartFailure::default()
        }
    }

    /// Asks its processes to end, and sets when they are killed: at once where the lease they run under is over.
    pub(super) fn terminate(&mut self, now: Instant, id: &str, outcome: Removal) {
        self.give_up_change(id);
        let holds = self.lease_holds(now);
        let usual = self.settings.stop_grace;
        let Some(instance) = self.instances.get_mut(id) else {
            return;
        };
        let grace = instance.terms.grace_ms;
        let grace = grace.map_or(usual, Duration::from_millis);
        let kill_at = (holds || !instance.leased).then(|| now + grace);
        instance.state = InstancePhase::Stopping {
            outcome,
            kill_at,
            running: true,
        };
        self.persist(id);
        self.order(match kill_at {
            Some(_) => AgentAction::Terminate(id.to_owned()),
            None => AgentAction::Kill(id.to_owned()),
        });
        self.report_soon(now);
    }

    fn remove(&mut self, now: Instant, id: &str, outcome: Removal, code: Option<i32>) {
        self.end(now, id, InstancePhase::Gone { outcome, code });
    }

    pub(super) fn end(&mut self, now: Instant, id: &str, state: InstancePhase) {
        self.give_up_change(id);
        let (how, code) = match state {
            InstancePhase::Gone { outcome, code } => (How::Removed(outcome), code),
            InstancePhase::Exited { code, .. } => (How::Exited, code),
            _ => return,
        };
        let now_ms = self.count_at(now);
        if let Some(instance) = self.instances.get_mut(id) {
            instance.state = state;
            instance.sum_up(now_ms);
        }
        self.ended(now, id, how, code, None);
    }
}

/// The id of the group that the START puts its instance in.
fn group_id(start: &Start) -> Option<String> {
    let group = start.scheduling.as_ref()?.group.as_ref()?;
    Some(group.id.clone())
}
