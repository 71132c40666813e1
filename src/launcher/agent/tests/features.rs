//! What a node says of itself beyond its figures, and what instances take of it.

use proto_frames::payload::{Group, GroupPolicy, Payload, Scheduling};

use super::*;

/// A node in zone a with four gpus, which are those of another node.
fn features() -> Features {
    Features {
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        resources: [("gpu".to_owned(), 4)].into(),
        shares: Some(Uuid::from_u128(8)),
        shared_by: vec![Uuid::from_u128(9)],
        volumes: Vec::new(),
        ..Features::default()
    }
}

fn process_with(id: &str, gpus: i64) -> Start {
    let scheduling = Scheduling {
        resources: [("gpu".to_owned(), gpus)].into(),
        group: Some(Group {
            id: "web".to_owned(),
            policy: GroupPolicy::AntiAffinity,
            ..Group::default()
        }),
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..process(id, 1)
    }
}

#[track_caller]
fn refused_as_full(world: &mut World, start: Start, detail: &str) {
    world.start(start);
    let Message::StartFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    assert_eq!(failure.detail.as_deref(), Some(detail));
}

#[test]
fn every_report_says_the_nodes_labels_and_resources_and_whose_they_are() {
    let mut world = World::with_features(features());
    world.advance(INTERVAL);
    let Some(Message::Ready(ready)) = world.sent.last() else {
        panic!("{:?}", world.sent)
    };
    let expected = features();
    let shares = Uuid::from_u128(8).to_string();
    let shared_by = vec![Uuid::from_u128(9).to_string()];
    assert_eq!(
        (&ready.labels, &ready.resources, &ready.shares),
        (&expected.labels, &expected.resources, &shares)
    );
    assert_eq!(ready.shared_by, shared_by);
    world.evacuate();
    let stats = world.stats();
    assert_eq!(
        (&stats.labels, &stats.resources, &stats.shares),
        (&expected.labels, &expected.resources, &shares)
    );
    assert_eq!(stats.shared_by, shared_by);
}

#[test]
fn a_node_that_says_nothing_more_reports_as_ever() {
    let stats = World::connected().stats();
    let text = String::from_utf8(stats.encode().to_vec()).unwrap();
    assert!(
        !["labels", "resources", "shares"]
            .iter()
            .any(|key| text.contains(key)),
        "{text}"
    );
}

#[test]
fn more_of_a_resource_than_is_left_is_refused_until_it_is_given_back() {
    let mut world = World::with_features(features());
    refused_as_full(&mut world, process_with("a", 5), "gpu: asks 5, 4 free");
    world.start(process_with("a", 3));
    world.forget_what_happened();
    refused_as_full(&mut world, process_with("b", 2), "gpu: asks 2, 1 free");
    world.start(process_with("b", 1));
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.delete("a", false);
    world.forget_what_happened();
    // It is being stopped and has them still.
    refused_as_full(&mut world, process_with("c", 1), "gpu: asks 1, 0 free");
    world.exits("a", 0);
    world.forget_what_happened();
    world.start(process_with("c", 3));
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
}

#[test]
fn what_a_node_does_not_have_fits_only_in_no_amount() {
    let mut world = World::connected();
    refused_as_full(&mut world, process_with("a", 1), "gpu: asks 1, 0 free");
    world.start(process_with("a", 0));
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
}

#[test]
fn resources_and_group_are_listed_and_survive_a_restart() {
    let mut world = World::with_features(features());
    world.start(process_with("a", 3));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    for restart in [false, true] {
        if restart {
            world.restart(|_| ProcessFate::Running);
            world.connect();
        }
        let instance = world.stats().instances.remove(0);
        let requested = instance.requested.unwrap();
        assert_eq!(requested.resources, [("gpu".to_owned(), 3)].into());
        assert_eq!(instance.group, "web");
        refused_as_full(&mut world, process_with("b", 2), "gpu: asks 2, 1 free");
    }
}

#[test]
fn a_restart_with_less_of_a_resource_leaves_none_free_and_takes_none_away() {
    let mut world = World::with_features(features());
    world.start(process_with("a", 3));
    world.features.resources = [("gpu".to_owned(), 1)].into();
    world.restart(|_| ProcessFate::Running);
    world.connect();
    world.sent.clear();
    refused_as_full(&mut world, process_with("b", 1), "gpu: asks 1, 0 free");
    assert_eq!(world.stats().instances.len(), 1);
}

#[test]
fn what_else_scheduling_says_was_the_schedulers_business() {
    let mut world = World::with_features(features());
    let start = "start:\n  instance_uuid: a\n  vm_type: process\n  command: [sleep, '9']\n  scheduling:\n    \
        version: 9\n    must_understand: [orbit]\n    orbit: {id: low}\n    require: [zone = b, node.load < 0]\n    \
        priority: 1000\n    group: {id: web, policy: orbital, turns: 3}\n    near: [{label: moon, hard: true}]\n";
    world.frame(Kind::START, start);
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
    assert_eq!(world.stats().instances[0].group, "web");
}

#[test]
fn a_negative_amount_is_refused_with_its_key() {
    let mut world = World::with_features(features());
    world.start(process_with("a", -1));
    let Message::StartFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    let detail = failure.detail.unwrap();
    assert_eq!(
        detail,
        "start.scheduling.resources.gpu: must not be negative, is -1"
    );
}

#[test]
fn a_new_connection_gets_stats_with_all_instances_though_a_sample_of_the_last_is_out() {
    let mut world = World::connected();
    world.running("a", 1);
    world.now += INTERVAL;
    world.agent.handle(world.now, Input::Tick);
    let asked = world.agent.poll_action();
    assert_eq!(asked, Some(Action::Machine(AgentAction::Sample)));
    world.agent.handle(world.now, Input::Disconnected);
    world.connect();
    world.nothing_else();
    let (host, usage) = (world.host.clone(), world.usage.clone());
    world.handle(Input::Sampled { host, usage });
    let [Message::Stats(stats), Message::Ready(_)] = world.sent.as_slice() else {
        panic!("{:?}", world.sent)
    };
    assert_eq!(stats.instances.len(), 1);
}
