//! Batches and dry runs over random histories: all or none of a batch is placed, in one step; and what was not placed
//! leaves no trace. More seeds, or one: see `seeds`.

use std::collections::BTreeMap;

use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::{Batch, Group, GroupPolicy, NodeView, Scheduling};
use sched_core::{
    ClusterConfiguration, Message, PolicyRules, Resources, Rules, SessionId, StartRequest,
};

use crate::support::seeds::for_each_seed;
use crate::support::world::{Size, World, config, id, request, running};

/// Steps of one run.
const STEPS: u32 = 60;

/// Seeds of an ordinary run of the tests, of each test.
const SEEDS: u64 = 150;

struct Cluster {
    world: World,
    controller: SessionId,
    operator: SessionId,
    nodes: Vec<SessionId>,
}

impl Cluster {
    /// A few nodes that have said what runs on them; those of one seed are alike.
    fn new(seed: u64) -> Self {
        let mut chance = Rng::with_seed(seed);
        let preset = ["first-fit", "spread", "pack"][chance.usize(..3)];
        let mut policy = PolicyRules::preset(preset).expect("there is such a preset");
        policy.subset_size = chance.usize(1..4);
        let cluster = ClusterConfiguration {
            rules: Rules {
                policy,
                ..Rules::default()
            },
            ..ClusterConfiguration::default()
        };
        let (mut world, controller) = World::configured(config(), cluster).with_controller();
        let operator = world.operator(&[]);
        let mut nodes = Vec::new();
        for number in 0..chance.u64(2..7) {
            let size = Size {
                mem: chance.i64(20..60),
                cpus: chance.i64(2..12),
                disk: 100,
            };
            let node = world.node(number, size);
            world.stats(node, vec![running(&format!("old{number}"), 0)]);
            nodes.push(node);
        }
        world.look_away();
        Self {
            world,
            controller,
            operator,
            nodes,
        }
    }

    /// The nodes that these STARTs were given to, in order, and how many failed.
    fn start(&mut self, starts: Vec<StartRequest>) -> (Vec<(String, SessionId)>, usize) {
        for start in starts {
            self.world.start_as(self.controller, start);
        }
        let placed = self.world.placements();
        let told = self.world.told(self.controller);
        let is_failure = |message: &&Message| matches!(message, Message::StartFailure(_));
        (placed, told.iter().filter(is_failure).count())
    }

    fn rows(&mut self) -> Vec<NodeView> {
        self.world.nodes(self.operator)
    }
}

fn a_start(name: &str, chance: &mut Rng) -> StartRequest {
    let mut start = request(name, chance.i64(0..15));
    start.asked.vcpus = chance.i64(0..3);
    let kind = chance.u8(..6);
    let group = (kind < 3).then(|| Group {
        id: format!("g{kind}"),
        policy: [
            GroupPolicy::AntiAffinity,
            GroupPolicy::Affinity,
            GroupPolicy::SoftAntiAffinity,
        ][usize::from(kind)]
        .clone(),
        scope: "node".to_owned(),
        max: (kind == 0).then(|| chance.u32(1..3)),
    });
    start.scheduling = Some(Box::new(Scheduling {
        group,
        ..Scheduling::default()
    }));
    start
}

/// Some STARTs that are to be placed together.
fn a_batch(id: &str, chance: &mut Rng) -> Vec<StartRequest> {
    let count = chance.u32(1..7);
    let member = |number: u32| {
        let mut start = a_start(&format!("{id}-{number}"), chance);
        let scheduling = start.scheduling.as_mut().expect("it has one");
        scheduling.batch = Some(Batch {
            id: id.to_owned(),
            count,
        });
        start
    };
    (0..count).map(member).collect()
}

#[test]
fn all_of_a_batch_are_placed_in_one_step_or_each_fails() {
    let (mut whole, mut none) = (0, 0);
    for_each_seed(SEEDS, |seed| {
        let mut cluster = Cluster::new(seed);
        let mut chance = Rng::with_seed(seed);
        // What nodes were given, and where.
        let mut there: BTreeMap<String, SessionId> = BTreeMap::new();
        for step in 0..STEPS {
            let mut batch = a_batch(&format!("b{step}"), &mut chance);
            // One of them may be there already, as when a batch is sent again.
            let names: Vec<String> = there.keys().cloned().collect();
            let again = chance.choice(names).filter(|_| chance.bool());
            if let Some(name) = &again {
                let at = chance.usize(..batch.len());
                batch[at].instance = id(name);
                // It asks for no more than it has.
                batch[at].asked = Resources::ZERO;
            }
            let known = usize::from(again.is_some());
            let last = batch.pop().expect("it has one at least");
            let (count, other) = (batch.len() + 1, a_start(&format!("o{step}"), &mut chance));
            for start in batch {
                assert_eq!(
                    cluster.start(vec![start]),
                    (vec![], 0),
                    "it waits for the last"
                );
                if chance.u8(..4) == 0 {
                    there.extend(cluster.start(vec![other.clone()]).0);
                }
            }
            let (placed, failed) = cluster.start(vec![last]);
            assert!(
                (placed.len(), failed) == (count, 0)
                    || (placed.len(), failed) == (known, count - known),
                "{} of {count} were placed and {failed} failed",
                placed.len()
            );
            let again = placed.iter().filter(|(name, _)| there.contains_key(name));
            for (name, node) in again {
                assert_eq!(there[name], *node, "{name} is there already");
            }
            whole += usize::from(failed == 0);
            none += usize::from(failed > 0);
            for (name, node) in placed {
                if chance.bool() {
                    cluster.world.gone(node, Kind::INSTANCE_DELETED, &name);
                    there.remove(&name);
                } else {
                    there.insert(name, node);
                }
            }
        }
    });
    println!("{whole} batches were placed, {none} were not");
}

#[test]
fn what_was_not_placed_leaves_no_trace() {
    for_each_seed(SEEDS, |seed| {
        let (mut one, mut other) = (Cluster::new(seed), Cluster::new(seed));
        let mut chance = Rng::with_seed(seed);
        for step in 0..STEPS {
            let name = format!("x{step}");
            if chance.bool() {
                let mut trial = a_start(&name, &mut chance);
                let scheduling = trial.scheduling.as_mut().expect("it has one");
                scheduling.dry_run = true;
                scheduling.count = Some(chance.u32(1..6));
                assert_eq!(one.start(vec![trial]), (vec![], 0));
            } else {
                let mut batch = a_batch(&name, &mut chance);
                // One that fits nowhere, somewhere among the others.
                let at = chance.usize(..batch.len());
                batch[at].asked.mem_mib = 1000;
                let count = batch.len();
                assert_eq!(one.start(batch), (vec![], count));
            }
            let start = a_start(&format!("i{step}"), &mut chance);
            assert_eq!(one.start(vec![start.clone()]), other.start(vec![start]));
            assert_eq!(one.rows(), other.rows());
            if chance.bool() {
                let at = chance.usize(..one.nodes.len());
                for cluster in [&mut one, &mut other] {
                    let node = cluster.nodes[at];
                    cluster.world.stats(node, vec![running("new", 0)]);
                    cluster.world.look_away();
                }
            }
        }
    });
}
