//! STARTs that fit nowhere take the room of lower priorities: who leaves, how, and what becomes of whom.

use proto_frames::Kind;
use proto_frames::payload::{EvacuateMode, StartFailureReason};
use sched_core::{Capabilities, NodeExtras, Report, SessionId};

use crate::support::preemption::{TOO_LONG, cpus, frozen, preempting, sized};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::resources;
use crate::support::world::{Size, World, report, running};

#[test]
fn without_the_policy_no_one_leaves() {
    let (mut world, controller, _) = World::new().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(
        world.failures(controller),
        one_failure("high", StartFailureReason::FullCloud)
    );
    world.nothing_else();
}

#[test]
fn nothing_is_preempted_for_a_start_that_would_do_for_one_of_higher_priority_that_waits() {
    let mut world = World::with_preemption();
    let controller = world.controller();
    let large = world.node_with(1, 1000);
    world.run_on(controller, large, vec![sized("urgent", 1000, 99)]);
    let node = world.node_with(2, 100);
    world.start_as(controller, sized("low", 100, 10));
    // While "low" is on its way it cannot be preempted: all of these wait, most for the room of the other node.
    for number in 0..10 {
        let name = format!("large-{number}");
        world.start_as(controller, sized(&name, 1000, 95).waiting(600));
    }
    world.start_as(controller, sized("first", 100, 90).waiting(600));
    world.stats(node, vec![running("low", 0)]);
    world.look_away();
    world.start_as(controller, sized("second", 100, 50).waiting(600));
    world.gone(node, Kind::INSTANCE_STOPPED, "low");
    assert_eq!(world.placements(), [("first".to_owned(), node)]);
}

#[test]
fn a_lower_priority_is_suspended_for_its_vcpus_and_resumed_when_they_are_free() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);

    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(
        world.orders(node),
        ["suspend low"],
        "the START waits for it"
    );
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
    world.stats(node, vec![frozen("low"), running("high", 0)]);
    assert_eq!(world.orders(node), [""; 0], "its vcpus are taken");

    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
    world.resumed(node, "low");
    assert_eq!(
        world.lives(controller),
        [
            "high placing",
            "low suspending",
            "low suspended",
            "high placing",
            "high running",
            "high gone",
            "low resuming",
            "low running"
        ]
    );
}

#[test]
fn on_a_node_that_calls_itself_full_one_that_was_preempted_goes_on_before_who_came_later() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("later", 4, 10).waiting(600));
    world.start_as(controller, cpus("high", 4, 90));
    world.suspended(node, "low");
    world.stats(node, vec![frozen("low"), running("high", 0)]);
    // It has no vcpus left, and will say so until its next report.
    world.status(node, Kind::FULL);
    world.look_away();
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
    world.resumed(node, "low");
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start later"]);
}

#[test]
fn stats_confirm_as_well_as_events_do() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.look_away();
    world.stats(node, vec![frozen("low")]);
    assert_eq!(world.orders(node), ["start high"]);
    world.stats(node, vec![frozen("low"), running("high", 0)]);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
    world.lives(controller);
    world.stats(node, vec![running("low", 0)]);
    assert_eq!(world.lives(controller), ["low running"]);
}

#[test]
fn an_equal_priority_does_not_leave() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("one", 4, 50)]);
    world.start_as(controller, cpus("two", 4, 50));
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn what_says_no_priority_has_fifty() {
    let (mut world, controller, node) = World::with_preemption().with_node(1000);
    world.start(controller, "usual", 1000);
    world.stats(node, vec![running("usual", 0)]);
    world.look_away();
    world.start_as(controller, sized("lower", 1000, 49));
    assert_eq!(world.failures(controller).len(), 1);
    world.start_as(controller, sized("higher", 1000, 51));
    assert_eq!(world.orders(node), ["stop usual"]);
}

#[test]
fn what_was_started_before_the_policy_and_is_not_managed_does_not_leave() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "plain", 1000);
    world.stats(node, vec![running("plain", 0)]);
    world.configure_rules(controller, preempting());
    world.look_away();
    world.start_as(controller, sized("high", 1000, 90));
    assert_eq!(world.failures(controller).len(), 1);
}

#[test]
fn where_memory_is_lacking_a_lower_priority_is_stopped_and_waits_for_room_again() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([sized("low", 1000, 10)]);
    world.start_as(controller, sized("high", 600, 90));
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
    world.stats(node, vec![running("high", 0)]);
    let lives = world.lives(controller);
    assert!(lives.contains(&"low waiting".to_owned()), "{lives:?}");

    // Another node joins: it goes there.
    let other = world.able(2, 1000, 4);
    assert_eq!(world.orders(other), ["start low"]);
    world.nothing_for(node);
}

#[test]
fn one_that_was_stopped_goes_at_once_where_there_is_room_for_it() {
    let (mut world, controller, big) =
        World::with_preemption().with_running([sized("low", 300, 10)]);
    let small = world.able(2, 400, 4);
    world.start_as(controller, sized("high", 900, 90));
    assert_eq!(world.orders(big), ["stop low"]);
    world.stopped(big, "low");
    assert_eq!(world.orders(big), ["start high"]);
    assert_eq!(world.orders(small), ["start low"]);
}

#[test]
fn a_launcher_that_cannot_suspend_is_told_to_stop_and_original_controllers_hear_of_it_alone() {
    let mut world = World::with_preemption();
    let (controller, original) = (world.controller(), world.original_controller());
    let node = world.node_with(1, 1000);
    world.run_on(controller, node, vec![cpus("low", 100, 10)]);
    world.start_as(controller, cpus("high", 100, 90));
    assert_eq!(world.orders(node), ["stop low"]);
    world.look_away();
    world.stopped(node, "low");
    assert_eq!(world.told(original).len(), 1, "InstanceStopped");
    assert_eq!(
        world.lives(controller),
        ["high placing", "low waiting"],
        "in other words"
    );
    assert_eq!(world.orders(node), ["start high"]);
    world.nothing_else();
}

#[test]
fn the_room_that_is_made_is_no_one_elses() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([sized("low", 1000, 10)]);
    world.start_as(controller, sized("high", 600, 90));
    world.stopped(node, "low");
    world.start_as(controller, sized("other", 600, 90));
    assert_eq!(
        world.failures(controller),
        one_failure("other", StartFailureReason::FullCloud)
    );
}

#[test]
fn the_node_where_the_highest_priority_that_leaves_is_lowest_is_taken() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let one = world.able(1, 1000, 4);
    world.run_on(controller, one, vec![cpus("middle", 4, 40)]);
    let two = world.able(2, 1000, 4);
    world.run_on(controller, two, vec![cpus("a", 2, 20), cpus("b", 2, 20)]);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(one), [""; 0]);
    assert_eq!(world.orders(two), ["suspend a", "suspend b"]);
}

#[test]
fn suspending_is_cheaper_than_stopping() {
    let (mut world, controller, original) = World::with_preemption().with_node(1000);
    world.run_on(controller, original, vec![cpus("a", 100, 20)]);
    let able = world.able(2, 1000, 100);
    world.run_on(controller, able, vec![cpus("b", 50, 20), cpus("c", 50, 20)]);
    world.start_as(controller, cpus("high", 100, 90));
    assert_eq!(world.orders(able), ["suspend b", "suspend c"]);
    world.nothing_for(original);
}

#[test]
fn the_least_work_is_lost() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let one = world.able(1, 1000, 4);
    world.run_on(controller, one, vec![sized("old", 1000, 20)]);
    world.advance(TOO_LONG);
    let two = world.able(2, 1000, 4);
    world.run_on(controller, two, vec![sized("new", 1000, 20)]);
    world.start_as(controller, sized("high", 1000, 90));
    assert_eq!(world.orders(two), ["stop new"]);
    world.nothing_for(one);
}

#[test]
fn no_one_leaves_for_nothing() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 1000, 10));
    let starts = vec![cpus("a", 3, 20), cpus("b", 4, 20), cpus("c", 3, 20)];
    world.run_on(controller, node, starts);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend b"]);
}

#[test]
fn only_those_whose_memory_is_needed_are_stopped() {
    let fat = sized("fat", 900, 20).vcpus(1);
    let (mut world, controller, node) =
        World::with_preemption().with_running([fat, cpus("quick", 3, 20)]);
    let high = sized("high", 500, 90).vcpus(3);
    world.start_as(controller, high);
    assert_eq!(world.orders(node), ["stop fat", "suspend quick"]);
    world.suspended(node, "quick");
    assert_eq!(world.orders(node), [""; 0], "both have to be away");
    world.stopped(node, "fat");
    assert_eq!(world.orders(node), ["start high"]);
}

#[test]
fn a_suspended_one_is_stopped_where_its_memory_is_needed() {
    let low = sized("low", 800, 10).vcpus(4);
    let (mut world, controller, node) = World::with_preemption().with_running([low]);
    world.preempt(controller, node, "low", cpus("high", 4, 90));
    world.look_away();
    world.start_as(controller, sized("fat", 500, 50));
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start fat"]);
    world.stats(node, vec![running("high", 0), running("fat", 0)]);

    world.stopped(node, "high");
    assert_eq!(world.orders(node), [""; 0], "its memory is not free");
    world.stopped(node, "fat");
    assert_eq!(
        world.orders(node),
        ["start low"],
        "and is started again from the beginning"
    );
}

#[test]
fn one_evicted_and_resumed_is_evicted_again() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    for high in ["first", "second", "third"] {
        world.start_as(controller, cpus(high, 4, 90));
        assert_eq!(world.orders(node), ["suspend low"]);
        world.suspended(node, "low");
        assert_eq!(world.orders(node), [format!("start {high}")]);
        world.stats(node, vec![frozen("low"), running(high, 0)]);
        world.stopped(node, high);
        assert_eq!(world.orders(node), ["resume low"]);
        world.resumed(node, "low");
    }
}

#[test]
fn a_preemptor_may_be_evicted_itself() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.preempt(controller, node, "low", cpus("middle", 4, 50));
    world.look_away();
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend middle"]);
    world.suspended(node, "middle");
    world.stats(
        node,
        vec![frozen("low"), frozen("middle"), running("high", 0)],
    );
    world.look_away();
    world.stopped(node, "high");
    assert_eq!(
        world.orders(node),
        ["resume middle"],
        "and not the lower one"
    );
    world.resumed(node, "middle");
    world.stopped(node, "middle");
    assert_eq!(world.orders(node), ["resume low"]);
}

/// Two vcpus are `steady`'s, for the other two of them `low` was suspended, and `wide` waits for more than will be free at
/// once.
fn beside_steady() -> (World, SessionId, SessionId) {
    let starts = [cpus("low", 2, 10), cpus("steady", 2, 95)];
    let (mut world, controller, node) = World::with_preemption().with_running(starts);
    world.start_as(controller, cpus("high", 2, 90));
    world.suspended(node, "low");
    let all = vec![frozen("low"), running("steady", 0), running("high", 0)];
    world.stats(node, all);
    world.start_as(controller, cpus("wide", 4, 80).waiting(600));
    (world, controller, node)
}

#[test]
fn an_evicted_instance_never_resumes_before_a_waiting_higher_one() {
    let (mut world, _, node) = beside_steady();
    world.look_away();
    world.stopped(node, "high");
    assert_eq!(
        world.orders(node),
        [""; 0],
        "two vcpus are free, and it waits for four"
    );
    world.stopped(node, "steady");
    assert_eq!(world.orders(node), ["start wide"]);
    world.stats(node, vec![frozen("low"), running("wide", 0)]);
    world.stopped(node, "wide");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn once_no_one_higher_waits_any_more_an_evicted_one_is_resumed() {
    let (mut world, controller, node) = beside_steady();
    world.stopped(node, "high");
    world.look_away();
    world.delete(controller, "wide", node);
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn one_deleted_while_it_is_suspended_is_deleted_there_and_not_resumed() {
    let (mut world, controller, node) = World::preempted();
    world.delete(controller, "low", node);
    assert_eq!(world.orders(node), ["delete low"]);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), [""; 0]);
    world.gone(node, Kind::INSTANCE_DELETED, "low");
    world.look_away();
    world.start_as(controller, cpus("next", 4, 0));
    assert_eq!(world.orders(node), ["start next"]);
}

#[test]
fn a_victim_that_is_deleted_or_ends_is_out_of_the_way() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([cpus("a", 2, 10), cpus("b", 2, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend a", "suspend b"]);
    world.stopped(node, "a");
    world.delete(controller, "b", node);
    assert_eq!(world.orders(node), ["delete b"]);
    world.gone(node, Kind::INSTANCE_DELETED, "b");
    assert_eq!(world.orders(node), ["start high"]);
}

#[test]
fn when_the_preemptor_is_deleted_those_that_left_for_it_are_resumed() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([cpus("a", 2, 10), cpus("b", 2, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.suspended(node, "a");
    world.look_away();
    world.delete(controller, "high", node);
    assert_eq!(world.orders(node), ["resume a"]);
    world.suspended(node, "b");
    assert_eq!(world.orders(node), ["resume b"]);
}

#[test]
fn when_one_refuses_to_leave_the_others_are_resumed_and_the_preemptor_goes_elsewhere() {
    let (mut world, controller, node) =
        World::with_preemption().with_running([cpus("a", 2, 10), cpus("b", 2, 10)]);
    let other = world.able(2, 1000, 4);
    world.run_on(controller, other, vec![cpus("c", 4, 20)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.suspended(node, "a");
    world.look_away();
    world.cannot_suspend(node, "b");
    assert_eq!(world.orders(node), ["resume a"]);
    assert_eq!(world.orders(other), ["suspend c"]);
    world.suspended(other, "c");
    assert_eq!(world.orders(other), ["start high"]);
}

#[test]
fn a_preemptor_for_which_no_one_leaves_fails_or_waits() {
    for (seconds, failures) in [(0, 1), (600, 0)] {
        let (mut world, controller, node) =
            World::with_preemption().with_running([cpus("low", 4, 10)]);
        world.start_as(controller, cpus("high", 4, 90).waiting(seconds));
        world.look_away();
        world.cannot_suspend(node, "low");
        assert_eq!(world.failures(controller).len(), failures);
        assert_eq!(world.orders(node), [""; 0], "it is not asked again at once");
    }
}

#[test]
fn one_that_does_not_leave_in_time_is_to_run_on() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    world.start_as(controller, cpus("high", 4, 90));
    world.look_away();
    world.advance(TOO_LONG);
    assert_eq!(
        world.orders(node),
        ["resume low"],
        "should it be suspended yet"
    );
    assert_eq!(world.failures(controller).len(), 1);
}

#[test]
fn a_preemptor_whose_node_is_lost_meanwhile_goes_elsewhere() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    let other = world.able(2, 1000, 4);
    world.run_on(controller, other, vec![cpus("middle", 4, 20)]);
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.cut(node);
    assert_eq!(world.orders(other), ["suspend middle"]);
}

#[test]
fn a_preemptor_that_its_node_cannot_start_is_tried_on_another() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    let other = world.able(2, 1000, 4);
    world.run_on(controller, other, vec![cpus("middle", 4, 20)]);
    let high = cpus("high", 4, 90).attempts(2);
    world.start_as(controller, high);
    world.suspended(node, "low");
    world.look_away();
    world.start_failed(node, "high", StartFailureReason::LaunchFailure);
    assert_eq!(world.orders(node), ["resume low"]);
    assert_eq!(world.orders(other), ["suspend middle"]);
}

#[test]
fn one_that_waits_takes_the_room_of_a_lower_one_that_could_not_leave_before() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 1000, 4));
    world.start_as(controller, cpus("low", 4, 10));
    // No one knows yet whether it runs.
    world.start_as(controller, cpus("high", 4, 90).waiting(600));
    assert_eq!(world.orders(node), ["start low"]);
    world.stats(node, vec![running("low", 0)]);
    assert_eq!(world.orders(node), ["suspend low"]);
}

#[test]
fn nodes_that_take_no_work_or_do_not_suit_are_left_alone() {
    let (mut world, controller, node) = World::with_preemption().with_running([cpus("low", 4, 10)]);
    let mut pinned = cpus("pinned", 4, 90);
    pinned.hostname = Some("elsewhere".into());
    world.start_as(controller, pinned);
    assert_eq!(world.failures(controller).len(), 1);
    world.status(node, Kind::MAINTENANCE);
    world.look_away();
    world.start_as(controller, cpus("high", 4, 90));
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn one_that_cannot_be_resumed_where_it_is_goes_elsewhere_after_a_while() {
    let (mut world, _, node) = World::preempted();
    let other = world.able(2, 1000, 4);
    world.look_away();
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(other), ["start low"]);
}

#[test]
fn a_resume_that_failed_is_tried_again_later() {
    let (mut world, _, node) = World::preempted();
    world.stopped(node, "high");
    world.look_away();
    world.cannot_resume(node, "low");
    assert_eq!(world.orders(node), [""; 0], "not at once");
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["resume low"]);
}

impl World {
    /// A launcher was told nothing that the test did not look at.
    fn nothing_for(&mut self, node: SessionId) {
        assert_eq!(self.orders(node), [""; 0]);
    }
}

#[test]
fn a_start_that_asks_for_more_than_can_be_counted_is_refused() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, resources(&[("gpu", 2)]));
    let asking = |name: &str, gpus: i64, priority: i64| {
        let mut start = sized(name, 1, priority);
        let scheduling = start.scheduling.as_mut().expect("it has one");
        scheduling.resources = [("gpu".to_owned(), gpus)].into();
        start
    };
    world.run_on(controller, node, vec![asking("low", 2, 10)]);
    // It has fewer than it has given away.
    world.ready_with(node, resources(&[("gpu", 1)]));
    world.look_away();
    world.start_as(controller, asking("high", i64::MAX, 90));
    assert_eq!(
        world.failures(controller),
        one_failure("high", StartFailureReason::FullCloud)
    );
}

#[test]
fn where_a_node_takes_no_work_what_is_suspended_there_is_resumed_once_its_vcpus_are_free() {
    let (mut world, controller, node) = World::preempted();
    world.evacuate(controller, node, EvacuateMode::Cordon);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"], "it is there already");
    world.resumed(node, "low");

    let (mut world, _, node) = World::preempted();
    world.say(node, Report::Full);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn where_less_than_no_disk_is_left_what_is_suspended_there_is_resumed_once_its_vcpus_are_free() {
    let (mut world, _, node) = World::preempted();
    let mut overdrawn = report(Size {
        cpus: 4,
        ..Size::default()
    });
    overdrawn.disk_available_mb = -1;
    overdrawn.extras = Some(Box::new(NodeExtras {
        capabilities: Capabilities::SUSPEND,
        ..NodeExtras::default()
    }));
    world.report(node, overdrawn);
    world.look_away();
    world.stopped(node, "high");
    assert_eq!(
        world.orders(node),
        ["resume low"],
        "it has its disk already"
    );
}
