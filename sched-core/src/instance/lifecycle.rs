//! The lifecycle of a managed instance as one table: its phases, and every transition between them with what brings it.
//! What is not in [`TRANSITIONS`] is refused by the table of instances, which alone changes states.
//!
//! A phase is a state without its data, but for what decides how an instance may go on: a claim that is not on disk yet is
//! not a START on its way, and an instance that is deleted is not one that is stopped to be placed again.

use super::{AfterLoss, Awaits, Move, Placing, State, Then};
use crate::api::ids::InstanceId;
use crate::api::phase::{IllegalTransition, Phase};

impl Phase {
    /// What may follow, and what brings it.
    #[must_use]
    pub fn transitions(self) -> &'static [(Self, &'static str)] {
        let row = TRANSITIONS.iter().find(|(from, _)| *from == self);
        row.map_or(&[], |(_, to)| to)
    }

    /// Whether an instance in this phase may come to another.
    #[must_use]
    pub fn may_become(self, to: Self) -> bool {
        self.transitions().iter().any(|(phase, _)| *phase == to)
    }
}

impl State {
    /// The phase it belongs to.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Waiting => Phase::Waiting,
            Self::Placing(Placing { pending_on, .. }) => match pending_on {
                Awaits::Commit => Phase::Claimed,
                Awaits::Victims(..) => Phase::Preempting,
                Awaits::Node => Phase::Starting,
            },
            Self::Running { .. } => Phase::Running,
            Self::Updating { .. } => Phase::Updating,
            Self::Suspending { .. } => Phase::Suspending,
            Self::Suspended { .. } => Phase::Suspended,
            Self::Resuming { .. } => Phase::Resuming,
            Self::Stopping { then, .. } => match then {
                Then::Wait(_) => Phase::Preempted,
                Then::Again => Phase::Relocating,
                Then::End => Phase::Deleting,
            },
            Self::Migrating { how, .. } => match how {
                Move::Claimed => Phase::MoveClaimed,
                Move::Cold => Phase::MoveStopping,
                Move::Shipped => Phase::Shipping,
            },
            Self::Lost { then, .. } => match then {
                AfterLoss::Restart | AfterLoss::Replace | AfterLoss::Forget => Phase::Lost,
                AfterLoss::Delete => Phase::LostDeleted,
            },
        }
    }
}

/// That an instance in one phase may come to another.
///
/// # Errors
/// It may not.
pub(super) fn check(
    instance: &InstanceId,
    from: Phase,
    to: Phase,
) -> Result<(), IllegalTransition> {
    if from.may_become(to) {
        return Ok(());
    }
    Err(IllegalTransition {
        instance: instance.clone(),
        from,
        to,
    })
}

/// What may follow on one phase, and what brings it.
type Row = (Phase, &'static [(Phase, &'static str)]);

const AGAIN: &str = "its node cut it off, or ended it as it was told before: it is placed again";
const STARTED_AGAIN: &str = "it ended, and a START of it is on its way to its node";
const NODE_GIVEN_UP: &str = "its node is given up";
const ENDED: &str = "it ended, or its node has it no more";
const DELETE: &str = "DELETE";
const NO_START: &str = "it has left its node, and its START is not known";
const NOT_STOPPED: &str =
    "it was not stopped: too late, it could not be, or it was not needed any more";
const NOT_DELETED: &str = "the DELETE was not written, or not carried out in time";
const STAYS: &str = "the move was undone";
const UNTOLD: &str = "its node was lost or is drained before it was told: placed again";
const LISTED: &str = "its node lists it";

/// Every transition there is: from, to, and what brings it.
pub const TRANSITIONS: &[Row] = &[
    (
        Phase::New,
        &[
            (
                Phase::Waiting,
                "a START is to be managed, or waited before the restart",
            ),
            (
                Phase::Running,
                "a command is about an instance that its node has listed",
            ),
            (Phase::Suspended, "the same, and it is listed as suspended"),
            (
                Phase::Lost,
                "it was on a node before the restart, or on its way to one",
            ),
            (Phase::LostDeleted, "the same, and it was being deleted"),
        ],
    ),
    (
        Phase::Waiting,
        &[
            (
                Phase::Waiting,
                "it was looked for again, and there is no room",
            ),
            (Phase::Claimed, "a node has room"),
            (Phase::Preempting, "a node has room once victims have left"),
            (
                Phase::Starting,
                "a node has room, and none had to be told before",
            ),
            (Phase::Running, "a node lists it all the same"),
            (Phase::Gone, "DELETE, its deadline, or it fits nowhere"),
        ],
    ),
    (
        Phase::Claimed,
        &[
            (Phase::Waiting, UNTOLD),
            (Phase::Claimed, UNTOLD),
            (Phase::Preempting, UNTOLD),
            (Phase::Starting, "its claim is on disk"),
            (Phase::Running, "a node lists it all the same"),
            (Phase::Gone, "DELETE, or it fits nowhere else"),
        ],
    ),
    (
        Phase::Preempting,
        &[
            (Phase::Waiting, "a victim stays, or its node was lost"),
            (
                Phase::Claimed,
                "the last victim has left, or another node has room",
            ),
            (
                Phase::Preempting,
                "a victim has left, or others are to leave",
            ),
            (Phase::Running, "a node lists it all the same"),
            (Phase::Gone, "DELETE, or it fits nowhere else"),
        ],
    ),
    (
        Phase::Starting,
        &[
            (Phase::Waiting, "its node refused it, or does not have it"),
            (Phase::Claimed, "its node refused it, and another has room"),
            (
                Phase::Preempting,
                "its node refused it, and another has victims",
            ),
            (Phase::Running, LISTED),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, "it has failed, or ended"),
        ],
    ),
    (
        Phase::Running,
        &[
            (Phase::Waiting, AGAIN),
            (Phase::Claimed, AGAIN),
            (Phase::Preempting, AGAIN),
            (Phase::Starting, STARTED_AGAIN),
            (Phase::Updating, "UPDATE"),
            (Phase::Suspending, "SUSPEND, or a preemptor has its vcpus"),
            (Phase::Suspended, "its launcher says so, late or by itself"),
            (
                Phase::Resuming,
                "its launcher may yet suspend it, which is undone",
            ),
            (Phase::Preempted, "a preemptor has its room"),
            (Phase::Deleting, DELETE),
            (
                Phase::MoveClaimed,
                "MIGRATE, drain, or UPDATE that needs another node",
            ),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, ENDED),
        ],
    ),
    (
        Phase::Updating,
        &[
            (Phase::Waiting, AGAIN),
            (Phase::Claimed, AGAIN),
            (Phase::Preempting, AGAIN),
            (Phase::Starting, STARTED_AGAIN),
            (Phase::Running, "it was changed, or could not be"),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, ENDED),
        ],
    ),
    (
        Phase::Suspending,
        &[
            (Phase::Waiting, AGAIN),
            (Phase::Claimed, AGAIN),
            (Phase::Preempting, AGAIN),
            (Phase::Starting, STARTED_AGAIN),
            (
                Phase::Running,
                "its launcher could not, or not in time; or it is not needed any more",
            ),
            (Phase::Suspended, "its launcher says so"),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, ENDED),
        ],
    ),
    (
        Phase::Suspended,
        &[
            (Phase::Waiting, AGAIN),
            (Phase::Claimed, AGAIN),
            (Phase::Preempting, AGAIN),
            (Phase::Starting, STARTED_AGAIN),
            (Phase::Running, "its launcher says so, late or by itself"),
            (
                Phase::Suspended,
                "SUSPEND of what a preemptor had suspended",
            ),
            (Phase::Resuming, "RESUME, or there is room for it again"),
            (Phase::Preempted, "a preemptor has its memory as well"),
            (Phase::Deleting, DELETE),
            (
                Phase::MoveClaimed,
                "MIGRATE, drain, or it could not be resumed here for long",
            ),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, ENDED),
        ],
    ),
    (
        Phase::Resuming,
        &[
            (Phase::Waiting, AGAIN),
            (Phase::Claimed, AGAIN),
            (Phase::Preempting, AGAIN),
            (Phase::Starting, STARTED_AGAIN),
            (
                Phase::Running,
                "its launcher says so, or it was not suspended",
            ),
            (Phase::Suspended, "its launcher could not, or not in time"),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, ENDED),
        ],
    ),
    (
        Phase::Preempted,
        &[
            (Phase::Waiting, "it has ended on its node"),
            (Phase::Running, NOT_STOPPED),
            (Phase::Suspended, NOT_STOPPED),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, "it has left its node, and may not wait"),
        ],
    ),
    (
        Phase::Relocating,
        &[
            (Phase::Waiting, "it has left its node, and there is no room"),
            (Phase::Claimed, "it has left its node, and another has room"),
            (
                Phase::Preempting,
                "it has left its node, and another has victims",
            ),
            (Phase::Running, NOT_STOPPED),
            (Phase::Suspended, NOT_STOPPED),
            (Phase::Deleting, DELETE),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, NO_START),
        ],
    ),
    (
        Phase::Deleting,
        &[
            (
                Phase::Starting,
                "the DELETE was not written, and its START is not confirmed",
            ),
            (Phase::Running, NOT_DELETED),
            (Phase::Updating, NOT_DELETED),
            (Phase::Suspended, NOT_DELETED),
            (Phase::Deleting, "DELETE once more"),
            (Phase::LostDeleted, NODE_GIVEN_UP),
            (Phase::Gone, "it is deleted"),
        ],
    ),
    (
        Phase::MoveClaimed,
        &[
            (
                Phase::Claimed,
                "its node was cut off and has stopped it: it starts on the target",
            ),
            (
                Phase::Running,
                "the move was undone; or it ended here, and the target lists it",
            ),
            (Phase::Suspended, STAYS),
            (
                Phase::MoveStopping,
                "its claim is on disk: its launcher is told to stop it",
            ),
            (
                Phase::Shipping,
                "its claim is on disk: its launcher is told to ship it",
            ),
            (Phase::Lost, NODE_GIVEN_UP),
            (Phase::Gone, "it ended before it moved"),
        ],
    ),
    (
        Phase::MoveStopping,
        &[
            (
                Phase::Claimed,
                "it has left its node: it starts on the target",
            ),
            (
                Phase::Running,
                "the move was undone; or it ended here, and the target lists it",
            ),
            (Phase::Suspended, STAYS),
            (
                Phase::Relocating,
                "the target is lost, and no other has room",
            ),
            (
                Phase::MoveStopping,
                "the target is lost, and another has room",
            ),
            (Phase::Lost, NODE_GIVEN_UP),
        ],
    ),
    (
        Phase::Shipping,
        &[
            (
                Phase::Starting,
                "it has left its node, and the target has not listed it",
            ),
            (
                Phase::Running,
                "the target lists it, or the move was undone",
            ),
            (Phase::Suspended, STAYS),
            (Phase::Relocating, "the target is lost"),
            (Phase::Lost, NODE_GIVEN_UP),
        ],
    ),
    (
        Phase::Lost,
        &[
            (
                Phase::Waiting,
                "it has been stopped by now, or its node is back without it",
            ),
            (Phase::Claimed, "the same, and a node has room"),
            (Phase::Preempting, "the same, and a node has victims"),
            (Phase::Running, "its node is back and lists it"),
            (
                Phase::Suspended,
                "its node is back and lists it as suspended",
            ),
            (
                Phase::Lost,
                "its node is back and has not listed anything yet",
            ),
            (Phase::LostDeleted, DELETE),
            (
                Phase::Gone,
                "its node is back without it, or for too long not back",
            ),
        ],
    ),
    (
        Phase::LostDeleted,
        &[
            (Phase::Deleting, "its node is back and lists it"),
            (
                Phase::LostDeleted,
                "DELETE once more, or its node has not listed anything yet",
            ),
            (
                Phase::Gone,
                "its node is back without it, or for too long not back",
            ),
        ],
    ),
    (Phase::Gone, &[]),
];
