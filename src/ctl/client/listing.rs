//! What a query about everything of a kind gives, over all its pages.

use std::collections::HashSet;
use std::time::Duration;

use proto_frames::payload::{
    ArrayView, ControllerView, HistoryRow, InstanceView, NodeView, OutputRow, PlacementState,
    StatusView, StoreView,
};

/// Everything of a kind, as the scheduler sees it.
///
/// All pages of one query put together. Fields that the query did not ask for are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listing {
    /// The nodes, if those were asked for.
    pub nodes: Vec<NodeView>,
    /// The instances, if those were asked for.
    pub instances: Vec<InstanceView>,
    /// The arrays, if those were asked for.
    pub arrays: Vec<ArrayView>,
    /// The controllers and operators, if those were asked for.
    pub controllers: Vec<ControllerView>,
    /// How the scheduler's state directory is, if controllers were asked for and it says so.
    pub store: Option<StoreView>,
    /// How the scheduler is, if that was asked for.
    pub status: Option<StatusView>,
    /// What became of one instance, if that was asked for.
    pub history: Vec<HistoryRow>,
    /// Where nodes keep the output of its runs, if its history was asked for.
    pub outputs: Vec<OutputRow>,
    /// For how long none of the ends was forgotten, if those that have ended were asked for and the scheduler says so.
    pub complete_for: Option<Duration>,
    /// How many earlier ends the scheduler has forgotten, if those that have ended were asked for.
    pub forgotten: u64,
}

impl Listing {
    /// Leaves out the row of an instance on no node that a later page has on one, and that of a node that a later page
    /// has as well: it was placed, or came back, while pages were read.
    pub(super) fn drop_superseded(&mut self) {
        let mut later = HashSet::new();
        let nodes = std::mem::take(&mut self.nodes).into_iter().rev();
        self.nodes = nodes
            .filter(|it| later.insert(it.node_uuid.clone()))
            .collect();
        self.nodes.reverse();
        let is_on_none =
            |it: &InstanceView| matches!(it.state, PlacementState::Waiting | PlacementState::Lost);
        let placed = self.instances.iter().filter(|it| !is_on_none(it));
        let placed: HashSet<String> = placed.map(|it| it.instance_uuid.clone()).collect();
        self.instances
            .retain(|it| !is_on_none(it) || !placed.contains(&it.instance_uuid));
    }

    /// Entries of all kinds.
    pub(super) fn len(&self) -> usize {
        self.arrays.len()
            + self.nodes.len()
            + self.instances.len()
            + self.controllers.len()
            + self.history.len()
    }
}
