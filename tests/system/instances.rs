//! What is known of an instance: that it is there already, what became of it, and that it was not started here.

use proto_frames::Kind;
use proto_frames::payload::{Payload, StartFailure, Topic};

use crate::program::{Program, runs};
use crate::world::Cluster;

/// A START of a program with a name that is always the same.
const ID: &str = "5ca1ab1e-0000-4000-8000-000000000001";

/// Writes a START file; what `scheduling` has is to be a line of YAML.
fn write_start(cluster: &Cluster, script: &str, scheduling: &str) -> String {
    let path = cluster.site.path("start.yaml");
    let command = serde_json::to_string(&["/bin/sh", "-c", script]).unwrap();
    let text = format!(
        "start:\n  instance_uuid: {ID}\n  vm_type: process\n  command: {command}\n  \
         requirements: {{mem_mb: 16, vcpus: 1}}\n  scheduling: {scheduling}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Sends a START; why it failed.
async fn answer(cluster: &Cluster, file: &str) -> String {
    let mut operator = cluster.site.operator(cluster.scheduler()).await;
    operator.watch(&[Topic::Failures]).await;
    operator
        .send(Kind::START, std::fs::read(file).unwrap())
        .await;
    let failure = operator.skip_to(Kind::START_FAILURE).await;
    let failure = StartFailure::decode(&failure.payload).unwrap();
    assert_eq!(failure.instance_uuid, ID);
    failure.reason.to_string()
}

#[tokio::test]
async fn a_start_of_what_lives_is_answered_and_what_nobody_here_started_is_adopted() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let file = write_start(&cluster, &program.script, "{priority: 20}");
    let started = cluster.ctl(&format!("start --wait=running {file}")).await;
    assert_eq!(started.code, Some(0), "{started:?}");
    let (process, node) = program.runs(1).await;
    cluster.until(ID, "running").await;
    assert_eq!(answer(&cluster, &file).await, "already_running");
    program.runs(1).await;
    assert_eq!(cluster.states(ID).await, ["placing", "running"]);

    // A scheduler that has forgotten everything finds it where it is.
    cluster.kill_scheduler().await;
    std::fs::remove_dir_all(cluster.site.path("state")).unwrap();
    cluster.start_scheduler().await;
    let found = cluster.until(ID, "running").await;
    assert_eq!(found.node_uuid, node);
    assert_eq!((found.mem_mb, found.vcpus), (16, 1));
    assert_eq!(answer(&cluster, &file).await, "already_running");
    assert!(runs(process));
    program.runs(1).await;

    let deleted = cluster.ctl(&format!("delete --wait {ID}")).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    cluster.until_gone(ID).await;
    assert!(!runs(process));
}
