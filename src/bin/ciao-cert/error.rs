//! Why `ciao-cert` fails, with the exit code of each; reading files and printing, which fail so.
//!
//! Exit code 2, a wrong command line, is not here: `main` ends with it before anything is tried.

use std::fmt::Display;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use ciao_scheduler::cert::CertError;
use ciao_scheduler::cert::crl::CrlFileError;
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
///
/// Printed as `ciao-cert: TEXT`. Each names the file that it is about, where there is one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    // The variants name the file that is concerned, so that one line of text is enough.
    /// A certificate file that was named on the command line is not there, or not readable.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The file of the anchor cannot be used to sign, or its anchor cannot be renewed.
    #[error("cannot use the anchor in {}: {source}", path.display())]
    Anchor { path: PathBuf, source: CertError },
    /// A certificate cannot be made of what the flags say.
    #[error(transparent)]
    Cert(#[from] CertError),
    /// A CA file cannot be used, or with `-strict-files` a key file is open to others.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// `-dump` cannot read what is in the file.
    #[error("cannot show {}: {source}", path.display())]
    Describe {
        path: PathBuf,
        source: DescribeError,
    },
    /// A file exists already (exit code 4), or cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// `-directory` is neither there nor can be made.
    #[error("cannot make the directory {}: {source}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// The anchor's revocation list cannot be kept on.
    #[error("cannot keep the revocation list in {}: {source}", path.display())]
    List { path: PathBuf, source: CrlFileError },
    /// The anchor's file cannot be locked against another that keeps its list.
    #[error("cannot lock {}: {source}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    /// What is to be revoked was not signed by this anchor, or may not be.
    #[error("{}: not revoked: {reason}", path.display())]
    NotRevoked { path: PathBuf, reason: String },
    /// A text of `-ip` that is no address.
    #[error("{0:?} is no IP address")]
    BadIp(String),
    /// With the reason, or with how many of the files failed (exit code 3).
    #[error("{0}")]
    NotVerified(String),
    /// Not for a pipe that was closed, see [`print_line`].
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
}

impl CliError {
    /// The exit code it stands for.
    ///
    /// Scripts tell a file that exists from other failures, to decide about `-force`.
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
///
/// Whole: certificate files are small, and are the user's own.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    fs::read(path).map_err(|source| CliError::Read {
        path: path.into(),
        source,
    })
}
