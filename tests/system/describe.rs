//! `ciaoctl describe`: all there is of one node or instance.

use serde_json::Value;

use crate::world::{Cluster, Look};

#[tokio::test]
async fn a_node_and_an_instance_are_described_in_sections() {
    let mut cluster = Cluster::new(&[]).await;
    cluster.launch("node-a", &["--label", "zone=b", "--resource", "gpu=2"]);
    cluster.ready(&["node-a"]).await;
    let options = "--mem 16 --cpus 1 --name web --priority 30 --wait=running";
    let id = cluster
        .run(options, "echo some words; exec sleep 1000")
        .await;
    let ran = cluster.ctl("describe node node-a").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let parts = [
        "Node\n",
        "READY",
        "zone=b",
        "gpu: 2 free of 2",
        "output",
        "Instances\n",
        "web",
    ];
    for part in parts {
        assert!(ran.out.contains(part), "no {part}: {ran:?}");
    }
    assert!(
        !ran.out.contains("fault"),
        "what is not there is not said: {ran:?}"
    );
    let ran = cluster.ctl("describe node node-a --json").await;
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["instances"][0]["instance_uuid"], *id);

    let mut look = Look::new();
    let ran = loop {
        let ran = cluster.ctl("describe instance web").await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        if ran.out.contains("some words") {
            break ran;
        }
        look.again(|| format!("{ran:?}")).await;
    };
    let parts = [
        &*id,
        "web",
        "running",
        "node-a",
        "History\n",
        "placing",
        "Last output\n  some words\n",
    ];
    for part in parts {
        assert!(ran.out.contains(part), "no {part}: {ran:?}");
    }
    let ran = cluster.ctl(&format!("delete --wait {id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.ctl(&format!("describe instance {id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        ran.out.contains("SIGTERM") && ran.out.contains("ended"),
        "{ran:?}"
    );
    for unknown in ["describe instance none", "describe node none"] {
        let ran = cluster.ctl(unknown).await;
        assert_eq!((ran.code, &*ran.out), (Some(5), ""), "{unknown}");
    }
}
