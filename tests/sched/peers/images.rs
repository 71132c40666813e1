//! The store of images is not the core's: it says who may ask, and which images STARTs name that it keeps.

use proto_frames::payload::Scheduling;
use proto_frames::payload::span::Span;
use proto_frames::{Role, Uuid};
use sched_core::{Command, Dialect, ImageCommand};

use crate::support::world::{World, request};

#[test]
fn the_store_is_asked_what_its_peers_may_ask_and_in_that_order() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let viewer = world.join(Role::VIEWER, Uuid::from_u128(0x71e), Dialect::Native);
    let launcher = world.node_with(1, 1000);
    let original = world.join(Role::AGENT, Uuid::from_u128(2), Dialect::Original);
    for (session, command) in [
        (operator, ImageCommand::Write),
        (viewer, ImageCommand::Write),
        (viewer, ImageCommand::List),
        (operator, ImageCommand::Read),
        (launcher, ImageCommand::Read),
        (original, ImageCommand::Read),
        (launcher, ImageCommand::Delete),
        (operator, ImageCommand::Delete),
    ] {
        world.say(session, Command::Image(command));
    }
    assert_eq!(world.images_asked, [operator, viewer, launcher, operator]);
}

#[test]
fn an_image_is_in_use_as_long_as_a_start_that_names_it_is_kept() {
    let mut world = World::new();
    let operator = world.operator(&[]);
    let node = world.node_with(1, 1000);
    assert_eq!(world.place(operator, "full", 900), Some(node));
    let mut start = request("a", 500);
    start.image = Some("sha256_0123456789ab".into());
    start.more_images = ["sha256_1", "sha256_2"].map(Into::into).into();
    let scheduling = Scheduling {
        queue: Some(Span::from_ms(60_000)),
        ..Scheduling::default()
    };
    start.scheduling = Some(Box::new(scheduling));
    world.say(operator, Command::Start(start.into()));
    let in_use = world.scheduler.images_in_use();
    assert_eq!(
        in_use.into_iter().collect::<Vec<_>>(),
        ["sha256_0123456789ab", "sha256_1", "sha256_2"]
    );
    world.advance(std::time::Duration::from_secs(61));
    assert!(world.scheduler.images_in_use().is_empty());
}
