//! The phases of a managed instance's lifecycle, by name. Which event leads from one to another stands in
//! `instance/lifecycle`.

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
    /// The name of what was refused.
    pub event: &'static str,
}
