//! `explain`, `--dry-run`, placement by options and labels in listings, against the built scheduler with nodes that say
//! what a test wants.

use std::process::Stdio;

use proto_frames::Kind;
use proto_frames::payload::{Network, Payload, QueryKind, Ready, Start, Stats};
use tokio::process::Command;

use crate::peer::Peer;
use crate::scheduler::{Ran, ciaoctl};
use crate::site::{Daemon, Site, output};
use crate::words::PLENTY;

/// A scheduler and the nodes a test made.
struct Cluster {
    site: Site,
    daemon: Daemon,
    nodes: Vec<Peer>,
}

/// What a node has beside plenty of everything.
struct Has {
    name: &'static str,
    mem_mb: i64,
    zone: &'static str,
    gpus: i64,
    ip: &'static str,
}

/// Three nodes: two in zone a, one of them with accelerators, and a larger one in zone b.
const THREE: [Has; 3] = [
    Has {
        name: "node-1",
        mem_mb: 1000,
        zone: "a",
        gpus: 0,
        ip: "10.1.0.1",
    },
    Has {
        name: "node-2",
        mem_mb: 2000,
        zone: "a",
        gpus: 2,
        ip: "10.1.7.2",
    },
    Has {
        name: "node-3",
        mem_mb: 4000,
        zone: "b",
        gpus: 0,
        ip: "fd00:2::3",
    },
];

impl Cluster {
    async fn of(nodes: &[Has]) -> Self {
        let site = Site::new();
        let daemon = site.start(&[]).await;
        let mut cluster = Self {
            site,
            daemon,
            nodes: Vec::new(),
        };
        for has in nodes {
            cluster.join(has).await;
        }
        cluster
    }

    /// Connects a node and waits until the scheduler has taken in what it says.
    async fn join(&mut self, has: &Has) {
        let mut node = self.site.node(&self.daemon).await;
        let gpus = (has.gpus > 0).then(|| ("gpu".to_owned(), has.gpus));
        let ready = Ready {
            node_uuid: node.uuid.to_string(),
            mem_total_mb: has.mem_mb,
            mem_available_mb: has.mem_mb,
            disk_total_mb: PLENTY,
            disk_available_mb: PLENTY,
            load: 0,
            cpus_online: 1 << 20,
            hostname: has.name.to_owned(),
            labels: [("zone".to_owned(), has.zone.to_owned())].into(),
            resources: gpus.into_iter().collect(),
            networks: vec![Network {
                ip: has.ip.to_owned(),
                ..Network::default()
            }],
            volumes: vec![format!("volume-of-{}", has.name)],
            ..Ready::default()
        };
        node.send(Kind::READY, ready.encode()).await;
        let stats = Stats {
            node_uuid: node.uuid.to_string(),
            status: "READY".to_owned(),
            ..Stats::default()
        };
        node.send(Kind::STATS, stats.encode()).await;
        node.nothing_else().await;
        self.nodes.push(node);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = ciaoctl(&["--server", &self.daemon.address.to_string()]);
        command
            .arg("--cert")
            .arg(self.site.path("controller.pem"))
            .arg("--cacert")
            .arg(self.site.path("CAcert.pem"))
            .args(args);
        command
    }

    async fn ctl(&self, args: &[&str]) -> Ran {
        Ran::from(output(self.command(args)).await)
    }

    /// A START file with these lines under `start:`.
    fn file(&self, name: &str, lines: &str) -> String {
        let path = self.site.path(name);
        std::fs::write(&path, format!("start:\n{lines}")).unwrap();
        path.display().to_string()
    }

    /// Makes sure that nothing asked so far was started.
    async fn nothing_was_started(&mut self) {
        let mut operator = self.site.operator(&self.daemon).await;
        assert_eq!(operator.query(QueryKind::Instances).await.instances, []);
        for node in &mut self.nodes {
            node.nothing_else().await;
        }
    }
}

#[tokio::test]
async fn what_fits_is_told_with_its_node_and_not_started() {
    let mut cluster = Cluster::of(&THREE).await;
    let file = cluster.file(
        "a.yaml",
        "  requirements: {mem_mb: 100, vcpus: 1}\n  scheduling:\n    require: [zone = b] # here\n...\nrest: [\n",
    );
    let ran = cluster.ctl(&["explain", &file]).await;
    let node = cluster.nodes[2].uuid.to_string();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.out,
        format!("{file}: would go to node-3 ({})\n", &node[..8])
    );
    let json = cluster.ctl(&["explain", "--json", &file]).await.json();
    let explanation = &json["explanations"][0];
    assert_eq!(explanation["placements"][0]["node_uuid"], node);
    assert_eq!(explanation["fits"], 1);
    let ran = cluster.ctl(&["start", "--dry-run", &file]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    cluster.nothing_was_started().await;
}

#[tokio::test]
async fn what_does_not_fit_now_is_told_from_what_never_will() {
    let mut cluster = Cluster::of(&THREE).await;
    let ran = cluster
        .ctl(&["run", "--mem", "1500", "--cpus", "1", "--", "true"])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for node in &mut cluster.nodes {
        node.settle().await;
    }
    let later = ["explain", "--mem", "1800", "--require", "zone = a"];
    let ran = cluster.ctl(&later).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out
            .starts_with("request: does not fit now (full_cloud):\nNODES  REASON"),
        "{ran:?}"
    );
    assert!(ran.out.contains("without 'zone = a'"), "{ran:?}");
    let row = |name: &str| {
        let line = ran.out.lines().find(|line| line.contains(name));
        line.unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let memory = row("short of memory");
    assert!(
        memory.starts_with("2 short of memory 1800 MiB 1000 MiB 2000 MiB node-1 ("),
        "{memory}"
    );
    assert!(memory.ends_with(" not now"), "{memory}");
    assert!(
        ran.out.contains("- wait until instances have ended"),
        "{ran:?}"
    );

    let never = ["explain", "--mem", "9000"];
    let ran = cluster.ctl(&never).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.starts_with("request: never fits"), "{ran:?}");
    assert!(
        ran.out
            .ends_with("- ask for at most 4000 MiB of memory, or add a larger node\n"),
        "{ran:?}"
    );
    let several = ["explain", "--mem", "9000", "--resource", "gpu=3"];
    let ran = cluster.ctl(&several).await;
    assert!(ran.out.contains("\n- nearest is node-"), "{ran:?}");
    assert!(
        ran.out
            .contains(" of 9000 MiB of memory and 2 of 3 gpu free\n"),
        "{ran:?}"
    );
    let json = cluster
        .ctl(&["explain", "--json", "--mem", "9000"])
        .await
        .json();
    let explanation = &json["explanations"][0];
    assert_eq!(explanation["never"], true);
    assert_eq!(explanation["reason"], "full_cloud");
    assert_eq!(explanation["reasons"][0]["capacity"], 4000);
}

#[tokio::test]
async fn one_node_can_be_asked_about_by_its_name() {
    let mut cluster = Cluster::of(&THREE).await;
    let file = cluster.file(
        "a.yaml",
        "  requirements:\n    mem_mb: 1500\n    vcpus: 1\n",
    );
    let ran = cluster.ctl(&["explain", &file, "--node", "node-2"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains(": would go to node-2 ("), "{ran:?}");
    let uuid = cluster.nodes[0].uuid.to_string();
    let ran = cluster
        .ctl(&["explain", &file, "--node", &uuid[..13]])
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains(": never fits on node-1 ("), "{ran:?}");
    assert!(
        ran.out.contains("    1  short of memory  1500 MiB"),
        "{ran:?}"
    );
    assert!(!ran.out.contains("asked for"), "{ran:?}");
    let ran = cluster.ctl(&["explain", &file, "--node", "node-4"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    cluster.nothing_was_started().await;
}

#[tokio::test]
async fn several_are_explained_with_count_nodes_and_the_limit() {
    let mut cluster = Cluster::of(&THREE).await;
    let line = ["explain", "--mem", "900", "--cpus", "1", "--count", "20"];
    let ran = cluster.ctl(&line).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out
            .starts_with("request: 7 of 20 would fit:\nHOST    NODE"),
        "{ran:?}"
    );
    let count = |host: &str| {
        let line = ran.out.lines().find(|line| line.starts_with(host)).unwrap();
        line.split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!(
        [count("node-1"), count("node-2"), count("node-3")],
        ["1", "2", "4"]
    );
    assert!(
        ran.out.contains("\nThe next does not fit now:\nNODES"),
        "{ran:?}"
    );
    let all = ["explain", "--mem", "900", "--cpus", "1", "--count", "7"];
    assert_eq!(cluster.ctl(&all).await.code, Some(0));
    let apart = [
        "run",
        "--dry-run",
        "--mem",
        "1",
        "--cpus",
        "1",
        "--count",
        "4",
        "--group",
        "web",
        "--group-policy",
        "anti-affinity",
        "--json",
        "--",
        "true",
    ];
    let json = cluster.ctl(&apart).await.json();
    let explanation = &json["explanations"][0];
    assert_eq!(
        (&explanation["fits"], &explanation["count"]),
        (&3.into(), &4.into())
    );
    assert_eq!(explanation["reasons"][0]["reason"], "group");
    cluster.nothing_was_started().await;
}

#[tokio::test]
async fn each_file_is_explained_and_the_standard_input_too() {
    let cluster = Cluster::of(&THREE).await;
    let fits = cluster.file("a.yaml", "  requirements: {mem_mb: 10, vcpus: 1}\n");
    let odd = cluster.file("b.yaml", "  scheduling: {resources: {fpga: 1}}\n");
    let mut child = cluster
        .command(&["explain", &fits, "-", &odd])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let text = b"start:\n  scheduling: {require: [node.nothing = 1]}\n";
    tokio::io::AsyncWriteExt::write_all(&mut stdin, text)
        .await
        .unwrap();
    drop(stdin);
    let ran = Ran::from(crate::site::within(child.wait_with_output()).await.unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(
        lines[0].starts_with(&format!("{fits}: would go to ")),
        "{ran:?}"
    );
    assert!(
        lines[1].starts_with(
            "standard input: is not placed: invalid_data: start.scheduling.require[0]: "
        ),
        "{ran:?}"
    );
    assert!(
        lines[2].starts_with(&format!("{odd}: never fits")),
        "{ran:?}"
    );
    assert!(lines[4].contains("short of fpga"), "{ran:?}");
}

#[tokio::test]
async fn a_bad_expression_is_refused_with_its_column_before_anybody_is_asked() {
    let unused = "127.0.0.1:9";
    let run = async |flags: &[&str]| {
        let line = ["run", "--server", unused, "--mem", "1", "--cpus", "1"];
        Ran::from(output(ciaoctl(&[&line[..], flags, &["--", "true"]].concat())).await)
    };
    let ran = run(&["--require", "zone = a b"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.contains("column 10: expected nothing more"),
        "{ran:?}"
    );
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.yaml");
    std::fs::write(&file, "start:\n  scheduling:\n    require: [zone =]\n").unwrap();
    let file = file.display().to_string();
    let ran = Ran::from(output(ciaoctl(&["explain", "--server", unused, &file])).await);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("start.scheduling.require[0]"), "{ran:?}");
    assert!(ran.err.contains("column 7"), "{ran:?}");
    let long = "x".repeat(129);
    let ran = run(&["--group-policy", "affinity", "--group", &long]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.err.starts_with("ciaoctl: start.scheduling.group.id: "),
        "{ran:?}"
    );
}

#[tokio::test]
async fn without_nodes_nothing_fits_and_without_a_scheduler_there_is_no_answer() {
    let mut cluster = Cluster::of(&[]).await;
    let ran = cluster.ctl(&["explain", "--mem", "1"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.out,
        "request: is not placed: no_cn: no compute node is connected\n"
    );
    cluster.daemon.terminate();
    cluster.daemon.ended().await;
    let ran = cluster
        .ctl(&["explain", "--mem", "1", "--timeout", "2s"])
        .await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
}

#[tokio::test]
async fn options_of_run_decide_where_a_program_goes() {
    let mut cluster = Cluster::of(&THREE).await;
    let line = [
        "run",
        "--mem",
        "10",
        "--cpus",
        "1",
        "--require",
        "zone = a",
        "--prefer",
        "zone = a",
        "--resource",
        "gpu=2",
        "--group",
        "web",
        "--group-policy",
        "anti-affinity",
        "--near",
        "zone:zone:hard",
        "--",
        "true",
    ];
    let ran = cluster.ctl(&line).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains(" placed on node-2 ("), "{ran:?}");
    let start = cluster.nodes[1].expect(Kind::START).await;
    let scheduling = Start::decode(&start.payload).unwrap().scheduling.unwrap();
    assert_eq!(scheduling.must_understand, ["require", "group", "near"]);
    let ran = cluster.ctl(&["instances", "--wide", "--no-headers"]).await;
    assert!(ran.out.trim_end().ends_with("  web  gpu 2"), "{ran:?}");

    let ran = cluster.ctl(&[&["run", "-v"], &line[1..]].concat()).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.contains(" failed: full_cloud: none of 3"),
        "{ran:?}"
    );
    assert!(ran.out.contains("\nNODES  REASON"), "{ran:?}");
    assert!(ran.out.contains("kept out by group 'web'"), "{ran:?}");
    let helps = "\n- `ciaoctl instances --wide` lists where members of the group are\n";
    assert!(ran.out.contains("\nWhat helps:\n"), "{ran:?}");
    assert!(ran.out.contains(helps), "{ran:?}");
    let json = cluster
        .ctl(&[&["run", "--json"], &line[1..]].concat())
        .await
        .json();
    let reasons = json["instances"][0]["reasons"].as_array().unwrap();
    assert!(reasons.iter().any(|it| it["reason"] == "group"), "{json}");
}

#[tokio::test]
async fn nodes_show_their_labels_and_can_be_selected_by_them() {
    let cluster = Cluster::of(&THREE).await;
    let ran = cluster.ctl(&["nodes", "--wide"]).await;
    let line = |host: &str| {
        let mut lines = ran.out.lines();
        lines.find(|line| line.contains(host)).unwrap().to_owned()
    };
    assert!(
        line("HOST").ends_with("RESOURCES FREE  DRAIN  FAULT  LABELS"),
        "{ran:?}"
    );
    assert!(
        line("node-2").ends_with("  gpu 2 / 2       -      -      zone=a"),
        "{ran:?}"
    );
    assert!(
        line("node-3").ends_with("  -               -      -      zone=b"),
        "{ran:?}"
    );
    for (selector, hosts) in [
        ("zone = a", &["node-1", "node-2"][..]),
        ("zone not in (a, c)", &["node-3"]),
        ("zone exists", &["node-1", "node-2", "node-3"]),
        ("rack exists", &[]),
        ("rack != r7", &["node-1", "node-2", "node-3"]),
    ] {
        let json = cluster
            .ctl(&["nodes", "--json", "--selector", selector])
            .await
            .json();
        let rows = json["nodes"].as_array().unwrap();
        let mut found: Vec<&str> = rows
            .iter()
            .map(|it| it["hostname"].as_str().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(found, hosts, "{selector}");
    }
    let json = cluster.ctl(&["nodes", "node-2", "--json"]).await.json();
    let node = &json["nodes"][0];
    assert_eq!(node["labels"]["zone"][0], "a");
    assert_eq!(node["resources_total"]["gpu"], 2);
    assert_eq!(node["resources_free"]["gpu"], 2);
    assert_eq!(node["failures"], 0.0);
}

#[tokio::test]
async fn a_start_goes_where_the_port_is_that_its_vnic_uuid_names() {
    let mut cluster = Cluster::of(&THREE).await;
    let uuids: Vec<String> = cluster.nodes.iter().map(|it| it.uuid.to_string()).collect();
    for (at, name) in ["node-1", "node-2", "node-3"].into_iter().enumerate() {
        for networking in [
            format!("  networking:\n    vnic_uuid: volume-of-{name}\n"),
            format!("  networking: {{\"vnic_uuid\": \"volume-of-{name}\"}}\n"),
        ] {
            let file = cluster.file("port.yaml", &networking);
            let json = cluster.ctl(&["explain", "--json", &file]).await.json();
            let placement = &json["explanations"][0]["placements"][0];
            assert_eq!(placement["node_uuid"], uuids[at], "{networking}");
        }
    }
    cluster.nothing_was_started().await;
}

#[tokio::test]
async fn alternates_are_named_and_networks_volumes_and_hints_decide() {
    let mut cluster = Cluster::of(&THREE).await;
    let uuids: Vec<String> = cluster.nodes.iter().map(|it| it.uuid.to_string()).collect();
    let ran = cluster
        .ctl(&[
            "explain",
            "--mem=100",
            "--require=zone = a",
            "--alternates=5",
        ])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (first, second) = (&uuids[0][..8], &uuids[1][..8]);
    assert_eq!(
        ran.out,
        format!(
            "request: would go to node-1 ({first})\nOr to, best first:\nHOST    NODE      COUNT\nnode-2  {second}      1\n"
        )
    );
    for (network, at) in [("10.1.7.0/24", 1), ("10.1.0.1", 0), ("'fd00:2::/32'", 2)] {
        let require = format!("--require=node.address in ({network})");
        let args = ["explain", "--json", "--mem=1", &require, "--alternates=5"];
        let json = cluster.ctl(&args).await.json();
        let explanation = &json["explanations"][0];
        assert_eq!(
            explanation["placements"][0]["node_uuid"], uuids[at],
            "{network}"
        );
        assert_eq!(explanation["alternates"].as_array().unwrap().len(), 0);
    }
    for (at, name) in ["node-1", "node-2", "node-3"].into_iter().enumerate() {
        let file = cluster.file(
            "volume.yaml",
            &format!("  storage:\n  - {{id: volume-of-{name}, local: false}}\n"),
        );
        let json = cluster.ctl(&["explain", "--json", &file]).await.json();
        let explanation = &json["explanations"][0];
        assert_eq!(explanation["placements"][0]["node_uuid"], uuids[at]);
    }
    let ran = cluster
        .ctl(&[
            "explain",
            "--mem=1",
            "--same-node=0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01",
        ])
        .await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.out.contains("without an instance of same_node"),
        "{ran:?}"
    );
    cluster.nothing_was_started().await;
}

#[tokio::test]
async fn an_instance_that_waits_is_explained_by_its_own_start() {
    let mut cluster = Cluster::of(&THREE).await;
    let ran = cluster
        .ctl(&[
            "run",
            "--mem",
            "3900",
            "--cpus",
            "1",
            "--require",
            "zone = b",
            "--",
            "true",
        ])
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for node in &mut cluster.nodes {
        node.settle().await;
    }
    let waits = "run --mem 3900 --cpus 1 --require zone=b --queue 10m --name web-1 -- true";
    let waits: Vec<&str> = waits.split(' ').collect();
    let ran = cluster.ctl(&waits).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.ctl(&["explain", "--instance", "web-1"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.starts_with("web-1 ("), "{ran:?}");
    assert!(ran.out.contains("waits: "), "{ran:?}");
    assert!(ran.out.contains("without 'zone=b'"), "{ran:?}");
    assert!(ran.out.contains("short of memory"), "{ran:?}");
    let ran = cluster.ctl(&["queue", "web-1", "--json"]).await.json();
    assert_eq!(ran["queue"][0]["name"], "web-1", "{ran}");
    let ran = cluster.ctl(&["explain", "--instance", "nobody"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}
