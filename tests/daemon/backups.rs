//! A master that dies with commands on their way: what came of each, the controller that is promoted knows.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proto_frames::payload::{
    ControllerRole, InstanceView, Payload, PlacementState, QueryKind, Scheduling, Snapshot,
    StartFailure,
};
use proto_frames::{Encoding, Frame, Kind, Role, Uuid};

use crate::peer::Peer;
use crate::site::{Daemon, Site};
use crate::words::{delete, instance, start, start_of, started};

/// What each START asks for, and the node has for some of them.
const MEM_MB: i64 = 10;

/// STARTs that the node has room for.
const ROOM: u128 = 100;

/// A master, a backup, and a node with room for [`ROOM`] STARTs.
async fn with_backup(site: &Site, daemon: &Daemon) -> (Peer, Peer, Peer) {
    let mut master = site.master(daemon).await;
    let mut backup = site
        .connect(daemon, Role::CONTROLLER, Encoding::Native)
        .await;
    backup.expect_role(ControllerRole::Backup).await;
    let mut node = site.node(daemon).await;
    master.expect_node().await;
    backup.expect_node().await;
    node.ready(MEM_MB * i64::try_from(ROOM).unwrap()).await;
    node.nothing_else().await;
    (master, backup, node)
}

/// The instances in the pages among these frames; there must be a last page, and nothing before the first.
fn pages(frames: &[Frame]) -> Vec<InstanceView> {
    assert_eq!(frames[0].kind, Kind::SNAPSHOT);
    let pages = frames.iter().filter(|frame| frame.kind == Kind::SNAPSHOT);
    let pages: Vec<_> = pages
        .map(|frame| Snapshot::decode(&frame.payload).unwrap())
        .collect();
    assert!(pages.last().unwrap().last);
    pages.into_iter().flat_map(|page| page.instances).collect()
}

/// How often a START is said to have failed, by instance.
fn failures(frames: &[Frame]) -> BTreeMap<Uuid, usize> {
    let mut failures = BTreeMap::new();
    for frame in frames
        .iter()
        .filter(|frame| frame.kind == Kind::START_FAILURE)
    {
        let failure = StartFailure::decode(&frame.payload).unwrap();
        *failures
            .entry(failure.instance_uuid.parse().unwrap())
            .or_insert(0) += 1;
    }
    failures
}

/// Which instances are where, and how far.
fn places(rows: &[InstanceView]) -> BTreeSet<(&str, &str, &PlacementState)> {
    rows.iter()
        .map(|row| (&*row.instance_uuid, &*row.node_uuid, &row.state))
        .collect()
}

fn patient(number: u128) -> Bytes {
    let mut start = start_of(instance(number), MEM_MB);
    start.scheduling = Some(Scheduling {
        queue: "10m".parse().ok(),
        ..Scheduling::default()
    });
    start.encode()
}

#[tokio::test]
async fn every_start_of_a_master_that_dies_runs_once_or_has_failed_for_its_backup() {
    let (site, daemon) = Site::running().await;
    let (mut master, mut backup, mut node) = with_backup(&site, &daemon).await;
    let starts = (0..4 * ROOM).map(|number| (Kind::START, start(instance(number), MEM_MB)));
    master.pour(starts).await;
    // Killed, with most answers unread.
    drop(master);
    backup.expect_role(ControllerRole::Master).await;
    let told = backup.settle().await;
    let mut runs = BTreeMap::new();
    for frame in node.settle().await {
        *runs.entry(started(&frame.payload)).or_insert(0) += 1;
    }
    let failed = failures(&told);
    assert!(runs.values().all(|&times| times == 1), "{runs:?}");
    assert!(failed.values().all(|&times| times == 1), "{failed:?}");
    let both: Vec<_> = runs.keys().filter(|it| failed.contains_key(it)).collect();
    assert!(both.is_empty(), "{both:?}");
    // What was read before the end was dealt with in order: nothing in between is missing.
    let dealt_with = runs.len() + failed.len();
    let all: BTreeSet<_> = runs.keys().chain(failed.keys()).copied().collect();
    let expected: BTreeSet<_> = (0..dealt_with as u128).map(instance).collect();
    assert_eq!(all, expected);

    let mut operator = site.operator(&daemon).await;
    let seen = operator.query(QueryKind::Instances).await.instances;
    assert_eq!(places(&pages(&told)), places(&seen));
    assert_eq!(seen.len(), runs.len());
}

#[tokio::test]
async fn a_backup_sees_what_waits_and_what_a_dead_masters_delete_came_to() {
    let (site, daemon) = Site::running().await;
    let (mut master, mut backup, mut node) = with_backup(&site, &daemon).await;
    let all: Vec<Uuid> = (0..ROOM).map(instance).collect();
    let starts = (0..ROOM).map(|number| (Kind::START, start(instance(number), MEM_MB)));
    master.pour(starts).await;
    master.send(Kind::START, patient(ROOM)).await;
    master.skip_to(Kind::INSTANCE_QUEUED).await;
    node.settle().await;
    node.stats(&all).await;
    node.nothing_else().await;
    backup.skip_to(Kind::STATS).await;
    master
        .send(Kind::DELETE, delete(instance(0), node.uuid))
        .await;
    node.expect(Kind::DELETE).await;
    drop(master);
    backup.expect_role(ControllerRole::Master).await;
    let told = backup.settle().await;
    let rows = pages(&told);
    let waiting: Vec<_> = rows
        .iter()
        .filter(|row| row.state == PlacementState::Waiting)
        .collect();
    assert_eq!(waiting.len(), 1);
    assert_eq!(waiting[0].instance_uuid, instance(ROOM).to_string());
    assert_eq!(
        (&*waiting[0].life, waiting[0].position),
        ("waiting", Some(1))
    );
    assert_eq!(rows.len(), all.len() + 1);
    assert!(told.iter().any(|frame| frame.kind == Kind::INSTANCE_QUEUED));

    let gone = format!("instance_deleted:\n  instance_uuid: {}\n", instance(0));
    node.send(Kind::INSTANCE_DELETED, gone).await;
    backup.skip_to(Kind::INSTANCE_DELETED).await;
    assert_eq!(node.expect_start().await, instance(ROOM));
}
