//! Payload types: the YAML documents that frames carry.
//!
//! Each is a [`Payload`], with `decode` and `encode`. Reading is as lenient as the original's peers are (Go's yaml.v2): unknown keys
//! are ignored, null is a zero value, a string is the text as written, reasons nobody here knows survive. Every payload
//! passes [`guard`] before it is parsed. What cannot be read is a [`PayloadError`], which names the key and the place.
//!
//! A payload that is forwarded is forwarded as the bytes that came; `encode` is for what is said here first.

pub mod attach_volume;
pub mod command_failure;
pub mod concentrator;
pub mod configure;
pub mod decision;
pub mod delete;
pub mod drain_progress;
pub mod evacuate;
pub mod guard;
pub mod instance_end;
pub mod instance_event;
pub mod lease_renewed;
pub mod migrate;
pub mod node_capacity;
pub mod node_event;
pub mod peek;
pub mod public_ip;
pub mod query;
pub mod ratio;
pub mod ready;
pub mod reason;
pub mod snapshot;
pub mod standing;
pub mod start;
pub mod start_failure;
pub mod stats;
pub mod suspend;
pub mod tenant;
pub mod trace_report;
pub mod update;
pub mod watch;

pub use sched_model::{
    Batch, Expression, ExpressionError, ExpressionProblem, Fault, Group, GroupPolicy, MAX_DEADLINE,
    Near, Number, OnNodeLoss, PayloadError, PayloadErrorKind, Position, Scheduling, Span, Test,
    Word, cut, deadline, error, expression, scheduling, span,
};

mod collection;
mod document;
mod emit;
mod locate;
mod read;
mod scalar;
mod value;

pub use attach_volume::{AttachVolume, AttachVolumeFailure, AttachVolumeFailureReason};
pub use command_failure::{CommandFailure, CommandFailureReason, LifeCommand};
pub use concentrator::{CnciNet, ConcentratorInstanceAdded, RefreshCnci};
pub use configure::{
    Configuration, ConfigureController, ConfigureLauncher, ConfigureScheduler, ConfigureStorage,
};
pub use decision::{DecidedPlacement, PlacementDecision};
pub use delete::{Delete, DeleteFailure, DeleteFailureReason};
pub use document::Payload;
pub use drain_progress::{DrainProgress, DrainState, Misfit};
pub use evacuate::{Evacuate, EvacuateMode, Restore, RestoreMode};
pub use instance_end::{EndKind, EndsRecorded, InstanceEnd};
pub use instance_event::{
    InstanceDeleted, InstancePlaced, InstanceQueued, InstanceStateEvent, InstanceStopped, LifeState,
};
pub use lease_renewed::LeaseRenewed;
pub use migrate::Migrate;
pub use node_capacity::{CountedAs, NodeCapacity};
pub use node_event::{NodeConnected, NodeDisconnected, NodeType};
pub use public_ip::{
    AssignPublicIp, AssignPublicIpFailure, PublicIpAssigned, PublicIpUnassigned, ReleasePublicIp,
    UnassignPublicIpFailure,
};
pub use query::{
    ControllerView, HistoryRow, InstanceView, NodeView, PlacementState, Query, QueryKind,
    QueryResult, Standing, StoreState, StoreView,
};
pub use ratio::Ratio;
pub use ready::{Network, Ready, UNKNOWN};
pub use reason::{Reason, ReasonKind};
pub use snapshot::Snapshot;
pub use standing::{CommandRefused, ControllerStatus, RefusalReason};
pub use start::{Networking, Requirements, Start, Storage};
pub use start_failure::{AttemptFailed, StartFailure, StartFailureReason};
pub use stats::{InstanceStat, InstanceState, Requested, Stats};
pub use suspend::{Resume, Suspend};
pub use tenant::{TenantAdded, TenantRemoved};
pub use trace_report::{TraceReport, TracedFrame, TracedNode};
pub use update::Update;
pub use watch::{Topic, Watch};
