//! A cluster of separate processes with `ciao-funky` before it, whose parts a test kills, stops and starts again.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Stdio;

use proto_frames::Role;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, interval, timeout};

use crate::certs::TestCa;
use crate::guarded::GuardedDir;
use crate::process::{DEADLINE, LOOK_EVERY, Process, Reads, program};
use crate::supervisors::end_instances;

/// Name of the adapter's state directory.
const STATE: &str = "funky";

/// The scheduler, launchers by name, and the adapter.
pub(crate) struct World {
    dir: GuardedDir,
    address: SocketAddr,
    scheduler: Option<Process>,
    launchers: Vec<(String, Child)>,
    funky: Option<Process>,
    flags: Vec<String>,
}

impl World {
    /// A scheduler that lets high priorities take the room of low ones, these nodes with one vcpu each, and the adapter.
    pub(crate) async fn new(nodes: &[&str]) -> Self {
        Self::with(nodes, &[]).await
    }

    /// The same, with these flags for the adapter.
    pub(crate) async fn with(nodes: &[&str], flags: &[&str]) -> Self {
        let mut world = Self::bare(flags).await;
        world.start_funky().await;
        for node in nodes {
            world.launch(node, &[]);
        }
        world.nodes(nodes.len()).await;
        world
    }

    /// A scheduler alone.
    pub(crate) async fn bare(flags: &[&str]) -> Self {
        let dir = GuardedDir::new();
        let leaves = [("controller", Role::CONTROLLER), ("agent", Role::AGENT)];
        TestCa::new().write(dir.path(), &leaves);
        let policy = "configure:\n  scheduler:\n    policy:\n      preemption: true\n";
        std::fs::write(dir.path().join("configuration.yaml"), policy).unwrap();
        let mut world = Self {
            dir,
            address: ([127, 0, 0, 1], 0).into(),
            scheduler: None,
            launchers: Vec::new(),
            funky: None,
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
        };
        world.start_scheduler().await;
        world
    }

    /// A path in the world's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the adapter listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path("front.sock")
    }

    fn command(&self, name: &str, certificate: &str) -> Command {
        let mut command = Command::new(program(env!("CARGO_BIN_EXE_ciao-funky"), name));
        command
            .arg("-cert")
            .arg(self.path(certificate))
            .arg("-cacert")
            .arg(self.path("CAcert.pem"));
        command
    }

    /// Starts the scheduler, at the address where it was if it was there before.
    pub(crate) async fn start_scheduler(&mut self) {
        let mut command = self.command("ciao-scheduler", "scheduler.pem");
        let configuration = format!("file://{}", self.path("configuration.yaml").display());
        command
            .args(["-configuration-uri", &configuration, "-logtostderr"])
            .args(["--listen", &self.address.to_string(), "--cpu-ratio", "1"])
            .args(["--in-doubt-time", "1s", "--settle-time", "5s"])
            .arg("--state-dir")
            .arg(self.path("state"));
        if self.images().exists() {
            command.arg("--blob-dir").arg(self.images());
        }
        let scheduler = Process::start(command, Reads::Err);
        let line = scheduler.wrote(" listens on ").await;
        let (_, address) = line.rsplit_once(' ').unwrap();
        self.address = address.parse().unwrap();
        self.scheduler = Some(scheduler);
    }

    /// Where the scheduler keeps images, if that is there.
    pub(crate) fn images(&self) -> PathBuf {
        self.path("blobs")
    }

    /// A scheduler that keeps images, and the adapter.
    pub(crate) async fn shipping() -> Self {
        let mut world = Self::bare(&[]).await;
        world.kill_scheduler().await;
        std::fs::create_dir(world.images()).unwrap();
        world.start_scheduler().await;
        world.start_funky().await;
        world.connected().await;
        world
    }

    /// Ends the scheduler as a crash would.
    pub(crate) async fn kill_scheduler(&mut self) {
        self.scheduler.take().unwrap().kill().await;
    }

    /// The adapter's command line; of a flag that is given, that counts, and an empty one is left out.
    pub(crate) fn funky(&self, more: &[(&str, &str)]) -> Command {
        let (socket, state) = (self.socket(), self.path(STATE));
        let usual = [
            ("-server", self.address.to_string()),
            ("-socket", socket.display().to_string()),
            ("-state-dir", state.display().to_string()),
            ("-upload", "127.0.0.1:0".to_owned()),
            ("-mem", "50".to_owned()),
            ("-return-time", "3s".to_owned()),
        ];
        let mut command = self.command("ciao-funky", "controller.pem");
        for (flag, value) in &usual {
            let given = more.iter().find(|(given, _)| given == flag);
            if given.is_some_and(|(_, value)| value.is_empty()) {
                continue;
            }
            command
                .arg(flag)
                .arg(given.map_or(&**value, |(_, value)| value));
        }
        command
            .args(&self.flags)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts the adapter and waits until it listens.
    pub(crate) async fn start_funky(&mut self) {
        let funky = Process::start(self.funky(&[]), Reads::Out);
        funky.wrote("Listening uploads at ").await;
        self.funky = Some(funky);
    }

    /// Starts the adapter without a flag for uploads, and waits until it listens.
    pub(crate) async fn start_funky_by_default(&mut self) {
        let funky = Process::start(self.funky(&[("-upload", "")]), Reads::Out);
        funky.wrote("Listening commands at ").await;
        self.funky = Some(funky);
    }

    /// Ends the adapter as a crash would.
    pub(crate) async fn kill_funky(&mut self) {
        self.funky.take().unwrap().kill().await;
    }

    /// Ends the adapter in order.
    pub(crate) async fn stop_funky(&mut self) {
        let mut funky = self.funky.take().unwrap();
        signal(&funky.child, Signal::TERM);
        let ended = timeout(DEADLINE, funky.child.wait())
            .await
            .unwrap()
            .unwrap();
        assert!(ended.success(), "{ended}");
    }

    /// The adapter's process number.
    pub(crate) fn funky_pid(&self) -> u32 {
        self.funky.as_ref().unwrap().pid()
    }

    /// What ciaoctl prints of the controllers and operators that are connected.
    pub(crate) async fn controllers(&self) -> Value {
        let mut command = Command::new(program(env!("CARGO_BIN_EXE_ciao-funky"), "ciaoctl"));
        let address = self.address.to_string();
        command
            .args(["controllers", "--json", "--server", &address])
            .arg("--cert")
            .arg(self.path("controller.pem"))
            .arg("--cacert")
            .arg(self.path("CAcert.pem"));
        let output = command.output().await.unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// Where uploads go.
    pub(crate) async fn uploads(&self) -> SocketAddr {
        let line = self.wrote("Listening uploads at ").await;
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }

    /// Waits for a line of the adapter's output.
    pub(crate) async fn wrote(&self, text: &str) -> String {
        self.funky.as_ref().unwrap().wrote(text).await
    }

    /// What the adapter has written so far.
    pub(crate) fn output(&self) -> Vec<String> {
        self.funky.as_ref().unwrap().lines()
    }

    /// Starts a launcher; of a flag that is given, that counts.
    pub(crate) fn launch(&mut self, name: &str, flags: &[&str]) {
        let usual = [
            ["--mem", "4000"],
            ["--cpus", "1"],
            ["--cpu-ratio", "1"],
            ["--report-interval", "100ms"],
            ["--reconnect-cap", "200ms"],
            ["--stop-grace", "2s"],
            ["--lease", "2s"],
        ];
        let usual = usual.iter().filter(|flag| !flags.contains(&flag[0]));
        let mut command = self.command("ciao-launcher", "agent.pem");
        command
            .args(["--server", &self.address.to_string(), "--hostname", name])
            .args(usual.flatten())
            .args(flags)
            .arg("--state-dir")
            .arg(self.path(name))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        self.launchers
            .push((name.to_owned(), command.spawn().unwrap()));
    }

    /// Ends a launcher as a crash would; what it started is ended too, as if its machine had gone.
    pub(crate) async fn lose_node(&mut self, name: &str) {
        let at = self.launchers.iter().position(|(other, _)| other == name);
        let (_, mut child) = self.launchers.remove(at.unwrap());
        child.kill().await.unwrap();
        end_instances(&self.path(name));
    }

    /// A shell script that can be run, at a path of its own.
    pub(crate) fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }

    /// A task that says in a file when it begins and when it ends, and lasts until the file it is given as argument is there.
    pub(crate) fn lasting(&self, name: &str) -> String {
        let log = self.path("log").display().to_string();
        self.script(
            name,
            &format!(
                "echo begin {name} >>{log}; while [ -e {log} ] && ! [ -e \"$1\" ]; do sleep 0.02; done; echo end {name} >>{log}"
            ),
        )
    }

    /// What tasks have said.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until tasks have said exactly so.
    pub(crate) async fn logged(&self, lines: &[&str]) {
        self.until("the tasks' log", || self.log() == lines).await;
    }

    /// Lets tasks with this file as argument end.
    pub(crate) fn let_end(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// Sends a command as the original's users do, and gives up the connection at once, without reading.
    pub(crate) async fn tell(&self, command: &str) {
        let mut stream = self.connect().await;
        stream.write_all(command.as_bytes()).await.unwrap();
    }

    /// A connection with the socket.
    pub(crate) async fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).await.unwrap()
    }

    /// Sends a command, ends it as half-closing does, and reads the reply.
    pub(crate) async fn ask(&self, command: impl AsRef<[u8]>) -> String {
        let asked = async {
            let mut stream = self.connect().await;
            stream.write_all(command.as_ref()).await?;
            stream.shutdown().await?;
            reply(&mut stream).await
        };
        timeout(DEADLINE, asked).await.unwrap().unwrap()
    }

    /// Sends a new task with these arguments; its reply must be that it is queued.
    pub(crate) async fn new_task(&self, path: &str, priority: u8, args: &str) -> u32 {
        let answer = self
            .ask(format!("New: {path} priority: {priority} args: {args}"))
            .await;
        let rest = answer
            .strip_prefix("task ")
            .and_then(|it| it.strip_suffix(" queued"));
        rest.unwrap_or_else(|| panic!("{answer}")).parse().unwrap()
    }

    /// Sends a new task that may have to wait for the scheduler or for nodes; its number.
    pub(crate) async fn new_task_anyhow(&self, path: &str) -> u32 {
        let answer = self.ask(format!("New: {path} priority: 1")).await;
        let rest = answer
            .strip_prefix("task ")
            .and_then(|it| it.split_once(' '));
        rest.unwrap_or_else(|| panic!("{answer}"))
            .0
            .parse()
            .unwrap()
    }

    /// How many files the adapter has.
    pub(crate) fn binaries(&self) -> usize {
        std::fs::read_dir(self.path(STATE).join("binaries"))
            .unwrap()
            .count()
    }

    /// What there is, as `ps` says it.
    pub(crate) async fn list(&self) -> Value {
        serde_json::from_str(&self.ask("Ps: json").await).unwrap()
    }

    /// What there is of a task.
    pub(crate) async fn task(&self, id: u32) -> Value {
        let list = self.list().await;
        let mut tasks = list["tasks"].as_array().unwrap().iter();
        tasks
            .find(|it| it["task"] == id)
            .cloned()
            .unwrap_or_default()
    }

    /// Waits until a task is so; it, as it then is.
    pub(crate) async fn task_is(&self, id: u32, state: &str) -> Value {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        loop {
            let task = self.task(id).await;
            if task["state"] == state {
                return task;
            }
            every.tick().await;
            assert!(
                Instant::now() < deadline,
                "task {id} is not {state}: {task} {:#?}",
                self.output()
            );
        }
    }

    /// Waits until the adapter has a session with the scheduler.
    pub(crate) async fn connected(&self) {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        while self
            .ask("Ps:")
            .await
            .starts_with("the scheduler is not reachable")
        {
            every.tick().await;
            assert!(Instant::now() < deadline, "there is no session");
        }
    }

    /// Waits until `ps` says this.
    pub(crate) async fn ps_says(&self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        loop {
            let said = self.ask("Ps:").await;
            if said.contains(text) {
                return;
            }
            every.tick().await;
            assert!(Instant::now() < deadline, "no '{text}': {said}");
        }
    }

    /// Waits until so many nodes take work; their host names by number.
    pub(crate) async fn nodes(&self, count: usize) -> Vec<(u64, String)> {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        loop {
            let list = self.list().await;
            let nodes = list["nodes"].as_array().unwrap().iter();
            let ready = nodes.filter(|it| it["status"] == "READY" || it["status"] == "FULL");
            let ready: Vec<(u64, String)> = ready
                .map(|it| {
                    (
                        it["node"].as_u64().unwrap(),
                        it["hostname"].as_str().unwrap().to_owned(),
                    )
                })
                .collect();
            if ready.len() == count {
                return ready;
            }
            every.tick().await;
            assert!(
                Instant::now() < deadline,
                "there are no {count} nodes: {list:#}"
            );
        }
    }

    /// Waits for a condition.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        let mut every = interval(LOOK_EVERY);
        while !condition() {
            every.tick().await;
            assert!(
                Instant::now() < deadline,
                "waited too long: {what}: {:#?} {:#?}",
                self.log(),
                self.output()
            );
        }
    }
}

/// Reads a reply to its end, without the line end.
pub(crate) async fn reply(stream: &mut UnixStream) -> io::Result<String> {
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text.trim_end().to_owned())
}

/// Sends a child a signal.
pub(crate) fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

impl Drop for World {
    /// Leaves no workload behind: they outlive their launchers.
    fn drop(&mut self) {
        for (_, launcher) in &mut self.launchers {
            let _ = launcher.start_kill();
        }
        for directory in std::fs::read_dir(self.path("."))
            .into_iter()
            .flatten()
            .flatten()
        {
            end_instances(&directory.path());
        }
    }
}
