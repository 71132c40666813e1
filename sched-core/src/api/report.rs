//! What launchers and concentrators' agents report.

use std::borrow::Cow;
use std::time::Duration;

use sched_model::{CommandFailure, EndFacts, InstanceStateEvent, StartFailureReason};

use crate::api::ids::InstanceId;
use crate::api::input::{NodeReport, StatsReport};
use crate::api::rules::TenantId;
use crate::api::sent::ReportName;
use crate::api::text::ShortText;

/// A report, with the few of its values that matter here.
#[derive(Debug)]
pub enum Report {
    /// READY.
    Ready(Box<NodeReport>),
    /// FULL.
    Full,
    /// OFFLINE.
    Offline,
    /// MAINTENANCE.
    Maintenance,
    /// STATS.
    Stats(Box<StatsReport>),
    /// InstanceDeleted.
    InstanceDeleted(InstanceId),
    /// InstanceStopped.
    InstanceStopped(InstanceId),
    /// InstanceStopped of a launcher that sent its processes no signal: it ended by itself, with an exit status.
    InstanceExited(InstanceId),
    /// InstanceStopped of a launcher that stopped it because it was cut off for longer than its lease.
    InstanceCutOff(InstanceId),
    /// InstanceDeleted, InstanceStopped or StartFailure from a launcher that numbers ends.
    Numbered {
        /// The number of the end.
        seq: u64,
        /// The exit status, or minus the signal that ended it; `None` = not known.
        exit_code: Option<i64>,
        /// What else is known of the run, if anything.
        facts: Option<Box<EndFacts>>,
        /// What it says without that.
        told: Box<Report>,
    },
    /// StartFailure.
    StartFailed {
        /// The node it names; may be empty.
        node: Box<str>,
        /// The instance; `None` if the payload names none.
        instance: Option<InstanceId>,
        /// The reason code.
        reason: StartFailureReason,
        /// More about it, for people; may be empty.
        detail: ShortText,
    },
    /// CommandFailure: an instance could not be suspended, resumed, moved or changed.
    CommandFailed(Box<CommandFailure>),
    /// InstanceState: an instance is suspended, runs again, or was changed.
    InstanceState(Box<InstanceStateEvent>),
    /// DeleteFailure.
    DeleteFailed {
        /// The node it names; may be empty.
        node: Box<str>,
        /// The instance.
        instance: InstanceId,
        /// Whether the reason is `no_instance`: the node does not have it.
        no_instance: bool,
    },
    /// AttachVolumeFailure.
    AttachVolumeFailed {
        /// The node it names; may be empty.
        node: Box<str>,
        /// The instance.
        instance: InstanceId,
    },
    /// TenantAdded.
    TenantAdded {
        /// The concentrator's agent that it is for, as the payload writes it.
        agent: Box<str>,
    },
    /// TenantRemoved.
    TenantRemoved {
        /// The concentrator's agent that it is for, as the payload writes it.
        agent: Box<str>,
    },
    /// ConcentratorInstanceAdded; only carried on, as the others below.
    ConcentratorInstanceAdded,
    /// PublicIPAssigned.
    PublicIpAssigned,
    /// PublicIPUnassigned.
    PublicIpUnassigned,
    /// AssignPublicIPFailure.
    AssignPublicIpFailed,
    /// UnassignPublicIPFailure.
    UnassignPublicIpFailed,
    /// TraceReport.
    TraceReport,
    /// KeptRuns.
    KeptRuns(Box<KeptRuns>),
    /// Workloads.
    Workloads(Vec<Workload>),
    /// Output: the answer to what the scheduler asked under this number. Only carried on.
    Output(u64),
}

/// What an instance on a node is, as its launcher says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The instance.
    pub instance: InstanceId,
    /// What it is called; empty for nothing.
    pub name: Box<str>,
    /// Its tenant, if it has one.
    pub tenant: Option<TenantId>,
    /// What it runs, for people.
    pub program: Box<str>,
    /// How long it has been there.
    pub age: Duration,
}

/// The ended runs of instances that a launcher still has something of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRuns {
    /// Whether these are all there are.
    pub is_complete: bool,
    /// The runs.
    pub runs: Vec<KeptRun>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptRun {
    /// The instance.
    pub instance: InstanceId,
    /// The number of its end on its node.
    pub seq: u64,
    /// When it ended, by the node's clock, in unix milliseconds.
    pub at_ms: u64,
    /// Its exit status, or minus the signal that ended it; `None` = not known.
    pub exit_code: Option<i64>,
    /// The directory on the node with what is left of it; empty where nothing is.
    pub output: ShortText,
}

impl Report {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> ReportName {
        match self {
            Self::Ready(_) => ReportName::Ready,
            Self::Full => ReportName::Full,
            Self::Offline => ReportName::Offline,
            Self::Maintenance => ReportName::Maintenance,
            Self::Stats(_) => ReportName::Stats,
            Self::InstanceDeleted(_) => ReportName::InstanceDeleted,
            Self::InstanceStopped(_) | Self::InstanceExited(_) | Self::InstanceCutOff(_) => {
                ReportName::InstanceStopped
            }
            Self::Numbered { told, .. } => told.name(),
            Self::StartFailed { .. } => ReportName::StartFailure,
            Self::CommandFailed(_) => ReportName::CommandFailure,
            Self::InstanceState(_) => ReportName::InstanceState,
            Self::DeleteFailed { .. } => ReportName::DeleteFailure,
            Self::AttachVolumeFailed { .. } => ReportName::AttachVolumeFailure,
            Self::TenantAdded { .. } => ReportName::TenantAdded,
            Self::TenantRemoved { .. } => ReportName::TenantRemoved,
            Self::ConcentratorInstanceAdded => ReportName::ConcentratorInstanceAdded,
            Self::PublicIpAssigned => ReportName::PublicIpAssigned,
            Self::PublicIpUnassigned => ReportName::PublicIpUnassigned,
            Self::AssignPublicIpFailed => ReportName::AssignPublicIpFailure,
            Self::UnassignPublicIpFailed => ReportName::UnassignPublicIpFailure,
            Self::TraceReport => ReportName::TraceReport,
            Self::KeptRuns(_) => ReportName::KeptRuns,
            Self::Workloads(_) => ReportName::Workloads,
            Self::Output(_) => ReportName::Output,
        }
    }

    /// The node that it says it is about; `None` where it names none.
    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Stats(report) => Some(&report.node),
            Self::StartFailed { node, .. }
            | Self::DeleteFailed { node, .. }
            | Self::AttachVolumeFailed { node, .. } => Some(node),
            Self::CommandFailed(failure) => Some(&failure.node_uuid),
            Self::InstanceState(event) => Some(&event.node_uuid),
            _ => None,
        }
    }

    /// The instance that it is about; STATS, which list many, aside.
    pub(crate) fn instance(&self) -> Option<Cow<'_, InstanceId>> {
        let named = |text: &str| Some(Cow::Owned(InstanceId::new(text)));
        match self {
            Self::InstanceDeleted(instance)
            | Self::InstanceStopped(instance)
            | Self::InstanceExited(instance)
            | Self::InstanceCutOff(instance)
            | Self::DeleteFailed { instance, .. }
            | Self::AttachVolumeFailed { instance, .. } => Some(Cow::Borrowed(instance)),
            Self::StartFailed { instance, .. } => instance.as_ref().map(Cow::Borrowed),
            Self::CommandFailed(failure) => named(&failure.instance_uuid),
            Self::InstanceState(event) => named(&event.instance_uuid),
            _ => None,
        }
    }
}
