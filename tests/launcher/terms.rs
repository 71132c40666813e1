//! Schedulers whose time is over: a launcher that has known a later term takes nothing from them, whatever they send.

use bytes::Bytes;
use proto_frames::payload::{
    AttachVolume, Delete, DeleteOutput, Evacuate, LeaseRenewed, Migrate, Payload, Restore, Resume,
    Suspend, Update,
};
use proto_frames::{Connected, Frame, Kind, Message, Term};
use rustix::process::Pid;

use crate::world::{Launcher, Peer, SERVER, World, is_stopped, leased, runs, shell};

/// Longer than the test takes.
const FLAGS: [&str; 1] = ["-lease=100s"];

/// The term of the leader, and an earlier one.
const TERMS: (u64, u64) = (7, 5);

fn connected(peer: &Peer, revision: u64) -> Message {
    let connected = Connected::new(SERVER, peer.connect.source, Bytes::new());
    Message::Connected(connected.under(Term {
        generation: 0,
        revision,
    }))
}

/// The next connection, taken in under this term, with a command behind that in the same write.
async fn command(world: &World, revision: u64, (kind, payload): (Kind, Bytes)) -> Peer {
    let mut peer = world.knock().await;
    let frame = Message::Frame(Frame::new(kind, SERVER, payload));
    peer.send_at_once(vec![connected(&peer, revision), frame])
        .await;
    peer
}

/// A node of the leader, which runs an instance under its lease; the process of that.
async fn leading() -> (World, Launcher, Peer, Pid) {
    let world = World::new().await;
    let launcher = world.launch(&FLAGS);
    let mut peer = world.knock().await;
    peer.send_message(connected(&peer, TERMS.0)).await;
    let stats = peer.stats(|_| true).await;
    let renewed = LeaseRenewed {
        seq: stats.lease_seq.unwrap(),
    };
    peer.send(Kind::LEASE_RENEWED, renewed.encode()).await;
    peer.start(&leased("a", "echo $$; exec sleep 1000")).await;
    let pid = world.pids("a", 1).await[0];
    (world, launcher, peer, pid)
}

/// All that a scheduler can command of the instance and of its node.
fn commands(node: &str) -> Vec<(Kind, Bytes)> {
    let (instance_uuid, workload_agent_uuid) = ("a".to_owned(), node.to_owned());
    let delete = |stop| Delete {
        instance_uuid: instance_uuid.clone(),
        workload_agent_uuid: workload_agent_uuid.clone(),
        stop,
        ..Delete::default()
    };
    let suspend = Suspend {
        instance_uuid: instance_uuid.clone(),
        workload_agent_uuid: workload_agent_uuid.clone(),
    };
    let resume = Resume {
        instance_uuid: instance_uuid.clone(),
        workload_agent_uuid: workload_agent_uuid.clone(),
    };
    let update = Update {
        instance_uuid: instance_uuid.clone(),
        workload_agent_uuid: workload_agent_uuid.clone(),
        mem_mb: Some(32),
        vcpus: Some(1),
        disk_mb: Some(0),
        ..Update::default()
    };
    let migrate = Migrate {
        instance_uuid: instance_uuid.clone(),
        workload_agent_uuid: workload_agent_uuid.clone(),
        target_node_uuid: SERVER.to_string(),
        ..Migrate::default()
    };
    let attach = AttachVolume {
        instance_uuid: instance_uuid.clone(),
        volume_uuid: SERVER.to_string(),
        workload_agent_uuid: workload_agent_uuid.clone(),
    };
    let evacuate = Evacuate {
        workload_agent_uuid: workload_agent_uuid.clone(),
        ..Evacuate::default()
    };
    let restore = Restore {
        workload_agent_uuid: workload_agent_uuid.clone(),
        ..Restore::default()
    };
    let delete_output = DeleteOutput {
        id: 1,
        instance_uuid: instance_uuid.clone(),
        ..DeleteOutput::default()
    };
    vec![
        (Kind::START, shell("b", "echo $$; exec sleep 1000").encode()),
        (Kind::SUSPEND, suspend.encode()),
        (Kind::RESUME, resume.encode()),
        (Kind::UPDATE, update.encode()),
        (Kind::MIGRATE, migrate.encode()),
        (Kind::ATTACH_VOLUME, attach.encode()),
        (Kind::DELETE_OUTPUT, delete_output.encode()),
        (Kind::RESTORE, restore.encode()),
        (Kind::EVACUATE, evacuate.encode()),
        (Kind::DELETE, delete(true).encode()),
        (Kind::DELETE, delete(false).encode()),
    ]
}

#[tokio::test]
async fn no_command_of_an_earlier_term_is_carried_out_after_a_later_one() {
    let (world, _launcher, peer, pid) = leading().await;
    let node = peer.connect.source.to_string();
    drop(peer);
    for it in commands(&node) {
        let kind = it.0;
        let mut peer = command(&world, TERMS.1, it).await;
        assert!(peer.is_left().await, "{kind} was not refused");
        assert!(runs(pid) && !is_stopped(pid), "{kind} was carried out");
    }
    // One that leads still is obeyed, and finds all as it was.
    let next = (Kind::START, shell("c", "echo $$; exec sleep 1000").encode());
    let mut peer = command(&world, TERMS.0, next).await;
    peer.next(&[Kind::READY]).await;
    world.pids("c", 1).await;
    assert_eq!(world.pids("a", 1).await, [pid]);
    let names = std::fs::read_dir(world.state_dir().join("instances")).unwrap();
    let names = names.map(|it| it.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test]
async fn no_lease_is_renewed_by_a_scheduler_of_an_earlier_term() {
    let (world, _launcher, peer, pid) = leading().await;
    drop(peer);
    let before = world.lease_until();
    // Whichever report it means.
    for seq in 1..=5 {
        let renewed = LeaseRenewed { seq }.encode();
        let mut peer = command(&world, TERMS.1, (Kind::LEASE_RENEWED, renewed)).await;
        assert!(peer.is_left().await);
    }
    assert_eq!(world.lease_until(), before);
    assert!(runs(pid));
    // The leader's own counts.
    let mut peer = world.knock().await;
    peer.send_message(connected(&peer, TERMS.0)).await;
    let stats = peer.stats(|_| true).await;
    let renewed = LeaseRenewed {
        seq: stats.lease_seq.unwrap(),
    };
    peer.send(Kind::LEASE_RENEWED, renewed.encode()).await;
    crate::world::until("the lease goes on", || world.lease_until() > before).await;
}
