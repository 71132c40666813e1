//! The choice against the original's loop, written out literally, with the one addition to it (nodes that called themselves
//! full are tried last), over random histories of up to 150 nodes: compute and
//! network nodes and such that are both, with and without custom resources, which come, report, change their status, are
//! lost, come back, and leave for good; and claims released in every way. More seeds, or one: see `seeds`.

use std::time::Duration;

use fastrand::Rng;
use proto_frames::payload::{Scheduling, StartFailureReason};
use proto_frames::{Kind, Role};
use sched_core::{
    Dialect, InstanceReport, NodeExtras, NodeReport, Report, Resources, SessionId, StartRequest,
};

use crate::support::seeds::for_each_seed;
use crate::support::world::{Size, World, id, node_uuid, report, request, running};

/// Steps of one run.
const STEPS: u32 = 2500;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 24;

/// Longer than claims on a lost node are kept.
const FORGOTTEN: Duration = Duration::from_secs(16);

const CUSTOM: [&str; 3] = ["gpu", "fpga", "nic"];

/// One of the original's two tables: nodes in order of connection, and which was used last.
#[derive(Default)]
struct Order {
    nodes: Vec<u64>,
    most_recently_used: Option<u64>,
}

struct Node {
    number: u64,
    roles: Role,
    session: Option<SessionId>,
    is_ready: bool,
    /// What was released less what was claimed since it called itself full, while that is its latest word.
    released: Option<Resources>,
    total: Size,
    available: Size,
    custom: [i64; 3],
    instances: Vec<Instance>,
}

struct Instance {
    name: String,
    asked: Resources,
    custom: [i64; 3],
    used: i64,
    is_listed: bool,
}

/// Both sides of the comparison.
struct Pair {
    world: World,
    chance: Rng,
    controller: SessionId,
    orders: [Order; 2],
    nodes: Vec<Node>,
    joined: u64,
    started: u32,
    /// Most nodes in this run.
    most: usize,
}

#[test]
fn the_choice_is_always_the_originals() {
    for_each_seed(SEEDS, |seed| {
        let mut pair = Pair::new(seed);
        for _ in 0..STEPS {
            pair.step();
        }
        pair.world.check();
    });
}

impl Node {
    fn fits(&self, asked: &Resources, custom: &[i64; 3]) -> bool {
        let sum = |of: &dyn Fn(&Instance) -> i64| self.instances.iter().map(of).sum::<i64>();
        // An unknown figure fits nothing, whatever is asked.
        let known = |figure: i64, free: i64, asked: i64| figure >= 0 && free >= asked;
        let unused = sum(&|it| (it.asked.mem_mib - it.used).max(0));
        let mem = self.available.mem - unused;
        let mem = mem.min(self.total.mem - sum(&|it| it.asked.mem_mib));
        let cpus = self.total.cpus - sum(&|it| it.asked.vcpus);
        let disk = self.available.disk - sum(&|it| it.asked.disk_mib);
        let has_custom = |at: usize| {
            let free = self.custom[at] - sum(&|it| it.custom[at]);
            custom[at] == 0 || free >= custom[at]
        };
        self.is_ready
            && known(self.available.mem, mem, asked.mem_mib)
            && known(self.total.cpus, cpus, asked.vcpus)
            && known(self.available.disk, disk, asked.disk_mib)
            && (0..3).all(has_custom)
    }

    /// Whether it fits although it called itself full: what was released since covers what is asked, and what it has in
    /// all is not asked for by what it has.
    fn fits_again(&self, asked: &Resources, custom: &[i64; 3]) -> bool {
        let Some(released) = self.released else {
            return false;
        };
        let sum = |of: &dyn Fn(&Instance) -> i64| self.instances.iter().map(of).sum::<i64>();
        let room = |released: i64, total: i64, asked_for: i64| {
            let released = released.max(0);
            if total < 0 {
                released
            } else {
                released.min(total - asked_for)
            }
        };
        let mem = room(
            released.mem_mib,
            self.total.mem,
            sum(&|it| it.asked.mem_mib),
        );
        let cpus = room(released.vcpus, self.total.cpus, sum(&|it| it.asked.vcpus));
        let disk = room(
            released.disk_mib,
            self.total.disk,
            sum(&|it| it.asked.disk_mib),
        );
        let has_custom = |at: usize| {
            let free = self.custom[at] - sum(&|it| it.custom[at]);
            custom[at] == 0 || free >= custom[at]
        };
        (released.mem_mib > 0 || released.vcpus > 0 || released.disk_mib > 0)
            && self.available.mem >= 0
            && self.total.cpus >= 0
            && self.available.disk >= 0
            && mem >= asked.mem_mib
            && cpus >= asked.vcpus
            && disk >= asked.disk_mib
            && (0..3).all(has_custom)
    }

    /// An instance has left it, or come.
    fn note_released(&mut self, asked: &Resources, sign: i64) {
        if let Some(released) = &mut self.released {
            released.mem_mib += sign * asked.mem_mib;
            released.vcpus += sign * asked.vcpus;
            released.disk_mib += sign * asked.disk_mib;
        }
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::new().check_every(64).with_controller();
        Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            orders: Default::default(),
            nodes: Vec::new(),
            joined: 0,
            started: 0,
            most: [10, 70, 150][seed as usize % 3],
        }
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.nodes.len().max(1));
        if self.nodes.is_empty() {
            return self.join();
        }
        match self.chance.u16(..200) {
            0..14 => self.join_some(),
            // Many leave at once, so that tables close their holes.
            14 if self.chance.u8(..4) == 0 => (0..self.most / 2).for_each(|_| self.leave_any()),
            15..18 => self.leave_any(),
            18..22 => self.lose(at),
            22..34 => self.come_back(at),
            34..75 => self.ready(at),
            75..83 => self.change_status(at),
            83..92 => self.stats(at),
            92..110 => self.end_one(at),
            _ => self.start(),
        }
        self.world.look_away();
    }

    /// The original's loop; and only where that finds nothing, the same over nodes that called themselves full.
    fn choose(&mut self, pool: usize, asked: &Resources, custom: &[i64; 3]) -> Option<u64> {
        let ready = self.first(pool, &|node| node.fits(asked, custom));
        ready.or_else(|| self.first(pool, &|node| node.fits_again(asked, custom)))
    }

    fn first(&mut self, pool: usize, fits: &dyn Fn(&Node) -> bool) -> Option<u64> {
        let order = &self.orders[pool];
        let mru = order.most_recently_used;
        let at = order.nodes.iter().position(|number| Some(*number) == mru);
        let after = at.map_or(0, |at| at + 1);
        for at in (after..order.nodes.len()).chain(0..after) {
            let number = order.nodes[at];
            let found = self.nodes.iter().find(|node| node.number == number);
            if found.is_some_and(fits) {
                self.orders[pool].most_recently_used = Some(number);
                return Some(number);
            }
        }
        None
    }

    fn start(&mut self) {
        self.started += 1;
        let chance = &mut self.chance;
        let asked = Resources {
            mem_mib: chance.i64(0..12),
            vcpus: chance.i64(0..4),
            disk_mib: chance.i64(0..4),
        };
        let mut custom = [0; 3];
        if chance.u8(..3) == 0 {
            custom = [(); 3].map(|()| (chance.i64(0..5) - 2).max(0));
        }
        let network_node = chance.u8(..4) == 0;
        let name = format!("i{}", self.started);
        let resources = CUSTOM.map(str::to_owned).into_iter().zip(custom).collect();
        let start = StartRequest {
            asked,
            network_node,
            scheduling: Some(Box::new(Scheduling {
                resources,
                ..Scheduling::default()
            })),
            ..request(&name, 0)
        };
        let chosen = self.world.place_as(self.controller, start);
        let expected = self.choose(usize::from(network_node), &asked, &custom);
        let chosen = chosen.map(|session| self.world.uuid_of(session));
        assert_eq!(chosen, expected.map(node_uuid), "{asked:?} {custom:?}");
        let node = self
            .nodes
            .iter_mut()
            .find(|node| Some(node.number) == expected);
        if let Some(node) = node {
            node.note_released(&asked, -1);
            node.instances.push(Instance {
                name,
                asked,
                custom,
                used: 0,
                is_listed: false,
            });
        }
    }

    fn join_some(&mut self) {
        let some = self.chance.usize(..=self.most / 8);
        for _ in 0..some.min(self.most - self.nodes.len()) {
            self.join();
        }
    }

    fn join(&mut self) {
        self.joined += 1;
        let any = |chance: &mut Rng| if chance.bool() { 0 } else { chance.i64(0..5) };
        let none = Size {
            mem: 0,
            cpus: 0,
            disk: 0,
        };
        self.nodes.push(Node {
            number: self.joined,
            roles: Role::AGENT,
            session: None,
            is_ready: false,
            released: None,
            total: none,
            available: none,
            custom: [(); 3].map(|()| any(&mut self.chance)),
            instances: Vec::new(),
        });
        self.connect(self.nodes.len() - 1);
        if self.chance.u8(..4) > 0 {
            self.ready(self.nodes.len() - 1);
        }
    }

    fn connect(&mut self, at: usize) {
        let both = Role::AGENT | Role::NETAGENT;
        let roles = [Role::AGENT, Role::AGENT, Role::NETAGENT, both][self.chance.usize(..4)];
        let node = &mut self.nodes[at];
        node.roles = roles;
        node.is_ready = false;
        node.released = None;
        node.session = Some(
            self.world
                .join(roles, node_uuid(node.number), Dialect::Native),
        );
        for (order, role) in self.orders.iter_mut().zip([Role::AGENT, Role::NETAGENT]) {
            if roles.contains(role) {
                order.nodes.push(node.number);
            }
        }
    }

    fn forget_place(&mut self, number: u64) {
        for order in &mut self.orders {
            order.nodes.retain(|other| *other != number);
            if order.most_recently_used == Some(number) {
                order.most_recently_used = None;
            }
        }
    }

    fn lose(&mut self, at: usize) {
        if let Some(session) = self.nodes[at].session.take() {
            self.world.cut(session);
            self.nodes[at].is_ready = false;
            self.nodes[at].released = None;
            self.forget_place(self.nodes[at].number);
        }
    }

    /// A lost node is back in time, or a newer connection of one that stands takes its place.
    fn come_back(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.session.is_none() {
            self.connect(at);
        } else {
            let uuid = node_uuid(node.number);
            node.session = Some(self.world.join(node.roles, uuid, Dialect::Native));
            node.is_ready = false;
            node.released = None;
        }
        self.stats(at);
    }

    /// A node leaves for good; with it those that are lost already are forgotten.
    fn leave_any(&mut self) {
        if self.nodes.is_empty() {
            return;
        }
        let at = self.chance.usize(..self.nodes.len());
        self.lose(at);
        self.world.advance(FORGOTTEN);
        self.nodes.retain(|node| node.session.is_some());
    }

    fn ready(&mut self, at: usize) {
        let chance = &mut self.chance;
        let node = &mut self.nodes[at];
        let Some(session) = node.session else { return };
        node.is_ready = true;
        node.released = None;
        node.total = Size {
            mem: chance.i64(-1..70),
            cpus: chance.i64(-1..25),
            disk: chance.i64(-1..25),
        };
        node.available = node.total;
        if node.total.mem > 5 {
            node.available.mem -= chance.i64(0..6);
        }
        let resources = CUSTOM.into_iter().zip(node.custom);
        let extras = NodeExtras {
            resources: resources
                .map(|(name, amount)| (name.into(), amount))
                .collect(),
            ..NodeExtras::default()
        };
        let report = NodeReport {
            mem_available_mib: node.available.mem,
            extras: Some(Box::new(extras)),
            ..report(node.total)
        };
        self.world.report(session, report);
    }

    fn change_status(&mut self, at: usize) {
        let kinds = [Kind::FULL, Kind::OFFLINE, Kind::MAINTENANCE];
        if let Some(session) = self.nodes[at].session {
            let kind = kinds[self.chance.usize(..3)];
            self.world.status(session, kind);
            self.nodes[at].is_ready = false;
            self.nodes[at].released = (kind == Kind::FULL).then_some(Resources::ZERO);
        }
    }

    /// Lists everything the node has.
    fn stats(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(session) = node.session else { return };
        for instance in &mut node.instances {
            instance.used = self.chance.i64(-1..14).max(0);
            instance.is_listed = true;
        }
        let list = list(node);
        self.world.stats(session, list);
    }

    fn end_one(&mut self, at: usize) {
        let count = self.nodes[at].instances.len();
        let Some(session) = self.nodes[at].session.filter(|_| count > 0) else {
            return;
        };
        let node = &mut self.nodes[at];
        let instance = node.instances.remove(self.chance.usize(..count));
        node.note_released(&instance.asked, 1);
        let (name, world) = (&instance.name, &mut self.world);
        match self.chance.u8(..5) {
            0 => world.gone(session, Kind::INSTANCE_DELETED, name),
            1 => world.gone(session, Kind::INSTANCE_STOPPED, name),
            2 if instance.is_listed => {
                let report = Report::DeleteFailed {
                    node: "".into(),
                    instance: id(name),
                    no_instance: true,
                };
                world.say(session, report);
            }
            3 => {
                // It is just not listed any more, three times in a row.
                for other in &mut node.instances {
                    other.is_listed = true;
                }
                for _ in 0..3 {
                    world.stats_seen(session, Some(u64::MAX), list(node));
                }
            }
            _ => world.start_failed(session, name, StartFailureReason::LaunchFailure),
        }
    }
}

fn list(node: &Node) -> Vec<InstanceReport> {
    let instances = node.instances.iter();
    instances.map(|it| running(&it.name, it.used)).collect()
}
