//! The choice: first fit, not most recently used.

use proto_frames::payload::{StartFailureReason, Topic};
use proto_frames::{Kind, Role};
use sched_core::{Backlog, Dialect, Input, Resources};

use crate::support::requests::Asking;
use crate::support::world::{Size, World, node_uuid, request};

#[test]
fn starts_go_round_the_nodes_in_order_of_connection() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..3).map(|number| world.node_with(number, 1000)).collect();
    for round in 0..2 {
        for node in &nodes {
            let name = format!("i-{round}-{}", node.0);
            assert_eq!(world.place(controller, &name, 10), Some(*node));
        }
    }
}

#[test]
fn the_most_recently_used_node_is_the_last_resort() {
    let (mut world, controller, [small, large]) = World::new().with_nodes([10, 1000]);
    assert_eq!(world.place(controller, "a", 100), Some(large));
    assert_eq!(
        world.place(controller, "b", 100),
        Some(large),
        "nothing else fits"
    );
    assert_eq!(world.place(controller, "c", 10), Some(small));
}

#[test]
fn after_the_most_recently_used_node_leaves_the_search_starts_at_the_beginning() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..4).map(|number| world.node_with(number, 1000)).collect();
    assert_eq!(world.place(controller, "a", 1), Some(nodes[0]));
    assert_eq!(world.place(controller, "b", 1), Some(nodes[1]));
    world.cut(nodes[1]);
    assert_eq!(world.place(controller, "c", 1), Some(nodes[0]));
    world.cut(nodes[3]);
    assert_eq!(
        world.place(controller, "d", 1),
        Some(nodes[2]),
        "another's leaving changes nothing"
    );
}

#[test]
fn memory_vcpus_and_disk_must_all_fit() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.node(
        1,
        Size {
            mem: 100,
            cpus: 4,
            disk: 50,
        },
    );
    let ask = |mem_mib, vcpus, disk_mib| {
        let mut asked = request(&format!("{mem_mib}-{vcpus}-{disk_mib}"), 0);
        asked.asked = Resources {
            mem_mib,
            vcpus,
            disk_mib,
        };
        asked
    };
    assert_eq!(world.place_as(controller, ask(101, 0, 0)), None);
    assert_eq!(world.place_as(controller, ask(0, 5, 0)), None);
    assert_eq!(world.place_as(controller, ask(0, 0, 51)), None);
    assert_eq!(world.place_as(controller, ask(100, 4, 50)), Some(node));
    assert_eq!(
        world.place_as(controller, ask(1, 0, 0)),
        None,
        "it is full now"
    );
    assert_eq!(world.place_as(controller, ask(0, 0, 0)), Some(node));
}

#[test]
fn unknown_figures_fit_nothing() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    for size in [
        Size {
            mem: -1,
            ..Size::default()
        },
        Size {
            cpus: -1,
            ..Size::default()
        },
        Size {
            disk: -1,
            ..Size::default()
        },
    ] {
        world.ready(node, size);
        assert_eq!(world.place(controller, "a", 0), None, "{size:?}");
    }
    world.ready(node, Size::default());
    assert_eq!(world.place(controller, "a", 0), Some(node));
}

#[test]
fn only_a_ready_node_is_given_work() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    assert_eq!(
        world.place(controller, "a", 1),
        None,
        "connected, not ready"
    );
    world.ready(node, Size::default());
    assert_eq!(world.place(controller, "b", 1), Some(node));
    for status in [Kind::FULL, Kind::OFFLINE, Kind::MAINTENANCE] {
        world.status(node, status);
        assert_eq!(world.place(controller, "c", 1), None, "{status}");
    }
    world.ready(node, Size::default());
    assert_eq!(world.place(controller, "c", 1), Some(node));
}

#[test]
fn the_reason_tells_no_node_from_no_room() {
    let (mut world, controller) = World::new().with_controller();
    let mut on_network = request("net", 1);
    on_network.network_node = true;
    world.look_away();
    world.start(controller, "a", 1);
    world.start_as(controller, on_network.clone());
    let node = world.silent_node(1);
    world.start(controller, "b", 1);
    world.join(Role::NETAGENT, node_uuid(2), Dialect::Original);
    world.start_as(controller, on_network);
    let reasons: Vec<_> = world
        .failures(controller)
        .into_iter()
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(
        reasons,
        [
            StartFailureReason::NoComputeNodes,
            StartFailureReason::NoNetworkNodes,
            StartFailureReason::FullCloud,
            StartFailureReason::NoNetworkNodes,
        ]
    );
    assert_eq!(world.placements(), []);
    assert_eq!(world.told(node).len(), 1, "CONNECTED and nothing else");
}

#[test]
fn a_node_with_both_roles_is_one_ledger_in_two_tables() {
    let (mut world, controller) = World::new().with_controller();
    let both = world.join(
        Role::AGENT | Role::NETAGENT,
        node_uuid(1),
        Dialect::Original,
    );
    world.ready(both, Size::of_mem(100));
    let mut on_network = request("net", 60);
    on_network.network_node = true;
    assert_eq!(world.place_as(controller, on_network), Some(both));
    assert_eq!(
        world.place(controller, "a", 60),
        None,
        "the memory is taken"
    );
    assert_eq!(world.place(controller, "b", 40), Some(both));
}

#[test]
fn a_request_may_name_its_node_or_its_host() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..4).map(|number| world.node_with(number, 100)).collect();
    let mut by_id = request("a", 1);
    by_id.node_id = Some(node_uuid(2).to_string().into());
    assert_eq!(world.place_as(controller, by_id.clone()), Some(nodes[2]));
    assert_eq!(
        world.place(controller, "b", 1),
        Some(nodes[3]),
        "it became the most recently used"
    );
    let mut by_host = request("c", 1);
    by_host.hostname = Some(format!("host-{}", nodes[1].0).into());
    assert_eq!(world.place_as(controller, by_host.clone()), Some(nodes[1]));
    by_host.instance = crate::support::world::id("d");
    by_host.node_id = by_id.node_id;
    assert_eq!(world.place_as(controller, by_host), None, "no node is both");
    let mut too_large = request("e", 101);
    too_large.node_id = Some(node_uuid(2).to_string().into());
    assert_eq!(
        world.place_as(controller, too_large),
        None,
        "a pin does not bypass capacity"
    );
}

#[test]
fn a_backed_up_node_is_used_only_where_nothing_else_fits() {
    let (mut world, controller, [slow, other]) = World::new().with_nodes([100, 10]);
    world.handle(Input::Backlog {
        session: slow,
        backlog: Backlog::Filling,
    });
    assert_eq!(world.place(controller, "a", 1), Some(other));
    assert_eq!(world.place(controller, "b", 1), Some(other));
    assert_eq!(
        world.place(controller, "c", 50),
        Some(slow),
        "its sender is slowed down, not refused"
    );
    world.handle(Input::Backlog {
        session: slow,
        backlog: Backlog::Stalled,
    });
    assert_eq!(world.place(controller, "d", 50), None);
    world.handle(Input::Backlog {
        session: slow,
        backlog: Backlog::Clear,
    });
    assert_eq!(world.place(controller, "d", 50), Some(slow));
}

#[test]
fn peers_that_watch_placements_hear_where_each_start_went() {
    let (mut world, controller) = World::new().with_controller();
    let operator = world.operator(&[Topic::Placements]);
    world.node_with(1, 100);
    world.look_away();
    world.start(controller, "a", 1);
    match world.told_once(operator) {
        sched_core::Message::InstancePlaced(placed) => {
            assert_eq!(
                (placed.instance_uuid, placed.node_uuid),
                ("a".to_owned(), node_uuid(1).to_string())
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_says_how_many_nodes_fail_for_what_and_whether_it_can_ever_fit() {
    let (mut world, controller) = World::new().with_controller();
    world.node(
        1,
        Size {
            mem: 100,
            cpus: 4,
            disk: 50,
        },
    );
    world.node(
        2,
        Size {
            mem: 300,
            cpus: 1,
            disk: 50,
        },
    );
    let third = world.silent_node(3);
    world.look_away();
    let asked = request("a", 200).vcpus(2);
    world.start_as(controller, asked);
    let detail = |world: &mut World| match world.told_once(controller) {
        sched_core::Message::StartFailure(failure) => failure.payload.detail.unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        detail(&mut world),
        "none of 3 compute nodes fits: 1 that have not reported yet; 1 short of memory (asks 200 MiB, most free 100 on host-2, \
         the largest has 100); 1 short of vcpus (asks 2, most free 1 on host-3, the largest has 1)"
    );
    // No one knows yet what the third has.
    world.start(controller, "b", 301);
    assert_eq!(
        detail(&mut world),
        "none of 3 compute nodes fits: \
         2 short of memory (asks 301 MiB, most free 300 on host-3, the largest has 300); \
         1 that have not reported yet"
    );
    world.ready(third, Size::default());
    world.status(third, Kind::FULL);
    world.start(controller, "c", 1001);
    assert_eq!(
        detail(&mut world),
        "none of 3 compute nodes fits: \
         3 short of memory (asks 1001 MiB, most free 1000 on host-4, the largest has 1000); \
         it asks for more than any of them has; waiting will not help"
    );
}
