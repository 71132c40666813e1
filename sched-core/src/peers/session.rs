//! What the core knows of one connection.

use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Topic;
use sched_model::{Role, Uuid};

use crate::api::config::MAX_REFUSED_KINDS;
use crate::api::ids::NodeKey;
use crate::api::input::{Backlog, Dialect, Hello};
use crate::api::sent::Sent;
use crate::api::text::ShortText;
use crate::peers::owner::Owner;

/// One connection of one peer; changed by way of [`Peers`](crate::peers::Peers) alone.
#[derive(Debug)]
pub(crate) struct Session {
    /// Who its peer is.
    pub(super) hello: Hello,
    since: Instant,
    /// The node it reports for, if it is a launcher. `None` once a newer connection has taken the node over.
    pub(super) node: Option<NodeKey>,
    /// Whether it is a launcher that numbers ends, and all ends that it has reported before its next frame were dealt
    /// with.
    pub(super) numbers_ends: bool,
    /// How full its outgoing queue is.
    pub(super) backlog: Backlog,
    /// What an operator has subscribed to.
    pub(super) topics: Vec<Topic>,
    /// Kinds of frames that were refused, so that each is logged once; bounded by `MAX_REFUSED_KINDS`.
    refused: IndexSet<Sent>,
}

impl Session {
    pub(super) fn new(hello: Hello, since: Instant) -> Self {
        Self {
            hello,
            since,
            node: None,
            numbers_ends: false,
            backlog: Backlog::Clear,
            topics: Vec::new(),
            refused: IndexSet::new(),
        }
    }

    /// Its peer.
    pub(crate) fn uuid(&self) -> Uuid {
        self.hello.uuid
    }

    /// The roles it claimed.
    pub(crate) fn role(&self) -> Role {
        self.hello.role
    }

    /// The SHA-256 of its certificate, if it has one.
    pub(crate) fn certificate(&self) -> Option<[u8; 32]> {
        self.hello.certificate
    }

    /// Who its peer is, for people: its role, and the subject of its certificate, or where it has none its UUID.
    pub(crate) fn who(&self) -> ShortText {
        let role = self.hello.role;
        ShortText::new(&match &self.hello.subject {
            Some(subject) => format!("{role} {}", subject.as_str()),
            None => format!("{role} {}", self.hello.uuid),
        })
    }

    /// When it began.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// When its certificate ends, seconds of Unix time, if it has one.
    pub(crate) fn certificate_ends_s(&self) -> Option<i64> {
        self.hello.certificate_ends_s
    }

    /// The node it reports for; `None` once a newer connection has taken the node over.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        self.node
    }

    /// How its queue stands.
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Whether it is a launcher that numbers ends, and all it has told before its next frame are dealt with.
    pub(crate) fn numbers_ends(&self) -> bool {
        self.numbers_ends
    }

    /// Whether it understands what this project added.
    pub(crate) fn is_native(&self) -> bool {
        self.hello.dialect == Dialect::Native
    }

    /// The peer that may have no other session.
    pub(super) fn identity(&self) -> Identity {
        identity(self.hello.uuid, self.hello.role)
    }

    /// To whom what it sends belongs.
    pub(super) fn owner(&self) -> Owner {
        if self.hello.role.contains(Role::OPERATOR) {
            Owner::Operator(self.hello.uuid)
        } else {
            Owner::Controllers
        }
    }

    /// Notes that a frame of this kind was refused; whether it is the first of its kind. Beyond the limit none is.
    pub(super) fn note_refusal(&mut self, sent: Sent) -> bool {
        self.refused.len() < MAX_REFUSED_KINDS && self.refused.insert(sent)
    }
}

/// A peer, which has one session at a time: its UUID and its role. Both kinds of node are one role here, so that a
/// launcher may reconnect with another of them.
pub(super) type Identity = (Uuid, Role);

/// The identity of a peer in a role.
pub(super) fn identity(uuid: Uuid, role: Role) -> Identity {
    if role.intersects(LAUNCHER) {
        (uuid, LAUNCHER)
    } else {
        (uuid, role)
    }
}

/// The roles that get only what they have subscribed to and are never master: OPERATOR, and VIEWER, which sends no
/// commands.
pub(crate) const LISTENER: Role = Role(Role::OPERATOR.0 | Role::VIEWER.0);

/// The roles of a launcher.
pub(crate) const LAUNCHER: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);
