//! Nodes that get no new work, by UUID, whether they are connected or not; and how far drains of them are.
//!
//! Only data: what is done about it is in `workflow::drain`. Drains are stepped at the end of an input when something
//! was *stirred*: an instance has left, a move has ended, a node has room.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sched_model::Uuid;
use sched_model::evacuate::DEFAULT_PARALLEL;

use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::cluster::{Cluster, ClusterChange};

/// Nodes that may be cordoned at once, connected or not: as many as the largest cluster this is built for has.
pub(crate) const MAX_CORDONS: usize = 100_000;

/// How long after a node has room again the drains look for it: room comes in bursts, and each look costs a choice for
/// every instance that fitted nowhere.
pub(crate) const DRAIN_RETRY: Duration = Duration::from_secs(1);

/// The cordoned nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cordons {
    /// By UUID, so that drains are stepped in the same order in every run.
    by_node: BTreeMap<Uuid, Cordon>,
    /// How many of them are drained.
    drains: usize,
    /// Whether something has happened after which a drain may go on.
    is_stirred: bool,
    /// When to look for room again.
    retry_at: Option<Instant>,
    /// Counts those searches for room: an instance that fitted nowhere is tried again only in a later one.
    looks: u64,
}

/// A cordoned node.
#[derive(Debug, Clone)]
pub(crate) struct Cordon {
    since_ms: u64,
    drain: Option<Drain>,
}

/// A drain under way.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    /// When it ends incomplete.
    due: Option<Instant>,
    /// Instances that may be on their way at once.
    parallel: usize,
    /// The most instances that were on the node since it began.
    total: usize,
    /// Who asked for it.
    asker: Option<SessionId>,
    /// Those on their way: leaving the node, or being started elsewhere.
    under_way: BTreeSet<InstanceId>,
    /// Those that have left the node since drains were stepped last: whether they went elsewhere is known at the end of
    /// the input alone.
    left: BTreeSet<InstanceId>,
    /// How many have left it and went nowhere else.
    ended: usize,
    /// Instances that could not be moved when they were tried last, with the reason.
    unmovable: BTreeMap<InstanceId, Unmovable>,
    /// The figures of the latest event about it: how many are there, are leaving, and cannot be moved. No event repeats
    /// them.
    said: Option<(usize, usize, usize)>,
}

/// Why an instance could not be moved.
#[derive(Debug, Clone)]
pub(crate) struct Unmovable {
    /// For people.
    pub(crate) why: Cause,
    /// Whether waiting alone does not help.
    pub(crate) is_lasting: bool,
    /// The number of the search for room in which it was tried.
    pub(crate) look: u64,
}

/// What has become of an instance that was on its way off a drained node.
#[derive(Debug)]
pub(crate) enum Moved {
    /// It still is on its way.
    NotYet,
    /// It is where it was, for this reason; it is not tried again in the same search for room.
    Back(Cause),
    /// It is gone from there, or in another state.
    Away,
}

impl Cordon {
    /// Since when, in unix milliseconds.
    pub(crate) fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// The drain under way.
    pub(crate) fn drain(&self) -> Option<&Drain> {
        self.drain.as_ref()
    }
}

impl Drain {
    /// A drain that ends incomplete at `due`, moves up to `parallel` instances at once (0 = the default), and began
    /// with `total` instances on the node.
    pub(crate) fn new(
        due: Option<Instant>,
        parallel: u32,
        total: usize,
        asker: Option<SessionId>,
    ) -> Self {
        let parallel = if parallel == 0 {
            DEFAULT_PARALLEL
        } else {
            parallel
        };
        Self {
            due,
            parallel: parallel as usize,
            total,
            asker,
            under_way: BTreeSet::new(),
            left: BTreeSet::new(),
            ended: 0,
            unmovable: BTreeMap::new(),
            said: None,
        }
    }

    /// When it ends incomplete.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Instances that may be on their way at once.
    pub(crate) fn parallel(&self) -> usize {
        self.parallel
    }

    /// The most instances that were on the node since it began.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Those that have left the node and went nowhere else: they ended, or were deleted.
    pub(crate) fn ended(&self) -> usize {
        self.ended
    }

    /// Counts instances that have left the node and went nowhere else.
    pub(crate) fn count_ended(&mut self, count: usize) {
        self.ended += count;
    }

    /// Those that have left the node since this was called last.
    pub(crate) fn take_left(&mut self) -> BTreeSet<InstanceId> {
        std::mem::take(&mut self.left)
    }

    /// Those on their way, in the order of their names.
    pub(crate) fn under_way(&self) -> &BTreeSet<InstanceId> {
        &self.under_way
    }

    /// Who asked for it.
    pub(crate) fn asker(&self) -> Option<SessionId> {
        self.asker
    }

    /// Whether one more instance may be on its way.
    pub(crate) fn may_begin(&self) -> bool {
        self.under_way.len() < self.parallel
    }

    /// Whether an instance is on its way.
    pub(crate) fn is_under_way(&self, instance: &InstanceId) -> bool {
        self.under_way.contains(instance)
    }

    /// An instance is on its way.
    pub(crate) fn begin(&mut self, instance: InstanceId) {
        self.unmovable.remove(&instance);
        self.under_way.insert(instance);
    }

    /// An instance could not be moved.
    pub(crate) fn note_unmovable(&mut self, instance: InstanceId, why: Unmovable) {
        self.unmovable.insert(instance, why);
    }

    /// Those that could not be moved when it was tried last.
    pub(crate) fn unmovable(&self) -> &BTreeMap<InstanceId, Unmovable> {
        &self.unmovable
    }

    /// Asks for each instance on its way what has become of it, and moves it to those that could not be moved, or
    /// forgets it.
    pub(crate) fn settle(&mut self, look: u64, moved: impl Fn(&InstanceId) -> Moved) {
        let unmovable = &mut self.unmovable;
        self.under_way.retain(|instance| match moved(instance) {
            Moved::NotYet => true,
            Moved::Away => false,
            Moved::Back(why) => {
                let stayed = Unmovable {
                    why,
                    is_lasting: false,
                    look,
                };
                unmovable.insert(instance.clone(), stayed);
                false
            }
        });
    }

    /// Notes how many instances are on the node; the total is the most there ever were.
    pub(crate) fn note_there(&mut self, there: usize) {
        self.total = self.total.max(there);
    }

    /// Notes that an event with these figures is about to be sent; whether they differ from those of the latest event.
    pub(crate) fn say(&mut self, there: usize, leaving: usize) -> bool {
        let now = (there, leaving, self.unmovable.len());
        self.said.replace(now) != Some(now)
    }
}

impl Cluster {
    /// Cordons a node, connected or not, from this time on; `false` if there are too many cordoned nodes. One that is
    /// cordoned already keeps its time.
    pub(crate) fn cordon(&mut self, node: Uuid, since_ms: u64) -> bool {
        let by_node = &mut self.cordons.by_node;
        if by_node.len() >= MAX_CORDONS && !by_node.contains_key(&node) {
            return false;
        }
        let drain = None;
        by_node.entry(node).or_insert(Cordon { since_ms, drain });
        self.note_cordon(node, true);
        true
    }

    /// Ends a node's cordon, and a drain with it; whether it was cordoned.
    pub(crate) fn uncordon(&mut self, node: Uuid) -> bool {
        self.end_drain(node);
        let was_in = self.cordons.by_node.remove(&node).is_some();
        if was_in {
            self.note_cordon(node, false);
        }
        was_in
    }

    /// Forgets instances that could not be moved off a drained node and that are not on it any more.
    pub(crate) fn forget_unmovable_gone(&mut self, key: NodeKey) {
        let node = self.nodes.node(key);
        let cordon = self.cordons.by_node.get_mut(&node.uuid);
        if let Some(drain) = cordon.and_then(|it| it.drain.as_mut()) {
            let is_there = |instance: &InstanceId| node.ledger.get(instance).is_some();
            drain.unmovable.retain(|instance, _| is_there(instance));
        }
    }

    /// Copies the cordon to the node, if it is in the store, and updates its offer.
    fn note_cordon(&mut self, node: Uuid, is_cordoned: bool) {
        if let Some(key) = self.nodes.by_uuid(node) {
            let node = self.nodes.node_mut(key);
            let is_new = node.is_cordoned != is_cordoned;
            node.is_cordoned = is_cordoned;
            if is_new {
                self.count_generation(key);
                if is_cordoned {
                    self.changes.push_back(ClusterChange::Narrowed(key));
                }
            }
            self.refresh_offer(key);
        }
    }

    /// Nodes that are cordoned.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn cordon_count(&self) -> usize {
        self.cordons.by_node.len()
    }

    /// Whether a node is cordoned.
    pub(crate) fn is_cordoned(&self, node: Uuid) -> bool {
        self.cordons.by_node.contains_key(&node)
    }

    /// What is known of a cordoned node.
    pub(crate) fn cordon_of(&self, node: Uuid) -> Option<&Cordon> {
        self.cordons.by_node.get(&node)
    }

    /// Of the nodes that are being drained, the earliest time at which one was cordoned, in milliseconds since 1970;
    /// for the metrics. The beginning of a drain is not kept.
    pub(crate) fn oldest_drain_ms(&self) -> Option<u64> {
        let cordons = self.cordons.by_node.values();
        let drained = cordons.filter(|it| it.drain.is_some());
        drained.map(|it| it.since_ms).min()
    }

    /// The drain of a node.
    pub(crate) fn drain_of(&self, node: Uuid) -> Option<&Drain> {
        if self.cordons.drains == 0 {
            return None;
        }
        self.cordons.by_node.get(&node)?.drain.as_ref()
    }

    /// The drain of a node, to be changed.
    pub(crate) fn drain_of_mut(&mut self, node: Uuid) -> Option<&mut Drain> {
        self.cordons.by_node.get_mut(&node)?.drain.as_mut()
    }

    /// Begins the drain of a node that is cordoned, or replaces the one under way: its moves and its total are taken
    /// over.
    pub(crate) fn begin_drain(&mut self, node: Uuid, mut drain: Drain) {
        if let Some(cordon) = self.cordons.by_node.get_mut(&node) {
            match cordon.drain.take() {
                Some(earlier) => {
                    drain.note_there(earlier.total);
                    drain.under_way = earlier.under_way;
                    drain.left = earlier.left;
                    drain.ended = earlier.ended;
                }
                None => self.cordons.drains += 1,
            }
            cordon.drain = Some(drain);
            self.cordons.is_stirred = true;
        }
    }

    /// Ends the drain of a node, which stays cordoned; returns it, if there was one.
    pub(crate) fn end_drain(&mut self, node: Uuid) -> Option<Drain> {
        let drain = self.cordons.by_node.get_mut(&node)?.drain.take()?;
        self.cordons.drains -= 1;
        Some(drain)
    }

    /// The nodes that are drained.
    pub(crate) fn drained_nodes(&self) -> Vec<Uuid> {
        if self.cordons.drains == 0 {
            return Vec::new();
        }
        let cordons = self.cordons.by_node.iter();
        let drained = cordons.filter(|(_, it)| it.drain.is_some());
        drained.map(|(&uuid, _)| uuid).collect()
    }

    /// An instance has left a node. Does nothing if that is not drained.
    pub(crate) fn note_left(&mut self, node: Uuid, instance: &InstanceId) {
        if self.cordons.drains > 0
            && let Some(drain) = self.drain_of_mut(node)
        {
            drain.left.insert(instance.clone());
            self.cordons.is_stirred = true;
        }
    }

    /// Whether something has happened after which a drain may go on.
    pub(crate) fn has_stirred_drains(&self) -> bool {
        self.cordons.is_stirred
    }

    /// Has all drains stepped, at the end of this input or in the tick after it. Does nothing without drains.
    pub(crate) fn stir_drains(&mut self) {
        self.cordons.is_stirred = self.cordons.drains > 0;
    }

    /// Whether drains are to be stepped; asked once for each step.
    pub(crate) fn take_stirred_drains(&mut self) -> bool {
        std::mem::take(&mut self.cordons.is_stirred) && self.cordons.drains > 0
    }

    /// An instance has made a transition, and is on this node: drains are stirred if it is on a drained node or on its
    /// way off one.
    pub(crate) fn note_transition(&mut self, instance: &InstanceId, node: Option<Uuid>) {
        let cordons = &mut self.cordons;
        if cordons.drains == 0 || cordons.is_stirred {
            return;
        }
        let concerns = |(uuid, cordon): (&Uuid, &Cordon)| {
            let drain = cordon.drain.as_ref();
            drain.is_some_and(|it| node == Some(*uuid) || it.under_way.contains(instance))
        };
        cordons.is_stirred = cordons.by_node.iter().any(concerns);
    }

    /// A node offers more than before: drains with instances that fitted nowhere search for room again after
    /// [`DRAIN_RETRY`].
    pub(crate) fn note_room_for_drains(&mut self, now: Instant) {
        let cordons = &mut self.cordons;
        if cordons.drains == 0 || cordons.retry_at.is_some() {
            return;
        }
        let mut drains = cordons.by_node.values().filter_map(Cordon::drain);
        if drains.any(|drain| !drain.unmovable.is_empty()) {
            cordons.retry_at = Some(now + DRAIN_RETRY);
        }
    }

    /// How often drains have searched for room.
    pub(crate) fn drain_looks(&self) -> u64 {
        self.cordons.looks
    }

    /// When drains search for room again.
    pub(crate) fn drain_retry_due(&self) -> Option<Instant> {
        self.cordons.retry_at.filter(|_| self.cordons.drains > 0)
    }

    /// Begins another search for room, if it is due.
    pub(crate) fn retry_drains(&mut self, now: Instant) {
        if self.drain_retry_due().is_some_and(|at| at <= now) {
            self.cordons.retry_at = None;
            self.cordons.looks += 1;
            self.cordons.is_stirred = true;
        }
    }

    /// Notes that what a node has, or what becomes of it, has changed; does nothing if it is not drained.
    pub(crate) fn stir_drain_of(&mut self, key: NodeKey) {
        if self.drain_of(self.uuid(key)).is_some() {
            self.stir_drains();
        }
    }
}
