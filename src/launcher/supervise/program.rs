//! Which program is run as supervisor: `ciao-supervisor` where it is installed beside this one and is of the same build;
//! else this very program.

use std::env;
use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::geteuid;
use tracing::warn;

use super::PROGRAM;
use crate::VERSION;

/// The program that is a supervisor and nothing else.
const NAME: &str = "ciao-supervisor";

/// How a version ends, or what is in it, that does not tell one build from another: programs that are being worked on, and those
/// built where the commit is not known.
const SAME_FOR_MANY: [&str; 2] = ["(dev)", "(commit unknown"];

/// How long a program may take to say its version.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);

/// Most bytes that are read of what it says.
const MAX_ANSWER_LEN: u64 = 1024;

/// The bit of a file's mode by which every user may change it.
const WRITABLE_BY_OTHERS: u32 = 0o002;

/// A program that answers [`super::WORD`] as its first argument with [`super::run`].
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// What the path leads to, held open: it is the same program when its file has been replaced, as by an upgrade.
    _file: Option<Arc<File>>,
}

/// Why a program cannot be run as supervisor.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not there, or cannot be run.
    #[error("cannot run the supervisor {}: {error}", path.display())]
    Unusable {
        /// The program.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Found beside this program, and another user's.
    #[error(
        "the supervisor {} can be changed by other users; have it belong to root or to the launcher's user, and let no others \
         write it",
        path.display()
    )]
    OpenToOthers {
        /// The program.
        path: PathBuf,
    },
    /// It does not say that it is a supervisor of this build.
    #[error(
        "the supervisor {} is of another build: it says \"{}\", and this program needs \"{}\"; \
         install both from one package",
        path.display(), said.escape_debug(), expected.escape_debug()
    )]
    OtherBuild {
        /// The program.
        path: PathBuf,
        /// What it says with `--version`.
        said: String,
        /// What it should say.
        expected: String,
    },
}

/// What `ciao-supervisor --version` prints.
#[must_use]
pub fn version() -> String {
    format!("{NAME} {VERSION}\n")
}

impl Program {
    /// This very program.
    #[must_use]
    pub fn this() -> Self {
        Self {
            path: PROGRAM.into(),
            _file: None,
        }
    }

    /// `ciao-supervisor` beside this program, where there is one of the same build; else this program. One of another
    /// build, or that other users may change, is logged. Programs whose version does not tell their build (profile `dev`, or no
    /// commit) take themselves: one that was not built again says the same of itself.
    #[must_use]
    pub fn installed() -> Self {
        if SAME_FOR_MANY.iter().any(|it| VERSION.contains(it)) {
            return Self::this();
        }
        env::current_exe().map_or_else(|_| Self::this(), |program| Self::beside(&program))
    }

    fn beside(program: &Path) -> Self {
        let path = program.with_file_name(NAME);
        let Ok(file) = path.metadata() else {
            return Self::this();
        };
        let found = match is_trusted(&file) {
            true => Self::at(&path),
            false => Err(ProgramError::OpenToOthers { path }),
        };
        found.unwrap_or_else(|error| {
            warn!(
                event = "supervisor_not_used",
                %error,
                "cannot use the supervisor beside this program, which is its own instead and takes longer to start instances"
            );
            Self::this()
        })
    }

    /// The program at a path.
    ///
    /// # Errors
    /// It cannot be run, or is of another build.
    pub fn at(path: &Path) -> Result<Self, ProgramError> {
        let unusable = |error| ProgramError::Unusable {
            path: path.to_owned(),
            error,
        };
        let file = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| unusable(error.into()))?;
        let file = File::from(file);
        // A child has it open until it has become that program.
        let program = Self {
            path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            _file: Some(Arc::new(file)),
        };
        let said = said_by(&program.path).map_err(unusable)?;
        let expected = version().trim_end().to_owned();
        if said != expected {
            return Err(ProgramError::OtherBuild {
                path: path.to_owned(),
                said,
                expected,
            });
        }
        Ok(program)
    }

    /// Where it is run from.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Whether only root and this process's user may change a program.
fn is_trusted(file: &Metadata) -> bool {
    let owner = file.uid();
    let is_own = owner == 0 || owner == geteuid().as_raw();
    is_own && file.mode() & WRITABLE_BY_OTHERS == 0
}

/// What a program says with `--version`, on either of its outputs; it is killed after that.
///
/// # Errors
/// It cannot be run, or says nothing in time.
fn said_by(program: &Path) -> io::Result<String> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(program);
    command.arg("--version").env_clear().stdin(Stdio::null());
    command.stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // With this process's ends of the pipe: what is read ends with the program.
    drop(command);
    let (send, receive) = mpsc::channel();
    thread::spawn(move || {
        let mut said = Vec::new();
        let read = reader.take(MAX_ANSWER_LEN).read_to_end(&mut said);
        let _ = send.send(read.map(|_| said));
    });
    let said = receive.recv_timeout(ANSWER_DEADLINE);
    let _ = child.kill();
    child.wait()?;
    let silent = || {
        let text = format!("it does not say its version within {ANSWER_DEADLINE:?}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    };
    let said = said.map_err(|_| silent())??;
    Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_supervisor_of_this_build_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ciao-launcher");
        assert_eq!(Program::beside(&program).path(), Path::new(PROGRAM));
        let beside = dir.path().join(NAME);
        symlink("/bin/cat", &beside).unwrap();
        assert_eq!(Program::beside(&program).path(), Path::new(PROGRAM));
        let error = Program::at(&beside).unwrap_err().to_string();
        assert!(error.contains("of another build"), "{error}");
        assert!(error.contains(version().trim_end()), "{error}");
        let error = Program::at(dir.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot run the supervisor"), "{error}");
    }
}
