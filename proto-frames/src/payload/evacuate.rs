//! EVACUATE: a node is to stop all it runs and go out of service. Restore: it may come back.

use super::error::PayloadError;
use super::guard::SMALL;
use super::record::{payload, record};

record! {
    /// `evacuate: {workload_agent_uuid}`.
    pub struct Evacuate {
        /// The node.
        workload_agent_uuid: String as "workload_agent_uuid",
    }
}

record! {
    /// `restore: {workload_agent_uuid}`.
    pub struct Restore {
        /// The node.
        workload_agent_uuid: String as "workload_agent_uuid",
    }
}

payload!(Evacuate under "evacuate", SMALL);
payload!(Restore under "restore", SMALL);

impl Evacuate {
    /// Whether it says which node.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        super::require(&[("evacuate.workload_agent_uuid", &self.workload_agent_uuid)])
    }
}

impl Restore {
    /// Whether it says which node.
    ///
    /// # Errors
    /// Names the key that is missing or empty.
    pub fn check(&self) -> Result<(), PayloadError> {
        super::require(&[("restore.workload_agent_uuid", &self.workload_agent_uuid)])
    }
}
