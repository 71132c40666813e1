//! InstanceDeleted, InstanceStopped, InstancePlaced, InstanceQueued and InstanceState: what became of an instance.

use crate::{EndFacts, record, words};

record! {
    /// `instance_deleted: {instance_uuid}`: it is gone for good.
    pub struct InstanceDeleted {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Exit status of its process, or minus the signal that ended it (added by this project).
        exit_code: Option<i64> as "exit_code" unless empty,
        /// Number of this end, where its launcher numbers them: the same as in `ended` of STATS (added by this project).
        seq: Option<u64> as "seq" unless empty,
        /// What else its launcher knows of the run (added by this project).
        facts: Option<Box<EndFacts>> as "facts" unless empty,
    }
}

record! {
    /// `instance_stopped: {instance_uuid}`: it no longer runs on its node.
    pub struct InstanceStopped {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Exit status of its process, or minus the signal that ended it (added by this project).
        exit_code: Option<i64> as "exit_code" unless empty,
        /// Whether its launcher stopped it because it was cut off for longer than its lease (added by this project).
        cut_off: bool as "cut_off" unless empty,
        /// Whether it ended by itself: its launcher had sent its processes no signal (added by this project).
        exited: bool as "exited" unless empty,
        /// As in InstanceDeleted (added by this project).
        seq: Option<u64> as "seq" unless empty,
        /// As in InstanceDeleted (added by this project).
        facts: Option<Box<EndFacts>> as "facts" unless empty,
    }
}

record! {
    /// `instance_placed: {instance_uuid, node_uuid, hostname}`: its START was given to a node (added by this project).
    pub struct InstancePlaced {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node.
        node_uuid: String as "node_uuid",
        /// The node's host name.
        hostname: String as "hostname",
    }
}

record! {
    /// `instance_queued: {instance_uuid, position, priority, waiting, deadline_ms, detail}`: its START waits for room
    /// (added by this project).
    pub struct InstanceQueued {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Its place among those that wait: 1 is next.
        position: u64 as "position",
        /// Its priority.
        priority: i64 as "priority",
        /// How many wait in all.
        waiting: u64 as "waiting",
        /// How long it will wait at most from now, milliseconds; `None` where nothing ends it.
        deadline_ms: Option<u64> as "deadline_ms" unless empty,
        /// Why it fits nowhere at present, for people.
        detail: String as "detail" unless empty,
    }
}

record! {
    /// `instance_state: {instance_uuid, state, …}`: its state has changed (added by this project). From a launcher
    /// `suspended`, `running` or `updated`; the scheduler says the rest.
    pub struct InstanceStateEvent {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node that has it; empty where none does.
        node_uuid: String as "node_uuid" unless empty,
        /// What it is now.
        state: PhaseName as "state",
        /// More about it, for people.
        detail: String as "detail" unless empty,
        /// Its priority, where it has one.
        priority: Option<i64> as "priority" unless empty,
        /// The node it is to move to; empty for none.
        target_node_uuid: String as "target_node_uuid" unless empty,
    }
}

words! {
    /// Where an instance is in its life.
    pub enum PhaseName {
        /// Its START waits for room.
        Waiting = "waiting",
        /// Given to a node that has not confirmed it.
        Placing = "placing",
        /// Running.
        Running = "running",
        /// Told to suspend.
        Suspending = "suspending",
        /// Suspended: it has its memory and disk, and no virtual CPUs.
        Suspended = "suspended",
        /// Told to go on.
        Resuming = "resuming",
        /// Told to end, for good or to be started elsewhere.
        Stopping = "stopping",
        /// On its way to another node.
        Migrating = "migrating",
        /// Running with what an UPDATE asked for.
        Updated = "updated",
        /// Its node is lost.
        Lost = "lost",
        /// No longer there.
        Gone = "gone",
    }
}
