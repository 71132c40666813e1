//! The scheduler as a pure state machine: no tokio, clock, files, randomness or hash order. It takes decoded values
//! and opaque payload bytes; it never parses bytes and never sees a socket.
//!
//! [`Scheduler::handle`] takes in each [`Input`]; [`Scheduler::poll_action`] hands out each [`Action`];
//! [`Scheduler::poll_timeout`] says when time itself is an input. The same inputs and times give the same actions.

mod api;
mod arrays;
#[cfg(feature = "test-support")]
pub mod bench_support;
mod cluster;
mod dispatch;
mod effects;
#[cfg(any(test, feature = "test-support"))]
mod footprint;
mod instance;
mod invariants;
mod journal;
mod maps;
mod peers;
mod pending;
mod placement;
mod query;
mod queue;
mod recovery;
mod scheduler;
mod sight;
#[cfg(test)]
mod simulated;
mod slots;
mod sync;
mod timers;
mod tree;
mod workflow;

pub use api::action::{
    Action, DisconnectReason, LauncherCommand, Message, Notice, RefusedConnect, StatsWithout,
    TargetedCommand,
};
pub use api::affected::{Affected, AffectedPlacement};
pub use api::array::{ArrayStart, ElementId, ElementStart, Values};
pub use api::cause::{Cause, OtherArrayEnd, OtherEnd};
pub use api::command::{ArrayCommand, Command, ConfigurationCommand, ImageCommand, Target};
pub use api::condition::{CertificateHolder, Condition, EndingCertificate, Unwell};
pub use api::config::{
    About, Accounting, CPU_RATIO, Config, IN_DOUBT_TIME, MAX_BINDINGS, MAX_INSTANCES_PER_NODE,
    MAX_RECOVERING, MAX_RECOVERING_BYTES, MEASURED_WINDOW, MISSED_STATS, RECOVERY_WINDOW, Reread,
};
pub use api::content::Content;
pub use api::declined::{Objection, Refusal};
pub use api::disk::{DISK_PATIENCE, DiskSilence, DiskState};
pub use api::explained::{
    DrainCauses, DrainEnd, DrainSummary, DrainWaits, Explained, NamedInstance, NamedInstances,
    QueryProblem, RowCauses,
};
pub use api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
pub use api::input::{
    Available, Backlog, Capabilities, ClusterConfiguration, ConfigurationFlags, Departure, Dialect,
    EndHow, EndReport, EndsReport, FailedStart, Hello, Input, InstanceReport, InstanceState,
    NewConfiguration, NodeExtras, NodeReport, StatsReport, Unknown,
};
pub use api::known_node::KnownNode;
pub use api::malformed::{Fault, Malformed};
pub use api::no_fit::{Amount, Countable, Lack, Never, NoFit, Shortage, Unsaid};
pub use api::parcel::{Parcel, Sealed, Tag};
pub use api::refused::{RefusalCause, Refused};
pub use api::report::{KeptRun, KeptRuns, Report, Workload};
pub use api::sent::{CommandName, ReportName, Sent};
pub use api::unread::{NamedNode, Unread};
pub use arrays::{MAX_ARRAY_BYTES, MAX_ARRAYS, MAX_OPERATOR_ARRAY_BYTES, MAX_OPERATOR_ARRAYS};
pub use cluster::absent::{MAX_ABSENT_NODES, MAX_HOSTNAME_LEN};
pub use cluster::columns::{MAX_RESOURCE_NAMES, MAX_RESOURCES_PER_NODE};
pub use cluster::node::{MAX_PARTS, MAX_VOLUMES_PER_NODE, NodeStatus};
pub use cluster::processes::{FREE_REPLACEMENTS, NEWCOMER_TIME, REPLACED_WITHIN};
pub use cluster::questions::MAX_QUESTIONS;
pub use cluster::tries::{MAX_REFUSALS, MAX_TRIED_BYTES, MAX_TRIES};
#[cfg(any(test, feature = "test-support"))]
pub use footprint::Footprint;
#[doc(hidden)]
#[cfg(any(test, feature = "test-support"))]
pub use instance::samples::{Row, transitions};
pub use instance::{
    MAX_HISTORY_BYTES, MAX_MANAGED_BYTES, MAX_MANAGED_BYTES_OF_OPERATORS, MAX_NAMED, MAX_OUTPUTS,
    MAX_PAST_BYTES,
};
pub use journal::disk::MAX_UNWRITTEN;
pub use peers::answers::{MAX_AWAITED, MAX_AWAITED_BY_OPERATOR};
pub use peers::outcomes::{MAX_REPLAY, MAX_REPLAY_BYTES, REPLAY_TIME};
pub use pending::batches::{
    BATCH_TIME, MAX_BATCH_BYTES, MAX_BATCHES, MAX_OPERATOR_BATCH_BYTES, MAX_OPERATOR_BATCHES,
};
pub use pending::{MAX_HELD_FOR_DISK, MAX_HELD_FOR_DISK_BYTES};
// Seen from outside, because the test of the documentation is a program of its own, but nothing that anybody else should use.
pub use api::phase::{IllegalTransition, Phase};
pub use api::pressure::{PressureNews, PressurePolicy};
pub use api::provider::{Claimed, Constraint, Consumed, Having, Stock};
pub use api::record::{
    AfterRecord, ArrayProgressRecord, ArrayRecord, Attempt, BindingRecord, Change, ClaimRecord,
    ClaimsRecord, DrainRecord, EndsRecord, Event, FactsRecord, InstanceRecord, Life, NodeRecord,
    Record, RecordKey, Restored, RunRecord, Ticket,
};
pub use api::resources::Resources;
pub use api::rules::{
    Aggregate, CANDIDATES, CapacityRule, FilterRule, NodeName, NodeRule, OfferRules, PolicyRules,
    RuleError, Rules, StartDefaults, TenantId, WeigherRule,
};
pub use api::start::{Demand, PlacedStart, RestoredStart, StartChanges, StartRequest};
pub use api::tally::{Reasons, TIME_BOUNDS_MS, Times};
pub use api::text::{MAX_TEXT_LEN, ShortText};
pub use api::vm_types::{VmType, VmTypes};
#[doc(hidden)]
pub use peers::permissions::{needs_master, permitted};
pub use placement::trial::Trial;
pub use query::{
    ClaimsCursor, Glance, Heartbeat, HeartbeatNode, NodeCount, Provider, ProvidersCursor,
    QueueTotals, QueueTotalsCursor, ResourceTotal, Totals, TotalsCursor, about,
    ending_certificates, named_certificates, runs_before, runs_forgotten,
};
pub use scheduler::{Counters, Scheduler};
