//! The agent in a small simulated world: a virtual clock, a machine that does what it is told, a connection that keeps
//! what was sent.

use std::collections::BTreeMap;
use std::panic::{RefUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto_frames::payload::{
    AttachVolume, AttachVolumeFailureReason, CommandFailureReason, Delete, DeleteFailureReason,
    EndsRecorded, Evacuate, EvacuateMode, InstanceState, LeaseRenewed, LifecycleCommand,
    OnNodeLoss, PhaseName, Restore, Resume, Scheduling, Start, StartFailureReason, Stats, Storage,
    Suspend, Update,
};
use proto_frames::{Frame, Kind, Uuid};

use super::{
    Action, Agent, AgentAction, Command, Features, HostFigures, Input, InstanceRecord, LaunchFault,
    MIN_REPORT_GAP, Message, Numbering, Pressure, PressureLimits, ProcessFate, Ran, Recovered,
    Runs, Settings, Usage, Workloads,
};

mod devices;
mod ends;
mod features;
mod leases;
mod lifecycle;
mod pinning;
mod pressure;
mod random;
mod recovery;
mod restarting;
mod room;
mod starting;
mod storage;
mod transitions;

const INTERVAL: Duration = Duration::from_secs(6);
const GRACE: Duration = Duration::from_secs(10);
const NUMBERING: Numbering = Numbering {
    incarnation: Uuid::from_u128(0x1c),
    after: 0,
};

/// The agent, and everything around it.
struct World {
    agent: Agent,
    node: Uuid,
    features: Features,
    lease: Option<Duration>,
    now: Instant,
    host: HostFigures,
    usage: BTreeMap<String, Usage>,
    /// Frames sent and not looked at yet.
    sent: Vec<Message>,
    /// Orders given and not looked at yet, but for samples and records.
    orders: Vec<AgentAction>,
    /// What the state directory holds.
    records: BTreeMap<String, InstanceRecord>,
    maintenance: bool,
    samples: usize,
    /// Whether the scheduler says that it records ends.
    records_ends: bool,
    /// Frames sent on the present connection, and whether the socket takes them.
    frames: u64,
    is_stuck: bool,
    /// Launchers there have been.
    launchers: u64,
    /// Until when, by the latest STATS, a scheduler that has heard it takes what is under the lease to run at most.
    promised: Option<Instant>,
}

impl World {
    /// A node of 1000 MiB, 2 processors and 10 GB of disk, connected, whose first report has been taken.
    fn connected() -> Self {
        let mut world = Self::disconnected();
        world.connect();
        world.sent.clear();
        world
    }

    fn disconnected() -> Self {
        let node = Uuid::from_u128(7);
        let host = HostFigures {
            mem_total_mb: 2000,
            mem_available_mb: 1000,
            disk_total_mb: 20_000,
            disk_available_mb: 10_000,
            cpus_online: 2,
            ..HostFigures::default()
        };
        Self {
            agent: Agent::new(settings(node)),
            node,
            features: Features::default(),
            lease: None,
            now: Instant::now(),
            host,
            usage: BTreeMap::new(),
            sent: Vec::new(),
            orders: Vec::new(),
            records: BTreeMap::new(),
            maintenance: false,
            samples: 0,
            records_ends: false,
            frames: 0,
            is_stuck: false,
            launchers: 0,
            promised: None,
        }
    }

    /// As [`World::connected`], of a node that says more of itself.
    fn with_features(features: Features) -> Self {
        let mut world = Self::disconnected();
        world.features = features;
        world.agent = world.new_agent();
        world.connect();
        world.sent.clear();
        world
    }

    fn new_agent(&self) -> Agent {
        Agent::new(Settings {
            features: self.features.clone(),
            lease: self.lease,
            numbering: Numbering {
                after: self.launchers << 32,
                ..NUMBERING
            },
            ..settings(self.node)
        })
    }

    /// Another launcher takes over what this one remembers; `found` says what became of each process.
    fn restart(&mut self, found: impl Fn(&str) -> ProcessFate) {
        self.launchers += 1;
        self.agent = self.new_agent();
        self.sent.clear();
        self.orders.clear();
        let records = self.records.values().cloned();
        let recovered = records
            .map(|record| Recovered {
                age: Duration::ZERO,
                ended_ago: None,
                ran: Ran::default(),
                found: found(&record.instance),
                record,
            })
            .collect();
        self.agent.recover(self.now, self.maintenance, recovered);
        self.settle();
    }

    fn connect(&mut self) {
        self.frames = 0;
        self.handle(Input::Connected {
            configuration: Bytes::new(),
            records_ends: self.records_ends,
        });
    }

    fn handle(&mut self, input: Input) {
        self.agent.handle(self.now, input);
        self.settle();
    }

    /// Does what the agent wants done; samples are answered at once.
    fn settle(&mut self) {
        self.act();
        if self.agent.waits_for_writes() && !self.is_stuck {
            self.agent.handle(self.now, Input::Written(self.frames));
            self.act();
        }
        let instances = &self.agent.instances;
        let kept = (instances.sums(), instances.first_deadline());
        assert_eq!(kept, instances.computed());
    }

    fn act(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Send(message) => {
                    self.frames += 1;
                    if let Message::Stats(stats) = &message {
                        let length = stats.lease.map(|it| Duration::from_millis(it.ms()));
                        self.promised = length.map(|length| self.now + length);
                    }
                    self.sent.push(message);
                }
                Action::Machine(AgentAction::Sample) => {
                    self.samples += 1;
                    let (host, usage) = (self.host.clone(), self.usage.clone());
                    self.agent.handle(self.now, Input::Sampled { host, usage });
                }
                Action::Machine(AgentAction::Persist(record)) => {
                    self.records.insert(record.instance.clone(), *record);
                }
                Action::Machine(AgentAction::PersistMaintenance(maintenance)) => {
                    self.maintenance = maintenance
                }
                Action::Machine(order) => {
                    if let AgentAction::Forget(id) = &order {
                        self.records.remove(id);
                    }
                    self.orders.push(order);
                }
            }
        }
    }

    /// Lets time pass, with every timer of the agent going off in between.
    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(at) = self.agent.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.handle(Input::Tick);
        }
        self.now = end;
        self.handle(Input::Tick);
    }

    fn start(&mut self, start: Start) {
        self.handle(Input::Command(Command::Start(Ok(Box::new(start)))));
    }

    /// Starts an instance and has it running; nothing it caused is left to look at.
    fn running(&mut self, id: &str, mem_mb: i64) {
        self.start(process(id, mem_mb));
        self.handle(Input::Started {
            instance: id.to_owned(),
        });
        self.advance(MIN_REPORT_GAP);
        self.forget_what_happened();
    }

    fn exits(&mut self, id: &str, code: i32) {
        self.handle(Input::Exited {
            instance: id.to_owned(),
            code: Some(code),
            by_itself: false,
            ran: Ran::default(),
        });
    }

    fn delete(&mut self, id: &str, stop: bool) {
        let workload_agent_uuid = self.node.to_string();
        let delete = Delete {
            instance_uuid: id.to_owned(),
            workload_agent_uuid,
            stop,
            ..Delete::default()
        };
        self.handle(Input::Command(Command::Delete(Ok(delete))));
    }

    fn suspend(&mut self, id: &str) {
        let suspend = Suspend {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.node.to_string(),
        };
        self.handle(Input::Command(Command::Suspend(Ok(suspend))));
    }

    fn resume(&mut self, id: &str) {
        let resume = Resume {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.node.to_string(),
        };
        self.handle(Input::Command(Command::Resume(Ok(resume))));
    }

    fn update(&mut self, id: &str, mem_mb: i64, vcpus: i64) {
        let update = Update {
            instance_uuid: id.to_owned(),
            workload_agent_uuid: self.node.to_string(),
            mem_mb: Some(mem_mb),
            vcpus: Some(vcpus),
            ..Update::default()
        };
        self.handle(Input::Command(Command::Update(Ok(Box::new(update)))));
    }

    fn frozen(&mut self, id: &str, result: Result<(), &str>) {
        let (instance, result) = (id.to_owned(), result.map_err(str::to_owned));
        self.handle(Input::Frozen { instance, result });
    }

    fn thawed(&mut self, id: &str, result: Result<(), &str>) {
        let (instance, result) = (id.to_owned(), result.map_err(str::to_owned));
        self.handle(Input::Thawed { instance, result });
    }

    fn limits_set(&mut self, id: &str, result: Result<(), &str>) {
        let (instance, result) = (id.to_owned(), result.map_err(str::to_owned));
        self.handle(Input::LimitsSet { instance, result });
    }

    /// Starts an instance and has it suspended; nothing it caused is left to look at.
    fn suspended(&mut self, id: &str, mem_mb: i64) {
        self.running(id, mem_mb);
        self.suspend(id);
        self.frozen(id, Ok(()));
        self.advance(MIN_REPORT_GAP);
        self.forget_what_happened();
    }

    fn evacuate(&mut self) {
        let workload_agent_uuid = self.node.to_string();
        self.handle(Input::Command(Command::Evacuate(Ok(Evacuate {
            workload_agent_uuid,
            ..Evacuate::default()
        }))));
    }

    fn restore(&mut self) {
        let workload_agent_uuid = self.node.to_string();
        self.handle(Input::Command(Command::Restore(Ok(Restore {
            workload_agent_uuid,
            ..Restore::default()
        }))));
    }

    fn frame(&mut self, kind: Kind, payload: &'static str) {
        let command = Command::decode(&Frame::new(kind, Uuid::nil(), payload)).unwrap();
        self.handle(Input::Command(command));
    }

    /// The kinds of the frames sent since the last look.
    fn kinds(&mut self) -> Vec<Kind> {
        std::mem::take(&mut self.sent)
            .iter()
            .map(Message::kind)
            .collect()
    }

    /// The only frame that is not part of a report, since the last look.
    fn answer(&mut self) -> Message {
        let mut answers = std::mem::take(&mut self.sent);
        answers.retain(|message| {
            !matches!(
                message.kind(),
                Kind::READY | Kind::FULL | Kind::MAINTENANCE | Kind::STATS
            )
        });
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    /// What the only answer says an instance is now.
    fn next_state(&mut self) -> (String, PhaseName) {
        match self.answer() {
            Message::InstanceState(event) => (event.instance_uuid, event.state),
            other => panic!("{other:?}"),
        }
    }

    /// Which command the only answer says was not done, and why.
    fn failed(&mut self) -> (LifecycleCommand, CommandFailureReason) {
        match self.answer() {
            Message::CommandFailure(failure) => (failure.command, failure.reason),
            other => panic!("{other:?}"),
        }
    }

    fn refusal(&mut self) -> StartFailureReason {
        match self.answer() {
            Message::StartFailure(failure) => failure.reason,
            other => panic!("{other:?}"),
        }
    }

    /// The STATS of a report made now.
    fn stats(&mut self) -> Stats {
        self.sent.clear();
        self.advance(INTERVAL);
        let stats = self.sent.iter().rev().find_map(|message| match message {
            Message::Stats(stats) => Some((**stats).clone()),
            _ => None,
        });
        self.sent.clear();
        stats.unwrap()
    }

    fn orders(&mut self) -> Vec<AgentAction> {
        std::mem::take(&mut self.orders)
    }

    fn forget_what_happened(&mut self) {
        self.sent.clear();
        self.orders.clear();
    }

    /// Nothing was sent and nothing ordered since the last look.
    fn nothing_else(&self) {
        assert_eq!(
            (self.sent.as_slice(), self.orders.as_slice()),
            ([].as_slice(), [].as_slice())
        );
    }
}

fn settings(node_uuid: Uuid) -> Settings {
    Settings {
        node_uuid,
        hostname: "node-7".to_owned(),
        report_interval: INTERVAL,
        stop_grace: GRACE,
        cpu_ratio: 2.0,
        pressure_limits: PressureLimits {
            stalled_percent: Some(50),
            swap_percent: Some(90),
        },
        features: Features::default(),
        runs: Runs::Processes,
        lease: None,
        incarnation: Uuid::from_u128(0x1ca),
        numbering: NUMBERING,
    }
}

fn process(id: &str, mem_mb: i64) -> Start {
    let mut start = Start {
        instance_uuid: id.to_owned(),
        vm_type: "process".to_owned(),
        command: vec!["sleep".to_owned(), "9".to_owned()],
        ..Start::default()
    };
    start.requirements.mem_mb = mem_mb;
    start.requirements.vcpus = 1;
    start
}

/// Runs a test with each of so many seeds, and names the one with which it fails.
fn for_each_seed(seeds: u64, run: impl Fn(u64) + RefUnwindSafe) {
    for seed in 0..seeds {
        let ran = catch_unwind(|| run(seed));
        assert!(ran.is_ok(), "seed {seed}");
    }
}
