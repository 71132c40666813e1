//! The built daemon as a process of its own, with certificates made on the spot in a directory that goes with the test.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use ciao_scheduler::ctl::client::ClientConfig;
use ciao_scheduler::net::tls::{LastRead, TrustFiles};
use proto_frames::{Role, Uuid};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use self::guarded::GuardedDir;
use crate::certs::TestCa;

mod guarded;

/// Long enough for anything on a busy machine; only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A directory with an authority, the scheduler's certificate, and whatever else a test puts there.
pub(crate) struct Site {
    pub(crate) ca: TestCa,
    dir: GuardedDir,
}

/// A running daemon; killed when dropped, and then its log is printed if the test failed.
pub(crate) struct Daemon {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What it calls itself.
    pub(crate) uuid: Uuid,
    child: Child,
    log: watch::Receiver<Vec<String>>,
    /// Whether its log is read at all.
    is_read: watch::Sender<bool>,
}

impl Site {
    /// A new one, with ECDSA certificates.
    pub(crate) fn new() -> Self {
        Self::with(TestCa::new())
    }

    /// One with this authority.
    pub(crate) fn with(ca: TestCa) -> Self {
        let dir = GuardedDir::new();
        ca.write(
            dir.path(),
            &[
                ("controller", Role::CONTROLLER),
                ("agent", Role::AGENT),
                ("netagent", Role::NETAGENT),
            ],
        );
        Self { ca, dir }
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The daemon's program with the flags that every test needs, in the original's spelling, and then these.
    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
        command
            .arg("-cert")
            .arg(self.path("scheduler.pem"))
            .arg(format!("-cacert={}", self.path("CAcert.pem").display()))
            .args(self.configuration())
            .args(["-logtostderr", "--listen", "127.0.0.1:0"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// A launcher of the scheduler at this address, with a state directory of its own.
    pub(crate) fn launcher(&self, scheduler: SocketAddr, name: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-launcher"));
        command
            .arg("-cert")
            .arg(self.path("agent.pem"))
            .arg("-cacert")
            .arg(self.path("CAcert.pem"))
            .args(["--server", &scheduler.to_string(), "--hostname", name])
            .arg("--state-dir")
            .arg(self.path(name))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// `ciaoctl` of an operator of the scheduler at this address.
    pub(crate) fn ciaoctl(&self, scheduler: SocketAddr) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
        command
            .args(["--server", &scheduler.to_string(), "--timeout", "60s"])
            .arg("--cert")
            .arg(self.path("controller.pem"))
            .arg("--cacert")
            .arg(self.path("CAcert.pem"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// How an operator connects to the scheduler at this address.
    pub(crate) fn client_config(&self, scheduler: SocketAddr) -> ClientConfig {
        ClientConfig {
            server: scheduler.to_string(),
            cert: self.path("controller.pem"),
            trust: TrustFiles::without_crls(self.path("CAcert.pem")),
            server_name: None,
            connect_timeout: DEADLINE,
            answer_timeout: DEADLINE,
            last: LastRead::default(),
        }
    }

    /// The flags that name the cluster configuration, if the site has one.
    pub(crate) fn configuration(&self) -> Vec<String> {
        let path = self.path("configuration.yaml");
        let named = path.exists().then(|| format!("file://{}", path.display()));
        named.map_or_else(Vec::new, |uri| vec!["-configuration-uri".to_owned(), uri])
    }

    /// Starts the daemon and waits until it listens.
    pub(crate) async fn start(&self, flags: &[&str]) -> Daemon {
        Daemon::start(self.command(flags)).await
    }
}

impl Daemon {
    /// Starts a daemon that logs to standard error, and waits until it listens.
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (sender, mut log) = watch::channel(Vec::new());
        let (is_read, mut may_read) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // Read to its end once the daemon is dropped.
                let _ = may_read.wait_for(|may| *may).await;
                sender.send_modify(|log: &mut Vec<String>| log.push(line));
            }
        });
        let listens = |log: &Vec<String>| log.iter().find_map(|line| listening(line));
        let waited = within(log.wait_for(|log| listens(log).is_some())).await;
        let found = waited.ok().and_then(|log| listens(&log));
        let Some((uuid, address)) = found else {
            panic!("the daemon does not listen: {:#?}", *log.borrow());
        };
        Self {
            address,
            uuid,
            child,
            log,
            is_read,
        }
    }

    /// Reads its log from now on, or does not, as a terminal that was stopped.
    pub(crate) fn read_log(&self, is_read: bool) {
        self.is_read.send_replace(is_read);
    }

    /// Waits for a line of the log that contains this; the line.
    pub(crate) async fn logged(&self, text: &str) -> String {
        let found = |log: &[String]| log.iter().find(|line| line.contains(text)).cloned();
        let mut lines = self.log.clone();
        match within(lines.wait_for(|log| found(log).is_some())).await {
            Ok(log) => found(&log).unwrap(),
            Err(_) => panic!("the log ended without '{text}'"),
        }
    }

    /// Waits until so many lines of the log contain this; these lines.
    pub(crate) async fn logged_times(&self, text: &str, times: usize) -> Vec<String> {
        let found = |log: &[String]| -> Vec<String> {
            let lines = log.iter().filter(|line| line.contains(text));
            lines.cloned().collect()
        };
        let mut lines = self.log.clone();
        match within(lines.wait_for(|log| found(log).len() >= times)).await {
            Ok(log) => found(&log),
            Err(_) => panic!("the log ended without {times} times '{text}'"),
        }
    }

    /// The log so far, to its end once the daemon has ended.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.borrow().clone()
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
    }

    /// Sends it SIGHUP, as a tool does that expects a daemon to read its files again.
    pub(crate) fn hang_up(&self) {
        kill_process(self.pid(), Signal::HUP).unwrap();
    }

    /// Asks it to stop as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        kill_process(self.pid(), Signal::INT).unwrap();
    }

    /// Gives it no processor until [`Daemon::thaw`]. On return none of its threads runs: the signal alone leaves them time to
    /// read what comes next.
    pub(crate) fn freeze(&self) {
        kill_process(self.pid(), Signal::STOP).unwrap();
        let begun = Instant::now();
        while !self.is_frozen() {
            assert!(begun.elapsed() < DEADLINE, "it does not stop");
            std::thread::yield_now();
        }
    }

    fn is_frozen(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let mut states = threads.map(|thread| {
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            // One that has ended meanwhile runs no more.
            stat.map_or(true, |stat| {
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            })
        });
        states.all(|is_stopped| is_stopped)
    }

    /// Lets it go on.
    pub(crate) fn thaw(&self) {
        kill_process(self.pid(), Signal::CONT).unwrap();
    }

    /// Its process number, while it runs.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// Memory that it has of its own, in KiB.
    pub(crate) fn resident_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:"));
        let words = line.unwrap().split_whitespace();
        words.rev().nth(1).unwrap().parse().unwrap()
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Ends it at once, as a crash would, and waits until it is gone.
    pub(crate) async fn kill(mut self) {
        within(self.child.kill()).await.unwrap();
    }

    /// Waits until it has ended by itself, and its log too.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let status = within(self.child.wait()).await.unwrap();
        self.read_log(true);
        // The sender goes with the last line.
        let _ = within(self.log.wait_for(|_| false)).await;
        status
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.id()).unwrap()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the daemon:");
            self.log
                .borrow()
                .iter()
                .for_each(|line| eprintln!("{line}"));
        }
    }
}

/// Runs a command to its end.
pub(crate) async fn output(mut command: Command) -> Output {
    within(command.output()).await.unwrap()
}

/// Fails loudly instead of hanging.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the test hangs")
}

/// Reads `scheduler UUID listens on ADDRESS`.
fn listening(line: &str) -> Option<(Uuid, SocketAddr)> {
    let (before, address) = line.split_once(" listens on ")?;
    let (_, uuid) = before.rsplit_once(' ')?;
    // One of several has no UUID until it leads.
    let uuid = match uuid {
        "standby" => Uuid::nil(),
        uuid => uuid.parse().ok()?,
    };
    Some((uuid, address.trim().parse().ok()?))
}

/// A file of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
