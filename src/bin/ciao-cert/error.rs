//! Why `ciao-cert` fails, with the exit code of each; reading files and printing, which fail so.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ciao_scheduler::cert::CertError;
use ciao_scheduler::cert::describe::DescribeError;
use ciao_scheduler::cert::files::WriteError;
use ciao_scheduler::net::tls::TlsError;

/// Exit code: something failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code: a certificate does not verify.
const NOT_VERIFIED: u8 = 3;
/// Exit code: a file would have been overwritten.
const EXISTS: u8 = 4;

/// Why the program fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {source}", path.display())]
    Anchor { path: PathBuf, source: CertError },
    #[error(transparent)]
    Cert(#[from] CertError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("{}: {source}", path.display())]
    Describe {
        path: PathBuf,
        source: DescribeError,
    },
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{0:?} is no IP address")]
    BadIp(String),
    #[error("{0}")]
    NotVerified(String),
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl CliError {
    /// The exit code it stands for.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Write(WriteError::Exists(_)) => EXISTS,
            Self::NotVerified(_) => NOT_VERIFIED,
            _ => FAILED,
        }
    }
}

/// Prints a line on standard output. That nothing reads it any more (`ciao-cert -all | head -1`) is no failure.
///
/// # Errors
/// [`CliError::Output`]: it cannot be written for another reason.
pub(crate) fn print_line(line: impl Display) -> Result<(), CliError> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CliError::Output(error)),
        _ => Ok(()),
    }
}

/// The contents of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|source| CliError::Read {
        path: path.into(),
        source,
    })
}
