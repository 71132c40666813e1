//! What launchers say of ends that they number: in STATS, and in the frames that tell one end each.
//!
//! A launcher that numbers its ends lists them in its STATS until the scheduler answers that it has them on record
//! (EndsRecorded), so that no end is lost with a connection. Number and process together ([`EndsReport::incarnation`])
//! say which one it is; this module reads both and the frames that report one end each.
//!
//! ```text
//! STATS   ends_incarnation: <UUID of the launcher's process>   ends_seq: 7
//!         ended: [{seq: 6, instance_uuid: a, how: exited, exit_code: 0}, {seq: 7, instance_uuid: b, how: cut_off}]
//! ```

use std::time::Duration;

use proto_frames::payload::peek::StatsPeek;
use proto_frames::payload::{
    self, EndFacts, EndKind, InstanceDeleted, InstanceEnd, InstanceStopped, Payload, StartFailure,
    cut::cut,
};
use proto_frames::{Frame, Kind, Uuid};

use super::inputs::Unusable;
use super::names::check_names;
use super::parcels::parcel;
use super::reports::MAX_PROGRAM_LEN;
use sched_core::{
    EndHow, EndReport, EndsReport, FailedStart, InstanceId, KeptRun, KeptRuns, Report, ShortText,
    canonical_uuid,
};

/// What a STATS of this sender says of ends; `None` from a launcher that does not number them. Takes `ended` out of
/// `stats`, so that it is not carried twice. Frames made for the ends are in the name of the node that the STATS names,
/// else of its sender.
///
/// # Errors
/// An incarnation that is no UUID makes the numbers worthless, and a bad name in one end makes the rest doubtful: the
/// whole STATS is refused.
pub(super) fn of(
    stats: &mut StatsPeek<'_>,
    sender: Uuid,
) -> Result<Option<Box<EndsReport>>, Unusable> {
    let ended = std::mem::take(&mut stats.ended);
    let Some(seq) = stats.ends_seq else {
        return Ok(None);
    };
    let Some(incarnation) = canonical_uuid(&stats.ends_incarnation) else {
        return Err(Unusable::Extras(
            "ends_incarnation: expected a UUID beside ends_seq".to_owned(),
        ));
    };
    let node = canonical_uuid(&stats.node_uuid).unwrap_or(sender);
    let ended = ended.into_iter().map(|end| report(end, node));
    Ok(Some(Box::new(EndsReport {
        incarnation,
        seq,
        ended: ended.collect::<Result<_, _>>()?,
    })))
}

/// Ended runs that one KeptRuns may report: twice what a launcher keeps.
const MAX_KEPT_RUNS: usize = 512;

/// KeptRuns: the ended runs that a launcher still has something of; all of them once on a connection, later what has
/// changed. Kept by the core to say what became of an instance and which node has its output.
pub(super) fn kept_runs(payload: &[u8]) -> Result<Report, Unusable> {
    let told = payload::KeptRuns::decode(payload)?;
    let count = told.runs.len();
    if count > MAX_KEPT_RUNS {
        return Err(Unusable::Extras(format!(
            "kept_runs.runs: {count} entries, at most {MAX_KEPT_RUNS} are taken"
        )));
    }
    let run = |it: payload::KeptRun| {
        check_names(&[("kept_runs.runs.instance_uuid", &it.instance_uuid)])?;
        Ok(KeptRun {
            instance: InstanceId::new(&it.instance_uuid),
            // A node's clock before 1970 gives a negative time: it counts as 0.
            seq: it.seq,
            at_ms: u64::try_from(it.ended_at_ms).unwrap_or_default(),
            exit_code: it.exit_code,
            output: it.output.into(),
        })
    };
    Ok(Report::KeptRuns(Box::new(KeptRuns {
        is_complete: told.complete,
        runs: told
            .runs
            .into_iter()
            .map(run)
            .collect::<Result<_, Unusable>>()?,
    })))
}

/// What a frame about one end says, with the end's number if its launcher numbers ends. By the number the core knows
/// the same end when a STATS repeats it.
pub(super) fn numbered(
    seq: Option<u64>,
    (exit_code, facts): (Option<i64>, Option<Box<EndFacts>>),
    told: Report,
) -> Report {
    match seq {
        Some(seq) => Report::Numbered {
            seq,
            exit_code,
            facts: cut_program(facts),
            told: Box::new(told),
        },
        None => told,
    }
}

/// Facts with no more of the program than is kept of one.
fn cut_program(mut facts: Option<Box<EndFacts>>) -> Option<Box<EndFacts>> {
    if let Some(facts) = &mut facts
        && facts.program.len() > MAX_PROGRAM_LEN
    {
        facts.program = cut(&facts.program, MAX_PROGRAM_LEN).into_owned();
    }
    facts
}

/// An end, with the frame that its launcher would have sent for it, in the launcher's name: to controllers, an end that
/// was learned from a STATS looks like one that was reported by itself. The launcher's detail is cut to a
/// [`ShortText`].
///
/// # Errors
/// The instance's name is not taken.
fn report(mut end: InstanceEnd, node: Uuid) -> Result<EndReport, Unusable> {
    check_names(&[("ended.instance_uuid", &end.instance_uuid)])?;
    end.detail = ShortText::from(end.detail).into();
    let instance_uuid = end.instance_uuid.clone();
    let (seq, exit_code) = (Some(end.seq), end.exit_code);
    let ago = end.age_ms.map(Duration::from_millis);
    let facts = std::mem::take(&mut end.facts);
    let frame = if end.how == EndKind::Deleted {
        let deleted = InstanceDeleted {
            instance_uuid,
            exit_code,
            seq,
            facts: facts.clone(),
        };
        Frame::new(Kind::INSTANCE_DELETED, node, deleted.encode())
    } else {
        let stopped = InstanceStopped {
            instance_uuid,
            exit_code,
            cut_off: end.how == EndKind::CutOff,
            exited: end.how == EndKind::Exited,
            seq,
            facts: facts.clone(),
        };
        Frame::new(Kind::INSTANCE_STOPPED, node, stopped.encode())
    };
    Ok(EndReport {
        seq: end.seq,
        instance: InstanceId::new(&end.instance_uuid),
        how: how(end, node),
        exit_code,
        ago,
        facts: cut_program(facts),
        parcel: parcel(frame),
    })
}

/// What the core does about an end: [`EndKind::Failed`] counts as a failed start with a reason, [`EndKind::CutOff`] as
/// stopped by its node because its lease was over,
/// [`EndKind::Exited`] with an exit status as its own end; anything else is over as usual. A failed start is given with the
/// StartFailure frame that goes to controllers.
fn how(end: InstanceEnd, node: Uuid) -> EndHow {
    match end.how {
        EndKind::CutOff => EndHow::CutOff,
        EndKind::Deleted => EndHow::Deleted,
        EndKind::Failed => {
            let failure = StartFailure {
                node_uuid: node.to_string(),
                instance_uuid: end.instance_uuid,
                reason: end.reason.clone(),
                restart: end.restart,
                detail: Some(end.detail.clone()).filter(|detail| !detail.is_empty()),
                seq: Some(end.seq),
                ..StartFailure::default()
            };
            EndHow::Failed(Box::new(FailedStart {
                parcel: parcel(Frame::new(Kind::START_FAILURE, node, failure.encode())),
                reason: end.reason,
                detail: end.detail.into(),
            }))
        }
        // Without an exit status its launcher has only found that it is gone: the cause is unknown.
        EndKind::Exited if end.exit_code.is_some() => EndHow::Exited,
        // A kind of end that this scheduler does not know still means that the instance is gone.
        EndKind::Exited | EndKind::Stopped | EndKind::Other(_) => EndHow::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::Kind;
    use proto_frames::payload::{Payload, StartFailure, StartFailureReason};

    use super::super::inputs::input;
    use super::super::inputs::tests::{input_of, malformed};
    use super::super::parcels::frame_of;
    use sched_core::{EndHow, Input, Report, SessionId, StatsReport};

    fn stats(text: &str) -> StatsReport {
        match input_of(Kind::STATS, text) {
            Input::Report {
                report: Report::Stats(report),
                ..
            } => *report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_end_in_stats_comes_with_the_frame_that_tells_it() {
        let text = "ends_incarnation: 1f5b2fe6-4493-4561-904a-8f4e956218d9\nends_seq: 4\nended:\n\
            - seq: 1\n  instance_uuid: a\n  how: deleted\n  exit_code: -9\n\
            - seq: 2\n  instance_uuid: b\n  how: cut_off\n\
            - seq: 3\n  instance_uuid: c\n  how: failed\n  reason: image_failure\n  detail: no file\n\
            - seq: 4\n  instance_uuid: d\n  how: faded away\n";
        let ended = stats(text).ends.unwrap().ended;
        let frames = ended.iter().map(|end| frame_of(&end.parcel));
        let kinds: Vec<Kind> = frames.map(|frame| frame.kind).collect();
        assert_eq!(
            kinds,
            [
                Kind::INSTANCE_DELETED,
                Kind::INSTANCE_STOPPED,
                Kind::INSTANCE_STOPPED,
                Kind::INSTANCE_STOPPED
            ]
        );
        assert_eq!(ended[1].how, EndHow::CutOff);
        let EndHow::Failed(failed) = &ended[2].how else {
            panic!()
        };
        let failure = StartFailure::decode(&failed.parcel.payload).unwrap();
        assert_eq!(failure.reason, StartFailureReason::ImageFailure);
        assert_eq!(failure.detail.as_deref(), Some("no file"));
        assert_eq!(ended[3].how, EndHow::Stopped);
        let Input::Report {
            report:
                Report::Numbered {
                    seq: 1,
                    exit_code: Some(-9),
                    told,
                    ..
                },
            ..
        } = input(SessionId(1), frame_of(&ended[0].parcel))
        else {
            panic!()
        };
        assert!(matches!(*told, Report::InstanceDeleted(_)));
    }

    #[test]
    fn numbers_of_nobody_are_refused() {
        let detail = malformed(Kind::STATS, "ends_seq: 4\n").detail;
        assert!(detail.starts_with("ends_incarnation: "), "{detail}");
        assert_eq!(stats("load: 1\n").ends, None);
    }
}
