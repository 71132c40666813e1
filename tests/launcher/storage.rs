//! A state directory that is full or read-only: nothing that runs is lost, nothing more is taken, and all is well again when
//! there is room.

use std::fs;
use std::time::Duration;

use proto_frames::payload::{Payload, Ready, StartFailure, StartFailureReason, Stats};
use proto_frames::{Kind, Uuid};
use rustix::process::Signal;

use crate::world::{Launcher, Peer, World, leased, runs, shell, until};

/// Room for some instances.
const KIB: u32 = 2500;

/// A connected launcher on a file system of its own.
async fn connected(args: &[&str]) -> (World, Launcher, Peer) {
    let world = World::on_volume(KIB).await;
    let launcher = world.launch(args);
    let peer = world.accept().await;
    (world, launcher, peer)
}

async fn kill(launcher: &mut Launcher) {
    launcher.signal(Signal::KILL);
    launcher.ended().await;
}

fn is_full(stats: &Stats) -> bool {
    stats.status == "FULL" && stats.fault.contains("state directory cannot be written")
}

/// Whether anything is kept of an instance.
fn is_kept(world: &World, id: &str) -> bool {
    let dirs = ["instances", "new"].map(|it| world.state_dir().join(it).join(id));
    dirs.iter().any(|dir| dir.exists())
}

async fn run_two(peer: &mut Peer) {
    for id in ["stays", "leaves"] {
        peer.shell(id, "echo $$; exec sleep 1000").await;
        peer.listed(id, "active").await;
    }
}

/// A launcher that was started again and cannot write says so, with what runs.
async fn back_and_full(world: &World, node: Uuid) -> Peer {
    let mut peer = world.admit().await;
    assert_eq!(peer.connect.source, node, "the same node");
    let stats = peer.stats(|stats| stats.instances.len() == 2).await;
    assert!(is_full(&stats), "{}: {}", stats.status, stats.fault);
    peer
}

/// A START fails because the node has no room to write; what the launcher says.
async fn takes_nothing(peer: &mut Peer) -> StartFailure {
    peer.shell("more", "echo $$").await;
    let failure = peer.failure().await;
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    failure
}

#[tokio::test]
async fn a_launcher_starts_on_a_full_disk_with_what_runs_takes_nothing_and_recovers_by_itself() {
    let (world, mut launcher, mut peer) = connected(&[]).await;
    run_two(&mut peer).await;
    let (node, stays) = (peer.connect.source, world.pids("stays", 1).await[0]);
    kill(&mut launcher).await;
    world.volume().fill();

    let _launcher = world.launch(&[]);
    let mut peer = back_and_full(&world, node).await;
    peer.next(&[Kind::FULL]).await;

    let failure = takes_nothing(&mut peer).await;
    let detail = failure.detail.unwrap();
    assert!(detail.contains("No space left on device"), "{detail}");
    assert!(!is_kept(&world, "more"));

    peer.delete("leaves", false).await;
    assert_eq!(peer.deleted().await, ("leaves".to_owned(), Some(-15)));
    assert!(runs(stays));

    world.volume().free();
    peer.next(&[Kind::READY]).await;
    peer.shell("more", "echo $$; exec sleep 1000").await;
    peer.listed("more", "active").await;
    peer.listed("stays", "active").await;
}

#[tokio::test]
async fn a_launcher_starts_on_a_read_only_disk_and_all_that_happened_is_kept_when_it_is_writable() {
    let (world, mut launcher, mut peer) = connected(&[]).await;
    run_two(&mut peer).await;
    let node = peer.connect.source;
    kill(&mut launcher).await;
    world.volume().make_read_only();
    let mut launcher = world.launch(&[]);
    let mut peer = back_and_full(&world, node).await;
    takes_nothing(&mut peer).await;
    peer.delete("leaves", false).await;
    assert_eq!(peer.deleted().await.0, "leaves");

    world.volume().make_writable();
    peer.next(&[Kind::READY]).await;
    kill(&mut launcher).await;
    let _launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    let stats = peer.stats(|_| true).await;
    let ids: Vec<&str> = stats
        .instances
        .iter()
        .map(|it| &*it.instance_uuid)
        .collect();
    assert_eq!(ids, ["stays"]);
}

#[tokio::test]
async fn a_disk_that_fills_up_costs_no_exit_code_and_no_end() {
    let script = "while [ -e ../stay ]; do sleep 0.02; done; exit 7";
    let (world, mut launcher, mut peer) = connected(&[]).await;
    peer.shell("ends", &format!("touch ../stay; {script}"))
        .await;
    peer.listed("ends", "active").await;
    let stay = world.state_dir().join("instances/ends/stay");
    until("the workload", || stay.exists()).await;
    world.volume().fill();

    // The first that finds it full.
    let failure = takes_nothing(&mut peer).await;
    let detail = failure.detail.unwrap();
    assert!(detail.contains("No space left on device"), "{detail}");
    assert!(!is_kept(&world, "more"));
    peer.stats(is_full).await;
    fs::remove_file(stay).unwrap();
    assert_eq!(peer.stopped().await, ("ends".to_owned(), Some(7)));
    drop(peer);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("ends".to_owned(), Some(7)), "again");

    kill(&mut launcher).await;
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("ends".to_owned(), Some(7)));
    peer.stats(is_full).await;
    world.volume().free();
    peer.next(&[Kind::READY]).await;
}

#[tokio::test]
async fn a_full_disk_is_freed_of_what_is_kept_of_ended_instances() {
    let (world, _launcher, mut peer) = connected(&[]).await;
    peer.shell("a", "head -c 1000000 /dev/zero; echo $$; exec sleep 1000")
        .await;
    let written = || world.output("a").len() > 1_000_000;
    until("its output", written).await;
    peer.delete("a", true).await;
    assert_eq!(peer.stopped().await.0, "a");
    let kept = world.state_dir().join("kept/a.1");
    assert!(kept.exists());
    world.volume().fill();
    takes_nothing(&mut peer).await;
    until("room", || !kept.exists()).await;
    peer.stats(|stats| stats.status == "READY").await;
}

#[tokio::test]
async fn the_lease_goes_on_on_a_full_disk() {
    let lease = Duration::from_secs(3);
    let (world, _launcher, mut peer) = connected(&["-lease=3s"]).await;
    peer.renews = true;
    peer.reports(2).await;
    peer.start(&leased("a", "exec sleep 1000")).await;
    peer.listed("a", "active").await;
    world.volume().fill();
    let before = world.lease_until();
    while world.lease_until() <= before + lease {
        peer.reports(1).await;
    }
    peer.listed("a", "active").await;
}

#[tokio::test]
async fn a_directory_that_never_had_a_node_is_refused_while_it_is_full() {
    let world = World::on_volume(KIB).await;
    world.volume().fill();
    let output = world.command(&[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for part in [
        "No space left on device",
        "this node has no UUID yet",
        "free space in it",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(!said.contains("give another"), "{said}");
    world.volume().free();
    let _launcher = world.launch(&[]);
    world.accept().await;
}

#[tokio::test]
async fn the_disk_that_is_reported_is_the_one_that_instances_are_on() {
    let world = World::on_volume(KIB).await;
    fs::create_dir(world.state_dir().join("instances")).unwrap();
    world.volume().mount_below("instances", 8000);
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    let ready = peer.next(&[Kind::READY]).await;
    let ready = Ready::decode(&ready.payload).unwrap();
    // 8000 KiB in units of 10^6 bytes.
    assert_eq!(ready.disk_total_mb, 8);
    peer.start(&shell("a", "exec sleep 1000")).await;
    peer.listed("a", "active").await;
    until("its directory", || is_kept(&world, "a")).await;
}
