//! Claims of all instances, a step at a time.

use proto_frames::payload::Scheduling;
use sched_core::{ClaimsCursor, InstanceId, StartRequest};

use crate::support::words::asking;
use crate::support::world::{World, request, running};

/// Instances of the node that has more than one step shows.
const MANY: u64 = 2_345;

/// The instances of a tenant, by all steps; of `None` those without one.
fn of(world: &World, tenant: Option<&str>) -> Vec<String> {
    let tenant = tenant.map(InstanceId::new);
    let mut found = Vec::new();
    let (mut cursor, mut steps) = (Some(ClaimsCursor::default()), 0);
    while let Some(from) = cursor {
        let is_wanted = |of: Option<&InstanceId>| of == tenant.as_ref();
        cursor = world
            .scheduler
            .visit_claims(from, &is_wanted, &mut |claimed| {
                found.push(claimed.instance.to_string());
            });
        steps += 1;
    }
    assert!(steps > 2, "{steps} steps");
    found.sort();
    found
}

#[test]
fn every_claim_is_shown_once_and_by_its_tenant() {
    let (mut world, controller) = World::new().with_controller();
    let nodes = [1, 2, 3].map(|number| world.node_with(number, 100));
    let rows = (0..MANY).map(|number| running(&format!("r{number:04}"), 0));
    world.stats(nodes[1], rows.collect());
    let of_red = |name: &str, scheduling: Scheduling| StartRequest {
        tenant: Some(InstanceId::new("red")),
        ..asking(name, 1, scheduling)
    };
    let plain = StartRequest {
        scheduling: None,
        ..of_red("plain", Scheduling::default())
    };
    let managed = Scheduling {
        name: "web".to_owned(),
        ..Scheduling::default()
    };
    for start in [plain, of_red("named", managed), request("nobodys", 1)] {
        assert!(world.place_as(controller, start).is_some());
    }
    assert_eq!(of(&world, Some("red")), ["named", "plain"]);
    let rest = of(&world, None);
    assert_eq!(rest.len() as u64, MANY + 1);
    let mut once = rest.clone();
    once.dedup();
    assert_eq!(once, rest);
    assert_eq!(of(&world, Some("blue")), [""; 0]);
}
