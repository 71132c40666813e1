//! What the node keeps cannot be written: what runs goes on, nothing more is taken, ends are told all the same.

use super::*;

const FAULT: &str = "the state directory cannot be written: No space left on device";

impl World {
    fn storage(&mut self, fault: Option<&str>) {
        let fault = fault.map(str::to_owned);
        self.handle(Input::Storage { fault });
    }
}

#[test]
fn without_storage_a_node_is_full_with_all_that_runs_and_ready_again_as_soon_as_it_has_some() {
    let mut world = World::connected();
    world.running("a", 100);
    world.storage(Some(FAULT));
    world.advance(MIN_REPORT_GAP);
    let Message::Stats(stats) = &world.sent[0] else {
        panic!("no STATS")
    };
    assert_eq!((&*stats.status, &*stats.fault), ("FULL", FAULT));
    assert_eq!(stats.instances[0].state, InstanceState::Active);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::FULL]);
    world.storage(Some(FAULT));
    world.advance(MIN_REPORT_GAP);
    world.nothing_else();

    world.storage(None);
    world.advance(MIN_REPORT_GAP);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
    world.start(process("b", 100));
    assert!(matches!(world.orders()[..], [AgentAction::Spawn(_)]));
}

#[test]
fn without_storage_a_start_is_refused_with_the_reason_and_leaves_nothing_behind() {
    let mut world = World::connected();
    world.storage(Some(FAULT));
    world.sent.clear();
    world.start(process("a", 100));
    let Message::StartFailure(failure) = world.answer() else {
        panic!("no StartFailure")
    };
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    assert!(failure.detail.unwrap().contains(FAULT));
    assert!(world.orders().is_empty() && world.records.is_empty());
}

#[test]
fn a_start_that_finds_out_that_there_is_no_storage_fails_as_on_a_full_node() {
    let mut world = World::connected();
    world.start(process("a", 100));
    world.sent.clear();
    world.handle(Input::StartFailed {
        instance: "a".to_owned(),
        fault: LaunchFault::Storage,
        detail: FAULT.to_owned(),
    });
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
}

#[test]
fn without_storage_instances_end_and_are_deleted_as_ever() {
    let mut world = World::connected();
    world.running("ends", 100);
    world.running("deleted", 100);
    world.storage(Some(FAULT));
    world.advance(MIN_REPORT_GAP);
    world.forget_what_happened();
    world.exits("ends", 3);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
    world.delete("deleted", false);
    assert_eq!(
        world.orders(),
        [AgentAction::Terminate("deleted".to_owned())]
    );
    world.exits("deleted", -15);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_DELETED);
    assert!(world.stats().instances.is_empty());
}
