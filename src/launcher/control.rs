//! What a launcher asks of a running supervisor beyond ending its workload, and the answer: one request to a
//! connection, over a socket in the instance's directory, a line of JSON each way.
//!
//! Ending stays with signals ([`super::supervise`]), which need nothing of the supervisor but that it runs. A request
//! whose asker has gone is given up.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::agent::Cpus;
use super::files::InstanceDir;
use super::limits::Limits;

/// Longest time a supervisor is waited for; freezing takes milliseconds unless the machine is choked.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// Longest line either side takes, in bytes.
const MAX_LINE_LEN: u64 = 64 * 1024;

/// Name of the socket in the instance's directory.
const SOCKET: &str = "control.sock";

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Stop every process where it is. Again: the same.
    Freeze,
    /// Let every process go on. Of one that was not stopped: nothing.
    Thaw,
    /// Set what the workload may take.
    Limit(Limits),
    /// End it, because it holds so much memory, in KiB, and may not. Supervisors of earlier launchers do not know this: the
    /// answer is an error, and it goes on.
    EndForMemory {
        /// What its processes hold together.
        held_kib: u64,
    },
    /// Have all of it run on these processors alone. Supervisors of earlier launchers do not know this either.
    Pin(Cpus),
}

/// What became of it; `Err` = nothing changed, and why, for people.
pub(crate) type Answer = Result<(), String>;

/// Asks the supervisor of the instance in `dir` and waits for its answer, at most [`ANSWER_DEADLINE`]. A supervisor
/// that cannot be asked, or does not answer, gives an `Err` like a refusal: what it has done by then is not known.
pub(crate) async fn ask(dir: &InstanceDir, request: Request) -> Answer {
    let exchange = async {
        let mut stream = connect(&dir.0).await?;
        write_line(&mut stream, &request).await?;
        read_line(&mut stream).await
    };
    match timeout(ANSWER_DEADLINE, exchange).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => Err(format!("cannot ask the instance's supervisor: {error}")),
        Err(_) => Err("the instance's supervisor does not answer".to_owned()),
    }
}

/// A supervisor's end.
#[derive(Debug)]
pub(crate) struct ControlSocket(UnixListener);

/// One request, and the way for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    stream: UnixStream,
}

impl ControlSocket {
    /// Opens it for the instance in `dir`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open(dir: &InstanceDir) -> io::Result<Self> {
        let holder = hold(&dir.0)?;
        let _ = fs::remove_file(dir.0.join(SOCKET));
        Ok(Self(UnixListener::bind(address(&holder))?))
    }

    /// The next who asks. Nothing is lost where the wait is given up.
    pub(crate) async fn next(&self) -> Asked {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => return Asked { stream },
                // Out of descriptors, at worst: they who wait try again.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }
}

impl Asked {
    /// What is asked.
    ///
    /// # Errors
    /// Nothing that can be understood, in time.
    pub(crate) async fn request(&mut self) -> io::Result<Request> {
        timeout(ANSWER_DEADLINE, read_line(&mut self.stream)).await?
    }

    /// Answers; the asker may have gone.
    pub(crate) async fn answer(mut self, answer: Answer) {
        let _ = timeout(ANSWER_DEADLINE, write_line(&mut self.stream, &answer)).await;
    }
}

/// Connects to the socket in this directory.
async fn connect(dir: &Path) -> io::Result<UnixStream> {
    let holder = hold(dir)?;
    UnixStream::connect(address(&holder)).await
}

/// Opens the directory only to name what is in it.
fn hold(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

/// The socket's name by the open directory: its full path may be longer than the 107 bytes a socket's name may have.
fn address(dir: &OwnedFd) -> String {
    format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())
}

/// Writes a value as one line of JSON.
async fn write_line(stream: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    stream.write_all(&line).await
}

/// Reads one line of JSON of at most [`MAX_LINE_LEN`].
async fn read_line<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let mut line = String::new();
    let mut reader = BufReader::new(stream.take(MAX_LINE_LEN));
    reader.read_line(&mut line).await?;
    match line.strip_suffix('\n') {
        Some(line) => Ok(serde_json::from_str(line)?),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::agent::Cpus;
    use super::super::files::InstanceDir;
    use super::super::limits::Limits;
    use super::{ControlSocket, Request, ask};

    #[tokio::test]
    async fn a_request_is_answered_also_where_the_directorys_path_is_long() {
        let root = tempfile::tempdir().unwrap();
        let dir = InstanceDir(root.path().join("x".repeat(200)));
        std::fs::create_dir(&dir.0).unwrap();
        let unheard = ask(&dir, Request::Freeze).await.unwrap_err();
        assert!(unheard.contains("cannot ask"), "{unheard}");
        let socket = ControlSocket::open(&dir).unwrap();
        let limits = Limits {
            mem_mb: 1,
            vcpus: 2,
        };
        for (request, answer) in [
            (Request::Limit(limits), Ok(())),
            (Request::Pin(Cpus(vec![0, 1])), Ok(())),
            (Request::Thaw, Err("no".to_owned())),
        ] {
            let expected = request.clone();
            let supervisor = async {
                let mut asked = socket.next().await;
                assert_eq!(asked.request().await.unwrap(), expected);
                asked.answer(answer.clone()).await;
            };
            let (given, ()) = tokio::join!(ask(&dir, request), supervisor);
            assert_eq!(given, answer);
        }
        let leaving = async { drop(socket.next().await) };
        let (given, ()) = tokio::join!(ask(&dir, Request::Freeze), leaving);
        assert!(given.is_err());
        drop(socket);
        ControlSocket::open(&dir).unwrap();
    }
}
