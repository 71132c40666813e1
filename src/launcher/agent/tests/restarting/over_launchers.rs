//! What a launcher makes of instances that an earlier one was to end or to start again.

use super::*;

/// A service under a lease that is always started again, after a minute.
fn leased_service(world: &mut World) {
    world.lease = Some(SECOND * 30);
    world.agent = world.new_agent();
    world.connect();
    world.handle(Input::Command(Command::LeaseRenewed(Ok(LeaseRenewed {
        seq: 1,
    }))));
    let policy = RestartPolicy {
        when: RestartWhen::Always,
        backoff: Some("1m".parse().unwrap()),
        ..RestartPolicy::default()
    };
    let scheduling = Scheduling {
        on_node_loss: OnNodeLoss::Restart,
        restart: Some(policy),
        ..Scheduling::default()
    };
    world.begins(service("a", scheduling));
}

#[test]
fn what_a_later_launcher_finds_past_the_lease_was_cut_off_whether_it_ended_or_waits() {
    for is_waiting in [true, false] {
        let mut world = World::disconnected();
        leased_service(&mut world);
        if is_waiting {
            world.ends_by_itself("a", 1, Ran::default());
        }
        // The next knows of no lease: it is over.
        world.restart(|_| match is_waiting {
            true => ProcessFate::Ended(None),
            false => ProcessFate::EndedByItself(1),
        });
        world.connect();
        match world.answer() {
            Message::InstanceStopped(it) => assert!(it.cut_off && !it.exited),
            other => panic!("{other:?}"),
        }
        world.handle(Input::Command(Command::LeaseRenewed(Ok(LeaseRenewed {
            seq: 1,
        }))));
        world.advance(MINUTE * 10);
        assert_eq!(world.respawned(), None);
    }
}

#[test]
fn the_time_of_a_run_counts_also_where_a_launcher_died_before_it_noted_the_start() {
    let mut world = World::connected();
    let clock = crate::launcher::agent::NodeClock {
        at: world.now,
        ms: 0,
    };
    world.agent.set_clock(clock);
    world.start(service("a", limited(MINUTE)));
    world.launchers += 1;
    world.agent = world.new_agent();
    world.agent.set_clock(clock);
    world.forget_what_happened();
    let record = world.records["a"].clone();
    let recovered = Recovered {
        age: Duration::ZERO,
        ended_ago: None,
        ran: Ran::default(),
        found: ProcessFate::Running,
        record,
    };
    let found = world.now;
    world.agent.recover(found, false, vec![recovered]);
    world.settle();
    world.connect();
    world.advance(SECOND * 10);
    let used = world.progress("a").1.time_used_ms;
    let used = Duration::from_millis(used.unwrap());
    // As the last report has it.
    let ran = world.now - found;
    assert!(ran - INTERVAL <= used && used <= ran, "{used:?} of {ran:?}");
}

#[test]
fn what_a_run_used_counts_once_where_it_is_deleted_before_the_next() {
    let mut world = World::connected();
    world.begins(service("a", restarting(RestartWhen::Always, None)));
    let ran = Ran {
        ran_ms: Some(500),
        cpu_ms: Some(30),
        output_bytes: Some(7),
        ..Ran::default()
    };
    world.ends_by_itself("a", 7, ran);
    world.forget_what_happened();
    world.delete("a", false);
    let Message::InstanceDeleted(deleted) = world.answer() else {
        panic!("it is deleted")
    };
    let facts = deleted.facts.unwrap();
    assert_eq!((facts.cpu_ms, facts.output_bytes), (Some(30), Some(7)));
}

#[test]
fn a_pause_is_no_longer_than_the_longest_whatever_became_of_the_count() {
    let mut world = World::connected();
    let at = world.now;
    let clock = |ms| crate::launcher::agent::NodeClock { at, ms };
    world.agent.set_clock(clock(1 << 40));
    world.begins(service("a", restarting(RestartWhen::Always, None)));
    world.ends_by_itself("a", 1, Ran::default());
    world.launchers += 1;
    world.agent = world.new_agent();
    world.agent.set_clock(clock(0));
    world.forget_what_happened();
    let recovered = Recovered {
        age: Duration::ZERO,
        ended_ago: None,
        ran: Ran::default(),
        found: ProcessFate::Ended(None),
        record: world.records["a"].clone(),
    };
    world.agent.recover(world.now, false, vec![recovered]);
    world.settle();
    world.advance(MINUTE * 5);
    assert!(world.respawned().is_some());
}

#[test]
fn memory_is_watched_also_by_a_launcher_that_has_never_been_connected() {
    let mut world = World::connected();
    world.running("a", 64);
    let used = Usage {
        mem_mb: 65,
        disk_mb: 0,
        cpu_percent: 0,
    };
    world.usage.insert("a".to_owned(), used);
    world.restart(|_| ProcessFate::Running);
    world.advance(INTERVAL * 2);
    let looks = world.orders();
    let is_look = |it: &AgentAction| matches!(it, AgentAction::CheckMemory { .. });
    assert!(looks.iter().any(is_look), "{looks:?}");
}
