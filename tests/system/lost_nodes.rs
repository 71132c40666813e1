//! A launcher that dies: its node stays listed, with its instances, until it returns or an operator forgets it.

use crate::program::Program;
use crate::world::{Cluster, until};

#[tokio::test]
async fn a_lost_node_is_listed_with_its_instances_until_it_is_forgotten() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 1 --wait=running --node node-a";
    let id = cluster.run(options, &program.script).await;
    let refused = cluster.ctl("node forget node-a").await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    cluster.lose("node-a").await;
    let view = cluster.instance(&id).await.expect("it is still listed");
    assert_eq!((view.state.as_str(), &*view.hostname), ("lost", "node-a"));
    assert!(view.deadline_ms.is_some());
    let nodes = cluster.ctl("nodes --json").await;
    let nodes: serde_json::Value = serde_json::from_str(&nodes.out).unwrap();
    let of_node = |name: &str| {
        let mut rows = nodes["nodes"].as_array().unwrap().iter();
        rows.find(|row| row["hostname"] == name).unwrap().clone()
    };
    let lost = of_node("node-a");
    assert!(lost["lost_s"].is_i64(), "{lost}");
    let address = lost["address"].as_str().unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert!(of_node("node-b")["lost_s"].is_null());

    let forgotten = cluster.ctl("node forget node-a").await;
    assert_eq!(forgotten.code, Some(0), "{forgotten:?}");
    assert!(cluster.node("node-a").await.is_none());
    assert!(cluster.instance(&id).await.is_none());

    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    cluster.until(&id, "running").await;
}

#[tokio::test]
async fn a_lost_node_is_listed_after_a_restart_of_the_scheduler_and_expected_first() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let list = cluster.site.path("state/nodes");
    until("the node is not on disk", || {
        std::fs::read_to_string(&list).is_ok_and(|text| text.contains("node-a"))
    })
    .await;
    cluster.lose("node-a").await;
    cluster.crash_scheduler().await;
    cluster
        .until_node("node-a", |node| node.status == "EXPECTED")
        .await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
}
