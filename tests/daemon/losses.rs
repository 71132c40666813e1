//! Connections that are cut with STARTs on their way: each START still ends in exactly one way.

use proto_frames::payload::{PlacementState, QueryKind, StartFailureReason};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::peer::{Dialer, NARROW, Peer};
use crate::site::{Daemon, Site};
use crate::words::{PLENTY, attach_volume, delete, instance, large_start};

/// So long that whatever happens did not happen because of it.
const LONG: &[&str] = &["--in-doubt-time", "10min"];

/// A master, and a node with one START that it received and did not confirm; how to connect the node again.
async fn with_one_start(site: &Site, daemon: &Daemon, encoding: Encoding) -> (Peer, Dialer) {
    let mut master = site.master(daemon).await;
    let dialer = site.dialer(daemon, Role::AGENT, encoding);
    let mut node = dialer.connect().await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    master.start(instance(1), 100).await;
    assert_eq!(node.expect_start().await, instance(1));
    // Cut, without a farewell.
    drop(node);
    assert_eq!(master.expect_node_gone().await, dialer.uuid);
    master.nothing_else().await;
    (master, dialer)
}

/// The START has failed, and nothing else is said.
async fn expect_loss(master: &mut Peer) {
    let failed = master
        .expect_failure(StartFailureReason::LaunchFailure)
        .await;
    assert_eq!(failed, instance(1));
    master.nothing_else().await;
}

#[tokio::test]
async fn a_start_written_to_a_node_that_is_cut_off_fails_after_the_in_doubt_time() {
    let site = Site::new();
    let daemon = site.start(&["--in-doubt-time", "300ms"]).await;
    let (mut master, _) = with_one_start(&site, &daemon, Encoding::Gob).await;
    expect_loss(&mut master).await;
}

#[tokio::test]
async fn a_start_in_doubt_is_settled_when_the_node_is_back_and_lists_it() {
    let site = Site::new();
    let daemon = site.start(LONG).await;
    let (mut master, dialer) = with_one_start(&site, &daemon, Encoding::Gob).await;
    let mut operator = site.operator(&daemon).await;
    let seen = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(seen[0].state, PlacementState::InDoubt);

    let mut node = dialer.connect().await;
    node.ready(PLENTY).await;
    node.stats(&[instance(1)]).await;
    node.nothing_else().await;
    let seen = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(seen[0].state, PlacementState::Running);
    assert_eq!(seen[0].mem_mb, 100, "what it asked for is still known");
    assert_eq!(master.expect_node().await, dialer.uuid);
    master.expect(Kind::STATS).await;
    master.nothing_else().await;
}

/// The node of a START in doubt is back and lists these: the START has failed, and nothing else is said.
async fn fails_once_back_with(listed: &[Uuid]) {
    let site = Site::new();
    let daemon = site.start(LONG).await;
    let (mut master, dialer) = with_one_start(&site, &daemon, Encoding::Gob).await;
    let mut node = dialer.connect().await;
    node.ready(PLENTY).await;
    node.stats(listed).await;
    master.expect_node().await;
    master.expect(Kind::STATS).await;
    expect_loss(&mut master).await;
}

#[tokio::test]
async fn a_start_in_doubt_fails_also_when_the_node_is_back_with_nothing_at_all() {
    fails_once_back_with(&[]).await;
}

#[tokio::test]
async fn a_start_in_doubt_fails_as_soon_as_the_node_is_back_without_it() {
    fails_once_back_with(&[instance(2)]).await;
}

/// A master, and its only node, which is ready and reads nothing until its connection is full: how many STARTs it was
/// given.
async fn with_a_full_connection(site: &Site, daemon: &Daemon) -> (Peer, Peer, u128) {
    let mut master = site.master(daemon).await;
    let dialer = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(daemon, Role::AGENT, Encoding::Gob)
    };
    let mut node = dialer.connect().await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    let mut sent = 0;
    // Once it has stalled, nothing fits any more.
    while master.settle().await.is_empty() {
        let next = large_start(instance(sent), 100 * 1024);
        master.send(Kind::START, next).await;
        sent += 1;
    }
    (master, node, sent - 1)
}

#[tokio::test]
async fn starts_that_were_not_written_go_to_another_node_in_order() {
    let site = Site::new();
    let flags = [LONG, &["--stall-time", "100ms"]].concat();
    let daemon = site.start(&flags).await;
    let (mut master, lost, count) = with_a_full_connection(&site, &daemon).await;
    let mut other = site.node(&daemon).await;
    master.expect_node().await;
    other.ready(PLENTY).await;
    other.nothing_else().await;

    drop(lost);
    master.expect(Kind::NODE_DISCONNECTED).await;
    let first = other.expect_start().await;
    let written = (0..count).find(|n| instance(*n) == first).unwrap();
    for n in written + 1..count {
        assert_eq!(other.expect_start().await, instance(n));
    }
    other.nothing_else().await;
    master.nothing_else().await;
    let mut operator = site.operator(&daemon).await;
    let seen = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(seen.len() as u128, count);
    let in_doubt = seen
        .iter()
        .filter(|view| view.state == PlacementState::InDoubt);
    assert_eq!(in_doubt.count() as u128, written);
}

#[tokio::test]
async fn commands_that_were_not_written_are_answered() {
    let site = Site::new();
    let flags = [LONG, &["--stall-time", "100ms"]].concat();
    let daemon = site.start(&flags).await;
    let (mut master, lost, _) = with_a_full_connection(&site, &daemon).await;
    let (deleted, attached) = (
        delete(instance(1), lost.uuid),
        attach_volume(instance(2), lost.uuid),
    );
    master.send(Kind::DELETE, deleted).await;
    master.send(Kind::ATTACH_VOLUME, attached).await;
    master.nothing_else().await;
    drop(lost);
    master.skip_to(Kind::DELETE_FAILURE).await;
    master.skip_to(Kind::ATTACH_VOLUME_FAILURE).await;
}

#[tokio::test]
async fn the_answer_to_a_start_whose_sender_has_left_goes_to_the_controllers_that_are_there() {
    let site = Site::new();
    let daemon = site.start(&["--in-doubt-time", "300ms"]).await;
    let (master, _) = with_one_start(&site, &daemon, Encoding::Native).await;
    master.close().await;
    let mut next = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let failed = next.expect_failure(StartFailureReason::LaunchFailure).await;
    assert_eq!(failed, instance(1));
}

#[tokio::test]
async fn a_repeated_start_goes_to_the_node_that_has_the_instance() {
    let site = Site::new();
    let daemon = site.start(LONG).await;
    let mut master = site.master(&daemon).await;
    let (mut one, mut two) = (site.node(&daemon).await, site.node(&daemon).await);
    for node in [&mut one, &mut two] {
        master.expect_node().await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
    }
    for _ in 0..5 {
        master.start(instance(1), 100).await;
        assert_eq!(one.expect_start().await, instance(1));
    }
    two.nothing_else().await;
    let mut operator = site.operator(&daemon).await;
    let view = operator.node_view(one.uuid).await.unwrap();
    assert_eq!((view.instances, view.mem_free_mb), (1, PLENTY - 100));
}
