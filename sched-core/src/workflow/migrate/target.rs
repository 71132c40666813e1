//! Where an instance that moves goes to: what it asks for as far as that is known, and the node that has it.

use sched_model::{CommandFailureReason, Uuid};

use crate::Scheduler;
use crate::api::declined::{Declined, Objection};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Capabilities;
use crate::cluster::query::Query;

/// Nodes tried for one whose launcher can receive an instance with its state, before the answer is that there is no
/// room. Each costs a search.
const MAX_SHIPPING_TARGETS: usize = 16;

impl Scheduler {
    /// The node to which an instance is to move: the one that is named if it fits there, else the first that fits. An
    /// instance without a START can only go where the launcher can receive it with its state. Claims nothing.
    ///
    /// # Errors
    /// `invalid_data` if the target is the node that has it, or another than its START names; `no_room` where it fits
    /// nowhere, with the reasons, lasting if waiting would not help.
    pub(crate) fn target_for(
        &mut self,
        instance: &InstanceId,
        from: NodeKey,
        mut query: Query,
        target: Option<NodeKey>,
    ) -> Result<NodeKey, Declined> {
        if target == Some(from) {
            let why = Objection::AlreadyThere(self.cluster.uuid(from));
            return Err(Declined::lasting(CommandFailureReason::InvalidData, why));
        }
        if let Some(target) = target {
            query = pinned(query, self.cluster.uuid(target))?;
        }
        let must_ship = !self.instances.has_start(instance);
        for _ in 0..MAX_SHIPPING_TARGETS {
            let Some(to) = self.choose_ready(&query) else {
                break;
            };
            if !must_ship || self.cluster.node(to).can(Capabilities::MIGRATE) {
                return Ok(to);
            }
            query = query.avoiding([self.cluster.uuid(to)]);
        }
        let why = self.why_not(&query);
        Err(Declined {
            reason: CommandFailureReason::NoRoom,
            why: why.cause,
            is_lasting: why.never,
        })
    }
}

/// The query for one node alone.
///
/// # Errors
/// `invalid_data`, lasting, if it is for another node alone already: a START's `node_id` holds for moves as well.
pub(crate) fn pinned(query: Query, node: Uuid) -> Result<Query, Declined> {
    if query.node().is_some_and(|asked| asked != Some(node)) {
        let asked = query.pin_text();
        let why = Objection::OtherPin(asked.to_string().into());
        return Err(Declined::lasting(CommandFailureReason::InvalidData, why));
    }
    Ok(query.pinned(Some(node)))
}
