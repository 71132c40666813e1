//! A state directory on a disk that takes no writes: a file system that is really full where one can be mounted, and a
//! limit of the daemon's process that makes every write fail.

use std::path::Path;
use std::process::Stdio;

use bytes::Bytes;
use proto_frames::payload::{
    Evacuate, EvacuateMode, InstanceQueued, Payload, QueryKind, RefusalReason, Scheduling, Start,
    StartFailure, StartFailureReason, StoreState,
};
use proto_frames::{Encoding, Kind, Role, Uuid};
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tokio::process::Command;

use crate::disk::Disk;
use crate::peer::Peer;
use crate::site::{Daemon, Site};
use crate::words::{instance, start_of};

/// Memory of the node here, MiB.
const MEM: i64 = 1000;

/// Queries until the scheduler has heard what its store has logged: far more than it takes.
const MAX_QUERIES: usize = 1000;

/// A disk of 2.5 MB.
async fn small(site: &Site) -> Disk {
    Disk::new(&site.path("disk"), 2_500).await
}

/// The state directory on it.
fn state_on(disk: &Disk) -> String {
    disk.path.join("state").display().to_string()
}

/// Damaged files that the daemon has renamed.
fn damaged_on(disk: &Disk) -> Vec<String> {
    damaged(&disk.path.join("state"))
}

fn damaged(state: &Path) -> Vec<String> {
    let names = std::fs::read_dir(state).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains("damaged")).collect()
}

/// A START for so much memory that waits for room, at this priority.
fn queued(number: u128, mem_mb: i64, priority: i64) -> Start {
    let scheduling = Scheduling {
        priority: Some(priority),
        queue: Some("10m".parse().unwrap()),
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..start_of(instance(number), mem_mb)
    }
}

/// The same with an environment of 20 kB.
fn large(number: u128) -> Bytes {
    let mut payload = queued(number, MEM, 50).encode().to_vec();
    payload.extend_from_slice(b"...\n");
    payload.resize(payload.len() + 20_000, b'#');
    payload.into()
}

/// A node most of which one instance has, and its controller.
async fn occupied(site: &Site, daemon: &Daemon) -> (Peer, Peer) {
    let mut master = site.master(daemon).await;
    let mut node = site.node(daemon).await;
    master.expect_node().await;
    node.ready(MEM).await;
    node.nothing_else().await;
    let start = queued(0, MEM - 100, 70);
    master.send(Kind::START, start.encode()).await;
    assert_eq!(node.expect_start().await, instance(0));
    (master, node)
}

/// Sends three STARTs that wait; they are acknowledged.
async fn wait_in_queue(master: &mut Peer) {
    for (number, priority) in [(1, 30), (2, 50), (3, 40)] {
        let start = queued(number, MEM, priority);
        master.send(Kind::START, start.encode()).await;
        is_queued(master, number).await;
    }
}

/// Waits until a START is acknowledged as queued.
async fn is_queued(master: &mut Peer, number: u128) {
    loop {
        let told = master.skip_to(Kind::INSTANCE_QUEUED).await;
        let told = InstanceQueued::decode(&told.payload).unwrap();
        if told.instance_uuid == instance(number).to_string() {
            return;
        }
    }
}

async fn failure(peer: &mut Peer) -> StartFailure {
    let frame = peer.skip_to(Kind::START_FAILURE).await;
    StartFailure::decode(&frame.payload).unwrap()
}

/// Who waits, in order.
async fn queue(daemon: &Daemon, site: &Site) -> Vec<String> {
    let mut operator = site.operator(daemon).await;
    let answer = operator.query(QueryKind::Queue).await;
    let waiting = answer.instances.into_iter();
    waiting.map(|it| it.instance_uuid).collect()
}

fn ids(numbers: &[u128]) -> Vec<String> {
    let ids = numbers.iter().map(|&number| instance(number).to_string());
    ids.collect()
}

#[tokio::test]
async fn what_was_acknowledged_outlives_a_full_disk_and_what_was_not_is_refused() {
    let site = Site::new();
    let disk = small(&site).await;
    let state = state_on(&disk);
    let mut daemon = site.start(&["--state-dir", &state]).await;
    let (mut master, _node) = occupied(&site, &daemon).await;
    wait_in_queue(&mut master).await;
    disk.fill();
    for number in 4..8 {
        master.send(Kind::START, large(number)).await;
    }
    let mut failed = Vec::new();
    for _ in 4..8 {
        let failure = failure(&mut master).await;
        assert_eq!(failure.reason, StartFailureReason::NotRecorded);
        let detail = failure.detail.unwrap_or_default();
        assert!(detail.contains("No space left on device"), "{detail}");
        failed.push(failure.instance_uuid);
    }
    failed.sort();
    assert_eq!(failed, ids(&[4, 5, 6, 7]));
    daemon.terminate();
    let status = daemon.ended().await;
    assert!(status.success(), "{status}");
    assert_eq!(damaged_on(&disk), [""; 0]);

    // On the disk that is full, and on one that has room again.
    for is_full in [true, false] {
        if !is_full {
            disk.free();
        }
        let daemon = site.start(&["--state-dir", &state]).await;
        assert_eq!(queue(&daemon, &site).await, ids(&[2, 3, 1]), "{is_full}");
        daemon.kill().await;
    }
    assert_eq!(damaged_on(&disk), [""; 0]);
}

#[tokio::test]
async fn a_disk_that_has_room_again_is_written_again() {
    let site = Site::new();
    let disk = small(&site).await;
    let state = state_on(&disk);
    let daemon = site.start(&["--state-dir", &state]).await;
    let (mut master, _node) = occupied(&site, &daemon).await;
    disk.fill();
    master.send(Kind::START, large(8)).await;
    daemon.logged("cannot write the store: No space left").await;
    disk.free();
    daemon.logged("the store is written again").await;
    wait_in_queue(&mut master).await;
    let waiting = queue(&daemon, &site).await;
    daemon.kill().await;
    let daemon = site.start(&["--state-dir", &state]).await;
    assert_eq!(queue(&daemon, &site).await, waiting);
    assert_eq!(damaged_on(&disk), [""; 0]);
}

/// The daemon, as one that is not ended by a file that cannot grow, with this limit of its files in units of 512 bytes.
async fn limited(site: &Site, limit: &str) -> Daemon {
    let state = site.path("state").display().to_string();
    let daemon = site.command(&["--state-dir", &state]);
    let daemon = daemon.as_std();
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg("trap '' XFSZ; ulimit -S -f \"$0\"; exec \"$@\"")
        .arg(limit)
        .arg(daemon.get_program())
        .args(daemon.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    Daemon::start(command).await
}

/// From now on the daemon's files take no write at all, or every one again.
fn set_limit(daemon: &Daemon, current: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(daemon.id()).unwrap());
    let limit = Rlimit {
        current,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

#[tokio::test]
async fn while_nothing_can_be_written_plain_starts_go_on_and_the_rest_is_told_why_not() {
    let site = Site::new();
    let daemon = limited(&site, "unlimited").await;
    let (mut master, mut node) = occupied(&site, &daemon).await;
    wait_in_queue(&mut master).await;
    let answer = master.query(QueryKind::Controllers).await;
    assert_eq!(answer.store.unwrap().state, StoreState::Written);

    set_limit(&daemon, Some(0));
    master.send(Kind::START, queued(4, MEM, 50).encode()).await;
    daemon
        .logged("cannot write the store: File too large")
        .await;
    let answer = master.query(QueryKind::Controllers).await;
    let store = answer.store.unwrap();
    assert_eq!(store.state, StoreState::Refused);
    assert!(store.detail.contains("File too large"), "{store:?}");
    // One that needs no disk.
    master.start(instance(10), 50).await;
    assert_eq!(node.expect_start().await, instance(10));
    // And what does: one more that would be placed, and a command.
    master.send(Kind::START, queued(5, 10, 50).encode()).await;
    let evacuate = Evacuate {
        workload_agent_uuid: node.uuid.to_string(),
        mode: EvacuateMode::Cordon,
        ..Evacuate::default()
    };
    master.send(Kind::EVACUATE, evacuate.encode()).await;
    let refused = master.skip_to(Kind::COMMAND_REFUSED).await;
    let refused = proto_frames::payload::CommandRefused::decode(&refused.payload).unwrap();
    assert_eq!(refused.reason, RefusalReason::NotRecorded);
    let mut failed = Vec::new();
    for _ in 0..2 {
        let failure = failure(&mut master).await;
        assert_eq!(failure.reason, StartFailureReason::NotRecorded);
        failed.push(failure.instance_uuid);
    }
    failed.sort();
    assert_eq!(failed, ids(&[4, 5]));
    node.nothing_else().await;

    set_limit(&daemon, None);
    daemon.logged("the store is written again").await;
    // The store logs it, and the scheduler hears of it next.
    let mut state = StoreState::Refused;
    for _ in 0..MAX_QUERIES {
        state = master
            .query(QueryKind::Controllers)
            .await
            .store
            .unwrap()
            .state;
        if state == StoreState::Written {
            break;
        }
    }
    assert_eq!(state, StoreState::Written);
    master.send(Kind::START, queued(6, 10, 50).encode()).await;
    assert_eq!(node.expect_start().await, instance(6));
    master.send(Kind::START, queued(7, MEM, 45).encode()).await;
    is_queued(&mut master, 7).await;
    daemon.kill().await;
    let daemon = limited(&site, "unlimited").await;
    assert_eq!(queue(&daemon, &site).await, ids(&[2, 7, 3, 1]));
    let log = daemon.log();
    assert!(damaged(&site.path("state")).is_empty(), "{log:#?}");
}

#[tokio::test]
async fn a_daemon_that_can_write_nothing_starts_with_what_is_there_and_says_so() {
    let site = Site::new();
    let daemon = limited(&site, "unlimited").await;
    let (mut master, _node) = occupied(&site, &daemon).await;
    wait_in_queue(&mut master).await;
    daemon.kill().await;

    let mut daemon = limited(&site, "0").await;
    daemon
        .logged("cannot write the store: File too large")
        .await;
    assert_eq!(queue(&daemon, &site).await, ids(&[2, 3, 1]));
    // An original controller is told in its own word.
    let mut original = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    original.send(Kind::START, queued(4, 10, 50).encode()).await;
    let failed = failure(&mut original).await;
    assert_eq!(failed.reason, StartFailureReason::FullCloud);
    let detail = failed.detail.unwrap_or_default();
    assert!(
        detail.contains("takes no writes: File too large"),
        "{detail}"
    );
    daemon.terminate();
    assert!(daemon.ended().await.success());

    let daemon = limited(&site, "0").await;
    set_limit(&daemon, None);
    daemon.logged("the store is written again").await;
    let mut operator = site.operator(&daemon).await;
    let answer = operator.query(QueryKind::Controllers).await;
    assert_eq!(answer.store.unwrap().state, StoreState::Written);
    assert_eq!(queue(&daemon, &site).await, ids(&[2, 3, 1]));
    assert_eq!(daemon.uuid, uuid_in(&site.path("state")));
    assert!(damaged(&site.path("state")).is_empty());
}

fn uuid_in(state: &Path) -> Uuid {
    let text = std::fs::read_to_string(state.join("uuid")).unwrap();
    text.trim().parse().unwrap()
}
