//! Random reports of nodes that say anything of any instance: STATS, ends and failures about what they were not given,
//! because it is queued, has room kept until others have left, waits for its batch or for nodes to come back, is
//! suspended, moves, is lost, or is on another node; and all of that around crashes of the scheduler. Every invariant
//! holds after each step, and the scheduler never spins. What is right is not asked here: no node is honest.

use std::time::Duration;

use fastrand::Rng;
use proto_frames::payload::{
    CommandFailureReason, Evacuate, EvacuateMode, InstanceStateEvent, LifecycleCommand, Migrate,
    PhaseName, Restore, RestoreMode, StartFailureReason, Update,
};
use proto_frames::{Kind, Uuid};
use sched_core::{
    Capabilities, Command, Config, EndHow, EndReport, EndsReport, InstanceReport, InstanceState,
    NodeExtras, NodeReport, Report, Resources, SessionId, StatsReport,
};

use crate::support::durability::{LEASE, durable};
use crate::support::histories::{History, run_histories};
use crate::support::preemption::preempting;
use crate::support::requests::Asking;
use crate::support::sending::parcel;
use crate::support::world::{Size, World, config, id, known_node, node_uuid, report, request};

const NODES: u64 = 3;
const MEM: i64 = 300;
const CPUS: i64 = 8;
/// Few, so that each is met in many states.
const NAMES: usize = 8;
const STEPS: usize = 250;
/// Ticks at one moment after which the scheduler counts as spinning: it has far less to do here.
const MAX_TICKS: usize = 64;
/// Seeds that found a defect once.
const FOUND: [u64; 0] = [];

const STATES: [InstanceState; 8] = [
    InstanceState::Pending,
    InstanceState::Pending,
    InstanceState::Active,
    InstanceState::Active,
    InstanceState::ExitPaused,
    InstanceState::Exited,
    InstanceState::Missing,
    InstanceState::Other,
];

struct Run {
    world: World,
    chance: Rng,
    controller: SessionId,
    nodes: Vec<SessionId>,
    batches: usize,
    ends: u64,
}

#[test]
fn whatever_nodes_report_of_instances_that_they_were_not_given_everything_stays_in_step() {
    run_histories::<Run>(&FOUND, 40, STEPS);
}

impl History for Run {
    fn new(seed: u64) -> Self {
        let (world, controller) = World::ruled(durable(), preempting()).with_controller();
        let mut run = Self {
            world,
            chance: Rng::with_seed(seed),
            controller,
            nodes: Vec::new(),
            batches: 0,
            ends: 0,
        };
        run.nodes = (1..=NODES).map(|number| run.connect(number)).collect();
        run
    }

    fn step(&mut self) {
        let node = self.nodes[self.chance.usize(..self.nodes.len())];
        match self.chance.u8(..32) {
            0..8 => self.start(),
            8..16 => self.list(node),
            16..21 => self.end(node),
            21..24 => self.answer(node),
            24..28 => self.command(),
            28 => self.disk(),
            29 => self.reconnect(),
            30 => self.pass_time(),
            _ if self.chance.u8(..4) == 0 => self.crash(),
            _ => {}
        }
        self.world.look_away();
    }

    fn come_to_rest(&mut self) {
        self.world.store.be_fast();
        for node in std::mem::take(&mut self.nodes) {
            self.world.cut(node);
        }
        for _ in 0..20 {
            self.pass_time();
        }
    }
}

impl Run {
    fn connect(&mut self, number: u64) -> SessionId {
        let node = self.world.silent_node(number);
        let size = Size {
            mem: MEM,
            cpus: CPUS,
            ..Size::default()
        };
        let all = Capabilities::SUSPEND
            .and(Capabilities::MIGRATE)
            .and(Capabilities::UPDATE);
        let extras = NodeExtras {
            capabilities: if number == 1 {
                all.and(Capabilities::LEASE)
            } else {
                all
            },
            lease: (number == 1).then_some(LEASE),
            ..NodeExtras::default()
        };
        // One has an original launcher's report.
        let ready = NodeReport {
            extras: (number < NODES).then(|| Box::new(extras)),
            ..report(size)
        };
        self.world.report(node, ready);
        node
    }

    fn name(&mut self) -> String {
        format!("i{}", self.chance.usize(..NAMES))
    }

    fn start(&mut self) {
        let name = self.name();
        let mut start = request(&name, 50 * self.chance.i64(0..6)).vcpus(self.chance.i64(0..=CPUS));
        start = start.priority(20 * self.chance.i64(0..6));
        for _ in 0..self.chance.u8(..3) {
            start = match self.chance.u8(..4) {
                0 => start.waiting(self.chance.u64(1..60)),
                1 => start.movable(),
                2 => start.restarting(),
                _ => start.attempts(self.chance.u32(1..4)),
            };
        }
        if self.chance.u8(..5) == 0 {
            self.batches += usize::from(self.chance.u8(..3) == 0);
            start = start.of_batch(&format!("b{}", self.batches), 2);
        }
        if self.chance.u8(..5) == 0 {
            start.scheduling = None;
        }
        self.world.start_as(self.controller, start);
    }

    fn list(&mut self, node: SessionId) {
        let mut rows = Vec::new();
        for _ in 0..self.chance.usize(..5) {
            let name = self.name();
            rows.push(InstanceReport {
                instance: id(&name),
                state: STATES[self.chance.usize(..STATES.len())],
                mem_used_mib: self.chance.i64(..100),
                disk_used_mib: 0,
                cpu_used_percent: 0,
                requested: self.chance.bool().then(|| Resources {
                    mem_mib: self.chance.i64(..MEM),
                    vcpus: self.chance.i64(..CPUS),
                    disk_mib: 0,
                }),
                custom: Vec::new(),
                run: None,
                group: None,
            });
        }
        let ends = (self.chance.u8(..4) == 0).then(|| self.ends_of(node));
        let stats = StatsReport {
            is_plain: true,
            node: self.world.uuid_of(node).to_string().into(),
            starts_seen: (self.chance.u8(..3) > 0).then(|| self.chance.u64(..6)),
            ends: ends.map(Box::new),
            instances: rows,
            ..StatsReport::default()
        };
        self.world.say(node, Report::Stats(Box::new(stats)));
    }

    fn ends_of(&mut self, node: SessionId) -> EndsReport {
        let mut ended = Vec::new();
        for _ in 0..self.chance.usize(..3) {
            self.ends += 1;
            let instance = id(&self.name());
            let how = match self.chance.u8(..4) {
                0 => EndHow::Exited,
                1 => EndHow::Stopped,
                2 => EndHow::Deleted,
                _ => EndHow::CutOff,
            };
            ended.push(EndReport {
                instance,
                how,
                parcel: parcel(Kind::INSTANCE_STOPPED, self.world.uuid_of(node), "x".into()),
                exit_code: Some(0),
                ago: Some(Duration::from_secs(self.chance.u64(..60))),
                facts: None,
                seq: self.ends,
            });
        }
        EndsReport {
            incarnation: Uuid::from_u128(7),
            seq: self.ends,
            ended,
        }
    }

    /// A node says that something has ended, or could not be started.
    fn end(&mut self, node: SessionId) {
        let name = self.name();
        let instance = || id(&name);
        let report = match self.chance.u8(..6) {
            0 => Report::InstanceDeleted(instance()),
            1 => Report::InstanceStopped(instance()),
            2 => Report::InstanceExited(instance()),
            3 => Report::InstanceCutOff(instance()),
            4 => Report::DeleteFailed {
                node: "".into(),
                instance: instance(),
                no_instance: self.chance.bool(),
            },
            _ => {
                let reasons = [
                    StartFailureReason::LaunchFailure,
                    StartFailureReason::FullComputeNode,
                    StartFailureReason::AlreadyRunning,
                    StartFailureReason::InstanceExists,
                ];
                let reason = reasons[self.chance.usize(..reasons.len())].clone();
                return self.world.start_failed(node, &name, reason);
            }
        };
        self.world.say(node, report);
    }

    /// A node says that it has carried out a command, or could not.
    fn answer(&mut self, node: SessionId) {
        let name = self.name();
        if self.chance.bool() {
            let commands = [
                LifecycleCommand::Suspend,
                LifecycleCommand::Resume,
                LifecycleCommand::Migrate,
                LifecycleCommand::Update,
            ];
            let command = commands[self.chance.usize(..commands.len())].clone();
            let reasons = [
                CommandFailureReason::Failed,
                CommandFailureReason::NoInstance,
            ];
            let reason = reasons[self.chance.usize(..reasons.len())].clone();
            return self.world.cannot(node, command, &name, reason);
        }
        let states = [PhaseName::Suspended, PhaseName::Running, PhaseName::Updated];
        let event = InstanceStateEvent {
            instance_uuid: name,
            state: states[self.chance.usize(..states.len())].clone(),
            ..InstanceStateEvent::default()
        };
        self.world.say(node, Report::InstanceState(Box::new(event)));
    }

    fn command(&mut self) {
        let name = self.name();
        let number = 1 + self.chance.u64(..NODES);
        let node = node_uuid(number).to_string();
        match self.chance.u8(..8) {
            0 => self.world.ask_suspend(self.controller, &name),
            1 => self.world.ask_resume(self.controller, &name),
            2 => {
                let migrate = Migrate {
                    instance_uuid: name,
                    target_node_uuid: if self.chance.bool() {
                        node
                    } else {
                        String::new()
                    },
                    ..Migrate::default()
                };
                self.world.migrate_as(self.controller, migrate);
            }
            3 => {
                let update = Update {
                    instance_uuid: name,
                    mem_mb: Some(self.chance.i64(1..MEM)),
                    may_move: self.chance.bool(),
                    ..Update::default()
                };
                self.world.update_as(self.controller, update);
            }
            4..6 => self
                .world
                .delete_at(self.controller, &name, node_uuid(number)),
            6 => {
                let evacuate = Evacuate {
                    workload_agent_uuid: node,
                    mode: EvacuateMode::Relocate,
                    parallel: Some(2),
                    ..Evacuate::default()
                };
                let command = Command::Evacuate(Box::new(evacuate));
                self.world.say(self.controller, command);
            }
            _ => {
                let restore = Restore {
                    workload_agent_uuid: node,
                    mode: RestoreMode::Uncordon,
                };
                let command = Command::Restore(Box::new(restore));
                self.world.say(self.controller, command);
            }
        }
    }

    /// The disk becomes slow, or has written all.
    fn disk(&mut self) {
        if self.chance.bool() {
            self.world.store.be_slow();
        } else {
            self.world.store.be_fast();
            self.world.advance(Duration::ZERO);
        }
    }

    fn reconnect(&mut self) {
        let at = self.chance.usize(..self.nodes.len());
        let node = self.nodes[at];
        match self.chance.u8(..3) {
            // Over a newer connection, before the scheduler has noticed.
            0 => {}
            1 => self.world.cut(node),
            _ => self.world.cut_unsent(node),
        }
        if self.chance.bool() {
            self.pass_time();
        }
        self.nodes[at] = self.connect(1 + at as u64);
    }

    fn crash(&mut self) {
        let config = Config {
            known_nodes: (1..=NODES).map(known_node).collect(),
            ..config()
        };
        self.world.crash(config, preempting());
        self.world.store.be_fast();
        self.controller = self.world.controller();
        self.nodes = (1..=NODES).map(|number| self.connect(number)).collect();
    }

    /// Time passes; the scheduler must not ask to be ticked over and over without getting on.
    fn pass_time(&mut self) {
        let step = Duration::from_secs(self.chance.u64(..40));
        let before = self.world.ticks();
        self.world.advance(step);
        let most = MAX_TICKS + step.as_secs() as usize * 8;
        assert!(self.world.ticks() - before < most, "the scheduler spins");
    }
}
