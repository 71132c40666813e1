//! What instances on original launchers asked for is known after a restart of the scheduler, and when a lost node is back.

use std::time::Duration;

use proto_frames::Role;
use sched_core::{
    Config, Dialect, IN_DOUBT_TIME, Input, Resources, Rules, SessionId, StartRequest,
};

use crate::support::durability::{crash, durable};
use crate::support::world::{Size, World, config, node_uuid, request, running};

/// Time in which the claims are on disk.
const WRITTEN: Duration = Duration::from_secs(1);

/// Longer than anything of a lost node is remembered.
const FORGOTTEN: Duration = Duration::from_secs(2 * 3600);

const SIZE: Size = Size {
    mem: 100_000,
    cpus: 4,
    disk: 10_000,
};

/// A compute node whose launcher is the original's.
fn original_node(world: &mut World, number: u64) -> SessionId {
    let session = world.join(Role::AGENT, node_uuid(number), Dialect::Original);
    world.ready(session, SIZE);
    session
}

/// A START of one vcpu and some memory.
fn small(name: &str) -> StartRequest {
    StartRequest {
        asked: Resources {
            mem_mib: 10,
            vcpus: 1,
            disk_mib: 0,
        },
        ..request(name, 10)
    }
}

/// How many STARTs of one vcpu are given to nodes, of ten.
fn places(world: &mut World, controller: SessionId, prefix: &str) -> usize {
    (0..10)
        .filter(|number| {
            let name = format!("{prefix}{number}");
            world.place_as(controller, small(&name)).is_some()
        })
        .count()
}

fn listed(prefix: &str, count: usize) -> Vec<sched_core::InstanceReport> {
    (0..count)
        .map(|number| running(&format!("{prefix}{number}"), 5))
        .collect()
}

/// After a crash an original node is back on which `a0` to `a3` have all vcpus, and has not listed anything yet.
fn crashed_with_four() -> (World, SessionId, SessionId) {
    let (mut world, controller) = World::with(durable()).with_controller();
    let node = original_node(&mut world, 1);
    assert_eq!(places(&mut world, controller, "a"), 4);
    world.stats(node, listed("a", 4));
    world.advance(WRITTEN);

    crash(&mut world, 1);
    let controller = world.controller();
    let node = original_node(&mut world, 1);
    (world, controller, node)
}

#[test]
fn what_an_original_node_was_given_counts_after_a_crash() {
    let (mut world, controller, node) = crashed_with_four();
    // Before it lists anything, and after.
    assert_eq!(places(&mut world, controller, "b"), 0);
    world.stats(node, listed("a", 4));
    world.advance(WRITTEN);
    assert_eq!(places(&mut world, controller, "c"), 0);
    // What ends gives its room back, this time for good.
    world.stats(node, listed("a", 2));
    world.stats(node, listed("a", 2));
    world.stats(node, listed("a", 2));
    world.advance(WRITTEN);
    crash(&mut world, 1);
    let controller = world.controller();
    let node = original_node(&mut world, 1);
    assert_eq!(places(&mut world, controller, "d"), 2);
    world.stats(node, listed("a", 2));
}

#[test]
fn what_a_node_does_not_have_after_a_crash_is_free_again_though_it_lists_nothing() {
    let (mut world, controller, node) = crashed_with_four();
    for _ in 0..3 {
        assert_eq!(places(&mut world, controller, "b"), 0);
        world.stats(node, Vec::new());
    }
    world.ready(node, SIZE);
    assert_eq!(places(&mut world, controller, "c"), 4);
}

#[test]
fn a_lost_node_that_comes_back_late_has_what_it_had() {
    for is_durable in [false, true] {
        let (mut world, controller) = World::with(Config {
            durable: is_durable,
            ..durable()
        })
        .with_controller();
        let node = original_node(&mut world, 1);
        assert_eq!(places(&mut world, controller, "a"), 4);
        world.stats(node, listed("a", 4));
        world.cut(node);
        world.advance(IN_DOUBT_TIME + WRITTEN);
        assert_eq!(world.scheduler.footprint().remembered, 4);
        let node = original_node(&mut world, 1);
        assert_eq!(world.scheduler.footprint().remembered, 0);
        world.stats(node, listed("a", 4));
        assert_eq!(places(&mut world, controller, "b"), 0);
        // One that never comes back is forgotten, on disk as well.
        world.cut(node);
        world.advance(FORGOTTEN);
        assert_eq!(world.scheduler.footprint().remembered, 0);
        assert_eq!(world.store.len(), 0);
    }
}

#[test]
fn claims_on_native_launchers_are_not_put_on_disk() {
    let (mut world, controller) = World::with(durable()).with_controller();
    let node = world.node(1, SIZE);
    assert_eq!(places(&mut world, controller, "a"), 4);
    world.stats_seen(node, Some(4), listed("a", 4));
    world.advance(WRITTEN);
    assert_eq!(world.store.len(), 0);
}

#[test]
fn claims_are_written_once_for_many_starts_and_at_the_latest_when_it_leaves() {
    let (mut world, controller) = World::with(durable()).with_controller();
    for number in 1..=40 {
        original_node(&mut world, number);
    }
    assert_eq!(places(&mut world, controller, "a"), 10);
    assert_eq!(world.store.len(), 0, "nothing waits for the disk");
    world.advance(WRITTEN);
    assert_eq!(world.store.len(), 10, "a record for each node");
    for number in 0..100 {
        world.place_as(controller, small(&format!("b{number}")));
    }
    world.handle(Input::Leaving);
    crash(&mut world, 40);
    let controller = world.controller();
    for number in 1..=40 {
        original_node(&mut world, number);
    }
    let placed: usize = (0..10)
        .map(|round| places(&mut world, controller, &format!("c{round}-")))
        .sum();
    assert_eq!(placed, 160 - 110);
}

#[test]
fn what_is_known_of_nothing_counts_as_what_it_uses_and_one_vcpu() {
    let (mut world, controller) = World::new().with_controller();
    let node = original_node(&mut world, 1);
    world.stats(node, listed("a", 3));
    assert_eq!(places(&mut world, controller, "b"), 1);
    // That of a native launcher is what it says.
    world.restart(config(), Rules::default());
    let controller = world.controller();
    let node = world.node(1, SIZE);
    let mut said = listed("a", 3);
    for report in &mut said {
        report.requested = Some(Resources::ZERO);
    }
    world.stats_seen(node, Some(0), said);
    assert_eq!(places(&mut world, controller, "b"), 4);
}
