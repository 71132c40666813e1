//! Peers that say and ask for as much as they can, all at once: the core holds no more than its limits say, and gives it
//! back once they have left.

use std::time::Duration;

use proto_frames::payload::{Scheduling, Span, Topic};
use sched_core::{
    Command, Footprint, MAX_AWAITED, MAX_BATCH_BYTES, MAX_BATCHES, MAX_HELD_FOR_DISK,
    MAX_HELD_FOR_DISK_BYTES, MAX_INSTANCES_PER_NODE, MAX_MANAGED_BYTES, MAX_OUTPUTS,
    MAX_PAST_BYTES, MAX_REPLAY, MAX_REPLAY_BYTES, MAX_RESOURCE_NAMES, NodeExtras, Resources,
    SessionId,
};

use super::bounds::{names_of, refuse_at_length};
use crate::support::requests::Asking;
use crate::support::seeds::for_each_seed;
use crate::support::words::{asking, needing};
use crate::support::world::{World, request, running};

/// What the core may hold of each kind, whatever peers do: the named limits, and what so many nodes may report.
fn within_limits(held: &Footprint, nodes: usize) {
    let per_node = [
        ("entries", held.entries, MAX_INSTANCES_PER_NODE),
        ("placements", held.placements, MAX_INSTANCES_PER_NODE),
        ("groups", held.groups, MAX_INSTANCES_PER_NODE),
    ];
    for (what, count, most) in per_node {
        assert!(count <= nodes * most, "{what}: {count} on {nodes} nodes");
    }
    for (what, count, most) in [
        ("topics", held.topics, 5 * held.sessions),
        ("resource names", held.resource_names, MAX_RESOURCE_NAMES),
        ("managed", held.managed_bytes, MAX_MANAGED_BYTES),
        ("histories", held.past_bytes, MAX_PAST_BYTES),
        ("batches", held.batches, MAX_BATCHES),
        ("payloads in batches", held.batch_bytes, MAX_BATCH_BYTES),
        ("held for the disk", held.held, MAX_HELD_FOR_DISK),
        ("bytes of these", held.held_bytes, MAX_HELD_FOR_DISK_BYTES),
        ("answers", held.answers, MAX_AWAITED),
        ("outcomes", held.outcomes, MAX_REPLAY),
        ("bytes of outcomes", held.outcome_bytes, MAX_REPLAY_BYTES),
        ("explanations", held.explanations, 2 * 64),
        ("tried again", held.to_try_again, held.managed),
    ] {
        assert!(count <= most, "{what}: {count}, at most {most}");
    }
}

/// A world with a controller, two operators and some launchers, all of which say and ask for as much as they can.
struct Flood {
    world: World,
    chance: fastrand::Rng,
    controller: SessionId,
    operators: Vec<SessionId>,
    nodes: Vec<SessionId>,
    numbers: u64,
}

impl Flood {
    fn new(seed: u64) -> Self {
        let (mut world, controller) = World::new().check_every(64).with_controller();
        let operators = (0..2).map(|_| world.operator(&[Topic::Failures])).collect();
        let mut flood = Self {
            world,
            chance: fastrand::Rng::with_seed(seed),
            controller,
            operators,
            nodes: Vec::new(),
            numbers: 0,
        };
        (0..4).for_each(|_| flood.join());
        flood
    }

    fn next(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn name(&mut self, what: &str) -> String {
        format!("{what}-{}", self.next())
    }

    fn join(&mut self) {
        let number = self.next();
        let node = self.world.node_with(number, 1_000_000);
        self.nodes.push(node);
    }

    fn node(&mut self) -> SessionId {
        self.nodes[self.chance.usize(0..self.nodes.len())]
    }

    fn sender(&mut self) -> SessionId {
        match self.chance.usize(0..3) {
            0 => self.controller,
            at => self.operators[at - 1],
        }
    }

    fn step(&mut self) {
        match self.chance.u32(0..10) {
            0 => self.list_many(),
            1 => self.report_names(),
            2 => self.let_wait(),
            3 => self.batch(),
            4 => self.delete_many(),
            5 => self.fail_at_length(),
            6 => {
                let at = self.chance.usize(0..self.nodes.len());
                let node = self.nodes.swap_remove(at);
                self.world.cut(node);
                self.join();
            }
            7 => {
                let topics = (0..1000).map(|at| Topic::from(Topic::KNOWN[at % 5]));
                let operator = self.operators[self.chance.usize(0..2)];
                self.world.say(operator, Command::Watch(topics.collect()));
            }
            8 => self.world.advance(Duration::from_secs(3)),
            _ => {
                let (sender, name) = (self.sender(), self.name("unheard-of"));
                self.world.start_as(sender, needing("x", 1, &name, 1));
            }
        }
        self.world.look_away();
    }

    fn list_many(&mut self) {
        let node = self.node();
        let listed = (0..500).map(|_| {
            let mut it = running(&self.name("listed"), 1);
            it.group = Some(self.name("group").into());
            it.requested = Some(Resources::ZERO);
            it.custom = vec![(self.name("asked").into(), 1)];
            it
        });
        let listed = listed.collect();
        self.world.stats(node, listed);
    }

    fn report_names(&mut self) {
        let node = self.node();
        let labels = (0..64).map(|_| (self.name("key").into(), self.name("value").into()));
        let labels = labels.collect();
        let prefix = self.name("resource");
        self.world.ready_with(
            node,
            NodeExtras {
                labels,
                ..names_of(&prefix)
            },
        );
    }

    fn let_wait(&mut self) {
        for _ in 0..50 {
            let (sender, name) = (self.sender(), self.name("waits"));
            let scheduling = Scheduling {
                queue: Some(Span::from_ms(5_000)),
                attempts: Some(10),
                ..Scheduling::default()
            };
            let mem = self.chance.i64(1..2_000_000);
            self.world.start_as(sender, asking(&name, mem, scheduling));
        }
    }

    fn batch(&mut self) {
        for _ in 0..100 {
            let (sender, name) = (self.sender(), self.name("batch"));
            self.world
                .start_as(sender, request(&name, 1).of_batch(&name, 2));
        }
    }

    fn delete_many(&mut self) {
        for _ in 0..200 {
            let (sender, node, name) = (self.sender(), self.node(), self.name("deleted"));
            self.world.delete(sender, &name, node);
        }
    }

    /// Launchers refuse what they were given, with as many words as a payload holds.
    fn fail_at_length(&mut self) {
        for _ in 0..20 {
            let (sender, name) = (self.sender(), self.name("refused"));
            self.world.start_as(sender, request(&name, 1).attempts(10));
        }
        for _ in 0..10 {
            for (name, node) in self.world.placements() {
                refuse_at_length(&mut self.world, node, &name);
            }
        }
    }

    fn leave(mut self) -> Footprint {
        let peers = self.nodes.iter().chain(&self.operators);
        let peers: Vec<SessionId> = peers.copied().chain([self.controller]).collect();
        peers.into_iter().for_each(|peer| self.world.cut(peer));
        // What is lost with a node is remembered for an hour.
        self.world.advance(Duration::from_secs(2 * 3600));
        let last = self.world.controller();
        self.world.cut(last);
        self.world.check();
        self.world.scheduler.footprint()
    }
}

fn flooded(seed: u64) {
    let mut flood = Flood::new(seed);
    for _ in 0..150 {
        flood.step();
        let held = flood.world.scheduler.footprint();
        within_limits(&held, held.nodes);
    }
    let left = flood.leave();
    let nothing = Footprint {
        resource_names: left.resource_names,
        past: left.past,
        past_bytes: left.past_bytes,
        outputs: left.outputs,
        named: left.named,
        capacity: left.capacity,
        ..Footprint::default()
    };
    assert_eq!(left, nothing);
    assert!(left.outputs <= MAX_OUTPUTS);
    assert!(left.past_bytes <= MAX_PAST_BYTES);
    assert!(left.capacity < 16 * 4096, "{} places", left.capacity);
}

#[test]
fn whatever_peers_flood_it_with_the_core_holds_so_much_and_gives_it_back() {
    for_each_seed(3, flooded);
}
