//! Devices: what real processes are told of them, also by the launcher's successors.

use proto_frames::payload::{Scheduling, Start};
use rustix::process::Signal;

use crate::world::{World, shell, supervisor, until};

/// A shell that says which gpus it was told, and stays.
fn says(id: &str, gpus: i64) -> Start {
    let scheduling = Scheduling {
        resources: [("gpu".to_owned(), gpus), ("hugepages".to_owned(), 8)].into(),
        ..Scheduling::default()
    };
    let script = "echo gpu=$CIAO_RESOURCE_GPU pages=$CIAO_RESOURCE_HUGEPAGES.; exec sleep 1000";
    Start {
        scheduling: Some(scheduling),
        ..shell(id, script)
    }
}

impl World {
    /// Waits until the instance has said something, which must be this.
    async fn said(&self, id: &str, expected: &str) {
        until("what it was told", || self.output(id).ends_with('\n')).await;
        assert_eq!(self.output(id), format!("{expected} pages=.\n"));
    }
}

const NODE: [&str; 2] = ["-resource=gpu=4", "-resource=hugepages=1000"];

#[tokio::test]
async fn processes_are_told_devices_of_their_own_also_after_the_launcher_was_killed() {
    let (world, mut launcher, mut peer) = World::connected(&NODE).await;
    let mut start = says("a", 2);
    let own = ("CIAO_RESOURCE_GPU".to_owned(), "0,1,2,3".to_owned());
    start.env.extend([own]);
    peer.start(&start).await;
    world.said("a", "gpu=0,1").await;
    peer.start(&says("b", 1)).await;
    world.said("b", "gpu=2").await;
    peer.listed("b", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&NODE);
    let mut peer = world.accept().await;
    peer.start(&says("c", 1)).await;
    world.said("c", "gpu=3").await;
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await.0, "a");
    peer.start(&says("d", 1)).await;
    world.said("d", "gpu=0").await;
}

#[tokio::test]
async fn the_devices_of_one_whose_supervisor_was_killed_go_to_others_once_nothing_is_left_of_it() {
    let (world, _launcher, mut peer) = World::connected(&NODE).await;
    peer.start(&says("a", 1)).await;
    world.said("a", "gpu=0").await;
    peer.listed("a", "active").await;
    let supervisor = supervisor(&world.state_dir(), "a");
    rustix::process::kill_process(supervisor, Signal::KILL).unwrap();
    assert_eq!(peer.stopped().await, ("a".to_owned(), None));
    peer.start(&says("b", 4)).await;
    world.said("b", "gpu=0,1,2,3").await;
}
