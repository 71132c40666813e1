//! What a node says of itself beyond its figures, when it says so, and what instances take of it.

use proto_frames::payload::{
    Group, GroupPolicy, Payload, Ready, Scheduling, Start, StartFailureReason, Stats,
};
use proto_frames::{Kind, Uuid};
use rustix::process::Signal;

use crate::world::{Peer, World, shell, within};

/// Reports come when something changes, and on a new connection, but not by themselves.
const NEVER: &str = "-report-interval=1h";

/// The next two frames, which are a report.
async fn report(peer: &mut Peer) -> (Ready, Stats) {
    let any = [Kind::READY, Kind::FULL, Kind::STATS, Kind::INSTANCE_STOPPED];
    let (stats, ready) = (peer.next(&any).await, peer.next(&any).await);
    assert_eq!((stats.kind, ready.kind), (Kind::STATS, Kind::READY));
    let ready = Ready::decode(&ready.payload).unwrap();
    (ready, Stats::decode(&stats.payload).unwrap())
}

/// A shell that sleeps, in a group, with so many gpus.
fn sleeper(id: &str, gpus: i64) -> Start {
    let group = Group {
        id: "web".to_owned(),
        policy: GroupPolicy::AntiAffinity,
        ..Group::default()
    };
    let scheduling = Scheduling {
        resources: [("gpu".to_owned(), gpus)].into(),
        group: Some(group),
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..shell(id, "exec sleep 1000")
    }
}

#[tokio::test]
async fn a_connected_node_says_at_once_what_it_is_and_whose_resources_it_has() {
    let world = World::new().await;
    let whole = Uuid::from_u128(7).to_string();
    let part = Uuid::from_u128(8).to_string();
    let _launcher = world.launch(&[
        NEVER,
        "-label=zone=a",
        "-label",
        "image.ubuntu=24.04",
        "-resource=gpu=2",
        &format!("-shares={whole}"),
        &format!("-shared-by={part}"),
        "-volume=v-1",
        "-volume=v-2",
    ]);
    let mut peer = world.admit().await;
    let (ready, stats) = report(&mut peer).await;
    assert_eq!(ready.labels["zone"], "a");
    assert_eq!(ready.labels["image.ubuntu"], "24.04");
    assert_eq!(ready.labels["os"], "linux");
    assert_eq!(ready.resources, [("gpu".to_owned(), 2)].into());
    assert_eq!(ready.shares, whole);
    assert_eq!(ready.volumes, ["v-1", "v-2"]);
    assert_eq!(stats.volumes, ready.volumes);
    assert_eq!(
        (&ready.shared_by, &stats.shared_by),
        (&vec![part.clone()], &vec![part])
    );
    assert_eq!(
        (stats.labels, stats.resources, stats.shares),
        (ready.labels, ready.resources, ready.shares)
    );
}

#[tokio::test]
async fn every_new_connection_is_told_at_once_what_runs_and_in_which_group() {
    let (world, mut launcher, mut peer) = World::connected(&[NEVER, "-resource=gpu=2"]).await;
    peer.start(&sleeper("a", 1)).await;
    peer.listed("a", "active").await;
    drop(peer);
    let mut peer = world.admit().await;
    let (_, stats) = report(&mut peer).await;
    assert_eq!(stats.instances.len(), 1);
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&[NEVER, "-resource=gpu=2"]);
    let mut peer = world.admit().await;
    let (_, stats) = report(&mut peer).await;
    let requested = stats.instances[0].requested.clone().unwrap();
    assert_eq!(requested.resources, [("gpu".to_owned(), 1)].into());
    assert_eq!(stats.instances[0].group, "web");
}

#[tokio::test]
async fn a_resource_is_taken_until_its_instance_is_gone_also_after_a_restart() {
    let (world, mut launcher, mut peer) = World::connected(&["-resource=gpu=2"]).await;
    peer.start(&sleeper("a", 2)).await;
    peer.listed("a", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&["-resource=gpu=2"]);
    let mut peer = world.accept().await;
    peer.start(&sleeper("b", 1)).await;
    let failure = peer.failure().await;
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    assert_eq!(failure.detail.as_deref(), Some("gpu: asks 1, 0 free"));
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await.0, "a");
    peer.start(&sleeper("b", 1)).await;
    peer.listed("b", "active").await;
}

#[tokio::test]
async fn simulated_nodes_say_what_they_are_told_to_and_nothing_of_this_machine() {
    let world = World::new().await;
    let _launcher = world.launch(&[
        "-simulate=mem=1000,cpus=4,disk=5000",
        "-label=zone=b",
        "-resource=gpu=1",
    ]);
    let mut peer = world.admit().await;
    let (ready, _) = report(&mut peer).await;
    assert_eq!(ready.labels, [("zone".to_owned(), "b".to_owned())].into());
    peer.start(&sleeper("a", 2)).await;
    let failure = peer.failure().await;
    assert_eq!(failure.reason, StartFailureReason::FullComputeNode);
    peer.start(&sleeper("a", 1)).await;
    assert_eq!(peer.listed("a", "active").await.group, "web");
}

#[tokio::test]
async fn a_node_that_is_to_find_nothing_says_nothing() {
    let (_world, _launcher, mut peer) = World::connected(&["-no-detect"]).await;
    let stats = peer.stats(|_| true).await;
    assert!(stats.labels.is_empty() && stats.resources.is_empty() && stats.shares.is_empty());
}

#[tokio::test]
async fn what_is_no_label_or_resource_is_refused_before_anything_is_started() {
    let world = World::new().await;
    for (arg, reason) in [
        (
            "-label=node.load=0",
            "keys that begin with node. are the scheduler's",
        ),
        ("-resource=gpu=some", "must be a whole number from 0"),
        ("-shares=everybody", "--shares <UUID>"),
    ] {
        let mut command = world.command(&[arg]);
        let run = tokio::task::spawn_blocking(move || command.output());
        let output = within(run).await.unwrap().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    }
}
