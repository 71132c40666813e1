//! Ends of instances as they are kept on record: what is shown of each, and what may be asked for (added by this
//! project).

use std::collections::BTreeMap;

use crate::{record, words};

record! {
    /// One end, an entry of `ends` in [`crate::QueryResult`] and of `GET /v1/history`. What is not known is left out.
    pub struct EndedRun {
        /// Its number among all that were recorded: later ones have higher numbers.
        number: u64 as "number",
        /// The instance.
        instance_uuid: String as "instance_uuid",
        /// What it was called; empty for nothing.
        name: String as "name" unless empty,
        /// The array that it was an element of; empty for none.
        array_uuid: String as "array_uuid" unless empty,
        /// Its index there.
        index: Option<u64> as "index" unless empty,
        /// What it ran: the first words of its command, or its image.
        program: String as "program" unless empty,
        /// The tenant whose name that was.
        tenant: String as "tenant_uuid" unless empty,
        /// The node that had it; empty where it came to none.
        node_uuid: String as "node_uuid" unless empty,
        /// Host name of that node.
        hostname: String as "hostname" unless empty,
        /// How it ended.
        outcome: EndOutcome as "outcome",
        /// The exit status of its process, or minus the signal that ended it.
        exit_code: Option<i64> as "exit_code" unless empty,
        /// Why its START failed, in the word of a StartFailure, if it never ran.
        failed: String as "failed" unless empty,
        /// More about why it ended, for people; empty where `outcome` says it all.
        detail: String as "detail" unless empty,
        /// When it was first known of, milliseconds of Unix time.
        submitted_at_ms: Option<i64> as "submitted_at_ms" unless empty,
        /// When it was started, milliseconds of Unix time.
        started_at_ms: Option<i64> as "started_at_ms" unless empty,
        /// When it ended, milliseconds of Unix time.
        ended_at_ms: i64 as "ended_at_ms",
        /// The number of this run among those of the instance, from 1.
        run: Option<u64> as "run" unless empty,
        /// How often its launcher started it again.
        restarts: u64 as "restarts" unless empty,
        /// How often the instance was placed again because its START says so of an end.
        retries: u64 as "retries" unless empty,
        /// How long it ran, milliseconds, as its launcher measured it.
        ran_ms: Option<u64> as "ran_ms" unless empty,
        /// The most memory that it had at a time, KiB.
        peak_kib: Option<u64> as "peak_kib" unless empty,
        /// Processor time, milliseconds.
        cpu_ms: Option<u64> as "cpu_ms" unless empty,
        /// Bytes that it wrote to its output.
        output_bytes: Option<u64> as "output_bytes" unless empty,
        /// Who asked for its end, where that was by command and is known: role and subject of the certificate.
        by: String as "by" unless empty,
        /// The labels that its START gave it.
        labels: BTreeMap<String, String> as "labels" unless empty,
    }
}

record! {
    /// Which ends are wanted: those that meet all of these. Empty means any.
    pub struct EndFilter {
        /// That ended at this moment or later, milliseconds of Unix time.
        since_ms: Option<u64> as "since_ms" unless empty,
        /// That ended before this moment, milliseconds of Unix time.
        until_ms: Option<u64> as "until_ms" unless empty,
        /// A word of [`EndOutcome`]; `failed` is all that went wrong ([`EndOutcome::is_failure`]).
        state: String as "state" unless empty,
        /// Of this tenant.
        tenant: String as "tenant" unless empty,
        /// On the node of this UUID or host name.
        node: String as "node" unless empty,
        /// Called so, or, with a `*` at the end, called something that begins so.
        name: String as "name" unless empty,
        /// Whose program is this: the whole text, its first word, or that without its directories; or with a `*` at the end
        /// the beginning of the text.
        program: String as "program" unless empty,
        /// Of this instance.
        instance: String as "instance" unless empty,
        /// Whose end these asked for: all of `by`, or with a `*` at the end its beginning, or a part of it behind a `*`.
        by: String as "by" unless empty,
        /// That have all of these labels: `KEY=VALUE`, or `KEY` for one of any value.
        labels: Vec<String> as "labels" unless empty,
        /// Elements of the array of this UUID.
        array: String as "array" unless empty,
    }
}

words! {
    /// How an instance ended.
    pub enum EndOutcome {
        /// By itself, with exit status 0.
        Succeeded = "succeeded",
        /// By itself, with another exit status or by a signal.
        Failed = "failed",
        /// It had run for as long as it may.
        TimeLimit = "time_limit",
        /// It needed more memory than it may have.
        Oom = "oom",
        /// Its START failed: it never ran.
        NotStarted = "not_started",
        /// It was lost with its node.
        NodeLost = "node_lost",
        /// Its node was cut off for longer than its lease.
        CutOff = "cut_off",
        /// It left for another with a higher priority, and was not placed again.
        Preempted = "preempted",
        /// It was removed from its node alone.
        Stopped = "stopped",
        /// It was deleted.
        Deleted = "deleted",
        /// How is not known.
        Unknown = "unknown",
    }
}

impl EndOutcome {
    /// Whether it went wrong: what `failed` in a filter asks for. An end by command or preemption did not; an unknown one
    /// counts as neither failure nor success.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::Failed
                | Self::TimeLimit
                | Self::Oom
                | Self::NotStarted
                | Self::NodeLost
                | Self::CutOff
        )
    }
}
