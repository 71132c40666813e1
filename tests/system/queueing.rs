//! STARTs that wait for room.

use crate::program::Program;
use crate::world::Cluster;

#[tokio::test]
async fn starts_wait_by_priority_and_each_wait_ends_in_one_way() {
    let cluster = Cluster::new(&["node-a"]).await;
    let taken = cluster
        .run(
            "--mem 16 --cpus 4 --priority 90 --wait=running",
            "exec sleep 600",
        )
        .await;
    let [first, second, third] = ["first", "second", "third"].map(|it| Program::new(&cluster, it));
    let start = "run --mem 16 --cpus 2 --queue 10m";
    let wait = async |options: &str, program: &Program| {
        let line = format!("{start} {options} -- /bin/sh -c");
        let ran = cluster.ctl_with(&line, &[&program.script]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let (id, rest) = ran.out.split_once(' ').unwrap();
        (id.to_owned(), rest.to_owned())
    };
    let (low, said) = wait("--priority 10", &second).await;
    assert!(said.starts_with("waits, 1 of 1, priority 10"), "{said}");
    assert!(said.contains("short of vcpus"), "{said}");
    let (high, said) = wait("--priority 60", &first).await;
    assert!(said.starts_with("waits, 1 of 2, priority 60"), "{said}");
    let (other, said) = wait("--priority 10", &third).await;
    assert!(said.starts_with("waits, 3 of 3, priority 10"), "{said}");
    assert_eq!(cluster.queue().await, [&*high, &low, &other]);

    let late = "run --mem 16 --cpus 1 --queue 300ms --wait -- sleep 600";
    let late = cluster.ctl(late).await;
    assert_eq!(late.code, Some(1), "{late:?}");
    assert!(late.out.contains("failed: queue_timeout"), "{late:?}");
    let never = "run --mem 5000 --cpus 1 --queue 10m -- sleep 600";
    let never = cluster.ctl(never).await;
    assert!(never.out.contains("failed: full_cloud"), "{never:?}");

    let deleted = cluster.ctl(&format!("delete --wait {low}")).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    assert_eq!(cluster.queue().await, [&*high, &other]);
    cluster.ctl(&format!("delete {taken}")).await;
    first.runs(1).await;
    third.runs(1).await;
    cluster.until(&high, "running").await;
    assert_eq!(cluster.queue().await, [""; 0]);
    assert_eq!(second.begun(), []);
    assert_eq!(
        cluster.states(&low).await.last().map(String::as_str),
        Some("gone")
    );
}
