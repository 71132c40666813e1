//! How far a drain is, as it is told: in events ([`Scheduler::progress`]) and in the rows of nodes
//! ([`Scheduler::drain_summary`]), with what it waits for. Nothing is changed here.

use sched_model::drain_progress::MAX_UNMOVABLE;
use sched_model::{DrainProgress, DrainState, UnmovableInstance, Uuid};

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::explained::{
    DrainCauses, DrainEnd, DrainSummary, DrainWaits, Explained, NamedInstance, NamedInstances,
};
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::cordons::Drain;

/// A DrainProgress with its causes as data; the server adds the sentences.
pub(super) type Progress = Explained<DrainProgress, DrainCauses>;

impl Scheduler {
    /// How far a node's drain is, for lists of nodes; `None` if it is not drained. O(n) in those that
    /// cannot be moved.
    pub(crate) fn drain_summary(&self, uuid: Uuid) -> Option<DrainSummary> {
        let drain = self.cluster.cordons().drain(uuid)?;
        let key = self.cluster.nodes().by_uuid(uuid)?;
        let there = self.len_of(key);
        let total = drain.total().max(there);
        let gone = total - there;
        let ended = drain.ended().min(gone);
        Some(DrainSummary {
            moved: gone - ended,
            ended,
            total,
            unmovable: drain.unmovable().len(),
            waits: self.drain_waits(key, drain),
        })
    }

    /// A DrainProgress event as things are now. For a node that is not known it names the node and the state alone.
    pub(super) fn progress(
        &self,
        uuid: Uuid,
        state: DrainState,
        end: Option<DrainEnd>,
    ) -> Progress {
        let (Some(drain), Some(key)) = (
            self.cluster.cordons().drain(uuid),
            self.cluster.nodes().by_uuid(uuid),
        ) else {
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

    /// What a drain waits for. An instance that could not be moved for a reason that stays is not waited for.
    fn drain_waits(&self, key: NodeKey, drain: &Drain) -> DrainWaits {
        let node = self.cluster.nodes().node(key);
        let ledger = node.ledger();
        let is_there = |it: &&InstanceId| ledger.get(it).is_some();
        let leaving = drain.under_way().iter();
        let leaving = leaving.filter(|it| is_there(it) && self.is_leaving(key, it));
        let starting = drain.under_way().iter().filter(|it| !is_there(it));
        let without_room = drain.unmovable().iter();
        let without_room = without_room.filter(|(_, it)| !it.is_lasting);
        let without_room = without_room.map(|(instance, _)| instance);
        DrainWaits {
            is_node_silent: node.session().is_none() || !node.has_listed(),
            leaving: self.name_first(leaving),
            starting: self.name_first(starting),
            without_room: self.name_first(without_room.filter(is_there)),
        }
    }

    /// Counts instances and names the first.
    fn name_first<'a>(
        &self,
        mut instances: impl Iterator<Item = &'a InstanceId>,
    ) -> NamedInstances {
        let Some(first) = instances.next() else {
            return NamedInstances::default();
        };
        let name = self.called(first).into();
        NamedInstances {
            count: 1 + instances.count(),
            first: Some(NamedInstance {
                instance: first.clone(),
                name,
            }),
        }
    }

    /// What an instance is called; empty where it has no name.
    fn called(&self, instance: &InstanceId) -> &str {
        let about = self.instances.about(instance);
        about.map_or("", |about| &about.name)
    }
}

/// A number as the wire has it; one that does not fit is the largest.
pub(super) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
