//! What nodes are and offer, kept in step: tables, labels and groups are told of every change here.

use std::time::Instant;

use crate::api::ids::NodeKey;
use crate::api::input::ConfigurationFlags;
use crate::api::resources::Resources;
use crate::api::rules::Rules;
use crate::cluster::advice::Advice;
use crate::cluster::index::ColumnId;
use crate::cluster::isolation::Isolation;
use crate::cluster::node::{NodeStatus, Pool};
use crate::cluster::traits::{self, Derived, Named, Sources};
use crate::cluster::view::Candidate;
use crate::cluster::{Cluster, ClusterChange};

impl Cluster {
    /// Puts what a node offers now into its tables, and what came and went of groups on it into those; after every
    /// change of it.
    pub(super) fn refresh_offer(&mut self, key: NodeKey) {
        let node = self.nodes.node_mut(key);
        if node.ledger.take_claims_changed() && !node.is_native {
            self.changes.push_back(ClusterChange::Claims(node.uuid));
        }
        for (group, change) in node.ledger.take_group_changes() {
            self.groups
                .count(&group, key, node.slots, &node.traits.labels, change);
        }
        self.offer(key);
        if self.nodes.are_any_shared() {
            for relative in self.nodes.relatives(key) {
                self.offer(relative);
            }
        }
    }

    fn offer(&mut self, key: NodeKey) {
        let node = self.nodes.node(key);
        let is_on_offer = node.is_on_offer();
        if node.status == NodeStatus::Full && node.session().is_some() && node.has_room_again() {
            self.full.insert(key);
        } else if !self.full.is_empty() {
            self.full.swap_remove(&key);
        }
        let (offer, last_resort) = if is_on_offer {
            (self.nodes.free(key), Resources::NEVER)
        } else {
            (Resources::NEVER, self.nodes.last_resort(key))
        };
        let mut has_grown = false;
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
        if has_grown {
            self.changes.push_back(ClusterChange::Capacity(key));
        }
    }

    /// Works out again what a node is, after a report or the rules changed; and what those are that it has to do with.
    pub(super) fn refresh_traits(&mut self, key: NodeKey, now: Instant) {
        self.reclaim_columns(now);
        self.derive_traits(key, now);
        for part in self.nodes.said_parts(key) {
            self.derive_traits(part, now);
            self.refresh_offer(part);
        }
    }

    /// Takes the numbers from custom resources that no node has and no instance on a node asked for.
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

    /// Sees to it that what the node file says of custom resources counts, whatever nodes report.
    pub(super) fn fix_columns(&mut self) {
        for rule in &self.config.nodes {
            let names = rule.resources.iter().filter(|(_, amount)| amount.is_some());
            names.for_each(|(name, _)| self.columns.fix(name));
        }
    }

    fn derive_traits(&mut self, key: NodeKey, now: Instant) {
        self.note_altered(key);
        let candidate = Candidate::new(&self.nodes, key, Resources::ZERO, now);
        let rules = Sources {
            config: &self.config,
            rules: &self.rules,
            named: &self.named,
        };
        let uuid = candidate.uuid();
        let Derived {
            mut traits,
            says_shares,
            second_zone,
            left_out,
        } = traits::derive(&candidate, rules, &mut self.columns);
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
        node.traits = traits::Traits {
            shares: node.traits.shares,
            ..traits
        };
        node.measure_room();
        self.nodes.set_shares(key, shares);
        relatives
            .into_iter()
            .for_each(|relative| self.offer(relative));
        // It may be what somebody waits for now.
        self.changes.push_back(ClusterChange::Capacity(key));
    }

    /// Puts a node into the tables of its roles. It takes no work yet, but one that is back has what it had.
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

    /// Takes a node out of the tables.
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

    /// The slots of a table have been numbered again.
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

    fn move_in_groups(&mut self, key: NodeKey) {
        if self.groups.len() > 0 {
            let node = self.nodes.node(key);
            self.groups.moved(node.ledger.groups(), key, node.slots);
        }
    }

    /// Says that something of what a node reports does not count; once on each connection.
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

    fn note_altered(&mut self, key: NodeKey) {
        self.alterations += 1;
        let generation = self.alterations;
        let node = self.nodes.node_mut(key);
        node.generation = generation;
        let tables = node.slots.map(|slot| slot.is_some());
        self.changes.push_back(ClusterChange::Altered(key, tables));
    }

    /// Puts new settings into force: how instances are limited, and if given, the rules about nodes and placement.
    pub(crate) fn configure(
        &mut self,
        flags: ConfigurationFlags,
        rules: Option<Rules>,
        now: Instant,
    ) {
        self.flags = flags;
        let are_rules_new = rules.is_some();
        if let Some(rules) = rules {
            self.named = Named::new(&self.config.nodes, &rules.aggregates);
            self.isolation = Isolation::new(&rules.aggregates);
            self.rules = rules;
        }
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

    /// The settings in force.
    pub(crate) fn configuration(&self) -> (ConfigurationFlags, &Rules) {
        (self.flags, &self.rules)
    }
}
