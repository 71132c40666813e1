//! The vocabulary that the scheduler's core and its wire share, defined once. No IO, no format, no policy.
//!
//! - [`value`] and [`record!`], [`words!`]: how a type says which keys it has, for any format to read and write.
//! - [`PayloadError`]: what is wrong with a value, and at which key.
//! - [`Scheduling`], [`Expression`]: what a START asks for. [`Reason`], [`StartFailureReason`]: why it gets nothing.
//! - [`PhaseName`], [`DrainState`]: how far an instance or a drain is.
//! - [`NodeView`], [`InstanceView`], [`HistoryRow`], [`ControllerView`]: how the scheduler shows what it knows, in answer to
//!   a [`Query`] or as a [`Snapshot`].
//! - What is ordered of the scheduler or its launchers ([`Delete`], [`Migrate`] …) and what becomes of it
//!   ([`StartFailure`], [`InstanceStateEvent`] …), one file each.
//!
//! `proto-frames` reads and writes these types and re-exports them; `sched-core` decides with them. Neither knows the
//! other.

#![forbid(unsafe_code)]

pub mod array;
pub mod attach_volume_failure;
pub mod command_failure;
pub mod configuration;
pub mod controller_status;
pub mod cut;
pub mod deadline;
pub mod decision;
pub mod delete;
pub mod drain_progress;
mod end_facts;
mod ended_run;
pub mod ends_recorded;
pub mod error;
pub mod evacuate;
pub mod expression;
pub mod identifier;
pub mod image;
pub mod instance_event;
mod leadership;
pub mod lease_renewed;
pub mod migrate;
pub mod node_event;
mod node_pressure;
pub mod output;
pub mod public_ip_failure;
pub mod query;
pub mod reason;
mod reload;
pub mod report_received;
pub mod role;
mod run_progress;
pub mod scheduling;
mod set_name;
pub mod snapshot;
pub mod span;
pub mod start_failure;
pub mod suspend;
pub mod topic;
pub mod update;
pub mod value;

mod declare;

pub use array::{ArrayState, ArrayView, Indexes, StartArray};
pub use attach_volume_failure::{AttachVolumeFailure, AttachVolumeFailureReason};
pub use command_failure::{CommandFailure, CommandFailureReason, LifecycleCommand};
pub use configuration::{
    AffectedInstance, ConfigurationFailure, ConfigurationPart, ConfigurationSource,
    ConfigurationVersion, ReadConfiguration, WriteConfiguration,
};
pub use controller_status::{CommandRefused, ControllerStatus, RefusalReason};
pub use deadline::MAX_DEADLINE;
pub use decision::{DecidedPlacement, PlacementDecision};
pub use delete::{Delete, DeleteFailure, DeleteFailureReason};
pub use drain_progress::{DrainProgress, DrainState, UnmovableInstance};
pub use end_facts::{EndFacts, EndWhy};
pub use ended_run::{EndFilter, EndOutcome, EndedRun};
pub use ends_recorded::EndsRecorded;
pub use error::{Fault, PayloadError, PayloadErrorKind, Position};
pub use evacuate::{Evacuate, EvacuateMode, Restore, RestoreMode};
pub use expression::{Expression, ExpressionError, ExpressionProblem, Number, Test, Word};
pub use image::{
    DeleteImage, Digest, ImageFailure, ImageList, ImagePart, ImageRow, ListImages, ReadImage,
    WriteImage,
};
pub use instance_event::{
    InstanceDeleted, InstancePlaced, InstanceQueued, InstanceStateEvent, InstanceStopped, PhaseName,
};
pub use leadership::{LeadershipTransfer, TransferLeadership, TransferState};
pub use lease_renewed::LeaseRenewed;
pub use migrate::Migrate;
pub use node_event::{NodeConnected, NodeDisconnected, NodeType};
pub use node_pressure::{NodePressure, PressureState};
pub use output::{DeleteOutput, OutputFailure, OutputPart, OutputStream, ReadOutput};
pub use public_ip_failure::{AssignPublicIpFailure, UnassignPublicIpFailure};
pub use query::{
    CertificateView, ConditionView, ControllerRole, ControllerView, HistoryRow, InstanceView,
    NodeView, OutputRow, PlacementState, Query, QueryKind, QueryResult, SchedulersView, StatusView,
    StoreState, StoreView, UNKNOWN,
};
pub use reason::{Reason, ReasonKind};
pub use reload::{Reload, ReloadState, Reloaded};
pub use report_received::ReportReceived;
pub use role::Role;
pub use run_progress::{CRASH_LOOP, RunProgress};
pub use scheduling::after::{After, AfterEnd};
pub use scheduling::limits::{Backoff, RestartPolicy, RestartWhen, Stop, StopSignal};
pub use scheduling::retry::{RetryOn, RetryPolicy};
pub use scheduling::{Batch, Group, GroupPolicy, Near, OnNodeLoss, Scheduling};
pub use set_name::SetMember;
pub use snapshot::Snapshot;
pub use span::Span;
pub use start_failure::{AttemptFailed, StartFailure, StartFailureReason};
pub use suspend::{Resume, Suspend};
pub use topic::Topic;
pub use update::Update;
pub use uuid::Uuid;
