//! Groups that must hold, over random histories: whatever came and went before, no START is given to a node where its
//! group's policy would be broken by it. More seeds, or one: see `seeds`.
//!
//! What counts as a member is written down here on its own: an instance that was given to a node, until that node says
//! that it has ended or is given up; and what a node lists that is back, or that a new scheduler learns of.

use std::collections::BTreeMap;
use std::time::Duration;

use fastrand::Rng;
use proto_frames::payload::{Group, GroupPolicy, Scheduling, StartFailureReason};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Config, Dialect, InstanceReport, NodeExtras, NodeReport, Rules, SessionId, StartRequest,
};

use crate::support::seeds::for_each_seed;
use crate::support::world::{Size, World, config, id, node_uuid, report, request, running};

/// Steps of one run: enough that nodes which left make the tables close their holes.
const STEPS: u32 = 400;

/// Seeds of an ordinary run of the tests.
const SEEDS: u64 = 60;

/// Nodes there are, of which about half are connected.
const NODES: u64 = 40;

struct History {
    world: World,
    chance: Rng,
    controller: SessionId,
    nodes: BTreeMap<u64, Node>,
    started: u32,
}

/// A node, and what really runs on it: each instance with its group.
#[derive(Default)]
struct Node {
    session: Option<SessionId>,
    rack: u8,
    running: BTreeMap<String, String>,
    /// What the scheduler must take for running there.
    known: BTreeMap<String, String>,
}

#[test]
fn no_history_breaks_a_group() {
    for_each_seed(SEEDS, |seed| {
        let mut history = History::new(seed);
        for _ in 0..STEPS {
            history.step();
        }
        history.world.check();
    });
}

impl History {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::new().check_every(4).with_controller();
        let mut chance = Rng::with_seed(seed);
        let node = |number| {
            let node = Node {
                rack: chance.u8(..6),
                ..Node::default()
            };
            (number, node)
        };
        Self {
            nodes: (0..NODES).map(node).collect(),
            chance,
            world,
            controller,
            started: 0,
        }
    }

    fn step(&mut self) {
        let number = self.chance.u64(..NODES);
        let is_connected = self.nodes[&number].session.is_some();
        match self.chance.u16(..400) {
            0 => self.restart(),
            1..120 if !is_connected => self.connect(number),
            // A newer connection, before the end of the older one was noticed.
            1..10 => self.connect(number),
            10..60 if is_connected => self.lose(number),
            60..75 => {
                // One by one: what is given up and what then finds a place happen in this order.
                for _ in 0..self.chance.u64(1..20) {
                    self.pass(Duration::from_secs(1));
                }
            }
            75..150 if is_connected => self.list(number),
            150..220 if is_connected => self.end_one(number),
            220..235 => self.lose_many(),
            _ => self.start(),
        }
    }

    /// Many nodes go and come back, so that slots are left and the tables close their holes.
    fn lose_many(&mut self) {
        for _ in 0..8 {
            let number = self.chance.u64(..NODES);
            self.lose(number);
            if self.chance.u8(..3) > 0 {
                self.connect(number);
            }
        }
    }

    fn connect(&mut self, number: u64) {
        let session = self
            .world
            .join(Role::AGENT, node_uuid(number), Dialect::Native);
        let node = self.nodes.get_mut(&number).expect("it is one of them");
        node.session = Some(session);
        // Another place from time to time, but never while instances are in the one it has.
        if node.running.is_empty() && node.known.is_empty() {
            node.rack = self.chance.u8(..6);
        }
        let report = NodeReport {
            hostname: format!("h{number}").into(),
            extras: Some(Box::new(NodeExtras {
                labels: vec![("rack".into(), format!("r{}", node.rack).into())],
                ..NodeExtras::default()
            })),
            ..report(Size::default())
        };
        self.world.report(session, report);
        self.look();
        if self.chance.u8(..4) > 0 {
            self.list(number);
        }
    }

    fn list(&mut self, number: u64) {
        let node = self.nodes.get_mut(&number).expect("it is one of them");
        let Some(session) = node.session else { return };
        node.known.clone_from(&node.running);
        let listed = |(name, group): (&String, &String)| InstanceReport {
            group: Some(group.as_str().into()),
            ..running(name, 0)
        };
        let list = node.running.iter().map(listed).collect();
        self.world.stats_seen(session, Some(1 << 20), list);
        self.look();
    }

    fn lose(&mut self, number: u64) {
        let node = self.nodes.get_mut(&number).expect("it is one of them");
        if let Some(session) = node.session.take() {
            self.world.cut(session);
            self.look();
        }
    }

    /// Time passes; a node that is lost for long enough is forgotten with all it has.
    fn pass(&mut self, time: Duration) {
        self.world.advance(time);
        let rows = self.known_nodes();
        for (number, node) in &mut self.nodes {
            if !rows.contains(&node_uuid(*number)) {
                node.known.clear();
            }
        }
        self.look();
    }

    fn known_nodes(&self) -> Vec<Uuid> {
        let known = self.world.scheduler.known_nodes().into_iter();
        let there = known.filter(|node| node.lost_since_ms.is_none());
        there.map(|node| node.uuid).collect()
    }

    fn end_one(&mut self, number: u64) {
        let node = self.nodes.get_mut(&number).expect("it is one of them");
        let (Some(session), Some((name, _))) = (node.session, node.running.pop_first()) else {
            return;
        };
        node.known.remove(&name);
        if self.chance.bool() {
            self.world.gone(session, Kind::INSTANCE_DELETED, &name);
        } else {
            let reason = StartFailureReason::LaunchFailure;
            self.world.start_failed(session, &name, reason);
        }
        self.look();
    }

    /// A scheduler that knows nothing but which nodes there were.
    fn restart(&mut self) {
        let known_nodes = if self.chance.bool() {
            self.world.scheduler.known_nodes()
        } else {
            Vec::new()
        };
        let config = Config {
            known_nodes,
            ..config()
        };
        self.world.restart(config, Rules::default());
        self.controller = self.world.controller();
        for node in self.nodes.values_mut() {
            node.session = None;
            node.known.clear();
        }
    }

    fn start(&mut self) {
        self.started += 1;
        let kind = self.chance.u8(..6);
        let group = Group {
            id: format!("g{kind}"),
            policy: if kind < 2 {
                GroupPolicy::Affinity
            } else {
                GroupPolicy::AntiAffinity
            },
            scope: if kind.is_multiple_of(2) {
                "node"
            } else {
                "rack"
            }
            .to_owned(),
            max: (kind >= 4).then_some(2),
        };
        let start = StartRequest {
            scheduling: Some(Box::new(Scheduling {
                group: Some(group),
                ..Scheduling::default()
            })),
            ..request(&format!("i{}", self.started), 1)
        };
        self.world.start_as(self.controller, start);
        self.look();
    }

    /// Takes every START that was given to a node there, after a look at whether it may go there.
    fn look(&mut self) {
        for (to, message) in self.world.take_said() {
            let sched_core::Message::Start(start) = message else {
                continue;
            };
            let mut nodes = self.nodes.iter();
            let at = nodes.find(|(_, node)| node.session == Some(to));
            let (&number, _) = at.expect("a START goes to a node that is connected");
            let request = start.request;
            let group = request
                .scheduling
                .as_ref()
                .and_then(|it| it.group.clone())
                .expect("it has a group");
            self.check(number, &request.instance.to_string(), &group);
            let node = self.nodes.get_mut(&number).expect("it is one of them");
            let name = request.instance.to_string();
            node.known.insert(name.clone(), group.id.clone());
            // Some never come to run. What is to be together follows even those, until they are known not to.
            if !group.policy.is_anti() || self.chance.u8(..8) > 0 {
                node.running.insert(name, group.id);
            }
        }
    }

    fn check(&self, number: u64, name: &str, group: &Group) {
        let rack = self.nodes[&number].rack;
        let is_same_place = |(other, node): &(&u64, &Node)| match group.scope.as_str() {
            "node" => **other == number,
            _ => node.rack == rack,
        };
        let members =
            |(_, node): (&u64, &Node)| node.known.values().filter(|id| **id == group.id).count();
        let here: usize = self.nodes.iter().filter(is_same_place).map(members).sum();
        let all: usize = self.nodes.iter().map(members).sum();
        let is_kept = if group.policy.is_anti() {
            here < group.max.unwrap_or(1) as usize
        } else {
            here > 0 || all == 0
        };
        assert!(
            is_kept,
            "{name} of {group:?} on node {number}, with {here} of {all} there"
        );
    }
}

#[test]
fn members_stay_where_they_are_when_a_table_closes_its_holes() {
    let (mut world, controller) = World::new().with_controller();
    let sessions: Vec<SessionId> = (0..70).map(|number| world.node_with(number, 100)).collect();
    for &session in &sessions {
        world.stats(session, vec![]);
    }
    let apart = |name: &str| StartRequest {
        instance: id(name),
        scheduling: Some(Box::new(Scheduling {
            group: Some(Group {
                id: "web".to_owned(),
                policy: GroupPolicy::AntiAffinity,
                scope: "node".to_owned(),
                max: None,
            }),
            ..Scheduling::default()
        })),
        ..request(name, 1)
    };
    for number in 0..70 {
        assert!(
            world
                .place_as(controller, apart(&format!("i{number}")))
                .is_some()
        );
    }
    // The last to leave is one before others, which take its slot then.
    for &session in sessions[35..].iter().chain(&sessions[10..11]) {
        world.cut(session);
        assert_eq!(world.place_as(controller, apart("another")), None);
    }
}
