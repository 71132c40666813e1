//! Who may send what, as the table in the protocol's specification says. Standing (master or backup) is not looked at
//! here.

use sched_model::Role;

use crate::api::sent::{CommandName, ReportName, Sent};
use crate::peers::session::{LAUNCHER, LISTENER};

/// The roles that may send this.
fn senders(sent: Sent) -> Role {
    match sent {
        Sent::Command(CommandName::Watch) => LISTENER,
        Sent::Command(CommandName::Query | CommandName::ReadOutput | CommandName::ListImages) => {
            Role::CONTROLLER | LISTENER
        }
        Sent::Command(CommandName::ReadImage) => LAUNCHER,
        Sent::Command(_) => Role::CONTROLLER | Role::OPERATOR,
        Sent::Report(name) => reporters(name),
        Sent::Unknown(_) => Role::default(),
    }
}

fn reporters(name: ReportName) -> Role {
    match name {
        ReportName::Stats
        | ReportName::Ready
        | ReportName::Full
        | ReportName::Offline
        | ReportName::Maintenance
        | ReportName::StartFailure
        | ReportName::DeleteFailure
        | ReportName::AttachVolumeFailure
        | ReportName::CommandFailure
        | ReportName::TenantAdded
        | ReportName::TenantRemoved
        | ReportName::InstanceDeleted
        | ReportName::InstanceStopped
        | ReportName::InstanceState
        | ReportName::KeptRuns
        | ReportName::Workloads
        | ReportName::Output => LAUNCHER,
        ReportName::ConcentratorInstanceAdded | ReportName::TraceReport => {
            LAUNCHER | Role::CNCIAGENT
        }
        ReportName::AssignPublicIpFailure
        | ReportName::UnassignPublicIpFailure
        | ReportName::PublicIpAssigned
        | ReportName::PublicIpUnassigned => Role::CNCIAGENT,
    }
}

/// Every role with all that it may send, as the documentation and its test read them.
#[doc(hidden)]
pub fn permitted() -> impl Iterator<Item = (Role, Sent)> {
    const ROLES: [Role; 6] = [
        Role::CONTROLLER,
        Role::OPERATOR,
        Role::VIEWER,
        Role::AGENT,
        Role::NETAGENT,
        Role::CNCIAGENT,
    ];
    let commands = CommandName::ALL.iter().map(|&name| Sent::Command(name));
    let reports = ReportName::ALL.iter().map(|&name| Sent::Report(name));
    let all = commands.chain(reports);
    all.flat_map(|sent| ROLES.map(|role| (role, sent)))
        .filter(|&(role, sent)| may_send(role, sent))
}

/// Whether any of the roles may send this.
pub(crate) fn may_send(role: Role, sent: Sent) -> bool {
    role.intersects(senders(sent))
}

/// Whether it is for native peers alone to send: original ones do not know it.
pub(crate) fn is_native_only(sent: Sent) -> bool {
    match sent {
        Sent::Command(name) => matches!(
            name,
            CommandName::Suspend
                | CommandName::Resume
                | CommandName::Migrate
                | CommandName::Update
                | CommandName::Query
                | CommandName::Watch
                | CommandName::ReadOutput
                | CommandName::ReadImage
                | CommandName::WriteImage
                | CommandName::DeleteImage
                | CommandName::ListImages
        ),
        Sent::Report(name) => {
            matches!(
                name,
                ReportName::CommandFailure
                    | ReportName::InstanceState
                    | ReportName::KeptRuns
                    | ReportName::Workloads
                    | ReportName::Output
            )
        }
        Sent::Unknown(_) => false,
    }
}

/// Whether only the master among the controllers may send it.
#[doc(hidden)]
#[must_use]
pub fn needs_master(command: CommandName) -> bool {
    !matches!(
        command,
        CommandName::Query
            | CommandName::Watch
            | CommandName::ReadOutput
            | CommandName::ReadImage
            | CommandName::WriteImage
            | CommandName::DeleteImage
            | CommandName::ListImages
    )
}
