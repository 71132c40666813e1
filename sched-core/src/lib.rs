//! The scheduler as a pure state machine: no tokio, clock, files, randomness or hash order. It takes decoded values
//! and opaque payload bytes; it never parses bytes and never sees a socket.
//!
//! [`Scheduler::handle`] takes in each [`Input`]; [`Scheduler::poll_action`] hands out each [`Action`];
//! [`Scheduler::poll_timeout`] says when time itself is an input. The same inputs and times give the same actions.

mod action;
mod admission;
mod advice;
mod answers;
mod batches;
mod bindings;
mod care;
// Seen from outside, because a benchmark is a program of its own, but nothing that anybody else should use.
#[cfg(feature = "test-support")]
pub mod bench_support;
mod choose;
mod columns;
mod config;
mod connections;
mod cordons;
mod decide;
mod disk;
mod drain;
mod dues;
mod durable;
mod endings;
mod ends;
mod entitlement;
mod evictions;
mod explain;
mod facts;
mod failing;
mod failures;
mod filters;
mod footprint;
mod forwarding;
mod full;
mod groups;
mod ids;
mod index;
mod input;
mod instances;
mod invariants;
mod inventory;
mod labels;
mod ledger;
mod losses;
mod migrate;
mod node;
mod outcomes;
mod owner;
mod permissions;
mod placement;
mod policy;
mod preempt;
mod queries;
mod queue;
mod record;
mod records;
mod remembered;
mod reports;
mod requests;
mod reservations;
mod resources;
mod rules;
mod scheduler;
mod session;
mod settle;
mod slot_set;
mod snapshot;
mod suspend;
mod table;
mod text;
mod timers;
mod traits;
mod tried;
mod update;
mod view;
mod vm_types;
mod waiting;
mod weighers;
mod woken;
mod workloads;

pub use action::{
    Action, DisconnectReason, Message, Notice, Order, PlacedStart, RefusedConnect, StartChanges,
    StatsWithout, TargetedCommand,
};
pub use answers::{MAX_AWAITED, MAX_AWAITED_BY_OPERATOR};
pub use batches::{
    BATCH_TIME, MAX_BATCH_BYTES, MAX_BATCHES, MAX_OPERATOR_BATCH_BYTES, MAX_OPERATOR_BATCHES,
};
pub use columns::{MAX_RESOURCE_NAMES, MAX_RESOURCES_PER_NODE};
pub use config::{
    Accounting, CPU_RATIO, Config, IN_DOUBT_TIME, MAX_BINDINGS, MAX_INSTANCES_PER_NODE,
    MAX_SETTLING, MAX_SETTLING_BYTES, MISSED_STATS, SETTLE_TIME,
};
pub use disk::{
    DISK_PATIENCE, DiskSilence, DiskState, MAX_HELD_FOR_DISK, MAX_HELD_FOR_DISK_BYTES,
    MAX_UNWRITTEN,
};
pub use entitlement::MAX_QUESTIONS;
pub use footprint::Footprint;
pub use full::{MAX_REFUSALS, MAX_TRIED_BYTES, MAX_TRIES};
pub use ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
pub use input::{
    Available, Backlog, Capabilities, ClusterConfiguration, ConfigurationFlags, EndHow, EndReport,
    EndsReport, FailedStart, Fault, Hello, Input, InstanceReport, InstanceState, Malformed,
    Meaning, NewConfiguration, NodeExtras, NodeReport, StartRequest, StatsReport, Target,
};
pub use instances::{
    MAX_HISTORY_BYTES, MAX_MANAGED_BYTES, MAX_MANAGED_BYTES_OF_OPERATORS, MAX_PAST_BYTES,
};
pub use node::{MAX_PARTS, NodeStatus};
pub use outcomes::{MAX_REPLAY, MAX_REPLAY_BYTES, REPLAY_TIME};
// Seen from outside, because the test of the documentation is a program of its own, but nothing that anybody else should use.
#[doc(hidden)]
pub use permissions::{needs_master, permitted};
pub use policy::RuleError;
pub use queries::{Heartbeat, HeartbeatNode};
pub use record::{
    Attempt, BindingRecord, Change, ClaimRecord, ClaimsRecord, Demand, DrainRecord, EndsRecord,
    Event, InstanceRecord, Life, NodeRecord, Record, RecordKey, Restored, Ticket,
};
pub use resources::Resources;
pub use rules::{
    Aggregate, CANDIDATES, CapacityRule, FilterRule, NodeName, NodeRule, PolicyRules, Rules,
    TenantId, WeigherRule,
};
pub use scheduler::{Counters, Scheduler};
pub use text::{MAX_TEXT_LEN, ShortText};
pub use vm_types::{VmType, VmTypes};
