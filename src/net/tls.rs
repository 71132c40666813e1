//! TLS configurations of server and client, and the files they are made from.
//!
//! Mutual TLS 1.2 or 1.3, provider `aws-lc-rs`. Sessions are never resumed: resumption would skip the certificate
//! check. What the checks are is in `verify`, reading PEM in [`pem`], the CA file in `anchors`, what is revoked in
//! `revocation`.
//!
//! ```text
//! PEM file ─ load_identity ─▶ Identity ─┬─ server_config  SSNTP: peers show a certificate with a role
//! CA file, CRLs ─ load_trust ─▶ TrustAnchors ┼─ http_config    HTTP/2 and 1.1: the same check, where a certificate is shown
//!                                             ├─ token_config   HTTP/1.1: no certificate of the client
//!                                             └─ client_config  towards the scheduler
//! ```
//!
//! All files are read and checked before a port is opened or dialled; each [`TlsError`] names the file and what to do.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, ClientConfig, ServerConfig, SupportedProtocolVersion};
use x509_parser::prelude::X509Certificate;

use crate::net::identity::{self, PeerIdentity};
use crate::net::tls::verify::{ChainVerifier, PeerVerifier, SchedulerVerifier};
use crate::private;

mod anchors;
mod at_dial;
mod authority;
mod crl;
mod error;
mod explain;
pub(crate) mod key_kind;
pub mod pem;
mod revocation;
mod verify;

pub(crate) use anchors::ip_address;
pub use anchors::{TrustAnchors, TrustFiles};
pub use at_dial::{ClientCredentials, ClientFiles, ClientTls, LastRead};
pub(crate) use authority::has_signed;
pub use crl::CrlError;
pub(crate) use crl::reason_name;
pub use error::TlsError;
pub use explain::{explain, explain_certificate};
pub use revocation::{PeerChain, Revocation, StaleCrls};

/// The protocol versions spoken, preferred first. The original also accepted TLS 1.1, which rustls has not.
pub const VERSIONS: [&SupportedProtocolVersion; 2] =
    [&rustls::version::TLS13, &rustls::version::TLS12];

/// What becomes of clients that show no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nameless {
    /// Their handshake fails.
    Refused,
    /// They are let in, and have to show something else, such as a token.
    LetIn,
}

/// Our own certificate with its key: checked to belong together, and within its validity when it was read.
#[derive(Debug)]
pub struct Identity {
    path: PathBuf,
    /// The leaf first, then intermediates in the order of the file; never empty.
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// What the leaf says of us.
    peer: PeerIdentity,
}

/// When a certificate is valid, both ends included.
#[derive(Debug, Clone, Copy)]
struct Validity {
    not_before: UnixTime,
    not_after: UnixTime,
}

/// What is done about a private key that others can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyFiles {
    /// A warning is logged. The original's tool makes its files readable by others.
    #[default]
    Lenient,
    /// It is refused (`--strict-files`).
    Strict,
}

impl KeyFiles {
    /// As a flag (`--strict-files`) has it.
    #[must_use]
    pub fn new(is_strict: bool) -> Self {
        if is_strict {
            Self::Strict
        } else {
            Self::Lenient
        }
    }

    /// Looks at who can read a file with a private key; `say` is given a sentence for the log where that is not its
    /// owner alone. Files without a private key are passed over, and so is a file that is not there: reading it says
    /// more.
    ///
    /// # Errors
    /// [`TlsError::Exposed`], where files are strict.
    pub fn check(self, path: &Path, say: impl FnOnce(String)) -> Result<(), TlsError> {
        let Some(mode) = private::open_to_others(path).filter(|_| holds_key(path)) else {
            return Ok(());
        };
        if self == Self::Strict {
            return Err(TlsError::Exposed {
                path: path.into(),
                mode,
            });
        }
        let path = path.display();
        say(format!(
            "{path}: the private key in it can be read by others (mode {mode:04o}); chmod 600 {path}"
        ));
        Ok(())
    }
}

/// Most bytes of a file that are looked at for a key: chains and keys take a few KiB. A larger one is not read whole
/// because it was named by mistake.
const MAX_KEY_FILE_LEN: u64 = 1 << 20;

/// Whether a file has a private key in it, by PEM's mark: of another, that others can read it is no concern. `false`
/// for what is no regular file, so that a pipe or device is not read.
fn holds_key(path: &Path) -> bool {
    const MARK: &[u8] = b"PRIVATE KEY-----";
    let mut contents = Vec::new();
    let read = File::open(path).and_then(|file| {
        let is_file = file.metadata()?.is_file();
        let limit = if is_file { MAX_KEY_FILE_LEN } else { 0 };
        file.take(limit).read_to_end(&mut contents)
    });
    read.is_ok() && contents.windows(MARK.len()).any(|part| part == MARK)
}

/// Reads certificate and private key from one PEM file, and checks that they belong together and are in time. The first
/// certificate is ours; further ones are intermediates.
///
/// # Errors
/// [`TlsError`] but `Exposed`, `NotACa`, `NotSignedByCa`, `Config`.
pub fn load_identity(path: &Path) -> Result<Identity, TlsError> {
    Identity::from_pem(&read(path)?, path, UnixTime::now())
}

/// Reads a certificate chain, the leaf first, and its private key from one PEM file, and checks that they belong together.
/// For servers whose certificate is of no concern to SSNTP.
///
/// # Errors
/// [`TlsError`]: `Unreadable`, `Pem`, `UnusableKey`, `KeyMismatch`.
pub fn load_chain(
    path: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let (chain, key) = chain_and_key(&read(path)?, path)?;
    check_key(&chain, &key, path)?;
    Ok((chain, key))
}

/// Reads the CA certificates from a PEM file, and checks that they are CAs and at least one is in time. Those out of
/// time are kept: whether one is in time is looked at in each handshake.
///
/// # Errors
/// [`TlsError`]: `Unreadable`, `Pem`, `Identity`, `Expired`, `NotYetValid`, `NotACa`.
pub fn load_anchors(path: &Path) -> Result<TrustAnchors, TlsError> {
    TrustAnchors::from_pem(&read(path)?, path, UnixTime::now())
}

/// Reads the CA certificates as [`load_anchors`] does, and the revocation lists of these CAs and of those below them. A list
/// that cannot be used refuses all: see [`CrlError`].
///
/// # Errors
/// As [`load_anchors`], and [`TlsError::Crl`].
pub fn load_trust(files: &TrustFiles) -> Result<TrustAnchors, TlsError> {
    TrustAnchors::load(files, UnixTime::now())
}

/// What a server presents and whom it admits: peers whose certificate chains to an anchor and grants a role.
///
/// # Errors
/// [`TlsError::NotSignedByCa`], [`TlsError::Config`].
pub fn server_config(
    identity: &Identity,
    anchors: &TrustAnchors,
) -> Result<Arc<ServerConfig>, TlsError> {
    Ok(Arc::new(server(identity, anchors, Nameless::Refused)?))
}

/// As [`server_config`], for HTTP/2 or 1.1, which ALPN decides. Clients that show no certificate are let in if
/// `nameless` says so; one that is shown is checked in either case.
///
/// # Errors
/// As [`server_config`].
pub fn http_config(
    identity: &Identity,
    anchors: &TrustAnchors,
    nameless: Nameless,
) -> Result<Arc<ServerConfig>, TlsError> {
    let mut config = server(identity, anchors, nameless)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What is presented to clients that show a token instead of a certificate, over HTTP/1.1. The certificate is not
/// checked against an anchor.
///
/// # Errors
/// [`TlsError::Config`].
pub fn token_config(identity: &Identity) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .with_no_client_auth()
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    without_sessions(&mut config);
    Ok(Arc::new(config))
}

/// Why programs that speak HTTPS would refuse a server that presents this certificate, and the command that makes one
/// they accept; `None` if they would not. For a warning at start: SSNTP certificates without `serverAuth` or without
/// names are good for SSNTP and for this project's own clients alone.
#[must_use]
pub fn refused_by_browsers(identity: &Identity, anchors: &TrustAnchors) -> Option<String> {
    let path = identity.path.display();
    let x509 = identity::parse(&identity.chain[0]).ok()?;
    let has_names = matches!(x509.subject_alternative_name(), Ok(Some(_)));
    let ca = anchors.path.display();
    let (what, command) = if identity::is_for_servers(&x509) && has_names {
        if anchors.are_for_servers() {
            return None;
        }
        let what = format!("{ca}: a CA in it is not for servers (no serverAuth)");
        (
            what,
            "ciao-cert -renew ANCHOR -force, with the anchor's file".to_owned(),
        )
    } else if x509.is_ca() {
        let what = format!("{path}: the certificate is not for servers (no serverAuth)");
        (
            what,
            format!("ciao-cert -renew {path} -force -directory DIR"),
        )
    } else {
        let what = format!("{path}: the certificate is not for servers (no serverAuth)");
        let command = "ciao-cert -anchor-cert ANCHOR -role server -host NAME, and --http-cert";
        (what, command.to_owned())
    };
    Some(format!(
        "{what}: curl, Python and browsers will refuse it for HTTPS; make a new one: {command}"
    ))
}

/// What SSNTP and HTTP have in common.
fn server(
    identity: &Identity,
    anchors: &TrustAnchors,
    nameless: Nameless,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chains = chain_verifier(identity, anchors, &provider)?;
    let verifier = Arc::new(PeerVerifier(chains, nameless));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&VERSIONS)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain.clone(), identity.key.clone_key())?;
    without_sessions(&mut config);
    Ok(config)
}

/// No session can be resumed, neither by identifier (TLS 1.2) nor by ticket (TLS 1.3): each connection shows its
/// certificate.
fn without_sessions(config: &mut ServerConfig) {
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
}

/// What a client presents and whom it talks to: a server whose certificate is or chains to an anchor, is valid for the
/// name dialled, and grants the SCHEDULER role. The name is checked against the alternative names alone, as rustls
/// does.
///
/// # Errors
/// [`TlsError::NotSignedByCa`]: our own certificate does not chain to this CA file, so a scheduler with the same file
/// would refuse it. [`TlsError::Config`].
pub fn client_config(
    identity: &Identity,
    anchors: &TrustAnchors,
) -> Result<Arc<ClientConfig>, TlsError> {
    client_config_for(identity, anchors, &VERSIONS)
}

/// The protocol that clients of this project name in TLS's first message (ALPN), which servers leave unanswered: so that a
/// scheduler can tell them from original ones before it has answered anything. An original client that is refused once TLS
/// stands never tries again.
pub const NATIVE_PROTOCOL: &[u8] = b"ssntp/ciao-native";

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
        let (chain, key) = chain_and_key(contents, path)?;
        let damaged = |source| TlsError::Identity {
            path: path.into(),
            source,
        };
        let peer = PeerIdentity::from_der(&chain[0]).map_err(damaged)?;
        let validity = Validity::of(&identity::parse(&chain[0]).map_err(damaged)?);
        validity
            .check(now)
            .map_err(|error| validity.error(error, path, now))?;
        check_key(&chain, &key, path)?;
        Ok(Self {
            path: path.into(),
            chain,
            key,
            peer,
        })
    }

    /// The name of its file, and when it ends, in seconds of Unix time. For metrics and warnings.
    #[must_use]
    pub fn expiry(&self) -> (String, i64) {
        let validity = identity::parse(&self.chain[0]).map(|x509| Validity::of(&x509));
        let ends = validity.map_or(0, |validity| validity.not_after.as_secs());
        (
            file_name(&self.path),
            i64::try_from(ends).unwrap_or(i64::MAX),
        )
    }

    /// What the certificate says of us.
    #[must_use]
    pub fn peer(&self) -> &PeerIdentity {
        &self.peer
    }
}

impl Validity {
    /// Times before 1970 count as 1970.
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

    /// Which end is missed, with both times for the message.
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

    /// The same as an error about this file.
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

/// The certificates of a file, and its first key.
fn chain_and_key(
    contents: &[u8],
    path: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let of_file = |source| TlsError::Pem {
        path: path.into(),
        source,
    };
    let chain = pem::certificates(contents).map_err(of_file)?;
    let key = pem::private_key(contents).map_err(of_file)?;
    Ok((chain, key))
}

/// Whether the key can be used, and is that of the chain's leaf.
fn check_key(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    path: &Path,
) -> Result<(), TlsError> {
    let unusable = |reason| TlsError::UnusableKey {
        path: path.into(),
        reason,
    };
    if let Some(kind) = key_kind::unusable(key) {
        return Err(unusable(format!("it is {kind}")));
    }
    let signing_key = aws_lc_rs::default_provider()
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|_| unusable("it is damaged or of another kind".to_owned()))?;
    CertifiedKey::new(chain.to_vec(), signing_key)
        .keys_match()
        .map_err(|_| TlsError::KeyMismatch { path: path.into() })
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

/// The verifier for peers' chains. Our own chain is checked with it first: one that it refuses would be refused by
/// every peer with the same CA file, and saying so at start is better than in each handshake.
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

/// The last part of a path.
fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// A file whole, or the error that names it.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.into(),
        source,
    })
}
