//! The queue against a sorted list, and its rules one by one.

mod bounds;
mod histories;
mod oracle;
mod rule;

use std::sync::Arc;
use std::time::Instant;

use sched_model::{Expression, Scheduling, Uuid};

use super::{AllowedNodes, Purpose, Queue, Room, Shape, Waiter};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;

/// Instance `number`.
fn instance(number: u64) -> InstanceId {
    InstanceId::new(&format!("i-{number}"))
}

/// So much memory, vcpus and disk.
fn amounts(mem_mib: i64, vcpus: i64, disk_mib: i64) -> Resources {
    Resources {
        mem_mib,
        vcpus,
        disk_mib,
    }
}

/// A request with nothing in it but an instance.
fn request(number: u64) -> StartRequest {
    StartRequest::plain(instance(number))
}

/// The shape that asks for a label with this number; [`label`] reads it.
fn labelled(label: u64) -> Shape {
    let require = vec![format!("label = {label}").parse::<Expression>().unwrap()];
    shape_of(StartRequest {
        scheduling: Some(Box::new(Scheduling {
            require,
            ..Scheduling::default()
        })),
        ..request(0)
    })
}

/// The shape of a request.
fn shape_of(request: StartRequest) -> Shape {
    Shape::of(&Query::of(&Arc::new(request)))
}

/// The number of the label that a shape asks for.
fn label(shape: &Shape) -> Option<u64> {
    let scheduling = shape.query().scheduling()?;
    let text = scheduling.require.first()?.as_str();
    text.rsplit(' ').next()?.parse().ok()
}

/// One that waits for so much, anywhere, with this order and priority.
fn waiter(order: u64, priority: u8, asked: Resources) -> Waiter {
    Waiter {
        instance: instance(order),
        pool: Pool::Compute,
        priority,
        order,
        asked,
        place: AllowedNodes::Anywhere,
        purpose: Purpose::Start,
        shape: Arc::new(shape_of(request(order))),
        bytes: 1,
        is_operators: false,
        deadline: None,
    }
}

/// Node `number`, with so much free; two nodes each have the same host name.
fn room(number: u32, free: Resources) -> Room<'static> {
    const HOSTS: [&str; 4] = ["host-0", "host-1", "host-2", "host-3"];
    Room {
        node: NodeKey(number),
        uuid: Uuid::from_u128(u128::from(number)),
        hostname: HOSTS[number as usize / 2 % HOSTS.len()],
        free,
    }
}

/// Some moment to count from.
fn epoch() -> Instant {
    crate::simulated::start()
}

/// Puts all of them in.
fn queue_of(waiters: impl IntoIterator<Item = Waiter>) -> Queue {
    let mut queue = Queue::default();
    for waiter in waiters {
        queue.push(waiter).unwrap();
    }
    queue.invariants().unwrap();
    queue
}
