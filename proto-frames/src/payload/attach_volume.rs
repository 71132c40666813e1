//! AttachVolume: an instance is to get a volume.

use sched_model::record;

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

payload!(AttachVolume under "attach_volume", SMALL);

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
