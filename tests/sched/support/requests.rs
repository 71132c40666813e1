//! STARTs, word by word: `request("a", 100).priority(90).waiting(30)` asks for 100 MiB, is urgent and may wait 30 s.

use proto_frames::payload::{Batch, Group, OnNodeLoss, Scheduling, Span};
use sched_core::StartRequest;

/// What a START may say about its placement, one word each.
pub(crate) trait Asking: Sized {
    /// The same START, whose placement is changed so.
    fn placed_as(self, change: impl FnOnce(&mut Scheduling)) -> Self;

    /// It asks for so many vcpus.
    fn vcpus(self, vcpus: i64) -> Self;

    /// It has this priority.
    fn priority(self, priority: i64) -> Self {
        self.placed_as(|it| it.priority = Some(priority))
    }

    /// It waits so many seconds for room.
    fn waiting(self, seconds: u64) -> Self {
        self.placed_as(|it| it.queue = Some(Span::from_ms(1000 * seconds)))
    }

    /// It is tried on so many nodes.
    fn attempts(self, nodes: u32) -> Self {
        self.placed_as(|it| it.attempts = Some(nodes))
    }

    /// It may be moved.
    fn movable(self) -> Self {
        self.placed_as(|it| it.relocate = Some(true))
    }

    /// It is placed again when its node is lost.
    fn restarting(self) -> Self {
        self.placed_as(|it| it.on_node_loss = OnNodeLoss::Restart)
    }

    /// It is one of a batch of so many.
    fn of_batch(self, id: &str, count: u32) -> Self {
        let id = id.to_owned();
        self.placed_as(|it| it.batch = Some(Batch { id, count }))
    }

    /// It is a member of a group.
    fn of_group(self, group: &Group) -> Self {
        self.placed_as(|it| it.group = Some(group.clone()))
    }
}

impl Asking for StartRequest {
    fn placed_as(mut self, change: impl FnOnce(&mut Scheduling)) -> Self {
        change(self.scheduling.get_or_insert_default());
        self
    }

    fn vcpus(mut self, vcpus: i64) -> Self {
        self.asked.vcpus = vcpus;
        self
    }
}
