//! Nodes that share what another has: a launcher per NUMA node beside one for the whole machine.

use proto_frames::Kind;
use sched_core::{Config, IN_DOUBT_TIME, NodeExtras, NodeName, NodeRule, SessionId, StartRequest};

use crate::support::words::{needing, resources, tried};
use crate::support::world::{World, config, node_uuid, request};

const WHOLE: u64 = 1;
const PARTS: [u64; 2] = [2, 3];

/// A node with so much memory and so many GPUs, which it shares with the whole if it is a part of it.
fn report(world: &mut World, node: SessionId, mem: i64, gpus: i64, shares: Option<u64>) {
    world.ready_as(node, |report| {
        report.mem_total_mib = mem;
        report.mem_available_mib = mem;
        report.extras = Some(Box::new(NodeExtras {
            shares: shares.map(node_uuid),
            shared_by: PARTS.iter().map(|&part| node_uuid(part)).collect(),
            ..resources(&[("gpu", gpus)])
        }));
    });
}

/// Connects the whole (1000 MiB, 4 GPUs) or a part (500 MiB, 2 GPUs).
fn connect(world: &mut World, number: u64) -> SessionId {
    let node = world.silent_node(number);
    if number == WHOLE {
        report(world, node, 1000, 4, None);
    } else {
        report(world, node, 500, 2, Some(WHOLE));
    }
    node
}

fn on(number: u64, start: StartRequest) -> StartRequest {
    StartRequest {
        node_id: Some(node_uuid(number).to_string().into()),
        ..start
    }
}

fn fits(world: &mut World, controller: SessionId, number: u64, mem: i64) -> bool {
    let start = on(number, request("trial", mem));
    world.decided(controller, tried(start, 1)).fits == 1
}

/// The most memory that a START pinned to each node may ask for: the whole, then the parts; -1 = not even nothing.
fn room(world: &mut World, controller: SessionId) -> [i64; 3] {
    [WHOLE, PARTS[0], PARTS[1]].map(|number| {
        let mut most = (-1, 2000);
        while most.1 - most.0 > 1 {
            let middle = i64::midpoint(most.0, most.1);
            if fits(world, controller, number, middle) {
                most.0 = middle;
            } else {
                most.1 = middle;
            }
        }
        most.0
    })
}

fn place(world: &mut World, controller: SessionId, number: u64, mem: i64) {
    let name = format!("i-{number}-{mem}");
    let placed = world.place_as(controller, on(number, request(&name, mem)));
    assert!(placed.is_some(), "{name}");
}

#[test]
fn what_one_uses_the_others_see_used() {
    let (mut world, controller) = World::new().with_controller();
    for number in [WHOLE, PARTS[0], PARTS[1]] {
        connect(&mut world, number);
    }
    assert_eq!(room(&mut world, controller), [1000, 500, 500]);
    place(&mut world, controller, PARTS[0], 400);
    assert_eq!(
        room(&mut world, controller),
        [600, 100, 500],
        "a part's use is the whole's, and not the other part's"
    );
    place(&mut world, controller, WHOLE, 50);
    assert_eq!(
        room(&mut world, controller),
        [550, 50, 450],
        "nobody knows which part the whole will use"
    );
    place(&mut world, controller, PARTS[1], 450);
    assert_eq!(room(&mut world, controller), [100, 50, 0]);
}

#[test]
fn it_does_not_matter_who_connects_first() {
    let [first, second] = PARTS;
    for order in [
        [WHOLE, first, second],
        [WHOLE, second, first],
        [first, WHOLE, second],
        [second, WHOLE, first],
        [first, second, WHOLE],
        [second, first, WHOLE],
    ] {
        let (mut world, controller) = World::new().with_controller();
        for number in order {
            connect(&mut world, number);
        }
        place(&mut world, controller, first, 300);
        place(&mut world, controller, second, 200);
        place(&mut world, controller, WHOLE, 100);
        assert_eq!(room(&mut world, controller), [400, 100, 200], "{order:?}");
    }
}

#[test]
fn parts_may_be_used_before_the_whole_connects() {
    let (mut world, controller) = World::new().with_controller();
    let [first, second] = PARTS;
    connect(&mut world, first);
    connect(&mut world, second);
    place(&mut world, controller, first, 500);
    place(&mut world, controller, second, 400);
    assert!(fits(&mut world, controller, second, 100));
    let whole = world.silent_node(WHOLE);
    assert!(
        fits(&mut world, controller, second, 100),
        "it has said nothing yet"
    );
    report(&mut world, whole, 1000, 4, None);
    assert_eq!(room(&mut world, controller), [100, 0, 100]);
    report(&mut world, whole, 950, 4, None);
    assert_eq!(
        room(&mut world, controller),
        [50, 0, 50],
        "no part has more than the whole"
    );
}

#[test]
fn what_ends_on_one_is_free_on_all() {
    let (mut world, controller) = World::new().with_controller();
    let whole = connect(&mut world, WHOLE);
    let part = connect(&mut world, PARTS[0]);
    connect(&mut world, PARTS[1]);
    place(&mut world, controller, PARTS[0], 500);
    place(&mut world, controller, WHOLE, 300);
    world.gone(part, Kind::INSTANCE_DELETED, "i-2-500");
    assert_eq!(room(&mut world, controller), [700, 200, 200]);
    world.gone(whole, Kind::INSTANCE_DELETED, "i-1-300");
    assert_eq!(room(&mut world, controller), [1000, 500, 500]);
}

#[test]
fn a_whole_that_disconnects_counts_until_it_is_given_up() {
    let (mut world, controller) = World::new().with_controller();
    let whole = connect(&mut world, WHOLE);
    connect(&mut world, PARTS[0]);
    connect(&mut world, PARTS[1]);
    place(&mut world, controller, WHOLE, 400);
    world.cut(whole);
    assert_eq!(room(&mut world, controller), [-1, 100, 100]);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(room(&mut world, controller), [-1, 500, 500]);
}

#[test]
fn a_whole_that_takes_no_work_leaves_its_parts_at_work() {
    let (mut world, controller) = World::new().with_controller();
    let whole = connect(&mut world, WHOLE);
    connect(&mut world, PARTS[0]);
    connect(&mut world, PARTS[1]);
    place(&mut world, controller, WHOLE, 100);
    world.status(whole, Kind::MAINTENANCE);
    assert_eq!(room(&mut world, controller), [-1, 400, 400]);
}

#[test]
fn custom_resources_are_shared_alike() {
    let (mut world, controller) = World::new().with_controller();
    for number in [WHOLE, PARTS[0], PARTS[1]] {
        connect(&mut world, number);
    }
    let gpus = |name: &str, number, amount| on(number, needing(name, 1, "gpu", amount));
    let placed = world.place_as(controller, gpus("a", PARTS[0], 2));
    assert!(placed.is_some());
    assert_eq!(world.place_as(controller, gpus("b", WHOLE, 3)), None);
    assert!(world.place_as(controller, gpus("c", WHOLE, 1)).is_some());
    assert_eq!(world.place_as(controller, gpus("d", PARTS[1], 2)), None);
    assert!(world.place_as(controller, gpus("e", PARTS[1], 1)).is_some());
    assert_eq!(world.place_as(controller, gpus("f", WHOLE, 1)), None);
}

#[test]
fn the_node_file_may_say_what_shares() {
    let rule = |number: u64| NodeRule {
        node: NodeName::new(&node_uuid(number).to_string()),
        labels: Vec::new(),
        resources: Vec::new(),
        shares: Some(node_uuid(WHOLE)),
    };
    let (mut world, controller) = World::with(Config {
        // That the whole shares with itself says nothing.
        nodes: vec![rule(PARTS[0]), rule(PARTS[1]), rule(WHOLE)],
        ..config()
    })
    .with_controller();
    for number in [WHOLE, PARTS[0], PARTS[1]] {
        let node = world.silent_node(number);
        let mem = if number == WHOLE { 1000 } else { 500 };
        report(&mut world, node, mem, 1, None);
    }
    place(&mut world, controller, PARTS[0], 400);
    place(&mut world, controller, WHOLE, 100);
    assert_eq!(room(&mut world, controller), [500, 0, 400]);
}

#[test]
fn a_part_that_no_longer_shares_is_on_its_own() {
    let (mut world, controller) = World::new().with_controller();
    connect(&mut world, WHOLE);
    let part = connect(&mut world, PARTS[0]);
    connect(&mut world, PARTS[1]);
    place(&mut world, controller, PARTS[0], 400);
    place(&mut world, controller, WHOLE, 100);
    report(&mut world, part, 500, 2, None);
    assert_eq!(room(&mut world, controller), [900, 100, 400]);
    report(&mut world, part, 500, 2, Some(WHOLE));
    assert_eq!(room(&mut world, controller), [500, 0, 400]);
}

#[test]
fn a_part_of_a_part_shares_with_no_one() {
    let (mut world, controller) = World::new().with_controller();
    connect(&mut world, WHOLE);
    connect(&mut world, PARTS[0]);
    let odd = world.silent_node(PARTS[1]);
    report(&mut world, odd, 500, 2, Some(PARTS[0]));
    place(&mut world, controller, PARTS[0], 400);
    assert_eq!(room(&mut world, controller), [600, 100, 500]);
    place(&mut world, controller, PARTS[1], 500);
    assert_eq!(room(&mut world, controller), [600, 100, 0]);
}

#[test]
fn a_part_that_disconnects_keeps_what_it_uses_while_it_may_come_back() {
    let (mut world, controller) = World::new().with_controller();
    connect(&mut world, WHOLE);
    let part = connect(&mut world, PARTS[0]);
    connect(&mut world, PARTS[1]);
    place(&mut world, controller, PARTS[0], 400);
    world.cut(part);
    assert_eq!(room(&mut world, controller), [600, -1, 500]);
    connect(&mut world, PARTS[0]);
    assert_eq!(room(&mut world, controller), [600, 100, 500]);
    let lost = connect(&mut world, PARTS[0]);
    world.cut(lost);
    world.advance(IN_DOUBT_TIME);
    assert_eq!(room(&mut world, controller), [1000, -1, 500]);
}

#[test]
fn no_more_than_32_nodes_share_what_one_has() {
    let (mut world, controller) = World::new().with_controller();
    let whole = node_uuid(0);
    let extras = || NodeExtras {
        shares: Some(whole),
        ..NodeExtras::default()
    };
    let first = world.node_with(0, 1000);
    let shared_by = (1..=33).map(node_uuid).collect();
    world.ready_with(
        first,
        NodeExtras {
            shared_by,
            ..NodeExtras::default()
        },
    );
    for number in 1..=33 {
        let part = world.node_with(number, 1000);
        world.ready_with(part, extras());
    }
    let pinned = |name: &str, node: u64, mem| StartRequest {
        node_id: Some(node_uuid(node).to_string().into()),
        ..request(name, mem)
    };
    world.start_as(controller, pinned("whole", 0, 900));
    assert_eq!(world.placements(), [("whole".to_owned(), first)]);
    let fits = |world: &mut World, node| {
        let start = tried(pinned("part", node, 500), 1);
        world.decided(controller, start).fits
    };
    assert_eq!(fits(&mut world, 32), 0, "it shares what is taken");
    assert_eq!(
        fits(&mut world, 33),
        1,
        "it is one too many, and on its own"
    );
}
