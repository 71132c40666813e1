//! NodeCapacity: how much of what a node has the scheduler offers, and how it counts what runs there (added by this
//! project).

use sched_model::{record, words};

use super::document::payload;
use super::guard::SMALL;
use super::ratio::Ratio;

record! {
    /// `node_capacity: {cpu_ratio, mem_ratio, …}`: what its launcher admits STARTs by from now on, on this connection.
    /// Sent to launchers that announced `capacity`, after the first READY of a connection and whenever it changes.
    ///
    /// What a node offers is `(total − reserved) × ratio`, less what its instances count as.
    pub struct NodeCapacity {
        /// Virtual cpus offered per cpu.
        cpu_ratio: Ratio as "cpu_ratio",
        /// Memory offered per memory present.
        mem_ratio: Ratio as "mem_ratio",
        /// Disk offered per disk present.
        disk_ratio: Ratio as "disk_ratio",
        /// Memory that is never offered, in MiB.
        reserved_mem_mb: i64 as "reserved_mem_mb" unless empty,
        /// Disk that is never offered, in the unit of READY's disk figures.
        reserved_disk_mb: i64 as "reserved_disk_mb" unless empty,
        /// Cpus that are never offered.
        reserved_cpus: i64 as "reserved_cpus" unless empty,
        /// What an instance counts as once it runs.
        accounting: CountedAs as "accounting",
        /// Whether memory is limited at all.
        mem_limit: bool as "mem_limit" = true,
        /// Whether disk is limited at all.
        disk_limit: bool as "disk_limit" = true,
    }
}

payload!(NodeCapacity under "node_capacity", SMALL);

words! {
    /// What an instance that runs counts as against its node.
    pub enum CountedAs {
        /// What it asked for.
        Requested = "requested",
        /// What it uses, as soon as that is known.
        Measured = "measured",
    }
}
