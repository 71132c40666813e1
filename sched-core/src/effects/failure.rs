//! A START fails: the reason on the wire, who is notified, in which form, and when. What was acknowledged as recorded is
//! notified once its failure is on disk (`workflow::unsent_failures`).
//!
//! Native peers get the full failure (cause, reasons by filter, attempts); original ones get the fields that ciao's
//! `payloads/startfailure.go` has.

use std::time::Instant;

use sched_model::{PhaseName, StartFailure, StartFailureReason, Topic, Uuid};

use crate::Scheduler;
use crate::api::action::{Message, Notice};
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::start::PlacedStart;
use crate::api::text::ShortText;
use crate::cluster::ledger::Unconfirmed;
use crate::cluster::query::Query;
use crate::instance::{History, HistoryEvent, Run, UnsentFailure};
use crate::placement::explain::Explanation;
use crate::query::verdict::BeforeEnd;
use crate::sight::Sight;

impl Scheduler {
    /// Has the failure of a START whose record is still on disk wait until the record is deleted. Gives back a failure
    /// that may be sent now.
    fn hold_failure(
        &mut self,
        sender: SessionId,
        failure: Explained<StartFailure>,
    ) -> Option<Explained<StartFailure>> {
        let instance = InstanceId::new(&failure.instance_uuid);
        let is_over =
            !self.instances.contains(&instance) && self.pending.batch_of(&instance).is_none();
        let waits = is_over && self.journal.is_failure_to_wait(&instance);
        if failure.reason == StartFailureReason::NotRecorded || !waits {
            return Some(failure);
        }
        let run = self.note_unsent(&instance, &failure);
        self.journal.hold_failure(sender, failure, run);
        None
    }

    /// Notes in the run of a START that has failed just now that no controller was sent that. One that waited for the
    /// rest of its batch has no run yet. `None` where the instance exists all the same: the failure is of another START.
    fn note_unsent(
        &mut self,
        instance: &InstanceId,
        failure: &Explained<StartFailure>,
    ) -> Option<u64> {
        if self.sight().exists(instance) {
            return None;
        }
        let last = self.instances.last_run_of(instance);
        let is_noted = last.is_some_and(|run| {
            run.at() == self.now && run.failed() == Some(&failure.reason) && run.unsent().is_none()
        });
        if !is_noted {
            self.note_failed_in_batch(instance, failure);
        }
        let number = self.instances.number_of_last_run(instance)?;
        let unsent = UnsentFailure {
            is_restart: failure.restart,
        };
        self.set_unsent(number, Some(unsent));
        Some(number)
    }

    /// A START that waited for the rest of its batch leaves a run that never began.
    fn note_failed_in_batch(&mut self, instance: &InstanceId, failure: &Explained<StartFailure>) {
        let gone = HistoryEvent {
            at: self.now,
            what: PhaseName::Gone,
            node: None,
            cause: failure.cause.kept(),
            run: 0,
        };
        let history = [gone].into_iter().collect::<History>();
        let nowhere = (None, ShortText::default());
        let run = Run::restored(instance.clone(), nowhere, self.now, (None, None), history);
        let numbers = self.instances.numbers_after(instance);
        let run = run.not_started(Some(failure.reason.clone()));
        self.instances.note_run(run.numbered(numbers, None));
    }

    pub(crate) fn set_unsent(&mut self, number: u64, unsent: Option<UnsentFailure>) {
        self.instances
            .amend_numbered_run(number, |run| run.set_unsent(unsent));
        self.note_changed_runs();
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
    fn notify_failure(&mut self, sender: SessionId, full: Explained<StartFailure>) {
        if self.queue.has_dependents() {
            let instance = InstanceId::new(&full.instance_uuid);
            self.queue.wake_dependents_of(&instance);
        }
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

    /// Fails an instance that is on no node: it is no longer managed, and its sender is sent a StartFailure that lists
    /// its latest attempts.
    pub(crate) fn fail_managed(
        &mut self,
        instance: &InstanceId,
        reason: StartFailureReason,
        node: Option<Uuid>,
        why: Explanation,
    ) {
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let request = managed.start();
        let sender = request.map_or(SessionId(0), |start| start.sender);
        let failure = StartFailure {
            node_uuid: node.map(|uuid| uuid.to_string()).unwrap_or_default(),
            instance_uuid: instance.to_string(),
            restart: request.is_some_and(|start| start.request.restart),
            reasons: why.reasons,
            never: why.never,
            attempts: managed.tried().said(),
            reason,
            ..StartFailure::default()
        };
        let reason = failure.reason.clone();
        let before = self.instances.last_run();
        self.end_managing(instance, &why.cause);
        let place = node.map(|uuid| (uuid, ShortText::new(self.cluster.name_of(uuid))));
        self.instances.amend_run(before, instance, |run| {
            run.set_failed(reason);
            if let Some((uuid, hostname)) = place {
                run.set_node(uuid, hostname);
            }
        });
        self.note_changed_runs();
        self.notify_failure(sender, Explained::new(failure, why.cause));
    }

    /// A START never arrived at its node, and its instance is not to be placed again: its claim there is released, and it
    /// has failed.
    pub(crate) fn start_is_lost(&mut self, key: NodeKey, instance: &InstanceId) {
        self.cluster.release(key, instance);
        let uuid = self.cluster.uuid(key);
        let why = Explanation::of(Refusal::Lost.into());
        let reason = StartFailureReason::LaunchFailure;
        self.fail_managed(instance, reason, Some(uuid), why);
    }
}

impl Sight<'_> {
    /// The failure of a START that a run tells of, if it still holds.
    pub(crate) fn unsent_failure(&self, number: u64) -> Option<Explained<StartFailure>> {
        let run = self.instances.run(number)?;
        if self.exists(run.instance()) || !self.instances.is_last_run(run) {
            return None;
        }
        let failure = StartFailure {
            node_uuid: run.node().map(|node| node.to_string()).unwrap_or_default(),
            instance_uuid: run.instance().to_string(),
            reason: run.failed()?.clone(),
            restart: run.unsent()?.is_restart,
            ..StartFailure::default()
        };
        let cause = run.cause().map_or(Cause::Plain, Cause::kept);
        Some(Explained::new(failure, cause))
    }
}

/// Whether a StartFailure means that the instance is there all the same: it is no failure for anyone but the sender.
pub(crate) fn still_runs(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::AlreadyRunning | StartFailureReason::InstanceExists
    )
}
