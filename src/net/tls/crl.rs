//! Certificate revocation lists (RFC 5280, section 5) as they are read: files, and what makes a list usable.
//!
//! ```text
//! FILE|DIR ─ files ─▶ DER ─ parse ─▶ ParsedCrl ─ which CA's key verifies it? ─▶ revocation::Crls
//! ```
//!
//! A list that cannot be used is refused here and named, never passed over: a list that is not looked at lets in all
//! that it revokes. That concerns the form (no end of its validity, changes alone, a part alone), the time, the issuer's
//! name, which is compared byte for byte, and the signature, which is verified once, here. What certificates are then
//! held against is in [`super::revocation`].

use std::cmp::Ordering;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use webpki::BorrowedCertRevocationList;
use x509_parser::oid_registry::{
    OID_X509_EXT_DELTA_CRL_INDICATOR, OID_X509_EXT_ISSUER_DISTRIBUTION_POINT,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::X509Name;

use super::authority::{CaId, Unsigned, check_signature};
use super::date;
use crate::net::identity;

mod files;

pub(super) use files::read_all;

/// Why a revocation list cannot be used. Reads on behind the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrlError {
    /// The file is larger than any list that is read.
    #[error("it is larger than {} MiB, the most that is read of a revocation list", .0 >> 20)]
    TooLarge(u64),
    /// A directory without a list.
    #[error(
        "no revocation list in this directory (names that begin with . or end with ~, .bak, .old or .tmp do not count)"
    )]
    EmptyDirectory,
    /// The bytes are no list, or have something that is not understood here.
    #[error("malformed revocation list: {0}")]
    Malformed(String),
    /// It does not say when the next one comes, so that it cannot be known when it is out of date.
    #[error(
        "the revocation list has no nextUpdate, so that it cannot be known when it is out of date; make one that has \
         (ciao-cert -renew-crl, or openssl ca -gencrl -crldays)"
    )]
    NoNextUpdate,
    /// It says what has changed since another list.
    #[error(
        "it is a delta CRL, which says only what has changed since another list; expected a full one"
    )]
    Delta,
    /// It is for some of the CA's certificates.
    #[error(
        "it covers only a part of its CA's certificates (issuingDistributionPoint); expected a full list"
    )]
    Partial,
    /// Its time is over.
    #[error(
        "the revocation list of {issuer} is out of date since {next_update} (now {now}): put the CA's current list in its \
         place (ciao-cert -renew-crl)"
    )]
    Expired {
        /// The CA's name.
        issuer: String,
        /// Its end, RFC 3339.
        next_update: String,
        /// This machine's clock, RFC 3339.
        now: String,
    },
    /// No CA that is known has its issuer's name.
    #[error(
        "its issuer {issuer} is none of the CAs in {}; the list of a CA below them needs that CA's certificate in the same \
         file, in front of it or behind it", ca.display()
    )]
    UnknownIssuer {
        /// The CA's name in the list.
        issuer: String,
        /// The CA file.
        ca: PathBuf,
    },
    /// A CA has the same name, written in another way; peers' certificates have the CA's.
    #[error(
        "its issuer {issuer} is not byte for byte the subject of the CA in {} (another string type, such as UTF8String \
         where the CA has PrintableString), so that no certificate would be held against it; have the CA itself sign it \
         (ciao-cert -renew-crl)", ca.display()
    )]
    OtherSpelling {
        /// The CA's name in the list.
        issuer: String,
        /// The CA file.
        ca: PathBuf,
    },
    /// None of the CAs with its issuer's name has signed it.
    #[error(
        "its signature is not by the key of any CA called {issuer} in {}: it was changed, or is of another CA of the same \
         name", ca.display()
    )]
    BadSignature {
        /// The CA's name.
        issuer: String,
        /// The CA file.
        ca: PathBuf,
    },
    /// It is signed in a way that is not accepted.
    #[error(
        "it is signed by {issuer} in a way that is not accepted here (SHA-1, or an unusual key)"
    )]
    UnsupportedSignature {
        /// The CA's name.
        issuer: String,
    },
    /// The CA's certificate does not allow it to sign lists (RFC 5280, section 6.3.3).
    #[error(
        "its CA {issuer} in {} may not sign revocation lists (its key usage is without cRLSign); renew the CA's \
         certificate, which keeps its key and name, with ciao-cert -renew FILE, and put the new one into the CA file",
        ca.display()
    )]
    NotForCrls {
        /// The CA's name.
        issuer: String,
        /// The CA file.
        ca: PathBuf,
    },
    /// A certificate beside it is none of a CA below the anchors.
    #[error(
        "a certificate in it ({subject}) is none of a CA that is signed by one in {}", ca.display()
    )]
    StrayCertificate {
        /// Whose it is.
        subject: String,
        /// The CA file.
        ca: PathBuf,
    },
    /// All CAs of the CA file are revoked.
    #[error("it revokes every CA in {}: no peer could be let in", ca.display())]
    RevokesAll {
        /// The CA file.
        ca: PathBuf,
    },
    /// A list that is older than the one in use: what was revoked would be let in again.
    #[error(
        "the revocation list of {issuer} is older than the one in use (number {number} after {in_use}); put the newest one \
         in its place, or restart to go by this one"
    )]
    Older {
        /// The CA's name.
        issuer: String,
        /// Its number.
        number: String,
        /// The number of the list in use.
        in_use: String,
    },
    /// A CA whose list is in use has none any more.
    #[error(
        "there is no revocation list of {issuer} any more, and one is in use: what it revokes would be let in again; put it \
         back, or restart to do without"
    )]
    Missing {
        /// The CA's name.
        issuer: String,
    },
}

/// A list with the CA that has signed it, before its entries are taken over.
#[derive(Debug)]
pub(super) struct VerifiedCrl {
    pub(super) head: Head,
    /// Serial numbers as they are written in certificates.
    pub(super) entries: Vec<Entry>,
}

/// What a list says of itself, and who says it.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) path: PathBuf,
    /// The CA's name, for messages: escaped and cut.
    pub(super) issuer: String,
    pub(super) ca: CaId,
    /// The anchor that the CA is or is signed by.
    pub(super) anchor: CaId,
    pub(super) edition: Edition,
    pub(super) next_update: UnixTime,
}

/// Which of two lists of a CA is the newer one: by number, then by the time it was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edition {
    /// Big-endian without leading zeros; empty where the list has none.
    number: Vec<u8>,
    this_update_s: i64,
}

/// A certificate that is revoked.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) serial: Vec<u8>,
    pub(super) at: UnixTime,
    pub(super) reason: Option<&'static str>,
}

/// A CA that may have signed a list.
#[derive(Debug)]
pub(super) struct Authority<'a> {
    pub(super) x509: X509Certificate<'a>,
    pub(super) id: CaId,
    /// Itself, or the anchor that it is signed by.
    pub(super) anchor: CaId,
}

impl Edition {
    /// The number as `openssl crl -crlnumber` shows it, in hexadecimal digits.
    pub(super) fn number(&self) -> String {
        match &*self.number {
            [] => "none".to_owned(),
            number => identity::hex(number),
        }
    }
}

impl PartialOrd for Edition {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Edition {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |it: &Self| (it.number.len(), it.number.clone(), it.this_update_s);
        rank(self).cmp(&rank(other))
    }
}

/// Reads a list in DER form and finds the CA that has signed it. `path` and `ca` are for messages.
///
/// # Errors
/// Why it cannot be used.
pub(super) fn verify(
    der: &[u8],
    (path, ca): (PathBuf, PathBuf),
    authorities: &[Authority<'_>],
    now: UnixTime,
) -> Result<VerifiedCrl, CrlError> {
    let list = parse(der)?;
    let issuer = identity::shown(list.issuer());
    let authority = signer(der, &list, authorities, (&issuer, ca))?;
    let next_update = next_update(&list)?;
    if now >= next_update {
        return Err(CrlError::Expired {
            issuer,
            next_update: moment(next_update),
            now: moment(now),
        });
    }
    let number = list.crl_number().map(|it| it.to_bytes_be());
    let number = number.unwrap_or_default().into_iter();
    Ok(VerifiedCrl {
        head: Head {
            path,
            issuer,
            ca: authority.id,
            anchor: authority.anchor,
            edition: Edition {
                number: number.skip_while(|byte| *byte == 0).collect(),
                this_update_s: list.last_update().timestamp(),
            },
            next_update,
        },
        entries: entries(der)?,
    })
}

/// # Errors
/// It is no list, or one that covers but a part.
fn parse(der: &[u8]) -> Result<CertificateRevocationList<'_>, CrlError> {
    let (rest, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| CrlError::Malformed(error.to_string()))?;
    if !rest.is_empty() {
        return Err(CrlError::Malformed("bytes behind its end".to_owned()));
    }
    let has = |oid| list.extensions().iter().any(|it| it.oid == oid);
    if list.next_update().is_none() {
        return Err(CrlError::NoNextUpdate);
    }
    if has(OID_X509_EXT_DELTA_CRL_INDICATOR) {
        return Err(CrlError::Delta);
    }
    if has(OID_X509_EXT_ISSUER_DISTRIBUTION_POINT) {
        return Err(CrlError::Partial);
    }
    Ok(list)
}

fn next_update(list: &CertificateRevocationList<'_>) -> Result<UnixTime, CrlError> {
    let end = list.next_update().ok_or(CrlError::NoNextUpdate)?;
    let seconds = u64::try_from(end.timestamp()).unwrap_or(0);
    Ok(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
}

/// Each certificate that it revokes. Read by `webpki`, which refuses critical extensions that it does not know, of the
/// list and of each entry.
fn entries(der: &[u8]) -> Result<Vec<Entry>, CrlError> {
    let malformed = |error: webpki::Error| CrlError::Malformed(error.to_string());
    let list = BorrowedCertRevocationList::from_der(der).map_err(malformed)?;
    let entries = list.into_iter().map(|entry| {
        let entry = entry.map_err(malformed)?;
        Ok(Entry {
            serial: entry.serial_number.to_vec(),
            at: entry.revocation_date,
            reason: entry.reason_code.and_then(|code| reason_name(code as u8)),
        })
    });
    entries.collect()
}

/// The CA whose name and key are the list's.
fn signer<'a>(
    der: &[u8],
    list: &CertificateRevocationList<'_>,
    authorities: &'a [Authority<'a>],
    (issuer, ca): (&str, PathBuf),
) -> Result<&'a Authority<'a>, CrlError> {
    let issuer = issuer.to_owned();
    let of_name = |it: &&Authority<'_>| it.x509.subject().as_raw() == list.issuer().as_raw();
    let mut named = authorities.iter().filter(of_name).peekable();
    if named.peek().is_none() {
        let name = plain(list.issuer());
        let is_alike = authorities
            .iter()
            .any(|it| plain(it.x509.subject()) == name);
        return Err(match is_alike {
            true => CrlError::OtherSpelling { issuer, ca },
            false => CrlError::UnknownIssuer { issuer, ca },
        });
    }
    let mut why = Unsigned::OtherKey;
    let mut may_not = false;
    for authority in named {
        match check_signature(&authority.x509, der) {
            // A renewed anchor stands in the file twice: one that may sign lists is enough.
            Ok(()) if may_sign_lists(&authority.x509) => return Ok(authority),
            Ok(()) => may_not = true,
            Err(error) => why = error,
        }
    }
    Err(match why {
        _ if may_not => CrlError::NotForCrls { issuer, ca },
        Unsigned::Unsupported => CrlError::UnsupportedSignature { issuer },
        Unsigned::OtherKey => CrlError::BadSignature { issuer, ca },
    })
}

/// A CA without a key usage may sign anything.
fn may_sign_lists(ca: &X509Certificate<'_>) -> bool {
    match ca.key_usage() {
        Ok(Some(usage)) => usage.value.crl_sign(),
        Ok(None) => true,
        Err(_) => false,
    }
}

/// The parts of a name without their string types, to see that two names are the same in other bytes.
fn plain(name: &X509Name<'_>) -> Vec<(String, String)> {
    let parts = name.iter_attributes();
    let text = |it: &x509_parser::x509::AttributeTypeAndValue<'_>| {
        let value = it.as_str().map(|it| it.trim().to_lowercase());
        (it.attr_type().to_id_string(), value.unwrap_or_default())
    };
    parts.map(text).collect()
}

/// A reason by its name in RFC 5280, section 5.3.1; `None` for none, and for numbers that are no reason.
pub(crate) fn reason_name(code: u8) -> Option<&'static str> {
    const NAMES: [&str; 11] = [
        "",
        "keyCompromise",
        "cACompromise",
        "affiliationChanged",
        "superseded",
        "cessationOfOperation",
        "certificateHold",
        "",
        "removeFromCRL",
        "privilegeWithdrawn",
        "aACompromise",
    ];
    let name = NAMES.get(usize::from(code))?;
    Some(*name).filter(|name| !name.is_empty())
}

/// RFC 3339, UTC.
pub(super) fn moment(time: UnixTime) -> String {
    date(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}
