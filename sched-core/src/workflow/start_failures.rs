//! How a START fails: the reason on the wire, who is notified, and in which form; and STARTs that all fail because the
//! scheduler leaves.
//!
//! Native peers get the full failure (cause, reasons by filter, attempts); original ones get the fields that ciao's
//! `payloads/startfailure.go` has.

use std::time::Instant;

use sched_model::{StartFailure, StartFailureReason, Topic, Uuid};

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::start::PlacedStart;
use crate::api::text::ShortText;
use crate::cluster::ledger::Unconfirmed;
use crate::cluster::query::Query;
use crate::placement::explain::Explanation;
use crate::query::verdict::BeforeEnd;
use crate::workflow::reports::still_runs;

impl Scheduler {
    /// Fails every START that waits for something, because the scheduler is leaving and no one else knows of them. With
    /// a state directory, those that are on disk go on waiting when the scheduler is back, and only the others fail.
    pub(crate) fn fail_waiting(&mut self) {
        self.journal.leave();
        self.recovery.close();
        while let Some(start) = self.recovery.take() {
            self.fail_start(&start, Refusal::Leaving);
        }
        self.set_recovery_timer();
        if self.config.durable {
            // What waits is on disk, and goes on waiting when the scheduler is back.
            if self.journal.is_in_trouble() {
                self.fail_unwritten();
            }
            return;
        }
        self.fail_batches();
        let untold = self
            .instances
            .iter()
            .filter(|(_, managed)| managed.state().is_not_given());
        let untold: Vec<_> = untold
            .map(|(instance, managed)| (instance.clone(), managed.state().node()))
            .collect();
        for (instance, node) in untold {
            if let Some(key) = node {
                self.release(key, &instance);
            }
            let why = Explanation::of(Refusal::Leaving.into());
            self.fail_managed(&instance, StartFailureReason::LaunchFailure, None, why);
        }
    }

    /// Fails a START that was cancelled, or whose node is gone, with `launch_failure`.
    pub(crate) fn fail_start(&mut self, start: &PlacedStart, refusal: Refusal) {
        let reason = StartFailureReason::LaunchFailure;
        self.fail_with(start, reason, Explanation::of(refusal.into()));
    }

    /// Fails a START for which the scheduler has no memory, or the queue no room, as if the cluster were full: the
    /// sender may try again later.
    pub(crate) fn fail_for_room(&mut self, start: &PlacedStart, refusal: Refusal) {
        let reason = self.cluster.no_room(&start.request);
        self.fail_with(start, reason, Explanation::of(refusal.into()));
    }

    /// Fails a START that no node fits.
    pub(crate) fn fail_without_node(&mut self, start: &PlacedStart) {
        let why = self.why_not(&Query::of(&start.request));
        let reason = self.cluster.no_room(&start.request);
        self.fail_with(start, reason, why);
    }

    /// Fails a START because of what it says itself: resending it does not help.
    pub(crate) fn refuse_start(&mut self, start: &PlacedStart, problem: Refusal) {
        let reason = StartFailureReason::InvalidData;
        self.fail_with(start, reason, Explanation::of(problem.into()));
    }

    /// Sends a StartFailure for a START.
    pub(crate) fn fail_with(
        &mut self,
        start: &PlacedStart,
        reason: StartFailureReason,
        why: Explanation,
    ) {
        let request = &start.request;
        self.answer_start(
            start.sender,
            &request.instance,
            reason,
            request.restart,
            why,
        );
    }

    /// Fails a START that was written to its node and never confirmed. Only its sender and kind are known by then, not
    /// its payload. It leaves a run that never began on that node, where it was given to `since` then, if that is known.
    pub(crate) fn fail_unconfirmed(
        &mut self,
        instance: &InstanceId,
        start: Unconfirmed,
        place: (Uuid, ShortText),
        since: Option<Instant>,
    ) {
        let why = Explanation::of(Refusal::Lost.into());
        let last_run = self.instances.last_run();
        let before = BeforeEnd::new(last_run, since);
        let reason = StartFailureReason::LaunchFailure;
        self.start_is_over(instance, place, before, (reason, &why.cause));
        self.answer_start(
            start.sender,
            instance,
            StartFailureReason::LaunchFailure,
            start.restart,
            why,
        );
    }

    /// Sends a StartFailure to the sender of a START, or to all controllers if it has left.
    pub(crate) fn answer_start(
        &mut self,
        sender: SessionId,
        instance: &InstanceId,
        reason: StartFailureReason,
        restart: bool,
        why: Explanation,
    ) {
        let failure = StartFailure {
            instance_uuid: instance.to_string(),
            reason,
            restart,
            reasons: why.reasons,
            never: why.never,
            ..StartFailure::default()
        };
        self.notify_failure(sender, Explained::new(failure, why.cause));
    }

    /// Sends a failure now, or, if the START's record is still on disk, once it has been deleted: a crash before would
    /// have it tried, and failed, a second time.
    pub(crate) fn notify_failure(&mut self, sender: SessionId, full: Explained<StartFailure>) {
        if let Some(full) = self.hold_failure(sender, full) {
            self.notify_failure_now(sender, full);
        }
    }

    /// Sends a failure to the sender of the START, and copies to subscribers; to all controllers if the sender has
    /// left. With no controller connected, it is remembered for the next one.
    pub(crate) fn notify_failure_now(&mut self, sender: SessionId, full: Explained<StartFailure>) {
        self.note_failure(&full);
        if !self.send_failure(sender, &full) {
            let message = Message::StartFailure(Box::new(full));
            self.peers.note_sent(self.now, None, &message);
        }
    }

    /// Counts and logs the failure of a START.
    pub(crate) fn note_failure(&mut self, full: &Explained<StartFailure>) {
        self.counters.failed += 1;
        self.counters.failures.note(&full.reason);
        self.notice(Notice::Failed(Box::new(full.clone())));
    }

    /// Sends a failure to the sender of the START, and copies to subscribers; to all controllers if the sender has
    /// left. Whether that is anyone who has to know: the sender, or a controller.
    pub(crate) fn send_failure(
        &mut self,
        sender: SessionId,
        full: &Explained<StartFailure>,
    ) -> bool {
        // No word of the original's says that it could not be recorded.
        let cause = match full.reason {
            StartFailureReason::NotRecorded => full.cause.clone(),
            _ => Cause::Plain,
        };
        let plain = Explained::new(full.to_original(), cause);
        let worded = |native: bool| Box::new(if native { full.clone() } else { plain.clone() });
        let Some(session) = self.peers.get(sender) else {
            self.notify_controllers(Topic::Failures, |session| {
                Some(Message::StartFailureCopy(worded(session.is_native())))
            });
            return self.peers.has_controllers();
        };
        let message = Message::StartFailure(worded(session.is_native()));
        self.send(sender, message);
        // Nothing has failed for any other operator, who may have started it and wait for its end.
        if !still_runs(&full.reason) {
            self.notify_subscribers(Topic::Failures, Some(sender), |_| {
                Some(Message::StartFailureCopy(worded(true)))
            });
        }
        true
    }
}
