//! STARTs whose group is to be apart on nodes take the places of members of lower priority: who leaves, who gets the
//! place meanwhile, and when a member that was suspended goes on.

use std::time::Duration;

use proto_frames::payload::{CommandFailureReason, Group, GroupPolicy, StartFailureReason, Update};
use sched_core::{InstanceReport, SessionId, StartRequest};

use crate::support::durability::{crash, durable};
use crate::support::preemption::{TOO_LONG, cpus, frozen, preempting, sized};
use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::words::{group, labels};
use crate::support::world::{World, running};

/// A group of which each node takes one member.
fn apart() -> Group {
    group("web", GroupPolicy::AntiAffinity)
}

/// The same with this many members to a node.
fn at_most(max: u32) -> Group {
    Group {
        max: Some(max),
        ..apart()
    }
}

/// A member of it, which asks for one of a node's four CPUs.
fn member(name: &str, priority: i64) -> StartRequest {
    cpus(name, 1, priority).of_group(&apart())
}

/// A member that is listed, as native launchers do, with its group.
fn with_group(report: InstanceReport) -> InstanceReport {
    InstanceReport {
        group: Some("web".into()),
        ..report
    }
}

/// A controller, and a node on which `low` was suspended for the place that `high` has.
fn with_place_taken() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.preempt(controller, node, "low", member("high", 90));
    world.look_away();
    (world, controller, node)
}

impl World {
    /// A node of 1,000 MiB and 4 CPUs whose launcher can suspend, and has said that nothing runs there.
    fn able_and_empty(&mut self, number: u64) -> SessionId {
        let node = self.able(number, 1000, 4);
        self.stats(node, Vec::new());
        node
    }

    /// A controller, and such a node on which these run.
    fn with_members(
        mut self,
        starts: impl IntoIterator<Item = StartRequest>,
    ) -> (Self, SessionId, SessionId) {
        let (controller, node) = (self.controller(), self.able_and_empty(1));
        self.run_on(controller, node, starts.into_iter().collect());
        (self, controller, node)
    }
}

#[test]
fn a_lower_member_is_suspended_for_its_place_and_resumed_when_that_is_free() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.start_as(controller, member("high", 90));
    assert_eq!(
        world.orders(node),
        ["suspend low"],
        "the START waits for it"
    );
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
    world.stats(node, vec![frozen("low"), running("high", 0)]);
    world.advance(Duration::from_secs(5));
    assert_eq!(
        world.orders(node),
        [""; 0],
        "three vcpus are free, and no place"
    );
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
    world.resumed(node, "low");
    world.start_as(controller, member("other", 10));
    assert_eq!(
        world.failures(controller).len(),
        1,
        "the place is taken again"
    );
}

#[test]
fn high_members_come_first_then_the_suspended_one_then_who_came_later() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.start_as(controller, member("later", 10).waiting(600));
    world.start_as(controller, member("high 1", 90).waiting(600));
    world.start_as(controller, member("high 2", 90).waiting(600));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start high 1"]);
    world.stats(node, vec![frozen("low"), running("high 1", 0)]);
    world.stopped(node, "high 1");
    assert_eq!(world.orders(node), ["start high 2"]);
    world.stats(node, vec![frozen("low"), running("high 2", 0)]);
    world.stopped(node, "high 2");
    assert_eq!(world.orders(node), ["resume low"]);
    world.resumed(node, "low");
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start later"]);
}

#[test]
fn where_memory_is_lacking_too_the_member_is_stopped_and_placed_again() {
    let low = sized("low", 800, 10).of_group(&apart());
    let (mut world, controller, node) = World::with_preemption().with_members([low]);
    world.start_as(controller, sized("high", 500, 90).of_group(&apart()));
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
    world.stats(node, vec![running("high", 0)]);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["start low"]);
}

#[test]
fn for_a_place_only_members_leave() {
    let others = [cpus("a", 1, 10), cpus("b", 1, 10)];
    let (mut world, controller, node) =
        World::with_preemption().with_members(others.into_iter().chain([member("low", 20)]));
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(node), ["suspend low"], "and no other instance");
    world.suspended(node, "low");
    assert_eq!(world.orders(node), ["start high"]);
}

#[test]
fn a_member_that_leaves_counts_for_room_as_well() {
    let low = cpus("low", 3, 20).of_group(&apart());
    let (mut world, controller, node) =
        World::with_preemption().with_members([cpus("a", 1, 10), low]);
    let high = cpus("high", 3, 90).of_group(&apart());
    world.start_as(controller, high);
    assert_eq!(world.orders(node), ["suspend low"]);
}

#[test]
fn a_member_of_equal_priority_keeps_its_place() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("one", 50)]);
    world.start_as(controller, member("two", 50));
    assert_eq!(
        world.failures(controller),
        one_failure("two", StartFailureReason::FullCloud)
    );
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn without_the_policy_members_keep_their_places() {
    let (mut world, controller, node) = World::new().with_members([member("low", 10)]);
    world.start_as(controller, member("high", 90));
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn of_several_places_as_many_members_leave_as_are_too_many() {
    let starts = ["a", "b", "c"].map(|name| cpus(name, 1, 20).of_group(&at_most(3)));
    let (mut world, controller, node) = World::with_preemption().with_members(starts);
    world.start_as(controller, cpus("high", 1, 90).of_group(&at_most(3)));
    let orders = world.orders(node);
    assert_eq!(orders.len(), 1, "two of three stay beside it: {orders:?}");
}

#[test]
fn the_node_whose_member_is_lowest_is_taken() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let one = world.able_and_empty(1);
    world.run_on(controller, one, vec![member("middle", 40)]);
    let two = world.able_and_empty(2);
    world.run_on(controller, two, vec![member("low", 20)]);
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(two), ["suspend low"]);
    assert_eq!(world.orders(one), [""; 0]);
}

#[test]
fn the_place_that_a_victim_leaves_is_no_one_elses() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.start_as(controller, member("high", 90));
    for name in ["before", "after"] {
        world.start_as(controller, member(name, 90));
        assert_eq!(
            world.failures(controller),
            one_failure(name, StartFailureReason::FullCloud)
        );
        world.suspended(node, "low");
    }
}

#[test]
fn a_victim_that_cannot_be_suspended_keeps_its_place() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    let other = world.able_and_empty(2);
    world.run_on(controller, other, vec![member("middle", 40)]);
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(node), ["suspend low"]);
    world.cannot_suspend(node, "low");
    assert_eq!(world.orders(other), ["suspend middle"]);
    world.suspended(other, "middle");
    assert_eq!(world.orders(other), ["start high"]);
    world.start_as(controller, member("late", 90));
    assert_eq!(world.failures(controller).len(), 1, "both nodes have one");
}

#[test]
fn a_suspended_member_goes_elsewhere_after_a_while_where_a_place_is_free() {
    let (mut world, _, node) = with_place_taken();
    let other = world.able_and_empty(2);
    world.look_away();
    world.advance(TOO_LONG);
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "low");
    assert_eq!(world.orders(other), ["start low"]);
}

#[test]
fn a_node_on_which_members_are_suspended_and_none_is_in_place_takes_another() {
    let (mut world, controller, node) = with_place_taken();
    let other = world.able_and_empty(2);
    world.run_on(controller, other, vec![member("second", 50)]);
    // "low" is outranked, so that the place is given to who waits.
    world.start_as(controller, member("third", 50).waiting(600));
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["start third"]);
}

#[test]
fn a_member_suspended_by_command_keeps_its_place() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.ask_suspend(controller, "low");
    world.suspended(node, "low");
    world.stats(node, vec![frozen("low")]);
    world.look_away();
    world.start_as(controller, member("high", 90));
    assert_eq!(
        world.failures(controller),
        one_failure("high", StartFailureReason::FullCloud)
    );
    world.ask_resume(controller, "low");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn one_preempted_and_then_suspended_by_command_is_resumed_once_its_place_is_free() {
    let (mut world, controller, node) = with_place_taken();
    world.ask_suspend(controller, "low");
    world.look_away();
    world.ask_resume(controller, "low");
    let failure = world.command_failures(controller).remove(0);
    assert_eq!(failure.reason, CommandFailureReason::NoRoom);
    assert!(
        failure
            .detail
            .starts_with("its place in group 'web' on its node"),
        "{}",
        failure.detail
    );
    world.stopped(node, "high");
    assert_eq!(world.orders(node), [""; 0], "nor is it resumed by itself");
    world.start_as(controller, member("other", 5));
    assert_eq!(world.orders(node), ["start other"], "its place is free");
    world.stats(node, vec![frozen("low"), running("other", 0)]);
    world.ask_resume(controller, "low");
    assert_eq!(world.command_failures(controller).len(), 1);
    world.stopped(node, "other");
    world.ask_resume(controller, "low");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn one_that_its_launcher_resumed_by_itself_counts_again() {
    let (mut world, controller, node) = with_place_taken();
    world.resumed(node, "low");
    world.stopped(node, "high");
    world.start_as(controller, member("other", 10));
    assert_eq!(world.failures(controller).len(), 1);
}

#[test]
fn a_resume_that_failed_leaves_the_place_free() {
    let (mut world, controller, node) = with_place_taken();
    world.stopped(node, "high");
    world.cannot_resume(node, "low");
    world.look_away();
    world.start_as(controller, member("other", 10));
    assert_eq!(world.orders(node), ["start other"]);
    world.stats(node, vec![frozen("low"), running("other", 0)]);
    world.advance(Duration::from_secs(30));
    assert_eq!(world.orders(node), [""; 0]);
    world.stopped(node, "other");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn a_place_of_members_that_ask_for_nothing_is_offered_when_it_is_free() {
    let nothing = |name, priority| sized(name, 0, priority).of_group(&apart());
    let (mut world, controller, node) = World::with_preemption().with_members([nothing("low", 10)]);
    world.start_as(controller, nothing("later", 10).waiting(600));
    world.preempt(controller, node, "low", nothing("high", 90));
    world.look_away();
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
    world.resumed(node, "low");
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start later"]);
}

#[test]
fn in_a_zone_members_keep_their_place_also_while_they_are_suspended() {
    let by_zone = Group {
        scope: "zone".to_owned(),
        ..apart()
    };
    let mut world = World::with_preemption();
    let controller = world.controller();
    let node = world.silent_node(1);
    let zone = || labels(&[("zone", "z1")]);
    world.ready_with(node, zone());
    world.stats(node, vec![]);
    let low = sized("low", 100, 10).of_group(&by_zone);
    world.run_on(controller, node, vec![low]);
    let high = sized("high", 100, 90).of_group(&by_zone);
    world.start_as(controller, high);
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
}

#[test]
fn a_connection_that_is_lost_and_back_changes_no_place() {
    let (mut world, controller, node) = with_place_taken();
    world.cut(node);
    let node = world.silent_node(1);
    world.ready_able(node, 1000, 4);
    world.look_away();
    world.start_as(controller, member("other", 90));
    assert_eq!(
        world.failures(controller).len(),
        1,
        "what it had counts until it says otherwise"
    );
    let rows = [frozen("low"), running("high", 0)].map(with_group);
    world.stats_seen(node, Some(0), rows.into());
    world.start_as(controller, member("other", 90));
    assert_eq!(world.failures(controller).len(), 1);
    assert_eq!(world.orders(node), [""; 0]);
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn after_a_restart_a_preempted_member_is_resumed_once_its_place_is_free() {
    let mut world = World::ruled(durable(), preempting());
    let (controller, node) = (world.controller(), world.able_and_empty(1));
    world.run_on(controller, node, vec![member("low", 10)]);
    world.preempt(controller, node, "low", member("high", 90));
    crash(&mut world, 1);
    let controller = world.controller();
    world.configure_rules(controller, preempting());
    let node = world.silent_node(1);
    world.ready_able(node, 1000, 4);
    world.look_away();
    let rows = [frozen("low"), running("high", 0)].map(with_group);
    world.stats_seen(node, Some(0), rows.into());
    assert_eq!(world.orders(node), [""; 0], "high has the place");
    world.stopped(node, "high");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn a_member_that_is_deleted_while_it_is_suspended_leaves_the_place_as_it_is() {
    let (mut world, controller, node) = with_place_taken();
    world.delete(controller, "low", node);
    world.stopped(node, "low");
    world.start_as(controller, member("other", 90));
    assert_eq!(world.failures(controller).len(), 1);
    world.stopped(node, "high");
    world.look_away();
    world.start_as(controller, member("other", 10));
    assert_eq!(world.orders(node), ["start other"]);
}

/// Starts `high` of the group, which no node takes: no instance is to leave for it.
fn is_refused(world: &mut World, controller: SessionId, node: SessionId) {
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(node), [""; 0]);
    assert_eq!(
        world.failures(controller),
        one_failure("high", StartFailureReason::FullCloud)
    );
}

#[test]
fn a_member_that_would_be_resumed_beside_it_stays() {
    let soft = group("web", GroupPolicy::SoftAntiAffinity);
    for theirs in [soft, at_most(2)] {
        let starts = ["a", "b"].map(|name| cpus(name, 1, 20).of_group(&theirs));
        let (mut world, controller, node) = World::with_preemption().with_members(starts);
        is_refused(&mut world, controller, node);
    }
}

#[test]
fn a_member_whose_start_is_not_known_stays() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let node = world.able(1, 1000, 4);
    let low = InstanceReport {
        requested: Some(cpus("low", 1, 10).asked),
        ..with_group(running("low", 0))
    };
    world.stats(node, vec![low]);
    let update = Update {
        instance_uuid: "low".into(),
        priority: Some(10),
        ..Update::default()
    };
    world.update_as(controller, update);
    world.look_away();
    is_refused(&mut world, controller, node);
}

#[test]
fn two_members_suspended_by_command_do_not_keep_each_other_from_running() {
    let (mut world, controller, node) = with_place_taken();
    world.ask_suspend(controller, "low");
    world.ask_suspend(controller, "high");
    world.suspended(node, "high");
    world.stats(node, vec![frozen("low"), frozen("high")]);
    world.look_away();
    world.ask_resume(controller, "low");
    assert_eq!(world.command_failures(controller).len(), 1);
    world.ask_resume(controller, "high");
    assert_eq!(world.orders(node), ["resume high"]);
    world.resumed(node, "high");
    world.stopped(node, "high");
    world.ask_resume(controller, "low");
    assert_eq!(world.orders(node), ["resume low"]);
}

#[test]
fn a_preempted_member_that_is_suspended_by_command_stands_in_no_ones_way() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 10)]);
    world.preempt(controller, node, "low", member("middle", 50));
    world.ask_suspend(controller, "low");
    world.look_away();
    world.start_as(controller, cpus("outsider", 4, 70));
    assert_eq!(world.orders(node), ["suspend middle"]);
    world.suspended(node, "middle");
    let listed = vec![frozen("low"), frozen("middle"), running("outsider", 0)];
    world.stats(node, listed);
    world.look_away();
    world.stopped(node, "outsider");
    assert_eq!(world.orders(node), ["resume middle"]);
    world.resumed(node, "middle");
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(node), ["suspend middle"]);
}

#[test]
fn a_member_that_is_thawed_to_be_stopped_has_its_place_until_then() {
    let (mut world, controller, node) = with_place_taken();
    let other = world.able_and_empty(2);
    world.migrate(controller, "low", Some(other));
    assert_eq!(world.orders(node), ["stop low"]);
    world.stopped(node, "high");
    world.resumed(node, "low");
    world.start_as(controller, member("next", 50).waiting(600));
    assert_eq!(world.orders(node), [""; 0], "low still runs there");
    world.stopped(node, "low");
    assert_eq!(world.orders(node), ["start next"]);
}

#[test]
fn no_node_is_reserved_for_a_member_that_lacks_its_place_alone() {
    let (mut world, controller, node) = World::with_preemption().with_members([member("low", 50)]);
    world.preempt(controller, node, "low", member("high", 90));
    world.look_away();
    // More than may pass it over.
    for number in 0..80 {
        let name = format!("outsider-{number}");
        world.start_as(controller, cpus(&name, 1, 50));
        assert_eq!(world.orders(node), [format!("start {name}")]);
        let listed = vec![frozen("low"), running("high", 0), running(&name, 0)];
        world.stats(node, listed);
        world.stopped(node, &name);
        world.look_away();
    }
}

#[test]
fn a_member_is_found_behind_many_others() {
    let (mut world, controller) = World::with_preemption().with_controller();
    let node = world.able(1, 100_000, 1000);
    world.stats(node, Vec::new());
    let others: Vec<String> = (0..300)
        .map(|number| format!("outsider-{number}"))
        .collect();
    let starts = others.iter().map(|name| cpus(name, 1, 10));
    world.run_on(
        controller,
        node,
        starts.chain([member("low", 10)]).collect(),
    );
    world.start_as(controller, member("high", 90));
    assert_eq!(world.orders(node), ["suspend low"]);
}
