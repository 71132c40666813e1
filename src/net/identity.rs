//! Who a peer is, as its certificate says: the roles it grants and the UUID it is bound to, if any.
//!
//! Says nothing about whether the certificate is to be believed; that is [`crate::net::tls`]'s verifiers.
//!
//! Roles are object identifiers in the extended key usage, as ciao's tool puts them in: 1.3.6.1.4.1.343.8.n, one for
//! each role. A UUID is a URI in the alternative names: `urn:uuid:4cb19522-…`, added by this project.
//!
//! ```text
//! extended key usage   anyExtendedKeyUsage, 1.3.6.1.4.1.343.8.n        ─▶ roles
//! alternative names    DNS:node-7, URI:urn:uuid:4cb19522-…             ─▶ bound_uuid
//! ```

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use proto_frames::payload::cut::cut;
use proto_frames::{Role, Uuid};
use x509_parser::extensions::{ExtendedKeyUsage, GeneralName};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::X509Name;

/// The URI in a certificate's alternative names that binds it to a UUID begins so (RFC 9562).
const UUID_URN: &str = "urn:uuid:";

/// Bytes of a subject that are kept: enough to name a person, a team and a company. It is repeated in a log line of each
/// command, and a certificate may have some tens of kilobytes of it.
const MAX_SUBJECT_LEN: usize = 256;

/// Why a certificate names no peer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The bytes are no X.509 certificate, or an extension is damaged.
    #[error("malformed certificate: {0}")]
    Malformed(String),
    /// The extended key usage has none of the role OIDs.
    #[error("the certificate grants no role (no 1.3.6.1.4.1.343.8.n in its extended key usage)")]
    NoRole,
    /// It has a critical extension that nobody here understands, which must refuse it (RFC 5280, section 4.2). By OIDs.
    #[error(
        "it has a critical extension that is not understood here ({0}), so that it has to be refused; make one without it"
    )]
    CriticalExtension(String),
    /// A `urn:uuid:` name is no UUID, or there is more than one.
    #[error("the certificate's urn:uuid: name is malformed or there is more than one")]
    BadUuid,
}

/// What a certificate says of its holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerIdentity {
    /// Every role the holder may claim. The Controller OID grants [`Role::OPERATOR`] too.
    pub roles: Role,
    /// The only UUID the holder may claim, where the certificate names one.
    pub bound_uuid: Option<Uuid>,
    /// The subject, for logs: `O=ciao`. From the peer; at most `MAX_SUBJECT_LEN` bytes of it, in which what is not
    /// shown is escaped.
    pub subject: String,
    /// SHA-256 of the certificate's DER form: what `openssl x509 -fingerprint -sha256` shows, without colons.
    pub fingerprint: [u8; 32],
    /// When the certificate ends, seconds of Unix time.
    pub ends_at_s: i64,
}

impl PeerIdentity {
    /// Reads a certificate in DER form. Its text is not trusted: the subject is cut and escaped.
    ///
    /// # Errors
    /// [`IdentityError`]: it is no certificate, grants no role, or has a UUID that cannot be read.
    pub fn from_der(certificate: &[u8]) -> Result<Self, IdentityError> {
        let x509 = parse(certificate)?;
        let roles = roles(&x509)?;
        if roles.is_empty() {
            return Err(IdentityError::NoRole);
        }
        Ok(Self {
            roles,
            bound_uuid: bound_uuid(&x509)?,
            subject: shown(x509.subject()),
            fingerprint: fingerprint(certificate),
            ends_at_s: x509.validity().not_after.timestamp(),
        })
    }

    /// Whether the holder may claim these roles in CONNECT: at least one, and none beyond what is granted.
    #[must_use]
    pub fn may_claim(&self, roles: Role) -> bool {
        !roles.is_empty() && self.roles.contains(roles)
    }

    /// Whether the holder may claim this UUID in CONNECT: any, where the certificate is not bound to one.
    #[must_use]
    pub fn may_be(&self, uuid: Uuid) -> bool {
        self.bound_uuid.is_none_or(|bound| bound == uuid)
    }
}

impl fmt::Display for PeerIdentity {
    /// For logs: `O=ciao (AGENT|NETAGENT) sha256:1f2e3d4c`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = hex(&self.fingerprint[..4]);
        write!(f, "{} ({}) sha256:{head}", self.subject, self.roles)
    }
}

/// A subject or issuer for messages: cut, and what is not shown is escaped.
pub(crate) fn shown(name: &X509Name<'_>) -> String {
    cut(&name.to_string(), MAX_SUBJECT_LEN)
        .escape_debug()
        .to_string()
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(certificate: &[u8]) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
    bytes
}

/// Bytes as hexadecimal digits, in small letters.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The certificate's structure; nothing is verified by it.
///
/// # Errors
/// It is no certificate, or bytes follow it: then two readers could see different things in it.
pub(crate) fn parse(certificate: &[u8]) -> Result<X509Certificate<'_>, IdentityError> {
    match X509Certificate::from_der(certificate) {
        Ok(([], x509)) => Ok(x509),
        Ok(_) => Err(IdentityError::Malformed("bytes behind its end".to_owned())),
        Err(error) => Err(IdentityError::Malformed(error.to_string())),
    }
}

/// No limit on roles, those included that are not defined yet.
const EVERY_ROLE: Role = Role(u32::MAX);

/// Every role the extended key usage grants; may be none. Unknown numbers under the prefix grant nothing.
///
/// # Errors
/// The extension is damaged.
pub(crate) fn roles(x509: &X509Certificate<'_>) -> Result<Role, IdentityError> {
    Ok(usage(x509)?.map_or(Role::default(), roles_in))
}

/// The roles that an intermediate CA may pass on: those it has itself; every role where its extended key usage says
/// nothing or is for anything and names none; none where it is for other things alone, such as mail.
/// # Errors
/// The extension is damaged.
pub(crate) fn limit_of_issuer(x509: &X509Certificate<'_>) -> Result<Role, IdentityError> {
    Ok(
        usage(x509)?.map_or(EVERY_ROLE, |usage| match roles_in(usage) {
            Role(0) if usage.any => EVERY_ROLE,
            own => own,
        }),
    )
}

/// The roles that a trust anchor may pass on. The original's is the scheduler's own certificate as well, so that its
/// roles say what it is rather than what it may pass on: as long as it has `anyExtendedKeyUsage`, which the original
/// always puts in, it limits nothing.
pub(crate) fn limit_of_anchor(x509: &X509Certificate<'_>) -> Result<Role, IdentityError> {
    match usage(x509)? {
        Some(usage) if usage.any => Ok(EVERY_ROLE),
        _ => limit_of_issuer(x509),
    }
}

/// Whether a certificate says that it is for servers (`serverAuth`), as browsers demand.
pub(crate) fn is_for_servers(x509: &X509Certificate<'_>) -> bool {
    matches!(usage(x509), Ok(Some(usage)) if usage.server_auth)
}

/// Whether OpenSSL takes a CA for one that may sign servers' certificates: it says that it is for servers, or nothing.
pub(crate) fn may_sign_servers(x509: &X509Certificate<'_>) -> bool {
    matches!(usage(x509), Ok(None)) || is_for_servers(x509)
}

/// The critical extensions that the check of chains does not understand, as an error; `None` if there are none.
pub(crate) fn unknown_critical_extensions(x509: &X509Certificate<'_>) -> Option<IdentityError> {
    /// What `webpki` understands: key usage, alternative names, basic constraints, name constraints, distribution points,
    /// extended key usage.
    const KNOWN: [&str; 6] = [
        "2.5.29.15",
        "2.5.29.17",
        "2.5.29.19",
        "2.5.29.30",
        "2.5.29.31",
        "2.5.29.37",
    ];
    /// Most that are named. The certificate may be a peer's.
    const MAX: usize = 3;
    let critical = x509.extensions().iter().filter(|it| it.critical);
    let oids = critical.map(|it| it.oid.to_id_string());
    let unknown: Vec<_> = oids
        .filter(|oid| !KNOWN.contains(&&**oid))
        .take(MAX)
        .collect();
    (!unknown.is_empty()).then(|| IdentityError::CriticalExtension(unknown.join(", ")))
}

/// The extended key usage; `None` where there is none.
///
/// # Errors
/// It is damaged, or there is more than one.
fn usage<'x>(
    x509: &'x X509Certificate<'_>,
) -> Result<Option<&'x ExtendedKeyUsage<'x>>, IdentityError> {
    let usage = x509
        .extended_key_usage()
        .map_err(|error| IdentityError::Malformed(error.to_string()))?;
    Ok(usage.map(|usage| usage.value))
}

/// Every role that stands in it; that of a controller brings the operator's along.
fn roles_in(usage: &ExtendedKeyUsage<'_>) -> Role {
    let mut roles = Role::default();
    for oid in &usage.other {
        let Some(arcs) = oid.iter() else { continue };
        let arcs: Vec<u64> = arcs.collect();
        let Some(arc) = arcs
            .strip_prefix(&Role::OID_PREFIX)
            .filter(|rest| rest.len() == 1)
        else {
            continue;
        };
        roles |= Role::GRANTS
            .iter()
            .find(|(_, n, _)| *n == arc[0])
            .map(|grant| grant.0)
            .unwrap_or_default();
    }
    if roles.contains(Role::CONTROLLER) {
        roles |= Role::OPERATOR;
    }
    roles
}

/// The UUID in the alternative names, if there is one. The scheme is compared without regard to case.
///
/// # Errors
/// [`IdentityError::BadUuid`] for a UUID that cannot be read, or a second one: it is not to be chosen between them.
pub(crate) fn bound_uuid(x509: &X509Certificate<'_>) -> Result<Option<Uuid>, IdentityError> {
    let names = x509
        .subject_alternative_name()
        .map_err(|error| IdentityError::Malformed(error.to_string()))?;
    let mut bound = None;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        let GeneralName::URI(uri) = name else {
            continue;
        };
        let Some(head) = uri.get(..UUID_URN.len()) else {
            continue;
        };
        if !head.eq_ignore_ascii_case(UUID_URN) {
            continue;
        }
        let uuid = Uuid::try_parse(&uri[UUID_URN.len()..]).map_err(|_| IdentityError::BadUuid)?;
        if bound.replace(uuid).is_some() {
            return Err(IdentityError::BadUuid);
        }
    }
    Ok(bound)
}

#[cfg(test)]
mod tests {
    use proto_frames::{Role, Uuid};

    use super::{IdentityError, PeerIdentity};
    use crate::cert::{Anchor, Spec};

    fn signed(spec: &Spec) -> PeerIdentity {
        let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        PeerIdentity::from_der(anchor.sign(spec).unwrap().der()).unwrap()
    }

    #[test]
    fn a_controller_certificate_also_makes_an_operator() {
        let identity = signed(&Spec::localhost(Role::CONTROLLER));
        assert_eq!(identity.roles, Role::CONTROLLER | Role::OPERATOR);
        assert!(identity.may_claim(Role::OPERATOR));
        assert!(!identity.may_claim(Role::AGENT));
        assert!(!identity.may_claim(Role::CONTROLLER | Role::AGENT));
        assert!(
            !identity.may_claim(Role::default()),
            "no role at all is no claim"
        );
        assert_eq!(identity.bound_uuid, None);
        assert!(identity.may_be(Uuid::new_v4()));
    }

    #[test]
    fn a_bound_certificate_allows_its_own_uuid_only() {
        let uuid = Uuid::new_v4();
        let identity = signed(&Spec {
            uuid: Some(uuid),
            ..Spec::localhost(Role::AGENT)
        });
        assert_eq!(identity.bound_uuid, Some(uuid));
        assert!(identity.may_be(uuid));
        assert!(!identity.may_be(Uuid::new_v4()));
    }

    #[test]
    fn what_is_no_certificate_is_malformed() {
        assert!(matches!(
            PeerIdentity::from_der(b"hello"),
            Err(IdentityError::Malformed(_))
        ));
        assert!(matches!(
            PeerIdentity::from_der(&[]),
            Err(IdentityError::Malformed(_))
        ));
    }

    #[test]
    fn logs_show_subject_roles_and_the_head_of_the_fingerprint() {
        let identity = PeerIdentity {
            roles: Role::AGENT | Role::NETAGENT,
            bound_uuid: None,
            subject: "O=ciao".to_owned(),
            fingerprint: [0xab; 32],
            ends_at_s: 0,
        };
        assert_eq!(
            identity.to_string(),
            "O=ciao (AGENT|NETAGENT) sha256:abababab"
        );
    }
}
