//! MIGRATE: an instance is to move to another node (added by this project).

use sched_model::record;

use super::document::payload;
use super::error::{PayloadError, require};
use super::guard::SMALL;
use super::span::Span;
use sched_model::deadline::check_deadline;

record! {
    /// `migrate: {instance_uuid, workload_agent_uuid, target_node_uuid, deadline}`.
    pub struct Migrate {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node it is on; to the scheduler, which knows it, it may be empty.
        workload_agent_uuid: String as "workload_agent_uuid",
        /// The node it is to move to; to the scheduler it may be empty: any that fits.
        target_node_uuid: String as "target_node_uuid" unless empty,
        /// How long it may take, at most [`super::MAX_DEADLINE`]; with 0 or none the scheduler's own time counts.
        deadline: Option<Span> as "deadline" unless empty,
    }
}

payload!(Migrate under "migrate", SMALL);

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
