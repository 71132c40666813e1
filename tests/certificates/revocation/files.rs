//! Lists that are refused where they are read, each with its file and why; and the forms in which files have them.

use ciao_scheduler::cert::{Shape, Spec};
use ciao_scheduler::net::tls::{CrlError, StaleCrls, TlsError};
use proto_frames::Role;
use rcgen::string::PrintableString;
use rcgen::{
    BasicConstraints, CertificateParams, CrlDistributionPoint, CrlIssuingDistributionPoint,
    DistinguishedName, DnType, DnValue, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::CertificateError;
use rustls::pki_types::UnixTime;

use super::{Files, anchor, foreign, in_seconds, leaf, list, names, serial};
use crate::handshake::issuer;

/// The DER of the one PEM block in a text.
fn der(pem: &str) -> Vec<u8> {
    pem::parse(pem).unwrap().into_contents()
}

#[test]
fn a_list_counts_as_pem_and_as_der_from_a_file_and_from_a_directory() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let (bad, good) = (leaf(&anchor, Role::AGENT), leaf(&anchor, Role::AGENT));
    let pem = list(&anchor, &[&bad]);
    files.write(
        "list.pem",
        format!("Certificate Revocation List:\n{pem}").as_bytes(),
    );
    files.write("list.crl", &der(&pem));
    files.write("lists/a.crl", &der(&pem));
    files.write("linked/..2026/list.pem", pem.as_bytes());
    std::os::unix::fs::symlink("..2026/list.pem", files.path("linked/list.pem")).unwrap();
    for place in ["list.pem", "list.crl", "lists", "linked"] {
        let anchors = files.load(&[place]).unwrap();
        assert!(anchors.has_crls());
        let now = UnixTime::now();
        assert_eq!(
            anchors.verify(bad.der(), now),
            Err(CertificateError::Revoked),
            "{place}"
        );
        assert_eq!(anchors.verify(good.der(), now), Ok(()), "{place}");
    }
    assert!(!files.load(&[]).unwrap().has_crls());
}

#[test]
fn files_of_a_directory_are_all_read_but_for_what_is_left_behind() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    for name in [
        ".list.pem.swp",
        "list.pem~",
        "list.pem.bak",
        "list.old",
        "next.tmp",
    ] {
        files.write(&format!("lists/{name}"), b"no list");
    }
    std::fs::create_dir(files.path("lists/below")).unwrap();
    assert_eq!(files.refusal("lists"), CrlError::EmptyDirectory);
    files.write("lists/list.pem", list(&anchor, &[]).as_bytes());
    files.load(&["lists"]).unwrap();
    files.write("lists/README", b"These are lists.\n");
    let error = files.load(&["lists"]).unwrap_err().to_string();
    assert!(names(&error, &files.path("lists/README")), "{error}");
    assert!(error.contains("no revocation list in it"), "{error}");
    std::fs::remove_file(files.path("lists/README")).unwrap();
    std::os::unix::fs::symlink("nowhere", files.path("lists/other.pem")).unwrap();
    assert!(matches!(
        files.load(&["lists"]),
        Err(TlsError::Unreadable { .. })
    ));
}

#[test]
fn what_is_no_list_is_named_as_what_it_is() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    files.write("ca.pem", anchor.ca_pem().as_bytes());
    files.write("empty.pem", b"");
    files.write("cut.der", &der(&list(&anchor, &[]))[..100]);
    let two = format!(
        "{}{}",
        list(&anchor, &[]),
        "-----BEGIN X509 CRL-----\n!!\n-----END X509 CRL-----\n"
    );
    files.write("two.pem", two.as_bytes());
    let second = two.lines().position(|line| line == "!!").unwrap();
    for (name, expected) in [
        (
            "ca.pem",
            "line 1: a certificate; expected a BEGIN X509 CRL block".to_owned(),
        ),
        ("empty.pem", "it is empty".to_owned()),
        ("cut.der", "malformed revocation list".to_owned()),
        ("two.pem", format!("damaged PEM: line {second}")),
        ("missing.pem", "No such file".to_owned()),
    ] {
        let error = files.load(&[name]).unwrap_err().to_string();
        assert!(names(&error, &files.path(name)), "{error}");
        assert!(error.contains(&expected), "{error}");
    }
}

#[test]
fn a_list_of_a_ca_that_is_no_anchor_is_refused() {
    let files = Files::new(&[&anchor()]);
    let other = Spec {
        organization: Some("another\u{7}".to_owned()),
        ..Spec::localhost(Role::SCHEDULER)
    };
    let other = ciao_scheduler::cert::Anchor::new(&other).unwrap();
    files.write("list.pem", list(&other, &[]).as_bytes());
    let refused = files.refusal("list.pem");
    let message = refused.to_string();
    assert!(
        matches!(refused, CrlError::UnknownIssuer { .. }),
        "{message}"
    );
    assert!(
        message.contains(r"O=another\u{7}") && !message.contains('\u{7}'),
        "{message}"
    );
}

#[test]
fn an_issuer_in_another_string_type_is_refused_rather_than_passed_over() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    // The anchor's own key, and its name as a UTF8String: `webpki` would find no list for the anchor's certificates.
    let key = ciao_scheduler::net::tls::pem::private_key(anchor.certified().pem().as_bytes());
    let key = KeyPair::try_from(&key.unwrap()).unwrap();
    let spelled = |value: DnValue| {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, value);
        let issuer = Issuer::from_params(&params, &key);
        let bad = leaf(&anchor, Role::AGENT);
        let list = foreign(1, &[&serial(bad.der())])
            .signed_by(&issuer)
            .unwrap();
        (list.pem().unwrap(), bad)
    };
    let (utf8, _) = spelled(DnValue::Utf8String("ciao".to_owned()));
    files.write("utf8.pem", utf8.as_bytes());
    let refused = files.refusal("utf8.pem");
    assert!(
        matches!(refused, CrlError::OtherSpelling { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("UTF8String"), "{refused}");
    let printable = PrintableString::try_from("ciao").unwrap();
    let (same, bad) = spelled(DnValue::PrintableString(printable));
    files.write("same.pem", same.as_bytes());
    let anchors = files.load(&["same.pem"]).unwrap();
    assert_eq!(
        anchors.verify(bad.der(), UnixTime::now()),
        Err(CertificateError::Revoked)
    );
}

#[test]
fn a_signature_of_another_key_and_a_list_that_was_changed_are_refused() {
    let (ours, theirs) = (anchor(), anchor());
    let files = Files::new(&[&ours]);
    files.write("theirs.pem", list(&theirs, &[]).as_bytes());
    assert!(matches!(
        files.refusal("theirs.pem"),
        CrlError::BadSignature { .. }
    ));
    let bad = leaf(&ours, Role::AGENT);
    let mut changed = der(&list(&ours, &[&bad]));
    let serial = serial(bad.der());
    let at = changed
        .windows(serial.len())
        .position(|it| it == serial)
        .unwrap();
    changed[at + serial.len() - 1] ^= 1;
    files.write("changed.crl", &changed);
    assert!(matches!(
        files.refusal("changed.crl"),
        CrlError::BadSignature { .. }
    ));
    // One that can be used does not make up for one that cannot.
    files.write("ours.pem", list(&ours, &[]).as_bytes());
    assert!(files.load(&["ours.pem", "theirs.pem"]).is_err());
}

#[test]
fn a_list_that_is_out_of_date_is_refused_with_either_action() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    files.write("list.pem", list(&anchor, &[]).as_bytes());
    for stale in [StaleCrls::Refuse, StaleCrls::Warn] {
        files
            .load_at(&["list.pem"], stale, in_seconds(3500))
            .unwrap();
        let error = files
            .load_at(&["list.pem"], stale, in_seconds(3601))
            .unwrap_err();
        let error = error.to_string();
        assert!(names(&error, &files.path("list.pem")), "{error}");
        assert!(error.contains("O=ciao is out of date since"), "{error}");
    }
}

#[test]
fn a_ca_that_may_not_sign_lists_is_named_and_can_once_it_is_renewed() {
    let old = Spec {
        shape: Shape::Original,
        ..Spec::localhost(Role::SCHEDULER)
    };
    let old = ciao_scheduler::cert::Anchor::new(&old).unwrap();
    let files = Files::new(&[&old]);
    let bad = leaf(&old, Role::AGENT);
    // Another tool may sign one all the same.
    let key = ciao_scheduler::net::tls::pem::private_key(old.certified().pem().as_bytes());
    let key = KeyPair::try_from(&key.unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let name = DnValue::PrintableString(PrintableString::try_from("ciao").unwrap());
    params
        .distinguished_name
        .push(DnType::OrganizationName, name);
    let by_hand = foreign(1, &[&serial(bad.der())]).signed_by(&Issuer::from_params(&params, &key));
    files.write("list.pem", by_hand.unwrap().pem().unwrap().as_bytes());
    let refused = files.refusal("list.pem");
    assert!(matches!(refused, CrlError::NotForCrls { .. }), "{refused}");
    assert!(
        refused.to_string().contains("ciao-cert -renew"),
        "{refused}"
    );
    let lifetime = std::time::Duration::from_secs(3600);
    let renewed = old.renewed(std::time::SystemTime::now(), lifetime).unwrap();
    for anchors in [vec![&renewed], vec![&old, &renewed], vec![&renewed, &old]] {
        files.set_anchors(&anchors);
        let anchors = files.load(&["list.pem"]).unwrap();
        assert_eq!(
            anchors.verify(bad.der(), UnixTime::now()),
            Err(CertificateError::Revoked)
        );
    }
}

#[test]
fn a_list_of_a_part_of_the_certificates_is_refused() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let mut part = foreign(1, &[]);
    part.issuing_distribution_point = Some(CrlIssuingDistributionPoint {
        distribution_point: CrlDistributionPoint {
            uris: vec!["http://crl.example/1".to_owned()],
        },
        scope: None,
    });
    let part = part.signed_by(&issuer(anchor.certified().pem())).unwrap();
    files.write("part.crl", part.der().as_ref());
    assert_eq!(files.refusal("part.crl"), CrlError::Partial);
}

#[test]
fn a_list_without_an_end_is_refused() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    files.write(
        "endless.crl",
        &without_next_update(&der(&list(&anchor, &[]))),
    );
    assert_eq!(files.refusal("endless.crl"), CrlError::NoNextUpdate);
}

#[test]
fn lists_of_all_kinds_of_keys_are_verified() {
    use ciao_scheduler::cert::KeyAlgorithm::{EcdsaP256, EcdsaP521, Rsa2048};
    for key in [EcdsaP256, EcdsaP521, Rsa2048] {
        let spec = Spec {
            key,
            ..Spec::localhost(Role::SCHEDULER)
        };
        let anchor = ciao_scheduler::cert::Anchor::new(&spec).unwrap();
        let files = Files::new(&[&anchor]);
        let bad = leaf(&anchor, Role::AGENT);
        files.write("list.pem", list(&anchor, &[&bad]).as_bytes());
        let anchors = files.load(&["list.pem"]).unwrap();
        assert_eq!(
            anchors.verify(bad.der(), UnixTime::now()),
            Err(CertificateError::Revoked),
            "{key:?}"
        );
    }
}

#[test]
fn of_several_lists_of_a_ca_the_newest_counts_in_whatever_order_they_stand() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let bad = leaf(&anchor, Role::AGENT);
    let signer = issuer(anchor.certified().pem());
    let old = foreign(0xff, &[]).signed_by(&signer).unwrap();
    let new = foreign(0x100, &[&serial(bad.der())])
        .signed_by(&signer)
        .unwrap();
    files.write("old.pem", old.pem().unwrap().as_bytes());
    files.write("new.pem", new.pem().unwrap().as_bytes());
    for lists in [["old.pem", "new.pem"], ["new.pem", "old.pem"]] {
        let anchors = files.load(&lists).unwrap();
        assert_eq!(
            anchors.verify(bad.der(), UnixTime::now()),
            Err(CertificateError::Revoked)
        );
    }
}

#[test]
fn no_ca_loses_its_list_or_gets_an_older_one_while_a_program_runs() {
    let (one, other) = (anchor(), anchor());
    let files = Files::new(&[&one, &other]);
    let signer = issuer(one.certified().pem());
    for number in [7, 8] {
        let list = foreign(number, &[]).signed_by(&signer).unwrap();
        files.write(&format!("{number}.pem"), list.pem().unwrap().as_bytes());
    }
    files.write("other.pem", list(&other, &[]).as_bytes());
    let in_use = files.load(&["8.pem", "other.pem"]).unwrap();
    let follows = |lists: &[&str]| files.load(lists).unwrap().check_follow(&in_use);
    follows(&["8.pem", "other.pem"]).unwrap();
    let error = follows(&["7.pem", "other.pem"]).unwrap_err().to_string();
    assert!(names(&error, &files.path("7.pem")), "{error}");
    assert!(error.contains("(number 07 after 08)"), "{error}");
    let error = follows(&["8.pem"]).unwrap_err().to_string();
    assert!(names(&error, &files.path("other.pem")), "{error}");
    assert!(error.contains("is in use"), "{error}");
    // A CA that goes takes its list along.
    files.set_anchors(&[&one]);
    let next = files.load(&["8.pem"]).unwrap();
    next.check_follow(&in_use).unwrap();
}

#[test]
fn lists_that_revoke_every_anchor_are_refused() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    files.write("list.pem", list(&anchor, &[anchor.certified()]).as_bytes());
    assert!(matches!(
        files.refusal("list.pem"),
        CrlError::RevokesAll { .. }
    ));
}

#[test]
fn a_certificate_beside_a_list_has_to_be_of_a_ca_below_an_anchor() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "stray");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::CrlSign];
    let stray = params.self_signed(&key).unwrap();
    let own = list(&anchor, &[]);
    files.write("list.pem", format!("{own}{}", stray.pem()).as_bytes());
    let refused = files.refusal("list.pem");
    assert!(
        matches!(refused, CrlError::StrayCertificate { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("stray"), "{refused}");
    let peer = leaf(&anchor, Role::AGENT);
    files.write(
        "list.pem",
        format!("{own}{}", peer.certificate_pem()).as_bytes(),
    );
    assert!(matches!(
        files.refusal("list.pem"),
        CrlError::StrayCertificate { .. }
    ));
}

/// A list in DER form without its `nextUpdate`, which nothing here would make. Its signature is no longer good.
fn without_next_update(list: &[u8]) -> Vec<u8> {
    let [body, rest @ ..] = &parts(contents(list))[..] else {
        panic!("it is no list");
    };
    let mut fields = parts(contents(body));
    // version, signature, issuer, thisUpdate, nextUpdate
    fields.remove(4);
    let body = sequence(&fields.concat());
    sequence(&[&body[..], &rest.concat()].concat())
}

/// What is in an element of DER, without its tag and length.
fn contents(element: &[u8]) -> &[u8] {
    let (header, len) = header(element);
    &element[header..header + len]
}

/// The elements that stand one behind the other.
fn parts(mut elements: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    while !elements.is_empty() {
        let (header, len) = header(elements);
        let (part, rest) = elements.split_at(header + len);
        parts.push(part);
        elements = rest;
    }
    parts
}

/// The lengths of the header and of what follows.
fn header(element: &[u8]) -> (usize, usize) {
    match element[1] {
        len @ ..=0x7f => (2, len.into()),
        0x81 => (3, element[2].into()),
        _ => (4, usize::from(element[2]) << 8 | usize::from(element[3])),
    }
}

fn sequence(contents: &[u8]) -> Vec<u8> {
    let len = u16::try_from(contents.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82, len[0], len[1]], contents].concat()
}
