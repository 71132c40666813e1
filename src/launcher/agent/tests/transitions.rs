//! SUSPEND, RESUME and UPDATE: what they change, what they are answered, what they survive.

use super::*;

use CommandFailureReason as Reason;

fn freeze(id: &str) -> AgentAction {
    AgentAction::Freeze(id.to_owned())
}

fn thaw(id: &str) -> AgentAction {
    AgentAction::Thaw(id.to_owned())
}

fn set_limits(id: &str, mem_mb: i64, vcpus: i64) -> AgentAction {
    AgentAction::SetLimits {
        instance: id.to_owned(),
        mem_mb,
        vcpus,
    }
}

fn is(id: &str, state: PhaseName) -> (String, PhaseName) {
    (id.to_owned(), state)
}

#[test]
fn an_instance_is_suspended_when_it_is_frozen_and_runs_when_it_is_thawed() {
    let mut world = World::connected();
    world.running("a", 1);
    world.suspend("a");
    assert_eq!(world.orders(), [freeze("a")]);
    assert_eq!(world.stats().instances[0].state, InstanceState::Active);
    world.suspend("a");
    world.nothing_else();
    world.frozen("a", Ok(()));
    assert_eq!(world.next_state(), is("a", PhaseName::Suspended));
    let listed = world.stats().instances.remove(0);
    assert_eq!(
        (listed.state, listed.suspended),
        (InstanceState::ExitPaused, true)
    );
    assert_eq!(listed.requested.unwrap().vcpus, 1);
    world.suspend("a");
    assert_eq!(
        world.next_state(),
        is("a", PhaseName::Suspended),
        "told again"
    );

    world.resume("a");
    assert_eq!(world.orders(), [thaw("a")]);
    world.resume("a");
    assert!(world.orders().is_empty());
    world.sent.clear();
    world.thawed("a", Ok(()));
    assert_eq!(world.next_state(), is("a", PhaseName::Running));
    let listed = world.stats().instances.remove(0);
    assert_eq!(
        (listed.state, listed.suspended),
        (InstanceState::Active, false)
    );
    world.resume("a");
    assert_eq!(
        world.next_state(),
        is("a", PhaseName::Running),
        "told again"
    );
    world.nothing_else();
}

#[test]
fn a_suspended_instance_holds_its_memory_and_its_vcpus_are_anothers_until_they_are_free_again() {
    // Four vcpus, 1000 MiB.
    let mut world = World::connected();
    let mut start = process("a", 600);
    start.requirements.vcpus = 3;
    world.start(start.clone());
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.suspend("a");
    world.frozen("a", Ok(()));
    world.advance(MIN_REPORT_GAP);
    world.forget_what_happened();

    world.start(process("b", 401));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    start.instance_uuid = "c".to_owned();
    start.requirements.mem_mb = 400;
    world.start(start);
    world.handle(Input::Started {
        instance: "c".to_owned(),
    });
    world.forget_what_happened();
    world.resume("a");
    assert_eq!(world.failed(), (LifecycleCommand::Resume, Reason::NoRoom));
    assert!(world.orders().is_empty());
    world.exits("c", 0);
    world.forget_what_happened();
    world.resume("a");
    assert_eq!(world.orders(), [thaw("a")]);
    // They are its own from the RESUME on.
    world.sent.clear();
    let mut late = process("d", 1);
    late.requirements.vcpus = 2;
    world.start(late);
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
}

#[test]
fn what_cannot_be_frozen_or_thawed_stays_as_it_was() {
    let mut world = World::connected();
    world.running("a", 1);
    world.suspend("a");
    world.forget_what_happened();
    world.frozen("a", Err("no"));
    assert_eq!(world.failed(), (LifecycleCommand::Suspend, Reason::Failed));
    assert_eq!(world.orders(), [thaw("a")], "to make sure");
    world.thawed("a", Ok(()));
    assert_eq!(world.stats().instances[0].state, InstanceState::Active);

    world.suspend("a");
    world.frozen("a", Ok(()));
    world.resume("a");
    world.forget_what_happened();
    world.thawed("a", Err("no"));
    assert_eq!(world.failed(), (LifecycleCommand::Resume, Reason::Failed));
    assert!(world.stats().instances[0].suspended);
}

#[test]
fn what_could_be_neither_frozen_nor_thawed_is_thawed_again_and_at_last_listed_as_suspended() {
    let mut world = World::connected();
    world.running("a", 1);
    world.suspend("a");
    world.frozen("a", Err("too late"));
    world.forget_what_happened();
    for _ in 1..5 {
        world.thawed("a", Err("no"));
        assert_eq!(world.orders(), [thaw("a")]);
    }
    world.thawed("a", Err("no"));
    assert_eq!(world.orders(), []);
    assert!(world.stats().instances[0].suspended);
    world.resume("a");
    assert_eq!(world.orders(), [thaw("a")]);
}

#[test]
fn what_an_instance_is_not_ready_for_is_refused() {
    let mut world = World::connected();
    world.start(process("a", 1));
    world.suspend("a");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Suspend, Reason::WrongState)
    );
    world.update("a", 2, 1);
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Update, Reason::WrongState)
    );
    world.handle(Input::Started {
        instance: "a".to_owned(),
    });
    world.suspend("a");
    world.advance(MIN_REPORT_GAP);
    world.forget_what_happened();
    world.resume("a");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Resume, Reason::WrongState)
    );
    world.update("a", 2, 1);
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Update, Reason::WrongState)
    );
    world.resume("b");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Resume, Reason::NoInstance)
    );
    world.exits("a", 0);
    world.forget_what_happened();
    world.suspend("a");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Suspend, Reason::NoInstance)
    );
    world.nothing_else();
}

#[test]
fn commands_for_another_node_and_unreadable_ones_are_refused() {
    let mut world = World::connected();
    world.running("a", 1);
    let suspend = Suspend {
        instance_uuid: "a".to_owned(),
        workload_agent_uuid: Uuid::from_u128(8).to_string(),
    };
    world.handle(Input::Command(Command::Suspend(Ok(suspend))));
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Suspend, Reason::InvalidData)
    );
    world.frame(Kind::RESUME, "resume: [");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Resume, Reason::InvalidData)
    );
    world.frame(Kind::UPDATE, "update: {instance_uuid: a, mem_mb: -1}");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Update, Reason::InvalidData)
    );
    world.frame(Kind::MIGRATE, "migrate: {instance_uuid: a}");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Migrate, Reason::NotSupported)
    );
    world.nothing_else();
}

#[test]
fn a_suspended_instance_is_stopped_like_any_other_and_one_half_suspended_answers_both() {
    let mut world = World::connected();
    world.suspended("a", 1);
    world.delete("a", false);
    assert_eq!(world.orders(), [AgentAction::Terminate("a".to_owned())]);
    assert_eq!(world.stats().instances[0].state, InstanceState::Stopping);
    world.advance(GRACE);
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
    world.sent.clear();
    world.exits("a", -9);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_DELETED);

    world.running("b", 1);
    world.suspend("b");
    world.forget_what_happened();
    world.delete("b", true);
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Suspend, Reason::WrongState)
    );
    assert_eq!(world.orders(), [AgentAction::Terminate("b".to_owned())]);
    world.frozen("b", Ok(()));
    world.nothing_else();
    world.suspended("c", 1);
    world.evacuate();
    assert_eq!(world.orders(), [AgentAction::Terminate("c".to_owned())]);
}

#[test]
fn an_instance_that_ends_while_it_changes_answers_and_is_told_as_ended() {
    let mut world = World::connected();
    for change in ["suspend", "resume", "update"] {
        world.suspended("a", 1);
        match change {
            "suspend" => {
                world.resume("a");
                world.thawed("a", Ok(()));
                world.suspend("a");
            }
            "resume" => world.resume("a"),
            _ => world.update("a", 2, 1),
        }
        world.forget_what_happened();
        world.exits("a", 3);
        let Message::CommandFailure(failure) = world.sent.remove(0) else {
            panic!()
        };
        assert_eq!(failure.command.as_str(), change);
        assert_eq!(failure.reason, Reason::WrongState);
        assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
        world.frozen("a", Err("it has ended"));
        world.thawed("a", Ok(()));
        world.limits_set("a", Ok(()));
        world.nothing_else();
        world.advance(MIN_REPORT_GAP);
        world.forget_what_happened();
    }
}

#[test]
fn what_was_suspended_is_so_for_the_next_launcher_and_half_changes_are_made_again() {
    let mut world = World::connected();
    world.suspended("a", 400);
    world.running("b", 1);
    world.suspend("b");
    world.suspended("c", 1);
    world.resume("c");
    world.running("d", 1);
    world.update("d", 200, 1);
    world.restart(|_| ProcessFate::Running);
    assert_eq!(
        world.orders(),
        [freeze("b"), thaw("c"), set_limits("d", 200, 1)]
    );
    world.connect();
    let stats = world.stats();
    let suspended = stats.instances.iter().map(|it| it.suspended);
    assert_eq!(suspended.collect::<Vec<_>>(), [true, false, false, false]);
    for (answer, state) in [
        (
            Input::Frozen {
                instance: "b".to_owned(),
                result: Ok(()),
            },
            is("b", PhaseName::Suspended),
        ),
        (
            Input::Thawed {
                instance: "c".to_owned(),
                result: Ok(()),
            },
            is("c", PhaseName::Running),
        ),
        (
            Input::LimitsSet {
                instance: "d".to_owned(),
                result: Ok(()),
            },
            is("d", PhaseName::Updated),
        ),
    ] {
        world.handle(answer);
        assert_eq!(world.next_state(), state);
    }
    world.resume("a");
    assert_eq!(world.orders(), [thaw("a")]);
    world.restart(|id| match id {
        "a" => ProcessFate::Ended(Some(1)),
        _ => ProcessFate::Running,
    });
    world.connect();
    assert_eq!(world.sent[0].kind(), Kind::INSTANCE_STOPPED);
    let requested = world.stats().instances[2].requested.clone().unwrap();
    assert_eq!(requested.mem_mb, 200, "of the updated one");
}

#[test]
fn what_could_not_be_frozen_is_thawed_by_the_next_launcher_too() {
    let mut world = World::connected();
    world.running("a", 1);
    world.suspend("a");
    world.frozen("a", Err("too late"));
    // Its launcher ends before it hears whether that worked.
    for _ in 0..2 {
        world.restart(|_| ProcessFate::Running);
        assert_eq!(world.orders(), [thaw("a")], "it may be frozen all the same");
        world.connect();
        assert_eq!(world.stats().instances[0].state, InstanceState::Active);
        world.thawed("a", Err("no"));
        assert_eq!(world.orders(), [thaw("a")]);
    }
    world.thawed("a", Ok(()));
    world.restart(|_| ProcessFate::Running);
    assert_eq!(world.orders(), [], "it runs");

    world.suspend("a");
    world.frozen("a", Err("too late"));
    world.suspend("a");
    world.frozen("a", Ok(()));
    world.restart(|_| ProcessFate::Running);
    assert_eq!(world.orders(), [], "it is to be frozen");
}

#[test]
fn an_update_takes_the_difference_and_holds_the_more_until_it_is_made() {
    let mut world = World::connected();
    world.running("a", 600);
    world.update("a", 1001, 1);
    assert_eq!(world.failed(), (LifecycleCommand::Update, Reason::NoRoom));
    world.update("a", 600, 5);
    assert_eq!(world.failed(), (LifecycleCommand::Update, Reason::NoRoom));
    world.update("a", 900, 2);
    assert_eq!(world.orders(), [set_limits("a", 900, 2)]);
    world.start(process("b", 101));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    world.update("a", 1, 1);
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Update, Reason::WrongState)
    );
    world.suspend("a");
    assert_eq!(
        world.failed(),
        (LifecycleCommand::Suspend, Reason::WrongState)
    );
    world.limits_set("a", Ok(()));
    assert_eq!(world.next_state(), is("a", PhaseName::Updated));
    let requested = world.stats().instances[0].requested.clone().unwrap();
    assert_eq!((requested.mem_mb, requested.vcpus), (900, 2));

    world.update("a", 100, 2);
    world.start(process("b", 101));
    assert_eq!(world.refusal(), StartFailureReason::FullComputeNode);
    world.limits_set("a", Err("it uses more"));
    assert_eq!(world.failed(), (LifecycleCommand::Update, Reason::Failed));
    let requested = world.stats().instances[0].requested.clone().unwrap();
    assert_eq!(requested.mem_mb, 900);
}

#[test]
fn an_update_of_what_nothing_limits_is_done_at_once_and_so_is_one_that_changes_nothing() {
    let features = Features {
        resources: [("gpu".to_owned(), 2)].into(),
        ..Features::default()
    };
    let mut world = World::with_features(features);
    world.running("a", 100);
    world.update("a", 100, 1);
    assert_eq!(world.next_state(), is("a", PhaseName::Updated));
    let mut gpus = |amount, expected| {
        let update = Update {
            instance_uuid: "a".to_owned(),
            resources: [("gpu".to_owned(), amount)].into(),
            disk_mb: Some(50),
            ..Update::default()
        };
        world.handle(Input::Command(Command::Update(Ok(Box::new(update)))));
        match expected {
            Ok(state) => assert_eq!(world.next_state(), is("a", state)),
            Err(reason) => assert_eq!(world.failed(), (LifecycleCommand::Update, reason)),
        }
        world.stats().instances[0].requested.clone().unwrap()
    };
    assert_eq!(gpus(2, Ok(PhaseName::Updated)).resources["gpu"], 2);
    assert_eq!(gpus(3, Err(Reason::NoRoom)).resources["gpu"], 2);
    let requested = gpus(0, Ok(PhaseName::Updated));
    assert!(requested.resources.is_empty());
    assert_eq!((requested.mem_mb, requested.disk_mb), (100, 50));
    assert!(world.orders().is_empty());
}

#[test]
fn a_suspended_instance_is_updated_without_the_vcpus_it_does_not_hold() {
    let mut world = World::connected();
    world.suspended("a", 1);
    world.update("a", 1, 99);
    assert_eq!(world.orders(), [set_limits("a", 1, 99)]);
    world.limits_set("a", Ok(()));
    assert_eq!(world.next_state(), is("a", PhaseName::Updated));
    world.resume("a");
    assert_eq!(world.failed(), (LifecycleCommand::Resume, Reason::NoRoom));
}
