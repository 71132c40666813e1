//! What a drain would come to, worked out before anything is moved: nodes are chosen and claimed for all instances
//! together, by the same code as ever, and then every claim is undone. Cursors of the search and the random generator
//! are put back too, so that a check changes nothing.

use std::cmp::Reverse;

use sched_model::DrainState;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::declined::Objection;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::Capabilities;
use crate::instance::DEFAULT_PRIORITY;
use crate::query::drains::{Progress, count};
use crate::sight::Sight;

/// Choices, plus the nodes looked at one by one for them, after which the rest of the instances is not tried: some 20
/// ms, in which the core does nothing else.
const MAX_WORK: usize = 1_000_000;

/// Instances without a node whose reason is worked out in full: each costs a look at all nodes.
const MAX_EXPLAINED: usize = 16;

impl Scheduler {
    /// What a drain of a node would achieve now: how many instances it has, which of them cannot be moved, and how many
    /// were not tried. Chooses and claims as a drain would, the most urgent first, so that two instances are not
    /// promised the same room; then undoes all claims in reverse order and puts cursors and random generator back.
    /// Bounded by `MAX_WORK`.
    pub(crate) fn check_drain(&mut self, key: NodeKey) -> Progress {
        let instances = self.sight().by_urgency(key);
        let total = instances.len();
        let cursors = self.cluster.cursors();
        let chance = self.placement.chance();
        let mut tried: Vec<(NodeKey, InstanceId)> = Vec::new();
        let mut unmovable: Vec<(InstanceId, Cause)> = Vec::new();
        let (mut work, mut untried) = (0, 0);
        for (number, instance) in (0_u32..).zip(instances) {
            if work > MAX_WORK {
                untried += 1;
                continue;
            }
            if let Err(why) = self.sight().could_move(key, &instance) {
                unmovable.push((instance, why.into()));
                continue;
            }
            let dry_run = self
                .sight()
                .query_on(key, &instance, None)
                .for_dry_run(number);
            let found = self.choose_ready(&dry_run);
            work += 1 + self.placement.looked_at();
            match found {
                Some(to) => {
                    self.reserve(self.now, to, SessionId(0), &dry_run);
                    tried.push((to, dry_run.instance().clone()));
                }
                None if unmovable.len() < MAX_EXPLAINED => {
                    let why = self.why_not_now(&dry_run);
                    unmovable.push((instance, why.cause));
                }
                None => unmovable.push((instance, Objection::NoOtherNode.into())),
            }
        }
        for (to, instance) in tried.iter().rev() {
            self.cluster.undo_claim(*to, instance);
        }
        self.cluster.set_cursors(cursors);
        self.placement.set_chance(chance);
        let uuid = self.cluster.uuid(key);
        let mut progress = self
            .sight()
            .progress_of(uuid, DrainState::Checking, total, unmovable);
        progress.left = count(total);
        progress.cause.untried = untried;
        progress
    }
}

impl Sight<'_> {
    /// The instances on a node, the most urgent first.
    fn by_urgency(&self, key: NodeKey) -> Vec<InstanceId> {
        let entries = self.cluster.ledger(key).entries_from(0);
        let ranked = entries.map(|(instance, _)| {
            let managed = self.instances.get(instance);
            let priority = managed.map_or(DEFAULT_PRIORITY, |managed| managed.priority());
            let order = managed.map_or(0, |managed| managed.order());
            (Reverse(priority), order, instance.clone())
        });
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort();
        ranked.into_iter().map(|(.., instance)| instance).collect()
    }

    /// Whether an instance could be moved if there is room for it elsewhere: its START is known, or its launcher can
    /// transfer it with its state.
    ///
    /// # Errors
    /// That its START was not kept.
    fn could_move(&self, key: NodeKey, instance: &InstanceId) -> Result<(), Objection> {
        let managed = self.instances.get(instance);
        let has_start = managed.is_some_and(|managed| managed.start().is_some());
        if has_start || self.cluster.node(key).can(Capabilities::MIGRATE) {
            return Ok(());
        }
        Err(Objection::NoStartKept)
    }
}
