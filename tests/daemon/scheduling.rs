//! `start.scheduling` and what nodes say of themselves beyond the original's figures, over the wire.

use bytes::Bytes;
use proto_frames::payload::{
    Batch, Group, GroupPolicy, InstanceStat, InstanceState, InstanceStopped, Migrate, Payload,
    PlacementDecision, Ready, ReasonKind, Requested, Scheduling, Start, StartFailure,
    StartFailureReason, Stats, overrides,
};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::peer::Peer;
use crate::site::Site;
use crate::words::{PLENTY, instance, start_of};

/// A START for one MiB that says this about its placement.
fn asking(instance: Uuid, scheduling: Scheduling) -> Start {
    Start {
        scheduling: Some(scheduling),
        ..start_of(instance, 1)
    }
}

fn requiring(instance: Uuid, text: &str) -> Start {
    let scheduling = Scheduling {
        require: vec![text.parse().unwrap()],
        ..Scheduling::default()
    };
    asking(instance, scheduling)
}

fn grouped(instance: Uuid, policy: GroupPolicy) -> Start {
    let group = Group {
        id: "web".to_owned(),
        policy,
        ..Group::default()
    };
    let scheduling = Scheduling {
        group: Some(group),
        ..Scheduling::default()
    };
    asking(instance, scheduling)
}

/// A READY of a node that has this label, and so many GPUs.
fn ready(node: &Peer, (key, value): (&str, &str), gpus: i64) -> Bytes {
    Ready {
        node_uuid: node.uuid.to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        cpus_online: 1000,
        hostname: format!("host-{}", node.uuid),
        labels: [(key.to_owned(), value.to_owned())].into(),
        resources: [("gpu".to_owned(), gpus)].into(),
        ..Ready::default()
    }
    .encode()
}

/// A STATS of a node with these instances.
fn stats(node: &Peer, instances: Vec<InstanceStat>) -> Bytes {
    Stats {
        node_uuid: node.uuid.to_string(),
        status: "READY".to_owned(),
        instances,
        ..Stats::default()
    }
    .encode()
}

/// A STATS of a node on which this instance runs.
fn stats_with(node: &Peer, instance: Uuid) -> Bytes {
    let running = InstanceStat {
        instance_uuid: instance.to_string(),
        state: InstanceState::Active,
        ..InstanceStat::default()
    };
    stats(node, vec![running])
}

/// A master, and a node in this zone that has one GPU and has said that nothing runs on it.
async fn zoned(site: &Site, zone: &str) -> (crate::site::Daemon, Peer, Peer) {
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut node = site.node(&daemon).await;
    master.expect_node().await;
    node.send(Kind::READY, ready(&node, ("zone", zone), 1))
        .await;
    node.send(Kind::STATS, stats(&node, Vec::new())).await;
    master.expect(Kind::STATS).await;
    (daemon, master, node)
}

/// Moves the first instance from one node to another; the payload of the START that this one is given.
async fn given_after_move(master: &mut Peer, from: &mut Peer, to: &mut Peer) -> Bytes {
    let instance_uuid = instance(1).to_string();
    from.send(Kind::STATS, stats_with(from, instance(1))).await;
    master.skip_to(Kind::STATS).await;
    let migrate = Migrate {
        instance_uuid: instance_uuid.clone(),
        target_node_uuid: to.uuid.to_string(),
        ..Migrate::default()
    };
    master.send(Kind::MIGRATE, migrate.encode()).await;
    from.expect(Kind::DELETE).await;
    let stopped = InstanceStopped {
        instance_uuid,
        ..InstanceStopped::default()
    };
    from.send(Kind::INSTANCE_STOPPED, stopped.encode()).await;
    to.expect(Kind::START).await.payload
}

async fn failure(peer: &mut Peer) -> StartFailure {
    let frame = peer.expect(Kind::START_FAILURE).await;
    StartFailure::decode(&frame.payload).unwrap()
}

#[tokio::test]
async fn a_start_goes_where_its_requirement_holds_as_it_came() {
    let site = Site::new();
    let (daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    let mut other = site.node(&daemon).await;
    master.expect_node().await;
    other
        .send(Kind::READY, ready(&other, ("zone", "us-1"), 0))
        .await;
    other.nothing_else().await;
    for number in 0..3 {
        let mut payload = requiring(instance(number), "zone in (eu-1, 'eu 2')")
            .encode()
            .to_vec();
        payload.extend_from_slice(b"---\nfor: the launcher\n");
        master.send(Kind::START, payload.clone()).await;
        assert_eq!(node.expect(Kind::START).await.payload, payload);
    }
    // A later READY moves it.
    node.send(Kind::READY, ready(&node, ("zone", "us-1"), 1))
        .await;
    node.nothing_else().await;
    let start = requiring(instance(9), "zone = eu-1");
    master.send(Kind::START, start.encode()).await;
    let failure = failure(&mut master).await;
    assert_eq!(failure.reason, StartFailureReason::FullCloud);
    assert_eq!(failure.reasons[0].reason, ReasonKind::Labels);
    assert_eq!(failure.reasons[0].what, "zone = eu-1");
    assert_eq!(failure.reasons[0].nodes, 2);
    assert!(failure.never);
}

#[tokio::test]
async fn what_cannot_be_understood_is_refused_by_its_key_and_place() {
    let site = Site::new();
    let (_daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    for (scheduling, expected) in [
        (
            "require: ['zone = a', 'zone >= x']",
            "start.scheduling.require[1]",
        ),
        ("require: ['node.cpu > 4']", "there is no fact 'node.cpu'"),
        (
            "must_understand: [colour]",
            "start.scheduling.must_understand[0]",
        ),
        ("must_understand: [image]", "'image' has no effect here"),
        ("version: 2", "start.scheduling.version"),
        (
            "group: {id: web, policy: together}",
            "start.scheduling.group.policy",
        ),
        ("batch: {id: b, count: 0}", "start.scheduling.batch.count"),
        ("count: 3", "start.scheduling.count"),
    ] {
        let payload = format!(
            "start:\n  instance_uuid: {}\n  scheduling: {{{scheduling}}}\n",
            instance(1)
        );
        master.send(Kind::START, payload).await;
        let failure = failure(&mut master).await;
        assert_eq!(failure.reason, StartFailureReason::InvalidData);
        assert_eq!(failure.instance_uuid, instance(1).to_string());
        let detail = failure.detail.unwrap();
        assert!(detail.contains(expected), "{detail}");
        let is_expression = scheduling.contains(">= x");
        assert_eq!(detail.contains("column 9"), is_expression, "{detail}");
    }
    node.nothing_else().await;
}

#[tokio::test]
async fn a_dry_run_is_answered_with_the_decision_and_starts_nothing() {
    let site = Site::new();
    let (daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    let mut operator = site.operator(&daemon).await;
    let mut start = start_of(instance(1), PLENTY / 2);
    start.scheduling = Some(Scheduling {
        dry_run: true,
        count: Some(3),
        ..Scheduling::default()
    });
    for peer in [&mut master, &mut operator] {
        peer.send(Kind::START, start.encode()).await;
        let frame = peer.expect(Kind::PLACEMENT_DECISION).await;
        let decision = PlacementDecision::decode(&frame.payload).unwrap();
        assert_eq!((decision.count, decision.fits), (3, 2));
        assert_eq!(decision.placements.len(), 1);
        assert_eq!(decision.placements[0].node_uuid, node.uuid.to_string());
        assert_eq!(decision.placements[0].count, 2);
        assert_eq!(decision.reasons[0].reason, ReasonKind::Memory);
        peer.nothing_else().await;
    }
    node.nothing_else().await;
    master.start(instance(1), PLENTY).await;
    assert_eq!(node.expect_start().await, instance(1));
}

#[tokio::test]
async fn an_original_controller_is_told_no_more_than_it_knows() {
    let (site, daemon) = Site::running().await;
    let mut original = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut node = site.node(&daemon).await;
    original.expect_node().await;
    node.send(Kind::READY, ready(&node, ("zone", "eu-1"), 0))
        .await;
    node.nothing_else().await;
    let dry = Scheduling {
        dry_run: true,
        ..Scheduling::default()
    };
    for (start, reason) in [
        (
            requiring(instance(1), "zone = us-1"),
            StartFailureReason::FullCloud,
        ),
        (asking(instance(1), dry), StartFailureReason::InvalidData),
    ] {
        original.send(Kind::START, start.encode()).await;
        let frame = original.expect(Kind::START_FAILURE).await;
        let failure = StartFailure::decode(&frame.payload).unwrap();
        assert_eq!(failure.reason, reason);
        let text = std::str::from_utf8(&frame.payload).unwrap();
        for key in ["detail", "reasons", "never"] {
            assert!(!text.contains(key), "{text}");
        }
    }
    node.nothing_else().await;
}

#[tokio::test]
async fn groups_and_custom_resources_are_relearned_from_stats() {
    let site = Site::new();
    let (daemon, mut master, mut first) = zoned(&site, "eu-1").await;
    let old = InstanceStat {
        instance_uuid: instance(100).to_string(),
        state: InstanceState::Active,
        requested: Some(Requested {
            mem_mb: 1,
            resources: [("gpu".to_owned(), 1)].into(),
            ..Requested::default()
        }),
        group: "web".to_owned(),
        ..InstanceStat::default()
    };
    first.send(Kind::STATS, stats(&first, vec![old])).await;
    master.expect(Kind::STATS).await;
    let mut second = site.node(&daemon).await;
    master.expect_node().await;
    second
        .send(Kind::READY, ready(&second, ("zone", "eu-1"), 1))
        .await;
    second.send(Kind::STATS, stats(&second, Vec::new())).await;
    master.expect(Kind::STATS).await;

    let apart = grouped(instance(1), GroupPolicy::AntiAffinity);
    master.send(Kind::START, apart.encode()).await;
    assert_eq!(second.expect_start().await, instance(1));
    let needing = Scheduling {
        resources: [("gpu".to_owned(), 1)].into(),
        ..Scheduling::default()
    };
    let gpu = asking(instance(2), needing.clone());
    master.send(Kind::START, gpu.encode()).await;
    assert_eq!(second.expect_start().await, instance(2));
    let gpu = asking(instance(3), needing);
    master.send(Kind::START, gpu.encode()).await;
    let failure = failure(&mut master).await;
    assert_eq!(failure.reasons[0].reason, ReasonKind::Resource);
    assert_eq!(failure.reasons[0].what, "gpu");
    first.nothing_else().await;
}

#[tokio::test]
async fn a_batch_is_placed_with_its_last_start() {
    let site = Site::new();
    let (_daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    let of_batch = |number: u128| {
        let batch = Batch {
            id: "b".to_owned(),
            count: 3,
        };
        let scheduling = Scheduling {
            batch: Some(batch),
            ..Scheduling::default()
        };
        asking(instance(number), scheduling).encode()
    };
    master.send(Kind::START, of_batch(1)).await;
    master.send(Kind::START, of_batch(2)).await;
    master.nothing_else().await;
    node.nothing_else().await;
    master.send(Kind::START, of_batch(3)).await;
    for number in 1..4 {
        assert_eq!(node.expect_start().await, instance(number));
    }
    master.nothing_else().await;
}

#[tokio::test]
async fn labels_that_cannot_be_are_refused_and_change_nothing() {
    let site = Site::new();
    let (_daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    for (key, value) in [("two words", "x"), ("long", &"x".repeat(256))] {
        node.send(Kind::READY, ready(&node, (key, value), 1)).await;
        let refused = node.expect_refused().await;
        assert!(refused.detail.starts_with("labels"), "{}", refused.detail);
    }
    let start = requiring(instance(1), "zone = eu-1");
    master.send(Kind::START, start.encode()).await;
    assert_eq!(node.expect_start().await, instance(1));
}

#[tokio::test]
async fn what_has_changed_of_a_start_is_said_to_each_launcher_as_it_takes_it() {
    let site = Site::new();
    let (daemon, mut master, mut first) = zoned(&site, "eu-1").await;
    let movable = Scheduling {
        relocate: Some(true),
        ..Scheduling::default()
    };
    let mut payload = asking(instance(1), movable).encode().to_vec();
    payload.extend_from_slice(b"---\noverrides: {mem_mb: 9}\n...\nfor: the launcher\n");
    master.send(Kind::START, payload.clone()).await;
    assert_eq!(first.expect(Kind::START).await.payload, payload);

    let mut original = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    original.ready(PLENTY).await;
    let mut able = site.node(&daemon).await;
    let ready = Ready {
        capabilities: vec!["overrides".to_owned()],
        ..Ready::decode(&ready(&able, ("zone", "eu-2"), 0)).unwrap()
    };
    able.send(Kind::READY, ready.encode()).await;
    for node in [&mut original, &mut able] {
        node.send(Kind::STATS, stats(node, Vec::new())).await;
        master.skip_to(Kind::STATS).await;
    }
    let text = String::from_utf8(payload).unwrap();
    let edited = text.replace("restart: false", "restart: true");
    assert_ne!(edited, text);
    let with_overrides = format!("overrides:\n  restart: true\n...\n{text}");
    assert_eq!(
        given_after_move(&mut master, &mut first, &mut original).await,
        edited
    );
    assert_eq!(
        given_after_move(&mut master, &mut original, &mut able).await,
        with_overrides
    );
}

#[tokio::test]
async fn overrides_from_a_controller_are_no_start_or_none_of_the_schedulers_business() {
    let site = Site::new();
    let (_daemon, mut master, mut node) = zoned(&site, "eu-1").await;
    let start = String::from_utf8(start_of(instance(1), 1).encode().to_vec()).unwrap();
    let smuggled = format!("overrides:\n  mem_mb: 9\n...\n{start}");
    master.send(Kind::START, smuggled).await;
    let failure = failure(&mut master).await;
    assert_eq!(failure.reason, StartFailureReason::InvalidData);
    assert!(failure.detail.unwrap().starts_with("start, line 1"));
    node.nothing_else().await;
    // An unknown key, which a launcher passes over as well.
    let beside = format!("overrides:\n  mem_mb: 9\n{start}");
    master.send(Kind::START, beside.clone()).await;
    assert_eq!(node.expect(Kind::START).await.payload, beside);
    let read = overrides::decode_start(beside.as_bytes()).unwrap();
    assert_eq!(read.requirements.mem_mb, 1);
}
