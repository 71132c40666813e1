//! SUSPEND and RESUME from controllers and operators.

use proto_frames::Kind;
use proto_frames::payload::{
    CommandFailureReason, InstanceStateEvent, LifecycleCommand, PhaseName, Topic,
};
use sched_core::{IN_DOUBT_TIME, InstanceReport, InstanceState, Report, Rules};

use crate::support::durability::{crash, durable};
use crate::support::preemption::{TOO_LONG, cpus, frozen};
use crate::support::requests::Asking;
use crate::support::world::{Size, World, request, running};

#[test]
fn an_instance_is_suspended_and_resumed_as_it_is_asked_for() {
    let (mut world, controller, node) = World::new().with_running([cpus("it", 4, 50)]);
    world.ask_suspend(controller, "it");
    assert_eq!(world.orders(node), ["suspend it"]);
    world.suspended(node, "it");
    assert_eq!(world.lives(controller), ["it suspending", "it suspended"]);
    world.ask_resume(controller, "it");
    assert_eq!(world.orders(node), ["resume it"]);
    world.resumed(node, "it");
    assert_eq!(world.lives(controller), ["it resuming", "it running"]);
    world.nothing_else();
}

#[test]
fn a_plain_instance_is_managed_once_it_is_suspended() {
    let mut world = World::new();
    let operator = world.operator(&[Topic::Instances]);
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    let plain = request("plain", 100).vcpus(4);
    world.run_on(controller, node, vec![plain]);
    world.ask_suspend(operator, "plain");
    world.stats(node, vec![frozen("plain")]);
    assert_eq!(world.orders(node), ["suspend plain"]);
    assert_eq!(
        world.lives(operator),
        ["plain suspending", "plain suspended"]
    );
    // Its vcpus are free for others, its memory is not.
    world.look_away();
    world.start(controller, "fat", 950);
    assert_eq!(world.failures(controller).len(), 1);
    world.start_as(controller, cpus("quick", 4, 50));
    assert_eq!(world.orders(node), ["start quick"]);
    world.gone(node, Kind::INSTANCE_STOPPED, "plain");
    world.start(controller, "fat", 950);
    assert_eq!(world.orders(node), ["start fat"]);
}

#[test]
fn what_was_suspended_when_its_node_was_lost_is_suspended_after_a_crash_too() {
    let (mut world, _, node) = World::with(durable()).with_suspended();
    world.cut(node);
    world.advance(TOO_LONG);
    crash(&mut world, 1);
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.look_away();
    world.stats(node, vec![frozen("it")]);
    assert_eq!(world.lives(controller), ["it suspended"]);
}

#[test]
fn what_is_not_there_cannot_or_need_not_be_suspended_is_answered() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    let original = world.node(2, Size::default());
    world.run_on(controller, node, vec![cpus("it", 4, 50)]);
    world.run_on(controller, original, vec![cpus("old", 4, 50)]);
    let mut asked = |what: &str, name: &str| {
        match what {
            "suspend" => world.ask_suspend(controller, name),
            _ => world.ask_resume(controller, name),
        }
        let failures = world.command_failures(controller);
        let reason = failures.first().map(|failure| failure.reason.clone());
        assert_eq!(world.orders(node), [""; 0]);
        reason
    };
    assert_eq!(
        asked("suspend", "nobody"),
        Some(CommandFailureReason::NoInstance)
    );
    assert_eq!(
        asked("suspend", "old"),
        Some(CommandFailureReason::NotSupported)
    );
    assert_eq!(
        asked("resume", "it"),
        Some(CommandFailureReason::WrongState)
    );
    world.ask_suspend(controller, "it");
    world.orders(node);
    world.ask_suspend(controller, "it");
    let failure = world.command_failures(controller).remove(0);
    assert_eq!(failure.reason, CommandFailureReason::WrongState);
    assert_eq!(failure.detail, "it is suspending");
}

#[test]
fn an_instance_that_its_node_has_not_confirmed_is_not_suspended() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start(controller, "plain", 100);
    world.start_as(controller, cpus("kept", 1, 50));
    world.look_away();
    for name in ["plain", "kept"] {
        world.ask_suspend(controller, name);
        let failure = world.command_failures(controller).remove(0);
        assert_eq!(failure.reason, CommandFailureReason::WrongState);
    }
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn what_is_resumed_by_command_needs_its_vcpus() {
    let (mut world, controller, node) = World::new().with_suspended();
    world.start_as(controller, cpus("other", 3, 50));
    world.look_away();
    world.ask_resume(controller, "it");
    let failure = world.command_failures(controller).remove(0);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
    assert!(
        failure.detail.starts_with("it needs 4 vcpus, and its node")
            && failure.detail.ends_with("has 1 free"),
        "{}",
        failure.detail
    );
    world.stats(node, vec![frozen("it"), running("other", 0)]);
    world.stopped(node, "other");
    assert_eq!(world.orders(node), [""; 0], "nor is it resumed by itself");
}

#[test]
fn vcpus_are_claimed_before_the_launcher_is_told_to_resume() {
    let (mut world, controller, _) = World::new().with_suspended();
    world.ask_resume(controller, "it");
    world.look_away();
    world.start_as(controller, cpus("other", 1, 50));
    assert_eq!(world.failures(controller).len(), 1);
}

#[test]
fn a_launcher_that_could_not_is_taken_at_its_word_and_who_asked_is_told() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.run_on(controller, node, vec![cpus("it", 4, 50)]);
    world.ask_suspend(operator, "it");
    world.look_away();
    let reason = CommandFailureReason::Failed;
    world.cannot(node, LifecycleCommand::Suspend, "it", reason.clone());
    let failure = world.command_failures(operator).remove(0);
    assert_eq!(failure.reason, reason);
    assert_eq!(world.lives(controller), ["it running"]);

    world.ask_suspend(operator, "it");
    world.suspended(node, "it");
    world.ask_resume(operator, "it");
    world.look_away();
    world.cannot(node, LifecycleCommand::Resume, "it", reason);
    assert_eq!(world.command_failures(operator).len(), 1);
    assert_eq!(world.lives(controller), ["it suspended"]);
    world.start_as(controller, cpus("other", 4, 50));
    assert_eq!(
        world.orders(node),
        ["start other"],
        "its vcpus are free again"
    );
}

#[test]
fn what_takes_too_long_is_what_stats_say_it_is() {
    let (mut world, controller, node) = World::new().with_running([cpus("it", 4, 50)]);
    world.ask_suspend(controller, "it");
    world.look_away();
    world.advance(TOO_LONG);
    let told = world.command_failures(controller);
    assert_eq!(told[0].reason, CommandFailureReason::Timeout);
    world.stats(node, vec![frozen("it")]);
    assert_eq!(world.lives(controller), ["it suspended"], "after all");
    world.ask_resume(controller, "it");
    world.look_away();
    world.advance(TOO_LONG);
    assert_eq!(world.command_failures(controller).len(), 1);
    // What it was told it may yet do.
    world.ask_resume(controller, "it");
    assert_eq!(world.orders(node), [""; 0]);
    assert_eq!(world.lives(controller), ["it resuming"]);
    world.resumed(node, "it");
    assert_eq!(world.lives(controller), ["it running"]);
}

#[test]
fn what_may_be_resumed_any_moment_keeps_its_vcpus_until_its_launcher_answers() {
    let (mut world, controller, node) = World::new().with_suspended();
    world.ask_resume(controller, "it");
    world.advance(TOO_LONG);
    world.stats(node, vec![frozen("it")]);
    world.look_away();
    world.start_as(controller, cpus("other", 1, 50));
    assert_eq!(world.failures(controller).len(), 1);
    // Nor does a DELETE that takes as long change that.
    world.delete(controller, "it", node);
    world.advance(TOO_LONG);
    world.look_away();
    world.start_as(controller, cpus("other", 1, 50));
    assert_eq!(world.failures(controller).len(), 1);
    world.cannot_resume(node, "it");
    world.look_away();
    world.start_as(controller, cpus("other", 4, 50));
    assert_eq!(world.orders(node), ["start other"]);
}

#[test]
fn whether_it_was_resumed_before_its_node_was_cut_off_its_first_stats_say() {
    for is_resumed in [false, true] {
        for is_late in [false, true] {
            let (mut world, controller, node) = World::new().with_suspended();
            world.ask_resume(controller, "it");
            if is_late {
                world.advance(TOO_LONG);
            }
            world.cut(node);
            let node = world.able(1, 1000, 4);
            world.look_away();
            world.start_as(controller, cpus("other", 1, 50));
            assert_eq!(world.failures(controller).len(), 1);
            let listed = if is_resumed {
                running("it", 0)
            } else {
                frozen("it")
            };
            world.stats(node, vec![listed]);
            world.look_away();
            world.start_as(controller, cpus("other", 4, 50));
            assert_eq!(world.orders(node).is_empty(), is_resumed);
            let told = world.seen("it").remove(0).life;
            assert_eq!(told, if is_resumed { "running" } else { "suspended" });
        }
    }
}

#[test]
fn a_resume_that_goes_on_over_a_newer_connection_keeps_its_vcpus() {
    let (mut world, controller, node) = World::new().with_suspended();
    world.told(node);
    world.ask_resume(controller, "it");
    let newer = world.able(1, 1000, 4);
    assert_eq!(world.orders(newer), ["resume it"]);
    world.stats(newer, vec![frozen("it")]);
    world.look_away();
    world.start_as(controller, cpus("other", 1, 50));
    assert_eq!(world.failures(controller).len(), 1);
}

#[test]
fn what_had_to_leave_stays_suspended_once_somebody_asks_for_it() {
    let (mut world, controller, node) = World::preempted();
    world.ask_suspend(controller, "low");
    world.stopped(node, "high");
    assert_eq!(world.orders(node), [""; 0]);
    world.ask_resume(controller, "low");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn a_launcher_speaks_for_its_own_instances_alone() {
    let (mut world, controller, node) = World::new().with_running([cpus("it", 4, 50)]);
    let other = world.able(2, 1000, 4);
    world.ask_suspend(controller, "it");
    world.look_away();
    world.suspended(other, "it");
    let event = InstanceStateEvent {
        instance_uuid: "it".to_owned(),
        node_uuid: world.uuid_of(node).to_string(),
        state: PhaseName::Suspended,
        detail: String::new(),
        priority: None,
        target_node_uuid: String::new(),
    };
    let report = Report::InstanceState(Box::new(event));
    world.say(other, report);
    world.cannot_suspend(other, "it");
    world.nothing_else();
}

#[test]
fn one_suspended_by_others_is_known_to_be() {
    let (mut world, controller, node) = World::new().with_running([cpus("it", 4, 50)]);
    world.stats(node, vec![frozen("it")]);
    assert_eq!(world.lives(controller), ["it suspended"]);
    world.stats(node, vec![running("it", 0)]);
    assert_eq!(world.lives(controller), ["it running"]);
}

#[test]
fn a_suspended_instance_whose_node_comes_back_is_still_suspended() {
    let (mut world, controller, node) = World::new().with_suspended();
    world.cut(node);
    let node = world.able(1, 1000, 4);
    world.stats(node, vec![frozen("it")]);
    world.look_away();
    world.start_as(controller, cpus("other", 4, 50));
    assert_eq!(world.orders(node), ["start other"]);
    world.ask_resume(controller, "it");
    let failure = world.command_failures(controller).remove(0);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
}

#[test]
fn what_is_suspended_is_so_although_its_node_was_lost_when_the_scheduler_crashed() {
    let (mut world, _, _) = World::with(durable()).with_suspended();
    world.crash(durable(), Rules::default());
    // It is back, and lost again for good.
    let node = world.able(1, 1000, 4);
    world.stats(node, vec![frozen("it")]);
    world.cut(node);
    world.advance(IN_DOUBT_TIME);
    world.crash(durable(), Rules::default());
    let operator = world.operator(&[Topic::Instances]);
    let node = world.able(1, 1000, 4);
    world.stats(node, vec![frozen("it")]);
    assert_eq!(world.lives(operator), ["it suspended"]);
}

#[test]
fn one_that_is_suspended_while_it_is_being_started_is_confirmed_all_the_same() {
    let mut world = World::new();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, cpus("it", 4, 50));
    let starting = InstanceReport {
        state: InstanceState::Pending,
        ..running("it", 0)
    };
    world.stats(node, vec![starting]);
    world.look_away();
    // By a command from before that START, as when it has ended and begins again.
    world.suspended(node, "it");
    world.stats(node, vec![frozen("it")]);
    assert_eq!(world.lives(controller), ["it running", "it suspended"]);
}
