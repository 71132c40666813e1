//! A cluster with the Placement API, and requests to it as they are written: HTTP/1.1, a connection for each.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;

use proto_frames::payload::{Payload, Ready};
use proto_frames::{Encoding, Kind, Role, Uuid};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::peer::Peer;
use crate::site::{Daemon, Site, within};

/// The token that is let in.
pub(crate) const TOKEN: &str = "a-token-of-a-test";

/// The node that all tests ask about.
pub(crate) const NODE: Uuid = Uuid::from_u128(0x6be5_6328_92e2_4ecd_b426_8fe5_29c0_4e0c);

/// Two aggregates, the node in the first; and some of its memory reserved.
const CONFIGURATION: &str = "\
configure:
  scheduler:
    aggregates:
    - name: ssd-hosts
      nodes: [6be56328-92e2-4ecd-b426-8fe529c04e0c]
    - name: empty
      nodes: [nowhere]
    capacity:
    - {reserved_mem_mb: 512, cpu_ratio: 2.0}
";

/// A daemon with the Placement API.
pub(crate) struct World {
    pub(crate) site: Site,
    pub(crate) daemon: Daemon,
    pub(crate) address: SocketAddr,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Site {
    /// Puts this in the place of the file of tokens.
    pub(crate) fn write_tokens(&self, text: &str) {
        let (next, tokens) = (self.path("tokens.new"), self.path("tokens"));
        std::fs::write(&next, text).unwrap();
        std::fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap();
        std::fs::rename(next, tokens).unwrap();
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::on("127.0.0.1:0").await
    }

    /// One that listens there.
    pub(crate) async fn on(address: &str) -> Self {
        let flags = ["-placement", address];
        Self::with(&flags, "answers as the Placement API on ").await
    }

    /// One that offers it at the HTTP door alone, whose address it is.
    pub(crate) async fn mounted() -> Self {
        Self::with(&["-http", "127.0.0.1:0"], "serves HTTP on ").await
    }

    /// One with these flags, and the address that its log has behind this.
    pub(crate) async fn with(flags: &[&str], logged: &str) -> Self {
        let site = Site::new();
        std::fs::write(site.path("configuration.yaml"), CONFIGURATION).unwrap();
        let tokens = site.path("tokens");
        site.write_tokens(&format!("# of a test\n{TOKEN}\n"));
        let tokens = tokens.display().to_string();
        let flags = [flags, &["-placement-tokens", &tokens]].concat();
        let daemon = site.start(&flags).await;
        let line = daemon.logged(logged).await;
        let (_, address) = line.rsplit_once(' ').unwrap();
        let address = address.parse().unwrap();
        Self {
            site,
            daemon,
            address,
        }
    }

    /// The node [`NODE`]: 8 CPUs, 4 GiB of memory, 100 GiB of disk, 4 GPUs, and labels.
    pub(crate) async fn node(&self) -> Peer {
        let dialer = self
            .site
            .dialer(&self.daemon, Role::AGENT, Encoding::Native);
        let mut node = dialer.with_uuid(NODE).connect().await;
        let ready = Ready {
            node_uuid: NODE.to_string(),
            mem_total_mb: 4096,
            mem_available_mb: 4096,
            disk_total_mb: 100 * 1024,
            disk_available_mb: 100 * 1024,
            cpus_online: 8,
            load: 0,
            hostname: "first".to_owned(),
            labels: [("zone".to_owned(), "eu-1".to_owned())].into(),
            resources: [("gpu".to_owned(), 4)].into(),
            ..Ready::default()
        };
        node.send(Kind::READY, ready.encode()).await;
        node.nothing_else().await;
        node
    }

    /// What comes of this request with a token.
    pub(crate) async fn send(&self, method: &str, path: &str, version: &str) -> Answer {
        let version = match version {
            "" => String::new(),
            version => format!("openstack-api-version: placement {version}\r\n"),
        };
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-auth-token: {TOKEN}\r\n{version}\r\n"
        ))
        .await
    }

    /// What comes of these bytes.
    pub(crate) async fn raw(&self, request: &str) -> Answer {
        let mut stream = within(TcpStream::connect(self.address)).await.unwrap();
        // A server that has answered already need not read the rest.
        let _ = within(stream.write_all(request.as_bytes())).await;
        let mut bytes = Vec::new();
        let _ = within(stream.read_to_end(&mut bytes)).await;
        Answer::read(&bytes)
    }

    /// What is at a path in a version.
    pub(crate) async fn get(&self, path: &str, version: &str) -> Value {
        self.send("GET", path, version).await.ok()
    }

    /// The same, below the node.
    pub(crate) async fn below(&self, what: &str, version: &str) -> Value {
        let path = format!("/resource_providers/{NODE}{what}");
        self.get(&path, version).await
    }
}

impl Answer {
    /// Reads one; its status is 0 where none came.
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

    /// The body of an answer that says what was asked for.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        serde_json::from_str(&self.body).unwrap()
    }

    /// The status and detail of a fault, which must have the form of OpenStack's.
    pub(crate) fn fault(&self) -> (u16, String) {
        let document: Value = serde_json::from_str(&self.body).unwrap();
        let error = &document["errors"][0];
        assert_eq!(error["status"], self.status, "{self:?}");
        assert!(error["title"].is_string(), "{self:?}");
        let id = error["request_id"].as_str().unwrap();
        assert!(self.head.contains(id), "{self:?}");
        (self.status, error["detail"].as_str().unwrap().to_owned())
    }
}
