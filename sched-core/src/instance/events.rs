//! What can happen to a managed instance, with the data that its next state needs, and what that means for others.

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::{PhaseName, Uuid};

use super::{AfterLoss, DemandChange, LateEffects, MoveRequest, State, SuspendedBy, Transit};
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::names::events;

events! {
    /// Something that concerns an instance and decides what it awaits next. Which phases have it, and where it leads,
    /// stands in `lifecycle`. It ends with [`Instances::remove`](super::Instances::remove), in any phase.
    pub(crate) LifecycleEvent:
    /// a START is to be managed
    Managed,
    /// a command is about an instance that its node has listed, perhaps as suspended
    Adopted {
        node: NodeKey,
        is_suspended: bool,
    },
    /// before the restart it waited, or was on a node or on its way to one, perhaps deleted there
    Restored(Before),
    /// it has left its node, which has cut it off or ended it as it was ordered; its node refused it, does not have it,
    /// or was lost before it was ordered to; or nodes are asked once more
    Sought,
    /// no node has room, or others come before it
    Queued,
    /// a node has room
    Claimed {
        node: NodeKey,
    },
    /// a node has room once victims have left
    Preempts {
        node: NodeKey,
        victims: BTreeSet<InstanceId>,
        /// When the victims that have not left by then count as staying.
        due: Instant,
    },
    /// a victim has left; the last one, or others are still to
    VictimAway(InstanceId),
    /// its claim is on disk, or nothing of it is to be
    Given {
        node: NodeKey,
    },
    /// its node lists it, or another does before any was told
    Listed {
        node: NodeKey,
    },
    /// it ended, and a START of it is on its way to its node
    StartedAgain,
    /// the DELETE was not written, and its START is not confirmed
    StartAwaited,
    /// UPDATE
    Updated {
        change: Box<DemandChange>,
        due: Instant,
    },
    /// the DELETE was not written, or not carried out in time, while it was being changed
    UpdateResumed {
        due: Instant,
    },
    /// it was changed, or could not be, also while it is to be deleted
    UpdateSettled,
    /// SUSPEND, or a preemptor has its vcpus; of what a preemptor had suspended: it is to stay so
    SuspendAsked {
        by: SuspendedBy,
        /// Whose command it is, to be notified of a failure; `None` where the scheduler decided it.
        asker: Option<SessionId>,
        due: Instant,
    },
    /// its launcher says so, also late or by itself
    IsSuspended {
        by: SuspendedBy,
    },
    /// RESUME, or there is room for it again; or its launcher may yet suspend it, which is undone
    ResumeAsked {
        by: SuspendedBy,
        asker: Option<SessionId>,
        due: Instant,
    },
    /// its launcher says so, also late or by itself, or that it was not suspended
    Runs,
    /// its launcher could not carry out the command, or not in time; the move was cancelled; the DELETE was not written;
    /// or it is not needed any more
    Reverted {
        /// Who had it suspended, if its node last reported it as suspended; `None` if it runs.
        suspended: Option<SuspendedBy>,
    },
    /// a preemptor has its room, or its memory as well
    Preempted {
        by: InstanceId,
        due: Instant,
    },
    /// DELETE
    Deleted {
        due: Instant,
    },
    /// MIGRATE, drain, UPDATE that needs another node, or it could not be resumed here for long
    MovePlanned {
        to: NodeKey,
        move_request: Box<MoveRequest>,
        due: Instant,
    },
    /// its claim on the target is on disk: its launcher is told to stop or ship it
    MoveBegun {
        is_shipped: bool,
    },
    /// the target is lost, and another has room
    Retargeted {
        to: NodeKey,
    },
    /// the target is lost, and no other has room, or it was to be shipped there
    TargetLost {
        due: Instant,
    },
    /// it has left its node: it starts on the target, or was shipped there
    LeftForTarget,
    /// the target lists it
    Arrived,
    /// its node is given up
    NodeLost(Loss),
    /// its node is back and has not listed anything yet
    LossDeferred {
        until: Instant,
    },
    /// its node is back and lists it, perhaps as suspended; what was deleted meanwhile is deleted there
    NodeBack {
        node: NodeKey,
        /// Who had it suspended, if the node lists it so.
        suspended: Option<SuspendedBy>,
        /// When a DELETE there counts as failed.
        due: Instant,
    },
}

/// What an instance was before a restart of the scheduler, by its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Before {
    /// It waited for room.
    Waited {
        /// The one node that it waited for, if only one would do.
        pinned: Option<Uuid>,
    },
    /// It was on a node or on its way there. It counts as lost with that node until the node reports.
    Lost(Loss),
}

/// The loss of an instance's node: the data of [`State::Lost`], as a value that can be built up and changed in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The node.
    pub(crate) node: Uuid,
    /// When nothing is expected of the node any more: the fencing deadline where there is one, else a time after which
    /// the instance is given up.
    pub(crate) until: Instant,
    /// What follows once `until` has passed, or the node is back.
    pub(crate) then: AfterLoss,
    /// The node that it was being shipped to: it may have arrived.
    pub(crate) bound_for: Option<Uuid>,
    /// What its launcher was told before.
    pub(crate) late: LateEffects,
    /// What it brings along if it was on its way there.
    pub(crate) transit: Transit,
}

/// What a transition means for others: the workflow that caused it acts on these instead of looking at the states
/// itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub(crate) struct Effects {
    /// The state by its name on the wire.
    pub(crate) life_state: PhaseName,
    /// The node it is on, or is to be.
    pub(crate) node: Option<NodeKey>,
    /// Whether it may be in the queue in its new state. If not, the workflow takes it out.
    pub(crate) waits: bool,
    /// Whether it waits now, and original controllers were not notified when it left its node: they are to be now.
    pub(crate) is_stop_unannounced: bool,
    /// What it means for the runs of the instance on its node.
    pub(crate) run: Option<RunOf>,
}

/// What an event means for the runs of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOf {
    /// Its START is given to the node, which begins a run.
    Begun,
    /// The node lists it, or has been sent it by another.
    Found,
}

impl Effects {
    /// The effects of going from one state to the next.
    pub(super) fn of(before: &State, state: &State, run: Option<RunOf>) -> Self {
        Self {
            run,
            is_stop_unannounced: state.is_waiting() && before.transit().is_stop_unannounced,
            life_state: state.life_state(),
            node: state.node(),
            waits: state.waits(),
        }
    }
}

impl LifecycleEvent {
    /// What it means for the runs of the instance; `None` where it neither begins one nor shows where one is.
    pub(super) fn run(&self) -> Option<RunOf> {
        match self {
            Self::Given { .. } | Self::StartedAgain => Some(RunOf::Begun),
            Self::Listed { .. } | Self::NodeBack { .. } | Self::Arrived => Some(RunOf::Found),
            _ => None,
        }
    }
}

impl Loss {
    /// That of an instance of which nothing is open: it was not being shipped, and its launcher was told nothing that
    /// may yet take effect.
    pub(crate) fn new(node: Uuid, until: Instant, then: AfterLoss) -> Self {
        Self {
            node,
            until,
            then,
            bound_for: None,
            late: LateEffects::default(),
            transit: Transit::default(),
        }
    }

    /// The state with these data.
    pub(super) fn state(self) -> State {
        State::Lost {
            node: self.node,
            until: self.until,
            then: self.then,
            bound_for: self.bound_for,
            late: self.late,
            transit: self.transit,
        }
    }
}
