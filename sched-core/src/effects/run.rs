//! A run of an instance is over, or its START is without one having begun: it becomes part of what is remembered.

use sched_model::{PhaseName, StartFailureReason, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::text::ShortText;
use crate::instance::{HistoryEvent, Run};
use crate::query::verdict::BeforeEnd;

impl Scheduler {
    /// A node does not list an instance any more that is not managed, and has not said how it ended.
    pub(crate) fn run_has_vanished(&mut self, key: NodeKey, instance: &InstanceId) {
        let before = BeforeEnd::new(self.instances.last_run(), None);
        self.run_is_over(key, instance, before, &Cause::NotListed);
    }

    /// A START that was given to a node has failed: it leaves a run that never began, for those who ask later what
    /// became of it. The run of a managed instance was noted by its last transition, and gets the reason and its node.
    pub(crate) fn start_is_over(
        &mut self,
        instance: &InstanceId,
        place: (Uuid, ShortText),
        before: BeforeEnd,
        (reason, why): (StartFailureReason, &Cause),
    ) {
        let is_noted = self.instances.amend_run(before.last_run, instance, |run| {
            run.set_node(place.0, place.1.clone());
            run.set_failed(reason.clone());
        });
        if !is_noted {
            let node = place.0;
            let run = Run::plain(instance.clone(), place, before.since, self.now, why.kept());
            let run = run.not_started(Some(reason));
            self.instances.note_whole_run(node, run);
        }
        self.note_changed_runs();
    }

    /// A run of an instance is over by its node's report. The run of a managed instance was noted by its last
    /// transition, and only gets its node here; the run of a plain one is noted now.
    pub(crate) fn run_is_over(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        before: BeforeEnd,
        why: &Cause,
    ) {
        let place = self.cluster.host(key);
        let is_noted = self.instances.amend_run(before.last_run, instance, |run| {
            run.set_node(place.0, place.1.clone());
        });
        if !(is_noted || before.since.is_none() && self.completes_run(key, instance, why)) {
            let node = place.0;
            let run = Run::plain(instance.clone(), place, before.since, self.now, why.kept());
            self.instances.note_whole_run(node, run);
        }
        self.note_changed_runs();
    }

    /// A node reports the end of an instance that it had when it was given up as lost: how that run ended is known now;
    /// whether it is that run.
    fn completes_run(&mut self, key: NodeKey, instance: &InstanceId, why: &Cause) -> bool {
        let (uuid, hostname) = self.cluster.host(key);
        let event = HistoryEvent {
            at: self.now,
            what: PhaseName::Gone,
            node: Some(uuid),
            cause: why.kept(),
            run: 0,
        };
        let complete = |run: &mut Run| run.complete(event, hostname);
        let is_open = |run: &Run| run.is_open_on(uuid) || run.is_given_up_on(uuid);
        self.instances.amend_last_run(instance, is_open, complete)
    }
}
