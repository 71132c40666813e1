//! The certificate verifiers behind the TLS configurations.
//!
//! SSNTP certificates carry `anyExtendedKeyUsage` and role OIDs instead of `clientAuth`/`serverAuth`, and the
//! original's trust anchor is CA and server certificate in one; the stock verifiers refuse both. These check the chain
//! with `rustls-webpki`, leave the handshake's signatures to the provider, and demand a role of the leaf that every CA
//! above it may pass on.
//!
//! ```text
//! leaf ─ is it an anchor, in time? ───────────────────────────── is any revoked? ─▶ accepted (the original's server
//!      └ webpki: a path to an anchor in time ─ limits of its CAs ─ is any revoked? ─▶ accepted           certificate)
//! then:  a server asks for any role, a client for SCHEDULER and the name it dialled
//! ```
//!
//! Revocation is looked at here, on each path that `webpki` finds, rather than by `webpki`: of several lists whose issuer
//! has the name that is looked for it takes the first, which in a roll-over is another key's, and it passes over a path
//! without a list of that name. Here each certificate of the path is held against the list of the key that has signed
//! it ([`super::revocation`]); that each list is signed by that key was verified when it was read.

use std::cell::Cell;
use std::sync::Arc;

use proto_frames::Role;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, OtherError, SignatureScheme,
};
use webpki::{EndEntityCert, ExtendedKeyUsageValidator, KeyPurposeIdIter, VerifiedPath};

use crate::net::identity::{self, IdentityError};
use crate::net::tls::anchors::TrustedCertificate;
use crate::net::tls::authority::CaId;
use crate::net::tls::key_kind::USABLE;
use crate::net::tls::{Nameless, TrustAnchors};

/// The server's certificate does not say that it is a scheduler.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server's certificate does not grant the SCHEDULER role (it grants {0}); is this address a scheduler?"
)]
struct NotAScheduler(Role);

/// A certificate grants roles that a CA above it may not pass on. Without this check the CA of one team could make
/// schedulers.
#[derive(Debug, thiserror::Error)]
#[error("it grants {granted}, and a CA above it is limited to {limit} by its extended key usage")]
struct BeyondItsIssuer {
    /// What the leaf grants.
    granted: Role,
    /// What the CAs above it may pass on together.
    limit: Role,
}

/// A CA below an anchor is presented as a peer's certificate. Its key is for signing, and is not to be on a node.
#[derive(Debug, thiserror::Error)]
#[error("it is a CA's, which is for signing alone; make one for the peer (ciao-cert -role)")]
struct CaOfPeer;

/// The CA that has signed it has a key of a kind whose signatures are not accepted.
#[derive(Debug, thiserror::Error)]
#[error("it is signed by a CA with {0}; a CA's key is {USABLE}")]
struct UnusableCa(String);

/// Checks chains against the configured anchors. Knows nothing of what the certificate is used for.
#[derive(Debug, Clone)]
pub(super) struct ChainVerifier {
    pub(super) anchors: TrustAnchors,
    /// The signatures that are taken in chains and handshakes: the provider's.
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

/// What a server asks of its clients' certificates: chain, validity, at least one role; and whether a client may show
/// none at all.
#[derive(Debug)]
pub(super) struct PeerVerifier(pub(super) ChainVerifier, pub(super) Nameless);

/// What a client asks of its server's certificate: chain, validity, name, the scheduler's role.
#[derive(Debug)]
pub(super) struct SchedulerVerifier(pub(super) ChainVerifier);

/// Accepts any extended key usage: which one a peer needs is its role, checked on the leaf alone. (A validator is also
/// asked about intermediates, so the role cannot be demanded here.)
struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, mut usages: KeyPurposeIdIter<'_, '_>) -> Result<(), webpki::Error> {
        usages.try_for_each(|usage| usage.map(drop))
    }
}

impl ChainVerifier {
    /// Whether `leaf` is an anchor itself or chains to one, at this time, by CAs that may all pass on the leaf's roles.
    /// Intermediates are taken from what the peer sent, which is not trusted: each must be signed on the way to an
    /// anchor.
    ///
    /// # Errors
    /// As specific as can be: an anchor out of time where none is in time, a CA's limit where that was in the way, else
    /// what `webpki` says.
    pub(super) fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let mut in_time = Vec::new();
        let mut out_of_time = CertificateError::UnknownIssuer;
        for anchor in self.anchors.anchors.iter() {
            match anchor.validity.check(now) {
                Ok(()) if anchor.der == *leaf => return self.check_anchor(anchor, now),
                Ok(()) if anchor.is_revoked => out_of_time = CertificateError::Revoked,
                Ok(()) => in_time.push(anchor.trust.clone()),
                Err(error) => out_of_time = error,
            }
        }
        if in_time.is_empty() {
            return Err(out_of_time);
        }
        let granted = leaf_roles(leaf)?;
        let is_self_signed = identity::parse(leaf).is_ok_and(|it| it.issuer() == it.subject());
        let certificate = leaf;
        let leaf = EndEntityCert::try_from(leaf)
            .map_err(|reason| error_of(reason, certificate, intermediates))?;
        // Of several paths to an anchor, one that may pass on the roles and has nothing revoked is enough. What was in the
        // way is noted here, because `webpki` has no error for it.
        let refused = Cell::new(None);
        let verify_path = |path: &VerifiedPath<'_>| {
            if let Err(reason) = self.check_revocation(certificate, path, now) {
                refused.set(Some(reason));
                return Err(webpki::Error::CertRevoked);
            }
            let limit = self.limit_of(path)?;
            if limit.contains(granted) {
                return Ok(());
            }
            refused.set(Some(other(BeyondItsIssuer { granted, limit })));
            Err(webpki::Error::UnknownIssuer)
        };
        let verified = leaf.verify_for_usage(
            self.algorithms.all,
            &in_time,
            intermediates,
            now,
            AnyUsage,
            None,
            Some(&verify_path),
        );
        match (verified, refused.take()) {
            (Ok(_), _) => Ok(()),
            (Err(_), Some(reason)) => Err(reason),
            // Another cluster's scheduler presents its own anchor, which no CA has signed.
            (Err(webpki::Error::CaUsedAsEndEntity), None) if is_self_signed => {
                Err(CertificateError::UnknownIssuer)
            }
            (Err(_), None) if self.is_of_revoked_anchor(certificate) => {
                Err(CertificateError::Revoked)
            }
            (Err(reason), None) => Err(match self.unusable_issuer(certificate) {
                Some(kind) => other(UnusableCa(kind)),
                None => error_of(reason, certificate, intermediates),
            }),
        }
    }

    /// Holds an anchor that a peer presents as its own certificate against the list of who has signed it, which mostly is
    /// itself.
    fn check_anchor(
        &self,
        anchor: &TrustedCertificate,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let crls = &self.anchors.crls;
        let issuer = anchor.issuer;
        issuer.map_or(Ok(()), |ca| crls.check(ca, &anchor.serial, now))
    }

    /// Whether an anchor has signed a certificate that is no longer believed because it is revoked.
    fn is_of_revoked_anchor(&self, certificate: &CertificateDer<'_>) -> bool {
        let anchors = self.anchors.anchors.iter();
        let mut revoked = anchors.filter(|anchor| anchor.is_revoked);
        revoked.any(|anchor| anchor.has_signed(certificate))
    }

    /// Holds the leaf and each CA below the anchor against the list of the CA above it, where that has one.
    fn check_revocation(
        &self,
        leaf: &CertificateDer<'_>,
        path: &VerifiedPath<'_>,
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let crls = &self.anchors.crls;
        if crls.is_empty() {
            return Ok(());
        }
        let damaged = |_| CertificateError::BadEncoding;
        let mut serial = identity::parse(leaf)
            .map_err(damaged)?
            .raw_serial()
            .to_vec();
        for ca in path.intermediate_certificates() {
            let der = ca.der();
            let x509 = identity::parse(&der).map_err(damaged)?;
            crls.check(CaId::of(&x509), &serial, now)?;
            serial = x509.raw_serial().to_vec();
        }
        let top = path.anchor();
        let top = self.anchors.anchors.iter().find(|known| known.is(top));
        let top = top.ok_or(CertificateError::UnknownIssuer)?;
        crls.check(top.id, &serial, now)
    }

    /// What the key of the anchor is that a certificate names as its issuer, where no signature of it is accepted.
    fn unusable_issuer(&self, certificate: &CertificateDer<'_>) -> Option<String> {
        let x509 = identity::parse(certificate).ok()?;
        let mut anchors = self.anchors.anchors.iter();
        let issuer = anchors.find(|anchor| {
            let ca = identity::parse(&anchor.der);
            ca.is_ok_and(|ca| ca.subject() == x509.issuer())
        });
        issuer?.unusable_key.clone()
    }

    /// The roles that all CAs of a path together may pass on. An anchor's roles are those of all entries of the CA file
    /// with its subject and key together; then each intermediate narrows them.
    fn limit_of(&self, path: &VerifiedPath<'_>) -> Result<Role, webpki::Error> {
        let anchor = path.anchor();
        // One certificate of the CA file may be there in several versions; each says what it may pass on.
        let of_anchor = self.anchors.anchors.iter();
        let of_anchor = of_anchor.filter(|known| !known.is_revoked && known.is(anchor));
        let mut limit = of_anchor.fold(Role::default(), |all, known| all | known.limit);
        for ca in path.intermediate_certificates() {
            let der = ca.der();
            let x509 = identity::parse(&der).map_err(|_| webpki::Error::BadDer)?;
            let own = identity::limit_of_issuer(&x509).map_err(|_| webpki::Error::BadDer)?;
            limit = Role(limit.0 & own.0);
        }
        Ok(limit)
    }
}

/// The methods about the handshake's signatures, which both traits of `rustls` have: the provider checks them.
macro_rules! signatures_by_the_provider {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls12_signature(message, cert, dss, &self.0.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(message, cert, dss, &self.0.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.0.algorithms.supported_schemes()
        }
    };
}

impl ClientCertVerifier for PeerVerifier {
    /// Asked of the handshake alone: what a client without a certificate may do is for who serves it.
    fn client_auth_mandatory(&self) -> bool {
        self.1 == Nameless::Refused
    }

    /// None: with hints, a client whose certificate does not match them sends none at all, and neither side learns why
    /// it was refused.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.0.verify(end_entity, intermediates, now)?;
        match leaf_roles(end_entity)? {
            Role(0) => Err(other(IdentityError::NoRole).into()),
            _ => Ok(ClientCertVerified::assertion()),
        }
    }

    signatures_by_the_provider!();
}

impl ServerCertVerifier for SchedulerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.0.verify(end_entity, intermediates, now)?;
        let leaf = rustls::server::ParsedCertificate::try_from(end_entity)?;
        rustls::client::verify_server_name(&leaf, server_name)?;
        let roles = leaf_roles(end_entity)?;
        if !roles.contains(Role::SCHEDULER) {
            return Err(other(NotAScheduler(roles)).into());
        }
        Ok(ServerCertVerified::assertion())
    }

    signatures_by_the_provider!();
}

/// The roles that a leaf grants; none is no error here.
fn leaf_roles(leaf: &CertificateDer<'_>) -> Result<Role, CertificateError> {
    let x509 = identity::parse(leaf).map_err(|_| CertificateError::BadEncoding)?;
    identity::roles(&x509).map_err(|_| CertificateError::BadEncoding)
}

/// An error of this file within rustls's type; [`super::explain()`] shows its text.
fn other(error: impl std::error::Error + Send + Sync + 'static) -> CertificateError {
    CertificateError::Other(OtherError(Arc::new(error)))
}

/// As [`error`], for this chain: a critical extension is named.
fn error_of(
    reason: webpki::Error,
    leaf: &CertificateDer<'_>,
    intermediates: &[CertificateDer<'_>],
) -> CertificateError {
    if matches!(reason, webpki::Error::UnsupportedCriticalExtension) {
        for der in std::iter::once(leaf).chain(intermediates) {
            let x509 = identity::parse(der).ok();
            let unknown = x509.and_then(|it| identity::unknown_critical_extensions(&it));
            if let Some(unknown) = unknown {
                return other(unknown);
            }
        }
    }
    error(reason)
}

/// The alert and the words a failed chain becomes; what has no name of its own keeps its text.
fn error(error: webpki::Error) -> CertificateError {
    match error {
        webpki::Error::BadDer | webpki::Error::BadDerTime => CertificateError::BadEncoding,
        webpki::Error::CertExpired { time, not_after } => {
            CertificateError::ExpiredContext { time, not_after }
        }
        webpki::Error::CertNotValidYet { time, not_before } => {
            CertificateError::NotValidYetContext { time, not_before }
        }
        webpki::Error::UnknownIssuer => CertificateError::UnknownIssuer,
        webpki::Error::InvalidSignatureForPublicKey => CertificateError::BadSignature,
        webpki::Error::UnsupportedCriticalExtension => CertificateError::UnhandledCriticalExtension,
        webpki::Error::CaUsedAsEndEntity => other(CaOfPeer),
        unnamed => other(unnamed),
    }
}
