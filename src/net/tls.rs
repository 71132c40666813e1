//! TLS configurations of server and client, and the files they are made from.
//!
//! Mutual TLS 1.2 or 1.3, provider `aws-lc-rs`. Sessions are never resumed: resumption would skip the certificate check.
//! What the checks are is in [`verify`]; reading PEM is in [`pem`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, ServerConfig, SupportedProtocolVersion};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::net::identity::{self, IdentityError, PeerIdentity};
use crate::net::tls::pem::PemError;
use crate::net::tls::verify::{ChainVerifier, PeerVerifier, SchedulerVerifier};

mod explain;
pub mod pem;
mod verify;

pub use explain::{explain, explain_certificate};

/// The protocol versions spoken, preferred first. The original also accepted TLS 1.1.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];

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
    #[error("{}: unusable private key: {reason}", path.display())]
    UnusableKey {
        /// The file.
        path: PathBuf,
        /// What the cryptographic library says.
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

/// Our own certificate with its key.
#[derive(Debug)]
pub struct Identity {
    path: PathBuf,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    peer: PeerIdentity,
}

/// The certificates that may sign peers' certificates.
#[derive(Debug, Clone)]
pub struct TrustAnchors {
    path: PathBuf,
    anchors: Arc<[TrustedCertificate]>,
    names: Vec<String>,
}

/// One certificate of the CA file.
#[derive(Debug)]
struct TrustedCertificate {
    der: CertificateDer<'static>,
    trust: TrustAnchor<'static>,
    validity: Validity,
}

/// When a certificate is valid, both ends included.
#[derive(Debug, Clone, Copy)]
struct Validity {
    not_before: UnixTime,
    not_after: UnixTime,
}

/// Reads certificate and private key from one PEM file, and checks that they belong together and are in time.
///
/// # Errors
/// [`TlsError`] but `NotACa`, `NotSignedByCa`, `Config`.
pub fn load_identity(path: &Path) -> Result<Identity, TlsError> {
    Identity::from_pem(&read(path)?, path, UnixTime::now())
}

/// Reads the CA certificates from a PEM file, and checks that they are CAs and at least one is in time.
///
/// # Errors
/// [`TlsError`]: `Unreadable`, `Pem`, `Identity`, `Expired`, `NotYetValid`, `NotACa`.
pub fn load_anchors(path: &Path) -> Result<TrustAnchors, TlsError> {
    TrustAnchors::from_pem(&read(path)?, path, UnixTime::now())
}

/// What a server presents and whom it admits: peers whose certificate chains to an anchor and grants a role.
///
/// # Errors
/// [`TlsError::NotSignedByCa`], [`TlsError::Config`].
pub fn server_config(
    identity: &Identity,
    anchors: &TrustAnchors,
) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(PeerVerifier(chain_verifier(identity, anchors, &provider)?));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// What a client presents and whom it talks to: a server whose certificate is or chains to an anchor, is valid for the
/// name dialled, and grants the SCHEDULER role.
///
/// # Errors
/// [`TlsError::NotSignedByCa`], [`TlsError::Config`].
pub fn client_config(
    identity: &Identity,
    anchors: &TrustAnchors,
) -> Result<Arc<ClientConfig>, TlsError> {
    client_config_for(identity, anchors, &VERSIONS)
}

/// As [`client_config`], with protocol versions of one's own choice.
///
/// # Errors
/// As [`client_config`].
pub fn client_config_for(
    identity: &Identity,
    anchors: &TrustAnchors,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = Arc::new(SchedulerVerifier(chain_verifier(
        identity, anchors, &provider,
    )?));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

impl Identity {
    /// As [`load_identity`], from the file's contents; `path` is for messages, `now` for the validity.
    ///
    /// # Errors
    /// As [`load_identity`].
    pub fn from_pem(contents: &[u8], path: &Path, now: UnixTime) -> Result<Self, TlsError> {
        let chain = pem::certificates(contents).map_err(|source| TlsError::Pem {
            path: path.into(),
            source,
        })?;
        let key = pem::private_key(contents).map_err(|source| TlsError::Pem {
            path: path.into(),
            source,
        })?;
        let damaged = |source| TlsError::Identity {
            path: path.into(),
            source,
        };
        let peer = PeerIdentity::from_der(&chain[0]).map_err(damaged)?;
        let validity = Validity::of(&identity::parse(&chain[0]).map_err(damaged)?);
        validity
            .check(now)
            .map_err(|error| validity.error(error, path, now))?;
        let signing_key = aws_lc_rs::default_provider()
            .key_provider
            .load_private_key(key.clone_key());
        let signing_key = signing_key.map_err(|e| TlsError::UnusableKey {
            path: path.into(),
            reason: e.to_string(),
        })?;
        let pair = CertifiedKey::new(chain.clone(), signing_key);
        pair.keys_match()
            .map_err(|_| TlsError::KeyMismatch { path: path.into() })?;
        Ok(Self {
            path: path.into(),
            chain,
            key,
            peer,
        })
    }

    /// What the certificate says of us.
    #[must_use]
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }
}

impl TrustAnchors {
    /// As [`load_anchors`], from the file's contents; `path` is for messages, `now` for the validity.
    ///
    /// # Errors
    /// As [`load_anchors`].
    pub fn from_pem(contents: &[u8], path: &Path, now: UnixTime) -> Result<Self, TlsError> {
        let certificates = pem::certificates(contents).map_err(|source| TlsError::Pem {
            path: path.into(),
            source,
        })?;
        let mut anchors = Vec::new();
        let mut names = Vec::new();
        for der in certificates {
            let damaged = |source| TlsError::Identity {
                path: path.into(),
                source,
            };
            let x509 = identity::parse(&der).map_err(damaged)?;
            if !x509.is_ca() {
                return Err(TlsError::NotACa { path: path.into() });
            }
            names.extend(server_names(&x509));
            let validity = Validity::of(&x509);
            let trust = webpki::anchor_from_trusted_cert(&der)
                .map_err(|error| damaged(IdentityError::Malformed(error.to_string())))?
                .to_owned();
            anchors.push(TrustedCertificate {
                der,
                trust,
                validity,
            });
        }
        let in_time = anchors
            .iter()
            .any(|anchor| anchor.validity.check(now).is_ok());
        if !in_time && let Some(first) = anchors.first() {
            let over = first
                .validity
                .check(now)
                .err()
                .unwrap_or(CertificateError::Expired);
            return Err(first.validity.error(over, path, now));
        }
        Ok(Self {
            path: path.into(),
            anchors: anchors.into(),
            names,
        })
    }

    /// The IP addresses, then the DNS names, in each of these certificates: where the scheduler may be found, since the
    /// original's anchor is its server certificate.
    #[must_use]
    pub fn server_names(&self) -> &[String] {
        &self.names
    }

    /// Whether a certificate (PEM or not, it is the DER form here) is one of these or is signed by one, at this time.
    ///
    /// # Errors
    /// What the check says.
    pub fn verify(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        ChainVerifier {
            anchors: self.clone(),
            algorithms,
        }
        .verify(leaf, &[], now)
    }
}

impl Validity {
    fn of(x509: &X509Certificate<'_>) -> Self {
        let at = |seconds| {
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        let validity = x509.validity();
        Self {
            not_before: at(validity.not_before.timestamp()),
            not_after: at(validity.not_after.timestamp()),
        }
    }

    fn check(self, time: UnixTime) -> Result<(), CertificateError> {
        if time < self.not_before {
            return Err(CertificateError::NotValidYetContext {
                time,
                not_before: self.not_before,
            });
        }
        if time > self.not_after {
            return Err(CertificateError::ExpiredContext {
                time,
                not_after: self.not_after,
            });
        }
        Ok(())
    }

    fn error(self, error: CertificateError, path: &Path, now: UnixTime) -> TlsError {
        let text = |time: UnixTime| date(UNIX_EPOCH + Duration::from_secs(time.as_secs()));
        let (path, now) = (path.into(), text(now));
        match error {
            CertificateError::NotValidYetContext { .. } => TlsError::NotYetValid {
                path,
                not_before: text(self.not_before),
                now,
            },
            _ => TlsError::Expired {
                path,
                not_after: text(self.not_after),
                now,
            },
        }
    }
}

/// A moment as people read it: RFC 3339, whole seconds, UTC.
pub(crate) fn date(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds)
        .map_or_else(|_| format!("second {seconds}"), |at| at.to_string())
}

/// IP addresses first, then DNS names: the order in which the original's clients try them.
fn server_names(x509: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = x509.subject_alternative_name() else {
        return Vec::new();
    };
    let names = &names.value.general_names;
    let ips = names.iter().filter_map(|name| match name {
        GeneralName::IPAddress(octets) => ip_address(octets),
        _ => None,
    });
    let hosts = names.iter().filter_map(|name| match name {
        GeneralName::DNSName(host) => Some((*host).to_owned()),
        _ => None,
    });
    ips.chain(hosts).collect()
}

/// Four or sixteen octets, as alternative names have them, as text.
pub(crate) fn ip_address(octets: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    <[u8; 16]>::try_from(octets)
        .ok()
        .map(|v6| std::net::Ipv6Addr::from(v6).to_string())
}

fn chain_verifier(
    identity: &Identity,
    anchors: &TrustAnchors,
    provider: &CryptoProvider,
) -> Result<ChainVerifier, TlsError> {
    let verifier = ChainVerifier {
        anchors: anchors.clone(),
        algorithms: provider.signature_verification_algorithms,
    };
    verifier
        .verify(&identity.chain[0], &identity.chain[1..], UnixTime::now())
        .map_err(|reason| TlsError::NotSignedByCa {
            path: identity.path.clone(),
            ca: anchors.path.clone(),
            reason,
        })?;
    Ok(verifier)
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.into(),
        source,
    })
}
