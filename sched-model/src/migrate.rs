//! MIGRATE: an instance is to move to another node (added by this project).

use crate::record;

use crate::deadline::check_deadline;
use crate::error::{PayloadError, require};
use crate::span::Span;

record! {
    /// `migrate: {instance_uuid, workload_agent_uuid, target_node_uuid, deadline}`.
    pub struct Migrate {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node it is on; to the scheduler, which knows it, it may be empty.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// The node it is to move to; to the scheduler it may be empty: any that fits.
        target_node_uuid: String as "target_node_uuid" unless empty,
        /// How long it may take, at most [`crate::MAX_DEADLINE`]; with 0 or none the scheduler's own time counts.
        deadline: Option<Span> as "deadline" unless empty,
    }
}

impl Migrate {
    /// Whether it says which instance, and its deadline is one.
    ///
    /// # Errors
    /// Names the key that is missing, empty or too large.
    pub fn check(&self) -> Result<(), PayloadError> {
        require(&[("migrate.instance_uuid", &self.instance_uuid)])?;
        check_deadline("migrate.deadline", self.deadline)
    }
}
