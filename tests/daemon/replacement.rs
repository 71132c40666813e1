//! One live session per UUID and role: a newer connection takes the older one's place, and nobody else notices.

use std::collections::HashSet;

use proto_frames::payload::Standing;
use proto_frames::{Encoding, Kind, Role};

use crate::peer::Peer;
use crate::site::Site;
use crate::words::{PLENTY, instance};

#[tokio::test]
async fn a_newer_connection_of_a_node_replaces_the_older_and_controllers_hear_nothing_of_it() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
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
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
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
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let dialer = site.dialer(&daemon, Role::CONTROLLER, Encoding::Native);
    let mut older = dialer.connect().await;
    older.expect_standing(Standing::Master).await;
    let mut backup = site
        .connect(&daemon, Role::CONTROLLER, Encoding::Native)
        .await;
    backup.expect_standing(Standing::Backup).await;

    let mut newer = dialer.connect().await;
    newer.expect_standing(Standing::Master).await;
    older.expect_end().await;
    newer.nothing_else().await;
    backup.nothing_else().await;
}

#[tokio::test]
async fn a_node_that_connects_over_and_over_is_announced_once() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
    let dialer = site.dialer(&daemon, Role::AGENT | Role::NETAGENT, Encoding::Gob);
    let mut connections: Vec<Peer> = Vec::new();
    for _ in 0..20 {
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
async fn nodes_that_come_and_go_are_told_once_each_and_in_order() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let mut master = site.master(&daemon).await;
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
