//! Which program is run as supervisor: `ciao-supervisor` where it is installed beside this one and is of the same build;
//! else this very program.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use tracing::warn;

use super::PROGRAM;
use crate::VERSION;

/// The program that is a supervisor and nothing else.
const NAME: &str = "ciao-supervisor";

/// The profile of programs that are being worked on: what they say with `--version` does not change with what they do.
const WORKED_ON: &str = "(dev)";

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
    /// build is logged. Programs that are being worked on (profile `dev`) take themselves: one that was not built again
    /// says the same of itself.
    #[must_use]
    pub fn installed() -> Self {
        if VERSION.ends_with(WORKED_ON) {
            return Self::this();
        }
        env::current_exe().map_or_else(|_| Self::this(), |program| Self::beside(&program))
    }

    fn beside(program: &Path) -> Self {
        let path = program.with_file_name(NAME);
        if !path.exists() {
            return Self::this();
        }
        Self::at(&path).unwrap_or_else(|error| {
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
        let mut asked = Command::new(&program.path);
        asked.arg("--version").stdin(Stdio::null()).env_clear();
        let said = asked.output().map_err(unusable)?.stdout;
        let said = String::from_utf8_lossy(&said).trim_end().to_owned();
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
