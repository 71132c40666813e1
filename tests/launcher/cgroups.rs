//! Instances in cgroups of their own, where this machine has a cgroup of version 2 that may be written; elsewhere there is
//! nothing to try, which is said.

use std::path::{Path, PathBuf};

use proto_frames::payload::PhaseName;

use rustix::process::Signal;

use crate::world::{World, is_stopped, runs, supervisor, until};

/// A cgroup for one test; removed with it.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new(name: &str) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let point = Path::new(mount.split_ascii_whitespace().nth(4)?);
        let path = point.join(format!("ciao-test-{name}-{}", std::process::id()));
        match std::fs::create_dir(&path) {
            Ok(()) => Some(Self(path)),
            Err(error) => {
                eprintln!("not tried, no cgroup to be had: {error}");
                None
            }
        }
    }

    /// The groups of instances in it.
    fn groups(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        let mut groups: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        groups.retain(|path| path.is_dir());
        groups
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("cgroup.kill"), "1");
        let groups = self.groups();
        // Those that have just been killed may still be there for a moment.
        let mut tries = 0;
        for path in groups.iter().chain([&self.0]) {
            while std::fs::remove_dir(path).is_err() && tries < 1000 {
                tries += 1;
                std::thread::yield_now();
            }
        }
    }
}

#[tokio::test]
async fn an_instance_in_a_cgroup_is_frozen_and_killed_as_a_whole_and_its_group_goes_with_it() {
    let Some(cgroup) = Cgroup::new("life") else {
        return;
    };
    let flag = format!("-cgroup={}", cgroup.0.display());
    let (world, _launcher, mut peer) = World::connected(&[&flag, "-stop-grace=300ms"]).await;
    let script = "setsid sh -c 'while :; do echo x; sleep 0.01; done' & echo $$; wait";
    peer.shell("a", script).await;
    until("its output", || world.output("a").contains('x')).await;
    let groups = cgroup.groups();
    let [group] = groups.as_slice() else {
        panic!("{groups:?}")
    };
    let read = |name: &str| std::fs::read_to_string(group.join(name)).unwrap();
    let members: Vec<i32> = read("cgroup.procs")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(members.len() >= 2, "{members:?}");
    let watcher = supervisor(&world.state_dir(), "a");
    assert!(!members.contains(&watcher.as_raw_pid()));
    peer.listed("a", "active").await;

    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    let output = world.output("a").len();
    assert!(read("cgroup.events").contains("frozen 1"));
    peer.reports(3).await;
    assert_eq!(world.output("a").len(), output, "it stands still");
    peer.resume("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Running);
    until("more output", || world.output("a").len() > output).await;

    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(-15)));
    assert_eq!(cgroup.groups(), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn a_frozen_instance_whose_supervisor_is_gone_is_killed_with_its_group() {
    let Some(cgroup) = Cgroup::new("orphan") else {
        return;
    };
    let flag = format!("-cgroup={}", cgroup.0.display());
    let (world, _launcher, mut peer) = World::connected(&[&flag]).await;
    let script = "setsid env -i sh -c 'echo $$; sleep 1000' & wait";
    peer.shell("a", script).await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    assert!(!is_stopped(pid), "not by a signal");
    let watcher = supervisor(&world.state_dir(), "a");
    rustix::process::kill_process(watcher, Signal::KILL).unwrap();
    assert_eq!(peer.stopped().await, ("a".to_owned(), None));
    until("its end, though its environment does not name it", || {
        !runs(pid)
    })
    .await;
    until("the end of its group", || cgroup.groups().is_empty()).await;
}

#[tokio::test]
async fn a_launcher_uses_its_own_cgroup_where_that_was_given_away_to_it() {
    use rustix::fs::{XattrFlags, setxattr};
    let Some(cgroup) = Cgroup::new("own") else {
        return;
    };
    let world = World::new().await;
    let mut launcher = world.launch_in(&cgroup.0, &[]);
    let mut peer = world.accept().await;
    peer.shell("a", "exec sleep 1000").await;
    peer.listed("a", "active").await;
    let is_mine = rustix::process::geteuid().is_root();
    assert_eq!(
        cgroup.groups().is_empty(),
        is_mine,
        "not the superuser's merely because it may"
    );
    peer.delete("a", false).await;
    peer.deleted().await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    drop(peer);

    // As systemd marks it.
    setxattr(&cgroup.0, "user.delegate", b"1", XattrFlags::empty()).unwrap();
    let _launcher = world.launch_in(&cgroup.0, &[]);
    let mut peer = world.accept().await;
    peer.shell("a", "exec sleep 1000").await;
    peer.listed("a", "active").await;
    let mut names: Vec<String> = cgroup
        .groups()
        .iter()
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            format!("ciao-{}-a", peer.connect.source),
            "launcher".to_owned()
        ]
    );
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    let group = cgroup.0.join(&names[0]);
    let events = std::fs::read_to_string(group.join("cgroup.events")).unwrap();
    assert!(events.contains("frozen 1"), "{events}");
}

/// A directory with what a cgroup's controllers are known by. What is written to its groups stays there to be read.
fn simulated(world: &World) -> PathBuf {
    let path = world.path("cgroup");
    std::fs::create_dir(&path).unwrap();
    for file in ["cgroup.controllers", "cgroup.subtree_control"] {
        std::fs::write(path.join(file), "cpu memory").unwrap();
    }
    path
}

#[tokio::test]
async fn limits_are_those_of_the_group_where_it_has_the_controllers_and_an_update_changes_them() {
    let world = World::new().await;
    let path = simulated(&world);
    let flag = format!("-cgroup={}", path.display());
    let _launcher = world.launch(&[&flag]);
    let mut peer = world.accept().await;
    peer.shell("a", "ulimit -d; echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    assert!(
        world.output("a").starts_with("unlimited\n"),
        "not by process too"
    );
    peer.listed("a", "active").await;
    let group = path.join(format!("ciao-{}-a", peer.connect.source));
    let read = |name: &str| std::fs::read_to_string(group.join(name)).unwrap();
    assert_eq!(read("memory.max"), (80 << 20).to_string());
    assert_eq!(read("cpu.max"), "100000 100000");
    assert_eq!(read("cgroup.procs"), "0", "the writer itself");
    peer.update("a", 32, 3).await;
    assert_eq!(peer.turned().await.1, PhaseName::Updated);
    assert_eq!(read("memory.max"), (48 << 20).to_string());
    assert_eq!(read("cpu.max"), "300000 100000");
    // It has no freezer.
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    until("that it is stopped", || is_stopped(pid)).await;
}

#[tokio::test]
async fn a_cgroup_that_cannot_be_used_is_named_and_nothing_is_started() {
    let world = World::new().await;
    let mut launcher = world.launch(&["-cgroup=/proc/self"]);
    assert!(!launcher.ended().await.success());
}
