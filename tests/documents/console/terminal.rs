//! Terminals: shell commands with the built programs, daemons that go on, and what must not be left behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::matching::{Extra, Names};
use crate::guarded::GuardedDir;

/// Long enough for anything on a busy machine; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// How long is waited for what a page shows where that is to be written into it: long enough for a report of every node.
const UPDATE_DEADLINE: Duration = Duration::from_secs(10);

/// Pause between two looks at what is asked again until it is as it should be.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The directory of the pages, and the address of their scheduler.
const DIRECTORY: &str = "/tmp/ciao";
const ADDRESS: &str = "127.0.0.1:8888";

/// The address at which it serves HTTP.
const HTTP_ADDRESS: &str = "127.0.0.1:8443";

/// Width of the terminals: so wide that no identifier is cut.
const COLUMNS: &str = "140";

/// Commands that change nothing: asked again until they print what a page shows, because reports take their time.
const ASKS: &[&str] = &[
    "cat ",
    "ciaoctl controllers",
    "ciaoctl explain",
    "ciaoctl history",
    "ciaoctl instances",
    "ciaoctl nodes",
    "ciaoctl queue",
];

fn deadline() -> Duration {
    if crate::is_update() {
        UPDATE_DEADLINE
    } else {
        DEADLINE
    }
}

/// Everything that runs for a page.
pub(super) struct Cluster {
    home: GuardedDir,
    names: Names,
    /// What later commands of the terminal need: `cd` and `export`.
    state: String,
    /// With what the last command ended.
    status: i32,
    daemons: Vec<Daemon>,
    /// Where the scheduler listens, once one does.
    port: Option<u16>,
    /// Where it serves HTTP, once it does.
    http_port: Option<u16>,
}

struct Daemon {
    command: String,
    child: Child,
    log: Arc<(Mutex<Vec<String>>, Condvar)>,
}

/// What became of a command.
pub(super) enum Ran {
    /// It printed what the page shows.
    AsShown,
    /// It printed this.
    Otherwise(Vec<String>),
}

impl Cluster {
    pub(super) fn new() -> Self {
        Self {
            home: GuardedDir::new(),
            names: Names::default(),
            state: String::new(),
            status: 0,
            daemons: Vec::new(),
            port: None,
            http_port: None,
        }
    }

    pub(super) fn open_terminal(&mut self) {
        self.state.clear();
        self.status = 0;
    }

    /// Runs a command of the page.
    pub(super) fn run(&mut self, command: &str, shown: &[String]) -> Ran {
        let is_state = ["cd ", "export "].iter().any(|it| command.starts_with(it));
        if is_state {
            self.state.push_str(&self.here(command));
            self.state.push('\n');
            return Ran::AsShown;
        }
        if command.starts_with("ciao-scheduler -") || command.starts_with("ciao-launcher -") {
            return self.run_daemon(command, shown);
        }
        let asks = ASKS.iter().any(|it| command.starts_with(it)) && !command.contains('>');
        let begun = Instant::now();
        loop {
            let printed = self.ask(command);
            if self.names.matches(shown, &printed, Extra::None) {
                return Ran::AsShown;
            }
            if !asks || begun.elapsed() > deadline() || shown.is_empty() {
                return Ran::Otherwise(printed);
            }
            thread::park_timeout(LOOK_EVERY);
        }
    }

    /// What the page is to show of lines that were printed.
    pub(super) fn adopt(&mut self, printed: &[String]) -> Vec<String> {
        printed
            .iter()
            .map(|line| self.names.in_page(line))
            .collect()
    }

    /// A command as it is run here, rather than on the reader's machine.
    fn here(&self, command: &str) -> String {
        let port = self.port.unwrap_or(0);
        let command = command.replace(ADDRESS, &format!("127.0.0.1:{port}"));
        let http_port = self.http_port.unwrap_or(0);
        let command = command.replace(HTTP_ADDRESS, &format!("127.0.0.1:{http_port}"));
        let command = command.replace(DIRECTORY, self.directory().to_str().unwrap());
        self.names.in_run(&command)
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("ciao")
    }

    /// A line that was printed here, as it is on the reader's machine.
    fn there(&self, line: &str) -> String {
        let line = line.replace(self.directory().to_str().unwrap(), DIRECTORY);
        match self.port {
            Some(port) => line.replace(&format!("127.0.0.1:{port}"), ADDRESS),
            None => line,
        }
    }

    /// A shell with what the terminal has, which ends with a command.
    fn shell(&self, command: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_ciaoctl")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell
            .arg("-c")
            .arg(format!(
                "exec 2>&1\n{}(exit {})\n{}",
                self.state,
                self.status,
                self.here(command)
            ))
            .current_dir(self.home.path())
            .env("PATH", path)
            .env("HOME", self.home.path())
            .env("COLUMNS", COLUMNS)
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        shell
    }

    fn ask(&mut self, command: &str) -> Vec<String> {
        let output = self.shell(command).output().unwrap();
        self.status = output.status.code().unwrap_or(-1);
        let printed = String::from_utf8(output.stdout).unwrap();
        printed.lines().map(|line| self.there(line)).collect()
    }

    /// Starts a daemon and waits until its log has the lines that the page shows.
    fn run_daemon(&mut self, command: &str, shown: &[String]) -> Ran {
        // The reader was asked to kill it.
        self.daemons.retain_mut(|daemon| {
            let is_it = daemon.command == command;
            if is_it {
                daemon.end();
            }
            !is_it
        });
        // Its shell kills it once this end of the pipe is closed, also because the test was killed.
        let script = format!("{command} &\ncat > /dev/null\nkill -KILL $!\nwait");
        let mut shell = self.shell(&script);
        let mut child = shell.stdin(Stdio::piped()).spawn().unwrap();
        let log = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let writer = Arc::clone(&log);
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                writer.0.lock().unwrap().push(line);
                writer.1.notify_all();
            }
        });
        self.daemons.push(Daemon {
            command: command.to_owned(),
            child,
            log: Arc::clone(&log),
        });
        let listens = |lines: &[String], words: &str| {
            let line = lines.iter().find(|line| line.contains(words))?;
            line.rsplit_once(':')?.1.parse().ok()
        };
        let begun = Instant::now();
        let mut lines = log.0.lock().unwrap();
        loop {
            if command.starts_with("ciao-scheduler") && self.port.is_none() {
                self.port = listens(&lines, " listens on ");
            }
            if command.starts_with("ciao-scheduler") && self.http_port.is_none() {
                self.http_port = listens(&lines, " serves HTTP on ");
            }
            let printed: Vec<String> = lines.iter().map(|line| self.there(line)).collect();
            if self.names.matches(shown, &printed, Extra::Allowed) {
                return Ran::AsShown;
            }
            if begun.elapsed() > deadline() {
                return Ran::Otherwise(closest(shown, &printed));
            }
            lines = log.1.wait_timeout(lines, LOOK_EVERY).unwrap().0;
        }
    }
}

/// Of a log, the lines that have most words in common with those that a page shows of it.
fn closest(shown: &[String], log: &[String]) -> Vec<String> {
    let common = |a: &str, b: &str| {
        let words: Vec<&str> = a.split(' ').collect();
        b.split(' ').filter(|word| words.contains(word)).count()
    };
    let lines = shown.iter().filter_map(|line| {
        let likeness = |other: &&String| common(line, other);
        log.iter().max_by_key(likeness).cloned()
    });
    lines.collect()
}

impl Daemon {
    fn end(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Drop for Cluster {
    /// Leaves no process behind: workloads outlive their launchers.
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            daemon.end();
            if thread::panicking() {
                let log = daemon.log.0.lock().unwrap();
                eprintln!("--- {}\n{}", daemon.command, log.join("\n"));
            }
        }
        end_workloads(self.home.path());
    }
}

/// Ends the workloads whose files are below a directory.
fn end_workloads(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            end_workloads(&path);
        } else if path.ends_with("process.json")
            && let Some(supervisor) = supervisor_in(&path)
        {
            let _ = kill_process(supervisor, Signal::USR1);
            let _ = kill_process(supervisor, Signal::CONT);
        }
    }
}

/// The process that supervises an instance.
fn supervisor_in(file: &Path) -> Option<Pid> {
    let file: serde_json::Value = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    Pid::from_raw(file["By"]["pid"].as_i64()?.try_into().ok()?)
}
