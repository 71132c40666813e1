//! What outlives what: workloads their launcher and their scheduler, exit codes everybody.

use rustix::process::Signal;

use crate::world::{World, runs, supervisor, until};

#[tokio::test]
async fn a_killed_launchers_processes_run_on_and_the_next_one_finds_them_and_their_exit_codes() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell(
        "ends-later",
        "echo $$; while ! [ -e ../go ]; do sleep 0.02; done; exit 4",
    )
    .await;
    peer.shell(
        "ends-meanwhile",
        "echo $$; while ! [ -e ../go ]; do sleep 0.02; done; exit 5",
    )
    .await;
    let later = world.pids("ends-later", 1).await[0];
    let meanwhile = world.pids("ends-meanwhile", 1).await[0];
    peer.listed("ends-later", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    assert!(runs(later) && runs(meanwhile));
    std::fs::write(world.state_dir().join("instances/ends-meanwhile/go"), "").unwrap();
    until("its end", || !runs(meanwhile)).await;

    let _launcher = world.launch(&[]);
    let node = peer.connect.source;
    let mut peer = world.admit().await;
    assert_eq!(peer.connect.source, node, "the same node");
    assert_eq!(peer.stopped().await, ("ends-meanwhile".to_owned(), Some(5)));
    let listed = peer.listed("ends-later", "active").await;
    assert_eq!(listed.requested.unwrap().mem_mb, 64);
    std::fs::write(world.state_dir().join("instances/ends-later/go"), "").unwrap();
    assert_eq!(peer.stopped().await, ("ends-later".to_owned(), Some(4)));
}

#[tokio::test]
async fn a_launcher_ignores_sighup() {
    let (_world, launcher, mut peer) = World::connected(&[]).await;
    launcher.signal(Signal::HUP);
    // A launcher that the signal ends, or that says goodbye, sends no three further reports.
    peer.reports(3).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    peer.listed("a", "active").await;
}

#[tokio::test]
async fn a_process_found_again_can_be_deleted() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; trap '' TERM; while :; do sleep 0.05; done")
        .await;
    let pid = world.pids("a", 1).await[0];
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&["-stop-grace=200ms"]);
    let mut peer = world.accept().await;
    peer.listed("a", "active").await;
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(-9)));
    assert!(!runs(pid));
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_workload_with_it_and_the_end_is_reported() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    rustix::process::kill_process(supervisor(&world.state_dir(), "a"), Signal::KILL).unwrap();
    assert_eq!(peer.stopped().await, ("a".to_owned(), None));
    until("the workload's end", || !runs(pid)).await;
}

#[tokio::test]
async fn a_start_that_never_began_is_given_up_for_good_by_the_next_launcher() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    rustix::process::kill_process(supervisor(&world.state_dir(), "a"), Signal::KILL).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    // As if the launcher had died between its own record and the supervisor's.
    let dir = world.state_dir().join("instances/a");
    let mut record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(dir.join("record.json")).unwrap()).unwrap();
    record["stage"] = "Starting".into();
    std::fs::write(dir.join("record.json"), record.to_string()).unwrap();
    std::fs::remove_file(dir.join("process.json")).unwrap();
    let _launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    peer.stats(|stats| stats.instances.is_empty()).await;
    // Nothing of it is kept: its START has failed.
    let record = dir.join("record.json");
    until("it is forgotten", || !record.exists()).await;
}

#[tokio::test]
async fn the_schedulers_restart_does_not_touch_what_runs_and_what_ended_meanwhile_is_told() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("runs", "echo $$; exec sleep 1000").await;
    peer.shell(
        "ends",
        "echo $$; while ! [ -e ../go ]; do sleep 0.02; done; exit 6",
    )
    .await;
    let pid = world.pids("runs", 1).await[0];
    let ending = world.pids("ends", 1).await[0];
    peer.listed("ends", "active").await;
    drop(peer);
    std::fs::write(world.state_dir().join("instances/ends/go"), "").unwrap();
    until("its end", || !runs(ending)).await;
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("ends".to_owned(), Some(6)));
    let stats = peer.stats(|stats| stats.instances.len() == 1).await;
    assert_eq!(stats.starts_seen, Some(0));
    assert!(runs(pid));
    peer.delete("runs", false).await;
    assert_eq!(peer.deleted().await.1, Some(-15));
}

#[tokio::test]
async fn a_launcher_that_is_told_to_end_says_offline_and_leaves_its_workloads() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    launcher.signal(Signal::TERM);
    assert_eq!(peer.answer().await.kind, proto_frames::Kind::OFFLINE);
    assert!(launcher.ended().await.success());
    assert!(runs(pid));

    let mut launcher = world.launch(&["-stop-on-exit"]);
    let mut peer = world.accept().await;
    peer.listed("a", "active").await;
    launcher.signal(Signal::INT);
    assert_eq!(peer.answer().await.kind, proto_frames::Kind::OFFLINE);
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(-15)));
    assert!(launcher.ended().await.success());
    assert!(!runs(pid));
}
