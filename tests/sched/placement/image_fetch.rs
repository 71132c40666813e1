//! STARTs that name an image by its digest: where it is or can be fetched, and nowhere else.

use fastrand::Rng;
use proto_frames::payload::{Scheduling, Span};
use proto_frames::{Kind, Role};
use sched_core::{Capabilities, Dialect, Message, NodeExtras, SessionId, StartRequest};

use crate::support::seeds::for_each_seed;
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
    able_to(&["images"])
}

fn able_to(names: &[&str]) -> NodeExtras {
    NodeExtras {
        capabilities: Capabilities::from_names(names.iter().copied()),
        ..NodeExtras::default()
    }
}

/// One with further images.
fn start_with_more(name: &str, more: &[&str]) -> StartRequest {
    StartRequest {
        more_images: more.iter().map(|&it| it.into()).collect(),
        ..start(name)
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

#[test]
fn further_images_are_for_launchers_that_know_of_them() {
    let (mut world, controller) = World::new().with_controller();
    fetching(&mut world, 1);
    world.labelled(2, &[(&format!("image.{IMAGE}"), "cached")]);
    world.labelled(3, &[]);
    let more = ["sha256_1", "sha256_2"];
    assert_eq!(
        world.place_as(controller, start_with_more("a", &more)),
        None
    );
    let Message::StartFailure(failure) = world.told_once(controller) else {
        panic!("no StartFailure")
    };
    assert!(failure.payload.never);
    let detail = failure.payload.detail.unwrap();
    for part in [
        "2 whose launchers fetch no further images (more_images; capability more-images)",
        "1 that do not have its image",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
    let able = world.silent_node(4);
    world.ready_with(able, able_to(&["images", "more-images"]));
    world.stats(able, Vec::new());
    for name in ["b", "c"] {
        let start = start_with_more(name, &more);
        assert_eq!(world.place_as(controller, start), Some(able));
    }
}

#[test]
fn what_waits_with_further_images_is_of_another_class_than_what_has_none_and_of_one_with_its_like()
{
    let (mut world, controller) = World::new().with_controller();
    let able = world.silent_node(1);
    world.ready_with(able, able_to(&["images", "more-images"]));
    world.stats(able, Vec::new());
    assert_eq!(world.place(controller, "first", 1000), Some(able));
    let more: [&[&str]; 3] = [&["sha256_1"], &["sha256_2", "sha256_3"], &[]];
    for (name, more) in ["a", "b", "c"].into_iter().zip(more) {
        let scheduling = Scheduling {
            queue: Some(Span::from_ms(600_000)),
            ..Scheduling::default()
        };
        let start = StartRequest {
            scheduling: Some(Box::new(scheduling)),
            ..start_with_more(name, more)
        };
        assert_eq!(world.place_as(controller, start), None);
    }
    let earlier = fetching(&mut world, 2);
    assert_eq!(world.placements(), [("c".to_owned(), earlier)]);
    world.stats(able, vec![running("first", 1000)]);
    world.gone(able, Kind::INSTANCE_DELETED, "first");
    let placed = ["a", "b"].map(|name| (name.to_owned(), able));
    assert_eq!(world.placements(), placed);
}

/// What a node says of images: whether it has that of the STARTs, fetches it, and fetches further ones.
#[derive(Debug, Clone, Copy)]
struct Able {
    has: bool,
    fetches: bool,
    fetches_more: bool,
}

impl Able {
    fn any(chance: &mut Rng) -> Self {
        Self {
            has: chance.bool(),
            fetches: chance.bool(),
            fetches_more: chance.bool(),
        }
    }

    fn extras(self) -> NodeExtras {
        let label = format!("image.{IMAGE}");
        let pairs = [(label.as_str(), "cached")];
        let said = [(self.fetches, "images"), (self.fetches_more, "more-images")];
        let names = said.iter().filter(|(says, _)| *says).map(|(_, name)| *name);
        NodeExtras {
            capabilities: Capabilities::from_names(names),
            ..labels(&pairs[..usize::from(self.has)])
        }
    }

    fn runs(self, start: &StartRequest) -> bool {
        let has_image = !start.fetches_image || self.has || self.fetches;
        has_image && (start.more_images.is_empty() || self.fetches_more)
    }
}

/// STARTs that a node has room for.
const ROOM: usize = 4;

#[test]
fn whatever_nodes_say_a_start_goes_to_one_that_can_have_all_its_images() {
    for_each_seed(60, |seed| {
        let mut chance = Rng::with_seed(seed);
        let (mut world, controller) = World::new().with_controller();
        let mut nodes: Vec<(SessionId, Able, Vec<String>)> = Vec::new();
        for number in 1..5 {
            let node = world.silent_node(number);
            let able = Able::any(&mut chance);
            world.ready_with(node, able.extras());
            world.stats(node, Vec::new());
            nodes.push((node, able, Vec::new()));
        }
        let mut starts = std::collections::BTreeMap::new();
        for step in 0..80 {
            world.look_away();
            let (session, able, running) = &mut nodes[chance.usize(..4)];
            let mut asked = None;
            match chance.u8(..4) {
                0 => {
                    *able = Able::any(&mut chance);
                    world.ready_with(*session, able.extras());
                }
                1 if !running.is_empty() => {
                    let name = running.swap_remove(chance.usize(..running.len()));
                    world.gone(*session, Kind::INSTANCE_DELETED, &name);
                }
                _ => {
                    let scheduling = Scheduling {
                        queue: Some(Span::from_ms(600_000)),
                        ..Scheduling::default()
                    };
                    let name = format!("i{step}");
                    let mut start = asking(&name, 250, scheduling);
                    start.fetches_image = chance.bool();
                    start.image = start.fetches_image.then(|| IMAGE.into());
                    let more = if start.fetches_image {
                        chance.usize(..3)
                    } else {
                        0
                    };
                    start.more_images = (0..more).map(|it| format!("sha256_{it}").into()).collect();
                    starts.insert(name.clone(), start.clone());
                    world.start_as(controller, start);
                    asked = Some(name);
                }
            }
            for (name, to) in world.placements() {
                let placed = nodes.iter_mut().find(|(node, ..)| *node == to);
                let (_, able, running) = placed.unwrap();
                assert!(able.runs(&starts[&name]), "{name} on {able:?}");
                running.push(name);
                assert!(running.len() <= ROOM);
            }
            let Some(name) = asked else {
                continue;
            };
            let is_placed = nodes.iter().any(|(.., running)| running.contains(&name));
            let has_place = |(_, able, running): &(SessionId, Able, Vec<String>)| {
                running.len() < ROOM && able.runs(&starts[&name])
            };
            assert!(is_placed || !nodes.iter().any(has_place), "{name}");
        }
        world.check();
    });
}
