//! AttachVolumeFailure: an instance did not get a volume.

use crate::{record, words};

record! {
    /// `{node_uuid, instance_uuid, volume_uuid, reason}`.
    pub struct AttachVolumeFailure {
        /// The node that says so; empty where it is the scheduler.
        node_uuid: String as "node_uuid",
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The volume.
        volume_uuid: String as "volume_uuid",
        /// The reason code.
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
