//! What STARTs ask for, and their payloads.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use proto_frames::payload::{
    Batch, Group, GroupPolicy, OnNodeLoss, Payload, Requirements, Scheduling, Span, Start, Storage,
    Update,
};

use crate::names;

/// The custom resource of these machines.
pub(crate) const GPU: &str = "gpu";

/// Zones in which machines may be.
pub(crate) const ZONES: [&str; 2] = ["z1", "z2"];

/// Memory (MiB), vcpus, disk (MiB) and GPUs: of a machine, or asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amounts {
    pub(crate) mem: i64,
    pub(crate) vcpus: i64,
    pub(crate) disk: i64,
    pub(crate) gpus: i64,
}

impl Amounts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            mem: self.mem + other.mem,
            vcpus: self.vcpus + other.vcpus,
            disk: self.disk + other.disk,
            gpus: self.gpus + other.gpus,
        }
    }

    pub(crate) fn fits_into(self, capacity: Self) -> bool {
        self.mem <= capacity.mem
            && self.vcpus <= capacity.vcpus
            && self.disk <= capacity.disk
            && self.gpus <= capacity.gpus
    }
}

/// Draws a START that says nothing about its placement.
pub(crate) fn plain(chance: &mut Rng, instance: u32) -> Start {
    let disk = chance.i64(0..3);
    let storage = Storage {
        local: true,
        size: disk,
        ..Storage::default()
    };
    Start {
        instance_uuid: names::instance_uuid(instance),
        tenant_uuid: "tenant".to_owned(),
        vm_type: "process".to_owned(),
        command: vec!["/bin/work".to_owned()],
        storage: (disk > 0).then_some(storage).into_iter().collect(),
        requirements: Requirements {
            mem_mb: chance.i64(1..60),
            vcpus: chance.i64(0..4),
            ..Requirements::default()
        },
        ..Start::default()
    }
}

/// Draws a START that says something about its placement.
pub(crate) fn with_scheduling(chance: &mut Rng, instance: u32) -> Start {
    let mut scheduling = Scheduling::default();
    if chance.u8(..3) == 0 {
        let zone = ZONES[chance.usize(..ZONES.len())];
        let zone_is = format!("zone = {zone}").parse().expect("an expression");
        scheduling.require.push(zone_is);
    }
    if chance.bool() {
        scheduling.resources = BTreeMap::from([(GPU.to_owned(), chance.i64(1..3))]);
    }
    if chance.u8(..3) == 0 {
        let policies = [
            GroupPolicy::AntiAffinity,
            GroupPolicy::Affinity,
            GroupPolicy::SoftAntiAffinity,
        ];
        scheduling.group = Some(Group {
            id: format!("g{}", chance.u8(..3)),
            policy: policies[chance.usize(..3)].clone(),
            ..Group::default()
        });
    }
    if chance.bool() {
        scheduling.priority = Some(chance.i64(0..=100));
    }
    if chance.u8(..3) == 0 {
        scheduling.queue = Some(Span::from_ms(chance.u64(0..30_000)));
    }
    if chance.u8(..3) == 0 {
        scheduling.attempts = Some(chance.u32(1..=4));
    }
    scheduling.relocate = chance.bool().then_some(true);
    if chance.u8(..3) == 0 {
        scheduling.on_node_loss = OnNodeLoss::Restart;
    }
    Start {
        scheduling: Some(scheduling),
        ..plain(chance, instance)
    }
}

/// Draws a START that waits for room, and asks for much of it.
pub(crate) fn waiting(chance: &mut Rng, instance: u32) -> Start {
    let start = plain(chance, instance);
    let requirements = Requirements {
        mem_mb: chance.i64(20..100),
        ..start.requirements
    };
    let restarts = [OnNodeLoss::Report, OnNodeLoss::Restart];
    Start {
        requirements,
        scheduling: Some(Scheduling {
            priority: Some([10, 50, 50, 90][chance.usize(..4)]),
            queue: Some(Span::from_ms(chance.u64(1_000..120_000))),
            attempts: Some(chance.u32(1..=4)),
            relocate: chance.bool().then_some(true),
            on_node_loss: restarts[chance.usize(..2)].clone(),
            ..Scheduling::default()
        }),
        ..start
    }
}

/// The same START as a member of a group, in which it depends on the place alone whether it has room as a rule.
pub(crate) fn of_group(start: Start, instance: u32) -> Start {
    let kind = instance % 3;
    let group = Group {
        id: format!("apart-{kind}"),
        policy: GroupPolicy::AntiAffinity,
        max: (kind == 0).then_some(2),
        ..Group::default()
    };
    let requirements = Requirements {
        mem_mb: 1 + start.requirements.mem_mb / 8,
        vcpus: start.requirements.vcpus.min(1),
        ..start.requirements
    };
    let scheduling = Scheduling {
        group: Some(group),
        resources: BTreeMap::new(),
        require: Vec::new(),
        ..start.scheduling.unwrap_or_default()
    };
    Start {
        requirements,
        scheduling: Some(scheduling),
        ..start
    }
}

/// The same START with one of few names: as a rule another instance has that name, or had it.
pub(crate) fn called(start: Start, instance: u32) -> Start {
    let scheduling = Scheduling {
        name: format!("name-{}", instance % 5),
        ..start.scheduling.unwrap_or_default()
    };
    Start {
        scheduling: Some(scheduling),
        ..start
    }
}

/// Draws a change of what an instance asks for.
pub(crate) fn change(chance: &mut Rng) -> Update {
    Update {
        mem_mb: chance.bool().then(|| chance.i64(1..90)),
        vcpus: chance.bool().then(|| chance.i64(0..4)),
        disk_mb: (chance.u8(..4) == 0).then(|| chance.i64(0..3) * 1024),
        priority: (chance.u8(..3) == 0).then(|| chance.i64(0..=100)),
        may_move: chance.bool(),
        ..Update::default()
    }
}

/// Draws one START of a batch.
pub(crate) fn of_batch(chance: &mut Rng, instance: u32, id: u32, count: u32) -> Start {
    in_batch(plain(chance, instance), id, count)
}

/// The same START as one of a batch.
pub(crate) fn in_batch(start: Start, id: u32, count: u32) -> Start {
    let batch = Some(Batch {
        id: format!("b{id}"),
        count,
    });
    Start {
        scheduling: Some(Scheduling {
            batch,
            ..start.scheduling.unwrap_or_default()
        }),
        ..start
    }
}

/// The payload of a START, as controllers send it.
pub(crate) fn payload(start: &Start) -> Bytes {
    start.encode()
}
