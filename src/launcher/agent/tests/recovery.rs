//! What a new launcher makes of what an earlier one remembered.

use super::*;

#[test]
fn what_runs_is_found_again_and_holds_what_it_held() {
    let mut world = World::connected();
    world.running("a", 700);
    world.restart(|_| ProcessFate::Running);
    world.connect();
    world.sent.clear();
    world.start(process("b", 301));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    let stats = world.stats();
    assert_eq!(
        (&stats.instances[0].state, stats.starts_seen),
        (&InstanceState::Active, Some(1))
    );
    world.exits("a", 5);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
}

#[test]
fn what_ended_meanwhile_is_told_with_its_code() {
    let mut world = World::connected();
    world.running("a", 1);
    world.running("b", 1);
    world.delete("b", false);
    world.restart(|id| ProcessFate::Ended((id == "a").then_some(9)));
    world.connect();
    let Message::InstanceStopped(event) = world.sent.remove(0) else {
        panic!()
    };
    assert_eq!(
        (event.instance_uuid.as_str(), event.exit_code),
        ("a", Some(9))
    );
    let Message::InstanceDeleted(event) = world.sent.remove(0) else {
        panic!()
    };
    assert_eq!((event.instance_uuid.as_str(), event.exit_code), ("b", None));
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn a_start_that_was_cut_short_is_told_to_have_ended_and_one_that_was_not_runs() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.start(process("b", 1));
    world.restart(|id| {
        if id == "a" {
            ProcessFate::NeverRan
        } else {
            ProcessFate::Running
        }
    });
    world.connect();
    // A STATS may have listed it while it was to be started.
    let Message::InstanceStopped(event) = world.sent.remove(0) else {
        panic!()
    };
    assert_eq!((event.instance_uuid.as_str(), event.exit_code), ("a", None));
    assert_eq!(world.stats().instances.len(), 1);
}

#[test]
fn what_was_being_stopped_is_asked_again_and_killed_in_time() {
    let mut world = World::connected();
    world.running("a", 1);
    world.delete("a", true);
    world.advance(GRACE / 2);
    world.restart(|_| ProcessFate::Running);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    world.advance(GRACE);
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
    world.exits("a", -9);
    world.connect();
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
}

#[test]
fn a_notice_not_yet_heard_is_given_by_the_next_launcher_and_one_that_was_is_not() {
    let mut world = World::connected();
    world.running("a", 1);
    world.running("b", 1);
    world.exits("a", 1);
    world.advance(INTERVAL);
    world.is_stuck = true;
    world.exits("b", 2);
    world.restart(|_| ProcessFate::Ended(None));
    world.connect();
    let Message::InstanceStopped(event) = world.answer() else {
        panic!()
    };
    assert_eq!(
        (event.instance_uuid.as_str(), event.exit_code),
        ("b", Some(2))
    );
}

#[test]
fn an_evacuated_node_stays_so() {
    let mut world = World::connected();
    world.evacuate();
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::MAINTENANCE]);
    world.restore();
    world.restart(|_| ProcessFate::Running);
    world.connect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn an_evacuation_that_was_cut_short_is_carried_through() {
    let mut world = World::connected();
    world.running("a", 1);
    let before = world.records.clone();
    world.evacuate();
    // It was noted that the node is evacuated, and the launcher ended before it came to the instance.
    world.records = before;
    world.restart(|_| ProcessFate::Running);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
}
