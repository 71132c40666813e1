//! Workloads: what the instances on a node are, beyond what STATS say again and again (added by this project).

use sched_model::record;

use super::document::payload;
use super::guard::LARGE;

record! {
    /// `workloads: {instances}`: from launchers to schedulers that record ends; each instance once on a connection.
    pub struct Workloads {
        /// The instances.
        instances: Vec<Workload> as "instances" unless empty,
    }
}

record! {
    /// One instance on a node.
    pub struct Workload {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// What it is called, as its START said; empty for nothing.
        name: String as "name" unless empty,
        /// Its tenant, as its START said; empty for none.
        tenant_uuid: String as "tenant_uuid" unless empty,
        /// What it runs: the first words of its command, or its image.
        program: String as "program" unless empty,
        /// How long it has been there, in seconds.
        age_s: u64 as "age_s",
    }
}

payload!(Workloads under "workloads", LARGE);
