//! Random STARTs of instances that are there already, in every way a START comes in, while connections end, leases are
//! over, nodes take their time and the scheduler crashes: nothing runs twice, and what is to be restarted is not lost.
//! More seeds, or one: see `seeds`.
//!
//! Names say what an instance is: `r…` is restarted when its node is lost, `q…` may wait for room, `p…` is plain.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use fastrand::Rng;
use proto_frames::payload::{Migrate, OnNodeLoss, PhaseName, Scheduling, Span, StartFailureReason};
use sched_core::{
    Capabilities, Config, InstanceReport, LauncherCommand, Message, NodeExtras, NodeReport, Report,
    Resources, Rules, SessionId, StartRequest, StatsReport,
};

use crate::support::durability::durable;
use crate::support::histories::{History, run_histories};
use crate::support::requests::Asking;
use crate::support::world::{Size, World, id, known_node, node_uuid, report, request, running};

const HOSTS: u64 = 4;
const MEM: i64 = 1000;
/// All of them fit on one host.
const NAMES: u32 = 4;
const ASKED: i64 = 50;
const STEPS: usize = 250;
const ROUNDS: usize = 60;
/// Seeds that found a defect once.
const FOUND: [u64; 1] = [5714];
const LEASE: Duration = Duration::from_secs(30);
/// How long after its connection has ended a host has killed what is under its lease.
const KILLED_AFTER: Duration = Duration::from_secs(27);

/// What a host says of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Stopped,
    Deleted,
    CutOff,
}

/// What a host says, in order.
#[derive(Debug)]
enum Said {
    /// READY and STATS.
    Report(u64, Vec<String>),
    Ended(String, End),
    Failed(String, StartFailureReason),
    NotThere(String),
}

/// A launcher with a lease.
#[derive(Debug, Default)]
struct Host {
    number: u64,
    session: Option<SessionId>,
    has: BTreeSet<String>,
    inbox: VecDeque<Message>,
    outbox: VecDeque<Said>,
    seen: u64,
    /// Whether what is under its lease may run.
    is_leased: bool,
    lost_for: Duration,
    /// Ends that the scheduler may not have heard of.
    unheard: BTreeMap<String, End>,
    /// Whether the scheduler has heard on this connection what it has.
    has_listed: bool,
}

struct Run {
    world: World,
    chance: Rng,
    controller: SessionId,
    hosts: Vec<Host>,
    /// Started, and not known to be gone.
    open: BTreeSet<String>,
    /// Those of which the scheduler has said since that it has them.
    known: BTreeSet<String>,
    batches: u32,
    /// What hosts have and the scheduler knows nothing of: given to them at once, and not on disk when it crashed; or given
    /// up with its node, as its sender was told.
    forgotten: BTreeSet<String>,
}

#[test]
fn whatever_is_started_again_nothing_runs_twice() {
    run_histories::<Run>(&FOUND, 150, STEPS);
}

fn is_restarted(name: &str) -> bool {
    name.starts_with('r')
}

fn start_of(name: &str) -> StartRequest {
    let mut start = request(name, ASKED);
    let mut scheduling = Scheduling::default();
    match name.as_bytes()[0] {
        b'r' => scheduling.on_node_loss = OnNodeLoss::Restart,
        b'q' => scheduling.queue = Some(Span::from_ms(100_000)),
        _ => return start,
    }
    start.scheduling = Some(Box::new(scheduling));
    start
}

fn expecting() -> Config {
    Config {
        known_nodes: (1..=HOSTS).map(known_node).collect(),
        ..durable()
    }
}

impl History for Run {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::with(durable()).check_every(10).with_controller();
        let host = |number| Host {
            number,
            ..Host::default()
        };
        let mut run = Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            hosts: (1..=HOSTS).map(host).collect(),
            open: BTreeSet::new(),
            known: BTreeSet::new(),
            batches: 0,
            forgotten: BTreeSet::new(),
        };
        for at in 0..run.hosts.len() {
            run.connect(at);
        }
        run
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.hosts.len());
        match self.chance.u8(..64) {
            0..14 => self.start(),
            14..26 => self.take_in(at, true),
            26..40 => self.hear(at),
            40..48 => self.report(at),
            48 => self.delete(at),
            49 => self.end_one(at),
            50..53 => self.end_lease(at),
            53..56 => self.cut(at),
            56..59 => self.connect(at),
            59 => self.migrate(at),
            60 => self.crash(),
            61 => self.world.store.be_slow(),
            62 => self.commit(),
            _ => {
                let time = Duration::from_secs(self.chance.u64(..25));
                self.pass(time);
            }
        }
        self.pass(Duration::from_millis(10));
        self.listen();
    }

    fn check(&self) {
        let mut seen = BTreeMap::new();
        for host in &self.hosts {
            for name in &host.has {
                let other = seen.insert(name, host.number);
                assert_eq!(other, None, "{name} runs on {} as well", host.number);
            }
        }
    }

    /// Everything is done and said; then what is to be restarted runs, unless it was deleted, ended or failed.
    fn come_to_rest(&mut self) {
        for _ in 0..ROUNDS {
            self.commit();
            for at in 0..self.hosts.len() {
                if self.hosts[at].session.is_none() {
                    self.connect(at);
                }
                self.report(at);
                while !self.hosts[at].inbox.is_empty() || !self.hosts[at].outbox.is_empty() {
                    self.take_in(at, false);
                    self.hear(at);
                    self.listen();
                    self.check();
                }
            }
            self.pass(Duration::from_secs(5));
            self.listen();
        }
        self.world.check();
        let hosts = self.hosts.iter();
        let there: BTreeSet<_> = hosts.flat_map(|host| host.has.iter().cloned()).collect();
        let lost = self.open.intersection(&self.known);
        let lost = lost.filter(|name| !there.contains(*name));
        // What it knew nothing of it did not know how to start again.
        let is_its_own = |name: &&String| is_restarted(name) && !self.forgotten.contains(*name);
        let lost: Vec<_> = lost.filter(is_its_own).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
    }
}

impl Run {
    fn start(&mut self) {
        let kind = ["r", "r", "q", "p"][self.chance.usize(..4)];
        let name = format!("{kind}{}", self.chance.u32(..NAMES));
        if !self.may_start(&name) {
            return;
        }
        let start = start_of(&name);
        self.open.insert(name);
        let starts = match self.chance.u8(..8) {
            0..4 => vec![start],
            4..6 => vec![start.of_batch(&self.next_batch(), 1)],
            6 if kind != "p" => {
                // The others do not come: it is given up.
                vec![start.of_batch(&self.next_batch(), 3)]
            }
            _ => {
                let id = self.next_batch();
                let other = format!("r{}", self.chance.u32(..NAMES));
                if !self.may_start(&other) {
                    return;
                }
                self.open.insert(other.clone());
                let first = start_of(&other).of_batch(&id, 2);
                vec![first, start.of_batch(&id, 2)]
            }
        };
        for start in starts {
            self.world.start_as(self.controller, start);
        }
    }

    fn next_batch(&mut self) -> String {
        self.batches += 1;
        format!("b{}", self.batches)
    }

    /// Whether nothing runs twice if it is started: what has no lease may run on a lost host, and who starts it again
    /// is to know that. What is plain is known to the scheduler only by what hosts list.
    fn may_start(&self, name: &str) -> bool {
        let mut having = self.hosts.iter().filter(|host| host.has.contains(name));
        match name.as_bytes()[0] {
            _ if self.forgotten.contains(name) => {
                having.all(|host| host.session.is_some() && host.has_listed)
            }
            b'r' => true,
            b'q' => having.all(|host| host.session.is_some()),
            _ => {
                let on_the_way = |message: &Message| matches!(message, Message::Start(start) if start.request.instance == id(name));
                having.all(|host| host.session.is_some() && host.has_listed)
                    && !self
                        .hosts
                        .iter()
                        .any(|host| host.inbox.iter().any(on_the_way))
            }
        }
    }

    /// A host comes to the next thing that it was told.
    fn take_in(&mut self, at: usize, may_refuse: bool) {
        let refuses = may_refuse && self.chance.u8(..8) == 0;
        let host = &mut self.hosts[at];
        match host.inbox.pop_front() {
            Some(Message::Start(start)) => {
                host.seen += 1;
                let name = start.request.instance.to_string();
                let refusal = if host.has.contains(&name) {
                    Some(StartFailureReason::AlreadyRunning)
                } else if is_restarted(&name) && !host.is_leased {
                    Some(StartFailureReason::LaunchFailure)
                } else {
                    refuses.then_some(StartFailureReason::FullComputeNode)
                };
                match refusal {
                    Some(reason) => host.outbox.push_back(Said::Failed(name, reason)),
                    None => {
                        host.unheard.remove(&name);
                        host.has.insert(name);
                    }
                }
            }
            Some(Message::Targeted(command)) => {
                self.end(at, &command.target.instance.to_string(), End::Deleted);
            }
            Some(Message::LauncherCommand(order)) => match *order {
                LauncherCommand::Stop(delete) => self.end(at, &delete.instance_uuid, End::Stopped),
                other => panic!("{other:?}"),
            },
            _ => {}
        }
    }

    fn end(&mut self, at: usize, name: &str, how: End) {
        let host = &mut self.hosts[at];
        if !host.has.remove(name) {
            host.outbox.push_back(Said::NotThere(name.to_owned()));
            return;
        }
        host.unheard.insert(name.to_owned(), how);
        if host.session.is_some() {
            host.outbox.push_back(Said::Ended(name.to_owned(), how));
        }
    }

    /// Something ends by itself.
    fn end_one(&mut self, at: usize) {
        let names: Vec<String> = self.hosts[at].has.iter().cloned().collect();
        if let Some(name) = self.chance.choice(names) {
            self.open.remove(&name);
            self.end(at, &name, End::Stopped);
        }
    }

    /// The lease of a host is over: what is under it is killed.
    fn end_lease(&mut self, at: usize) {
        self.hosts[at].is_leased = false;
        let killed = self.hosts[at].has.iter().filter(|name| is_restarted(name));
        let killed: Vec<String> = killed.cloned().collect();
        for name in killed {
            self.end(at, &name, End::CutOff);
        }
    }

    fn report(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        if host.session.is_some() {
            let names = host.has.iter().cloned().collect();
            host.outbox.push_back(Said::Report(host.seen, names));
        }
    }

    /// The next thing that a host has said arrives.
    fn hear(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        let Some(session) = host.session else { return };
        let world = &mut self.world;
        match host.outbox.pop_front() {
            Some(Said::Report(seen, names)) => {
                (host.is_leased, host.has_listed) = (true, true);
                let number = host.number;
                world.report(session, ready(number));
                let report = StatsReport {
                    is_plain: true,
                    node: node_uuid(number).to_string().into(),
                    starts_seen: Some(seen),
                    instances: names.iter().map(|name| listed(name)).collect(),
                    ..StatsReport::default()
                };
                world.say(session, Report::Stats(Box::new(report)));
            }
            Some(Said::Ended(name, how)) => {
                host.unheard.remove(&name);
                let instance = id(&name);
                let report = match how {
                    End::Stopped => Report::InstanceStopped(instance),
                    End::Deleted => Report::InstanceDeleted(instance),
                    End::CutOff => Report::InstanceCutOff(instance),
                };
                world.say(session, report);
            }
            Some(Said::Failed(name, reason)) => world.start_failed(session, &name, reason),
            Some(Said::NotThere(name)) => {
                let report = Report::DeleteFailed {
                    node: "".into(),
                    instance: id(&name),
                    no_instance: true,
                };
                world.say(session, report);
            }
            None => {}
        }
    }

    /// A connection begins; one that stands is replaced.
    fn connect(&mut self, at: usize) {
        if self.hosts[at].session.is_some() {
            let unsent = self.break_off(at);
            self.world.put_back(unsent);
        }
        let number = self.hosts[at].number;
        let session = self.world.silent_node(number);
        let host = &mut self.hosts[at];
        host.session = Some(session);
        (host.seen, host.lost_for, host.has_listed) = (0, Duration::ZERO, false);
        let unheard = host.unheard.iter();
        let unheard = unheard.map(|(name, how)| Said::Ended(name.clone(), *how));
        host.outbox = unheard.collect();
        self.report(at);
    }

    fn cut(&mut self, at: usize) {
        let unsent = self.break_off(at);
        if let Some(session) = self.hosts[at].session.take() {
            let unsent = unsent.into_iter().map(|(_, message)| message).collect();
            self.world.cut_returning(session, unsent);
        }
    }

    /// A connection breaks: of what the host was told some arrives, some is lost, and some was never written, which is
    /// what is returned; of what it said some arrives.
    fn break_off(&mut self, at: usize) -> Vec<(SessionId, Message)> {
        let waiting = self.hosts[at].inbox.len();
        let written = self.chance.usize(..=waiting);
        let arrived = self.chance.usize(..=written);
        for _ in 0..arrived {
            self.take_in(at, true);
        }
        for _ in 0..self.chance.usize(..=self.hosts[at].outbox.len()) {
            self.hear(at);
        }
        // What the scheduler said to that is not written any more.
        self.listen();
        let host = &mut self.hosts[at];
        let unsent = host.inbox.split_off(written - arrived);
        host.inbox.clear();
        host.outbox.clear();
        let session = host.session;
        let unsent = unsent.into_iter();
        unsent
            .filter_map(|message| Some((session?, message)))
            .collect()
    }

    fn migrate(&mut self, at: usize) {
        let migrate = Migrate {
            instance_uuid: format!("r{}", self.chance.u32(..NAMES)),
            target_node_uuid: node_uuid(self.hosts[at].number).to_string(),
            ..Migrate::default()
        };
        self.world.migrate_as(self.controller, migrate);
    }

    fn delete(&mut self, at: usize) {
        let names: Vec<String> = self.open.iter().cloned().collect();
        if let Some(name) = self.chance.choice(names) {
            self.open.remove(&name);
            let node = node_uuid(self.hosts[at].number);
            self.world.delete_at(self.controller, &name, node);
        }
    }

    fn commit(&mut self) {
        self.world.store.commit();
        self.world.handle(sched_core::Input::Tick);
    }

    /// The scheduler crashes: of what it had said some arrives.
    fn crash(&mut self) {
        self.listen();
        for at in 0..self.hosts.len() {
            for _ in 0..self.chance.usize(..=self.hosts[at].inbox.len()) {
                self.take_in(at, true);
            }
            let host = &mut self.hosts[at];
            host.session = None;
            host.inbox.clear();
            host.outbox.clear();
        }
        let has = self.hosts.iter().flat_map(|host| host.has.iter().cloned());
        let has: BTreeSet<String> = has.collect();
        // What else there was may never have been on disk; no one was told that it waits then.
        let store = &self.world.store;
        let is_left = |name: &String| store.is_up_to_date() && store.has(name);
        self.known
            .retain(|name| has.contains(name) || is_left(name));
        self.forgotten = has.into_iter().filter(|name| !store.has(name)).collect();
        self.world.crash(expecting(), Rules::default());
        self.controller = self.world.controller();
    }

    /// Time passes, in steps in which hosts keep to their leases.
    fn pass(&mut self, time: Duration) {
        let step = Duration::from_secs(1);
        let (mut left, mut now) = (time, step.min(time));
        while !now.is_zero() {
            self.pass_a_little(now);
            left -= now;
            now = step.min(left);
        }
    }

    fn pass_a_little(&mut self, time: Duration) {
        self.world.advance(time);
        for at in 0..self.hosts.len() {
            let host = &mut self.hosts[at];
            if host.session.is_none() {
                host.lost_for += time;
                if host.lost_for >= KILLED_AFTER {
                    self.end_lease(at);
                }
            }
        }
    }

    /// What the scheduler has said goes on its way.
    fn listen(&mut self) {
        for (to, message) in self.world.take_said() {
            match message {
                Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                    let failure = failure.payload;
                    let name = failure.instance_uuid;
                    self.open.remove(&name);
                    let was_given_up = failure.reason == StartFailureReason::LaunchFailure;
                    if was_given_up && self.hosts.iter().any(|host| host.has.contains(&name)) {
                        self.forgotten.insert(name);
                    }
                }
                Message::InstanceState(event) => match event.state {
                    PhaseName::Gone => {
                        self.known.remove(&event.instance_uuid);
                    }
                    PhaseName::Placing | PhaseName::Waiting | PhaseName::Running => {
                        self.known.insert(event.payload.instance_uuid);
                    }
                    _ => {}
                },
                message => {
                    let mut hosts = self.hosts.iter_mut();
                    if let Some(host) = hosts.find(|host| host.session == Some(to)) {
                        host.inbox.push_back(message);
                    }
                }
            }
        }
    }
}

fn ready(number: u64) -> NodeReport {
    let size = Size::of_mem(MEM);
    let extras = NodeExtras {
        capabilities: Capabilities::LEASE,
        lease: Some(LEASE),
        ..NodeExtras::default()
    };
    NodeReport {
        hostname: format!("host-{number}").into(),
        extras: Some(Box::new(extras)),
        ..report(size)
    }
}

fn listed(name: &str) -> InstanceReport {
    InstanceReport {
        requested: Some(Resources {
            mem_mib: ASKED,
            vcpus: 0,
            disk_mib: 0,
        }),
        ..running(name, 0)
    }
}
