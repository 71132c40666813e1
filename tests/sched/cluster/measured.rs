//! Measured accounting: an instance counts as what it used for some time, of memory and of processor time.

use std::time::Duration;

use sched_core::{Accounting, Config, InstanceReport, Resources, SessionId};

use super::claims::free;
use crate::support::preemption::cpus;
use crate::support::world::{Size, World, config, running};

/// How far it is looked back here.
const WINDOW: Duration = Duration::from_secs(100);

fn measured(percentile: u8) -> Config {
    Config {
        accounting: Accounting::Measured,
        measured_window: WINDOW,
        measured_percentile: percentile,
        ..config()
    }
}

/// A node of 1000 MiB on which `a`, which asks for 600, is listed with what it uses.
fn listed(config: Config, used: i64) -> (World, SessionId, SessionId) {
    let (mut world, controller, node) = World::with(config).with_node(1000);
    world.start(controller, "a", 600);
    uses(&mut world, node, used);
    (world, controller, node)
}

/// The node reports what `a` uses, and what is available then.
fn uses(world: &mut World, node: SessionId, used: i64) {
    world.stats(node, vec![running("a", used)]);
    world.ready(node, Size::of_mem(1000 - used.max(0)));
}

#[test]
fn an_instance_counts_as_its_peak_until_that_is_older_than_the_window() {
    let (mut world, controller, node) = listed(measured(100), 500);
    world.advance(WINDOW / 2);
    uses(&mut world, node, 50);
    assert_eq!(free(&mut world, controller), 500);
    world.advance(WINDOW / 2);
    uses(&mut world, node, 50);
    assert_eq!(free(&mut world, controller), 950);
}

#[test]
fn a_percentile_forgets_a_short_peak_sooner() {
    let (mut world, controller, node) = listed(measured(50), 500);
    for _ in 0..2 {
        world.advance(WINDOW / 10);
        uses(&mut world, node, 50);
    }
    assert_eq!(free(&mut world, controller), 950);
}

#[test]
fn an_instance_counts_as_what_it_asked_for_while_its_use_is_not_known() {
    let (mut world, controller, node) = listed(measured(100), -1);
    assert_eq!(free(&mut world, controller), 400);
    uses(&mut world, node, 10);
    assert_eq!(free(&mut world, controller), 990);
}

#[test]
fn processor_time_counts_as_whole_vcpus_by_its_peak() {
    let mut world = World::with(measured(100));
    let controller = world.controller();
    let node = world.node(1, Size::of_cpus(8));
    world.start_as(controller, cpus("a", 6, 0));
    let lists = |world: &mut World, cpu_used_percent| {
        let row = InstanceReport {
            cpu_used_percent,
            requested: Some(Resources {
                vcpus: 6,
                ..Resources::ZERO
            }),
            ..running("a", 0)
        };
        world.stats(node, vec![row]);
        world.look_away();
    };
    let fits = |world: &mut World, vcpus| {
        let fits = world
            .place_as(controller, cpus("probe", vcpus, 0))
            .is_some();
        if fits {
            let failed = proto_frames::payload::StartFailureReason::LaunchFailure;
            world.start_failed(node, "probe", failed);
        }
        world.look_away();
        fits
    };
    assert!(!fits(&mut world, 3), "it asked for 6 of 8");
    // A third of 6 vcpus are two.
    lists(&mut world, 33);
    assert!(fits(&mut world, 6) && !fits(&mut world, 7));
    world.advance(WINDOW / 2);
    lists(&mut world, 0);
    assert!(fits(&mut world, 6) && !fits(&mut world, 7));
    world.advance(WINDOW);
    lists(&mut world, 0);
    assert!(fits(&mut world, 7) && !fits(&mut world, 8));
    world.advance(WINDOW);
    lists(&mut world, -1);
    assert!(fits(&mut world, 2) && !fits(&mut world, 3), "nobody knows");
}
