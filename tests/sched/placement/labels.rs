//! What a START requires of its node: labels, facts, custom resources; and where nodes have these from.

use proto_frames::Kind;
use proto_frames::payload::{ReasonKind, Scheduling, StartFailureReason};
use sched_core::{
    Aggregate, CapacityRule, Config, InstanceId, NodeExtras, NodeName, NodeRule, Rules, SessionId,
    StartRequest,
};

use crate::support::words::{asking, boxed, expressions, labels, needing, requiring, resources};
use crate::support::world::{World, config, node_uuid, request, running};

/// The nodes on which an expression holds.
fn meeting(
    world: &mut World,
    controller: SessionId,
    nodes: &[SessionId],
    text: &str,
) -> Vec<SessionId> {
    world.fitting(controller, requiring(text, 1, &[text]), nodes)
}

#[test]
fn every_operator_tells_nodes_apart_by_their_labels() {
    let (mut world, controller) = World::new().with_controller();
    let small = world.labelled(1, &[("zone", "eu-1"), ("cores", "8")]);
    let large = world.labelled(2, &[("zone", "us-1"), ("cores", "32"), ("ssd", "true")]);
    let plain = world.labelled(3, &[]);
    let nodes = [small, large, plain];
    for (text, expected) in [
        ("zone = eu-1", &[small][..]),
        ("zone = eu", &[]),
        ("zone != eu-1", &[large, plain]),
        ("zone in (eu-1, us-1)", &[small, large]),
        ("zone not in (us-1, us-2)", &[small, plain]),
        ("ssd exists", &[large]),
        ("ssd not exists", &[small, plain]),
        ("cores < 32", &[small]),
        ("cores <= 8", &[small]),
        ("cores > 8", &[large]),
        ("cores >= 8", &[small, large]),
        ("cores = 8.0", &[small]),
        ("cores = '8.0'", &[]),
        ("cores in (8, 16)", &[small]),
        ("zone > 1", &[]),
        ("tape exists", &[]),
        ("tape != x", &[small, large, plain]),
    ] {
        let found = meeting(&mut world, controller, &nodes, text);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn all_of_what_is_required_must_hold() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[("zone", "eu-1")]);
    world.labelled(2, &[("ssd", "true")]);
    let both = world.labelled(3, &[("zone", "eu-1"), ("ssd", "true")]);
    let start = requiring("a", 1, &["zone = eu-1", "ssd exists", "node.cpus >= 1"]);
    assert_eq!(world.place_as(controller, start), Some(both));
}

#[test]
fn every_fact_can_be_required() {
    let (mut world, controller) = World::new().with_controller();
    let busy = world.silent_node(1);
    world.ready_as(busy, |report| {
        report.mem_total_mib = 2000;
        report.disk_total_mb = 20_000;
        report.cpus_online = 8;
        report.load = 3;
    });
    world.start_as(controller, request("failing", 100));
    world.start_failed(busy, "failing", StartFailureReason::LaunchFailure);
    world.start_as(controller, request("under way", 100));
    let idle = world.silent_node(2);
    world.ready_as(idle, |report| report.cpus_online = 4);
    let nodes = [busy, idle];
    let uuid = format!("node.uuid = {}", node_uuid(1));
    let host = format!("node.hostname = host-{}", busy.0);
    for text in [
        uuid.as_str(),
        &host,
        "node.cpus = 8",
        "node.load >= 3",
        "node.mem_total_mb > 1000",
        "node.disk_total_mb in (20000, 30000)",
        "node.mem_free_mb = 900",
        "node.mem_free_mb < 1000",
        "node.disk_free_mb <= 10000",
        "node.vcpus_free != 4",
        "node.instances = 1",
        "node.starts_under_way > 0",
        "node.failures = 1",
        "node.failures > 0.5",
    ] {
        let found = meeting(&mut world, controller, &nodes, text);
        assert!(found.contains(&busy), "{text}");
        let is_of_both = text.starts_with("node.disk_free_mb");
        assert_eq!(found.contains(&idle), is_of_both, "{text}");
    }
}

#[test]
fn of_a_fact_that_is_not_known_only_what_is_negative_holds() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    world.ready_as(node, |report| report.load = -1);
    for (text, holds) in [
        ("node.load < 5", false),
        ("node.load exists", false),
        ("node.load != 5", true),
        ("node.load not exists", true),
    ] {
        let found = meeting(&mut world, controller, &[node], text);
        assert_eq!(found == [node], holds, "{text}");
    }
}

#[test]
fn a_later_ready_replaces_labels_and_stats_may_change_them() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.labelled(1, &[("zone", "eu-1"), ("rack", "r1")]);
    world.ready_with(node, labels(&[("zone", "eu-2")]));
    let nodes = [node];
    let holds = |world: &mut World, text| !meeting(world, controller, &nodes, text).is_empty();
    assert!(!holds(&mut world, "zone = eu-1"));
    assert!(!holds(&mut world, "rack exists"));
    assert!(holds(&mut world, "zone = eu-2"));
    world.stats_saying(node, labels(&[("zone", "eu-2"), ("image.ubuntu", "true")]));
    assert!(holds(&mut world, "image.ubuntu exists"));
    world.stats(node, Vec::new());
    assert!(
        holds(&mut world, "image.ubuntu exists"),
        "a STATS that says nothing of labels leaves them"
    );
}

#[test]
fn a_later_ready_that_says_nothing_of_labels_leaves_them() {
    let (mut world, controller) = World::new().with_controller();
    for number in [1, 1] {
        // The second time as the same node over a newer connection.
        let node = world.labelled(number, &[("zone", "eu-1")]);
        world.ready_as(node, |_| ());
        world.ready_as(node, |_| ());
        let found = meeting(&mut world, controller, &[node], "zone = eu-1");
        assert_eq!(found, [node]);
    }
}

#[test]
fn labels_are_those_of_the_right_nodes_after_many_have_left() {
    let (mut world, controller) = World::new().with_controller();
    let nodes: Vec<_> = (0..100)
        .map(|number| world.labelled(number, &[("number", &number.to_string())]))
        .collect();
    for node in &nodes[..80] {
        world.cut(*node);
    }
    for (number, node) in nodes.iter().enumerate() {
        let start = requiring(&format!("i-{number}"), 1, &[&format!("number = {number}")]);
        let expected = (number >= 80).then_some(*node);
        assert_eq!(world.place_as(controller, start), expected, "{number}");
    }
}

#[test]
fn more_expressions_than_are_kept_still_find_their_nodes() {
    let (mut world, controller) = World::new().with_controller();
    let low = world.labelled(1, &[("slot", "1")]);
    let high = world.labelled(2, &[("slot", "1000")]);
    for round in 0..2 {
        for bound in 2..302 {
            let start = requiring(
                &format!("{round}-{bound}"),
                1,
                &[&format!("slot > {bound}")],
            );
            assert_eq!(world.place_as(controller, start), Some(high));
        }
        world.ready_with(low, labels(&[("slot", "0")]));
    }
}

#[test]
fn the_node_file_gives_takes_away_and_overrides() {
    let (mut world, controller) = World::with(Config {
        nodes: vec![
            NodeRule {
                node: NodeName::new(&node_uuid(1).to_string()),
                labels: vec![
                    ("zone".into(), Some("eu-9".into())),
                    ("ssd".into(), None),
                    ("rack".into(), Some("r1".into())),
                ],
                resources: vec![("gpu".into(), Some(1)), ("fpga".into(), None)],
                shares: None,
            },
            NodeRule {
                node: NodeName::new("elsewhere"),
                labels: vec![("zone".into(), Some("eu-8".into()))],
                resources: Vec::new(),
                shares: None,
            },
        ],
        ..config()
    })
    .with_controller();
    let node = world.silent_node(1);
    let reported = NodeExtras {
        labels: boxed(&[("zone", "eu-1"), ("ssd", "true"), ("os", "linux")]),
        ..resources(&[("gpu", 8), ("fpga", 1)])
    };
    world.ready_with(node, reported);
    let all = ["zone = eu-9", "ssd not exists", "rack = r1", "os = linux"];
    assert_eq!(
        world.place_as(controller, requiring("a", 1, &all)),
        Some(node)
    );
    assert_eq!(
        world.place_as(controller, needing("b", 1, "gpu", 1)),
        Some(node)
    );
    assert_eq!(world.place_as(controller, needing("c", 1, "gpu", 1)), None);
    assert_eq!(world.place_as(controller, needing("d", 1, "fpga", 1)), None);
    world.ready_as(node, |report| report.hostname = "elsewhere".into());
    assert_eq!(
        world.place_as(controller, requiring("e", 1, &["zone = eu-8"])),
        Some(node),
        "by the name it has now; the later rule counts"
    );
}

fn aggregate(name: &str) -> Aggregate {
    Aggregate {
        name: name.into(),
        ..Aggregate::default()
    }
}

fn with_aggregates(aggregates: Vec<Aggregate>) -> World {
    let rules = Rules {
        aggregates,
        ..Rules::default()
    };
    World::ruled(config(), rules)
}

#[test]
fn members_of_an_aggregate_are_named_or_selected_and_have_its_labels() {
    let mut world = with_aggregates(vec![Aggregate {
        nodes: vec![
            NodeName::new(&node_uuid(1).to_string()),
            NodeName::new("by-name"),
        ],
        select: expressions(&["cpu = zen5", "node.cpus >= 64"]),
        labels: boxed(&[("tier", "gold")]),
        ..aggregate("fast")
    }]);
    let controller = world.controller();
    let by_uuid = world.labelled(1, &[]);
    let by_name = world.silent_node(2);
    world.ready_as(by_name, |report| report.hostname = "by-name".into());
    let selected = world.labelled(3, &[("cpu", "zen5")]);
    let too_small = world.silent_node(4);
    world.ready_as(too_small, |report| {
        report.cpus_online = 8;
        report.extras = Some(Box::new(labels(&[("cpu", "zen5")])));
    });
    let nodes = [by_uuid, by_name, selected, too_small];
    for text in ["aggregate.fast exists", "tier = gold"] {
        let found = meeting(&mut world, controller, &nodes, text);
        assert_eq!(found, [by_uuid, by_name, selected], "{text}");
    }
    world.ready_with(selected, labels(&[("cpu", "zen4")]));
    world.ready_with(too_small, labels(&[("cpu", "zen5")]));
    let found = meeting(&mut world, controller, &nodes, "tier = gold");
    assert_eq!(found, [by_uuid, by_name, too_small], "as they are now");
}

#[test]
fn a_node_is_in_one_zone_and_of_two_the_first_counts() {
    let zone = |name: &str, node: u64| Aggregate {
        zone: Some(name.into()),
        nodes: vec![NodeName::new(&node_uuid(node).to_string())],
        ..aggregate(name)
    };
    let mut world = with_aggregates(vec![zone("eu-1", 1), zone("eu-2", 1), zone("eu-2", 2)]);
    let controller = world.controller();
    let first = world.labelled(1, &[("zone", "its-own")]);
    let second = world.labelled(2, &[]);
    let nodes = [first, second];
    for (text, expected) in [
        ("zone = eu-1", &[first][..]),
        ("zone = eu-2", &[second]),
        ("zone = its-own", &[]),
        ("aggregate.eu-2 exists", &[first, second]),
    ] {
        let found = meeting(&mut world, controller, &nodes, text);
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_set_of_nodes_cannot_hang_on_what_changes_by_itself() {
    for (text, is_lasting) in [
        ("node.cpus > 4", true),
        ("node.hostname = a", true),
        ("rack = r1", true),
        ("node.load < 1", false),
        ("node.instances = 0", false),
        ("node.mem_free_mb > 5", false),
        ("node.no_such_fact exists", false),
    ] {
        let selecting = Rules {
            aggregates: vec![Aggregate {
                select: expressions(&["zone = a", text]),
                ..aggregate("set")
            }],
            ..Rules::default()
        };
        let limiting = Rules {
            capacity: vec![CapacityRule {
                select: expressions(&["zone = a", text]),
                ..CapacityRule::default()
            }],
            ..Rules::default()
        };
        for (rules, key) in [
            (selecting, "aggregates[0].select[1]"),
            (limiting, "capacity[0].select[1]"),
        ] {
            let found = rules.check().map_err(|error| error.key);
            let expected = if is_lasting {
                Ok(())
            } else {
                Err(key.to_owned())
            };
            assert_eq!(found, expected, "{text}");
        }
    }
}

#[test]
fn what_a_node_says_under_the_schedulers_own_prefix_is_left_out() {
    let (mut world, controller) = World::new().with_controller();
    let pairs = [
        ("node.tenant", "mine"),
        ("node.cpus", "9999"),
        ("node.rack", "r1"),
    ];
    let node = world.labelled(1, &pairs);
    assert_eq!(
        world.place(controller, "anybody's", 1),
        Some(node),
        "it did not reserve itself"
    );
    for text in ["node.tenant exists", "node.cpus = 9999"] {
        let found = meeting(&mut world, controller, &[node], text);
        assert_eq!(found, [], "{text}");
    }
}

fn of_tenant(name: &str, tenant: Option<&str>) -> StartRequest {
    StartRequest {
        tenant: tenant.map(InstanceId::new),
        ..request(name, 1)
    }
}

fn reserved(tenants: &[&str]) -> World {
    with_aggregates(vec![Aggregate {
        nodes: vec![NodeName::new(&node_uuid(1).to_string())],
        tenants: tenants
            .iter()
            .map(|tenant| InstanceId::new(tenant))
            .collect(),
        ..aggregate("reserved")
    }])
}

#[test]
fn nodes_reserved_for_tenants_take_their_work_alone() {
    let mut world = reserved(&["blue", "3390740c-dce9-48d6-b83a-a717417072ce"]);
    let controller = world.controller();
    let theirs = world.labelled(1, &[]);
    for tenant in [
        Some("blue"),
        Some("3390740c-dce9-48d6-b83a-a717417072ce"),
        None,
        Some("red"),
        Some("blu"),
    ] {
        let name = format!("{tenant:?}");
        let placed = world.place_as(controller, of_tenant(&name, tenant));
        let is_theirs = tenant.is_some_and(|tenant| tenant == "blue" || tenant.len() == 36);
        assert_eq!(placed, is_theirs.then_some(theirs), "{name}");
    }
    let failure = world.refused(controller, of_tenant("x", Some("red")));
    assert_eq!(failure.reasons[0].reason, ReasonKind::Tenants);
    assert!(failure.never, "waiting does not make it theirs");
}

#[test]
fn tenants_with_nodes_of_their_own_may_use_anybodys() {
    let mut world = reserved(&["blue"]);
    let controller = world.controller();
    let anybodys = world.labelled(2, &[]);
    assert_eq!(
        world.place_as(controller, of_tenant("a", Some("blue"))),
        Some(anybodys)
    );
    let theirs = world.labelled(1, &[]);
    let nodes = [anybodys, theirs];
    let found = world.fitting(controller, of_tenant("b", Some("blue")), &nodes);
    assert_eq!(found, nodes);
    let found = world.fitting(controller, of_tenant("c", Some("red")), &nodes);
    assert_eq!(found, [anybodys]);
}

#[test]
fn a_pin_does_not_pass_by_the_other_filters() {
    let mut world = reserved(&["blue"]);
    let controller = world.controller();
    world.labelled(1, &[("zone", "eu-1")]);
    let other = world.labelled(2, &[("zone", "eu-2")]);
    let pinned = |name: &str, node: u64, text: &str| StartRequest {
        node_id: Some(node_uuid(node).to_string().into()),
        tenant: Some(InstanceId::new("red")),
        ..requiring(name, 1, &[text])
    };
    assert_eq!(
        world.place_as(controller, pinned("a", 1, "zone exists")),
        None,
        "reserved for others"
    );
    assert_eq!(
        world.place_as(controller, pinned("b", 2, "zone = eu-1")),
        None,
        "pin and requirement contradict each other"
    );
    let by_name = StartRequest {
        node_id: None,
        hostname: Some(format!("host-{}", other.0).into()),
        ..pinned("c", 2, "zone = eu-1")
    };
    assert_eq!(world.place_as(controller, by_name), None);
    assert_eq!(
        world.place_as(controller, pinned("d", 2, "zone = eu-2")),
        Some(other)
    );
    world.status(other, Kind::FULL);
    assert_eq!(
        world.place_as(controller, pinned("e", 2, "zone = eu-2")),
        None
    );
}

#[test]
fn node_and_host_name_must_both_be_right() {
    let (mut world, controller) = World::new().with_controller();
    let first = world.labelled(1, &[]);
    let second = world.labelled(2, &[]);
    for (host, expected) in [(first, Some(first)), (second, None)] {
        let start = StartRequest {
            node_id: Some(node_uuid(1).to_string().into()),
            hostname: Some(format!("host-{}", host.0).into()),
            ..request(&format!("on {}", host.0), 1)
        };
        assert_eq!(world.place_as(controller, start), expected);
    }
}

#[test]
fn capacity_rules_hold_where_their_labels_do_and_follow_a_node_that_moves() {
    let rules = Rules {
        capacity: vec![
            CapacityRule {
                cpu_ratio: Some(2.0),
                ..CapacityRule::default()
            },
            CapacityRule {
                select: expressions(&["zone = dense"]),
                mem_ratio: Some(1.5),
                ..CapacityRule::default()
            },
        ],
        ..Rules::default()
    };
    let (mut world, controller) = World::ruled(config(), rules).with_controller();
    let node = world.labelled(1, &[("zone", "plain")]);
    let nodes = [node];
    let free = |world: &mut World, mem: i64| {
        let text = format!("node.mem_free_mb = {mem}");
        let start = requiring(&text, 1, &[&text, "node.vcpus_free = 200"]);
        world.fitting(controller, start, &nodes) == nodes
    };
    assert!(free(&mut world, 1000));
    world.ready_with(node, labels(&[("zone", "dense")]));
    assert!(free(&mut world, 1500));
    assert_eq!(world.place(controller, "large", 1400), Some(node));
    world.ready_with(node, labels(&[("zone", "plain")]));
    assert_eq!(
        world.place(controller, "small", 1),
        None,
        "what is claimed stays claimed"
    );
}

#[test]
fn what_is_reserved_is_never_offered() {
    let rules = Rules {
        capacity: vec![CapacityRule {
            select: expressions(&["role = storage"]),
            reserved_cpus: Some(90),
            reserved_mem_mib: Some(600),
            reserved_disk_mib: Some(9000),
            ..CapacityRule::default()
        }],
        ..Rules::default()
    };
    let (mut world, controller) = World::ruled(config(), rules).with_controller();
    let node = world.labelled(1, &[("role", "storage")]);
    let asking = |name: &str, mem_mib, vcpus, disk_mib| {
        let mut start = request(name, mem_mib);
        (start.asked.vcpus, start.asked.disk_mib) = (vcpus, disk_mib);
        start
    };
    for (name, mem, vcpus, disk) in [("m", 401, 1, 1), ("c", 1, 11, 1), ("d", 1, 1, 1001)] {
        let placed = world.place_as(controller, asking(name, mem, vcpus, disk));
        assert_eq!(placed, None, "{name}");
    }
    let placed = world.place_as(controller, asking("all", 400, 10, 1000));
    assert_eq!(placed, Some(node));
}

#[test]
fn custom_resources_are_claimed_and_given_back() {
    let (mut world, controller) = World::new().with_controller();
    world.labelled(1, &[]);
    let node = world.silent_node(2);
    world.ready_with(node, resources(&[("gpu", 4), ("hugepages-2m", 512)]));
    for name in ["a", "b"] {
        let placed = world.place_as(controller, needing(name, 1, "gpu", 2));
        assert_eq!(placed, Some(node), "{name}");
    }
    assert_eq!(world.place_as(controller, needing("c", 1, "gpu", 1)), None);
    world.gone(node, Kind::INSTANCE_DELETED, "a");
    let both = Scheduling {
        resources: [("gpu".to_owned(), 2), ("hugepages-2m".to_owned(), 512)].into(),
        ..Scheduling::default()
    };
    assert_eq!(world.place_as(controller, asking("d", 1, both)), Some(node));
    assert_eq!(
        world.place_as(controller, needing("e", 1, "hugepages-2m", 1)),
        None
    );
    let none = world.place_as(controller, needing("f", 1, "tpu", 0));
    assert!(
        none.is_some(),
        "who asks for none of it needs nobody to have it"
    );
}

#[test]
fn after_a_restart_custom_resources_are_held_by_what_launchers_list() {
    let (mut world, controller) = World::new().with_controller();
    let node = world.silent_node(1);
    world.ready_with(node, resources(&[("gpu", 2)]));
    let mut listed = running("old", 10);
    listed.requested = Some(request("old", 10).asked);
    listed.custom = vec![("gpu".into(), 1)];
    world.stats(node, vec![listed]);
    assert_eq!(world.place_as(controller, needing("a", 1, "gpu", 2)), None);
    assert_eq!(
        world.place_as(controller, needing("b", 1, "gpu", 1)),
        Some(node)
    );
}
