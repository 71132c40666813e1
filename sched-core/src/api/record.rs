//! What outlives the process, as plain data: the records that the core asks to have kept ([`Change`]) and is given back
//! after a restart ([`Restored`]). How they become bytes, and where those are, is the server's `store`.
//!
//! No `Instant` is in here, because it means nothing to the next process: every time is unix time in milliseconds. A
//! field that is added later has to be optional when it is read (each struct is `#[serde(default)]`); a change of what a
//! field means is a new format of the store, with a step that converts the older records.

use std::collections::BTreeMap;

use bytes::Bytes;
use sched_model::Uuid;
use serde::{Deserialize, Serialize};

use crate::api::cause::Cause;
use crate::api::start::{Demand, RestoredStart};

/// The number of a [`Change`]. Counted up from 1, so that the default is before every change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ticket(pub u64);

/// Records put or deleted together: after a crash all of it is there or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// [`crate::Input::Committed`] with this number or a later one says that it is on disk, and all earlier ones too.
    pub ticket: Ticket,
    /// What each of these records is from now on; `None` deletes it. Carried out in order.
    pub entries: Vec<(RecordKey, Option<Record>)>,
}

/// The name of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// An instance, by its identifier as payloads write it.
    Instance(Box<str>),
    /// A node, by its UUID.
    Node(Uuid),
    /// A UUID that certificates are bound to.
    Binding(Uuid),
    /// The claims on a node with an original launcher, by the node's UUID.
    Claims(Uuid),
    /// A run of an instance that is over, by its number among all: later ones have higher numbers.
    Run(u64),
    /// An array, by its UUID.
    Array(Uuid),
    /// How far an array is, by its UUID: apart from what it is, because it changes with every element.
    ArrayProgress(Uuid),
}

/// A record, of the kind that its key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// An instance that more than an entry in a ledger is known of.
    Instance(Box<InstanceRecord>),
    /// What operators decided about a node, and what its launcher promised.
    Node(NodeRecord),
    /// That a UUID is bound.
    Binding(BindingRecord),
    /// What instances on a node with an original launcher asked for.
    Claims(ClaimsRecord),
    /// A run of an instance that is over.
    Run(Box<RunRecord>),
    /// An array.
    Array(Box<ArrayRecord>),
    /// How far an array is.
    ArrayProgress(ArrayProgressRecord),
}

/// A record that was found at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Its name.
    pub key: RecordKey,
    /// The record.
    pub record: Record,
    /// The START of an instance's or an array's record; `None` if it has no payload, or one that cannot be read any more.
    pub start: Option<Box<RestoredStart>>,
}

/// What is kept of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct InstanceRecord {
    /// The payload of its START as it came, where it may be placed again. The store keeps these bytes beside the rest,
    /// as they are.
    #[serde(skip)]
    pub payload: Option<Bytes>,
    /// The controller or operator that sent the START; nil for an instance that was adopted.
    pub sender: Uuid,
    /// 0 (least) to 100.
    pub priority: u8,
    /// What it does, or is about to.
    pub life: Life,
    /// The node that has it, or was chosen for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Uuid>,
    /// The node it is being moved to, or, while it is on none, the one it waits for alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Uuid>,
    /// When its START came, in unix milliseconds.
    pub arrived_ms: u64,
    /// When it gives up waiting, in unix milliseconds; `None` = it does not wait, or for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Nodes it was given to so far, failed ones included.
    pub attempts: u32,
    /// Its place among those of the same priority that wait: lower is earlier.
    pub order: u64,
    /// The attempts that failed, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Attempt>,
    /// What became of it so far, oldest first; begins with its arrival.
    pub history: Vec<Event>,
    /// Whether it was suspended by somebody's command, rather than by the scheduler to make room: then only a command
    /// resumes it.
    pub by_operator: bool,
    /// What it asks for since an UPDATE; `None` = what its START says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updated: Option<Demand>,
    /// How much of its time limit it has used up on nodes that it has left, in milliseconds. Records of earlier versions
    /// lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_used_ms: Option<u64>,
    /// How often it was placed again because its START says so of an end. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// What must have ended before it is placed, and has not. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<AfterRecord>,
    /// Whether a node ever had it running: from then on it is not given up for want of room.
    pub has_run: bool,
    /// How many nodes it may be tried on for one START.
    pub max_attempts: u32,
    /// The lease of its node, in milliseconds: the launcher there stops it within that time when it is cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// How many runs of it have begun. Records of earlier versions lack it, and the two below.
    #[serde(skip_serializing_if = "is_zero")]
    pub runs: u32,
    /// The node of its latest run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_on: Option<Uuid>,
    /// Nodes of earlier runs with their numbers, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_runs: Vec<(Uuid, u32)>,
    /// Whether it was deleted while its node was lost.
    pub is_deleted: bool,
    /// Whether its node was told to stop it and has not: if it ends there after all, it is placed again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub told_to_stop: bool,
    /// Whether it may be moved to another node.
    pub relocate: bool,
    /// Whether it is started again elsewhere when its node is lost for longer than its lease; otherwise that is only
    /// reported.
    pub restart_on_loss: bool,
    /// How long it may run, in milliseconds, where the policy says that and not its START.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit_ms: Option<u64>,
    /// The batch it waits for to be complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<Box<str>>,
    /// The operator whose batch that is; `None` = the controllers'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_operator: Option<Uuid>,
    /// Whether an operator sent its START: what those take up has a limit of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_operators: bool,
    /// The array that it is an element of: its START is made from that of the array, and is not kept here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<Uuid>,
    /// Its index there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// What is kept of an array, written once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrayRecord {
    /// The payload of the START of its elements, and behind it their values, one a line. The store keeps these bytes beside
    /// the rest, as they are.
    #[serde(skip)]
    pub payload: Bytes,
    /// How many of these bytes are the START.
    pub start_bytes: u64,
    /// The controller or operator that sent it.
    pub sender: Uuid,
    /// The indexes of its elements.
    pub indexes: Box<str>,
    /// How many of them may hold a claim at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
    /// 0 (least) to 100.
    pub priority: u8,
    /// When it came, in unix milliseconds.
    pub arrived_ms: u64,
    /// Whether an operator sent it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_operators: bool,
}

/// How far an array is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ArrayProgressRecord {
    /// The states of its elements in the order of their indexes: how many in a row, and a letter.
    pub states: Box<str>,
    /// The place in the queue of its first element.
    pub order: u64,
    /// Until when elements may wait to begin, in unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// When the last of them ended, in unix milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
}

/// An instance or an array that must have ended before another is placed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AfterRecord {
    /// Which, as payloads write it.
    pub instance: Box<str>,
    /// Whether that is an array.
    #[serde(skip_serializing_if = "is_zero")]
    pub is_array: bool,
    /// As the START of the other names it; empty where that is the same.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub named: Box<str>,
    /// How, in the word of the START; empty for `ok`.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub end: Box<str>,
}

/// What an instance does, or is about to, when its record was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// Waits for room.
    #[default]
    Waiting,
    /// A node was chosen; that the START left, or arrived, is not known.
    Placing,
    /// Runs on its node.
    Running,
    /// Its node was told to suspend it.
    Suspending,
    /// Suspended: its memory and disk are held on its node.
    Suspended,
    /// Its node was told to resume it.
    Resuming,
    /// Its node was told to end it.
    Stopping,
    /// On its way from its node to the target.
    Migrating,
}

/// An attempt to start an instance that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// The node that was to run it.
    pub node: Uuid,
    /// Why not, in the protocol's word.
    pub reason: Box<str>,
    /// More, for people; may be empty.
    pub detail: Box<str>,
}

/// Something that became of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When, in unix milliseconds.
    pub at_ms: u64,
    /// What, in a word.
    pub what: Box<str>,
    /// The node it has to do with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Uuid>,
    /// The number of the run that it is of; 0 where it is of none, or that is not known, as in records of earlier
    /// versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub run: u32,
    /// More, for people; may be empty. The server words it from the cause before it is kept.
    pub detail: Box<str>,
    /// Why; only on the way to the server.
    #[serde(skip)]
    pub cause: Cause,
}

/// What is kept of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeRecord {
    /// Whether it gets no new work.
    pub cordoned: bool,
    /// Since when, in unix milliseconds; 0 while it is not cordoned.
    pub cordoned_since_ms: u64,
    /// The lease its launcher announced, in milliseconds: cut off for longer, it ends the instances under it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// The drain under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain: Option<DrainRecord>,
    /// Which ends of instances on it are dealt with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends: Option<EndsRecord>,
}

/// Ends of instances on a node that are dealt with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct EndsRecord {
    /// Whose numbers they have.
    pub incarnation: Uuid,
    /// The latest number, and so all before it.
    pub seq: u64,
    /// A number up to which the node has said that it had none left to tell, whomever it told them. Records of earlier
    /// versions lack it.
    #[serde(skip_serializing_if = "is_zero")]
    pub told: u64,
    /// Whether the node is no longer a known one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
    /// Ends on it before this moment may be missing, in unix milliseconds; 0 if none are.
    #[serde(skip_serializing_if = "is_zero")]
    pub since_ms: u64,
}

/// What is kept of a UUID that was claimed with a certificate bound to it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BindingRecord {
    /// When it was first claimed so, in unix milliseconds.
    pub since_ms: u64,
}

/// What is kept of the claims on a node with an original launcher, which does not say what its instances asked for; and
/// of the plain instances on any node that is lost.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimsRecord {
    /// One for each instance.
    pub claims: Vec<ClaimRecord>,
}

/// What one instance asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimRecord {
    /// The instance, as payloads write it.
    pub instance: Box<str>,
    /// Memory, in MiB.
    pub mem_mib: i64,
    /// Virtual CPUs.
    pub vcpus: i64,
    /// Disk, in MiB.
    pub disk_mib: i64,
    /// Custom resources, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<Box<str>, i64>,
    /// Id of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Box<str>>,
    /// Whether its node is lost with it, and it is listed as that. Records of earlier versions lack it, and what follows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_lost: bool,
    /// Whether what it asked for is not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unknown: bool,
    /// A DELETE of it that was lost with its node, and what that was to leave there. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_delete: Option<LostDelete>,
    /// Since when its node had it, in unix milliseconds; 0 where that is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub since_ms: u64,
    /// What it is called; empty for nothing.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// Its tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Box<str>>,
    /// What it runs; empty where that is not known.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub program: Box<str>,
}

/// A DELETE that was lost with its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostDelete {
    /// It was to leave nothing.
    Delete,
    /// It was to leave what a restart needs.
    Stop,
}

/// What is kept of a run of an instance that is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// The instance, as payloads write it.
    pub instance: Box<str>,
    /// When it was gone, in unix milliseconds.
    pub at_ms: u64,
    /// The node that said how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Uuid>,
    /// The host name of that node; may be empty.
    pub hostname: Box<str>,
    /// What the instance was called; empty for nothing. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub name: Box<str>,
    /// The tenant whose name that was, if it had one. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Box<str>>,
    /// What it ran; empty where that is not known. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub program: Box<str>,
    /// Why its START failed, in the protocol's word, if it never ran. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Box<str>>,
    /// Whether no controller was sent that failure yet. Records of earlier versions lack it, and the next.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_unsent: bool,
    /// Whether the START was one of a restart, which such a failure repeats.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_restart: bool,
    /// Its exit status, or minus the signal that ended it; `None` = not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
    /// The number of its end on that node, where its launcher numbers them. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<u64>,
    /// Where it was an element of an array, its index; its UUID says which array. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// Its number among the runs of the instance; 0 where that is not known, as in records of earlier versions.
    #[serde(skip_serializing_if = "is_zero")]
    pub run: u32,
    /// When it ended as its node reported, in unix milliseconds; `None` where the node has not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The node that had it, where no node has said how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_on: Option<Uuid>,
    /// Nodes of earlier runs of the instance with their numbers, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub earlier_runs: Vec<(Uuid, u32)>,
    /// How often the instance was placed again because its START says so of an end. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// Whether a command has ended it. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_command: bool,
    /// What its launcher knows of it beyond that. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub facts: Option<FactsRecord>,
    /// Who asked for its end, where that was by command and is known: role and subject of the certificate. Records of
    /// earlier versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Box<str>>,
    /// What became of it, oldest first.
    pub history: Vec<Event>,
}

/// What a launcher has said of a run that is over: [`sched_model::EndFacts`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FactsRecord {
    /// How long it ran, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// What ended it, in the protocol's word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<str>>,
    /// The most memory that it had at a time, in KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_kib: Option<u64>,
    /// Processor time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Bytes that it wrote to its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// How often its launcher started it again.
    #[serde(skip_serializing_if = "is_zero")]
    pub restarts: u32,
    /// The labels that its START gave it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A drain under way.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainRecord {
    /// When it ends incomplete, in unix milliseconds; `None` = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Instances moved at once.
    pub parallel: u32,
    /// Instances there were when it began.
    pub total: u32,
    /// Instances that have left the node so far.
    pub moved: u32,
    /// Those of them that went nowhere else. Records of earlier versions lack it.
    #[serde(skip_serializing_if = "is_zero")]
    pub ended: u32,
}

/// Whether a count need not be written.
fn is_zero<T: Default + PartialEq>(count: &T) -> bool {
    *count == T::default()
}
