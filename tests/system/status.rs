//! `ciaoctl status`: whether all is well, for people and by the exit code.

use serde_json::Value;

use crate::world::{Cluster, Look};

#[tokio::test]
async fn status_says_by_its_exit_code_that_a_node_is_lost() {
    let mut cluster = Cluster::new(&["node-a", "node-b"]).await;
    let id = cluster
        .run(
            "--mem 16 --cpus 1 --node node-b --wait=running",
            "exec sleep 1000",
        )
        .await;
    let ran = cluster.ctl("status").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.starts_with("all is well\n"), "{ran:?}");
    assert!(ran.out.contains(env!("CARGO_PKG_VERSION")), "{ran:?}");
    assert!(ran.out.contains("nodes         2: 2 READY\n"), "{ran:?}");
    assert!(ran.out.contains("instances     1: 1 running\n"), "{ran:?}");
    assert!(ran.out.contains("store         written\n"), "{ran:?}");
    assert!(!ran.out.contains('\u{1b}'), "no colours in a pipe: {ran:?}");

    cluster.kill_launcher("node-b").await;
    let mut look = Look::new();
    let document = loop {
        let ran = cluster.ctl("status --json").await;
        if ran.code == Some(9) {
            break serde_json::from_str::<Value>(&ran.out).unwrap();
        }
        assert_eq!(ran.code, Some(0), "{ran:?}");
        look.again(|| format!("{ran:?}")).await;
    };
    assert_eq!(document["well"], false);
    assert_eq!(document["nodes"]["LOST"], 1);
    let problems = document["problems"].as_array().unwrap().iter();
    let problems: Vec<&str> = problems.map(|it| it.as_str().unwrap()).collect();
    assert!(
        problems
            .iter()
            .any(|it| it.contains("node node-b is lost, with 1 instance")),
        "{problems:?}"
    );
    assert!(problems.iter().any(|it| it.contains(&id)), "{problems:?}");
    let ran = cluster.ctl("status").await;
    assert!(ran.out.starts_with("not well: "), "{ran:?}");
}

#[tokio::test]
async fn status_the_page_and_the_probe_have_one_list() {
    let cluster = Cluster::new(&["node-a", "node-b"]).await;
    let ran = cluster.ctl("cordon node-b").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.ctl("status").await;
    assert_eq!(ran.code, Some(9), "{ran:?}");
    assert!(ran.out.starts_with("not well: 1 problem\n"), "{ran:?}");
    assert!(ran.out.contains("node node-b is cordoned"), "{ran:?}");
    assert!(ran.out.contains("ciaoctl uncordon"), "{ran:?}");
    assert!(ran.out.contains("1 CORDONED, 1 READY"), "{ran:?}");
    let ran = cluster.ctl("explain --mem 16 --node node-b").await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.out.contains("cordoned"), "{ran:?}");
    assert!(ran.out.contains("ciaoctl uncordon"), "{ran:?}");
    assert!(!ran.out.contains("does not know"), "{ran:?}");
    let ran = cluster.ctl("nodes --json").await;
    let document = serde_json::from_str::<Value>(&ran.out).unwrap();
    assert!(document["nodes"][0]["reported_s"].is_u64(), "{ran:?}");
}
