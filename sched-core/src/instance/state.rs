//! The states of a managed instance. What is known only in some states is data of those states; what an event makes of
//! a state is in `machine`, and which events a state has in `lifecycle`.
//!
//! Every state that waits for someone else has a time (`due`, `until`) after which that counts as failed. Three are
//! states of rest: `Waiting`, `Running` and `Suspended`.

use std::collections::BTreeSet;
use std::time::Instant;

use sched_model::{PhaseName, Uuid};

use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::start::Demand;

/// How far an instance is: each state is named for what it waits for, or for where it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It is on no node, and one is looked for while an input is handled.
    Seeking {
        /// What it keeps until a node lists it.
        transit: Transit,
    },
    /// It is on no node and waits for room.
    Waiting {
        /// As [`Transit::pinned`].
        pinned: Option<Uuid>,
        /// The change with which it is on disk that it waits; no client is sent an event about it before that.
        waits_with: u64,
    },
    /// A node is chosen and its room claimed.
    Placing(Placing),
    /// It runs.
    Running {
        /// The node that has it.
        node: NodeKey,
        /// Commands that its launcher may still carry out.
        late: LateEffects,
    },
    /// Its launcher was sent SUSPEND, or will be once that is on disk.
    Suspending {
        /// The node that has it.
        node: NodeKey,
        /// For whom.
        by: SuspendedBy,
        /// The session that is sent a CommandFailure if it fails.
        asker: Option<SessionId>,
        /// As [`LateEffects::is_stop_sent`].
        is_stop_sent: bool,
        /// When that counts as failed.
        due: Instant,
    },
    /// It is suspended: it holds all it asked for but vcpus.
    Suspended {
        /// The node that has it.
        node: NodeKey,
        /// For whom: one that was preempted is resumed by the scheduler, one that was suspended by command is not.
        by: SuspendedBy,
        /// As [`LateEffects::is_stop_sent`].
        is_stop_sent: bool,
    },
    /// Its launcher was sent RESUME; its vcpus are claimed.
    Resuming {
        /// The node that has it.
        node: NodeKey,
        /// For whom it was suspended.
        by: SuspendedBy,
        /// The session that is sent a CommandFailure if it fails.
        asker: Option<SessionId>,
        /// As [`LateEffects::is_stop_sent`].
        is_stop_sent: bool,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its launcher was sent a stop or a DELETE, or will be once that is on disk.
    Stopping {
        /// The node that has it.
        node: NodeKey,
        /// What follows when it has ended.
        then: AfterStop,
        /// Commands that its launcher was sent before.
        late: LateEffects,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its launcher was sent UPDATE; the larger of old and new amounts is claimed.
    Updating {
        /// The node that has it.
        node: NodeKey,
        /// The old and the new amounts.
        change: Box<DemandChange>,
        /// Commands that its launcher may still carry out.
        late: LateEffects,
        /// When that counts as failed.
        due: Instant,
    },
    /// It moves to another node; its room is claimed on both.
    Migrating {
        /// The node that has it.
        from: NodeKey,
        /// The target.
        to: NodeKey,
        /// How far the move is.
        how: Move,
        /// What the move is for.
        move_request: Box<MoveRequest>,
        /// Commands that its launcher was sent before.
        late: LateEffects,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its node is lost, or has not come back since the scheduler was started: only that node knows whether it runs.
    Lost {
        /// The node.
        node: Uuid,
        /// When nothing is expected of the node any more. Where it is placed again then, this is the fencing deadline:
        /// it has certainly been stopped by then.
        until: Instant,
        /// What follows then, or when the node is back before.
        then: AfterLoss,
        /// The node that it was being shipped to when its own was lost: it may have arrived.
        bound_for: Option<Uuid>,
        /// Commands that its launcher was sent before.
        late: LateEffects,
        /// What it keeps if it was on its way to the node.
        transit: Transit,
    },
}

/// What an instance keeps on its way until a node lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Transit {
    /// The one node it may go to, if a MIGRATE named it; its START does not say so.
    pub(crate) pinned: Option<Uuid>,
    /// Whether it has left a node to go on elsewhere and original controllers were not sent that.
    pub(crate) is_stop_unannounced: bool,
}

/// Commands that the launcher of an instance's node was sent before, which count as failed and may still be carried
/// out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LateEffects {
    /// For whom it was to be suspended last since it was started: if it is suspended after all, it is for that reason.
    pub(crate) suspended_by: Option<SuspendedBy>,
    /// Whether the launcher was sent a stop: if the instance ends after all, it is placed again.
    pub(crate) is_stop_sent: bool,
}

/// How far a START is on its way to the node that is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placing {
    /// The node.
    pub(crate) node: NodeKey,
    /// What it waits for.
    pub(crate) pending_on: Awaits,
    /// What it keeps until a node lists it.
    pub(crate) transit: Transit,
}

/// What a START that has a node waits for, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// For the choice of the node to be on disk; the node was sent nothing.
    Commit,
    /// For these victims to be out of its way, until this time. The node was sent nothing.
    Victims(BTreeSet<InstanceId>, Instant),
    /// That its node confirms it.
    Node {
        /// As [`LateEffects::is_stop_sent`], of what ran there before.
        is_stop_sent: bool,
    },
}

impl Awaits {
    /// Whether its node was given the START.
    pub(crate) fn is_given(&self) -> bool {
        matches!(self, Self::Node { .. })
    }
}

/// For whom an instance is suspended: it decides whether the scheduler resumes it by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SuspendedBy {
    /// A START of higher priority.
    Preemptor(InstanceId),
    /// An operator or a controller.
    Command,
}

/// What follows once an instance was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AfterStop {
    /// It waits for room again: it was preempted for this instance.
    Wait(InstanceId),
    /// It is gone: it was deleted. If an UPDATE was under way and the DELETE fails, the UPDATE goes on.
    End(Option<Box<DemandChange>>),
    /// It is placed again: it was to move, and the target was lost.
    Again(Box<MoveRequest>),
}

/// An UPDATE of an instance's amounts that is under way on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DemandChange {
    /// What it had before.
    pub(crate) before: Demand,
    /// What it is to have.
    pub(crate) demand: Demand,
    /// The session that is sent the outcome.
    pub(crate) asker: Option<SessionId>,
}

/// What a move is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct MoveRequest {
    /// The session that is sent a CommandFailure if the instance does not move; `None` where the scheduler decided the
    /// move.
    pub(crate) asker: Option<SessionId>,
    /// The amounts it asks for from then on; `None` = as before.
    pub(crate) demand: Option<Demand>,
}

/// How far a move is, and in which way it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// Its room on the target is claimed, and the claim goes to disk. The source was sent nothing.
    Claimed,
    /// It is stopped on its node, then started on the target.
    Cold,
    /// The source's launcher transfers it with its state to the target.
    Shipped,
}

/// What becomes of an instance whose node is lost; decided when the node is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// It is placed again at the fencing deadline, or when its node is back without it.
    Restart,
    /// It is placed again only if its node is back and reports that it does not have it; otherwise it is not known
    /// whether it runs there. At the deadline it has failed.
    Replace,
    /// If its node is back with it, it goes on as before; else it is gone.
    Forget,
    /// It was deleted: if its node is back with it, it is deleted there.
    Delete,
}

impl State {
    /// Whether an instance runs nowhere as far as is known, and no node was sent its START.
    pub(crate) fn is_not_given(&self) -> bool {
        match self {
            State::Seeking { .. } | State::Waiting { .. } => true,
            State::Placing(Placing { pending_on, .. }) => !pending_on.is_given(),
            _ => false,
        }
    }

    /// The node whose ledger has it.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        match self {
            Self::Placing(placing) => Some(placing.node),
            Self::Running { node, .. }
            | Self::Suspending { node, .. }
            | Self::Suspended { node, .. }
            | Self::Resuming { node, .. }
            | Self::Updating { node, .. }
            | Self::Stopping { node, .. } => Some(*node),
            Self::Migrating { from, .. } => Some(*from),
            Self::Seeking { .. } | Self::Waiting { .. } | Self::Lost { .. } => None,
        }
    }

    /// Who had it suspended last since it was started, also where that seemed to have no effect.
    pub(crate) fn suspended_by(&self) -> Option<&SuspendedBy> {
        match self {
            Self::Suspending { by, .. }
            | Self::Suspended { by, .. }
            | Self::Resuming { by, .. } => Some(by),
            Self::Running { late, .. }
            | Self::Updating { late, .. }
            | Self::Stopping { late, .. }
            | Self::Migrating { late, .. }
            | Self::Lost { late, .. } => late.suspended_by.as_ref(),
            // It is to be started: nothing that it was told before concerns it.
            Self::Seeking { .. } | Self::Waiting { .. } | Self::Placing(_) => None,
        }
    }

    /// Whether its node was told to end it, without effect as it seems: if it ends after all, that is not its end.
    pub(crate) fn is_stop_sent(&self) -> bool {
        match self {
            Self::Placing(Placing {
                pending_on: Awaits::Node { is_stop_sent },
                ..
            })
            | Self::Suspending { is_stop_sent, .. }
            | Self::Suspended { is_stop_sent, .. }
            | Self::Resuming { is_stop_sent, .. } => *is_stop_sent,
            Self::Running { late, .. }
            | Self::Updating { late, .. }
            | Self::Stopping { late, .. }
            | Self::Migrating { late, .. }
            | Self::Lost { late, .. } => late.is_stop_sent,
            // What an earlier node was told does not concern the next.
            Self::Seeking { .. } | Self::Waiting { .. } | Self::Placing(_) => false,
        }
    }

    /// Sets whether its node was sent a stop. Does nothing where it has no node.
    pub(super) fn set_stop_sent(&mut self, is_told: bool) {
        match self {
            Self::Placing(Placing {
                pending_on: Awaits::Node { is_stop_sent },
                ..
            })
            | Self::Suspending { is_stop_sent, .. }
            | Self::Suspended { is_stop_sent, .. }
            | Self::Resuming { is_stop_sent, .. } => *is_stop_sent = is_told,
            Self::Running { late, .. }
            | Self::Updating { late, .. }
            | Self::Stopping { late, .. }
            | Self::Migrating { late, .. }
            | Self::Lost { late, .. } => late.is_stop_sent = is_told,
            Self::Seeking { .. } | Self::Waiting { .. } | Self::Placing(_) => {}
        }
    }

    /// The session whose command is being carried out on it.
    pub(crate) fn asker(&self) -> Option<SessionId> {
        match self {
            Self::Suspending { asker, .. } | Self::Resuming { asker, .. } => *asker,
            Self::Updating { change, .. } => change.asker,
            _ => self.move_request()?.asker,
        }
    }

    /// What it moves for, if it moves.
    pub(crate) fn move_request(&self) -> Option<&MoveRequest> {
        match self {
            Self::Migrating { move_request, .. }
            | Self::Stopping {
                then: AfterStop::Again(move_request),
                ..
            } => Some(move_request),
            _ => None,
        }
    }

    /// The UPDATE that is under way; also while it is being deleted, until it is gone.
    pub(crate) fn change(&self) -> Option<&DemandChange> {
        match self {
            Self::Updating { change, .. }
            | Self::Stopping {
                then: AfterStop::End(Some(change)),
                ..
            } => Some(change),
            _ => None,
        }
    }

    /// When its state counts as failed, or is looked at, if nothing happens before. States of rest have no such time.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self {
            Self::Placing(Placing {
                pending_on: Awaits::Victims(_, due),
                ..
            })
            | Self::Suspending { due, .. }
            | Self::Resuming { due, .. }
            | Self::Stopping { due, .. }
            | Self::Updating { due, .. }
            | Self::Migrating { due, .. } => Some(*due),
            Self::Lost { until, .. } => Some(*until),
            Self::Seeking { .. }
            | Self::Waiting { .. }
            | Self::Placing(_)
            | Self::Running { .. }
            | Self::Suspended { .. } => None,
        }
    }

    /// Its name on the wire. Fewer than there are states: clients see one that is being changed as running, and one
    /// that is looked a node for as waiting.
    pub(crate) fn life_state(&self) -> PhaseName {
        match self {
            Self::Seeking { .. } | Self::Waiting { .. } => PhaseName::Waiting,
            Self::Placing(_) => PhaseName::Placing,
            Self::Running { .. } | Self::Updating { .. } => PhaseName::Running,
            Self::Suspending { .. } => PhaseName::Suspending,
            Self::Suspended { .. } => PhaseName::Suspended,
            Self::Resuming { .. } => PhaseName::Resuming,
            Self::Stopping { .. } => PhaseName::Stopping,
            Self::Migrating { .. } => PhaseName::Migrating,
            Self::Lost { .. } => PhaseName::Lost,
        }
    }

    /// Whether it is on no node and waits for room.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting { .. })
    }

    /// What it keeps until a node lists it.
    pub(crate) fn transit(&self) -> Transit {
        match self {
            Self::Seeking { transit }
            | Self::Placing(Placing { transit, .. })
            | Self::Lost { transit, .. } => *transit,
            Self::Waiting { pinned, .. } => Transit {
                pinned: *pinned,
                // That is told as soon as it waits.
                is_stop_unannounced: false,
            },
            _ => Transit::default(),
        }
    }

    /// Notes that original controllers were not sent that it has left its node, while it is on its way to another.
    pub(super) fn note_stop_unannounced(&mut self) {
        match self {
            Self::Seeking { transit }
            | Self::Placing(Placing { transit, .. })
            | Self::Lost { transit, .. } => transit.is_stop_unannounced = true,
            _ => {}
        }
    }

    /// Whether it is suspended, and not being resumed.
    pub(crate) fn is_suspended(&self) -> bool {
        matches!(self, Self::Suspended { .. })
    }

    /// Whether it may be in the queue: it waits for a node, or for the scheduler to resume it.
    pub(crate) fn waits(&self) -> bool {
        let by_itself = |by: &SuspendedBy| matches!(by, SuspendedBy::Preemptor(_));
        self.is_waiting() || matches!(self, Self::Suspended { by, .. } if by_itself(by))
    }
}
