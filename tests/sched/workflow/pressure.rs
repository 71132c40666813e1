//! Nodes that are short of memory: nothing more is placed there, and with the policy `evict` the least urgent instances
//! are moved away, one at a time.

use std::time::Duration;

use proto_frames::payload::PressureState;
use sched_core::{
    InstanceReport, Message, NodeExtras, PolicyRules, PressurePolicy, Rules, SessionId, ShortText,
};

use crate::support::requests::Asking;
use crate::support::world::{Size, World, config, report, request, running};

/// As long as nothing more is moved away after something was.
const RELIEF_TIME: Duration = Duration::from_secs(30);

/// What a launcher says of itself.
fn extras(is_short: bool) -> NodeExtras {
    NodeExtras {
        fault: is_short.then(|| ShortText::new("short of memory")),
        is_short_of_memory: is_short,
        ..NodeExtras::default()
    }
}

/// A node reports how it is, and then what runs on it.
fn says(world: &mut World, node: SessionId, is_short: bool, listed: &[InstanceReport]) {
    let mut said = report(Size::of_mem(1000));
    said.extras = Some(Box::new(extras(is_short)));
    world.report(node, said);
    world.stats_as(node, None, Some(extras(is_short)), listed.to_vec());
}

/// Two nodes; on the first are instances of these priorities, each of which may be moved.
fn scene(
    pressure: PressurePolicy,
    priorities: &[(&str, i64)],
) -> (World, SessionId, [SessionId; 2]) {
    let rules = Rules {
        policy: PolicyRules {
            pressure,
            ..PolicyRules::default()
        },
        ..Rules::default()
    };
    let mut world = World::ruled(config(), rules);
    let controller = world.controller();
    let first = world.silent_node(1);
    says(&mut world, first, false, &[]);
    for &(name, priority) in priorities {
        let start = request(name, 100).movable().priority(priority);
        assert_eq!(world.place_as(controller, start), Some(first));
    }
    let second = world.silent_node(2);
    says(&mut world, second, false, &[]);
    says(&mut world, first, false, &rows(priorities));
    world.look_away();
    (world, controller, [first, second])
}

fn rows(priorities: &[(&str, i64)]) -> Vec<InstanceReport> {
    priorities
        .iter()
        .map(|(name, _)| running(name, 50))
        .collect()
}

#[test]
fn the_least_urgent_instances_leave_one_at_a_time_until_it_is_over() {
    let here = [("high", 80), ("low", 10), ("middle", 50)];
    let (mut world, _, [first, second]) = scene(PressurePolicy::Evict, &here);
    says(&mut world, first, true, &rows(&here));
    assert_eq!(world.stops(first), ["low"]);
    // Not before it is gone, nor soon after it.
    says(&mut world, first, true, &rows(&here));
    world.has_stopped(first, "low");
    assert_eq!(
        world.given(second).request.instance,
        crate::support::world::id("low")
    );
    says(&mut world, first, true, &rows(&here[..1]));
    assert!(world.stops(first).is_empty());

    world.advance(RELIEF_TIME);
    let left = [("high", 80), ("middle", 50)];
    says(&mut world, first, true, &rows(&left));
    assert_eq!(world.stops(first), ["middle"]);
    world.has_stopped(first, "middle");
    world.advance(RELIEF_TIME);
    says(&mut world, first, false, &rows(&left[..1]));
    assert!(world.stops(first).is_empty());
    let counters = world.scheduler.counters();
    assert_eq!((counters.pressures, counters.relieved), (1, 2));
}

#[test]
fn nothing_is_placed_on_a_node_that_is_short_of_memory_and_what_runs_there_stays_by_default() {
    let here = [("low", 10)];
    let (mut world, controller, [first, second]) = scene(PressurePolicy::Keep, &here);
    says(&mut world, first, true, &rows(&here));
    assert!(world.stops(first).is_empty());
    for name in ["a", "b", "c"] {
        assert_eq!(world.place(controller, name, 10), Some(second));
    }
    says(&mut world, second, true, &[]);
    assert_eq!(world.place(controller, "d", 10), None);
    says(&mut world, first, false, &rows(&here));
    assert_eq!(world.place(controller, "e", 10), Some(first));
}

#[test]
fn a_fault_of_another_kind_moves_nothing_away() {
    let here = [("low", 10)];
    let (mut world, _, [first, _]) = scene(PressurePolicy::Evict, &here);
    let mut said = report(Size::of_mem(1000));
    said.extras = Some(Box::new(NodeExtras {
        fault: Some(ShortText::new("the disk is gone")),
        ..NodeExtras::default()
    }));
    world.report(first, said);
    world.stats(first, rows(&here));
    assert!(world.stops(first).is_empty());
    assert_eq!(world.scheduler.counters().pressures, 0);
}

#[test]
fn a_launcher_that_says_nothing_else_can_say_that_it_is_over() {
    let lone = || NodeExtras {
        is_short_of_memory: true,
        ..NodeExtras::default()
    };
    let (mut world, controller, node) = World::new().with_node(1000);
    let news = |world: &mut World| {
        world.told_of(controller, |message| match message {
            Message::NodePressure(news) => Some(news.state == PressureState::Over),
            _ => None,
        })
    };
    let (begun, over) = ([false], [true]);
    world.stats_as(node, None, Some(lone()), Vec::new());
    assert_eq!(news(&mut world), begun);
    world.stats_as(node, None, None, Vec::new());
    assert_eq!(news(&mut world), over, "by a STATS");
    let mut short = report(Size::of_mem(1000));
    short.extras = Some(Box::new(lone()));
    world.report(node, short);
    assert_eq!(news(&mut world), begun);
    world.report(node, report(Size::of_mem(1000)));
    assert_eq!(news(&mut world), over, "by a READY");
    // One that has more to say says all of it each time, or nothing.
    let more = NodeExtras {
        labels: crate::support::words::boxed(&[("zone", "a")]),
        ..lone()
    };
    world.stats_as(node, None, Some(more), Vec::new());
    world.stats_as(node, None, None, Vec::new());
    assert_eq!(news(&mut world), begun);
}
