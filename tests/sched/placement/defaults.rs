//! What STARTs ask for that do not say it themselves, and nodes that take nothing until they are calm.

use std::time::Duration;

use proto_frames::payload::{OnNodeLoss, Scheduling, Span, StartFailureReason};
use sched_core::{
    Capabilities, InstanceId, Message, NodeReport, PolicyRules, Rules, SessionId, StartDefaults,
    StartRequest,
};

use crate::support::durability::{durable, leased};
use crate::support::migration::able;
use crate::support::words::asking;
use crate::support::world::{Size, World, config, report, request};

const WAIT: Span = Span::from_ms(60_000);

fn waiting() -> StartDefaults {
    StartDefaults {
        queue: Some(WAIT),
        ..StartDefaults::default()
    }
}

fn under(policy: PolicyRules) -> World {
    let rules = Rules {
        policy,
        ..Rules::default()
    };
    World::ruled(config(), rules)
}

fn of_tenant(name: &str, tenant: &str) -> StartRequest {
    StartRequest {
        tenant: Some(InstanceId::new(tenant)),
        ..request(name, 100)
    }
}

/// The names of those that were given to a node.
fn placed(world: &mut World) -> Vec<String> {
    let placements = world.placements().into_iter();
    placements.map(|(name, _)| name).collect()
}

fn priority_of(world: &mut World, operator: SessionId, name: &str) -> Option<i64> {
    let rows = world.instances(operator);
    let id = InstanceId::new(name).to_string();
    let row = rows.into_iter().find(|it| it.instance_uuid == id);
    row.expect("it is listed").priority
}

#[test]
fn a_start_of_an_original_controller_waits_for_room_and_its_controller_is_sent_nothing_new() {
    let mut world = under(PolicyRules {
        defaults: waiting(),
        ..PolicyRules::default()
    });
    let controller = world.original_controller();
    let node = world.node_with(1, 100);
    assert_eq!(world.place(controller, "first", 100), Some(node));
    world.take_said();
    world.start(controller, "x", 100);
    world.nothing_else();
    let second = world.node_with(2, 100);
    assert_eq!(world.placements(), [("x".to_owned(), second)]);
    world.take_said();
    // One that finds no room in that time fails by a reason that the original knows.
    world.start(controller, "y", 100);
    world.advance(Duration::from_secs(61));
    let failures = world.failures(controller);
    assert_eq!(failures, [("y".to_owned(), StartFailureReason::FullCloud)]);
}

#[test]
fn what_a_start_says_itself_counts_over_its_tenant_s_default_and_that_over_the_one_for_all() {
    let blue = StartDefaults {
        priority: Some(70),
        ..StartDefaults::default()
    };
    let mut world = under(PolicyRules {
        defaults: StartDefaults {
            priority: Some(20),
            ..waiting()
        },
        tenants: vec![(InstanceId::new("blue"), blue)],
        ..PolicyRules::default()
    });
    let controller = world.controller();
    let operator = world.operator(&[]);
    let node = world.node_with(1, 100);
    let first = StartRequest {
        tenant: None,
        ..request("first", 100)
    };
    assert_eq!(world.place_as(controller, first), Some(node));
    world.start_as(controller, of_tenant("a", "red"));
    world.start_as(controller, of_tenant("b", "blue"));
    let own = Scheduling {
        priority: Some(5),
        ..Scheduling::default()
    };
    let own = StartRequest {
        tenant: Some(InstanceId::new("blue")),
        ..asking("c", 100, own)
    };
    world.start_as(controller, own);
    for (name, priority) in [("a", 20), ("b", 70), ("c", 5)] {
        assert_eq!(
            priority_of(&mut world, operator, name),
            Some(priority),
            "{name}"
        );
    }
    // Who does not want to wait says so.
    let at_once = Scheduling {
        queue: Some(Span::from_ms(0)),
        ..Scheduling::default()
    };
    world.take_said();
    world.start_as(controller, asking("d", 100, at_once));
    let failures = world.failures(controller);
    assert_eq!(failures, [("d".to_owned(), StartFailureReason::FullCloud)]);
}

#[test]
fn a_launcher_is_told_that_an_instance_is_under_its_lease_though_the_start_does_not_say_so() {
    let mut world = under(PolicyRules {
        defaults: StartDefaults {
            on_node_loss: Some(OnNodeLoss::Restart),
            ..StartDefaults::default()
        },
        ..PolicyRules::default()
    });
    let controller = world.original_controller();
    world.node_with(1, 1000);
    world.take_said();
    // Its own word counts.
    let reported = Scheduling {
        on_node_loss: OnNodeLoss::Report,
        ..Scheduling::default()
    };
    world.start_as(controller, asking("w", 1, reported));
    assert_eq!(placed(&mut world), ["w"]);
    world.take_said();
    // Only nodes with a lease take it.
    world.start(controller, "x", 1);
    assert_eq!(world.failures(controller).len(), 1);
    let leased = leased(&mut world, 2, 1000);
    world.take_said();
    world.start(controller, "y", 1);
    let starts = world
        .told(leased)
        .into_iter()
        .filter_map(|message| match message {
            Message::Start(start) => Some(start),
            _ => None,
        });
    let starts: Vec<_> = starts.collect();
    let changes = starts[0]
        .changes
        .as_ref()
        .expect("its payload does not say all");
    assert!(changes.restart_on_loss && !changes.restart && changes.demand.is_none());
}

#[test]
fn a_time_limit_by_default_is_told_to_launchers_that_keep_to_it_alone_also_after_a_restart() {
    let limit = Span::from_ms(3_600_000);
    let policy = || PolicyRules {
        defaults: StartDefaults {
            time_limit: Some(limit),
            queue: Some(WAIT),
            ..StartDefaults::default()
        },
        ..PolicyRules::default()
    };
    let rules = Rules {
        policy: policy(),
        ..Rules::default()
    };
    let mut world = World::ruled(durable(), rules);
    let controller = world.original_controller();
    world.start(controller, "x", 100);
    assert!(world.failures(controller).is_empty());
    // It has been accepted with its limit, whatever the policy says later.
    world.crash(durable(), Rules::default());
    let other = world.node_with(1, 1000);
    assert!(
        !world
            .told(other)
            .iter()
            .any(|it| matches!(it, Message::Start(_)))
    );
    let limiting = world.silent_node(2);
    let ready = NodeReport {
        extras: Some(Box::new(able(Capabilities::RUN_LIMITS))),
        ..report(Size::of_mem(1000))
    };
    world.report(limiting, ready);
    let starts = world.told(limiting);
    let limits: Vec<_> = starts
        .iter()
        .filter_map(|message| match message {
            Message::Start(start) => start.changes.as_ref()?.time_limit,
            _ => None,
        })
        .collect();
    assert_eq!(limits, [limit]);
}

#[test]
fn a_start_waits_until_a_node_is_calm_and_one_that_may_not_wait_is_refused() {
    let policy = |defaults| PolicyRules {
        load_per_cpu: Some(150),
        defaults,
        ..PolicyRules::default()
    };
    let size = Size {
        cpus: 4,
        ..Size::of_mem(1000)
    };
    for (load, is_calm) in [(6, true), (7, false), (0, true), (-1, true)] {
        let mut world = under(policy(StartDefaults::default()));
        let controller = world.original_controller();
        let node = world.node(1, size);
        world.ready_as(node, |report| {
            report.cpus_online = 4;
            report.load = load;
        });
        assert_eq!(world.place(controller, "x", 1).is_some(), is_calm, "{load}");
    }
    let mut world = under(policy(waiting()));
    let controller = world.original_controller();
    let node = world.node(1, size);
    let report = |world: &mut World, load: i64| {
        world.ready_as(node, |report| {
            report.cpus_online = 4;
            report.load = load;
        });
    };
    report(&mut world, 20);
    world.start(controller, "x", 1);
    assert!(placed(&mut world).is_empty());
    report(&mut world, 10);
    assert!(placed(&mut world).is_empty());
    report(&mut world, 6);
    assert_eq!(placed(&mut world), ["x"]);
}
