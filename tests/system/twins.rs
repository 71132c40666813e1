//! Two launchers with one UUID, because a state directory was copied.

use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use crate::site::{output, within};
use crate::world::Cluster;

/// Copies a state directory as an administrator does who clones a machine.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let place = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &place);
        } else {
            std::fs::copy(&path, &place).unwrap();
        }
    }
}

#[tokio::test]
async fn a_launcher_with_a_copied_state_directory_is_refused_and_told_what_to_do() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let uuid = cluster.node("node-a").await.unwrap().node_uuid;
    copy(&cluster.site.path("node-a"), &cluster.site.path("clone"));
    let mut clone = cluster.launcher("clone", &[]);
    clone.stderr(Stdio::piped());
    let clone = within(output(clone)).await;
    let said = String::from_utf8_lossy(&clone.stderr).into_owned();
    assert_eq!(clone.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap_or_default();
    for part in [
        "the scheduler refuses this launcher: another launcher with the UUID of this node",
        &uuid,
        "is connected from 127.0.0.1:",
        "state directory is a copy",
    ] {
        assert!(last.contains(part), "{part}: {said}");
    }
    let line = cluster
        .scheduler()
        .logged("two launchers report for it")
        .await;
    assert!(line.contains("WARN") && line.contains(&uuid), "{line}");
    assert_eq!(line.matches("127.0.0.1:").count(), 2, "{line}");
    let status = cluster.ctl("status").await;
    assert_eq!(status.code, Some(9), "{status:?}");
    let what =
        format!("two machines seem to have the UUID of node node-a, {uuid}: one at 127.0.0.1:");
    assert!(status.out.contains(&what), "{status:?}");
    assert!(status.out.contains("remove its --state-dir"), "{status:?}");
    cluster
        .until_node("node-a", |node| node.status == "READY")
        .await;

    // With a state directory of its own it is a node of its own; and the first one may be started again.
    std::fs::remove_dir_all(cluster.site.path("clone")).unwrap();
    cluster.launch("clone", &[]);
    cluster.ready(&["node-a", "clone"]).await;
    cluster.signal_launcher("node-a", Signal::TERM);
    cluster
        .until_node("node-a", |node| node.status == "LOST")
        .await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a", "clone"]).await;
}
