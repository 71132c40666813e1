//! `kill -9` of the scheduler: what it had promised it does afterwards, and nothing twice.

use std::io::{Seek as _, SeekFrom, Write as _};

use crate::program::{Program, stands_still};
use crate::world::Cluster;

#[tokio::test]
async fn what_waits_runs_or_is_suspended_is_so_after_a_crash_of_the_scheduler() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let names = ["running", "suspended", "evicted", "preemptor"];
    let [running, suspended, evicted, preemptor] = names.map(|it| Program::new(&cluster, it));
    let on = |node: &str, priority: u32, cpus: u32| {
        format!("--mem 16 --cpus {cpus} --priority {priority} --wait=running --node {node}")
    };
    let running_id = cluster.run(&on("node-a", 80, 3), &running.script).await;
    let suspended_id = cluster.run(&on("node-a", 80, 1), &suspended.script).await;
    let evicted_id = cluster.run(&on("node-b", 10, 4), &evicted.script).await;
    let (still, _) = evicted.runs(1).await;
    cluster.run(&on("node-b", 90, 4), &preemptor.script).await;
    let (halted, _) = suspended.runs(1).await;
    let ran = cluster.ctl(&format!("suspend {suspended_id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let queued = ["one", "two", "three"].map(|it| Program::new(&cluster, it));
    let mut waiting = Vec::new();
    for (program, priority) in queued.iter().zip([20, 30, 20]) {
        let options = format!("--mem 16 --cpus 3 --priority {priority} --queue 10m");
        waiting.push(cluster.run(&options, &program.script).await);
    }
    let order = [&*waiting[1], &waiting[0], &waiting[2], &evicted_id];
    assert_eq!(cluster.queue().await, order);

    cluster.crash_scheduler().await;
    cluster.until(&running_id, "running").await;
    cluster.until(&suspended_id, "suspended").await;
    cluster.until(&evicted_id, "suspended").await;
    assert_eq!(cluster.queue().await, order);
    stands_still(still).await;
    stands_still(halted).await;
    for program in [&running, &suspended, &evicted, &preemptor] {
        program.runs(1).await;
    }

    cluster.ctl(&format!("delete --wait {running_id}")).await;
    queued[1].runs(1).await;
    cluster.until(&waiting[1], "running").await;
    assert_eq!(cluster.queue().await, order[1..]);
    let ran = cluster.ctl(&format!("resume {suspended_id}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    suspended.beats().await;
    cluster.ctl(&format!("delete --wait {}", waiting[1])).await;
    queued[0].runs(1).await;
    assert_eq!(queued[2].begun(), []);
}

#[tokio::test]
async fn a_torn_store_is_set_aside_and_the_scheduler_starts_with_what_runs() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let program = Program::new(&cluster, "program");
    let options = "--mem 16 --cpus 4 --wait=running --priority 50";
    let id = cluster.run(options, &program.script).await;
    cluster
        .run("--mem 16 --cpus 4 --queue 10m --priority 40", "true")
        .await;
    cluster.kill_scheduler().await;
    let path = cluster.site.path("state").join("store.redb");
    let mut store = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let torn = store.metadata().unwrap().len() / 2;
    store.set_len(torn).unwrap();
    store.seek(SeekFrom::Start(0)).unwrap();
    store.write_all(&[0xa5; 4096]).unwrap();
    drop(store);
    cluster.start_scheduler().await;
    let warned = cluster.scheduler().logged("store.redb.damaged-").await;
    assert!(warned.contains("WARN"), "{warned}");
    cluster.until(&id, "running").await;
    assert_eq!(cluster.queue().await, [""; 0], "no one knows of it");
    program.runs(1).await;
    let kept = std::fs::read_dir(cluster.site.path("state")).unwrap();
    let kept = kept.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    assert!(
        kept.into_iter()
            .any(|name| name.starts_with("store.redb.damaged"))
    );
}
