//! Workloads as real processes: how they begin, what they are given, what they may take, how they end.

use proto_frames::payload::{InstanceStopped, Payload, Start, StartFailureReason, TraceReport};
use proto_frames::{Frame, Kind, Message, Role, Timestamp, Trace, TraceNode, Uuid};

use crate::world::{World, runs, shell, supervisor, until};

#[tokio::test]
async fn a_process_runs_with_its_output_in_a_file_and_its_exit_code_reported() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell(
        "a",
        "echo to standard output; echo to standard error >&2; exit 7",
    )
    .await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(7)));
    assert_eq!(world.output("a"), "to standard output\nto standard error\n");
}

#[tokio::test]
async fn a_supervisor_that_is_replaced_while_the_launcher_runs_is_still_the_one_it_began_with() {
    let world = World::new().await;
    let program = world.path("ciao-supervisor");
    std::fs::copy(env!("CARGO_BIN_EXE_ciao-supervisor"), &program).unwrap();
    let flag = format!("-supervisor={}", program.display());
    let _launcher = world.launch(&[&flag]);
    let mut peer = world.accept().await;
    // As an upgrade does it: another file in its place.
    let next = world.path("next");
    std::fs::copy("/bin/false", &next).unwrap();
    std::fs::rename(&next, &program).unwrap();
    peer.shell("a", "echo it runs; exit 7").await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(7)));
    assert_eq!(world.output("a"), "it runs\n");
}

#[tokio::test]
async fn what_a_run_used_is_reported_with_its_end() {
    let (_world, _launcher, mut peer) = World::connected(&[]).await;
    // A processor for as long as the shell itself counts 0.2 s, 32 MiB in a child that is gone, and 12 bytes.
    let script = "head -c 33554432 /dev/zero | tail -n 1 > /dev/null; \
                  while [ $(awk '{print $14 + $15}' /proc/$$/stat) -lt 20 ]; do :; done; echo twelve bytes";
    peer.shell("a", script).await;
    let frame = peer.answer().await;
    let stopped = InstanceStopped::decode(&frame.payload).unwrap();
    assert_eq!(stopped.exit_code, Some(0));
    let facts = stopped.facts.unwrap();
    assert!(facts.cpu_ms >= Some(200), "{facts:?}");
    assert!(facts.ran_ms >= Some(200), "{facts:?}");
    assert!(facts.peak_kib >= Some(32 * 1024), "{facts:?}");
    assert_eq!(facts.output_bytes, Some(13));
    assert_eq!((facts.why.as_str(), facts.restarts), ("", 0));
}

#[tokio::test]
async fn a_process_that_a_signal_ends_is_reported_with_minus_the_signal() {
    let (_world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "kill -USR2 $$").await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(-12)));
}

#[tokio::test]
async fn a_process_and_its_supervisor_get_only_a_few_variables_of_the_launchers() {
    let world = World::new().await;
    let mut command = world.command(&[]);
    command.env("LANG", "C").env("SECRET_OF_THE_LAUNCHER", "x");
    let _launcher = tokio::task::spawn_blocking(move || command.spawn())
        .await
        .unwrap()
        .map(Guard)
        .unwrap();
    let mut peer = world.accept().await;
    let mut start = shell("a", "pwd; env | sort; tr '\\0' '\\n' < /proc/$PPID/environ");
    start
        .env
        .insert("GREETING".to_owned(), "hello = world".to_owned());
    start.working_dir = "/usr".to_owned();
    start.tenant_uuid = "t".to_owned();
    peer.start(&start).await;
    assert_eq!(peer.stopped().await.1, Some(0));
    let output = world.output("a");
    assert!(output.starts_with("/usr\n"), "{output}");
    let node = format!("CIAO_NODE_UUID={}", peer.connect.source);
    for variable in [
        "GREETING=hello = world",
        "LANG=C",
        "CIAO_INSTANCE_UUID=a",
        "CIAO_TENANT_UUID=t",
        &node,
    ] {
        assert!(
            output.lines().any(|line| line == variable),
            "{variable}: {output}"
        );
    }
    assert!(!output.contains("SECRET_OF_THE_LAUNCHER"), "{output}");
    let path = output.lines().filter(|line| line.starts_with("PATH="));
    assert_eq!(path.count(), 2, "{output}");
}

struct Guard(std::process::Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_program_that_is_not_there_or_not_executable_is_the_images_fault() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    let text = world.path("text");
    std::fs::write(&text, "no program").unwrap();
    for program in [
        "/no/such/program",
        "no-such-program",
        text.to_str().unwrap(),
    ] {
        peer.start(&Start {
            command: vec![program.to_owned()],
            ..shell("a", "")
        })
        .await;
        let failure = peer.failure().await;
        assert_eq!(
            failure.reason,
            StartFailureReason::ImageFailure,
            "{failure:?}"
        );
        assert!(
            failure.detail.as_ref().unwrap().contains(program),
            "{failure:?}"
        );
    }
    peer.start(&Start {
        working_dir: "/no/such/dir".to_owned(),
        ..shell("a", "")
    })
    .await;
    let failure = peer.failure().await;
    assert_eq!(failure.reason, StartFailureReason::LaunchFailure);
    assert!(failure.detail.unwrap().contains("/no/such/dir"));
    peer.stats(|stats| stats.starts_seen == Some(4) && stats.instances.is_empty())
        .await;
}

#[tokio::test]
async fn memory_beyond_what_was_asked_for_is_not_to_be_had() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    // tail has to keep what has no line end.
    let script = "head -c $1 /dev/zero | tail -n 1 | wc -c";
    for (id, bytes, fits) in [("small", "20000000", true), ("large", "200000000", false)] {
        let mut start = shell(id, script);
        start.command.extend(["sh".to_owned(), bytes.to_owned()]);
        peer.start(&start).await;
        assert_eq!(peer.stopped().await.0, id);
        let output = world.output(id);
        assert_eq!(
            output.lines().any(|line| line.trim() == bytes),
            fits,
            "{output}"
        );
    }
}

#[tokio::test]
async fn a_running_process_is_listed_with_what_it_asked_for_and_what_it_uses() {
    let (_world, _launcher, mut peer) = World::connected(&[]).await;
    // A shell variable of 20 MB.
    peer.shell(
        "a",
        "x=$(head -c 20000000 /dev/zero | tr '\\0' x); while :; do :; done",
    )
    .await;
    let busy =
        |it: &proto_frames::payload::InstanceStat| it.memory_usage_mb >= 20 && it.cpu_usage > 0;
    let stats = peer.stats(|stats| stats.instances.iter().any(busy)).await;
    let requested = stats.instances[0].requested.clone().unwrap();
    assert_eq!(
        (requested.mem_mb, requested.vcpus, requested.disk_mb),
        (64, 1, 0)
    );
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(-15)));
}

#[tokio::test]
async fn delete_ends_children_that_ignore_the_request_and_those_that_left_the_group() {
    let (world, _launcher, mut peer) = World::connected(&["-stop-grace=300ms"]).await;
    let script = "(trap '' TERM; sh -c 'echo $PPID'; sleep 1000) & \
        setsid sh -c 'trap \"\" TERM; echo $$; sleep 1000' & \
        echo $$; wait; sleep 1000";
    peer.shell("a", script).await;
    let pids = world.pids("a", 3).await;
    assert!(pids.iter().all(|pid| runs(*pid)));
    let supervisor = supervisor(&world.state_dir(), "a");
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(-15)));
    assert!(
        !pids.iter().any(|pid| runs(*pid)),
        "nothing is left when the end is reported"
    );
    until("the supervisor's end", || !runs(supervisor)).await;
    peer.stats(|stats| stats.instances.is_empty()).await;
    assert!(!world.state_dir().join("instances/a/output.log").exists());
}

#[tokio::test]
async fn a_process_may_take_its_time_to_end_within_the_grace() {
    let (world, _launcher, mut peer) = World::connected(&["-stop-grace=50s"]).await;
    let script =
        "trap 'echo cleaning; sleep 0.2; exit 5' TERM; echo $$; while :; do sleep 0.05; done";
    peer.shell("a", script).await;
    world.pids("a", 1).await;
    peer.delete("a", true).await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(5)));
}

#[tokio::test]
async fn what_a_main_process_leaves_behind_ends_with_it() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "setsid sh -c 'echo $$; sleep 1000' & while ! [ -s ../output.log ]; do sleep 0.02; done; exit 3").await;
    let pids = world.pids("a", 1).await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(3)));
    assert!(!runs(pids[0]));
}

#[tokio::test]
async fn a_burst_of_starts_all_run_and_more_than_there_is_is_refused() {
    let (_world, _launcher, mut peer) =
        World::connected(&["-mem=640", "-cpus=2", "-cpu-ratio=100"]).await;
    for number in 0..20 {
        let mut start = shell(&format!("i{number}"), "exec sleep 1000");
        start.requirements.mem_mb = 32;
        peer.start(&start).await;
    }
    peer.stats(|stats| {
        stats
            .instances
            .iter()
            .filter(|it| it.state.as_str() == "active")
            .count()
            == 20
    })
    .await;
    peer.next(&[Kind::FULL]).await;
    peer.shell("more", "exit 0").await;
    assert_eq!(
        peer.failure().await.reason,
        StartFailureReason::FullComputeNode
    );
    let workload_agent_uuid = peer.connect.source.to_string();
    let evacuate = proto_frames::payload::Evacuate {
        workload_agent_uuid,
        ..Default::default()
    };
    peer.send(Kind::EVACUATE, evacuate.encode()).await;
    for _ in 0..20 {
        assert_eq!(peer.stopped().await.1, Some(-15));
    }
    peer.stats(|stats| stats.status == "MAINTENANCE" && stats.instances.is_empty())
        .await;
}

#[tokio::test]
async fn a_traced_start_is_answered_with_the_way_it_took() {
    let (_world, _launcher, mut peer) = World::connected(&[]).await;
    let scheduler = TraceNode {
        uuid: Uuid::from_u128(9),
        role: Role::SCHEDULER,
        tx: Timestamp::from_unix_ns(2_000_000_000),
        rx: Timestamp::from_unix_ns(1_000_000_000),
    };
    let start = shell("a", "exec sleep 1000").encode();
    let mut frame = Frame::new(Kind::START, Uuid::from_u128(9), start);
    frame.trace = Some(Box::new(Trace {
        label: "mine".into(),
        path: Some(vec![scheduler]),
        ..Trace::default()
    }));
    peer.send_message(Message::Frame(frame)).await;
    let report = peer.next(&[Kind::TRACE_REPORT]).await;
    let report = TraceReport::decode(&report.payload).unwrap();
    let [traced] = &report.frames[..] else {
        panic!("{report:?}")
    };
    assert_eq!((&*traced.label, &*traced.operand), ("mine", "START"));
    let roles: Vec<&str> = traced.nodes.iter().map(|it| &*it.ssntp_role).collect();
    assert_eq!(roles, ["Scheduler", "CNAgent"]);
    let node = peer.connect.source.to_string();
    assert_eq!(traced.nodes[1].ssntp_node_uuid, node);
}
