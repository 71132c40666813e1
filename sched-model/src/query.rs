//! QUERY and QUERY_RESULT: nodes, instances and controllers as the scheduler sees them (added by this project).

use std::collections::BTreeMap;

use crate::configuration::ConfigurationVersion;
use crate::{ArrayView, EndFilter, EndWhy, EndedRun, Reason, RunProgress, record, words};

use crate::error::{Fault, PayloadError};

/// What a figure is that a node does not know or does not say: it never fits anything.
pub const UNKNOWN: i64 = -1;

/// Entries of one answer, unless the query says otherwise.
pub const DEFAULT_LIMIT: u32 = 500;

/// Most entries that one answer has: about 400 KiB of nodes. There are fewer where they have many labels.
pub const MAX_LIMIT: u32 = 1000;

record! {
    /// `query: {id, what, match, after, limit, within_ms}`.
    pub struct Query {
        /// The asker's number for it, given back in the answer.
        id: u32 as "id",
        /// What is asked for.
        what: QueryKind as "what",
        /// Only entries whose id begins with this, or whose host name is this.
        matching: Option<String> as "match" unless empty,
        /// Only entries after this cursor (`next` of an earlier answer).
        after: Option<String> as "after" unless empty,
        /// Most entries wanted, 1 to [`MAX_LIMIT`]; [`DEFAULT_LIMIT`] where not said.
        limit: Option<u32> as "limit" unless empty,
        /// Of those that have ended: only ends that happened within so many milliseconds. Schedulers that do not know it
        /// give all.
        within_ms: Option<u64> as "within_ms" unless empty,
        /// Of ends on record: which.
        filter: EndFilter as "filter" unless empty,
    }
}

words! {
    /// What a query asks for.
    pub enum QueryKind {
        /// Nodes.
        Nodes = "nodes",
        /// Instances.
        Instances = "instances",
        /// Controllers and operators.
        Controllers = "controllers",
        /// Instances whose START waits, in the order in which they will be looked at.
        Queue = "queue",
        /// What became of one instance, the oldest first; `match` is its id.
        History = "history",
        /// Instances that have ended, the oldest first, as far as they are remembered.
        Ended = "ended",
        /// Ends of instances on record, the latest first; `filter` says which. A page may have fewer than wanted, or none,
        /// and not be the last.
        Ends = "ends",
        /// Arrays, the latest first.
        Arrays = "arrays",
        /// The scheduler itself.
        Status = "status",
    }
}

record! {
    /// `query_result: {id, what, nodes | instances | controllers, store | history, next, error}`.
    pub struct QueryResult {
        /// The query's number.
        id: u32 as "id",
        /// What was asked for.
        what: QueryKind as "what",
        /// The nodes, where those were asked for.
        nodes: Vec<NodeView> as "nodes" unless empty,
        /// The instances, where those, the queue or those that have ended were asked for.
        instances: Vec<InstanceView> as "instances" unless empty,
        /// The controllers, where those were asked for.
        controllers: Vec<ControllerView> as "controllers" unless empty,
        /// How the scheduler's state directory is, where controllers were asked for.
        store: Option<StoreView> as "store" unless empty,
        /// How the scheduler is, where that was asked for.
        status: Option<StatusView> as "status" unless empty,
        /// What became of the instance, where that was asked for.
        history: Vec<HistoryRow> as "history" unless empty,
        /// Where those that have ended were asked for: for how long, in milliseconds, none of their ends was forgotten.
        /// An instance that began within this time, does not exist and is not among them never ran. A scheduler that
        /// was started without what the one before it had kept knows of no end before its start. The last page counts.
        /// `None` from schedulers that do not say.
        complete_for_ms: Option<i64> as "complete_for_ms" unless empty,
        /// Where those that have ended were asked for: how many earlier ends the scheduler has forgotten to stay within
        /// its memory; `None` for none, and from schedulers that do not say.
        forgotten: Option<u64> as "forgotten" unless empty,
        /// What nodes keep of its runs that are over, where its history was asked for; on the last page.
        outputs: Vec<OutputRow> as "outputs" unless empty,
        /// The arrays, where those were asked for, the latest first.
        arrays: Vec<ArrayView> as "arrays" unless empty,
        /// The ends, where those on record were asked for, the latest first.
        ends: Vec<EndedRun> as "ends" unless empty,
        /// Where ends on record were asked for, whether they are in the scheduler's memory alone and end with it.
        in_memory: bool as "in_memory" unless empty,
        /// Where to go on (`after` of the next query); `None` at the end.
        next: Option<String> as "next" unless empty,
        /// Why there is no answer, where there is none.
        error: Option<String> as "error" unless empty,
    }
}

record! {
    /// A node as the scheduler sees it; figures are [`UNKNOWN`] where it does not know them.
    pub struct NodeView {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Its host name.
        hostname: String as "hostname",
        /// Its roles, such as `AGENT|NETAGENT`.
        roles: String as "roles",
        /// `CONNECTED`, `READY`, `FULL`, `OFFLINE`, `MAINTENANCE`; of one that is not connected `LOST`, or `EXPECTED` where
        /// it was connected to the scheduler before a restart and may still return.
        status: String as "status",
        /// Memory, MiB.
        mem_total_mb: i64 as "mem_total_mb" = UNKNOWN,
        /// Memory it reported as available, MiB.
        mem_available_mb: i64 as "mem_available_mb" = UNKNOWN,
        /// Memory that is free after claims, MiB.
        mem_free_mb: i64 as "mem_free_mb" = UNKNOWN,
        /// Disk, in units of 10⁶ bytes.
        disk_total_mb: i64 as "disk_total_mb" = UNKNOWN,
        /// Disk it reported as available, in units of 10⁶ bytes.
        disk_available_mb: i64 as "disk_available_mb" = UNKNOWN,
        /// Disk that is free after claims, in the same units.
        disk_free_mb: i64 as "disk_free_mb" = UNKNOWN,
        /// CPUs online.
        cpus_online: i64 as "cpus_online" = UNKNOWN,
        /// Virtual CPUs that are free after claims.
        vcpus_free: i64 as "vcpus_free" = UNKNOWN,
        /// Load average over a minute.
        load: i64 as "load" = UNKNOWN,
        /// Instances in its ledger.
        instances: i64 as "instances",
        /// Those of them that it has not confirmed.
        unconfirmed: i64 as "unconfirmed",
        /// How long it has been connected, seconds.
        connected_s: i64 as "connected_s",
        /// Whether it is the most recently used of its table.
        most_recently_used: bool as "most_recently_used",
        /// Its labels, from its reports and the configuration: the values of each key, in order.
        labels: BTreeMap<String, Vec<String>> as "labels" unless empty,
        /// Further countable resources that it has in all, by name.
        resources_total: BTreeMap<String, i64> as "resources_total" unless empty,
        /// How much of each of these is free after claims.
        resources_free: BTreeMap<String, i64> as "resources_free" unless empty,
        /// Those that it reports and that do not count, because nodes have too many different ones.
        resources_left_out: Vec<String> as "resources_left_out" unless empty,
        /// How often STARTs failed on it recently, older failures counting less: a decimal number, empty for none.
        failures: String as "failures" unless empty,
        /// Why it takes no work although it may have room, as its launcher says; empty where it does.
        fault: String as "fault" unless empty,
        /// Whether an operator keeps new work from it.
        cordoned: bool as "cordoned" unless empty,
        /// How far its drain is, for people; empty where there is none.
        drain: String as "drain" unless empty,
        /// What its launcher announces that it understands beyond the original.
        capabilities: Vec<String> as "capabilities" unless empty,
        /// How long its launcher lets instances run when it is cut off, milliseconds; `None` where it does not say.
        lease_ms: Option<i64> as "lease_ms" unless empty,
        /// How long it has been lost, seconds; `None` where it is not.
        lost_s: Option<i64> as "lost_s" unless empty,
        /// How long ago its launcher last reported, seconds; `None` where it is not connected.
        reported_s: Option<i64> as "reported_s" unless empty,
        /// Where its latest connection came from, IP address and port; empty where that is not known.
        address: String as "address" unless empty,
        /// When the certificate of its connection ends, seconds of Unix time; `None` where it is not connected.
        certificate_ends_at_s: Option<i64> as "certificate_ends_at_s" unless empty,
    }
}

record! {
    /// An instance as the scheduler sees it; figures are [`UNKNOWN`] where it does not know them.
    pub struct InstanceView {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The node that has it, or is lost with it; empty where it waits for one.
        node_uuid: String as "node_uuid",
        /// Host name of the node; empty where it is not known.
        hostname: String as "hostname",
        /// How far it is, for the scheduler.
        state: PlacementState as "state",
        /// How it is, in its launcher's words; `None` while no STATS lists it.
        reported: Option<String> as "reported" unless empty,
        /// Memory asked for, MiB.
        mem_mb: i64 as "mem_mb" = UNKNOWN,
        /// Virtual CPUs asked for.
        vcpus: i64 as "vcpus" = UNKNOWN,
        /// Local disk asked for, MiB.
        disk_mb: i64 as "disk_mb" = UNKNOWN,
        /// Memory used, MiB.
        mem_used_mb: i64 as "mem_used_mb" = UNKNOWN,
        /// Disk used, in units of 10⁶ bytes.
        disk_used_mb: i64 as "disk_used_mb" = UNKNOWN,
        /// How long the scheduler has known it, seconds.
        age_s: i64 as "age_s" = UNKNOWN,
        /// The group it is a member of; empty for none.
        group: String as "group" unless empty,
        /// Further countable resources that it asked for, by name.
        resources: BTreeMap<String, i64> as "resources" unless empty,
        /// Its priority; `None` where its START is not known.
        priority: Option<i64> as "priority" unless empty,
        /// How often it has been tried on a node so far.
        attempts: Option<u32> as "attempts" unless empty,
        /// Where it is in its life, a word of [`crate::PhaseName`]; empty where `state` says it all.
        life: String as "life" unless empty,
        /// Why it waits, for people; of one that has ended how; empty otherwise.
        waits_for: String as "waits_for" unless empty,
        /// What it waits for, in a word for programs: `memory`, the name of a resource, `zone = b`; empty where it does
        /// not wait, or is not known.
        blocked_by: String as "blocked_by" unless empty,
        /// Why it waits, by number of nodes; only where one instance is asked for.
        reasons: Vec<Reason> as "reasons" unless empty,
        /// Whether no node that is known could run it as it is.
        never: bool as "never" unless empty,
        /// Its place in the queue: 1 is next.
        position: Option<u64> as "position" unless empty,
        /// How long it may still wait or move, or until its lost node is given up, milliseconds.
        deadline_ms: Option<i64> as "deadline_ms" unless empty,
        /// The node it is to move to; empty for none.
        target_node_uuid: String as "target_node_uuid" unless empty,
        /// Of one that has ended, when: milliseconds of Unix time.
        ended_at_ms: Option<i64> as "ended_at_ms" unless empty,
        /// Of one that has ended, when it was first known of, milliseconds of Unix time, where that is remembered.
        began_at_ms: Option<i64> as "began_at_ms" unless empty,
        /// Of one that has ended, its exit status, or minus the signal that ended it; `None` = not known.
        exit_code: Option<i64> as "exit_code" unless empty,
        /// Of one whose START failed, so that it never ran: why, in the word of a StartFailure.
        failed: Option<String> as "failed" unless empty,
        /// Of one that has ended, the number of this run among those of the instance, from 1; `None` = not known.
        run: Option<i64> as "run" unless empty,
        /// Of one that has ended, whether a later run of the instance has begun: this is not what became of it.
        earlier: bool as "earlier" unless empty,
        /// What it is called beside its UUID; empty for nothing.
        name: String as "name" unless empty,
        /// Of one that has ended and has a name, the tenant whose name that was; empty where it had none, or that is not
        /// known.
        tenant: String as "tenant_uuid" unless empty,
        /// The array that it is an element of; empty for none.
        array_uuid: String as "array_uuid" unless empty,
        /// Its index there.
        array_index: Option<i64> as "array_index" unless empty,
        /// How often it was placed again because its START says so of an end.
        retries: u32 as "retries" unless empty,
        /// How often it may be at most, where its START says so and it has not ended.
        retries_max: Option<u32> as "retries_max" unless empty,
        /// Its restarts and its time, where its START says anything about these.
        progress: Option<Box<RunProgress>> as "progress" unless empty,
        /// What it runs: the first words of its command, or its image; empty where that is not known.
        program: String as "program" unless empty,
    }
}

words! {
    /// How far an instance is, for the scheduler.
    pub enum PlacementState {
        /// On no node: it waits for room.
        Waiting = "waiting",
        /// Given to a node that has not confirmed it.
        Placed = "placed",
        /// Confirmed by its node.
        Running = "running",
        /// Its node's connection ended before it confirmed it.
        InDoubt = "in_doubt",
        /// Confirmed by its node, whose connection has ended.
        Lost = "lost",
        /// On no node any more.
        Ended = "ended",
    }
}

record! {
    /// One thing that happened to an instance.
    pub struct HistoryRow {
        /// When, milliseconds of Unix time.
        at_ms: i64 as "at_ms",
        /// What, in a few words.
        what: String as "what",
        /// The node it happened on; empty for none.
        node_uuid: String as "node_uuid" unless empty,
        /// More about it, for people.
        detail: String as "detail" unless empty,
        /// Where this is its end: its exit status, or minus the signal that ended it; `None` = not known.
        exit_code: Option<i64> as "exit_code" unless empty,
        /// Where this is its end: what ended it, where that was its launcher's or the kernel's doing and no command's.
        why: EndWhy as "why" unless empty,
        /// Where this is the failure of its START: why, in the word of a StartFailure.
        failed: Option<String> as "failed" unless empty,
        /// The number of the run that this is of, from 1; `None` = of none, or not known. Some schedulers say it of ends
        /// alone.
        run: Option<i64> as "run" unless empty,
    }
}

record! {
    /// Where the output of a run that is over is kept.
    pub struct OutputRow {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Its host name; empty where it is not known.
        hostname: String as "hostname" unless empty,
        /// When the run ended, milliseconds of Unix time by that node's clock.
        ended_at_ms: i64 as "ended_at_ms",
        /// The directory on that node.
        path: String as "path",
    }
}

record! {
    /// A controller or operator as the scheduler sees it.
    pub struct ControllerView {
        /// Its id.
        uuid: String as "uuid",
        /// Its role among the controllers.
        standing: ControllerRole as "standing",
        /// How long it has been connected, seconds.
        connected_s: i64 as "connected_s",
        /// When its certificate ends, seconds of Unix time.
        certificate_ends_at_s: Option<i64> as "certificate_ends_at_s" unless empty,
    }
}

record! {
    /// How the scheduler is.
    pub struct StatusView {
        /// Its UUID.
        uuid: String as "uuid",
        /// Its version, with the commit that it was made of.
        version: String as "version" unless empty,
        /// How long it has been up, seconds.
        uptime_s: i64 as "uptime_s",
        /// Whether nodes are waited for that were connected before it was restarted.
        recovering: bool as "recovering" unless empty,
        /// How its state directory is.
        store: StoreView as "store",
        /// The certificates it uses.
        certificates: Vec<CertificateView> as "certificates" unless empty,
        /// The version of the cluster configuration in force; `None` while there is none.
        configuration: Option<ConfigurationVersion> as "configuration" unless empty,
        /// What is logged, as on the command line: `v=0, sched=2`.
        log_levels: String as "log_levels" unless empty,
        /// Whether nothing is in `conditions`; `None` from a scheduler that does not list them.
        well: Option<bool> as "well" unless empty,
        /// What is not well.
        conditions: Vec<ConditionView> as "conditions" unless empty,
        /// The schedulers behind its name; `None` where there is this one alone.
        schedulers: Option<SchedulersView> as "schedulers" unless empty,
    }
}

record! {
    /// Several schedulers behind one name, as the one that leads knows them.
    pub struct SchedulersView {
        /// The cluster's name.
        cluster: String as "cluster",
        /// Where the one that leads is, which says this.
        leader: String as "leader",
        /// Under which term it leads, as `0.1742`: generation and revision of etcd.
        term: String as "term",
        /// Where the others are that take part.
        standby: Vec<String> as "standby" unless empty,
        /// Members of etcd that it was told of.
        etcd_members: i64 as "etcd_members",
        /// How many of them answer.
        etcd_answering: i64 as "etcd_answering",
        /// Bytes of the largest of their databases.
        etcd_bytes: i64 as "etcd_bytes",
        /// Bytes of that which are in use.
        etcd_bytes_in_use: i64 as "etcd_bytes_in_use",
        /// Bytes that it may have, as the member says; what is etcd's default where it does not.
        etcd_quota: i64 as "etcd_quota",
        /// Alarms that etcd has raised, in words.
        etcd_alarms: Vec<String> as "etcd_alarms" unless empty,
    }
}

record! {
    /// One thing in the cluster that is not well.
    pub struct ConditionView {
        /// Its kind, a word for programs: `node_lost`, `certificate`.
        kind: String as "kind",
        /// How bad it is: `error`, or `warning` where nothing has failed yet; empty where it is not graded.
        severity: String as "severity" unless empty,
        /// What it is about: the UUID of a node, instance or peer, the name of a set or of a file; empty for the cluster.
        subject: String as "subject" unless empty,
        /// The host name of that node, or the name of that instance; empty where it has none.
        name: String as "name" unless empty,
        /// What is not well, for people.
        what: String as "what",
        /// For how long, seconds; `None` where that is not known.
        since_s: Option<i64> as "since_s" unless empty,
        /// What to do about it, for people.
        advice: String as "advice" unless empty,
    }
}

record! {
    /// A certificate in use.
    pub struct CertificateView {
        /// The name of its file.
        file: String as "file",
        /// When it ends, seconds of Unix time.
        ends_at_s: i64 as "ends_at_s",
    }
}

record! {
    /// How the scheduler's state directory is.
    pub struct StoreView {
        /// Whether it can be written.
        state: StoreState as "state",
        /// How long it has not been written, seconds; `None` while it is.
        since_s: Option<u64> as "since_s" unless empty,
        /// Why it is not written, in the system's words; empty while it is.
        detail: String as "detail" unless empty,
        /// What waits for it: STARTs that may fail for it, and instances that start again or move.
        waiting: i64 as "waiting",
    }
}

words! {
    /// Whether what has to survive a restart is written.
    pub enum StoreState {
        /// Writes succeed.
        Written = "written",
        /// The disk takes no writes: what was written stays, and what needs it waits or is refused.
        Refused = "refused",
        /// There is no state directory: everything is in memory only.
        Memory = "memory",
    }
}

words! {
    /// What a controller may do.
    pub enum ControllerRole {
        /// The controller whose commands are carried out.
        Master = "master",
        /// It waits to become master.
        Backup = "backup",
        /// An operator's tool: its commands count, it is never master.
        Operator = "operator",
        /// It reads and subscribes, and commands nothing.
        Viewer = "viewer",
    }
}

/// Whether an instance may have been given the name of one that ended before it, when that had ended: both are of one
/// tenant, and it began then, as far as that is known. Else the name was two tenants', or that of two at once. Of the one
/// before, its tenant and when it ended; of the one after, its tenant and when it began.
#[must_use]
pub fn is_name_handed_on(before: (&str, Option<i64>), after: (&str, Option<i64>)) -> bool {
    let has_begun_before = match (before.1, after.1) {
        (Some(ended), Some(began)) => began < ended,
        _ => false,
    };
    before.0 == after.0 && !has_begun_before
}

impl Query {
    /// Most entries that the answer may have: what the query says, or the default.
    ///
    /// # Errors
    /// `query.limit` is not within 1 to [`MAX_LIMIT`].
    pub fn checked_limit(&self) -> Result<usize, PayloadError> {
        let limit = self.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            let fault = Fault::OutOfRange {
                value: limit.into(),
                min: 1,
                max: MAX_LIMIT.into(),
            };
            return Err(PayloadError::new("query.limit", fault));
        }
        Ok(usize::try_from(limit).unwrap_or(usize::MAX))
    }
}
