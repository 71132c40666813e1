//! Peers that do not read: they delay no other, memory stays bounded, and nothing is lost by it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};
use proto_frames::payload::{Payload, QueryKind, StartFailure, StartFailureReason};
use proto_frames::{Encoding, Frame, Kind, Message, Role, Uuid};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::peer::{Dialer, NARROW, Peer};
use crate::site::{Daemon, Site, within};
use crate::words::{PLENTY, instance, large_start, started};

/// A START with as much cloud-init data as controllers really send.
const LARGE: usize = 20 * 1024;

/// A ready node that nothing is read from unless the test says so.
async fn narrow_node(site: &Site, daemon: &Daemon) -> Peer {
    let dialer = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(daemon, Role::AGENT, Encoding::Native)
    };
    let mut node = dialer.connect().await;
    node.ready(PLENTY).await;
    node.nothing_else().await;
    node
}

/// Reads a node's STARTs for ever and hands out their instances.
fn reading(mut node: Peer) -> mpsc::UnboundedReceiver<Uuid> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(frame) = node.next().await {
            if sender.send(started(&frame.payload)).is_err() {
                return;
            }
        }
    });
    receiver
}

#[tokio::test]
async fn a_launcher_that_does_not_read_is_given_nothing_more_and_its_starts_are_all_accounted_for()
{
    let site = Site::new();
    let flags = ["--stall-time", "200ms", "--progress-deadline", "1s"];
    let flags = [&flags[..], &["--in-doubt-time", "100ms"]].concat();
    let daemon = site.start(&flags).await;
    let mut deaf = narrow_node(&site, &daemon).await;
    let mut good = site.node(&daemon).await;
    good.ready(PLENTY).await;
    good.nothing_else().await;
    let mut good = reading(good);
    let mut master = site.master(&daemon).await;
    master.expect_node().await;
    master.expect_node().await;

    let mut sent = HashSet::new();
    let mut received = HashSet::new();
    // Both get STARTs until one has stalled; the other is not kept waiting by it.
    while !daemon
        .log()
        .iter()
        .any(|line| line.contains("does not read"))
    {
        let next = instance(sent.len() as u128);
        master.send(Kind::START, large_start(next, LARGE)).await;
        sent.insert(next);
        let mut operator = site.operator(&daemon).await;
        operator.query(QueryKind::Controllers).await;
        while let Ok(instance) = good.try_recv() {
            assert!(received.insert(instance));
        }
    }
    // From now on the good one alone.
    for _ in 0..10 {
        let next = instance(sent.len() as u128);
        master.start(next, 1).await;
        sent.insert(next);
        while within(good.recv())
            .await
            .inspect(|it| assert!(received.insert(*it)))
            != Some(next)
        {}
    }
    daemon.logged("it has read nothing for 1s").await;

    // What was not written went to the good node; what was, failed.
    let mut failed = HashSet::new();
    while received.len() + failed.len() < sent.len() {
        tokio::select! {
            instance = within(good.recv()) => assert!(received.insert(instance.unwrap())),
            frame = master.next() => {
                let frame = frame.unwrap();
                if frame.kind == Kind::START_FAILURE {
                    let failure = StartFailure::decode(&frame.payload).unwrap();
                    assert_eq!(failure.reason, StartFailureReason::LaunchFailure);
                    assert!(failed.insert(failure.instance_uuid.parse().unwrap()));
                } else {
                    assert_eq!(frame.kind, Kind::NODE_DISCONNECTED);
                }
            }
        }
    }
    assert!(!failed.is_empty(), "some were written");
    assert!(received.is_disjoint(&failed));
    let all: HashSet<Uuid> = received.union(&failed).copied().collect();
    assert_eq!(all, sent);
    // What the deaf one finds in its socket at last is among the failed.
    while let Some(frame) = deaf.next().await {
        assert!(failed.contains(&started(&frame.payload)));
    }
    master.settle().await;
    assert!(good.try_recv().is_err());
}

#[tokio::test]
async fn a_launcher_that_reads_again_in_time_has_lost_nothing_and_is_used_again() {
    let site = Site::new();
    let daemon = site.start(&["--stall-time", "100ms"]).await;
    let mut master = site.master(&daemon).await;
    let mut node = narrow_node(&site, &daemon).await;
    master.expect_node().await;
    let mut sent = 0;
    let refused = loop {
        let next = large_start(instance(sent), LARGE);
        master.send(Kind::START, next).await;
        // Once it has stalled, nothing fits any more, since there is no other.
        if let Some(answer) = master.settle().await.pop() {
            break StartFailure::decode(&answer.payload).unwrap();
        }
        sent += 1;
    };
    assert_eq!(refused.reason, StartFailureReason::FullCloud);
    assert_eq!(refused.instance_uuid, instance(sent).to_string());
    daemon.logged("does not read what is sent to it").await;
    for n in 0..sent {
        assert_eq!(node.expect_start().await, instance(n));
    }
    daemon.logged("reads again").await;
    node.nothing_else().await;
    master.start(instance(sent), 1).await;
    assert_eq!(node.expect_start().await, instance(sent));
    master.nothing_else().await;
}

/// A CONFIGURE that cannot be read, and is therefore sent back as it is; begins with its number.
fn malformed(number: usize) -> Bytes {
    let mut payload = format!("# {number}\nconfigure: ").into_bytes();
    payload.resize(LARGE, b'[');
    payload.into()
}

/// More bytes than the kernel keeps on the way to one that does not read them: what both ends' sockets may grow to.
fn more_than_sockets_take() -> usize {
    /// Where the system does not say: as much as any of them has by default.
    const ELSE: usize = 32 * 1024 * 1024;
    let most = |name| {
        let three = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        three.split_whitespace().last()?.parse().ok()
    };
    most("tcp_rmem").unwrap_or(ELSE) + 2 * most("tcp_wmem").unwrap_or(ELSE) + ELSE / 4
}

#[tokio::test]
async fn a_controller_that_reads_no_answers_is_not_read_from_and_gets_them_all_in_the_end() {
    let count = more_than_sockets_take() / LARGE;
    let site = Site::new();
    let daemon = site.start(&["--controller-budget", "65536"]).await;
    let mut operator = site.operator(&daemon).await;
    let dialer = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(&daemon, Role::CONTROLLER, Encoding::Gob)
    };
    let Peer { uuid, mut wire, .. } = dialer.connect().await;
    let (mut reader, mut writer) = tokio::io::split(wire.stream);
    let written = Arc::new(AtomicUsize::new(0));
    let pour = tokio::spawn({
        let written = Arc::clone(&written);
        async move {
            let mut bytes = BytesMut::new();
            for n in 0..count {
                let frame = Frame::new(Kind::CONFIGURE, uuid, malformed(n));
                wire.encoder.encode_frame(&frame, &mut bytes);
                writer.write_all(&bytes.split()).await.unwrap();
                written.store(n + 1, Ordering::SeqCst);
            }
            writer.flush().await.unwrap();
        }
    });
    // Written until nothing moves any more, while others are served: a scheduler that went on reading would take in some
    // of it within so many answers to somebody else.
    let (mut unmoved, mut before) = (0, 0);
    while unmoved < 1000 {
        operator.query(QueryKind::Controllers).await;
        let now = written.load(Ordering::SeqCst);
        unmoved = if now == before { unmoved + 1 } else { 0 };
        before = now;
    }
    assert!(before < count, "all {count} were taken in, unanswered");

    let (mut decoder, mut buffer) = (wire.decoder, wire.buffer);
    let mut answered = 0;
    while answered < count {
        while let Some(message) = decoder.decode(&mut buffer).unwrap() {
            let Message::Frame(frame) = message else {
                panic!("{message:?}")
            };
            assert_eq!(frame.kind, Kind::INVALID_CONFIGURATION);
            assert!(frame.payload == malformed(answered), "answer {answered}");
            answered += 1;
        }
        if answered < count {
            assert_ne!(within(reader.read_buf(&mut buffer)).await.unwrap(), 0);
        }
    }
    within(pour).await.unwrap();
}

#[tokio::test]
async fn a_backup_that_does_not_read_does_not_keep_reports_from_the_master() {
    const OTHERS: usize = 4;
    /// Reports that a launcher may have waiting for somebody without being kept from sending.
    const WAITING: usize = 4;
    /// Reports that no connection takes unread.
    const MANY: usize = 200;
    let site = Site::new();
    let daemon = site.start(&["--stall-time", "100ms"]).await;
    let mut master = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let deaf = Dialer {
        receive_buffer: Some(NARROW),
        ..site.dialer(&daemon, Role::CONTROLLER, Encoding::Gob)
    };
    let mut deaf = deaf.connect().await;
    let mut launchers = Vec::new();
    for _ in 0..=OTHERS {
        launchers.push(site.connect(&daemon, Role::AGENT, Encoding::Gob).await);
    }
    let (sender, mut heard) = mpsc::unbounded_channel();
    let all = tokio::spawn(async move {
        for _ in 0..MANY + OTHERS * WAITING {
            let _ = sender.send(master.skip_to(Kind::STATS).await.origin);
        }
        master
    });
    // One launcher fills the connection of the one that does not read, and has to wait for that…
    let mut eager = launchers.pop().unwrap();
    let eager = tokio::spawn(async move {
        for _ in 0..MANY {
            report(&mut eager).await;
        }
        eager
    });
    daemon.logged("does not read what is sent to it").await;
    // …but what the others report goes on to the master.
    for launcher in &mut launchers {
        for _ in 0..WAITING {
            report(launcher).await;
            while within(heard.recv()).await != Some(launcher.uuid) {}
        }
    }
    // Nothing was dropped for the other one either.
    for _ in 0..MANY + OTHERS * WAITING {
        deaf.skip_to(Kind::STATS).await;
    }
    let _master = within(all).await.unwrap();
    let mut eager = within(eager).await.unwrap();
    eager.nothing_else().await;
    deaf.nothing_else().await;
}

/// Sends STATS of 50 kB.
async fn report(launcher: &mut Peer) {
    let mut stats = format!("node_uuid: {}\n# ", launcher.uuid).into_bytes();
    stats.resize(50_000, b'x');
    launcher.send(Kind::STATS, stats).await;
}
