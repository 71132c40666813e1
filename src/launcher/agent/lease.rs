//! The lease: how the cluster can be sure that a node it does not hear of any more has ended certain instances, so that
//! they can be started elsewhere.
//!
//! ```text
//! here       STATS 7 ────────────────────────────────────| killing begins  ·| over
//!                 \          /LeaseRenewed 7                                 :
//! scheduler        heard ────────────────────────────────────────────────────|── may start them elsewhere
//! ```
//! Each STATS has a number; the scheduler answers it with LeaseRenewed. The lease counts from when that STATS was made,
//! before the scheduler can have heard it: so it is over here before it is over there, whatever the frames took. Under
//! the lease are instances whose START says `on_node_loss: restart`; they are killed, not asked, because there is no
//! time. The machine does the same by itself ([`AgentAction::ExtendLease`]), for the launcher that dies or hangs.
//!
//! A launcher may find a lease that an earlier one with a longer `--lease` left. It cannot be shortened: supervisors
//! wait for the end that they have read. So until that end the longer length is announced, and the scheduler waits for
//! it. What is announced follows from the deadline that is kept, so a crash in between changes nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proto_frames::payload::{LeaseRenewed, PayloadError, Start};
use tracing::warn;

use super::instances::{Instance, InstancePhase};
use super::{Agent, AgentAction, Removal};

/// Most STATS whose answers are waited for; those before them are taken for lost.
const MAX_UNANSWERED: usize = 64;

/// What part of the lease is left for killing and for clocks that run at different speeds.
const MARGIN_PART: u32 = 10;

/// Most time left for that: killing takes milliseconds unless the kernel holds a process.
const MAX_MARGIN: Duration = Duration::from_secs(2);

/// The lease of this node.
#[derive(Debug, Default)]
pub(super) struct Lease {
    /// When killing begins. `None` = the lease is over, or was never known here.
    until: Option<Instant>,
    /// Number of the latest STATS.
    seq: u64,
    /// STATS sent on this connection and not answered, and when they were made; the oldest first.
    unanswered: VecDeque<(u64, Instant)>,
    /// The lease that an earlier launcher left, until that is over.
    inherited: Option<Inherited>,
}

/// The lease of an earlier launcher.
#[derive(Debug, Clone, Copy)]
struct Inherited {
    /// When killing begins by it.
    until: Instant,
    /// The length that covers it from the first report on. One figure for all reports, because schedulers work through
    /// each change of what a node says of itself.
    length: Option<Duration>,
}

impl Lease {
    /// The length to announce in a report made now, where launchers are configured to take leases of `configured`: no
    /// supervisor waits longer than that from now on.
    fn announced(&mut self, now: Instant, configured: Duration) -> Duration {
        let Some(inherited) = self.inherited.as_mut().filter(|it| now < it.until) else {
            self.inherited = None;
            return configured;
        };
        let left = inherited.until - now;
        // The margin is part of every lease that is announced.
        let length = *inherited.length.get_or_insert(left + MAX_MARGIN);
        length.max(configured)
    }

    /// The number for a STATS made now.
    pub(super) fn number_report(&mut self, now: Instant) -> u64 {
        self.seq += 1;
        self.unanswered.push_back((self.seq, now));
        if self.unanswered.len() > MAX_UNANSWERED {
            self.unanswered.pop_front();
        }
        self.seq
    }

    /// The connection is over, and with it the answers.
    pub(super) fn disconnected(&mut self) {
        self.unanswered.clear();
    }

    /// When the STATS with this number was made; it and those before it are answered.
    fn answered(&mut self, seq: u64) -> Option<Instant> {
        let at = self
            .unanswered
            .iter()
            .position(|(number, _)| *number == seq)?;
        self.unanswered.drain(..=at).next_back().map(|(_, at)| at)
    }

    /// Whether instances under the lease may run at this moment.
    fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

impl Agent {
    /// Takes up the lease of an earlier launcher, as the machine kept it; beside [`Agent::recover`]. Without it, only
    /// the machine sees to instances under that lease until the next renewal.
    pub fn recover_lease(&mut self, until: Instant) {
        self.lease.until = Some(until);
        let length = None;
        self.lease.inherited = Some(Inherited { until, length });
    }

    /// The length of the lease as a report made now announces it; `None` = the node takes no leases.
    pub(super) fn announced_lease(&mut self, now: Instant) -> Option<Duration> {
        let configured = self.settings.lease?;
        Some(self.lease.announced(now, configured))
    }

    /// Whether the instance is to be under the lease.
    pub(super) fn takes_lease(&self, start: &Start) -> bool {
        let restarts = start
            .scheduling
            .as_ref()
            .is_some_and(|scheduling| scheduling.restarts_on_node_loss());
        self.settings.lease.is_some() && restarts
    }

    /// Whether instances under the lease may run.
    pub(super) fn lease_holds(&self, now: Instant) -> bool {
        self.lease.holds(now)
    }

    /// Handles LeaseRenewed: the lease counts from when the STATS with this number was made. An answer to a STATS of an
    /// earlier connection, or one that would shorten the lease, changes nothing.
    pub(super) fn lease_renewed(
        &mut self,
        now: Instant,
        renewed: Result<LeaseRenewed, PayloadError>,
    ) {
        let seq = match renewed {
            Ok(renewed) => renewed.seq,
            Err(error) => {
                return warn!(event = "command_unreadable", %error, "unreadable LeaseRenewed ignored");
            }
        };
        let (Some(length), Some(made)) = (self.settings.lease, self.lease.answered(seq)) else {
            return;
        };
        let until = made + length - margin(length);
        if until > now && self.lease.until.is_none_or(|earlier| earlier < until) {
            self.lease.until = Some(until);
            self.order(AgentAction::ExtendLease(until));
        }
    }

    /// What the lease was extended to did not get to the supervisors, who kill at `until`.
    pub(super) fn lease_not_extended(&mut self, until: Instant) {
        self.lease.until = self.lease.until.map(|known| known.min(until));
    }

    /// Until when instances under the lease run, unless it is renewed.
    #[must_use]
    pub fn lease_until(&self) -> Option<Instant> {
        self.lease.until
    }

    /// When the lease is over, if anything runs under it.
    pub(super) fn lease_timeout(&self) -> Option<Instant> {
        let until = self.lease.until?;
        (self.instances.sums().under_lease > 0).then_some(until)
    }

    /// Kills what may not run any more.
    pub(super) fn end_lease(&mut self, now: Instant) {
        if self.lease.until.is_none() || self.lease_holds(now) {
            return;
        }
        self.lease.until = None;
        let ids = self.ids(Instance::is_under_lease);
        if !ids.is_empty() {
            warn!(
                event = "lease_over",
                instances = ids.len(),
                "the lease is over; instances that may be started elsewhere are killed"
            );
        }
        for id in ids {
            self.kill_at_once(now, &id);
        }
    }

    /// Whether an instance has ended because its lease was over: its supervisor kills it then, whatever has become of
    /// the launcher.
    pub(super) fn was_cut_off(&self, now: Instant, id: &str, code: Option<i32>) -> bool {
        /// What a workload that was killed has as its code.
        const KILLED: i32 = -9;
        let is_leased = self.instances.get(id).is_some_and(|it| it.leased);
        is_leased && !self.lease_holds(now) && code.is_none_or(|code| code == KILLED)
    }

    /// Has an instance killed now: one that is being stopped does not get the rest of its grace.
    fn kill_at_once(&mut self, now: Instant, id: &str) {
        match self.instances.get_mut(id).map(|it| &mut it.state) {
            Some(InstancePhase::Stopping {
                kill_at, running, ..
            }) => {
                if *running && kill_at.take().is_some() {
                    self.order(AgentAction::Kill(id.to_owned()));
                }
            }
            _ => self.stop(now, id, Removal::CutOff),
        }
    }
}

/// How long before the end of a lease of this length killing begins.
fn margin(length: Duration) -> Duration {
    (length / MARGIN_PART).min(MAX_MARGIN)
}
