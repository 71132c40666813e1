//! Which kinds of key can be used, and what another kind is called.
//!
//! The cryptographic library says of each other kind that it cannot parse it, or, of some, that it does not belong to its
//! certificate. Here the algorithm is looked at first. Nothing of a key but its kind is ever part of a text.

use rustls::pki_types::PrivateKeyDer;
use x509_parser::asn1_rs::{Any, FromDer, Integer, OctetString, Oid, Sequence};
use x509_parser::prelude::SubjectPublicKeyInfo;

/// Fewest and most bits of an RSA key: what the cryptographic library signs with, and accepts signatures of.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Kinds that are made by mistake, or by tools for other ends.
const NAMED: [(&str, &str); 7] = [
    (
        RSA_PSS,
        "an RSA-PSS key (RSASSA-PSS), not one for RSA in general (rsaEncryption)",
    ),
    ("1.3.101.113", "an Ed448 key"),
    ("1.3.101.110", "an X25519 key, which cannot sign"),
    ("1.3.101.111", "an X448 key, which cannot sign"),
    ("1.2.840.10040.4.1", "a DSA key"),
    (
        "1.2.840.113549.1.3.1",
        "a Diffie-Hellman key, which cannot sign",
    ),
    (
        "1.2.840.10046.2.1",
        "a Diffie-Hellman key, which cannot sign",
    ),
];

/// Curves that can be used: P-256, P-384, P-521.
const CURVES: [&str; 3] = ["1.2.840.10045.3.1.7", "1.3.132.0.34", "1.3.132.0.35"];

/// Other curves that have a name.
const OTHER_CURVES: [(&str, &str); 6] = [
    ("1.3.132.0.10", "an ECDSA key on the curve secp256k1"),
    ("1.3.132.0.33", "an ECDSA key on the curve P-224"),
    ("1.2.840.10045.3.1.1", "an ECDSA key on the curve P-192"),
    (
        "1.3.36.3.3.2.8.1.1.7",
        "an ECDSA key on the curve brainpoolP256r1",
    ),
    (
        "1.3.36.3.3.2.8.1.1.11",
        "an ECDSA key on the curve brainpoolP384r1",
    ),
    (
        "1.3.36.3.3.2.8.1.1.13",
        "an ECDSA key on the curve brainpoolP512r1",
    ),
];

const RSA: &str = "1.2.840.113549.1.1.1";
const RSA_PSS: &str = "1.2.840.113549.1.1.10";
const EC: &str = "1.2.840.10045.2.1";

/// What is wanted instead.
pub(crate) const USABLE: &str =
    "RSA with 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519";

/// What a private key is, where it is of a kind that cannot be used; `None` for those that can be, and for what is not
/// understood here, of which the library says more.
pub(crate) fn unusable(key: &PrivateKeyDer<'_>) -> Option<String> {
    match key {
        PrivateKeyDer::Pkcs1(der) => rsa(der.secret_pkcs1_der()),
        PrivateKeyDer::Sec1(der) => {
            let (_, outer) = Sequence::from_der(der.secret_sec1_der()).ok()?;
            let (rest, _version) = u32::from_der(&outer.content).ok()?;
            let (rest, _key) = OctetString::from_der(rest).ok()?;
            let (_, parameters) = Any::from_der(rest).ok()?;
            // [0] EXPLICIT; [1] is the public key.
            (parameters.tag().0 == 0).then(|| curve(parameters.data))?
        }
        PrivateKeyDer::Pkcs8(der) => {
            let (_, outer) = Sequence::from_der(der.secret_pkcs8_der()).ok()?;
            let (rest, _version) = u32::from_der(&outer.content).ok()?;
            let (rest, algorithm) = Sequence::from_der(rest).ok()?;
            let (_, key) = OctetString::from_der(rest).ok()?;
            let (parameters, algorithm) = Oid::from_der(&algorithm.content).ok()?;
            of(&algorithm, parameters, key.as_ref())
        }
        _ => None,
    }
}

/// The same of a public key, as a certificate has it: no signature of such a key is accepted.
pub(crate) fn unusable_public(key: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    let parameters = key.algorithm.parameters.as_ref();
    let algorithm = key.algorithm.algorithm.to_id_string();
    match &*algorithm {
        RSA => rsa_public(&key.subject_public_key.data),
        EC => match parameters.map(|it| it.clone().oid()) {
            Some(Ok(oid)) => other_curve(&oid.to_id_string()),
            _ => Some(explicit_curve()),
        },
        other => named(&NAMED, other),
    }
}

/// By an algorithm identifier; `parameters` is what follows the algorithm in it.
fn of(algorithm: &Oid<'_>, parameters: &[u8], key: &[u8]) -> Option<String> {
    match &*algorithm.to_id_string() {
        RSA => rsa(key),
        EC => curve(parameters),
        other => named(&NAMED, other),
    }
}

/// `RSAPrivateKey`: version, modulus, … (RFC 8017).
fn rsa(key: &[u8]) -> Option<String> {
    let (_, outer) = Sequence::from_der(key).ok()?;
    let (rest, _version) = u32::from_der(&outer.content).ok()?;
    let (_, modulus) = Integer::from_der(rest).ok()?;
    rsa_of(modulus.as_ref())
}

/// `RSAPublicKey`: modulus, exponent.
fn rsa_public(key: &[u8]) -> Option<String> {
    let (_, outer) = Sequence::from_der(key).ok()?;
    let (_, modulus) = Integer::from_der(&outer.content).ok()?;
    rsa_of(modulus.as_ref())
}

fn rsa_of(modulus: &[u8]) -> Option<String> {
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let top = modulus.get(zeros)?;
    let bits = (modulus.len() - zeros) * 8 - top.leading_zeros() as usize;
    match bits {
        _ if RSA_BITS.contains(&bits) => None,
        _ if bits < *RSA_BITS.start() => {
            Some(format!("an RSA key of {bits} bits, which is too short"))
        }
        _ => Some(format!("an RSA key of {bits} bits, which is too long")),
    }
}

/// `ECParameters`: the name of a curve, or the curve itself.
fn curve(parameters: &[u8]) -> Option<String> {
    match Oid::from_der(parameters) {
        Ok((_, oid)) => other_curve(&oid.to_id_string()),
        Err(_) => Some(explicit_curve()),
    }
}

fn explicit_curve() -> String {
    "an ECDSA key whose curve is written out instead of named".to_owned()
}

fn other_curve(oid: &str) -> Option<String> {
    if CURVES.contains(&oid) {
        return None;
    }
    named(&OTHER_CURVES, oid).or_else(|| Some("an ECDSA key on an unusual curve".to_owned()))
}

fn named(names: &[(&str, &str)], oid: &str) -> Option<String> {
    let name = names.iter().find(|(of, _)| *of == oid);
    name.map(|(_, name)| (*name).to_owned())
}
