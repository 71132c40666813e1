//! Leases of nodes over a fail-over: what runs under one goes on if its node comes to the next leader in time, and is begun
//! elsewhere only once it must have ended where it was.

use crate::etcd::{Etcd, is_missing};
use crate::look::{Look, until};
use crate::world::{NODES, Pair, Settings, lines};

/// Longer than a fail-over takes, and shorter than the default.
const LEASE: &[&str] = &["--lease", "18s"];

const RUN: &str = "run --quiet --mem 900 --cpus 1 --queue 10m --on-node-loss restart -- /bin/sh -c";

async fn with_two_nodes() -> Pair {
    let settings = Settings {
        launching: LEASE,
        more_nodes: 1,
        ..Settings::default()
    };
    Pair::start_on(Etcd::start(1, &[]), settings).await
}

/// The node that runs this instance: its place.
fn node_of(pair: &Pair, uuid: &str) -> usize {
    let runs = |node: &str| pair.site.path(node).join("instances").join(uuid).exists();
    NODES.iter().position(|node| runs(node)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_leader_renews_the_lease_of_what_runs() {
    if is_missing() {
        return;
    }
    let mut pair = with_two_nodes().await;
    let (file, script) = pair.script("runs");
    let running = pair.done(RUN, &[&script]).await;
    let began = lines(&file).await;
    let node = NODES[node_of(&pair, &running)];
    pair.fail_over().await;
    let before = pair.lease(node);
    until("the lease goes on", || pair.lease(node) > before).await;
    pair.until_node().await;
    pair.check().await;
    assert_eq!(lines(&file).await, began);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_on_a_node_that_is_lost_with_the_leader_is_begun_elsewhere_after_its_lease() {
    if is_missing() {
        return;
    }
    let mut pair = with_two_nodes().await;
    let file = pair.site.path("runs");
    let shown = file.display();
    let script = format!(
        "test -s {shown} && kill -0 $(tail -n 1 {shown}) && echo twice >> {shown}; echo $$ >> {shown}; exec sleep 600"
    );
    let running = pair.done(RUN, &[&script]).await;
    let began = lines(&file).await;
    let node = node_of(&pair, &running);
    let mut launcher = pair.launchers.remove(node);
    launcher.kill().await.unwrap();
    let before = pair.lease(NODES[node]);
    pair.fail_over().await;
    // The other node is there, and its room is not used as long as the lease may last.
    let mut look = Look::new();
    let begun = loop {
        let begun = lines(&file).await;
        if begun.len() > began.len() {
            break begun;
        }
        look.again(|| "it is not begun elsewhere".to_owned()).await;
    };
    assert_eq!(begun.len(), 2, "{begun:?}");
    assert_eq!(pair.lease(NODES[node]), before);
    pair.until_node().await;
    pair.check().await;
}
