//! Instances that may be started elsewhere when their node is lost: they end when the lease does, whichever process is left to see
//! to it.

use std::process::{Command, Stdio};
use std::time::Duration;

use ciao_scheduler::launcher::supervise::MAX_OUTPUT_BYTES;
use proto_frames::payload::{PhaseName, StartFailureReason};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{Launcher, Peer, World, is_stopped, leased, runs, until, within};

/// Three reports and more, so that a loaded machine does not break it while it is renewed.
const LEASE: &str = "-lease=3s";

const LEASE_TIME: Duration = Duration::from_secs(3);

/// A node whose lease is renewed as long as its reports are taken, with an instance under the lease and one that is not.
async fn with_two() -> (World, Launcher, Peer, Pid, Pid) {
    let (world, launcher, mut peer) = World::connected(&[LEASE]).await;
    peer.renews = true;
    peer.reports(1).await;
    peer.start(&leased("leased", "echo $$; exec sleep 1000"))
        .await;
    peer.shell("other", "echo $$; exec sleep 1000").await;
    peer.listed("leased", "active").await;
    peer.listed("other", "active").await;
    let under = world.pids("leased", 1).await[0];
    let other = world.pids("other", 1).await[0];
    (world, launcher, peer, under, other)
}

#[tokio::test]
async fn a_node_says_what_it_can_and_how_long_its_lease_is() {
    let (_world, _launcher, mut peer) = World::connected(&[LEASE]).await;
    let stats = peer.stats(|_| true).await;
    let always = ["suspend", "update", "run-limits", "capacity", "overrides"];
    assert_eq!(stats.capabilities, [&always[..], &["lease"]].concat());
    assert_eq!(stats.lease.unwrap().ms(), 3000);
    let next = peer.stats(|_| true).await;
    assert!(next.lease_seq > stats.lease_seq);
    let (_world, _launcher, mut peer) = World::connected(&["-lease=0"]).await;
    let stats = peer.stats(|_| true).await;
    assert_eq!(stats.capabilities, always);
    assert_eq!((stats.lease, stats.lease_seq), (None, None));
}

#[tokio::test]
async fn a_lease_that_is_renewed_goes_on_and_one_that_is_not_ends_with_what_is_under_it() {
    let (_world, _launcher, mut peer, under, other) = with_two().await;
    peer.reports(20).await;
    assert!(runs(under), "longer than a lease lasts");
    peer.renews = false;
    assert_eq!(peer.stopped().await, ("leased".to_owned(), Some(-9)));
    assert!(!runs(under) && runs(other));
    peer.start(&leased("late", "echo $$; exec sleep 1000"))
        .await;
    let failure = peer.failure().await;
    assert_eq!(failure.reason, StartFailureReason::LaunchFailure);
    peer.renews = true;
    peer.reports(1).await;
    peer.start(&leased("late", "echo $$; exec sleep 1000"))
        .await;
    peer.listed("late", "active").await;
}

#[tokio::test]
async fn the_lease_ends_also_when_the_launcher_has_been_stopped_and_the_end_is_told() {
    let (world, launcher, mut peer, under, other) = with_two().await;
    launcher.signal(Signal::STOP);
    until("the end of what is under the lease", || !runs(under)).await;
    assert!(runs(other));
    until("its exit file", || {
        world
            .state_dir()
            .join("instances/leased/exit.json")
            .exists()
    })
    .await;
    launcher.signal(Signal::CONT);
    assert_eq!(peer.stopped().await, ("leased".to_owned(), Some(-9)));
    peer.listed("other", "active").await;
}

#[tokio::test]
async fn the_lease_ends_also_when_the_launcher_is_dead_and_the_next_one_tells_it() {
    let (world, mut launcher, peer, under, other) = with_two().await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    drop(peer);
    assert!(runs(under), "not before its time");
    until("the end of what is under the lease", || !runs(under)).await;
    assert!(runs(other));
    let _launcher = world.launch(&[LEASE]);
    let mut peer = world.admit().await;
    assert_eq!(peer.stopped().await, ("leased".to_owned(), Some(-9)));
}

#[tokio::test]
async fn a_launcher_that_comes_back_in_time_renews_the_lease_of_what_runs() {
    let (world, mut launcher, peer, under, _) = with_two().await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    drop(peer);
    let _launcher = world.launch(&[LEASE]);
    let mut peer = world.admit().await;
    peer.renews = true;
    peer.listed("leased", "active").await;
    peer.reports(20).await;
    assert!(runs(under));
}

#[tokio::test]
async fn what_is_suspended_under_the_lease_ends_with_it_too() {
    let (_world, launcher, mut peer, under, _) = with_two().await;
    peer.suspend("leased").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    until("that it is stopped", || is_stopped(under)).await;
    launcher.signal(Signal::STOP);
    until("its end", || !runs(under)).await;
}

#[tokio::test]
async fn a_supervisor_that_was_stopped_when_the_lease_ended_kills_when_it_goes_on() {
    let (world, launcher, _peer, under, _) = with_two().await;
    let supervisor = crate::world::supervisor(&world.state_dir(), "leased");
    kill_process(supervisor, Signal::STOP).unwrap();
    launcher.signal(Signal::STOP);
    let over = tokio::time::Instant::now() + LEASE_TIME;
    until("the end of the lease", || {
        tokio::time::Instant::now() > over
    })
    .await;
    assert!(runs(under), "no process was left");
    kill_process(supervisor, Signal::CONT).unwrap();
    until("its end", || !runs(under)).await;
}

#[tokio::test]
async fn a_supervisor_that_is_killed_takes_what_is_under_the_lease_with_it_at_once() {
    let (world, launcher, _peer, under, _) = with_two().await;
    launcher.signal(Signal::STOP);
    let supervisor = crate::world::supervisor(&world.state_dir(), "leased");
    kill_process(supervisor, Signal::KILL).unwrap();
    until("its end", || !runs(under)).await;
}

#[tokio::test]
async fn a_supervisor_that_begins_after_the_end_of_the_lease_starts_nothing() {
    let (world, mut launcher, _peer, under, _) = with_two().await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    until("the end of the lease", || !runs(under)).await;
    let dir = world.state_dir().join("instances/leased");
    until("the supervisor's end", || dir.join("exit.json").exists()).await;
    for file in ["exit.json", "process.json", "output.log"] {
        std::fs::remove_file(dir.join(file)).unwrap();
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ciao-launcher"))
        .arg(ciao_scheduler::launcher::supervise::WORD)
        .arg(&dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("lease is over"), "{said}");
    assert!(!dir.join("output.log").exists());
}

#[tokio::test]
async fn a_longer_lease_of_an_earlier_launcher_is_announced_as_long_as_supervisors_obey_it() {
    let (world, mut launcher, mut peer) = World::connected(&["-lease=100s"]).await;
    peer.renews = true;
    peer.reports(1).await;
    peer.start(&leased("leased", "echo $$; exec sleep 1000"))
        .await;
    peer.listed("leased", "active").await;
    let under = world.pids("leased", 1).await[0];
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    drop(peer);
    let left = world.lease_left();
    assert!(left > LEASE_TIME * 2, "{left:?}");
    // The default is shorter as well, and follows from the report interval.
    for shorter in [&[LEASE][..], &[]] {
        let before = world.lease_left();
        let mut launcher = world.launch(shorter);
        let mut peer = world.admit().await;
        peer.renews = true;
        let announced = peer.stats(|_| true).await.lease.unwrap().ms();
        let announced = Duration::from_millis(announced);
        assert!(announced >= world.lease_left(), "{announced:?}");
        assert!(announced < before + LEASE_TIME, "{announced:?}");
        // Renewed for a shorter time, it ends no later than before.
        peer.listed("leased", "active").await;
        peer.reports(3).await;
        assert!(world.lease_left() < before);
        launcher.signal(Signal::KILL);
        launcher.ended().await;
    }
    assert!(runs(under));
}

#[tokio::test]
async fn a_workload_with_more_output_than_can_be_copied_in_time_ends_with_its_lease() {
    let (world, launcher, mut peer) = World::connected(&[LEASE]).await;
    peer.renews = true;
    peer.reports(1).await;
    // Nothing ever reads from the pipe, which stands where the older output would.
    let script = "cd $CIAO_INSTANCE_DIR; mkfifo output.log.1; echo $$ > pid; \
        truncate -s 10G output.log; exec sleep 1000";
    peer.start(&leased("a", script)).await;
    let dir = world.state_dir().join("instances/a");
    let len = |name: &str| std::fs::metadata(dir.join(name)).map_or(0, |it| it.len());
    let is_cut = || len("output.log.1") == MAX_OUTPUT_BYTES && len("output.log") == 0;
    within(async {
        while !is_cut() {
            peer.reports(1).await;
        }
    })
    .await;
    let pid = std::fs::read_to_string(dir.join("pid")).unwrap();
    let pid = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
    peer.reports(1).await;
    assert!(runs(pid));
    launcher.signal(Signal::STOP);
    until("the end of what is under the lease", || !runs(pid)).await;
}
