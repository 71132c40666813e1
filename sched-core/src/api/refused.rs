//! Why something that a peer sent had no effect: for the peer, if it is native.

use sched_model::RefusalReason;
use sched_model::Role;

use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::sent::Sent;
use crate::api::text::ShortText;

/// A command or report that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The frame kind that was refused.
    pub sent: Sent,
    /// The cause of the refusal.
    pub cause: RefusalCause,
    /// The instance it was about, where it was about one.
    pub instance: Option<InstanceId>,
}

/// Why a command or report was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RefusalCause {
    /// It is not for a peer in this role, or not for an original one.
    NotPermitted(Role),
    /// Its sender is a backup controller.
    Backup,
    /// Its payload could not be read: the server's words.
    Malformed(ShortText),
    /// Its payload has more bytes than native peers are sent.
    TooLong {
        /// So many.
        len: usize,
        /// They are sent so many at most.
        max: usize,
    },
    /// Its sender waits for so many answers, or all together do.
    TooManyAnswers(usize),
    /// The node of this name is not connected.
    NodeNotConnected(Box<str>),
    /// The concentrator's agent of this name is not connected.
    AgentNotConnected(Box<str>),
    /// No node of this name is known.
    NodeNotKnown(Box<str>),
    /// The node of this name is connected, and so cannot be forgotten.
    NodeConnected(Box<str>),
    /// No node can have this name.
    NotANode(Box<str>),
    /// The node of this name is not being drained.
    NotDrained(Box<str>),
    /// Part of it does not count.
    LeftOut(ShortText),
    /// What it changes cannot be recorded.
    NotRecorded(Box<Cause>),
    /// Only an instance whose node is lost can be forgotten.
    NotOnLostNode,
    /// Its node is lost, and nothing is kept for the case that it comes back.
    OnLostNode,
}

impl RefusalCause {
    /// The same in a word of the protocol.
    #[must_use]
    pub fn reason(&self) -> RefusalReason {
        match self {
            Self::NotPermitted(_) => RefusalReason::NotPermitted,
            Self::Backup => RefusalReason::NotMaster,
            Self::Malformed(_) => RefusalReason::InvalidPayload,
            Self::TooLong { .. } => RefusalReason::TooLong,
            Self::TooManyAnswers(_) => RefusalReason::TooMany,
            Self::NodeConnected(_) | Self::NotOnLostNode | Self::OnLostNode => {
                RefusalReason::Unsupported
            }
            Self::NodeNotConnected(_)
            | Self::NodeNotKnown(_)
            | Self::AgentNotConnected(_)
            | Self::NotANode(_)
            | Self::NotDrained(_) => RefusalReason::NoSuchNode,
            Self::LeftOut(_) => RefusalReason::LeftOut,
            Self::NotRecorded(_) => RefusalReason::NotRecorded,
        }
    }

    /// Bytes of the texts in it.
    pub(crate) fn text_len(&self) -> usize {
        match self {
            Self::Malformed(text) | Self::LeftOut(text) => text.len(),
            Self::NodeNotConnected(text)
            | Self::NodeNotKnown(text)
            | Self::NodeConnected(text)
            | Self::AgentNotConnected(text)
            | Self::NotANode(text)
            | Self::NotDrained(text) => text.len(),
            Self::NotRecorded(cause) => cause.text_size(),
            _ => 0,
        }
    }
}
