//! Revocation lists: which are refused where they are read, and which certificates are held against which.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::crl::Reason;
use ciao_scheduler::cert::{Anchor, CertifiedPem, RevocationList, Spec};
use ciao_scheduler::net::tls::{CrlError, StaleCrls, TlsError, TrustAnchors, TrustFiles};
use proto_frames::Role;
use rcgen::{CertificateRevocationListParams, KeyIdMethod, RevokedCertParams, SerialNumber};
use rustls::pki_types::{CertificateDer, UnixTime};
use tempfile::TempDir;

#[path = "revocation/files.rs"]
mod files;
#[path = "revocation/handshakes.rs"]
mod handshakes;
#[path = "revocation/paths.rs"]
mod paths;

/// How long lists count here.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Files of one test, and what is read from them.
struct Files(TempDir);

impl Files {
    /// With a CA file of these anchors.
    fn new(anchors: &[&Anchor]) -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        files.set_anchors(anchors);
        files
    }

    fn set_anchors(&self, anchors: &[&Anchor]) {
        let pem: String = anchors.iter().map(|anchor| anchor.ca_pem()).collect();
        self.write("CAcert.pem", pem.as_bytes());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, contents: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, contents).unwrap();
    }

    /// With these lists, at this moment.
    fn load_at(
        &self,
        lists: &[&str],
        stale_crls: StaleCrls,
        now: UnixTime,
    ) -> Result<TrustAnchors, TlsError> {
        let files = TrustFiles {
            ca: self.path("CAcert.pem"),
            crls: lists.iter().map(|name| self.path(name)).collect(),
            stale_crls,
        };
        TrustAnchors::load(&files, now)
    }

    fn load(&self, lists: &[&str]) -> Result<TrustAnchors, TlsError> {
        self.load_at(lists, StaleCrls::Refuse, UnixTime::now())
    }

    /// Why a list is refused, and that its file is named.
    fn refusal(&self, list: &str) -> CrlError {
        match self.load(&[list]) {
            Err(TlsError::Crl { path, source, .. }) => {
                assert_eq!(path, self.path(list), "{source}");
                source
            }
            other => panic!("{other:?}"),
        }
    }
}

fn anchor() -> Anchor {
    Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap()
}

fn leaf(anchor: &Anchor, role: Role) -> CertifiedPem {
    anchor.sign(&Spec::localhost(role)).unwrap()
}

/// The serial number of a certificate, as it is written in it.
fn serial(der: &CertificateDer<'_>) -> Vec<u8> {
    let (_, x509) = x509_parser::parse_x509_certificate(der).unwrap();
    x509.raw_serial().to_vec()
}

/// An anchor's list of these certificates.
fn list(anchor: &Anchor, revoked: &[&CertifiedPem]) -> String {
    list_for(anchor, revoked, LIFETIME)
}

fn list_for(anchor: &Anchor, revoked: &[&CertifiedPem], lifetime: Duration) -> String {
    let mut list = RevocationList::default();
    for certificate in revoked {
        let serial = serial(certificate.der());
        assert!(list.revoke(&serial, SystemTime::now(), Reason::KeyCompromise));
    }
    list.sign(anchor, SystemTime::now(), lifetime).unwrap()
}

/// A list as another tool might make it: of these serial numbers, with this number, before it is signed.
fn foreign(number: u64, serials: &[&[u8]]) -> CertificateRevocationListParams {
    let now = rcgen::date_time_ymd(1970, 1, 1) + SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let revoked = serials.iter().map(|serial| RevokedCertParams {
        serial_number: SerialNumber::from_slice(serial),
        revocation_time: now,
        reason_code: None,
        invalidity_date: None,
    });
    CertificateRevocationListParams {
        this_update: now,
        next_update: now + LIFETIME,
        crl_number: SerialNumber::from(number),
        issuing_distribution_point: None,
        revoked_certs: revoked.collect(),
        key_identifier_method: KeyIdMethod::Sha256,
    }
}

/// So many seconds from now.
fn in_seconds(seconds: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs() + seconds))
}

/// Whether a message is about this file.
fn names(message: &str, path: &Path) -> bool {
    message.contains(&path.display().to_string())
}
