//! Placement as it is configured: policy, aggregates, capacity and the node file, from the file to the node that a START
//! is given to.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto_frames::payload::{Payload, Ready, Scheduling, Start, StartFailureReason};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::boot::refused;
use crate::peer::Peer;
use crate::site::{Daemon, Site, repository};
use crate::words::{PLENTY, instance, start_of};

/// The node that configurations here name.
const NAMED: Uuid = Uuid::from_u128(0x6be5_6328_92e2_4ecd_b426_8fe5_29c0_4e0c);

/// The tenant that configurations here name.
const BLUE: &str = "67d86208-b46c-4465-9018-e14187d4010c";

/// A zone with one node in it.
const ZONE: &str = "\
configure:
  scheduler:
    aggregates:
    - name: ssd-hosts
      zone: eu-1
      nodes: [6be56328-92e2-4ecd-b426-8fe529c04e0c]
";

/// A configuration of the original's.
const ORIGINAL: &str = "configure:\n  launcher: {mem_limit: true}\n";

/// A site whose cluster configuration is this.
fn configured(configuration: &str) -> Site {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), configuration).unwrap();
    site
}

/// The node named above, ready for anything.
async fn named(site: &Site, daemon: &Daemon) -> Peer {
    let dialer = site.dialer(daemon, Role::AGENT, Encoding::Native);
    let mut node = dialer.with_uuid(NAMED).connect().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    node
}

/// Any other node, ready with so much memory.
async fn other(site: &Site, daemon: &Daemon, mem_mb: i64) -> Peer {
    let mut node = site.node(daemon).await;
    node.ready(mem_mb).await;
    node.nothing_else().await;
    node
}

/// A START that asks for all of this of its node.
fn requiring(number: u128, require: &[&str]) -> Bytes {
    let scheduling = Scheduling {
        require: require.iter().map(|text| text.parse().unwrap()).collect(),
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..start_of(instance(number), 1)
    }
    .encode()
}

/// A START of a tenant's.
fn of_tenant(number: u128, tenant: &str) -> Bytes {
    Start {
        tenant_uuid: tenant.to_owned(),
        ..start_of(instance(number), 1)
    }
    .encode()
}

/// A START for so many GPUs.
fn with_gpus(number: u128, count: i64) -> Bytes {
    let scheduling = Scheduling {
        resources: BTreeMap::from([("gpu".to_owned(), count)]),
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..start_of(instance(number), 1)
    }
    .encode()
}

/// Sends a START that no node may run.
async fn fits_nowhere(master: &mut Peer, start: Bytes) {
    master.send(Kind::START, start).await;
    let failure = master.skip_to(Kind::START_FAILURE).await;
    let failure = proto_frames::payload::StartFailure::decode(&failure.payload).unwrap();
    assert_eq!(failure.reason, StartFailureReason::FullCloud, "{failure:?}");
}

#[tokio::test]
async fn a_mistyped_policy_stops_the_start_and_is_named() {
    let site = configured("configure:\n  scheduler:\n    policy: {preset: sprad}\n");
    let uri = format!("file://{}", site.path("configuration.yaml").display());
    let said = refused(site.command(&[])).await;
    assert_eq!(
        said,
        format!(
            "cannot use the cluster configuration {uri}: configure.scheduler.policy.preset, line 3 column 22: expected \
             first-fit, spread or pack, found `sprad`"
        )
    );
    let site = configured("configure:\n  scheduler:\n    policy:\n      weighers: [prefer, lod]\n");
    let said = refused(site.command(&[])).await;
    let expected = "configure.scheduler.policy.weighers[1], line 4 column 26: there is no weigher 'lod'; there are ";
    assert!(said.contains(expected), "{said}");
    let site = configured("configure:\n  scheduler:\n    policy: [\n");
    let said = refused(site.command(&[])).await;
    assert!(said.contains("not valid YAML"), "{said}");
}

#[tokio::test]
async fn a_key_beside_the_sections_that_nobody_knows_is_warned_of() {
    let site = configured("configure:\n  scheduler:\n    of_a_later_version: 1\n");
    let daemon = site.start(&[]).await;
    daemon
        .logged("configure.scheduler.of_a_later_version is not known, and ignored")
        .await;
}

#[tokio::test]
async fn a_configuration_that_is_wrong_elsewhere_stops_the_start() {
    let text = ZONE.replace(
        "configure:\n",
        "configure:\n  launcher: {mem_limit: maybe}\n",
    );
    let site = configured(&text);
    let said = refused(site.command(&[])).await;
    assert!(
        said.contains("configure.launcher.mem_limit, line 2 "),
        "{said}"
    );
}

#[tokio::test]
async fn the_policy_spread_takes_the_emptiest_node() {
    let site = configured("configure:\n  scheduler:\n    policy: {preset: spread}\n");
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut small = other(&site, &daemon, 1000).await;
    let mut large = other(&site, &daemon, 3000).await;
    let mut middle = other(&site, &daemon, 2000).await;
    for number in 1..=3 {
        master.start(instance(number), 100).await;
    }
    assert_eq!(large.expect_start().await, instance(1));
    assert_eq!(middle.expect_start().await, instance(2));
    assert_eq!(small.expect_start().await, instance(3));
}

#[tokio::test]
async fn a_zone_and_an_aggregate_can_be_required() {
    let site = configured(ZONE);
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut elsewhere = other(&site, &daemon, PLENTY).await;
    let mut node = named(&site, &daemon).await;
    for (number, require) in [
        (1, "zone = eu-1"),
        (2, "zone in (eu-1, eu-2)"),
        (3, "aggregate.ssd-hosts = true"),
    ] {
        master
            .send(Kind::START, requiring(number, &[require]))
            .await;
        assert_eq!(node.expect_start().await, instance(number));
    }
    fits_nowhere(&mut master, requiring(4, &["zone = eu-2"])).await;
    elsewhere.nothing_else().await;
}

#[tokio::test]
async fn reserved_nodes_take_their_tenants_work_alone() {
    let site = configured(&format!("{ZONE}      tenants: [{BLUE}]\n"));
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut node = named(&site, &daemon).await;
    let red = Uuid::from_u128(7).to_string();
    fits_nowhere(&mut master, of_tenant(1, &red)).await;
    master.send(Kind::START, of_tenant(2, BLUE)).await;
    assert_eq!(node.expect_start().await, instance(2));
    let mut elsewhere = other(&site, &daemon, PLENTY).await;
    for number in [3, 4] {
        master.send(Kind::START, of_tenant(number, &red)).await;
        assert_eq!(elsewhere.expect_start().await, instance(number));
    }
    node.nothing_else().await;
}

#[tokio::test]
async fn a_rule_about_capacity_counts_for_the_nodes_it_selects() {
    let rule = "    capacity:\n    - select: [zone = eu-1]\n      reserved_mem_mb: 900\n";
    let site = configured(&format!("{ZONE}{rule}"));
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut node = named(&site, &daemon).await;
    node.ready(1000).await;
    node.nothing_else().await;
    fits_nowhere(&mut master, start_of(instance(1), 101).encode()).await;
    master.start(instance(2), 100).await;
    assert_eq!(node.expect_start().await, instance(2));
}

#[tokio::test]
async fn a_configure_with_aggregates_takes_effect_at_once() {
    let site = configured(ORIGINAL);
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    other(&site, &daemon, PLENTY).await;
    let mut node = named(&site, &daemon).await;
    fits_nowhere(&mut master, requiring(1, &["zone = eu-1"])).await;
    master.send(Kind::CONFIGURE, ZONE).await;
    master
        .send(Kind::START, requiring(2, &["zone = eu-1"]))
        .await;
    assert_eq!(node.expect_start().await, instance(2));
    let later = site.node(&daemon).await;
    assert_eq!(later.connected.payload, ZONE);
}

#[tokio::test]
async fn a_configure_of_an_original_controller_leaves_the_rules_in_force() {
    let site = configured(ZONE);
    let daemon = site.start(&[]).await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    other(&site, &daemon, PLENTY).await;
    let mut node = named(&site, &daemon).await;
    controller.send(Kind::CONFIGURE, ORIGINAL).await;
    for number in [1, 2] {
        let start = requiring(number, &["zone = eu-1"]);
        controller.send(Kind::START, start).await;
        assert_eq!(node.expect_start().await, instance(number));
    }
    let later = site.node(&daemon).await;
    assert_eq!(later.connected.payload, ORIGINAL);
}

#[tokio::test]
async fn a_configure_with_a_mistake_comes_back_and_changes_nothing() {
    let site = configured(ZONE);
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut node = named(&site, &daemon).await;
    master.skip_to(Kind::NODE_CONNECTED).await;
    let wrong = ZONE.replace("zone: eu-1", "zone: [eu-2]");
    master.send(Kind::CONFIGURE, wrong.clone()).await;
    let answer = master.expect(Kind::INVALID_CONFIGURATION).await;
    assert_eq!(answer.payload, wrong);
    daemon
        .logged("configure.scheduler.aggregates[0].zone, line 5 column 13: expected text")
        .await;
    master
        .send(Kind::START, requiring(1, &["zone = eu-1"]))
        .await;
    assert_eq!(node.expect_start().await, instance(1));
    let later = site.node(&daemon).await;
    assert_eq!(later.connected.payload, ZONE);
}

#[tokio::test]
async fn the_node_file_counts_over_what_a_node_reports() {
    let site = configured(ORIGINAL);
    let file = site.path("nodes.yaml");
    let rule = format!(
        "nodes:\n- node: {NAMED}\n  labels: {{rack: r1, old: null}}\n  resources: {{gpu: 2}}\n"
    );
    std::fs::write(&file, rule).unwrap();
    let daemon = site.start(&["-node-file", file.to_str().unwrap()]).await;
    let mut master = site.master(&daemon).await;
    other(&site, &daemon, PLENTY).await;
    let mut node = named(&site, &daemon).await;
    let ready = Ready {
        node_uuid: NAMED.to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        cpus_online: 64,
        hostname: "host-1".to_owned(),
        labels: ["old", "new"]
            .map(|key| (key.to_owned(), "yes".to_owned()))
            .into(),
        resources: BTreeMap::from([("gpu".to_owned(), 9)]),
        ..Ready::default()
    };
    node.send(Kind::READY, ready.encode()).await;
    node.nothing_else().await;
    master
        .send(
            Kind::START,
            requiring(1, &["rack = r1", "new exists", "old not exists"]),
        )
        .await;
    assert_eq!(node.expect_start().await, instance(1));
    fits_nowhere(&mut master, requiring(2, &["old exists"])).await;
    master.send(Kind::START, with_gpus(3, 2)).await;
    assert_eq!(node.expect_start().await, instance(3));
    fits_nowhere(&mut master, with_gpus(4, 1)).await;
}

#[tokio::test]
async fn a_node_file_that_cannot_be_used_stops_the_start_and_is_named() {
    let site = configured(ORIGINAL);
    let file = site.path("nodes.yaml");
    let path = file.to_str().unwrap();
    let said = refused(site.command(&["-node-file", path])).await;
    assert_eq!(
        said,
        format!("cannot use the node file {path}: No such file or directory (os error 2)")
    );
    std::fs::write(&file, "nodes:\n- node: host-1\n  labels: {node.load: 0}\n").unwrap();
    let said = refused(site.command(&["-node-file", path])).await;
    let expected = format!(
        "cannot use the node file {path}: nodes[0].labels.node.load, line 3 column 12: expected a name "
    );
    assert!(said.starts_with(&expected), "{said}");
}

#[tokio::test]
async fn the_examples_of_a_configuration_and_a_node_file_are_used_as_they_are() {
    let site = Site::new();
    let example = |name: &str| {
        repository("examples/cluster")
            .join(name)
            .display()
            .to_string()
    };
    let uri = format!("file://{}", example("configuration.yaml"));
    let nodes = example("nodes.yaml");
    let daemon = site
        .start(&["-configuration-uri", &uri, "-node-file", &nodes])
        .await;
    assert!(daemon.log().iter().all(|line| !line.contains("WARN")));
    let mut master = site.master(&daemon).await;
    let mut node = named(&site, &daemon).await;
    fits_nowhere(&mut master, of_tenant(1, "red")).await;
    master.send(Kind::START, of_tenant(2, BLUE)).await;
    assert_eq!(node.expect_start().await, instance(2));
}
