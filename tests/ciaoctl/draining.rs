//! `cordon`, `uncordon` and `drain`.

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, DrainProgress, DrainState, Evacuate, EvacuateMode,
    LifecycleCommand, NodeView, Payload, QueryResult, Restore, RestoreMode, Span,
    UnmovableInstance,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Peers, Scheduler, answer, node};

/// Answers queries about two nodes, the first of which is cordoned.
fn answer_queries(peers: &mut Peers, from: usize, frame: &Frame) {
    if frame.kind == Kind::QUERY {
        let cordoned = NodeView {
            cordoned: true,
            ..node("4c", "node-a")
        };
        let nodes = [cordoned, node("4d", "node-b")];
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 10));
    }
}

fn progress(state: DrainState, moved: u32) -> DrainProgress {
    DrainProgress {
        node_uuid: node("4c", "").node_uuid,
        state,
        total: 4,
        moved,
        left: 4 - moved,
        ..DrainProgress::default()
    }
}

/// Answers an EVACUATE with these.
async fn draining(events: Vec<DrainProgress>) -> Scheduler {
    Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::EVACUATE {
            for event in &events {
                peers.send(from, Kind::DRAIN_PROGRESS, event.encode());
            }
        }
        answer_queries(peers, from, frame);
    })
    .await
}

fn sent(scheduler: &Scheduler) -> Evacuate {
    Evacuate::decode(&scheduler.seen(Kind::EVACUATE)[0]).unwrap()
}

#[tokio::test]
async fn a_cordon_and_its_end_are_modes_of_evacuate_and_restore() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["cordon", "node-a"]).await;
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "node-a (4c000000) cordoned\n")
    );
    assert_eq!(sent(&scheduler).mode, EvacuateMode::Cordon);
    assert_eq!(
        sent(&scheduler).workload_agent_uuid,
        node("4c", "").node_uuid
    );
    let ran = scheduler.ctl(&["uncordon", "4c"]).await;
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "node-a (4c000000) uncordoned\n")
    );
    let restore = Restore::decode(&scheduler.seen(Kind::RESTORE)[0]).unwrap();
    assert_eq!(restore.mode, RestoreMode::Uncordon);
}

#[tokio::test]
async fn to_uncordon_a_node_that_is_not_cordoned_changes_nothing_and_says_so() {
    let scheduler = Scheduler::playing(answer_queries).await;
    let ran = scheduler.ctl(&["uncordon", "node-b"]).await;
    assert_eq!(
        (ran.code, &*ran.out),
        (Some(0), "node-b (4d000000) was not cordoned\n")
    );
}

#[tokio::test]
async fn a_scheduler_that_would_take_it_for_an_evacuation_is_not_asked() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind != Kind::QUERY {
            return;
        }
        let result = QueryResult::decode(&answer(frame, &[node("4c", "node-a")], &[], 10)).unwrap();
        let knows = ["nodes", "instances", "controllers"].contains(&result.what.as_str());
        let result = QueryResult {
            error: (!knows).then(|| "what is that?".to_owned()),
            ..result
        };
        peers.send(from, Kind::QUERY_RESULT, result.encode());
    })
    .await;
    for command in ["cordon", "uncordon", "drain"] {
        let ran = scheduler.ctl(&[command, "node-a"]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.err.contains("what is that?"), "{ran:?}");
    }
    assert!(scheduler.seen(Kind::EVACUATE).is_empty());
    assert!(scheduler.seen(Kind::RESTORE).is_empty());
}

#[tokio::test]
async fn a_drain_shows_how_far_it_is_and_ends_when_it_is_done() {
    let scheduler = draining(vec![
        progress(DrainState::Moving, 0),
        DrainProgress {
            node_uuid: node("4d", "").node_uuid,
            ..progress(DrainState::Done, 4)
        },
        progress(DrainState::Moving, 3),
        progress(DrainState::Done, 4),
    ])
    .await;
    let line = "drain node-a --deadline 10m --parallel 4";
    let ran = scheduler.ctl(&line.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let expected = "node-a (4c000000) moving: 0 of 4 moved, 0 on their way, 4 left\n\
                    node-a (4c000000) moving: 3 of 4 moved, 0 on their way, 1 left\n\
                    node-a (4c000000) drained: 4 moved\n";
    assert_eq!(ran.out, expected);
    let sent = sent(&scheduler);
    assert_eq!(sent.mode, EvacuateMode::Relocate);
    assert_eq!(sent.deadline, Some(Span::from_ms(600_000)));
    assert_eq!(sent.parallel, Some(4));
}

#[tokio::test]
async fn a_check_says_what_will_not_fit_and_is_no_success_then() {
    let unmovable = DrainProgress {
        unmovable: vec![UnmovableInstance {
            instance_uuid: "i1".into(),
            detail: "no node with gpu 1".into(),
            ..UnmovableInstance::default()
        }],
        unmovable_count: 2,
        ..progress(DrainState::Checking, 0)
    };
    let scheduler = draining(vec![unmovable]).await;
    let ran = scheduler.ctl(&["drain", "--check", "node-a"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let expected =
        "node-a (4c000000): 2 of 4 will not fit:\n  i1  no node with gpu 1\n  and 1 more\n";
    assert_eq!(ran.out, expected);
    assert_eq!(sent(&scheduler).mode, EvacuateMode::Check);
    let scheduler = draining(vec![progress(DrainState::Checking, 0)]).await;
    let ran = scheduler.ctl(&["drain", "--check", "node-a"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, "node-a (4c000000): all 4 fit elsewhere\n");
}

#[tokio::test]
async fn a_drain_that_leaves_something_says_what_and_is_no_success() {
    let incomplete = DrainProgress {
        unmovable: vec![UnmovableInstance {
            instance_uuid: "i1".into(),
            detail: "too large".into(),
            ..UnmovableInstance::default()
        }],
        unmovable_count: 1,
        ..progress(DrainState::Incomplete, 3)
    };
    let scheduler = draining(vec![incomplete]).await;
    let ran = scheduler.ctl(&["drain", "node-a", "--json"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let json = ran.json();
    assert_eq!(json["progress"]["state"], "incomplete");
    assert_eq!(json["progress"]["misfits"][0]["instance_uuid"], "i1");
    assert_eq!(json["is_over"], true);
}

#[tokio::test]
async fn a_drain_can_be_ended() {
    let scheduler = draining(vec![
        progress(DrainState::Moving, 1),
        progress(DrainState::Aborted, 2),
    ])
    .await;
    let ran = scheduler.ctl(&["drain", "node-a", "--abort"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let end = "node-a (4c000000) aborted: 2 of 4 moved, 0 on their way, 2 left\n";
    assert!(ran.out.ends_with(end), "{ran:?}");
    assert_eq!(sent(&scheduler).mode, EvacuateMode::Abort);
}

#[tokio::test]
async fn a_drain_that_fails_or_does_not_end_says_so() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::EVACUATE {
            let failure = CommandFailure {
                command: LifecycleCommand::Drain,
                node_uuid: node("4c", "").node_uuid,
                reason: CommandFailureReason::Timeout,
                detail: "3 of 4 are still there".into(),
                ..CommandFailure::default()
            };
            peers.send(from, Kind::COMMAND_FAILURE, failure.encode());
        }
        answer_queries(peers, from, frame);
    })
    .await;
    let ran = scheduler.ctl(&["drain", "node-a"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    let expected = "node-a (4c000000) not drained: timeout: 3 of 4 are still there\n";
    assert_eq!(ran.out, expected);
    let scheduler = draining(vec![progress(DrainState::Moving, 1)]).await;
    let ran = scheduler.ctl(&["drain", "node-a", "--timeout", "2s"]).await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(
        ran.out.ends_with("3 left; gave up waiting, it goes on\n"),
        "{ran:?}"
    );
}
