//! No node is ever asked for more than it has, and no claim is left behind: the core against model nodes, over random
//! histories in which everything takes its time. How to run more seeds, or one: see `seeds`.
//!
//! A step lets something happen on a node (an instance begins to use more or less, or ends), on a connection (the next
//! frame of one direction arrives, the connection ends with some frames written and others not, a node is back, a newer
//! connection replaces one that stands), or at the controller (START, START again alone or as a batch, DELETE).
//! After every step nothing runs twice, and the sum of what the instances on each node asked for is held against its capacity. Nodes may share a machine with a whole-node
//! launcher; then the sum over the machine is held against the whole as well.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use proto_frames::Role;
use proto_frames::payload::{Batch, Scheduling, StartFailureReason};
use sched_core::{
    CapacityRule, ClusterConfiguration, Config, Dialect, IN_DOUBT_TIME, NodeExtras, Resources,
    Rules, SessionId, StartRequest,
};

use crate::support::launchers::{Ask, GPU, Launcher, Listing, Make, Report};
use crate::support::seeds::for_each_seed;
use crate::support::world::{Size, World, config, id, node_uuid, request};

/// Steps of one run.
const STEPS: u32 = 200;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 2000;

/// A machine whose connection has been gone for so long has crashed: it comes back with nothing. Less than the time
/// for which claims on lost nodes are kept, so that a whole and its parts are never forgotten while they run.
const CRASHED_AFTER: Duration = Duration::from_secs(12);

struct Simulation {
    world: World,
    chance: Rng,
    controller: SessionId,
    operator: SessionId,
    nodes: Vec<Launcher>,
    /// For each node the one it is a part of.
    wholes: Vec<Option<usize>>,
    lost_for: Vec<Duration>,
    /// Every START that was sent, and where it was sent on to last.
    starts: BTreeMap<String, (StartRequest, Option<usize>)>,
    started: u32,
    batches: u32,
}

#[test]
fn nothing_is_ever_promised_twice_and_no_claim_is_left_behind() {
    let (mut placed, mut refused) = (0, 0);
    for_each_seed(SEEDS, |seed| {
        let mut simulation = Simulation::new(seed);
        for _ in 0..STEPS {
            simulation.step();
        }
        simulation.wind_up();
        placed += simulation.world.scheduler.counters().placed;
        refused += simulation.nodes.iter().map(|node| node.full).sum::<u64>();
    });
    println!("{placed} STARTs placed; original launchers had no room for {refused} of them");
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let config = Config {
            cpu_ratio: [1.0, 2.0, 1.5][chance.usize(..3)],
            mem_ratio: [1.0, 1.0, 1.25, 0.9][chance.usize(..4)],
            disk_ratio: [1.0, 1.5][chance.usize(..2)],
            reserved_mem_mib: chance.i64(0..3) * 5,
            reserved_disk_mib: chance.i64(0..3) * 10,
            ..config()
        };
        let rule = CapacityRule {
            select: vec!["zone = z1".parse().expect("an expression")],
            mem_ratio: Some([1.0, 1.5][chance.usize(..2)]),
            reserved_cpus: Some(chance.i64(0..2)),
            reserved_mem_mib: chance.bool().then_some(20),
            ..CapacityRule::default()
        };
        let (nodes, wholes) = nodes(&mut chance, &config, &rule);
        let cluster = ClusterConfiguration {
            rules: Rules {
                capacity: vec![rule],
                ..Rules::default()
            },
            ..ClusterConfiguration::default()
        };
        // All invariants cost far more than a step.
        let (mut world, controller) = World::configured(config, cluster)
            .check_every(50)
            .with_controller();
        let operator = world.operator(&[]);
        Self {
            lost_for: vec![Duration::ZERO; nodes.len()],
            world,
            chance,
            controller,
            operator,
            nodes,
            wholes,
            starts: BTreeMap::new(),
            started: 0,
            batches: 0,
        }
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.nodes.len());
        if self.nodes[at].session.is_none() {
            if self.chance.u8(..3) == 0 {
                self.connect(at);
            }
        } else {
            self.step_of_node(at);
        }
        match self.chance.u8(..10) {
            0..3 => self.start_new(),
            3 => self.start_again(),
            4 => self.delete(),
            _ => {}
        }
        let passed = Duration::from_millis(self.chance.u64(0..300));
        self.pass(passed);
        self.listen();
        self.check();
    }

    fn step_of_node(&mut self, at: usize) {
        match self.chance.u8(..40) {
            0..12 => self.take_in(at),
            12..24 => self.hear(at),
            24..29 => self.report(at),
            29..36 => self.use_otherwise(at),
            36..38 => {
                let name = self.any_running(at);
                name.iter().for_each(|name| self.nodes[at].stop(name));
            }
            38 => self.cut(at),
            _ => self.connect(at),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        for at in 0..self.nodes.len() {
            if self.nodes[at].session.is_some() {
                continue;
            }
            self.lost_for[at] += time;
            if self.lost_for[at] >= CRASHED_AFTER {
                self.nodes[at].running.clear();
            }
        }
    }

    /// What the scheduler has said goes on its way.
    fn listen(&mut self) {
        for (to, message) in self.world.take_said() {
            let node = self.nodes.iter().position(|node| node.session == Some(to));
            let Some(at) = node else { continue };
            if let sched_core::Message::Start(start) = &message {
                let name = start.request.instance.to_string();
                self.starts
                    .entry(name)
                    .and_modify(|start| start.1 = Some(at));
            }
            self.nodes[at].inbox.push_back(message);
        }
    }

    fn take_in(&mut self, at: usize) {
        let fails = self.chance.u8(..12) == 0;
        self.nodes[at].take_in(fails);
    }

    /// The next thing that a node has said arrives.
    fn hear(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let (Some(session), Some(report)) = (node.session, node.outbox.pop_front()) else {
            return;
        };
        let world = &mut self.world;
        match report {
            Report::Ready(report) => world.report(session, report),
            Report::Stats(listing) => list(world, session, listing),
            Report::First(report, listing) => {
                world.report(session, report);
                list(world, session, listing);
            }
            Report::Failed(name, reason) => world.start_failed(session, &name, reason),
            Report::Gone(kind, name) => world.gone(session, kind, &name),
            Report::NotThere(name) => {
                let refused = sched_core::Report::DeleteFailed {
                    node: node_uuid(node.number).to_string().into(),
                    instance: id(&name),
                    no_instance: true,
                };
                world.say(session, refused);
            }
        }
    }

    fn report(&mut self, at: usize) {
        let available = self.available(at);
        self.nodes[at].report(available);
    }

    /// An instance uses more than before, or less; never more than it asked for, nor than its machine has.
    fn use_otherwise(&mut self, at: usize) {
        let Some(name) = self.any_running(at) else {
            return;
        };
        let limits = self.available(at);
        let running = self.nodes[at].running.get_mut(&name).expect("it runs");
        let mem = (running.used_mem + limits.mem).min(running.ask.base.mem_mib);
        let disk = (running.used_disk + limits.disk).min(running.ask.base.disk_mib);
        running.used_mem = self.chance.i64(0..=mem.max(0));
        running.used_disk = self.chance.i64(0..=disk.max(0));
    }

    fn any_running(&mut self, at: usize) -> Option<String> {
        let mut names = self.nodes[at].running.keys();
        let count = names.len();
        (count > 0).then(|| names.nth(self.chance.usize(..count)).cloned())?
    }

    /// A connection begins; one that stands is replaced.
    fn connect(&mut self, at: usize) {
        if self.nodes[at].session.is_some() {
            let unsent = self.break_off(at);
            self.world.put_back(unsent);
        }
        let encoding = match self.nodes[at].make {
            Make::Own => Dialect::Native,
            Make::Original => Dialect::Original,
        };
        let uuid = node_uuid(self.nodes[at].number);
        self.nodes[at].session = None;
        let session = self.world.join(Role::AGENT, uuid, encoding);
        let available = self.available(at);
        self.nodes[at].attach(session, available);
        self.lost_for[at] = Duration::ZERO;
    }

    fn cut(&mut self, at: usize) {
        let unsent = self.break_off(at);
        if let Some(session) = self.nodes[at].session.take() {
            let unsent = unsent.into_iter().map(|(_, message)| message).collect();
            self.world.cut_returning(session, unsent);
        }
    }

    /// A connection breaks: of what the node was told some arrives, some is lost, and some was never written, which is
    /// what is returned; of what it said some arrives.
    fn break_off(&mut self, at: usize) -> Vec<(SessionId, sched_core::Message)> {
        let waiting = self.nodes[at].inbox.len();
        let written = self.chance.usize(..=waiting);
        let arrived = self.chance.usize(..=written);
        for _ in 0..arrived {
            self.take_in(at);
        }
        for _ in 0..self.chance.usize(..=self.nodes[at].outbox.len()) {
            self.hear(at);
        }
        // What the scheduler said to that is not written any more.
        self.listen();
        let node = &mut self.nodes[at];
        let session = node.session;
        let unsent = node.inbox.split_off(written - arrived);
        node.inbox.clear();
        node.outbox.clear();
        unsent
            .into_iter()
            .map(|message| (session.expect("it is connected"), message))
            .collect()
    }

    fn start_new(&mut self) {
        self.started += 1;
        let name = format!("i{}", self.started);
        let chance = &mut self.chance;
        let mut start = request(&name, chance.i64(0..50));
        start.asked = Resources {
            vcpus: chance.i64(0..4),
            disk_mib: chance.i64(0..60),
            ..start.asked
        };
        let gpus = chance.i64(0..6) - 3;
        if gpus > 0 {
            start.scheduling = Some(Box::new(Scheduling {
                resources: [(GPU.to_owned(), gpus)].into(),
                ..Scheduling::default()
            }));
        }
        self.starts.insert(name, (start.clone(), None));
        self.world.start_as(self.controller, start);
    }

    /// A START that was sent before is sent once more, whatever has become of it.
    fn start_again(&mut self) {
        if let Some((mut start, _)) = self.any_start() {
            if self.chance.bool() {
                self.batches += 1;
                let batch = Batch {
                    id: format!("b{}", self.batches),
                    count: 1,
                };
                start.scheduling.get_or_insert_default().batch = Some(batch);
            }
            self.world.start_as(self.controller, start);
        }
    }

    fn delete(&mut self) {
        if let Some((start, Some(at))) = self.any_start() {
            let name = start.instance.to_string();
            let node = node_uuid(self.nodes[at].number);
            self.world.delete_at(self.controller, &name, node);
        }
    }

    /// One of the latest STARTs: most of the earlier ones are history.
    fn any_start(&mut self) -> Option<(StartRequest, Option<usize>)> {
        let number = self.started - self.chance.u32(0..12).min(self.started);
        self.starts.get(&format!("i{number}")).cloned()
    }

    /// What a node finds available on its machine.
    fn available(&self, at: usize) -> Size {
        let node = &self.nodes[at];
        let (mut mem, mut disk) = node.used();
        for (other, whole) in self.wholes.iter().enumerate() {
            // What a whole's own instances use is in its first part.
            let is_first = || self.wholes.iter().position(|it| it == &Some(other)) == Some(at);
            if *whole == Some(at) || is_first() {
                let (other_mem, other_disk) = self.nodes[other].used();
                mem += other_mem;
                disk += other_disk;
            }
        }
        Size {
            mem: (node.total.mem - node.overhead - mem).max(0),
            disk: (node.total.disk - disk).max(0),
            ..node.total
        }
    }

    /// No one was asked for more than they have, and nothing runs twice. An original launcher is taken at its word when it
    /// says that an instance has ended, as the recorded streams want it: which of several STARTs it means cannot be told,
    /// so one that is still on its way to it may start the instance there while it runs elsewhere.
    fn check(&self) {
        let mut seen = BTreeMap::new();
        for node in &self.nodes {
            for name in node.running.keys() {
                let here = (node.number, node.make);
                if let Some(other) = seen.insert(name, here) {
                    let is_counted = other.1 != Make::Original && here.1 != Make::Original;
                    assert!(
                        !is_counted,
                        "{name} runs twice: on {other:?} and on {here:?}"
                    );
                }
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            let mut asked = node.asked();
            for (part, whole) in self.nodes.iter().zip(&self.wholes) {
                if *whole == Some(at) {
                    asked = asked.plus(part.asked());
                }
            }
            assert!(
                asked.fits_into(&node.capacity),
                "node {} ({:?}) has {:?} and was asked for {asked:?}",
                node.number,
                node.make,
                node.capacity
            );
        }
    }

    /// Everything is deleted and said; then everything is free.
    fn wind_up(&mut self) {
        for at in 0..self.nodes.len() {
            if self.nodes[at].session.is_none() {
                self.connect(at);
            }
        }
        // What another machine with a node's UUID might have is waited for.
        self.pass(IN_DOUBT_TIME);
        for _ in 0..4 {
            for at in 0..self.nodes.len() {
                self.run_dry(at);
                let names: Vec<String> = self.nodes[at].running.keys().cloned().collect();
                for name in names {
                    self.nodes[at].stop(&name);
                }
                self.report(at);
                self.run_dry(at);
            }
        }
        self.world.check();
        for row in self.world.nodes(self.operator) {
            let by_uuid = |node: &&Launcher| node_uuid(node.number).to_string() == row.node_uuid;
            let node = self.nodes.iter().find(by_uuid).expect("it is one of them");
            let capacity = node.capacity.base;
            let free = (row.mem_free_mb, row.vcpus_free, row.disk_free_mb);
            let all = (
                (capacity.mem_mib - node.overhead).max(-1),
                capacity.vcpus,
                capacity.disk_mib,
            );
            assert_eq!(
                (row.instances, row.unconfirmed, free),
                (0, 0, all),
                "{row:?}"
            );
        }
        self.all_gpus_are_free();
    }

    fn run_dry(&mut self, at: usize) {
        loop {
            self.listen();
            let node = &self.nodes[at];
            if !node.inbox.is_empty() {
                self.take_in(at);
            } else if !node.outbox.is_empty() {
                self.hear(at);
            } else {
                return;
            }
        }
    }

    fn all_gpus_are_free(&mut self) {
        for node in &self.nodes {
            if node.capacity.gpus == 0 || self.wholes.contains(&Some(node.number as usize)) {
                continue;
            }
            let mut start = request("all", 0);
            start.node_id = Some(node_uuid(node.number).to_string().into());
            start.scheduling = Some(Box::new(Scheduling {
                resources: [(GPU.to_owned(), node.capacity.gpus)].into(),
                ..Scheduling::default()
            }));
            let chosen = self.world.place_as(self.controller, start);
            assert_eq!(chosen, node.session, "a claim on {GPU} was left behind");
            if let Some(session) = chosen {
                let reason = StartFailureReason::LaunchFailure;
                self.world.start_failed(session, "all", reason);
            }
        }
    }
}

fn list(world: &mut World, session: SessionId, listing: Listing) {
    let Listing {
        starts_seen,
        extras,
        instances,
    } = listing;
    world.stats_as(session, starts_seen, extras, instances);
}

/// Some single nodes, and perhaps a machine with a launcher for all of it and one for each of two parts.
fn nodes(
    chance: &mut Rng,
    config: &Config,
    rule: &CapacityRule,
) -> (Vec<Launcher>, Vec<Option<usize>>) {
    let mut nodes = Vec::new();
    let mut wholes = Vec::new();
    for _ in 0..chance.usize(1..4) {
        let make = if chance.u8(..3) == 0 {
            Make::Original
        } else {
            Make::Own
        };
        let size = Size {
            mem: chance.i64(40..160),
            cpus: chance.i64(2..9),
            disk: chance.i64(50..250),
        };
        let gpus = if make == Make::Own {
            chance.i64(0..4)
        } else {
            0
        };
        let zone = (make == Make::Own && chance.bool()).then_some("z1");
        let mut node = node(nodes.len(), make, size, (gpus, zone, None), config, rule);
        node.overhead = chance.i64(0..2) * 7;
        nodes.push(node);
        wholes.push(None);
    }
    if chance.bool() {
        let part = Size {
            mem: chance.i64(40..100),
            cpus: chance.i64(2..6),
            disk: chance.i64(50..150),
        };
        let all = Size {
            mem: 2 * part.mem,
            cpus: 2 * part.cpus,
            disk: 2 * part.disk,
        };
        let whole = nodes.len();
        nodes.push(node(whole, Make::Own, all, (4, None, None), config, rule));
        wholes.push(None);
        for at in [whole + 1, whole + 2] {
            let traits = (2, None, Some(whole));
            nodes.push(node(at, Make::Own, part, traits, config, rule));
            wholes.push(Some(whole));
        }
    }
    (nodes, wholes)
}

/// A node with so many GPUs, in this zone, as a part of that one.
fn node(
    at: usize,
    make: Make,
    total: Size,
    (gpus, zone, whole): (i64, Option<&str>, Option<usize>),
    config: &Config,
    rule: &CapacityRule,
) -> Launcher {
    let ruled =
        |of_rule: Option<f64>, usual: f64| of_rule.filter(|_| zone.is_some()).unwrap_or(usual);
    let reserved_mem = rule.reserved_mem_mib.filter(|_| zone.is_some());
    let reserved_cpus = rule.reserved_cpus.filter(|_| zone.is_some()).unwrap_or(0);
    let scaled =
        |total: i64, reserved: i64, ratio: f64| ((total - reserved).max(0) as f64 * ratio) as i64;
    let base = Resources {
        mem_mib: scaled(
            total.mem,
            reserved_mem.unwrap_or(config.reserved_mem_mib),
            ruled(rule.mem_ratio, config.mem_ratio),
        ),
        vcpus: scaled(total.cpus, reserved_cpus, config.cpu_ratio),
        disk_mib: scaled(total.disk, config.reserved_disk_mib, config.disk_ratio),
    };
    let mut node = Launcher::new(at as u64, make, total, Ask { base, gpus });
    if make == Make::Own {
        node.extras = Some(NodeExtras {
            labels: zone
                .map(|zone| ("zone".into(), zone.into()))
                .into_iter()
                .collect(),
            resources: vec![(GPU.into(), gpus)],
            shares: whole.map(|whole| node_uuid(whole as u64)),
            // Of a whole the next two are the parts; others may say so, and no one takes them up on it.
            shared_by: [at + 1, at + 2].map(|at| node_uuid(at as u64)).into(),
            ..NodeExtras::default()
        });
    }
    node
}
