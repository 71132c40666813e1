//! InstanceDeleted, InstanceStopped and InstancePlaced: what became of an instance.

use super::guard::SMALL;
use super::record::{payload, record};

record! {
    /// `instance_deleted: {instance_uuid}`: it is gone for good.
    pub struct InstanceDeleted {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Exit status of its process, or minus the signal that ended it (added by this project).
        exit_code: Option<i64> as "exit_code" unless empty,
    }
}

record! {
    /// `instance_stopped: {instance_uuid}`: it no longer runs on its node.
    pub struct InstanceStopped {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Exit status of its process, or minus the signal that ended it (added by this project).
        exit_code: Option<i64> as "exit_code" unless empty,
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

payload!(InstanceDeleted under "instance_deleted", SMALL);
payload!(InstanceStopped under "instance_stopped", SMALL);
payload!(InstancePlaced under "instance_placed", SMALL);
