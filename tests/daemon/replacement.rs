//! One live session per UUID and role: a newer connection takes the older one's place, and no other peer notices.

use std::collections::HashSet;

use proto_frames::payload::ControllerRole;
use proto_frames::{Encoding, Kind, Role};

use crate::peer::{Peer, Wire};
use crate::site::{Site, output, within};
use crate::words::{PLENTY, instance};

#[tokio::test]
async fn a_newer_connection_of_a_node_replaces_the_older_and_controllers_hear_nothing_of_it() {
    let (site, daemon, mut master) = Site::with_master().await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut older = dialer.connect().await;
    assert_eq!(master.expect_node().await, dialer.uuid);
    older.ready(PLENTY).await;
    older.nothing_else().await;

    let mut newer = dialer.connect().await;
    older.expect_end().await;
    newer.ready(PLENTY).await;
    newer.nothing_else().await;
    master.start(instance(1), 100).await;
    assert_eq!(newer.expect_start().await, instance(1));
    master.nothing_else().await;

    newer.close().await;
    assert_eq!(master.expect_node_gone().await, dialer.uuid);
    master.nothing_else().await;
}

#[tokio::test]
async fn a_newer_connection_gets_nothing_before_its_first_ready() {
    let (site, daemon, mut master) = Site::with_master().await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut older = dialer.connect().await;
    master.expect_node().await;
    older.ready(PLENTY).await;
    older.nothing_else().await;
    let mut newer = dialer.connect().await;
    master.start(instance(1), 100).await;
    master
        .expect_failure(proto_frames::payload::StartFailureReason::FullCloud)
        .await;
    newer.nothing_else().await;
}

#[tokio::test]
async fn a_newer_connection_of_the_master_is_master() {
    let (site, daemon) = Site::running().await;
    let dialer = site.dialer(&daemon, Role::CONTROLLER, Encoding::Native);
    let mut older = dialer.connect().await;
    older.expect_role(ControllerRole::Master).await;
    let mut backup = site.backup(&daemon).await;

    let mut newer = dialer.connect().await;
    newer.expect_role(ControllerRole::Master).await;
    older.expect_end().await;
    newer.nothing_else().await;
    backup.nothing_else().await;
}

#[tokio::test]
async fn a_node_that_connects_over_and_over_is_announced_once() {
    let (site, daemon, mut master) = Site::with_master().await;
    let dialer = site.dialer(&daemon, Role::AGENT | Role::NETAGENT, Encoding::Gob);
    let mut connections: Vec<Peer> = Vec::new();
    for _ in 0..5 {
        connections.push(dialer.connect().await);
    }
    let mut last = connections.pop().unwrap();
    last.nothing_else().await;
    for mut replaced in connections {
        replaced.expect_end().await;
    }
    let kinds: Vec<Kind> = master
        .settle()
        .await
        .iter()
        .map(|frame| frame.kind)
        .collect();
    // Once for each of its roles.
    assert_eq!(kinds, [Kind::NODE_CONNECTED; 2]);
}

#[tokio::test]
async fn a_connection_that_is_replaced_was_answered_before() {
    let (site, daemon, mut master) = Site::with_master().await;
    let mut connections = Vec::new();
    for encoding in [Encoding::Gob, Encoding::Native] {
        let dialer = site.dialer(&daemon, Role::AGENT, encoding);
        // An original client that is cut before CONNECTED never comes back: `connect` insists on it.
        let all = (0..16).map(|_| {
            let dialer = dialer.clone();
            tokio::spawn(async move { dialer.connect().await })
        });
        let all: Vec<_> = all.collect();
        assert_eq!(master.expect_node().await, dialer.uuid);
        for connection in all {
            connections.push(connection.await.unwrap());
        }
    }
}

#[tokio::test]
async fn two_machines_with_one_uuid_are_named_and_slowed_down() {
    let (site, daemon) = Site::running().await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut older = dialer.connect().await;
    let mut newer = dialer.connect().await;
    for _ in 0..2 {
        older.expect_end().await;
        older = newer;
        newer = dialer.connect().await;
    }
    older.expect_end().await;
    // From here on each is held back for a moment, in which the other one is heard.
    let mut held = within(dialer.tls()).await.unwrap();
    let connect = proto_frames::Connect::new(dialer.role, dialer.uuid);
    held.send(&proto_frames::Message::Connect(connect)).await;
    newer.ready(PLENTY).await;
    newer.nothing_else().await;
    let answer = held.next().await;
    assert!(
        matches!(answer, Some(proto_frames::Message::Connected(_))),
        "{answer:?}"
    );
    let address = |wire: &Wire| wire.stream.get_ref().0.local_addr().unwrap().to_string();
    let line = daemon.logged("seem to have one UUID").await;
    for part in [
        dialer.uuid.to_string(),
        address(&newer.wire),
        address(&held),
        "WARN".to_owned(),
    ] {
        assert!(line.contains(&part), "{part}: {line}");
    }
    newer.expect_end().await;
    // It is not only in the log.
    let mut status = site.ciaoctl(daemon.address);
    status.args(["status", "--json"]);
    let status = output(status).await;
    assert_eq!(status.status.code(), Some(9), "{status:?}");
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|it| it["kind"] == "uuid_used_twice");
    let found = found.unwrap_or_else(|| panic!("{status}"));
    assert_eq!(found["subject"], dialer.uuid.to_string());
    for part in [address(&newer.wire), address(&held)] {
        let what = found["what"].as_str().unwrap();
        assert!(what.contains(&part), "{part}: {found}");
    }
}

#[tokio::test]
async fn nodes_that_come_and_go_are_told_once_each_and_in_order() {
    let (site, daemon, mut master) = Site::with_master().await;
    let mut there = HashSet::new();
    for _ in 0..10 {
        let node = site.node(&daemon).await;
        assert!(there.insert(master.expect_node().await));
        let uuid = node.uuid;
        node.close().await;
        assert_eq!(master.expect_node_gone().await, uuid);
    }
    master.nothing_else().await;
}
