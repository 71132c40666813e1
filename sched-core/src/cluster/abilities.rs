//! Whether a node can do what is asked of an instance that it has, or is to have.

use sched_model::CommandFailureReason;

use crate::api::declined::{Declined, Objection};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Capabilities;
use crate::api::no_fit::{Amount, Countable};
use crate::api::start::Demand;
use crate::cluster::Cluster;
use crate::cluster::ledger::{ClaimState, Entry};

impl Cluster {
    /// The node of an instance that is not managed, and its entry there; declined if the node has not listed it.
    pub(crate) fn listed_entry(
        &self,
        instance: &InstanceId,
    ) -> Result<(NodeKey, &Entry), Declined> {
        let key = self.placement(instance).ok_or_else(|| {
            Declined::lasting(CommandFailureReason::NoInstance, Objection::NoNode)
        })?;
        let entry = self.entry(key, instance);
        let listed = entry.filter(|entry| entry.claim_state() == ClaimState::Running);
        let entry = listed.ok_or_else(|| {
            Declined::new(CommandFailureReason::WrongState, Objection::NotListedYet)
        })?;
        Ok((key, entry))
    }

    /// The node that a command names as a target, by UUID.
    ///
    /// # Errors
    /// `invalid_data` if the text is no UUID, or no connected node has it.
    pub(crate) fn named_target(&self, text: &str) -> Result<NodeKey, Declined> {
        let key = self.by_name(text);
        key.filter(|&key| self.session(key).is_some())
            .ok_or_else(|| {
                let why = Objection::NoTarget(text.into());
                Declined::new(CommandFailureReason::InvalidData, why)
            })
    }

    /// Whether an instance can be moved with its state: both launchers can do that, and it is not suspended.
    pub(crate) fn may_ship(&self, instance: &InstanceId, from: NodeKey, to: NodeKey) -> bool {
        let (source, target) = (self.node(from), self.node(to));
        let entry = source.ledger().get(instance);
        source.can(Capabilities::MIGRATE)
            && target.can(Capabilities::MIGRATE)
            && !entry.is_some_and(Entry::is_held_back)
    }

    /// What an instance asks for by its node's ledger; `None` if the node has no entry of it.
    pub(crate) fn demand_on(&self, key: NodeKey, instance: &InstanceId) -> Option<Demand> {
        let entry = self.entry(key, instance)?;
        let custom = entry.custom().iter();
        let custom = custom.map(|&(column, amount)| (self.columns().name(column).into(), amount));
        Some(Demand {
            mem_mib: entry.asked().mem_mib,
            vcpus: entry.asked().vcpus,
            disk_mib: entry.asked().disk_mib,
            resources: custom.collect(),
        })
    }

    /// Checks that a suspended instance's vcpus are free on its node. vcpus that are claimed for it already count as
    /// free.
    ///
    /// # Errors
    /// How many it asks for and how many are free.
    pub(crate) fn has_vcpus_for(
        &self,
        instance: &InstanceId,
        key: NodeKey,
    ) -> Result<(), Objection> {
        let node = self.node(key);
        let entry = node.ledger().get(instance);
        let asked = entry.map_or(0, |it| it.asked().vcpus);
        // While it may be resumed already they are claimed for it.
        let own = entry.map_or(0, |it| if it.is_suspended() { 0 } else { asked });
        let free = self.free(key).vcpus.saturating_add(own);
        if asked <= 0 || free >= asked {
            return Ok(());
        }
        Err(Objection::TooFewVcpus {
            asked,
            node: node.uuid(),
            free: free.max(0),
        })
    }

    /// Checks that a node could give an instance other amounts than it has. Only what is added must be free; a decrease
    /// always fits.
    ///
    /// # Errors
    /// `wrong_state` if the node is not connected, `not_supported` if its launcher cannot change amounts, `no_room`
    /// with everything that is short and by how much.
    pub(crate) fn has_room_to_change(
        &self,
        key: NodeKey,
        before: &Demand,
        demand: &Demand,
    ) -> Result<(), Declined> {
        let node = self.node(key);
        let uuid = node.uuid();
        if node.session().is_none() {
            let why = Objection::NodeNotConnected(uuid);
            return Err(Declined::new(CommandFailureReason::WrongState, why));
        }
        if !node.can(Capabilities::UPDATE) {
            let reason = CommandFailureReason::NotSupported;
            return Err(Declined::lasting(reason, Objection::CannotChange(uuid)));
        }
        let (free, more) = (self.free(key), demand.base() - before.base());
        let mut short = Vec::new();
        for (of, more, free) in [
            (Amount::Memory, more.mem_mib, free.mem_mib),
            (Amount::Vcpus, more.vcpus, free.vcpus),
            (Amount::Disk, more.disk_mib, free.disk_mib),
        ] {
            if more > 0 && more > free {
                short.push((Countable::Every(of), more, free.max(0)));
            }
        }
        for (name, &amount) in &demand.resources {
            let had = before.resources.get(name).copied().unwrap_or_default();
            let more = amount.saturating_sub(had);
            let free = self.columns().find(name);
            let free = free.map_or(0, |column| self.free_custom(key, column));
            if more > 0 && more > free {
                short.push((Countable::Custom(name.clone()), more, free.max(0)));
            }
        }
        if short.is_empty() {
            return Ok(());
        }
        let why = Objection::ShortOf(uuid, short.into());
        Err(Declined::new(CommandFailureReason::NoRoom, why))
    }
}
