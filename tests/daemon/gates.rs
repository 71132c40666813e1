//! Who keeps whom out: connections that do not get on with their handshake never keep out one that does.

use std::net::{Ipv4Addr, SocketAddr};

use proto_frames::{Encoding, Kind, Message, Role, Uuid};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::site::{Daemon, Site, within};

/// The first byte of a TLS record that holds a handshake message.
const RECORD_OF_HANDSHAKE: u8 = 22;

/// Longer than any test: what is let in was not let in because time passed.
const NEVER: [&str; 4] = ["--tls-deadline", "1h", "--connect-deadline", "1h"];

fn flags<'a>(limits: &[&'a str]) -> Vec<&'a str> {
    NEVER.iter().chain(limits).copied().collect()
}

/// A TCP connection from this loopback address.
async fn from(source: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket
        .bind((Ipv4Addr::from(source), 0).into())
        .expect("all of 127/8 is this machine");
    within(socket.connect(to)).await.unwrap()
}

/// So many connections that send nothing.
async fn silent(count: usize, daemon: &Daemon) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(from([127, 0, 0, 1], daemon.address).await);
    }
    streams
}

/// So many connections that begin a TLS handshake and do not go on with it.
async fn stuck(count: usize, source: [u8; 4], daemon: &Daemon) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = from(source, daemon.address).await;
        within(stream.write_all(&[RECORD_OF_HANDSHAKE]))
            .await
            .unwrap();
        streams.push(stream);
    }
    streams
}

#[tokio::test]
async fn silent_connections_keep_nobody_out_though_more_keep_coming() {
    let site = Site::new();
    let daemon = site.start(&flags(&["--max-handshakes", "4"])).await;
    let held = silent(200, &daemon).await;
    let address = daemon.address;
    let more = tokio::spawn(async move {
        let mut held = Vec::new();
        for _ in 0..200 {
            held.push(from([127, 0, 0, 1], address).await);
        }
        held
    });
    let mut agents = Vec::new();
    for _ in 0..8 {
        agents.push(site.connect(&daemon, Role::AGENT, Encoding::Gob).await);
    }
    let more = within(more).await.unwrap();
    let told = site.master(&daemon).await.settle().await;
    assert_eq!(told.len(), agents.len(), "{told:?}");
    assert!(told.iter().all(|frame| frame.kind == Kind::NODE_CONNECTED));
    drop((held, more, agents));
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_keep_nobody_out_for_long() {
    let site = Site::new();
    let daemon = site.start(&flags(&["--max-handshakes", "4"])).await;
    let held = stuck(12, [127, 0, 0, 1], &daemon).await;
    site.master(&daemon).await.nothing_else().await;
    drop(held);
}

#[tokio::test]
async fn stuck_handshakes_of_one_address_leave_places_for_others() {
    let site = Site::new();
    let daemon = site.start(&flags(&["--max-handshakes", "5"])).await;
    let held = stuck(40, [127, 0, 0, 2], &daemon).await;
    for _ in 0..8 {
        site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    }
    drop(held);
}

#[tokio::test]
async fn silent_connections_do_not_use_up_the_connections_that_are_allowed() {
    let site = Site::new();
    let daemon = site.start(&flags(&["--max-connections", "8"])).await;
    let held = silent(40, &daemon).await;
    let mut master = site.master(&daemon).await;
    let node = site.node(&daemon).await;
    assert_eq!(master.expect_node().await, node.uuid);
    drop(held);
}

#[tokio::test]
async fn one_certificate_of_a_viewer_keeps_neither_launchers_nor_operators_nor_other_viewers_out() {
    let site = Site::new();
    let daemon = site.start(&["--max-connections", "16"]).await;
    let viewer = site.dialer(&daemon, Role::VIEWER, Encoding::Native);
    let mut held = Vec::new();
    let refused = loop {
        assert!(held.len() < 16, "one certificate has every connection");
        let another = viewer.clone().with_uuid(Uuid::new_v4());
        match another.ask().await {
            (Some(Message::Connected(_)), wire) => held.push(wire),
            (Some(Message::Frame(frame)), _) => break frame.kind,
            (other, _) => panic!("{other:?}"),
        }
    };
    assert_eq!(refused, Kind::CONNECTION_FAILURE);
    daemon.logged("connections of readers already").await;
    let mut master = site.master(&daemon).await;
    site.operator(&daemon).await;
    site.connect(&daemon, Role::VIEWER, Encoding::Native).await;
    for _ in 0..4 {
        let node = site.node(&daemon).await;
        let uuid = node.uuid;
        assert_eq!(master.expect_node().await, uuid);
        node.close().await;
        assert_eq!(master.expect_node_gone().await, uuid);
    }
    // What one of them gives back it gets again.
    drop(held.pop());
    loop {
        let another = viewer.clone().with_uuid(Uuid::new_v4());
        if let (Some(Message::Connected(_)), _) = another.ask().await {
            break;
        }
    }
}

#[tokio::test]
async fn launchers_with_one_certificate_leave_a_connection_for_a_controller_and_an_operator() {
    let site = Site::new();
    let daemon = site.start(&["--max-connections", "16"]).await;
    // An original one, to which ConnectionFailure says that trying again may help.
    let launcher = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut held = Vec::new();
    loop {
        assert!(held.len() < 16, "launchers have every connection");
        let another = launcher.clone().with_uuid(Uuid::new_v4());
        match another.ask().await {
            (Some(Message::Connected(_)), wire) => held.push(wire),
            (Some(Message::Frame(frame)), _) => {
                assert_eq!(frame.kind, Kind::CONNECTION_FAILURE);
                break;
            }
            (other, _) => panic!("{other:?}"),
        }
    }
    assert_eq!(held.len(), 14);
    daemon.logged("connections of launchers").await;
    let controller = site.dialer(&daemon, Role::CONTROLLER, Encoding::Native);
    let _controller = controller.connect().await;
    site.operator(&daemon).await;
}
