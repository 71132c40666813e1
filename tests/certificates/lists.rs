//! `ciao-cert` keeping the revocation list of an anchor, and anchors that sign alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command as Plain;
use std::thread;

use ciao_scheduler::net::tls::{
    TrustAnchors, TrustFiles, client_config, load_identity, load_trust, pem, server_config,
};
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::revocation_list::CertificateRevocationList;

use crate::handshake::handshake;
use crate::program::{ciao_cert, succeed};

const ANCHOR: &str = "cert-Scheduler-sched.example.pem";
const CA: &str = "CAcert-sched.example.pem";
const LIST: &str = "CRL-sched.example.pem";

/// A directory with an anchor.
fn site() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["-anchor", "-host", "sched.example"]);
    dir
}

/// Makes the certificate of a node; the name of its file.
fn node(dir: &Path, name: &str) -> String {
    succeed(dir, &["-anchor-cert", ANCHOR, "-node", name]);
    format!("cert-CNAgent-{name}.pem")
}

fn der(dir: &Path, file: &str) -> CertificateDer<'static> {
    let pem = fs::read(dir.join(file)).unwrap();
    pem::certificates(&pem).unwrap().swap_remove(0)
}

/// What the list says: its number, and for each entry serial number, time and reason.
fn read_list(path: &Path) -> (u64, Vec<(Vec<u8>, i64, u8)>) {
    let text = fs::read_to_string(path).unwrap();
    let der = pem::revocation_lists(text.as_bytes())
        .unwrap()
        .swap_remove(0)
        .1;
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    let number = list.crl_number().unwrap().to_bytes_be();
    let number = number
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let entries = list.iter_revoked_certificates().map(|it| {
        let reason = it.reason_code().map_or(0, |(_, code)| code.0);
        (
            it.raw_serial().to_vec(),
            it.revocation_date.timestamp(),
            reason,
        )
    });
    (number, entries.collect())
}

fn serial(der: &CertificateDer<'_>) -> Vec<u8> {
    X509Certificate::from_der(der)
        .unwrap()
        .1
        .raw_serial()
        .to_vec()
}

fn trust(dir: &Path) -> TrustAnchors {
    load_trust(&TrustFiles {
        crls: vec![dir.join(LIST)],
        ..TrustFiles::without_crls(dir.join(CA))
    })
    .unwrap()
}

/// Puts a certificate on the list of the CA of [`site`], for this reason.
fn revoke(dir: &Path, file: &str, reason: &str) {
    let anchor = ["-revoke", "-anchor-cert", ANCHOR];
    succeed(dir, &[&anchor[..], &["-reason", reason, file]].concat());
}

#[test]
fn a_certificate_is_revoked_and_stays_so_in_every_later_list() {
    let dir = site();
    let dir = dir.path();
    let (first, second, third) = (node(dir, "one"), node(dir, "two"), node(dir, "three"));
    let said = succeed(
        dir,
        &[
            "-revoke",
            "-anchor-cert",
            ANCHOR,
            "-reason",
            "KEYcompromise",
            &first,
        ],
    );
    assert!(said.contains("cert-CNAgent-one.pem: revoked\n"), "{said}");
    assert!(
        said.contains("1 certificate is revoked; to be renewed within 90 days"),
        "{said}"
    );
    let mode = fs::metadata(dir.join(LIST)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let before = read_list(&dir.join(LIST));
    assert_eq!(before.0, 1);
    assert_eq!(before.1[0].0, serial(&der(dir, &first)));
    assert_eq!(before.1[0].2, 1, "keyCompromise");
    // A second one, by the word in place of the flag; the first once more changes nothing of its entry.
    let said = succeed(dir, &["revoke", "-anchor-cert", ANCHOR, &second, &first]);
    assert!(
        said.contains("two.pem: revoked\n") && said.contains("one.pem: revoked before\n"),
        "{said}"
    );
    succeed(dir, &["crl", "-anchor-cert", ANCHOR]);
    succeed(
        dir,
        &["-renew-crl", "-anchor-cert", ANCHOR, "-crl-days", "7"],
    );
    let after = read_list(&dir.join(LIST));
    assert_eq!(after.0, 4, "the number rises");
    assert_eq!(after.1.len(), 2);
    assert_eq!(after.1[0], before.1[0]);
    let anchors = trust(dir);
    for (file, verified) in [
        (&first, Err(CertificateError::Revoked)),
        (&second, Err(CertificateError::Revoked)),
        (&third, Ok(())),
    ] {
        assert_eq!(anchors.verify(&der(dir, file), UnixTime::now()), verified);
    }
    let left: Vec<_> = fs::read_dir(dir).unwrap().collect();
    assert_eq!(left.len(), 6, "nothing is left behind: {left:?}");
}

#[test]
fn a_list_and_what_it_revokes_are_shown() {
    let dir = site();
    let dir = dir.path();
    let (bad, good) = (node(dir, "bad"), node(dir, "good"));
    revoke(dir, &bad, "superseded");
    let shown = succeed(dir, &["-dump", LIST]);
    let digits: Vec<_> = serial(&der(dir, &bad))
        .iter()
        .map(|it| format!("{it:02x}"))
        .collect();
    for line in [
        "Revocations:    CRL-sched.example.pem".to_owned(),
        "Issuer:         O=ciao".to_owned(),
        "Number:         01".to_owned(),
        "Certificates:   1".to_owned(),
        format!("Revoked:        {} since 20", digits.join(":")),
    ] {
        assert!(
            shown.lines().any(|it| it.starts_with(&line)),
            "{line} is not in {shown}"
        );
    }
    assert!(shown.contains("(superseded)"), "{shown}");
    let (code, said, _) = ciao_cert(
        dir,
        &["-verify", "-anchor-cert", CA, "-crl", LIST, &bad, &good],
    );
    assert_eq!(code, 3);
    assert!(said.contains("bad.pem: NOT verified: revoked 20"), "{said}");
    assert!(
        said.contains("(superseded), by CRL-sched.example.pem\n"),
        "{said}"
    );
    assert!(said.contains("good.pem: verified (CNAgent)\n"), "{said}");
    succeed(dir, &["-verify", "-anchor-cert", CA, &bad]);
    // A file that is no list does not make it good.
    let (code, _, said) = ciao_cert(dir, &["-verify", "-anchor-cert", CA, "-crl", CA, &bad]);
    assert_eq!(code, 1);
    assert!(said.contains("expected a BEGIN X509 CRL block"), "{said}");
}

#[test]
fn a_certificate_whose_file_is_lost_is_revoked_by_its_serial_number() {
    let dir = site();
    let dir = dir.path();
    let file = node(dir, "lost");
    let lost = der(dir, &file);
    let shown = succeed(dir, &["-dump", &file]);
    let number = shown
        .lines()
        .find_map(|line| line.strip_prefix("Serial:"))
        .unwrap();
    fs::remove_file(dir.join(file)).unwrap();
    succeed(
        dir,
        &["-revoke", "-anchor-cert", ANCHOR, "-serial", number.trim()],
    );
    assert_eq!(
        trust(dir).verify(&lost, UnixTime::now()),
        Err(CertificateError::Revoked)
    );
    let (code, _, said) = ciao_cert(
        dir,
        &["-revoke", "-anchor-cert", ANCHOR, "-serial", "node7"],
    );
    assert_eq!(code, 2);
    assert!(said.contains("hexadecimal digits"), "{said}");
}

#[test]
fn nothing_is_lost_where_many_revoke_at_once() {
    const TIMES: usize = 8;
    let dir = site();
    let dir = dir.path();
    let files: Vec<_> = (0..TIMES)
        .map(|number| node(dir, &format!("node{number}")))
        .collect();
    thread::scope(|scope| {
        for file in &files {
            scope.spawn(move || succeed(dir, &["-revoke", "-anchor-cert", ANCHOR, file]));
        }
    });
    let (number, entries) = read_list(&dir.join(LIST));
    assert_eq!((number, entries.len()), (TIMES as u64, TIMES));
}

#[test]
fn what_may_not_be_revoked_or_overwritten_is_left_as_it_is() {
    let (dir, other) = (site(), site());
    let (dir, other) = (dir.path(), other.path());
    let file = node(dir, "one");
    succeed(dir, &["-revoke", "-anchor-cert", ANCHOR, &file]);
    let before = fs::read(dir.join(LIST)).unwrap();
    let theirs = other.join(node(other, "two")).display().to_string();
    let their_anchor = other.join(ANCHOR).display().to_string();
    let ours = dir.join(LIST).display().to_string();
    let refused = [
        (
            vec!["-revoke", "-anchor-cert", ANCHOR, &file, &theirs],
            1,
            "not revoked: it is not signed by this anchor",
        ),
        (
            vec!["-revoke", "-anchor-cert", ANCHOR, ANCHOR],
            1,
            "it is the anchor itself",
        ),
        (
            vec!["-revoke", "-anchor-cert", ANCHOR, "nothing.pem"],
            1,
            "cannot read nothing.pem",
        ),
        (
            vec!["-revoke", "-anchor-cert", ANCHOR, LIST],
            1,
            "not revoked: line 1: a revocation list",
        ),
        (
            vec!["-renew-crl", "-anchor-cert", &their_anchor, "-crl", &ours],
            1,
            "revocation list of another CA",
        ),
        (
            vec!["-renew-crl", "-anchor-cert", ANCHOR, "-crl", CA],
            1,
            "cannot keep the revocation list in",
        ),
        (
            vec!["-revoke", "-anchor-cert", ANCHOR],
            2,
            "missing the CERTIFICATES",
        ),
        (
            vec!["-revoke", "-anchor-cert", ANCHOR, "-reason", "rain", &file],
            2,
            "reasons are ",
        ),
        (vec!["-renew-crl", "-anchor-cert", CA], 1, "no private key"),
    ];
    for (args, expected_code, expected) in refused {
        let (code, _, said) = ciao_cert(dir, &args);
        assert_eq!(code, expected_code, "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
        assert_eq!(fs::read(dir.join(LIST)).unwrap(), before, "{args:?}");
    }
    assert!(
        fs::read_to_string(dir.join(CA))
            .unwrap()
            .contains("CERTIFICATE")
    );
}

#[test]
fn an_anchor_that_may_not_sign_lists_says_to_renew_it() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    succeed(
        dir,
        &["-anchor", "-host", "sched.example", "-original-shape"],
    );
    let file = node(dir, "one");
    let (code, _, said) = ciao_cert(dir, &["-revoke", "-anchor-cert", ANCHOR, &file]);
    assert_eq!(code, 1);
    assert!(
        said.contains("without cRLSign") && said.contains("-renew FILE"),
        "{said}"
    );
    assert!(!dir.join(LIST).exists());
    succeed(dir, &["-renew", ANCHOR]);
    succeed(dir, &["-revoke", "-anchor-cert", ANCHOR, &file]);
    assert_eq!(
        trust(dir).verify(&der(dir, &file), UnixTime::now()),
        Err(CertificateError::Revoked)
    );
}

/// What the CA file and the list beside it say, where there is one.
fn trust_of_example(dir: &Path) -> TrustAnchors {
    let ca = dir.join("CAcert-example.pem");
    let list = dir.join("CRL-example.pem");
    let crls = list.exists().then_some(list);
    load_trust(&TrustFiles {
        crls: crls.into_iter().collect(),
        ..TrustFiles::without_crls(ca)
    })
    .unwrap()
}

/// Makes an anchor for signing alone; what was said.
fn offline_anchor(dir: &Path) -> String {
    let organization = ["-organization", "Example"];
    let anchor = ["-anchor", "-offline", "-host", "example"];
    succeed(dir, &[&anchor[..], &organization].concat())
}

#[tokio::test]
async fn an_offline_anchor_signs_two_schedulers_and_is_presented_by_none() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let said = offline_anchor(dir);
    assert!(
        said.contains("anchor-example.pem\n    certificate and private key of the anchor"),
        "{said}"
    );
    let anchor = ["-anchor-cert", "anchor-example.pem"];
    for host in ["localhost", "sched2.example"] {
        let args = [
            &anchor[..],
            &["-role", "scheduler", "-host", host, "-verify"],
        ]
        .concat();
        succeed(dir, &args);
    }
    succeed(dir, &[&anchor[..], &["-node", "node7"]].concat());
    let shown = succeed(dir, &["-dump", "anchor-example.pem"]);
    assert!(
        shown.contains("For role:       none: it signs alone"),
        "{shown}"
    );
    assert!(!shown.contains("For host:"), "{shown}");
    let anchors = trust_of_example(dir);
    let own = |name: &str| load_identity(&dir.join(name)).unwrap();
    let client = client_config(&own("cert-CNAgent-node7.pem"), &anchors).unwrap();
    for (file, name) in [
        ("cert-Scheduler-localhost.pem", "localhost"),
        ("cert-Scheduler-sched2.example.pem", "sched2.example"),
    ] {
        let server = server_config(&own(file), &anchors).unwrap();
        let (seen, told) = handshake(server, client.clone(), name).await;
        assert!(seen.is_ok() && told.is_ok(), "{seen:?} {told:?}");
    }
    // It is no peer's certificate: it grants no role.
    let (code, said, _) = ciao_cert(
        dir,
        &[
            "-verify",
            "-anchor-cert",
            "CAcert-example.pem",
            "anchor-example.pem",
        ],
    );
    assert_eq!(code, 3);
    assert!(said.contains("grants no role"), "{said}");
}

#[test]
fn an_offline_anchor_keeps_a_list_and_is_renewed_under_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    offline_anchor(dir);
    let anchor = ["-anchor-cert", "anchor-example.pem"];
    let make = ["-role", "scheduler", "-host", "sched2.example"];
    succeed(dir, &[&anchor[..], &make].concat());
    let file = "cert-Scheduler-sched2.example.pem";
    succeed(dir, &[&anchor[..], &["-revoke", file]].concat());
    let second = der(dir, file);
    let load = || trust_of_example(dir);
    assert_eq!(
        load().verify(&second, UnixTime::now()),
        Err(CertificateError::Revoked)
    );
    let before = fs::read(dir.join("CAcert-example.pem")).unwrap();
    succeed(dir, &["-renew", "anchor-example.pem"]);
    assert_ne!(fs::read(dir.join("CAcert-example.pem")).unwrap(), before);
    assert_eq!(
        load().verify(&second, UnixTime::now()),
        Err(CertificateError::Revoked)
    );
    let files = fs::read_dir(dir).unwrap().count();
    assert_eq!(files, 4);
}

/// Runs `openssl`; whether it succeeded, and what it said.
fn openssl(dir: &Path, args: &[&str]) -> (bool, String) {
    let output = Plain::new("openssl")
        .current_dir(dir)
        .args(args)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

fn has_openssl() -> bool {
    let is_there = Plain::new("openssl").arg("version").output().is_ok();
    if !is_there {
        eprintln!("skipped: openssl is not installed");
    }
    is_there
}

#[test]
fn openssl_reads_lists_where_it_is_installed() {
    if !has_openssl() {
        return;
    }
    let dir = site();
    let dir = dir.path();
    let (bad, good) = (node(dir, "bad"), node(dir, "good"));
    revoke(dir, &bad, "keyCompromise");
    let (is_good, said) = openssl(dir, &["crl", "-in", LIST, "-noout", "-CAfile", CA, "-text"]);
    assert!(
        is_good && said.contains("verify OK") && said.contains("Key Compromise"),
        "{said}"
    );
    for (file, is_verified) in [(&bad, false), (&good, true)] {
        let args = [
            "verify",
            "-CAfile",
            CA,
            "-CRLfile",
            LIST,
            "-crl_check",
            file,
        ];
        let (verified, said) = openssl(dir, &args);
        assert_eq!(verified, is_verified, "{said}");
    }
}

#[test]
fn lists_of_openssl_are_read_and_kept_where_it_is_installed() {
    if !has_openssl() {
        return;
    }
    let dir = site();
    let dir = dir.path();
    let (bad, good) = (node(dir, "bad"), node(dir, "good"));
    // It keeps a database of certificates.
    fs::create_dir(dir.join("db")).unwrap();
    for (name, contents) in [
        ("index", ""),
        ("number", "1000\n"),
        (
            "config",
            "[ca]\ndefault_ca = own\n[own]\ndatabase = db/index\ncrlnumber = db/number\ndefault_md = sha256\n\
             default_crl_days = 30\ncrl_extensions = ext\n[ext]\nauthorityKeyIdentifier = keyid\n",
        ),
    ] {
        fs::write(dir.join("db").join(name), contents).unwrap();
    }
    let own = [
        "ca",
        "-config",
        "db/config",
        "-cert",
        CA,
        "-keyfile",
        ANCHOR,
    ];
    let (is_done, said) = openssl(dir, &[&own[..], &["-revoke", &good]].concat());
    assert!(is_done, "{said}");
    let (is_done, said) = openssl(
        dir,
        &[&own[..], &["-gencrl", "-out", "theirs.pem"]].concat(),
    );
    assert!(is_done, "{said}");
    let theirs = load_trust(&TrustFiles {
        crls: vec![dir.join("theirs.pem")],
        ..TrustFiles::without_crls(dir.join(CA))
    });
    let theirs = theirs.unwrap();
    let now = UnixTime::now();
    assert_eq!(
        theirs.verify(&der(dir, &good), now),
        Err(CertificateError::Revoked)
    );
    assert_eq!(theirs.verify(&der(dir, &bad), now), Ok(()));
    // Which is kept on as well, with its number.
    succeed(
        dir,
        &[
            "-revoke",
            "-anchor-cert",
            ANCHOR,
            "-crl",
            "theirs.pem",
            &bad,
        ],
    );
    let (number, entries) = read_list(&dir.join("theirs.pem"));
    assert_eq!((number, entries.len()), (0x1001, 2));
}
