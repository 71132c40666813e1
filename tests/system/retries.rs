//! What one node cannot start is tried on another.

use std::os::unix::fs::PermissionsExt as _;

use crate::world::Cluster;

/// A program that is in the `PATH` of one launcher alone.
const RARE: &str = "ciao-test-rare-program";

#[tokio::test]
async fn a_program_that_one_node_lacks_runs_on_the_other() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let dir = cluster.site.path("programs");
    std::fs::create_dir(&dir).unwrap();
    let program = dir.join(RARE);
    std::fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    cluster.launch_beside("node-b", &dir);
    cluster.ready(&["node-a", "node-b"]).await;

    let line = "run --mem 16 --cpus 1 --attempts 2 --prefer node.hostname=node-a --wait=running";
    let ran = cluster.ctl(&format!("{line} --quiet -- {RARE}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let id = ran.out.trim();
    let view = cluster.until(id, "running").await;
    assert_eq!(view.hostname, "node-b");
    let rows = cluster.history(id).await;
    let told = |row: &&proto_frames::payload::HistoryRow| row.detail.contains("image_failure");
    assert_eq!(rows.iter().filter(told).count(), 1, "{rows:#?}");

    let line = "run --mem 16 --cpus 1 --attempts 5 --wait -- ciao-test-no-program";
    let failed = cluster.ctl(line).await;
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.out.contains(": image_failure"), "{failed:?}");
    for name in ["node-a", "node-b"] {
        let node = cluster.node(name).await.unwrap();
        assert!(failed.out.contains(&node.node_uuid[..8]), "{failed:?}");
        assert_eq!(node.status, "READY");
        assert_eq!(node.failures, "", "it is the workload's own fault");
        let run = format!("run --mem 16 --cpus 1 --node {name} --wait -- true");
        assert_eq!(cluster.ctl(&run).await.code, Some(0));
    }
}
