//! The phases of a managed instance's lifecycle, and the events that bring it from one to another, by name. Which event
//! leads where stands in `instance/lifecycle`.

use std::fmt;

use crate::api::ids::InstanceId;
use crate::api::names::names;

names! {
    /// What a managed instance awaits, or where it rests.
    pub Phase:
    /// It is not managed yet.
    New,
    /// It is on no node, and one is looked for: no longer than the input lasts that is being handled.
    Seeking,
    /// It is on no node and waits for room.
    Waiting,
    /// Room is claimed for it, and the claim is being put on disk.
    Claimed,
    /// Room is claimed for it, and victims are on their way out of it.
    Preempting,
    /// Its node was given its START and has not confirmed it.
    Starting,
    /// It runs.
    Running,
    /// It runs, and its launcher was told to change what it has.
    Updating,
    /// Its launcher was told to suspend it, or will be.
    Suspending,
    /// It is suspended.
    Suspended,
    /// Its launcher was told to resume it.
    Resuming,
    /// Its launcher was told to stop it for a preemptor, or will be.
    Preempted,
    /// Its launcher was told to stop it, and it is placed again then.
    Relocating,
    /// Its launcher was told to delete it.
    Deleting,
    /// It is to move, and its claim on the target is being put on disk.
    MoveClaimed,
    /// It moves: its launcher was told to stop it.
    MoveStopping,
    /// It moves: its launcher was told to ship it.
    Shipping,
    /// Its node is lost.
    Lost,
    /// Its node is lost, and it was deleted.
    LostDeleted,
    /// It is not managed any more.
    Gone,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

names! {
    /// Something that concerns a managed instance and decides what it awaits next, without its data.
    pub EventKind:
    /// A START of it is to be managed.
    Managed,
    /// A command is about an instance that its node has listed, and that was not managed before.
    Adopted,
    /// A record of it was found when the scheduler was started.
    Restored,
    /// It has left its node, or cannot stay with it: a node is looked for.
    Sought,
    /// No node has room for it.
    Queued,
    /// Room is claimed for it on a node, and the claim has to be on disk before the node is told.
    Claimed,
    /// Room is claimed for it on a node on which others have to end or be suspended first.
    Preempts,
    /// One of those has.
    VictimAway,
    /// Its START is given to its node.
    Given,
    /// A node lists it.
    Listed,
    /// A START of it is on its way to the node on which it has ended.
    StartedAgain,
    /// A DELETE of it was never written, and its START is not confirmed.
    StartAwaited,
    /// It is to be changed.
    Updated,
    /// A DELETE came to nothing while it was being changed.
    UpdateResumed,
    /// It was changed, or could not be.
    UpdateSettled,
    /// It is to be suspended.
    SuspendAsked,
    /// Its launcher says that it is suspended.
    IsSuspended,
    /// It is to be resumed.
    ResumeAsked,
    /// Its launcher says that it runs.
    Runs,
    /// What was to be done to it was refused, is late or is not needed any more: it goes on as its node has said last.
    Reverted,
    /// It is to be stopped for a preemptor.
    Preempted,
    /// A DELETE of it came.
    Deleted,
    /// It is to move, and its claim on the target has to be on disk first.
    MovePlanned,
    /// Its launcher is told that it moves.
    MoveBegun,
    /// The target of its move is lost, and another has room.
    Retargeted,
    /// The target of its move is lost, and it may leave its node all the same.
    TargetLost,
    /// It has left its node, and the target has not listed it.
    LeftForTarget,
    /// It has left its node, and the target has listed it.
    Arrived,
    /// Its node is given up.
    NodeLost,
    /// Its lost node is there again, and has not listed anything yet.
    LossDeferred,
    /// Its lost node lists it.
    NodeBack,
    /// It has ended, failed or was deleted, and is not placed again.
    Ended,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// An event that was refused because the lifecycle does not have it in this phase; the instance is what it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "instance {instance} is {phase}, where {event} cannot happen: refused, and it stays {phase}; this is a defect of the \
     scheduler, please report it with the instance's history"
)]
pub struct IllegalTransition {
    /// The instance.
    pub instance: InstanceId,
    /// What it is.
    pub phase: Phase,
    /// What was refused.
    pub event: EventKind,
}
