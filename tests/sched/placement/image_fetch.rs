//! STARTs that name an image by its digest: where it is or can be fetched, and nowhere else.

use proto_frames::payload::{Scheduling, Span};
use proto_frames::{Kind, Role};
use sched_core::{Capabilities, Dialect, Message, NodeExtras, SessionId, StartRequest};

use crate::support::words::{asking, labels};
use crate::support::world::{Size, World, node_uuid, request, running};

/// What labels call the image.
const IMAGE: &str = "sha256_0123456789ab";

fn start(name: &str) -> StartRequest {
    StartRequest {
        image: Some(IMAGE.into()),
        fetches_image: true,
        ..request(name, 1)
    }
}

/// A node whose launcher fetches images.
fn fetching(world: &mut World, number: u64) -> SessionId {
    let node = world.silent_node(number);
    world.ready_with(node, able());
    world.stats(node, Vec::new());
    node
}

fn able() -> NodeExtras {
    NodeExtras {
        capabilities: Capabilities::from_names(["images"]),
        ..NodeExtras::default()
    }
}

#[test]
fn an_image_is_fetched_by_launchers_that_can_and_the_others_are_passed_over() {
    let (mut world, controller) = World::new().with_controller();
    let original = world.join(Role::AGENT, node_uuid(1), Dialect::Original);
    world.ready(original, Size::default());
    let earlier = world.labelled(2, &[]);
    assert_eq!(world.place_as(controller, start("a")), None);
    let Message::StartFailure(failure) = world.told_once(controller) else {
        panic!("no StartFailure")
    };
    assert!(failure.payload.never);
    let detail = failure.payload.detail.unwrap();
    assert!(
        detail.contains(
            "2 that do not have its image, and whose launchers fetch none (capability images)"
        ),
        "{detail}"
    );
    let able = fetching(&mut world, 3);
    for name in ["b", "c"] {
        assert_eq!(world.place_as(controller, start(name)), Some(able));
    }
    // A container's image, by name, is none to be fetched.
    let other = StartRequest {
        fetches_image: false,
        ..start("d")
    };
    assert_ne!(world.place_as(controller, other), Some(able));
    assert!([original, earlier].contains(&world.place(controller, "e", 1).unwrap()));
}

#[test]
fn a_node_that_has_the_image_runs_it_although_it_fetches_none() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[]);
    let with = world.labelled(2, &[(&format!("image.{IMAGE}"), "cached")]);
    world.labelled(3, &[("image.sha256_ffffffffffff", "cached")]);
    for name in ["a", "b"] {
        assert_eq!(world.place_as(controller, start(name)), Some(with));
    }
    world.ready_with(with, labels(&[]));
    assert_eq!(world.place_as(controller, start("c")), None, "it has gone");
}

#[test]
fn a_start_that_waits_for_room_is_not_served_by_a_launcher_that_fetches_no_images() {
    let (mut world, controller) = World::new().with_controller();
    let able = fetching(&mut world, 1);
    assert_eq!(world.place(controller, "first", 1000), Some(able));
    let waiting = |name: &str, fetches_image| {
        let scheduling = Scheduling {
            queue: Some(Span::from_ms(600_000)),
            ..Scheduling::default()
        };
        StartRequest {
            image: Some(IMAGE.into()),
            fetches_image,
            ..asking(name, 10, scheduling)
        }
    };
    for (name, fetches_image) in [("a", true), ("b", false)] {
        let start = waiting(name, fetches_image);
        assert_eq!(world.place_as(controller, start), None);
    }
    // What waits for the same but for that is of another class.
    let other = world.labelled(2, &[]);
    assert_eq!(world.placements(), [("b".to_owned(), other)]);
    world.stats(able, vec![running("first", 1000)]);
    world.gone(able, Kind::INSTANCE_DELETED, "first");
    assert_eq!(world.placements(), [("a".to_owned(), able)]);
}
