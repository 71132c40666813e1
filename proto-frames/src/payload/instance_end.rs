//! How an instance ended on its node, as a launcher keeps it until the scheduler has it on record (added by this project).

use sched_model::{EndFacts, record, words};

use super::StartFailureReason;

record! {
    /// `{seq, instance_uuid, how, …}`: one end, an entry of `ended` in [`crate::payload::Stats`]. Said again in each STATS
    /// until EndsRecorded names it.
    pub struct InstanceEnd {
        /// Its number among the ends on that node: they are numbered in the order in which they happened.
        seq: u64 as "seq",
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// How it ended.
        how: EndKind as "how",
        /// Exit status of its process, or minus the signal that ended it.
        exit_code: Option<i64> as "exit_code" unless empty,
        /// How long before this report it ended, in milliseconds; `None` = not known.
        age_ms: Option<u64> as "age_ms" unless empty,
        /// Why its START failed; empty unless `how` is `failed`.
        reason: StartFailureReason as "reason" unless empty,
        /// More about that, for people.
        detail: String as "detail" unless empty,
        /// Whether that START was a restart.
        restart: bool as "restart" unless empty,
        /// What else is known of the run.
        facts: Option<Box<EndFacts>> as "facts" unless empty,
    }
}

words! {
    /// How an instance ended.
    pub enum EndKind {
        /// By itself; its launcher keeps its output until it is deleted.
        Exited = "exited",
        /// It was removed from this node only.
        Stopped = "stopped",
        /// It was deleted.
        Deleted = "deleted",
        /// Its launcher stopped it because it was cut off for longer than its lease.
        CutOff = "cut_off",
        /// It could not be started.
        Failed = "failed",
    }
}
