//! Who may send what: the table in the protocol's specification as code. A frame that its sender's role does not permit
//! is refused before anything else is looked at. The role is that of the certificate. Whether a controller is master or
//! backup is looked at elsewhere; [`needs_master`] says for which commands it matters.
//!
//! The specification's table is compared with [`permitted`] by a test (`tests/sched/peers/matrix.rs`).

use sched_model::Role;

use crate::api::sent::{CommandName, ReportName, Sent};
use crate::peers::session::{LAUNCHER, LISTENER};

/// The roles that may send this; none for a frame that is not known. Commands not named here may be sent by controllers
/// and operators, so a command that is added has to be added here too if others may send it.
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

/// The roles that may send a report. No wildcard arm: a report that is added does not compile before someone has
/// decided.
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

/// Every role with all that it may send, for the documentation and its test.
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

/// Whether only native peers may send it: the original protocol does not have it, so an original peer that sends this
/// type means something else.
pub(crate) fn is_native_only(sent: Sent) -> bool {
    match sent {
        Sent::Command(name) => {
            touches_no_instance(name)
                || matches!(
                    name,
                    CommandName::Suspend
                        | CommandName::Resume
                        | CommandName::Migrate
                        | CommandName::Update
                )
        }
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

/// Whether a controller must be master to send it. Backups are allowed what does not change what runs.
#[doc(hidden)]
#[must_use]
pub fn needs_master(command: CommandName) -> bool {
    !touches_no_instance(command)
}

/// Whether it does nothing to any instance, because it reads or is about images. The original has no such commands.
fn touches_no_instance(command: CommandName) -> bool {
    matches!(
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
