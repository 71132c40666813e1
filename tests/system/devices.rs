//! Devices: what programs are told of them when what they have changes and when they move.

use crate::world::{Cluster, until};

#[tokio::test]
async fn more_devices_are_reserved_at_once_and_told_where_the_instance_begins_again() {
    let mut cluster = Cluster::new(&[]).await;
    cluster.launch("node-a", &["--resource", "gpu=3"]);
    cluster.launch("node-b", &["--resource", "gpu=2"]);
    cluster.ready(&["node-a", "node-b"]).await;
    let path = cluster.site.path("told");
    let script = format!(
        "echo $CIAO_RESOURCE_GPU >>{}; exec sleep 600",
        path.display()
    );
    let told = async |expected: &[&str]| {
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        let count = expected.len();
        until("what it is told", || read().matches('\n').count() == count).await;
        assert_eq!(read().lines().collect::<Vec<_>>(), expected);
    };
    let options = "--mem 100 --cpus 1 --wait=running --resource gpu=1";
    let options = format!("{options} --prefer node.hostname=node-a");
    let id = cluster.run(&options, &script).await;
    told(&["0"]).await;
    let grown = cluster
        .ctl(&format!("update {id} --resource gpu=2 --mem-mb 200"))
        .await;
    assert_eq!(grown.code, Some(0), "{grown:?}");
    cluster.run(&options, &script).await;
    told(&["0", "2"]).await;
    let moved = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    told(&["0", "2", "0,1"]).await;
}
