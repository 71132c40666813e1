//! A failed handshake in words that say whose fault it is.
//!
//! ```text
//! InvalidCertificate(UnknownIssuer)   the peer's certificate is refused: it is not signed by our CA
//! AlertReceived(UnknownCA)            the peer refuses our certificate: it is not signed by the peer's CA; make …
//! ```
//!
//! Used by both sides: handshakes of the daemon, errors of [`crate::net::link`], and checks of files.

use std::io;
use std::time::{Duration, UNIX_EPOCH};

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError};

use super::date;

/// What went wrong in a TLS handshake, or on the connection, for logs and messages.
///
/// `rustls` prints the reasons of custom verifiers in their `Debug` form and names alerts only; here the reason stands
/// in words, and an alert about our certificate says that it is ours.
#[must_use]
pub fn explain(error: &io::Error) -> String {
    match error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        Some(tls) => explain_tls(tls),
        None => error.to_string(),
    }
}

/// "Our" certificate is that of the program that logs.
fn explain_tls(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(reason) => format!(
            "the peer's certificate is refused: {}",
            explain_certificate(reason)
        ),
        rustls::Error::NoCertificatesPresented => "the peer presented no certificate".to_owned(),
        // The peer has looked at our certificate, and says by the alert what it thinks of it.
        rustls::Error::AlertReceived(alert) => match certificate_fault(*alert) {
            Some(reason) => format!("the peer refuses our certificate: {reason}"),
            None => format!("the peer ended the handshake with the alert {alert:?}"),
        },
        rustls::Error::InvalidMessage(_) => format!("the peer does not speak TLS ({error})"),
        other => other.to_string(),
    }
}

/// Why a certificate is refused. Reads on behind "the peer's certificate is refused: ", or behind the name of a file.
#[must_use]
pub fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "it is not signed by our CA".to_owned(),
        // Only a client sees this: servers do not look at names.
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "it is not for {}, but for {}; use one of these names, or say it with --server-name",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::ExpiredContext { time, not_after } => format!(
            "it expired {} (now {}); make a new one with ciao-cert",
            moment(*not_after),
            moment(*time)
        ),
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "it is not valid yet: from {} on (now {}); are the clocks right?",
            moment(*not_before),
            moment(*time)
        ),
        CertificateError::Revoked => "it is revoked, or a CA above it is".to_owned(),
        CertificateError::ExpiredRevocationListContext { next_update, .. } => format!(
            "the revocation list of its CA is out of date since {}, and without a current one it is not known whether it is \
             revoked; make a new list with ciao-cert -renew-crl",
            moment(*next_update)
        ),
        // Mostly two clusters whose CAs have the same subject.
        CertificateError::BadSignature => {
            "it is signed by another key than our CA's (a CA of the same name?)".to_owned()
        }
        CertificateError::UnhandledCriticalExtension => {
            "it has a critical extension that is not understood here".to_owned()
        }
        // From the verifiers of this project: a role or a limit.
        CertificateError::Other(reason) => reason.0.to_string(),
        other => other.to_string(),
    }
}

/// Names of a certificate as they are written, from `DnsName("a")` and `IpAddress(::1)`. What has another form is shown
/// as it is.
fn names(presented: &[String]) -> String {
    let bare = |name: &String| {
        let inner = name
            .split_once('(')
            .and_then(|(_, rest)| rest.strip_suffix(')'));
        let bare = inner.unwrap_or(name).trim_matches('"');
        let address = bare.parse::<std::net::IpAddr>();
        address.map_or_else(|_| bare.to_owned(), |address| address.to_string())
    };
    match presented {
        [] => "no name".to_owned(),
        _ => presented.iter().map(bare).collect::<Vec<_>>().join(", "),
    }
}

/// RFC 3339, UTC.
fn moment(time: UnixTime) -> String {
    date(UNIX_EPOCH + Duration::from_secs(time.as_secs()))
}

/// What an alert says of our certificate, if it is about that. `None` for alerts about the protocol.
fn certificate_fault(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::UnknownCA => {
            "it is not signed by the peer's CA; make one with that CA (ciao-cert -anchor-cert)"
        }
        // Which of these it is the alert does not say: rustls gives it for a name, peers in Go for all.
        AlertDescription::BadCertificate => {
            "it is not for the name or address that the peer dialled, or not signed by the peer's CA, or the peer cannot \
             read it; the peer's own message says which"
        }
        AlertDescription::CertificateExpired => "it is expired or not yet valid",
        AlertDescription::CertificateRequired | AlertDescription::NoCertificate => {
            "it was not sent"
        }
        AlertDescription::CertificateUnknown | AlertDescription::UnsupportedCertificate => {
            "it is of a kind the peer does not accept (has it a role?)"
        }
        AlertDescription::CertificateRevoked => "it is revoked",
        AlertDescription::AccessDenied => "access is denied",
        AlertDescription::DecryptError => "its signature cannot be verified",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustls::{AlertDescription, CertificateError};

    use super::explain;

    fn explained(error: rustls::Error) -> String {
        explain(&io::Error::new(io::ErrorKind::InvalidData, error))
    }

    #[test]
    fn it_says_whose_certificate_is_at_fault() {
        let theirs = explained(CertificateError::UnknownIssuer.into());
        assert_eq!(
            theirs,
            "the peer's certificate is refused: it is not signed by our CA"
        );
        let ours = explained(rustls::Error::AlertReceived(AlertDescription::UnknownCA));
        assert_eq!(
            ours,
            "the peer refuses our certificate: it is not signed by the peer's CA; make one with that CA (ciao-cert \
             -anchor-cert)"
        );
    }

    #[test]
    fn what_is_not_about_tls_keeps_its_words() {
        assert_eq!(explain(&io::Error::other("cable cut")), "cable cut");
    }
}
