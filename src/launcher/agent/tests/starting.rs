//! START: what is taken, what is refused and how, and what is reported of it.

use proto_frames::payload::Digest;

use super::*;

#[test]
fn a_new_connection_is_told_the_nodes_figures_at_once() {
    let mut world = World::disconnected();
    world.connect();
    let Message::Ready(ready) = world.sent.remove(1) else {
        panic!("READY comes second")
    };
    assert_eq!(
        (
            ready.mem_available_mb,
            ready.disk_available_mb,
            ready.cpus_online
        ),
        (1000, 10_000, 2)
    );
    assert_eq!(
        (ready.hostname.as_str(), ready.starts_seen),
        ("node-7", Some(0))
    );
    assert_eq!(world.kinds(), [Kind::STATS]);
}

#[test]
fn reports_come_at_the_interval_and_only_then() {
    let mut world = World::connected();
    world.advance(INTERVAL - Duration::from_millis(1));
    world.nothing_else();
    world.advance(Duration::from_millis(1));
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
}

#[test]
fn a_start_is_run_and_listed_as_pending_then_active_with_what_it_asked_for() {
    let mut world = World::connected();
    let mut start = process("a", 300);
    start.storage = vec![Storage {
        local: true,
        size: 2,
        ..Storage::default()
    }];
    world.start(start);
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert_eq!(
        (
            workload.instance.as_str(),
            workload.mem_mb,
            workload.command[0].as_str()
        ),
        ("a", 300, "sleep")
    );
    let stats = world.stats();
    assert_eq!(stats.starts_seen, Some(1));
    let [instance] = stats.instances.as_slice() else {
        panic!("{stats:?}")
    };
    assert_eq!(
        (&instance.state, instance.memory_usage_mb),
        (&InstanceState::Pending, -1)
    );
    let requested = instance.requested.clone().unwrap();
    assert_eq!(
        (requested.mem_mb, requested.vcpus, requested.disk_mb),
        (300, 1, 2048)
    );
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.usage.insert(
        "a".to_owned(),
        Usage {
            mem_mb: 12,
            disk_mb: 3,
            cpu_percent: 50,
        },
    );
    let instance = world.stats().instances.remove(0);
    assert_eq!(
        (&instance.state, instance.memory_usage_mb),
        (&InstanceState::Active, 12)
    );
    assert_eq!((instance.disk_usage_mb, instance.cpu_usage), (3, 50));
}

#[test]
fn a_change_is_reported_soon_and_a_burst_of_them_once() {
    let mut world = World::connected();
    world.advance(Duration::from_secs(1));
    world.start(process("a", 1));
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY]);
    world.start(process("b", 1));
    world.start(process("c", 1));
    world.advance(MIN_REPORT_GAP - Duration::from_millis(1));
    assert_eq!(world.kinds(), []);
    world.advance(Duration::from_millis(1));
    let Some(Message::Stats(stats)) = world.sent.first() else {
        panic!("{:?}", world.sent)
    };
    assert_eq!((stats.starts_seen, stats.instances.len()), (Some(3), 3));
}

#[test]
fn starts_seen_begins_again_with_each_connection() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.handle(Input::Disconnected);
    world.connect();
    assert_eq!(world.stats().starts_seen, Some(0));
}

#[test]
fn more_than_there_is_is_refused_with_what_lacks() {
    let mut world = World::connected();
    world.start(process("a", 1001));
    let Message::StartFailure(failure) = world.answer() else {
        panic!()
    };
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    assert_eq!(failure.node_uuid, world.node.to_string());
    assert_eq!(
        failure.detail.as_deref(),
        Some("mem_mb: asks 1001, 1000 free")
    );
    let mut start = process("a", 1);
    start.requirements.vcpus = 5;
    world.start(start);
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    let mut start = process("a", 1);
    start.storage = vec![Storage {
        local: true,
        size: 10,
        ..Storage::default()
    }];
    world.start(start);
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    assert!(world.orders().is_empty() && world.records.is_empty());
    assert_eq!(world.stats().starts_seen, Some(3));
}

#[test]
fn what_is_allotted_is_held_whether_or_not_it_is_used() {
    let mut world = World::connected();
    world.running("a", 700);
    world.start(process("b", 301));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    // It now uses 600, which the machine's own figure shows: nothing changes.
    world.usage.insert(
        "a".to_owned(),
        Usage {
            mem_mb: 600,
            disk_mb: 0,
            cpu_percent: 0,
        },
    );
    world.host.mem_available_mb = 400;
    world.advance(INTERVAL);
    world.forget_what_happened();
    world.start(process("b", 301));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    world.running("b", 300);
    assert_eq!(world.records.len(), 2);
}

#[test]
fn a_full_node_says_its_figures_once_on_a_new_connection() {
    let mut world = World::connected();
    world.running("a", 1000);
    world.handle(Input::Disconnected);
    world.connect();
    assert_eq!(world.kinds(), [Kind::STATS, Kind::READY, Kind::FULL]);
    world.advance(INTERVAL);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::FULL]);
}

#[test]
fn a_node_without_room_for_anything_is_full_until_there_is() {
    let mut world = World::connected();
    world.running("a", 1000);
    world.advance(INTERVAL);
    assert_eq!(world.kinds(), [Kind::STATS, Kind::FULL]);
    world.exits("a", 0);
    world.advance(MIN_REPORT_GAP);
    assert_eq!(
        world.kinds(),
        [Kind::INSTANCE_STOPPED, Kind::STATS, Kind::READY]
    );
}

#[test]
fn figures_that_are_unknown_fit_nothing() {
    let mut world = World::disconnected();
    world.host.mem_available_mb = -1;
    world.connect();
    world.sent.clear();
    world.start(process("a", 1));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
}

#[test]
fn memory_and_disk_are_not_limited_where_the_cluster_says_so() {
    let mut world = World::disconnected();
    let configuration =
        Bytes::from("configure:\n  launcher:\n    mem_limit: false\n    disk_limit: false\n");
    world.handle(Input::Connected {
        configuration,
        records_ends: false,
    });
    let mut start = process("a", 5000);
    start.storage = vec![Storage {
        local: true,
        size: 100,
        ..Storage::default()
    }];
    world.start(start);
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
    world.handle(Input::Disconnected);
    world.connect();
    world.sent.clear();
    world.start(process("b", 5000));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
}

#[test]
fn an_instance_that_is_there_is_not_started_again() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.forget_what_happened();
    world.start(process("a", 1));
    assert_eq!(world.refusal(), StartFailureReason::AlreadyRunning);
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.start(process("a", 1));
    assert_eq!(world.refusal(), StartFailureReason::AlreadyRunning);
    world.delete("a", false);
    world.start(process("a", 1));
    assert_eq!(world.refusal(), StartFailureReason::InstanceExists);
    assert_eq!(world.stats().instances.len(), 1);
}

#[test]
fn what_this_node_cannot_run_is_invalid_data_with_the_key() {
    let mut world = World::connected();
    type Spoil = fn(&mut Start);
    let spoil: [(&str, Spoil); 6] = [
        ("vm_type", |start| start.vm_type = "qemu".to_owned()),
        ("command", |start| start.command.clear()),
        ("command", |start| start.command[0] = String::new()),
        ("command", |start| start.command.push("\0".to_owned())),
        ("env", |start| {
            drop(start.env.insert("A=B".to_owned(), String::new()))
        }),
        ("instance_uuid", |start| {
            start.instance_uuid = "../../etc".to_owned()
        }),
    ];
    for (key, spoil) in spoil {
        let mut start = process("a", 1);
        start.restart = true;
        spoil(&mut start);
        world.start(start);
        let Message::StartFailure(failure) = world.answer() else {
            panic!()
        };
        assert_eq!(
            (&failure.reason, failure.restart),
            (&StartFailureReason::InvalidData, true)
        );
        assert!(
            failure
                .detail
                .as_ref()
                .unwrap()
                .starts_with(&format!("start.{key}")),
            "{failure:?}"
        );
    }
    assert!(world.orders().is_empty());
}

#[test]
fn a_simulated_machine_runs_anything() {
    let mut world = World::disconnected();
    world.agent = Agent::new(Settings {
        runs: Runs::Anything,
        ..settings(world.node)
    });
    world.connect();
    world.start(Start {
        vm_type: "qemu".to_owned(),
        command: Vec::new(),
        ..process("a", 1)
    });
    assert!(matches!(world.orders().as_slice(), [AgentAction::Spawn(_)]));
}

#[test]
fn a_start_that_cannot_be_read_is_answered_and_counted() {
    let mut world = World::connected();
    world.frame(Kind::START, "start: [");
    assert_eq!(world.refusal(), StartFailureReason::InvalidPayload);
    world.frame(Kind::START, "start:\n  requirements:\n    mem_mb: 1\n");
    assert_eq!(world.refusal(), StartFailureReason::InvalidData);
    assert_eq!(world.stats().starts_seen, Some(2));
}

#[test]
fn a_start_with_overrides_before_it_asks_for_what_these_say_also_after_a_restart_of_the_launcher() {
    let mut world = World::connected();
    world.frame(
        Kind::START,
        "overrides:\n  restart: true\n  mem_mb: 700\n  vcpus: 2\n  disk_gb: 3\n  resources: {}\n...\nstart:\n  \
        instance_uuid: a\n  vm_type: process\n  command: [sleep, '9']\n  requirements: {mem_mb: 50, vcpus: 1}\n  \
        scheduling: {resources: {gpu: 1}}\n  overrides: {mem_mb: 1}\n...\noverrides: {mem_mb: 1}\n",
    );
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert_eq!((workload.mem_mb, workload.vcpus), (700, 2));
    assert!(world.records["a"].restart);
    for _ in 0..2 {
        let requested = world.stats().instances.remove(0).requested.unwrap();
        let amounts = (requested.mem_mb, requested.vcpus, requested.disk_mb);
        assert_eq!(amounts, (700, 2, 3072));
        assert_eq!(requested.resources.values().sum::<i64>(), 0);
        world.start(process("b", 301));
        assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
        world.restart(|_| ProcessFate::Running);
        world.connect();
        world.sent.clear();
    }
}

#[test]
fn bad_overrides_refuse_their_start_and_name_the_key() {
    let mut world = World::connected();
    for (payload, reason, key) in [
        (
            "overrides:\n  mem_mb: many\n...\nstart:\n  instance_uuid: a\n",
            StartFailureReason::InvalidPayload,
            "overrides.mem_mb, line 2 column 11",
        ),
        (
            "overrides:\n  vcpus: -1\n...\nstart:\n  instance_uuid: a\n",
            StartFailureReason::InvalidData,
            "overrides.vcpus, line 2 column 10",
        ),
        (
            "overrides:\n  vcpus: 1\n",
            StartFailureReason::InvalidPayload,
            "the payload is empty",
        ),
    ] {
        world.frame(Kind::START, payload);
        let Message::StartFailure(failure) = world.answer() else {
            panic!()
        };
        assert_eq!(failure.reason, reason);
        let detail = failure.detail.unwrap();
        assert!(detail.starts_with(key), "{detail}");
    }
    assert_eq!(world.stats().starts_seen, Some(3));
}

#[test]
fn overrides_that_a_controller_wrote_beside_its_start_change_nothing() {
    let mut world = World::connected();
    world.frame(
        Kind::START,
        "overrides:\n  mem_mb: 1\nstart:\n  instance_uuid: a\n  vm_type: process\n  command: [sleep, '9']\n  \
        requirements: {mem_mb: 50}\n...\nstart:\n  instance_uuid: b\n",
    );
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert_eq!((&*workload.instance, workload.mem_mb), ("a", 50));
}

#[test]
fn a_program_that_cannot_run_is_reported_with_whose_fault_it_is() {
    let mut world = World::connected();
    for (fault, reason) in [
        (LaunchFault::Image, StartFailureReason::ImageFailure),
        (LaunchFault::Launch, StartFailureReason::LaunchFailure),
    ] {
        world.start(process("a", 1));
        world.sent.clear();
        let detail = "no such file".to_owned();
        world.handle(Input::StartFailed {
            instance: "a".to_owned(),
            fault,
            detail,
        });
        let Message::StartFailure(failure) = world.answer() else {
            panic!()
        };
        assert_eq!(
            (failure.reason, failure.detail.as_deref()),
            (reason, Some("no such file"))
        );
        world.advance(INTERVAL);
        assert!(world.records.is_empty(), "it counts as heard");
        world.sent.clear();
    }
    assert!(world.stats().instances.is_empty());
}

#[test]
fn a_failure_that_may_be_lost_ends_in_that_the_instance_is_gone() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.handle(Input::StartFailed {
        instance: "a".to_owned(),
        fault: LaunchFault::Launch,
        detail: String::new(),
    });
    world.handle(Input::Disconnected);
    world.sent.clear();
    world.connect();
    // Not the failure again: one START fails once.
    assert_eq!(world.kinds()[0], Kind::INSTANCE_STOPPED);
    world.advance(INTERVAL);
    assert!(world.records.is_empty());
}

#[test]
fn an_image_is_a_program_of_its_own_and_its_instance_can_be_given_up_while_it_is_fetched() {
    let mut world = World::connected();
    let digest = format!("sha256:{}", "ab".repeat(32));
    let mut start = process("a", 1);
    start.image.clone_from(&digest);
    start.command.clear();
    world.start(start);
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    let images: Vec<String> = workload.images.iter().map(ToString::to_string).collect();
    assert_eq!(images, std::slice::from_ref(&digest));
    assert_eq!(world.records["a"].image, digest);
    assert_eq!(world.records["a"].about.program, "sha256_abababababab");
    world.delete("a", false);
    assert_eq!(world.orders(), [AgentAction::Abandon("a".to_owned())]);
    let mut without = process("b", 1);
    without.command.clear();
    world.start(without);
    assert_eq!(world.refusal(), StartFailureReason::InvalidData);
}

#[test]
fn further_images_are_known_from_the_record_of_an_earlier_launcher() {
    let mut world = World::connected();
    let digests = ["ab", "cd", "ef"].map(|it| format!("sha256:{}", it.repeat(32)));
    let mut start = process("a", 1);
    let [program, more @ ..] = &digests;
    start.image.clone_from(program);
    start.more_images = more.to_vec();
    world.start(start);
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    let images = |images: Vec<Digest>| images.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(images(workload.images.clone()), digests);
    let record = &world.records["a"];
    assert_eq!(&record.image, program);
    assert_eq!(record.more_images, more);
    let text = serde_json::to_string(record).unwrap();
    let read: InstanceRecord = serde_json::from_str(&text).unwrap();
    assert_eq!(images(read.images()), digests);
    world.restart(|_| ProcessFate::Running);
    // Whatever is written of it later has them too.
    world.delete("a", false);
    assert_eq!(images(world.records["a"].images()), digests);
}

#[test]
fn images_on_the_node_are_labels_of_it_as_far_as_there_is_room() {
    let mut world = World::connected();
    world.handle(Input::Images(vec!["sha256_a".to_owned()]));
    assert_eq!(world.stats().labels["image.sha256_a"], "cached");
    let many = (0..100).map(|number| format!("sha256_{number}")).collect();
    world.handle(Input::Images(many));
    assert_eq!(world.stats().labels.len(), 64);
    world.handle(Input::Images(Vec::new()));
    assert!(world.stats().labels.is_empty());
}
