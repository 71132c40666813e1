//! A certificate as text for people: what `ciao-cert -dump` prints.
//!
//! ```text
//! Certificate:    cert-CNAgent-localhost.pem
//! Organization:   ciao
//! Is CA:          false
//! Validity:       … to …
//! For role:       CNAgent
//! ```
//! Nothing is verified here: what is damaged in a detail is shown as far as it can be read.

use std::fmt::{self, Write};
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::PrivateKeyDer;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::cert::spec::role_names;
use crate::net::identity::{self, IdentityError, PeerIdentity};
use crate::net::tls::pem::{PemError, certificates, private_key, revocation_lists};
use crate::net::tls::reason_name;
use crate::net::tls::{date, ip_address};

/// Why a file cannot be described.
///
/// `ciao-cert` adds the name of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescribeError {
    /// It holds no certificate.
    #[error(transparent)]
    Pem(#[from] PemError),
    /// A certificate in it is damaged.
    #[error(transparent)]
    Certificate(#[from] IdentityError),
}

/// Every revocation list and certificate in a file, one block of lines each, and the kind of private key behind them; the labels are
/// those of the original's tool, with a few more.
///
/// `name` is printed as the name of each certificate. Private keys are never shown, only their kind.
///
/// # Errors
/// [`DescribeError`].
pub fn describe(name: &str, pem: &[u8]) -> Result<String, DescribeError> {
    let mut text = String::new();
    let lists = lists(pem)?;
    for list in &lists {
        list_lines(&mut text, name, list)?;
    }
    let certificates = match certificates(pem) {
        Ok(certificates) => certificates,
        Err(_) if !lists.is_empty() => return Ok(text),
        Err(error) => return Err(error.into()),
    };
    for der in certificates {
        let x509 = identity::parse(&der)?;
        // Writing to a string cannot fail.
        let _ = lines(&mut text, name, &der, &x509);
    }
    let kind = match private_key(pem) {
        Ok(PrivateKeyDer::Pkcs1(_)) => Some("RSA PRIVATE KEY"),
        Ok(PrivateKeyDer::Sec1(_)) => Some("EC PRIVATE KEY"),
        Ok(_) => Some("PRIVATE KEY"),
        Err(PemError::NoPrivateKey) => None,
        Err(PemError::Encrypted { .. }) => Some("encrypted"),
        Err(error) => return Err(error.into()),
    };
    let _ = line(
        &mut text,
        "Private key",
        kind.unwrap_or("none in this file"),
    );
    Ok(text)
}

/// The revocation lists of a file, PEM or DER; none where there is none.
fn lists(contents: &[u8]) -> Result<Vec<Vec<u8>>, DescribeError> {
    if let [0x30, ..] = contents
        && CertificateRevocationList::from_der(contents).is_ok()
    {
        return Ok(vec![contents.to_vec()]);
    }
    match revocation_lists(contents) {
        Ok(lists) => Ok(lists
            .into_iter()
            .map(|(_, it)| it.as_ref().to_vec())
            .collect()),
        Err(PemError::NoRevocationList | PemError::Other { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// What a list says of itself, and a line for each certificate that it revokes.
fn list_lines(text: &mut String, name: &str, der: &[u8]) -> Result<(), DescribeError> {
    let (_, list) = CertificateRevocationList::from_der(der)
        .map_err(|error| IdentityError::Malformed(error.to_string()))?;
    let at = |time: x509_parser::time::ASN1Time| moment(time.timestamp());
    let number = list.crl_number().map_or_else(
        || "none".to_owned(),
        |number| identity::hex(&number.to_bytes_be()),
    );
    let next = list.next_update();
    let next = next.map_or_else(|| "none: no program takes it".to_owned(), at);
    let revoked: Vec<_> = list.iter_revoked_certificates().collect();
    // Writing to a string cannot fail.
    let _ = line(text, "Revocations", name);
    let _ = line(text, "Issuer", identity::shown(list.issuer()));
    let _ = line(text, "Number", number);
    let _ = line(text, "Made", at(list.last_update()));
    let _ = line(text, "Out of date", next);
    let _ = line(text, "Certificates", revoked.len());
    for entry in revoked {
        let reason = entry
            .reason_code()
            .and_then(|(_, code)| reason_name(code.0));
        let reason = reason.map(|it| format!(" ({it})")).unwrap_or_default();
        let since = at(entry.revocation_date);
        let serial = entry.raw_serial_as_string();
        let _ = line(
            text,
            "Revoked",
            format_args!("{serial} since {since}{reason}"),
        );
    }
    Ok(())
}

/// A moment in seconds of Unix time as people read it; those before 1970 count as 1970.
fn moment(seconds: i64) -> String {
    date(UNIX_EPOCH + Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Up to a dozen lines for one certificate. A certificate without roles is described too, with the remark that no peer
/// accepts it.
fn lines(text: &mut String, name: &str, der: &[u8], x509: &X509Certificate<'_>) -> fmt::Result {
    line(text, "Certificate", name)?;
    for organization in x509
        .subject()
        .iter_organization()
        .filter_map(|name| name.as_str().ok())
    {
        if !organization.is_empty() {
            line(text, "Organization", organization)?;
        }
    }
    line(text, "Is CA", x509.is_ca())?;
    let at = moment;
    let validity = x509.validity();
    let span = format_args!(
        "{} to {}",
        at(validity.not_before.timestamp()),
        at(validity.not_after.timestamp())
    );
    line(text, "Validity", span)?;
    let roles = role_names(identity::roles(x509).unwrap_or_default());
    line(
        text,
        "For role",
        match (&*roles, x509.is_ca()) {
            ("", true) => "none: it signs alone",
            ("", false) => "none: no peer accepts it",
            (roles, _) => roles,
        },
    )?;
    names(text, x509)?;
    // Other errors are not about the UUID.
    match PeerIdentity::from_der(der) {
        Ok(PeerIdentity {
            bound_uuid: Some(uuid),
            ..
        }) => line(text, "Bound to UUID", uuid)?,
        Err(error @ IdentityError::BadUuid) => line(text, "Bound to UUID", error)?,
        _ => {}
    }
    line(text, "Serial", x509.raw_serial_as_string())?;
    line(text, "SHA-256", identity::hex(&identity::fingerprint(der)))
}

/// Alternative names by kind: hosts, IP addresses, e-mail addresses. The bound UUID has a line of its own.
fn names(text: &mut String, x509: &X509Certificate<'_>) -> fmt::Result {
    let Ok(Some(names)) = x509.subject_alternative_name() else {
        return Ok(());
    };
    let names = &names.value.general_names;
    for name in names {
        if let GeneralName::DNSName(host) = name {
            line(text, "For host", host)?;
        }
    }
    for name in names {
        if let GeneralName::IPAddress(octets) = name {
            line(
                text,
                "For IP",
                ip_address(octets).as_deref().unwrap_or("malformed"),
            )?;
        }
    }
    for name in names {
        if let GeneralName::RFC822Name(email) = name {
            line(text, "E-mail", email)?;
        }
    }
    Ok(())
}

/// One label and its value; control characters of the value are escaped, since it comes from a file.
///
/// The value begins in the same column on every line.
fn line(text: &mut String, label: &str, value: impl fmt::Display) -> fmt::Result {
    let value = value.to_string();
    writeln!(
        text,
        "{:<15} {}",
        format_args!("{label}:").to_string(),
        value.escape_debug()
    )
}

#[cfg(test)]
mod tests {
    use proto_frames::{Role, Uuid};

    use super::describe;
    use crate::cert::{Anchor, Spec};

    #[test]
    fn it_says_what_a_certificate_is_for() {
        let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        let spec = Spec {
            organization: Some("it's ours\u{1b}[2J".to_owned()),
            emails: vec!["ops@example.test".to_owned()],
            uuid: Some(Uuid::from_u128(7)),
            ..Spec::localhost(Role::AGENT | Role::NETAGENT)
        };
        let text = describe("x.pem", anchor.sign(&spec).unwrap().pem().as_bytes()).unwrap();
        for line in [
            "Certificate:    x.pem",
            "Is CA:          false",
            "For role:       CNAgent-NetworkingAgent",
            "For host:       localhost",
            "For IP:         127.0.0.1",
            "For IP:         ::1",
            "E-mail:         ops@example.test",
            "Bound to UUID:  00000000-0000-0000-0000-000000000007",
            "Private key:    EC PRIVATE KEY",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line:?} is missing in\n{text}"
            );
        }
        assert!(
            !text.contains('\u{1b}'),
            "no escape sequence from a file reaches a terminal"
        );
    }

    #[test]
    fn a_ca_file_has_no_key() {
        let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        let text = describe("CAcert.pem", anchor.ca_pem().as_bytes()).unwrap();
        assert!(text.contains("Is CA:          true"), "{text}");
        assert!(text.contains("Private key:    none in this file"), "{text}");
    }
}
