//! STATS: what a node has and what its instances use.

use std::collections::BTreeMap;

use sched_model::{RunProgress, record, words};

use super::document::payload;
use super::guard::LARGE;
use super::instance_end::InstanceEnd;
use super::query::UNKNOWN;
use super::ready::{Network, Ready};
use super::span::Span;

record! {
    /// READY's figures, the node's status, and its instances. Any figure may be lacking: it is [`UNKNOWN`] then.
    pub struct Stats {
        /// The node.
        node_uuid: String as "node_uuid",
        /// `READY`, `FULL` and so on, as its last status frame said.
        status: String as "status",
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
        /// Its host name.
        hostname: String as "hostname",
        /// Its network interfaces.
        networks: Vec<Network> as "networks",
        /// Its instances.
        instances: Vec<InstanceStat> as "instances",
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
        /// Number of this STATS, for LeaseRenewed to answer (added by this project).
        lease_seq: Option<u64> as "lease_seq" unless empty,
        /// Number of this STATS, for ReportReceived to answer, where it has no `lease_seq` (added by this project).
        report_seq: Option<u64> as "report_seq" unless empty,
        /// UUID of what counts the ends on this node; drawn again where a launcher has lost its count (added by this
        /// project).
        ends_incarnation: String as "ends_incarnation" unless empty,
        /// The number of the latest end (added by this project).
        ends_seq: Option<u64> as "ends_seq" unless empty,
        /// Ends that EndsRecorded has not named yet, oldest first; as many as one STATS carries (added by this project).
        ended: Vec<InstanceEnd> as "ended" unless empty,
    }
}

impl From<Ready> for Stats {
    /// What READY says, with no status, no instances and no number.
    fn from(ready: Ready) -> Self {
        Self {
            node_uuid: ready.node_uuid,
            mem_total_mb: ready.mem_total_mb,
            mem_available_mb: ready.mem_available_mb,
            disk_total_mb: ready.disk_total_mb,
            disk_available_mb: ready.disk_available_mb,
            load: ready.load,
            cpus_online: ready.cpus_online,
            hostname: ready.hostname,
            networks: ready.networks,
            labels: ready.labels,
            resources: ready.resources,
            capabilities: ready.capabilities,
            starts_seen: ready.starts_seen,
            shares: ready.shares,
            shared_by: ready.shared_by,
            vm_types: ready.vm_types,
            volumes: ready.volumes,
            fault: ready.fault,
            pressure: ready.pressure,
            incarnation: ready.incarnation,
            lease: ready.lease,
            ..Self::default()
        }
    }
}

record! {
    /// What one instance uses.
    pub struct InstanceStat {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// How it is.
        state: InstanceState as "state",
        /// Address for SSH; empty where there is none.
        ssh_ip: String as "ssh_ip",
        /// Port for SSH; 0 where there is none.
        ssh_port: i64 as "ssh_port",
        /// Memory used, MiB; negative where not known.
        memory_usage_mb: i64 as "memory_usage_mb",
        /// Disk used, in units of 10⁶ bytes; negative where not known.
        disk_usage_mb: i64 as "disk_usage_mb",
        /// CPU used, per cent of what it has; negative where not known.
        cpu_usage: i64 as "cpu_usage",
        /// Volumes attached.
        volumes: Vec<String> as "volumes",
        /// What it asked for (added by this project).
        requested: Option<Requested> as "requested" unless empty,
        /// Id of its group, as its START said; empty for none (added by this project).
        group: String as "group" unless empty,
        /// Whether it is suspended: its virtual CPUs are free (added by this project). `state` is `exit_paused` then.
        suspended: bool as "suspended" unless empty,
        /// Its restarts and its time, where its START says anything about these (added by this project).
        run: Option<Box<RunProgress>> as "run" unless empty,
    }
}

record! {
    /// What an instance asked for in its START.
    pub struct Requested {
        /// Memory, MiB.
        mem_mb: i64 as "mem_mb",
        /// Virtual CPUs.
        vcpus: i64 as "vcpus",
        /// Local disk, MiB.
        disk_mb: i64 as "disk_mb",
        /// Further countable resources, by name.
        resources: BTreeMap<String, i64> as "resources" unless empty,
    }
}

words! {
    /// How an instance is, in its launcher's words.
    pub enum InstanceState {
        /// Being made, or not yet known.
        Pending = "pending",
        /// Running.
        Active = "active",
        /// There, but not running.
        Exited = "exited",
        /// Being stopped.
        Stopping = "stopping",
        /// It failed to start.
        ExitFailed = "exit_failed",
        /// Paused.
        ExitPaused = "exit_paused",
        /// Gone.
        Deleted = "deleted",
        /// It does not answer.
        Hung = "hung",
        /// It should be there and is not.
        Missing = "missing",
    }
}

payload!(Stats, LARGE);
