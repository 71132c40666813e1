//! Payload types: the YAML documents that frames carry.
//!
//! Each is a [`Payload`], with `decode` and `encode`. Those that the scheduler's core knows too are defined in
//! `sched_model`; the modules here are for the rest. Reading is as lenient as the original's peers are (Go's yaml.v2):
//! unknown keys are ignored, null is a zero value, a string is the text as written, unknown reasons survive. Every
//! payload passes [`guard`] before it is parsed. What cannot be read is a [`PayloadError`], which names the key and the
//! place.
//!
//! A payload that is forwarded is forwarded as the bytes that came; `encode` is for what is said here first.

pub mod attach_volume;
pub mod concentrator;
pub mod configuration_part;
pub mod configure;
pub mod connection_aborted;
pub mod guard;
pub mod image_chunk;
pub mod instance_end;
pub mod kept_runs;
pub mod named;
pub mod node_capacity;
pub mod output_chunk;
pub mod overrides;
pub mod peek;
pub mod public_ip;
pub mod ratio;
pub mod ready;
pub mod requested_resources;
pub mod similar;
pub mod start;
pub mod start_array;
pub mod stats;
pub mod tenant;
pub mod trace_report;
pub mod watch;
pub mod workloads;

mod document;
mod emit;
mod locate;
mod node;
mod plain;
mod read;
mod scalar;
mod seen;
mod trailing;
mod value;
mod vocabulary;

use sched_model::error;

pub use attach_volume::AttachVolume;
pub use concentrator::{CnciNet, ConcentratorInstanceAdded, RefreshCnci};
pub use configuration_part::{ConfigurationAnswer, ConfigurationWrite};
pub use configure::{
    Configuration, ConfigureController, ConfigureLauncher, ConfigureScheduler, ConfigureStorage,
};
pub use connection_aborted::ConnectionAborted;
pub use document::Payload;
pub use image_chunk::{ImageChunk, ImageWrite};
pub use instance_end::{EndKind, InstanceEnd};
pub use kept_runs::{KeptRun, KeptRuns};
pub use locate::position_of;
pub use node_capacity::{CountedAs, NodeCapacity};
pub use output_chunk::OutputChunk;
pub use overrides::Overrides;
pub use public_ip::{AssignPublicIp, PublicIpAssigned, PublicIpUnassigned, ReleasePublicIp};
pub use ratio::Ratio;
pub use ready::{Network, Ready};
pub use requested_resources::RequestedResource;
pub use similar::similar;
pub use start::{Networking, Requirements, Start, Storage};
pub use start_array::ArrayOrder;
pub use stats::{InstanceStat, InstanceState, Requested, Stats};
pub use tenant::{TenantAdded, TenantRemoved};
pub use trace_report::{TraceReport, TracedFrame, TracedNode};
pub use trailing::{Chunk, Part};
pub use watch::Watch;
pub use workloads::{Workload, Workloads};

pub use sched_model::{
    AffectedInstance, After, AfterEnd, ArrayState, ArrayView, AssignPublicIpFailure,
    AttachVolumeFailure, AttachVolumeFailureReason, AttemptFailed, Backoff, Batch, CertificateView,
    CommandFailure, CommandFailureReason, CommandRefused, ConditionView, ConfigurationFailure,
    ConfigurationPart, ConfigurationSource, ConfigurationVersion, ControllerRole, ControllerStatus,
    ControllerView, DecidedPlacement, Delete, DeleteFailure, DeleteFailureReason, DeleteImage,
    DeleteOutput, Digest, DrainProgress, DrainState, EndFacts, EndFilter, EndOutcome, EndWhy,
    EndedRun, EndsRecorded, Evacuate, EvacuateMode, Expression, ExpressionError, ExpressionProblem,
    Fault, Group, GroupPolicy, HistoryRow, ImageFailure, ImageList, ImagePart, ImageRow,
    InstanceDeleted, InstancePlaced, InstanceQueued, InstanceStateEvent, InstanceStopped,
    InstanceView, LeadershipTransfer, LeaseRenewed, LifecycleCommand, ListImages, MAX_DEADLINE,
    Migrate, Near, NodeConnected, NodeDisconnected, NodePressure, NodeType, NodeView, Number,
    OnNodeLoss, OutputFailure, OutputPart, OutputRow, OutputStream, PayloadError, PayloadErrorKind,
    PhaseName, PlacementDecision, PlacementState, Position, PressureState, Query, QueryKind,
    QueryResult, ReadConfiguration, ReadImage, ReadOutput, Reason, ReasonKind, RefusalReason,
    Reload, ReloadState, Reloaded, ReportReceived, RestartPolicy, RestartWhen, Restore,
    RestoreMode, Resume, RetryOn, RetryPolicy, RunProgress, SchedulersView, Scheduling, Snapshot,
    Span, StartArray, StartFailure, StartFailureReason, StatusView, Stop, StopSignal, StoreState,
    StoreView, Suspend, Test, Topic, TransferLeadership, TransferState, UNKNOWN,
    UnassignPublicIpFailure, UnmovableInstance, Update, Word, WriteConfiguration, WriteImage,
    array, configuration, cut, drain_progress, evacuate, expression, identifier, image, output,
    query, scheduling, span,
};
