//! Real workloads: starts a supervisor for each, watches it, finds it again after a restart of the launcher.
//!
//! This is the machine under the agent: `perform` carries out its actions, `event` gives it what happened. The
//! supervisor ([`super::supervise`]) is a process of its own that outlives the launcher; what is asked of a running one
//! goes through [`super::control`], and what passes between the two over time are files ([`super::files`]).
//!
//! Supervisors are watched through pidfds, which cannot be confused by reused pids, whether they are this launcher's
//! children or an earlier one's.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use proto_frames::payload::KeptRun;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tracing::{debug, error, warn};

use super::agent::{AgentAction, Cpus, Input, LaunchFault, NodeClock, ProcessFate, Ran, Workload};
use super::backlog::Backlog;
use super::cgroup::Tree;
use super::control::{self, Answer, Request};
use super::files::{Ended, InstanceDir, read_json};
use super::host::{self, Share};
use super::images::Images;
use super::kept::deleted::Why;
use super::kept::{Shelf, Surplus};
use super::lease::LeaseWriter;
use super::limits::Limits;
use super::orphans::{self, DIR_VARIABLE};
use super::procfs;
use super::readers::Readers;
use super::state::StateDir;
use super::supervise::{KILL_WORKLOAD, Program};
use super::usage::{DISK_UNIT, Disks, Meter, sum_known};

mod recovering;
mod spawning;
mod starting;

/// Supervisors being started at a time: enough to use the machine, few enough that a burst of STARTs does not choke it.
const STARTS_AT_ONCE: usize = 8;

/// Ends, starts and samples that wait to be taken in; a task that has more to report waits.
const EVENT_QUEUE_LEN: usize = 256;

/// The variables a workload inherits from its launcher, where they are set there; nothing else gets through. Its
/// supervisor has only these as well: a workload may read the environment of its parent.
const INHERITED_VARIABLES: [&str; 8] = [
    "PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME",
];

/// The search path of a workload whose launcher has none.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The workloads of this machine. Owned by the run loop; everything slow is done by tasks of its own, which report
/// through `events`.
#[derive(Debug)]
pub(crate) struct Processes {
    /// The state directory, and the writes to it that failed and are tried again.
    state: Backlog,
    /// The fault of the state directory that the agent was told last; `None` = it can be written.
    told: Option<String>,
    /// Until when supervisors let run what is under the lease, where the file could not be renewed. Told to the agent
    /// once.
    lease_kept: Option<Instant>,
    /// The program that is run as supervisor.
    supervisor: Program,
    share: Share,
    /// `/proc/pressure/memory`, or a test's file; an empty path reads as no pressure.
    pressure_file: PathBuf,
    /// Where instances have cgroups, if anywhere.
    tree: Option<Tree>,
    /// How long a lease lasts; `None` = there are none.
    lease: Option<Duration>,
    lease_writer: LeaseWriter,
    /// Running supervisors by instance. An entry is removed with the instance's end.
    supervisors: BTreeMap<String, Supervisor>,
    /// Processor times of the last sample; locked by the thread that samples.
    meter: Arc<Mutex<Meter>>,
    /// Instances whose memory is being looked at: one look at a time, because the kernel may hold it up for long.
    looks: Arc<Mutex<BTreeSet<String>>>,
    disks: Arc<Disks>,
    shelf: Arc<Shelf>,
    /// Bytes that the output of ended instances took when it was last looked at.
    kept_bytes: u64,
    /// What was told last of the runs that left it.
    kept_runs: Option<Vec<KeptRun>>,
    /// One permit for each of [`STARTS_AT_ONCE`].
    starts: Arc<Semaphore>,
    images: Images,
    /// Instances that may wait for their images. Dropping the sender makes the start fail instead of going on.
    waiting: BTreeMap<String, oneshot::Sender<Infallible>>,
    events: mpsc::Sender<ProcessEvent>,
    happened: mpsc::Receiver<ProcessEvent>,
}

/// A running supervisor, this launcher's child or an earlier one's.
#[derive(Debug, Clone)]
struct Supervisor {
    /// For samples, which look for processes below it. Never signalled by this number.
    pid: i32,
    /// For signals, and to see its end.
    pidfd: Arc<OwnedFd>,
}

/// What tasks report to the loop.
#[derive(Debug)]
enum ProcessEvent {
    /// A supervisor said that its workload runs; it is watched from here on.
    Started {
        instance: String,
        supervisor: Supervisor,
        child: Child,
    },
    /// There is no room for some of what has ended.
    Surplus(Surplus),
    /// Passed to the agent as it is, after the bookkeeping that follows from it.
    Other(Input),
}

impl Processes {
    /// The workloads kept in `state`; `lease` = `None` writes no lease file.
    pub(crate) fn new(
        state: StateDir,
        supervisor: Program,
        share: Share,
        tree: Option<Tree>,
        lease: Option<Duration>,
        images: Images,
    ) -> Self {
        let (events, happened) = mpsc::channel(EVENT_QUEUE_LEN);
        let now = Instant::now();
        let lease_writer = LeaseWriter::new(state.lease());
        let mut state = Backlog::new(state, now);
        if lease.is_some()
            && let Err(error) = lease_writer.reserve()
        {
            state.failed(now, &error);
        }
        Self {
            lease_writer,
            state,
            told: None,
            lease_kept: None,
            supervisor,
            share,
            pressure_file: PathBuf::new(),
            tree,
            lease,
            supervisors: BTreeMap::new(),
            meter: Arc::default(),
            looks: Arc::default(),
            disks: Arc::default(),
            shelf: Arc::default(),
            kept_bytes: 0,
            kept_runs: None,
            starts: Arc::new(Semaphore::new(STARTS_AT_ONCE)),
            images,
            waiting: BTreeMap::new(),
            events,
            happened,
        }
    }

    /// The node's count at this moment.
    pub(crate) fn clock(&self) -> NodeClock {
        NodeClock {
            at: Instant::now(),
            ms: self.state().clock().now_ms(),
        }
    }

    /// When the lease that an earlier launcher had is over; `None` = it is.
    pub(crate) fn lease_until(&self) -> Option<Instant> {
        self.lease_writer.until()
    }

    /// Does what the agent asks and returns at once; what comes of it is told by [`Processes::event`].
    pub(crate) fn perform(&mut self, order: AgentAction) {
        let now = Instant::now();
        match order {
            AgentAction::Spawn(workload) => self.spawn(*workload),
            AgentAction::Respawn(respawn) => self.respawn(*respawn),
            AgentAction::Clear(id) => self.state().clear_run(&id),
            AgentAction::Abandon(id) => drop(self.waiting.remove(&id)),
            AgentAction::Terminate(id) => self.signal(&id, Signal::TERM),
            AgentAction::Kill(id) => self.signal(&id, KILL_WORKLOAD),
            AgentAction::Freeze(id) => self.ask(id, Request::Freeze, |instance, result| {
                Input::Frozen { instance, result }
            }),
            AgentAction::Thaw(id) => self.ask(id, Request::Thaw, |instance, result| {
                Input::Thawed { instance, result }
            }),
            AgentAction::SetLimits {
                instance,
                mem_mb,
                vcpus,
            } => {
                let limits = Request::Limit(Limits { mem_mb, vcpus });
                self.ask(instance, limits, |instance, result| Input::LimitsSet {
                    instance,
                    result,
                });
            }
            AgentAction::Pin { instance, cpus } => self.pin(instance, cpus),
            AgentAction::CheckMemory { instance, mem_mb } => self.check_memory(instance, mem_mb),
            AgentAction::ExtendLease(until) => self.extend_lease(now, until),
            AgentAction::Persist(record) => {
                // One that waits to be started again keeps them: it may be cut off from where they come from.
                if record.has_ended() {
                    self.images.release(&record.instance);
                }
                self.state.save(now, record);
            }
            AgentAction::Forget(id) => {
                self.images.release(&id);
                self.state.forget(now, id);
            }
            AgentAction::PersistMaintenance(maintenance) => {
                self.state.set_maintenance(now, maintenance);
            }
            AgentAction::Sample => {
                self.lease_writer.reports();
                self.sample();
            }
        }
    }

    /// Renews the lease's file for supervisors. A failure counts as one of the state directory, and the agent learns
    /// until when the old deadline lets instances run.
    fn extend_lease(&mut self, now: Instant, until: Instant) {
        let Some(length) = self.lease else { return };
        if let Err(error) = self.lease_writer.extend(until, length) {
            self.lease_kept = Some(self.lease_writer.until().unwrap_or(now));
            self.state.failed(now, &error);
        }
    }

    /// Who reads what workloads here wrote.
    pub(crate) fn readers(&self) -> Readers {
        Readers::new(self.state().root().to_owned(), self.state().keep())
    }

    fn state(&self) -> &StateDir {
        self.state.state()
    }

    /// The next thing that happened. Nothing is lost where the wait is given up.
    pub(crate) async fn event(&mut self) -> Input {
        loop {
            if let Some(until) = self.lease_kept.take() {
                return Input::LeaseNotExtended { until };
            }
            let fault = self.state.fault();
            if self.told != fault {
                self.told.clone_from(&fault);
                return Input::Storage { fault };
            }
            tokio::select! {
                // This holds a sender itself, so the channel never closes.
                Some(event) = self.happened.recv() => {
                    if let Some(input) = self.happened(event) {
                        return input;
                    }
                }
                images = self.images.changed() => return Input::Images(images),
                () = due(self.state.retry_at()) => self.state.retry(Instant::now()),
            }
        }
    }

    /// What the agent is to be told of an event.
    fn happened(&mut self, event: ProcessEvent) -> Option<Input> {
        match event {
            ProcessEvent::Started {
                instance,
                supervisor,
                child,
            } => {
                self.waiting.remove(&instance);
                self.watch(&instance, supervisor, Some(child));
                Some(Input::Started { instance })
            }
            ProcessEvent::Surplus(surplus) => {
                self.kept_bytes = surplus.kept;
                let bare = self.state().delete_surplus(&surplus);
                if self.kept_runs.as_ref() == Some(&surplus.runs) && bare.is_empty() {
                    return None;
                }
                self.kept_runs = Some(surplus.runs.clone());
                let runs = surplus.runs;
                Some(Input::KeptRuns { runs, bare })
            }
            ProcessEvent::Other(input) => {
                if let Input::StartFailed { instance, .. } | Input::Exited { instance, .. } = &input
                {
                    self.waiting.remove(instance);
                }
                match &input {
                    Input::Exited { instance, .. } => drop(self.supervisors.remove(instance)),
                    Input::StartFailed {
                        fault: LaunchFault::Storage,
                        detail,
                        ..
                    } => self.state.note(Instant::now(), detail.clone()),
                    _ => {}
                }
                Some(input)
            }
        }
    }

    /// Deletes what is left here of runs of an instance that are over; how many that were, and what the agent is to know.
    pub(crate) fn delete_left(&mut self, id: &str) -> (usize, Input) {
        let left = self.state().left_by(id);
        let count = left.len();
        let surplus = Surplus {
            whole: left.into_iter().map(|dir| (dir, Why::Requested)).collect(),
            ..Surplus::default()
        };
        let bare = self.state().delete_surplus(&surplus);
        let mut runs = self.kept_runs.clone().unwrap_or_default();
        for run in runs.iter_mut().filter(|run| run.instance_uuid == id) {
            run.output.clear();
        }
        self.kept_runs = self.kept_runs.as_ref().map(|_| runs.clone());
        (count, Input::KeptRuns { runs, bare })
    }

    /// Asks an instance's supervisor in a task of its own; `told` makes its answer what the agent is told.
    fn ask(&self, instance: String, request: Request, told: fn(String, Answer) -> Input) {
        let (events, dir) = (self.events.clone(), self.state().instance(&instance));
        tokio::spawn(async move {
            let answer = control::ask(&dir, request).await;
            let _ = events
                .send(ProcessEvent::Other(told(instance, answer)))
                .await;
        });
    }

    /// Finds out what the processes of an instance hold together, and has its supervisor end it where that is too much. A
    /// cgroup that limits memory needs no such look.
    fn check_memory(&self, instance: String, mem_mb: i64) {
        let is_limited = self.tree.as_ref().is_some_and(Tree::limits_memory);
        let Some(supervisor) = self.supervisors.get(&instance).filter(|_| !is_limited) else {
            return;
        };
        if !self.looks.lock().insert(instance.clone()) {
            return;
        }
        let (pid, dir) = (supervisor.pid, self.state().instance(&instance));
        let limits = Limits { mem_mb, vcpus: 0 };
        let looks = Arc::clone(&self.looks);
        tokio::spawn(async move {
            let look = move || procfs::memory_below(Path::new("/proc"), pid);
            let held = tokio::task::spawn_blocking(look).await.unwrap_or(0);
            if held > limits.memory_bytes() {
                let held_kib = held >> 10;
                let asked = control::ask(&dir, Request::EndForMemory { held_kib }).await;
                match asked {
                    Ok(()) => warn!(
                        event = "instance_out_of_memory",
                        instance,
                        held_mb = held >> 20,
                        mem_mb,
                        "the processes of an instance held more memory together than it may have, and were killed"
                    ),
                    // With the next look again, if it is still there.
                    Err(error) => debug!(instance, error, "not ended for its memory"),
                }
            }
            looks.lock().remove(&instance);
        });
    }

    /// Has an instance's supervisor move it to these processors.
    fn pin(&self, instance: String, cpus: Cpus) {
        let dir = self.state().instance(&instance);
        tokio::spawn(async move {
            let said = cpus.to_string();
            if let Err(error) = control::ask(&dir, Request::Pin(cpus)).await {
                warn!(
                    event = "instance_not_moved",
                    instance,
                    cpus = said,
                    error,
                    "an instance cannot be moved to other processors; it runs where it did"
                );
            }
        });
    }

    /// Signals a supervisor, which passes it on to the workload. One that has ended is no error.
    fn signal(&self, id: &str, signal: Signal) {
        let Some(supervisor) = self.supervisors.get(id) else {
            return;
        };
        match pidfd_send_signal(&supervisor.pidfd, signal) {
            // It has ended; that will be told.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => {
                error!(event = "supervisor_not_signalled", instance = id, %error, "cannot signal a supervisor")
            }
        }
    }

    /// Spawns the task that waits for a supervisor's end and reports how the instance ended. `child` is reaped then; a
    /// supervisor that an earlier launcher started is not this process's to reap.
    fn watch(&mut self, id: &str, supervisor: Supervisor, child: Option<Child>) {
        let (events, instance, dir) = (
            self.events.clone(),
            id.to_owned(),
            self.state().instance(id),
        );
        self.supervisors.insert(id.to_owned(), supervisor.clone());
        tokio::spawn(async move {
            if let Err(error) = until_ended(supervisor.pidfd).await {
                error!(event = "supervisor_not_watched", instance, %error, "cannot watch a supervisor");
                return;
            }
            if let Some(mut child) = child {
                orphans::reap_supervisor(&mut child);
            }
            // Before what is left is ended: that may remove the directory.
            let ran = ran(&dir);
            let (code, by_itself) = match ended(&dir) {
                Some(ProcessFate::Ended(code)) => (code, false),
                Some(ProcessFate::EndedByItself(code)) => (Some(code), true),
                Some(ProcessFate::Running | ProcessFate::NeverRan) => (None, false),
                None => {
                    orphans::end(dir).await;
                    (None, false)
                }
            };
            let exited = Input::Exited {
                instance,
                code,
                by_itself,
                ran,
            };
            let _ = events.send(ProcessEvent::Other(exited)).await;
        });
    }

    /// Says where the kernel tells how long processes wait for memory (`/proc/pressure/memory`).
    pub(crate) fn watch_pressure(&mut self, file: PathBuf) {
        self.pressure_file = file;
    }

    /// Takes a sample of machine and instances on a blocking thread. The sizes of directories are measured by another
    /// one, which may take long; a sample has what the last round found.
    fn sample(&self) {
        let (events, meter, share) = (self.events.clone(), self.meter.clone(), self.share);
        let instances_dir = self.state().instances();
        let pressure_file = self.pressure_file.clone();
        let instance =
            |(id, it): (&String, &Supervisor)| (it.pid, (id.clone(), self.state().instance(id).0));
        let instances: BTreeMap<_, _> = self.supervisors.iter().map(instance).collect();
        let disks = self.disks.clone();
        let dirs = instances.values().map(|(_, dir)| dir.clone()).collect();
        let (ended, rule, clock) = (
            self.state().ended(),
            self.state().keep(),
            self.state().clock(),
        );
        let shelf = self.shelf.clone();
        let kept_mb = i64::try_from(self.kept_bytes / DISK_UNIT).unwrap_or(i64::MAX);
        // Not waited for: a report is due, whatever the files of an instance are like.
        tokio::task::spawn_blocking({
            let (disks, events) = (disks.clone(), events.clone());
            move || {
                disks.measure(dirs);
                clock.write();
                if let Some(surplus) = shelf.surplus(ended, rule, clock.now_ms()) {
                    let _ = events.blocking_send(ProcessEvent::Surplus(surplus));
                }
            }
        });
        tokio::task::spawn_blocking(move || {
            let usage = meter.lock().read(&instances, &disks);
            let mem_used_mb = sum_known(usage.values().map(|usage| usage.mem_mb));
            let disk_used_mb = sum_known(usage.values().map(|usage| usage.disk_mb));
            let disk_used_mb = disk_used_mb.saturating_add(kept_mb);
            let host = share.of(
                host::sample(&instances_dir, &pressure_file),
                mem_used_mb,
                disk_used_mb,
            );
            let _ = events.blocking_send(ProcessEvent::Other(Input::Sampled { host, usage }));
        });
    }
}

/// When that time has come; never where there is none.
async fn due(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

/// The whole environment of a workload: the default path, what is inherited, what its START says, and the variables
/// that name node, tenant, instance and directory. The later of these win.
fn environment(
    workload: &Workload,
    node_uuid: &str,
    dir: &InstanceDir,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::from([("PATH".to_owned(), DEFAULT_PATH.to_owned())]);
    env.extend(inherited());
    env.extend(workload.env.clone());
    env.insert("CIAO_NODE_UUID".to_owned(), node_uuid.to_owned());
    env.insert("CIAO_TENANT_UUID".to_owned(), workload.tenant.clone());
    env.insert("CIAO_INSTANCE_UUID".to_owned(), workload.instance.clone());
    env.insert(
        DIR_VARIABLE.to_owned(),
        dir.0.to_string_lossy().into_owned(),
    );
    env
}

/// What workloads and supervisors have of this process's environment.
fn inherited() -> impl Iterator<Item = (String, String)> {
    let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
    INHERITED_VARIABLES.into_iter().filter_map(variable)
}

fn open_pid(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

/// Waits for a process's end: its pidfd is readable then.
async fn until_ended(pidfd: Arc<OwnedFd>) -> io::Result<()> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for types that lie about their descriptor; an OwnedFd does not"
    )]
    let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
    let _readable = pidfd.readable().await?;
    Ok(())
}

/// How an instance without a supervisor ended; `None` = its supervisor was killed and could not say.
fn ended(dir: &InstanceDir) -> Option<ProcessFate> {
    match read_json(&dir.ended()) {
        Ok(Some(Ended::Exited(code))) => Some(ProcessFate::Ended(code)),
        Ok(Some(Ended::ByItself(code))) => Some(ProcessFate::EndedByItself(code)),
        Ok(Some(Ended::NeverRan(obstacle))) => {
            debug!(dir = %dir.0.display(), detail = obstacle.detail, "instance never ran");
            Some(ProcessFate::NeverRan)
        }
        Ok(None) | Err(_) => None,
    }
}

/// What the supervisor of an instance without one has noted of its run; nothing where it could not. What a workload has
/// put there instead counts for nothing that matters: its own figures.
fn ran(dir: &InstanceDir) -> Ran {
    read_json(&dir.ran()).ok().flatten().unwrap_or_default()
}
