//! The coordinator's part for what the scheduler and the workers say: how far instances are, how they ended, which
//! workers there are.
//!
//! Two sources say how an instance is. The worker's own status comes first and is passed on to controllers as it is.
//! The scheduler's word decides what follows from an end: only it knows whether the instance goes on elsewhere.

use std::sync::Arc;

use ciao_adapter::tracking::{Listed, Seen, is_temporary, is_there};
use ciao_scheduler::ctl::event::Event;
use ciao_scheduler::ctl::track::Stage;
use proto_frames::payload::{
    Delete, DeleteFailureReason, InstanceView, PlacementState, StartFailureReason,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use crate::coordinator::{Coordinator, News};
use crate::instance::{Fate, Instance, Said};
use crate::requests::{Ask, Listing, SessionEvent};
use crate::rpc::common::{ResourceStatus, WorkerMetric};

/// Why an instance has failed that may have ended unseen.
const ENDED_UNSEEN: &str = "the scheduler does not have it, and does not remember all ends since it was sent: whether \
                            it ran, and how it ended, is not known";

/// What the coordinator does with an instance whose START was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    /// It has failed: another try would give the same answer.
    Fail,
    /// It is sent again some seconds later: the cluster cannot take it in its present state.
    TryAgain,
    /// It is sent again at once without its name, which another instance may have.
    TryNameless,
    /// The scheduler has it already: how far it is comes with the next listing.
    Reattach,
}

impl Coordinator {
    /// Handles one report of the session.
    pub(super) fn hear(&mut self, heard: SessionEvent) {
        match heard {
            SessionEvent::Up(session) => self.connected(session),
            SessionEvent::Down(why) => {
                warn!(
                    event = "scheduler_disconnected",
                    "not connected with the scheduler; what controllers ask for is kept and done later: {why}"
                );
                self.session = None;
                self.down = why;
            }
            SessionEvent::Missed => {
                warn!(
                    event = "events_missed",
                    "more events came than are kept; how instances are is asked again"
                );
                let open = self.instances.values_mut();
                open.filter(|it| it.is_sent() && it.is_living())
                    .for_each(|it| it.tracker().reattach());
            }
            SessionEvent::Event(event) => self.event(&event),
            SessionEvent::Listing(listing) => self.compare(&listing),
        }
    }

    /// A new connection: trackers are told that events may have been missed, DELETEs are sent again for what is to go,
    /// and what waited is sent.
    fn connected(&mut self, session: mpsc::UnboundedSender<Ask>) {
        info!(
            event = "scheduler_connected",
            "connected with the scheduler"
        );
        self.session = Some(session);
        self.back_by = Instant::now() + self.settings.return_time;
        let mut to_delete = Vec::new();
        for (instance, it) in &mut self.instances {
            if it.is_sent() && it.is_living() {
                it.tracker().reattach();
                if it.record.fate == Fate::Destroy {
                    to_delete.push(Arc::clone(instance));
                }
            }
        }
        to_delete.iter().for_each(|it| self.delete(it));
        self.submit_unsent();
    }

    /// Gives an event to the tracker of the instance that it concerns, and does what follows if its stage changed.
    fn event(&mut self, event: &Event) {
        let Some(instance) = event.instance_uuid() else {
            return;
        };
        let Some((instance, _)) = self.instances.get_key_value(instance) else {
            return;
        };
        let instance = Arc::clone(instance);
        // This is about the DELETE and not about the instance's stage.
        if let Event::DeleteFailure(failure) = event {
            self.not_deleted(&instance, &failure.reason);
            return;
        }
        if let Some(it) = self.instances.get_mut(&instance)
            && it.is_living()
            && it.tracker().observe(event).is_some()
        {
            self.settle(&instance);
        }
    }

    /// A DELETE failed. If the instance does not exist, it is over; else it is tried again.
    fn not_deleted(&mut self, instance: &Arc<str>, reason: &DeleteFailureReason) {
        let fate = self.instances.get(instance).map(|it| &it.record.fate);
        match (fate, reason) {
            (Some(Fate::Destroy), DeleteFailureReason::NoInstance) => self.finish(instance),
            (Some(Fate::Destroy), reason) => {
                warn!(event = "rik_instance_not_deleted", %instance, "the instance cannot be deleted, it is tried again: {}", reason.as_str());
                self.retry.insert(Arc::clone(instance));
            }
            _ => {}
        }
    }

    /// Compares all that was sent with a listing. What is not listed may still return until `back_by`. What is listed
    /// and no controller wants is deleted: the scheduler may have placed it again after its end was reported here.
    fn compare(&mut self, listing: &Listing) {
        let (instances, ended) = (&listing.instances, &listing.ended);
        let listed = Listed::new(instances, ended, Instant::now(), self.back_by);
        let open = self
            .instances
            .iter_mut()
            .filter(|(_, it)| it.is_sent() && it.is_living());
        let (mut changed, mut unseen) = (Vec::new(), Vec::new());
        for (instance, it) in open {
            let sent_for = it.sent_for();
            match listed.observe(instance, sent_for, it.tracker()) {
                Seen::Same => {}
                // Of what the worker said it is known how it ended.
                Seen::EndedUnseen if it.record.fate == Fate::Run && it.said.is_none() => {
                    unseen.push(Arc::clone(instance));
                }
                Seen::Changed | Seen::EndedUnseen => changed.push(Arc::clone(instance)),
            }
        }
        changed.iter().for_each(|it| self.settle(it));
        for instance in &unseen {
            self.fail(instance, ENDED_UNSEEN.to_owned());
        }
        self.submit_unsent();
        let wants = |uuid: &str| self.instances.get(uuid).is_some_and(Instance::is_living);
        let has_node = |it: &&InstanceView| it.state != PlacementState::Lost;
        let listed = instances.iter().filter(has_node);
        for unwanted in listed.filter(|it| !wants(&it.instance_uuid)) {
            self.delete_unwanted(&unwanted.instance_uuid);
        }
    }

    /// Deletes an instance of this adapter that the scheduler has and no controller wants. While it is listed, each
    /// listing has it deleted again.
    fn delete_unwanted(&self, instance: &str) {
        let Some(session) = &self.session else {
            return;
        };
        warn!(
            event = "rik_instance_not_wanted",
            instance,
            "the scheduler has an instance that no controller wants any more: it is deleted"
        );
        let delete = Delete {
            instance_uuid: instance.to_owned(),
            // The scheduler finds its node.
            workload_agent_uuid: Uuid::nil().to_string(),
            stop: false,
            forget: false,
        };
        // A lost connection brings another listing.
        let _ = session.send(Ask::Delete(delete));
    }

    /// Does what follows from an instance's stage. For one that is to go, any end is the end that was wanted.
    fn settle(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        let is_to_go = it.record.fate == Fate::Destroy;
        match it.stage().clone() {
            // However it ended, or if it never began: its controller wanted it gone.
            Stage::Ended { .. } | Stage::Failed { .. } | Stage::Vanished if is_to_go => {
                self.finish(instance);
            }
            // An instance that should run has ended.
            Stage::Ended { .. } => self.ended(instance),
            Stage::Failed { reason, detail, .. } => {
                let why = format!("{reason}: {}", detail.unwrap_or_default());
                self.not_started(instance, &reason, why);
            }
            // Its START was lost with a connection: the scheduler remembers all ends since, and has none of it.
            Stage::Vanished => {
                warn!(event = "rik_instance_sent_again", %instance, "the instance never came to the scheduler: it is sent again");
                it.begin_again();
                self.unsent.push_back(Arc::clone(instance));
                self.submit_unsent();
            }
            Stage::Held { .. } | Stage::Waiting(_) => {
                // What a worker said of it is over.
                it.said = None;
                self.notify(instance);
            }
            // It goes on as it should; controllers see how far it is.
            Stage::Sent | Stage::Placed | Stage::Running | Stage::Decided(_) => {
                self.notify(instance)
            }
        }
    }

    /// An instance that should run has ended. The worker's last status tells whether it ended well (it is over) or
    /// failed.
    fn ended(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get(instance) else {
            return;
        };
        match &it.said {
            // It ended well: for RIK an instance that has terminated by itself is over.
            Some(Said {
                status: ResourceStatus::Terminated,
                ..
            }) => self.finish(instance),
            Some(Said {
                status: ResourceStatus::Failed,
                worker,
                metrics,
                ..
            }) => {
                let why = format!("it failed on {worker}: {metrics}");
                self.fail(instance, why);
            }
            // The worker said nothing about it, as where its stream broke.
            _ => self.fail(instance, "it ended, and how is not known".to_owned()),
        }
    }

    /// A START was refused or no node could start it: fail, or send it again.
    fn not_started(&mut self, instance: &Arc<str>, reason: &str, why: String) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        let after = after_failure(reason, it.is_nameless);
        match after {
            After::Fail => return self.fail(instance, why),
            After::Reattach => return it.reattach(),
            After::TryAgain | After::TryNameless => {}
        }
        it.is_nameless |= after == After::TryNameless;
        it.begin_again();
        // The request itself was at fault, and is another one without the name: there is nothing to wait for.
        if after == After::TryNameless {
            return self.submit(instance);
        }
        it.held_back = why;
        self.retry.insert(Arc::clone(instance));
        self.notify(instance);
    }

    /// Handles one report of a worker's task.
    pub(super) fn news(&mut self, news: News) {
        match news {
            News::Worker {
                worker,
                address,
                metric,
            } => {
                self.notify_worker(&worker, &address, &metric);
                self.workers.insert(worker, (address, metric));
            }
            News::Instance { instance, said } => self.said(&instance, said),
            News::Gone {
                worker,
                ended,
                moves,
            } => self.worker_gone(&worker, &ended, &moves),
        }
    }

    /// A worker said how an instance is.
    fn said(&mut self, instance: &Arc<str>, said: Said) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        let status = said.status;
        it.said = Some(said);
        match (status, &it.record.fate) {
            // The end that was asked for; the scheduler's event about it comes later and finds the instance over.
            (ResourceStatus::Terminated, Fate::Destroy) => self.finish(instance),
            // What comes of an end, or of a failure to start, is the scheduler's to say: it may go on elsewhere.
            (ResourceStatus::Terminated | ResourceStatus::Failed, _) => {}
            _ => {
                self.notify(instance);
                self.touch_set(instance);
            }
        }
    }

    /// A worker's stream has ended. Controllers are told that the worker is `Terminated`, with its last metrics.
    /// Instances without a lease have failed; those with one wait until the scheduler has started them elsewhere.
    fn worker_gone(&mut self, worker: &Arc<str>, ended: &[Arc<str>], moves: &[Arc<str>]) {
        if let Some((address, metric)) = self.workers.remove(worker) {
            let gone = WorkerMetric {
                status: ResourceStatus::Terminated.into(),
                ..metric
            };
            self.notify_worker(worker, &address, &gone);
        }
        // Instances without a lease: the scheduler will not start them elsewhere.
        for instance in ended {
            let fate = self.instances.get(instance).map(|it| &it.record.fate);
            match fate {
                Some(Fate::Destroy) => self.finish(instance),
                Some(Fate::Run) => self.fail(instance, format!("its worker {worker} is gone")),
                _ => {}
            }
        }
        // Instances with a lease: the scheduler starts them elsewhere, unless they were to go.
        for instance in moves {
            if let Some(it) = self.instances.get_mut(instance) {
                it.said = None;
                it.held_back = format!("its worker {worker} is gone; it is started on another");
                match it.record.fate {
                    // Over once the scheduler has deleted it, and not before: it would be started elsewhere.
                    Fate::Destroy => self.delete(instance),
                    _ => self.notify(instance),
                }
            }
        }
    }
}

/// Decides by the protocol's reason word. A state of the cluster that passes is no fault of the instance; controllers
/// of RIK expect an instance to wait for as long as it takes. `InvalidData` is what the scheduler says of a name that
/// is taken, among others, so that it is tried once without.
fn after_failure(reason: &str, is_nameless: bool) -> After {
    match StartFailureReason::from(reason) {
        // The UUID is this adapter's alone, so that it is this instance.
        reason if is_there(&reason) => After::Reattach,
        reason if is_temporary(&reason) => After::TryAgain,
        StartFailureReason::InvalidData if !is_nameless => After::TryNameless,
        _ => After::Fail,
    }
}
