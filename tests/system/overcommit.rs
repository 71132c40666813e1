//! Overcommitment from end to end: what the scheduler says would be placed is placed, and its launcher runs it.
//!
//! The launchers are processes of their own; what they run is simulated, so that a node has as much memory as a test
//! likes and a workload uses a known part of what it asked for.

use std::path::Path;

use ciao_scheduler::ctl::client::Client;
use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::{
    NodePressure, Payload, PlacementState, PressureState, Query, QueryKind, Requirements,
    Scheduling, Start, Storage, Topic,
};

use crate::world::{Cluster, Crash, Look};

/// Clusters that are drawn.
const CASES: u64 = 6;

/// STARTs in each of them.
const STARTS: usize = 14;

/// What a START asks for.
#[derive(Debug, Clone, Copy)]
struct Ask {
    mem_mb: i64,
    vcpus: i64,
    disk_gib: i64,
}

impl Ask {
    fn payload(self, id: &str, dry_run: bool) -> bytes::Bytes {
        let start = Start {
            instance_uuid: id.to_owned(),
            vm_type: "docker".to_owned(),
            docker_image: "image".to_owned(),
            requirements: Requirements {
                mem_mb: self.mem_mb,
                vcpus: self.vcpus,
                ..Requirements::default()
            },
            storage: vec![Storage {
                local: true,
                size: self.disk_gib,
                ..Storage::default()
            }],
            scheduling: dry_run.then(|| Scheduling {
                dry_run: true,
                ..Scheduling::default()
            }),
            ..Start::default()
        };
        start.encode()
    }
}

/// Whether the scheduler says that there is room.
async fn is_promised(client: &mut Client, ask: Ask) -> bool {
    let id = uuid();
    let decision = client.decide(&id, ask.payload(&id, true)).await;
    decision.unwrap().fits == 1
}

/// Starts an instance that must run.
async fn runs(cluster: &Cluster, client: &mut Client, ask: Ask) {
    let id = uuid();
    let placed = client.start(&id, ask.payload(&id, false)).await;
    placed.unwrap_or_else(|error| panic!("{ask:?} was promised: {error:?}"));
    let mut look = Look::new();
    loop {
        match cluster.instance(&id).await {
            Some(view) if view.state == PlacementState::Running => return,
            Some(view) => look.again(|| format!("{view:?} does not run")).await,
            None => {
                let event = client.next_event().await;
                panic!("{ask:?} was placed and has not run: {event:?}");
            }
        }
    }
}

fn uuid() -> String {
    proto_frames::Uuid::new_v4().to_string()
}

#[tokio::test]
async fn twice_the_memory_is_started_where_the_scheduler_offers_twice_the_memory() {
    let mut cluster = Cluster::of_scheduler("configure: {}\n", &["--mem-ratio=2"], false).await;
    let machine = ["--simulate", "mem=2048,cpus=4,disk=100000"];
    cluster.launch("node", &machine);
    cluster.ready(&["node-1"]).await;
    let mut client = cluster.client().await;
    let ask = Ask {
        mem_mb: 1500,
        vcpus: 1,
        disk_gib: 1,
    };
    for _ in 0..2 {
        assert!(is_promised(&mut client, ask).await);
        runs(&cluster, &mut client, ask).await;
    }
    assert!(!is_promised(&mut client, ask).await);
}

#[tokio::test]
async fn whatever_is_promised_is_started_and_runs() {
    for seed in 0..CASES {
        eprintln!("case {seed}");
        case(&mut Rng::with_seed(seed)).await;
    }
}

#[tokio::test]
async fn an_overcommitted_node_stays_so_when_its_scheduler_or_its_launcher_restarts() {
    let flags = ["--mem-ratio=2", "--reserved-mem=100", "--cpu-ratio=10"];
    let mut cluster = Cluster::of_scheduler("configure: {}\n", &flags, false).await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    // (1000 - 100) * 2 = 1800 MiB are offered.
    let sleep = ["sleep", "600"];
    let mut all = Vec::new();
    for _ in 0..3 {
        let options = "run --quiet --mem 500 --cpus 1 --wait=running --";
        let ran = cluster.ctl_with(options, &sleep).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        all.push(ran.out.trim().to_owned());
    }
    for crash in [Crash::OfScheduler, Crash::OfLauncher] {
        cluster.recover_from(crash).await;
        for id in &all {
            cluster.until(id, "running").await;
        }
        let much = cluster
            .ctl_with("run --mem 400 --cpus 1 --wait=running --", &sleep)
            .await;
        assert_ne!(much.code, Some(0), "{crash:?}: {much:?}");
        let promised = cluster.ctl("explain --mem 100 --cpus 1").await;
        assert_eq!(promised.code, Some(0), "{crash:?}: {promised:?}");
        let options = "run --quiet --mem 100 --cpus 1 --wait=running --";
        let little = cluster.ctl_with(options, &sleep).await;
        assert_eq!(little.code, Some(0), "{crash:?}: {little:?}");
        all.push(little.out.trim().to_owned());
    }
}

/// Has a machine's kernel say so; in one step, because its launcher may look at any moment.
fn set_pressure(file: &Path, percent: u8) {
    let next = file.with_extension("next");
    std::fs::write(&next, stalled(percent)).unwrap();
    std::fs::rename(&next, file).unwrap();
}

/// What the kernel says of a machine whose processes wait for memory for this part of the time.
fn stalled(percent: u8) -> String {
    format!(
        "some avg10=99.00 avg60=0.00 avg300=0.00 total=0\nfull avg10={percent}.00 avg60=0.00 avg300=0.00 total=0\n"
    )
}

#[tokio::test]
async fn the_least_urgent_leaves_a_node_that_is_short_of_memory_and_nothing_more_goes_there() {
    let policy = "configure:\n  scheduler:\n    policy:\n      pressure: evict\n";
    let mut cluster = Cluster::of_scheduler(policy, &[], false).await;
    let nodes = ["node-a", "node-b"];
    let psi = nodes.map(|name| cluster.site.path(&format!("{name}.pressure")));
    for (name, psi) in nodes.iter().zip(&psi) {
        set_pressure(psi, 0);
        cluster.launch(
            name,
            &[
                "--swap-limit",
                "0",
                "--pressure-file",
                psi.to_str().unwrap(),
            ],
        );
    }
    cluster.ready(&nodes).await;
    let [low, high] = ["10", "80"].map(|priority| {
        format!(
            "--mem 16 --cpus 1 --priority {priority} --wait=running --prefer node.hostname=node-a"
        )
    });
    let low = cluster.run(&low, "exec sleep 600").await;
    let high = cluster.run(&high, "exec sleep 600").await;

    let mut watcher = cluster.site.operator(cluster.scheduler()).await;
    watcher.watch(&[Topic::Nodes]).await;
    set_pressure(&psi[0], 75);
    cluster
        .until_node("node-a", |node| node.fault.starts_with("short of memory"))
        .await;
    let mut look = Look::new();
    loop {
        let view = cluster.until(&low, "running").await;
        if view.hostname == "node-b" {
            break;
        }
        look.again(|| format!("{view:?} has not moved")).await;
    }
    set_pressure(&psi[0], 30);
    assert_eq!(cluster.until(&high, "running").await.hostname, "node-a");
    let wish = "--mem 16 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let other = cluster.run(wish, "exec sleep 600").await;
    assert_eq!(cluster.until(&other, "running").await.hostname, "node-b");
    for line in [
        "gets no new work: short of memory",
        "is moved away from node",
    ] {
        cluster.scheduler().logged(line).await;
    }

    let mut told = async |state: PressureState| {
        let event = watcher.skip_to(Kind::NODE_PRESSURE).await;
        let event = NodePressure::decode(&event.payload).unwrap();
        assert_eq!((&event.state, &*event.hostname), (&state, "node-a"));
        event
    };
    let begun = told(PressureState::Begun).await;
    assert!(begun.detail.starts_with("short of memory"), "{begun:?}");
    assert_eq!(told(PressureState::Moved).await.instance_uuid, low);
    set_pressure(&psi[0], 10);
    told(PressureState::Over).await;
    cluster
        .until_node("node-a", |node| {
            node.fault.is_empty() && node.status == "READY"
        })
        .await;
    let other = cluster.run(wish, "exec sleep 600").await;
    assert_eq!(cluster.until(&other, "running").await.hostname, "node-a");
}

/// A cluster, drawn; STARTs that ask for more and more; and a change of the rules in the middle of them.
async fn case(chance: &mut Rng) {
    let flags = flags(chance);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut cluster = Cluster::of_scheduler(&rules(chance), &flags, false).await;
    let nodes = ["a", "b"];
    for name in nodes {
        launch(&mut cluster, name, chance);
    }
    cluster
        .ready(
            &nodes
                .map(|name| format!("{name}-1"))
                .each_ref()
                .map(String::as_str),
        )
        .await;
    let mut client = cluster.client().await;
    let mut promised = 0;
    for number in 0..STARTS {
        if number == STARTS / 2 {
            configure(&cluster, &rules(chance)).await;
        }
        let ask = Ask {
            mem_mb: chance.i64(64..1500),
            vcpus: chance.i64(1..4),
            disk_gib: chance.i64(0..8),
        };
        if is_promised(&mut client, ask).await {
            runs(&cluster, &mut client, ask).await;
            promised += 1;
        }
    }
    assert!(promised > 0, "a case without a START tries nothing");
}

/// The scheduler's flags.
fn flags(chance: &mut Rng) -> Vec<String> {
    vec![
        format!(
            "--accounting={}",
            ["requested", "measured"][chance.usize(..2)]
        ),
        format!(
            "--measured-window={}",
            ["0s", "1s", "1m"][chance.usize(..3)]
        ),
        format!("--measured-percentile={}", [50, 90, 100][chance.usize(..3)]),
        format!("--cpu-ratio={}", ratio(chance)),
        format!("--mem-ratio={}", ratio(chance)),
        format!("--disk-ratio={}", ratio(chance)),
        format!("--reserved-mem={}", [0, 100][chance.usize(..2)]),
        format!("--reserved-disk={}", [0, 3000][chance.usize(..2)]),
    ]
}

fn ratio(chance: &mut Rng) -> f64 {
    [1.0, 1.5, 2.0, 3.3, 10.0][chance.usize(..5)]
}

/// The cluster configuration: capacity by label.
fn rules(chance: &mut Rng) -> String {
    let mut text = "configure:\n  scheduler:\n    capacity:\n".to_owned();
    for zone in ["a", "b"] {
        text += &format!(
            "    - select: [zone = {zone}]\n      mem_ratio: {}\n",
            ratio(chance)
        );
        if chance.bool() {
            let cpus = chance.i64(0..2);
            text += &format!(
                "      cpu_ratio: {}\n      reserved_cpus: {cpus}\n",
                ratio(chance)
            );
        }
        if chance.bool() {
            text += &format!("      reserved_mem_mb: {}\n", chance.i64(0..500));
        }
    }
    text
}

/// A launcher, whose own flags say something else.
fn launch(cluster: &mut Cluster, name: &str, chance: &mut Rng) {
    let machine = format!(
        "mem={},cpus={},disk={},use={}",
        chance.i64(1000..3000),
        chance.i64(2..5),
        chance.i64(10_000..40_000),
        [20, 50, 90][chance.usize(..3)]
    );
    let zone = format!("zone={name}");
    let own = ratio(chance).to_string();
    let flags = [
        "--simulate",
        &machine,
        "--label",
        &zone,
        "--cpu-ratio",
        &own,
    ];
    cluster.launch(name, &flags);
}

/// Gives the cluster another configuration, and waits until the scheduler has taken it in.
async fn configure(cluster: &Cluster, configuration: &str) {
    let mut controller = cluster.site.master(cluster.scheduler()).await;
    let payload = configuration.to_owned();
    controller.send(Kind::CONFIGURE, payload).await;
    let query = Query {
        what: QueryKind::Controllers,
        ..Query::default()
    };
    controller.send(Kind::QUERY, query.encode()).await;
    controller.skip_to(Kind::QUERY_RESULT).await;
}
