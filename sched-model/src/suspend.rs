//! SUSPEND and RESUME: an instance is to stop running without ending, and to go on (added by this project).

use crate::record;

use crate::error::{PayloadError, require};

record! {
    /// `suspend: {instance_uuid, workload_agent_uuid}`: it keeps its memory and disk, and its virtual CPUs are free.
    pub struct Suspend {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Its node; to the scheduler, which knows it, it may be empty.
        workload_agent_uuid: String as "workload_agent_uuid",
    }
}

record! {
    /// `resume: {instance_uuid, workload_agent_uuid}`: a suspended instance is to go on where it was.
    pub struct Resume {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// Its node; to the scheduler, which knows it, it may be empty.
        workload_agent_uuid: String as "workload_agent_uuid",
    }
}

impl Suspend {
    /// Whether it says which instance.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("suspend.instance_uuid", &self.instance_uuid)])
    }
}

impl Resume {
    /// Whether it says which instance.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("resume.instance_uuid", &self.instance_uuid)])
    }
}
