//! The certificates that the original's tool made: read as what they are, and verified against their anchor.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ciao_scheduler::cert::{Anchor, Shape, Spec};
use ciao_scheduler::net::identity::PeerIdentity;
use ciao_scheduler::net::tls::{TlsError, TrustAnchors, load_identity, pem};
use proto_frames::Role;
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};

/// 2027-01-01T00:00:00Z, inside the validity of the golden certificates.
const IN_TIME: Duration = Duration::from_secs(1_798_761_600);

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("proto-frames/tests/golden/certs")
        .join(name)
}

fn certificate(name: &str) -> CertificateDer<'static> {
    pem::certificates(&std::fs::read(golden(name)).unwrap())
        .unwrap()
        .swap_remove(0)
}

fn anchors() -> TrustAnchors {
    let path = golden("CAcert-localhost.pem");
    TrustAnchors::from_pem(
        &std::fs::read(&path).unwrap(),
        &path,
        UnixTime::since_unix_epoch(IN_TIME),
    )
    .unwrap()
}

#[test]
fn the_originals_certificates_grant_the_roles_in_their_names() {
    for (name, roles) in [
        ("cert-Scheduler-localhost.pem", Role::SCHEDULER),
        (
            "cert-Controller-localhost.pem",
            Role::CONTROLLER | Role::OPERATOR,
        ),
        ("cert-CNAgent-localhost.pem", Role::AGENT),
        ("cert-NetworkingAgent-localhost.pem", Role::NETAGENT),
        (
            "cert-CNAgent-NetworkingAgent-localhost.pem",
            Role::AGENT | Role::NETAGENT,
        ),
        ("cert-CNCIAgent-localhost.pem", Role::CNCIAGENT),
        ("cert-Server-localhost.pem", Role::SERVER),
    ] {
        let der = certificate(name);
        let identity = PeerIdentity::from_der(&der).unwrap();
        assert_eq!(identity.roles, roles, "{name}");
        assert_eq!(identity.bound_uuid, None, "{name}");
        assert_eq!(identity.subject, "O=peer", "{name}");
        anchors()
            .verify(&der, UnixTime::since_unix_epoch(IN_TIME))
            .unwrap();
    }
}

#[test]
fn the_originals_certificates_are_refused_out_of_time_and_under_another_anchor() {
    let der = certificate("cert-CNAgent-localhost.pem");
    let late = UnixTime::since_unix_epoch(IN_TIME + Duration::from_secs(400 * 86_400));
    assert!(matches!(
        anchors().verify(&der, late),
        Err(CertificateError::ExpiredContext { .. })
    ));
    let early = UnixTime::since_unix_epoch(IN_TIME - Duration::from_secs(400 * 86_400));
    assert!(matches!(
        anchors().verify(&der, early),
        Err(CertificateError::NotValidYetContext { .. })
    ));

    // Same subject, another key.
    let other = Anchor::new(&Spec {
        organization: Some("peer".into()),
        ..Spec::localhost(Role::SCHEDULER)
    })
    .unwrap();
    let other =
        TrustAnchors::from_pem(other.ca_pem().as_bytes(), Path::new("x"), UnixTime::now()).unwrap();
    assert!(other.verify(&der, UnixTime::now()).is_err());
}

#[test]
fn the_originals_anchor_tells_where_the_scheduler_is_addresses_first() {
    assert_eq!(anchors().server_names(), ["127.0.0.1", "localhost"]);
}

#[test]
fn a_golden_file_without_its_key_is_refused_with_the_reason() {
    let error = load_identity(&golden("cert-CNAgent-localhost.pem")).unwrap_err();
    assert!(matches!(error, TlsError::Pem { .. }), "{error:?}");
    assert!(error.to_string().contains("no private key"), "{error}");
}

#[test]
fn our_certificates_have_the_originals_shape() {
    let spec = Spec {
        organization: Some("peer".into()),
        emails: vec!["x@example.test".into()],
        ips: vec!["127.0.0.1".parse().unwrap()],
        key: ciao_scheduler::cert::KeyAlgorithm::Rsa2048,
        shape: Shape::Original,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let anchor = Anchor::new(&spec).unwrap();
    let leaf = anchor
        .sign(&Spec {
            roles: Role::AGENT | Role::NETAGENT,
            ..spec
        })
        .unwrap();
    assert_eq!(
        outline(anchor.certified().der()),
        outline(&certificate("cert-Scheduler-localhost.pem"))
    );
    assert_eq!(
        outline(leaf.der()),
        outline(&certificate("cert-CNAgent-NetworkingAgent-localhost.pem"))
    );
}

/// All of a certificate but keys, signatures, serial numbers, dates and the order of extensions.
#[derive(Debug, PartialEq)]
struct Outline {
    subject: Vec<u8>,
    issuer: Vec<u8>,
    algorithm: String,
    extensions: Vec<Extension>,
}

/// An extension's OID, whether it is critical, and its value.
type Extension = (String, bool, Vec<u8>);

fn outline(der: &[u8]) -> Outline {
    const SUBJECT_KEY_IDENTIFIER: &str = "2.5.29.14";
    let (_, x509) = X509Certificate::from_der(der).unwrap();
    let extensions = x509.extensions().iter().map(|extension| {
        let oid = extension.oid.to_id_string();
        let value = if oid == SUBJECT_KEY_IDENTIFIER {
            &[][..]
        } else {
            extension.value
        };
        (oid, extension.critical, value.to_vec())
    });
    let mut extensions: Vec<_> = extensions.collect();
    extensions.sort();
    Outline {
        subject: x509.subject().as_raw().to_vec(),
        issuer: x509.issuer().as_raw().to_vec(),
        algorithm: x509.signature_algorithm.algorithm.to_id_string(),
        extensions,
    }
}
