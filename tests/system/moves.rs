//! Instances that change their node, nodes that are emptied, and instances that are given more.

use crate::program::{Program, runs};
use crate::world::Cluster;

#[tokio::test]
async fn an_instance_moves_to_the_node_that_is_named_and_never_runs_twice() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let id = cluster
        .run(
            "--mem 100 --cpus 1 --node node-a --wait=running",
            "exec sleep 600",
        )
        .await;
    let pinned = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    assert_eq!(pinned.code, Some(1), "its START names its node: {pinned:?}");

    let options = "--mem 100 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    let (process, from) = program.runs(1).await;
    let moved = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    assert!(moved.out.contains("moved to node-b"), "{moved:?}");
    let (_, to) = program.runs(2).await;
    assert_ne!(from, to);
    assert!(!runs(process));
    let view = cluster.until(&id, "running").await;
    assert_eq!((view.node_uuid, &*view.hostname), (to, "node-b"));
    let back = cluster.ctl(&format!("migrate {id}")).await;
    assert_eq!(back.code, Some(0), "{back:?}");
    assert_eq!(program.runs(3).await.1, from);
}

#[tokio::test]
async fn a_drained_node_has_nothing_left_and_stays_cordoned_when_the_scheduler_restarts() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let programs = ["one", "two", "three"].map(|it| Program::new(&cluster, it));
    let mut ids = Vec::new();
    for program in &programs {
        let options = "--mem 100 --cpus 1 --wait=running --prefer node.hostname=node-a";
        ids.push(cluster.run(options, &program.script).await);
        program.runs(1).await;
    }
    let check = cluster.ctl("drain --check node-a").await;
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.out.contains("all 3 fit elsewhere"), "{check:?}");
    let drained = cluster.ctl("drain --parallel 2 node-a").await;
    assert_eq!(drained.code, Some(0), "{drained:?}");
    assert!(drained.out.contains("drained: 3 moved"), "{drained:?}");
    for (program, id) in programs.iter().zip(&ids) {
        program.runs(2).await;
        assert_eq!(cluster.until(id, "running").await.hostname, "node-b");
    }
    let node = cluster.node("node-a").await.unwrap();
    assert!(node.cordoned && node.instances == 0, "{node:#?}");

    cluster.crash_scheduler().await;
    cluster.ready(&["node-a", "node-b"]).await;
    cluster.until_node("node-a", |node| node.cordoned).await;
    let full = cluster.ctl("run --mem 100 --cpus 2 -- sleep 600").await;
    assert_eq!(full.code, Some(1), "{full:?}");
    assert!(full.out.contains("1 cordoned"), "{full:?}");
    let open = cluster.ctl("uncordon node-a").await;
    assert_eq!(open.code, Some(0), "{open:?}");
    let id = cluster
        .run("--mem 100 --cpus 2 --wait=running", "exec sleep 600")
        .await;
    assert_eq!(cluster.until(&id, "running").await.hostname, "node-a");
}

#[tokio::test]
async fn an_instance_is_given_more_where_it_is_or_on_another_node() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 100 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    let grown = cluster
        .ctl(&format!("update {id} --mem-mb 200 --vcpus 2 --priority 40"))
        .await;
    assert_eq!(grown.code, Some(0), "{grown:?}");
    let view = cluster.until(&id, "running").await;
    let now = (view.mem_mb, view.vcpus, view.priority);
    assert_eq!(now, (200, 2, Some(40)));
    program.runs(1).await;

    let options = "--mem 700 --cpus 1 --wait=running --require node.hostname=node-a";
    cluster.run(options, "exec sleep 600").await;
    let refused = cluster.ctl(&format!("update {id} --mem-mb 400")).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.out.contains("no_room"), "{refused:?}");
    let moved = cluster
        .ctl(&format!("update {id} --mem-mb 400 --move"))
        .await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let (_, node) = program.runs(2).await;
    let view = cluster.until(&id, "running").await;
    assert_eq!((&*view.hostname, view.mem_mb), ("node-b", 400));
    assert_eq!(view.node_uuid, node);
}

#[tokio::test]
async fn a_launcher_keeps_the_amounts_that_it_was_told_of_beside_a_start() {
    let mut cluster = Cluster::without_store(&["node-a", "node-b"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 100 --cpus 1 --wait=running --prefer node.hostname=node-a";
    let id = cluster.run(options, &program.script).await;
    let node = cluster.node("node-b").await.unwrap();
    let announced = node.capabilities.iter().any(|it| it == "overrides");
    assert!(announced, "{node:#?}");
    let grown = cluster
        .ctl(&format!("update {id} --mem-mb 300 --vcpus 2"))
        .await;
    assert_eq!(grown.code, Some(0), "{grown:?}");
    let moved = cluster.ctl(&format!("migrate --to node-b {id}")).await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    program.runs(2).await;
    cluster.until(&id, "running").await;

    // What the launcher has kept is all that anybody knows now.
    cluster.kill_scheduler().await;
    cluster.kill_launcher("node-b").await;
    cluster.launch("node-b", &[]);
    cluster.start_scheduler().await;
    cluster.ready(&["node-a", "node-b"]).await;
    let view = cluster.until(&id, "running").await;
    assert_eq!(
        (&*view.hostname, view.mem_mb, view.vcpus),
        ("node-b", 300, 2)
    );
    program.runs(2).await;
}
