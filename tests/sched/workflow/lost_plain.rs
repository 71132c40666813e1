//! Plain instances of lost nodes: they are listed until it is known that they are over, and their names stay taken. STARTs
//! that fail after they were placed leave a trace.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{
    Evacuate, EvacuateMode, InstanceView, PlacementState, StartFailureReason, Topic,
};
use sched_core::{
    Command, IN_DOUBT_TIME, Message, RefusalCause, Report, SessionId, StartRequest, Target,
};

use crate::support::durability::{crash, durable};
use crate::support::requests::Asking;
use crate::support::world::{World, id, node_uuid, request, running};

/// Longer than lost nodes are waited for.
const LONG: Duration = Duration::from_secs(3_700);

/// A START that asks for the name "web".
fn web(instance: &str) -> StartRequest {
    request(instance, 10).placed_as(|asked| asked.name = "web".into())
}

impl World {
    /// The one row of this instance.
    fn row(&mut self, name: &str) -> InstanceView {
        let rows = self.seen(name);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.into_iter().next().expect("it has a row")
    }

    /// A node with the plain instance "a", called "web", that is lost and given up.
    fn with_lost(mut self) -> (Self, SessionId) {
        let controller = self.controller();
        let node = self.node_with(1, 100);
        self.node_with(2, 100);
        let second = self.node_with(3, 100);
        self.cut(second);
        self.start_as(controller, web("a"));
        let placed = self.placements();
        let at = if placed[0].1 == node { 1 } else { 2 };
        assert_eq!(at, 1, "the first node has it");
        self.stats(node, vec![running("a", 1)]);
        self.lose(node);
        (self, controller)
    }

    fn is_lost(&mut self, name: &str) {
        let row = self.row(name);
        assert_eq!(row.state, PlacementState::Lost);
        assert_eq!(row.node_uuid, node_uuid(1).to_string());
        assert!(!row.hostname.is_empty(), "{row:?}");
        assert_eq!((&*row.name, row.mem_mb), ("web", 10));
        assert!(row.deadline_ms.is_some_and(|left| left > 0), "{row:?}");
        assert!(row.waits_for.contains("may run it still"), "{row:?}");
    }

    /// The instance is over by this cause, and that is all that is known.
    fn is_over(&mut self, name: &str, why: &str) {
        assert_eq!(self.seen(name), []);
        let ended = self.ended(name);
        assert_eq!((ended.len(), &*ended[0].name), (1, "web"), "{ended:?}");
        assert!(ended[0].waits_for.contains(why), "{ended:?}");
        assert!(!ended[0].hostname.is_empty(), "{ended:?}");
        assert_eq!(ended[0].node_uuid, node_uuid(1).to_string());
    }

    fn refused_delete(&mut self, name: &str) {
        let operator = self.operator(&[]);
        self.look_away();
        self.delete_at(operator, name, node_uuid(1));
        let told = self.told(operator);
        let [Message::CommandRefused(refused)] = &told[..] else {
            panic!("{told:?}")
        };
        assert!(refused.cause == RefusalCause::OnLostNode, "{refused:?}");
        self.cut(operator);
    }
}

#[test]
fn a_plain_instance_of_a_lost_node_is_listed_until_its_node_is_back() {
    let (mut world, controller) = World::new().with_lost();
    world.is_lost("a");
    world.is_lost("web");
    let history = world.history_of("a");
    assert_eq!((history.len(), &*history[0].what), (1, "lost"));
    world.refused_delete("a");
    // Its name is taken, as nobody knows that it is over.
    world.start_as(controller, web("b"));
    assert_eq!(world.failures(controller).len(), 1);
    let node = world.node_with(1, 100);
    world.stats(node, vec![running("a", 1)]);
    assert_eq!(world.row("a").state, PlacementState::Running);
    assert_eq!(world.ended("").len(), 0);
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    world.start_as(controller, web("b"));
    assert_eq!(world.failures(controller).len(), 0);
}

#[test]
fn a_start_sent_once_more_and_not_answered_does_not_have_what_runs_forgotten() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, web("a"));
    world.stats(node, vec![running("a", 1)]);
    world.start_as(controller, web("a"));
    world.lose(node);
    world.is_lost("a");
    world.look_away();
    world.start_as(controller, web("b"));
    assert_eq!(world.failures(controller).len(), 1, "its name is taken");
}

#[test]
fn a_node_that_lists_what_is_on_another_does_not_take_it_out_of_the_lists_when_both_are_lost() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, web("a"));
    world.stats(node, vec![running("a", 1)]);
    let other = world.node_with(2, 100);
    world.cut(node);
    world.stats(other, vec![running("a", 1)]);
    world.advance(Duration::from_secs(1));
    world.cut(other);
    world.advance(2 * IN_DOUBT_TIME);
    world.is_lost("a");
    let other = world.node_with(2, 100);
    world.stats(other, vec![]);
    world.is_lost("a");
}

#[test]
fn what_a_lost_node_has_is_listed_also_when_it_comes_back_and_is_lost_before_it_has_listed_anything()
 {
    let (mut world, _) = World::new().with_lost();
    let node = world.silent_node(1);
    world.lose(node);
    world.is_lost("a");
}

#[test]
fn while_its_node_may_still_be_back_a_delete_says_what_can_be_done_too() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10));
    world.stats(node, vec![running("a", 1)]);
    world.cut(node);
    world.refused_delete("a");
}

#[test]
fn what_a_lost_node_comes_back_without_is_over() {
    let (mut world, controller) = World::new().with_lost();
    let node = world.node_with(1, 100);
    for _ in 0..3 {
        world.stats(node, vec![]);
    }
    assert_eq!(world.seen("a"), []);
    assert_eq!(world.ended("a").len(), 1);
    world.start_as(controller, web("b"));
    assert_eq!(world.failures(controller).len(), 0);
}

#[test]
fn an_instance_of_a_lost_node_is_given_up_in_time_or_by_a_word() {
    let (mut world, _) = World::new().with_lost();
    world.advance(LONG);
    world.is_over("a", "its node is lost");

    let (mut world, controller) = World::new().with_lost();
    let operator = world.operator(&[]);
    let target = Target {
        instance: id("a"),
        node: "".into(),
    };
    world.look_away();
    world.say(operator, Command::Forget(target));
    assert!(matches!(
        &world.told(operator)[..],
        [Message::InstanceDeleted(_)]
    ));
    world.is_over("a", "forgotten");
    world.start_as(controller, web("b"));
    assert_eq!(world.failures(controller).len(), 0);

    let (mut world, _) = World::new().with_lost();
    let operator = world.operator(&[]);
    let evacuate = Evacuate {
        workload_agent_uuid: node_uuid(1).to_string(),
        mode: EvacuateMode::Forget,
        ..Evacuate::default()
    };
    world.say(operator, Command::Evacuate(Box::new(evacuate)));
    assert_eq!(world.seen("a"), []);
    assert_eq!(world.ended("a").len(), 1);
}

#[test]
fn an_instance_of_a_lost_node_is_listed_after_a_crash_of_the_scheduler() {
    let (mut world, _) = World::with(durable()).with_lost();
    world.advance(Duration::from_secs(1));
    crash(&mut world, 2);
    let row = world.row("a");
    assert_eq!((row.state, &*row.name), (PlacementState::Lost, "web"));
    let node = world.node_with(1, 100);
    world.stats(node, vec![running("a", 1)]);
    assert_eq!(world.row("a").state, PlacementState::Running);
    world.advance(Duration::from_secs(1));
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    crash(&mut world, 2);
    assert_eq!(world.seen("a"), [], "nothing of it is left on disk");
}

#[test]
fn a_name_that_was_given_on_before_a_crash_is_not_taken_back_by_what_is_on_disk_of_a_lost_node() {
    let (mut world, controller) = World::with(durable()).with_lost();
    world.advance(Duration::from_secs(1));
    let operator = world.operator(&[]);
    let target = Target {
        instance: id("a"),
        node: "".into(),
    };
    world.say(operator, Command::Forget(target));
    world.start_as(controller, web("b").waiting(30));
    // Before the claims of the lost node are written again.
    crash(&mut world, 2);
    assert_eq!(world.row("b").name, "web");
    assert!(world.seen("a").iter().all(|row| row.name.is_empty()));
}

#[test]
fn a_start_with_its_uuid_is_placed_and_is_what_counts_from_then_on() {
    let (mut world, controller) = World::new().with_lost();
    world.start_as(controller, request("a", 10));
    let placed = world.placements();
    assert_eq!(placed.len(), 1);
    assert_eq!(world.row("a").state, PlacementState::Placed);
    let (_, node) = placed[0].clone();
    world.stats(node, vec![running("a", 1)]);
    world.gone(node, Kind::INSTANCE_STOPPED, "a");
    assert_eq!(world.seen("a"), []);
    world.advance(LONG);
    assert_eq!(world.ended("a").len(), 1, "the run that was asked for last");
}

#[test]
fn a_start_that_fails_after_it_was_placed_leaves_a_trace() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10));
    world.say(
        node,
        Report::StartFailed {
            node: "".into(),
            instance: Some(id("a")),
            reason: StartFailureReason::LaunchFailure,
            detail: "no such program".into(),
        },
    );
    let failed = |world: &mut World, name: &str, why: &str| {
        let rows = world.ended(name);
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].failed.as_deref(), Some("launch_failure"));
        assert!(rows[0].waits_for.contains(why), "{rows:?}");
        assert_eq!(rows[0].node_uuid, node_uuid(1).to_string());
        let history = world.history_of(name);
        let last = history.last().unwrap();
        assert_eq!(last.failed.as_deref(), Some("launch_failure"), "{last:?}");
        assert!(last.detail.contains(why), "{last:?}");
    };
    failed(&mut world, "a", "no such program");
    // Lost before its node listed it.
    world.start_as(controller, request("b", 10));
    world.cut(node);
    assert_eq!(world.ended("b"), []);
    world.advance(IN_DOUBT_TIME);
    failed(&mut world, "b", "lost");
    assert_eq!(world.seen("b"), []);
}

#[test]
fn each_attempt_at_a_start_says_what_its_node_said() {
    let (mut world, controller, [one, other]) = World::new().with_nodes([100, 100]);
    world.start_as(controller, request("a", 10).attempts(2));
    let mut said = Vec::new();
    for _ in 0..2 {
        let placed = world.placements();
        let (_, node) = placed.last().unwrap().clone();
        assert!([one, other].contains(&node));
        let detail = format!("no program on {:?}", world.uuid_of(node));
        said.push(detail.clone());
        let report = Report::StartFailed {
            node: "".into(),
            instance: Some(id("a")),
            reason: StartFailureReason::LaunchFailure,
            detail: detail.into(),
        };
        world.look_away();
        world.say(node, report);
    }
    let history = world.history_of("a");
    for detail in said {
        let of_it = |row: &&proto_frames::payload::HistoryRow| row.detail.contains(&detail);
        assert_eq!(history.iter().filter(of_it).count(), 1, "{history:?}");
    }
    let row = world.ended("a").remove(0);
    assert_eq!(row.failed.as_deref(), Some("launch_failure"));
    assert!(!row.hostname.is_empty());
}

#[test]
fn a_managed_instance_of_a_lost_node_is_lost_from_the_first_moment() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10).waiting(30));
    world.stats(node, vec![running("a", 1)]);
    world.cut(node);
    let row = world.row("a");
    assert_eq!((row.state, &*row.life), (PlacementState::Lost, "lost"));
    world.advance(IN_DOUBT_TIME);
    let row = world.row("a");
    assert_eq!((row.state, &*row.life), (PlacementState::Lost, "lost"));
    let nodes = world.page(proto_frames::payload::QueryKind::Nodes, "", None, 1000);
    assert_eq!(nodes.nodes[0].instances, 1, "as many as are listed");
}

#[test]
fn a_delete_of_a_lost_instance_does_not_say_that_it_is_deleted() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10).waiting(30));
    world.stats(node, vec![running("a", 1)]);
    world.lose(node);
    world.look_away();
    let operator = world.operator(&[]);
    world.look_away();
    world.delete_at(operator, "a", node_uuid(1));
    let told = world.told(operator);
    let [Message::InstanceState(state)] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(state.payload.state.as_str(), "lost");
    assert_eq!(world.row("a").state, PlacementState::Lost);
}

#[test]
fn a_delete_of_a_managed_instance_counts_while_its_node_may_still_be_back() {
    for (is_back_in_time, topics) in [(true, &[][..]), (false, &[]), (true, &[Topic::Instances])] {
        let (mut world, controller, node) = World::new().with_node(100);
        world.start_as(controller, request("a", 10).waiting(30));
        world.stats(node, vec![running("a", 1)]);
        world.cut(node);
        let operator = world.operator(topics);
        world.look_away();
        world.delete_at(operator, "a", node_uuid(1));
        let told = world.told(operator);
        let Some(Message::InstanceState(state)) = told.last() else {
            panic!("{told:?}")
        };
        assert_eq!(
            state.payload.state.as_str(),
            "lost",
            "also who waits for it hears so"
        );
        assert_eq!(told.len(), 1 + topics.len(), "{told:?}");
        assert_eq!(world.row("a").state, PlacementState::Lost);
        if !is_back_in_time {
            world.advance(10 * IN_DOUBT_TIME);
            assert_eq!(world.row("a").state, PlacementState::Lost);
        }
        let node = world.node_with(1, 100);
        world.stats(node, vec![running("a", 1)]);
        assert_eq!(world.orders(node), ["stop a"], "{is_back_in_time}");
        world.gone(node, Kind::INSTANCE_DELETED, "a");
        assert_eq!(world.seen("a"), []);
        assert_eq!(world.ended("a").len(), 1);
    }
}

#[test]
fn a_node_that_was_known_only_briefly_is_forgotten_in_an_hour_and_any_other_is_not() {
    let mut world = World::new();
    let nodes = |world: &mut World| {
        let page = world.page(proto_frames::payload::QueryKind::Nodes, "", None, 1000);
        page.nodes.len()
    };
    let old = world.node_with(1, 100);
    world.advance(LONG);
    let new = world.node_with(2, 100);
    let silent = world.silent_node(3);
    for node in [old, new, silent] {
        world.cut(node);
    }
    assert_eq!(nodes(&mut world), 3);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(nodes(&mut world), 2, "one has never said what it has");
    world.advance(LONG);
    assert_eq!(nodes(&mut world), 1, "one was there for hardly a minute");
}

#[test]
fn a_scheduler_that_dies_before_a_lost_node_is_given_up_knows_its_plain_instances_afterwards() {
    let (mut world, controller, node) = World::with(durable()).with_node(100);
    world.start_as(controller, web("a"));
    world.start_as(controller, request("unheard", 10));
    world.stats_seen(node, Some(1), vec![running("a", 1)]);
    assert_eq!(
        world.store.len(),
        0,
        "nothing of it while its node is there"
    );
    world.cut(node);
    world.advance(Duration::from_secs(1));
    crash(&mut world, 1);
    let row = world.row("a");
    assert_eq!((row.state, &*row.name), (PlacementState::Lost, "web"));
    assert_eq!(world.seen("unheard"), []);
    let node = world.node_with(1, 100);
    world.stats(node, vec![running("a", 1)]);
    assert_eq!(world.row("a").state, PlacementState::Running);
    world.advance(Duration::from_secs(1));
    assert_eq!(world.store.len(), 0, "it says all itself");
}
