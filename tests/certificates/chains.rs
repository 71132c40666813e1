//! Certificate chains: a CA between the trust anchor and a peer passes on no role beyond its own.

use std::path::Path;

use ciao_scheduler::cert::Spec;
use ciao_scheduler::net::tls::{TrustAnchors, client_config, explain, server_config};
use proto_frames::Role;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::UnixTime;

use crate::certs::{TestCa, identity};
use crate::handshake::{handshake, issuer, presenting};

const CN_AGENT: u64 = 1;
const CONTROLLER: u64 = 3;

/// The usage that grants the role whose OID ends so.
fn role(arc: u64) -> ExtendedKeyUsagePurpose {
    let arcs = Role::OID_PREFIX.into_iter().chain([arc]);
    ExtendedKeyUsagePurpose::Other(arcs.collect())
}

/// A CA certificate of this name with these usages and its key as PEM, signed by the holder of `signer`; by itself
/// where there is none.
fn ca(name: &str, usages: &[ExtendedKeyUsagePurpose], signer: Option<&str>) -> String {
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.extended_key_usages = usages.to_vec();
    let certificate = match signer {
        Some(signer) => params.signed_by(&own, &issuer(signer)).unwrap(),
        None => params.self_signed(&own).unwrap(),
    };
    certificate.pem() + &own.serialize_pem()
}

/// A peer's certificate that grants this role, its key, and the certificates between it and the anchor.
fn leaf(arc: u64, signer: &str, between: &[&str]) -> String {
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "leaf");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any, role(arc)];
    let certificate = params.signed_by(&own, &issuer(signer)).unwrap();
    let mut chain = certificate.pem();
    for ca in between {
        let end = ca.find("-----BEGIN PRIVATE KEY").unwrap();
        chain.push_str(&ca[..end]);
    }
    chain + &own.serialize_pem()
}

/// What the server says of a client that presents this chain; `None` if it is let in.
async fn refusal(anchor: &TestCa, chain: &str) -> Option<String> {
    let client = presenting(anchor, chain);
    let (admitted, _) = handshake(anchor.server(), client, "localhost").await;
    admitted.err().map(|error| explain(&error))
}

#[tokio::test]
async fn a_ca_for_nodes_issues_no_certificate_of_a_controller() {
    let anchor = TestCa::new();
    for usages in [
        vec![role(CN_AGENT)],
        vec![ExtendedKeyUsagePurpose::Any, role(CN_AGENT)],
    ] {
        let nodes = ca("nodes", &usages, Some(anchor.anchor.certified().pem()));
        let why = refusal(&anchor, &leaf(CONTROLLER, &nodes, &[&nodes])).await;
        let why = why.expect("it is refused");
        assert!(
            why.contains("grants CONTROLLER|OPERATOR, and a CA above it is limited to AGENT"),
            "{why}"
        );
        assert_eq!(
            refusal(&anchor, &leaf(CN_AGENT, &nodes, &[&nodes])).await,
            None
        );
    }
}

#[tokio::test]
async fn the_narrowest_ca_of_a_chain_counts_wherever_it_stands() {
    let anchor = TestCa::new();
    let root = anchor.anchor.certified().pem();
    let nodes = ca("nodes", &[role(CN_AGENT)], Some(root));
    let wide = ca("wide", &[role(CN_AGENT), role(CONTROLLER)], Some(&nodes));
    let chain = leaf(CONTROLLER, &wide, &[&wide, &nodes]);
    assert!(refusal(&anchor, &chain).await.is_some());
    let wide = ca("wide", &[role(CN_AGENT), role(CONTROLLER)], Some(root));
    let narrow = ca("nodes", &[role(CN_AGENT)], Some(&wide));
    let chain = leaf(CONTROLLER, &narrow, &[&narrow, &wide]);
    assert!(refusal(&anchor, &chain).await.is_some());
    let chain = leaf(CN_AGENT, &narrow, &[&narrow, &wide]);
    assert_eq!(refusal(&anchor, &chain).await, None);
}

#[tokio::test]
async fn a_ca_limits_nothing_without_usages_and_everything_with_those_of_something_else() {
    let anchor = TestCa::new();
    let root = Some(anchor.anchor.certified().pem());
    for usages in [vec![], vec![ExtendedKeyUsagePurpose::Any]] {
        let general = ca("general", &usages, root);
        let chain = leaf(CONTROLLER, &general, &[&general]);
        assert_eq!(refusal(&anchor, &chain).await, None);
    }
    let mail = ca("mail", &[ExtendedKeyUsagePurpose::EmailProtection], root);
    let why = refusal(&anchor, &leaf(CN_AGENT, &mail, &[&mail])).await;
    assert!(why.expect("it is refused").contains("limited to NONE"));
}

#[tokio::test]
async fn a_server_behind_a_ca_for_nodes_is_no_scheduler() {
    let anchor = TestCa::new();
    let nodes = ca(
        "nodes",
        &[role(CN_AGENT)],
        Some(anchor.anchor.certified().pem()),
    );
    let own = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.extended_key_usages = vec![role(2)];
    let certificate = params.signed_by(&own, &issuer(&nodes)).unwrap();
    let end = nodes.find("-----BEGIN PRIVATE KEY").unwrap();
    let chain = certificate.pem() + &nodes[..end] + &own.serialize_pem();
    // Its own check of its own certificate finds that first.
    let error = server_config(&identity(&chain), &anchor.anchors()).unwrap_err();
    assert!(error.to_string().contains("limited to AGENT"), "{error}");
}

#[test]
fn an_anchor_is_limited_by_its_roles_only_where_it_has_no_usage_for_anything() {
    let verify = |anchor: &str, arc| {
        let end = anchor.find("-----BEGIN PRIVATE KEY").unwrap();
        let ca = Path::new("CAcert.pem");
        let anchors = TrustAnchors::from_pem(&anchor.as_bytes()[..end], ca, UnixTime::now());
        let own = identity(&leaf(arc, anchor, &[]));
        client_config(&own, &anchors.unwrap()).map(drop)
    };
    let nodes = ca("nodes", &[role(CN_AGENT)], None);
    verify(&nodes, CN_AGENT).unwrap();
    let error = verify(&nodes, CONTROLLER).unwrap_err().to_string();
    assert!(error.contains("limited to AGENT"), "{error}");
    // As the original makes them: the anchor is the scheduler's own certificate as well.
    let usages = [ExtendedKeyUsagePurpose::Any, role(2)];
    verify(&ca("scheduler", &usages, None), CONTROLLER).unwrap();
}

#[test]
fn our_own_anchor_signs_every_role() {
    let ca = TestCa::new();
    for role in [
        Role::CONTROLLER,
        Role::AGENT,
        Role::NETAGENT,
        Role::SERVER,
        Role::CNCIAGENT,
    ] {
        ca.client_with(&Spec::localhost(role));
    }
}
