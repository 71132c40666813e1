//! What `ciaoctl` shows of a cluster in which instances wait, are suspended and move.

use crate::program::Program;
use crate::world::{Cluster, Ran};

/// The line of a table that begins with the beginning of a UUID; its columns.
fn row<'a>(ran: &'a Ran, id: &str) -> Vec<&'a str> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut lines = ran.out.lines();
    let line = lines.find(|line| line.contains(&id[..8]));
    let line = line.unwrap_or_else(|| panic!("no line of {id}: {ran:?}"));
    line.split_ascii_whitespace().collect()
}

#[tokio::test]
async fn instances_the_queue_and_histories_are_shown_and_commands_show_their_steps() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 100 --cpus 2 --priority 60 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    program.runs(1).await;
    cluster.until(&id, "running").await;

    let ran = cluster.ctl(&format!("suspend {}", &id[..8])).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains(" suspended on node-a"), "{ran:?}");
    let listed = cluster.ctl("instances").await;
    let columns = row(&listed, &id);
    // Its program, which is several words, comes before that.
    let state = ["suspended", "exit_paused", "node-a"];
    assert!(columns.windows(3).any(|it| it == state), "{listed:?}");
    let ran = cluster.ctl(&format!("resume {id}")).await;
    assert!(ran.out.contains("resuming on node-a"), "{ran:?}");
    let ran = cluster.ctl(&format!("update {id} --vcpus 3")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.ctl(&format!("migrate {id} --to node-b")).await;
    assert!(ran.out.contains("migrating from node-a"), "{ran:?}");
    assert!(ran.out.contains("moved to node-b"), "{ran:?}");
    let ran = cluster.ctl("drain node-b").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("drained: 1 moved"), "{ran:?}");
    program.runs(3).await;
    cluster.until(&id, "running").await;
    let nodes = cluster.ctl("nodes --wide").await;
    assert!(row(&nodes, &cluster.node("node-b").await.unwrap().node_uuid).len() > 8);
    assert!(nodes.out.contains("cordoned"), "{nodes:?}");

    let waits = "--mem 100 --cpus 4 --priority 7 --queue 1h";
    let waiting = cluster.run(waits, "exec sleep 600").await;
    let queue = cluster.ctl("queue").await;
    assert_eq!(row(&queue, &waiting)[..4], ["1", &waiting[..8], "-", "7"]);
    assert!(queue.out.contains("short of vcpus"), "{queue:?}");
    assert!(queue.out.contains("cordoned"), "{queue:?}");
    let listed = cluster.ctl("instances").await;
    let columns = row(&listed, &waiting);
    assert!(columns.contains(&"waiting"), "{listed:?}");
    assert!(listed.out.contains("short of vcpus"), "{listed:?}");
    assert!(row(&listed, &id).contains(&"60"), "{listed:?}");

    let history = cluster.ctl(&format!("history {id}")).await;
    let words = [
        "placing",
        "suspending",
        "suspended",
        "resuming",
        "updat",
        "migrating",
        "running",
    ];
    for word in words {
        assert!(history.out.contains(word), "{word}: {history:?}");
    }
    let gone = cluster.ctl(&format!("delete --wait {id}")).await;
    assert_eq!(gone.code, Some(0), "{gone:?}");
    cluster.until(&waiting, "running").await;
    let history = cluster.ctl(&format!("history {id}")).await;
    assert!(history.out.contains("gone"), "{history:?}");
}
