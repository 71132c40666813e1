//! One worker as a node of the scheduler: the launcher's state machine, driven over a connection of its own, with the worker
//! in place of a machine. It is there as long as the worker's stream is.

mod figures;
pub(crate) mod kept;
mod orders;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent::{
    Action, Agent, Command, Features, HostFigures, Input, LaunchFault, Numbering, PressureLimits,
    Runs, Settings as AgentSettings, Workloads,
};
use ciao_scheduler::net::address::{Backoff, Endpoint};
use ciao_scheduler::net::link::{self, Hello, Link, LinkClosed, Timeouts};
use proto_frames::{Encoding, Frame, Kind, Role, Uuid};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tonic::Status;
use tracing::{debug, info, warn};

use crate::definition::{Carried, VM_TYPE, carried};
use crate::desk::News;
use crate::instance::Said;
use crate::node::kept::{Budget, Kept};
use crate::rpc::common::{InstanceMetric, ResourceStatus, WorkerMetric};
use crate::workers::{JobSender, State};

/// What the UUIDs of workers are derived with, from their names.
const WORKERS: Uuid = Uuid::from_u128(0x2d0c_7f3e_54a1_4b0e_9c57_1f3a_8e6b_d004);

/// Longest pause between two tries to connect.
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Longest time that the last frames may take to leave.
const LEAVE_WITHIN: Duration = Duration::from_secs(3);

/// Frames and statuses that are dealt with before others have their turn.
const GROUP: usize = 128;

/// What all nodes have in common.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Where the scheduler is.
    pub(crate) endpoint: Endpoint,
    /// What is shown to it: a launcher's certificate.
    pub(crate) tls: Arc<rustls::ClientConfig>,
    /// How long a node is waited for before its leased instances start elsewhere.
    pub(crate) lease: Duration,
    /// How long a worker may take to destroy an instance.
    pub(crate) stop_grace: Duration,
    /// Time between two reports where nothing changes.
    pub(crate) report_interval: Duration,
    /// What all workers' definitions take.
    pub(crate) definitions: Budget,
}

/// What a worker says.
#[derive(Debug)]
pub(crate) enum Report {
    /// Of itself.
    Worker(WorkerMetric),
    /// Of an instance.
    Instance(InstanceMetric),
}

/// An instance that the worker was given.
#[derive(Debug)]
struct Held {
    id: String,
    definition: Kept,
    is_started: bool,
    is_leased: bool,
}

/// The connection with the scheduler.
enum Connection {
    /// The worker has not said yet what it has.
    Waiting,
    Dialling(Pin<Box<dyn Future<Output = Link> + Send>>),
    Up(Link),
}

/// What a node waits for.
enum Woken {
    Connected(Link),
    Received(Frame),
    Sent,
    Lost(LinkClosed),
    Reported(Report),
    Timer,
    Gone,
}

/// One worker.
pub(crate) struct Node {
    settings: Arc<Settings>,
    agent: Agent,
    uuid: Uuid,
    node: Arc<str>,
    name: Arc<str>,
    address: SocketAddr,
    jobs: JobSender,
    desk: mpsc::Sender<News>,
    connection: Connection,
    backoff: Backoff,
    /// Frames that the connection has not taken yet.
    outbox: VecDeque<Frame>,
    /// News that the desk has not taken yet.
    news: Vec<News>,
    /// What STARTs carried that were not begun yet, by instance.
    carried: HashMap<String, Result<Carried, String>>,
    /// What the worker was given, by instance.
    held: HashMap<String, Held>,
    /// The same by id.
    by_id: HashMap<String, String>,
    figures: Option<HostFigures>,
    /// When the figures are next asked for.
    sample_at: Option<Instant>,
    last_sample: Option<Instant>,
    is_given_up: bool,
}

impl Node {
    /// One for a worker that has just registered.
    pub(crate) fn new(
        settings: Arc<Settings>,
        (name, address): (Arc<str>, SocketAddr),
        jobs: JobSender,
        desk: mpsc::Sender<News>,
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
            desk,
            connection: Connection::Waiting,
            backoff: Backoff::new(1.0, LAST_PAUSE),
            outbox: VecDeque::new(),
            news: Vec::new(),
            carried: HashMap::new(),
            held: HashMap::new(),
            by_id: HashMap::new(),
            figures: None,
            sample_at: None,
            last_sample: None,
            is_given_up: false,
        }
    }

    /// Runs it until the worker's stream is gone, and clears up.
    pub(crate) async fn run(
        mut self,
        mut reports: mpsc::Receiver<Report>,
        state: &watch::Sender<State>,
    ) {
        while !self.is_given_up {
            self.act();
            self.tell().await;
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
        let _ = state.send(State::Leaving);
        self.leave().await;
    }

    async fn wait(&mut self, reports: &mut mpsc::Receiver<Report>) -> Woken {
        let timer = self.agent.poll_timeout();
        let timer = [timer, self.sample_at].into_iter().flatten().min();
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

    /// What has happened already.
    fn ready(&mut self, reports: &mut mpsc::Receiver<Report>) -> Option<Woken> {
        if let Ok(report) = reports.try_recv() {
            return Some(Woken::Reported(report));
        }
        match &mut self.connection {
            // While frames wait to be written, no more commands are taken in.
            Connection::Up(link) if self.outbox.is_empty() => match link.receiver.try_recv() {
                Ok(frame) => frame.map(Woken::Received),
                Err(closed) => Some(Woken::Lost(closed)),
            },
            _ => None,
        }
    }

    fn take(&mut self, woken: Woken) {
        let now = Instant::now();
        match woken {
            Woken::Connected(link) => {
                info!(event = "worker_connected", worker = %self.name, node = %self.uuid, "the worker is a node of the scheduler");
                let connected = Input::Connected {
                    configuration: link.connected.payload.clone(),
                    records_ends: link.connected.records_ends(),
                };
                self.connection = Connection::Up(link);
                self.backoff.reset();
                self.agent.handle(now, connected);
            }
            Woken::Lost(reason) => {
                warn!(event = "worker_disconnected", worker = %self.name, node = %self.uuid, %reason, "the worker is no node of the scheduler until the connection is back");
                self.outbox.clear();
                let pause = self.pause();
                self.connection = self.dial(pause);
                self.agent.handle(now, Input::Disconnected);
            }
            Woken::Received(frame) => self.received(now, &frame),
            Woken::Sent => drop(self.outbox.pop_front()),
            Woken::Reported(Report::Worker(metric)) => self.worker_reported(metric),
            Woken::Reported(Report::Instance(metric)) => self.instance_reported(now, metric),
            Woken::Timer => self.timer(now),
            Woken::Gone => {}
        }
        self.act();
    }

    fn pause(&mut self) -> Duration {
        self.backoff.next_wait(&mut fastrand::Rng::new())
    }

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
                let (endpoint, tls) = (&settings.endpoint, &settings.tls);
                match link::connect(endpoint, tls, &hello, &Timeouts::default()).await {
                    Ok(link) => return link,
                    Err(error) => {
                        warn!(event = "connect_failed", worker = %name, node = %uuid, "cannot connect: {error}");
                    }
                }
                pause = backoff.next_wait(&mut fastrand::Rng::new());
            }
        }))
    }

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

    fn instance_reported(&mut self, now: Instant, metric: InstanceMetric) {
        let Some(instance) = self.by_id.get(&metric.instance_id).cloned() else {
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
            ResourceStatus::Terminated => {
                let instance = instance.clone();
                self.agent.handle(
                    now,
                    Input::Exited {
                        instance,
                        code: None,
                    },
                );
            }
            _ => {}
        }
        if matches!(status, ResourceStatus::Failed | ResourceStatus::Terminated) {
            self.untrack(&instance);
        }
    }

    fn started(&mut self, now: Instant, instance: &str) {
        if let Some(held) = self.held.get_mut(instance)
            && !held.is_started
        {
            held.is_started = true;
            let instance = instance.to_owned();
            self.agent.handle(now, Input::Started { instance });
        }
    }

    fn failed(&mut self, now: Instant, instance: &str, detail: String) {
        let is_started = self.held.get(instance).is_none_or(|it| it.is_started);
        let instance = instance.to_owned();
        let input = match is_started {
            true => Input::Exited {
                instance,
                code: None,
            },
            false => Input::StartFailed {
                instance,
                fault: LaunchFault::Launch,
                detail,
            },
        };
        self.agent.handle(now, input);
    }

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
    }

    /// Does all that the state machine wants done.
    fn act(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Send(message) => {
                    let frame = Frame::new(message.kind(), self.uuid, message.payload());
                    self.outbox.push_back(frame);
                }
                Action::Machine(order) => self.perform(Instant::now(), order),
            }
        }
    }

    fn say(&mut self, instance: &str, status: ResourceStatus, metrics: String) {
        self.news.push(News::Instance {
            instance: instance.into(),
            said: Said {
                node: Arc::clone(&self.node),
                worker: Arc::clone(&self.name),
                status,
                metrics,
            },
        });
    }

    async fn tell(&mut self) {
        for news in self.news.drain(..) {
            // Without a desk this program is about to end.
            let _ = self.desk.send(news).await;
        }
    }

    /// The worker's stream is gone, and with it what it ran.
    async fn leave(mut self) {
        let now = Instant::now();
        let held = std::mem::take(&mut self.held);
        let (moves, ended): (Vec<_>, Vec<_>) = held.into_iter().partition(|(_, it)| it.is_leased);
        for (instance, _) in &ended {
            let instance = instance.clone();
            self.agent.handle(
                now,
                Input::Exited {
                    instance,
                    code: None,
                },
            );
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
        self.tell().await;
        let Connection::Up(link) = &self.connection else {
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

/// The next thing that happens on the connection. Nothing is lost where the wait is given up.
async fn exchange(connection: &mut Connection, outgoing: Option<&Frame>) -> Woken {
    match (connection, outgoing) {
        (Connection::Waiting, _) => std::future::pending().await,
        (Connection::Dialling(dialling), _) => Woken::Connected(dialling.await),
        (Connection::Up(link), Some(frame)) => {
            let sent = link.sender.send(frame.clone()).await;
            sent.map_or_else(Woken::Lost, |()| Woken::Sent)
        }
        (Connection::Up(link), None) => {
            let received = link.receiver.recv().await;
            received.map_or_else(Woken::Lost, Woken::Received)
        }
    }
}
