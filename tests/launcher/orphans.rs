//! What is left of an instance whose supervisor is killed: it is found and killed, and until then the instance is listed.
//! Without a cgroup, which would do it alone.

use std::fs::{self, File};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, runs, supervisor, until};

/// Three processes beside the main one, without the environment that was given to it: in its session, in one of its own,
/// and below that one.
const FAMILY: &str = "env -i sh -c 'echo $$; exec sleep 1000' & \
    env -i setsid sh -c 'echo $$; sh -c \"echo \\$\\$; exec sleep 1000\" & wait' & \
    echo $$; wait";

/// One that has also closed what it inherited, as daemons do.
const DAEMON: &str =
    "exec env -i setsid bash -c 'echo $$; exec 60>&- >/dev/null 2>&1; sleep 1000' & wait";

/// Processes that a failed test leaves behind.
struct Family(Vec<Pid>);

impl Family {
    fn left(&self) -> Vec<Pid> {
        let pids = self.0.iter().copied();
        pids.filter(|pid| runs(*pid)).collect()
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        for pid in self.left() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn kill(pid: Pid) {
    kill_process(pid, Signal::KILL).unwrap();
}

#[tokio::test]
async fn what_a_killed_supervisor_leaves_behind_is_gone_when_the_end_is_told() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    for (id, script, count) in [("family", FAMILY, 4), ("daemon", DAEMON, 1)] {
        peer.shell(id, script).await;
        let family = Family(world.pids(id, count).await);
        peer.listed(id, "active").await;
        kill(supervisor(&world.state_dir(), id));
        assert_eq!(peer.stopped().await, (id.to_owned(), None));
        assert_eq!(family.left(), [], "{id}: {:?}", family.0);
    }
}

#[tokio::test]
async fn what_is_left_where_launcher_and_supervisor_were_killed_is_found_by_the_next_launcher() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", FAMILY).await;
    peer.shell("b", FAMILY).await;
    let family = Family(world.pids("a", 4).await);
    let other = Family(world.pids("b", 4).await);
    peer.listed("a", "active").await;
    peer.listed("b", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    kill(supervisor(&world.state_dir(), "a"));
    // The main process follows its supervisor by itself.
    until("its end", || family.left().len() == 3).await;
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), None));
    assert_eq!(family.left(), []);
    assert_eq!(other.left(), other.0, "another instance's");
    peer.listed("b", "active").await;
}

#[tokio::test]
async fn what_runs_without_its_directory_is_found_by_the_next_launcher_and_its_exit_code_as_well() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    let script = "trap 'exit 7' TERM; while :; do sleep 0.05; done";
    let pid_file = world.path("pids");
    for id in ["stays", "ends"] {
        let script = format!("echo $$ >> {}; {script}", pid_file.display());
        peer.shell(id, &script).await;
        peer.listed(id, "active").await;
    }
    let pids = || -> Vec<Pid> {
        let text = fs::read_to_string(&pid_file).unwrap_or_default();
        let numbers = text.lines().filter_map(|line| line.parse().ok());
        numbers.filter_map(Pid::from_raw).collect()
    };
    until("both", || pids().len() == 2).await;
    let family = Family(pids());
    let remove = |id: &str| {
        fs::remove_dir_all(world.state_dir().join("instances").join(id)).unwrap();
    };
    // All of it, and what tells who supervises it: a launcher writes the record of one that changes anew.
    remove("stays");
    fs::remove_file(world.state_dir().join("instances/ends/process.json")).unwrap();
    for _ in 0..2 {
        launcher.signal(Signal::KILL);
        launcher.ended().await;
        launcher = world.launch(&[]);
        peer = world.admit().await;
        let stats = peer.stats(|stats| stats.instances.len() == 2).await;
        assert!(
            stats
                .instances
                .iter()
                .all(|it| it.state.as_str() == "active")
        );
        assert_eq!(family.left(), family.0);
    }
    remove("ends");
    peer.delete("ends", false).await;
    assert_eq!(peer.deleted().await, ("ends".to_owned(), Some(7)));
    assert_eq!(family.left().len(), 1);
    // And without a launcher: its supervisor keeps the exit code.
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    remove("stays");
    let left = family.left()[0];
    kill_process(left, Signal::TERM).unwrap();
    until("its end", || family.left().is_empty()).await;
    let exit = world.state_dir().join("instances/stays/exit.json");
    until("its exit code", || exit.exists()).await;
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    // This scheduler has nothing on record.
    assert_eq!(peer.deleted().await, ("ends".to_owned(), Some(7)));
    assert_eq!(peer.stopped().await, ("stays".to_owned(), Some(7)));
}

#[tokio::test]
async fn what_runs_without_any_record_is_listed_until_it_is_stopped() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let family = Family(world.pids("a", 1).await);
    peer.listed("a", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    // As a cleaner of temporary files leaves it.
    fs::remove_dir_all(world.state_dir()).unwrap();
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await.0, "a");
    assert_eq!(family.left(), []);
}

#[tokio::test]
async fn an_instance_of_which_something_is_left_that_cannot_be_found_is_listed_until_it_is_gone() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    // As if a process that may not be looked into had the mark.
    let dir = world.state_dir().join("instances/a");
    let hidden = File::create(world.path("hidden")).unwrap();
    flock(&hidden, FlockOperation::NonBlockingLockExclusive).unwrap();
    fs::remove_file(dir.join("mark")).unwrap();
    fs::hard_link(world.path("hidden"), dir.join("mark")).unwrap();
    kill(supervisor(&world.state_dir(), "a"));
    until("its end", || !runs(pid)).await;
    for _ in 0..2 {
        peer.reports(5).await;
        peer.listed("a", "active").await;
        launcher.signal(Signal::KILL);
        launcher.ended().await;
        launcher = world.launch(&[]);
        peer = world.admit().await;
    }
    peer.listed("a", "active").await;
    drop(hidden);
    assert_eq!(peer.stopped().await, ("a".to_owned(), None));
}
