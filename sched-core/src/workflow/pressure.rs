//! Nodes that are short of memory. They get no new work, as any node that reports a fault; and where the policy says
//! `evict`, their instances are moved away, one at a time, until the launcher reports that the shortage is over.

use std::cmp::Reverse;
use std::time::Duration;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::pressure::{PressureNews, PressurePolicy};
use crate::cluster::ledger::ClaimState;
use crate::instance::{DEFAULT_PRIORITY, MoveRequest, State};
use crate::sight::Sight;
use crate::workflow::migrate::{MOVE_TIME, MovePlan};

/// Least time between two moves away from a node. Launchers go by an average over 10 s, which has to fall before it can
/// be seen whether one move was enough.
pub(crate) const RELIEF_TIME: Duration = Duration::from_secs(30);

/// Instances that are tried in one step where none can be moved: bounds the time under the lock.
const MAX_TRIED: usize = 64;

impl Scheduler {
    /// Moves one instance away from a node that is short of memory, if the policy says so, none is leaving already and
    /// [`RELIEF_TIME`] has passed. Called after each STATS of the node. If nothing can be moved, that is reported, and
    /// it is tried again after the same time.
    pub(crate) fn relieve(&mut self, key: NodeKey) {
        let node = self.cluster.node(key);
        let is_soon = node
            .relieved_at()
            .is_some_and(|at| self.now < at + RELIEF_TIME);
        let is_to_be = self.placement.policy().pressure() == PressurePolicy::Evict;
        if !is_to_be || is_soon || !node.is_short_of_memory() {
            return;
        }
        let Some(movable) = self.sight().movable_from(key) else {
            return;
        };
        let mut news = PressureNews::Stuck;
        for instance in movable.into_iter().take(MAX_TRIED) {
            let plan = MovePlan {
                target: None,
                due: self.now + MOVE_TIME,
                move_request: MoveRequest::default(),
                why: Cause::NodeShortOfMemory,
            };
            if self.move_instance(&instance, plan).is_ok() {
                self.counters.relieved += 1;
                news = PressureNews::Moved(instance);
                break;
            }
        }
        self.cluster.note_relieved(key, self.now);
        self.notify_pressure(key, news);
    }
}

impl Sight<'_> {
    /// The instances that run on a node, in the order in which they are to leave: the lowest priority first, and of one
    /// priority the one that uses most memory. `None` while an instance is leaving already.
    fn movable_from(&self, key: NodeKey) -> Option<Vec<InstanceId>> {
        let mut movable = Vec::new();
        for (instance, entry) in self.cluster.ledger(key).entries_from(0) {
            let managed = self.instances.get(instance);
            match managed.map(|managed| managed.state()) {
                Some(State::Migrating { from, .. }) if *from == key => return None,
                Some(State::Stopping { .. }) => return None,
                _ => {}
            }
            if entry.claim_state() == ClaimState::Running {
                let priority = managed.map_or(DEFAULT_PRIORITY, |managed| managed.priority());
                movable.push((priority, Reverse(entry.used_mem_mib()), instance.clone()));
            }
        }
        movable.sort();
        Some(movable.into_iter().map(|(.., instance)| instance).collect())
    }
}
