//! Why TLS cannot be set up from the files given.

use std::path::{Path, PathBuf};

use rustls::CertificateError;

use crate::net::identity::IdentityError;
use crate::net::tls::crl::CrlError;
use crate::net::tls::explain::explain_certificate;
use crate::net::tls::key_kind::USABLE;
use crate::net::tls::pem::PemError;

/// Why TLS cannot be set up. Each names the file at fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others than its owner can read the private key, and files are strict.
    #[error(
        "{0}: others can read the private key in it (mode {mode:04o}), which --strict-files does not allow; chmod 600 {0}",
        path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file lacks a certificate or a key, or is damaged.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is missing.
        source: PemError,
    },
    /// The certificate is damaged or grants no role.
    #[error("{}: {source}", path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: IdentityError,
    },
    /// The private key is of a kind that cannot be used.
    #[error("{}: unusable private key: {reason}; expected {USABLE}", path.display())]
    UnusableKey {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        reason: String,
    },
    /// The private key is not the one the certificate is for.
    #[error("{}: the private key does not belong to the certificate", path.display())]
    KeyMismatch {
        /// The file.
        path: PathBuf,
    },
    /// The validity is over.
    #[error("{}: the certificate expired {not_after} (now {now}); make a new one with ciao-cert", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// End of the validity, RFC 3339.
        not_after: String,
        /// This machine's clock, RFC 3339.
        now: String,
    },
    /// The validity has not begun.
    #[error("{}: the certificate is valid from {not_before} only (now {now}); is the clock right?", path.display())]
    NotYetValid {
        /// The file.
        path: PathBuf,
        /// Start of the validity, RFC 3339.
        not_before: String,
        /// This machine's clock, RFC 3339.
        now: String,
    },
    /// A certificate of the CA file may not sign others.
    #[error("{}: not a CA certificate (CA:TRUE is missing); give the CAcert-….pem file", path.display())]
    NotACa {
        /// The file.
        path: PathBuf,
    },
    /// A revocation list cannot be used.
    #[error("{}{}: {source}", path.display(), at_line(*line))]
    Crl {
        /// The file or directory.
        path: PathBuf,
        /// Where the list begins, from 1; `None` where that does not help.
        line: Option<usize>,
        /// What is wrong with it.
        source: CrlError,
    },
    /// The own certificate does not chain to the CA, so no peer with that CA would accept it.
    #[error("{} does not fit the CA in {}: {}", path.display(), ca.display(), explain_certificate(reason))]
    NotSignedByCa {
        /// The certificate's file.
        path: PathBuf,
        /// The CA's file.
        ca: PathBuf,
        /// What the check says.
        reason: CertificateError,
    },
    /// The TLS library refuses the configuration.
    #[error("TLS cannot be set up: {0}")]
    Config(#[from] rustls::Error),
}

/// `, line 7`, where it is known.
fn at_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}

impl TlsError {
    /// The file at fault, and the line of the mistake, from 1, where there is one.
    #[must_use]
    pub fn place(&self) -> (Option<&Path>, Option<usize>) {
        let (path, line) = match self {
            Self::Pem { path, source } => (path, source.line()),
            Self::Crl { path, line, .. } => (path, *line),
            Self::Unreadable { path, .. }
            | Self::Exposed { path, .. }
            | Self::Identity { path, .. }
            | Self::UnusableKey { path, .. }
            | Self::KeyMismatch { path }
            | Self::Expired { path, .. }
            | Self::NotYetValid { path, .. }
            | Self::NotACa { path }
            | Self::NotSignedByCa { path, .. } => (path, None),
            Self::Config(_) => return (None, None),
        };
        (Some(path), line)
    }
}
