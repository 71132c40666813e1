//! Who may send what, as the table in the protocol's specification says. Standing (master or backup) is not looked at
//! here.

use proto_frames::{FrameType, Kind};
use sched_model::Role;

/// What a role may send.
const TABLE: &[(Role, &[Kind])] = &[
    (Role::CONTROLLER, CONTROLLER),
    (Role::OPERATOR, CONTROLLER),
    (Role::OPERATOR, &[Kind::WATCH]),
    (Role::AGENT, LAUNCHER),
    (Role::NETAGENT, LAUNCHER),
    (Role::CNCIAGENT, CONCENTRATOR),
];

const CONTROLLER: &[Kind] = &[
    Kind::START,
    Kind::EVACUATE,
    Kind::DELETE,
    Kind::ASSIGN_PUBLIC_IP,
    Kind::RELEASE_PUBLIC_IP,
    Kind::CONFIGURE,
    Kind::ATTACH_VOLUME,
    Kind::RESTORE,
    Kind::REFRESH_CNCI,
    Kind::SUSPEND,
    Kind::RESUME,
    Kind::MIGRATE,
    Kind::UPDATE,
    Kind::QUERY,
];

const LAUNCHER: &[Kind] = &[
    Kind::STATS,
    Kind::READY,
    Kind::FULL,
    Kind::OFFLINE,
    Kind::MAINTENANCE,
    Kind::TENANT_ADDED,
    Kind::TENANT_REMOVED,
    Kind::INSTANCE_DELETED,
    Kind::INSTANCE_STOPPED,
    Kind::TRACE_REPORT,
    Kind::CONCENTRATOR_INSTANCE_ADDED,
    Kind::START_FAILURE,
    Kind::DELETE_FAILURE,
    Kind::ATTACH_VOLUME_FAILURE,
    Kind::COMMAND_FAILURE,
    Kind::INSTANCE_STATE,
];

const CONCENTRATOR: &[Kind] = &[
    Kind::CONCENTRATOR_INSTANCE_ADDED,
    Kind::PUBLIC_IP_ASSIGNED,
    Kind::PUBLIC_IP_UNASSIGNED,
    Kind::TRACE_REPORT,
    Kind::ASSIGN_PUBLIC_IP_FAILURE,
    Kind::UNASSIGN_PUBLIC_IP_FAILURE,
];

/// Every role with each kind of frame that it may send, as the documentation and its test read them.
#[doc(hidden)]
pub fn permitted() -> impl Iterator<Item = (Role, Kind)> {
    let of_role = |(role, kinds): &(Role, &'static [Kind])| {
        let role = *role;
        kinds.iter().map(move |&kind| (role, kind))
    };
    TABLE.iter().flat_map(of_role)
}

/// Whether any of the roles may send this kind of frame.
pub(crate) fn may_send(role: Role, kind: Kind) -> bool {
    TABLE
        .iter()
        .any(|(entitled, kinds)| role.intersects(*entitled) && kinds.contains(&kind))
}

/// Whether this is a kind the scheduler handles, from whomever.
pub(crate) fn is_handled(kind: Kind) -> bool {
    TABLE.iter().any(|(_, kinds)| kinds.contains(&kind))
}

/// Whether only the master among the controllers may send it.
#[doc(hidden)]
pub fn needs_master(kind: Kind) -> bool {
    kind.ty == FrameType::COMMAND && CONTROLLER.contains(&kind) && kind != Kind::QUERY
}
