//! What a START prefers in its node, and what it is to be near to.

use proto_frames::Kind;
use proto_frames::payload::{Group, GroupPolicy, Scheduling, StartFailureReason};
use sched_core::SessionId;

use crate::support::words::{
    asking, expressions, group, labels, member, near, preferring, requiring,
};
use crate::support::world::{World, config, node_uuid};

#[test]
fn the_one_preferred_node_of_many_is_found_wherever_it_is() {
    let (mut world, controller) = World::new().with_controller();
    let mut preferred = None;
    for number in 0..500 {
        let rack = if number == 400 { "r7" } else { "r1" };
        let node = world.labelled(number, &[("rack", rack)]);
        if number == 400 {
            preferred = Some(node);
        }
    }
    for name in ["a", "b", "c"] {
        let start = preferring(name, 1, &["rack = r7"]);
        assert_eq!(world.place_as(controller, start), preferred);
    }
    let start = preferring("d", 1, &["rack = r9"]);
    assert!(
        world.place_as(controller, start).is_some(),
        "a preference is no requirement"
    );
}

#[test]
fn a_node_preferred_or_required_by_its_name_is_found_wherever_it_is() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..200)
        .map(|number| world.node_with(number, 1000))
        .collect();
    let host = format!("node.hostname in (nobody, host-{})", nodes[150].0);
    let uuid = format!("node.uuid = {}", node_uuid(180));
    for (text, at) in [(host.as_str(), 150), (&uuid, 180)] {
        let preferred = preferring(text, 1, &[text]);
        assert_eq!(world.place_as(controller, preferred), Some(nodes[at]));
        let required = requiring(&format!("required {text}"), 1, &[text]);
        assert_eq!(world.place_as(controller, required), Some(nodes[at]));
    }
    world.ready_as(nodes[150], |report| report.hostname = "moved".into());
    let required = requiring("gone", 1, &[&host]);
    assert_eq!(world.place_as(controller, required), None);
}

#[test]
fn the_node_that_meets_most_preferences_is_taken() {
    let (mut world, controller) = World::new().with_controller();
    let one = world.labelled(1, &[("rack", "r7")]);
    let two = world.labelled(2, &[("rack", "r7"), ("ssd", "true")]);
    let all = ["rack = r7", "ssd exists", "node.hostname = nobody"];
    let start = |name: &str| preferring(name, 1, &all);
    for name in ["a", "b"] {
        assert_eq!(world.place_as(controller, start(name)), Some(two));
    }
    world.status(two, Kind::FULL);
    assert_eq!(world.place_as(controller, start("c")), Some(one));
}

#[test]
fn preferences_count_among_the_nodes_that_meet_the_requirements() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[("rack", "r7"), ("zone", "x")]);
    let node = world.labelled(2, &[("zone", "y")]);
    let scheduling = Scheduling {
        require: expressions(&["zone = y"]),
        prefer: expressions(&["rack = r7"]),
        ..Scheduling::default()
    };
    assert_eq!(
        world.place_as(controller, asking("a", 1, scheduling)),
        Some(node)
    );
}

/// Where so many members go, one after the other.
fn places(
    world: &mut World,
    controller: SessionId,
    group: &Group,
    count: usize,
) -> Vec<Option<SessionId>> {
    let place = |number: usize| {
        let name = format!("{}-{number}", group.id);
        world.place_as(controller, member(&name, group))
    };
    (0..count).map(place).collect()
}

#[test]
fn soft_affinity_keeps_members_together_while_there_is_room() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..4).map(|number| world.node_with(number, 2)).collect();
    let web = group("web", GroupPolicy::SoftAffinity);
    let found = places(&mut world, controller, &web, 4);
    let expected = [nodes[0], nodes[0], nodes[1], nodes[1]].map(Some);
    assert_eq!(found, expected);
}

#[test]
fn soft_anti_affinity_spreads_members_and_refuses_none() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..4).map(|number| world.node_with(number, 100)).collect();
    let web = group("web", GroupPolicy::SoftAntiAffinity);
    let mut found = places(&mut world, controller, &web, 6);
    found.sort();
    let expected = [0, 0, 1, 1, 2, 2].map(|at| Some(nodes[at]));
    assert_eq!(found, expected, "two to each");
}

#[test]
fn soft_groups_look_at_the_places_of_their_scope() {
    let (mut world, controller) = World::new().with_controller();
    let first = world.labelled(1, &[("zone", "x")]);
    let same = world.labelled(2, &[("zone", "x")]);
    let other = world.labelled(3, &[("zone", "y")]);
    let by_zone = |id: &str, policy| Group {
        scope: "zone".to_owned(),
        ..group(id, policy)
    };
    let apart = by_zone("web", GroupPolicy::SoftAntiAffinity);
    let found = places(&mut world, controller, &apart, 2);
    assert_eq!(found, [Some(first), Some(other)]);
    let together = by_zone("db", GroupPolicy::SoftAffinity);
    let found = places(&mut world, controller, &together, 3);
    assert_eq!(found, [first, same, first].map(Some));
}

#[test]
fn what_must_be_near_a_volume_goes_to_a_node_that_has_it() {
    let (mut world, controller) = World::new().with_controller();
    let without = world.labelled(1, &[]);
    let failure = world.refused(controller, near("a", "volume-7", "node", true));
    assert_eq!(failure.reason, StartFailureReason::FullCloud);
    let with = world.labelled(2, &[("volume-7", "true")]);
    for name in ["b", "c"] {
        let start = near(name, "volume-7", "node", true);
        assert_eq!(world.place_as(controller, start), Some(with));
    }
    world.ready_with(with, labels(&[]));
    world.ready_with(without, labels(&[("volume-7", "")]));
    let start = near("d", "volume-7", "node", true);
    assert_eq!(world.place_as(controller, start), Some(without), "it moved");
}

#[test]
fn what_must_be_near_a_volume_may_be_anywhere_in_its_rack() {
    let (mut world, controller) = World::new().with_controller();
    let holder = world.labelled(1, &[("rack", "r1"), ("volume-7", "true")]);
    let neighbour = world.labelled(2, &[("rack", "r1")]);
    let far = world.labelled(3, &[("rack", "r2")]);
    let nowhere = world.labelled(4, &[]);
    let nodes = [holder, neighbour, far, nowhere];
    let found = world.fitting(controller, near("a", "volume-7", "rack", true), &nodes);
    assert_eq!(found, [holder, neighbour]);
    world.status(holder, Kind::FULL);
    let found = world.fitting(controller, near("b", "volume-7", "rack", true), &nodes);
    assert_eq!(found, [neighbour], "the volume is there all the same");
}

#[test]
fn what_had_better_be_near_goes_elsewhere_if_there_is_no_room() {
    for (scope, label) in [("node", ("port-1", "true")), ("rack", ("rack", "r1"))] {
        let (mut world, controller) = World::new().with_controller();
        let far = world.labelled(1, &[("rack", "r2")]);
        let close = world.labelled(2, &[label]);
        if scope == "rack" {
            let holder = world.labelled(3, &[("rack", "r1"), ("port-1", "true")]);
            world.status(holder, Kind::FULL);
        }
        for name in ["a", "b"] {
            let start = near(name, "port-1", scope, false);
            assert_eq!(world.place_as(controller, start), Some(close), "{scope}");
        }
        world.status(close, Kind::FULL);
        let start = near("c", "port-1", scope, false);
        assert_eq!(world.place_as(controller, start), Some(far), "{scope}");
    }
}

#[test]
fn a_start_without_preferences_is_placed_first_fit_as_ever() {
    let (mut world, controller) = World::with(config()).with_controller();
    let nodes: Vec<_> = (1..4)
        .map(|number| world.labelled(number, &[("rack", "r1")]))
        .collect();
    for (name, node) in ["a", "b", "c"].into_iter().zip(nodes) {
        let start = asking(name, 1, Scheduling::default());
        assert_eq!(world.place_as(controller, start), Some(node));
    }
}

#[test]
fn places_with_room_for_a_soft_group_are_found_behind_many_that_have_none() {
    let (mut world, controller) = World::new().with_controller();
    let web = Group {
        max: Some(2),
        ..group("web", GroupPolicy::SoftAntiAffinity)
    };
    let listed = |name: String| sched_core::InstanceReport {
        group: Some("web".into()),
        ..crate::support::world::running(&name, 1)
    };
    let mut last = None;
    for number in 0..200 {
        let node = world.node_with(number, 1000);
        let members = if number == 199 { 1 } else { 2 };
        let names = (0..members).map(|member| format!("{number}-{member}"));
        world.stats(node, names.map(listed).collect());
        last = Some(node);
    }
    assert_eq!(world.place_as(controller, member("next", &web)), last);
}
