//! How many elements of an array hold a claim at a time, while they are moved, preempted and tried again.

use std::collections::BTreeSet;
use std::time::Duration;

use proto_frames::payload::{ArrayState, EvacuateMode, RetryPolicy};
use sched_core::{Report, SessionId};

use super::arrays::{element, elements, list, template, view};
use super::retrying::able;
use crate::support::durability::durable;
use crate::support::preemption::{frozen, sized};
use crate::support::requests::Asking;
use crate::support::world::{World, id, running};

impl World {
    /// The elements that hold a claim on some node, of so many.
    fn claiming(&mut self, count: u32) -> BTreeSet<u32> {
        let rows = self.seen("").into_iter();
        let placed: BTreeSet<String> = rows
            .filter(|row| !row.node_uuid.is_empty())
            .map(|row| row.instance_uuid)
            .collect();
        (0..count)
            .filter(|index| placed.contains(&element(*index)))
            .collect()
    }

    fn element_exits(&mut self, node: SessionId, index: u32, (seq, code): (u64, i64)) {
        let told = Box::new(Report::InstanceExited(id(&element(index))));
        let report = Report::Numbered {
            seq,
            exit_code: Some(code),
            facts: None,
            told,
        };
        self.say(node, report);
    }
}

#[test]
fn a_drain_moves_elements_and_begins_none_beside_them() {
    let (mut world, controller, [a]) = World::new().with_nodes([1000]);
    let movable = template(10).movable();
    world.look_away();
    world.start_array(controller, movable, (5, Some(2)));
    assert_eq!(world.placements(), elements([0, 1], a));
    list(&mut world, a, [0, 1]);
    let b = world.node_with(2, 1000);
    list(&mut world, b, []);
    world.look_away();
    world.evacuate(controller, a, EvacuateMode::Relocate);
    assert_eq!(world.stops(a).len(), 2, "both are moved at once");
    // Each is claimed on two nodes now, and stopped on the one before it begins on the other.
    for index in [0, 1] {
        assert_eq!(world.claiming(5), BTreeSet::from([0, 1]));
        world.has_stopped(a, &element(index));
        assert_eq!(world.placements(), elements([index], b));
    }
    list(&mut world, a, []);
    list(&mut world, b, [0, 1]);
    assert_eq!(world.claiming(5), BTreeSet::from([0, 1]));
    assert_eq!(world.placements(), []);
    // One that ends while the drain goes on makes room for the next, and for one alone.
    world.element_exits(b, 0, (1, 0));
    assert_eq!(world.placements(), elements([2], b));
    assert_eq!(world.claiming(5), BTreeSet::from([1, 2]));
    assert_eq!(view(&mut world).running, 2);
}

#[test]
fn an_element_that_ends_while_it_is_to_move_makes_room_for_one() {
    let (mut world, controller, [a, b]) = World::new().with_nodes([1000, 1000]);
    world.start_array(controller, template(10).movable(), (4, Some(1)));
    list(&mut world, a, [0]);
    world.look_away();
    world.evacuate(controller, a, EvacuateMode::Relocate);
    assert_eq!(world.stops(a), [element(0)]);
    world.element_exits(a, 0, (1, 0));
    assert_eq!(world.placements(), elements([1], b));
    assert_eq!(world.claiming(4), BTreeSet::from([1]));
    assert_eq!(view(&mut world).succeeded, 1);
}

#[test]
fn a_suspended_element_counts_and_no_other_begins_for_it() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.able(1, 100, 10));
    let asked = template(0).vcpus(10).priority(10);
    world.start_array(controller, asked, (3, Some(1)));
    list(&mut world, node, [0]);
    world.look_away();
    let urgent = sized("urgent", 0, 90).vcpus(10);
    world.start_as(controller, urgent);
    assert_eq!(world.orders(node), [format!("suspend {}", element(0))]);
    world.suspended(node, &element(0));
    assert_eq!(world.placements(), [("urgent".to_owned(), node)]);
    world.stats(node, vec![frozen(&element(0)), running("urgent", 0)]);
    // There is room for another, which may not begin.
    let other = world.able(2, 100, 10);
    world.stats(other, Vec::new());
    world.advance(Duration::from_secs(1));
    assert_eq!(world.claiming(3), BTreeSet::from([0]));
    let now = view(&mut world);
    assert_eq!((now.waiting, now.running), (2, 1));
    world.look_away();
    world.say(node, Report::InstanceExited(id("urgent")));
    assert_eq!(world.orders(node), [format!("resume {}", element(0))]);
    world.resumed(node, &element(0));
    world.element_exits(node, 0, (9, 0));
    assert_eq!(world.placements().len(), 1, "then the next begins");
    assert_eq!(world.claiming(3), BTreeSet::from([1]));
}

#[test]
fn an_element_that_was_stopped_for_another_holds_no_claim_and_is_the_next_to_begin() {
    let mut world = World::with_preemption();
    let (controller, node) = (world.controller(), world.node_with(1, 100));
    let asked = template(40).priority(10).waiting(600);
    world.start_array(controller, asked, (4, Some(2)));
    list(&mut world, node, [0, 1]);
    world.look_away();
    world.start_as(controller, sized("urgent", 60, 90).waiting(600));
    let stopped = world.stops(node);
    let [victim] = &stopped[..] else {
        panic!("one leaves: {stopped:?}");
    };
    let victim = (0..4)
        .find(|it| element(*it) == *victim)
        .expect("an element leaves");
    let stays = 1 - victim;
    world.has_stopped(node, &element(victim));
    assert_eq!(world.placements(), [("urgent".to_owned(), node)]);
    assert_eq!(world.claiming(4), BTreeSet::from([stays]));
    let now = view(&mut world);
    assert_eq!((now.queued, now.running, now.waiting), (1, 1, 2));
    // Room for one more is its own, not that of one which has not begun.
    world.stats(
        node,
        vec![running(&element(stays), 1), running("urgent", 1)],
    );
    let other = world.node_with(2, 100);
    assert_eq!(world.placements(), elements([victim], other));
    assert_eq!(world.claiming(4), BTreeSet::from([0, 1]));
    list(&mut world, other, [victim]);
    world.element_exits(other, victim, (1, 0));
    assert_eq!(world.placements(), elements([2], other));
    assert_eq!(world.claiming(4), BTreeSet::from([stays, 2]));
}

#[test]
fn an_element_that_is_tried_again_keeps_its_place_until_its_tries_are_used_up() {
    let (mut world, controller) = World::with(durable()).with_controller();
    let node = able(&mut world, 1);
    let retry = RetryPolicy {
        on: vec!["3".parse().expect("an end")],
        max: Some(2),
    };
    let asked = template(10).placed_as(|it| it.retry = Some(retry));
    world.start_array(controller, asked, (2, Some(1)));
    let given = world.placements();
    assert_eq!(given, elements([0], node));
    for seq in [1, 2] {
        list(&mut world, node, [0]);
        world.element_exits(node, 0, (seq, 3));
        assert_eq!(world.placements(), elements([0], node), "try {seq}");
        let now = view(&mut world);
        assert_eq!((now.running, now.waiting, now.failed), (1, 1, 0));
    }
    list(&mut world, node, [0]);
    world.element_exits(node, 0, (3, 3));
    assert_eq!(world.placements(), elements([1], node));
    let now = view(&mut world);
    assert_eq!((now.running, now.failed), (1, 1));
    assert_eq!(world.store.runs_of(&element(0)).last(), Some(&(Some(3), 2)));
    list(&mut world, node, [1]);
    world.element_exits(node, 1, (4, 0));
    let now = view(&mut world);
    assert_eq!((now.succeeded, now.failed), (1, 1));
    assert_eq!(now.state, ArrayState::Ended);
}
