//! LeaseRenewed: a STATS has come in, so its node's lease runs on (added by this project).

use crate::record;

record! {
    /// `lease_renewed: {seq}`: answer to the STATS with this `lease_seq`. The lease counts from when the launcher made
    /// that STATS, so the time on the way shortens it and never lengthens it.
    pub struct LeaseRenewed {
        /// The number that the STATS carried.
        seq: u64 as "seq",
    }
}
