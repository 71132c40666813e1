//! What other programs make of certificates: Go's `crypto/x509`, as the original's peers use it, and the usages that
//! OpenSSL and browsers look for.
//!
//! The part with Go needs `go`. Where it is missing the test says so and passes, unless `CIAO_REQUIRE_GO=1`.

use std::path::{Path, PathBuf};
use std::process::Command;

use ciao_scheduler::cert::{Anchor, CertifiedPem, Shape, Spec};
use ciao_scheduler::net::tls::TrustAnchors;
use proto_frames::{Role, Uuid};
use rustls::pki_types::UnixTime;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Every kind of leaf, with what it is used for over HTTPS.
const LEAVES: [(Role, &str); 7] = [
    (Role::CONTROLLER, "client"),
    (Role::AGENT, "client"),
    (Role::NETAGENT, "client"),
    (Role::CNCIAGENT, "client"),
    (Role::VIEWER, "client"),
    (Role::SERVER, "server"),
    (Role(Role::AGENT.0 | Role::NETAGENT.0), "client"),
];

fn usages(certificate: &CertifiedPem) -> (bool, bool, bool, usize) {
    let (_, x509) = X509Certificate::from_der(certificate.der()).unwrap();
    let usage = x509.extended_key_usage().unwrap().unwrap().value;
    let roles = usage.other.len();
    (usage.any, usage.server_auth, usage.client_auth, roles)
}

#[test]
fn new_certificates_are_for_https_and_ones_of_the_originals_shape_are_as_ever() {
    let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    assert_eq!(usages(anchor.certified()), (true, true, true, 1));
    let (_, x509) = X509Certificate::from_der(anchor.certified().der()).unwrap();
    assert!(x509.key_usage().unwrap().unwrap().value.crl_sign());
    for (roles, usage) in LEAVES {
        let leaf = anchor.sign(&Spec::localhost(roles)).unwrap();
        let count = roles.0.count_ones() as usize;
        assert_eq!(usages(&leaf), (true, usage == "server", true, count));
    }
    let old = Spec {
        shape: Shape::Original,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let anchor = Anchor::new(&old).unwrap();
    assert_eq!(usages(anchor.certified()), (true, false, false, 1));
    let (_, x509) = X509Certificate::from_der(anchor.certified().der()).unwrap();
    assert!(!x509.key_usage().unwrap().unwrap().value.crl_sign());
}

#[test]
fn a_renewed_anchor_has_its_key_and_names_and_has_signed_what_the_old_one_did() {
    for shape in [Shape::Original, Shape::Identified] {
        let spec = Spec {
            shape,
            emails: vec!["ops@example.test".to_owned()],
            organization: Some("Example Inc".to_owned()),
            uuid: Some(Uuid::from_u128(7)),
            ..Spec::localhost(Role::SCHEDULER)
        };
        let old = Anchor::new(&spec).unwrap();
        let leaf = old
            .sign(&Spec {
                shape,
                ..Spec::localhost(Role::AGENT)
            })
            .unwrap();
        let renewed = old.renewed(spec.not_before, spec.lifetime).unwrap();
        assert_ne!(renewed.ca_pem(), old.ca_pem());
        assert_eq!(usages(renewed.certified()), (true, true, true, 1));
        let names = renewed.spec().unwrap();
        assert_eq!((&names.hosts, &names.ips), (&spec.hosts, &spec.ips));
        assert_eq!(names.emails, spec.emails);
        assert_eq!(names.uuid, spec.uuid, "it stays bound to one peer");
        let anchors = |pem: &str| {
            TrustAnchors::from_pem(pem.as_bytes(), Path::new("CA"), UnixTime::now()).unwrap()
        };
        let now = UnixTime::now();
        assert_eq!(anchors(renewed.ca_pem()).verify(leaf.der(), now), Ok(()));
        let newer = renewed.sign(&Spec::localhost(Role::AGENT)).unwrap();
        assert_eq!(anchors(old.ca_pem()).verify(newer.der(), now), Ok(()));
    }
}

#[test]
fn go_takes_new_certificates_for_what_they_are_for_and_old_ones_as_ever() {
    let Some(program) = go_program() else {
        let is_required = std::env::var_os("CIAO_REQUIRE_GO").is_some_and(|value| value == "1");
        assert!(!is_required, "go is required");
        eprintln!("skipped: go is not installed");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for shape in [Shape::Identified, Shape::Original] {
        let spec = |roles| Spec {
            shape,
            ..Spec::localhost(roles)
        };
        let anchor = Anchor::new(&spec(Role::SCHEDULER)).unwrap();
        let ca = dir.path().join("CA.pem");
        std::fs::write(&ca, anchor.ca_pem()).unwrap();
        let path = dir.path().join("leaf.pem");
        let check = |pem: &str, usage: &str| {
            std::fs::write(&path, pem).unwrap();
            let mut command = Command::new(&program);
            command.arg("-ca").arg(&ca).arg("-leaf").arg(&path);
            command.args(["-usage", usage]);
            if usage == "server" {
                command.args(["-name", "localhost"]);
            }
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{shape:?}, {usage}: {said}");
        };
        for (roles, usage) in LEAVES {
            let leaf = anchor.sign(&spec(roles)).unwrap();
            check(leaf.pem(), "any");
            check(leaf.pem(), usage);
        }
        for usage in ["any", "server", "client"] {
            check(anchor.ca_pem(), usage);
        }
    }
}

/// The built program; `None` where Go is not installed.
fn go_program() -> Option<PathBuf> {
    Command::new("go").arg("version").output().ok()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join("go_x509");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go/x509/main.go");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(source)
        .env("GOCACHE", target.join("go-build"))
        .status()
        .expect("go runs");
    assert!(status.success(), "tests/go/x509 does not build");
    Some(program)
}
