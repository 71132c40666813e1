//! How far drains are, and what they wait for: in rows of nodes, and for the events of `workflow::drain::progress`.

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::explained::{DrainSummary, DrainWaits, NamedInstance, NamedInstances};
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::cordons::Drain;
use crate::instance::State;

impl Scheduler {
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
    pub(crate) fn called(&self, instance: &InstanceId) -> &str {
        let about = self.instances.about(instance);
        about.map_or("", |about| about.name)
    }
}
