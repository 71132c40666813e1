//! What nodes are and offer, kept in step: every change of a node passes through here, and tables, labels and groups
//! are updated at once. So a search never finds figures that are out of date, and no search has to compute any.
//!
//! Two entry points for the rest of the folder: `refresh_offer` after a change of claims, status or queue (cheap, on
//! the way of every START), and `refresh_traits` after a report that changes what the node is, or after the
//! configuration changed. What others have to react to is put into `changes`, which `workflow` empties after the input.

use std::time::Instant;

use crate::api::ids::NodeKey;
use crate::api::input::ConfigurationFlags;
use crate::api::resources::Resources;
use crate::api::rules::{NodeRule, Rules};
use crate::cluster::advice::Advice;
use crate::cluster::candidate::Candidate;
use crate::cluster::derive::{Derived, Named, Sources, derive};
use crate::cluster::index::ColumnId;
use crate::cluster::isolation::Isolation;
use crate::cluster::ledger::Measured;
use crate::cluster::node::{NodeStatus, Pool};
use crate::cluster::traits::Traits;
use crate::cluster::{Cluster, ClusterChange};

impl Cluster {
    /// Brings tables and groups up to date after any change of a node's claims, status, queue or room. Must be called
    /// after every such change: `Cluster::check` recomputes offers and fails otherwise.
    ///
    /// Costs an update of the path from one block to the root of the index, and as much for every node that shares
    /// resources with this one.
    pub(super) fn refresh_offer(&mut self, key: NodeKey) {
        let node = self.nodes.node_mut(key);
        if node.ledger.take_claims_changed() && !node.is_native {
            self.changes.push_back(ClusterChange::Claims(node.uuid));
        }
        let (mut is_place_free, mut has_joined) = (false, false);
        for (group, change) in node.ledger.take_group_changes() {
            is_place_free |= change.in_place < 0;
            has_joined |= change.all > 0;
            self.groups
                .count(&group, key, node.slots, &node.traits.labels, change);
        }
        self.offer(key);
        if is_place_free {
            // A member may wait for the place alone.
            self.changes.push_back(ClusterChange::Capacity(key));
        } else if has_joined {
            self.changes.push_back(ClusterChange::Narrowed(key));
        }
        if self.nodes.are_any_shared() {
            for relative in self.nodes.relatives(key) {
                self.offer(relative);
            }
        }
    }

    /// Puts what a node offers into the tables of its roles. A node that is not on offer offers nothing there; what it
    /// has for a last resort (`NodeStore::last_resort`) is kept beside.
    ///
    /// If it offers more of anything than before, STARTs that wait may fit now: that is announced by
    /// `ClusterChange::Capacity`. So are vcpus that become free on a node that offers nothing, as one that is cordoned:
    /// what is suspended there may be resumed. Less of everything is announced to no one.
    fn offer(&mut self, key: NodeKey) {
        let node = self.nodes.node(key);
        let is_on_offer = node.is_on_offer();
        let free = self.nodes.free(key);
        if node.status == NodeStatus::Full && node.session().is_some() && node.has_room_again() {
            self.full.insert(key);
        } else if !self.full.is_empty() {
            self.full.swap_remove(&key);
        }
        let (offer, last_resort) = if is_on_offer {
            (free, Resources::NEVER)
        } else {
            (Resources::NEVER, self.nodes.last_resort(key))
        };
        let mut has_grown = free.vcpus > node.free_vcpus;
        let is_less = free.vcpus < node.free_vcpus;
        for (table, slot) in self.tables.iter_mut().zip(node.slots) {
            let Some(slot) = slot else { continue };
            let earlier = table.set_offer(slot, offer);
            has_grown |= !earlier.covers(&offer);
            for &(column, _) in &node.traits.resources {
                let free = self.nodes.free_custom(key, column);
                has_grown |= free > table.custom(slot, column);
                table.set_custom(slot, column, free);
            }
        }
        if last_resort != node.last_resort {
            has_grown |= !node.last_resort.covers(&last_resort);
            self.nodes.node_mut(key).last_resort = last_resort;
        }
        if has_grown || is_less {
            self.nodes.node_mut(key).free_vcpus = free.vcpus;
        }
        if has_grown {
            self.changes.push_back(ClusterChange::Capacity(key));
        }
    }

    /// Derives again what a node is, and what those nodes are whose share in its resources depends on what it says.
    pub(super) fn refresh_traits(&mut self, key: NodeKey, now: Instant) {
        self.reclaim_columns(now);
        self.derive_traits(key, now);
        for part in self.nodes.said_parts(key) {
            self.derive_traits(part, now);
            self.refresh_offer(part);
        }
    }

    /// Frees the numbers of custom resources that no node has and no instance on a node asked for. Only when numbers
    /// run short, and not more often than `Columns::wants_room` allows: it walks over all nodes.
    fn reclaim_columns(&mut self, now: Instant) {
        if !self.columns.wants_room(now) {
            return;
        }
        let nodes = self.nodes.iter_from(0);
        let used = nodes.flat_map(|(_, node)| {
            let amounts = node
                .traits
                .resources
                .iter()
                .chain(node.ledger.held_custom());
            amounts.map(|(column, _)| *column)
        });
        self.columns.reclaim(&used.collect(), now);
    }

    /// Puts together what node file and rules say of single nodes. Custom resources in it are given numbers before any
    /// node reports, so that nodes which report many names cannot take them all.
    pub(super) fn name_nodes(&mut self) {
        let both = self.node_file.iter().chain(&self.rules.nodes);
        self.overrides = both.cloned().collect();
        self.named = Named::new(&self.overrides, &self.rules.aggregates);
        for rule in &self.overrides {
            let names = rule.resources.iter().filter(|(_, amount)| amount.is_some());
            names.for_each(|(name, _)| self.columns.fix(name));
        }
    }

    /// Derives what a node is from its report and the configuration, and moves it in tables, label indexes and groups
    /// if that has changed. In this order: labels and columns lose the old traits and gain the new ones; groups forget
    /// counts by labels; the new traits take effect; then the nodes that shared its resources before offer what they
    /// have without it. The node's own offer is for the caller to refresh.
    fn derive_traits(&mut self, key: NodeKey, now: Instant) {
        self.note_altered(key);
        let candidate = Candidate::new(&self.nodes, key, Resources::ZERO, now);
        let rules = Sources {
            config: &self.config,
            rules: &self.rules,
            overrides: &self.overrides,
            named: &self.named,
        };
        let uuid = candidate.uuid();
        let Derived {
            mut traits,
            says_shares,
            second_zone,
            left_out,
        } = derive(&candidate, rules, &mut self.columns);
        if let Some(zone) = second_zone {
            self.changes.push_back(ClusterChange::TwoZones(uuid, zone));
        }
        if let Some(whole) = says_shares {
            match self.nodes.lets_share(whole, uuid) {
                Some(true) => traits.shares = Some(whole),
                Some(false) => self.advise(key, Advice::SharesAlone(whole)),
                // It may say so yet.
                None => {}
            }
        }
        if !left_out.is_empty() {
            self.advise(key, Advice::TooManyNames(left_out.clone()));
        }
        self.nodes.node_mut(key).left_out = left_out;
        let node = self.nodes.node(key);
        if node.traits == traits {
            return;
        }
        let gone: Vec<ColumnId> = node
            .traits
            .resources
            .iter()
            .map(|(column, _)| *column)
            .collect();
        let slots = node.slots;
        for ((table, labels), slot) in self.tables.iter_mut().zip(&mut self.labels).zip(slots) {
            let Some(slot) = slot else { continue };
            gone.iter()
                .for_each(|&column| table.set_custom(slot, column, 0));
            if node.traits.labels != traits.labels {
                labels.remove(slot, &node.traits.labels);
                labels.insert(slot, &traits.labels);
            }
        }
        if self.groups.len() > 0 && node.traits.labels != traits.labels {
            self.groups.forget_labels(node.ledger.groups());
        }
        // Its relatives so far see that it is none any more.
        let relatives = self.nodes.relatives(key);
        let shares = traits.shares;
        let node = self.nodes.node_mut(key);
        node.traits = Traits {
            shares: node.traits.shares,
            ..traits
        };
        node.measure_room();
        self.nodes.set_shares(key, shares);
        relatives
            .into_iter()
            .for_each(|relative| self.offer(relative));
        // An instance that waits may fit on it now.
        self.changes.push_back(ClusterChange::Capacity(key));
    }

    /// Puts a node into the tables of its roles, at their end. A node that has just connected offers nothing before it
    /// reports; one that is back keeps its labels and its instances in groups.
    pub(super) fn enter_tables(&mut self, key: NodeKey) {
        let roles = self.nodes.node(key).roles;
        for pool in Pool::ALL {
            if roles.contains(pool.role()) {
                let slot = self.tables[pool as usize].push(key);
                let node = self.nodes.node_mut(key);
                node.slots[pool as usize] = Some(slot);
                self.labels[pool as usize].insert(slot, &node.traits.labels);
            }
        }
        self.offer(key);
        self.move_in_groups(key);
        self.note_altered(key);
    }

    /// Takes a node out of the tables. Its slots become holes; if a table closes its holes, slots of other nodes change
    /// and every index by slot is filled again.
    pub(super) fn leave_tables(&mut self, key: NodeKey) {
        self.note_altered(key);
        let node = self.nodes.node_mut(key);
        let slots = std::mem::take(&mut node.slots);
        // Before any other node may be moved into one of them.
        self.move_in_groups(key);
        for pool in Pool::ALL {
            let Some(slot) = slots[pool as usize] else {
                continue;
            };
            self.labels[pool as usize].remove(slot, &self.nodes.node(key).traits.labels);
            let nodes = &mut self.nodes;
            let mut any_moved = false;
            self.tables[pool as usize].remove(slot, |moved, slot| {
                any_moved = true;
                nodes.node_mut(moved).slots[pool as usize] = Some(slot);
            });
            if any_moved {
                self.slots_moved(pool);
            }
        }
    }

    /// Fills the indexes by slot again after a table has renumbered its slots. O(nodes), after as many departures at
    /// least.
    fn slots_moved(&mut self, pool: Pool) {
        let labels = &mut self.labels[pool as usize];
        labels.clear();
        let keys: Vec<NodeKey> = self.tables[pool as usize].iter().collect();
        for &key in &keys {
            let node = self.nodes.node(key);
            if let Some(slot) = node.slots[pool as usize] {
                labels.insert(slot, &node.traits.labels);
            }
        }
        // In order of slots, which only ever become smaller: none takes another's place before that one has left it.
        keys.into_iter().for_each(|key| self.move_in_groups(key));
    }

    /// Tells groups the slots that a node has now, or that it has none.
    fn move_in_groups(&mut self, key: NodeKey) {
        if self.groups.len() > 0 {
            let node = self.nodes.node(key);
            self.groups.moved(node.ledger.groups(), key, node.slots);
        }
    }

    /// Notes that something a node reports does not count, for a message to its launcher. Each advice is given once on
    /// each connection.
    pub(crate) fn advise(&mut self, key: NodeKey, advice: Advice) {
        let node = self.nodes.node_mut(key);
        let Some(session) = node.session() else {
            return;
        };
        if node.advised.note_told(&advice) {
            self.changes
                .push_back(ClusterChange::LeftOut(session, node.uuid, advice));
        }
    }

    /// Counts up the node's generation, and announces that it has changed.
    fn note_altered(&mut self, key: NodeKey) {
        self.count_generation(key);
        let tables = self.nodes.node(key).slots.map(|slot| slot.is_some());
        self.changes.push_back(ClusterChange::Altered(key, tables));
    }

    /// Counts up the node's generation, which clients see.
    pub(super) fn count_generation(&mut self, key: NodeKey) {
        self.alterations += 1;
        let generation = self.alterations;
        self.nodes.node_mut(key).generation = generation;
    }

    /// Puts settings into force: how instances are limited, and if given, the rules about nodes and placement. Every
    /// node is derived again, so this costs O(nodes) under the lock; it happens when an operator reloads the
    /// configuration.
    pub(crate) fn configure(
        &mut self,
        flags: ConfigurationFlags,
        rules: Option<Rules>,
        now: Instant,
    ) {
        self.flags = flags;
        let are_rules_new = rules.is_some();
        if let Some(rules) = rules {
            self.isolation = Isolation::new(&rules.aggregates);
            self.follows_load = rules.policy.goes_by_load();
            self.rules = rules;
            self.name_nodes();
        }
        self.derive_all(are_rules_new, now);
    }

    /// Puts what the node file says into force.
    pub(crate) fn set_node_rules(&mut self, rules: Vec<NodeRule>, now: Instant) {
        if self.node_file == rules {
            return;
        }
        self.node_file = rules;
        self.name_nodes();
        self.derive_all(true, now);
    }

    /// Brings every node up to date with the settings in force, and with the rules where those are new.
    fn derive_all(&mut self, are_rules_new: bool, now: Instant) {
        let measured = self.measured();
        let keys: Vec<NodeKey> = self.nodes.iter_from(0).map(|(key, _)| key).collect();
        for key in keys {
            self.nodes.node_mut(key).ledger.set_measured(measured);
            if are_rules_new {
                self.refresh_traits(key, now);
                self.changes.push_back(ClusterChange::Capacity(key));
            }
            self.notify_capacity(key);
            self.refresh_offer(key);
        }
    }

    /// How running instances are counted now.
    pub(crate) fn measured(&self) -> Measured {
        Measured::new(&self.config, self.flags)
    }

    /// The settings in force.
    pub(crate) fn configuration(&self) -> (ConfigurationFlags, &Rules) {
        (self.flags, &self.rules)
    }
}
