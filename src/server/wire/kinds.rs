//! Which frame is which command or report.
//!
//! A table in each direction. Both are exhaustive over the core's names, and a test holds them to be inverse; a kind
//! that is in neither is [`Sent::Unknown`], carried as a number so that refusals and log lines can name it.
//!
//! Adding a kind means a line in [`sent`] or `report` and one in [`kind_of`] or `kind_of_report`; the compiler demands
//! the second, the test the first.

use proto_frames::Kind;
use sched_core::{CommandName, ReportName, Sent, Tag};

/// What a frame of this kind is to the core, from any sender: what a role may send is decided in the core, by these
/// names (`sched-core/src/peers/permissions.rs`). Kinds that only the scheduler sends are unknown here, coming from a
/// peer.
pub(super) fn sent(kind: Kind) -> Sent {
    let command = match kind {
        Kind::START => CommandName::Start,
        Kind::EVACUATE => CommandName::Evacuate,
        Kind::DELETE => CommandName::Delete,
        Kind::ASSIGN_PUBLIC_IP => CommandName::AssignPublicIp,
        Kind::RELEASE_PUBLIC_IP => CommandName::ReleasePublicIp,
        Kind::CONFIGURE => CommandName::Configure,
        Kind::ATTACH_VOLUME => CommandName::AttachVolume,
        Kind::RESTORE => CommandName::Restore,
        Kind::REFRESH_CNCI => CommandName::RefreshCnci,
        // Added by this project, with operands from 0x40 on: from here on, and no others.
        Kind::SUSPEND => CommandName::Suspend,
        Kind::RESUME => CommandName::Resume,
        Kind::MIGRATE => CommandName::Migrate,
        Kind::UPDATE => CommandName::Update,
        Kind::QUERY => CommandName::Query,
        Kind::WATCH => CommandName::Watch,
        Kind::READ_OUTPUT => CommandName::ReadOutput,
        Kind::DELETE_OUTPUT => CommandName::DeleteOutput,
        Kind::READ_IMAGE => CommandName::ReadImage,
        Kind::WRITE_IMAGE => CommandName::WriteImage,
        Kind::DELETE_IMAGE => CommandName::DeleteImage,
        Kind::LIST_IMAGES => CommandName::ListImages,
        Kind::READ_CONFIGURATION => CommandName::ReadConfiguration,
        Kind::WRITE_CONFIGURATION => CommandName::WriteConfiguration,
        Kind::START_ARRAY => CommandName::StartArray,
        Kind::RELOAD => CommandName::Reload,
        Kind::TRANSFER_LEADERSHIP => CommandName::TransferLeadership,
        kind => return report(kind).map_or_else(|| Sent::Unknown(tag(kind)), Sent::Report),
    };
    Sent::Command(command)
}

/// The other half of [`sent`]: kinds that launchers and concentrators' agents send.
fn report(kind: Kind) -> Option<ReportName> {
    Some(match kind {
        Kind::STATS => ReportName::Stats,
        Kind::READY => ReportName::Ready,
        Kind::FULL => ReportName::Full,
        Kind::OFFLINE => ReportName::Offline,
        Kind::MAINTENANCE => ReportName::Maintenance,
        Kind::START_FAILURE => ReportName::StartFailure,
        Kind::DELETE_FAILURE => ReportName::DeleteFailure,
        Kind::ATTACH_VOLUME_FAILURE => ReportName::AttachVolumeFailure,
        Kind::ASSIGN_PUBLIC_IP_FAILURE => ReportName::AssignPublicIpFailure,
        Kind::UNASSIGN_PUBLIC_IP_FAILURE => ReportName::UnassignPublicIpFailure,
        Kind::COMMAND_FAILURE => ReportName::CommandFailure,
        Kind::TENANT_ADDED => ReportName::TenantAdded,
        Kind::TENANT_REMOVED => ReportName::TenantRemoved,
        Kind::INSTANCE_DELETED => ReportName::InstanceDeleted,
        Kind::CONCENTRATOR_INSTANCE_ADDED => ReportName::ConcentratorInstanceAdded,
        Kind::PUBLIC_IP_ASSIGNED => ReportName::PublicIpAssigned,
        Kind::PUBLIC_IP_UNASSIGNED => ReportName::PublicIpUnassigned,
        Kind::TRACE_REPORT => ReportName::TraceReport,
        Kind::INSTANCE_STOPPED => ReportName::InstanceStopped,
        Kind::INSTANCE_STATE => ReportName::InstanceState,
        Kind::KEPT_RUNS => ReportName::KeptRuns,
        Kind::WORKLOADS => ReportName::Workloads,
        Kind::OUTPUT => ReportName::Output,
        _ => return None,
    })
}

/// The kind of frame that this is. For log lines, refusals and frames that the scheduler makes itself. Inverse of
/// [`sent`].
pub(in crate::server) fn kind_of(sent: Sent) -> Kind {
    match sent {
        Sent::Command(name) => match name {
            CommandName::Start => Kind::START,
            CommandName::Evacuate => Kind::EVACUATE,
            CommandName::Delete => Kind::DELETE,
            CommandName::AssignPublicIp => Kind::ASSIGN_PUBLIC_IP,
            CommandName::ReleasePublicIp => Kind::RELEASE_PUBLIC_IP,
            CommandName::Configure => Kind::CONFIGURE,
            CommandName::AttachVolume => Kind::ATTACH_VOLUME,
            CommandName::Restore => Kind::RESTORE,
            CommandName::RefreshCnci => Kind::REFRESH_CNCI,
            CommandName::Suspend => Kind::SUSPEND,
            CommandName::Resume => Kind::RESUME,
            CommandName::Migrate => Kind::MIGRATE,
            CommandName::Update => Kind::UPDATE,
            CommandName::Query => Kind::QUERY,
            CommandName::Watch => Kind::WATCH,
            CommandName::ReadOutput => Kind::READ_OUTPUT,
            CommandName::DeleteOutput => Kind::DELETE_OUTPUT,
            CommandName::ReadImage => Kind::READ_IMAGE,
            CommandName::WriteImage => Kind::WRITE_IMAGE,
            CommandName::DeleteImage => Kind::DELETE_IMAGE,
            CommandName::ListImages => Kind::LIST_IMAGES,
            CommandName::ReadConfiguration => Kind::READ_CONFIGURATION,
            CommandName::WriteConfiguration => Kind::WRITE_CONFIGURATION,
            CommandName::StartArray => Kind::START_ARRAY,
            CommandName::Reload => Kind::RELOAD,
            CommandName::TransferLeadership => Kind::TRANSFER_LEADERSHIP,
        },
        Sent::Report(name) => kind_of_report(name),
        Sent::Unknown(tag) => kind_in(tag),
    }
}

/// The other half of [`kind_of`].
fn kind_of_report(name: ReportName) -> Kind {
    match name {
        ReportName::Stats => Kind::STATS,
        ReportName::Ready => Kind::READY,
        ReportName::Full => Kind::FULL,
        ReportName::Offline => Kind::OFFLINE,
        ReportName::Maintenance => Kind::MAINTENANCE,
        ReportName::StartFailure => Kind::START_FAILURE,
        ReportName::DeleteFailure => Kind::DELETE_FAILURE,
        ReportName::AttachVolumeFailure => Kind::ATTACH_VOLUME_FAILURE,
        ReportName::AssignPublicIpFailure => Kind::ASSIGN_PUBLIC_IP_FAILURE,
        ReportName::UnassignPublicIpFailure => Kind::UNASSIGN_PUBLIC_IP_FAILURE,
        ReportName::CommandFailure => Kind::COMMAND_FAILURE,
        ReportName::TenantAdded => Kind::TENANT_ADDED,
        ReportName::TenantRemoved => Kind::TENANT_REMOVED,
        ReportName::InstanceDeleted => Kind::INSTANCE_DELETED,
        ReportName::ConcentratorInstanceAdded => Kind::CONCENTRATOR_INSTANCE_ADDED,
        ReportName::PublicIpAssigned => Kind::PUBLIC_IP_ASSIGNED,
        ReportName::PublicIpUnassigned => Kind::PUBLIC_IP_UNASSIGNED,
        ReportName::TraceReport => Kind::TRACE_REPORT,
        ReportName::InstanceStopped => Kind::INSTANCE_STOPPED,
        ReportName::InstanceState => Kind::INSTANCE_STATE,
        ReportName::KeptRuns => Kind::KEPT_RUNS,
        ReportName::Workloads => Kind::WORKLOADS,
        ReportName::Output => Kind::OUTPUT,
    }
}

/// What the core is given of a kind: its type and operand as the two low bytes. The two high ones are the frame's
/// version where the tag is a parcel's ([`super::parcels`]), else 0.
pub(super) fn tag(kind: Kind) -> Tag {
    Tag(u32::from_be_bytes([0, 0, kind.ty.0, kind.operand]))
}

/// The kind that a tag stands for. The version in the high bytes is passed over.
pub(super) fn kind_in(tag: Tag) -> Kind {
    let [.., ty, operand] = tag.0.to_be_bytes();
    Kind::new(ty, operand)
}

#[cfg(test)]
mod tests {
    use proto_frames::Kind;

    use super::{kind_of, sent};
    use sched_core::{CommandName, ReportName, Sent, Tag};

    #[test]
    fn every_command_and_report_is_one_kind_of_frame() {
        let commands = CommandName::ALL.iter().map(|name| Sent::from(*name));
        let reports = ReportName::ALL.iter().map(|name| Sent::from(*name));
        for name in commands.chain(reports) {
            assert_eq!(sent(kind_of(name)), name);
        }
    }

    #[test]
    fn every_other_kind_of_frame_is_unknown_and_keeps_its_number() {
        let all = (0..=u8::MAX).flat_map(|ty| (0..=u8::MAX).map(move |it| Kind::new(ty, it)));
        let mut known = 0;
        for kind in all {
            let name = sent(kind);
            assert_eq!(kind_of(name), kind);
            known += usize::from(!matches!(name, Sent::Unknown(_)));
        }
        assert_eq!(known, CommandName::ALL.len() + ReportName::ALL.len());
        assert_eq!(sent(Kind::new(9, 3)), Sent::Unknown(Tag(0x903)));
    }
}
