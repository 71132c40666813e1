//! Reading PEM text: certificates and the first private key. The only file that uses `rustls-pemfile`.

use std::io::Cursor;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Why PEM text is not what was looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PemError {
    /// The text has no CERTIFICATE block.
    #[error("no certificate in it (no BEGIN CERTIFICATE block)")]
    NoCertificate,
    /// The text has no private key block.
    #[error(
        "no private key in it (no BEGIN RSA PRIVATE KEY, EC PRIVATE KEY or PRIVATE KEY block); \
         certificate and key stand in one file, one after the other"
    )]
    NoPrivateKey,
    /// A block is damaged.
    #[error("damaged PEM: {0}")]
    Damaged(String),
}

/// Every certificate in the text, in order; at least one.
///
/// # Errors
/// [`PemError::NoCertificate`], [`PemError::Damaged`].
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let found: Vec<_> = rustls_pemfile::certs(&mut Cursor::new(pem))
        .collect::<Result<_, _>>()
        .map_err(damaged)?;
    if found.is_empty() {
        Err(PemError::NoCertificate)
    } else {
        Ok(found)
    }
}

/// The first private key in the text: PKCS#1, SEC 1 or PKCS#8, not encrypted.
///
/// # Errors
/// [`PemError::NoPrivateKey`], [`PemError::Damaged`].
pub fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemError> {
    rustls_pemfile::private_key(&mut Cursor::new(pem))
        .map_err(damaged)?
        .ok_or(PemError::NoPrivateKey)
}

#[expect(clippy::needless_pass_by_value, reason = "the shape `map_err` wants")]
fn damaged(error: std::io::Error) -> PemError {
    PemError::Damaged(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{PemError, certificates, private_key};

    #[test]
    fn text_without_the_block_is_told_from_a_damaged_block() {
        assert_eq!(certificates(b"hello"), Err(PemError::NoCertificate));
        assert_eq!(private_key(b"hello").unwrap_err(), PemError::NoPrivateKey);
        let broken = b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n";
        assert!(matches!(certificates(broken), Err(PemError::Damaged(_))));
    }
}
