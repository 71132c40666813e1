//! ReportReceived: a STATS has come in, so the scheduler is there (added by this project).

use crate::record;

record! {
    /// `report_received: {seq}`: answer to the STATS with this `report_seq`, or with this `lease_seq` where the lease
    /// cannot be extended for now. It says that the scheduler works, which the kernel's acknowledgement does not: one
    /// that is stopped gives no answer.
    pub struct ReportReceived {
        /// The number that the STATS carried.
        seq: u64 as "seq",
    }
}
