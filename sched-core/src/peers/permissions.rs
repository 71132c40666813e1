//! Who may send what: the table in the protocol's specification as code. A frame that its sender's role does not permit
//! is refused before anything else is looked at. The role is that of the certificate. Whether a controller is master or
//! backup is looked at elsewhere; [`needs_master`] says for which commands it matters.
//!
//! The specification's table is compared with [`permitted`] by a test (`tests/sched/peers/matrix.rs`).

use sched_model::{Role, Uuid};

use crate::api::command::Command;
use crate::api::ids::{SessionId, canonical_uuid};
use crate::api::parcel::Parcel;
use crate::api::sent::{CommandName, ReportName, Sent};
use crate::peers::session::{LAUNCHER, LISTENER, Session};

/// The roles that may send this; none for a frame that is not known. Commands not named here may be sent by controllers
/// and operators, so a command that is added has to be added here too if others may send it.
fn senders(sent: Sent) -> Role {
    match sent {
        Sent::Command(CommandName::Watch) => LISTENER,
        Sent::Command(
            CommandName::Query
            | CommandName::ReadOutput
            | CommandName::ListImages
            | CommandName::ReadConfiguration,
        ) => Role::CONTROLLER | LISTENER,
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
                        | CommandName::WriteConfiguration
                        | CommandName::StartArray
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

/// Whether it does nothing to any instance, because it only reads, or is about what instances have left, images or the
/// scheduler's files. The original has no such commands.
fn touches_no_instance(command: CommandName) -> bool {
    matches!(
        command,
        CommandName::Query
            | CommandName::Watch
            | CommandName::ReadOutput
            | CommandName::DeleteOutput
            | CommandName::ReadImage
            | CommandName::WriteImage
            | CommandName::DeleteImage
            | CommandName::ListImages
            | CommandName::ReadConfiguration
            | CommandName::Reload
            | CommandName::TransferLeadership
    )
}

use crate::peers::Peers;

/// Why a peer may not send something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// It is not for a peer in this role, or not for an original one.
    NotPermitted,
    /// It is for the master alone.
    NotMaster,
}

impl Peers {
    /// Whether a report names another node than its sender; an empty name stands for the sender.
    pub(crate) fn is_forged(&self, id: SessionId, node: &str) -> bool {
        let sender = self.get(id).map(Session::uuid);
        !node.is_empty() && (sender.is_none() || canonical_uuid(node) != sender)
    }

    /// Whether this is a dry run from a viewer. START is not for viewers, but a dry run changes nothing, so it is let
    /// through before roles are checked.
    pub(crate) fn is_viewers_question(&self, id: SessionId, command: &Command) -> bool {
        let Command::Start(request) = command else {
            return false;
        };
        let is_dry_run = request.scheduling.as_ref().is_some_and(|it| it.dry_run);
        let is_viewer = |session: &Session| session.role() == Role::VIEWER;
        is_dry_run && self.get(id).is_some_and(is_viewer)
    }

    /// Why a peer may not send this; `None` if it may. The matrix itself is in `peers::permissions`.
    pub(crate) fn denied(&self, id: SessionId, session: &Session, sent: Sent) -> Option<Denied> {
        let role = session.role();
        let is_unknown_to_it = is_native_only(sent) && !session.is_native();
        if is_unknown_to_it || !may_send(role, sent) {
            return Some(Denied::NotPermitted);
        }
        let needs_master = matches!(sent, Sent::Command(name) if needs_master(name));
        let is_denied = needs_master && role.contains(Role::CONTROLLER) && !self.is_master(id);
        is_denied.then_some(Denied::NotMaster)
    }

    /// Whether a parcel is longer than a native peer is sent: its decoder would refuse it, and end the connection.
    pub(crate) fn is_too_long_for(&self, to: SessionId, parcel: &Parcel) -> bool {
        parcel.is_too_long_for_natives() && self.is_native(to)
    }

    /// The session of a concentrator's agent. Identities are UUID and role, and the agent may be a launcher in one.
    pub(crate) fn concentrator(&self, uuid: Uuid) -> Option<SessionId> {
        let roles = [Role::CNCIAGENT, Role::CNCIAGENT | LAUNCHER];
        roles
            .iter()
            .filter_map(|&role| self.by_identity(uuid, role))
            .find(|&id| self.session(id).role().contains(Role::CNCIAGENT))
    }
}
