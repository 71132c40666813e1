//! STARTs with `time_limit`, `stop` or `restart`: on launchers that know these, and nowhere else.

use proto_frames::Role;
use proto_frames::payload::{QueryKind, RestartPolicy, RestartWhen, RunProgress, Span, Stop};
use sched_core::{Capabilities, Dialect, InstanceReport, Message, NodeExtras};

use crate::support::requests::Asking;
use crate::support::world::{Size, World, node_uuid, request, running};

#[test]
fn only_launchers_that_know_run_limits_are_given_them_and_the_refusal_says_so() {
    let (mut world, controller) = World::new().with_controller();
    let original = world.join(Role::AGENT, node_uuid(1), Dialect::Original);
    world.ready(original, Size::default());
    let limited = |name: &str| {
        let limit = Some(Span::from_ms(600_000));
        request(name, 1).placed_as(|it| it.time_limit = limit)
    };
    assert_eq!(world.place_as(controller, limited("a")), None);
    let Message::StartFailure(failure) = world.told_once(controller) else {
        panic!("no StartFailure")
    };
    assert!(failure.payload.never);
    let detail = failure.payload.detail.unwrap();
    let words =
        "1 whose launchers know no time_limit, stop, restart or retry (capability run-limits)";
    assert!(detail.contains(words), "{detail}");
    let able = world.silent_node(2);
    let extras = NodeExtras {
        capabilities: Capabilities::RUN_LIMITS,
        ..NodeExtras::default()
    };
    world.ready_with(able, extras);
    world.stats(able, Vec::new());
    let policy = RestartPolicy {
        when: RestartWhen::Always,
        ..RestartPolicy::default()
    };
    let restarting = request("c", 1).placed_as(|it| it.restart = Some(policy));
    let stopped = request("d", 1).placed_as(|it| it.stop = Some(Stop::default()));
    for start in [limited("b"), restarting, stopped] {
        assert_eq!(world.place_as(controller, start), Some(able));
    }
}

#[test]
fn an_instance_that_ends_again_and_again_is_named_in_the_status_until_it_does_not_any_more() {
    let (mut world, _controller) = World::new().with_controller();
    let node = world.labelled(1, &[]);
    let row = |restarts: u32, next_try_ms: Option<u64>| InstanceReport {
        run: Some(Box::new(RunProgress {
            restarts,
            last_exit_code: Some(3),
            next_try_ms,
            ..RunProgress::default()
        })),
        ..running("a", 1)
    };
    for (row, is_named) in [
        (row(2, Some(4000)), false),
        (row(3, Some(8000)), true),
        (row(4, None), false),
    ] {
        world.stats(node, vec![row]);
        let page = world.page(QueryKind::Status, "", None, 1);
        let conditions = page.status.unwrap().conditions;
        let is_loop = conditions.iter().any(|it| it.kind == "crash_loop");
        assert_eq!(is_loop, is_named);
    }
}
