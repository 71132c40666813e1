//! Who is let in: certificates, roles, CONNECT, and UUIDs that belong to one certificate alone.

use std::sync::Arc;

use ciao_scheduler::cert::Spec;
use ciao_scheduler::net::tls::pem;
use proto_frames::{Connect, Encoding, Frame, Kind, Message, Role, Uuid};
use rcgen::ExtendedKeyUsagePurpose;
use rustls::ClientConfig;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use crate::certs::TestCa;
use crate::peer::Dialer;
use crate::site::{Daemon, Site, within};

const ENCODINGS: [Encoding; 2] = [Encoding::Native, Encoding::Gob];

/// A client that checks the scheduler as it should and presents whatever `chain_and_key` holds.
fn presenting(ca: &TestCa, chain_and_key: &str) -> Arc<ClientConfig> {
    let mut client = (*ca.client(Role::AGENT)).clone();
    let chain = pem::certificates(chain_and_key.as_bytes()).unwrap();
    let key = pem::private_key(chain_and_key.as_bytes()).unwrap();
    let provider = client.crypto_provider().key_provider;
    let key = provider.load_private_key(key).unwrap();
    let pair = CertifiedKey::new(chain, key);
    client.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(pair));
    Arc::new(client)
}

/// A certificate of this authority that may do anything but has no role, with its key.
fn without_role(ca: &TestCa) -> String {
    let authority = ca.anchor.certified();
    let key = pem::private_key(authority.pem().as_bytes()).unwrap();
    let key = rcgen::KeyPair::try_from(&key).unwrap();
    let issuer = rcgen::Issuer::from_ca_cert_der(authority.der(), key).unwrap();
    let own = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any];
    let certificate = params.signed_by(&own, &issuer).unwrap();
    certificate.pem() + &own.serialize_pem()
}

/// A peer whose certificate is bound to this UUID.
pub(crate) fn bound(site: &Site, daemon: &Daemon, uuid: Uuid) -> Dialer {
    let spec = Spec {
        uuid: Some(uuid),
        ..Spec::localhost(Role::AGENT)
    };
    Dialer {
        tls: site.ca.client_with(&spec),
        ..site.dialer(daemon, Role::AGENT, Encoding::Gob)
    }
    .with_uuid(uuid)
}

/// TLS itself must fail for this peer; in TLS 1.3 it learns so with the first read.
async fn is_cut_in_tls(dialer: &Dialer) {
    if let Ok(mut wire) = within(dialer.tls()).await {
        assert_eq!(wire.next().await, None);
    }
}

#[tokio::test]
async fn every_role_that_its_certificate_grants_is_let_in_in_both_encodings() {
    let (site, daemon) = Site::running().await;
    for encoding in ENCODINGS {
        for role in [
            Role::CONTROLLER,
            Role::AGENT,
            Role::NETAGENT,
            Role::CNCIAGENT,
            Role::AGENT | Role::NETAGENT,
        ] {
            let peer = site.connect(&daemon, role, encoding).await;
            assert_eq!(peer.connected.source, daemon.uuid);
            assert_eq!(peer.connected.role, Role::SCHEDULER);
        }
    }
    site.operator(&daemon).await.nothing_else().await;
}

#[tokio::test]
async fn a_subset_of_the_granted_roles_may_be_claimed() {
    let (site, daemon) = Site::running().await;
    let dialer = site.dialer(&daemon, Role::AGENT | Role::NETAGENT, Encoding::Gob);
    for role in [Role::AGENT, Role::NETAGENT] {
        Dialer {
            role,
            uuid: Uuid::new_v4(),
            ..dialer.clone()
        }
        .connect()
        .await;
    }
}

#[tokio::test]
async fn a_role_that_the_certificate_does_not_grant_is_refused_for_good() {
    let (site, daemon) = Site::running().await;
    for encoding in ENCODINGS {
        let agent = site.dialer(&daemon, Role::AGENT, encoding);
        for role in [
            Role::CONTROLLER,
            Role::AGENT | Role::NETAGENT,
            Role::SCHEDULER,
        ] {
            let greedy = Dialer {
                role,
                ..agent.clone()
            };
            assert_eq!(greedy.refusal().await, Kind::CONNECTION_ABORTED, "{role}");
        }
        let operator = Dialer {
            role: Role::OPERATOR,
            ..agent
        };
        assert_eq!(operator.refusal().await, Kind::CONNECTION_ABORTED);
    }
    daemon
        .logged("it claims CONTROLLER; its certificate grants AGENT")
        .await;
}

#[tokio::test]
async fn role_0_is_refused() {
    let (site, daemon) = Site::running().await;
    for encoding in ENCODINGS {
        let stranger = Dialer {
            role: Role::default(),
            ..site.dialer(&daemon, Role::AGENT, encoding)
        };
        assert_eq!(stranger.refusal().await, Kind::CONNECTION_ABORTED);
    }
}

#[tokio::test]
async fn the_operator_role_is_there_in_the_native_encoding_only() {
    let (site, daemon) = Site::running().await;
    let operator = site.dialer(&daemon, Role::OPERATOR, Encoding::Gob);
    assert_eq!(operator.refusal().await, Kind::CONNECTION_ABORTED);
}

#[tokio::test]
async fn a_certificate_without_a_role_does_not_get_through_tls() {
    let (site, daemon) = Site::running().await;
    let dialer = Dialer {
        tls: presenting(&site.ca, &without_role(&site.ca)),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Gob)
    };
    is_cut_in_tls(&dialer).await;
    daemon.logged("the certificate grants no role").await;
}

#[tokio::test]
async fn a_certificate_of_another_authority_does_not_get_through_tls() {
    let (site, stranger) = (Site::new(), TestCa::new());
    let daemon = site.start(&[]).await;
    let leaf = stranger.anchor.sign(&Spec::localhost(Role::AGENT)).unwrap();
    let dialer = Dialer {
        tls: presenting(&site.ca, leaf.pem()),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Gob)
    };
    is_cut_in_tls(&dialer).await;
    daemon.logged("the peer's certificate is refused").await;
}

#[tokio::test]
async fn a_first_frame_that_is_not_connect_is_refused_with_leave_to_try_again() {
    let (site, daemon) = Site::running().await;
    for encoding in ENCODINGS {
        let dialer = site.dialer(&daemon, Role::AGENT, encoding);
        let mut wire = within(dialer.tls()).await.unwrap();
        let connect = Connect {
            kind: Kind::START,
            ..Connect::new(Role::AGENT, dialer.uuid)
        };
        wire.send(&Message::Connect(connect)).await;
        let refusal = Frame::new(Kind::CONNECTION_FAILURE, Uuid::nil(), "");
        assert_eq!(wire.next().await, Some(Message::Frame(refusal)));
        assert_eq!(wire.next().await, None);
    }
    daemon
        .logged("its first frame is COMMAND START, not CONNECT")
        .await;
}

#[tokio::test]
async fn a_connect_that_cannot_be_read_is_refused_with_leave_to_try_again() {
    let (site, daemon) = Site::running().await;
    // A message of no bytes; one of eight that are none; a descriptor that lies about its length.
    let malformed: [&[u8]; 3] = [
        &[1, 0],
        b"\x08ssntp/1\n",
        &[0x05, 0xff, 0x81, 0x03, 0x01, 0x01],
    ];
    for bytes in malformed {
        let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
        let mut wire = within(dialer.tls()).await.unwrap();
        wire.write(bytes).await.unwrap();
        let refusal = Frame::new(Kind::CONNECTION_FAILURE, Uuid::nil(), "");
        assert_eq!(
            wire.next().await,
            Some(Message::Frame(refusal)),
            "{bytes:?}"
        );
        assert_eq!(wire.next().await, None);
    }
}

#[tokio::test]
async fn a_uuid_bound_by_a_certificate_is_that_certificates_alone() {
    let (site, daemon) = Site::running().await;
    let uuid = Uuid::new_v4();
    let owner = bound(&site, &daemon, uuid);

    let elsewhere = owner.clone().with_uuid(Uuid::new_v4());
    assert_eq!(elsewhere.refusal().await, Kind::CONNECTION_ABORTED);
    daemon.logged("its certificate is bound to").await;

    let mut there = owner.connect().await;
    let thief = site
        .dialer(&daemon, Role::AGENT, Encoding::Gob)
        .with_uuid(uuid);
    assert_eq!(thief.refusal().await, Kind::CONNECTION_ABORTED);
    there.nothing_else().await;

    // Also once the owner has left.
    there.close().await;
    daemon.logged(&format!("{uuid} left")).await;
    assert_eq!(thief.refusal().await, Kind::CONNECTION_ABORTED);
    bound(&site, &daemon, uuid).connect().await;
}

#[tokio::test]
async fn where_binding_is_required_certificates_without_it_are_refused() {
    let site = Site::new();
    let daemon = site.start(&["--require-uuid-binding"]).await;
    let unbound = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    assert_eq!(unbound.refusal().await, Kind::CONNECTION_ABORTED);
    daemon.logged("bound to no UUID").await;
    bound(&site, &daemon, Uuid::new_v4()).connect().await;
}
