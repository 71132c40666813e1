//! What ended instances have left on their nodes: the scheduler knows of it as long as their launchers do.

use serde_json::Value;

use crate::world::{Cluster, Look, until};

/// The code that the program of these tests ends with.
const CODE: i64 = 7;

/// What `ciaoctl history` says of an instance's outputs: host names and paths, once there are so many.
async fn outputs(cluster: &Cluster, id: &str, count: usize) -> Vec<(String, String)> {
    let mut look = Look::new();
    loop {
        let ran = cluster.ctl(&format!("history {id} --json")).await;
        let document: Value = serde_json::from_str(&ran.out).unwrap_or_default();
        let rows = document["outputs"].as_array().cloned().unwrap_or_default();
        if rows.len() == count {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let row = |row: &Value| (text(&row["hostname"]), text(&row["path"]));
            return rows.iter().map(row).collect();
        }
        look.again(|| format!("not {count} outputs: {ran:?}")).await;
    }
}

fn output_in(path: &str) -> String {
    let file = std::path::Path::new(path).join("output.log");
    std::fs::read_to_string(file).unwrap_or_default()
}

#[tokio::test]
async fn an_acknowledged_end_is_known_again_after_a_restart_without_a_state_directory() {
    let mut cluster = Cluster::without_store(&["node-a"]).await;
    let script = format!("echo some words; exit {CODE}");
    let options = "run --quiet --mem 16 --cpus 1 -- /bin/sh -c";
    let ran = cluster.ctl_with(options, &[&script]).await;
    let id = ran.out.trim().to_owned();
    let record = cluster
        .site
        .path(&format!("node-a/instances/{id}/record.json"));
    let record = || std::fs::read_to_string(&record).unwrap_or_default();
    until("its end is on record", || {
        record().contains("Exited") && record().contains("\"unheard\":false")
    })
    .await;
    cluster.crash_scheduler().await;
    let waited = cluster.ctl(&format!("wait {id} --reconnect 60s")).await;
    assert_eq!(waited.code, Some(6), "{waited:?}");
    let all = cluster.ctl("instances --all").await;
    let line = all
        .out
        .lines()
        .find(|line| line.contains(&id[..8]))
        .unwrap();
    assert!(line.contains("node-a") && line.contains('7'), "{line}");
    let kept = outputs(&cluster, &id, 1).await;
    assert_eq!(kept[0].0, "node-a");
    assert_eq!(output_in(&kept[0].1), "some words\n");
    let history = cluster.ctl(&format!("history {id}")).await;
    let line = format!("output on node-a: {} (ended ", kept[0].1);
    assert!(history.out.contains(&line), "{history:?}");

    // Once more, with what it was told by then: nothing is there twice.
    cluster.lose("node-a").await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    outputs(&cluster, &id, 1).await;
    let all = cluster.ctl("instances --all").await;
    let count = all
        .out
        .lines()
        .filter(|line| line.contains(&id[..8]))
        .count();
    assert_eq!(count, 1, "{all:?}");
}

#[tokio::test]
async fn history_says_where_the_output_of_each_run_of_a_moved_instance_is() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let options = "--mem 16 --cpus 1 --wait=running";
    let id = cluster.run(options, "echo in $PWD; exec sleep 1000").await;
    let first = cluster.instance(&id).await.unwrap().hostname;
    let second = ["node-a", "node-b"][usize::from(first == "node-a")];
    let moved = cluster.ctl(&format!("migrate {id} --to {second}")).await;
    assert_eq!(moved.code, Some(0), "{moved:?}");
    let kept = outputs(&cluster, &id, 1).await;
    assert_eq!(kept[0].0, first);
    assert!(output_in(&kept[0].1).starts_with("in "), "{kept:?}");
    let deleted = cluster.ctl(&format!("delete {id} --wait")).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let kept = outputs(&cluster, &id, 2).await;
    let nodes: Vec<&str> = kept.iter().map(|(node, _)| &**node).collect();
    assert_eq!(nodes, [&*first, second]);
    assert!(
        kept.iter()
            .all(|(_, path)| output_in(path).starts_with("in ")),
        "{kept:?}"
    );
}

#[tokio::test]
async fn what_an_ended_instance_left_is_deleted_with_it_and_its_outcome_is_not() {
    let cluster = Cluster::new(&["node-a"]).await;
    let script = format!("echo some words; exit {CODE}");
    let id = cluster.run("--mem 16 --cpus 1 --name job", &script).await;
    let waited = cluster.ctl(&format!("wait {id}")).await;
    assert_eq!(waited.code, Some(6), "{waited:?}");
    let left = outputs(&cluster, &id, 1).await;
    assert_eq!(output_in(&left[0].1), "some words\n");
    let read = cluster.ctl(&format!("logs {id}")).await;
    assert_eq!((read.code, &*read.out), (Some(0), "some words\n"));

    let deleted = cluster.ctl("delete job").await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let line = format!("{id}: what it left on node-a was deleted\n");
    assert_eq!(deleted.out, line, "{deleted:?}");
    let read = cluster.ctl(&format!("logs {id}")).await;
    assert_eq!(read.code, Some(1), "{read:?}");
    assert!(
        read.err
            .contains("its instance was deleted after it had ended"),
        "{read:?}"
    );
    until("its directory is gone", || {
        !std::path::Path::new(&left[0].1).exists()
    })
    .await;

    let again = cluster.ctl(&format!("delete {id}")).await;
    assert_eq!(again.code, Some(5), "{again:?}");
    assert!(
        again.out.contains("nothing that it left is there"),
        "{again:?}"
    );
    let waited = cluster.ctl(&format!("wait {id}")).await;
    assert_eq!(waited.code, Some(6), "{waited:?}");
    let all = cluster.ctl("instances --all --json").await;
    let document: Value = serde_json::from_str(&all.out).unwrap();
    let rows = document["instances"].as_array().unwrap();
    let codes: Vec<&Value> = rows
        .iter()
        .filter(|row| row["instance_uuid"] == *id)
        .map(|row| &row["exit_code"])
        .collect();
    assert_eq!(codes, [CODE], "{all:?}");
    let history = cluster.ctl(&format!("history {id}")).await;
    assert_eq!(history.out.matches("gone").count(), 1, "{history:?}");
}

#[tokio::test]
async fn what_was_written_into_the_list_of_deleted_outputs_is_no_order_to_a_terminal() {
    const EVIL: &str = "x\u{1b}[2J\nforged\r\u{9b}31m\u{202e}\u{2028}\u{7f}";
    let cluster = Cluster::new(&["node-a"]).await;
    let id = cluster.run("--mem 16 --cpus 1", "echo some words").await;
    cluster.ctl(&format!("wait {id}")).await;
    outputs(&cluster, &id, 1).await;
    let deleted = cluster.ctl(&format!("delete {id}")).await;
    assert_eq!(deleted.code, Some(0), "{deleted:?}");
    let list = cluster.site.path("node-a/deleted.log");
    let noted = std::fs::read_to_string(&list).unwrap();
    let evil = EVIL.repeat(1000);
    let line = |instance: &str, at_ms: Value, why: Value| {
        serde_json::json!({"instance": instance, "at_ms": at_ms, "why": why}).to_string() + "\n"
    };
    let most = u64::MAX;
    // What the launcher would not write, as what it has written: none of these is this instance's, or can be read.
    let others = [
        line(&evil, most.into(), "disk_full".into()),
        line(&id, most.into(), evil.clone().into()),
        line(&id, evil.clone().into(), "disk_full".into()),
        line(&id, 1.into(), serde_json::json!({ "age": evil })),
        format!("{evil}\n"),
        format!("{}\n", "y".repeat(1 << 20)),
    ];
    // The last one that can be read counts, whatever its figures are.
    for (last, said) in [
        (String::new(), "its instance was deleted after it had ended"),
        (
            line(&id, most.into(), serde_json::json!({ "age": most })),
            "9999-12-31T23:59:59Z: output of ended instances is kept for 584542046years",
        ),
        (
            line(&id, 0.into(), serde_json::json!({ "bytes": most })),
            "1970-01-01T00:00:00Z: newer output takes the 17592186044415 MiB",
        ),
    ] {
        std::fs::write(&list, [&*noted, &others.concat(), &last].concat()).unwrap();
        for end in ["", " --follow", " --json"] {
            let read = cluster.ctl(&format!("logs {id}{end}")).await;
            assert_eq!(read.code, Some(1), "{read:?}");
            assert!(read.err.contains(said), "{read:?}");
            for text in [&read.out, &read.err] {
                let is_order = |c| c != '\n' && ciao_scheduler::printable::is_unprintable(c);
                assert!(!text.contains(is_order), "{read:?}");
                assert!(
                    !text.lines().any(|line| line.starts_with("forged")),
                    "{read:?}"
                );
                assert!(text.len() < 2000, "{read:?}");
            }
        }
    }
}
