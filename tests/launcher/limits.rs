//! Time limits, stop signals and restarts of real processes.

use std::time::Instant;

use proto_frames::Kind;
use proto_frames::payload::{
    EndFacts, EndWhy, InstanceStopped, Payload, PhaseName, RestartPolicy, RestartWhen, Scheduling,
    Span, Start, Stop, StopSignal,
};
use rustix::process::Signal;

use crate::world::{Peer, World, runs, shell, supervisor, until};

fn with(start: Start, scheduling: Scheduling) -> Start {
    Start {
        scheduling: Some(scheduling),
        ..start
    }
}

fn limited(ms: u64, grace_ms: u64) -> Scheduling {
    Scheduling {
        time_limit: Some(Span::from_ms(ms)),
        stop: Some(Stop {
            grace: Some(Span::from_ms(grace_ms)),
            ..Stop::default()
        }),
        ..Scheduling::default()
    }
}

fn restarting(when: RestartWhen, max: Option<u32>) -> Scheduling {
    Scheduling {
        restart: Some(RestartPolicy {
            when,
            max,
            backoff: Some("100ms..200ms".parse().unwrap()),
            ..RestartPolicy::default()
        }),
        ..Scheduling::default()
    }
}

/// An end as a launcher tells it.
struct End {
    exit_code: Option<i64>,
    exited: bool,
    facts: EndFacts,
}

impl Peer {
    /// The next frame that is not part of a report, which says that an instance stopped.
    async fn end(&mut self) -> End {
        let frame = self.answer().await;
        assert_eq!(frame.kind, Kind::INSTANCE_STOPPED);
        let it = InstanceStopped::decode(&frame.payload).unwrap();
        End {
            exit_code: it.exit_code,
            exited: it.exited,
            facts: *it.facts.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_process_is_asked_to_end_at_its_time_limit_and_killed_after_its_grace() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    let polite = "trap 'echo asked; exit 3' TERM; while :; do sleep 0.02; done";
    peer.start(&with(shell("polite", polite), limited(1000, 60_000)))
        .await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.exited), (Some(3), true));
    assert_eq!(end.facts.why, EndWhy::TimeLimit);
    assert!(end.facts.ran_ms.unwrap() >= 1000, "{:?}", end.facts);
    let asked = |id: &str| world.output(id).matches("asked").count();
    assert_eq!(asked("polite"), 1);
    let stubborn = "trap 'echo asked' TERM; while :; do sleep 0.02; done";
    peer.start(&with(shell("stubborn", stubborn), limited(1000, 300)))
        .await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.exited), (Some(-9), true));
    assert_eq!(end.facts.why, EndWhy::TimeLimit);
    assert_eq!(asked("stubborn"), 1);
}

#[tokio::test]
async fn a_time_limit_holds_while_no_launcher_runs_and_is_told_by_the_next() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    peer.start(&with(
        shell("a", "echo $$; exec sleep 1000"),
        limited(2000, 60_000),
    ))
    .await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    until("its end", || !runs(pid)).await;
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.exited), (Some(-15), true));
    assert_eq!(end.facts.why, EndWhy::TimeLimit);
}

#[tokio::test]
async fn a_time_limit_holds_also_where_a_launcher_died_after_it_asked_for_the_end() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    let script = "trap 'echo asked' TERM; echo $$; while :; do sleep 0.05; done";
    peer.start(&with(shell("a", script), limited(2000, 5000)))
        .await;
    let pid = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    peer.delete("a", false).await;
    until("its signal", || world.output("a").contains("asked")).await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    until("its end", || !runs(pid)).await;
}

#[tokio::test]
async fn suspended_time_does_not_count_and_what_earlier_nodes_used_does() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    let start = Start {
        time_used: Some(Span::from_ms(3_600_000 - 3000)),
        ..with(shell("a", "exec sleep 1000"), limited(3_600_000, 60_000))
    };
    peer.start(&start).await;
    peer.listed("a", "active").await;
    peer.suspend("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Suspended);
    let used = |row: &proto_frames::payload::InstanceStat| {
        let run = row.run.clone().unwrap();
        assert_eq!(run.time_limit_ms, Some(3_600_000));
        run.time_used_ms.unwrap()
    };
    let first = used(&peer.listed("a", "exit_paused").await);
    assert!((3_597_000..3_600_000).contains(&first), "{first}");
    // More reports than take what was left of its time.
    let suspended = Instant::now();
    peer.reports(25).await;
    assert_eq!(used(&peer.listed("a", "exit_paused").await), first);
    let left_ms = 3_600_000 - first;
    let suspended = suspended.elapsed();
    peer.resume("a").await;
    assert_eq!(peer.turned().await.1, PhaseName::Running);
    let end = peer.end().await;
    assert_eq!(end.facts.why, EndWhy::TimeLimit);
    // It had what was left then, but for what the two clocks differ by, and what it was suspended beside.
    let ran_ms = end.facts.ran_ms.unwrap();
    let at_least = left_ms + u64::try_from(suspended.as_millis()).unwrap() - 1000;
    assert!(ran_ms >= at_least, "{ran_ms} ms, at least {at_least}");
    drop(world);
}

#[tokio::test]
async fn a_process_is_sent_the_signal_that_its_start_names() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    for (signal, name) in [
        (StopSignal::Int, "INT"),
        (StopSignal::Hup, "HUP"),
        (StopSignal::Usr2, "USR2"),
    ] {
        let stop = Stop {
            signal,
            ..Stop::default()
        };
        let scheduling = Scheduling {
            stop: Some(stop),
            ..Scheduling::default()
        };
        // The other signals that a shell can be asked with end it with another code.
        let script = format!("trap 'exit 7' {name}; echo $$; while :; do sleep 0.02; done");
        peer.start(&with(shell(name, &script), scheduling)).await;
        world.pids(name, 1).await;
        peer.delete(name, false).await;
        assert_eq!(peer.deleted().await, (name.to_owned(), Some(7)));
    }
}

#[tokio::test]
async fn a_failed_process_is_started_again_in_its_directory_until_it_succeeds() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    // It counts its runs in its working directory.
    let script = "echo x >> runs; n=$(wc -l < runs); echo run $n; [ $n -ge 4 ] && exit 0; exit $n";
    peer.start(&with(
        shell("a", script),
        restarting(RestartWhen::OnFailure, None),
    ))
    .await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.exited), (Some(0), true));
    assert_eq!(end.facts.restarts, 3);
    assert_eq!(world.output("a"), "run 1\nrun 2\nrun 3\nrun 4\n");
    assert_eq!(end.facts.output_bytes, Some(4 * 6));
    // As often as it may be.
    peer.start(&with(
        shell("b", "echo run; exit 5"),
        restarting(RestartWhen::OnFailure, Some(2)),
    ))
    .await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.facts.restarts), (Some(5), 2));
    assert_eq!(world.output("b"), "run\nrun\nrun\n");
}

#[tokio::test]
async fn a_service_that_is_killed_comes_back_and_a_delete_ends_it_also_while_it_waits() {
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    let script = "echo $$; exec sleep 1000";
    peer.start(&with(
        shell("a", script),
        restarting(RestartWhen::Always, None),
    ))
    .await;
    let first = world.pids("a", 1).await[0];
    rustix::process::kill_process(first, Signal::KILL).unwrap();
    let second = world.pids("a", 2).await[1];
    assert!(runs(second) && first != second);
    // Its supervisor dies with it: what is left is killed before it is started again.
    let watcher = supervisor(&world.state_dir(), "a");
    rustix::process::kill_process(watcher, Signal::KILL).unwrap();
    let third = world.pids("a", 3).await[2];
    assert!(runs(third) && !runs(second));
    let listed = peer
        .stats(|stats| {
            stats
                .instances
                .iter()
                .any(|it| it.run.as_ref().is_some_and(|run| run.restarts == 2))
        })
        .await;
    assert_eq!(listed.instances.len(), 1);
    peer.delete("a", false).await;
    assert_eq!(peer.deleted().await.0, "a");
    until("its end", || !runs(third)).await;
    let mut slow = restarting(RestartWhen::Always, None);
    slow.restart.as_mut().unwrap().backoff = Some("1h".parse().unwrap());
    peer.start(&with(shell("b", "exit 4"), slow)).await;
    let row = peer.listed("b", "exited").await;
    let run = row.run.unwrap();
    assert!(run.next_try_ms.unwrap() > 3_000_000, "{run:?}");
    assert_eq!(row.requested.unwrap().mem_mb, 64, "it keeps its claim");
    peer.delete("b", false).await;
    assert_eq!(peer.deleted().await, ("b".to_owned(), Some(4)));
}

#[tokio::test]
async fn a_restart_is_done_by_the_next_launcher_where_this_one_is_gone() {
    let (world, mut launcher, mut peer) = World::connected(&[]).await;
    let script = "echo $$; exec sleep 1000";
    peer.start(&with(
        shell("a", script),
        restarting(RestartWhen::OnFailure, Some(3)),
    ))
    .await;
    let first = world.pids("a", 1).await[0];
    peer.listed("a", "active").await;
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    rustix::process::kill_process(first, Signal::KILL).unwrap();
    until("its end", || !runs(first)).await;
    let mut launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    let second = world.pids("a", 2).await[1];
    assert!(runs(second));
    let is_counted = |stats: &proto_frames::payload::Stats| {
        let run = |it: &proto_frames::payload::InstanceStat| it.run.clone();
        let runs = stats.instances.iter().filter_map(run);
        runs.map(|it| it.restarts).eq([1])
    };
    peer.stats(is_counted).await;
    // One that runs is found again, with what was counted.
    launcher.signal(Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&[]);
    let mut peer = world.admit().await;
    peer.stats(is_counted).await;
    assert!(runs(second));
}

/// Three processes that each hold less than their instance may have, and more together, once there is a file.
const GREEDY: &str = "echo $$; while ! [ -e ../go ]; do sleep 0.02; done; \
    for n in 1 2 3; do (head -c 40000000 /dev/zero; exec sleep 1000) | tail > /dev/null & done; wait";

#[tokio::test]
async fn processes_that_hold_too_much_memory_together_end_their_instance_also_while_it_is_cut_off()
{
    let (world, _launcher, mut peer) = World::connected(&[]).await;
    let go = |id: &str| std::fs::write(world.state_dir().join("instances").join(id).join("go"), "");
    for id in ["a", "b"] {
        peer.shell(id, GREEDY).await;
        peer.listed(id, "active").await;
    }
    go("a").unwrap();
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.exited), (Some(-9), true));
    assert_eq!(end.facts.why, EndWhy::Oom);
    assert!(end.facts.peak_kib.unwrap() > 80 * 1024, "{:?}", end.facts);
    let pid = world.pids("b", 1).await[0];
    assert!(runs(pid));
    drop(peer);
    go("b").unwrap();
    until("its end", || !runs(pid)).await;
    let mut peer = world.admit().await;
    let end = peer.end().await;
    assert_eq!((end.exit_code, end.facts.why), (Some(-9), EndWhy::Oom));
}
