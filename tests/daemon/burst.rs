//! Many launchers that all report at once: what their controller has not read yet waits with them and not in the daemon,
//! and it gets all of it and is not cut.

use std::collections::HashMap;

use bytes::Bytes;
use proto_frames::payload::{
    InstanceStat, Payload, QueryKind, StartFailure, StartFailureReason, Stats,
};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::site::Site;
use crate::words::instance;

/// Launchers.
const LAUNCHERS: usize = 200;

/// Instances in the first STATS of each, as after a restart of the scheduler.
const INSTANCES: usize = 100;

/// StartFailures of each.
const FAILURES: usize = 50;

/// Further STATS of each; with all the rest more than each launcher's budget.
const REPORTS: usize = 200;

/// Instances of each that are in none of the further STATS: they have ended.
const ENDED: usize = INSTANCES - 10;

/// What the daemon may keep of it, in KiB: 4 MiB for the controller's queue, a batch of 16 KiB of each launcher and as much
/// read ahead of it, as much again for what memory costs beside its contents, 1 KiB for each instance that it gets to know,
/// and half a KiB for the run of each that has ended, which is remembered (`MAX_PAST_BYTES`). The launchers' budgets are
/// 50 MiB, and cost twice that. Measured: 38 to 45 MiB, of which half a KiB is for each instance that is there, and 0.9 to
/// 1.2 KiB for each that has ended: what it took while it was there goes back to the allocator, and its run stays.
const MOST_KIB: usize =
    2 * (4 * 1024 + 2 * 16 * LAUNCHERS) + LAUNCHERS * INSTANCES + LAUNCHERS * ENDED / 2;

fn stats(node: Uuid, hostname: &str, instances: impl Iterator<Item = u128>) -> Bytes {
    let stat = |number| InstanceStat {
        instance_uuid: instance(number).to_string(),
        ..InstanceStat::default()
    };
    Stats {
        node_uuid: node.to_string(),
        status: "READY".to_owned(),
        hostname: hostname.to_owned(),
        instances: instances.map(stat).collect(),
        ..Stats::default()
    }
    .encode()
}

fn failure(number: u128) -> Bytes {
    StartFailure {
        instance_uuid: instance(number).to_string(),
        reason: StartFailureReason::LaunchFailure,
        ..StartFailure::default()
    }
    .encode()
}

/// Everything that one launcher reports.
fn words(launcher: usize, node: Uuid) -> Vec<(Kind, Bytes)> {
    let hostname = format!("host-{launcher}");
    let first = (launcher * INSTANCES) as u128;
    let own = first..first + INSTANCES as u128;
    let unknown = (LAUNCHERS * INSTANCES + launcher * FAILURES) as u128;
    let mut words = vec![(Kind::STATS, stats(node, &hostname, own.clone()))];
    words.extend((0..FAILURES).map(|n| (Kind::START_FAILURE, failure(unknown + n as u128))));
    let report = stats(node, &hostname, own.take(INSTANCES - ENDED));
    words.extend((0..REPORTS).map(|_| (Kind::STATS, report.clone())));
    words
}

#[tokio::test]
async fn a_burst_waits_with_its_senders_and_the_controller_gets_all_of_it() {
    let site = Site::new();
    // The controller takes its time, and does not count as stalled meanwhile.
    let flags = ["--stall-time", "10m", "--progress-deadline", "10m"];
    let daemon = site.start(&flags).await;
    let mut master = site.master(&daemon).await;
    let mut operator = site.operator(&daemon).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut launchers = Vec::new();
    for number in 0..LAUNCHERS {
        let launcher = dialer.clone().with_uuid(Uuid::new_v4()).connect().await;
        let words = words(number, launcher.uuid);
        launchers.push((launcher, words));
    }
    // All that they say is there before the first word of it is read.
    daemon.freeze();
    let sending = launchers.into_iter().map(|(mut launcher, words)| {
        tokio::spawn(async move {
            launcher.pour(words).await;
            launcher
        })
    });
    let sending: Vec<_> = sending.collect();
    let mut sent = Vec::new();
    for launcher in sending {
        // Each write is known to end.
        sent.push(launcher.await.unwrap());
    }
    let before = daemon.resident_kib();
    daemon.thaw();
    // Until no more is taken in, while others are served.
    let (mut unmoved, mut now) = (0, before);
    while unmoved < 200 {
        operator.query(QueryKind::Controllers).await;
        let next = daemon.resident_kib();
        unmoved = if next == now { unmoved + 1 } else { 0 };
        now = next;
    }
    let grown = now.saturating_sub(before);
    assert!(grown <= MOST_KIB, "{grown} KiB are queued");
    let mut heard = HashMap::<Kind, usize>::new();
    while heard.values().sum::<usize>() < LAUNCHERS * (1 + REPORTS + FAILURES) {
        let Some(frame) = master.next().await else {
            panic!("the connection ended after {heard:?}")
        };
        if matches!(frame.kind, Kind::STATS | Kind::START_FAILURE) {
            *heard.entry(frame.kind).or_default() += 1;
        }
    }
    assert_eq!(heard[&Kind::STATS], LAUNCHERS * (1 + REPORTS));
    assert_eq!(heard[&Kind::START_FAILURE], LAUNCHERS * FAILURES);
    master.settle().await;
    let cut = |line: &String| line.contains("disconnected:");
    assert_eq!(daemon.log().iter().find(|line| cut(line)), None);
}
