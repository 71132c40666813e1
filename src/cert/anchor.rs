//! The trust anchor: one self-signed certificate that signs all others and that the scheduler also presents as its
//! server certificate.
//!
//! The certificates are X.509 v3 by `rcgen`, in the form of ciao's tool with additions (see [`Shape`]). A role is an
//! OID in the extended key usage; a bound UUID is a URI among the alternative names.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pem::Pem;
use proto_frames::Role;
use rcgen::string::{Ia5String, PrintableString};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
    date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use uuid::Uuid;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::cert::key;
use crate::cert::spec::{DEFAULT_ORGANIZATION, Shape, Spec};
use crate::net::identity;
use crate::net::tls::ip_address;
use crate::net::tls::key_kind::{self, USABLE};
use crate::net::tls::pem::{PemError, certificates, private_key};

/// Why a certificate could not be made.
///
/// Nothing was written when one of these occurs: this module makes texts, not files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertError {
    /// The specification grants no role; no peer would accept the certificate.
    #[error("no role given: a certificate without a role is refused by every peer")]
    NoRole,
    /// A name cannot stand in a certificate.
    ///
    /// The kind is `host name`, `e-mail address` or `UUID`.
    #[error("{what} {value:?} cannot be put into a certificate")]
    BadName {
        /// Which kind of name.
        what: &'static str,
        /// The name.
        value: String,
    },
    /// The anchor's file holds no usable certificate and key.
    #[error("the anchor cannot be used: {0}")]
    AnchorPem(#[from] PemError),
    /// The anchor's certificate is no CA.
    #[error("the anchor's certificate is not a CA certificate (CA:TRUE): it cannot sign others")]
    NotACa,
    /// The anchor's key is of a kind that cannot sign for peers.
    #[error("the anchor's private key is {0}; expected {USABLE}")]
    UnusableKey(String),
    /// The anchor's key is not the one its certificate is for.
    #[error("the anchor's private key does not belong to its certificate")]
    KeyMismatch,
    /// The anchor's certificate does not cover the moment the new one is to begin.
    #[error(
        "the anchor is not valid at the time the certificate is to begin (it ends {not_after})"
    )]
    AnchorOutOfDate {
        /// End of the anchor's validity, RFC 3339.
        not_after: String,
    },
    /// The anchor's certificate does not allow it to sign revocation lists.
    #[error(
        "the anchor's certificate does not allow it to sign revocation lists (its key usage is without cRLSign, as in those \
         that the original's tool or -original-shape makes): renew it with ciao-cert -renew FILE, which keeps its key and \
         names and all that it has signed, and give the new CA file to all that are to read the list"
    )]
    NotForCrls,
    /// The anchor's subject has a form that cannot be repeated as issuer.
    #[error("the anchor's subject has a form that this program cannot repeat as issuer")]
    UnusableSubject,
    /// The cryptographic library failed.
    ///
    /// Also for a certificate that cannot be parsed.
    #[error("making the certificate failed: {0}")]
    Crypto(String),
}

/// A certificate with its private key.
///
/// `Debug` prints the certificate only, so that a key does not get into a log.
#[derive(Clone)]
pub struct CertifiedPem {
    /// The same certificate as in the PEM texts.
    der: CertificateDer<'static>,
    certificate_pem: String,
    /// With the private key. Secret.
    pem: String,
}

/// A certificate that signs others, with its private key.
///
/// Made by [`Anchor::new`], or read by [`Anchor::load`] to sign further leaves later.
#[derive(Debug)]
pub struct Anchor {
    certified: CertifiedPem,
    /// What `rcgen` signs with; it holds the private key.
    issuer: Issuer<'static, KeyPair>,
    /// Leaves repeat it unless their specification names another.
    organization: Option<String>,
    /// Ciao's own anchors may lack it; a leaf cannot point to what is not there.
    has_key_identifier: bool,
    /// No leaf is valid for longer.
    not_after: SystemTime,
}

impl CertifiedPem {
    /// The certificate.
    #[must_use]
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    /// The certificate alone as PEM: what a CA file holds.
    #[must_use]
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// Certificate and private key as PEM, one after the other: what a `cert-….pem` file holds. Secret.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// The certificate comes first in the text, the key behind it.
    fn new(certificate: &Certificate, key_pem: &str) -> Self {
        let der = certificate.der().clone();
        let certificate_pem = key::encode(&Pem::new("CERTIFICATE", der.as_ref()));
        let pem = format!("{certificate_pem}{key_pem}");
        Self {
            der,
            certificate_pem,
            pem,
        }
    }
}

impl std::fmt::Debug for CertifiedPem {
    /// The certificate only; never the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CertifiedPem")
            .field("certificate", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

impl Anchor {
    /// Makes a new anchor. The scheduler presents it as its own certificate, so `spec` names the scheduler's host. With a
    /// specification without roles it only signs: it has no names, and no peer can present it.
    ///
    /// The organization is [`DEFAULT_ORGANIZATION`] unless the specification names one.
    ///
    /// # Errors
    /// [`CertError::BadName`], [`CertError::Crypto`].
    pub fn new(spec: &Spec) -> Result<Self, CertError> {
        let organization = spec
            .organization
            .clone()
            .unwrap_or_else(|| DEFAULT_ORGANIZATION.to_owned());
        let params = anchor_params(spec, &organization)?;
        let key = spec.key.generate().map_err(crypto)?;
        let key_pem = spec.key.to_pem(&key).ok_or_else(unwritable_key)?;
        let certificate = params.self_signed(&key).map_err(crypto)?;
        Self::with(CertifiedPem::new(&certificate, &key_pem), key)
    }

    /// The same anchor with a new certificate: its key, names, roles and bound UUID, with the extensions and from the
    /// moment that new ones have. What it has signed stays signed by it.
    ///
    /// The subject must come out byte for byte the same: leaves name their issuer by it. An anchor whose subject
    /// `rcgen` writes in another form is therefore refused.
    ///
    /// # Errors
    /// [`CertError::UnusableSubject`], [`CertError::BadName`], [`CertError::NoRole`], [`CertError::Crypto`].
    pub fn renewed(&self, not_before: SystemTime, lifetime: Duration) -> Result<Self, CertError> {
        let (_, x509) = X509Certificate::from_der(&self.certified.der)
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        let spec = Spec {
            not_before,
            lifetime,
            ..named_alike(&x509)?
        };
        let organization = self.organization.as_deref().unwrap_or_default();
        let params = anchor_params(&spec, organization)?;
        let certificate = params.self_signed(self.issuer.key()).map_err(crypto)?;
        let certificate_pem = key::encode(&Pem::new("CERTIFICATE", certificate.der().as_ref()));
        let key_pem = private_key_block(&self.certified.pem).ok_or_else(unwritable_key)?;
        let renewed = Self::load(&format!("{certificate_pem}{key_pem}"))?;
        let (_, again) = X509Certificate::from_der(&renewed.certified.der)
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        if again.subject().as_raw() != x509.subject().as_raw() {
            return Err(CertError::UnusableSubject);
        }
        Ok(renewed)
    }

    /// Whom its certificate is for.
    ///
    /// Names, roles and the bound UUID are read from the certificate; key and validity are defaults.
    ///
    /// # Errors
    /// [`CertError::Crypto`], [`CertError::UnusableSubject`].
    pub fn spec(&self) -> Result<Spec, CertError> {
        let (_, x509) = X509Certificate::from_der(&self.certified.der)
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        named_alike(&x509)
    }

    /// Reads an anchor from the PEM text of its `cert-….pem` file, ours or the original's.
    ///
    /// The first certificate in the text counts, and the first private key.
    ///
    /// # Errors
    /// [`CertError::AnchorPem`], [`CertError::NotACa`], [`CertError::UnusableKey`], [`CertError::KeyMismatch`],
    /// [`CertError::UnusableSubject`].
    pub fn load(pem: &str) -> Result<Self, CertError> {
        let der = certificates(pem.as_bytes())?.swap_remove(0);
        let key = private_key(pem.as_bytes())?;
        if let Some(kind) = key_kind::unusable(&key) {
            return Err(CertError::UnusableKey(kind));
        }
        let key = KeyPair::try_from(&key)
            .map_err(|_| CertError::UnusableKey("damaged or of another kind".to_owned()))?;
        let certificate_pem = key::encode(&Pem::new("CERTIFICATE", der.as_ref()));
        Self::with(
            CertifiedPem {
                der,
                certificate_pem,
                pem: pem.to_owned(),
            },
            key,
        )
    }

    /// Makes a leaf. Its validity ends with the anchor's at the latest.
    ///
    /// A new key is made for each leaf. The anchor's organization is used unless the specification has its own.
    ///
    /// # Errors
    /// [`CertError::NoRole`], [`CertError::BadName`], [`CertError::AnchorOutOfDate`], [`CertError::Crypto`].
    pub fn sign(&self, spec: &Spec) -> Result<CertifiedPem, CertError> {
        if spec.not_before >= self.not_after {
            return Err(CertError::AnchorOutOfDate {
                not_after: crate::net::tls::date(self.not_after),
            });
        }
        let organization = spec
            .organization
            .as_deref()
            .or(self.organization.as_deref())
            .unwrap_or_default();
        let mut params = params(spec, organization)?;
        params.not_after = params
            .not_after
            .min(date_time_ymd(1970, 1, 1) + since_epoch(self.not_after));
        match spec.shape {
            Shape::Identified => {
                params.is_ca = IsCa::ExplicitNoCa;
                params.use_authority_key_identifier_extension = self.has_key_identifier;
            }
            Shape::Original => params.custom_extensions.push(not_a_ca()),
        }
        let key = spec.key.generate().map_err(crypto)?;
        let key_pem = spec.key.to_pem(&key).ok_or_else(unwritable_key)?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(crypto)?;
        Ok(CertifiedPem::new(&certificate, &key_pem))
    }

    /// The anchor's own certificate and key: the scheduler's `cert-Scheduler-….pem`.
    #[must_use]
    pub fn certified(&self) -> &CertifiedPem {
        &self.certified
    }

    /// What signs.
    pub(super) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// When its certificate ends.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }

    /// Whether it only signs: it grants no role, so that no peer presents it as its own.
    #[must_use]
    pub fn is_for_signing_alone(&self) -> bool {
        self.spec().is_ok_and(|spec| spec.roles.is_empty())
    }

    /// The anchor's certificate alone as PEM: the CA file every peer needs.
    #[must_use]
    pub fn ca_pem(&self) -> &str {
        self.certified.certificate_pem()
    }

    /// Checks what a signature could not reveal before a peer refuses it: that it is a CA, that the key belongs to it,
    /// and that the issuer's name can be repeated.
    fn with(certified: CertifiedPem, key: KeyPair) -> Result<Self, CertError> {
        let (_, x509) = X509Certificate::from_der(&certified.der)
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        if !x509.is_ca() {
            return Err(CertError::NotACa);
        }
        if x509.public_key().subject_public_key.data.as_ref() != key.public_key_raw() {
            return Err(CertError::KeyMismatch);
        }
        let organization = x509
            .subject()
            .iter_organization()
            .next()
            .and_then(|name| name.as_str().ok())
            .map(str::to_owned);
        let has_key_identifier = x509.extensions().iter().any(|e| {
            matches!(
                e.parsed_extension(),
                ParsedExtension::SubjectKeyIdentifier(_)
            )
        });
        let not_after = u64::try_from(x509.validity().not_after.timestamp()).unwrap_or(0);
        let issuer = Issuer::from_ca_cert_der(&certified.der, key)
            .map_err(|_| CertError::UnusableSubject)?;
        let anchor = Self {
            organization,
            has_key_identifier,
            not_after: UNIX_EPOCH + Duration::from_secs(not_after),
            issuer,
            certified: certified.clone(),
        };
        anchor.check_issuer_is_repeated(x509.subject().as_raw())?;
        Ok(anchor)
    }

    /// Peers find the issuer by comparing names byte for byte, and names have more forms than `rcgen` can repeat
    /// (several values of one kind, rare string types): sign something and look.
    fn check_issuer_is_repeated(&self, subject: &[u8]) -> Result<(), CertError> {
        let probe = CertificateParams::default()
            .signed_by(self.issuer.key(), &self.issuer)
            .map_err(crypto)?;
        let (_, x509) =
            X509Certificate::from_der(probe.der()).map_err(|_| CertError::UnusableSubject)?;
        if x509.issuer().as_raw() == subject {
            Ok(())
        } else {
            Err(CertError::UnusableSubject)
        }
    }
}

/// What an anchor has: that of a leaf, and what makes it a CA. One for signing alone has the latter only.
///
/// `CrlSign` is in addition to what ciao's tool sets.
fn anchor_params(spec: &Spec, organization: &str) -> Result<CertificateParams, CertError> {
    let mut params = match spec.roles.is_empty() {
        true => {
            // They are in no certificate, and in the names of files.
            alternative_names(spec)?;
            bare_params(spec, organization)
        }
        false => params(spec, organization)?,
    };
    as_ca(&mut params, spec.shape);
    Ok(params)
}

fn as_ca(params: &mut CertificateParams, shape: Shape) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages.push(KeyUsagePurpose::KeyCertSign);
    if shape == Shape::Identified {
        params.key_usages.push(KeyUsagePurpose::CrlSign);
    }
}

/// A specification with the names, the roles and the bound UUID of a certificate.
///
/// Names of kinds that specifications do not have are not taken over.
fn named_alike(x509: &X509Certificate<'_>) -> Result<Spec, CertError> {
    let roles = identity::roles(x509).map_err(|error| CertError::Crypto(error.to_string()))?;
    let uuid = identity::bound_uuid(x509).map_err(|error| CertError::Crypto(error.to_string()))?;
    let mut spec = Spec {
        hosts: Vec::new(),
        ips: Vec::new(),
        uuid,
        ..Spec::localhost(roles)
    };
    let names = x509
        .subject_alternative_name()
        .map_err(|error| CertError::Crypto(error.to_string()))?;
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::DNSName(host) => spec.hosts.push((*host).to_owned()),
            GeneralName::RFC822Name(email) => spec.emails.push((*email).to_owned()),
            GeneralName::IPAddress(octets) => {
                spec.ips
                    .extend(ip_address(octets).and_then(|it| it.parse::<IpAddr>().ok()));
            }
            _ => {}
        }
    }
    Ok(spec)
}

/// The private key of a PEM text, as it stands there.
///
/// Written again with Unix line ends, in its own encoding.
fn private_key_block(pem: &str) -> Option<String> {
    let blocks = pem::parse_many(pem).ok()?;
    let key = blocks
        .iter()
        .find(|block| block.tag().ends_with("PRIVATE KEY"))?;
    Some(key::encode(key))
}

/// What anchor and leaf have in common.
///
/// Beyond [`bare_params`], names, roles, and key usages for TLS with RSA and ECDSA keys.
fn params(spec: &Spec, organization: &str) -> Result<CertificateParams, CertError> {
    let mut params = bare_params(spec, organization);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = key_usages(spec)?;
    params.subject_alt_names = alternative_names(spec)?;
    Ok(params)
}

/// A random serial number, one value for the subject, and the validity.
fn bare_params(spec: &Spec, organization: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1) + since_epoch(spec.not_before);
    params.not_after = date_time_ymd(1970, 1, 1) + since_epoch(spec.not_before + spec.lifetime);
    params.serial_number = Some(SerialNumber::from_slice(Uuid::new_v4().as_bytes()));
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, name_value(organization));
    params
}

/// The roles whose holders accept connections.
///
/// Their certificates get `serverAuth`.
const SERVERS: Role = Role(Role::SCHEDULER.0 | Role::SERVER.0);

/// `anyExtendedKeyUsage`, which the original's peers look for; what HTTPS asks of a server or a client; then one OID
/// per role. The scheduler's certificate is the anchor as well, and OpenSSL takes what it lacks for what it may not
/// pass on: it is for both.
///
/// [`CertError::NoRole`] if the specification grants no role that has an OID.
fn key_usages(spec: &Spec) -> Result<Vec<ExtendedKeyUsagePurpose>, CertError> {
    let roles = spec.roles;
    let granted = Role::GRANTS
        .iter()
        .filter(|(role, ..)| roles.contains(*role));
    let oids = granted.map(|(_, arc, _)| {
        let arcs = Role::OID_PREFIX.into_iter().chain([*arc]);
        ExtendedKeyUsagePurpose::Other(arcs.collect())
    });
    let oids: Vec<_> = oids.collect();
    if oids.is_empty() {
        return Err(CertError::NoRole);
    }
    let mut usages = vec![ExtendedKeyUsagePurpose::Any];
    if spec.shape == Shape::Identified {
        if roles.intersects(SERVERS) {
            usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        usages.push(ExtendedKeyUsagePurpose::ClientAuth);
    }
    usages.extend(oids);
    Ok(usages)
}

/// Host names, e-mail addresses, IP addresses, and last the bound UUID as `URI:urn:uuid:…`. A wildcard is allowed as
/// the first part of a host name.
fn alternative_names(spec: &Spec) -> Result<Vec<SanType>, CertError> {
    let ia5 = |what, value: &str| {
        Ia5String::try_from(value).map_err(|_| CertError::BadName {
            what,
            value: value.to_owned(),
        })
    };
    let mut names = Vec::new();
    for host in &spec.hosts {
        let plain = host.strip_prefix("*.").unwrap_or(host);
        if rustls::pki_types::DnsName::try_from(plain).is_err() {
            return Err(CertError::BadName {
                what: "host name",
                value: host.clone(),
            });
        }
        names.push(SanType::DnsName(ia5("host name", host)?));
    }
    for email in &spec.emails {
        names.push(SanType::Rfc822Name(ia5("e-mail address", email)?));
    }
    names.extend(spec.ips.iter().copied().map(SanType::IpAddress));
    if let Some(uuid) = spec.uuid {
        names.push(SanType::URI(ia5("UUID", &uuid.urn().to_string())?));
    }
    Ok(names)
}

/// The string type Go picks: `PrintableString` where its alphabet suffices, else UTF-8.
///
/// A subject of another string type would differ byte for byte from the one that ciao's tool writes.
fn name_value(text: &str) -> DnValue {
    match PrintableString::try_from(text) {
        Ok(printable) => DnValue::PrintableString(printable),
        Err(_) => DnValue::Utf8String(text.to_owned()),
    }
}

/// Basic constraints without CA, and without the key identifier that `rcgen` adds to its own.
///
/// The empty sequence is `CA:FALSE` in DER.
fn not_a_ca() -> rcgen::CustomExtension {
    const BASIC_CONSTRAINTS: [u64; 4] = [2, 5, 29, 19];
    const EMPTY_SEQUENCE: [u8; 2] = [0x30, 0x00];
    let mut extension =
        rcgen::CustomExtension::from_oid_content(&BASIC_CONSTRAINTS, EMPTY_SEQUENCE.to_vec());
    extension.set_criticality(true);
    extension
}

/// A time before 1970 becomes 1970.
pub(super) fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

pub(super) fn crypto(error: rcgen::Error) -> CertError {
    CertError::Crypto(error.to_string())
}

fn unwritable_key() -> CertError {
    CertError::Crypto("the new key cannot be written as PEM".to_owned())
}
