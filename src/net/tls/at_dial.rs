//! What a client dials with: its own certificate and the CA's, read from their files at each dial, so that a renewed
//! certificate is used without a restart. A mistake in a file is logged and changes nothing: what was read for an earlier
//! dial stays in use.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::{Role, Uuid};
use rustls::ClientConfig;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::{TlsError, TrustAnchors, TrustFiles, client_config, load_identity, load_trust};

/// The files that a client dials with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The client's own certificate with its key.
    pub cert: PathBuf,
    /// Whose certificates are believed.
    pub trust: TrustFiles,
}

/// What was read from these files, and checked.
#[derive(Clone)]
pub struct ClientCredentials {
    /// What the client presents and whom it talks to.
    pub tls: Arc<ClientConfig>,
    /// The roles that its certificate grants.
    pub roles: Role,
    /// The UUID that its certificate is bound to, if it is.
    pub bound_uuid: Option<Uuid>,
    /// Where the CA certificates say the scheduler is ([`TrustAnchors::server_names`]).
    ///
    /// [`TrustAnchors::server_names`]: super::TrustAnchors::server_names
    pub server_names: Vec<String>,
    /// Whose certificates are believed, to see that the next do not let in what these revoke.
    anchors: TrustAnchors,
}

/// What was read last without a mistake; nothing at first. Clones are of the same.
#[derive(Debug, Clone, Default)]
pub struct LastRead(Arc<Mutex<Option<ClientCredentials>>>);

/// Why files that can be read are of no use to this client.
#[derive(Debug, thiserror::Error)]
enum Unfit {
    /// They cannot be used by anybody.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The certificate lacks a role that the client claims.
    #[error("{}: the certificate grants {granted}, not {needed}", path.display())]
    Role {
        /// The certificate's file.
        path: PathBuf,
        /// What it grants.
        granted: Role,
        /// What the client claims.
        needed: Role,
    },
    /// It is another node's.
    #[error("{}: the certificate is bound to {bound}, and this is {own}", path.display())]
    Uuid {
        /// The certificate's file.
        path: PathBuf,
        /// What it is bound to.
        bound: Uuid,
        /// What the client is.
        own: Uuid,
    },
}

/// What a client that connects again and again dials with. Cheap to clone; clones share what was read last.
#[derive(Debug, Clone)]
pub struct ClientTls(Source);

#[derive(Debug, Clone)]
enum Source {
    /// The same for each dial.
    Fixed(Arc<ClientConfig>),
    /// Read for each dial.
    Files {
        files: Arc<ClientFiles>,
        /// What a certificate has to grant, because the client claims it.
        needed: Role,
        last: Arc<Mutex<ClientCredentials>>,
    },
}

impl std::fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The TLS configuration holds the private key.
        f.debug_struct("ClientCredentials")
            .field("roles", &self.roles)
            .finish_non_exhaustive()
    }
}

impl ClientFiles {
    /// Reads and checks them.
    ///
    /// # Errors
    /// As [`load_identity`], [`load_trust`] and [`client_config`].
    pub fn read(&self) -> Result<ClientCredentials, TlsError> {
        let identity = load_identity(&self.cert)?;
        let anchors = load_trust(&self.trust)?;
        Ok(ClientCredentials {
            tls: client_config(&identity, &anchors)?,
            roles: identity.peer().roles,
            bound_uuid: identity.peer().bound_uuid,
            server_names: anchors.server_names().to_vec(),
            anchors,
        })
    }
}

impl LastRead {
    /// What is in the files now; where they cannot be used, what was in them before, which is logged.
    ///
    /// # Errors
    /// They cannot be used, and nothing was read before.
    pub fn or_now(&self, files: &ClientFiles) -> Result<ClientCredentials, TlsError> {
        let last = self.0.lock().clone();
        let now = files.read().and_then(|now| match &last {
            Some(last) => now.anchors.check_follow(&last.anchors).map(|()| now),
            None => Ok(now),
        });
        match (now, last) {
            (Ok(now), _) => {
                *self.0.lock() = Some(now.clone());
                Ok(now)
            }
            (Err(mistake), Some(last)) => {
                warn_of(&mistake);
                Ok(last)
            }
            (Err(mistake), None) => Err(mistake),
        }
    }
}

impl ClientTls {
    /// These files, of which the start has read this: each dial reads them again. A certificate that lacks a role that is
    /// `needed`, or is another node's, is a mistake, because the scheduler would refuse it for good.
    #[must_use]
    pub fn of_files(files: ClientFiles, first: ClientCredentials, needed: Role) -> Self {
        Self(Source::Files {
            files: Arc::new(files),
            needed,
            last: Arc::new(Mutex::new(first)),
        })
    }

    /// What to dial with now, as the node with this UUID where it is one.
    pub async fn at_dial(&self, own: Option<Uuid>) -> Arc<ClientConfig> {
        let (files, needed, last) = match &self.0 {
            Source::Fixed(tls) => return Arc::clone(tls),
            Source::Files {
                files,
                needed,
                last,
            } => (Arc::clone(files), *needed, last),
        };
        // Files may be on a disk that is slow to answer.
        let before = last.lock().anchors.clone();
        let read = spawn_blocking(move || {
            let now = read_for(&files, needed, own)?;
            now.anchors.check_follow(&before)?;
            Ok::<_, Unfit>(now)
        })
        .await;
        match read {
            Ok(Ok(now)) => *last.lock() = now,
            Ok(Err(mistake)) => warn_of(&mistake),
            Err(panicked) => warn_of(&panicked),
        }
        Arc::clone(&last.lock().tls)
    }
}

impl From<Arc<ClientConfig>> for ClientTls {
    /// The same for each dial.
    fn from(tls: Arc<ClientConfig>) -> Self {
        Self(Source::Fixed(tls))
    }
}

/// Reads the files for a client that claims these roles and this UUID.
fn read_for(
    files: &ClientFiles,
    needed: Role,
    own: Option<Uuid>,
) -> Result<ClientCredentials, Unfit> {
    let now = files.read()?;
    let path = || files.cert.clone();
    if !now.roles.contains(needed) {
        return Err(Unfit::Role {
            path: path(),
            granted: now.roles,
            needed,
        });
    }
    match (now.bound_uuid, own) {
        (Some(bound), Some(own)) if bound != own => Err(Unfit::Uuid {
            path: path(),
            bound,
            own,
        }),
        _ => Ok(now),
    }
}

fn warn_of(mistake: &impl std::fmt::Display) {
    warn!(
        event = "certificates_unusable",
        "the certificates cannot be read again, and this connection is made with those that were read before: {mistake}"
    );
}
