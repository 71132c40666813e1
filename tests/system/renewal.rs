//! What a launcher reads again while it runs: its next connection is made with the certificate that its file has by then, and
//! SIGHUP changes its log levels. It is still the same process.

use proto_frames::Role;
use rustix::process::Signal;

use crate::certs::{renew, write_private};
use crate::world::{Cluster, until};

/// Renews the launchers' certificate, which then ends in so many days; when that is.
fn renewed(cluster: &Cluster, days: u64) -> i64 {
    let path = cluster.site.path("agent.pem");
    renew(&cluster.site.ca.anchor, &path, Role::AGENT, days)
}

/// Waits until a node's connection is made with a certificate that ends then, give or take a second.
async fn until_it_ends(cluster: &Cluster, ends_s: i64) {
    let is_so = |ends: Option<i64>| ends.is_some_and(|it| (it - ends_s).abs() <= 1);
    cluster
        .until_node("node-a", |node| {
            node.status == "READY" && is_so(node.certificate_ends_at_s)
        })
        .await;
}

#[tokio::test]
async fn a_launcher_dials_with_a_renewed_certificate_and_its_instances_stay() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let options = "--mem 16 --cpus 1 --wait=running";
    let id = cluster.run(options, "exec sleep 1000").await;
    let process = cluster.launcher_pid("node-a");
    for days in [100, 200] {
        let ends_s = renewed(&cluster, days);
        // Whatever ends its connection.
        cluster.crash_scheduler().await;
        until_it_ends(&cluster, ends_s).await;
        assert_eq!(cluster.launcher_pid("node-a"), process);
        cluster.until(&id, "running").await;
    }
    // What is no certificate leaves the one that it had.
    let ends_s = renewed(&cluster, 300);
    cluster.crash_scheduler().await;
    until_it_ends(&cluster, ends_s).await;
    write_private(&cluster.site.path("agent.pem"), "no certificate\n");
    cluster.crash_scheduler().await;
    until_it_ends(&cluster, ends_s).await;
    cluster.until(&id, "running").await;
}

#[tokio::test]
async fn a_launcher_changes_its_log_levels_on_sighup_and_leaves_them_at_a_mistake() {
    let mut cluster = Cluster::new(&[]).await;
    let levels = cluster.site.path("levels");
    std::fs::write(&levels, "v=0\n").unwrap();
    let flag = levels.display().to_string();
    cluster.launch_logged("node-a", &["--log-levels", &flag]);
    cluster.ready(&["node-a"]).await;
    let log = cluster.site.path("node-a.log");
    let says = |text: &str| std::fs::read_to_string(&log).unwrap().contains(text);
    std::fs::write(&levels, "v=0\nlauncher=1\n").unwrap();
    cluster.signal_launcher("node-a", Signal::HUP);
    until("the new levels", || says("log levels: v=0, launcher=1")).await;
    std::fs::write(&levels, "launcher=loud\n").unwrap();
    cluster.signal_launcher("node-a", Signal::HUP);
    let mistake = format!("cannot use the log levels in {flag}: line 1: expected v=N");
    until("the mistake", || says(&mistake)).await;
    cluster.ready(&["node-a"]).await;
}
