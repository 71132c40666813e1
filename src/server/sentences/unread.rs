//! Why what a workload wrote cannot be read, in words.
//!
//! [`Unread`] is why the core cannot give the output of an instance (`ciaoctl logs`, `GET …/output`): no node has it,
//! its node cannot be asked now, or its launcher cannot answer. Each sentence says whether trying again may help.

use std::fmt;

use sched_core::{NamedNode, Unread};

/// Why there is no output, as people read it: the detail of an answer without data.
pub(super) struct NoOutput<'a>(pub(super) &'a Unread);

impl fmt::Display for NoOutput<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unread::Busy(open) => {
                write!(f, "{open} chunks of output are waited for already; try again")
            }
            Unread::ConnectionEnded(node) => {
                let node = NodeText(node.as_ref());
                write!(f, "the connection to {node} has ended; it may come back")
            }
            Unread::NotAnswered(node, time) => {
                let (node, seconds) = (NodeText(node.as_ref()), time.as_secs());
                write!(f, "the launcher of {node} has not answered within {seconds} s")
            }
            Unread::NotConnected(node) => {
                let node = NodeText(Some(node));
                write!(f, "{node} has it and is not connected; what it has can be read, or deleted, once it is back")
            }
            Unread::NotSupported(node) => write!(
                f,
                "the launcher of {} cannot be asked for output: it is an original one or an older one; read the output on \
                 the node",
                NodeText(Some(node))
            ),
            Unread::Waits => {
                f.write_str("it waits for room and has not run yet; `ciaoctl queue` says for what")
            }
            Unread::NeverBegan => f.write_str("it ran on no node"),
            Unread::NoInstance => f.write_str(
                "no such instance is known, nor was recently; `ciaoctl instances` lists those that are",
            ),
            Unread::NodeForgotten(uuid) => {
                write!(f, "node {uuid}, which had it last, is not known any more")
            }
            Unread::NoResults(node) => write!(
                f,
                "the launcher of {} is of an earlier version: it neither keeps standard error apart nor serves or deletes \
                 files",
                NodeText(Some(node))
            ),
            Unread::NotOver => f.write_str(
                "it runs, waits, or is to be placed again: only what an instance has left that is over is deleted",
            ),
            Unread::NotPermitted => {
                f.write_str("files of working directories are for operators and controllers, not for viewers")
            }
        }
    }
}

/// A node in a sentence: by host name and UUID where both are known, "its node" where neither is. The host name is
/// empty for a node that has reported none.
struct NodeText<'a>(Option<&'a NamedNode>);

impl fmt::Display for NodeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("its node"),
            Some(NamedNode { uuid, hostname }) if hostname.is_empty() => write!(f, "node {uuid}"),
            Some(NamedNode { uuid, hostname }) => write!(f, "node {hostname} ({uuid})"),
        }
    }
}
