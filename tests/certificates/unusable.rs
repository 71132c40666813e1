//! Certificates and keys of kinds that cannot be used: each is named as what it is, and nothing of a file is shown.
//!
//! The files in `unusable/` are of OpenSSL, with keys of no worth: `openssl req -x509` with `-newkey rsa:1024`,
//! `rsa-pss`, `ec:<(openssl ecparam -name secp256k1)` and so on.

use std::path::{Path, PathBuf};

use ciao_scheduler::cert::{Anchor, Spec};
use ciao_scheduler::net::tls::{
    explain_certificate, load_anchors, load_identity, pem, server_config,
};
use proto_frames::Role;
use rustls::pki_types::UnixTime;

fn unusable(name: &str) -> PathBuf {
    Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/certificates/unusable"
    ))
    .join(name)
}

#[test]
fn a_key_of_a_kind_that_cannot_be_used_is_named_as_what_it_is() {
    for (name, says) in [
        ("ed448.pem", "an Ed448 key"),
        (
            "encrypted-legacy.pem",
            "the private key is encrypted (the legacy form",
        ),
        (
            "encrypted-pkcs8.pem",
            "the private key is encrypted (PKCS#8)",
        ),
        (
            "explicit-curve.pem",
            "an ECDSA key whose curve is written out",
        ),
        (
            "rsa-1024.pem",
            "an RSA key of 1024 bits, which is too short",
        ),
        ("rsa-pss.pem", "an RSA-PSS key"),
        ("secp256k1-pkcs8.pem", "an ECDSA key on the curve secp256k1"),
        ("secp256k1-sec1.pem", "an ECDSA key on the curve secp256k1"),
    ] {
        let path = unusable(name);
        let error = load_identity(&path).unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
        assert!(error.contains(&path.display().to_string()), "{error}");
        shows_nothing_of(&std::fs::read_to_string(path).unwrap(), &error);
    }
}

#[test]
fn nothing_of_a_file_whose_line_ends_were_lost_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    let pem = anchor.sign(&Spec::localhost(Role::AGENT)).unwrap();
    let pem = pem.pem();
    for text in [
        pem.replace('\n', ""),
        pem.replace('\n', "\\n"),
        pem.replace('\n', " "),
        format!("\u{feff}{pem}"),
        pem.replace("-----END", "-----Fin"),
        pem.replacen("-----\n", "-----\n*", 1),
        pem[..pem.len() - 60].to_owned(),
    ] {
        let path = directory.path().join("a.pem");
        std::fs::write(&path, &text).unwrap();
        let error = load_identity(&path).unwrap_err().to_string();
        shows_nothing_of(pem, &error);
        assert!(
            error.contains("expected") || error.contains("line"),
            "{error}"
        );
    }
}

#[test]
fn a_ca_whose_signatures_cannot_be_checked_is_named_as_what_it_is() {
    for (name, says) in [
        ("rsa-1024", "an RSA key of 1024 bits"),
        ("rsa-pss", "an RSA-PSS key"),
        ("secp256k1", "an ECDSA key on the curve secp256k1"),
    ] {
        let anchors = load_anchors(&unusable(&format!("{name}-ca.pem"))).unwrap();
        let signed = load_identity(&unusable(&format!("of-{name}-ca.pem"))).unwrap();
        let error = server_config(&signed, &anchors).unwrap_err().to_string();
        assert!(error.contains(says), "{name}: {error}");
        let file = std::fs::read(unusable(&format!("of-{name}-ca.pem"))).unwrap();
        let peer = pem::certificates(&file).unwrap().remove(0);
        let error = anchors.verify(&peer, UnixTime::now()).unwrap_err();
        let error = explain_certificate(&error);
        assert!(error.contains(says), "{name}: {error}");
    }
}

/// No line of base64 of the file stands in the message.
fn shows_nothing_of(pem: &str, error: &str) {
    let lines = pem
        .lines()
        .filter(|line| line.len() > 12 && !line.contains(' ') && !line.starts_with("--"));
    for line in lines {
        assert!(!error.contains(&line[..12]), "{error}");
    }
}
