//! The revocation list of a CA: what `ciao-cert -revoke` and `-renew-crl` keep.
//!
//! A list is read, gets further entries, and is signed again with the next number. Nothing is ever taken out of it: a
//! certificate that was revoked stays revoked. What is read here is the CA's own list, also one that is out of date; peers
//! read lists with [`crate::net::tls::load_trust`].

use std::time::{Duration, SystemTime};

use pem::Pem;
use rcgen::{
    CertificateRevocationListParams, KeyIdMethod, RevocationReason, RevokedCertParams,
    SerialNumber, date_time_ymd,
};
use rustls::pki_types::UnixTime;
use webpki::BorrowedCertRevocationList;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::cert::anchor::{Anchor, CertError, crypto, since_epoch};
use crate::cert::key;
use crate::cert::spec::BACKDATE;
use crate::net::identity;
use crate::net::tls::has_signed;
use crate::net::tls::pem::{PemError, revocation_lists};

/// How long a list counts unless said otherwise: 90 days. An attacker who takes files away from a scheduler can keep a newer list
/// from it for so long; and so long a cluster runs without anybody making a list.
pub const DEFAULT_CRL_DAYS: u32 = 90;

/// Most bytes of a list's number (RFC 5280, section 5.2.3).
const MAX_NUMBER_LEN: usize = 20;

/// Most bytes of a serial number (RFC 5280, section 4.1.2.2), and the zero in front of a positive one.
const MAX_SERIAL_LEN: usize = 21;

/// Why a certificate is revoked (RFC 5280, section 5.3.1). Those that only suspend it are not among them: a list never
/// gets shorter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reason {
    /// None is given.
    #[default]
    Unspecified,
    /// Somebody else may have the private key.
    KeyCompromise,
    /// Somebody else may have the private key of the CA that it is for.
    CaCompromise,
    /// The holder is called otherwise now.
    AffiliationChanged,
    /// There is a newer one.
    Superseded,
    /// The holder is no more.
    CessationOfOperation,
    /// The holder may no longer do what it is for.
    PrivilegeWithdrawn,
}

/// Why a list cannot be read to be kept on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CrlFileError {
    /// It holds no list.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// The list is damaged, or has something that would be lost.
    #[error("malformed revocation list: {0}")]
    Malformed(String),
    /// It has several lists.
    #[error("there are {0} revocation lists in it; a CA's own file has one")]
    Several(usize),
    /// It is of another CA: keeping it on would lose all of that one's entries.
    #[error(
        "it is the revocation list of another CA (its issuer is {0}), or its signature does not verify"
    )]
    OtherCa(String),
}

/// A CA's list as it will be signed next.
#[derive(Debug, Clone, Default)]
pub struct RevocationList {
    /// Big-endian; that of the list that was read.
    number: Vec<u8>,
    entries: Vec<RevokedCertParams>,
}

impl Reason {
    /// Each by its name in RFC 5280.
    pub const NAMES: [(&str, Self); 7] = [
        ("unspecified", Self::Unspecified),
        ("keyCompromise", Self::KeyCompromise),
        ("cACompromise", Self::CaCompromise),
        ("affiliationChanged", Self::AffiliationChanged),
        ("superseded", Self::Superseded),
        ("cessationOfOperation", Self::CessationOfOperation),
        ("privilegeWithdrawn", Self::PrivilegeWithdrawn),
    ];

    /// Reads a name, in any case.
    ///
    /// # Errors
    /// The names that there are, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::NAMES
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(text.trim()));
        found.map(|(_, reason)| *reason).ok_or_else(|| {
            let names = Self::NAMES.map(|(name, _)| name).join(", ");
            format!("no reason {text:?}; reasons are {names}")
        })
    }

    /// `None` where nothing is written: RFC 5280 has it so for `unspecified`.
    fn code(self) -> Option<RevocationReason> {
        Some(match self {
            Self::Unspecified => return None,
            Self::KeyCompromise => RevocationReason::KeyCompromise,
            Self::CaCompromise => RevocationReason::CaCompromise,
            Self::AffiliationChanged => RevocationReason::AffiliationChanged,
            Self::Superseded => RevocationReason::Superseded,
            Self::CessationOfOperation => RevocationReason::CessationOfOperation,
            Self::PrivilegeWithdrawn => RevocationReason::PrivilegeWithdrawn,
        })
    }
}

impl RevocationList {
    /// Reads a list that this anchor has signed, PEM or DER. Each entry is kept with its date and reason.
    ///
    /// # Errors
    /// [`CrlFileError`].
    pub fn read(contents: &[u8], anchor: &Anchor) -> Result<Self, CrlFileError> {
        let der = der_of(contents)?;
        let malformed = |error: String| CrlFileError::Malformed(error);
        let (_, list) = CertificateRevocationList::from_der(&der)
            .map_err(|error| malformed(error.to_string()))?;
        let certificate = anchor.certified().der();
        let x509 = identity::parse(certificate).map_err(|error| malformed(error.to_string()))?;
        if list.issuer().as_raw() != x509.subject().as_raw() || !has_signed(&x509, &der) {
            return Err(CrlFileError::OtherCa(identity::shown(list.issuer())));
        }
        let refused = |error: webpki::Error| malformed(error.to_string());
        let entries = BorrowedCertRevocationList::from_der(&der).map_err(refused)?;
        let entries = entries.into_iter().map(|entry| {
            let entry = entry.map_err(refused)?;
            if is_negative(entry.serial_number) {
                let what = "a serial number in it is negative, which cannot be kept";
                return Err(malformed(what.to_owned()));
            }
            let moment =
                |time: UnixTime| date_time_ymd(1970, 1, 1) + Duration::from_secs(time.as_secs());
            Ok(RevokedCertParams {
                serial_number: SerialNumber::from_slice(entry.serial_number),
                revocation_time: moment(entry.revocation_date),
                reason_code: entry.reason_code.map(reason_code),
                invalidity_date: entry.invalidity_date.map(moment),
            })
        });
        let number = list.crl_number().map(|it| it.to_bytes_be());
        Ok(Self {
            number: number.unwrap_or_default(),
            entries: entries.collect::<Result<_, _>>()?,
        })
    }

    /// Certificates that it revokes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it revokes none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the certificate with this serial number, as it is written in the certificate. `false` if it is there already:
    /// then its date and reason stay.
    pub fn revoke(&mut self, serial: &[u8], time: SystemTime, reason: Reason) -> bool {
        let is_it =
            |entry: &RevokedCertParams| unsigned(entry.serial_number.as_ref()) == unsigned(serial);
        if self.entries.iter().any(is_it) {
            return false;
        }
        self.entries.push(RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: date_time_ymd(1970, 1, 1) + since_epoch(time),
            reason_code: reason.code(),
            invalidity_date: None,
        });
        true
    }

    /// Signs it with the next number, as PEM text. It counts from [`BACKDATE`] ago for `lifetime` from `now`, but no longer
    /// than the anchor.
    ///
    /// # Errors
    /// [`CertError::NotForCrls`], [`CertError::AnchorOutOfDate`], [`CertError::Crypto`].
    pub fn sign(
        &self,
        anchor: &Anchor,
        now: SystemTime,
        lifetime: Duration,
    ) -> Result<String, CertError> {
        let (_, x509) = X509Certificate::from_der(anchor.certified().der())
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        let usage = x509
            .key_usage()
            .map_err(|error| CertError::Crypto(error.to_string()))?;
        if usage.is_some_and(|usage| !usage.value.crl_sign()) {
            return Err(CertError::NotForCrls);
        }
        if now >= anchor.not_after() {
            return Err(CertError::AnchorOutOfDate {
                not_after: crate::net::tls::date(anchor.not_after()),
            });
        }
        let at = |time: SystemTime| date_time_ymd(1970, 1, 1) + since_epoch(time);
        let params = CertificateRevocationListParams {
            this_update: at(now - BACKDATE),
            next_update: at((now + lifetime).min(anchor.not_after())),
            crl_number: SerialNumber::from_slice(&next(&self.number)?),
            issuing_distribution_point: None,
            revoked_certs: self.entries.clone(),
            key_identifier_method: key_identifier(&x509),
        };
        let list = params.signed_by(anchor.issuer()).map_err(crypto)?;
        Ok(key::encode(&Pem::new("X509 CRL", list.der().as_ref())))
    }
}

/// The one list of a file, PEM or DER.
fn der_of(contents: &[u8]) -> Result<Vec<u8>, CrlFileError> {
    if let [0x30, ..] = contents {
        return Ok(contents.to_vec());
    }
    let mut lists = revocation_lists(contents)?;
    match (lists.len(), lists.pop()) {
        (1, Some((_, list))) => Ok(list.as_ref().to_vec()),
        (count, _) => Err(CrlFileError::Several(count)),
    }
}

/// One more.
fn next(number: &[u8]) -> Result<Vec<u8>, CertError> {
    let mut next = number.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, is_over) = byte.overflowing_add(1);
        *byte = sum;
        if !is_over {
            return Ok(next);
        }
    }
    next.insert(0, 1);
    if next.len() > MAX_NUMBER_LEN {
        return Err(CertError::Crypto(
            "the number of the revocation list cannot rise any more".to_owned(),
        ));
    }
    Ok(next)
}

/// A serial number without the zeros in front.
fn unsigned(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    &serial[zeros..]
}

/// Whether a serial number as it is written in a certificate is below zero, which RFC 5280 forbids.
#[must_use]
pub fn is_negative(serial: &[u8]) -> bool {
    serial.first().is_some_and(|byte| *byte >= 0x80)
}

/// Reads a serial number as `-dump` and `openssl x509 -serial` show it: hexadecimal digits, with or without colons.
///
/// # Errors
/// How to write it.
pub fn parse_serial(text: &str) -> Result<Vec<u8>, String> {
    let wrong =
        || "write it in hexadecimal digits as ciao-cert -dump shows it: 0b:08:a2".to_owned();
    let digits: String = text.trim().chars().filter(|c| *c != ':').collect();
    let digits = match digits.len() % 2 {
        0 => digits,
        _ => format!("0{digits}"),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    if digits.len() / 2 > MAX_SERIAL_LEN {
        return Err(format!("longer than {MAX_SERIAL_LEN} bytes; {}", wrong()));
    }
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).map_err(|_| wrong());
    (0..digits.len()).step_by(2).map(byte).collect()
}

/// What the CA's certificates call its key, by which programs find the list's CA.
fn key_identifier(ca: &X509Certificate<'_>) -> KeyIdMethod {
    let identifier = ca
        .extensions()
        .iter()
        .find_map(|it| match it.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
            _ => None,
        });
    identifier.map_or(KeyIdMethod::Sha256, KeyIdMethod::PreSpecified)
}

/// The same reason in the other library's words.
fn reason_code(code: webpki::RevocationReason) -> RevocationReason {
    match code {
        webpki::RevocationReason::Unspecified => RevocationReason::Unspecified,
        webpki::RevocationReason::KeyCompromise => RevocationReason::KeyCompromise,
        webpki::RevocationReason::CaCompromise => RevocationReason::CaCompromise,
        webpki::RevocationReason::AffiliationChanged => RevocationReason::AffiliationChanged,
        webpki::RevocationReason::Superseded => RevocationReason::Superseded,
        webpki::RevocationReason::CessationOfOperation => RevocationReason::CessationOfOperation,
        webpki::RevocationReason::CertificateHold => RevocationReason::CertificateHold,
        webpki::RevocationReason::RemoveFromCrl => RevocationReason::RemoveFromCrl,
        webpki::RevocationReason::PrivilegeWithdrawn => RevocationReason::PrivilegeWithdrawn,
        webpki::RevocationReason::AaCompromise => RevocationReason::AaCompromise,
    }
}
