//! The daemon in this process, with failures that no shipped program has.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use proto_frames::{Encoding, Frame, Kind, Role};

use super::*;
use crate::cert::{Anchor, Spec};
use crate::net::address::Endpoint;
use crate::net::link::{self, Hello, Link, Timeouts};
use crate::net::tls::{KeyFiles, TrustFiles};
use crate::server::session::INJECTED;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(60);

/// A directory with certificates, and the daemon that is to run with them.
struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text);
        write("ca.pem", anchor.ca_pem()).unwrap();
        write("scheduler.pem", anchor.certified().pem()).unwrap();
        for (name, role) in [
            ("agent.pem", Role::AGENT),
            ("controller.pem", Role::CONTROLLER),
        ] {
            let leaf = anchor.sign(&Spec::localhost(role)).unwrap();
            write(name, leaf.pem()).unwrap();
        }
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn bind(&self, max_connections: usize) -> Server {
        Server::bind(ServerConfig {
            images: None,
            http: Vec::new(),
            http_cert: None,
            placement: None,
            cert: self.path().join("scheduler.pem"),
            trust: TrustFiles::without_crls(self.path().join("ca.pem")),
            key_files: KeyFiles::Lenient,
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            configuration_uri: None,
            node_file: None,
            state_dir: Some(self.path().join("state")),
            heartbeat: false,
            require_uuid_binding: false,
            limits: ServerLimits {
                max_connections: Some(max_connections),
                ..ServerLimits::default()
            },
            reload: ReloadConfig::default(),
            scheduler: sched_core::Config::new(Uuid::nil()),
        })
        .unwrap()
    }

    async fn connect(&self, to: SocketAddr, file: &str, role: Role) -> Link {
        let own = tls::load_identity(&self.path().join(file)).unwrap();
        let anchors = tls::load_anchors(&self.path().join("ca.pem")).unwrap();
        let tls = tls::client_config(&own, &anchors).unwrap();
        let endpoint = Endpoint {
            host: to.ip().to_string(),
            port: to.port(),
            server_name: None,
        };
        let hello = Hello {
            role,
            uuid: Uuid::new_v4(),
            encoding: Encoding::Native,
        };
        let timeouts = Timeouts::default();
        let connecting = link::connect(&endpoint, &tls, &hello, &timeouts);
        within(connecting).await.unwrap()
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future)
        .await
        .expect("the test hangs")
}

/// The next frame of this kind.
async fn skip_to(link: &mut Link, kind: Kind) -> Frame {
    loop {
        let frame = within(link.receiver.recv()).await.unwrap();
        if frame.kind == kind {
            return frame;
        }
    }
}

#[tokio::test]
async fn a_task_that_ends_takes_the_daemon_down_with_its_name() {
    let site = Site::new();
    let server = site.bind(8);
    let hub = Arc::clone(&server.hub);
    let mut tasks = server.tasks();
    tasks.spawn("injected", async { panic!("because a test says so") });
    let ended = within(serve(&hub, tasks, None, std::future::pending())).await;
    assert_eq!(
        ended.unwrap_err().to_string(),
        "internal error: the task 'injected' has ended: it panicked: because a test says so"
    );
    drop(hub);
    // Its store was closed: the next one can have it.
    site.bind(8);
}

#[tokio::test]
async fn what_the_core_can_no_longer_know_takes_the_daemon_down() {
    let site = Site::new();
    let server = site.bind(8);
    let hub = Arc::clone(&server.hub);
    let running = tokio::spawn(server.run(std::future::pending()));
    hub.fail("a session did not end".to_owned());
    let ended = within(running).await.unwrap().unwrap_err().to_string();
    assert!(
        ended.contains("'end sessions' has ended: a session did not end"),
        "{ended}"
    );
}

#[tokio::test]
async fn a_panic_in_a_session_ends_that_session_alone() {
    // As many as there are at once, so that the place of the one that ended is needed again.
    let (site, count) = (Site::new(), 2);
    let server = site.bind(count);
    let address = server.local_addrs().unwrap()[0];
    let running = tokio::spawn(server.run(std::future::pending()));
    let mut controller = site
        .connect(address, "controller.pem", Role::CONTROLLER)
        .await;
    for _ in 0..count {
        let mut node = site.connect(address, "agent.pem", Role::AGENT).await;
        skip_to(&mut controller, Kind::NODE_CONNECTED).await;
        let frame = Frame::new(Kind::FULL, Uuid::nil(), INJECTED);
        node.sender.send(frame).await.unwrap();
        within(node.receiver.recv()).await.unwrap_err();
        skip_to(&mut controller, Kind::NODE_DISCONNECTED).await;
    }
    assert!(!running.is_finished());
    running.abort();
}
