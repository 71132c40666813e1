//! CommandFailure: a command on an instance's life, or a drain, was taken in and then failed (added by this project).

use crate::{record, words};

record! {
    /// `command_failure: {command, instance_uuid, node_uuid, reason, detail}`. From a launcher to the scheduler, and
    /// from the scheduler to who asked.
    pub struct CommandFailure {
        /// What failed.
        command: LifecycleCommand as "command",
        /// The instance; empty for a drain.
        instance_uuid: String as "instance_uuid",
        /// The node that was to do it, or that was to be drained; empty where there is none.
        node_uuid: String as "node_uuid",
        /// The reason code.
        reason: CommandFailureReason as "reason",
        /// More about it, for people.
        detail: String as "detail" unless empty,
    }
}

words! {
    /// A command that takes a while, and may fail after it was taken in.
    pub enum LifecycleCommand {
        /// SUSPEND.
        Suspend = "suspend",
        /// RESUME.
        Resume = "resume",
        /// MIGRATE.
        Migrate = "migrate",
        /// UPDATE.
        Update = "update",
        /// EVACUATE with `mode: relocate`.
        Drain = "drain",
    }
}

words! {
    /// Why a command failed.
    pub enum CommandFailureReason {
        /// There is no such instance.
        NoInstance = "no_instance",
        /// The node's launcher does not know how.
        NotSupported = "not_supported",
        /// There is no room for it.
        NoRoom = "no_room",
        /// A value of the command is missing or absurd.
        InvalidData = "invalid_data",
        /// The instance is not in a state in which this can be done, such as a RESUME of one that runs.
        WrongState = "wrong_state",
        /// It was tried and did not work.
        Failed = "failed",
        /// It was not done within its deadline.
        Timeout = "timeout",
    }
}
