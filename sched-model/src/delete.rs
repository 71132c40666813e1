//! DELETE: an instance is to go, from the cluster or from its node only. DeleteFailure: it could not.

use crate::{record, words};

use crate::error::{PayloadError, require};

record! {
    /// `delete: {instance_uuid, workload_agent_uuid, stop}`.
    pub struct Delete {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node it runs on.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// Whether it is removed from that node only (a move): answered by InstanceStopped, not InstanceDeleted.
        stop: bool as "stop",
        /// Whether the scheduler is to forget it without its node, which is lost (added by this project).
        forget: bool as "forget" unless empty,
    }
}

record! {
    /// `{node_uuid, instance_uuid, reason}`.
    pub struct DeleteFailure {
        /// The node that says so; empty where it is the scheduler.
        node_uuid: String as "node_uuid",
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The reason code.
        reason: DeleteFailureReason as "reason",
    }
}

words! {
    /// Why an instance could not be deleted.
    pub enum DeleteFailureReason {
        /// There is no such instance.
        NoInstance = "no_instance",
        /// The DELETE could not be read.
        InvalidPayload = "invalid_payload",
        /// A value of the DELETE is missing or absurd.
        InvalidData = "invalid_data",
    }
}

impl Delete {
    /// Whether it says which instance and which node.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[
            ("delete.instance_uuid", &self.instance_uuid),
            ("delete.workload_agent_uuid", &self.workload_agent_uuid),
        ])
    }
}
