//! One workload's start: its supervisor is run, and says on its standard output how that went.
//!
//! The supervisor writes one line: an empty one if the workload's program runs, or an [`Obstacle`] as JSON. If the pipe
//! closes without a line, or nothing comes within [`START_DEADLINE`], the outcome is unknown and the supervisor is
//! killed.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::super::files::{InstanceDir, Launch, Obstacle, write_json};
use super::super::orphans;
use super::super::supervise::{Program, WORD};
use super::{Supervisor, inherited, open_pid};

/// Longest time a supervisor may take to say whether its workload runs. It forks and execs; only an overloaded machine
/// or a file system that hangs takes seconds.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// Longest line that is read of a supervisor, in bytes. Paths and errors of the system are in it.
const MAX_VERDICT_LEN: u64 = 64 * 1024;

/// A workload that could not be started.
#[derive(Debug)]
pub(super) struct NotStarted {
    /// Why, and whose fault it is: the image's, the storage's or another.
    pub(super) obstacle: Obstacle,
    /// Whether something may be left to clean up.
    pub(super) rest: Rest,
}

/// Whether something of the start may still run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// The supervisor says so itself, or there was none.
    Nothing,
    /// The supervisor said nothing that could be understood; the caller looks for processes.
    Unknown,
}

/// Writes the launch file, starts a supervisor and waits for its word.
///
/// Its environment is cleared but for what workloads inherit as well, for a workload may read its parent's. The child
/// is returned for its caller to reap once it has ended.
///
/// # Errors
/// [`NotStarted`]; the supervisor has ended then.
pub(super) async fn start(
    program: Program,
    dir: InstanceDir,
    launch: Launch,
) -> Result<(Supervisor, Child), NotStarted> {
    let failed = |rest: Rest, error: io::Error| NotStarted {
        obstacle: Obstacle::of("cannot start a supervisor", &error),
        rest,
    };
    let spawn = move || {
        write_json(&dir.launch(), &launch)?;
        let mut command = Command::new(program.path());
        command.arg0("ciao-supervisor").arg(WORD).arg(&dir.0);
        command.env_clear().envs(inherited());
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        orphans::spawn_supervisor(command.stderr(Stdio::null()))
    };
    let mut child = tokio::task::spawn_blocking(spawn)
        .await
        .map_err(io::Error::other)
        .flatten()
        .map_err(|error| failed(Rest::Nothing, error))?;
    let verdict = match child.stdout.take() {
        Some(stdout) => tokio::time::timeout(START_DEADLINE, verdict(stdout.into())).await,
        None => Ok(Err(io::Error::other("no pipe"))),
    };
    let error = match verdict {
        Ok(Ok(None)) => match open_child(&child) {
            Ok(supervisor) => return Ok((supervisor, child)),
            Err(error) => error,
        },
        Ok(Ok(Some(obstacle))) => {
            let rest = Rest::Nothing;
            reap(child).await;
            return Err(NotStarted { obstacle, rest });
        }
        Ok(Err(error)) => error,
        Err(_) => io::ErrorKind::TimedOut.into(),
    };
    let _ = child.kill();
    reap(child).await;
    Err(failed(Rest::Unknown, error))
}

/// Waits for a supervisor that is about to end, on a blocking thread.
async fn reap(mut child: Child) {
    let _ = tokio::task::spawn_blocking(move || orphans::reap_supervisor(&mut child)).await;
}

/// What a supervisor says of its start: `None` = the workload runs.
///
/// # Errors
/// The line cannot be read, is no [`Obstacle`], or there is none.
async fn verdict(pipe: OwnedFd) -> io::Result<Option<Obstacle>> {
    use tokio::io::AsyncReadExt;
    let pipe = tokio::net::unix::pipe::Receiver::from_owned_fd(pipe)?;
    let mut line = String::new();
    BufReader::new(pipe.take(MAX_VERDICT_LEN))
        .read_line(&mut line)
        .await?;
    match line.strip_suffix('\n') {
        Some("") => Ok(None),
        Some(obstacle) => Ok(Some(serde_json::from_str(obstacle)?)),
        None => Err(io::Error::other("it ended without a word")),
    }
}

fn open_child(child: &Child) -> io::Result<Supervisor> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Ok(Supervisor {
        pid,
        pidfd: Arc::new(open_pid(pid)?),
    })
}
