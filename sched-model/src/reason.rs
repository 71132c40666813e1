//! Why nodes did not fit: part of StartFailure and PlacementDecision.
//!
//! ```yaml
//! reasons:
//! - reason: labels
//!   what: zone = eu-1
//!   nodes: 40
//! - reason: memory
//!   nodes: 12
//!   asked: 921600
//!   best: 131072
//!   capacity: 524288
//!   node_uuid: 4cb19522-1e18-439a-883a-f9b2a3a95f5e
//!   hostname: host1
//!   never: true
//! ```

use crate::{record, words};

record! {
    /// One reason, and how many nodes it kept from fitting. Amounts are in the unit in which START asks: MiB of memory
    /// and disk, else a count.
    pub struct Reason {
        /// The kind of reason.
        reason: ReasonKind as "reason",
        /// What of that kind it was: an expression as written, the name of a resource, the id of a group, the label to be
        /// near to; empty where the kind says it all.
        what: String as "what" unless empty,
        /// How many nodes it kept from fitting.
        nodes: i64 as "nodes",
        /// How much the START asks for.
        asked: Option<i64> as "asked" unless empty,
        /// The most that any of these nodes has free.
        best: Option<i64> as "best" unless empty,
        /// The most that any of these nodes has in all.
        capacity: Option<i64> as "capacity" unless empty,
        /// The node that came nearest; empty where none did.
        node_uuid: String as "node_uuid" unless empty,
        /// Host name of that node.
        hostname: String as "hostname" unless empty,
        /// Whether waiting does not help: none of these nodes would fit even if it were empty.
        never: bool as "never" unless empty,
    }
}

words! {
    /// What kept a node from fitting. What filters beyond these say is in `Other`.
    pub enum ReasonKind {
        /// It takes no work at present. What it said of itself last is in `what`: `full`, `full of memory` (or `vcpus`,
        /// `disk`: what its figures say is used up), `maintenance`, `offline`, or `no report`.
        NotReady = "not_ready",
        /// It does not read what it is sent already.
        BackedUp = "backed_up",
        /// It does not say how much it has: of memory, vcpus or disk, in `what`.
        UnknownFigures = "unknown_figures",
        /// It is not the node that the START names.
        Pinned = "pinned",
        /// A `require` expression does not hold.
        Labels = "labels",
        /// It is not near what the START must be near to.
        Near = "near",
        /// The rule of the START's group forbids it.
        Group = "group",
        /// It has none of the instances that the START must be with.
        SameNode = "same_node",
        /// It has an instance that the START must not be with.
        DifferentNode = "different_node",
        /// It is reserved for other tenants.
        Tenants = "tenants",
        /// It is reserved for other images, or the START's image runs elsewhere alone.
        Images = "images",
        /// It does not have a volume or port of the START that another node has.
        Volumes = "volumes",
        /// Its launcher does not run what the START is.
        VmType = "vm_type",
        /// It has too little memory.
        Memory = "memory",
        /// It has too few virtual CPUs.
        Vcpus = "vcpus",
        /// It has too little disk.
        Disk = "disk",
        /// It has too little of a further resource.
        Resource = "resource",
        /// Too many STARTs are under way to it.
        Starts = "starts",
        /// It has too many instances.
        Instances = "instances",
    }
}
