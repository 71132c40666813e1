//! AttachVolume: an instance is to get a volume. AttachVolumeFailure: it did not.

use sched_model::{record, words};

use super::document::payload;
use super::error::{PayloadError, require};
use super::guard::SMALL;

record! {
    /// `attach_volume: {instance_uuid, volume_uuid, workload_agent_uuid}`.
    pub struct AttachVolume {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The volume.
        volume_uuid: String as "volume_uuid",
        /// The node the instance runs on.
        workload_agent_uuid: String as "workload_agent_uuid",
    }
}

record! {
    /// `{node_uuid, instance_uuid, volume_uuid, reason}`.
    pub struct AttachVolumeFailure {
        /// The node that says so; empty where it is the scheduler.
        node_uuid: String as "node_uuid",
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The volume.
        volume_uuid: String as "volume_uuid",
        /// Why.
        reason: AttachVolumeFailureReason as "reason",
    }
}

words! {
    /// Why a volume could not be attached.
    pub enum AttachVolumeFailureReason {
        /// There is no such instance.
        NoInstance = "no_instance",
        /// The AttachVolume could not be read.
        InvalidPayload = "invalid_payload",
        /// A value of the AttachVolume is missing or absurd.
        InvalidData = "invalid_data",
        /// Attaching it failed.
        AttachFailure = "attach_failure",
        /// It is attached already.
        AlreadyAttached = "already_attached",
        /// The node could not write its own record of it.
        StateFailure = "state_failure",
        /// The instance is in no state to take it.
        InstanceFailure = "instance_failure",
        /// This kind of instance takes no volumes.
        NotSupported = "not_supported",
    }
}

payload!(AttachVolume under "attach_volume", SMALL);
payload!(AttachVolumeFailure, SMALL);

impl AttachVolume {
    /// Whether it says which instance, which volume and which node.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[
            ("attach_volume.instance_uuid", &self.instance_uuid),
            ("attach_volume.volume_uuid", &self.volume_uuid),
            (
                "attach_volume.workload_agent_uuid",
                &self.workload_agent_uuid,
            ),
        ])
    }
}
