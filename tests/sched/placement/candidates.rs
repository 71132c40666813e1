//! Candidates against a naive walk over the nodes, in the order of the choice, over random clusters; and that asking for them
//! changes nothing.

use std::sync::Arc;

use fastrand::Rng;
use proto_frames::Uuid;
use proto_frames::payload::Scheduling;
use sched_core::{
    Aggregate, Constraint, Having, NodeExtras, NodeName, Rules, SessionId, StartRequest,
};

use crate::support::seeds::for_each_seed;
use crate::support::words::{asking, boxed};
use crate::support::world::{World, config, node_uuid, request};

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 40;

const ZONES: [&str; 3] = ["eu", "us", "asia"];

/// A node as the walk knows it.
struct Node {
    uuid: Uuid,
    session: SessionId,
    mem: i64,
    gpus: i64,
    zone: usize,
    is_member: bool,
}

struct Pair {
    world: World,
    controller: SessionId,
    nodes: Vec<Node>,
    most_recently_used: Option<Uuid>,
    started: u32,
    chance: Rng,
}

/// What is asked for: memory, GPUs, zones that are wanted or forbidden, and whether members of the aggregate are.
#[derive(Debug)]
struct Asked {
    mem: i64,
    gpus: i64,
    zones: Option<(Vec<usize>, bool)>,
    members: Option<bool>,
}

#[test]
fn candidates_are_those_that_a_walk_over_all_nodes_finds() {
    for_each_seed(SEEDS, |seed| {
        let mut pair = Pair::new(seed);
        for _ in 0..60 {
            pair.step();
        }
        pair.world.check();
    });
}

impl Node {
    fn fits(&self, asked: &Asked) -> bool {
        let zone = asked.zones.as_ref();
        let is_member = asked.members;
        self.mem >= asked.mem
            && (asked.gpus == 0 || self.gpus >= asked.gpus)
            && zone.is_none_or(|(zones, is_forbidden)| zones.contains(&self.zone) != *is_forbidden)
            && is_member.is_none_or(|is_forbidden| self.is_member != is_forbidden)
    }
}

impl Asked {
    fn any(chance: &mut Rng) -> Self {
        let is_one_of = |chance: &mut Rng| chance.u8(..3) == 0;
        let zones = is_one_of(chance).then(|| {
            let count = chance.usize(..3);
            let zones = (0..count).map(|_| chance.usize(..ZONES.len())).collect();
            (zones, chance.bool())
        });
        Self {
            mem: chance.i64(0..600),
            gpus: if is_one_of(chance) {
                chance.i64(1..4)
            } else {
                0
            },
            zones,
            members: is_one_of(chance).then(|| chance.bool()),
        }
    }

    fn start(&self, name: &str) -> StartRequest {
        if self.gpus == 0 {
            return request(name, self.mem);
        }
        let scheduling = Scheduling {
            resources: [("gpu".to_owned(), self.gpus)].into(),
            ..Scheduling::default()
        };
        asking(name, self.mem, scheduling)
    }

    fn constraints(&self) -> Vec<Constraint> {
        let zones = self.zones.iter().map(|(zones, is_forbidden)| Constraint {
            any_of: zones
                .iter()
                .map(|&zone| Having::Label("zone".into(), ZONES[zone].into()))
                .collect(),
            is_forbidden: *is_forbidden,
        });
        let members = self.members.iter().map(|is_forbidden| Constraint {
            any_of: vec![Having::Aggregate("ssd".into())],
            is_forbidden: *is_forbidden,
        });
        zones.chain(members).collect()
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let count = chance.u64(1..150);
        let members: Vec<u64> = (0..count).filter(|_| chance.bool()).collect();
        let aggregate = Aggregate {
            name: "ssd".into(),
            nodes: members
                .iter()
                .map(|it| NodeName::Uuid(node_uuid(*it)))
                .collect(),
            ..Aggregate::default()
        };
        let rules = Rules {
            aggregates: vec![aggregate],
            ..Rules::default()
        };
        let mut world = World::ruled(config(), rules).check_every(64);
        let controller = world.controller();
        let nodes = (0..count).map(|number| {
            let (zone, gpus) = (chance.usize(..ZONES.len()), chance.i64(0..4));
            let session = world.silent_node(number);
            let extras = NodeExtras {
                labels: boxed(&[("zone", ZONES[zone])]),
                resources: vec![("gpu".into(), gpus)],
                ..NodeExtras::default()
            };
            world.ready_with(session, extras);
            Node {
                uuid: node_uuid(number),
                session,
                mem: 1000,
                gpus,
                zone,
                is_member: members.contains(&number),
            }
        });
        let nodes = nodes.collect();
        Self {
            world,
            controller,
            nodes,
            most_recently_used: None,
            started: 0,
            chance,
        }
    }

    fn step(&mut self) {
        let asked = Asked::any(&mut self.chance);
        let limit = self.chance.usize(..200);
        let expected = self.walk(&asked);
        let start = Arc::new(asked.start("candidate"));
        let constraints = asked.constraints();
        let question = (&start, &constraints[..]);
        for limit in [limit, usize::MAX, 0, 1] {
            let now = self.world.now;
            let found = self.world.scheduler.candidates(now, question, limit);
            let expected: Vec<Uuid> = expected.iter().copied().take(limit).collect();
            assert_eq!(found, expected, "{asked:?}, limit {limit}");
        }
        self.place();
    }

    /// The nodes that fit, beginning behind the one used last.
    fn walk(&self, asked: &Asked) -> Vec<Uuid> {
        let used = self.most_recently_used;
        let at = self.nodes.iter().position(|node| Some(node.uuid) == used);
        let (before, after) = self.nodes.split_at(at.map_or(0, |at| at + 1));
        let nodes = after.iter().chain(before).filter(|node| node.fits(asked));
        nodes.map(|node| node.uuid).collect()
    }

    /// A START goes to the first candidate, whatever was asked for before it.
    fn place(&mut self) {
        let asked = Asked {
            zones: None,
            members: None,
            ..Asked::any(&mut self.chance)
        };
        let expected = self.walk(&asked).first().copied();
        self.started += 1;
        let start = asked.start(&format!("i{}", self.started));
        let placed = self.world.place_as(self.controller, start);
        let node = self
            .nodes
            .iter_mut()
            .find(|node| Some(node.session) == placed);
        assert_eq!(node.as_ref().map(|node| node.uuid), expected, "{asked:?}");
        if let Some(node) = node {
            node.mem -= asked.mem;
            node.gpus -= asked.gpus;
            self.most_recently_used = Some(node.uuid);
        }
        self.world.look_away();
    }
}
