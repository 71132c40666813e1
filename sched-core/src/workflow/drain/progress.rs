//! How far a drain is, as it is told in events ([`Scheduler::progress`]); for rows of nodes, and what it waits for, see
//! `query::drains`. Nothing is changed here.

use sched_model::drain_progress::MAX_UNMOVABLE;
use sched_model::{DrainProgress, DrainState, UnmovableInstance, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::explained::{DrainCauses, DrainEnd, Explained};
use crate::api::ids::InstanceId;

/// A DrainProgress with its causes as data; the server adds the sentences.
pub(super) type Progress = Explained<DrainProgress, DrainCauses>;

impl Scheduler {
    /// A DrainProgress event as things are now. For a node that is not known it names the node and the state alone.
    pub(super) fn progress(
        &self,
        uuid: Uuid,
        state: DrainState,
        end: Option<DrainEnd>,
    ) -> Progress {
        let (Some(drain), Some(key)) = (self.cluster.drain_of(uuid), self.cluster.by_uuid(uuid))
        else {
            let progress = DrainProgress {
                node_uuid: uuid.to_string(),
                state,
                ..DrainProgress::default()
            };
            let causes = DrainCauses {
                end,
                ..DrainCauses::default()
            };
            return Progress::new(progress, causes);
        };
        let census = self.census(key, uuid);
        let total = drain.total().max(census.there);
        let gone = total - census.there;
        let unmovable = drain.unmovable().iter();
        let unmovable = unmovable.map(|(instance, it)| (instance.clone(), it.why.clone()));
        let unmovable: Vec<_> = unmovable.collect();
        let goes_on = state == DrainState::Moving;
        let mut progress = self.progress_of(uuid, state, total, unmovable);
        progress.moved = count(gone);
        progress.ended = count(drain.ended().min(gone));
        progress.moving = count(census.leaving);
        progress.left = count(census.there - census.leaving);
        progress.cause.end = end;
        if goes_on {
            progress.cause.waits = self.drain_waits(key, drain);
        }
        progress
    }

    /// A DrainProgress with the instances that cannot be moved, at most `MAX_UNMOVABLE` of them one by one.
    pub(super) fn progress_of(
        &self,
        uuid: Uuid,
        state: DrainState,
        total: usize,
        unmovable: Vec<(InstanceId, Cause)>,
    ) -> Progress {
        let unmovable_count = count(unmovable.len());
        let (named, causes) = unmovable
            .into_iter()
            .take(MAX_UNMOVABLE)
            .map(|(instance, cause)| {
                let unmovable = UnmovableInstance {
                    instance_uuid: instance.to_string(),
                    name: self.called(&instance).to_owned(),
                    ..UnmovableInstance::default()
                };
                (unmovable, cause)
            })
            .unzip();
        let progress = DrainProgress {
            node_uuid: uuid.to_string(),
            state,
            total: count(total),
            unmovable: named,
            unmovable_count,
            ..DrainProgress::default()
        };
        let causes = DrainCauses {
            unmovable: causes,
            ..DrainCauses::default()
        };
        Progress::new(progress, causes)
    }
}

/// A number as the wire has it; one that does not fit is the largest.
pub(super) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
