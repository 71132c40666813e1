//! Why something was refused, in words.
//!
//! The words of the answer to a frame that came; why a START or command came to nothing is worded in
//! [`crate::server::sentences`], because that is decided and this is refused before.

use std::fmt;
use std::net::SocketAddr;

use proto_frames::Uuid;
use proto_frames::payload::{CommandRefused, ConnectionAborted};

use super::kinds::kind_of;
use crate::server::sentences::Why;
use sched_core::{RefusalCause, Refused};

/// What a native peer is told of a frame or command that was refused: CommandRefused, with type and operand of what it
/// sent, a reason for programs and a sentence for people. Original peers are told nothing, as they know no such frame.
pub(in crate::server) fn refused(refused: &Refused) -> CommandRefused {
    let kind = kind_of(refused.sent);
    CommandRefused {
        ty: kind.ty.0,
        operand: kind.operand,
        name: kind.to_string(),
        reason: refused.cause.reason(),
        detail: detail(refused),
        instance_uuid: refused.instance.as_ref().map(ToString::to_string),
    }
}

/// The payload of the ConnectionAborted that a launcher gets because another one, at `first`, reports for its node. The
/// sentence stands in that launcher's log, so it says what to do on that machine.
pub(in crate::server) fn twin(node: Uuid, first: Option<SocketAddr>) -> ConnectionAborted {
    let place = PeerAddress(first);
    ConnectionAborted {
        detail: format!(
            "another launcher with the UUID of this node, {node}, is connected from {place}, and was there first. This one's \
             state directory is a copy, or both were given one --uuid: stop one of the two, or give this one a state \
             directory of its own (an empty one; it gets a UUID of its own then)"
        ),
    }
}

/// Where a peer is, for people.
pub(in crate::server) struct PeerAddress(pub(in crate::server) Option<SocketAddr>);

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("an unknown address"),
        }
    }
}

/// The sentence for people; says what to do about it where something can be done.
fn detail(refused: &Refused) -> String {
    match &refused.cause {
        RefusalCause::NotPermitted(role) => {
            format!("{} is not for a {role} to send", kind_of(refused.sent))
        }
        RefusalCause::Backup => "this controller is backup: commands are the master's".to_owned(),
        RefusalCause::Malformed(text) | RefusalCause::LeftOut(text) => text.to_string(),
        RefusalCause::TooLong { len, max } => {
            format!("{len} bytes: peers of the native encoding are sent at most {max}")
        }
        RefusalCause::TooManyAnswers(count) => {
            format!("{count} commands wait for their answers, which is as many as may")
        }
        RefusalCause::NodeNotConnected(name) => {
            format!("no node '{name}' is connected; 'ciaoctl nodes' lists those that are")
        }
        RefusalCause::AgentNotConnected(agent) => {
            format!("no concentrator agent '{agent}' is connected")
        }
        RefusalCause::NodeNotKnown(name) => {
            format!("no node '{name}' is known; 'ciaoctl nodes' lists those that are")
        }
        RefusalCause::NodeConnected(name) => format!(
            "node '{name}' is connected: stop its launcher first, or drain it and leave it cordoned"
        ),
        RefusalCause::NotANode(name) => format!("'{name}' is not the UUID of a node"),
        RefusalCause::NotDrained(name) => format!("node '{name}' is not being drained"),
        RefusalCause::NotOnLostNode => {
            "it is not on a lost node; delete it, or wait until its node is lost".to_owned()
        }
        RefusalCause::OnLostNode => {
            "its node is lost and may run it still: delete it once the node is back, or give it up with \
             'ciaoctl instance forget'"
                .to_owned()
        }
        RefusalCause::NotRecorded(why) => Why(why).to_string(),
    }
}
