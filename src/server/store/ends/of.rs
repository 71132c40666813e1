//! An end as it is kept, of a run that the core says is over.

use std::borrow::Cow;

use proto_frames::payload::EndOutcome;

use super::row::{self, EndRow, Id, UNKNOWN};
use sched_core::{Cause, RunRecord};

/// The words of the events that matter here ([`sched_model::PhaseName`]).
const RUNNING: &str = "running";

/// The end of a run. `detail` is that of its last event, unless the outcome says as much.
pub(in crate::server) fn row_of(run: &RunRecord) -> EndRow<'_> {
    let ended_ms = run.ended_ms.unwrap_or(run.at_ms).min(run.at_ms);
    let (last, earlier) = match run.history.split_last() {
        Some((last, earlier)) => (Some(last), earlier),
        None => (None, &[][..]),
    };
    let facts = run.facts.as_ref();
    let ran_ms = facts.and_then(|facts| facts.ran_ms);
    let running = earlier.iter().rev().find(|event| &*event.what == RUNNING);
    let started_ms = ran_ms
        .map(|ran| ended_ms.saturating_sub(ran))
        .or_else(|| running.map(|event| event.at_ms));
    let why = facts.and_then(|facts| facts.why.as_deref());
    let outcome = outcome(run, why, last.map(|event| &event.cause));
    EndRow {
        instance: Id::new(&run.instance),
        name: &run.name,
        index: run.index.map(u64::from),
        program: &run.program,
        tenant: Id::new(run.tenant.as_deref().unwrap_or_default()),
        node: run.node.or(run.ran_on),
        hostname: &run.hostname,
        outcome,
        exit_code: run.exit_code,
        failed: run.failed.as_deref().unwrap_or_default(),
        detail: match last {
            Some(event) if !is_said_by_outcome(&event.cause) => &event.detail,
            _ => "",
        },
        ended_ms,
        noted_ms: run.at_ms,
        submitted_ms: earlier.first().map(|event| event.at_ms.min(ended_ms)),
        started_ms: started_ms.filter(|_| run.failed.is_none()),
        run: run.run.into(),
        restarts: facts.map_or(0, |facts| facts.restarts.into()),
        retries: run.retries.into(),
        ran_ms,
        peak_kib: facts.and_then(|facts| facts.peak_kib),
        cpu_ms: facts.and_then(|facts| facts.cpu_ms),
        output_bytes: facts.and_then(|facts| facts.output_bytes),
        by: run.by.as_deref().unwrap_or_default(),
        labels: facts.map_or(Cow::Borrowed(""), |facts| {
            row::labels_of(&facts.labels).into()
        }),
    }
}

/// Whether nothing says why a run is over but words: it was read from disk, or its node still had what it left.
pub(super) fn is_without_cause(run: &RunRecord) -> bool {
    let why = run.facts.as_ref().and_then(|facts| facts.why.as_deref());
    let last = run.history.last();
    is_vague(last.map(|event| &event.cause)) && known_why(why).is_none()
}

/// Whether it is not known what a run was ended for, if it was.
fn is_vague(cause: Option<&Cause>) -> bool {
    cause.is_none_or(|it| matches!(it, Cause::Plain | Cause::Said(_) | Cause::KeptByNode))
}

/// A launcher's own word for why, if it is one of [`EndOutcome`].
fn known_why(why: Option<&str>) -> Option<&'static str> {
    let mut known = EndOutcome::KNOWN.iter().copied();
    known.find(|word| why == Some(*word))
}

/// Causes of which the outcome and the exit status say all.
fn is_said_by_outcome(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::Plain | Cause::Ended | Cause::Deleted | Cause::Stopped | Cause::CutOff
    )
}

/// How it ended, in a word of [`EndOutcome`].
fn outcome(run: &RunRecord, why: Option<&str>, cause: Option<&Cause>) -> &'static str {
    if run.failed.is_some() {
        return "not_started";
    }
    // What its launcher says counts over why the scheduler thinks that it is gone.
    if let Some(word) = known_why(why) {
        return word;
    }
    match cause {
        Some(
            Cause::Deleted | Cause::BeingDeleted | Cause::DeletedWhileLost | Cause::DeletedLost,
        ) => "deleted",
        Some(Cause::Stopped | Cause::Evacuated | Cause::EndedAsTold | Cause::StopsIt) => "stopped",
        Some(Cause::LeftFor(_) | Cause::LeavesFor(_)) => "preempted",
        Some(Cause::CutOff | Cause::NodeHasStoppedIt) => "cut_off",
        Some(
            Cause::NodeLost
            | Cause::NodeLostUntold
            | Cause::NodeLostBeforeStop
            | Cause::MayRunOnLostNode
            | Cause::Forgotten
            | Cause::LostByNode,
        ) => "node_lost",
        _ => match run.exit_code {
            Some(0) => "succeeded",
            // A command to end it sends signals as well.
            Some(..0) if is_vague(cause) => UNKNOWN,
            Some(_) => "failed",
            None => UNKNOWN,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched_core::{Event, FactsRecord};

    fn run(cause: Cause, exit_code: Option<i64>) -> RunRecord {
        let event = |at_ms, what: &str, cause| Event {
            at_ms,
            what: what.into(),
            cause,
            detail: "more".into(),
            ..Event::default()
        };
        RunRecord {
            instance: "a".into(),
            at_ms: 9000,
            exit_code,
            history: vec![
                event(1000, "waiting", Cause::Plain),
                event(2000, RUNNING, Cause::Plain),
                event(9000, "gone", cause),
            ],
            ..RunRecord::default()
        }
    }

    #[test]
    fn an_outcome_is_of_the_cause_and_of_a_run_of_its_own_the_exit_status() {
        for (cause, exit_code, expected) in [
            (Cause::Ended, Some(0), "succeeded"),
            (Cause::Ended, Some(3), "failed"),
            (Cause::Ended, Some(-9), "failed"),
            (Cause::Ended, None, "unknown"),
            (Cause::Deleted, Some(-15), "deleted"),
            (Cause::CutOff, Some(-9), "cut_off"),
            (Cause::NodeLost, None, "node_lost"),
            (Cause::NotListed, None, "unknown"),
            (Cause::Said("it ended".into()), Some(1), "failed"),
            (Cause::Said("deleted".into()), Some(-15), "unknown"),
            (Cause::KeptByNode, Some(0), "succeeded"),
            (Cause::KeptByNode, Some(-9), "unknown"),
        ] {
            let run = run(cause.clone(), exit_code);
            let row = row_of(&run);
            assert_eq!(row.outcome, expected, "{cause:?}");
            assert!(EndOutcome::KNOWN.contains(&row.outcome));
        }
        let failed = RunRecord {
            failed: Some("launch_failure".into()),
            ..run(Cause::Ended, None)
        };
        assert_eq!(row_of(&failed).outcome, "not_started");
        assert_eq!(row_of(&failed).started_ms, None);
        let limited = RunRecord {
            facts: Some(FactsRecord {
                why: Some("time_limit".into()),
                ..FactsRecord::default()
            }),
            ..run(Cause::Ended, Some(-15))
        };
        assert_eq!(row_of(&limited).outcome, "time_limit");
    }

    #[test]
    fn when_it_was_started_is_its_launchers_word_where_there_is_one() {
        let by_events = run(Cause::Ended, Some(0));
        let row = row_of(&by_events);
        assert_eq!((row.submitted_ms, row.started_ms), (Some(1000), Some(2000)));
        let measured = RunRecord {
            ended_ms: Some(8500),
            facts: Some(FactsRecord {
                ran_ms: Some(6000),
                ..FactsRecord::default()
            }),
            ..by_events
        };
        let row = row_of(&measured);
        assert_eq!((row.started_ms, row.ended_ms), (Some(2500), 8500));
    }
}
