//! Every filter, one by one, in a policy that lists it alone: a START that it turns away is not placed on the short way for
//! STARTs that ask for room alone.

use proto_frames::Kind;
use proto_frames::payload::{GroupPolicy, OnNodeLoss, Scheduling, Span};
use sched_core::{
    Aggregate, FilterRule, InstanceId, NodeExtras, NodeName, PolicyRules, Rules, SessionId,
    StartRequest, VmType, VmTypes,
};

use crate::support::words::{asking, group, member, near, requiring};
use crate::support::world::{World, config, node_uuid, request, running};

/// The filters, and the limit that one has.
const FILTERS: [(&str, Option<i64>); 20] = [
    ("pin", None),
    ("avoid", None),
    ("tenants", None),
    ("lease", None),
    ("vm_type", None),
    ("images", None),
    ("image-fetch", None),
    ("run-limits", None),
    ("aggregate-instances", None),
    ("aggregate-starts", None),
    ("labels", None),
    ("near", None),
    ("group", None),
    ("same-node", None),
    ("different-node", None),
    ("volumes", None),
    ("starts-under-way", Some(1)),
    ("instances", Some(1)),
    ("load", Some(5)),
    ("load_per_cpu", Some(1)),
];

fn policy(name: &str, max: Option<i64>) -> PolicyRules {
    let name = name.into();
    PolicyRules {
        filters: Some(vec![FilterRule { name, max }]),
        relocation: true,
        ..PolicyRules::default()
    }
}

/// A START of an image that has to be fetched where it is not.
fn of_image(image: &str) -> StartRequest {
    StartRequest {
        image: Some(image.into()),
        fetches_image: true,
        ..request("x", 1)
    }
}

/// A START that its launcher has to end in time.
fn limited() -> StartRequest {
    let scheduling = Scheduling {
        time_limit: Some(Span::from_ms(600_000)),
        ..Scheduling::default()
    };
    asking("x", 1, scheduling)
}

/// A node says that its launcher runs processes alone.
fn runs_processes(world: &mut World, node: SessionId) {
    let extras = NodeExtras {
        vm_types: Some(VmTypes::from_names(["process"])),
        ..NodeExtras::default()
    };
    world.ready_with(node, extras);
}

/// A START that this filter turns away from the only node, once what it has to do with is there.
fn turned_away(
    filter: &str,
    world: &mut World,
    controller: SessionId,
    node: SessionId,
) -> StartRequest {
    match filter {
        "pin" => StartRequest {
            node_id: Some(node_uuid(2).to_string().into()),
            ..request("x", 1)
        },
        "lease" => {
            let scheduling = Scheduling {
                on_node_loss: OnNodeLoss::Restart,
                ..Scheduling::default()
            };
            asking("x", 1, scheduling)
        }
        "vm_type" => {
            runs_processes(world, node);
            StartRequest {
                vm_type: Some(VmType::Qemu),
                ..request("x", 1)
            }
        }
        "image-fetch" => of_image("sha256_1"),
        "run-limits" => limited(),
        "labels" => requiring("x", 1, &["zone = a"]),
        "near" => near("x", "volume", "node", true),
        "group" => {
            let web = group("web", GroupPolicy::AntiAffinity);
            world.place_as(controller, member("first", &web));
            member("x", &web)
        }
        "starts-under-way" | "instances" => {
            world.place(controller, "first", 1);
            request("x", 1)
        }
        "same-node" => {
            let scheduling = Scheduling {
                same_node: vec!["nowhere".to_owned()],
                ..Scheduling::default()
            };
            asking("x", 1, scheduling)
        }
        "different-node" => {
            world.place(controller, "first", 1);
            let scheduling = Scheduling {
                different_node: vec!["first".to_owned()],
                ..Scheduling::default()
            };
            asking("x", 1, scheduling)
        }
        "volumes" => {
            let other = world.labelled(2, &[]);
            let extras = NodeExtras {
                volumes: vec!["v".into()],
                ..NodeExtras::default()
            };
            world.ready_with(other, extras);
            world.status(other, Kind::FULL);
            StartRequest {
                volumes: ["v".into()].into(),
                ..request("x", 1)
            }
        }
        "load_per_cpu" => {
            world.ready_as(node, |report| report.load = report.cpus_online + 1);
            request("x", 1)
        }
        "load" => {
            world.ready_as(node, |report| report.load = 6);
            request("x", 1)
        }
        _ => request("x", 1),
    }
}

#[test]
fn no_filter_is_passed_over_where_it_is_the_only_one_that_is_listed() {
    for (filter, max) in FILTERS {
        let reserved = Aggregate {
            name: "reserved".into(),
            nodes: vec![NodeName::new(&node_uuid(1).to_string())],
            ..Aggregate::default()
        };
        let rules = Rules {
            aggregates: match filter {
                "tenants" => vec![Aggregate {
                    tenants: vec![InstanceId::new("blue")],
                    ..reserved
                }],
                "images" => vec![Aggregate {
                    images: vec!["web".into()],
                    images_only: true,
                    ..reserved
                }],
                "aggregate-instances" => vec![Aggregate {
                    max_instances: Some(0),
                    ..reserved
                }],
                "aggregate-starts" => vec![Aggregate {
                    max_starts: Some(0),
                    ..reserved
                }],
                _ => Vec::new(),
            },
            policy: policy(filter, max),
            ..Rules::default()
        };
        let mut world = World::ruled(config(), rules);
        let controller = world.controller();
        let node = world.labelled(1, &[]);
        let start = turned_away(filter, &mut world, controller, node);
        world.look_away();
        let mut found = world.place_as(controller, start);
        if filter == "avoid" {
            assert_eq!(found, Some(node));
            world.stats(node, vec![running("x", 1)]);
            world.migrate(controller, "x", None);
            assert_eq!(world.command_failures(controller).len(), 1);
            found = world.placements().pop().map(|(_, node)| node);
        }
        assert_eq!(found, None, "{filter} is asked");
    }
}

#[test]
fn these_are_all_the_filters_there_are() {
    let rules = Rules {
        policy: policy("none", None),
        ..Rules::default()
    };
    let error = rules.check().expect_err("there is no such filter");
    let names = FILTERS.map(|(name, _)| name).join(", ");
    let expected = format!("there is no filter 'none'; there are {names}");
    assert!(
        error.to_string().ends_with(&expected),
        "a filter is missing in FILTERS above, or too many are there: {error}"
    );
}
