//! Certification authorities as what signatures are checked with: a name and a key. Which of several has signed
//! something, and what a certificate is called that one of them has made.
//!
//! A name alone does not say which CA it is: the old and the new anchor of a roll-over mostly have the same. Used by
//! [`super::crl`] and [`super::anchors`]; the path of a peer's certificate is found by `webpki`, in [`super::verify`].

use aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::aws_lc_rs::default_provider;
use x509_parser::asn1_rs::{Any, FromDer};
use x509_parser::prelude::X509Certificate;

/// A CA: SHA-256 of its subject and its public key, both in DER form. All certificates of a CA for the same name and key
/// are the same CA.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct CaId([u8; 32]);

/// A certificate, by the CA that has made it and its serial number; or a CA. What a session keeps of its peer's chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Link([u8; 32]);

/// Why a signature does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unsigned {
    /// It is of a kind that is not accepted with this key.
    Unsupported,
    /// It is another key's, or what is signed was changed.
    OtherKey,
}

impl CaId {
    /// That of a CA's certificate.
    pub(super) fn of(ca: &X509Certificate<'_>) -> Self {
        // Each part says in DER how long it is.
        Self(sha256(&[ca.subject().as_raw(), ca.public_key().raw]))
    }

    /// The certificate of this CA with this serial number, as the certificate has it.
    pub(super) fn certificate(self, serial: &[u8]) -> Link {
        Link(sha256(&[&self.0, serial]))
    }

    /// The CA itself, at the upper end of a chain.
    pub(super) fn link(self) -> Link {
        Link(self.0)
    }
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(part);
    }
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

/// As [`check_signature`], where it does not matter why not.
pub(crate) fn has_signed(ca: &X509Certificate<'_>, signed: &[u8]) -> bool {
    check_signature(ca, signed).is_ok()
}

/// Whether a CA's key verifies the signature of a certificate or a revocation list in DER form, by the algorithms that
/// are accepted in handshakes.
///
/// # Errors
/// It does not.
pub(super) fn check_signature(ca: &X509Certificate<'_>, signed: &[u8]) -> Result<(), Unsigned> {
    let signed = Signed::read(signed).ok_or(Unsigned::Unsupported)?;
    let key = two_parts(ca.public_key().raw).ok_or(Unsigned::Unsupported)?;
    let all = default_provider().signature_verification_algorithms;
    let accepted = all.all.iter().filter(|it| {
        *it.public_key_alg_id() == *key.algorithm && *it.signature_alg_id() == *signed.algorithm
    });
    let mut why = Unsigned::Unsupported;
    for algorithm in accepted {
        match algorithm.verify_signature(key.bits, signed.body, signed.signature) {
            Ok(()) => return Ok(()),
            Err(_) => why = Unsigned::OtherKey,
        }
    }
    Err(why)
}

/// `SEQUENCE { body, SEQUENCE algorithm, BIT STRING signature }`, as certificates and revocation lists are.
struct Signed<'a> {
    /// With its tag and length: what the signature is for.
    body: &'a [u8],
    /// Without tag and length, as the provider compares it.
    algorithm: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Signed<'a> {
    fn read(der: &'a [u8]) -> Option<Self> {
        let (_, whole) = Any::from_der(der).ok()?;
        let (rest, _) = Any::from_der(whole.data).ok()?;
        let body = &whole.data[..whole.data.len() - rest.len()];
        let (rest, algorithm) = Any::from_der(rest).ok()?;
        let (_, signature) = Any::from_der(rest).ok()?;
        Some(Self {
            body,
            algorithm: algorithm.data,
            signature: bits(signature.data)?,
        })
    }
}

/// `SEQUENCE { SEQUENCE algorithm, BIT STRING key }`, as public keys are.
struct Key<'a> {
    /// Without tag and length.
    algorithm: &'a [u8],
    bits: &'a [u8],
}

fn two_parts(spki: &[u8]) -> Option<Key<'_>> {
    let (_, whole) = Any::from_der(spki).ok()?;
    let (rest, algorithm) = Any::from_der(whole.data).ok()?;
    let (_, key) = Any::from_der(rest).ok()?;
    Some(Key {
        algorithm: algorithm.data,
        bits: bits(key.data)?,
    })
}

/// The contents of a bit string of whole bytes; the first byte says how many bits of the last are not used.
fn bits(contents: &[u8]) -> Option<&[u8]> {
    match contents {
        [0, bits @ ..] => Some(bits),
        _ => None,
    }
}
