//! Pinning: on which processors real processes run, by what the kernel says of them. Machines with several NUMA nodes are
//! tried with recorded files (`launcher/agent/tests/pinning.rs`).

use std::collections::BTreeSet;

use proto_frames::payload::{PhaseName, Start};
use rustix::process::Signal;

use crate::world::{World, shell, until};

/// A shell that says its process id, and the processors of a process that it starts, and stays.
fn says(id: &str, vcpus: i64) -> Start {
    let script = "echo $$; sh -c 'grep Cpus_allowed_list /proc/self/status'; exec sleep 1000";
    let mut start = shell(id, script);
    start.requirements.vcpus = vcpus;
    start
}

/// The processors in a file of the kernel's about a process.
fn allowed(status: &str) -> BTreeSet<u16> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = line.unwrap().trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse::<u16>().unwrap()..=last.parse().unwrap()
    });
    ranges.flatten().collect()
}

/// Where this process may run: the launcher inherits that.
fn own() -> BTreeSet<u16> {
    allowed(&std::fs::read_to_string("/proc/self/status").unwrap())
}

impl World {
    /// Where an instance's process runs, once it has said its number; its children do as well.
    async fn runs_on(&self, id: &str) -> BTreeSet<u16> {
        until("what it says", || self.output(id).lines().count() == 2).await;
        let output = self.output(id);
        let status = self.status(id);
        assert_eq!(allowed(&output), allowed(&status), "{output}");
        allowed(&status)
    }

    fn status(&self, id: &str) -> String {
        let output = self.output(id);
        let pid = output.lines().next().unwrap();
        std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap()
    }
}

#[tokio::test]
async fn processes_have_processors_of_their_own_also_after_the_launcher_was_killed() {
    let all = own();
    if all.len() < 2 {
        eprintln!("not tried: there is one processor alone");
        return;
    }
    let node = ["-pin=cores", "-cpu-ratio=4"];
    let (world, mut launcher, mut peer) = World::connected(&node).await;
    peer.start(&says("a", 1)).await;
    let of_a = world.runs_on("a").await;
    assert_eq!(of_a.len(), 1);
    assert!(of_a.is_subset(&all));
    peer.listed("a", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&node);
    let mut peer = world.accept().await;
    peer.start(&says("b", 1)).await;
    let of_b = world.runs_on("b").await;
    assert_eq!(of_b.len(), 1);
    assert!(of_b.is_disjoint(&of_a), "{of_a:?} {of_b:?}");
    // There are not as many free: it runs where the launcher does.
    peer.start(&says("c", i64::try_from(all.len()).unwrap()))
        .await;
    assert_eq!(world.runs_on("c").await, all);
    // What asked for none does, too.
    peer.start(&says("d", 0)).await;
    assert_eq!(world.runs_on("d").await, all);
    peer.delete("b", false).await;
    assert_eq!(peer.deleted().await.0, "b");
    peer.start(&says("e", 1)).await;
    assert_eq!(world.runs_on("e").await, of_b);
}

#[tokio::test]
async fn a_running_process_is_moved_with_its_update() {
    let all = own();
    if all.len() < 2 {
        eprintln!("not tried: there is one processor alone");
        return;
    }
    let (world, _launcher, mut peer) = World::connected(&["-pin=numa", "-cpu-ratio=4"]).await;
    peer.start(&says("a", 1)).await;
    assert_eq!(world.runs_on("a").await.len(), 1);
    peer.listed("a", "active").await;
    peer.update("a", 64, 2).await;
    // One that is sent before would be refused.
    assert_eq!(peer.turned().await.1, PhaseName::Updated);
    until("it is moved", || allowed(&world.status("a")).len() == 2).await;
    peer.update("a", 64, 1).await;
    assert_eq!(peer.turned().await.1, PhaseName::Updated);
    until("it is moved back", || {
        allowed(&world.status("a")).len() == 1
    })
    .await;
}

#[tokio::test]
async fn without_pinning_processes_run_where_the_launcher_does() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.start(&says("a", 1)).await;
    assert_eq!(world.runs_on("a").await, own());
}
