//! What peers send, by name: what permissions, refusals and notices are about.

use crate::api::names::names;
use crate::api::parcel::Tag;

names! {
    /// What controllers and operators ask for ([`crate::Command`]), by name.
    pub CommandName:
    /// START.
    Start,
    /// EVACUATE.
    Evacuate,
    /// DELETE.
    Delete,
    /// AssignPublicIP.
    AssignPublicIp,
    /// ReleasePublicIP.
    ReleasePublicIp,
    /// CONFIGURE.
    Configure,
    /// AttachVolume.
    AttachVolume,
    /// Restore.
    Restore,
    /// RefreshCNCI.
    RefreshCnci,
    /// SUSPEND.
    Suspend,
    /// RESUME.
    Resume,
    /// MIGRATE.
    Migrate,
    /// UPDATE.
    Update,
    /// QUERY.
    Query,
    /// WATCH.
    Watch,
    /// ReadOutput.
    ReadOutput,
    /// DeleteOutput.
    DeleteOutput,
    /// ReadImage.
    ReadImage,
    /// WriteImage.
    WriteImage,
    /// DeleteImage.
    DeleteImage,
    /// ListImages.
    ListImages,
    /// ReadConfiguration.
    ReadConfiguration,
    /// WriteConfiguration.
    WriteConfiguration,
    /// StartArray.
    StartArray,
    /// RELOAD.
    Reload,
    /// TransferLeadership.
    TransferLeadership,
}

names! {
    /// What launchers and concentrators' agents report ([`crate::Report`]), by name.
    pub ReportName:
    /// STATS.
    Stats,
    /// READY.
    Ready,
    /// FULL.
    Full,
    /// OFFLINE.
    Offline,
    /// MAINTENANCE.
    Maintenance,
    /// StartFailure.
    StartFailure,
    /// DeleteFailure.
    DeleteFailure,
    /// AttachVolumeFailure.
    AttachVolumeFailure,
    /// AssignPublicIPFailure.
    AssignPublicIpFailure,
    /// UnassignPublicIPFailure.
    UnassignPublicIpFailure,
    /// CommandFailure.
    CommandFailure,
    /// TenantAdded.
    TenantAdded,
    /// TenantRemoved.
    TenantRemoved,
    /// InstanceDeleted.
    InstanceDeleted,
    /// ConcentratorInstanceAdded.
    ConcentratorInstanceAdded,
    /// PublicIPAssigned.
    PublicIpAssigned,
    /// PublicIPUnassigned.
    PublicIpUnassigned,
    /// TraceReport.
    TraceReport,
    /// InstanceStopped.
    InstanceStopped,
    /// InstanceState.
    InstanceState,
    /// KeptRuns.
    KeptRuns,
    /// Workloads.
    Workloads,
    /// Output.
    Output,
}

/// What a peer sent, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// A command.
    Command(CommandName),
    /// A report.
    Report(ReportName),
    /// Something else, by what the server calls its like.
    Unknown(Tag),
}

impl From<CommandName> for Sent {
    fn from(name: CommandName) -> Self {
        Self::Command(name)
    }
}

impl From<ReportName> for Sent {
    fn from(name: ReportName) -> Self {
        Self::Report(name)
    }
}
