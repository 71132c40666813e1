//! Who is admitted in a real TLS handshake over a loopback socket.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::{KeyAlgorithm, Shape, Spec};
use ciao_scheduler::net::identity::PeerIdentity;
use ciao_scheduler::net::tls::{client_config_for, explain, pem, server_config};
use proto_frames::Role;
use rcgen::ExtendedKeyUsagePurpose;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::certs::TestCa;

/// Long enough for any handshake on a busy machine; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// What a server sees of a client it admits.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) identity: PeerIdentity,
    version: ProtocolVersion,
    kind: HandshakeKind,
}

/// One handshake and one byte each way: what the server saw, and whether the client got its byte back.
pub(crate) async fn handshake(
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: &str,
) -> (io::Result<Seen>, io::Result<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accept = async {
        let (socket, _) = listener.accept().await?;
        let mut stream = TlsAcceptor::from(server).accept(socket).await?;
        let byte = stream.read_u8().await?;
        stream.write_u8(byte).await?;
        stream.flush().await?;
        let (_, tls) = stream.get_ref();
        Ok(Seen {
            identity: PeerIdentity::from_der(&tls.peer_certificates().unwrap()[0]).unwrap(),
            version: tls.protocol_version().unwrap(),
            kind: tls.handshake_kind().unwrap(),
        })
    };
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connect = async {
        let socket = TcpStream::connect(address).await?;
        let mut stream = TlsConnector::from(client).connect(name, socket).await?;
        stream.write_u8(7).await?;
        stream.flush().await?;
        // With TLS 1.3 a client learns only here that the server refuses it.
        assert_eq!(stream.read_u8().await?, 7);
        Ok(())
    };
    tokio::time::timeout(DEADLINE, async { tokio::join!(accept, connect) })
        .await
        .expect("a handshake hangs")
}

/// A client that checks the server as ours do and presents whatever `chain_and_key` holds.
pub(crate) fn presenting(ca: &TestCa, chain_and_key: &str) -> Arc<ClientConfig> {
    let own = ca.client(Role::AGENT);
    let chain = pem::certificates(chain_and_key.as_bytes()).unwrap();
    let key = pem::private_key(chain_and_key.as_bytes()).unwrap();
    let key = own
        .crypto_provider()
        .key_provider
        .load_private_key(key)
        .unwrap();
    let resolver = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
    let mut client = (*own).clone();
    client.client_auth_cert_resolver = resolver;
    Arc::new(client)
}

/// A client with a certificate that the authority signed but our tool would not make.
fn foreign_client(ca: &TestCa, usages: Vec<ExtendedKeyUsagePurpose>) -> Arc<ClientConfig> {
    let own = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = usages;
    let certificate = params
        .signed_by(&own, &issuer(ca.anchor.certified().pem()))
        .unwrap();
    presenting(ca, &(certificate.pem() + &own.serialize_pem()))
}

/// The holder of this certificate and key as one who signs, whether it may or not.
pub(crate) fn issuer(certificate_and_key: &str) -> rcgen::Issuer<'static, rcgen::KeyPair> {
    let der = pem::certificates(certificate_and_key.as_bytes())
        .unwrap()
        .swap_remove(0);
    let key = pem::private_key(certificate_and_key.as_bytes()).unwrap();
    rcgen::Issuer::from_ca_cert_der(&der, rcgen::KeyPair::try_from(&key).unwrap()).unwrap()
}

/// A client that has no certificate.
#[derive(Debug)]
struct Nothing;

impl ResolvesClientCert for Nothing {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Both ends made from one authority whose keys are of this kind.
fn ends(
    key: KeyAlgorithm,
    shape: Shape,
    version: &'static SupportedProtocolVersion,
) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let ca = TestCa::with(&Spec {
        key,
        shape,
        ..Spec::localhost(Role::SCHEDULER)
    });
    let leaf = ca.identity(&Spec {
        key,
        shape,
        ..Spec::localhost(Role::AGENT | Role::NETAGENT)
    });
    (
        ca.server(),
        client_config_for(&leaf, &ca.anchors(), &[version]).unwrap(),
    )
}

#[tokio::test]
async fn every_key_kind_and_shape_is_admitted_in_tls_1_2_and_1_3() {
    for key in [
        KeyAlgorithm::EcdsaP256,
        KeyAlgorithm::EcdsaP521,
        KeyAlgorithm::Rsa2048,
    ] {
        for shape in [Shape::Identified, Shape::Original] {
            for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
                let (server, client) = ends(key, shape, version);
                let (admitted, answered) = handshake(server, client, "localhost").await;
                answered.unwrap_or_else(|error| panic!("{key:?} {shape:?} {version:?}: {error}"));
                let seen = admitted.unwrap();
                assert_eq!(seen.identity.roles, Role::AGENT | Role::NETAGENT);
                assert_eq!(seen.version, version.version);
            }
        }
    }
}

#[tokio::test]
async fn the_anchor_is_accepted_by_address_as_well_as_by_name_and_by_no_other_name() {
    let ca = TestCa::new();
    let (admitted, answered) = handshake(ca.server(), ca.client(Role::AGENT), "127.0.0.1").await;
    assert!(
        admitted.is_ok() && answered.is_ok(),
        "{admitted:?} {answered:?}"
    );
    let (_, answered) = handshake(ca.server(), ca.client(Role::AGENT), "elsewhere.example").await;
    assert!(
        answered
            .unwrap_err()
            .to_string()
            .contains("elsewhere.example")
    );
}

#[tokio::test]
async fn a_scheduler_may_present_a_leaf_instead_of_the_anchor() {
    let ca = TestCa::new();
    let leaf = ca.identity(&Spec::localhost(Role::SCHEDULER));
    let server = server_config(&leaf, &ca.anchors()).unwrap();
    let (admitted, answered) = handshake(server, ca.client(Role::CONTROLLER), "localhost").await;
    assert!(
        admitted.is_ok() && answered.is_ok(),
        "{admitted:?} {answered:?}"
    );
}

#[tokio::test]
async fn a_server_that_is_no_scheduler_is_refused_by_the_client() {
    let ca = TestCa::new();
    let leaf = ca.identity(&Spec::localhost(Role::AGENT));
    let server = server_config(&leaf, &ca.anchors()).unwrap();
    let (_, answered) = handshake(server, ca.client(Role::CONTROLLER), "localhost").await;
    let error = explain(&answered.unwrap_err());
    assert!(error.contains("SCHEDULER role"), "{error}");
}

#[tokio::test]
async fn a_certificate_without_a_role_is_refused() {
    let ca = TestCa::new();
    for usages in [
        vec![],
        vec![ExtendedKeyUsagePurpose::Any],
        vec![ExtendedKeyUsagePurpose::ClientAuth],
    ] {
        let client = foreign_client(&ca, usages);
        let (admitted, answered) = handshake(ca.server(), client, "localhost").await;
        let error = explain(&admitted.unwrap_err());
        assert!(error.contains("grants no role"), "{error}");
        assert!(answered.is_err(), "the client is told");
    }
}

#[tokio::test]
async fn a_role_counts_whatever_other_usages_stand_beside_it() {
    let ca = TestCa::new();
    let role = || ExtendedKeyUsagePurpose::Other(vec![1, 3, 6, 1, 4, 1, 343, 8, 1]);
    for usages in [
        vec![role()],
        vec![ExtendedKeyUsagePurpose::CodeSigning, role()],
    ] {
        let client = foreign_client(&ca, usages);
        let (admitted, answered) = handshake(ca.server(), client, "localhost").await;
        answered.unwrap();
        assert_eq!(admitted.unwrap().identity.roles, Role::AGENT);
    }
}

#[tokio::test]
async fn a_client_of_another_authority_is_refused_even_with_the_same_names() {
    let (ours, theirs) = (TestCa::new(), TestCa::new());
    // The stranger trusts our anchor, so that only its own certificate is at fault.
    let client = presenting(
        &ours,
        theirs
            .anchor
            .sign(&Spec::localhost(Role::AGENT))
            .unwrap()
            .pem(),
    );
    let (admitted, answered) = handshake(ours.server(), client, "localhost").await;
    assert!(admitted.is_err());
    assert!(answered.is_err());
}

#[tokio::test]
async fn a_server_of_another_authority_is_refused() {
    let (ours, theirs) = (TestCa::new(), TestCa::new());
    let (admitted, answered) =
        handshake(theirs.server(), ours.client(Role::AGENT), "localhost").await;
    assert!(admitted.is_err());
    assert!(answered.is_err());
}

#[tokio::test]
async fn expired_and_not_yet_valid_clients_are_refused() {
    let ca = TestCa::new();
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    for (not_before, words) in [
        (now - 2 * hour, "expired"),
        (now + 2 * hour, "not valid yet"),
    ] {
        let spec = Spec {
            not_before,
            lifetime: hour,
            ..Spec::localhost(Role::AGENT)
        };
        let client = presenting(&ca, ca.anchor.sign(&spec).unwrap().pem());
        let (admitted, answered) = handshake(ca.server(), client, "localhost").await;
        let error = explain(&admitted.unwrap_err());
        assert!(error.contains(words), "{error}");
        assert!(answered.is_err());
    }
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let ca = TestCa::new();
    let mut client = (*ca.client(Role::AGENT)).clone();
    client.client_auth_cert_resolver = Arc::new(Nothing);
    let (admitted, answered) = handshake(ca.server(), Arc::new(client), "localhost").await;
    assert!(admitted.is_err());
    assert!(answered.is_err());
}

#[tokio::test]
async fn a_leaf_cannot_sign_for_others() {
    let ca = TestCa::new();
    // A subject of its own, so that it is the only possible issuer.
    let spec = Spec {
        organization: Some("node7".to_owned()),
        ..Spec::localhost(Role::AGENT)
    };
    let agent = ca.anchor.sign(&spec).unwrap();
    let own = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Other(vec![
        1, 3, 6, 1, 4, 1, 343, 8, 3,
    ])];
    let forged = params.signed_by(&own, &issuer(agent.pem())).unwrap();
    let chain = format!(
        "{}{}{}",
        forged.pem(),
        agent.certificate_pem(),
        own.serialize_pem()
    );
    let (admitted, _) = handshake(ca.server(), presenting(&ca, &chain), "localhost").await;
    let error = explain(&admitted.unwrap_err());
    assert!(error.contains("EndEntityUsedAsCa"), "{error}");
}

#[tokio::test]
async fn no_session_is_resumed() {
    let ca = TestCa::new();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let leaf = ca.identity(&Spec::localhost(Role::AGENT));
        let mut client = (*client_config_for(&leaf, &ca.anchors(), &[version]).unwrap()).clone();
        // A client that would resume if it could.
        client.resumption = rustls::client::Resumption::in_memory_sessions(8);
        let (server, client) = (ca.server(), Arc::new(client));
        for _ in 0..2 {
            let (admitted, _) =
                handshake(Arc::clone(&server), Arc::clone(&client), "localhost").await;
            assert_eq!(admitted.unwrap().kind, HandshakeKind::Full, "{version:?}");
        }
    }
}
