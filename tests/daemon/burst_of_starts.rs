//! A burst of STARTs of one vcpu to a cluster of the original's launchers, whose scheduler did not look at vcpus: how many of
//! them it takes is a matter of `-cpu-ratio`. `docs/how-to/coming-from-ciao.md` has these figures.

use std::collections::HashSet;

use bytes::Bytes;
use proto_frames::payload::{Payload, Ready, StartFailure, StartFailureReason};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::site::Site;
use crate::words::{PLENTY, instance, start};

const STARTS: u128 = 600;

/// CPUs of each of the two nodes.
const CPUS: i64 = 3;

fn ready(node: Uuid) -> Bytes {
    Ready {
        node_uuid: node.to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        cpus_online: CPUS,
        hostname: format!("host-{node}"),
        ..Ready::default()
    }
    .encode()
}

/// How many of the STARTs two nodes get, of a daemon with these flags; all others fail for lack of room.
async fn placed(flags: &[&str]) -> usize {
    let site = Site::new();
    let daemon = site.start(flags).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Gob);
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let mut node = dialer.clone().with_uuid(Uuid::new_v4()).connect().await;
        let ready = ready(node.uuid);
        node.send(Kind::READY, ready).await;
        node.nothing_else().await;
        nodes.push(node);
    }
    let mut master = site.master(&daemon).await;
    master.settle().await;
    let starts = (0..STARTS).map(|number| (Kind::START, start(instance(number), 1)));
    master.pour(starts).await;
    let mut outcomes = HashSet::new();
    let failures = master.settle().await;
    for frame in failures.iter().filter(|it| it.kind == Kind::START_FAILURE) {
        let failure = StartFailure::decode(&frame.payload).unwrap();
        assert_eq!(failure.reason, StartFailureReason::FullCloud);
        assert!(outcomes.insert(failure.instance_uuid));
    }
    let failed = outcomes.len();
    let mut given = 0;
    for node in &mut nodes {
        let frames = node.settle().await;
        given += frames.iter().filter(|it| it.kind == Kind::START).count();
    }
    assert_eq!(failed + given, STARTS as usize);
    given
}

#[tokio::test]
async fn so_many_vcpus_are_placed_as_the_ratio_allows_and_all_with_a_large_one() {
    assert_eq!(placed(&[]).await, 96);
    let measured = placed(&["-accounting", "measured"]).await;
    assert_eq!(measured, 96, "none of them runs yet");
    assert_eq!(placed(&["-cpu-ratio", "1000"]).await, 600);
}
