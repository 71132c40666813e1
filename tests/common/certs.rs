//! Certificates made on the spot, so that no test depends on files with keys or on the date.

#![allow(dead_code, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{Anchor, Spec};
use ciao_scheduler::net::tls::{Identity, TrustAnchors, client_config, server_config};
use proto_frames::Role;
use rustls::pki_types::UnixTime;
use rustls::{ClientConfig, ServerConfig};

/// A certificate authority for one test; its anchor is also the scheduler's certificate.
pub(crate) struct TestCa {
    /// The anchor, for whatever the shorthands do not cover.
    pub(crate) anchor: Anchor,
}

impl TestCa {
    /// A new one, for localhost, with ECDSA keys.
    pub(crate) fn new() -> Self {
        Self::with(&Spec::localhost(Role::SCHEDULER))
    }

    /// A new one with an anchor of this specification.
    pub(crate) fn with(spec: &Spec) -> Self {
        Self {
            anchor: Anchor::new(spec).unwrap(),
        }
    }

    /// What peers trust.
    pub(crate) fn anchors(&self) -> TrustAnchors {
        TrustAnchors::from_pem(
            self.anchor.ca_pem().as_bytes(),
            Path::new("CAcert.pem"),
            UnixTime::now(),
        )
        .unwrap()
    }

    /// A certificate with key.
    pub(crate) fn identity(&self, spec: &Spec) -> Identity {
        identity(self.anchor.sign(spec).unwrap().pem())
    }

    /// The scheduler's end, presenting the anchor as the original does.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        server_config(&identity(self.anchor.certified().pem()), &self.anchors()).unwrap()
    }

    /// A client's end.
    pub(crate) fn client(&self, roles: Role) -> Arc<ClientConfig> {
        self.client_with(&Spec::localhost(roles))
    }

    /// A client's end with a certificate of this specification.
    pub(crate) fn client_with(&self, spec: &Spec) -> Arc<ClientConfig> {
        client_config(&self.identity(spec), &self.anchors()).unwrap()
    }

    /// Writes `CAcert.pem` and `scheduler.pem`, and `NAME.pem` for each of `leaves`, for programs that read files.
    pub(crate) fn write(&self, dir: &Path, leaves: &[(&str, Role)]) {
        std::fs::write(dir.join("CAcert.pem"), self.anchor.ca_pem()).unwrap();
        write_private(&dir.join("scheduler.pem"), self.anchor.certified().pem());
        for (name, roles) in leaves {
            let leaf = self.anchor.sign(&Spec::localhost(*roles)).unwrap();
            write_private(&dir.join(format!("{name}.pem")), leaf.pem());
        }
    }
}

/// Writes a file that its owner alone can read: of a key that others can read there is a warning.
pub(crate) fn write_private(path: &Path, contents: &str) {
    std::fs::write(path, contents).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

/// Puts another certificate of these roles in the place of a file, by a rename; it ends in so many days. When that is, in
/// seconds of Unix time.
pub(crate) fn renew(anchor: &Anchor, path: &Path, roles: Role, days: u64) -> i64 {
    let lifetime = Duration::from_secs(days * 86_400);
    let not_before = SystemTime::now() - Duration::from_secs(3600);
    let spec = Spec {
        not_before,
        lifetime,
        ..Spec::localhost(roles)
    };
    let next = path.with_extension("next");
    write_private(&next, anchor.sign(&spec).unwrap().pem());
    std::fs::rename(next, path).unwrap();
    let ends = not_before + lifetime;
    let ends = ends.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(ends.as_secs()).unwrap()
}

/// Certificate and key from PEM text.
pub(crate) fn identity(pem: &str) -> Identity {
    Identity::from_pem(pem.as_bytes(), Path::new("cert.pem"), UnixTime::now()).unwrap()
}
