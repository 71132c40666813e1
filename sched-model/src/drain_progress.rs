//! DrainProgress: how far the drain of a node is (added by this project).

use crate::{record, words};

/// Most instances that a DrainProgress names; how many there are in all is said beside them.
pub const MAX_UNMOVABLE: usize = 64;

record! {
    /// `drain_progress: {node_uuid, state, total, moved, moving, left, misfits, misfit_count, detail,
    /// ended}`.
    pub struct DrainProgress {
        /// The node.
        node_uuid: String as "node_uuid",
        /// How the drain stands.
        state: DrainState as "state",
        /// How many instances it had to move when it began.
        total: u32 as "total",
        /// Those of them that the node has reported gone, also those that `ended` counts.
        moved: u32 as "moved",
        /// Those of them that are on their way.
        moving: u32 as "moving",
        /// Those of them that are still to be moved.
        left: u32 as "left",
        /// Instances that fit nowhere else, at most [`MAX_UNMOVABLE`].
        unmovable: Vec<UnmovableInstance> as "misfits" unless empty,
        /// How many such there are in all.
        unmovable_count: u32 as "misfit_count" unless empty,
        /// More about it, for people.
        detail: String as "detail" unless empty,
        /// Those of `moved` that went nowhere else: they ended on the node, or were deleted.
        ended: u32 as "ended" unless empty,
    }
}

record! {
    /// An instance that fits nowhere else.
    pub struct UnmovableInstance {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Why, for people.
        detail: String as "detail",
        /// What it is called; empty where it has no name.
        name: String as "name" unless empty,
    }
}

words! {
    /// How the drain of a node stands.
    pub enum DrainState {
        /// What would become of its instances: nothing has been moved.
        Checking = "checking",
        /// Instances are being moved.
        Moving = "moving",
        /// The node has reported all of them gone.
        Done = "done",
        /// It is over, and some are still there.
        Incomplete = "incomplete",
        /// Somebody ended it.
        Aborted = "aborted",
    }
}

impl DrainState {
    /// Whether the drain is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Done | Self::Incomplete | Self::Aborted)
    }
}
