//! How far drains are, and what they wait for: in rows of nodes, and for the events of `workflow::drain::progress`.

use std::cmp::Reverse;

use sched_model::drain_progress::MAX_UNMOVABLE;
use sched_model::{DrainProgress, DrainState, UnmovableInstance, Uuid};

use crate::api::cause::Cause;
use crate::api::explained::{
    DrainCauses, DrainEnd, DrainSummary, DrainWaits, Explained, NamedInstance, NamedInstances,
};
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::cordons::Drain;
use crate::instance::{DEFAULT_PRIORITY, State};
use crate::sight::Sight;

/// What is still on a node that is drained, counted again for each step: O(n log n) in the node's instances.
#[derive(Debug, Default)]
pub(crate) struct Census {
    /// Those to be moved next: untried ones first, then the most urgent, then the oldest. Without those whose move is
    /// under way and those that were tried in this step.
    pub(crate) waiting: Vec<InstanceId>,
    /// Those on it in all.
    pub(crate) there: usize,
    /// Those of them that are leaving.
    pub(crate) leaving: usize,
}

/// A DrainProgress with its causes as data; the server adds the sentences.
pub(crate) type Progress = Explained<DrainProgress, DrainCauses>;

impl<'a> Sight<'a> {
    /// How far a node's drain is, for lists of nodes; `None` if it is not drained. O(n) in those that
    /// cannot be moved.
    pub(crate) fn drain_summary(&self, uuid: Uuid) -> Option<DrainSummary> {
        let drain = self.cluster.drain_of(uuid)?;
        let key = self.cluster.by_uuid(uuid)?;
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

    /// Whether an instance is about to leave a node: it moves, or was told to stop.
    pub(crate) fn is_leaving(&self, key: NodeKey, instance: &InstanceId) -> bool {
        let managed = self.instances.get(instance);
        managed.is_some_and(|managed| match managed.state() {
            State::Migrating { from, .. } => *from == key,
            State::Stopping { .. } => true,
            _ => false,
        })
    }

    /// Instances with an entry on a node.
    pub(crate) fn len_of(&self, key: NodeKey) -> usize {
        self.cluster.ledger(key).len()
    }

    /// What a drain waits for. An instance that could not be moved for a reason that stays is not waited for.
    pub(crate) fn drain_waits(&self, key: NodeKey, drain: &Drain) -> DrainWaits {
        let node = self.cluster.node(key);
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
    fn name_first<'i>(
        &self,
        mut instances: impl Iterator<Item = &'i InstanceId>,
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
    pub(crate) fn called(&self, instance: &InstanceId) -> &'a str {
        let about = self.instances.about(instance);
        about.map_or("", |about| about.name)
    }
}

impl Sight<'_> {
    /// Counts what is on a node that is drained.
    pub(crate) fn census(&self, key: NodeKey, uuid: Uuid) -> Census {
        let Some(drain) = self.cluster.drain_of(uuid) else {
            return Census::default();
        };
        let mut census = Census::default();
        let mut waiting = Vec::new();
        for (instance, _) in self.cluster.ledger(key).entries_from(0) {
            census.there += 1;
            let managed = self.instances.get(instance);
            let leaves = self.is_leaving(key, instance);
            census.leaving += usize::from(leaves);
            let tried = drain.unmovable().get(instance).map(|it| it.look);
            if leaves || drain.is_under_way(instance) || tried == Some(self.cluster.drain_looks()) {
                continue;
            }
            let priority = managed.map_or(DEFAULT_PRIORITY, |managed| managed.priority());
            let order = managed.map_or(0, |managed| managed.order());
            waiting.push((tried, Reverse(priority), order, instance.clone()));
        }
        waiting.sort();
        let waiting = waiting.into_iter().map(|(.., instance)| instance);
        census.waiting = waiting.collect();
        census
    }

    /// A DrainProgress event as things are now. For a node that is not known it names the node and the state alone.
    pub(crate) fn progress(
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
    pub(crate) fn progress_of(
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
pub(crate) fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
