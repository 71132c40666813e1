//! What the core knows of one connection.

use std::time::Instant;

use indexmap::IndexSet;
use proto_frames::payload::Topic;
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::api::config::MAX_REFUSED_KINDS;
use crate::api::ids::NodeKey;
use crate::api::input::{Backlog, Hello};

/// One connection of one peer.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) uuid: Uuid,
    pub(crate) role: Role,
    pub(crate) encoding: Encoding,
    pub(crate) since: Instant,
    /// Whether its certificate is bound to its UUID.
    pub(crate) is_bound: bool,
    /// The node it reports for, if it is a launcher. `None` once a newer connection has taken the node over.
    pub(crate) node: Option<NodeKey>,
    /// Whether it is a launcher that numbers ends, and all it has told before its next frame are dealt with.
    pub(crate) numbers_ends: bool,
    /// How its queue stands.
    pub(crate) backlog: Backlog,
    /// What an operator wants to hear.
    pub(crate) topics: Vec<Topic>,
    /// What was refused, so that each kind is logged once.
    refused: IndexSet<Kind>,
}

impl Session {
    pub(crate) fn new(hello: Hello, since: Instant) -> Self {
        Self {
            uuid: hello.uuid,
            role: hello.role,
            encoding: hello.encoding,
            since,
            is_bound: hello.bound,
            node: None,
            numbers_ends: false,
            backlog: Backlog::Clear,
            topics: Vec::new(),
            refused: IndexSet::new(),
        }
    }

    /// Whether it can be sent operands that this project added.
    pub(crate) fn is_native(&self) -> bool {
        self.encoding == Encoding::Native
    }

    /// Notes a refusal; whether it is the first of its kind.
    pub(crate) fn is_first_refusal(&mut self, kind: Kind) -> bool {
        self.refused.len() < MAX_REFUSED_KINDS && self.refused.insert(kind)
    }
}

/// The one peer that may have only one session at a time: its UUID, and its role with both kinds of node as one.
pub(crate) fn identity(uuid: Uuid, role: Role) -> (Uuid, Role) {
    if role.intersects(LAUNCHER) {
        (uuid, LAUNCHER)
    } else {
        (uuid, role)
    }
}

/// The roles of a launcher.
pub(crate) const LAUNCHER: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);
