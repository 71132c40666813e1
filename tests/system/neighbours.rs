//! What users of Funky, a scheduler of unikernels, and of RIK, one of containers, would miss or were hurt by there: one
//! test for each. The systems themselves are not needed for it.

use proto_frames::payload::{
    Delete, InstanceStateEvent, InstanceStopped, Payload, PhaseName, Stats,
};
use proto_frames::{Encoding, Kind, Role};
use rustix::process::{Pid, Signal, kill_process};

use crate::certs::TestCa;
use crate::program::{Program, runs, stands_still};
use crate::site::output;
use crate::world::{Cluster, Look, until};

/// Priorities as Funky has them.
const LOW: &str = "--mem 16 --cpus 4 --priority 25 --wait=running";
const HIGH: &str = "--mem 16 --cpus 4 --priority 75 --wait=running";

#[tokio::test]
async fn funky_an_evicted_low_task_does_not_resume_before_a_high_one_that_waits() {
    let cluster = Cluster::new(&["node-a"]).await;
    let [low, first, second] = ["low", "first", "second"].map(|it| Program::new(&cluster, it));
    let low_id = cluster.run(LOW, &low.script).await;
    let (process, _) = low.runs(1).await;
    let first_id = cluster.run(HIGH, &first.script).await;
    let queued = "--mem 16 --cpus 4 --priority 75 --queue 10m";
    let second_id = cluster.run(queued, &second.script).await;
    assert_eq!(cluster.queue().await, [&*second_id, &low_id]);
    cluster.ctl(&format!("delete --wait {first_id}")).await;
    second.runs(1).await;
    cluster.until(&second_id, "running").await;
    let states = cluster.states(&low_id).await;
    assert_eq!(states.last().map(String::as_str), Some("suspended"));
    stands_still(process).await;
    cluster.ctl(&format!("delete --wait {second_id}")).await;
    low.beats().await;
    low.runs(1).await;
}

#[tokio::test]
async fn funky_a_move_is_commanded_at_its_node_whatever_node_is_named_as_such() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    let (process, from) = program.runs(1).await;
    let target = cluster.node("node-b").await.unwrap().node_uuid;
    let mut client = cluster.client().await;
    let migrate = proto_frames::payload::Migrate {
        instance_uuid: id.clone(),
        workload_agent_uuid: target.clone(),
        target_node_uuid: target.clone(),
        ..Default::default()
    };
    let order = ciao_scheduler::ctl::client::LifecycleOrder::Migrate(migrate);
    let taken = client.order(&order).await;
    if taken.is_ok() {
        let mut look = Look::new();
        // Moved, or refused because that is not where it is; never begun there while it runs here.
        while program.begun().len() < 2 && client.kept_event().is_none() {
            if cluster.states(&id).await.len() == 2 {
                break;
            }
            look.again(|| "it is neither moved nor refused".to_owned())
                .await;
        }
    }
    let moved = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    let view = cluster.until(&id, "running").await;
    assert_eq!(view.node_uuid, target, "{moved:?}");
    assert!(!runs(process));
    assert_ne!(program.runs(2).await.1, from);
}

#[tokio::test]
async fn funky_moving_a_queued_task_only_says_where_it_is_to_run() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let mut taken = Vec::new();
    for node in ["node-a", "node-b"] {
        let options = format!("{HIGH} --node {node}");
        taken.push(cluster.run(&options, "exec sleep 600").await);
    }
    let program = Program::new(&cluster, "program");
    let queued = "--mem 16 --cpus 1 --queue 10m --priority 25";
    let id = cluster.run(queued, &program.script).await;
    let pinned = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    assert_eq!(pinned.code, Some(0), "{pinned:?}");
    cluster.ctl(&format!("delete --wait {}", taken[0])).await;
    cluster.ready(&["node-a"]).await;
    assert_eq!(cluster.queue().await, [&*id], "not there");
    cluster.ctl(&format!("delete --wait {}", taken[1])).await;
    program.runs(1).await;
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
}

#[tokio::test]
async fn funky_moving_onto_a_node_that_runs_a_low_task_does_not_lose_that() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let [low, high] = ["low", "high"].map(|it| Program::new(&cluster, it));
    let there = format!("{LOW} --prefer node.hostname=node-b");
    let low_id = cluster.run(&there, &low.script).await;
    let here = format!("{HIGH} --prefer node.hostname=node-a");
    let high_id = cluster.run(&here, &high.script).await;
    low.runs(1).await;
    let moved = cluster.ctl(&format!("migrate --to node-b {high_id}")).await;
    assert!(matches!(moved.code, Some(0 | 1)), "{moved:?}");
    cluster.until(&high_id, "running").await;
    high.beats().await;
    assert!(cluster.instance(&low_id).await.is_some());
    cluster.ctl(&format!("delete --wait {high_id}")).await;
    low.beats().await;
    cluster.until(&low_id, "running").await;
}

#[tokio::test]
async fn funky_a_missing_binary_does_not_throw_the_node_out() {
    let cluster = Cluster::new(&["node-a"]).await;
    for _ in 0..3 {
        let failed = cluster
            .ctl("run --mem 16 --cpus 1 --wait -- /no/such/binary")
            .await;
        assert_eq!(failed.code, Some(1), "{failed:?}");
        assert!(failed.out.contains("image_failure"), "{failed:?}");
    }
    let ran = cluster.ctl("run --mem 16 --cpus 1 --wait -- true").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cluster.node("node-a").await.unwrap().failures, "");
}

#[tokio::test]
async fn funky_thirty_commands_at_a_time_all_arrive() {
    const COMMANDS: usize = 30;
    let mut cluster = Cluster::new(&[]).await;
    cluster.launch("node-a", &["--cpus", "8"]);
    cluster.ready(&["node-a"]).await;
    let mark = cluster.site.path("begun");
    let script = format!("echo $CIAO_INSTANCE_UUID >>{}", mark.display());
    let line = "run --quiet --mem 16 --cpus 1 --queue 10m -- /bin/sh -c";
    let mut arguments: Vec<&str> = line.split_ascii_whitespace().collect();
    arguments.push(&script);
    let commands: Vec<_> = (0..COMMANDS)
        .map(|_| tokio::spawn(output(cluster.command(&arguments))))
        .collect();
    let mut ids = Vec::new();
    for command in commands {
        let ran = command.await.unwrap();
        assert!(ran.status.success(), "{ran:?}");
        ids.push(String::from_utf8(ran.stdout).unwrap().trim().to_owned());
    }
    let begun = || {
        let text = std::fs::read_to_string(&mark).unwrap_or_default();
        let mut begun: Vec<String> = text.lines().map(str::to_owned).collect();
        begun.sort_unstable();
        begun
    };
    until("all of them", || begun().len() >= COMMANDS).await;
    ids.sort_unstable();
    assert_eq!(begun(), ids);
}

#[tokio::test]
async fn funky_a_restart_soon_after_a_stop_has_its_port_and_its_nodes() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    for _ in 0..3 {
        cluster.crash_scheduler().await;
        cluster.ready(&["node-a"]).await;
    }
    let ran = cluster.ctl("run --mem 16 --cpus 1 --wait -- true").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[tokio::test]
async fn funky_what_runs_and_what_waits_survives_a_restart() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let [high, low] = ["high", "low"].map(|it| Program::new(&cluster, it));
    let id = cluster.run(HIGH, &high.script).await;
    let queued = "--mem 16 --cpus 4 --priority 25 --queue 10m";
    let waiting = cluster.run(queued, &low.script).await;
    cluster.crash_scheduler().await;
    cluster.until(&id, "running").await;
    assert_eq!(cluster.queue().await, [&*waiting]);
    cluster.ctl(&format!("delete --wait {id}")).await;
    low.runs(1).await;
    high.runs(1).await;
}

#[tokio::test]
async fn rik_workers_register_by_their_certificate_and_leave_again() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    // One with another authority's certificate is not let in.
    let stranger = TestCa::new();
    let dialer = cluster
        .site
        .dialer(cluster.scheduler(), Role::AGENT, Encoding::Native);
    let forged = crate::peer::Dialer {
        tls: stranger.client(Role::AGENT),
        ..dialer
    };
    assert!(forged.tls().await.is_err());
    cluster.launch("node-b", &[]);
    cluster.ready(&["node-a", "node-b"]).await;
    cluster.signal_launcher("node-b", Signal::TERM);
    let mut look = Look::new();
    while cluster.node("node-b").await.is_some() {
        look.again(|| "node-b does not leave".to_owned()).await;
    }
    cluster.ready(&["node-a"]).await;
}

#[tokio::test]
async fn rik_a_workload_goes_where_it_fits_and_what_fits_nowhere_is_refused_with_the_reason() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    cluster.launch("node-b", &["--mem", "1500"]);
    cluster.ready(&["node-a", "node-b"]).await;
    let line = "run --mem 1400 --cpus 1 --wait=running -- sleep 600";
    let ran = cluster.ctl(line).await;
    assert!(ran.out.contains("running on node-b"), "{ran:?}");
    let can = cluster.ctl("explain --mem 900 --cpus 1").await;
    assert!(can.out.contains("would go to node-a"), "{can:?}");
    let ran = cluster.ctl("run --mem 9000 --cpus 1 -- true").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("2 short of memory"), "{ran:?}");
    assert!(ran.out.contains("waiting will not help"), "{ran:?}");
}

#[tokio::test]
async fn rik_an_unschedule_goes_to_the_worker_that_has_the_workload() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    let (process, _) = program.runs(1).await;
    let wrong = cluster.node("node-b").await.unwrap().node_uuid;
    let client = cluster.client().await;
    let delete = Delete {
        instance_uuid: id.clone(),
        workload_agent_uuid: wrong,
        stop: false,
        ..Delete::default()
    };
    client.delete(&delete).await.unwrap();
    until("its end", || !runs(process)).await;
    cluster.until_gone(&id).await;
}

#[tokio::test]
async fn rik_a_running_workload_is_updated() {
    let cluster = Cluster::new(&["node-a"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running";
    let id = cluster.run(options, &program.script).await;
    let (process, _) = program.runs(1).await;
    let ran = cluster.ctl(&format!("update {id} --mem-mb 64")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(cluster.until(&id, "running").await.mem_mb, 64);
    assert!(runs(process));
    program.runs(1).await;
}

#[tokio::test]
async fn rik_replicas_are_spread_over_workers() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let line = "run --mem 16 --cpus 1 --count 2 --group web --group-policy anti-affinity \
                --wait=running --quiet -- sleep 600";
    let ran = cluster.ctl(line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut hosts = Vec::new();
    for id in ran.out.lines() {
        hosts.push(cluster.until(id, "running").await.hostname);
    }
    hosts.sort_unstable();
    assert_eq!(hosts, ["node-a", "node-b"]);
    let third = line.replace("--count 2", "");
    assert_eq!(cluster.ctl(&third).await.code, Some(1));
}

#[tokio::test]
async fn rik_figures_and_ends_reach_every_controller_with_the_workers_identity() {
    let cluster = Cluster::new(&["node-a"]).await;
    let daemon = cluster.scheduler();
    let mut controllers = Vec::new();
    for _ in 0..2 {
        let dialer = cluster
            .site
            .dialer(daemon, Role::CONTROLLER, Encoding::Native);
        controllers.push(dialer.connect().await);
    }
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running";
    let id = cluster.run(options, &program.script).await;
    let (process, node) = program.runs(1).await;
    for controller in &mut controllers {
        loop {
            let event = controller.skip_to(Kind::INSTANCE_STATE).await;
            let event = InstanceStateEvent::decode(&event.payload).unwrap();
            if event.state == PhaseName::Running {
                assert_eq!(
                    (event.instance_uuid, event.node_uuid),
                    (id.clone(), node.clone())
                );
                break;
            }
        }
        loop {
            let frame = controller.skip_to(Kind::STATS).await;
            let stats = Stats::decode(&frame.payload).unwrap();
            assert_eq!((&*stats.node_uuid, &*stats.hostname), (&*node, "node-a"));
            assert!(stats.mem_total_mb > 0 && stats.cpus_online == 1);
            if stats.instances.iter().any(|it| it.instance_uuid == id) {
                break;
            }
        }
    }
    // Its end was not asked for.
    kill_process(Pid::from_raw(process).unwrap(), Signal::KILL).unwrap();
    for controller in &mut controllers {
        let frame = controller.skip_to(Kind::INSTANCE_STOPPED).await;
        let stopped = InstanceStopped::decode(&frame.payload).unwrap();
        assert_eq!(
            (stopped.instance_uuid, stopped.exit_code),
            (id.clone(), Some(-9))
        );
    }
    cluster.until_gone(&id).await;
}

#[tokio::test]
async fn rik_workers_work_on_while_the_scheduler_is_gone_and_it_learns_again_what_they_do() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let programs = ["one", "two", "three"].map(|it| Program::new(&cluster, it));
    let mut ids = Vec::new();
    for program in &programs {
        ids.push(
            cluster
                .run("--mem 16 --cpus 1 --wait=running", &program.script)
                .await,
        );
    }
    cluster.kill_scheduler().await;
    for program in &programs {
        program.beats().await;
    }
    cluster.start_scheduler().await;
    for (program, id) in programs.iter().zip(&ids) {
        let (process, node) = program.runs(1).await;
        assert_eq!(cluster.until(id, "running").await.node_uuid, node);
        let deleted = cluster.ctl(&format!("delete --wait {id}")).await;
        assert_eq!(deleted.code, Some(0), "{deleted:?}");
        assert!(!runs(process));
    }
}

#[tokio::test]
async fn rik_a_workload_whose_worker_is_lost_is_placed_again() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running --on-node-loss restart \
                   --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    program.runs(1).await;
    cluster.kill_launcher("node-a").await;
    program.runs(2).await;
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
}
