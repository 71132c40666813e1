//! What must always hold, recomputed from scratch and compared. Tests and simulation call it after each step.

use super::Scheduler;
use super::node::{Pool, Presence};

impl Scheduler {
    /// Recomputes every index and sum and compares.
    ///
    /// # Errors
    /// Names the first thing that does not hold.
    pub fn invariants(&self) -> Result<(), String> {
        for pool in Pool::ALL {
            self.check_table(pool)?;
        }
        for (key, node) in self.nodes.iter_from(0) {
            let uuid = node.uuid;
            ensure(node.ledger.is_consistent(), || {
                format!("sums of node {uuid} are not what its entries say")
            })?;
            ensure(self.nodes.by_uuid(uuid) == Some(key), || {
                format!("node {uuid} is not found by its UUID")
            })?;
            ensure(
                node.hostname().is_empty()
                    || self.nodes.by_hostname(node.hostname()).contains(&key),
                || format!("node {uuid} is not found by its host name"),
            )?;
            if let Presence::Connected(session) = node.presence {
                let points_back =
                    self.sessions.get(&session).and_then(|session| session.node) == Some(key);
                ensure(points_back, || {
                    format!("the session of node {uuid} is not its own")
                })?;
            }
        }
        for (instance, &key) in &self.holders {
            let has_it = self.nodes.node(key).ledger.get(instance).is_some();
            ensure(has_it, || {
                format!("the node said to hold {instance} has no entry of it")
            })?;
        }
        for &id in self.controllers.iter().chain(&self.watchers) {
            ensure(self.sessions.contains_key(&id), || {
                format!("{id:?} is listed but has ended")
            })?;
        }
        for (name, id) in &self.identities {
            ensure(self.sessions.contains_key(id), || {
                format!("{name:?} names a session that has ended")
            })?;
        }
        Ok(())
    }

    fn check_table(&self, pool: Pool) -> Result<(), String> {
        let table = &self.tables[pool as usize];
        ensure(table.is_consistent(), || {
            format!("the {pool:?} table's parts do not agree")
        })?;
        for key in table.iter() {
            let node = self.nodes.node(key);
            let uuid = node.uuid;
            let slot = node.slots[pool as usize]
                .ok_or_else(|| format!("node {uuid} does not know its slot"))?;
            ensure(table.node(slot) == Some(key), || {
                format!("node {uuid} is not in its slot")
            })?;
            ensure(table.offer(slot) == node.offer(&self.config), || {
                format!("node {uuid} offers a stale amount")
            })?;
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

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
