//! Jobs that are placed again after they have failed, and jobs that come after others, with real processes.

use serde_json::Value;

use crate::world::Cluster;

/// A scheduler that keeps what it knows, and these nodes.
async fn cluster(nodes: &[&str]) -> Cluster {
    let mut cluster = Cluster::of_scheduler("configure: {scheduler: {}}\n", &[], true).await;
    for node in nodes {
        cluster.launch(node, &[]);
    }
    cluster.ready(nodes).await;
    cluster
}

/// The ends on record of instances that are called so.
async fn ends(cluster: &Cluster, name: &str) -> Vec<Value> {
    let ran = cluster
        .ctl(&format!("history -o json --since all --name {name}"))
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let listed: Value = serde_json::from_str(&ran.out).unwrap();
    listed["ends"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_job_that_fails_twice_with_a_status_of_its_list_is_placed_again_and_succeeds() {
    let cluster = cluster(&["node-a", "node-b"]).await;
    let count = cluster.site.path("count");
    // Each try writes down that there was one.
    let script = format!(
        "echo attempt; echo try >>{0}; [ $(wc -l <{0}) -gt 2 ] || exit 75; echo done",
        count.display()
    );
    let id = cluster
        .run(
            "--mem 16 --cpus 1 --name job --retry-on 75,signal --retry-max 3",
            &script,
        )
        .await;
    cluster.until_gone(&id).await;
    let tries = std::fs::read_to_string(&count).unwrap();
    assert_eq!(tries.lines().count(), 3);
    let ends = ends(&cluster, "job").await;
    assert_eq!(ends.len(), 1, "one record of all tries: {ends:?}");
    let end = &ends[0];
    assert_eq!(
        (&end["outcome"], &end["exit_code"], &end["retries"]),
        (&"succeeded".into(), &0.into(), &2.into()),
    );
    assert_eq!(end["instance_uuid"], *id);
    let history = cluster.ctl("history job").await.out;
    let said = "it ended with exit status 75, and is retried (2 of 3)";
    assert!(history.contains(said), "{history}");
    let kept = history.matches("output on node-").count();
    assert_eq!(kept, 3, "that of each try: {history}");
    let output = cluster.ctl("logs job").await.out;
    assert_eq!(output, "attempt\ndone\n", "that of the last");
}

#[tokio::test]
async fn a_job_whose_retries_are_used_up_has_failed() {
    let cluster = cluster(&["node-a"]).await;
    let id = cluster
        .run(
            "--mem 16 --cpus 1 --name job --retry-on 70-80 --retry-max 2",
            "exit 75",
        )
        .await;
    cluster.until_gone(&id).await;
    let ends = ends(&cluster, "job").await;
    assert_eq!(ends.len(), 1);
    let end = &ends[0];
    assert_eq!(
        (&end["outcome"], &end["exit_code"], &end["retries"]),
        (&"failed".into(), &75.into(), &2.into()),
    );
}

#[tokio::test]
async fn a_chain_of_jobs_goes_on_over_a_crash_of_the_scheduler_each_after_the_one_before() {
    let mut cluster = cluster(&["node-a"]).await;
    let (order, gate) = (cluster.site.path("order"), cluster.site.path("gate"));
    let (order, gate) = (order.display().to_string(), gate.display().to_string());
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&gate)
            .status()
            .unwrap()
            .success()
    );
    let word = |word: &str| format!("echo {word} >>{order}");
    let first = format!("read -r _ <{gate}; {}", word("a"));
    let a = cluster
        .run("--mem 16 --cpus 1 --name a --priority 50", &first)
        .await;
    cluster.until(&a, "running").await;
    for (name, options) in [
        ("b", "--after a"),
        ("c", "--after b:any --after a"),
        ("never", "--after c:failed"),
    ] {
        let line = format!("run --quiet --mem 16 --cpus 1 --name {name} {options} -- /bin/sh -c");
        let ran = cluster.ctl_with(&line, &[&word(name)]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!(cluster.queue().await.len(), 3);
    let queue = cluster.ctl("queue").await.out;
    assert!(queue.contains("waits for a to end"), "{queue}");
    cluster.crash_scheduler().await;
    cluster.ready(&["node-a"]).await;
    assert_eq!(cluster.queue().await.len(), 3);
    // The first one's pipe has no writer any more.
    let options = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&gate);
    drop(options.unwrap());
    for name in ["a", "b", "c", "never"] {
        let ran = cluster.ctl(&format!("wait {name}")).await;
        assert!(ran.code.is_some(), "{ran:?}");
    }
    assert_eq!(std::fs::read_to_string(&order).unwrap(), "a\nb\nc\n");
    let never = &ends(&cluster, "never").await[0];
    assert_eq!(
        (&never["outcome"], &never["failed"]),
        (&"not_started".into(), &"dependency_failed".into())
    );
    let detail = never["detail"].as_str().unwrap();
    assert!(detail.contains("to come after"), "{detail}");
}
