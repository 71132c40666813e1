//! Private keys: making them, and writing them the way Go's `x509` and the original's tool expect.
//!
//! `rcgen` holds keys as PKCS#8; the original's files hold `RSA PRIVATE KEY` (PKCS#1) or `EC PRIVATE KEY` (SEC 1, with
//! the curve's OID inside), which is what its peers parse.

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair,
};
use pem::Pem;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P521_SHA512, PKCS_RSA_SHA256};
use x509_parser::asn1_rs::{FromDer, OctetString, Sequence};

/// Kinds of private key.
///
/// Peers of this project and of ciao accept all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyAlgorithm {
    /// ECDSA on P-256: small, and the fastest handshake.
    #[default]
    EcdsaP256,
    /// ECDSA on P-521: what the original's `-elliptic-key` makes.
    EcdsaP521,
    /// RSA with 2048 bits: what the original makes by default.
    Rsa2048,
}

impl KeyAlgorithm {
    /// A new key.
    ///
    /// RSA takes noticeably longer than the two curves.
    ///
    /// # Errors
    /// What the cryptographic library says.
    pub(crate) fn generate(self) -> Result<KeyPair, rcgen::Error> {
        KeyPair::generate_for(match self {
            Self::EcdsaP256 => &PKCS_ECDSA_P256_SHA256,
            Self::EcdsaP521 => &PKCS_ECDSA_P521_SHA512,
            Self::Rsa2048 => &PKCS_RSA_SHA256,
        })
    }

    /// The PEM text of a key that [`KeyAlgorithm::generate`] made; `None` if it is no such key.
    ///
    /// A key in another form than the algorithm's gives `None`, which callers report as a cryptographic error.
    pub(crate) fn to_pem(self, key: &KeyPair) -> Option<String> {
        let pkcs8 = key.serialized_der();
        let block = match self {
            Self::EcdsaP256 => {
                let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8).ok()?;
                Pem::new("EC PRIVATE KEY", key.private_key().as_der().ok()?.as_ref())
            }
            Self::EcdsaP521 => {
                let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P521_SHA512_ASN1_SIGNING, pkcs8).ok()?;
                Pem::new("EC PRIVATE KEY", key.private_key().as_der().ok()?.as_ref())
            }
            Self::Rsa2048 => Pem::new("RSA PRIVATE KEY", pkcs8_contents(pkcs8)?),
        };
        Some(encode(&block))
    }
}

/// A PEM block as text with Unix line ends.
///
/// The `pem` crate writes CRLF by default.
pub(crate) fn encode(block: &Pem) -> String {
    pem::encode_config(
        block,
        pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF),
    )
}

/// The algorithm's own encoding inside PKCS#8: `SEQUENCE { version, algorithm, OCTET STRING key, … }` (RFC 5208).
fn pkcs8_contents(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let (_, outer) = Sequence::from_der(pkcs8).ok()?;
    let (rest, _version) = u32::from_der(&outer.content).ok()?;
    let (rest, _algorithm) = Sequence::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    Some(key.as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::KeyAlgorithm;

    #[test]
    fn keys_are_written_in_the_forms_go_reads_and_come_back_as_the_same_key() {
        for (algorithm, header) in [
            (KeyAlgorithm::EcdsaP256, "-----BEGIN EC PRIVATE KEY-----\n"),
            (KeyAlgorithm::EcdsaP521, "-----BEGIN EC PRIVATE KEY-----\n"),
            (KeyAlgorithm::Rsa2048, "-----BEGIN RSA PRIVATE KEY-----\n"),
        ] {
            let key = algorithm.generate().unwrap();
            let text = algorithm.to_pem(&key).unwrap();
            assert!(text.starts_with(header), "{text}");
            let read = rcgen::KeyPair::from_pem(&text).unwrap();
            assert_eq!(read.public_key_raw(), key.public_key_raw());
        }
    }
}
