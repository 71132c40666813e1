//! `load`: that its account of a run is true, whatever the scheduler does with the STARTs.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use proto_frames::payload::{
    InstanceView, NodeView, Payload, PlacementState, QueryKind, Ready, Scheduling, Span, Start,
    StartFailure, StartFailureReason, Stats,
};
use proto_frames::{Frame, Kind, Role};

use crate::scheduler::{Peers, Ran, Scheduler, answer, ciaoctl, instance, node};
use crate::site::{Site, output};
use crate::words::{instance as instance_number, start_of};

/// Forwards launchers' STATS to the driver, and STARTs to the launchers in turn, except that `fate` decides otherwise.
fn broker(
    fate: impl Fn(usize) -> Fate + Send + 'static,
) -> impl FnMut(&mut Peers, usize, &Frame) + Send + 'static {
    let mut starts = 0;
    move |peers, from, frame| match frame.kind {
        Kind::QUERY => vacant(peers, from, frame),
        Kind::STATS => {
            for driver in [peers.with(Role::OPERATOR), peers.with(Role::CONTROLLER)].concat() {
                peers.send(driver, Kind::STATS, frame.payload.clone());
            }
        }
        Kind::START => {
            let start = Start::decode(&frame.payload).unwrap();
            let launchers = peers.with(Role::AGENT);
            if !start.requirements.node_id.is_empty() {
                return fail(peers, from, start.instance_uuid); // the probe
            }
            let launcher = launchers[starts % launchers.len()];
            starts += 1;
            match fate(starts) {
                Fate::Place => peers.send(launcher, Kind::START, frame.payload.clone()),
                Fate::Lose => {}
                Fate::Fail => fail(peers, from, start.instance_uuid),
                Fate::Double => {
                    peers.send(launcher, Kind::START, frame.payload.clone());
                    peers.send(launcher, Kind::START, frame.payload.clone());
                }
            }
        }
        _ => {}
    }
}

/// Says that no other client or node is connected.
fn vacant(peers: &Peers, from: usize, query: &Frame) {
    peers.send(from, Kind::QUERY_RESULT, answer(query, &[], &[], 10));
}

#[derive(Clone, Copy)]
enum Fate {
    Place,
    Lose,
    Fail,
    Double,
}

fn fail(peers: &Peers, to: usize, instance_uuid: String) {
    let failure = StartFailure {
        instance_uuid,
        reason: StartFailureReason::FullCloud,
        ..StartFailure::default()
    };
    peers.send(to, Kind::START_FAILURE, failure.encode());
}

/// The arguments of a command line without quotes.
fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[tokio::test]
async fn every_start_arrives_in_both_encodings_closed_loop_and_pipelined() {
    let scheduler = Scheduler::playing(broker(|_| Fate::Place)).await;
    for encoding in ["native", "gob"] {
        for pipeline in ["--pipeline=1", "--pipeline=16", "--pipeline"] {
            let args = [
                "load",
                "--json",
                "--launchers",
                "4",
                "--starts",
                "200",
                "--encoding",
                encoding,
                pipeline,
            ];
            let ran = scheduler.ctl(&args).await;
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let json = ran.json();
            for (key, value) in [
                ("launchers_connected", 4),
                ("sent", 200),
                ("received", 200),
                ("lost", 0),
            ] {
                assert_eq!(json[key], value, "{key} of {args:?}");
            }
            assert_eq!(
                (&json["duplicates"], &json["inversions"], &json["foreign"]),
                (&0.into(), &0.into(), &0.into())
            );
            assert!(json["latency_us"]["p50"].as_f64().unwrap() > 0.0);
        }
    }
}

#[tokio::test]
async fn the_account_tells_lost_failed_and_doubled_starts_apart() {
    let fate = |n| match n {
        10 => Fate::Lose,
        20 | 30 => Fate::Fail,
        40 => Fate::Double,
        _ => Fate::Place,
    };
    let scheduler = Scheduler::playing(broker(fate)).await;
    let args = words("load --json --launchers 2 --starts 100 --pipeline --grace 500ms");
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let json = ran.json();
    for (key, value) in [
        ("sent", 100),
        ("received", 97),
        ("lost", 3),
        ("lost_without_error", 1),
        ("failed", 2),
        ("duplicates", 1),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!(json["failures"]["full_cloud"], 2);
}

#[tokio::test]
async fn starts_that_arrive_out_of_order_are_counted() {
    let mut held: Option<Frame> = None;
    let mut rest = broker(|_| Fate::Place);
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind != Kind::START {
            return rest(peers, from, frame);
        }
        // Every second one first.
        match held.take() {
            None => held = Some(frame.clone()),
            Some(first) => {
                rest(peers, from, frame);
                rest(peers, from, &first);
            }
        }
    })
    .await;
    let ran = scheduler
        .ctl(&words("load --json --launchers 1 --starts 20 --pipeline"))
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.json()["inversions"], 10);
    assert_eq!(ran.json()["received"], 20);
}

#[tokio::test]
async fn launchers_that_are_cut_are_told_from_those_that_stay() {
    // The victim gets every START up to the tenth before the cut, half way, and none after it.
    let (mut victim, mut starts) = (None, 0);
    let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
        Kind::READY
            if Ready::decode(&frame.payload)
                .unwrap()
                .hostname
                .ends_with("-0") =>
        {
            victim = Some(from);
        }
        Kind::QUERY => vacant(peers, from, frame),
        Kind::STATS => {
            for driver in peers.with(Role::OPERATOR) {
                peers.send(driver, Kind::STATS, frame.payload.clone());
            }
        }
        Kind::START => {
            starts += 1;
            let others = || {
                peers
                    .with(Role::AGENT)
                    .into_iter()
                    .find(|launcher| Some(*launcher) != victim)
            };
            let to = if starts <= 10 { victim } else { others() };
            peers.send(to.unwrap(), Kind::START, frame.payload.clone());
        }
        _ => {}
    })
    .await;
    let args = words("load --json --launchers 3 --starts 100 --kill 1 --grace 500ms");
    let ran = scheduler.ctl(&args).await;
    assert_eq!(
        ran.code,
        Some(1),
        "no report that the dead launcher's STARTs failed: {ran:?}"
    );
    let json = ran.json();
    for (key, value) in [
        ("launchers_killed", 1),
        ("received", 90),
        ("received_by_killed", 10),
        ("lost", 10),
    ] {
        assert_eq!(json[key], value, "{key}");
    }
    assert_eq!(json["lost_without_error"], 10);
}

#[tokio::test]
async fn a_controller_that_is_not_master_is_told_so_instead_of_measured() {
    let mut rest = broker(|_| Fate::Place);
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        if frame.kind == Kind::START {
            return; // as a backup's commands are ignored
        }
        rest(peers, from, frame);
    })
    .await;
    let ran = scheduler
        .ctl(&words("load --launchers 1 --starts 10 --encoding gob"))
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("another controller is master"), "{ran:?}");
}

#[tokio::test]
async fn the_servers_cost_is_reported_where_its_process_is_named() {
    let scheduler = Scheduler::playing(broker(|_| Fate::Place)).await;
    let pid = std::process::id().to_string();
    let args = [
        "load",
        "--json",
        "--launchers",
        "2",
        "--starts",
        "50",
        "--pid",
        &pid,
    ];
    let server = &scheduler.ctl(&args).await.json()["server"];
    assert!(
        server["cpu_us_per_start"].as_f64().unwrap() >= 0.0,
        "{server}"
    );
    assert!(server["rss_after_kib"].as_u64().unwrap() > 0, "{server}");
    let text = scheduler
        .ctl(&words("load --launchers 2 --starts 50"))
        .await
        .out;
    assert!(
        text.contains("50 received") && !text.contains("server  "),
        "{text}"
    );
}

#[tokio::test]
async fn a_scheduler_that_goes_away_ends_the_run_with_the_account_so_far() {
    let mut rest = broker(|_| Fate::Place);
    let mut starts = 0;
    let scheduler = Scheduler::playing(move |peers, from, frame| {
        starts += usize::from(frame.kind == Kind::START);
        if starts > 10 {
            peers.close(from);
        } else {
            rest(peers, from, frame);
        }
    })
    .await;
    let args = words("load --json --launchers 2 --starts 100 --grace 500ms");
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let json = ran.json();
    assert_eq!(
        (&json["received"], &json["lost_without_error"]),
        (&10.into(), &1.into()),
        "{json}"
    );
    assert_eq!(json["stopped"], "the scheduler closed the connection");
}

#[tokio::test]
async fn launchers_are_spread_over_the_source_addresses_asked_for() {
    for (sources, expected) in [
        (
            "3",
            ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
                .map(|ip| (ip, 2))
                .to_vec(),
        ),
        (
            "127.0.0.9,127.0.0.1",
            vec![("127.0.0.1", 3), ("127.0.0.9", 3)],
        ),
    ] {
        let origins = Arc::new(Mutex::new(BTreeMap::<IpAddr, usize>::new()));
        let (noted, mut rest) = (origins.clone(), broker(|_| Fate::Place));
        let scheduler = Scheduler::playing(move |peers, from, frame| {
            if frame.kind == Kind::READY {
                *noted
                    .lock()
                    .unwrap()
                    .entry(peers.address(from))
                    .or_default() += 1;
            }
            rest(peers, from, frame);
        })
        .await;
        let args = [
            "load",
            "--launchers",
            "6",
            "--starts",
            "12",
            "--sources",
            sources,
        ];
        let ran = scheduler.ctl(&args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let expected: BTreeMap<IpAddr, usize> = expected
            .into_iter()
            .map(|(ip, launchers)| (ip.parse().unwrap(), launchers))
            .collect();
        assert_eq!(*origins.lock().unwrap(), expected, "{sources}");
    }
}

#[tokio::test]
async fn launchers_report_labels_and_starts_have_a_scheduling_section() {
    let scheduler = Scheduler::playing(broker(|_| Fate::Place)).await;
    let section = scheduler.certs.path().join("section.yaml");
    std::fs::write(&section, "version: 1\nrequire:\n- zone = zone-1\n").unwrap();
    let flow = "{version: 1, require: [zone = zone-1]}";
    for scheduling in [section.to_str().unwrap(), flow] {
        let args = [
            "load",
            "--launchers",
            "6",
            "--starts",
            "5",
            "--labels",
            "zone=3,rack=2",
            "--scheduling",
            scheduling,
        ];
        let ran = scheduler.ctl(&args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let mut zones = BTreeMap::<String, usize>::new();
    for payload in scheduler.seen(Kind::READY) {
        let labels = Ready::decode(&payload).unwrap().labels;
        assert!(
            ["rack-0", "rack-1"].contains(&labels["rack"].as_str()),
            "{labels:?}"
        );
        *zones.entry(labels["zone"].clone()).or_default() += 1;
    }
    assert_eq!(zones.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    for payload in scheduler.seen(Kind::STATS) {
        assert_eq!(Stats::decode(&payload).unwrap().labels.len(), 2);
    }
    let starts = scheduler.seen(Kind::START);
    assert_eq!(starts.len(), 10);
    for payload in starts {
        let start = Start::decode(&payload).unwrap();
        assert!(!start.instance_uuid.is_empty());
        let text = std::str::from_utf8(&payload).unwrap();
        assert!(
            text.contains("  scheduling:\n    version: 1\n    require:\n    - zone = zone-1\n"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn options_that_cannot_work_are_refused_before_anything_is_connected() {
    let scheduler = Scheduler::playing(broker(|_| Fate::Place)).await;
    for (option, value, said) in [
        ("--sources", "0", "a number from 1 to 253"),
        (
            "--sources",
            "192.0.2.1",
            "is it an address of this machine?",
        ),
        ("--sources", "::1", "IPv4"),
        ("--labels", "zone", "write NAME=N"),
        ("--scheduling", "[version]", "no YAML mapping"),
        ("--scheduling", "/nowhere/at.all", "cannot be read"),
    ] {
        let ran = scheduler
            .ctl(&["load", "--starts", "1", option, value])
            .await;
        assert_eq!(ran.code, Some(2), "{option} {value}: {ran:?}");
        assert!(ran.err.contains(said), "{option} {value}: {ran:?}");
    }
    assert!(scheduler.seen(Kind::READY).is_empty());
}

#[tokio::test]
async fn where_others_are_a_run_is_refused_and_nothing_is_sent() {
    let node = node("4c", "node-a");
    let running = instance("aa", &node);
    let lost = NodeView {
        status: "LOST".into(),
        ..node.clone()
    };
    let waiting = InstanceView {
        node_uuid: String::new(),
        hostname: String::new(),
        life: "waiting".into(),
        ..running.clone()
    };
    let gone = InstanceView {
        state: PlacementState::Lost,
        ..running.clone()
    };
    for (nodes, instances, said) in [
        (
            vec![node],
            vec![running],
            Some("1 node and 1 instance of others are there (node node-a)"),
        ),
        (
            vec![],
            vec![waiting],
            Some("0 nodes and 1 instance of others are there (instance aa"),
        ),
        (vec![lost], vec![gone], None),
    ] {
        let mut rest = broker(|_| Fate::Place);
        let scheduler = Scheduler::playing(move |peers, from, frame| match frame.kind {
            Kind::QUERY => {
                let page = answer(frame, &nodes, &instances, 10);
                peers.send(from, Kind::QUERY_RESULT, page);
            }
            _ => rest(peers, from, frame),
        })
        .await;
        let ran = scheduler
            .ctl(&words("load --launchers 2 --starts 10"))
            .await;
        match said {
            None => assert_eq!(ran.code, Some(0), "{ran:?}"),
            Some(said) => {
                assert_eq!(ran.code, Some(2), "{ran:?}");
                assert!(
                    ran.err.contains(said) && ran.err.contains("--force"),
                    "{ran:?}"
                );
                assert!(scheduler.seen(Kind::READY).is_empty());
            }
        }
        let forced = words("load --launchers 2 --starts 10 --force");
        let ran = scheduler.ctl(&forced).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
}

#[tokio::test]
async fn what_waits_is_not_placed_on_simulated_nodes_and_a_run_places_nothing_elsewhere() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    for (from, to) in [
        ("CAcert.pem", "CAcert-localhost.pem"),
        ("controller.pem", "cert-Controller-localhost.pem"),
        ("agent.pem", "cert-CNAgent-localhost.pem"),
    ] {
        std::fs::rename(site.path(from), site.path(to)).unwrap();
    }
    // A node that does not say which vm_type it runs, and has room left for the run's STARTs but not for one that waits.
    let mut node = site.node(&daemon).await;
    node.ready(100_000).await;
    node.stats(&[]).await;
    node.nothing_else().await;
    let waiting = Start {
        scheduling: Some(Scheduling {
            queue: Some(Span::from_ms(600_000)),
            ..Scheduling::default()
        }),
        ..start_of(instance_number(2), 50_000)
    };
    let mut operator = site.operator(&daemon).await;
    operator.start(instance_number(1), 80_000).await;
    assert_eq!(node.expect_start().await, instance_number(1));
    operator.send(Kind::START, waiting.encode()).await;
    let queue = operator.query(QueryKind::Queue).await.instances;
    assert_eq!(queue.len(), 1, "{queue:?}");

    let certs = site.path("");
    let load = |more: &'static str| {
        let mut command = ciaoctl(&words("load --json --launchers 2 --starts 50 --pipeline"));
        command.arg("--certs").arg(&certs);
        command.args(["--server", &format!("localhost:{}", daemon.address.port())]);
        command.args(more.split_whitespace());
        command
    };
    let ran = Ran::from(output(load("")).await);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("1 node and 2 instances of others"),
        "{ran:?}"
    );
    for encoding in ["native", "gob"] {
        let more = if encoding == "gob" {
            "--force --encoding gob"
        } else {
            "--force"
        };
        let ran = Ran::from(output(load(more)).await);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let json = ran.json();
        assert_eq!(
            (&json["received"], &json["foreign"]),
            (&50.into(), &0.into())
        );
    }
    let queue = operator.query(QueryKind::Queue).await.instances;
    assert_eq!(queue.len(), 1, "{queue:?}");
    node.nothing_else().await;
}
