//! What must always hold of the cluster, recomputed from scratch and compared with what is kept. Called by
//! `Scheduler::invariants`, in tests and in the simulation after every step; never in a running scheduler's usual work,
//! since it costs a walk over all nodes and all instances.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::cluster::Cluster;
use crate::cluster::node::Pool;

impl Cluster {
    /// What does not hold of tables, labels, groups and placements.
    ///
    /// # Errors
    /// The first thing that does not agree, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        for pool in Pool::ALL {
            self.check_table(pool)?;
        }
        self.check_nodes()?;
        self.check_groups()?;
        ensure(self.tries.is_consistent(), || {
            "what is tried on full nodes is not what is counted".to_owned()
        })?;
        self.check_full_nodes()
    }

    /// Names lead to nodes and back, ledgers' sums are right, rooms follow from reports, and placements have entries.
    fn check_nodes(&self) -> Result<(), String> {
        ensure(self.absent.is_consistent(), || {
            "the lost nodes are not those that are absent since some time".to_owned()
        })?;
        for (key, node) in self.nodes.iter_from(0) {
            let uuid = node.uuid;
            ensure(self.absent.get(uuid).is_none(), || {
                format!("node {uuid} is there and absent")
            })?;
            ensure(node.ledger.is_consistent(), || {
                format!("sums of node {uuid} are not what its entries say")
            })?;
            ensure(node.room == node.measured_room(), || {
                format!("the room of node {uuid} is not what its report and limits say")
            })?;
            ensure(self.nodes.by_uuid(uuid) == Some(key), || {
                format!("node {uuid} is not found by its UUID")
            })?;
            ensure(
                node.report().is_none()
                    || node.hostname().is_empty()
                    || self.nodes.by_hostname(node.hostname()).contains(&key),
                || format!("node {uuid} is not found by its host name"),
            )?;
        }
        for (instance, &key) in &self.placements {
            let has_it = self.nodes.node(key).ledger.get(instance).is_some();
            ensure(has_it, || {
                format!("{instance} is placed on a node that has no claim of it")
            })?;
        }
        Ok(())
    }

    /// The list of full nodes to be tried has exactly those that are FULL and on which room was released since.
    fn check_full_nodes(&self) -> Result<(), String> {
        let listed: BTreeSet<NodeKey> = self.full.iter().copied().collect();
        let nodes = self.nodes.iter_from(0);
        let has_room = nodes.filter(|(_, node)| node.session().is_some() && node.has_room_again());
        ensure(listed == has_room.map(|(key, _)| key).collect(), || {
            "the nodes to be tried are not those that called themselves full and have room again"
                .to_owned()
        })
    }

    /// Groups have exactly the members that ledgers have, on the right nodes and in the right slots, and of them those in
    /// place that have not given way.
    fn check_groups(&self) -> Result<(), String> {
        let mut listed = BTreeMap::new();
        for (key, node) in self.nodes.iter_from(0) {
            for (group, members) in node.ledger.memberships() {
                let (all, in_place) = listed.entry((group.clone(), key)).or_insert((0, 0));
                *all += members.all;
                *in_place += members.in_place;
            }
        }
        let mut counted = BTreeMap::new();
        for (id, group) in self.groups.iter() {
            ensure(group.is_consistent(&self.nodes), || {
                format!("what is counted of group {id} is not what its members say")
            })?;
            for (key, count) in group.nodes() {
                let counts = [count, group.in_place(key)].map(u32::cast_signed);
                counted.insert((id.clone(), key), counts.into());
                let slots = self.nodes.node(key).slots;
                ensure(group.slots_of(key) == Some(slots), || {
                    format!("group {id} has a member in a slot that its node left")
                })?;
            }
        }
        ensure(listed == counted, || {
            "groups do not have the members that ledgers list".to_owned()
        })
    }

    /// One table agrees with the nodes: its nodes know their slots and are connected, each offers what is free on it or
    /// nothing, labels are those of its nodes, and no node with a slot is missing.
    fn check_table(&self, pool: Pool) -> Result<(), String> {
        let table = &self.tables[pool as usize];
        ensure(table.is_consistent(), || {
            format!("the {pool:?} table's parts do not agree")
        })?;
        let labels = &self.labels[pool as usize];
        let labelled = table.iter().filter_map(|key| {
            let node = self.nodes.node(key);
            Some((node.slots[pool as usize]?, &*node.traits.labels))
        });
        ensure(labels.is_consistent(labelled), || {
            format!("the {pool:?} table's labels are not its nodes'")
        })?;
        for key in table.iter() {
            let node = self.nodes.node(key);
            let uuid = node.uuid;
            let slot = node.slots[pool as usize]
                .ok_or_else(|| format!("node {uuid} does not know its slot"))?;
            ensure(table.node(slot) == Some(key), || {
                format!("node {uuid} is not in its slot")
            })?;
            let offer = if node.is_on_offer() {
                self.nodes.free(key)
            } else {
                Resources::NEVER
            };
            ensure(table.offer(slot) == offer, || {
                format!("node {uuid} offers a stale amount")
            })?;
            for &(column, _) in &node.traits.resources {
                let free = self.nodes.free_custom(key, column);
                ensure(table.custom(slot, column) == free, || {
                    format!("node {uuid} offers a stale amount of a custom resource")
                })?;
            }
            ensure(node.session().is_some(), || {
                format!("node {uuid} is lost but can be chosen")
            })?;
        }
        let members = self
            .nodes
            .iter_from(0)
            .filter(|(_, node)| node.slots[pool as usize].is_some())
            .count();
        ensure(members == table.len(), || {
            format!(
                "the {pool:?} table has {} nodes, not {members}",
                table.len()
            )
        })
    }
}

/// Fails with a text that is made only if it is needed.
fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
