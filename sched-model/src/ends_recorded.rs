//! EndsRecorded: the scheduler's word that it has on record how instances ended on a node (added by this project).

use crate::record;

record! {
    /// `ends_recorded: {incarnation, seq}`: the scheduler has the ends up to this number on record, on disk if it has a
    /// state directory. Their launcher need not tell them again.
    pub struct EndsRecorded {
        /// Whose numbers these are: `ends_incarnation` of the STATS.
        incarnation: String as "incarnation",
        /// The latest end recorded.
        seq: u64 as "seq",
    }
}
