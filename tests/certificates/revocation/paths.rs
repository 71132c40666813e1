//! Which list counts for which certificate: by the key that has signed it, all the way up to the anchor; and what of a
//! chain is kept to be held against later lists.

use ciao_scheduler::cert::Spec;
use ciao_scheduler::net::tls::{CrlError, StaleCrls, TrustAnchors, pem};
use proto_frames::Role;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::CertificateError;
use rustls::pki_types::{CertificateDer, UnixTime};

use super::{Files, anchor, foreign, in_seconds, leaf, list, serial};
use crate::handshake::issuer;

const REVOKED: Result<(), CertificateError> = Err(CertificateError::Revoked);

/// A CA with this name and its key as PEM, signed by the holder of `signer`.
fn ca(name: &str, signer: &str) -> String {
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.signed_by(&own, &issuer(signer)).unwrap();
    certificate.pem() + &own.serialize_pem()
}

/// A node's certificate, signed by the holder of `signer`.
fn node(signer: &str) -> CertificateDer<'static> {
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "node");
    let role = Role::OID_PREFIX.into_iter().chain([1]).collect();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::Any,
        ExtendedKeyUsagePurpose::Other(role),
    ];
    params
        .signed_by(&own, &issuer(signer))
        .unwrap()
        .der()
        .clone()
}

fn der_of(pem: &str) -> CertificateDer<'static> {
    pem::certificates(pem.as_bytes()).unwrap().swap_remove(0)
}

fn certificate_of(pem: &str) -> &str {
    &pem[..pem.find("-----BEGIN PRIVATE KEY").unwrap()]
}

fn signed_list(signer: &str, serials: &[&[u8]]) -> String {
    let list = foreign(1, serials).signed_by(&issuer(signer)).unwrap();
    list.pem().unwrap()
}

/// Whether a chain is let in, and that a session which keeps it would end by the same lists.
fn verify(anchors: &TrustAnchors, chain: &[CertificateDer<'_>]) -> Result<(), CertificateError> {
    let verified = anchors.verify_chain(&chain[0], &chain[1..], UnixTime::now());
    let revocation = anchors.revocation(&anchors.chain(chain));
    assert_eq!(verified == REVOKED, revocation.is_some(), "{revocation:?}");
    verified
}

#[test]
fn old_and_new_anchor_of_one_name_each_have_their_list() {
    let (old, new) = (anchor(), anchor());
    let subject = |it: &ciao_scheduler::cert::Anchor| {
        let der = it.certified().der().clone();
        let (_, x509) = x509_parser::parse_x509_certificate(&der).unwrap();
        x509.subject().as_raw().to_vec()
    };
    assert_eq!(subject(&old), subject(&new), "as a roll-over has it");
    let files = Files::new(&[]);
    let (of_old, of_new) = (leaf(&old, Role::AGENT), leaf(&new, Role::AGENT));
    let (bad_old, bad_new) = (leaf(&old, Role::AGENT), leaf(&new, Role::AGENT));
    // Each list also has the serial numbers of the other CA's good certificates, which say nothing there.
    files.write("old.pem", list(&old, &[&bad_old, &of_new]).as_bytes());
    files.write("new.pem", list(&new, &[&bad_new, &of_old]).as_bytes());
    for order in [[&old, &new], [&new, &old]] {
        files.set_anchors(&order);
        for lists in [["old.pem", "new.pem"], ["new.pem", "old.pem"]] {
            let anchors = files.load(&lists).unwrap();
            for good in [&of_old, &of_new] {
                assert_eq!(verify(&anchors, &[good.der().clone()]), Ok(()));
            }
            for bad in [&bad_old, &bad_new] {
                assert_eq!(verify(&anchors, &[bad.der().clone()]), REVOKED);
            }
        }
        // With one list alone, the other CA's certificates are let in.
        let anchors = files.load(&["new.pem"]).unwrap();
        assert_eq!(verify(&anchors, &[bad_old.der().clone()]), Ok(()));
        assert_eq!(verify(&anchors, &[bad_new.der().clone()]), REVOKED);
    }
}

#[test]
fn an_anchor_that_is_a_peers_certificate_itself_can_be_revoked() {
    let (one, other) = (anchor(), anchor());
    let files = Files::new(&[&one, &other]);
    files.write("list.pem", list(&one, &[one.certified()]).as_bytes());
    let anchors = files.load(&["list.pem"]).unwrap();
    assert_eq!(verify(&anchors, &[one.certified().der().clone()]), REVOKED);
    assert_eq!(verify(&anchors, &[other.certified().der().clone()]), Ok(()));
    // And with it all that it has signed, as if it was taken out of the CA file.
    let below = leaf(&one, Role::AGENT);
    assert_eq!(anchors.verify(below.der(), UnixTime::now()), REVOKED);
    let before = files.load(&[]).unwrap();
    let session = before.chain(&[below.der().clone()]);
    assert!(
        anchors.revocation(&session).is_some(),
        "a session with it ends"
    );
    let session = before.chain(&[leaf(&other, Role::AGENT).der().clone()]);
    assert_eq!(anchors.revocation(&session), None);
}

#[test]
fn of_a_renewed_anchor_the_old_certificate_can_be_revoked_and_what_it_signed_stays() {
    let old = anchor();
    let new = old
        .renewed(std::time::SystemTime::now(), super::LIFETIME)
        .unwrap();
    let files = Files::new(&[&old, &new]);
    files.write("list.pem", list(&new, &[old.certified()]).as_bytes());
    let anchors = files.load(&["list.pem"]).unwrap();
    assert_eq!(verify(&anchors, &[old.certified().der().clone()]), REVOKED);
    assert_eq!(verify(&anchors, &[new.certified().der().clone()]), Ok(()));
    assert_eq!(
        verify(&anchors, &[leaf(&old, Role::AGENT).der().clone()]),
        Ok(())
    );
}

#[test]
fn every_ca_of_a_chain_is_held_against_the_list_of_the_one_above_it() {
    let anchor = anchor();
    let root = anchor.certified().pem();
    let files = Files::new(&[&anchor]);
    let (middle, other) = (ca("middle", root), ca("other", root));
    let inner = ca("inner", &middle);
    let chain = [node(&inner), der_of(&inner), der_of(&middle)];
    let beside = [node(&other), der_of(&other)];
    files.write("none.pem", list(&anchor, &[]).as_bytes());
    let anchors = files.load(&["none.pem"]).unwrap();
    assert_eq!(
        verify(&anchors, &chain),
        Ok(()),
        "CAs without a list let in"
    );
    assert_eq!(verify(&anchors, &beside), Ok(()));
    // The anchor's list has the CA below it.
    files.write(
        "middle.pem",
        signed_list(root, &[&serial(&chain[2])]).as_bytes(),
    );
    let anchors = files.load(&["middle.pem"]).unwrap();
    assert_eq!(verify(&anchors, &chain), REVOKED);
    assert_eq!(verify(&anchors, &beside), Ok(()));
    // That CA's own list has the next, and that one's the leaf; their certificates stand beside the lists.
    for (signer, bad) in [(&middle, 1), (&inner, 0)] {
        let list = signed_list(signer, &[&serial(&chain[bad])]);
        let cas = [certificate_of(&inner), certificate_of(&middle)].concat();
        files.write("below.pem", format!("{list}{cas}").as_bytes());
        let anchors = files.load(&["none.pem", "below.pem"]).unwrap();
        assert_eq!(verify(&anchors, &chain), REVOKED, "{bad}");
        assert_eq!(verify(&anchors, &beside), Ok(()));
    }
}

#[test]
fn a_list_of_a_ca_below_needs_that_cas_certificate() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let middle = ca("middle", anchor.certified().pem());
    files.write("list.pem", signed_list(&middle, &[]).as_bytes());
    let refused = files.refusal("list.pem");
    assert!(
        matches!(refused, CrlError::UnknownIssuer { .. }),
        "{refused}"
    );
    assert!(
        refused.to_string().contains("in the same file"),
        "{refused}"
    );
}

#[test]
fn two_cas_below_of_one_name_each_have_their_list() {
    let anchor = anchor();
    let root = anchor.certified().pem();
    let files = Files::new(&[&anchor]);
    let (one, two) = (ca("nodes", root), ca("nodes", root));
    let (of_one, of_two) = (node(&one), node(&two));
    let lists = [
        signed_list(&one, &[&serial(&of_two)]),
        signed_list(&two, &[&serial(&of_one)]),
    ];
    let cas = [certificate_of(&one), certificate_of(&two)].concat();
    files.write("lists.pem", format!("{}{cas}", lists.concat()).as_bytes());
    let anchors = files.load(&["lists.pem"]).unwrap();
    let cas = [der_of(&one), der_of(&two)];
    for leaf in [of_one, of_two] {
        let chain = [leaf, cas[0].clone(), cas[1].clone()];
        assert_eq!(verify(&anchors, &chain), Ok(()));
    }
}

#[test]
fn an_anchor_that_another_anchor_has_signed_is_held_against_that_ones_list() {
    let anchor = anchor();
    let files = Files::new(&[&anchor]);
    let middle = ca("middle", anchor.certified().pem());
    let both = [anchor.ca_pem(), certificate_of(&middle)].concat();
    files.write("CAcert.pem", both.as_bytes());
    let below = node(&middle);
    assert_eq!(
        verify(&files.load(&[]).unwrap(), std::slice::from_ref(&below)),
        Ok(())
    );
    let root = anchor.certified().pem();
    files.write(
        "list.pem",
        signed_list(root, &[&serial(&der_of(&middle))]).as_bytes(),
    );
    let anchors = files.load(&["list.pem"]).unwrap();
    assert!(anchors.verify(&below, UnixTime::now()).is_err());
    let chain = [below, der_of(&middle)];
    assert_eq!(
        anchors.verify_chain(&chain[0], &chain[1..], UnixTime::now()),
        REVOKED
    );
}

#[test]
fn a_list_that_goes_out_of_date_follows_the_action() {
    let (with, without) = (anchor(), anchor());
    let files = Files::new(&[&with, &without]);
    let (bad, good) = (leaf(&with, Role::AGENT), leaf(&with, Role::AGENT));
    files.write("list.pem", list(&with, &[&bad]).as_bytes());
    let other = leaf(&without, Role::AGENT);
    let later = in_seconds(3601);
    for stale in [StaleCrls::Refuse, StaleCrls::Warn] {
        let anchors = files
            .load_at(&["list.pem"], stale, UnixTime::now())
            .unwrap();
        assert_eq!(anchors.verify(good.der(), UnixTime::now()), Ok(()));
        assert_eq!(anchors.verify(bad.der(), later), REVOKED, "in either case");
        assert_eq!(
            anchors.verify(other.der(), later),
            Ok(()),
            "its CA has no list"
        );
        let verified = anchors.verify(good.der(), later);
        let presented = anchors.verify(with.certified().der(), later);
        match stale {
            StaleCrls::Warn => assert_eq!((verified, presented), (Ok(()), Ok(()))),
            StaleCrls::Refuse => {
                let is_stale = |it| {
                    matches!(
                        it,
                        Err(CertificateError::ExpiredRevocationListContext { .. })
                    )
                };
                assert!(is_stale(verified) && is_stale(presented));
            }
        }
    }
    let ends = files.load(&["list.pem"]).unwrap().crl_expiries();
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0].0, "list.pem");
}

#[test]
fn a_session_is_held_against_lists_that_come_later() {
    let (old, new) = (anchor(), anchor());
    let files = Files::new(&[&old, &new]);
    let before = files.load(&[]).unwrap();
    let (one, two) = (leaf(&old, Role::AGENT), leaf(&new, Role::AGENT));
    let spec = Spec::localhost(Role::AGENT);
    let third = new.sign(&spec).unwrap();
    let chains = [&one, &two, &third].map(|it| before.chain(&[it.der().clone()]));
    files.write("old.pem", list(&old, &[&one]).as_bytes());
    files.write("new.pem", list(&new, &[&third]).as_bytes());
    let after = files.load(&["old.pem", "new.pem"]).unwrap();
    let revoked = chains.map(|chain| after.revocation(&chain));
    let said = revoked[0].as_ref().unwrap().to_string();
    assert!(said.starts_with("revoked 20"), "{said}");
    assert!(
        said.contains("(keyCompromise), by ") && said.ends_with("old.pem"),
        "{said}"
    );
    assert_eq!(revoked[1], None);
    assert!(revoked[2].is_some());
}
