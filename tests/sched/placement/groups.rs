//! Groups: instances that are to be together, or apart.

use proto_frames::Kind;
use proto_frames::payload::{Group, GroupPolicy, StartFailureReason};
use sched_core::{Config, InstanceReport, SessionId};

use crate::support::scenes::one_failure;
use crate::support::words::{group, labels, member};
use crate::support::world::{World, config, known_node, running};

fn apart(id: &str, max: u32) -> Group {
    Group {
        max: Some(max),
        ..group(id, GroupPolicy::AntiAffinity)
    }
}

fn by(scope: &str, group: Group) -> Group {
    Group {
        scope: scope.to_owned(),
        ..group
    }
}

/// An instance in a STATS whose launcher knows its group.
fn listed(name: &str, group: &str) -> InstanceReport {
    InstanceReport {
        group: Some(group.into()),
        ..running(name, 1)
    }
}

/// The nodes that so many members go to, one after the other.
fn spread_of(
    world: &mut World,
    controller: SessionId,
    group: &Group,
    count: usize,
) -> Vec<Option<SessionId>> {
    let mut place = |number: usize| {
        let name = format!("{}-{number}", group.id);
        world.place_as(controller, member(&name, group))
    };
    (0..count).map(&mut place).collect()
}

#[test]
fn the_first_member_goes_anywhere_and_the_others_follow_it() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..4).map(|number| world.labelled(number, &[])).collect();
    world.place(controller, "another", 1);
    let web = group("web", GroupPolicy::Affinity);
    let found = spread_of(&mut world, controller, &web, 3);
    assert_eq!(found, [Some(nodes[1]); 3]);
    let other = group("other", GroupPolicy::Affinity);
    let found = spread_of(&mut world, controller, &other, 2);
    assert_eq!(found, [Some(nodes[2]); 2], "each group by itself");
}

#[test]
fn a_member_that_does_not_fit_with_the_others_fits_nowhere() {
    let (mut world, controller) = World::new().with_controller();
    let first = world.labelled(1, &[]);
    world.labelled(2, &[]);
    let web = group("web", GroupPolicy::Affinity);
    assert_eq!(world.place_as(controller, member("a", &web)), Some(first));
    let mut large = member("b", &web);
    large.asked.mem_mib = 1000;
    assert_eq!(world.place_as(controller, large), None);
}

#[test]
fn members_that_are_to_be_apart_are_one_to_a_node() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (1..4).map(|number| world.labelled(number, &[])).collect();
    let web = group("web", GroupPolicy::AntiAffinity);
    let found = spread_of(&mut world, controller, &web, 4);
    let all: Vec<_> = nodes.into_iter().map(Some).chain([None]).collect();
    assert_eq!(found, all);
}

#[test]
fn up_to_its_maximum_a_node_takes_members() {
    let (mut world, controller) = World::new().with_controller();
    let (a, b) = (world.labelled(1, &[]), world.labelled(2, &[]));
    let found = spread_of(&mut world, controller, &apart("web", 2), 5);
    assert_eq!(found, [Some(a), Some(b), Some(a), Some(b), None]);
}

#[test]
fn a_place_may_be_all_nodes_of_one_label() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = [(1, "x"), (2, "x"), (3, "y")]
        .into_iter()
        .map(|(number, zone)| world.labelled(number, &[("zone", zone)]))
        .collect();
    let web = by("zone", apart("web", 2));
    let found = spread_of(&mut world, controller, &web, 5);
    let expected = [nodes[0], nodes[1], nodes[2], nodes[2]];
    let expected: Vec<_> = expected.into_iter().map(Some).chain([None]).collect();
    assert_eq!(found, expected);
    let db = by("zone", group("db", GroupPolicy::Affinity));
    let found = spread_of(&mut world, controller, &db, 3);
    let expected = [nodes[0], nodes[1], nodes[0]].map(Some);
    assert_eq!(found, expected, "anywhere in the zone of the first");
}

#[test]
fn nodes_without_the_label_of_the_scope_take_no_members() {
    for policy in [GroupPolicy::Affinity, GroupPolicy::AntiAffinity] {
        let (mut world, controller) = World::new().with_controller();
        world.labelled(1, &[]);
        let web = by("zone", group("web", policy));
        let failure = world.refused(controller, member("a", &web));
        let text = failure.detail.unwrap_or_default();
        assert!(text.contains("without 'zone'"), "{text}");
        let node = world.labelled(2, &[("zone", "x")]);
        let found = spread_of(&mut world, controller, &web, 1);
        assert_eq!(found, [Some(node)]);
    }
}

#[test]
fn a_member_counts_where_its_node_is_now() {
    let (mut world, controller) = World::new().with_controller();
    let moving = world.labelled(1, &[("zone", "x")]);
    let other = world.labelled(2, &[("zone", "y")]);
    let web = by("zone", apart("web", 1));
    let found = spread_of(&mut world, controller, &web, 1);
    assert_eq!(found, [Some(moving)]);
    world.ready_with(moving, labels(&[("zone", "y")]));
    assert_eq!(world.place_as(controller, member("b", &web)), None);
    world.ready_with(other, labels(&[("zone", "x")]));
    assert_eq!(world.place_as(controller, member("b", &web)), Some(other));
}

#[test]
fn members_that_outlived_the_scheduler_are_counted_from_what_launchers_list() {
    let (mut world, controller) = World::new().with_controller();
    let first = world.labelled(1, &[]);
    let second = world.labelled(2, &[]);
    world.stats(first, vec![listed("old", "web"), listed("older", "db")]);
    let web = apart("web", 1);
    let found = spread_of(&mut world, controller, &web, 2);
    assert_eq!(found, [Some(second), None]);
    let db = group("db", GroupPolicy::Affinity);
    let found = spread_of(&mut world, controller, &db, 2);
    assert_eq!(found, [Some(first); 2]);
}

#[test]
fn a_node_that_has_not_said_what_runs_on_it_takes_no_members() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let web = apart("web", 1);
    let failure = world.refused(controller, member("a", &web));
    assert_eq!(failure.reason, StartFailureReason::FullCloud);
    assert!(!failure.never, "it will say so");
    assert_eq!(
        world.place(controller, "of no group", 1),
        Some(node),
        "others do not wait"
    );
    world.stats(node, vec![listed("old", "web")]);
    assert_eq!(world.place_as(controller, member("b", &web)), None);
    world.stats(node, vec![listed("old", "db")]);
    world.gone(node, Kind::INSTANCE_DELETED, "old");
    assert_eq!(
        world.place_as(controller, member("c", &apart("db", 1))),
        Some(node)
    );
}

#[test]
fn while_nodes_are_still_coming_back_members_wait() {
    let (mut world, controller) = World::expecting(2).with_controller();
    let first = world.labelled(1, &[]);
    world.look_away();
    let web = apart("web", 1);
    world.start_as(controller, member("new", &web));
    let soft = group("soft", GroupPolicy::SoftAntiAffinity);
    world.start_as(controller, member("soft", &soft));
    assert_eq!(world.placements(), [("soft".to_owned(), first)]);
    world.nothing_else();
    let second = world.silent_node(2);
    world.stats(second, vec![listed("old", "web")]);
    world.ready_with(second, labels(&[]));
    world.advance(std::time::Duration::ZERO);
    assert_eq!(world.placements(), [("new".to_owned(), first)]);
}

#[test]
fn members_wait_until_the_last_node_has_said_what_runs_on_it() {
    let (mut world, controller) = World::expecting(2).with_controller();
    let web = group("web", GroupPolicy::Affinity);
    world.start_as(controller, member("new", &web));
    world.labelled(1, &[]);
    let second = world.node_with(2, 1000);
    world.look_away();
    world.advance(std::time::Duration::ZERO);
    world.nothing_else();
    world.stats(second, vec![listed("old", "web")]);
    world.advance(std::time::Duration::ZERO);
    assert_eq!(world.placements(), [("new".to_owned(), second)]);
}

#[test]
fn members_that_waited_in_vain_are_placed_by_what_is_known() {
    let (mut world, controller) = World::expecting(2).with_controller();
    let first = world.labelled(1, &[]);
    world.look_away();
    let web = apart("web", 1);
    for name in ["a", "b"] {
        world.start_as(controller, member(name, &web));
    }
    world.advance(sched_core::RECOVERY_WINDOW);
    assert_eq!(world.placements(), [("a".to_owned(), first)]);
    let failed = one_failure("b", StartFailureReason::FullCloud);
    assert_eq!(world.failures(controller), failed);
}

#[test]
fn where_too_many_wait_a_member_fails_rather_than_break_the_rule() {
    let config = Config {
        known_nodes: vec![known_node(1), known_node(2)],
        ..config()
    };
    let (mut world, controller) = World::with(config).check_every(1000).with_controller();
    for number in 0..sched_core::MAX_RECOVERING {
        world.start(controller, &number.to_string(), 5000);
    }
    world.labelled(1, &[("zone", "x")]);
    let web = by("zone", apart("web", 1));
    let failure = world.refused(controller, member("a", &web));
    assert_eq!(failure.reason, StartFailureReason::FullCloud);
    assert!(!failure.never);
    assert!(world.place(controller, "of no group", 1).is_some());
}

#[test]
fn a_member_that_leaves_gives_its_place_free() {
    for way in ["deleted", "stopped", "failed", "no longer listed", "lost"] {
        let (mut world, controller) = World::new().with_controller();
        let node = world.labelled(1, &[]);
        let web = apart("web", 1);
        let found = spread_of(&mut world, controller, &web, 2);
        assert_eq!(found, [Some(node), None]);
        let node = match way {
            "deleted" => {
                world.gone(node, Kind::INSTANCE_DELETED, "web-0");
                node
            }
            "stopped" => {
                world.gone(node, Kind::INSTANCE_STOPPED, "web-0");
                node
            }
            "failed" => {
                world.start_failed(node, "web-0", StartFailureReason::LaunchFailure);
                node
            }
            "no longer listed" => {
                world.stats(node, vec![running("web-0", 1)]);
                for _ in 0..sched_core::MISSED_STATS {
                    world.stats(node, Vec::new());
                }
                node
            }
            _ => {
                world.cut(node);
                world.advance(sched_core::IN_DOUBT_TIME);
                world.labelled(2, &[])
            }
        };
        let placed = world.place_as(controller, member("next", &web));
        assert_eq!(placed, Some(node), "{way}");
    }
}

#[test]
fn a_lost_node_keeps_its_members_while_it_may_come_back() {
    let (mut world, controller) = World::new().with_controller();
    let lost = world.labelled(1, &[("zone", "x")]);
    let web = by("zone", apart("web", 1));
    let found = spread_of(&mut world, controller, &web, 1);
    assert_eq!(found, [Some(lost)]);
    world.cut(lost);
    let neighbour = world.labelled(2, &[("zone", "x")]);
    assert_eq!(world.place_as(controller, member("b", &web)), None);
    world.advance(sched_core::IN_DOUBT_TIME);
    assert_eq!(
        world.place_as(controller, member("c", &web)),
        Some(neighbour)
    );
}

#[test]
fn a_member_that_was_never_written_to_its_node_is_placed_by_the_same_rule_again() {
    let (mut world, controller) = World::new().with_controller();
    let first = world.labelled(1, &[]);
    let second = world.labelled(2, &[]);
    let third = world.labelled(3, &[]);
    world.look_away();
    let web = apart("web", 1);
    world.start_as(controller, member("a", &web));
    world.start_as(controller, member("b", &web));
    world.cut_unsent(first);
    let placed = [("b".to_owned(), second), ("a".to_owned(), third)];
    assert_eq!(world.placements(), placed);
}
