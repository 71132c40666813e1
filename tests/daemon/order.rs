//! Frames from one peer to one peer arrive in the order sent, whole and once, in either encoding.

use std::collections::HashMap;

use proto_frames::payload::Payload;
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::peer::Peer;
use crate::site::{Site, repository};
use crate::words::{PLENTY, delete, deleted, instance, start, started};

/// Pairs of START and DELETE sent in the tests of order.
const PAIRS: u128 = 3000;

/// What a node was given, in order.
async fn receive(node: &mut Peer, count: u128) -> Vec<(Kind, Uuid)> {
    let mut got = Vec::new();
    for _ in 0..count {
        let frame = node.next().await.expect("the connection stands");
        let instance = match frame.kind {
            Kind::START => started(&frame.payload),
            _ => deleted(&frame.payload),
        };
        got.push((frame.kind, instance));
    }
    got
}

#[tokio::test]
async fn starts_and_deletes_of_one_instance_never_overtake_each_other() {
    for (from, to) in [
        (Encoding::Gob, Encoding::Native),
        (Encoding::Native, Encoding::Gob),
    ] {
        let (site, daemon) = Site::running().await;
        let (mut controller, mut node) = site.pair(&daemon, from, to).await;
        let uuid = node.uuid;
        let frames = (0..PAIRS).flat_map(|n| {
            [
                (Kind::START, start(instance(n), 1)),
                (Kind::DELETE, delete(instance(n), uuid)),
            ]
        });
        let ((), got) = tokio::join!(controller.pour(frames), receive(&mut node, 2 * PAIRS));
        let expected: Vec<_> = (0..PAIRS)
            .flat_map(|n| [(Kind::START, instance(n)), (Kind::DELETE, instance(n))])
            .collect();
        assert_eq!(got, expected);
        node.nothing_else().await;
    }
}

#[tokio::test]
async fn a_burst_of_starts_is_spread_evenly_and_nothing_is_lost_or_doubled() {
    const NODES: usize = 8;
    const EACH: u128 = 200;
    let (site, daemon) = Site::running().await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let mut node = site.node(&daemon).await;
        node.ready(PLENTY).await;
        node.nothing_else().await;
        nodes.push(node);
    }
    let total = EACH * NODES as u128;
    controller
        .pour((0..total).map(|n| (Kind::START, start(instance(n), 1))))
        .await;
    let mut holders: HashMap<Uuid, usize> = HashMap::new();
    for (at, node) in nodes.iter_mut().enumerate() {
        for (kind, instance) in receive(node, EACH).await {
            assert_eq!(kind, Kind::START);
            assert_eq!(holders.insert(instance, at), None, "given twice");
        }
    }
    assert_eq!(holders.len() as u128, total);
    controller.settle().await;
    for node in &mut nodes {
        node.nothing_else().await;
    }
    // One after the other: the round is exact whatever the load.
    for n in 0..total {
        assert_eq!(holders[&instance(n)], (n % NODES as u128) as usize);
    }
}

#[tokio::test]
async fn several_launchers_reports_reach_a_controller_each_in_its_order() {
    const COUNT: usize = 300;
    let (site, daemon) = Site::running().await;
    let mut controller = site.connect(&daemon, Role::CONTROLLER, Encoding::Gob).await;
    let mut writers = Vec::new();
    for encoding in [Encoding::Native, Encoding::Gob, Encoding::Native] {
        let mut node = site.connect(&daemon, Role::AGENT, encoding).await;
        writers.push(tokio::spawn(async move {
            let uuid = node.uuid;
            let stats = |n| format!("node_uuid: {uuid}\nload: {n}\n").into();
            node.pour((0..COUNT).map(|n| (Kind::STATS, stats(n)))).await;
            node
        }));
    }
    let mut loads: HashMap<Uuid, i64> = HashMap::new();
    for _ in 0..3 * COUNT {
        let frame = controller.skip_to(Kind::STATS).await;
        let stats = proto_frames::payload::Stats::decode(&frame.payload).unwrap();
        let node: Uuid = stats.node_uuid.parse().unwrap();
        assert!(
            frame.origin == node || frame.origin.is_nil(),
            "the origin survives"
        );
        let next = loads.entry(node).or_default();
        assert_eq!(stats.load, *next);
        *next += 1;
    }
    for writer in writers {
        writer.await.unwrap().nothing_else().await;
    }
}

#[tokio::test]
async fn a_frame_crosses_from_one_encoding_to_the_other_byte_for_byte() {
    let payload = std::fs::read(repository(
        "proto-frames/tests/golden/start-three-documents.yaml",
    ))
    .unwrap();
    // 20 KiB of cloud-init that would choke a parser if it got there.
    let head = payload.len();
    let mut large = payload;
    for n in 0..400 {
        large.extend_from_slice(format!("# {n} {{[[[[{{{{]}}: \"---\"\n...\n").as_bytes());
    }
    large.resize(head + 20 * 1024, b'[');
    for (from, to) in [
        (Encoding::Gob, Encoding::Native),
        (Encoding::Native, Encoding::Gob),
        (Encoding::Gob, Encoding::Gob),
        (Encoding::Native, Encoding::Native),
    ] {
        let (site, daemon) = Site::running().await;
        let (mut controller, mut node) = site.pair(&daemon, from, to).await;
        controller.send(Kind::START, large.clone()).await;
        let frame = node.expect(Kind::START).await;
        assert!(frame.payload == large, "{from:?} to {to:?}");
        if to == Encoding::Gob {
            assert_eq!(frame.origin, controller.uuid, "the first sender");
        }
    }
}
