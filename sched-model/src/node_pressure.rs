//! NodePressure: a node is short of memory, or something has happened about that.

use crate::{record, words};

record! {
    /// `node_pressure: {node_uuid, hostname, state, …}`.
    pub struct NodePressure {
        /// The node.
        node_uuid: String as "node_uuid",
        /// Its host name; empty where it is not known.
        hostname: String as "hostname" unless empty,
        /// What has happened.
        state: PressureState as "state",
        /// In what it is short, in its launcher's words, where it has come to be.
        detail: String as "detail" unless empty,
        /// The instance that is moved away, where one is.
        instance_uuid: String as "instance_uuid" unless empty,
    }
}

words! {
    /// What has happened to a node that is short of memory.
    pub enum PressureState {
        /// It has come to be: it gets no new work.
        Begun = "begun",
        /// It is not any more.
        Over = "over",
        /// An instance is moved away from it, as the policy says.
        Moved = "moved",
        /// Nothing on it can be moved.
        Stuck = "stuck",
    }
}
