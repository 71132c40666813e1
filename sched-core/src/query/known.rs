//! What is known of an instance: whether it exists, and what becomes of a START of it.

use std::sync::Arc;

use sched_model::Uuid;

use crate::api::content::Content;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::start::StartRequest;
use crate::cluster::ledger::Entry;
use crate::cluster::query::Query;
use crate::cluster::view::is_hard;
use crate::instance::{AfterLoss, Awaits, Placing, State};
use crate::sight::Sight;

/// What is known of a START's instance, and so what becomes of the START.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Known {
    /// No node has it and the scheduler does not have to place it: the START may be placed.
    Nowhere,
    /// A node has it, or was given it: the START goes there.
    On(NodeKey),
    /// It waits for room: the sender is sent that, once the waiting is on disk.
    Waits,
    /// It was on a node that is expected back after a restart: the START waits for that node.
    Expected,
    /// The scheduler has it, and no node could answer: the START is refused, for this reason.
    Taken(Refusal),
    /// It is not known, but another living instance of its tenant has the name that its START asks for.
    NameTaken(InstanceId),
}

impl Sight<'_> {
    /// What tells the START of an instance that is known from others; `None` also where that is not known.
    pub(crate) fn content(&self, instance: &InstanceId) -> Option<Content> {
        if let Some(managed) = self.instances.get(instance) {
            return managed.request()?.content;
        }
        let node = self.cluster.placement(instance)?;
        let entry = self.cluster.entry(node, instance);
        entry.and_then(Entry::content)
    }

    /// What is known of the instance of a START, apart from its name.
    pub(crate) fn known(&self, instance: &InstanceId) -> Known {
        let Some(managed) = self.instances.get(instance) else {
            return match self.cluster.placement(instance) {
                Some(key) => Known::On(key),
                None if self.recovery.expected_on(instance).is_some() => Known::Expected,
                None => Known::Nowhere,
            };
        };
        match managed.state() {
            State::Seeking { .. } | State::Waiting { .. } => Known::Waits,
            State::Running { node, .. }
            | State::Placing(Placing {
                node,
                pending_on: Awaits::Node { .. },
                ..
            }) => Known::On(*node),
            // It was deleted, and its launcher stops it once its lease is over: not before that is certain.
            State::Lost {
                then: AfterLoss::Delete,
                ..
            } if managed.stops_with_lease() => Known::Taken(Refusal::DeletedUnderLease),
            // The scheduler does not place it again.
            State::Lost {
                node,
                then: AfterLoss::Forget | AfterLoss::Delete,
                ..
            } => self.known_of_lost(*node),
            state => Known::Taken(Refusal::Is(state.life_state())),
        }
    }

    /// What is known of an instance that was on a lost node and is not placed again by itself. A client that starts it
    /// again knows that the node is lost, but not that it may be back any moment: because the scheduler has only just
    /// been started, or because the node is connected and its STATS is still to come.
    pub(crate) fn known_of_lost(&self, node: Uuid) -> Known {
        if self.recovery.is_awaited(node) {
            return Known::Expected;
        }
        if self.cluster.is_to_list(node) {
            return Known::Taken(Refusal::NotListedYet(node));
        }
        Known::Nowhere
    }

    /// The same for a whole START, which may also ask for a name that another instance has.
    pub(crate) fn known_of(&self, request: &StartRequest) -> Known {
        match (self.known(&request.instance), self.has_its_name(request)) {
            (Known::Nowhere, Some(other)) => Known::NameTaken(other.clone()),
            (known, _) => known,
        }
    }

    /// The living instance of the same tenant that has the name which a START asks for; `None` if the name is free, or
    /// the START names none. The START is refused where there is one.
    pub(crate) fn has_its_name(&self, request: &StartRequest) -> Option<&InstanceId> {
        let name = &*request.scheduling.as_ref()?.name;
        if name.is_empty() {
            return None;
        }
        let named = self.instances.called(&request.tenant, name)?;
        (*named != request.instance && self.exists(named)).then_some(named)
    }

    /// Whether an instance is placed, or waits to be, for whatever;
    /// or is listed as lost with its node.
    pub(crate) fn exists(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance)
            || self.cluster.placement(instance).is_some()
            || self.pending.has(instance)
            || self.journal.is_lost_plain(instance)
    }

    /// Whether a START cannot be placed before certain nodes have come back after a restart: those that may have
    /// members of its group, or the one that had its instance.
    pub(crate) fn waits_for_nodes(&self, request: &StartRequest) -> bool {
        match self.known(&request.instance) {
            Known::Nowhere => self.waits_for_members(request),
            known => known == Known::Expected,
        }
    }

    /// Whether a START has to wait for the recovery window because it must be together with, or apart from, members of
    /// a group: nodes that are not back may have some, so no choice is known to be right.
    pub(crate) fn waits_for_members(&self, request: &StartRequest) -> bool {
        let group = request
            .scheduling
            .as_ref()
            .and_then(|scheduling| scheduling.group.as_ref());
        self.recovery.is_open() && group.is_some_and(is_hard)
    }

    /// Why a START of an instance that waits, or that a node has, is not the one that made it: its content is another, or
    /// it asks for more than is claimed, which its launcher would take without a claim.
    ///
    /// Of instances that came with their nodes the content is not known. One that is to be started again has another
    /// than the first START: its launcher answers whether it may be.
    pub(crate) fn unlike(
        &self,
        node: Option<NodeKey>,
        request: &Arc<StartRequest>,
    ) -> Option<Refusal> {
        let instance = &request.instance;
        let ledger = node.map(|key| self.cluster.ledger(key));
        let entry = ledger.and_then(|ledger| ledger.get(instance));
        let is_other = match (self.content(instance), request.content) {
            (Some(first), Some(content)) => first != content && !request.restart,
            _ => false,
        };
        if is_other {
            return Some(Refusal::OtherStart);
        }
        let entry = entry.filter(|entry| entry.is_known())?;
        let query = Query::of(request);
        let claimed = |name: &str| {
            let column = self.cluster.columns().find(name)?;
            let claimed = entry.custom().iter().find(|(known, _)| *known == column);
            claimed.map(|(_, amount)| *amount)
        };
        let has = |(name, amount)| amount <= claimed(name).unwrap_or_default();
        let is_covered = entry.asked().covers(&query.asked()) && query.amounts().all(has);
        (!is_covered).then_some(Refusal::AsksForMore)
    }

    /// Whether it is on disk that an instance waits; always, without a state directory.
    pub(crate) fn waits_on_disk(&self, instance: &InstanceId) -> bool {
        let managed = self.instances.get(instance);
        managed.is_some_and(|managed| self.journal.is_on_disk(managed.waits_with()))
    }
}
