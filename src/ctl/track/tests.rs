//! Instances are followed by events and listings, to their end.

use bytes::Bytes;
use proto_frames::payload::{
    CommandRefused, InstanceDeleted, InstanceStopped, PlacementState, RefusalReason, StartFailure,
    StartFailureReason,
};
use serde_json::Value;

use super::*;

fn tracker(ids: &[&str], until: Until) -> Tracker {
    let request = |id: &&str| StartRequest {
        name: "a.yaml".into(),
        instance_uuid: (*id).into(),
        payload: Bytes::new(),
    };
    Tracker::new(&ids.iter().map(request).collect::<Vec<_>>(), until)
}

fn placed(id: &str, host: &str) -> Event {
    Event::Placed(InstancePlaced {
        instance_uuid: id.into(),
        node_uuid: format!("{host}-uuid-0123"),
        hostname: host.into(),
    })
}

fn stopped(id: &str, exit_code: Option<i64>) -> Event {
    Event::InstanceStopped(InstanceStopped {
        instance_uuid: id.into(),
        exit_code,
        ..InstanceStopped::default()
    })
}

fn failed(id: &str) -> Event {
    Event::StartFailure(Box::new(StartFailure {
        instance_uuid: id.into(),
        reason: StartFailureReason::FullCloud,
        detail: Some("no room".into()),
        ..StartFailure::default()
    }))
}

fn view(id: &str, state: PlacementState, reported: Option<&str>) -> InstanceView {
    InstanceView {
        instance_uuid: id.into(),
        state,
        reported: reported.map(Into::into),
        ..InstanceView::default()
    }
}

#[test]
fn without_waiting_a_placement_is_the_end_of_it() {
    let mut tracker = tracker(&["i1", "i2"], Until::Placed);
    assert_eq!(
        tracker.observe(&placed("i1", "a")).unwrap().line(),
        "i1 placed on a (a-uuid-0)"
    );
    assert!(!tracker.is_settled());
    assert_eq!(
        tracker.observe(&failed("i2")).unwrap().line(),
        "i2 failed: full_cloud: no room"
    );
    assert!(tracker.is_settled());
    assert_eq!(tracker.exit(), Exit::Refused);
}

#[test]
fn a_workload_that_ends_badly_says_so_in_the_exit_code() {
    for (exit_code, exit) in [
        (Some(0), Exit::Done),
        (Some(3), Exit::Workload),
        (Some(-9), Exit::Workload),
        (None, Exit::Unknown),
    ] {
        let mut tracker = tracker(&["i1"], Until::Exited);
        tracker.observe(&placed("i1", "a"));
        assert_eq!(tracker.exit(), Exit::Timeout, "still open");
        tracker.observe(&stopped("i1", exit_code));
        assert!(tracker.is_settled());
        assert_eq!(tracker.exit(), exit, "{exit_code:?}");
    }
}

#[test]
fn what_is_deleted_while_it_waits_has_not_ended_but_failed() {
    let mut tracker = tracker(&["i1"], Until::Exited);
    tracker.observe(&Event::Queued(Box::new(InstanceQueued {
        instance_uuid: "i1".into(),
        ..InstanceQueued::default()
    })));
    tracker.observe(&Event::InstanceDeleted(InstanceDeleted {
        instance_uuid: "i1".into(),
        ..InstanceDeleted::default()
    }));
    assert!(tracker.is_settled());
    assert_eq!(tracker.exit(), Exit::Refused);
}

#[test]
fn running_is_what_the_node_reports_as_active() {
    let mut tracker = tracker(&["i1"], Until::Running);
    tracker.observe(&placed("i1", "a"));
    for not_yet in [
        view("i1", PlacementState::Placed, None),
        view("i1", PlacementState::Running, Some("pending")),
        view("i1", PlacementState::InDoubt, Some("active")),
    ] {
        assert!(
            tracker
                .observe_listing(&[not_yet], Absence::Final, |_| true)
                .is_empty()
        );
    }
    let active = view("i1", PlacementState::Running, Some("active"));
    assert_eq!(
        tracker.observe_listing(&[active], Absence::Final, |_| true)[0].stage,
        Stage::Running
    );
    assert!(tracker.is_settled());
    assert_eq!(tracker.exit(), Exit::Done);
}

#[test]
fn what_ends_before_it_was_seen_running_counts_as_ended() {
    let mut tracker = tracker(&["i1"], Until::Running);
    tracker.observe(&placed("i1", "a"));
    tracker.observe(&stopped("i1", Some(1)));
    assert!(tracker.is_settled());
    assert_eq!(tracker.exit(), Exit::Workload);
}

#[test]
fn an_instance_that_the_scheduler_forgot_has_vanished() {
    let mut tracker = tracker(&["i1", "i2"], Until::Exited);
    tracker.observe(&placed("i1", "a"));
    let changed = tracker.observe_listing(&[], Absence::Final, |_| true);
    assert_eq!(
        changed.len(),
        1,
        "i2 was not placed yet, so no one need know it"
    );
    assert_eq!(changed[0].stage, Stage::Vanished);
    assert!(
        tracker.observe(&stopped("i1", Some(0))).is_none(),
        "an end is an end"
    );
}

#[test]
fn a_start_given_to_a_second_node_is_there() {
    let mut tracker = tracker(&["i1"], Until::Exited);
    tracker.observe(&placed("i1", "a"));
    assert!(tracker.observe(&placed("i1", "a")).is_none(), "no news");
    assert_eq!(
        tracker
            .observe(&placed("i1", "b"))
            .unwrap()
            .node
            .as_ref()
            .unwrap()
            .1,
        "b"
    );
    tracker.observe(&Event::InstanceDeleted(InstanceDeleted {
        instance_uuid: "i1".into(),
        ..InstanceDeleted::default()
    }));
    assert_eq!(
        tracker.all()[0].line(),
        "i1 ended on b (b-uuid-0): exit status unknown"
    );
}

#[test]
fn a_refusal_that_names_nobody_is_for_the_only_start_without_an_answer() {
    let refused = Event::Refused(CommandRefused {
        ty: Kind::START.ty.0,
        operand: Kind::START.operand,
        reason: RefusalReason::NotPermitted,
        detail: "no".into(),
        ..CommandRefused::default()
    });
    let mut two = tracker(&["i1", "i2"], Until::Placed);
    assert!(two.observe(&refused).is_none(), "it could be either");
    two.observe(&placed("i1", "a"));
    assert_eq!(two.observe(&refused).unwrap().instance_uuid, "i2");
    assert!(two.observe(&placed("stranger", "a")).is_none());
}

#[test]
fn a_failure_without_an_instance_may_be_of_any_start() {
    let mut one = tracker(&["i1"], Until::Exited);
    assert!(one.observe(&failed("")).is_none());
    one.observe(&placed("i1", "a"));
    assert!(
        one.observe(&failed("i1")).is_some(),
        "also after it was given to a node"
    );
    assert_eq!(one.exit(), Exit::Refused);
}

#[test]
fn the_answer_to_a_dry_run_is_the_end_of_it() {
    for (fits, exit) in [(1, Exit::Done), (0, Exit::Refused)] {
        let mut tracker = tracker(&["i1"], Until::Exited);
        let decision = PlacementDecision {
            instance_uuid: "i1".into(),
            count: 1,
            fits,
            ..PlacementDecision::default()
        };
        assert!(
            tracker
                .observe(&Event::Decided(Box::new(decision)))
                .is_some()
        );
        assert!(tracker.is_settled());
        assert_eq!(tracker.exit(), exit);
    }
}

fn queued(id: &str, position: u64) -> Event {
    Event::Queued(Box::new(InstanceQueued {
        instance_uuid: id.into(),
        position,
        waiting: 12,
        detail: "no room".into(),
        ..InstanceQueued::default()
    }))
}

fn transition(id: &str, state: PhaseName) -> Event {
    Event::Transition(Box::new(InstanceStateEvent {
        instance_uuid: id.into(),
        state,
        ..InstanceStateEvent::default()
    }))
}

#[test]
fn a_start_that_waits_is_an_answer_and_no_end() {
    let mut until_placed = tracker(&["i1"], Until::Placed);
    let line = until_placed.observe(&queued("i1", 3)).unwrap().line();
    assert_eq!(line, "i1 waits, 3 of 12, priority 0: no room");
    assert!(until_placed.is_settled());
    assert_eq!(until_placed.exit(), Exit::Done);
    let json = until_placed.all()[0].json();
    assert_eq!(
        (&json["outcome"], &json["position"]),
        (&"queued".into(), &3.into())
    );

    let mut until_exited = tracker(&["i1"], Until::Exited);
    until_exited.observe(&queued("i1", 3));
    assert!(until_exited.observe(&queued("i1", 3)).is_none(), "no news");
    assert!(until_exited.observe(&queued("i1", 2)).is_some());
    assert!(
        until_exited
            .observe_listing(&[], Absence::Final, |_| true)
            .is_empty(),
        "what waits need not be listed as an instance"
    );
    assert_eq!(until_exited.exit(), Exit::Timeout);
    let line = until_exited.observe(&placed("i1", "a")).unwrap().line();
    assert_eq!(line, "i1 placed on a (a-uuid-0)");
    until_exited.observe(&stopped("i1", Some(0)));
    assert_eq!(until_exited.exit(), Exit::Done);
}

#[test]
fn an_instance_that_has_to_give_way_is_followed_until_it_ends() {
    let mut tracker = tracker(&["i1"], Until::Exited);
    tracker.observe(&placed("i1", "a"));
    tracker.observe(&transition("i1", PhaseName::Suspended));
    assert_eq!(
        tracker.all()[0].line(),
        "i1 suspended on a (a-uuid-0)",
        "the node still has it"
    );
    tracker.observe(&transition("i1", PhaseName::Running));
    assert_eq!(tracker.all()[0].stage, Stage::Running);
    tracker.observe(&transition("i1", PhaseName::Stopping));
    assert!(
        tracker.observe(&stopped("i1", Some(-15))).is_none(),
        "it leaves this node only"
    );
    let waits = tracker
        .observe(&transition("i1", PhaseName::Waiting))
        .unwrap();
    assert_eq!(waits.line(), "i1 waits");
    tracker.observe(&placed("i1", "b"));
    tracker.observe(&stopped("i1", Some(3)));
    assert_eq!(tracker.exit(), Exit::Workload);
}

#[test]
fn an_instance_that_is_gone_has_not_ended_before_it_is_told_how() {
    let mut stopped_after = tracker(&["i1"], Until::Exited);
    stopped_after.observe(&placed("i1", "a"));
    let gone = stopped_after.observe(&transition("i1", PhaseName::Gone));
    assert!(gone.is_none(), "how is still to come");
    assert!(!stopped_after.is_settled());
    stopped_after.observe(&stopped("i1", Some(3)));
    assert_eq!(stopped_after.exit(), Exit::Workload);
    let mut failed_after = tracker(&["i1"], Until::Placed);
    failed_after.observe(&transition("i1", PhaseName::Gone));
    assert!(!failed_after.is_settled(), "why is still to come");
    failed_after.observe(&failed("i1"));
    assert_eq!(failed_after.exit(), Exit::Refused);
    let mut never_told = tracker(&["i1"], Until::Exited);
    never_told.observe(&placed("i1", "a"));
    never_told.observe(&transition("i1", PhaseName::Gone));
    never_told.observe_listing(&[], Absence::Final, |_| true);
    assert_eq!(never_told.all()[0].stage, Stage::Vanished);
}

#[test]
fn a_queued_start_is_reported_with_its_place() {
    let mut tracker = tracker(&["i1"], Until::Placed);
    assert!(
        tracker
            .observe(&transition("i1", PhaseName::Waiting))
            .is_none()
    );
    assert!(tracker.observe(&queued("i1", 1)).is_some());
}

#[test]
fn a_suspended_instance_is_not_listed_as_running() {
    let mut tracker = tracker(&["i1"], Until::Running);
    tracker.observe(&placed("i1", "a"));
    let mut listed = view("i1", PlacementState::Running, None);
    listed.life = "suspended".into();
    assert!(
        tracker
            .observe_listing(&[listed.clone()], Absence::Final, |_| true)
            .is_empty()
    );
    listed.life = "updated".into();
    assert_eq!(
        tracker
            .observe_listing(&[listed], Absence::Final, |_| true)
            .len(),
        1
    );
}

#[test]
fn a_failure_names_the_nodes_that_were_tried() {
    let mut tracker = tracker(&["i1"], Until::Placed);
    let tried = AttemptFailed {
        node_uuid: "4cb19522-aaaa".into(),
        reason: StartFailureReason::FullComputeNode,
        detail: String::new(),
    };
    let failure = StartFailure {
        instance_uuid: "i1".into(),
        reason: StartFailureReason::QueueTimeout,
        attempts: vec![tried],
        ..StartFailure::default()
    };
    let failed = tracker
        .observe(&Event::StartFailure(Box::new(failure)))
        .unwrap();
    let expected = "i1 failed: queue_timeout; tried before on 4cb19522 (full_cn)";
    assert_eq!(failed.line(), expected);
    assert_eq!(failed.json()["attempts"][0]["reason"], "full_cn");
}

#[test]
fn json_names_every_outcome() {
    let mut tracker = tracker(&["i1"], Until::Exited);
    assert_eq!(tracker.all()[0].json()["outcome"], "sent");
    tracker.observe(&placed("i1", "a"));
    tracker.observe(&stopped("i1", Some(3)));
    let json = tracker.all()[0].json();
    assert_eq!(
        (&json["outcome"], &json["exit_code"]),
        (&"ended".into(), &3.into())
    );
    assert_eq!(json["hostname"], "a");
    assert_eq!(json["reason"], Value::Null);
}

#[test]
fn after_a_lost_connection_listings_say_what_was_missed() {
    let mut tracker = tracker(&["runs", "ended", "gone", "other"], Until::Exited);
    let mut running = view("runs", PlacementState::Running, Some("active"));
    running.node_uuid = "n1".into();
    let ended = |id: &str, age_s: i64| InstanceView {
        exit_code: Some(3),
        age_s,
        ..view(id, PlacementState::Ended, None)
    };
    let listed = std::slice::from_ref(&running);
    assert!(
        tracker
            .observe_listing(listed, Absence::MayReturn, |_| true)
            .is_empty()
    );
    tracker.reattach();
    assert!(tracker.misses(listed, |_| true));
    let rows = [ended("other", 100), ended("ended", 1)];
    assert_eq!(
        tracker.observe_ended(&rows, Duration::from_secs(10)).len(),
        1
    );
    let changed = tracker.observe_listing(listed, Absence::MayReturn, |_| true);
    assert_eq!(changed.len(), 1);
    assert_eq!(changed[0].stage, Stage::Running);
    let changed = tracker.observe_listing(listed, Absence::Final, |_| true);
    assert_eq!(changed.len(), 2, "an earlier end is not that of this run");
    assert_eq!(tracker.open().count(), 1);
    assert_eq!(tracker.all()[1].stage, Stage::Ended { exit_code: Some(3) });
}

#[test]
fn an_end_without_a_status_is_taken_for_one_only_if_nothing_else_is_told() {
    let ended = InstanceView {
        age_s: 0,
        ..view("i1", PlacementState::Ended, None)
    };
    let within = Duration::from_secs(60);
    // It failed to start, which is told a moment later than it is listed.
    let mut told = tracker(&["i1"], Until::Exited);
    told.observe(&placed("i1", "a"));
    assert_eq!(told.observe_ended(std::slice::from_ref(&ended), within), []);
    assert_eq!(told.observe_listing(&[], Absence::Final, |_| true), []);
    assert!(told.observe(&failed("i1")).is_some());
    assert_eq!(told.exit(), Exit::Refused);
    let mut untold = tracker(&["i1"], Until::Exited);
    untold.observe(&placed("i1", "a"));
    let mut looks = 0;
    while !untold.is_settled() {
        untold.observe_ended(std::slice::from_ref(&ended), within);
        looks += 1;
        assert!(looks <= UNTOLD_LOOKS, "it is taken in the end");
    }
    assert_eq!(untold.exit(), Exit::Unknown);
}
