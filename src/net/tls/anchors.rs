//! The CA file: whose certificates are believed, and where they say the scheduler is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto_frames::Role;
use rustls::CertificateError;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::net::identity::{self, IdentityError};
use crate::net::tls::error::TlsError;
use crate::net::tls::verify::ChainVerifier;
use crate::net::tls::{Validity, file_name, key_kind, pem};

/// The certificates that may sign peers' certificates. Cheap to clone. One is enough for a cluster; several serve while
/// a CA is replaced.
#[derive(Debug, Clone)]
pub struct TrustAnchors {
    /// Its file, for messages.
    pub(super) path: PathBuf,
    /// At least one, in the order of the file; one of them at least was in time when it was read.
    pub(super) anchors: Arc<[TrustedCertificate]>,
    /// See [`TrustAnchors::server_names`].
    names: Vec<String>,
}

/// One certificate of the CA file, taken apart once.
#[derive(Debug)]
pub(super) struct TrustedCertificate {
    /// Compared with a leaf that is the anchor itself.
    pub(super) der: CertificateDer<'static>,
    /// Its subject, key and name constraints, as `webpki` takes them; its validity is not among them.
    pub(super) trust: TrustAnchor<'static>,
    pub(super) validity: Validity,
    /// The roles that it may pass on.
    pub(super) limit: Role,
    /// What its key is, where no signature of that kind is accepted.
    pub(super) unusable_key: Option<String>,
}

impl TrustAnchors {
    /// As [`super::load_anchors`], from the file's contents; `path` is for messages, `now` for the validity. One
    /// certificate that is no CA refuses the file: it would be believed by mistake.
    ///
    /// # Errors
    /// As [`super::load_anchors`].
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
            let limit = identity::limit_of_anchor(&x509).map_err(damaged)?;
            let unusable_key = key_kind::unusable_public(x509.public_key());
            let malformed = |error: webpki::Error| {
                let unknown = identity::unknown_critical_extensions(&x509);
                damaged(unknown.unwrap_or_else(|| IdentityError::Malformed(error.to_string())))
            };
            let trust = webpki::anchor_from_trusted_cert(&der)
                .map_err(malformed)?
                .to_owned();
            anchors.push(TrustedCertificate {
                der,
                trust,
                validity,
                limit,
                unusable_key,
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

    /// The name of their file, and when the first of them ends, in seconds of Unix time.
    #[must_use]
    pub fn expiry(&self) -> (String, i64) {
        let ends = self
            .anchors
            .iter()
            .map(|it| it.validity.not_after.as_secs());
        let first = ends.min().unwrap_or_default();
        (
            file_name(&self.path),
            i64::try_from(first).unwrap_or(i64::MAX),
        )
    }

    /// Whether servers' certificates may be signed by all of them, as OpenSSL sees it.
    pub(super) fn are_for_servers(&self) -> bool {
        self.anchors.iter().all(|anchor| {
            let x509 = identity::parse(&anchor.der);
            x509.is_ok_and(|x509| identity::may_sign_servers(&x509))
        })
    }

    /// Whether a certificate in DER form is one of these or is signed by one, at this time, without intermediates. For
    /// tools that check files; connections are checked with their intermediates.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify(&self, leaf: &CertificateDer<'_>, now: UnixTime) -> Result<(), CertificateError> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        ChainVerifier {
            anchors: self.clone(),
            algorithms,
        }
        .verify(leaf, &[], now)
    }
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
