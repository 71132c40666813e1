//! What is more important takes the room of what is less so, which goes on by itself afterwards.

use crate::program::{Program, runs, stands_still};
use crate::world::{Cluster, until};

#[tokio::test]
async fn a_low_priority_stands_still_for_a_high_one_and_goes_on_by_itself() {
    let cluster = Cluster::new(&["node-a"]).await;
    let low = Program::new(&cluster, "low");
    let id = cluster
        .run("--mem 300 --cpus 4 --priority 10", &low.script)
        .await;
    let (process, _) = low.runs(1).await;
    low.beats().await;
    // A node without vcpus calls itself full, and has room made on it all the same.
    cluster.until_node("node-a", |it| it.status == "FULL").await;
    // It may say so before it lists the instance as running, and only what runs can be preempted.
    cluster.until(&id, "running").await;

    let high = Program::new(&cluster, "high");
    let other = cluster
        .run(
            "--mem 300 --cpus 4 --priority 90 --wait=running",
            &high.script,
        )
        .await;
    let (high_process, _) = high.runs(1).await;
    stands_still(process).await;
    let beaten = low.beaten();
    for _ in 0..10 {
        high.beats().await;
    }
    assert_eq!(low.beaten(), beaten, "it does nothing");
    let waits = cluster.until(&id, "suspended").await;
    assert_eq!(waits.reported.as_deref(), Some("exit_paused"));
    assert_eq!(waits.waits_for, format!("preempted by {other}"));

    cluster.ctl(&format!("delete --wait {other}")).await;
    assert!(!runs(high_process));
    cluster.until(&id, "running").await;
    low.beats().await;
    assert_eq!(low.runs(1).await.0, process, "the same process");
    assert_eq!(
        cluster.states(&id).await,
        [
            "placing",
            "running",
            "suspending",
            "suspended",
            "resuming",
            "running"
        ]
    );
}

#[tokio::test]
async fn who_has_the_memory_that_a_high_priority_needs_is_stopped_and_started_again() {
    let cluster = Cluster::new(&["node-a"]).await;
    let [low, high] = ["low", "high"].map(|it| Program::new(&cluster, it));
    let id = cluster
        .run(
            "--mem 600 --cpus 1 --priority 10 --wait=running",
            &low.script,
        )
        .await;
    let (process, _) = low.runs(1).await;
    let other = cluster
        .run(
            "--mem 700 --cpus 1 --priority 90 --wait=running",
            &high.script,
        )
        .await;
    high.runs(1).await;
    assert!(!runs(process));
    cluster.until(&id, "waiting").await;
    assert_eq!(cluster.queue().await, [&*id]);
    cluster.ctl(&format!("delete {other}")).await;
    low.runs(2).await;
    cluster.until(&id, "running").await;
    until("the end of the queue's work", || low.beaten() > 0).await;
    assert_eq!(cluster.queue().await, [""; 0]);
}
