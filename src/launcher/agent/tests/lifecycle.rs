//! How instances end: by themselves, by DELETE, by EVACUATE, at shutdown; and what is answered to what cannot be done.

use proto_frames::payload::{EndFacts, KeptRun, KeptRuns, Payload};

use super::ends::recorded;
use super::*;

/// What is told with an end of which nothing was measured: what it ran.
#[expect(clippy::unnecessary_wraps, reason = "as the events have it")]
fn facts() -> Option<Box<EndFacts>> {
    Some(Box::new(EndFacts {
        program: "sleep 9".to_owned(),
        ..EndFacts::default()
    }))
}

fn stopped(id: &str, code: i64) -> Message {
    let instance_uuid = id.to_owned();
    Message::InstanceStopped(proto_frames::payload::InstanceStopped {
        instance_uuid,
        exit_code: Some(code),
        facts: facts(),
        ..Default::default()
    })
}

/// The end of a process that was sent no signal.
fn ended(id: &str, code: i64) -> Message {
    let Message::InstanceStopped(event) = stopped(id, code) else {
        unreachable!("it is one");
    };
    Message::InstanceStopped(proto_frames::payload::InstanceStopped {
        exited: true,
        ..event
    })
}

fn deleted(id: &str, code: i64) -> Message {
    let instance_uuid = id.to_owned();
    Message::InstanceDeleted(proto_frames::payload::InstanceDeleted {
        instance_uuid,
        exit_code: Some(code),
        facts: facts(),
        ..Default::default()
    })
}

#[test]
fn an_end_by_itself_is_reported_once_with_its_code_and_gives_back_what_was_held() {
    let mut world = World::connected();
    world.running("a", 1000);
    world.exits("a", 3);
    assert_eq!(world.answer(), ended("a", 3));
    world.exits("a", 3);
    assert!(world.stats().instances.is_empty());
    world.advance(INTERVAL * 3);
    world.forget_what_happened();
    world.running("b", 1000);
    assert!(world.records.contains_key("a"), "kept for a DELETE to come");
}

#[test]
fn an_instance_that_ended_by_itself_can_be_started_again_and_deleted() {
    let mut world = World::connected();
    world.running("a", 1);
    world.exits("a", 3);
    world.advance(MIN_REPORT_GAP);
    world.forget_what_happened();
    world.start(process("a", 1));
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.exits("a", 4);
    assert_eq!(world.answer(), ended("a", 4));
    world.delete("a", false);
    assert_eq!(world.answer(), deleted("a", 4));
    world.advance(INTERVAL * 2);
    assert!(world.records.is_empty());
}

#[test]
fn ended_instances_are_remembered_until_nothing_is_left_of_them_however_many_they_are() {
    let mut world = World::connected();
    let ids: Vec<String> = (0..600).map(|number| format!("{number:04}")).collect();
    for id in &ids {
        world.running(id, 1);
        world.exits(id, 0);
    }
    world.advance(INTERVAL * 2);
    assert_eq!(world.records.len(), ids.len());
    world.running("runs", 1);
    let bare = ["0000", "0599", "runs", "unknown"]
        .map(str::to_owned)
        .to_vec();
    let runs = Vec::new();
    world.handle(Input::KeptRuns { runs, bare });
    world.advance(INTERVAL * 2);
    assert_eq!(world.records.len(), ids.len() - 2 + 1);
    assert!(!world.records.contains_key("0000") && world.records.contains_key("runs"));
}

#[test]
fn an_instance_of_which_nothing_is_left_is_forgotten_only_once_its_end_is_on_record() {
    let mut world = recorded();
    world.running("a", 1);
    world.exits("a", 0);
    let bare = || Input::KeptRuns {
        runs: Vec::new(),
        bare: vec!["a".to_owned()],
    };
    world.handle(bare());
    assert!(world.records.contains_key("a"));
    world.record();
    world.handle(bare());
    assert!(!world.records.contains_key("a"));
}

#[test]
fn all_that_is_left_is_reported_in_parts_that_a_scheduler_takes() {
    let mut world = recorded();
    let run = |number: u64, path: &str| KeptRun {
        instance_uuid: format!("{number:04}"),
        seq: number,
        output: path.to_owned(),
        ..KeptRun::default()
    };
    let runs: Vec<_> = (0..600).map(|number| run(number, "/kept")).collect();
    let long = run(600, &"x".repeat(4000));
    let runs = [runs, vec![long; 100]].concat();
    let mut numbered = runs.clone();
    for (number, run) in numbered.iter_mut().enumerate() {
        run.seq = number as u64;
    }
    world.handle(Input::KeptRuns {
        runs: numbered.clone(),
        bare: Vec::new(),
    });
    let parts: Vec<KeptRuns> = std::mem::take(&mut world.sent)
        .into_iter()
        .filter_map(|message| match message {
            Message::KeptRuns(part) => Some(part),
            _ => None,
        })
        .collect();
    let completes: Vec<bool> = parts.iter().map(|part| part.complete).collect();
    assert!(completes[0] && !completes[1..].contains(&true));
    assert!(parts.iter().all(|part| part.runs.len() <= 256));
    assert!(parts.iter().all(|part| part.encode().len() < 200 * 1024));
    let told: usize = parts.iter().map(|part| part.runs.len()).sum();
    assert_eq!(told, numbered.len());
}

#[test]
fn delete_asks_first_and_kills_when_the_grace_is_over() {
    let mut world = World::connected();
    world.running("a", 1);
    world.delete("a", false);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    assert_eq!(world.stats().instances[0].state, InstanceState::Stopping);
    world.advance(GRACE - INTERVAL - Duration::from_millis(1));
    assert_eq!(world.orders(), []);
    world.advance(Duration::from_millis(1));
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
    world.forget_what_happened();
    world.exits("a", -9);
    assert_eq!(world.answer(), deleted("a", -9));
    world.advance(GRACE * 2);
    assert_eq!(world.orders(), [AgentAction::Forget("a".to_owned())]);
}

#[test]
fn delete_with_stop_is_answered_by_stopped_and_leaves_nothing() {
    let mut world = World::connected();
    world.running("a", 1);
    world.delete("a", true);
    world.sent.clear();
    world.exits("a", 0);
    assert_eq!(world.answer(), stopped("a", 0));
    world.delete("a", false);
    let Message::DeleteFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, DeleteFailureReason::NoInstance);
}

#[test]
fn a_stop_that_becomes_a_delete_is_reported_as_deleted_and_not_the_other_way_round() {
    let mut world = World::connected();
    world.running("a", 1);
    world.delete("a", true);
    world.delete("a", false);
    world.delete("a", true);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    world.sent.clear();
    world.exits("a", 0);
    assert_eq!(world.answer(), deleted("a", 0));
}

#[test]
fn a_delete_during_the_start_waits_for_it() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.delete("a", false);
    world.advance(GRACE);
    assert!(
        matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]),
        "nothing to signal yet"
    );
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    world.sent.clear();
    world.exits("a", 0);
    assert_eq!(world.answer(), deleted("a", 0));

    world.start(process("b", 1));
    world.delete("b", false);
    world.sent.clear();
    let detail = String::new();
    world.handle(Input::StartFailed {
        instance: "b".to_owned(),
        fault: LaunchFault::Image,
        detail,
    });
    assert_eq!(world.answer().kind(), Kind::INSTANCE_DELETED);
}

#[test]
fn a_delete_that_cannot_be_done_is_answered() {
    let mut world = World::connected();
    world.running("a", 1);
    world.delete("b", false);
    let Message::DeleteFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(
        (failure.instance_uuid.as_str(), failure.reason),
        ("b", DeleteFailureReason::NoInstance)
    );

    let workload_agent_uuid = Uuid::from_u128(8).to_string();
    let other_node = Delete {
        instance_uuid: "a".to_owned(),
        workload_agent_uuid,
        stop: false,
        ..Delete::default()
    };
    world.handle(Input::Command(Command::Delete(Ok(other_node))));
    let Message::DeleteFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(
        (failure.instance_uuid.as_str(), failure.reason),
        ("a", DeleteFailureReason::InvalidData)
    );

    world.frame(Kind::DELETE, "delete: [");
    let Message::DeleteFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, DeleteFailureReason::InvalidPayload);
    assert!(world.orders().is_empty());
}

#[test]
fn processes_take_no_volumes() {
    let mut world = World::connected();
    world.running("a", 1);
    for (id, reason) in [
        ("a", AttachVolumeFailureReason::NotSupported),
        ("b", AttachVolumeFailureReason::NoInstance),
    ] {
        let attach = AttachVolume {
            instance_uuid: id.to_owned(),
            volume_uuid: "v".to_owned(),
            ..AttachVolume::default()
        };
        world.handle(Input::Command(Command::AttachVolume(Ok(attach))));
        let Message::AttachVolumeFailure(failure) = world.answer() else {
            panic!()
        };
        assert_eq!(
            (failure.volume_uuid.as_str(), failure.reason),
            ("v", reason)
        );
    }
}

#[test]
fn an_evacuated_node_stops_everything_and_takes_nothing_until_restored() {
    let mut world = World::connected();
    world.running("a", 1);
    world.running("b", 1);
    world.evacuate();
    assert_eq!(
        world.orders(),
        [
            AgentAction::Terminate("a".to_owned()),
            AgentAction::Terminate("b".to_owned())
        ]
    );
    world.advance(MIN_REPORT_GAP);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::MAINTENANCE]);
    world.exits("a", 0);
    assert_eq!(world.answer(), stopped("a", 0));
    world.exits("b", 1);
    assert_eq!(world.answer(), stopped("b", 1));
    world.start(process("c", 1));
    assert_eq!(world.refusal(), StartFailureReason::NodeMaintenance);
    assert_eq!(world.stats().status, "MAINTENANCE");
    world.restore();
    world.advance(MIN_REPORT_GAP);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
    world.running("c", 1);
}

#[test]
fn an_evacuation_of_another_node_and_one_that_is_for_the_scheduler_are_not_ours() {
    let mut world = World::connected();
    world.running("a", 1);
    let workload_agent_uuid = Uuid::from_u128(8).to_string();
    world.handle(Input::Command(Command::Evacuate(Ok(Evacuate {
        workload_agent_uuid,
        ..Evacuate::default()
    }))));
    world.nothing_else();
    let workload_agent_uuid = world.node.to_string();
    world.handle(Input::Command(Command::Evacuate(Ok(Evacuate {
        workload_agent_uuid,
        mode: EvacuateMode::Check,
        ..Evacuate::default()
    }))));
    world.nothing_else();
}

#[test]
fn an_end_without_a_connection_is_told_on_the_next() {
    let mut world = World::connected();
    world.running("a", 1);
    world.running("b", 1);
    world.delete("b", false);
    world.handle(Input::Disconnected);
    world.forget_what_happened();
    world.exits("a", 1);
    world.exits("b", 2);
    world.nothing_else();
    world.advance(INTERVAL * 9);
    world.nothing_else();
    world.connect();
    assert_eq!(world.sent[..2], [ended("a", 1), deleted("b", 2)]);
    assert_eq!(world.kinds()[2..], [Kind::STATS, Kind::READY]);
}

#[test]
fn a_notice_that_may_have_been_lost_with_its_connection_is_sent_again_and_one_that_was_heard_is_not()
 {
    let mut world = World::connected();
    world.running("a", 1);
    world.exits("a", 1);
    assert_eq!(world.answer(), ended("a", 1));
    world.handle(Input::Disconnected);
    world.connect();
    assert_eq!(world.answer(), ended("a", 1));
    world.advance(INTERVAL);
    world.handle(Input::Disconnected);
    world.sent.clear();
    world.connect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn an_old_end_is_not_told_of_an_instance_that_runs_again() {
    let mut world = World::connected();
    world.running("a", 1);
    world.exits("a", 1);
    world.running("a", 1);
    world.handle(Input::Disconnected);
    world.connect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn a_launcher_that_ends_says_so_and_leaves_its_workloads_or_stops_them() {
    let mut world = World::connected();
    world.running("a", 1);
    world.handle(Input::Shutdown(Workloads::Leave));
    assert_eq!(world.kinds(), [Kind::OFFLINE]);
    assert!(world.agent.is_done() && world.orders().is_empty());

    let mut world = World::connected();
    world.running("a", 1);
    world.handle(Input::Shutdown(Workloads::Stop));
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    assert!(!world.agent.is_done());
    world.start(process("b", 1));
    assert!(world.orders().is_empty());
    world.exits("a", 0);
    assert!(world.agent.is_done());
}

#[test]
fn no_report_is_made_without_a_connection() {
    let mut world = World::disconnected();
    world.advance(INTERVAL * 3);
    assert_eq!((world.samples, world.agent.poll_timeout()), (0, None));
}

#[test]
fn processor_time_that_is_not_known_is_reported_so_for_any_number_of_vcpus() {
    let mut world = World::connected();
    let mut start = process("a", 10);
    start.requirements.vcpus = 4;
    world.start(start);
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    for (cpu_percent, reported) in [(-1, -1), (0, 0), (200, 50)] {
        let usage = Usage {
            mem_mb: 1,
            disk_mb: 1,
            cpu_percent,
        };
        world.usage.insert("a".to_owned(), usage);
        assert_eq!(world.stats().instances[0].cpu_usage, reported);
    }
}
