//! What survives the process: its UUID, which nodes to wait for after a crash, and a store that stops no start.

use proto_frames::payload::StartFailureReason;
use proto_frames::{Encoding, Role, Uuid};

use crate::peer::Dialer;
use crate::site::{Daemon, Site, output};
use crate::words::{PLENTY, instance};

/// A node is known to a scheduler that then crashes; its state directory stays, and how to connect the node again.
async fn crashed(site: &Site) -> (String, Dialer) {
    let state = site.path("state").display().to_string();
    let daemon = site.start(&["--state-dir", &state]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut node = dialer.connect().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    daemon.logged("1 node remembered").await;
    daemon.kill().await;
    (state, dialer)
}

fn to(daemon: &Daemon, dialer: &Dialer) -> Dialer {
    Dialer {
        address: daemon.address,
        ..dialer.clone()
    }
}

#[tokio::test]
async fn the_schedulers_uuid_is_kept_in_the_state_directory() {
    let site = Site::new();
    let state = site.path("deep/state").display().to_string();
    let mut uuids: Vec<Uuid> = Vec::new();
    for flags in [&["--state-dir", state.as_str()][..]; 2] {
        let daemon = site.start(flags).await;
        uuids.push(daemon.uuid);
        daemon.kill().await;
    }
    assert_eq!(uuids[0], uuids[1]);
    let elsewhere = site.path("other").display().to_string();
    assert_ne!(
        site.start(&["--state-dir", &elsewhere]).await.uuid,
        uuids[0]
    );
}

#[tokio::test]
async fn without_a_state_directory_the_uuid_is_the_certificates() {
    let site = Site::new();
    let first = site.start(&[]).await.uuid;
    assert_eq!(site.start(&[]).await.uuid, first);
    assert_ne!(Site::new().start(&[]).await.uuid, first);
}

#[tokio::test]
async fn after_a_crash_a_start_waits_for_the_node_that_comes_back() {
    let site = Site::new();
    let (state, dialer) = crashed(&site).await;
    let flags = ["--state-dir", &state, "--settle-time", "10min"];
    let daemon = site.start(&flags).await;
    daemon.logged("nodes connected before the restart: 1").await;
    let mut master = site.master(&daemon).await;
    master.start(instance(1), 100).await;
    master.nothing_else().await;

    let mut node = to(&daemon, &dialer).connect().await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    assert_eq!(node.expect_start().await, instance(1));
    node.stats(&[instance(1)]).await;
    master.expect(proto_frames::Kind::STATS).await;
    master.nothing_else().await;
    // All are back: from now on there is nothing to wait for.
    master.start(instance(2), PLENTY * 2).await;
    master.expect_failure(StartFailureReason::FullCloud).await;
}

#[tokio::test]
async fn nodes_that_came_just_before_a_graceful_stop_are_expected_like_all_others() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let mut daemon = site.start(&["--state-dir", &state]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut nodes = vec![dialer.connect().await];
    daemon.logged("1 node remembered").await;
    // The next write comes a while after that one.
    for _ in 0..4 {
        let mut node = dialer.clone().with_uuid(Uuid::new_v4()).connect().await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        nodes.push(node);
    }
    daemon.terminate();
    assert!(daemon.ended().await.success());
    let daemon = site.start(&["--state-dir", &state]).await;
    daemon.logged("nodes connected before the restart: 5").await;
}

#[tokio::test]
async fn a_start_that_waited_in_vain_fails_when_the_window_closes() {
    let site = Site::new();
    let (state, _) = crashed(&site).await;
    let flags = ["--state-dir", &state, "--settle-time", "300ms"];
    let daemon = site.start(&flags).await;
    let mut master = site.master(&daemon).await;
    master.start(instance(1), 100).await;
    let failed = master
        .expect_failure(StartFailureReason::NoComputeNodes)
        .await;
    assert_eq!(failed, instance(1));
}

#[tokio::test]
async fn without_a_state_directory_nothing_waits() {
    let site = Site::new();
    let (_, dialer) = crashed(&site).await;
    let daemon = site.start(&["--settle-time", "10min"]).await;
    let mut master = site.master(&daemon).await;
    master.start(instance(1), 100).await;
    master
        .expect_failure(StartFailureReason::NoComputeNodes)
        .await;
    to(&daemon, &dialer).connect().await;
}

#[tokio::test]
async fn instances_that_outlived_the_scheduler_are_relearned_from_stats() {
    let site = Site::new();
    let (state, dialer) = crashed(&site).await;
    let daemon = site.start(&["--state-dir", &state]).await;
    let mut master = site.master(&daemon).await;
    let mut node = to(&daemon, &dialer).connect().await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.stats(&[instance(1)]).await;
    master.expect(proto_frames::Kind::STATS).await;
    let mut other = site.node(&daemon).await;
    master.expect_node().await;
    other.ready(PLENTY).await;
    other.nothing_else().await;
    // So that it is not started a second time elsewhere.
    for _ in 0..3 {
        master.start(instance(1), 100).await;
        assert_eq!(node.expect_start().await, instance(1));
    }
    other.nothing_else().await;
}

#[tokio::test]
async fn what_an_original_launcher_was_given_is_known_after_a_restart() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let mut daemon = site.start(&["--state-dir", &state]).await;
    let mut master = site.master(&daemon).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut node = dialer.connect().await;
    master.expect_node().await;
    node.ready(1000).await;
    node.nothing_else().await;
    master.start(instance(1), 600).await;
    assert_eq!(node.expect_start().await, instance(1));
    node.stats(&[instance(1)]).await;
    master.expect(proto_frames::Kind::STATS).await;
    drop((master, node));
    daemon.terminate();
    assert!(daemon.ended().await.success());

    let daemon = site.start(&["--state-dir", &state]).await;
    let mut master = site.master(&daemon).await;
    let mut node = to(&daemon, &dialer).connect().await;
    master.expect_node().await;
    node.ready(1000).await;
    node.stats(&[instance(1)]).await;
    master.expect(proto_frames::Kind::STATS).await;
    master.start(instance(2), 600).await;
    master.expect_failure(StartFailureReason::FullCloud).await;
    master.start(instance(3), 400).await;
    assert_eq!(node.expect_start().await, instance(3));
}

#[tokio::test]
async fn what_nothing_is_known_of_is_told() {
    let (site, daemon, mut master) = Site::with_master().await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut node = dialer.connect().await;
    master.expect_node().await;
    node.stats(&[instance(1), instance(2)]).await;
    master.expect(proto_frames::Kind::STATS).await;
    daemon
        .logged("lists 2 instances not started by this scheduler")
        .await;
}

#[tokio::test]
async fn without_a_state_directory_it_says_that_state_ends_with_the_process() {
    let (_site, daemon) = Site::running().await;
    daemon.logged("state is in memory only").await;
}

#[tokio::test]
async fn a_damaged_store_is_set_aside_and_stops_no_start() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let (store, aside) = ("store.redb", "store.redb.damaged-1");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(site.path("state").join(store), "torn").unwrap();
    let daemon = site.start(&["--state-dir", &state]).await;
    daemon.logged(aside).await;
    let kept = std::fs::read_to_string(site.path("state").join(aside)).unwrap();
    assert_eq!(kept, "torn");
    daemon.kill().await;
    let daemon = site.start(&["--state-dir", &state]).await;
    daemon.logged("0 records found").await;
    assert!(!site.path("state").join("store.redb.damaged-2").exists());
}

#[tokio::test]
async fn a_state_directory_in_use_is_refused() {
    let site = Site::new();
    let state = site.path("state").display().to_string();
    let _daemon = site.start(&["--state-dir", &state]).await;
    let output = output(site.command(&["--state-dir", &state])).await;
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = "another process has its store open; stop it, or give another --state-dir";
    let last = format!("ciao-scheduler: cannot use the state directory {state}: {why}\n");
    assert!(said.ends_with(&last), "{said}");
}
