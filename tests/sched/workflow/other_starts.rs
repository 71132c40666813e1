//! A START of an instance that is there already, which is not the START that made it.

use std::collections::BTreeMap;

use proto_frames::payload::{Scheduling, StartFailureReason};
use sched_core::{Content, StartRequest};

use crate::support::requests::Asking;
use crate::support::scenes::one_failure;
use crate::support::world::{World, request, running};

fn of_content(text: &str, request: StartRequest) -> StartRequest {
    let content = Some(Content::of(text.as_bytes()));
    StartRequest { content, ..request }
}

#[test]
fn another_start_of_an_instance_that_is_there_is_refused_and_the_same_goes_to_its_node() {
    let managed = |request: StartRequest| request.priority(50);
    for is_managed in [false, true] {
        let asking = |content: &str| {
            let plain = of_content(content, request("a", 10));
            if is_managed { managed(plain) } else { plain }
        };
        for is_listed in [false, true] {
            let (mut world, controller, node) = World::new().with_node(100);
            world.start_as(controller, asking("one"));
            if is_listed {
                world.stats(node, vec![running("a", 0)]);
            }
            world.look_away();
            world.start_as(controller, asking("other"));
            assert_eq!(world.placements(), []);
            assert_eq!(
                world.failures(controller),
                one_failure("a", StartFailureReason::InstanceExists)
            );
            world.start_as(controller, asking("one"));
            assert_eq!(world.placements(), [("a".to_owned(), node)]);
            // One that is to be started again may say something else: its launcher answers.
            let again = StartRequest {
                restart: true,
                ..asking("other")
            };
            world.start_as(controller, again);
            assert_eq!(world.placements(), [("a".to_owned(), node)]);
            assert_eq!(world.failures(controller), []);
        }
    }
}

#[test]
fn another_start_of_an_instance_that_waits_is_refused() {
    let (mut world, controller, _) = World::new().with_full_node();
    world.start_as(controller, of_content("one", request("b", 50).waiting(30)));
    world.look_away();
    world.start_as(
        controller,
        of_content("other", request("b", 50).waiting(30)),
    );
    assert_eq!(world.queued(controller).len(), 0);
    world.start_as(controller, of_content("one", request("b", 50).waiting(30)));
    assert_eq!(world.queued(controller).len(), 1);
}

#[test]
fn a_start_that_asks_for_more_than_is_claimed_does_not_reach_its_node() {
    let resources = |gpus| {
        let resources: BTreeMap<_, _> = [("gpu".to_owned(), gpus)].into();
        let scheduling = Scheduling {
            resources,
            ..Scheduling::default()
        };
        move |mem, restart| StartRequest {
            scheduling: Some(Box::new(scheduling.clone())),
            restart,
            ..request("a", mem)
        }
    };
    let (mut world, controller, node) = World::new().with_node(100);
    world.start_as(controller, request("a", 10));
    world.look_away();
    for restart in [false, true] {
        for larger in [
            resources(0)(11, restart),
            resources(1)(10, restart),
            resources(0)(10, restart).vcpus(2),
        ] {
            world.start_as(controller, larger);
            assert_eq!(world.placements(), []);
            assert_eq!(
                world.failures(controller),
                one_failure("a", StartFailureReason::InstanceExists)
            );
        }
        for covered in [resources(0)(10, restart), request("a", 9)] {
            world.start_as(controller, covered);
            assert_eq!(world.placements(), [("a".to_owned(), node)]);
        }
    }
}

#[test]
fn a_start_of_an_instance_that_came_with_its_node_goes_there_whatever_it_asks_for() {
    let (mut world, controller, node) = World::new().with_node(100);
    world.stats(node, vec![running("a", 5)]);
    world.look_away();
    world.start_as(controller, of_content("one", request("a", 10)));
    assert_eq!(world.placements(), [("a".to_owned(), node)]);
}
