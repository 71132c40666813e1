//! The choice against the original's loop, written out literally, over random histories.

use std::collections::HashMap;

use ciao_scheduler::sched::{InstanceReport, Resources, SessionId};
use proptest::prelude::*;
use proto_frames::Kind;
use proto_frames::payload::StartFailureReason;

use crate::world::{Size, World, node_uuid, request, running};

/// The original's table and loop, with the claims of the specification, as plainly as can be.
#[derive(Default)]
struct Oracle {
    /// In order of connection.
    nodes: Vec<OracleNode>,
    most_recently_used: Option<u64>,
}

struct OracleNode {
    number: u64,
    ready: bool,
    size: Option<Size>,
    /// Instance, what it asked for, what it uses.
    instances: Vec<(String, Resources, i64)>,
}

impl OracleNode {
    fn fits(&self, asked: &Resources) -> bool {
        let Some(size) = self.size.filter(|_| self.ready) else {
            return false;
        };
        let mem: i64 = self
            .instances
            .iter()
            .map(|(_, asked, used)| (asked.mem_mib - used).max(0))
            .sum();
        let cpus: i64 = self.instances.iter().map(|(_, asked, _)| asked.vcpus).sum();
        let disk: i64 = self
            .instances
            .iter()
            .map(|(_, asked, _)| asked.disk_mib)
            .sum();
        size.mem - mem >= asked.mem_mib
            && size.cpus - cpus >= asked.vcpus
            && size.disk - disk >= asked.disk_mib
    }
}

impl Oracle {
    fn choose(&mut self, asked: &Resources) -> Option<u64> {
        let mru = self.most_recently_used;
        let after = self
            .nodes
            .iter()
            .position(|node| Some(node.number) == mru)
            .map_or(0, |at| at + 1);
        let order = (after..self.nodes.len()).chain(0..self.nodes.len());
        for at in order {
            if self.nodes[at].fits(asked) {
                self.most_recently_used = Some(self.nodes[at].number);
                return Some(self.nodes[at].number);
            }
        }
        None
    }

    /// A node that has joined.
    fn node(&mut self, number: u64) -> &mut OracleNode {
        let node = self.nodes.iter_mut().find(|node| node.number == number);
        node.expect("it has joined")
    }
}

#[derive(Debug, Clone)]
enum Step {
    Join(u64),
    Leave(u64),
    Ready(u64, Size),
    Full(u64),
    Start(Resources),
    Fail(u64),
    Delete(u64),
    Stats(u64, i64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0u64..12;
    let size =
        (-1i64..40, -1i64..12, -1i64..12).prop_map(|(mem, cpus, disk)| Size { mem, cpus, disk });
    let asked = (0i64..12, 0i64..4, 0i64..4).prop_map(|(mem_mib, vcpus, disk_mib)| Resources {
        mem_mib,
        vcpus,
        disk_mib,
    });
    let step = prop_oneof![
        2 => number.clone().prop_map(Step::Join),
        1 => number.clone().prop_map(Step::Leave),
        4 => (number.clone(), size).prop_map(|(number, size)| Step::Ready(number, size)),
        1 => number.clone().prop_map(Step::Full),
        12 => asked.prop_map(Step::Start),
        1 => number.clone().prop_map(Step::Fail),
        1 => number.clone().prop_map(Step::Delete),
        2 => (number, 0i64..20).prop_map(|(number, used)| Step::Stats(number, used)),
    ];
    proptest::collection::vec(step, 1..300)
}

/// Both sides of the comparison.
struct Pair {
    world: World,
    oracle: Oracle,
    controller: SessionId,
    sessions: HashMap<u64, SessionId>,
    started: u64,
}

impl Pair {
    fn new() -> Self {
        let mut world = World::new();
        let controller = world.controller();
        Self {
            world,
            oracle: Oracle::default(),
            controller,
            sessions: HashMap::new(),
            started: 0,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join(number) => self.join(number),
            Step::Leave(number) => self.leave(number),
            Step::Start(asked) => self.start(asked),
            Step::Ready(number, size) => {
                let Some(&session) = self.sessions.get(&number) else {
                    return;
                };
                self.world.ready(session, size);
                let node = self.oracle.node(number);
                // An unknown figure fits nothing, whatever is asked.
                let known = size.mem >= 0 && size.cpus >= 0 && size.disk >= 0;
                (node.ready, node.size) = (true, known.then_some(size));
            }
            Step::Full(number) => {
                let Some(&session) = self.sessions.get(&number) else {
                    return;
                };
                self.world.status(session, Kind::FULL);
                self.oracle.node(number).ready = false;
            }
            Step::Fail(number) => self.end_first(number, |world, session, name| {
                world.start_failed(session, name, StartFailureReason::LaunchFailure);
            }),
            Step::Delete(number) => self.end_first(number, |world, session, name| {
                world.gone(session, Kind::INSTANCE_DELETED, name);
            }),
            Step::Stats(number, used) => self.stats(number, used),
        }
    }

    fn join(&mut self, number: u64) {
        if self.sessions.contains_key(&number) {
            return;
        }
        self.sessions.insert(number, self.world.silent_node(number));
        self.oracle.nodes.push(OracleNode {
            number,
            ready: false,
            size: None,
            instances: Vec::new(),
        });
    }

    fn leave(&mut self, number: u64) {
        let Some(session) = self.sessions.remove(&number) else {
            return;
        };
        self.world.cut(session);
        // Its claims end with the in-doubt time, so that one which joins again starts afresh.
        self.world.advance(std::time::Duration::from_secs(15));
        self.oracle.nodes.retain(|node| node.number != number);
        if self.oracle.most_recently_used == Some(number) {
            self.oracle.most_recently_used = None;
        }
    }

    fn start(&mut self, asked: Resources) {
        self.started += 1;
        let name = format!("i{}", self.started);
        let mut start = request(&name, 0);
        start.asked = asked;
        let chosen = self.world.place_as(self.controller, start);
        let expected = self.oracle.choose(&asked);
        assert_eq!(
            chosen.map(|session| self.world.uuid_of(session)),
            expected.map(node_uuid),
            "{asked:?}"
        );
        if let Some(number) = expected {
            self.oracle.node(number).instances.push((name, asked, 0));
        }
    }

    fn end_first(&mut self, number: u64, end: impl FnOnce(&mut World, SessionId, &str)) {
        let Some(&session) = self.sessions.get(&number) else {
            return;
        };
        let node = self.oracle.node(number);
        if node.instances.is_empty() {
            return;
        }
        let (name, ..) = node.instances.remove(0);
        end(&mut self.world, session, &name);
    }

    /// Lists everything the node has, the first instance with this much memory in use.
    fn stats(&mut self, number: u64, used: i64) {
        let Some(&session) = self.sessions.get(&number) else {
            return;
        };
        let node = self.oracle.node(number);
        if let Some(first) = node.instances.first_mut() {
            first.2 = used;
        }
        let reports: Vec<InstanceReport> = node
            .instances
            .iter()
            .map(|(name, _, used)| running(name, *used))
            .collect();
        self.world.stats(session, reports);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_choice_is_always_the_originals(steps in steps()) {
        let mut pair = Pair::new();
        for step in steps {
            pair.step(step);
        }
    }
}
