//! A client that writes requests as they are given and reads what comes: HTTP/1.1 over mutual TLS, a connection for each.

use std::net::SocketAddr;
use std::sync::Arc;

use proto_frames::Role;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::peer::Peer;
use crate::site::{Daemon, Site, within};
use crate::words::PLENTY;

/// Who speaks HTTP with which certificate.
#[derive(Clone)]
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Arc<ClientConfig>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Site {
    /// A daemon with an HTTP door.
    pub(crate) async fn with_http(flags: &[&str]) -> (Self, Daemon) {
        let site = Self::new();
        let flags = [&["--http", "127.0.0.1:0"], flags].concat();
        let daemon = site.start(&flags).await;
        (site, daemon)
    }

    /// A client with a certificate of this role.
    pub(crate) async fn http(&self, daemon: &Daemon, role: Role) -> Http {
        Http {
            address: http_address(daemon).await,
            tls: self.ca.client(role),
        }
    }

    /// A node that takes work.
    pub(crate) async fn ready_node(&self, daemon: &Daemon) -> Peer {
        let mut node = self.node(daemon).await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        node
    }
}

/// Where the daemon serves HTTP.
pub(crate) async fn http_address(daemon: &Daemon) -> SocketAddr {
    let line = daemon.logged("serves HTTP on ").await;
    let (_, address) = line.rsplit_once(' ').unwrap();
    address.parse().unwrap()
}

impl Http {
    /// GET.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    /// A request with this body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.raw(request.as_bytes()).await
    }

    /// What comes of these bytes.
    pub(crate) async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = self.connect().await;
        // A server that has answered already need not read the rest.
        let _ = within(stream.write_all(request)).await;
        let _ = within(stream.flush()).await;
        let mut bytes = Vec::new();
        let _ = within(stream.read_to_end(&mut bytes)).await;
        Answer::read(&bytes)
    }

    /// A connection after its handshake.
    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        let tcp = within(TcpStream::connect(self.address)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        within(connector.connect(name, tcp)).await.unwrap()
    }
}

impl Answer {
    /// Reads one.
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok());
        Self {
            status: status.unwrap_or_default(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }

    /// The body, which must be JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body, which must be JSON, of an answer with this status.
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    /// The problem document that it must be: its status, reason, and field at fault.
    pub(crate) fn problem(&self) -> (u16, String, String) {
        assert!(
            self.head.contains("content-type: application/problem+json"),
            "{self:?}"
        );
        let document = self.json();
        assert_eq!(document["status"], self.status, "{document}");
        let text = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("type"), format!("urn:ciao:problem:{}", text("reason")));
        (self.status, text("reason"), text("field"))
    }
}
