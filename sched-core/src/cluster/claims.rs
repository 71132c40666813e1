//! Claims of single instances on a node: released, and changed by what its launcher is sent and answers.

use std::time::Instant;

use sched_model::Uuid;

use crate::Resources;
use crate::api::action::{LauncherCommand, Message};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::Demand;
use crate::cluster::Cluster;
use crate::cluster::ledger::{ClaimState, Entry};
use crate::cluster::node::NodeStatus;
use crate::cluster::query::Query;

impl Cluster {
    /// Releases an instance's claim on a node, and its placement if it is on that node; the state the claim was in, `None`
    /// if there is none. A try on a full node is over with it, and a drain of the node has less to wait for.
    #[inline]
    pub(crate) fn release(&mut self, key: NodeKey, instance: &InstanceId) -> Option<ClaimState> {
        let node = self.nodes.node_mut(key);
        let (uuid, claim_state) = (node.uuid, node.ledger.release(instance)?);
        let was_placed = self.remove_placement(instance, key);
        self.refresh_offer(key);
        if was_placed {
            self.forget_try(instance);
        }
        self.note_left(uuid, instance);
        Some(claim_state)
    }

    /// Releases a claim whose START the node was not sent, and takes back the number of that START: for dry runs, and for
    /// batches of which one START does not fit. Only for the latest START that was numbered for the node, so that numbers
    /// stay without gaps: several are undone in reverse order.
    pub(crate) fn undo_claim(&mut self, key: NodeKey, instance: &InstanceId) {
        let claim_state = self.release(key, instance);
        if claim_state.is_some_and(|it| it != ClaimState::Claimed) {
            self.nodes.node_mut(key).starts_sent -= 1;
        }
    }

    /// Notes in a node's ledger a command that moves to its newer connection: the ledger counts commands by connection,
    /// to know which answers are still to come.
    pub(crate) fn note_moved(&mut self, peer: Uuid, message: &Message) {
        let Some(key) = self.by_uuid(peer) else {
            return;
        };
        let mut ledger = self.ledger_mut(key);
        match message {
            Message::LauncherCommand(order) => match &**order {
                LauncherCommand::Resume(resume) => {
                    ledger.resume_sent(&InstanceId::new(&resume.instance_uuid));
                }
                LauncherCommand::Stop(delete) => {
                    ledger.stop_sent(&InstanceId::new(&delete.instance_uuid));
                }
                _ => {}
            },
            Message::Targeted(command) if command.volume.is_none() => {
                ledger.stop_sent(&command.target.instance);
            }
            _ => {}
        }
    }

    /// Releases a claim on a node that the instance is not placed on, such as that on the target of a move. The
    /// placement stays.
    pub(crate) fn unclaim(&mut self, key: NodeKey, instance: &InstanceId) {
        self.ledger_mut(key).release(instance);
    }

    /// Claims on a node what a query asks for. Its launcher is not sent anything yet.
    pub(crate) fn claim_as(&mut self, query: &Query, key: NodeKey, now: Instant) {
        let entry = self.claimed(query, now);
        let mut ledger = self.ledger_mut(key);
        ledger.insert(query.instance().clone(), entry);
    }

    /// A launcher answered a START with that the instance is there already: the START has had its outcome, and its
    /// claim stays.
    pub(crate) fn confirm(&mut self, key: NodeKey, instance: &InstanceId) {
        self.ledger_mut(key).confirm(instance);
    }

    /// A node says that it is full, after all that was released there before.
    pub(crate) fn note_full_again(&mut self, key: NodeKey) {
        if self.node(key).status() == NodeStatus::Full {
            self.ledger_mut(key).count_released();
        }
    }

    /// Claims exactly this demand from now on, without the floor that an update has put under it.
    pub(crate) fn settle_demand(&mut self, key: NodeKey, instance: &InstanceId, demand: &Demand) {
        let custom = self.amounts_of(demand);
        let mut ledger = self.ledger_mut(key);
        ledger.set_floor(instance, None);
        ledger.set_asked(instance, demand.base(), custom);
    }

    /// Places a managed instance on the node that lists it, with the amounts of its START where the launcher has reported
    /// none.
    pub(crate) fn take_up(&mut self, key: NodeKey, instance: &InstanceId, asked: Option<&Query>) {
        self.set_placement(instance, key);
        self.ledger_mut(key).set_managed(instance, true);
        // An original launcher does not say what it asked for.
        if let (Some(query), Some(entry)) = (asked, self.entry(key, instance))
            && entry.asked() == Resources::ZERO
        {
            let custom = self.extras(query).custom;
            let mut ledger = self.ledger_mut(key);
            ledger.set_asked(instance, query.asked(), custom);
        }
    }

    /// The claim of a managed instance for which its node was sent nothing yet.
    pub(crate) fn claimed(&self, query: &Query, now: Instant) -> Entry {
        Entry::claimed(query.asked(), self.extras(query), now).managed()
    }
}
