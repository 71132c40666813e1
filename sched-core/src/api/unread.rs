//! Why what a workload wrote cannot be read.

use std::time::Duration;

use sched_model::{OutputFailure, Uuid};

/// A node, as people know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedNode {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its host name; empty if it has not said one.
    pub hostname: Box<str>,
}

/// Why no output is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unread {
    /// So many chunks are waited for already, by this peer or by all.
    Busy(usize),
    /// The connection to the node has ended while it was asked; `None` = the node is not known any more.
    ConnectionEnded(Option<NamedNode>),
    /// The node's launcher has not answered in this time.
    NotAnswered(Option<NamedNode>, Duration),
    /// The node has it and is not connected.
    NotConnected(NamedNode),
    /// The node's launcher cannot be asked.
    NotSupported(NamedNode),
    /// The instance waits for room and has not run yet.
    Waits,
    /// The instance ran on no node.
    NeverBegan,
    /// No such instance is known.
    NoInstance,
    /// The node that had it last is not known any more.
    NodeForgotten(Uuid),
    /// The node's launcher neither keeps streams apart nor serves or deletes files.
    NoResults(NamedNode),
    /// The instance is not over, so that nothing of it is deleted.
    NotOver,
    /// Working directories are not for viewers.
    NotPermitted,
}

impl Unread {
    /// The same for programs.
    #[must_use]
    pub fn failure(&self) -> OutputFailure {
        match self {
            Self::Busy(_) => OutputFailure::Busy,
            Self::ConnectionEnded(_) | Self::NotConnected(_) | Self::NodeForgotten(_) => {
                OutputFailure::NodeLost
            }
            Self::NotAnswered(..) => OutputFailure::Timeout,
            Self::NotSupported(_) | Self::NoResults(_) => OutputFailure::NotSupported,
            Self::NotOver => OutputFailure::NotOver,
            Self::NotPermitted => OutputFailure::NotPermitted,
            Self::Waits | Self::NeverBegan => OutputFailure::NeverBegan,
            Self::NoInstance => OutputFailure::NoInstance,
        }
    }
}
