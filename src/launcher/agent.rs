//! The launcher as a pure state machine: what happened goes in with the time, what to do comes out.
//!
//! It reads no clock, file or `/proc`, starts nothing, iterates no hash map: the same inputs at the same times give the
//! same actions, so that a whole cluster can be simulated from a seed. [`super::run()`] drives it on a real machine.
//!
//! ```text
//! agent.handle(now, Input)                     // a frame, an end of a process, a sample of the machine, a timer
//! agent.poll_action() -> Option<Action>        // until None: frames to send, orders to the machine
//! agent.poll_timeout() -> Option<Instant>      // when to call handle(now, Input::Tick) at the latest
//! ```
//!
//! Split by subject: `commands` (what the scheduler asks), `instances` (how instances begin and end), `life` (how they
//! change in between), `lease` (until when some of them may run), `ends` (ends that the scheduler must have on record),
//! `workloads` (what instances are), `kept` (what is left of ended instances), `reports` (figures, READY or FULL, STATS),
//! `roster` (the instances, and what they hold together), `room` (what is left, and what fits), `devices` (which units of a
//! resource are whose), `pinning` (which processors), `pressure` (when the node is short of memory), `terms` (for how long an instance may run, and how it is ended), `restarts` (whether it is started again),
//! `restarting` (how that is done), `record` (what survives a restart).

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto_frames::Uuid;
use proto_frames::payload::{Digest, KeptRun, NodeCapacity, TracedFrame};

mod commands;
mod devices;
mod ends;
mod instances;
mod kept;
mod lease;
mod memory;
mod messages;
mod pinning;
mod pressure;
mod record;
mod reports;
mod restarting;
mod restarts;
mod room;
mod roster;
mod terms;
#[cfg(test)]
mod tests;
mod transitions;
mod workloads;

pub(crate) use commands::is_file_name;
pub use commands::{Command, MAX_INSTANCE_ID_LEN};
pub use devices::{DeviceVariable, Devices, MAX_DEVICES};
pub use ends::{End, How, MAX_ENDS_PER_STATS, MAX_UNRECORDED_ENDS, Numbering, Ran, Why};
pub use instances::LaunchFault;
pub use messages::Message;
pub use pinning::{Cpus, Pinning, Processor, Processors};
pub use pressure::{Pressure, PressureLimits};
pub use record::{InstanceRecord, ProcessFate, Recovered, Removal, Stage};
pub use reports::{Features, HostFigures, Network, Usage};
pub use restarts::{AfterEnd, RestartRule, Restarts, RunEnd};
pub use terms::{NodeClock, RunTerms, StopTerms, TimeUsed};
pub use workloads::About;

use instances::Instance;
use workloads::images_of;

/// Most instances a node takes at a time; its STATS (some 300 bytes an instance) must stay well under the largest
/// payload a frame may carry (4 MiB).
pub const MAX_INSTANCES: usize = 4096;

/// Most instances that ended by themselves and are remembered until deleted where they leave nothing on disk, because
/// they are no processes; the oldest are forgotten first. Processes are remembered as long as their output is kept.
pub const MAX_EXITED: usize = 256;

/// Most traced STARTs in one TraceReport; further ones in the time between two reports are not reported. With ways of 255
/// nodes, some 200 bytes each, half of what a payload may have (4 MiB).
pub const MAX_TRACES: usize = 32;

/// Least time between a report and one that a change asks for, so that a burst of STARTs costs a report now and then
/// rather than one each.
pub const MIN_REPORT_GAP: Duration = Duration::from_millis(100);

/// What an agent is told of itself.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The node's UUID, as claimed in CONNECT.
    pub node_uuid: Uuid,
    /// The node's host name.
    pub hostname: String,
    /// Time between two reports where nothing changes; the original's is 6 s.
    pub report_interval: Duration,
    /// Time between asking a workload to end and killing it.
    pub stop_grace: Duration,
    /// How many vcpus may be allotted for each cpu, while the scheduler has not said.
    pub cpu_ratio: f64,
    /// From where on the node counts as short of memory.
    pub pressure_limits: PressureLimits,
    /// What the node says of itself beyond its figures.
    pub features: Features,
    /// Which workloads this node can run.
    pub runs: Runs,
    /// How long after a report that the scheduler has heard this node's leased instances may run; `None` = the node
    /// takes no leases.
    pub lease: Option<Duration>,
    /// What ends are numbered by.
    pub numbering: Numbering,
    /// Drawn for this process, so that two launchers with one state directory are told apart.
    pub incarnation: Uuid,
}

/// Which workloads a node can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// `vm_type: process` with a `command`.
    Processes,
    /// Anything: nothing is really run.
    Anything,
    /// This `vm_type` alone, which others than this project's launcher run: they can neither suspend nor update.
    Named(&'static str),
}

impl Runs {
    /// As READY and STATS have it.
    fn vm_types(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Processes => &["process"],
            Self::Anything => &["docker", "process", "qemu"],
            Self::Named(name) => &[name],
        };
        names.iter().map(|name| (*name).to_owned()).collect()
    }
}

/// One thing that happened.
#[derive(Debug)]
pub enum Input {
    /// A connection stands; `configuration` is the payload of CONNECTED.
    Connected {
        /// The cluster configuration (YAML), may be empty.
        configuration: Bytes,
        /// Whether the scheduler says that it records ends.
        records_ends: bool,
    },
    /// So many frames of this connection, of those handed out by [`Action::Send`], have been written to the socket. Told
    /// only while [`Agent::waits_for_writes`].
    Written(u64),
    /// The connection is over. Frames handed out may or may not have arrived.
    Disconnected,
    /// The scheduler asks for something.
    Command(Command),
    /// A workload that was to be started runs. Once per [`AgentAction::Spawn`] at most.
    Started {
        /// Its identifier.
        instance: String,
    },
    /// A workload that was to be started cannot run.
    StartFailed {
        /// Its identifier.
        instance: String,
        /// Why it could not be launched.
        fault: LaunchFault,
        /// For people.
        detail: String,
    },
    /// Every process of a workload has ended.
    Exited {
        /// Its identifier.
        instance: String,
        /// Its exit code, -n where signal n ended it; `None` = not known.
        code: Option<i32>,
        /// Whether it is known that no stop had been requested.
        by_itself: bool,
        /// What else is known of the run.
        ran: Ran,
    },
    /// The answer to [`AgentAction::Freeze`].
    Frozen {
        /// Its identifier.
        instance: String,
        /// Why it runs on, for people, if it does.
        result: Result<(), String>,
    },
    /// The answer to [`AgentAction::Thaw`].
    Thawed {
        /// Its identifier.
        instance: String,
        /// Why it is frozen still, for people, if it is.
        result: Result<(), String>,
    },
    /// The answer to [`AgentAction::SetLimits`].
    LimitsSet {
        /// Its identifier.
        instance: String,
        /// Why it has the limits it had, for people, if it has.
        result: Result<(), String>,
    },
    /// What the node must keep across restarts can be written, or cannot; told when that changes, and taken to be so
    /// before. Orders to keep something hold all the same: it is kept once it can be written.
    Storage {
        /// Why it cannot be written, for people, if it cannot.
        fault: Option<String>,
    },
    /// The answer to [`AgentAction::ExtendLease`] where that could not be done.
    LeaseNotExtended {
        /// When workloads under the lease are killed all the same.
        until: Instant,
    },
    /// The answer to [`AgentAction::Sample`].
    Sampled {
        /// The machine.
        host: HostFigures,
        /// What each instance uses; those of which nothing is known are not there.
        usage: BTreeMap<String, Usage>,
    },
    /// What is left of runs that are over; told when that has changed.
    KeptRuns {
        /// The runs whose ends were told.
        runs: Vec<KeptRun>,
        /// Instances that ended by themselves of which nothing is left but their records.
        bare: Vec<String>,
    },
    /// The images that are on the node, by the names that nodes say them by; told when that has changed.
    Images(Vec<String>),
    /// A traced START has its instance run: to be reported.
    Traced(Box<TracedFrame>),
    /// The launcher is to end: OFFLINE is reported, nothing more is started.
    Shutdown(Workloads),
    /// Time passed.
    Tick,
}

/// What becomes of running workloads when their launcher ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workloads {
    /// They run on; the next launcher with the same state directory finds them again.
    Leave,
    /// They are stopped first.
    Stop,
}

/// One thing to do, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send this frame; only ever handed out between [`Input::Connected`] and [`Input::Disconnected`].
    Send(Message),
    /// See to this on the machine.
    Machine(AgentAction),
}

/// What the machine is to do.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentAction {
    /// Start a workload; answer with [`Input::Started`] or [`Input::StartFailed`], later with [`Input::Exited`].
    Spawn(Box<Workload>),
    /// Start a workload again that has ended, in its directory and with what it was started with; answered as
    /// [`AgentAction::Spawn`].
    Respawn(Box<Respawn>),
    /// Forget how the latest run of a workload ended that is to be started again: what is found then is of the next.
    Clear(String),
    /// Do not start a workload, if that can be helped: it may wait for its image. Answered as [`AgentAction::Spawn`].
    Abandon(String),
    /// Ask the workload's processes to end; frozen ones go on. Given only between its start and its end.
    Terminate(String),
    /// Kill the workload's processes, frozen or not.
    Kill(String),
    /// Stop every process of the workload where it is, so that it takes no processor time and keeps its memory; answer
    /// with [`Input::Frozen`]. Of a frozen one: nothing but the answer. Given only between its start and its end, and
    /// while nothing else is unanswered but a [`AgentAction::Thaw`] that is only to make sure.
    Freeze(String),
    /// Let every process of the workload go on; answer with [`Input::Thawed`]. Of one that is not frozen: nothing but the
    /// answer.
    Thaw(String),
    /// Look whether the processes of a workload hold more memory than that together, in MiB, where nothing but each of them
    /// is limited; if so, have it end for that: [`Input::Exited`] says so then.
    CheckMemory {
        /// Its identifier.
        instance: String,
        /// What it may have.
        mem_mb: i64,
    },
    /// Set what the workload may take; answer with [`Input::LimitsSet`].
    SetLimits {
        /// Its identifier.
        instance: String,
        /// Memory it may have, in MiB.
        mem_mb: i64,
        /// Virtual cpus it may have; 0 = unlimited.
        vcpus: i64,
    },
    /// Have every process of the workload run on these processors alone; nothing is answered. Where that cannot be done
    /// they go on where they are.
    Pin {
        /// Its identifier.
        instance: String,
        /// The processors.
        cpus: Cpus,
    },
    /// Workloads that are [`Workload::leased`] may run until then. The machine kills each that still runs at that time,
    /// by itself, also when this launcher does not run any more. Of several orders the latest counts.
    ExtendLease(Instant),
    /// Remember this across restarts, replacing what was remembered of the same instance.
    Persist(Box<InstanceRecord>),
    /// Forget the instance and everything kept of it.
    Forget(String),
    /// Remember across restarts whether the node is evacuated.
    PersistMaintenance(bool),
    /// Look at the machine; answer with [`Input::Sampled`].
    Sample,
}

/// A workload to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// The instance; safe as a file name.
    pub instance: String,
    /// The tenant it belongs to, may be empty.
    pub tenant: String,
    /// The image that is its program, and behind it the further files that it needs; none = `command` names the program.
    pub images: Vec<Digest>,
    /// Program and arguments; where the program is an image, its arguments.
    pub command: Vec<String>,
    /// Added to the environment: what its START says, and which devices it has.
    pub env: BTreeMap<String, String>,
    /// Where to run it, if it says.
    pub working_dir: Option<String>,
    /// Memory it may have, in MiB.
    pub mem_mb: i64,
    /// Virtual cpus it may have; 0 = unlimited.
    pub vcpus: i64,
    /// The processors that are its own; none = it runs on all of the launcher.
    pub cpus: Cpus,
    /// Whether it may run only under the lease ([`AgentAction::ExtendLease`]).
    pub leased: bool,
    /// How it is asked to end.
    pub stop: StopTerms,
    /// How long it may run, suspended time aside; then the machine ends it, also without this launcher. `None` = no limit.
    pub time_left: Option<Duration>,
    /// Whether its standard error is kept apart.
    pub split_output: bool,
}

/// A workload to start again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Respawn {
    /// The instance.
    pub instance: String,
    /// The images that it has, as in [`Workload`].
    pub images: Vec<Digest>,
    /// What of the environment may be another than at the first start: which devices it has.
    pub env: BTreeMap<String, String>,
    /// Memory it may have, in MiB.
    pub mem_mb: i64,
    /// Virtual cpus it may have; 0 = unlimited.
    pub vcpus: i64,
    /// As in [`Workload`].
    pub cpus: Cpus,
    /// As in [`Workload`].
    pub time_left: Option<Duration>,
}

/// What is asked for, or held: the demand of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Demand {
    /// Memory, in MiB.
    pub mem_mb: i64,
    /// Virtual cpus.
    pub vcpus: i64,
    /// Local disk, in MiB.
    pub disk_mb: i64,
    /// Further countable resources, by name. Records of launchers that knew none lack them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, i64>,
}

/// What a node is up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Duty {
    /// Takes work as long as there is room.
    InService,
    /// Evacuated: takes no work until Restore.
    Maintenance,
    /// Its launcher is ending.
    Leaving,
}

/// The launcher's state machine.
#[derive(Debug)]
pub struct Agent {
    settings: Settings,
    duty: Duty,
    /// By what restarts and time limits are counted over restarts of the launcher.
    clock: Option<NodeClock>,
    /// Everything known, by instance id.
    instances: roster::Roster,
    /// The latest sample; `None` before the first.
    host: Option<HostFigures>,
    /// The cluster's word on whether memory and disk are limited.
    limits: room::Limits,
    /// What the scheduler has said on this connection that the node offers; the flags count until it has.
    capacity: Option<NodeCapacity>,
    /// Orders the ends of instances.
    exits: u64,
    ends: ends::Ends,
    kept: kept::KeptRunsReport,
    lease: lease::Lease,
    link: Link,
    /// Traced STARTs that are not reported yet.
    traces: Vec<TracedFrame>,
    /// The images that are on the node.
    images: Vec<String>,
    /// Why nothing can be kept across restarts, if so.
    storage_fault: Option<String>,
    /// In what the node is short of memory, if so.
    strain: Option<pressure::Strain>,
    /// Whether a sample was asked for and has not come.
    sampling: bool,
    actions: VecDeque<Action>,
}

/// The state of the connection.
#[derive(Debug)]
enum Link {
    Down {
        /// When the machine is looked at next: what runs is watched also without a connection.
        look_at: Option<Instant>,
    },
    Up {
        /// Whether the scheduler records ends.
        records_ends: bool,
        /// STARTs taken in on this connection.
        starts_seen: u64,
        /// Reports made on it.
        reports: u64,
        /// When the last report was sent.
        reported: Option<Instant>,
        /// When the next is due.
        report_at: Instant,
    },
}

impl Link {
    fn records_ends(&self) -> bool {
        matches!(
            self,
            Self::Up {
                records_ends: true,
                ..
            }
        )
    }
}

impl Agent {
    /// An agent with nothing running.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            ends: ends::Ends::new(settings.numbering),
            settings,
            duty: Duty::InService,
            clock: None,
            instances: roster::Roster::default(),
            host: None,
            limits: room::Limits::default(),
            capacity: None,
            exits: 0,
            kept: kept::KeptRunsReport::default(),
            lease: lease::Lease::default(),
            link: Link::Down { look_at: None },
            traces: Vec::new(),
            images: Vec::new(),
            storage_fault: None,
            strain: None,
            sampling: false,
            actions: VecDeque::new(),
        }
    }

    /// Takes in one thing that happened.
    pub fn handle(&mut self, now: Instant, input: Input) {
        match input {
            Input::Connected {
                configuration,
                records_ends,
            } => self.connected(now, &configuration, records_ends),
            Input::Written(frames) => self.written(frames),
            Input::Disconnected => self.disconnected(now),
            Input::Command(command) => self.command(now, command),
            Input::Started { instance } => self.started(now, &instance),
            Input::StartFailed {
                instance,
                fault,
                detail,
            } => self.start_failed(now, &instance, fault, detail),
            Input::Exited {
                instance,
                code,
                by_itself,
                ran,
            } => {
                self.note_ran(now, &instance, ran);
                self.exited(now, &instance, code, by_itself);
            }
            Input::Frozen { instance, result } => self.frozen(now, &instance, result),
            Input::Thawed { instance, result } => self.thawed(now, &instance, result),
            Input::LimitsSet { instance, result } => self.limits_set(now, &instance, result),
            Input::Storage { fault } => self.storage(now, fault),
            Input::LeaseNotExtended { until } => self.lease_not_extended(until),
            Input::Sampled { host, usage } => self.sampled(now, host, &usage),
            Input::KeptRuns { runs, bare } => {
                self.kept_runs(runs);
                self.forget_bare(&bare);
            }
            Input::Images(images) => self.images_changed(now, images),
            Input::Traced(traced) => {
                if self.traces.len() < MAX_TRACES {
                    self.traces.push(*traced);
                }
            }
            Input::Shutdown(workloads) => self.shutdown(now, workloads),
            Input::Tick => {}
        }
        self.pass_time(now);
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Agent::handle`] with [`Input::Tick`] at the latest, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let report = self.sample_at();
        let instances = self.instances.first_deadline();
        let lease = self.lease_timeout();
        report.into_iter().chain(instances).chain(lease).min()
    }

    /// Whether nothing is left to wait for after [`Input::Shutdown`].
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.duty == Duty::Leaving && !self.instances.values().any(Instance::is_stopping)
    }

    fn connected(&mut self, now: Instant, configuration: &[u8], records_ends: bool) {
        self.limits = room::Limits::from_configuration(configuration);
        self.capacity = None;
        self.link = Link::Up {
            records_ends,
            starts_seen: 0,
            reports: 0,
            reported: None,
            report_at: now,
        };
        self.kept.begin_connection();
        self.introduce_anew();
        self.report_ends();
    }

    fn disconnected(&mut self, now: Instant) {
        let look_at = now + self.settings.report_interval;
        self.link = Link::Down {
            look_at: Some(look_at),
        };
        self.lease.disconnected();
    }

    fn shutdown(&mut self, now: Instant, workloads: Workloads) {
        self.duty = Duty::Leaving;
        self.send(Message::Offline);
        if workloads == Workloads::Stop {
            self.stop_all(now);
        }
    }

    /// Everything whose time has come.
    fn pass_time(&mut self, now: Instant) {
        self.end_lease(now);
        self.kill_the_late(now);
        self.restart_the_due(now);
        if self.sample_at().is_some_and(|at| at <= now) {
            self.sampling = true;
            self.order(AgentAction::Sample);
        }
    }

    fn order(&mut self, order: AgentAction) {
        self.actions.push_back(Action::Machine(order));
    }

    /// Sends, if there is a connection.
    fn send(&mut self, message: Message) {
        if let Link::Up { .. } = self.link {
            self.ends.count_frame(&message);
            self.actions.push_back(Action::Send(message));
        }
    }
}
