//! What the simulated nodes have, and what STARTs ask of them, from a seed.

use std::collections::BTreeMap;

use bytes::Bytes;
use fastrand::Rng;
use proto_frames::Uuid;
use proto_frames::payload::scheduling::{Group, GroupPolicy, Scheduling};
use sched_core::{Input, InstanceId, NodeExtras, NodeReport, Resources, SessionId};

use crate::driven;

/// Zones, each of which is whole in one cell or in several.
pub(crate) const ZONES: usize = 10;

/// Nodes of a rack.
const RACK: usize = 20;

/// Members of a group that is to be together, and of one that is to be apart.
const TOGETHER: u32 = 8;
const APART: u32 = 16;

/// More disk than is ever asked for.
const DISK_MIB: i64 = 1 << 30;

pub(crate) const GIB: i64 = 1024;

/// A node, as it is when nothing runs on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) number: usize,
    pub(crate) mem_gib: i64,
    pub(crate) vcpus: i64,
    pub(crate) gpus: i64,
    pub(crate) has_ssd: bool,
    pub(crate) zone: usize,
}

impl Machine {
    /// So many: 64 GiB and 32 CPUs, one in five twice that; one in twenty has an SSD, anywhere; one in a hundred has 8
    /// GPUs, all of them in the first twentieth.
    pub(crate) fn some(seed: u64, count: usize) -> Vec<Self> {
        let mut rng = Rng::with_seed(seed ^ 0x6e6f_6465);
        let one = |number| {
            let size = if rng.u32(..5) == 0 { 2 } else { 1 };
            let has_gpus = number < count / 20 && number % 5 == 0;
            Self {
                number,
                mem_gib: 64 * size,
                vcpus: 32 * size,
                gpus: if has_gpus { 8 } else { 0 },
                has_ssd: rng.u32(..20) == 0,
                zone: number * ZONES / count,
            }
        };
        (0..count).map(one).collect()
    }

    /// What it reports.
    pub(crate) fn report(&self) -> NodeReport {
        let mut labels = vec![
            (
                "rack".into(),
                format!("rack-{}", self.number / RACK).into_boxed_str(),
            ),
            (
                "zone".into(),
                format!("zone-{}", self.zone).into_boxed_str(),
            ),
        ];
        if self.has_ssd {
            labels.insert(1, ("ssd".into(), "true".into()));
        }
        NodeReport {
            addresses: Box::default(),
            mem_total_mib: self.mem_gib * GIB,
            mem_available_mib: self.mem_gib * GIB,
            disk_total_mb: DISK_MIB,
            disk_available_mb: DISK_MIB,
            load: 1,
            cpus_online: self.vcpus,
            hostname: format!("node-{}", self.number).into(),
            extras: Some(Box::new(NodeExtras {
                labels,
                resources: vec![("gpu".into(), self.gpus)],
                ..NodeExtras::default()
            })),
        }
    }
}

/// What a START asks for beside memory and CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Want {
    Nothing,
    /// A label that one node in twenty has, all over the cells.
    Ssd,
    /// So many of what one node in a hundred has, in few cells.
    Gpus(i64),
    Zone(usize),
    /// In the rack of the others of this group.
    Together(u32),
    /// On no node of others of this group.
    Apart(u32),
}

impl Want {
    /// A place for each in a table.
    pub(crate) fn place(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Ssd => 1,
            Self::Gpus(_) => 2,
            Self::Zone(_) => 3,
            Self::Together(_) => 4,
            Self::Apart(_) => 5,
        }
    }
}

/// A START.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) mem_gib: i64,
    pub(crate) vcpus: i64,
    pub(crate) want: Want,
}

impl Request {
    pub(crate) fn instance(&self) -> InstanceId {
        InstanceId::Uuid(Uuid::from_u128(u128::from(self.number)))
    }

    /// What the core is given.
    pub(crate) fn input(&self) -> Input {
        let asked = Resources {
            mem_mib: self.mem_gib * GIB,
            vcpus: self.vcpus,
            disk_mib: 1,
        };
        driven::start(self.number, asked, self.scheduling(), Bytes::new())
    }

    fn scheduling(&self) -> Option<Box<Scheduling>> {
        let mut scheduling = Scheduling::default();
        let require = |text: String| vec![text.parse().expect("it is well-formed")];
        match self.want {
            Want::Nothing => return None,
            Want::Ssd => scheduling.require = require("ssd = true".to_owned()),
            Want::Gpus(count) => {
                scheduling.resources = BTreeMap::from([("gpu".to_owned(), count)]);
            }
            Want::Zone(zone) => scheduling.require = require(format!("zone = zone-{zone}")),
            Want::Together(id) => {
                scheduling.group = Some(Group {
                    id: format!("together-{id}"),
                    policy: GroupPolicy::Affinity,
                    scope: "rack".to_owned(),
                    max: None,
                });
            }
            Want::Apart(id) => {
                scheduling.group = Some(Group {
                    id: format!("apart-{id}"),
                    policy: GroupPolicy::AntiAffinity,
                    ..Group::default()
                });
            }
        }
        Some(Box::new(scheduling))
    }
}

/// What kind of STARTs come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Many small ones: 1 to 8 GiB and 1 to 4 CPUs.
    Small,
    /// The same, and 3 in 100 that take 56 to 60 GiB and 28 CPUs, nearly the whole of a usual node.
    Mixed,
    /// Small ones, of which one in three wants more than room.
    Constrained,
}

/// STARTs of a kind, one after the other, from a seed.
#[derive(Debug)]
pub(crate) struct Workload {
    kind: Kind,
    rng: Rng,
    number: u64,
    together: u32,
    apart: u32,
}

impl Workload {
    pub(crate) fn new(kind: Kind, seed: u64) -> Self {
        Self {
            kind,
            rng: Rng::with_seed(seed ^ 0x7374_6172),
            number: 0,
            together: 0,
            apart: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Request {
        self.number += 1;
        let is_large = self.kind == Kind::Mixed && self.rng.u32(..100) < 3;
        let (mem_gib, vcpus) = match is_large {
            true => (self.rng.i64(56..=60), 28),
            false => (self.rng.i64(1..=8), self.rng.i64(1..=4)),
        };
        let want = match self.kind {
            Kind::Constrained => self.want(),
            _ => Want::Nothing,
        };
        Request {
            number: self.number,
            mem_gib,
            vcpus,
            want,
        }
    }

    /// Shares that fill what few nodes have about as fast as the rest.
    fn want(&mut self) -> Want {
        match self.rng.u32(..1000) {
            0..2 => Want::Gpus(1 << self.rng.u32(..3)),
            2..32 => Want::Ssd,
            32..182 => Want::Zone(self.rng.usize(..ZONES)),
            182..282 => {
                self.apart += 1;
                Want::Apart(self.apart / APART)
            }
            282..332 => {
                self.together += 1;
                Want::Together(self.together / TOGETHER)
            }
            _ => Want::Nothing,
        }
    }
}

/// The session of the node in this place of its cell, and the place of a session.
pub(crate) fn place(session: SessionId) -> usize {
    (session.0 - driven::session(0).0) as usize
}
