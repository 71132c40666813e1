//! Clocks that are set an hour forward and back while a scheduler leads: nothing that is counted by the election, by
//! leases of nodes or by connections is counted by the time of day.

use crate::clock;
use crate::etcd::{Etcd, is_missing};
use crate::look::until;
use crate::world::{Pair, Settings, lines};

/// By how much clocks are set, in seconds.
const HOUR: i32 = 3600;

/// A node that is lost is given up after this, and what is on it is ended.
const LAUNCHING: &[&str] = &["--lease", "18s"];

/// Waits so long that an hour more or less is of no account.
const RUN: &str = "run --quiet --mem 900 --cpus 1 --queue 10h --on-node-loss restart -- /bin/sh -c";

/// For how long a node's lease is renewed after each setting, in ms: longer than a third of the leader's own.
const MORE: u64 = 1_100;

/// Who leads, and since when.
async fn leads(pair: &Pair) -> (String, i64) {
    let status = pair.ha("status", &["--json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let leader = status["leader"].as_str().unwrap().to_owned();
    (leader, status["term"].as_i64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_hour_forward_or_back_costs_a_leader_nothing() {
    if is_missing() || clock::is_missing() {
        return;
    }
    let settings = Settings {
        is_gated: true,
        has_clocks: true,
        // A busy machine alone is not to have it pause.
        ttl: Some("9s"),
        launching: LAUNCHING,
        more_nodes: 1,
        ..Settings::default()
    };
    let mut pair = Pair::start_on(Etcd::start(1, &[]), settings).await;
    let (file, script) = pair.script("runs");
    let running = pair.done(RUN, &[&script]).await;
    let began = lines(&file).await;
    let (_, script) = pair.script("other");
    pair.done(RUN, &[&script]).await;
    let (_, script) = pair.script("waits");
    let waiting = pair.done(RUN, &[&script]).await;
    let connections = pair.door.as_ref().unwrap().connections();
    let term = leads(&pair).await;
    for who in ["scheduler-1", "scheduler-2", "node-a"] {
        for seconds in [HOUR, -HOUR, 0] {
            pair.clock(who).set(seconds);
            // Some reports are answered, and the leader renews its own lease.
            let enough = pair.lease("node-a") + MORE;
            until("the lease goes on", || pair.lease("node-a") > enough).await;
        }
        pair.check().await;
    }
    assert_eq!(leads(&pair).await, term);
    assert_eq!(pair.door.as_ref().unwrap().connections(), connections);
    let log = pair.schedulers[0].log();
    let is_amiss = |it: &&String| {
        ["paused", "steps down"]
            .iter()
            .any(|word| it.contains(word))
    };
    assert_eq!(log.iter().find(is_amiss), None);
    // A leader whose clock is an hour ahead is followed by one whose clock is an hour behind.
    pair.clock("scheduler-1").set(HOUR);
    pair.clock("scheduler-2").set(-HOUR);
    pair.fail_over().await;
    pair.until_node().await;
    pair.check().await;
    assert_eq!(lines(&file).await, began);
    pair.done("delete", &[&running]).await;
    assert_eq!(lines(&pair.site.path("waits")).await.len(), 1);
    pair.until_listed("instances", &waiting[..8]).await;
    pair.check().await;
}
