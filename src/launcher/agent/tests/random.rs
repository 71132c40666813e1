//! Random instances by seed: whatever is asked in whatever order, orders make sense to the machine, nothing is handed out twice,
//! commands are answered, what is under the lease ends in time, and in the end nothing is left.

use fastrand::Rng;

use proto_frames::payload::{RestartPolicy, RestartWhen, Span};

use super::*;

const SEEDS: u64 = 300;
const STEPS: usize = 200;

/// What leases launchers of the node take, one after the other.
const LEASES: [Duration; 3] = [
    Duration::from_secs(18),
    Duration::from_secs(30),
    Duration::from_secs(120),
];

/// Vcpus of the node.
const VCPUS: i64 = 4;

/// A process of the machine.
#[derive(Debug, Default)]
struct Process {
    leased: bool,
    vcpus: i64,
    frozen: bool,
    killed: bool,
    terminated: bool,
}

/// What the machine was asked and has not answered.
#[derive(Debug, PartialEq, Eq)]
enum Unanswered {
    Spawn(String, bool, i64),
    Freeze(String),
    Thaw(String),
    Limit(String, i64),
}

impl Unanswered {
    /// Whether it changes this instance's process.
    fn changes(&self, id: &str) -> bool {
        match self {
            Self::Spawn(..) => false,
            Self::Freeze(other) | Self::Thaw(other) | Self::Limit(other, _) => other == id,
        }
    }
}

struct Life {
    world: World,
    rng: Rng,
    /// Draws leases, so that everything else is drawn as it was without.
    leases: Rng,
    processes: BTreeMap<String, Process>,
    /// Instances that were started, and whether under the lease: for those that are started again.
    started: BTreeMap<String, bool>,
    unanswered: Vec<Unanswered>,
    lease_until: Option<Instant>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut world = World::disconnected();
        world.lease = Some(LEASES[1]);
        world.records_ends = seed % 2 == 1;
        world.agent = world.new_agent();
        world.connect();
        Self {
            world,
            rng: Rng::with_seed(seed),
            leases: Rng::with_seed(!seed),
            processes: BTreeMap::new(),
            started: BTreeMap::new(),
            unanswered: Vec::new(),
            lease_until: None,
        }
    }

    fn step(&mut self) {
        let id = ["a", "b", "c"][self.rng.usize(..3)];
        match self.rng.u32(..16) {
            0 | 1 => self.start(id),
            2..=4 => self.world.suspend(id),
            5 | 6 => self.world.resume(id),
            7 => {
                let vcpus = self.rng.i64(1..=4);
                self.world.update(id, 1, vcpus);
            }
            8 => {
                let stop = self.rng.bool();
                self.world.delete(id, stop);
            }
            9 => self.exit(id),
            10 => self.reconnect(),
            11 => self.restart(),
            12 => {
                let time = Duration::from_millis(self.rng.u64(..9000));
                self.world.advance(time);
            }
            13 => self.renew(),
            _ => self.answer(),
        }
        self.obey();
        self.check();
    }

    fn start(&mut self, id: &str) {
        let mut start = process(id, 1);
        start.requirements.vcpus = self.rng.i64(1..=2);
        if self.rng.bool() {
            start.scheduling = Some(Scheduling {
                on_node_loss: OnNodeLoss::Restart,
                ..Scheduling::default()
            });
        }
        if self.leases.bool() {
            let scheduling = start.scheduling.get_or_insert_default();
            scheduling.restart = Some(RestartPolicy {
                when: RestartWhen::Always,
                max: self.leases.bool().then_some(3),
                ..RestartPolicy::default()
            });
            scheduling.time_limit = self.leases.bool().then_some(Span::from_ms(20_000));
        }
        self.world.start(start);
    }

    fn exit(&mut self, id: &str) {
        if self.processes.remove(id).is_some() {
            // No process is left to do it, and one that is started again after this is another.
            self.unanswered.retain(|it| !it.changes(id));
            self.world.exits(id, 0);
        }
    }

    fn reconnect(&mut self) {
        self.world.handle(Input::Disconnected);
        if self.rng.bool() {
            let time = Duration::from_millis(self.rng.u64(..40_000));
            self.world.advance(time);
        }
        self.world.connect();
    }

    /// The launcher is killed and another takes over, maybe with another lease; the machine sees to the lease meanwhile.
    fn restart(&mut self) {
        if self.leases.bool() {
            self.world.lease = Some(LEASES[self.leases.usize(..LEASES.len())]);
        }
        // What the supervisors were just told happens; no report of it leaves.
        while !self.unanswered.is_empty() {
            let pending = self.unanswered.remove(0);
            self.does(&pending);
        }
        self.world.launchers += 1;
        if let Some(until) = self.lease_until.filter(|until| *until > self.world.now) {
            self.world.agent = self.world.new_agent();
            self.world.agent.recover_lease(until);
        } else {
            self.lease_until = None;
            self.processes.retain(|_, process| !process.leased);
            self.world.agent = self.world.new_agent();
        }
        self.world.forget_what_happened();
        let found = |record: &InstanceRecord| match self.processes.contains_key(&record.instance) {
            true => ProcessFate::Running,
            false => ProcessFate::Ended(None),
        };
        let records = self.world.records.values().cloned();
        let recovered = records.map(|record| Recovered {
            found: found(&record),
            age: Duration::ZERO,
            ended_ago: None,
            ran: Ran::default(),
            record,
        });
        let recovered = recovered.collect();
        let (now, maintenance) = (self.world.now, self.world.maintenance);
        self.world.agent.recover(now, maintenance, recovered);
        self.world.settle();
        self.world.connect();
    }

    fn renew(&mut self) {
        let seq = |message: &Message| match message {
            Message::Stats(stats) => stats.lease_seq,
            _ => None,
        };
        if let Some(seq) = self.world.sent.iter().rev().find_map(seq) {
            let renewed = LeaseRenewed { seq };
            self.world
                .handle(Input::Command(Command::LeaseRenewed(Ok(renewed))));
        }
        if self.rng.bool() {
            self.record();
        }
    }

    /// The scheduler has all ends on record that the latest STATS told.
    fn record(&mut self) {
        let told = |message: &Message| match message {
            Message::Stats(stats) => stats.ended.last().map(|end| end.seq),
            _ => None,
        };
        if let Some(seq) = self.world.sent.iter().rev().find_map(told) {
            let recorded = EndsRecorded {
                incarnation: NUMBERING.incarnation.to_string(),
                seq,
            };
            self.world
                .handle(Input::Command(Command::EndsRecorded(Ok(recorded))));
        }
    }

    /// Takes the orders that were given, and sees that they can be.
    fn obey(&mut self) {
        for order in self.world.orders() {
            match order {
                AgentAction::Respawn(it) => {
                    assert!(!self.processes.contains_key(&it.instance));
                    let leased = self.started[&it.instance];
                    let spawn = Unanswered::Spawn(it.instance, leased, it.vcpus);
                    self.unanswered.push(spawn);
                }
                AgentAction::Clear(id) => assert!(!self.processes.contains_key(&id)),
                AgentAction::Spawn(it) => {
                    assert!(!self.processes.contains_key(&it.instance));
                    self.started.insert(it.instance.clone(), it.leased);
                    let spawn = Unanswered::Spawn(it.instance, it.leased, it.vcpus);
                    self.unanswered.push(spawn);
                }
                AgentAction::Freeze(id) => {
                    self.expect_alone(&id);
                    self.unanswered.push(Unanswered::Freeze(id));
                }
                AgentAction::Thaw(id) => self.unanswered.push(Unanswered::Thaw(id)),
                AgentAction::SetLimits {
                    instance, vcpus, ..
                } => {
                    self.expect_alone(&instance);
                    self.unanswered.push(Unanswered::Limit(instance, vcpus));
                }
                AgentAction::Terminate(id) => {
                    let process = self.processes.get_mut(&id).unwrap();
                    process.terminated = true;
                    process.frozen = false;
                }
                AgentAction::Kill(id) => self.processes.get_mut(&id).unwrap().killed = true,
                AgentAction::ExtendLease(until) => self.lease_until = Some(until),
                _ => {}
            }
        }
    }

    /// Nothing else that changes the instance is under way.
    fn expect_alone(&self, id: &str) {
        let changes = |it: &Unanswered| match it {
            Unanswered::Freeze(other) | Unanswered::Limit(other, _) => other == id,
            _ => false,
        };
        assert!(
            !self.unanswered.iter().any(changes),
            "{:?}",
            self.unanswered
        );
        assert!(self.processes.contains_key(id));
    }

    /// Does the oldest of what is unanswered, or fails, and says so.
    fn answer(&mut self) {
        if self.unanswered.is_empty() {
            return;
        }
        let pending = self.unanswered.remove(0);
        let fails = self.rng.u32(..5) == 0 && !self.is_done(&pending);
        let done = if fails { None } else { self.does(&pending) };
        let result = done.ok_or_else(|| "no".to_owned());
        let input = match pending {
            Unanswered::Spawn(instance, ..) if result.is_ok() => Input::Started { instance },
            Unanswered::Spawn(instance, ..) => Input::StartFailed {
                instance,
                fault: LaunchFault::Launch,
                detail: String::new(),
            },
            Unanswered::Freeze(instance) => Input::Frozen { instance, result },
            Unanswered::Thaw(instance) => Input::Thawed { instance, result },
            Unanswered::Limit(instance, _) => Input::LimitsSet { instance, result },
        };
        self.world.handle(input);
    }

    /// Whether it was done before a restart, of which no report left: then it can be done again.
    fn is_done(&self, pending: &Unanswered) -> bool {
        let is_so =
            |id: &String, of: &dyn Fn(&Process) -> bool| self.processes.get(id).is_some_and(of);
        match pending {
            Unanswered::Limit(id, vcpus) => is_so(id, &|it| it.vcpus == *vcpus),
            Unanswered::Thaw(id) => is_so(id, &|it| !it.frozen),
            Unanswered::Spawn(..) | Unanswered::Freeze(_) => false,
        }
    }

    fn does(&mut self, pending: &Unanswered) -> Option<()> {
        match pending {
            Unanswered::Spawn(id, leased, vcpus) => {
                if *leased && self.lease_until.is_none_or(|until| until <= self.world.now) {
                    return None;
                }
                let process = Process {
                    leased: *leased,
                    vcpus: *vcpus,
                    ..Process::default()
                };
                self.processes.insert(id.clone(), process);
            }
            Unanswered::Freeze(id) => {
                let process = self.processes.get_mut(id).filter(|it| !it.terminated)?;
                process.frozen = true;
            }
            Unanswered::Thaw(id) => self.processes.get_mut(id)?.frozen = false,
            Unanswered::Limit(id, vcpus) => self.processes.get_mut(id)?.vcpus = *vcpus,
        }
        Some(())
    }

    fn check(&self) {
        let now = self.world.now;
        let over = self.lease_until.is_none_or(|until| until <= now);
        for (id, process) in &self.processes {
            assert!(
                !over || !process.leased || process.killed,
                "{id}: {process:?}"
            );
        }
        if let (Some(until), Some(promised)) = (self.lease_until, self.world.promised) {
            assert!(until <= promised, "longer than was announced");
        }
        let runs = |it: &&Process| !it.frozen && !it.terminated && !it.killed;
        let vcpus = self.processes.values().filter(runs).map(|it| it.vcpus);
        assert!(vcpus.sum::<i64>() <= VCPUS, "{:?}", self.processes);
    }

    /// Everything is answered and removed.
    fn finish(&mut self) {
        while !self.unanswered.is_empty() {
            self.answer();
            self.obey();
        }
        for id in ["a", "b", "c"] {
            self.world.delete(id, false);
            self.obey();
            while !self.unanswered.is_empty() {
                self.answer();
                self.obey();
            }
            self.exit(id);
        }
        self.world.advance(INTERVAL * 2);
        if self.world.records_ends {
            self.record();
        }
        assert!(self.world.records.is_empty(), "{:?}", self.world.records);
        assert!(self.processes.is_empty());
    }
}

#[test]
fn random_lifecycles_keep_the_invariants() {
    for_each_seed(SEEDS, |seed| {
        let mut life = Life::new(seed);
        (0..STEPS).for_each(|_| life.step());
        life.finish();
    });
}
