//! Sets: instances of one file that are created, scaled, replaced and deleted together.

use crate::world::Cluster;

/// A START file; `what` tells versions apart.
fn file(cluster: &Cluster, name: &str, command: &str) -> String {
    let path = cluster.site.path(name);
    let text = format!(
        "# kept as it is\nstart:\n  vm_type: process\n  command: [{command}]\n  requirements: {{mem_mb: 16, vcpus: 1}}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Names, versions and programs of a set's instances that run.
async fn members(cluster: &Cluster, set: &str) -> Vec<(String, String)> {
    let ran = cluster.ctl(&format!("set status {set} --json")).await;
    let listed: serde_json::Value = serde_json::from_str(&ran.out).unwrap_or_default();
    let all = listed["instances"].as_array().cloned().unwrap_or_default();
    let text = |it: &serde_json::Value, key: &str| it[key].as_str().unwrap().to_owned();
    all.iter()
        .map(|it| (text(it, "name"), text(it, "version")))
        .collect()
}

#[tokio::test]
async fn a_set_is_created_scaled_updated_in_order_and_deleted() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let first = file(&cluster, "first.yaml", "sleep, '600'");
    let second = file(&cluster, "second.yaml", "sleep, '601'");
    let bad = file(&cluster, "bad.yaml", "/nowhere/to/be/found");

    let none = cluster.ctl("set status web").await;
    assert_eq!(none.code, Some(5), "{none:?}");
    assert!(none.err.contains("there is no set web"), "{none:?}");
    let ran = cluster
        .ctl(&format!("set create web {first} --replicas 3"))
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let created = members(&cluster, "web").await;
    assert_eq!(created.len(), 3);
    let again = cluster.ctl(&format!("set create web {first}")).await;
    assert!(again.err.contains("has 3 instances already"), "{again:?}");

    let more = cluster.ctl("set scale web --replicas 4").await;
    assert!(
        more.err.contains("name the file that it was started from"),
        "{more:?}"
    );
    let more = cluster
        .ctl(&format!("set scale web --replicas 4 {second}"))
        .await;
    assert!(more.err.contains("ciaoctl set update web"), "{more:?}");
    let more = cluster
        .ctl(&format!("set scale web --replicas 4 {first}"))
        .await;
    assert_eq!(more.code, Some(0), "{more:?}");
    let fewer = cluster.ctl("set scale web --replicas 2").await;
    assert_eq!(fewer.code, Some(0), "{fewer:?}");
    assert_eq!(members(&cluster, "web").await, created[..2]);

    // The cluster is the record.
    cluster.crash_scheduler().await;
    cluster.ready(&["node-a", "node-b"]).await;
    let failed = cluster.ctl(&format!("set update web {bad}")).await;
    assert_ne!(failed.code, Some(0), "{failed:?}");
    assert_eq!(members(&cluster, "web").await.len(), 1, "the other stays");
    let updated = cluster
        .ctl(&format!("set update web {second} --replicas 2"))
        .await;
    assert_eq!(updated.code, Some(0), "{updated:?}");
    let updated = members(&cluster, "web").await;
    assert_eq!(updated.len(), 2);
    assert_ne!(updated[0].1, created[0].1);

    let deleted = cluster.ctl("set delete web").await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert!(members(&cluster, "web").await.is_empty());
}
