//! The same API below `/placement` of the HTTP door: who is let in, with and without a certificate, and to what.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use proto_frames::Role;
use rustls::client::ResolvesClientCert;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::{Answer, NODE, TOKEN, World};
use crate::site::{Site, within};

/// A client that shows no certificate, whatever it is asked.
#[derive(Debug)]
pub(crate) struct NoCertificate;

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// What a client without a certificate connects with.
pub(crate) fn nameless(site: &Site) -> Arc<ClientConfig> {
    let mut config = (*site.ca.client(Role::CONTROLLER)).clone();
    config.client_auth_cert_resolver = Arc::new(NoCertificate);
    Arc::new(config)
}

/// What comes of a request to the HTTP door, with these header lines.
async fn asked(
    (address, tls): (SocketAddr, &Arc<ClientConfig>),
    path: &str,
    headers: &str,
) -> Answer {
    let tcp = within(TcpStream::connect(address)).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::clone(tls));
    let mut bytes = Vec::new();
    // A client that is refused learns it when it reads.
    if let Ok(mut stream) = within(connector.connect(name, tcp)).await {
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}\r\n");
        let _ = within(stream.write_all(request.as_bytes())).await;
        let _ = within(stream.read_to_end(&mut bytes)).await;
    }
    Answer::read(&bytes)
}

fn token() -> String {
    format!("x-auth-token: {TOKEN}\r\nopenstack-api-version: placement 1.39\r\n")
}

#[tokio::test]
async fn below_the_http_door_a_token_is_enough_and_opens_nothing_else() {
    let world = World::mounted().await;
    let _node = world.node().await;
    let nameless = nameless(&world.site);
    let at = (world.address, &nameless);
    for path in ["/placement", "/placement/"] {
        let versions = asked(at, path, "").await.ok();
        assert_eq!(versions["versions"][0]["max_version"], "1.39");
        // Relative to where it was asked for.
        assert_eq!(versions["versions"][0]["links"][0]["href"], "");
    }
    let below = format!("/placement/resource_providers/{NODE}");
    for headers in ["", "x-auth-token: another\r\n"] {
        assert_eq!(asked(at, &below, headers).await.fault().0, 401);
    }
    let provider = asked(at, &below, &token()).await.ok();
    assert_eq!(provider["name"], "first");
    for link in provider["links"].as_array().unwrap() {
        let href = link["href"].as_str().unwrap();
        assert!(href.starts_with(&below), "{href}");
        asked(at, href, &token()).await.ok();
    }
    let class = asked(at, "/placement/resource_classes/VCPU", &token()).await;
    assert_eq!(
        class.ok()["links"][0]["href"],
        "/placement/resource_classes/VCPU"
    );
    assert_eq!(
        asked(at, "/placement/nothing", &token()).await.fault().0,
        404
    );
    for path in ["/", "/livez", "/v1/nodes", "/placements", "/page/page.css"] {
        let answer = asked(at, path, &token()).await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        assert!(answer.body.contains("not_permitted"), "{answer:?}");
    }
}

/// Connections without a certificate that there may be at once, as the limits say.
const GUESTS: usize = 64;

#[tokio::test]
async fn clients_without_a_certificate_keep_none_out_that_has_one() {
    let world = World::mounted().await;
    let nameless = nameless(&world.site);
    let connector = TlsConnector::from(Arc::clone(&nameless));
    let mut guests = Vec::new();
    for _ in 0..GUESTS {
        let tcp = within(TcpStream::connect(world.address)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = within(connector.connect(name, tcp)).await.unwrap();
        // Answered, so that it has its place, and keeps it.
        let request = format!(
            "GET /placement/traits HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            token()
        );
        within(stream.write_all(request.as_bytes())).await.unwrap();
        let mut head = [0; 12];
        within(stream.read_exact(&mut head)).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        guests.push(stream);
    }
    let one_more = asked((world.address, &nameless), "/placement", "").await;
    assert_eq!(one_more.status, 0, "{one_more:?}");
    let viewer = world.site.ca.client(Role::VIEWER);
    for path in ["/v1/nodes", "/placement"] {
        assert_eq!(asked((world.address, &viewer), path, "").await.status, 200);
    }
    drop(guests.pop());
    let look = async {
        while asked((world.address, &nameless), "/placement", "")
            .await
            .status
            != 200
        {
            tokio::task::yield_now().await;
        }
    };
    within(look).await;
}

#[tokio::test]
async fn a_certificate_opens_the_rest_of_the_door_and_is_no_token() {
    let world = World::mounted().await;
    let _node = world.node().await;
    for (role, status) in [(Role::VIEWER, 200), (Role::AGENT, 403)] {
        let client = world.site.ca.client(role);
        let at = (world.address, &client);
        assert_eq!(asked(at, "/v1/nodes", "").await.status, status);
        let path = "/placement/resource_providers";
        assert_eq!(asked(at, path, "").await.fault().0, 401, "{role}");
        asked(at, path, &token()).await.ok();
    }
}

#[tokio::test]
async fn without_tokens_nobody_is_let_in_without_a_certificate() {
    let site = Site::new();
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    let line = daemon.logged("serves HTTP on ").await;
    let address = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let answer = asked((address, &nameless(&site)), "/placement/", &token()).await;
    assert_eq!(answer.status, 0, "{answer:?}");
    let viewer = site.ca.client(Role::VIEWER);
    let answer = asked((address, &viewer), "/placement/", &token()).await;
    assert_eq!(answer.status, 404, "{answer:?}");
}

#[tokio::test]
async fn tokens_without_an_address_to_ask_at_are_a_mistake() {
    let site = Site::new();
    let tokens = site.path("tokens");
    std::fs::write(&tokens, TOKEN).unwrap();
    std::fs::set_permissions(&tokens, Permissions::from_mode(0o600)).unwrap();
    let tokens = tokens.display().to_string();
    let mut command = site.command(&["-placement-tokens", &tokens]);
    command.stderr(std::process::Stdio::piped());
    let output = crate::site::output(command).await;
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--placement <ADDR>"), "{said}");
}
