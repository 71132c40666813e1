//! A scheduler with `ciao-rik` before it, both separate processes that a test kills and starts again.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use proto_frames::Role;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::{Instant, interval};

use crate::certs::TestCa;
use crate::guarded::GuardedDir;
use crate::peers::{Controller, Worker};
use crate::process::{DEADLINE, LOOK_EVERY, Process, Reads, program};

/// The adapter's program.
const ADAPTER: &str = env!("CARGO_BIN_EXE_ciao-rik");

/// How often the adapter's nodes report: soon, unless a test's flags say otherwise.
const REPORT_INTERVAL: &str = "-report-interval";

/// The scheduler and the adapter.
pub(crate) struct World {
    dir: GuardedDir,
    scheduler_at: SocketAddr,
    workers_at: SocketAddr,
    controllers_at: SocketAddr,
    scheduler: Option<Process>,
    rik: Option<Process>,
    flags: Vec<String>,
}

impl World {
    /// A scheduler, and the adapter.
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    /// The same, with these flags for the adapter.
    pub(crate) async fn with(flags: &[&str]) -> Self {
        let mut world = Self::bare(flags);
        world.start_scheduler().await;
        world.start_rik().await;
        world.rik_wrote("scheduler_connected").await;
        world
    }

    /// Nothing that runs.
    pub(crate) fn bare(flags: &[&str]) -> Self {
        let dir = GuardedDir::new();
        let leaves = [
            ("controller", Role::CONTROLLER),
            ("agent", Role::AGENT),
            ("services", Role::SERVER),
        ];
        TestCa::new().write(dir.path(), &leaves);
        let anywhere = ([127, 0, 0, 1], 0).into();
        Self {
            dir,
            scheduler_at: anywhere,
            workers_at: anywhere,
            controllers_at: anywhere,
            scheduler: None,
            rik: None,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        }
    }

    /// Further flags for the adapter.
    pub(crate) fn flags(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(|&flag| flag.to_owned()));
    }

    /// A path in the world's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, name: &str, certificate: &str) -> Command {
        let mut command = Command::new(program(ADAPTER, name));
        command
            .arg("--cert")
            .arg(self.path(certificate))
            .arg("--cacert")
            .arg(self.path("CAcert.pem"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts the scheduler, at the address where it was if it was there before.
    pub(crate) async fn start_scheduler(&mut self) {
        let mut command = self.command("ciao-scheduler", "scheduler.pem");
        command
            .args(["--listen", &self.scheduler_at.to_string(), "-logtostderr"])
            .args([
                "--cpu-ratio",
                "1",
                "--in-doubt-time",
                "1s",
                "--settle-time",
                "5s",
            ])
            .arg("--state-dir")
            .arg(self.path("state"));
        let scheduler = Process::start(command, Reads::Err);
        let line = scheduler.wrote(" listens on ").await;
        self.scheduler_at = address_in(&line);
        self.scheduler = Some(scheduler);
    }

    /// Ends the scheduler as a crash would.
    pub(crate) async fn kill_scheduler(&mut self) {
        self.scheduler.take().unwrap().kill().await;
    }

    /// The adapter's command line.
    pub(crate) fn rik(&self) -> Command {
        let mut command = self.command("ciao-rik", "controller.pem");
        command
            .args(["-server", &self.scheduler_at.to_string(), "-logtostderr"])
            .args(["-worker-listen", &self.workers_at.to_string()])
            .args(["-controller-listen", &self.controllers_at.to_string()])
            .args(["-return-time", "3s", "-lease", "2s"])
            .arg("-worker-cert")
            .arg(self.path("agent.pem"))
            .arg("-state-dir")
            .arg(self.path("rik"))
            .args(&self.flags);
        if !self.flags.iter().any(|it| it == REPORT_INTERVAL) {
            command.args([REPORT_INTERVAL, "200ms"]);
        }
        command
    }

    /// Starts the adapter and waits until it listens.
    pub(crate) async fn start_rik(&mut self) {
        let rik = Process::start(self.rik(), Reads::Err);
        self.workers_at = address_in(&rik.wrote("listens for workers on ").await);
        self.controllers_at = address_in(&rik.wrote("listens for controllers on ").await);
        self.rik = Some(rik);
    }

    /// Ends the adapter as a crash would.
    pub(crate) async fn kill_rik(&mut self) {
        self.rik.take().unwrap().kill().await;
    }

    /// Waits for a line in the adapter's log.
    pub(crate) async fn rik_wrote(&self, text: &str) -> String {
        self.rik.as_ref().unwrap().wrote(text).await
    }

    /// What the adapter has logged.
    pub(crate) fn log(&self) -> Vec<String> {
        self.rik.as_ref().unwrap().lines()
    }

    /// The process ids of the scheduler and the adapter.
    pub(crate) fn pids(&self) -> [u32; 2] {
        let all = [&self.scheduler, &self.rik];
        all.map(|it| it.as_ref().unwrap().pid())
    }

    /// The adapter's memory, in KiB.
    pub(crate) fn rik_memory(&self) -> u64 {
        memory(self.pids()[1])
    }

    /// What `ciao-rik token …` prints.
    pub(crate) async fn token(&self, args: &[&str]) -> Output {
        let mut command = Command::new(ADAPTER);
        command.arg("token").args(args);
        command.arg("-state-dir").arg(self.path("rik"));
        command.output().await.unwrap()
    }

    /// Where workers connect.
    pub(crate) fn workers_at(&self) -> SocketAddr {
        self.workers_at
    }

    /// Where controllers connect.
    pub(crate) fn controllers_at(&self) -> SocketAddr {
        self.controllers_at
    }

    /// A worker that runs all it is given, with this much memory free (MiB), as a node that takes work.
    pub(crate) async fn worker(&self, name: &str, mem_mib: u64) -> Worker {
        let worker = Worker::connect(self.workers_at, name, mem_mib).await;
        self.node_is(name, "READY").await;
        worker
    }

    /// A controller that hears all updates.
    pub(crate) async fn controller(&self) -> Controller {
        Controller::connect(self.controllers_at).await
    }

    /// What ciaoctl prints for programs.
    pub(crate) async fn ciaoctl(&self, args: &[&str]) -> Value {
        let mut command = self.command("ciaoctl", "controller.pem");
        command
            .args(args)
            .args(["--json", "--server", &self.scheduler_at.to_string()]);
        let output = command.output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Waits until the scheduler lists a node with this host name so.
    pub(crate) async fn node_is(&self, name: &str, status: &str) {
        self.until(&format!("node {name} is {status}"), async || {
            let nodes = self.ciaoctl(&["nodes"]).await;
            let all = nodes["nodes"].as_array().or(nodes.as_array()).cloned();
            all.unwrap_or_default()
                .iter()
                .any(|it| it["hostname"] == name && it["status"] == status)
        })
        .await;
    }

    /// The instances that the scheduler lists.
    pub(crate) async fn instances(&self) -> Vec<Value> {
        let listed = self.ciaoctl(&["instances"]).await;
        let all = listed["instances"].as_array().or(listed.as_array());
        all.cloned().unwrap_or_default()
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        while !condition().await {
            every.tick().await;
            assert!(
                Instant::now() < deadline,
                "waited too long: {what}: {:#?} {:#?}",
                self.instances().await,
                self.log(),
            );
        }
    }
}

/// The resident memory of a process, in KiB.
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|it| it.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The address that a line ends with.
fn address_in(line: &str) -> SocketAddr {
    let (_, address) = line.trim_end_matches('"').rsplit_once(' ').unwrap();
    address.trim_matches('"').parse().unwrap()
}
