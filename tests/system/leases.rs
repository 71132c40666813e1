//! What a lost node had is started elsewhere once it has certainly ended there.

use proto_frames::payload::NodeView;
use rustix::process::Signal;

use crate::program::{Program, runs};
use crate::world::{Cluster, until};

const OPTIONS: &str =
    "--mem 16 --cpus 1 --wait=running --prefer node.hostname=node-a --on-node-loss restart";

#[tokio::test]
async fn what_a_dead_launcher_had_under_its_lease_ends_there_and_then_runs_elsewhere() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let [leased, plain] = ["leased", "plain"].map(|it| Program::new(&cluster, it));
    let id = cluster.run(OPTIONS, &leased.script).await;
    let node = "--mem 16 --cpus 1 --wait=running --node node-a --priority 50";
    let other = cluster.run(node, &plain.script).await;
    let (process, from) = leased.runs(1).await;
    let (spared, _) = plain.runs(1).await;
    cluster.kill_launcher("node-a").await;
    // Its supervisor ends it; no other process is there to do so. The lock that it holds tells if it is started too early.
    let (_, to) = leased.runs(2).await;
    assert!(!runs(process));
    assert_ne!(from, to);
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
    assert!(runs(spared), "it may run on where it is");
    cluster.until(&other, "lost").await;
    let states = cluster.states(&id).await;
    assert!(states.contains(&"lost".to_owned()), "{states:?}");

    // The node comes back with what it still has, and without what runs elsewhere.
    cluster.launch("node-a", &[]);
    let back = cluster.until(&other, "running").await;
    assert_eq!(back.hostname, "node-a");
    assert_eq!(plain.runs(1).await.0, spared);
    leased.runs(2).await;
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
}

#[tokio::test]
async fn what_a_launcher_that_hangs_has_under_its_lease_ends_without_it() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let id = cluster.run(OPTIONS, &program.script).await;
    let (process, _) = program.runs(1).await;
    cluster.signal_launcher("node-a", Signal::STOP);
    until("its end", || !runs(process)).await;
    assert_eq!(program.begun().len(), 1);
    // Its connection stands as long as its machine answers for it.
    cluster.kill_launcher("node-a").await;
    program.runs(2).await;
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
}

#[tokio::test]
async fn what_runs_under_a_lease_is_not_started_elsewhere_early_after_its_launcher_got_a_shorter_one()
 {
    let mut cluster = Cluster::new(&["node-b"]).await;
    cluster.launch("node-a", &["--lease", "10s"]);
    cluster.ready(&["node-a"]).await;
    let program = Program::new(&cluster, "program");
    let id = cluster.run(OPTIONS, &program.script).await;
    let (process, _) = program.runs(1).await;
    cluster.kill_launcher("node-a").await;
    cluster.launch("node-a", &[]);
    let is_heard = |node: &NodeView| node.status == "READY" && node.lease_ms != Some(10_000);
    cluster.until_node("node-a", is_heard).await;
    assert!(runs(process));
    cluster.kill_launcher("node-a").await;
    // The lock that it holds tells if it is started too early.
    program.runs(2).await;
    assert!(!runs(process));
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-b");
}
