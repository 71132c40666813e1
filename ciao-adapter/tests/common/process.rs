//! Programs that the tests of an adapter start, and what these write.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::path::{Path, PathBuf};
use std::process::{Command as StdCommand, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::timeout;

/// Long enough for anything on a busy machine; only a hang reaches it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Pause between two looks at a condition.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(25);

/// A program and what it has written so far. Dropping it kills it.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: watch::Receiver<Vec<String>>,
}

/// Which stream of a program is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    Out,
    Err,
}

impl Process {
    pub(crate) fn start(mut command: Command, reads: Reads) -> Self {
        command.stdin(Stdio::null()).kill_on_drop(true);
        match reads {
            Reads::Out => command.stdout(Stdio::piped()).stderr(Stdio::inherit()),
            Reads::Err => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().unwrap();
        let (sender, lines) = watch::channel(Vec::new());
        match reads {
            Reads::Out => drop(tokio::spawn(read(child.stdout.take().unwrap(), sender))),
            Reads::Err => drop(tokio::spawn(read(child.stderr.take().unwrap(), sender))),
        }
        Self { child, lines }
    }

    /// Waits for a line that contains this; the line.
    pub(crate) async fn wrote(&self, text: &str) -> String {
        let found = |lines: &Vec<String>| lines.iter().find(|line| line.contains(text)).cloned();
        let mut lines = self.lines.clone();
        let waited = timeout(DEADLINE, lines.wait_for(|lines| found(lines).is_some())).await;
        match waited {
            Ok(Ok(lines)) => found(&lines).unwrap(),
            _ => panic!("no line with '{text}': {:#?}", *self.lines.borrow()),
        }
    }

    /// What it has written so far.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.borrow().clone()
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Ends it as a crash would.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

async fn read(stream: impl AsyncRead + Unpin, lines: watch::Sender<Vec<String>>) {
    let mut read = BufReader::new(stream).lines();
    while let Ok(Some(line)) = read.next_line().await {
        lines.send_modify(|lines| lines.push(line));
    }
}

/// A program of the root package: beside the adapter's, where a build of the workspace has put it, or built now.
pub(crate) fn program(adapter: &str, name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let directory = Path::new(adapter).parent().unwrap();
    let path = directory.join(name);
    if !path.exists() {
        BUILT.get_or_init(|| {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let mut build = StdCommand::new(cargo);
            build.args(["build", "--locked", "--package", "ciao-scheduler", "--bins"]);
            if directory.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success(), "the programs are built");
        });
    }
    path
}
