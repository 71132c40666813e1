//! Peers that send nothing, too much, or nonsense: they are cut off, and no other peer notices.

use proto_frames::payload::{ControllerRole, Payload, StartFailure};
use proto_frames::{Encoding, Kind, Role};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::peer::Peer;
use crate::site::{Daemon, Site, within};
use crate::words::{PLENTY, instance};

/// A master and a node that is ready.
async fn established(site: &Site, daemon: &Daemon) -> (Peer, Peer) {
    let mut master = site.master(daemon).await;
    let mut node = site.node(daemon).await;
    master.expect_node().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    (master, node)
}

async fn still_works(master: &mut Peer, node: &mut Peer, number: u128) {
    master.start(instance(number), 1).await;
    assert_eq!(node.expect_start().await, instance(number));
}

#[tokio::test]
async fn silent_connections_harm_nobody_and_end_at_the_tls_deadline() {
    const PLACES: usize = 32;
    let site = Site::new();
    let flags = ["--max-handshakes", "32", "--tls-deadline", "500ms"];
    let daemon = site.start(&flags).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    let mut silent = Vec::new();
    for _ in 0..PLACES + 8 {
        silent.push(within(TcpStream::connect(daemon.address)).await.unwrap());
    }
    still_works(&mut master, &mut node, 1).await;
    // All are cut off, those too that had to wait for a place; then there is room again.
    for mut stream in silent {
        let read = within(stream.read(&mut [0])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    daemon.logged("nothing came within 500ms").await;
    site.node(&daemon).await.nothing_else().await;
    still_works(&mut master, &mut node, 2).await;
}

#[tokio::test]
async fn a_peer_that_is_silent_after_tls_is_refused_at_the_connect_deadline() {
    let site = Site::new();
    let daemon = site.start(&["--connect-deadline", "300ms"]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut wire = within(dialer.tls()).await.unwrap();
    let refused = wire.next().await;
    assert!(
        matches!(&refused, Some(proto_frames::Message::Frame(frame)) if frame.kind == Kind::CONNECTION_FAILURE),
        "{refused:?}"
    );
    assert_eq!(wire.next().await, None);
    daemon.logged("no CONNECT within 300ms").await;
}

#[tokio::test]
async fn a_length_beyond_the_limit_ends_the_connection_before_its_bytes_come() {
    let site = Site::new();
    let daemon = site.start(&["--max-payload", "100000"]).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    // 4 GiB - 1 of payload, and a gob message of 2^64 - 1 bytes.
    let lies: [(Encoding, &[u8]); 3] = [
        // More than is skipped: 64 MiB and a byte.
        (Encoding::Native, &[0, 1, 0, 2, 0x04, 0, 0, 1]),
        (Encoding::Native, &[0, 1, 0, 2, 0xff, 0xff, 0xff, 0xff]),
        (
            Encoding::Gob,
            &[0xf8, 255, 255, 255, 255, 255, 255, 255, 255],
        ),
    ];
    for (encoding, lie) in lies {
        let mut liar = site.connect(&daemon, Role::AGENT, encoding).await;
        master.expect_node().await;
        let _ = liar.wire.write(lie).await;
        liar.expect_end().await;
        assert_eq!(master.expect_node_gone().await, liar.uuid);
    }
    daemon.logged("is over the limit of").await;
    still_works(&mut master, &mut node, 1).await;
}

#[tokio::test]
async fn a_payload_at_the_limit_is_carried_and_one_byte_more_is_refused_alone() {
    for encoding in [Encoding::Native, Encoding::Gob] {
        let site = Site::new();
        let daemon = site.start(&["--max-payload", "70000"]).await;
        let (mut master, mut node) = established(&site, &daemon).await;
        let mut sender = site.connect(&daemon, Role::AGENT, encoding).await;
        master.expect_node().await;
        let mut stats = format!("node_uuid: {}\n# ", sender.uuid);
        stats.extend(std::iter::repeat_n('x', 70_000 - stats.len()));
        sender.send(Kind::STATS, stats.clone()).await;
        assert_eq!(master.expect(Kind::STATS).await.payload, stats);
        let longer = stats.clone() + "x";
        sender.send(Kind::STATS, longer).await;
        let answer = match encoding {
            Encoding::Native => Kind::COMMAND_REFUSED,
            Encoding::Gob => Kind::INVALID_FRAME_TYPE,
        };
        sender.expect(answer).await;
        // Many times as long, and the next one is heard all the same.
        sender.send(Kind::STATS, "x".repeat(9_000_000)).await;
        sender.expect(answer).await;
        sender.send(Kind::STATS, stats.clone()).await;
        assert_eq!(master.expect(Kind::STATS).await.payload, stats);
        master.nothing_else().await;
        still_works(&mut master, &mut node, 1).await;
        let line = daemon.logged("its payload has 70001 bytes").await;
        assert!(line.contains("-max-payload"), "{line}");
    }
}

#[tokio::test]
async fn a_start_that_is_too_long_fails_by_its_name_and_those_behind_it_are_placed() {
    for encoding in [Encoding::Native, Encoding::Gob] {
        let site = Site::new();
        let daemon = site.start(&["--max-payload", "400000"]).await;
        let mut master = site.connect(&daemon, Role::CONTROLLER, encoding).await;
        if encoding == Encoding::Native {
            master.expect_role(ControllerRole::Master).await;
        }
        let mut node = site.node(&daemon).await;
        master.expect_node().await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        // Too long for a frame, and too long for a document.
        for (number, len) in [(7, 500_000), (8, 300_000)] {
            let long = format!(
                "start:\n  instance_uuid: {}\n  note: {}\n",
                instance(number),
                "x".repeat(len)
            );
            master.send(Kind::START, long).await;
            master.start(instance(number + 10), 1).await;
            let failure = master.expect(Kind::START_FAILURE).await;
            let failure = StartFailure::decode(&failure.payload).unwrap();
            assert_eq!(failure.instance_uuid, instance(number).to_string());
            assert_eq!(node.expect_start().await, instance(number + 10));
        }
        master.nothing_else().await;
    }
}

#[tokio::test]
async fn random_bytes_instead_of_frames_end_that_connection_alone() {
    let (site, daemon) = Site::running().await;
    let (mut master, mut node) = established(&site, &daemon).await;
    let mut random = fastrand::Rng::with_seed(7);
    let seen = format!("seed {}", random.get_seed());
    for round in 0..20 {
        let encoding = [Encoding::Native, Encoding::Gob][round % 2];
        let mut peer = site.connect(&daemon, Role::AGENT, encoding).await;
        let mut bytes = vec![0; 4096];
        random.fill(&mut bytes);
        // Whatever the rest means to it, this is no frame in either encoding.
        bytes.extend_from_slice(&[0xff; 64]);
        // It may be cut off before it is through.
        let _ = peer.wire.write(&bytes).await;
        let _ = within(tokio::io::AsyncWriteExt::shutdown(&mut peer.wire.stream)).await;
        while peer.next().await.is_some() {}
    }
    // Whatever of it was a frame had no effect on anybody.
    let heard = master.settle().await;
    assert!(
        heard
            .iter()
            .all(|frame| [Kind::NODE_CONNECTED, Kind::NODE_DISCONNECTED].contains(&frame.kind)),
        "{seen}: {heard:?}"
    );
    still_works(&mut master, &mut node, 1).await;
}

#[tokio::test]
async fn random_bytes_after_tls_and_before_it_are_no_connect() {
    let site = Site::new();
    let daemon = site.start(&["--connect-deadline", "2s"]).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..20 {
        let mut bytes = vec![0; 8192];
        random.fill(&mut bytes);
        let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
        let mut wire = within(dialer.tls()).await.unwrap();
        let _ = wire.write(&bytes).await;
        let mut rest = Vec::new();
        let _ = within(wire.stream.read_to_end(&mut rest)).await;

        let mut tcp = within(TcpStream::connect(daemon.address)).await.unwrap();
        let _ = within(tokio::io::AsyncWriteExt::write_all(&mut tcp, &bytes)).await;
        let _ = within(tcp.read_to_end(&mut rest)).await;
    }
    master.nothing_else().await;
    still_works(&mut master, &mut node, 1).await;
}

#[tokio::test]
async fn a_frame_begun_and_not_finished_ends_the_connection_at_the_deadline() {
    let site = Site::new();
    let daemon = site.start(&["--progress-deadline", "300ms"]).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    for encoding in [Encoding::Native, Encoding::Gob] {
        let mut peer = site.connect(&daemon, Role::AGENT, encoding).await;
        master.expect_node().await;
        let frame = peer.frame(Kind::FULL, "");
        let mut bytes = bytes::BytesMut::new();
        peer.wire.encoder.encode_frame(&frame, &mut bytes);
        peer.wire.write(&bytes[..bytes.len() - 1]).await.unwrap();
        peer.expect_end().await;
        assert_eq!(master.expect_node_gone().await, peer.uuid);
    }
    daemon.logged("it has not completed the frame").await;
    still_works(&mut master, &mut node, 1).await;
}

#[tokio::test]
async fn an_idle_peer_is_not_cut_off_at_that_deadline() {
    let site = Site::new();
    let daemon = site.start(&["--progress-deadline", "50ms"]).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    // Another one's deadline passes meanwhile, many times over.
    for _ in 0..5 {
        let mut stuck = site
            .connect(&daemon, Role::CNCIAGENT, Encoding::Native)
            .await;
        stuck.wire.write(&[0, 1, 1]).await.unwrap();
        stuck.expect_end().await;
    }
    still_works(&mut master, &mut node, 1).await;
    node.nothing_else().await;
}

#[tokio::test]
async fn more_connections_than_allowed_wait_until_there_is_room() {
    let site = Site::new();
    let daemon = site.start(&["--max-connections", "2"]).await;
    let (mut master, mut node) = established(&site, &daemon).await;
    let third = tokio::spawn({
        let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
        async move { dialer.connect().await }
    });
    still_works(&mut master, &mut node, 1).await;
    assert!(!third.is_finished(), "none is turned away, none let in");
    let gone = node.uuid;
    node.close().await;
    let third = within(third).await.unwrap();
    assert_eq!(master.expect_node_gone().await, gone);
    assert_eq!(master.expect_node().await, third.uuid);
}
