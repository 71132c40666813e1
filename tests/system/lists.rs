//! Lists in every format, lists that are printed again and again, and `ciaoctl top`.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::site::within;
use crate::world::Cluster;

#[tokio::test]
async fn a_list_says_the_same_in_every_format() {
    let cluster = Cluster::new(&["node-a"]).await;
    let run = "exec sleep 1000";
    let named = cluster
        .run("--mem 16 --cpus 1 --name web --wait=running", run)
        .await;
    let other = cluster.run("--mem 16 --cpus 1 --wait=running", run).await;
    let list = async |options: &str| {
        let ran = cluster.ctl(&format!("instances {options}")).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    };
    let ids = |document: &Value| {
        let rows = document["instances"].as_array().unwrap().iter();
        let mut ids: Vec<String> = rows
            .map(|row| row["instance_uuid"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let mut expected = [named.clone(), other.clone()].to_vec();
    expected.sort();
    for options in ["--json", "-o json"] {
        let document: Value = serde_json::from_str(&list(options).await).unwrap();
        assert_eq!(ids(&document), expected);
    }
    let document: Value = serde_yaml::from_str(&list("-o yaml").await).unwrap();
    assert_eq!(ids(&document), expected);
    let lines = list("-o jsonl").await;
    let rows: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(ids(&serde_json::json!({ "instances": rows })), expected);
    let names = list("-o name").await;
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, [&*other, "web"]);
    let table = list("-o table").await;
    assert_eq!(table.lines().count(), 3, "{table}");
    assert!(!table.contains("GROUP") && list("-o wide").await.contains("GROUP"));
    let ran = cluster.ctl("nodes -o name").await;
    assert_eq!(ran.out, "node-a\n");
    let ran = cluster.ctl("controllers -o yaml").await;
    let document: Value = serde_yaml::from_str(&ran.out).unwrap();
    assert_eq!(document["store"]["state"], "written");
    for wrong in ["nodes -o xml", "nodes --watch=1ms", "nodes -q -o json"] {
        assert_eq!(cluster.ctl(wrong).await.code, Some(2), "{wrong}");
    }
}

#[tokio::test]
async fn a_watched_list_is_printed_again_and_shows_what_has_come() {
    let mut cluster = Cluster::new(&["node-a"]).await;
    let mut command = cluster.command(&["nodes", "--watch=100ms", "-o", "name"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut line = async || within(lines.next_line()).await.unwrap().unwrap();
    assert_eq!(line().await, "node-a");
    assert_eq!(line().await, "", "an empty line between two");
    cluster.launch("node-b", &[]);
    while line().await != "node-b" {}
    child.start_kill().unwrap();
    within(child.wait()).await.unwrap();
}

#[tokio::test]
async fn top_is_printed_once_where_there_is_no_terminal() {
    let cluster = Cluster::new(&["node-a"]).await;
    let id = cluster
        .run("--mem 16 --cpus 1 --wait=running", "exec sleep 1000")
        .await;
    let ran = cluster.ctl("top").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("node-a  READY"), "{ran:?}");
    assert!(ran.out.contains(&id[..8]), "{ran:?}");
    let ran = cluster.ctl("top --once --json -n 1").await;
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(document["nodes"].as_array().unwrap().len(), 1);
    assert_eq!(document["instances"][0]["instance_uuid"], *id);
}
