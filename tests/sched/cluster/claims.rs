//! Claims: what was asked for is held back until the node's own figures show it, and given back when it is gone.

use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;
use sched_core::{
    Accounting, Config, ConfigurationFlags, InstanceReport, NewConfiguration, Resources, SessionId,
};

use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{Size, World, config, request, running};

/// The most memory that a START is still given on this world's only node, found by trying.
pub(super) fn free(world: &mut World, controller: SessionId) -> i64 {
    let (mut fits, mut too_much) = (-1, 4096);
    while too_much - fits > 1 {
        let middle = i64::midpoint(fits, too_much);
        match world.place(controller, "probe", middle) {
            Some(node) => {
                world.start_failed(node, "probe", StartFailureReason::LaunchFailure);
                fits = middle;
            }
            None => too_much = middle,
        }
    }
    world.look_away();
    fits
}

/// A node of 1,000 MiB that was given `a`, which asks for 600.
fn claimed() -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "a", 600);
    (world, controller, node)
}

#[test]
fn a_claim_outlives_the_next_ready() {
    let (mut world, controller, node) = World::new().with_node(1000);
    assert_eq!(world.place(controller, "a", 600), Some(node));
    // Sent before the START arrived, as the original's launchers do.
    world.ready(node, Size::default());
    assert_eq!(free(&mut world, controller), 400);
}

#[test]
fn what_an_instance_uses_is_not_counted_twice() {
    let (mut world, controller, node) = claimed();
    world.ready(node, Size::of_mem(900));
    world.stats(node, vec![running("a", 100)]);
    assert_eq!(
        free(&mut world, controller),
        400,
        "500 of 600 are not touched yet"
    );
    world.ready(node, Size::of_mem(400));
    world.stats(node, vec![running("a", 600)]);
    assert_eq!(free(&mut world, controller), 400);
    world.stats(node, vec![running("a", 900)]);
    assert_eq!(
        free(&mut world, controller),
        400,
        "never more than asked is given back"
    );
    world.stats(node, vec![running("a", -1)]);
    assert_eq!(
        free(&mut world, controller),
        -1,
        "an unknown use counts as none: all 600 of 400 are held"
    );
}

#[test]
fn vcpus_are_held_whatever_is_used() {
    let (mut world, controller) = World::with(Config {
        cpu_ratio: 2.0,
        ..config()
    })
    .with_controller();
    let node = world.node(1, Size::of_cpus(2));
    let placed = world.place_as(controller, request("a", 0).vcpus(3));
    assert_eq!(placed, Some(node));
    world.stats(node, vec![running("a", 0)]);
    let mut place = |name, vcpus| world.place_as(controller, request(name, 0).vcpus(vcpus));
    assert_eq!(place("b", 3), None);
    assert_eq!(place("b", 1), Some(node));
}

#[test]
fn a_claim_ends_with_its_instance() {
    for kind in [Kind::INSTANCE_DELETED, Kind::INSTANCE_STOPPED] {
        let (mut world, controller, node) = claimed();
        world.gone(node, kind, "a");
        assert_eq!(free(&mut world, controller), 1000, "{kind}");
    }
}

#[test]
fn a_failed_start_gives_its_claim_back_unless_the_instance_is_there() {
    for (reason, left) in [
        (StartFailureReason::LaunchFailure, 1000),
        (StartFailureReason::FullComputeNode, 1000),
        (StartFailureReason::AlreadyRunning, 400),
        (StartFailureReason::InstanceExists, 400),
    ] {
        let (mut world, controller, node) = claimed();
        world.start_failed(node, "a", reason.clone());
        assert_eq!(free(&mut world, controller), left, "{reason}");
    }
}

#[test]
fn a_nameless_failure_settles_the_only_start_it_can_mean() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "a", 300);
    world.start(controller, "b", 300);
    world.start_failed(node, "", StartFailureReason::InvalidPayload);
    assert_eq!(free(&mut world, controller), 400, "it may mean either");
    world.stats(node, vec![running("a", 0)]);
    world.start_failed(node, "", StartFailureReason::InvalidPayload);
    assert_eq!(free(&mut world, controller), 700);
}

#[test]
fn a_claim_is_dropped_after_three_stats_without_it_and_never_by_time() {
    let (mut world, controller, node) = claimed();
    world.stats(node, vec![running("a", 600)]);
    world.advance(std::time::Duration::from_secs(86_400));
    world.stats(node, vec![]);
    world.stats(node, vec![]);
    assert_eq!(
        free(&mut world, controller),
        400,
        "it is missing, so it uses nothing, and is held"
    );
    world.ready(node, Size::default());
    world.stats(node, vec![running("other", 0)]);
    assert_eq!(free(&mut world, controller), 1000);
}

#[test]
fn an_unconfirmed_start_that_is_never_listed_fails_after_three_stats() {
    let (mut world, controller, node) = claimed();
    world.look_away();
    for _ in 0..2 {
        world.stats(node, vec![running("other", 0)]);
    }
    assert_eq!(world.failures(controller), []);
    world.stats(node, vec![running("other", 0)]);
    assert_eq!(
        world.failures(controller),
        one_failure("a", StartFailureReason::LaunchFailure)
    );
}

#[test]
fn empty_stats_of_a_launcher_that_never_listed_anything_mean_nothing() {
    let (mut world, controller, node) = claimed();
    for _ in 0..10 {
        world.stats(node, vec![]);
    }
    assert_eq!(free(&mut world, controller), 400);
}

#[test]
fn a_start_the_launcher_has_not_seen_is_not_missing() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.start(controller, "a", 300);
    world.start(controller, "b", 300);
    for _ in 0..5 {
        world.stats_seen(node, Some(1), vec![running("a", 0)]);
    }
    assert_eq!(free(&mut world, controller), 400, "b is on its way");
    let probes = 64;
    for _ in 0..3 {
        world.stats_seen(node, Some(2 + probes), vec![running("a", 0)]);
    }
    assert_eq!(
        free(&mut world, controller),
        700,
        "b was seen and is not there"
    );
}

#[test]
fn what_the_launcher_says_was_asked_is_believed_after_a_restart() {
    let (mut world, controller, node) = World::new().with_node(1000);
    world.ready(node, Size::of_mem(800));
    let requested = Some(Resources {
        mem_mib: 500,
        vcpus: 0,
        disk_mib: 0,
    });
    world.stats(
        node,
        vec![
            InstanceReport {
                requested,
                ..running("a", 100)
            },
            running("b", 100),
        ],
    );
    assert_eq!(
        free(&mut world, controller),
        400,
        "400 of a are untouched; of b only its use is known"
    );
}

#[test]
fn measured_accounting_counts_a_listed_instance_as_what_it_uses() {
    let (mut world, controller, node) = World::with(Config {
        accounting: Accounting::Measured,
        ..config()
    })
    .with_node(1000);
    world.start(controller, "a", 600);
    assert_eq!(free(&mut world, controller), 400);
    world.stats(node, vec![running("a", 10)]);
    // What it uses is not free, although the node has not reported yet that less is available.
    assert_eq!(free(&mut world, controller), 990);
}

#[test]
fn a_configuration_without_memory_limit_means_measured_memory() {
    let (mut world, controller, node) = claimed();
    world.ready(node, Size::of_mem(990));
    world.stats(node, vec![running("a", 10)]);
    assert_eq!(free(&mut world, controller), 400);
    let flags = ConfigurationFlags {
        mem_limit: false,
        disk_limit: true,
    };
    let new = NewConfiguration {
        flags,
        ..NewConfiguration::default()
    };
    world.configure_as(controller, new);
    assert_eq!(free(&mut world, controller), 990);
}

#[test]
fn ratios_and_reserved_amounts_change_what_is_offered() {
    let (mut world, controller, _) = World::with(Config {
        mem_ratio: 1.5,
        reserved_mem_mib: 100,
        ..config()
    })
    .with_node(1000);
    assert_eq!(
        free(&mut world, controller),
        1350,
        "what is reserved is not scaled: it is never offered"
    );
}

#[test]
fn a_repeated_start_goes_to_its_node_without_a_second_claim() {
    let (mut world, controller, first) = World::new().with_node(1000);
    world.node_with(2, 10);
    assert_eq!(world.place(controller, "a", 600), Some(first));
    assert_eq!(world.place(controller, "a", 600), Some(first));
    world.stats(first, vec![running("a", 0)]);
    assert_eq!(world.place(controller, "a", 600), Some(first));
    assert_eq!(world.place(controller, "b", 400), Some(first));
}
