//! The CA file: whose certificates are believed, and where they say the scheduler is; and with it the revocation lists of
//! those CAs.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proto_frames::Role;
use rustls::CertificateError;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, TrustAnchor, UnixTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::X509Certificate;

use crate::net::identity::{self, IdentityError};
use crate::net::tls::authority::{CaId, check_signature};
use crate::net::tls::crl::{self, Authority, CrlError};
use crate::net::tls::error::TlsError;
use crate::net::tls::revocation::{Crls, PeerChain, Revocation, StaleCrls};
use crate::net::tls::verify::ChainVerifier;
use crate::net::tls::{Validity, file_name, key_kind, pem, read};

/// Certificates of a chain that are looked at, the leaf included: as many as `webpki` follows.
const MAX_CHAIN: usize = 7;

/// A certificate that a peer has sent, and what is in it.
type Presented<'a> = (&'a [u8], X509Certificate<'a>);

/// Who has signed a certificate.
enum Issuer<'a> {
    /// A CA of the CA file.
    Anchor(CaId),
    /// One whose certificate came along.
    Below(&'a Presented<'a>),
}

/// The files that say whose certificates are believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFiles {
    /// The CA certificates.
    pub ca: PathBuf,
    /// Files with revocation lists, and directories of such. Without any, nothing is revoked.
    pub crls: Vec<PathBuf>,
    /// What is done about a list that goes out of date while it is in use.
    pub stale_crls: StaleCrls,
}

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
    /// Empty without `--crl`.
    pub(super) crls: Arc<Crls>,
}

/// One certificate of the CA file, taken apart once.
#[derive(Debug, Clone)]
pub(super) struct TrustedCertificate {
    /// Compared with a leaf that is the anchor itself.
    pub(super) der: CertificateDer<'static>,
    /// Its subject, key and name constraints, as `webpki` takes them; its validity is not among them.
    pub(super) trust: TrustAnchor<'static>,
    /// Its name and key.
    pub(super) id: CaId,
    /// Who has signed it, if that is known: mostly itself.
    pub(super) issuer: Option<CaId>,
    pub(super) serial: Box<[u8]>,
    /// Its subject in DER form, as certificates have it as issuer.
    subject: Box<[u8]>,
    /// Whether a revocation list has it: then it neither signs nor is presented.
    pub(super) is_revoked: bool,
    pub(super) validity: Validity,
    /// The roles that it may pass on.
    pub(super) limit: Role,
    /// What its key is, where no signature of that kind is accepted.
    pub(super) unusable_key: Option<String>,
}

impl TrustFiles {
    /// A CA file, and nothing is revoked.
    #[must_use]
    pub fn without_crls(ca: PathBuf) -> Self {
        Self {
            ca,
            crls: Vec::new(),
            stale_crls: StaleCrls::default(),
        }
    }
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
            let (anchor, its_names) = TrustedCertificate::from_der(der, path)?;
            anchors.push(anchor);
            names.extend(its_names);
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
            crls: Arc::default(),
        })
    }

    /// As [`super::load_trust`], at this time.
    ///
    /// # Errors
    /// As [`super::load_trust`].
    pub fn load(files: &TrustFiles, now: UnixTime) -> Result<Self, TlsError> {
        let anchors = Self::from_pem(&read(&files.ca)?, &files.ca, now)?;
        match &*files.crls {
            [] => Ok(anchors),
            crls => anchors.with_crls(crls, files.stale_crls, now),
        }
    }

    /// The same with these revocation lists, each held against its CA's key.
    fn with_crls(
        self,
        paths: &[PathBuf],
        stale: StaleCrls,
        now: UnixTime,
    ) -> Result<Self, TlsError> {
        let found = crl::read_all(paths)?;
        let below = found.certificates.iter();
        let authorities = self.authorities(below.map(|(path, der)| (&**path, der)))?;
        let mut verified = Vec::new();
        for list in found.lists {
            let files = (list.path.clone(), self.path.clone());
            let refused = |source| TlsError::Crl {
                path: list.path.clone(),
                line: list.line,
                source,
            };
            verified.push(crl::verify(&list.der, files, &authorities, now).map_err(refused)?);
        }
        let issuers: Vec<_> = self
            .anchors
            .iter()
            .map(|anchor| anchor.find_issuer(&authorities))
            .collect();
        self.revoked_by(Crls::new(verified, stale), issuers)
    }

    /// Marks the anchors that are revoked themselves.
    fn revoked_by(self, mut crls: Crls, issuers: Vec<Option<CaId>>) -> Result<Self, TlsError> {
        let mut anchors = Vec::new();
        let mut left = HashSet::new();
        for (anchor, issuer) in self.anchors.iter().zip(issuers) {
            let link = issuer.map(|it| it.certificate(&anchor.serial));
            let is_revoked = link.is_some_and(|it| crls.revocation(it).is_some());
            if !is_revoked {
                left.insert(anchor.id);
            }
            anchors.push(TrustedCertificate {
                issuer,
                is_revoked,
                ..anchor.clone()
            });
        }
        for anchor in anchors.iter().filter(|it| !left.contains(&it.id)) {
            if let Some(issuer) = anchor.issuer {
                crls.revoke_anchor(anchor.id, issuer.certificate(&anchor.serial));
            }
        }
        if left.is_empty() {
            let revocation = anchors.first().and_then(|it| crls.revocation(it.id.link()));
            return Err(TlsError::Crl {
                path: revocation.map(|it| it.list).unwrap_or_default(),
                line: None,
                source: CrlError::RevokesAll { ca: self.path },
            });
        }
        Ok(Self {
            anchors: anchors.into(),
            crls: Arc::new(crls),
            ..self
        })
    }

    /// The anchors, and the CAs among these certificates that are signed by one or by another of these.
    fn authorities<'a>(
        &'a self,
        below: impl Iterator<Item = (&'a Path, &'a CertificateDer<'a>)>,
    ) -> Result<Vec<Authority<'a>>, TlsError> {
        let mut authorities = Vec::new();
        for anchor in self.anchors.iter() {
            let x509 = identity::parse(&anchor.der);
            authorities.extend(x509.ok().map(|x509| Authority {
                x509,
                id: anchor.id,
                anchor: anchor.id,
            }));
        }
        let mut waiting: Vec<_> = below.collect();
        // Each pass takes those whose issuer is there, in whatever order they stand.
        loop {
            let before = waiting.len();
            let mut still = Vec::new();
            for (path, der) in waiting {
                let x509 = identity::parse(der).map_err(|source| TlsError::Identity {
                    path: path.into(),
                    source,
                })?;
                match issuer_among(&x509, der, &authorities) {
                    Some(anchor) if x509.is_ca() => authorities.push(Authority {
                        id: CaId::of(&x509),
                        anchor,
                        x509,
                    }),
                    _ => still.push((path, der)),
                }
            }
            waiting = still;
            match waiting.first() {
                None => return Ok(authorities),
                Some((path, der)) if waiting.len() == before => {
                    let x509 = identity::parse(der);
                    return Err(TlsError::Crl {
                        path: (*path).into(),
                        line: None,
                        source: CrlError::StrayCertificate {
                            subject: x509
                                .map(|it| identity::shown(it.subject()))
                                .unwrap_or_default(),
                            ca: self.path.clone(),
                        },
                    });
                }
                Some(_) => {}
            }
        }
    }

    /// What a session keeps of a chain that was verified against these anchors: each of its certificates and the anchor.
    /// `presented` is what the peer sent, its own certificate first.
    #[must_use]
    pub fn chain(&self, presented: &[CertificateDer<'_>]) -> PeerChain {
        let Some(leaf) = presented.first() else {
            return PeerChain::default();
        };
        if let Some(anchor) = self.anchors.iter().find(|it| it.der == *leaf) {
            let link = anchor.issuer.map(|it| it.certificate(&anchor.serial));
            return PeerChain(link.into_iter().collect());
        }
        let presented = &presented[..presented.len().min(MAX_CHAIN)];
        let certificates: Vec<Presented<'_>> = presented
            .iter()
            .filter_map(|der| Some((&**der, identity::parse(der).ok()?)))
            .collect();
        let mut links = Vec::new();
        let mut next = certificates.first();
        while let Some(certificate) = next.take()
            && links.len() < MAX_CHAIN
        {
            let serial = certificate.1.raw_serial();
            match self.issuer(certificate, &certificates) {
                Some(Issuer::Anchor(ca)) => {
                    links.extend([ca.certificate(serial), ca.link()]);
                }
                Some(Issuer::Below(ca)) => {
                    links.push(CaId::of(&ca.1).certificate(serial));
                    next = Some(ca);
                }
                None => {}
            }
        }
        PeerChain(links.into())
    }

    /// Who of the anchors and of the certificates that came along has signed one of the latter. Only where several have
    /// the issuer's name does that take a signature: that one of them has signed it was verified in the handshake.
    fn issuer<'a>(
        &self,
        (der, x509): &Presented<'a>,
        presented: &'a [Presented<'a>],
    ) -> Option<Issuer<'a>> {
        let name = x509.issuer().as_raw();
        let anchors = self.anchors.iter();
        let anchors = anchors.filter(|it| !it.is_revoked && *it.subject == *name);
        let anchors: Vec<_> = anchors.collect();
        let below = presented.iter().skip(1);
        let below: Vec<_> = below
            .filter(|(_, it)| it.subject().as_raw() == name)
            .collect();
        let keys: HashSet<_> = anchors.iter().map(|it| it.id).collect();
        let is_sole = keys.len() + below.len() == 1;
        let has_signed = |ca: &X509Certificate<'_>| is_sole || check_signature(ca, der).is_ok();
        let anchor = anchors
            .into_iter()
            .find(|it| identity::parse(&it.der).is_ok_and(|ca| has_signed(&ca)));
        if let Some(anchor) = anchor {
            return Some(Issuer::Anchor(anchor.id));
        }
        let ca = below.into_iter().find(|(_, ca)| has_signed(ca));
        ca.map(Issuer::Below)
    }

    /// Whether one of these has signed a certificate, whatever else is to be said of it.
    #[must_use]
    pub fn have_signed(&self, certificate: &CertificateDer<'_>) -> bool {
        self.anchors.iter().any(|it| it.has_signed(certificate))
    }

    /// What revokes a certificate of this chain, or its anchor, if anything does. Cheap: a look into a table for each.
    #[must_use]
    pub fn revocation(&self, chain: &PeerChain) -> Option<Revocation> {
        chain.0.iter().find_map(|link| self.crls.revocation(*link))
    }

    /// Whether there are revocation lists at all.
    #[must_use]
    pub fn has_crls(&self) -> bool {
        !self.crls.is_empty()
    }

    /// The file of each revocation list, and when it ends, in seconds of Unix time; the first to end first.
    #[must_use]
    pub fn crl_expiries(&self) -> Vec<(String, i64)> {
        self.crls.expiries()
    }

    /// Whether these may take the place of `earlier` ones while the program runs: a CA that stays keeps its revocation
    /// list, and gets no older one, since both would let in again what is revoked.
    ///
    /// # Errors
    /// [`TlsError::Crl`]: which list is missing or older.
    pub fn check_follow(&self, earlier: &Self) -> Result<(), TlsError> {
        let is_anchor = |ca| self.anchors.iter().any(|it| it.id == ca);
        self.crls.check_follow(&earlier.crls, is_anchor)
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
        self.verify_chain(leaf, &[], now)
    }

    /// As [`TrustAnchors::verify`], with intermediates.
    ///
    /// # Errors
    /// Why it is not.
    pub fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), CertificateError> {
        let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
        ChainVerifier {
            anchors: self.clone(),
            algorithms,
        }
        .verify(leaf, intermediates, now)
    }
}

impl TrustedCertificate {
    /// One certificate of the CA file at `path`, and the names in it.
    fn from_der(
        der: CertificateDer<'static>,
        path: &Path,
    ) -> Result<(Self, Vec<String>), TlsError> {
        let damaged = |source| TlsError::Identity {
            path: path.into(),
            source,
        };
        let x509 = identity::parse(&der).map_err(damaged)?;
        if !x509.is_ca() {
            return Err(TlsError::NotACa { path: path.into() });
        }
        let names = server_names(&x509);
        let malformed = |error: webpki::Error| {
            let unknown = identity::unknown_critical_extensions(&x509);
            damaged(unknown.unwrap_or_else(|| IdentityError::Malformed(error.to_string())))
        };
        let id = CaId::of(&x509);
        let anchor = Self {
            trust: webpki::anchor_from_trusted_cert(&der)
                .map_err(malformed)?
                .to_owned(),
            id,
            issuer: (x509.issuer().as_raw() == x509.subject().as_raw()).then_some(id),
            serial: x509.raw_serial().into(),
            subject: x509.subject().as_raw().into(),
            is_revoked: false,
            validity: Validity::of(&x509),
            limit: identity::limit_of_anchor(&x509).map_err(damaged)?,
            unusable_key: key_kind::unusable_public(x509.public_key()),
            der: der.clone(),
        };
        Ok((anchor, names))
    }

    /// Whether it has the name and the key of this one.
    pub(super) fn is(&self, anchor: &TrustAnchor<'_>) -> bool {
        self.trust.subject == anchor.subject
            && self.trust.subject_public_key_info == anchor.subject_public_key_info
    }

    /// Whether it has signed a certificate, whatever else is to be said of that.
    pub(super) fn has_signed(&self, certificate: &CertificateDer<'_>) -> bool {
        let parsed = (identity::parse(&self.der), identity::parse(certificate));
        let (Ok(ca), Ok(x509)) = parsed else {
            return false;
        };
        *self.subject == *x509.issuer().as_raw() && check_signature(&ca, certificate).is_ok()
    }

    /// Who has signed it: itself, or one of these.
    fn find_issuer(&self, authorities: &[Authority<'_>]) -> Option<CaId> {
        let x509 = identity::parse(&self.der).ok()?;
        let of_name = |it: &&Authority<'_>| it.x509.subject().as_raw() == x509.issuer().as_raw();
        let mut named = authorities.iter().filter(of_name);
        let signer = named.find(|it| check_signature(&it.x509, &self.der).is_ok());
        signer.map(|it| it.id).or(self.issuer)
    }
}

/// The anchor above a certificate, if one of these has signed it.
fn issuer_among(
    x509: &X509Certificate<'_>,
    der: &[u8],
    authorities: &[Authority<'_>],
) -> Option<CaId> {
    let of_name = |it: &&Authority<'_>| it.x509.subject().as_raw() == x509.issuer().as_raw();
    let mut named = authorities.iter().filter(of_name);
    let signer = named.find(|it| check_signature(&it.x509, der).is_ok())?;
    Some(signer.anchor)
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
