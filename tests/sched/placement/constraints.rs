//! STARTs with every kind of condition against the naive evaluation in `plain`: the chosen node is always the first in
//! order that fits, and where something is weighed, one that nothing outweighs. More seeds, or one: see `seeds`.

use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::{Expression, Group, GroupPolicy, Near, Scheduling, StartFailureReason};
use sched_core::{
    Aggregate, CapacityRule, Config, InstanceReport, NodeExtras, NodeName, NodeReport, NodeRule,
    PolicyRules, Resources, Rules, SessionId, StartRequest,
};

use crate::support::any::{
    FACTS, LASTING, a_group, a_near, a_set, an_image, an_override, some_addresses, some_exprs,
    some_labels, some_volumes,
};
use crate::support::plain::{
    Capacity, Expr, Instance, Label, Override, Plain, PlainNode, Plan, Set, Wanted,
};
use crate::support::seeds::for_each_seed;
use crate::support::world::{Size, World, config, id, node_uuid, report, request, running};

/// Steps of one run.
const STEPS: u32 = 120;

/// Seeds of an ordinary run of the tests, of each test.
const SEEDS: u64 = 60;

/// How nodes are weighed in a run, if they are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Weighing {
    /// Only by what a START prefers.
    Preferences,
    /// By a preset: 1 spreads, -1 packs.
    Preset(f64),
}

/// What one weigher looks at.
type Figure<'a> = Box<dyn Fn(&PlainNode) -> f64 + 'a>;

struct Pair {
    world: World,
    plain: Plain,
    chance: Rng,
    controller: SessionId,
    sessions: Vec<(u64, SessionId)>,
    policy: PolicyRules,
    /// Whether STARTs have preferences.
    weighing: Option<Weighing>,
    joined: u64,
    started: u32,
}

#[test]
fn the_first_node_in_order_that_meets_every_condition_is_chosen() {
    for_each_seed(SEEDS, |seed| {
        Pair::new(seed, PolicyRules::default(), None).run()
    });
}

#[test]
fn what_a_start_would_like_decides_among_the_nodes_that_fit() {
    for_each_seed(SEEDS, |seed| {
        Pair::new(seed, PolicyRules::default(), Some(Weighing::Preferences)).run();
    });
}

#[test]
fn no_node_outweighs_the_chosen_one() {
    for_each_seed(SEEDS, |seed| {
        let (name, sign) = [("spread", 1.0), ("pack", -1.0)][seed as usize % 2];
        let mut policy = PolicyRules::preset(name).expect("there is such a preset");
        if seed % 4 < 2 {
            policy.candidates = None;
        }
        Pair::new(seed, policy, Some(Weighing::Preset(sign))).run();
    });
}

impl Pair {
    fn new(seed: u64, policy: PolicyRules, weighing: Option<Weighing>) -> Self {
        let mut chance = Rng::with_seed(seed);
        let overrides: Vec<Override> = (0..chance.usize(..4))
            .map(|_| an_override(&mut chance))
            .collect();
        let config = Config {
            nodes: overrides.iter().map(node_rule).collect(),
            ..config()
        };
        let (world, controller) = World::with(config).check_every(8).with_controller();
        let plain = Plain {
            plan: Plan {
                overrides,
                ..Plan::default()
            },
            ..Plain::default()
        };
        Self {
            world,
            plain,
            chance,
            controller,
            sessions: Vec::new(),
            policy,
            weighing,
            joined: 0,
            started: 0,
        }
    }

    fn run(mut self) {
        for _ in 0..self.chance.usize(2..14) {
            self.join();
        }
        self.configure();
        for _ in 0..STEPS {
            self.step();
            self.world.look_away();
        }
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.plain.nodes.len().max(1));
        match self.chance.u8(..40) {
            0 | 1 if self.plain.nodes.len() < 40 => self.join(),
            2 if self.plain.nodes.len() > 1 => self.leave(at),
            _ if self.plain.nodes.is_empty() => self.join(),
            3 => self.configure(),
            4..7 => self.ready(at),
            7..11 => self.stats(at),
            11 => {
                self.world.status(self.session(at), Kind::FULL);
                self.plain.nodes[at].is_ready = false;
                self.plain.nodes[at].released = Some(Resources::ZERO);
            }
            12..17 => self.end_one(at),
            _ => self.start(),
        }
    }

    fn session(&self, at: usize) -> SessionId {
        let number = self.plain.nodes[at].number;
        let found = self.sessions.iter().find(|(other, _)| *other == number);
        found.expect("it has joined").1
    }

    fn join(&mut self) {
        self.joined += 1;
        let number = self.joined;
        self.sessions.push((number, self.world.silent_node(number)));
        self.plain.nodes.push(PlainNode {
            number,
            uuid: node_uuid(number).to_string(),
            host: format!("h{}", number % 24),
            is_ready: false,
            released: None,
            has_listed: false,
            total_mem: 0,
            available_mem: 0,
            disk: 0,
            cpus: 0,
            load: 0,
            reported: Vec::new(),
            gpus: 0,
            addresses: Vec::new(),
            volumes: Vec::new(),
            instances: Vec::new(),
        });
        self.ready(self.plain.nodes.len() - 1);
        if self.chance.u8(..4) > 0 {
            self.stats(self.plain.nodes.len() - 1);
        }
    }

    fn leave(&mut self, at: usize) {
        let session = self.session(at);
        let node = self.plain.nodes.remove(at);
        self.world.cut(session);
        self.world.advance(std::time::Duration::from_secs(15));
        if self.plain.most_recently_used == Some(node.number) {
            self.plain.most_recently_used = None;
        }
    }

    fn ready(&mut self, at: usize) {
        let chance = &mut self.chance;
        let node = &mut self.plain.nodes[at];
        node.is_ready = true;
        node.released = None;
        if node.total_mem == 0 || chance.u8(..6) == 0 {
            node.total_mem = chance.i64(20..100);
            node.disk = chance.i64(20..60);
            node.cpus = chance.i64(1..12);
            node.gpus = chance.i64(0..4);
            node.reported = some_labels(chance);
            node.addresses = some_addresses(chance);
            node.volumes = some_volumes(chance);
        }
        node.available_mem = node.total_mem - chance.i64(0..6);
        node.load = chance.i64(-1..12);
        let size = Size {
            mem: node.total_mem,
            cpus: node.cpus,
            disk: node.disk,
        };
        let report = NodeReport {
            mem_available_mib: node.available_mem,
            load: node.load,
            hostname: node.host.as_str().into(),
            addresses: node
                .addresses
                .iter()
                .map(|it| it.parse().expect("an address"))
                .collect(),
            extras: Some(Box::new(extras(node))),
            ..report(size)
        };
        self.world.report(self.session(at), report);
    }

    fn stats(&mut self, at: usize) {
        let chance = &mut self.chance;
        let node = &mut self.plain.nodes[at];
        node.has_listed = true;
        let has_extras = chance.u8(..3) == 0;
        if has_extras {
            node.reported = some_labels(chance);
            node.volumes = some_volumes(chance);
        }
        for instance in &mut node.instances {
            instance.is_listed = true;
            instance.used_mem = chance.i64(0..=instance.asked.mem_mib);
        }
        let list: Vec<InstanceReport> = node.instances.iter().map(listed).collect();
        let extras = has_extras.then(|| extras(node));
        self.world.stats_as(self.session(at), None, extras, list);
    }

    fn end_one(&mut self, at: usize) {
        let count = self.plain.nodes[at].instances.len();
        if count == 0 {
            return;
        }
        let instance = self.plain.nodes[at]
            .instances
            .remove(self.chance.usize(..count));
        self.plain.nodes[at].note_released(&instance.asked, 1);
        let session = self.session(at);
        if instance.is_listed || self.chance.bool() {
            self.world
                .gone(session, Kind::INSTANCE_DELETED, &instance.name);
        } else {
            // Neither that it is full, after which the next node is tried, nor what counts against the node.
            let reason = StartFailureReason::ImageFailure;
            self.world.start_failed(session, &instance.name, reason);
        }
    }

    fn configure(&mut self) {
        let chance = &mut self.chance;
        self.plain.plan.sets = (0..chance.usize(..4)).map(|at| a_set(at, chance)).collect();
        self.plain.plan.capacity = (0..chance.usize(..3))
            .map(|_| Capacity {
                select: some_exprs(chance, 2, LASTING),
                mem_ratio: chance.bool().then(|| [0.5, 1.5, 2.0][chance.usize(..3)]),
                reserved_mem: chance.bool().then(|| chance.i64(0..20)),
                reserved_cpus: chance.bool().then(|| chance.i64(0..3)),
            })
            .collect();
        let rules = Rules {
            aggregates: self.plain.plan.sets.iter().map(aggregate).collect(),
            capacity: self.plain.plan.capacity.iter().map(capacity).collect(),
            policy: self.policy.clone(),
            nodes: Vec::new(),
        };
        rules.check().expect("these rules hold together");
        self.world.configure_rules(self.controller, rules);
    }

    fn start(&mut self) {
        self.started += 1;
        let name = format!("i{}", self.started);
        let wanted = self.wanted();
        let start = start(&name, &wanted);
        let chosen = self.world.place_as(self.controller, start);
        let chosen = chosen.map(|session| self.world.uuid_of(session).to_string());
        let fitting = self.plain.fitting(&wanted);
        let scores = self.scores(&fitting, &wanted);
        let best = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let expected = match self.weighing {
            None => fitting.first().map(|node| node.uuid.clone()),
            Some(_) => {
                let is_chosen = |node: &&PlainNode| Some(&node.uuid) == chosen.as_ref();
                let at = fitting.iter().position(is_chosen);
                // Sums of fractions, added up in another order.
                let at = at.filter(|&at| scores[at] > best - 1e-9);
                at.or_else(|| scores.iter().position(|score| *score == best))
                    .map(|at| fitting[at].uuid.clone())
            }
        };
        let fitting: Vec<&str> = fitting.iter().map(|node| &*node.uuid).collect();
        assert_eq!(
            chosen, expected,
            "{wanted:#?}\n{:#?}\n{fitting:?} weigh {scores:?}",
            self.plain
        );
        let Some(uuid) = chosen else { return };
        let mut nodes = self.plain.nodes.iter_mut();
        let node = nodes
            .find(|node| node.uuid == uuid)
            .expect("it is one of them");
        self.plain.most_recently_used = Some(node.number);
        node.note_released(&wanted.asked, -1);
        node.instances.push(Instance {
            name,
            asked: wanted.asked,
            gpus: wanted.gpus,
            group: wanted.group.map(|group| group.id),
            used_mem: 0,
            is_listed: false,
        });
    }

    /// What each node weighs.
    fn scores(&self, nodes: &[&PlainNode], wanted: &Wanted) -> Vec<f64> {
        let plan = &self.plain.plan;
        let mut figures: Vec<(f64, Figure<'_>)> = vec![
            (
                10.0,
                Box::new(|node| {
                    let labels = node.labels(plan);
                    let likes = wanted.prefer.iter();
                    likes.filter(|it| node.holds(it, &labels, plan)).count() as f64
                }),
            ),
            (
                10.0,
                Box::new(|node| self.plain.volumes_at(node, wanted) as f64),
            ),
            (
                10.0,
                Box::new(|node| match &wanted.group {
                    Some(group) if group.is_soft => {
                        let sign = if group.is_anti { -1.0 } else { 1.0 };
                        sign * self.plain.members_at(node, group) as f64
                    }
                    _ => 0.0,
                }),
            ),
            (
                10.0,
                Box::new(|node| {
                    let labels = node.labels(plan);
                    let soft = wanted.near.iter().filter(|near| !near.2);
                    soft.filter(|near| self.plain.is_near(&labels, near))
                        .count() as f64
                }),
            ),
        ];
        if let Some(Weighing::Preset(sign)) = self.weighing {
            figures.push((sign, Box::new(|node| node.free(plan).mem_mib as f64)));
            figures.push((sign, Box::new(|node| node.free(plan).vcpus as f64)));
            figures.push((sign, Box::new(|node| node.free(plan).disk_mib as f64)));
            figures.push((-1.0, Box::new(|node| node.under_way() as f64)));
        }
        let mut scores = vec![0.0; nodes.len()];
        for (multiplier, of) in figures {
            let values: Vec<f64> = nodes.iter().map(|node| of(node)).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            for (score, value) in scores.iter_mut().zip(values) {
                if most > least {
                    *score += multiplier * (value - least) / (most - least);
                }
            }
        }
        scores
    }

    fn wanted(&mut self) -> Wanted {
        let has_wishes = self.weighing.is_some();
        let chance = &mut self.chance;
        let mut rarely = |one_in: u8| chance.u8(..one_in) == 0;
        let (by_uuid, by_host, tenant, group, near) =
            (rarely(15), rarely(15), rarely(2), rarely(3), rarely(4));
        let (gpus, prefer) = (rarely(4), rarely(2));
        let (image, same_node, different_node, volumes) =
            (rarely(3), rarely(12), rarely(6), has_wishes && rarely(3));
        let mut some_started = |named: bool| -> Vec<String> {
            let count = if named { chance.u32(1..4) } else { 0 };
            (0..count)
                .map(|_| format!("i{}", chance.u32(..=self.started)))
                .collect()
        };
        let (same_node, different_node) = (some_started(same_node), some_started(different_node));
        let number = 1 + chance.u64(..self.joined.max(1));
        Wanted {
            asked: Resources {
                mem_mib: chance.i64(0..16),
                vcpus: chance.i64(0..3),
                disk_mib: chance.i64(0..8),
            },
            gpus: if gpus { chance.i64(1..3) } else { 0 },
            uuid: by_uuid.then(|| node_uuid(number).to_string()),
            host: by_host.then(|| format!("h{}", chance.u64(..24))),
            tenant: tenant.then(|| format!("t{}", chance.u8(..3))),
            require: some_exprs(chance, 3, FACTS.len()),
            prefer: if prefer && has_wishes {
                some_exprs(chance, 3, FACTS.len())
            } else {
                Vec::new()
            },
            group: group.then(|| a_group(chance, has_wishes)),
            near: if near {
                vec![a_near(chance, has_wishes)]
            } else {
                Vec::new()
            },
            image: image.then(|| an_image(chance)),
            same_node,
            different_node,
            volumes: if volumes {
                some_volumes(chance)
            } else {
                Vec::new()
            },
        }
    }
}

fn expressions(exprs: &[Expr]) -> Vec<Expression> {
    let parsed = |expr: &Expr| {
        expr.text()
            .parse()
            .unwrap_or_else(|error| panic!("{expr:?}: {error}"))
    };
    exprs.iter().map(parsed).collect()
}

fn aggregate(set: &Set) -> Aggregate {
    Aggregate {
        name: set.name.as_str().into(),
        zone: set.zone.as_deref().map(Into::into),
        nodes: set.nodes.iter().map(|name| NodeName::new(name)).collect(),
        select: expressions(&set.select),
        labels: boxed(&set.labels),
        tenants: set.tenants.iter().map(|tenant| id(tenant)).collect(),
        images: set.images.iter().map(|it| it.as_str().into()).collect(),
        images_only: set.images_only,
        max_instances: set.max_instances,
        max_starts: set.max_starts,
        multipliers: Vec::new(),
    }
}

fn capacity(rule: &Capacity) -> CapacityRule {
    CapacityRule {
        select: expressions(&rule.select),
        mem_ratio: rule.mem_ratio,
        reserved_mem_mib: rule.reserved_mem,
        reserved_cpus: rule.reserved_cpus,
        ..CapacityRule::default()
    }
}

fn node_rule(rule: &Override) -> NodeRule {
    let label = |(key, value): &(String, Option<String>)| {
        (key.as_str().into(), value.as_deref().map(Into::into))
    };
    NodeRule {
        node: NodeName::new(&rule.host),
        labels: rule.labels.iter().map(label).collect(),
        resources: rule
            .gpus
            .map(|gpus| ("gpu".into(), Some(gpus)))
            .into_iter()
            .collect(),
        shares: None,
    }
}

fn boxed(labels: &[Label]) -> Vec<(Box<str>, Box<str>)> {
    let boxed = |(key, value): &Label| (key.as_str().into(), value.as_str().into());
    labels.iter().map(boxed).collect()
}

fn extras(node: &PlainNode) -> NodeExtras {
    NodeExtras {
        labels: boxed(&node.reported),
        resources: vec![("gpu".into(), node.gpus)],
        shares: None,
        volumes: node.volumes.iter().map(|it| it.as_str().into()).collect(),
        ..NodeExtras::default()
    }
}

fn listed(instance: &Instance) -> InstanceReport {
    running(&instance.name, instance.used_mem)
}

fn start(name: &str, wanted: &Wanted) -> StartRequest {
    let group = wanted.group.as_ref().map(|group| Group {
        id: group.id.clone(),
        policy: match (group.is_anti, group.is_soft) {
            (true, true) => GroupPolicy::SoftAntiAffinity,
            (true, false) => GroupPolicy::AntiAffinity,
            (false, true) => GroupPolicy::SoftAffinity,
            (false, false) => GroupPolicy::Affinity,
        },
        scope: group.scope.clone(),
        max: group.is_anti.then_some(group.max as u32),
    });
    let near = |(label, scope, hard): &(String, String, bool)| Near {
        label: label.clone(),
        scope: scope.clone(),
        hard: *hard,
    };
    let scheduling = Scheduling {
        require: expressions(&wanted.require),
        prefer: expressions(&wanted.prefer),
        resources: [("gpu".to_owned(), wanted.gpus)].into(),
        group,
        near: wanted.near.iter().map(near).collect(),
        same_node: wanted.same_node.clone(),
        different_node: wanted.different_node.clone(),
        ..Scheduling::default()
    };
    StartRequest {
        asked: wanted.asked,
        node_id: wanted.uuid.as_deref().map(Into::into),
        hostname: wanted.host.as_deref().map(Into::into),
        tenant: wanted.tenant.as_deref().map(id),
        image: wanted.image.as_deref().map(Into::into),
        volumes: wanted.volumes.iter().map(|it| it.as_str().into()).collect(),
        scheduling: Some(Box::new(scheduling)),
        ..request(name, 0)
    }
}
