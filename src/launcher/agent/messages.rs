//! The frames an agent sends, as typed payloads; bytes are made of them only where a frame leaves.

use bytes::Bytes;
use proto_frames::Kind;
use proto_frames::payload::{
    AttachVolumeFailure, CommandFailure, DeleteFailure, InstanceDeleted, InstanceStateEvent,
    InstanceStopped, KeptRuns, Payload, Ready, StartFailure, Stats, TraceReport, Workloads,
};

/// One frame to the scheduler.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// The node takes work.
    Ready(Box<Ready>),
    /// The node has no room.
    Full,
    /// The node's launcher is ending.
    Offline,
    /// The node is evacuated.
    Maintenance,
    /// What the node and its instances use.
    Stats(Box<Stats>),
    /// The ways that traced STARTs took.
    TraceReport(TraceReport),
    /// A workload cannot be started.
    StartFailure(StartFailure),
    /// An instance cannot be deleted.
    DeleteFailure(DeleteFailure),
    /// A volume cannot be attached.
    AttachVolumeFailure(AttachVolumeFailure),
    /// A SUSPEND, RESUME, UPDATE or MIGRATE was not done.
    CommandFailure(CommandFailure),
    /// A SUSPEND, RESUME or UPDATE was.
    InstanceState(InstanceStateEvent),
    /// An instance is gone for good.
    InstanceDeleted(InstanceDeleted),
    /// An instance no longer runs here.
    InstanceStopped(InstanceStopped),
    /// What is left of runs that are over.
    KeptRuns(KeptRuns),
    /// What instances are.
    Workloads(Workloads),
}

impl Message {
    /// The frame's kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Ready(_) => Kind::READY,
            Self::Full => Kind::FULL,
            Self::Offline => Kind::OFFLINE,
            Self::Maintenance => Kind::MAINTENANCE,
            Self::Stats(_) => Kind::STATS,
            Self::TraceReport(_) => Kind::TRACE_REPORT,
            Self::StartFailure(_) => Kind::START_FAILURE,
            Self::DeleteFailure(_) => Kind::DELETE_FAILURE,
            Self::AttachVolumeFailure(_) => Kind::ATTACH_VOLUME_FAILURE,
            Self::CommandFailure(_) => Kind::COMMAND_FAILURE,
            Self::InstanceState(_) => Kind::INSTANCE_STATE,
            Self::InstanceDeleted(_) => Kind::INSTANCE_DELETED,
            Self::InstanceStopped(_) => Kind::INSTANCE_STOPPED,
            Self::KeptRuns(_) => Kind::KEPT_RUNS,
            Self::Workloads(_) => Kind::WORKLOADS,
        }
    }

    /// The frame's payload.
    #[must_use]
    pub fn payload(&self) -> Bytes {
        match self {
            Self::Ready(ready) => ready.encode(),
            Self::Full | Self::Offline | Self::Maintenance => Bytes::new(),
            Self::Stats(stats) => stats.encode(),
            Self::TraceReport(report) => report.encode(),
            Self::StartFailure(failure) => failure.encode(),
            Self::DeleteFailure(failure) => failure.encode(),
            Self::AttachVolumeFailure(failure) => failure.encode(),
            Self::CommandFailure(failure) => failure.encode(),
            Self::InstanceState(event) => event.encode(),
            Self::InstanceDeleted(event) => event.encode(),
            Self::InstanceStopped(event) => event.encode(),
            Self::KeptRuns(kept) => kept.encode(),
            Self::Workloads(told) => told.encode(),
        }
    }
}
