//! Time limits and restarts: what is counted over which runs, and what comes before a restart.

use proto_frames::payload::{
    EndWhy, InstanceState, RestartPolicy, RestartWhen, RunProgress, Span, Stop,
};

use super::*;
use crate::launcher::agent::{Respawn, Why};

mod over_launchers;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn span(time: Duration) -> Span {
    Span::from_ms(u64::try_from(time.as_millis()).unwrap())
}

fn service(id: &str, scheduling: Scheduling) -> Start {
    Start {
        scheduling: Some(scheduling),
        ..process(id, 64)
    }
}

fn restarting(when: RestartWhen, max: Option<u32>) -> Scheduling {
    Scheduling {
        restart: Some(RestartPolicy {
            when,
            max,
            ..RestartPolicy::default()
        }),
        ..Scheduling::default()
    }
}

impl World {
    fn begins(&mut self, start: Start) {
        let instance = start.instance_uuid.clone();
        self.start(start);
        self.handle(Input::Started { instance });
        self.forget_what_happened();
    }

    fn ends_by_itself(&mut self, id: &str, code: i32, ran: Ran) {
        self.handle(Input::Exited {
            instance: id.to_owned(),
            code: Some(code),
            by_itself: true,
            ran,
        });
    }

    /// The instance that was ordered to be started again since the last look, if one was.
    fn respawned(&mut self) -> Option<Respawn> {
        let orders = self.orders();
        orders.into_iter().find_map(|order| match order {
            AgentAction::Respawn(respawn) => Some(*respawn),
            _ => None,
        })
    }

    fn progress(&mut self, id: &str) -> (InstanceState, RunProgress) {
        let stats = self.stats();
        let row = stats.instances.iter().find(|it| it.instance_uuid == id);
        let row = row.unwrap();
        (row.state.clone(), *row.run.clone().unwrap())
    }

    /// The only end that is told: exit code, whether by itself, and what is known of it.
    fn end(&mut self) -> (Option<i64>, bool, proto_frames::payload::EndFacts) {
        match self.answer() {
            Message::InstanceStopped(it) => {
                let facts = it.facts.unwrap_or_default();
                (it.exit_code, it.exited, *facts)
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_program_that_failed_is_started_again_after_pauses_that_double_and_keeps_what_it_holds() {
    let mut world = World::connected();
    world.begins(service("a", restarting(RestartWhen::OnFailure, None)));
    for (number, pause) in [1, 2, 4].into_iter().enumerate() {
        world.ends_by_itself("a", 3, Ran::default());
        assert_eq!(world.orders(), [AgentAction::Clear("a".to_owned())]);
        assert!(matches!(
            world.records["a"].stage,
            crate::launcher::agent::Stage::Backoff
        ));
        world.advance(SECOND * pause - Duration::from_millis(1));
        assert_eq!(world.respawned(), None);
        world.sent.clear();
        world.start(process("b", 950));
        assert_eq!(
            world.refusal(),
            StartFailureReason::FullComputeNode,
            "it keeps its memory"
        );
        world.start(process("a", 1));
        assert_eq!(world.refusal(), StartFailureReason::AlreadyRunning);
        world.orders.clear();
        world.advance(Duration::from_millis(1));
        assert_eq!(world.respawned().unwrap().instance, "a");
        world.handle(Input::Started {
            instance: "a".to_owned(),
        });
        let (state, progress) = world.progress("a");
        assert_eq!(state, InstanceState::Active);
        assert_eq!(progress.restarts as usize, number + 1);
        assert_eq!(progress.last_exit_code, Some(3));
    }
    world.forget_what_happened();
    world.ends_by_itself("a", 0, Ran::default());
    let (code, by_itself, facts) = world.end();
    assert_eq!((code, by_itself, facts.restarts), (Some(0), true, 3));
}

#[test]
fn while_it_waits_it_is_listed_as_not_running_with_when_it_is_tried_next() {
    let mut world = World::connected();
    let policy = RestartPolicy {
        when: RestartWhen::Always,
        backoff: Some("1m".parse().unwrap()),
        ..RestartPolicy::default()
    };
    let scheduling = Scheduling {
        restart: Some(policy),
        ..Scheduling::default()
    };
    world.begins(service("a", scheduling));
    world.ends_by_itself("a", 0, Ran::default());
    let (state, progress) = world.progress("a");
    assert_eq!(state, InstanceState::Exited);
    let next = Duration::from_millis(progress.next_try_ms.unwrap());
    assert!(next <= MINUTE && next > MINUTE / 2, "{next:?}");
    world.suspend("a");
    let wrong = (LifecycleCommand::Suspend, CommandFailureReason::WrongState);
    assert_eq!(world.failed(), wrong);
    world.advance(MINUTE);
    assert!(world.respawned().is_some());
    // Also while it is being started again: `pending` would say that it may still fail to begin.
    assert_eq!(world.progress("a").0, InstanceState::Exited);
}

#[test]
fn restarts_that_are_used_up_end_it_and_a_start_that_fails_counts_as_a_run_that_failed() {
    let mut world = World::connected();
    world.begins(service("a", restarting(RestartWhen::OnFailure, Some(2))));
    world.ends_by_itself("a", 1, Ran::default());
    world.advance(SECOND);
    assert!(world.respawned().is_some());
    world.sent.clear();
    world.handle(Input::StartFailed {
        instance: "a".to_owned(),
        fault: LaunchFault::Image,
        detail: "gone".to_owned(),
    });
    let is_told = |it: &Message| matches!(it.kind(), Kind::START_FAILURE | Kind::INSTANCE_STOPPED);
    assert!(!world.sent.iter().any(is_told), "{:?}", world.sent);
    world.advance(SECOND * 2);
    assert!(world.respawned().is_some());
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.sent.clear();
    world.ends_by_itself("a", 5, Ran::default());
    let (code, by_itself, facts) = world.end();
    assert_eq!((code, by_itself, facts.restarts), (Some(5), true, 2));
}

#[test]
fn a_restart_that_its_launcher_did_not_come_to_is_made_by_the_next_launcher() {
    let mut world = World::connected();
    world.begins(service("a", restarting(RestartWhen::OnFailure, Some(2))));
    world.ends_by_itself("a", 3, Ran::default());
    world.advance(SECOND);
    assert!(world.respawned().is_some());
    world.restart(|_| ProcessFate::NeverRan);
    world.connect();
    let is_told = |it: &Message| matches!(it.kind(), Kind::START_FAILURE | Kind::INSTANCE_STOPPED);
    assert!(!world.sent.iter().any(is_told), "{:?}", world.sent);
    world.advance(SECOND);
    assert!(world.respawned().is_some());
    let (_, progress) = world.progress("a");
    assert_eq!((progress.restarts, progress.last_exit_code), (1, Some(3)));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.sent.clear();
    world.ends_by_itself("a", 0, Ran::default());
    let (code, by_itself, facts) = world.end();
    assert_eq!((code, by_itself, facts.restarts), (Some(0), true, 1));
}

#[test]
fn a_removal_comes_before_a_restart_whether_it_runs_or_waits() {
    for is_waiting in [true, false] {
        for stop in [true, false] {
            let mut world = World::connected();
            world.begins(service("a", restarting(RestartWhen::Always, None)));
            match is_waiting {
                true => {
                    world.ends_by_itself("a", 7, Ran::default());
                    world.forget_what_happened();
                    world.delete("a", stop);
                }
                // It ends by itself just when it is to be stopped: that is no end of its own, which a restart would follow.
                false => {
                    world.delete("a", stop);
                    world.forget_what_happened();
                    world.ends_by_itself("a", 7, Ran::default());
                }
            }
            match (stop, world.answer()) {
                (true, Message::InstanceStopped(it)) => assert!(!it.exited),
                (false, Message::InstanceDeleted(it)) => assert_eq!(it.exit_code, Some(7)),
                (_, other) => panic!("{other:?}"),
            }
            world.advance(MINUTE * 10);
            assert_eq!(world.respawned(), None);
        }
    }
    let mut world = World::connected();
    world.begins(service("a", restarting(RestartWhen::Always, None)));
    world.ends_by_itself("a", 7, Ran::default());
    world.forget_what_happened();
    world.evacuate();
    assert!(matches!(world.answer(), Message::InstanceStopped(_)));
    world.advance(MINUTE);
    assert_eq!(world.respawned(), None);
}

/// Otherwise the scheduler would place it again after the stop, once more than its START allows.
#[test]
fn an_end_by_itself_that_no_restart_would_follow_is_its_own_although_it_was_to_be_stopped() {
    for (when, max, code) in [
        (RestartWhen::OnFailure, Some(0), 7),
        (RestartWhen::OnFailure, None, 0),
    ] {
        let mut world = World::connected();
        world.begins(service("a", restarting(when, max)));
        world.delete("a", true);
        world.forget_what_happened();
        world.ends_by_itself("a", code, Ran::default());
        let (ended, by_itself, _) = world.end();
        assert_eq!((ended, by_itself), (Some(code.into()), true));
    }
}

#[test]
fn past_its_lease_it_is_not_started_again() {
    let lease = Duration::from_secs(30);
    let leased = |world: &mut World| {
        world.lease = Some(lease);
        world.agent = world.new_agent();
        world.connect();
        world.handle(Input::Command(Command::LeaseRenewed(Ok(LeaseRenewed {
            seq: 1,
        }))));
        let scheduling = Scheduling {
            on_node_loss: OnNodeLoss::Restart,
            ..restarting(RestartWhen::Always, None)
        };
        world.begins(service("a", scheduling));
    };
    let mut world = World::disconnected();
    leased(&mut world);
    world.ends_by_itself("a", 1, Ran::default());
    for pause in [1, 2, 4] {
        world.advance(SECOND * pause);
        assert!(world.respawned().is_some());
        world.handle(Input::Started {
            instance: "a".to_owned(),
        });
        world.ends_by_itself("a", 1, Ran::default());
    }
    world.forget_what_happened();
    // 7 s are gone; the pause of 8 s, and of 16 s if it were started again, ends after the lease of 28 s.
    world.advance(SECOND * 8);
    assert!(world.respawned().is_some());
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.ends_by_itself("a", 1, Ran::default());
    world.forget_what_happened();
    world.advance(MINUTE);
    match world.answer() {
        Message::InstanceStopped(it) => assert!(it.cut_off),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.respawned(), None);
}

#[test]
fn the_pause_and_what_was_counted_go_on_over_launchers() {
    let mut world = World::connected();
    let policy = RestartPolicy {
        when: RestartWhen::OnFailure,
        max: Some(2),
        backoff: Some("1m".parse().unwrap()),
        ..RestartPolicy::default()
    };
    let scheduling = Scheduling {
        restart: Some(policy),
        ..Scheduling::default()
    };
    let clock = crate::launcher::agent::NodeClock {
        at: world.now,
        ms: 1 << 40,
    };
    world.agent.set_clock(clock);
    world.begins(service("a", scheduling));
    world.ends_by_itself("a", 1, Ran::default());
    world.advance(SECOND * 20);
    let next = |world: &mut World| {
        world.launchers += 1;
        world.agent = world.new_agent();
        world.agent.set_clock(clock);
        world.forget_what_happened();
        let records = world.records.values().cloned();
        let recovered = records.map(|record| Recovered {
            age: Duration::ZERO,
            ended_ago: None,
            ran: Ran::default(),
            found: ProcessFate::Ended(None),
            record,
        });
        let recovered = recovered.collect();
        world.agent.recover(world.now, false, recovered);
        world.settle();
        world.connect();
    };
    next(&mut world);
    world.advance(SECOND * 39);
    assert_eq!(world.respawned(), None);
    world.advance(SECOND);
    assert!(world.respawned().is_some());
    // It dies while it is being started; the next finds that nothing runs.
    next(&mut world);
    let (state, progress) = world.progress("a");
    assert_eq!((state, progress.restarts), (InstanceState::Exited, 1));
    world.advance(MINUTE);
    assert!(world.respawned().is_some());
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.sent.clear();
    world.ends_by_itself("a", 9, Ran::default());
    assert_eq!(world.end().0, Some(9), "used up");
}

fn limited(limit: Duration) -> Scheduling {
    Scheduling {
        time_limit: Some(span(limit)),
        ..Scheduling::default()
    }
}

#[test]
fn what_ends_at_its_time_limit_ends_for_good_whatever_was_to_become_of_it() {
    let over = Ran {
        why: Some(Why::TimeLimit),
        counted_ms: Some(60_000),
        ..Ran::default()
    };
    for stop in [false, true] {
        let mut world = World::connected();
        let scheduling = Scheduling {
            time_limit: Some(span(MINUTE)),
            ..restarting(RestartWhen::Always, None)
        };
        world.begins(service("a", scheduling));
        world.advance(MINUTE);
        if stop {
            // Its room was wanted, but it has no right to go on elsewhere.
            world.delete("a", true);
        }
        world.forget_what_happened();
        world.handle(Input::Exited {
            instance: "a".to_owned(),
            code: Some(-15),
            by_itself: false,
            ran: over,
        });
        let (code, by_itself, facts) = world.end();
        assert_eq!((code, by_itself), (Some(-15), true));
        assert_eq!(facts.why, EndWhy::TimeLimit);
    }
}

#[test]
fn a_time_limit_counts_over_restarts_and_moves_and_ends_what_waits_for_a_restart() {
    let mut world = World::connected();
    let policy = RestartPolicy {
        when: RestartWhen::Always,
        backoff: Some("20s".parse().unwrap()),
        ..RestartPolicy::default()
    };
    let scheduling = Scheduling {
        time_limit: Some(span(MINUTE * 2)),
        restart: Some(policy),
        ..Scheduling::default()
    };
    let start = Start {
        time_used: Some(span(SECOND * 30)),
        ..service("a", scheduling)
    };
    world.start(start);
    let spawned = world.orders().into_iter().find_map(|order| match order {
        AgentAction::Spawn(workload) => workload.time_left,
        _ => None,
    });
    assert_eq!(spawned, Some(SECOND * 90));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    // By the supervisor's clock it took longer: the machine has slept.
    world.advance(SECOND * 10);
    let ran = Ran {
        counted_ms: Some(20_000),
        ..Ran::default()
    };
    world.ends_by_itself("a", 1, ran);
    world.advance(SECOND * 20);
    let respawned = world.respawned().unwrap();
    assert_eq!(respawned.time_left, Some(SECOND * 50));
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.advance(SECOND * 5);
    world.suspend("a");
    world.frozen("a", Ok(()));
    world.advance(MINUTE * 60);
    assert_eq!(world.progress("a").1.time_used_ms, Some(75_000));
    world.resume("a");
    world.thawed("a", Ok(()));
    world.advance(SECOND * 30);
    world.ends_by_itself("a", 1, Ran::default());
    world.forget_what_happened();
    // 15 s are left, less than the pause.
    world.advance(SECOND * 16);
    let (code, by_itself, facts) = world.end();
    assert_eq!((code, by_itself), (Some(1), true));
    assert_eq!((facts.why, facts.restarts), (EndWhy::TimeLimit, 1));
    assert_eq!(world.respawned(), None);
}

#[test]
fn where_no_supervisor_watches_the_agent_ends_it_in_time() {
    let mut world = World::disconnected();
    world.agent = Agent::new(Settings {
        runs: Runs::Anything,
        ..settings(world.node)
    });
    world.connect();
    world.begins(service("a", limited(MINUTE)));
    world.advance(SECOND * 59);
    assert_eq!(world.orders(), []);
    world.advance(SECOND);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    world.sent.clear();
    world.exits("a", -15);
    let (_, by_itself, facts) = world.end();
    assert!(by_itself && facts.why == EndWhy::TimeLimit);
}

#[test]
fn each_instance_has_the_grace_that_its_start_says() {
    let mut world = World::connected();
    let stop = Stop {
        grace: Some(span(MINUTE)),
        ..Stop::default()
    };
    let scheduling = Scheduling {
        stop: Some(stop),
        ..Scheduling::default()
    };
    world.begins(service("long", scheduling));
    world.running("usual", 1);
    assert_eq!(world.agent.longest_grace(), MINUTE);
    world.delete("long", false);
    world.delete("usual", false);
    world.orders.clear();
    world.advance(GRACE);
    assert_eq!(world.orders(), [AgentAction::Kill("usual".to_owned())]);
    world.advance(MINUTE - GRACE);
    assert_eq!(world.orders(), [AgentAction::Kill("long".to_owned())]);
}

#[test]
fn what_seems_to_hold_too_much_memory_is_looked_at_also_without_a_connection_and_ends_by_itself_for_that()
 {
    let mut world = World::connected();
    world.running("a", 64);
    let used = |mem_mb| Usage {
        mem_mb,
        disk_mb: 0,
        cpu_percent: 0,
    };
    world.usage.insert("a".to_owned(), used(64));
    world.handle(Input::Disconnected);
    world.advance(INTERVAL * 2);
    assert_eq!(world.orders(), []);
    world.usage.insert("a".to_owned(), used(65));
    world.advance(INTERVAL);
    let look = AgentAction::CheckMemory {
        instance: "a".to_owned(),
        mem_mb: 64,
    };
    assert_eq!(world.orders(), [look]);
    world.connect();
    world.sent.clear();
    world.handle(Input::Exited {
        instance: "a".to_owned(),
        code: Some(-9),
        by_itself: false,
        ran: Ran {
            why: Some(Why::Oom),
            ..Ran::default()
        },
    });
    let (code, by_itself, facts) = world.end();
    assert_eq!((code, by_itself, facts.why), (Some(-9), true, EndWhy::Oom));
}
