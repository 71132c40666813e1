//! The lifecycle of a managed instance as one table: its phases, and which phases each event leads to. Whatever is not
//! in [`TRANSITIONS`] is refused by the table of instances, which alone changes states; what the next state consists of
//! is decided in `machine`.
//!
//! A phase is a state without its data, except for what decides how an instance may go on: a claim that is not on disk
//! yet is not a START on its way, and an instance that is being deleted is not one that is stopped to be placed again.
//!
//! The tests of the table run every event in every phase against this table, and the book's page of states is generated
//! from it. To add an event: a variant of `EventKind` and of `LifecycleEvent`, a row here, and an arm in `machine`.

use super::{AfterLoss, AfterStop, Awaits, Move, Placing, State};
use crate::api::phase::{EventKind, Phase};

impl Phase {
    /// The phases that an event may lead to from this one: none where it is refused, several where data of the state or
    /// of the event decide. A linear search over some 30 rows, once for each transition.
    #[must_use]
    pub fn on(self, event: EventKind) -> &'static [Self] {
        let row = TRANSITIONS.iter().find(|row| row.event == event);
        let ways = row.map_or(&[][..], |row| row.ways);
        let found = ways.iter().find(|(from, _)| from.contains(&self));
        found.map_or(&[], |(_, to)| to)
    }
}

impl State {
    /// The phase it belongs to.
    pub(crate) fn phase(&self) -> Phase {
        match self {
            Self::Seeking { .. } => Phase::Seeking,
            Self::Waiting { .. } => Phase::Waiting,
            Self::Placing(Placing { pending_on, .. }) => match pending_on {
                Awaits::Commit => Phase::Claimed,
                Awaits::Victims(..) => Phase::Preempting,
                Awaits::Node { .. } => Phase::Starting,
            },
            Self::Running { .. } => Phase::Running,
            Self::Updating { .. } => Phase::Updating,
            Self::Suspending { .. } => Phase::Suspending,
            Self::Suspended { .. } => Phase::Suspended,
            Self::Resuming { .. } => Phase::Resuming,
            Self::Stopping { then, .. } => match then {
                AfterStop::Wait(_) => Phase::Preempted,
                AfterStop::Again(_) => Phase::Relocating,
                AfterStop::End(_) => Phase::Deleting,
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

/// One row of the table: an event, and which phases it leads to from which. Public for the generated page only.
#[derive(Debug)]
pub struct Row {
    /// The event.
    pub event: EventKind,
    /// When it happens, as the page says it.
    pub when: &'static str,
    /// Pairs: the phases before, and the phases after. Several after where data decide.
    pub ways: &'static [(&'static [Phase], &'static [Phase])],
}

/// Builds a row; a function because struct literals would triple the table's length.
const fn row(
    event: EventKind,
    when: &'static str,
    ways: &'static [(&'static [Phase], &'static [Phase])],
) -> Row {
    Row { event, when, ways }
}

/// Every transition there is, by event. Each event has one row; a phase is in at most one of its pairs.
pub const TRANSITIONS: &[Row] = {
    use EventKind as E;
    use Phase::{
        Claimed, Deleting, Gone, Lost, LostDeleted, MoveClaimed, MoveStopping, New, Preempted,
        Preempting, Relocating, Resuming, Running, Seeking, Shipping, Starting, Suspended,
        Suspending, Updating, Waiting,
    };
    &[
        row(
            E::Managed,
            "a START is to be managed",
            &[(&[New], &[Seeking])],
        ),
        row(
            E::Adopted,
            "a command is about an instance that its node has listed, perhaps as suspended",
            &[(&[New], &[Running, Suspended])],
        ),
        row(
            E::Restored,
            "before the restart it waited, or was on a node or on its way to one, perhaps deleted there",
            &[(&[New], &[Waiting, Lost, LostDeleted])],
        ),
        row(
            E::Sought,
            "it has left its node, which has cut it off or ended it as it was ordered; its node refused it, does not have \
             it, or was lost before it was ordered to; or nodes are asked once more",
            &[(
                &[
                    Waiting, Claimed, Preempting, Starting, Running, Updating, Suspending,
                    Suspended, Resuming, Preempted, Relocating, Lost,
                ],
                &[Seeking],
            )],
        ),
        row(
            E::Queued,
            "no node has room, or others come before it",
            &[(&[Seeking], &[Waiting])],
        ),
        row(
            E::Claimed,
            "a node has room",
            &[(&[Seeking, Waiting], &[Claimed])],
        ),
        row(
            E::Preempts,
            "a node has room once victims have left",
            &[(&[Seeking, Waiting], &[Preempting])],
        ),
        row(
            E::VictimAway,
            "a victim has left; the last one, or others are still to",
            &[(&[Preempting], &[Claimed, Preempting])],
        ),
        row(
            E::Given,
            "its claim is on disk, or nothing of it is to be",
            &[(&[Seeking, Claimed], &[Starting])],
        ),
        row(
            E::Listed,
            "its node lists it, or another does before any was told",
            &[(
                &[Seeking, Waiting, Claimed, Preempting, Starting],
                &[Running],
            )],
        ),
        row(
            E::StartedAgain,
            "it ended, and a START of it is on its way to its node",
            &[(
                &[Running, Updating, Suspending, Suspended, Resuming],
                &[Starting],
            )],
        ),
        row(
            E::StartAwaited,
            "the DELETE was not written, and its START is not confirmed",
            &[(&[Deleting], &[Starting])],
        ),
        row(E::Updated, "UPDATE", &[(&[Running], &[Updating])]),
        row(
            E::UpdateResumed,
            "the DELETE was not written, or not carried out in time, while it was being changed",
            &[(&[Deleting], &[Updating])],
        ),
        row(
            E::UpdateSettled,
            "it was changed, or could not be, also while it is to be deleted",
            &[(&[Updating], &[Running]), (&[Deleting], &[Deleting])],
        ),
        row(
            E::SuspendAsked,
            "SUSPEND, or a preemptor has its vcpus; of what a preemptor had suspended: it is to stay so",
            &[(&[Running], &[Suspending]), (&[Suspended], &[Suspended])],
        ),
        row(
            E::IsSuspended,
            "its launcher says so, also late or by itself",
            &[(&[Suspending, Running], &[Suspended])],
        ),
        row(
            E::ResumeAsked,
            "RESUME, or there is room for it again; or its launcher may yet suspend it, which is undone",
            &[(&[Suspended, Running], &[Resuming])],
        ),
        row(
            E::Runs,
            "its launcher says so, also late or by itself, or that it was not suspended",
            &[(&[Resuming, Suspended], &[Running])],
        ),
        row(
            E::Reverted,
            "its launcher could not carry out the command, or not in time; the move was cancelled; the DELETE was not \
             written; or it is not needed any more",
            &[(
                &[
                    Suspending,
                    Resuming,
                    Preempted,
                    Relocating,
                    Deleting,
                    MoveClaimed,
                    MoveStopping,
                    Shipping,
                ],
                &[Running, Suspended],
            )],
        ),
        row(
            E::Preempted,
            "a preemptor has its room, or its memory as well",
            &[(&[Running, Suspended], &[Preempted])],
        ),
        row(
            E::Deleted,
            "DELETE",
            &[
                (
                    &[
                        Starting, Running, Updating, Suspending, Suspended, Resuming, Preempted,
                        Relocating, Deleting,
                    ],
                    &[Deleting],
                ),
                (&[Lost, LostDeleted], &[LostDeleted]),
            ],
        ),
        row(
            E::MovePlanned,
            "MIGRATE, drain, UPDATE that needs another node, or it could not be resumed here for long",
            &[(&[Running, Suspended], &[MoveClaimed])],
        ),
        row(
            E::MoveBegun,
            "its claim on the target is on disk: its launcher is told to stop or ship it",
            &[(&[MoveClaimed], &[MoveStopping, Shipping])],
        ),
        row(
            E::Retargeted,
            "the target is lost, and another has room",
            &[(&[MoveStopping], &[MoveStopping])],
        ),
        row(
            E::TargetLost,
            "the target is lost, and no other has room, or it was to be shipped there",
            &[(&[MoveStopping, Shipping], &[Relocating])],
        ),
        row(
            E::LeftForTarget,
            "it has left its node: it starts on the target, or was shipped there",
            &[
                (&[MoveClaimed, MoveStopping], &[Claimed]),
                (&[Shipping], &[Starting]),
            ],
        ),
        row(
            E::Arrived,
            "the target lists it",
            &[(&[MoveClaimed, MoveStopping, Shipping], &[Running])],
        ),
        row(
            E::NodeLost,
            "its node is given up",
            &[
                (
                    &[
                        Starting,
                        Running,
                        Updating,
                        Suspending,
                        Suspended,
                        Resuming,
                        Preempted,
                        Relocating,
                        MoveClaimed,
                        MoveStopping,
                        Shipping,
                    ],
                    &[Lost],
                ),
                (&[Deleting], &[LostDeleted]),
            ],
        ),
        row(
            E::LossDeferred,
            "its node is back and has not listed anything yet",
            &[(&[Lost], &[Lost]), (&[LostDeleted], &[LostDeleted])],
        ),
        row(
            E::NodeBack,
            "its node is back and lists it, perhaps as suspended; what was deleted meanwhile is deleted there",
            &[
                (&[Lost], &[Running, Suspended]),
                (&[LostDeleted], &[Deleting]),
            ],
        ),
        row(
            E::Ended,
            "it ended, failed, fits nowhere or waited too long; DELETE of what is on no node; its node is back without it, \
             or for too long not back",
            &[(
                &[
                    Seeking,
                    Waiting,
                    Claimed,
                    Preempting,
                    Starting,
                    Running,
                    Updating,
                    Suspending,
                    Suspended,
                    Resuming,
                    Preempted,
                    Relocating,
                    Deleting,
                    MoveClaimed,
                    MoveStopping,
                    Shipping,
                    Lost,
                    LostDeleted,
                ],
                &[Gone],
            )],
        ),
    ]
};
