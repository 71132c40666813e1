//! Nodes that are lost with instances that are looked after, and launchers that keep failing.

use proto_frames::payload::StartFailureReason;

use super::Scheduler;
use super::explain::Explanation;
use super::ids::{InstanceId, NodeKey};
use super::instances::{Awaits, Placing, State, Wanted};
use super::ledger::Phase;
use super::placement::Refusal;

impl Scheduler {
    /// The instances looked after that have an entry on a node.
    pub(super) fn kept_on(&self, key: NodeKey) -> Vec<InstanceId> {
        let ledger = &self.nodes.node(key).ledger;
        let entries = ledger.entries_from(0);
        entries
            .filter(|(_, entry)| entry.is_kept)
            .map(|(instance, _)| instance.clone())
            .collect()
    }

    /// A node's connection has ended: what it was not told of yet goes elsewhere.
    pub(super) fn kept_cut_off(&mut self, key: NodeKey) {
        if self.instances.is_empty() {
            return;
        }
        for instance in self.kept_on(key) {
            let Some(kept) = self.instances.get(&instance) else {
                continue;
            };
            if let State::Placing(Placing { node, awaits }) = &kept.state
                && *node == key
                && *awaits != Awaits::Node
            {
                self.release(key, &instance);
                self.seek(&instance, "its node was lost before it was told");
            }
        }
    }

    /// A lost node is given up: whatever is looked after and was there is there no more, as far as anybody knows.
    pub(super) fn kept_given_up(&mut self, key: NodeKey) {
        if self.instances.is_empty() {
            return;
        }
        for instance in self.kept_on(key) {
            let is_claim = self
                .nodes
                .node(key)
                .ledger
                .get(&instance)
                .is_some_and(|entry| entry.phase == Phase::Claimed);
            self.release(key, &instance);
            let Some(kept) = self.instances.get(&instance) else {
                continue;
            };
            match &kept.state {
                State::Placing(_) => {
                    let why = Explanation::of(Refusal::Lost.detail());
                    self.fail_kept(&instance, StartFailureReason::LaunchFailure, None, why);
                }
                State::Migrating { to, .. } if *to == key => self.target_is_lost(&instance),
                State::Migrating { to, .. } => {
                    let to = *to;
                    self.unclaim(to, &instance);
                    self.let_go(&instance, "its node is lost");
                }
                _ if is_claim => {}
                _ => self.let_go(&instance, "its node is lost"),
            }
        }
    }

    /// A START came back that was never written to its node.
    pub(super) fn unsent_again(&mut self, instance: &InstanceId, is_undone: bool) {
        if is_undone {
            let why = Explanation::of(Refusal::Undone.detail());
            return self.fail_kept(instance, StartFailureReason::LaunchFailure, None, why);
        }
        self.seek(instance, "its node was lost before it was told");
    }

    /// A node is back with an instance that was taken for lost.
    pub(super) fn came_back(&mut self, key: NodeKey, instance: &InstanceId, _wanted: Wanted) {
        self.turn(instance, State::Running { node: key }, "its node is back");
    }

    /// By now a lost node's launcher has certainly stopped an instance.
    pub(super) fn fence_is_over(&mut self, instance: &InstanceId, wanted: Wanted) {
        match wanted {
            Wanted::Yes => self.seek(instance, "its node is lost"),
            Wanted::No => self.let_go(instance, "deleted"),
        }
    }

    /// Counts a START's failure against its node, if it says something about that.
    pub(super) fn blame(
        &mut self,
        key: NodeKey,
        _instance: &InstanceId,
        reason: &StartFailureReason,
    ) {
        if blames_node(reason) {
            let now = self.now;
            self.nodes.node_mut(key).failures.add(now);
        }
    }
}

/// Whether a StartFailure says something about the node rather than about what was to run there.
fn blames_node(reason: &StartFailureReason) -> bool {
    matches!(
        reason,
        StartFailureReason::LaunchFailure
            | StartFailureReason::ImageFailure
            | StartFailureReason::NetworkFailure
    )
}
