//! READY: a node takes work, and what it has.

use std::collections::BTreeMap;

use sched_model::record;

use super::document::payload;
use super::guard::SMALL;
use super::query::UNKNOWN;
use super::span::Span;

record! {
    /// What a node has. Figures are [`UNKNOWN`] where the payload does not say them.
    pub struct Ready {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Memory, MiB.
        mem_total_mb: i64 as "mem_total_mb" = UNKNOWN,
        /// Memory available now (free and file cache), MiB.
        mem_available_mb: i64 as "mem_available_mb" = UNKNOWN,
        /// Disk, in units of 10⁶ bytes.
        disk_total_mb: i64 as "disk_total_mb" = UNKNOWN,
        /// Disk available now, in units of 10⁶ bytes.
        disk_available_mb: i64 as "disk_available_mb" = UNKNOWN,
        /// Load average over a minute.
        load: i64 as "load" = UNKNOWN,
        /// CPUs online.
        cpus_online: i64 as "cpus_online" = UNKNOWN,
        /// Its network interfaces.
        networks: Vec<Network> as "networks",
        /// Its host name.
        hostname: String as "hostname",
        /// Labels of the node (added by this project).
        labels: BTreeMap<String, String> as "labels" unless empty,
        /// Further countable resources, by name (added by this project).
        resources: BTreeMap<String, i64> as "resources" unless empty,
        /// What the launcher understands beyond the original (added by this project).
        capabilities: Vec<String> as "capabilities" unless empty,
        /// How many STARTs these figures know of, on this connection (added by this project).
        starts_seen: Option<u64> as "starts_seen" unless empty,
        /// The node whose resources it shares, such as the whole machine of a NUMA node; empty for none (added by this
        /// project).
        shares: String as "shares" unless empty,
        /// The nodes that share its resources (added by this project). Sharing counts where both sides say so.
        shared_by: Vec<String> as "shared_by" unless empty,
        /// Which `vm_type` of STARTs the launcher runs; empty where it does not say (added by this project).
        vm_types: Vec<String> as "vm_types" unless empty,
        /// Volumes and ports that can be reached from the node, by id (added by this project).
        volumes: Vec<String> as "volumes" unless empty,
        /// Why the node takes no work although it may have room, for people; empty where it does (added by this project).
        fault: String as "fault" unless empty,
        /// Whether that is because it is short of memory, so that moving instances away helps (added by this project).
        pressure: bool as "pressure" unless empty,
        /// A random UUID of the launcher's process: it tells one that connects again from two under one UUID. Said in the
        /// first report of a connection; empty otherwise (added by this project).
        incarnation: String as "incarnation" unless empty,
        /// How long after the last answered STATS the launcher ends the instances that may then be started elsewhere;
        /// `None` where it does not (added by this project).
        lease: Option<Span> as "lease" unless empty,
        /// As in STATS: a number for LeaseRenewed to answer (added by this project).
        lease_seq: Option<u64> as "lease_seq" unless empty,
        /// As in STATS: a number for ReportReceived to answer (added by this project).
        report_seq: Option<u64> as "report_seq" unless empty,
    }
}

record! {
    /// One network interface of a node.
    pub struct Network {
        /// Its address.
        ip: String as "ip",
        /// Its hardware address.
        mac: String as "mac",
    }
}

payload!(Ready, SMALL);
