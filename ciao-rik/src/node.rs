//! One worker as a node of the scheduler: a task that drives the launcher's state machine ([`Agent`]) with the worker
//! in place of a machine, over a connection of its own.
//!
//! What the state machine orders becomes jobs in the worker's stream (`orders`); what the worker says becomes its
//! inputs: metrics are the sample of the machine (`figures`), statuses are starts and ends. The node exists as long as
//! the worker's stream. It connects once the worker has sent its first metrics, for a node without figures cannot be
//! placed on.
//!
//! ```text
//!             ┌ Received(START) ──▶ Agent ──▶ Spawn ──▶ job CREATE ──▶ worker
//! scheduler ──┤
//!             └ Sent ◀── READY, STATS, ends ◀── Agent ◀── Started, Exited ◀── Running, Terminated ── worker
//! ```

pub(crate) mod definitions;
mod figures;
mod orders;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent::{
    Action, Agent, Command, Features, HostFigures, Input, LaunchFault, Message, Numbering,
    PressureLimits, Ran, Runs, Settings as AgentSettings, Workloads,
};
use ciao_scheduler::launcher::answers::Answers;
use ciao_scheduler::net::address::{Backoff, Endpoint};
use ciao_scheduler::net::link::{self, Hello, Link, LinkClosed, Timeouts};
use ciao_scheduler::net::tls::ClientTls;
use proto_frames::{Encoding, Frame, Kind, Role, Uuid};
use sched_model::cut::cut;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tonic::Status;
use tracing::{debug, info, warn};

use crate::coordinator::News;
use crate::definition::{Carried, VM_TYPE, carried};
use crate::instance::Said;
use crate::node::definitions::{Budget, KeptDefinition};
use crate::rpc::common::{InstanceMetric, ResourceStatus, WorkerMetric};
use crate::unwanted::Unwanted;
use crate::workers::{JobSender, WorkerState};

/// Namespace of the version 5 UUIDs that workers get from their names: a worker that registers again is the same node,
/// also after a restart of ciao-rik, without anything on disk.
const WORKERS: Uuid = Uuid::from_u128(0x2d0c_7f3e_54a1_4b0e_9c57_1f3a_8e6b_d004);

/// Upper bound of the pause between two tries to connect.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Longest time that the last frames may take to leave after the worker has gone.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Reports and frames that are handled between two waits, so that a burst is answered with one report, and no burst
/// holds up writing for ever.
const GROUP: usize = 128;

/// Most bytes of a worker's text about an instance that are kept and passed on; a longer one is cut. There is one for
/// each of up to 100 000 instances.
const MAX_INSTANCE_TEXT: usize = 2 * 1024;

/// What all workers' nodes have in common, as the flags say.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The scheduler's address, and the name that its certificate must have.
    pub(crate) endpoint: Endpoint,
    /// The launcher's certificate that all nodes show, and the authorities they trust.
    pub(crate) tls: ClientTls,
    /// How long the scheduler waits for a node that is cut off before its leased instances start elsewhere.
    pub(crate) lease: Duration,
    /// How long a worker may take to destroy an instance; later the instance counts as gone all the same.
    pub(crate) stop_grace: Duration,
    /// Pause between two reports to the scheduler where nothing changes.
    pub(crate) report_interval: Duration,
    /// The bound for the definitions that all workers' nodes keep.
    pub(crate) definitions: Budget,
    /// Instances that their controllers have destroyed: no worker is given one.
    pub(crate) unwanted: Unwanted,
}

/// One status of the worker's stream, checked for its length by [`crate::workers`] and for nothing else.
#[derive(Debug)]
pub(crate) enum Report {
    /// Metrics of the machine.
    Worker(WorkerMetric),
    /// The status of an instance, by the id that its controller gave.
    Instance(InstanceMetric),
}

/// An instance that the worker was given and that has not ended.
#[derive(Debug)]
struct Held {
    /// The id by which the worker knows it: its controller's, or that and its UUID where the worker has another such.
    id: String,
    /// Needed for the job that destroys it.
    definition: KeptDefinition,
    /// Whether the state machine was told that it runs. An end before that is a failed start.
    is_started: bool,
    /// Whether the scheduler starts it elsewhere if the worker is gone.
    is_leased: bool,
}

/// The connection with the scheduler.
enum Connection {
    /// The worker has not yet sent metrics that can be read; there is no try to connect.
    Waiting,
    /// Tries, with growing pauses, until one succeeds.
    Dialling(Pin<Box<dyn Future<Output = Link> + Send>>),
    Up(Link, Answers),
}

/// What a node has waited for.
enum Woken {
    Connected(Link),
    Received(Frame),
    /// The first frame of the outbox has been handed to the connection.
    Sent,
    Lost(LinkClosed),
    Reported(Report),
    /// The state machine's time has come, or a sample is due.
    Timer,
    /// The worker's stream has ended.
    Gone,
}

/// One worker, and all that its task owns. No other task touches it.
pub(crate) struct Node {
    settings: Arc<Settings>,
    agent: Agent,
    /// The node's UUID, from the worker's name.
    uuid: Uuid,
    /// The same as text, for what is told to the coordinator.
    node: Arc<str>,
    /// The worker's name; the node's host name too.
    name: Arc<str>,
    address: SocketAddr,
    /// The worker's stream of jobs.
    jobs: JobSender,
    coordinator: mpsc::Sender<News>,
    connection: Connection,
    backoff: Backoff,
    /// Frames that the connection has not taken yet. While there are any, no commands are read: a slow scheduler slows
    /// its own commands.
    outbox: VecDeque<Frame>,
    /// What the coordinator is to be told. It is sent between two waits.
    news: Vec<News>,
    /// The id and definition of a START that is being handled, by instance, until the state machine orders it spawned
    /// or refuses it.
    carried: HashMap<String, Result<Carried, String>>,
    /// What the worker was given and has not ended, by instance UUID.
    held: HashMap<String, Held>,
    /// Instance UUIDs by the controllers' ids, to find whose a status is.
    by_id: HashMap<String, String>,
    /// Ids of instances that count as gone without the worker's word, the latest last: it may still speak of them.
    unended: VecDeque<String>,
    /// The worker's latest metrics that could be read.
    figures: Option<HostFigures>,
    /// When the state machine gets the sample that it has asked for; `None` where it has not.
    sample_at: Option<Instant>,
    /// When it got the last one.
    last_sample: Option<Instant>,
    /// Whether the task is to end because the scheduler refused the node, or the worker does not read its jobs.
    is_given_up: bool,
}

impl Node {
    /// A node for a worker that has just registered. It has no instances: what a worker of this name ran counts as
    /// ended with its earlier stream.
    pub(crate) fn new(
        settings: Arc<Settings>,
        (name, address): (Arc<str>, SocketAddr),
        jobs: JobSender,
        coordinator: mpsc::Sender<News>,
    ) -> Self {
        let uuid = Uuid::new_v5(&WORKERS, name.as_bytes());
        let agent = Agent::new(AgentSettings {
            node_uuid: uuid,
            hostname: name.to_string(),
            report_interval: settings.report_interval,
            stop_grace: settings.stop_grace,
            cpu_ratio: 1.0,
            pressure_limits: PressureLimits::default(),
            features: Features::default(),
            runs: Runs::Named(VM_TYPE),
            lease: Some(settings.lease),
            numbering: Numbering {
                incarnation: Uuid::new_v4(),
                after: 0,
            },
            incarnation: Uuid::new_v4(),
        });
        Self {
            settings,
            agent,
            uuid,
            node: uuid.to_string().into(),
            name,
            address,
            jobs,
            coordinator,
            connection: Connection::Waiting,
            backoff: Backoff::new(1.0, LAST_PAUSE),
            outbox: VecDeque::new(),
            news: Vec::new(),
            carried: HashMap::new(),
            held: HashMap::new(),
            by_id: HashMap::new(),
            unended: VecDeque::new(),
            figures: None,
            sample_at: None,
            last_sample: None,
            is_given_up: false,
        }
    }

    /// Runs the node until the worker's stream has ended or it is given up, and then reports what has ended with it.
    /// `state` says from when on a worker of the same name may wait for this one to be gone.
    pub(crate) async fn run(
        mut self,
        mut reports: mpsc::Receiver<Report>,
        state: &watch::Sender<WorkerState>,
    ) {
        while !self.is_given_up {
            self.act();
            self.notify().await;
            let woken = self.wait(&mut reports).await;
            if let Woken::Gone = woken {
                break;
            }
            self.take(woken);
            // What else is there already is dealt with before anything is written.
            for _ in 0..GROUP {
                let Some(more) = self.ready(&mut reports) else {
                    break;
                };
                self.take(more);
            }
        }
        let _ = state.send(WorkerState::Leaving);
        self.leave().await;
    }

    /// Waits for the next thing that happens. Each branch may be dropped and loses nothing.
    async fn wait(&mut self, reports: &mut mpsc::Receiver<Report>) -> Woken {
        let timer = self.agent.poll_timeout();
        let answer = match &self.connection {
            Connection::Up(_, answers) => answers.due(),
            _ => None,
        };
        let timer = [timer, self.sample_at, answer].into_iter().flatten().min();
        let timer = async {
            match timer {
                Some(at) => sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = self.jobs.closed() => Woken::Gone,
            woken = exchange(&mut self.connection, self.outbox.front()) => woken,
            Some(report) = reports.recv() => Woken::Reported(report),
            () = timer => Woken::Timer,
        }
    }

    /// What has happened already, without a wait.
    fn ready(&mut self, reports: &mut mpsc::Receiver<Report>) -> Option<Woken> {
        if let Ok(report) = reports.try_recv() {
            return Some(Woken::Reported(report));
        }
        match &mut self.connection {
            // While frames wait to be written, no more commands are taken in.
            Connection::Up(link, _) if self.outbox.is_empty() => match link.receiver.try_recv() {
                Ok(frame) => frame.map(Woken::Received),
                Err(closed) => Some(Woken::Lost(closed)),
            },
            _ => None,
        }
    }

    /// Handles one thing, up to the state machine's last action.
    fn take(&mut self, woken: Woken) {
        let now = Instant::now();
        match woken {
            Woken::Connected(link) => {
                info!(event = "worker_connected", worker = %self.name, node = %self.uuid, "the worker is a node of the scheduler");
                let connected = Input::Connected {
                    configuration: link.connected.payload.clone(),
                    records_ends: link.connected.records_ends(),
                };
                let answers = Answers::on(&link);
                self.connection = Connection::Up(link, answers);
                self.backoff.reset();
                self.agent.handle(now, connected);
            }
            Woken::Lost(reason) => self.lost(now, &reason),
            Woken::Received(frame) => self.received(now, &frame),
            Woken::Sent => drop(self.outbox.pop_front()),
            Woken::Reported(Report::Worker(metric)) => self.worker_reported(metric),
            Woken::Reported(Report::Instance(metric)) => self.instance_reported(now, metric),
            Woken::Timer => self.timer(now),
            Woken::Gone => {}
        }
        self.act();
    }

    /// The connection is over, or given up: the next is dialled.
    fn lost(&mut self, now: Instant, reason: &LinkClosed) {
        warn!(event = "worker_disconnected", worker = %self.name, node = %self.uuid, %reason, "the worker is no node of the scheduler until the connection is back");
        self.outbox.clear();
        let pause = self.pause();
        self.connection = self.dial(pause);
        self.agent.handle(now, Input::Disconnected);
    }

    /// The next pause between tries to connect.
    fn pause(&mut self) -> Duration {
        self.backoff.next_wait(&mut fastrand::Rng::new())
    }

    /// Tries to connect after this pause, again and again. Certificates and refusals by the scheduler are tried again
    /// too: both may be mended while the worker stays.
    fn dial(&self, pause: Duration) -> Connection {
        let settings = Arc::clone(&self.settings);
        let (uuid, name) = (self.uuid, Arc::clone(&self.name));
        let mut backoff = self.backoff.clone();
        Connection::Dialling(Box::pin(async move {
            let hello = Hello {
                role: Role::AGENT,
                uuid,
                encoding: Encoding::Native,
            };
            let mut pause = pause;
            loop {
                sleep(pause).await;
                let tls = settings.tls.at_dial(Some(uuid)).await;
                match link::connect(&settings.endpoint, &tls, &hello, &Timeouts::default()).await {
                    Ok(link) => return link,
                    Err(error) => {
                        warn!(event = "connect_failed", worker = %name, node = %uuid, "cannot connect: {error}");
                    }
                }
                pause = backoff.next_wait(&mut fastrand::Rng::new());
            }
        }))
    }

    /// Handles one frame of the scheduler.
    ///
    /// A START's second document is read before the state machine sees the START, and is dropped afterwards if that
    /// refused it. A DELETE or EVACUATE for an instance that is still being created counts it as started first:
    /// otherwise the state machine would wait for its start, and a worker can be told to destroy what it is creating.
    fn received(&mut self, now: Instant, frame: &Frame) {
        if frame.kind == Kind::CONNECTION_ABORTED {
            let text = "the scheduler has another node of this name: another ciao-rik has a worker that is called so";
            warn!(event = "worker_refused", worker = %self.name, "worker refused: {text}");
            self.jobs.end(Status::already_exists(text));
            self.is_given_up = true;
            return;
        }
        let Some(command) = Command::decode(frame) else {
            debug!(worker = %self.name, kind = %frame.kind, "frame ignored");
            return;
        };
        match &command {
            Command::Start(Ok(start)) => {
                let instance = start.instance_uuid.clone();
                self.carried.insert(instance, carried(&frame.payload));
            }
            // A worker can be told to destroy what it is still creating.
            Command::Delete(Ok(delete)) => self.count_as_started(now, Some(&delete.instance_uuid)),
            Command::Evacuate(_) => self.count_as_started(now, None),
            _ => {}
        }
        let started = match &command {
            Command::Start(Ok(start)) => Some(start.instance_uuid.clone()),
            _ => None,
        };
        self.agent.handle(now, Input::Command(command));
        self.act();
        // Not begun: refused.
        if let Some(instance) = started {
            self.carried.remove(&instance);
        }
    }

    /// Tells the state machine that instances run which the worker has not reported as running: this one, or all.
    fn count_as_started(&mut self, now: Instant, which: Option<&str>) {
        let concerned = self.held.iter_mut().filter(|(instance, held)| {
            !held.is_started && which.is_none_or(|it| it == instance.as_str())
        });
        let mut started = Vec::new();
        for (instance, held) in concerned {
            held.is_started = true;
            started.push(instance.clone());
        }
        for instance in started {
            self.agent.handle(now, Input::Started { instance });
        }
    }

    /// Takes metrics in. Those that cannot be read change no figures; controllers get them all the same.
    fn worker_reported(&mut self, metric: WorkerMetric) {
        match figures::read(&metric.metrics) {
            Ok(figures) => {
                self.figures = Some(figures);
                if let Connection::Waiting = self.connection {
                    self.connection = self.dial(Duration::ZERO);
                }
            }
            Err(error) => {
                warn!(event = "worker_metrics_unreadable", worker = %self.name, "the worker's metrics cannot be read: {error}");
            }
        }
        self.news.push(News::Worker {
            worker: Arc::clone(&self.name),
            address: self.address.to_string(),
            metric,
        });
    }

    /// Takes an instance's status in: first for the coordinator, then for the state machine. A status of an id that the
    /// worker was not given, or that has ended, is ignored.
    fn instance_reported(&mut self, now: Instant, metric: InstanceMetric) {
        let Some(instance) = self.by_id.get(&metric.instance_id).cloned() else {
            self.ended_late(&metric);
            debug!(worker = %self.name, "status of an instance that the worker does not have ignored");
            return;
        };
        let status = metric.status();
        if !matches!(status, ResourceStatus::Unknown) {
            self.say(&instance, status, metric.metrics.clone());
        }
        match status {
            ResourceStatus::Running => self.started(now, &instance),
            ResourceStatus::Failed => self.failed(now, &instance, metric.metrics),
            ResourceStatus::Terminated => self.agent.handle(now, exited(&instance)),
            _ => {}
        }
        if matches!(status, ResourceStatus::Failed | ResourceStatus::Terminated) {
            self.untrack(&instance);
        }
    }

    /// Tells the state machine once that an instance runs.
    fn started(&mut self, now: Instant, instance: &str) {
        if let Some(held) = self.held.get_mut(instance)
            && !held.is_started
        {
            held.is_started = true;
            let instance = instance.to_owned();
            self.agent.handle(now, Input::Started { instance });
        }
    }

    /// A failure before the start is a failed START, which the scheduler may try on another node; one after it is an
    /// end.
    fn failed(&mut self, now: Instant, instance: &str, detail: String) {
        let is_started = self.held.get(instance).is_none_or(|it| it.is_started);
        let input = match is_started {
            true => exited(instance),
            false => Input::StartFailed {
                instance: instance.to_owned(),
                fault: LaunchFault::Launch,
                detail,
            },
        };
        self.agent.handle(now, input);
    }

    /// Gives the state machine the sample that is due, and the time.
    fn timer(&mut self, now: Instant) {
        if self.sample_at.is_some_and(|at| at <= now)
            && let Some(host) = self.figures.clone()
        {
            self.sample_at = None;
            self.last_sample = Some(now);
            let usage = std::collections::BTreeMap::new();
            self.agent.handle(now, Input::Sampled { host, usage });
        }
        self.agent.handle(now, Input::Tick);
        if let Connection::Up(link, answers) = &mut self.connection
            && let Some(reason) = answers.look(now, link.sender.heard())
        {
            self.lost(now, &reason);
        }
    }

    /// Carries out all that the state machine orders: frames go to the outbox, all else to [`Node::perform`].
    fn act(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Send(message) => {
                    if let (Connection::Up(link, answers), Message::Stats(_)) =
                        (&mut self.connection, &message)
                    {
                        answers.reported(Instant::now(), link.sender.heard());
                    }
                    let frame = Frame::new(message.kind(), self.uuid, message.payload());
                    self.outbox.push_back(frame);
                }
                Action::Machine(order) => self.perform(Instant::now(), order),
            }
        }
    }

    /// Notes an instance's status for the coordinator, with the first [`MAX_INSTANCE_TEXT`] bytes of its text.
    fn say(&mut self, instance: &str, status: ResourceStatus, metrics: String) {
        self.news.push(News::Instance {
            instance: instance.into(),
            said: Said {
                node: Arc::clone(&self.node),
                worker: Arc::clone(&self.name),
                status,
                metrics: cut(&metrics, MAX_INSTANCE_TEXT).into_owned(),
            },
        });
    }

    /// Hands the coordinator what has been noted. Waits while its channel is full.
    async fn notify(&mut self) {
        for news in self.news.drain(..) {
            // Without a coordinator this program is about to end.
            let _ = self.coordinator.send(news).await;
        }
    }

    /// Ends the node: its stream is gone, and with it what the worker ran.
    ///
    /// The scheduler is told of the ends of instances without a lease. Those with a lease are left: the lost node makes
    /// the scheduler start them elsewhere. The coordinator is told which are which, and the last frames have
    /// [`LEAVE_WITHIN`] to leave.
    async fn leave(mut self) {
        let now = Instant::now();
        let held = std::mem::take(&mut self.held);
        let (moves, ended): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, it)| it.is_leased);
        for (instance, _) in &ended {
            self.agent.handle(now, exited(instance));
        }
        let names = |all: Vec<(String, Held)>| -> Vec<Arc<str>> {
            all.into_iter().map(|(it, _)| it.into()).collect()
        };
        let (ended, moves) = (names(ended), names(moves));
        self.agent.handle(now, Input::Shutdown(Workloads::Leave));
        self.act();
        self.news.push(News::Gone {
            worker: Arc::clone(&self.name),
            ended,
            moves,
        });
        self.notify().await;
        let Connection::Up(link, _) = &self.connection else {
            return;
        };
        let last = async {
            for frame in self.outbox.drain(..) {
                link.sender.send(frame).await?;
            }
            link.sender.flush().await?;
            link.sender.close();
            link.sender.closed().await;
            Ok::<(), LinkClosed>(())
        };
        // What is not told now is seen from the worker's next first report.
        let _ = timeout(LEAVE_WITHIN, last).await;
    }
}

/// That an instance has ended. A worker of RIK tells no exit status.
fn exited(instance: &str) -> Input {
    Input::Exited {
        instance: instance.to_owned(),
        code: None,
        by_itself: false,
        ran: Ran::default(),
    }
}

/// The next thing that happens on the connection: it stands, a frame was taken, or one came. Dropping it loses nothing.
async fn exchange(connection: &mut Connection, outgoing: Option<&Frame>) -> Woken {
    match (connection, outgoing) {
        (Connection::Waiting, _) => std::future::pending().await,
        (Connection::Dialling(dialling), _) => Woken::Connected(dialling.await),
        (Connection::Up(link, _), Some(frame)) => {
            let sent = link.sender.send(frame.clone()).await;
            sent.map_or_else(Woken::Lost, |()| Woken::Sent)
        }
        (Connection::Up(link, _), None) => {
            let received = link.receiver.recv().await;
            received.map_or_else(Woken::Lost, Woken::Received)
        }
    }
}
