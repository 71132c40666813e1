//! What changes while a process lives: SUSPEND, RESUME, UPDATE, without a cgroup.

use proto_frames::payload::{CommandFailureReason, PhaseName};
use rustix::process::{Pid, Signal};

use crate::world::{World, is_stopped, runs, shell, until};

/// Writes all the time.
const COUNTS: &str = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";

/// Forks all the time, in three processes, one of them in a session of its own.
const FORKS: &str = "for n in 1 2; do (while :; do sh -c 'echo x'; done) & done; \
    setsid sh -c 'while :; do sh -c \"echo y\"; done' & wait";

/// How much memory a process's data may take, in bytes.
fn data_limit(pid: Pid) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max data size"));
    let value = line.unwrap().split_ascii_whitespace().nth(3).unwrap();
    value.parse().unwrap()
}

#[tokio::test]
async fn a_suspended_process_stands_still_and_goes_on_when_it_is_resumed_and_can_be_updated() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    for (id, script) in [("counts", COUNTS), ("forks", FORKS)] {
        peer.shell(id, script).await;
        peer.listed(id, "active").await;
        until("its output", || !world.output(id).is_empty()).await;
        peer.suspend(id).await;
        assert_eq!(peer.turned().await, (id.to_owned(), PhaseName::Suspended));
        let output = world.output(id).len();
        let listed = peer.listed(id, "exit_paused").await;
        assert!(listed.suspended);
        assert_eq!(listed.requested.unwrap().vcpus, 1);
        peer.reports(3).await;
        assert_eq!(world.output(id).len(), output, "{id} stands still");
        peer.resume(id).await;
        assert_eq!(peer.turned().await, (id.to_owned(), PhaseName::Running));
        peer.update(id, 48, 2).await;
        assert_eq!(peer.turned().await, (id.to_owned(), PhaseName::Updated));
        until("more output", || world.output(id).len() > output).await;
        assert!(!peer.listed(id, "active").await.suspended);
        peer.delete(id, false).await;
        assert_eq!(peer.deleted().await.0, id);
    }
}

#[tokio::test]
async fn vcpus_of_a_suspended_process_are_anothers_until_it_can_have_them_back() {
    let (_world, _launcher, mut peer) = World::connected(&["-cpus=1", "-cpu-ratio=1"]).await;
    peer.shell("a", "exec sleep 1000").await;
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    peer.shell("b", "exec sleep 1000").await;
    peer.listed("b", "active").await;
    peer.resume("a").await;
    assert_eq!(peer.refused().await.reason, CommandFailureReason::NoRoom);
    peer.delete("b", false).await;
    peer.deleted().await;
    peer.resume("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Running);
}

#[tokio::test]
async fn a_suspended_process_outlives_its_launcher_and_is_resumed_by_the_next() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", &format!("echo $$; cd ..; exec 2>&1 > more; {COUNTS}"))
        .await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    until("that it is stopped", || is_stopped(pid)).await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    assert!(peer.listed("a", "exit_paused").await.suspended);
    assert!(is_stopped(pid));
    peer.suspend("a").await;
    assert_eq!(
        peer.turned().await.1,
        PhaseName::Suspended,
        "confirmed again"
    );
    peer.resume("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Running);
    until("that it runs", || !is_stopped(pid)).await;
    peer.listed("a", "active").await;
}

#[tokio::test]
async fn a_suspended_process_can_clean_up_when_it_is_deleted_and_is_killed_when_it_does_not() {
    let (world, _launcher, mut peer) = World::connected(&["-stop-grace=50s"]).await;
    let script = "trap 'echo cleaning > ../../../cleaned; exit 5' TERM; echo $$; \
        while :; do sleep 0.05; done";
    peer.shell("a", script).await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await, ("a".to_owned(), Some(5)));
    assert!(!runs(pid));
    assert!(world.state_dir().join("cleaned").exists());

    let (world, _launcher, mut peer) = World::connected(&["-stop-grace=300ms"]).await;
    peer.shell("a", "trap '' TERM; echo $$; while :; do sleep 0.05; done")
        .await;
    world.pids("a", 1).await;
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    peer.delete("a", true).await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(-9)));
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_is_suspended_has_ended() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    peer.shell("a", "echo $$; exec sleep 1000").await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(-9)));
    peer.resume("a").await;
    assert_eq!(
        peer.refused().await.reason,
        CommandFailureReason::NoInstance
    );
}

#[tokio::test]
async fn an_update_changes_what_every_process_of_an_instance_may_take() {
    let (world, mut launcher, mut peer) = World::connected(&["-mem=200"]).await;
    peer.start(&shell("a", "echo $$; sh -c 'echo $$; sleep 1000' & wait"))
        .await;
    let pids = world.pids("a", 2).await;
    peer.listed("a", "active").await;
    let limits = |mem_mb: u64| {
        let bytes = (mem_mb + 16) << 20;
        pids.iter().all(|pid| data_limit(*pid) == bytes)
    };
    assert!(limits(64));
    peer.update("a", 32, 2).await;
    assert_eq!(peer.turned().await.1, PhaseName::Updated);
    assert!(limits(32));
    peer.update("a", 4000, 2).await;
    assert_eq!(peer.refused().await.reason, CommandFailureReason::NoRoom);
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    peer.update("a", 100, 1).await;
    assert_eq!(peer.turned().await.1, PhaseName::Updated);
    assert!(limits(100));

    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&[]);
    let mut peer = world.accept().await;
    let requested = peer.listed("a", "exit_paused").await.requested.unwrap();
    assert_eq!((requested.mem_mb, requested.vcpus), (100, 1));
}
