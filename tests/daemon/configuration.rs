//! The cluster configuration: read at the start, carried by CONNECTED, replaced by CONFIGURE.

use proto_frames::{Encoding, Kind, Role};

use crate::site::Site;

const FIRST: &str = "\
configure:
  scheduler:
    storage_uri: file:///etc/ciao/configuration.yaml
  controller:
    compute_ca: /etc/ciao/ca.pem
    compute_cert: /etc/ciao/cert.pem
    client_auth_ca_cert_path: /etc/ciao/clients.pem
";

const SECOND: &str = "configure:  # by hand\n  launcher: {mem_limit: false}\n";

#[tokio::test]
async fn the_file_is_what_connected_carries_byte_for_byte() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let daemon = site.start(&[]).await;
    for encoding in [Encoding::Native, Encoding::Gob] {
        let node = site.connect(&daemon, Role::AGENT, encoding).await;
        assert_eq!(node.connected.payload, FIRST);
    }
    assert!(daemon.log().iter().all(|line| !line.contains("WARN")));
}

#[tokio::test]
async fn without_a_file_connected_carries_nothing_and_the_log_says_so() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    daemon.logged("peers get none").await;
    let node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    assert!(node.connected.payload.is_empty());
}

#[tokio::test]
async fn configure_changes_what_later_peers_are_told_and_is_not_forwarded() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let daemon = site.start(&[]).await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut node = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    controller.expect_node().await;
    controller.send(Kind::CONFIGURE, SECOND).await;
    controller.nothing_else().await;
    node.nothing_else().await;
    let later = site.connect(&daemon, Role::NETAGENT, Encoding::Gob).await;
    assert_eq!(later.connected.payload, SECOND);
    daemon
        .logged("no value for configure.scheduler.storage_uri")
        .await;
}

#[tokio::test]
async fn a_configure_that_cannot_be_read_comes_back_and_changes_nothing() {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let daemon = site.start(&[]).await;
    for (role, encoding) in [
        (Role::CONTROLLER, Encoding::Gob),
        (Role::OPERATOR, Encoding::Native),
    ] {
        let mut sender = site.connect(&daemon, role, encoding).await;
        let malformed = "configure: [\n  launcher";
        sender.send(Kind::CONFIGURE, malformed).await;
        let answer = sender.expect(Kind::INVALID_CONFIGURATION).await;
        assert_eq!(answer.payload, malformed);
        sender.nothing_else().await;
    }
    let later = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    assert_eq!(later.connected.payload, FIRST);
}
