//! What the daemon shows of itself and whom it lets in: certificates, keys, anchors and tokens, read from files at start
//! and again at each [reload](super::reload).
//!
//! ```text
//! files ─ Credentials::load ─▶ checked with each other ─ Live::take ─▶ each handshake takes what is in force: Live::now
//! ```
//!
//! All of a [`Credentials`] is put in force at once, so that no handshake sees an old certificate with new anchors.
//! Connections that have had their handshake keep what they had.

#[cfg(test)]
pub(super) mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use proto_frames::Role;
use rustls::ServerConfig as TlsConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::warn;

use super::accept::Speaks;
use super::placement::{self, Digests};
use super::start::{ServerConfig, StartError};
use crate::net::tls::{self, Identity, TrustAnchors};

/// What handshakes are made with. Read from files as a whole, and checked.
pub(super) struct Credentials {
    /// For SSNTP.
    frames: Arc<TlsConfig>,
    /// For HTTP; `None` where that is not offered.
    http: Option<Arc<TlsConfig>>,
    /// For the Placement API where others than this machine reach it, and who may ask there; `None` where it is not
    /// offered.
    placement: Option<PlacementCredentials>,
    /// Whose certificates are believed.
    pub(super) anchors: TrustAnchors,
    /// The scheduler's own certificate: its SHA-256.
    pub(super) fingerprint: [u8; 32],
    /// The file of each certificate, and when it ends, seconds of Unix time.
    pub(super) certificates: Vec<(String, i64)>,
}

/// What the Placement API presents, and the digests of the tokens by which clients may use it.
type PlacementCredentials = (Arc<TlsConfig>, Arc<Digests>);

/// When files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// The daemon starts.
    Start,
    /// It runs.
    Reload,
}

/// The credentials in force. Shared by all that make handshakes.
#[derive(Debug)]
pub(super) struct Live {
    credentials: RwLock<Arc<Credentials>>,
    /// Told after others were put in force.
    taken: watch::Sender<()>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configurations hold private keys.
        f.debug_struct("Credentials")
            .field("certificates", &self.certificates)
            .finish_non_exhaustive()
    }
}

impl Live {
    pub(super) fn new(credentials: Credentials) -> Arc<Self> {
        Arc::new(Self {
            credentials: RwLock::new(Arc::new(credentials)),
            taken: watch::Sender::new(()),
        })
    }

    /// Those in force at this moment.
    pub(super) fn now(&self) -> Arc<Credentials> {
        Arc::clone(&self.credentials.read())
    }

    /// Puts others in force: each handshake that begins from now on is made with them.
    pub(super) fn take(&self, credentials: Credentials) {
        *self.credentials.write() = Arc::new(credentials);
        self.taken.send_replace(());
    }

    /// Is told each time that others were put in force.
    pub(super) fn taken(&self) -> watch::Receiver<()> {
        self.taken.subscribe()
    }

    /// Puts other tokens in force, and leaves the rest. Does nothing where the Placement API is not offered.
    pub(super) fn take_tokens(&self, tokens: Digests) {
        let mut live = self.credentials.write();
        let Some((tls, _)) = &live.placement else {
            return;
        };
        let placement = Some((Arc::clone(tls), Arc::new(tokens)));
        *live = Arc::new(Credentials {
            frames: Arc::clone(&live.frames),
            http: live.http.clone(),
            placement,
            anchors: live.anchors.clone(),
            fingerprint: live.fingerprint,
            certificates: live.certificates.clone(),
        });
    }

    /// Whether a token may ask at the Placement API.
    pub(super) fn admits(&self, token: &[u8]) -> bool {
        let live = self.now();
        let placement = live.placement.as_ref();
        placement.is_some_and(|(_, tokens)| tokens.admit(token))
    }
}

impl Credentials {
    /// Reads all files, and checks each by itself and with the others: the key is that of its certificate, each is in
    /// time, the scheduler's own grants its role and chains to an anchor. What browsers would refuse is warned of.
    ///
    /// # Errors
    /// [`StartError`]: the first mistake, with its file.
    pub(super) fn load(config: &ServerConfig, at: Moment) -> Result<Self, StartError> {
        let identity = load_own(config)?;
        let anchors = tls::load_trust(&config.trust)?;
        let frames = tls::server_config(&identity, &anchors)?;
        let other = load_http_identity(config)?;
        let shown = other.as_ref().unwrap_or(&identity);
        let http = match config.http.is_empty() {
            true => None,
            false => Some(load_http(config, shown, &anchors)?),
        };
        let placement = load_placement(config, at, shown, &anchors)?;
        let mut certificates = vec![identity.expiry(), anchors.expiry()];
        certificates.extend(other.as_ref().map(Identity::expiry));
        certificates.extend(anchors.crl_expiries());
        Ok(Self {
            frames,
            http,
            placement,
            fingerprint: identity.peer().fingerprint,
            anchors,
            certificates,
        })
    }

    /// For a handshake at an address where this is spoken; `None` where it is not offered, or without TLS.
    pub(super) fn acceptor(&self, speaks: Speaks) -> Option<TlsAcceptor> {
        let tls = match speaks {
            Speaks::Ssntp => Some(&self.frames),
            Speaks::Http => self.http.as_ref(),
            Speaks::PlacementTls => self.placement.as_ref().map(|(tls, _)| tls),
            Speaks::Placement => None,
        };
        tls.map(|tls| TlsAcceptor::from(Arc::clone(tls)))
    }
}

/// Loads the scheduler's certificate, which must be one. Launchers and controllers refuse any other role.
fn load_own(config: &ServerConfig) -> Result<Identity, StartError> {
    let warn = |said| warn!(event = "key_file_open_to_others", "{said}");
    config.key_files.check(&config.cert, warn)?;
    let identity = tls::load_identity(&config.cert)?;
    let granted = identity.peer().roles;
    if !granted.contains(Role::SCHEDULER) {
        let path = config.cert.clone();
        return Err(StartError::NotAScheduler { path, granted });
    }
    Ok(identity)
}

/// The certificate that is presented over HTTP, if it is another than the scheduler's. `None` means the scheduler's own
/// is presented.
fn load_http_identity(config: &ServerConfig) -> Result<Option<Identity>, StartError> {
    let Some(path) = &config.http_cert else {
        return Ok(None);
    };
    config.key_files.check(path, |said| {
        warn!(event = "key_file_open_to_others", "{said}")
    })?;
    Ok(Some(tls::load_identity(path)?))
}

/// What the HTTP door presents. What browsers would refuse is said, with the command that mends it.
fn load_http(
    config: &ServerConfig,
    shown: &Identity,
    anchors: &TrustAnchors,
) -> Result<Arc<TlsConfig>, StartError> {
    if let Some(problem) = tls::refused_by_browsers(shown, anchors) {
        warn!(event = "certificate_problem", "{problem}");
    }
    // OpenStack's clients have a token instead of a certificate.
    let nameless = match config.placement {
        Some(_) => tls::Nameless::LetIn,
        None => tls::Nameless::Refused,
    };
    Ok(tls::http_config(shown, anchors, nameless)?)
}

/// What the Placement API presents, and who may use it, if it is offered. Also warns of a certificate that clients would
/// refuse. The HTTP door warns of the same certificate; so this does only where that door is shut.
fn load_placement(
    config: &ServerConfig,
    at: Moment,
    shown: &Identity,
    anchors: &TrustAnchors,
) -> Result<Option<PlacementCredentials>, StartError> {
    let Some(offered) = &config.placement else {
        return Ok(None);
    };
    let tokens = placement::load(offered, config.key_files, at)?;
    let is_https = |address: &SocketAddr| placement_speaks(address) == Speaks::PlacementTls;
    if config.http.is_empty()
        && offered.listen.iter().any(is_https)
        && let Some(problem) = tls::refused_by_browsers(shown, anchors)
    {
        warn!(event = "certificate_problem", "{problem}");
    }
    Ok(Some((tls::token_config(shown)?, Arc::new(tokens))))
}

/// How the Placement API is spoken at an address: tokens are not shown to others on the way. Plain HTTP is spoken on
/// loopback addresses alone, where no one else can read the token.
pub(super) fn placement_speaks(address: &SocketAddr) -> Speaks {
    match address.ip().to_canonical().is_loopback() {
        true => Speaks::Placement,
        false => Speaks::PlacementTls,
    }
}
