//! Why what waits does so now: the same answer in rows and counts, of this moment, about what the nodes lack that could
//! run it.

use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{EvacuateMode, InstanceView, QueryKind, ReasonKind};
use sched_core::{QueueTotals, QueueTotalsCursor, Totals, TotalsCursor};

use crate::support::requests::Asking;
use crate::support::words::{counts, labels, needing, requiring, resources};
use crate::support::world::{Size, World, request};

/// The row of the only instance that waits.
fn waits(world: &mut World) -> InstanceView {
    let page = world.page(QueryKind::Queue, "", None, 10);
    assert_eq!(page.instances.len(), 1, "{page:?}");
    page.instances[0].clone()
}

/// How many wait for what, without the zeros.
fn blocked(world: &mut World) -> Vec<(&'static str, u64)> {
    let (mut sum, mut next) = (QueueTotals::default(), Some(QueueTotalsCursor::default()));
    let now = world.now;
    while let Some(from) = next {
        next = world.scheduler.add_queue_totals(now, from, &mut sum);
    }
    let counts = sum.blocked().into_iter();
    counts.filter(|(_, count)| *count > 0).collect()
}

#[test]
fn why_it_waits_is_of_this_moment_and_not_of_its_submission() {
    let mut world = World::new();
    let controller = world.controller();
    world.start_as(controller, request("a", 700).waiting(600));
    assert_eq!(waits(&mut world).waits_for, "no compute node is connected");
    assert_eq!(waits(&mut world).blocked_by, "no_node");
    let node = world.node_with(1, 1000);
    world.list(node, &["a"]);
    world.look_away();
    world.start_as(controller, request("b", 700).waiting(600));
    let row = waits(&mut world);
    assert!(row.waits_for.contains("short of memory"), "{row:?}");
    assert_eq!(row.blocked_by, "memory");
    world.evacuate(controller, node, EvacuateMode::Cordon);
    world.advance(Duration::from_millis(100));
    let row = waits(&mut world);
    assert!(row.waits_for.contains("cordoned"), "{row:?}");
    assert_eq!(row.blocked_by, "cordoned");
    assert_eq!(blocked(&mut world), [("placement", 1)]);
    // What one instance is asked about has all reasons.
    let row = &world.page(QueryKind::Instances, "b", None, 10).instances[0];
    assert_eq!(row.reasons[0].reason, ReasonKind::Other("cordoned".into()));
    assert!(!row.never);
}

#[test]
fn what_only_a_lost_node_has_is_waited_for() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let other = world.node_with(2, 1000);
    world.ready_with(other, resources(&[("gpu", 1)]));
    let labelled = world.labelled(3, &[("zone", "b")]);
    world.cut(other);
    world.cut(labelled);
    world.look_away();
    world.start_as(controller, needing("a", 1, "gpu", 1).waiting(600));
    assert_eq!(world.failures(controller), []);
    let row = waits(&mut world);
    assert!(row.waits_for.contains("1 lost"), "{row:?}");
    assert_eq!(row.blocked_by, "lost");
    // Another one as well, whatever it is that the node alone has; and one that names the node itself.
    world.start_as(controller, requiring("b", 1, &["zone = b"]).waiting(600));
    let mut pinned = request("c", 1).waiting(600);
    pinned.node_id = Some(world.uuid_of(other).to_string().into());
    world.start_as(controller, pinned);
    assert_eq!(world.failures(controller), []);
    // It is not waited for with what it never had.
    world.start_as(controller, needing("d", 1, "gpu", 2).waiting(600));
    world.start_as(controller, requiring("e", 1, &["zone = c"]).waiting(600));
    let failed: Vec<_> = world
        .failures(controller)
        .into_iter()
        .map(|it| it.0)
        .collect();
    assert_eq!(failed, ["d", "e"]);
    world.look_away();
    let back = world.node_with(2, 1000);
    world.ready_with(back, resources(&[("gpu", 1)]));
    let mut placed: Vec<String> = world.placements().into_iter().map(|it| it.0).collect();
    placed.sort();
    assert_eq!(placed, ["a", "c"]);
    let _ = node;
}

#[test]
fn the_resource_that_is_short_is_named_and_not_another() {
    let (mut world, controller, _) = World::new().with_node(1000);
    // All vcpus of the node without a gpu are taken, and the gpu of the other.
    let plain = world.node(2, Size::of_cpus(1));
    let with_gpu = world.node(3, Size::of_cpus(4));
    world.ready_with(with_gpu, resources(&[("gpu", 1)]));
    let _ = plain;
    let taken = world.place_as(controller, needing("taken", 1, "gpu", 1).vcpus(1));
    assert_eq!(taken, Some(with_gpu));
    world.list(with_gpu, &["taken"]);
    let failure = world.refused(controller, needing("a", 1, "gpu", 1).vcpus(200));
    assert_eq!(
        counts(&failure),
        [(ReasonKind::Resource, 2), (ReasonKind::Vcpus, 1)]
    );
    let failure = world.refused(controller, needing("a", 1, "gpu", 1).vcpus(1));
    assert_eq!(counts(&failure), [(ReasonKind::Resource, 3)]);
    world.look_away();
    world.start_as(controller, needing("a", 1, "gpu", 1).vcpus(1).waiting(600));
    assert_eq!(waits(&mut world).blocked_by, "gpu");
    assert_eq!(blocked(&mut world), [("resource", 1)]);
}

#[test]
fn what_no_time_helps_against_is_not_what_it_waits_for() {
    let (mut world, controller, _) = World::new().with_node(1000);
    world.node_with(2, 1000);
    let right = world.labelled(3, &[("zone", "b")]);
    let mut extras = labels(&[("zone", "b")]);
    extras.resources = resources(&[("gpu", 1)]).resources;
    world.ready_with(right, extras);
    let asks = |name: &str| {
        let mut start = requiring(name, 1, &["zone = b"]).waiting(600);
        start
            .scheduling
            .get_or_insert_default()
            .resources
            .insert("gpu".to_owned(), 1);
        start
    };
    assert_eq!(world.place_as(controller, asks("a")), Some(right));
    world.list(right, &["a"]);
    world.look_away();
    world.start_as(controller, asks("b"));
    let row = waits(&mut world);
    // Most nodes are in another zone for good; what it waits for is the gpu of the one that is not.
    assert_eq!(row.blocked_by, "gpu", "{row:?}");
}

#[test]
fn a_full_node_counts_with_what_it_has_left_and_a_cordoned_one_does_not() {
    let (mut world, controller, node) = World::new().with_node(1000);
    let largest = |world: &mut World| {
        let mut totals = Totals::default();
        let mut next = Some(TotalsCursor::default());
        while let Some(from) = next {
            next = world.scheduler.add_totals(from, &mut totals);
        }
        (totals.mem.largest_free, totals.vcpus.largest_free)
    };
    world.place_as(controller, request("a", 100).vcpus(4));
    world.list(node, &["a"]);
    let before = largest(&mut world);
    world.status(node, Kind::FULL);
    assert_eq!(largest(&mut world), before);
    assert!(before.0 > 0);
    world.evacuate(controller, node, EvacuateMode::Cordon);
    assert_eq!(largest(&mut world), (0, 0));
}

#[test]
fn the_queue_is_found_by_name() {
    let (mut world, controller, _) = World::new().with_node(100);
    world.place(controller, "a", 100);
    let mut start = request("c0ffee00-0000-4000-8000-000000000001", 50).waiting(600);
    "web-1".clone_into(&mut start.scheduling.get_or_insert_default().name);
    world.start_as(controller, start);
    let rows = world.page(QueryKind::Queue, "web-1", None, 10).instances;
    assert_eq!(rows.len(), 1);
    assert_eq!(world.page(QueryKind::Queue, "web", None, 10).instances, []);
}
