//! KeptRuns: the ended runs of instances that a launcher still has something of (added by this project).

use sched_model::record;

use super::document::payload;
use super::guard::LARGE;

record! {
    /// `kept_runs: {complete, runs}`: from launchers to schedulers that record ends; all there are once on a connection, and
    /// later what has changed.
    pub struct KeptRuns {
        /// Whether these are all.
        complete: bool as "complete" unless empty,
        /// The runs; where these are not all, those that are new or have changed.
        runs: Vec<KeptRun> as "runs" unless empty,
    }
}

record! {
    /// One ended run of an instance.
    pub struct KeptRun {
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// The number of its end ([`crate::payload::InstanceEnd`]).
        seq: u64 as "seq",
        /// When it ended, milliseconds of Unix time by the node's clock.
        ended_at_ms: i64 as "ended_at_ms",
        /// Exit status of its process, or minus the signal that ended it; `None` = not known.
        exit_code: Option<i64> as "exit_code" unless empty,
        /// The directory with its output and what else is left of it, on the node; empty where nothing is left.
        output: String as "output" unless empty,
    }
}

payload!(KeptRuns under "kept_runs", LARGE);
