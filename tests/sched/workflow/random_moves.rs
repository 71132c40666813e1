//! Random moves, drains, updates and deletions, with launchers that take their time, refuse, lose their connection and
//! come back: nothing runs twice, no node has more than fits, and in the end everything runs that was not deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use proto_frames::Kind;
use proto_frames::payload::{
    Batch, Evacuate, EvacuateMode, InstanceStateEvent, Migrate, PhaseName, Restore, RestoreMode,
    StartFailureReason, Update,
};
use sched_core::{
    Capabilities, Command, InstanceReport, LauncherCommand, Message, NodeReport, Report, Resources,
    SessionId,
};

use crate::support::histories::{History, Host, run_histories};
use crate::support::migration::able;
use crate::support::requests::Asking;
use crate::support::world::{Size, World, id, node_uuid, report, request, running};

const HOSTS: u64 = 4;
const MEM: i64 = 1000;
/// All of them fit on one node fewer than there are, however much each is given.
const MAX_INSTANCES: usize = 20;
const MAX_ASKED: i64 = 100;
const STEPS: usize = 300;
const ROUNDS: usize = 200;
/// Seeds that found a defect once.
const FOUND: [u64; 1] = [3243];

struct Run {
    world: World,
    chance: Rng,
    controller: SessionId,
    hosts: Vec<Host<i64>>,
    open: BTreeSet<String>,
    count: usize,
    batches: usize,
}

#[test]
fn whatever_moves_nothing_is_lost_and_nothing_runs_twice() {
    run_histories::<Run>(&FOUND, 25, STEPS);
}

impl History for Run {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::new().with_controller();
        let mut run = Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            hosts: Vec::new(),
            open: BTreeSet::new(),
            count: 0,
            batches: 0,
        };
        for number in 1..=HOSTS {
            let session = run.world.silent_node(number);
            run.hosts.push(Host::new(number, session));
            run.report(number as usize - 1);
        }
        run
    }

    fn step(&mut self) {
        let at = self.chance.usize(..self.hosts.len());
        match self.chance.u8(..16) {
            0 => self.start(),
            1 => self.start_again(),
            2..7 => self.take_in(at, true),
            7..9 => self.report(at),
            9 => self.migrate(at),
            10 => self.evacuate(at),
            11 => self.uncordon(at),
            12 => self.update(),
            13 => self.delete(at),
            14 => self.reconnect(at),
            _ => {
                let time = Duration::from_secs(self.chance.u64(..90));
                self.world.advance(time);
            }
        }
        self.collect();
    }

    fn check(&self) {
        let mut seen = BTreeSet::new();
        for host in &self.hosts {
            let sum: i64 = host.has.values().sum();
            assert!(sum <= MEM, "host {} has {sum}", host.number);
            for name in host.has.keys() {
                assert!(seen.insert(name.clone()), "{name} runs twice");
            }
        }
    }

    fn come_to_rest(&mut self) {
        for at in 0..self.hosts.len() {
            self.uncordon(at);
        }
        for round in 0..ROUNDS {
            self.collect();
            for at in 0..self.hosts.len() {
                while !self.hosts[at].told.is_empty() {
                    self.take_in(at, false);
                }
                self.report(at);
                self.check();
            }
            let long = if round % 20 == 0 { 400 } else { 1 };
            self.world.advance(Duration::from_secs(long));
        }
        let hosts = self.hosts.iter();
        let there: BTreeSet<_> = hosts.flat_map(|host| host.has.keys().cloned()).collect();
        let lost: Vec<_> = self.open.difference(&there).collect();
        assert!(lost.is_empty(), "lost: {lost:?}");
    }
}

impl Run {
    /// READY and STATS of a host.
    fn report(&mut self, at: usize) {
        let host = &self.hosts[at];
        let size = Size::of_mem(MEM);
        let capabilities = if host.number.is_multiple_of(2) {
            Capabilities::UPDATE
        } else {
            Capabilities::default()
        };
        let ready = NodeReport {
            extras: Some(Box::new(able(capabilities))),
            ..report(size)
        };
        let listed = host.has.iter().map(|(name, &mem)| InstanceReport {
            requested: Some(Resources {
                mem_mib: mem,
                vcpus: 0,
                disk_mib: 0,
            }),
            ..running(name, 0)
        });
        let (session, seen, listed) = (host.session, host.seen, listed.collect());
        self.world.report(session, ready);
        self.world.stats_seen(session, Some(seen), listed);
    }

    /// Takes what everybody was told.
    fn collect(&mut self) {
        for at in 0..self.hosts.len() {
            let told = self.world.told(self.hosts[at].session);
            self.hosts[at].told.extend(told);
        }
        for (name, reason) in self.world.failures(self.controller) {
            // One that was sent again and is refused changes nothing.
            if reason != StartFailureReason::InstanceExists {
                self.open.remove(&name);
            }
        }
        self.world.look_away();
    }

    fn any_open(&mut self) -> Option<String> {
        let at = self.chance.usize(..self.open.len().max(1));
        self.open.iter().nth(at).cloned()
    }

    fn start(&mut self) {
        if self.open.len() >= MAX_INSTANCES {
            return;
        }
        self.count += 1;
        let name = format!("i{}", self.count);
        let (mem, priority) = (self.chance.i64(1..=MAX_ASKED), self.chance.i64(..=100));
        self.open.insert(name.clone());
        let start = request(&name, mem)
            .movable()
            .priority(priority)
            .waiting(100_000);
        self.world.start_as(self.controller, start);
    }

    /// A START that was sent before is sent once more, alone or as a batch, whatever has become of it.
    fn start_again(&mut self) {
        let Some(name) = self.any_open() else {
            return self.start();
        };
        let mut start = request(&name, 1).movable().priority(50).waiting(100_000);
        if self.chance.bool() {
            self.batches += 1;
            let scheduling = start.scheduling.as_mut().expect("it has one");
            scheduling.batch = Some(Batch {
                id: format!("b{}", self.batches),
                count: 1,
            });
        }
        self.world.start_as(self.controller, start);
    }

    fn migrate(&mut self, at: usize) {
        let Some(name) = self.any_open() else { return };
        let target = node_uuid(self.hosts[at].number).to_string();
        let migrate = Migrate {
            instance_uuid: name,
            target_node_uuid: if self.chance.bool() {
                target
            } else {
                String::new()
            },
            ..Migrate::default()
        };
        self.world.migrate_as(self.controller, migrate);
    }

    fn evacuate(&mut self, at: usize) {
        let modes = [
            EvacuateMode::Relocate,
            EvacuateMode::Abort,
            EvacuateMode::Check,
        ];
        let evacuate = Evacuate {
            workload_agent_uuid: node_uuid(self.hosts[at].number).to_string(),
            mode: modes[self.chance.usize(..3)].clone(),
            parallel: Some(self.chance.u32(1..4)),
            ..Evacuate::default()
        };
        let command = Command::Evacuate(Box::new(evacuate));
        self.world.say(self.controller, command);
    }

    fn uncordon(&mut self, at: usize) {
        let restore = Restore {
            workload_agent_uuid: node_uuid(self.hosts[at].number).to_string(),
            mode: RestoreMode::Uncordon,
        };
        let command = Command::Restore(Box::new(restore));
        self.world.say(self.controller, command);
    }

    fn update(&mut self) {
        let Some(name) = self.any_open() else { return };
        let update = Update {
            instance_uuid: name,
            mem_mb: Some(self.chance.i64(1..=MAX_ASKED)),
            may_move: self.chance.bool(),
            ..Update::default()
        };
        self.world.update_as(self.controller, update);
    }

    fn delete(&mut self, at: usize) {
        let Some(name) = self.any_open() else { return };
        self.open.remove(&name);
        let session = self.hosts[at].session;
        self.world.delete(self.controller, &name, session);
    }

    /// A host's connection ends with what it has not come to, and it dials again at once.
    fn reconnect(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        host.told.clear();
        let (number, session) = (host.number, host.session);
        self.world.cut(session);
        self.collect();
        let host = &mut self.hosts[at];
        host.session = self.world.silent_node(number);
        host.seen = 0;
        self.report(at);
    }

    /// A host comes to the next thing that it was told.
    fn take_in(&mut self, at: usize, may_refuse: bool) {
        let refuses = may_refuse && self.chance.u8(..6) == 0;
        let host = &mut self.hosts[at];
        let session = host.session;
        match host.told.pop_front() {
            Some(Message::Start(start)) => {
                host.seen += 1;
                let name = start.request.instance.to_string();
                let has_it = host.has.contains_key(&name);
                let refusal = match (has_it, refuses) {
                    (true, _) => Some(StartFailureReason::AlreadyRunning),
                    (false, true) => Some(StartFailureReason::FullComputeNode),
                    (false, false) => None,
                };
                match refusal {
                    Some(reason) => self.world.start_failed(session, &name, reason),
                    None => {
                        host.has.insert(name, start.request.asked.mem_mib);
                    }
                }
            }
            Some(Message::Targeted(command)) => {
                self.end(
                    at,
                    command.target.instance.to_string(),
                    Kind::INSTANCE_DELETED,
                );
            }
            Some(Message::LauncherCommand(order)) => match *order {
                LauncherCommand::Stop(delete) if refuses => {
                    let refused = Report::DeleteFailed {
                        node: "".into(),
                        instance: id(&delete.instance_uuid),
                        no_instance: false,
                    };
                    self.world.say(session, refused);
                }
                LauncherCommand::Stop(delete) => {
                    self.end(at, delete.instance_uuid, Kind::INSTANCE_STOPPED)
                }
                LauncherCommand::Update(update) => {
                    if let Some(mem) = host.has.get_mut(&update.instance_uuid) {
                        *mem = update.mem_mb.unwrap_or(*mem);
                        let event = InstanceStateEvent {
                            instance_uuid: update.instance_uuid,
                            state: PhaseName::Updated,
                            ..InstanceStateEvent::default()
                        };
                        let report = Report::InstanceState(Box::new(event));
                        self.world.say(session, report);
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn end(&mut self, at: usize, name: String, how: Kind) {
        let host = &mut self.hosts[at];
        let session = host.session;
        if host.has.remove(&name).is_some() {
            return self.world.gone(session, how, &name);
        }
        let report = Report::DeleteFailed {
            node: "".into(),
            instance: id(&name),
            no_instance: true,
        };
        self.world.say(session, report);
    }
}
