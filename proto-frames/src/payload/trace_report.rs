//! TraceReport: the paths that traced frames took.

use sched_model::record;

use super::document::payload;
use super::guard::LARGE;

record! {
    /// `frames: […]`.
    pub struct TraceReport {
        /// One entry per traced frame.
        frames: Vec<TracedFrame> as "frames",
    }
}

record! {
    /// One traced frame. Times are RFC 3339 with nanoseconds, kept as text.
    pub struct TracedFrame {
        /// Its label.
        label: String as "label",
        /// Its type, by name.
        ty: String as "type",
        /// Its operand, by name.
        operand: String as "operand",
        /// When its first sender sent it.
        start_timestamp: String as "start_timestamp",
        /// When its last receiver had it.
        end_timestamp: String as "end_timestamp",
        /// Where it was on its way.
        nodes: Vec<TracedNode> as "nodes",
    }
}

record! {
    /// One stop on a frame's way.
    pub struct TracedNode {
        /// The peer.
        ssntp_node_uuid: String as "ssntp_node_uuid",
        /// Its role, by name.
        ssntp_role: String as "ssntp_role",
        /// When it left.
        tx_timestamp: String as "tx_timestamp",
        /// When it arrived.
        rx_timestamp: String as "rx_timestamp",
    }
}

payload!(TraceReport, LARGE);
