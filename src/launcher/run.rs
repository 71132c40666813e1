//! Drives the state machine on a real machine and a real connection: one loop per node, and as many nodes as asked for.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto_frames::payload::{OutputChunk, Payload, ReadImage};
use proto_frames::{Encoding, Frame, Kind, Uuid};
use rustix::process::{Resource, Rlimit};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tracing::{debug, info, warn};

use super::agent::{
    Action, Agent, AgentAction, Command, Input, Message, Numbering, Runs, Settings,
};
use super::answers::Answers;
use super::cgroup;
use super::config::{Config, LauncherError, MachineConfig};
use super::connection::{Connection, Wakeup, exchange, refusal};
use super::descriptors;
use super::dial::Dialler;
use super::host;
use super::images::{CacheConfig, DEFAULT_CACHE_QUOTA, ImageLink, Images, Reach};
use super::metrics::{self, Metrics};
use super::orphans;
use super::process::Processes;
use super::readers::Readers;
use super::simulate::Simulated;
use super::state::StateDir;
use super::traces::Traces;
use crate::net::link::{Hello, Link, LinkClosed};

mod left;

/// Connections being opened at a time by one process, however many nodes it simulates: enough to keep a scheduler's
/// handshakes busy.
const DIALS_AT_ONCE: usize = 64;

/// Longest time that the last frames may take to leave at shutdown.
const FLUSH_DEADLINE: Duration = Duration::from_secs(5);

/// Longest time to wait for the scheduler's end of the connection to close after ours: what was written may still be on
/// its way.
const LINGER: Duration = Duration::from_secs(1);

/// Longest time beyond the stop grace that stopping all workloads may take at shutdown; what is killed ends at once
/// unless the kernel holds it.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Runs a launcher, or many simulated ones, until `shutdown` is ready or one cannot go on.
///
/// # Errors
/// [`LauncherError`]: the state directory cannot be used, or the scheduler refuses for good.
pub async fn run(config: Config, shutdown: impl Future<Output = ()>) -> Result<(), LauncherError> {
    raise_open_files_limit();
    let config = Arc::new(config);
    let (end, ending) = watch::channel(false);
    let dials = Arc::new(Semaphore::new(DIALS_AT_ONCE));
    let metrics = Arc::new(Metrics::default());
    // Ends with what is below.
    let _serving = serve_metrics(&config, &metrics).await?;
    let mut nodes = JoinSet::new();
    for mut node in nodes_of(&config, &dials)? {
        node.metrics = Arc::clone(&metrics);
        nodes.spawn(node.run(ending.clone()));
    }
    drop(ending);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown, if !*end.borrow() => {
                info!(event = "shutdown_begun", "shutting down");
                let _ = end.send(true);
            }
            node = nodes.join_next() => match node {
                Some(ended) => ended??,
                None => return Ok(()),
            },
        }
    }
}

/// Serves metrics where that is asked for, as long as the result is there.
async fn serve_metrics(
    config: &Config,
    metrics: &Arc<Metrics>,
) -> Result<JoinSet<Infallible>, LauncherError> {
    let mut serving = JoinSet::new();
    if let Some(address) = config.metrics {
        let failed = |source| LauncherError::Metrics { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        info!(event = "listening_metrics", "serves metrics on {address}");
        serving.spawn(metrics::serve(listener, Arc::clone(metrics)));
    }
    Ok(serving)
}

/// Lets this process open as many files as it may: a workload takes a descriptor, a simulated node a socket.
fn raise_open_files_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = rustix::process::setrlimit(Resource::Nofile, raised) {
        warn!(event = "file_limit_not_raised", %error, "cannot raise the limit of open files");
    }
}

/// The nodes that are configured, with what they remember.
fn nodes_of(config: &Arc<Config>, dials: &Arc<Semaphore>) -> Result<Vec<LiveNode>, LauncherError> {
    match &config.machine {
        MachineConfig::Real {
            state_dir,
            uuid,
            share,
            supervisor,
            cgroup,
            images,
        } => {
            orphans::adopt();
            descriptors::keep_to_oneself(None);
            let mut state = StateDir::open(state_dir, *uuid)?;
            state.set_keep(config.keep_output);
            let (uuid, maintenance) = (state.uuid(), state.maintenance());
            let numbering = state.numbering();
            check_shares(config, &[uuid])?;
            let pinning = config.features.processors.as_ref().map(|it| it.pinning);
            let tree = cgroup::find(cgroup.as_deref(), pinning)?;
            let lease = lease(config);
            let (images, image_link) = open_images(state_dir, images.as_ref())?;
            let supervisor = supervisor.clone();
            let mut processes = Processes::new(state, supervisor, *share, tree, lease, images);
            processes.watch_pressure(config.pressure_file.clone());
            let lease_until = processes.lease_until();
            let clock = processes.clock();
            let recovered = processes.recover();
            let hostname = config.hostname.clone().unwrap_or_else(host::hostname);
            info!(event = "launcher_started", %uuid, hostname, instances = recovered.len(), "launcher starts");
            let mut node = LiveNode::new(
                config,
                uuid,
                hostname,
                Machine::Real(Box::new(processes)),
                numbering,
                dials,
            );
            node.images = Some(image_link);
            node.agent.set_clock(clock);
            if let Some(until) = lease_until {
                node.agent.recover_lease(until);
            }
            node.agent.recover(Instant::now(), maintenance, recovered);
            Ok(vec![node])
        }
        MachineConfig::Simulated { simulation, uuids } => {
            check_shares(config, uuids)?;
            info!(
                event = "launcher_started",
                nodes = uuids.len(),
                "simulated launchers start"
            );
            let name = config.hostname.as_deref().unwrap_or("simulated");
            let node = |(number, uuid): (usize, &Uuid)| {
                let machine = Machine::Simulated(Simulated::new(*simulation));
                // It remembers nothing, so that its ends are others' than those of one before it.
                let numbering = Numbering {
                    incarnation: Uuid::new_v4(),
                    after: 0,
                };
                LiveNode::new(
                    config,
                    *uuid,
                    format!("{name}-{}", number + 1),
                    machine,
                    numbering,
                    dials,
                )
            };
            Ok(uuids.iter().enumerate().map(node).collect())
        }
    }
}

/// Opens the cache of images, in the state directory unless something else is said.
fn open_images(
    state_dir: &Path,
    config: Option<&CacheConfig>,
) -> Result<(Images, ImageLink), LauncherError> {
    let usual = || CacheConfig {
        directory: state_dir.join("images"),
        quota: DEFAULT_CACHE_QUOTA,
    };
    let config = config.cloned().unwrap_or_else(usual);
    Images::open(&config).map_err(|source| LauncherError::BlobCache {
        path: config.directory,
        source,
    })
}

/// Whether none of these nodes is to share its own resources.
fn check_shares(config: &Config, nodes: &[Uuid]) -> Result<(), LauncherError> {
    match config.features.shares {
        Some(shares) if nodes.contains(&shares) => Err(LauncherError::SharesItself(shares)),
        _ => Ok(()),
    }
}

/// The lease that the nodes take: none where it cannot be renewed.
fn lease(config: &Config) -> Option<Duration> {
    config.lease.filter(|_| config.encoding == Encoding::Native)
}

/// What runs the workloads of one node.
#[derive(Debug)]
enum Machine {
    Real(Box<Processes>),
    Simulated(Simulated),
}

impl Machine {
    fn perform(&mut self, order: AgentAction) {
        match self {
            Self::Real(processes) => processes.perform(order),
            Self::Simulated(simulated) => simulated.perform(order),
        }
    }

    async fn event(&mut self) -> Input {
        match self {
            Self::Real(processes) => processes.event().await,
            Self::Simulated(simulated) => simulated.event().await,
        }
    }
}

/// One node: its state machine, its machine, its connection.
struct LiveNode {
    agent: Agent,
    machine: Machine,
    uuid: Uuid,
    dialler: Dialler,
    connection: Connection,
    traces: Traces,
    readers: Readers,
    /// What is fetched of images; `None` = it really runs nothing.
    images: Option<ImageLink>,
    metrics: Arc<Metrics>,
    /// Frames that the connection has not taken yet. While there are any, no further command is taken in.
    outbox: VecDeque<Frame>,
    config: Arc<Config>,
}

impl LiveNode {
    fn new(
        config: &Arc<Config>,
        uuid: Uuid,
        hostname: String,
        machine: Machine,
        numbering: Numbering,
        dials: &Arc<Semaphore>,
    ) -> Self {
        let agent = Agent::new(Settings {
            node_uuid: uuid,
            hostname,
            report_interval: config.report_interval,
            stop_grace: config.stop_grace,
            cpu_ratio: config.cpu_ratio,
            pressure_limits: config.pressure_limits,
            features: config.features.clone(),
            runs: match machine {
                Machine::Real(_) => Runs::Processes,
                Machine::Simulated(_) => Runs::Anything,
            },
            lease: lease(config),
            numbering,
            incarnation: Uuid::new_v4(),
        });
        let hello = Hello {
            role: config.role,
            uuid,
            encoding: config.encoding,
        };
        let dialler = Dialler::new(config.clone(), hello, dials.clone());
        let connection = Connection::Dialling(dialler.clone().dial());
        let readers = match &machine {
            Machine::Real(processes) => processes.readers(),
            Machine::Simulated(_) => Readers::default(),
        };
        Self {
            agent,
            machine,
            readers,
            images: None,
            metrics: Arc::default(),
            uuid,
            dialler,
            connection,
            traces: Traces::default(),
            outbox: VecDeque::new(),
            config: config.clone(),
        }
    }

    /// Runs the node until it is told to end and its agent is done, or its stop deadline has passed.
    async fn run(mut self, mut ending: watch::Receiver<bool>) -> Result<(), LauncherError> {
        let mut deadline: Option<Instant> = None;
        loop {
            self.act();
            if self.agent.is_done() && self.outbox.is_empty()
                || deadline.is_some_and(|at| at <= Instant::now())
            {
                self.close().await;
                return Ok(());
            }
            let woken = match deadline {
                Some(at) => timeout(at - Instant::now(), self.wait(None)).await,
                None => Ok(self.wait(Some(&mut ending)).await),
            };
            match woken {
                Ok(Ok(woken)) => {
                    if let Wakeup::Received(frame) = &woken
                        && let Some(detail) = refusal(frame)
                    {
                        return Err(LauncherError::Refused(detail));
                    }
                    if let Wakeup::Ending = woken {
                        deadline =
                            Some(Instant::now() + self.agent.longest_grace() + STOP_DEADLINE);
                    }
                    self.take(woken);
                }
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    warn!(event = "shutdown_incomplete", node = %self.uuid, "some instances did not stop before the deadline; they go on running")
                }
            }
        }
    }

    /// Does all that the state machine wants done.
    fn act(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Machine(order) => self.machine.perform(order),
                Action::Send(message) => {
                    if let Message::Stats(stats) = &message {
                        if let Connection::Up { link, answers, .. } = &mut self.connection {
                            answers.reported(Instant::now(), link.sender.heard());
                        }
                        self.metrics.report(self.uuid, stats);
                        self.metrics.lease(self.uuid, self.agent.lease_until());
                    }
                    debug!(node = %self.uuid, kind = %message.kind(), "sending");
                    self.outbox
                        .push_back(Frame::new(message.kind(), self.uuid, message.payload()));
                }
            }
        }
    }

    /// Waits for the next thing that happens. Each branch may be dropped and loses nothing.
    async fn wait(
        &mut self,
        ending: Option<&mut watch::Receiver<bool>>,
    ) -> Result<Wakeup, LauncherError> {
        let ending = async {
            match ending {
                Some(ending) => ending.wait_for(|end| *end).await.map(drop),
                None => std::future::pending().await,
            }
        };
        let timer = due_at(self.agent.poll_timeout());
        let writes = self.writes();
        let due = match &self.connection {
            Connection::Up { answers, .. } => answers.due(),
            Connection::Dialling(_) => None,
        };
        tokio::select! {
            () = due_at(due) => Ok(Wakeup::Due),
            frames = writes => Ok(Wakeup::Written(frames)),
            woken = exchange(&mut self.connection, self.outbox.front()) => woken,
            chunk = self.readers.next() => Ok(Wakeup::Read(chunk)),
            read = wanted(&mut self.images) => Ok(Wakeup::Wanted(read)),
            input = self.machine.event() => Ok(Wakeup::Happened(input)),
            () = timer => Ok(Wakeup::Happened(Input::Tick)),
            _ = ending => Ok(Wakeup::Ending),
        }
    }

    /// When more frames have been written than were known to be; never where it is not asked for.
    fn writes(&self) -> impl Future<Output = u64> + use<> {
        let watched = match &self.connection {
            Connection::Up { link, written, .. } if self.agent.waits_for_writes() => {
                Some((link.sender.clone(), *written))
            }
            _ => None,
        };
        async move {
            if let Some((sender, written)) = watched
                && let Ok(frames) = sender.written_beyond(written).await
            {
                return frames;
            }
            std::future::pending().await
        }
    }

    fn take(&mut self, woken: Wakeup) {
        let now = Instant::now();
        match woken {
            Wakeup::Happened(input) => self.happened(now, input),
            Wakeup::Ending => self
                .agent
                .handle(now, Input::Shutdown(self.config.at_shutdown)),
            Wakeup::Sent => {
                self.outbox.pop_front();
            }
            Wakeup::Written(frames) => {
                if let Connection::Up { written, .. } = &mut self.connection {
                    *written = frames;
                }
                self.agent.handle(now, Input::Written(frames));
            }
            Wakeup::Read(chunk) => self.send_output(&chunk),
            Wakeup::Wanted(read) => {
                // On another connection it is asked for once more.
                if matches!(self.connection, Connection::Up { .. }) {
                    let frame = Frame::new(Kind::READ_IMAGE, self.uuid, read.encode());
                    self.outbox.push_back(frame);
                }
            }
            Wakeup::Received(frame) => self.received(now, &frame),
            Wakeup::Connected(link) => self.connected(now, link),
            Wakeup::Due => {
                if let Connection::Up { link, answers, .. } = &mut self.connection
                    && let Some(reason) = answers.look(now, link.sender.heard())
                {
                    self.lost(now, &reason);
                }
            }
            Wakeup::Lost(reason) => self.lost(now, &reason),
        }
    }

    /// The connection is over, or given up: the next is dialled.
    fn lost(&mut self, now: Instant, reason: &LinkClosed) {
        warn!(event = "scheduler_disconnected", node = %self.uuid, %reason, "disconnected");
        if let Connection::Up { since, .. } = &self.connection {
            self.dialler.lost(now - *since);
        }
        self.connection = Connection::Dialling(self.dialler.clone().dial());
        self.outbox.clear();
        self.readers.forget();
        if let Some(images) = &self.images {
            images.connection(Reach::None);
        }
        self.metrics.connection(self.uuid, false);
        self.agent.handle(now, Input::Disconnected);
    }

    fn received(&mut self, now: Instant, frame: &Frame) {
        match frame.kind {
            Kind::IMAGE => {
                if let Some(images) = &self.images {
                    images.take(&frame.payload);
                }
            }
            // That it came is all it says.
            Kind::REPORT_RECEIVED => {}
            Kind::READ_OUTPUT => {
                if let Some(refusal) = self.readers.ask(&frame.payload) {
                    self.send_output(&refusal);
                }
            }
            Kind::DELETE_OUTPUT => self.delete_left(now, &frame.payload),
            kind => match Command::decode(frame) {
                Some(command) => {
                    if let Command::Start(Ok(start)) = &command {
                        let (uuid, role) = (self.uuid, self.config.role);
                        self.traces
                            .received(frame, &start.instance_uuid, uuid, role);
                    }
                    self.agent.handle(now, Input::Command(command));
                }
                None => debug!(node = %self.uuid, %kind, "frame ignored"),
            },
        }
    }

    fn connected(&mut self, now: Instant, link: Link) {
        info!(event = "scheduler_connected", node = %self.uuid, scheduler = %link.connected.source, "connected");
        let records_ends =
            link.connected.records_ends() && self.config.encoding == Encoding::Native;
        let connected = Input::Connected {
            configuration: link.connected.payload.clone(),
            records_ends,
        };
        if let Some(images) = &self.images {
            // Others do not know of images, and count the frames that ends wait for.
            images.connection(if records_ends {
                Reach::Asks
            } else {
                Reach::Mute
            });
        }
        self.connection = Connection::Up {
            answers: Answers::on(&link),
            link,
            since: now,
            written: 0,
        };
        self.metrics.connection(self.uuid, true);
        self.agent.handle(now, connected);
    }

    fn send_output(&mut self, chunk: &OutputChunk) {
        self.outbox
            .push_back(Frame::new(Kind::OUTPUT, self.uuid, chunk.encode()));
    }

    /// Gives the agent what happened on its machine, and before it the trace that this completes.
    fn happened(&mut self, now: Instant, input: Input) {
        let traced = match &input {
            Input::Started { instance } => self.traces.started(instance),
            Input::StartFailed { instance, .. } | Input::Exited { instance, .. } => {
                self.traces.ended(instance);
                None
            }
            _ => None,
        };
        if let Some(traced) = traced {
            self.agent.handle(now, Input::Traced(Box::new(traced)));
        }
        self.agent.handle(now, input);
    }

    /// Lets the last frames leave.
    async fn close(self) {
        if let Connection::Up { link, .. } = self.connection {
            let _ = timeout(FLUSH_DEADLINE, link.sender.flush()).await;
            link.sender.close();
            let _ = timeout(LINGER, link.sender.closed()).await;
        }
    }
}

/// When that time has come; never where there is none.
async fn due_at(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The next chunk of an image that is wanted.
async fn wanted(images: &mut Option<ImageLink>) -> ReadImage {
    match images {
        Some(images) => images.next().await,
        None => std::future::pending().await,
    }
}
