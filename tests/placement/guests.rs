//! Clients without a certificate at the HTTP door that want more than is below `/placement`, and such whose certificate
//! is refused.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::Spec;
use ciao_scheduler::net::tls::pem;
use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proto_frames::Role;
use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::certs::TestCa;
use crate::client::{Answer, TOKEN, World};
use crate::mounted::nameless;
use crate::site::within;

/// A connection, if it comes to one as far as the client can tell.
async fn connected(address: SocketAddr, tls: &Arc<ClientConfig>) -> Option<TlsStream<TcpStream>> {
    let tcp = within(TcpStream::connect(address)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::clone(tls));
    within(connector.connect(name, tcp)).await.ok()
}

/// What comes of these bytes until the server ends the connection.
async fn all_of(address: SocketAddr, tls: &Arc<ClientConfig>, request: &str) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = connected(address, tls).await {
        let _ = within(stream.write_all(request.as_bytes())).await;
        let _ = within(stream.read_to_end(&mut bytes)).await;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn no_way_of_writing_a_request_leads_past_the_path_of_the_placement_api() {
    let world = World::mounted().await;
    let nameless = nameless(&world.site);
    let rest = format!("host: localhost\r\nconnection: close\r\nx-auth-token: {TOKEN}\r\n");
    for line in [
        "GET /v1/status",
        "GET /metrics",
        "GET /v1/events",
        "GET https://localhost/v1/status",
        "GET //placement/../v1/status",
        "GET /placement%2F..%2Fv1/status",
        "GET /%70lacement/traits",
        "GET /placement;/v1/status",
        "GET /PLACEMENT/traits",
        "GET /v1/status?/placement",
        "GET /v1/status/placement",
        "OPTIONS *",
        "CONNECT localhost:443",
        "HEAD /livez",
        "DELETE /v1/instances/x",
    ] {
        let request = format!("{line} HTTP/1.1\r\n{rest}\r\n");
        let answer = Answer::read(all_of(world.address, &nameless, &request).await.as_bytes());
        assert_eq!(answer.status, 403, "{line}: {answer:?}");
    }
    for line in [
        "GET /placement/../v1/status",
        "GET /placement/%2e%2e/v1/status",
        "GET /placement//v1/status",
        "GET /placement/placement",
    ] {
        let request = format!("{line} HTTP/1.1\r\n{rest}\r\n");
        let answer = Answer::read(all_of(world.address, &nameless, &request).await.as_bytes());
        assert_eq!(answer.fault().0, 404, "{line}: {answer:?}");
    }
    for upgrade in ["websocket", "h2c"] {
        let request = format!("GET /placement HTTP/1.1\r\n{rest}upgrade: {upgrade}\r\n\r\n")
            .replace(
                "connection: close",
                "connection: upgrade, close\r\nhttp2-settings: AAMAAABkAAQAAP__",
            );
        let answer = Answer::read(all_of(world.address, &nameless, &request).await.as_bytes());
        assert_eq!(answer.status, 200, "{upgrade}: {answer:?}");
    }
    // A token that was shown opens nothing for what comes behind it.
    let open = rest.replace("connection: close\r\n", "");
    let request = format!(
        "GET /placement/traits HTTP/1.1\r\nopenstack-api-version: placement 1.6\r\n{open}\r\nGET /v1/status HTTP/1.1\r\n{rest}\r\n"
    );
    let answers = all_of(world.address, &nameless, &request).await;
    assert!(answers.starts_with("HTTP/1.1 200 "), "{answers}");
    assert!(answers.contains("HTTP/1.1 403 "), "{answers}");
}

#[tokio::test]
async fn over_http_2_a_client_without_a_certificate_gets_the_placement_api_alone() {
    let world = World::mounted().await;
    let mut tls = (*nameless(&world.site)).clone();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let stream = connected(world.address, &Arc::new(tls)).await.unwrap();
    let io = TokioIo::new(stream);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
    let (mut client, connection) = within(handshake).await.unwrap();
    tokio::spawn(connection);
    for (method, path, status) in [
        ("GET", "/placement", 200),
        ("GET", "/placement/traits", 401),
        ("POST", "/placement/traits", 401),
        ("GET", "/v1/status", 403),
        ("GET", "/v1/events", 403),
        ("GET", "/metrics", 403),
        ("GET", "/", 403),
        ("GET", "/placement%2F../v1/status", 403),
        ("CONNECT", "", 403),
    ] {
        let uri = match method {
            "CONNECT" => "localhost:443".to_owned(),
            _ => format!("https://localhost{path}"),
        };
        let request = Request::builder().method(method).uri(uri);
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        let answer = within(client.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), status, "{method} {path}");
        let _ = within(answer.into_body().collect()).await.unwrap();
    }
}

#[tokio::test]
async fn a_client_whose_certificate_is_refused_is_not_let_in_as_if_it_had_shown_none() {
    let world = World::mounted().await;
    let other = TestCa::new();
    let expired = Spec {
        not_before: SystemTime::now() - Duration::from_secs(60),
        lifetime: Duration::from_secs(30),
        ..Spec::localhost(Role::VIEWER)
    };
    let viewer = Spec::localhost(Role::VIEWER);
    let ours = &world.site.ca;
    for (ca, spec, key, is_let_in) in [
        (ours, &viewer, None, true),
        (ours, &expired, None, false),
        (&other, &viewer, None, false),
        // A certificate is no secret, and its key is.
        (ours, &viewer, Some(other.anchor.certified()), false),
    ] {
        let signed = ca.anchor.sign(spec).unwrap();
        let key = key.unwrap_or(&signed);
        let chain = pem::certificates(signed.pem().as_bytes()).unwrap();
        let key = pem::private_key(key.pem().as_bytes()).unwrap();
        let provider = aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(key).unwrap();
        let shown: Arc<dyn ResolvesClientCert> =
            Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let trusted = world.site.ca.identity(&viewer);
            let anchors = world.site.ca.anchors();
            let tls = ciao_scheduler::net::tls::client_config_for(&trusted, &anchors, &[version]);
            let mut tls = (*tls.unwrap()).clone();
            tls.client_auth_cert_resolver = Arc::clone(&shown);
            let request = "GET /placement HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            let answer = all_of(world.address, &Arc::new(tls), request).await;
            assert_eq!(answer.starts_with("HTTP/1.1 200 "), is_let_in, "{answer}");
            assert_eq!(answer.is_empty(), !is_let_in, "{answer}");
        }
    }
}

/// Connections without a certificate that there may be at once, as the limits say.
const GUESTS: usize = 64;

#[tokio::test]
async fn guests_without_a_token_make_room_for_one_more() {
    let world = World::mounted().await;
    let nameless = nameless(&world.site);
    let mut guests = Vec::new();
    for _ in 0..GUESTS {
        let mut guest = connected(world.address, &nameless).await.unwrap();
        // Answered, so that it has its place.
        let versions = b"GET /placement HTTP/1.1\r\nhost: localhost\r\n\r\n";
        within(guest.write_all(versions)).await.unwrap();
        let mut head = [0; 12];
        within(guest.read_exact(&mut head)).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        guests.push(guest);
    }
    let request = format!(
        "GET /placement/resource_providers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-auth-token: {TOKEN}\r\n\r\n"
    );
    let answer = all_of(world.address, &nameless, &request).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    // It had the place of the first of them.
    let mut rest = Vec::new();
    let _ = within(guests[0].read_to_end(&mut rest)).await;
}

#[tokio::test]
async fn a_wrong_token_leaves_a_line_in_the_log_at_either_address() {
    let wrong = "GET /placement/traits HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-auth-token: another\r\n\r\n";
    let world = World::mounted().await;
    let answer = all_of(world.address, &nameless(&world.site), wrong).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let line = world.daemon.logged("event=peer_refused").await;
    assert!(line.contains("refused 127.0.0.1:"), "{line}");
    assert!(
        line.contains("token") && !line.contains("another"),
        "{line}"
    );
    let world = World::new().await;
    assert_eq!(world.raw(wrong).await.status, 401);
    world.daemon.logged("event=peer_refused").await;
}
