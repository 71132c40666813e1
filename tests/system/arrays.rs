//! Arrays of real processes: each element runs once, whatever is killed, and ends as its process says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::world::Cluster;

const NODES: [&str; 2] = ["node-a", "node-b"];

/// How long an array may take on a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(240);

/// A process that appends a line to a file of its index, and goes on once there is a gate.
fn program(cluster: &Cluster) -> String {
    let (out, gate) = (cluster.site.path("out"), cluster.site.path("gate"));
    let (out, gate) = (out.display(), gate.display());
    format!(
        "echo $0 >> {out}/$CIAO_ARRAY_INDEX; until [ -e {gate} ]; do sleep 0.05; done; exit $((CIAO_ARRAY_INDEX % 2))"
    )
}

async fn cluster() -> Cluster {
    let cluster = Cluster::new(&NODES).await;
    std::fs::create_dir(cluster.site.path("out")).unwrap();
    cluster
}

/// The lines of each index's file.
fn written(cluster: &Cluster) -> BTreeMap<u32, Vec<String>> {
    let entries = std::fs::read_dir(cluster.site.path("out")).unwrap();
    let of = |entry: std::fs::DirEntry| {
        let index = entry.file_name().into_string().unwrap().parse().unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        (index, text.lines().map(ToOwned::to_owned).collect())
    };
    entries.flatten().map(of).collect()
}

/// The one array that there is.
async fn array(cluster: &Cluster) -> Value {
    let ran = cluster.ctl("arrays -o json").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: Value = serde_json::from_str(&ran.out).unwrap();
    document["arrays"][0].clone()
}

/// Waits until the array is so.
async fn until(cluster: &Cluster, is_so: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let now = array(cluster).await;
        if is_so(&now) {
            return now;
        }
        assert!(begun.elapsed() < DEADLINE, "{now}");
    }
}

fn open_gate(cluster: &Cluster) {
    std::fs::write(cluster.site.path("gate"), "").unwrap();
}

#[tokio::test]
async fn each_element_runs_once_though_the_scheduler_is_killed_and_the_end_is_that_of_its_process()
{
    let mut cluster = cluster().await;
    let ran = cluster
        .ctl_with(
            "run --array 0-19%3 --name sweep --mem 4 --cpus 1 -- /bin/sh -c",
            &[&program(&cluster), "{index}"],
        )
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    until(&cluster, |it| it["running"] == 3).await;
    cluster.crash_scheduler().await;
    cluster.ready(&NODES).await;
    let now = until(&cluster, |it| it["running"] == 3).await;
    assert_eq!(now["waiting"], 17, "{now}");
    open_gate(&cluster);
    // Again and again while elements begin and end.
    for ended in [4, 9, 14] {
        let so_many = |it: &Value| {
            let ended = |key: &str| it[key].as_u64().unwrap();
            ended("succeeded") + ended("failed")
        };
        until(&cluster, |it| so_many(it) >= ended).await;
        cluster.crash_scheduler().await;
    }
    let ran = cluster.ctl("wait sweep").await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let now = array(&cluster).await;
    assert_eq!(
        (&now["succeeded"], &now["failed"]),
        (&10.into(), &10.into()),
        "{now}"
    );
    let expected: BTreeMap<u32, Vec<String>> = (0..20)
        .map(|index| (index, vec![index.to_string()]))
        .collect();
    assert_eq!(written(&cluster), expected);
}

#[tokio::test]
async fn values_reach_their_elements_and_what_failed_runs_once_more() {
    let cluster = cluster().await;
    open_gate(&cluster);
    let values = "one\ntwo words\n{\"three\": [3]}\n'four'\n";
    std::fs::write(cluster.site.path("values.txt"), values).unwrap();
    let each = cluster.site.path("values.txt").display().to_string();
    let ran = cluster
        .ctl_with(
            &format!("run --each {each} --name sweep --mem 4 --cpus 1 --wait -- /bin/sh -c"),
            &[&program(&cluster), "{value}"],
        )
        .await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    assert!(ran.out.contains("2 succeeded, 2 failed"), "{ran:?}");
    let once: BTreeMap<u32, Vec<String>> = (0..)
        .zip(values.lines().map(|line| vec![line.to_owned()]))
        .collect();
    assert_eq!(written(&cluster), once);

    let ran = cluster.ctl("rerun sweep --failed --wait").await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let runs: Vec<usize> = written(&cluster).values().map(Vec::len).collect();
    assert_eq!(runs, [1, 2, 1, 2]);

    let ran = cluster.ctl("delete sweep").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let ran = cluster.ctl("arrays --no-headers").await;
    assert_eq!((ran.code, &*ran.out), (Some(0), ""), "{ran:?}");
    let ran = cluster.ctl("wait sweep").await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
}

#[tokio::test]
async fn delete_ends_what_runs_and_nothing_more_begins() {
    let cluster = cluster().await;
    let ran = cluster
        .ctl_with(
            "run --array 0-9%2 --name sweep --mem 4 --cpus 1 -- /bin/sh -c",
            &[&program(&cluster)],
        )
        .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    until(&cluster, |it| it["running"] == 2).await;
    let ran = cluster.ctl("delete sweep").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let now = until(&cluster, |it| it["state"] == "ended").await;
    assert_eq!(now["deleted"], 10, "{now}");
    assert!(written(&cluster).len() <= 2);
}

#[tokio::test]
async fn an_array_stands_for_its_elements_where_ends_are_listed_and_results_collected() {
    let cluster = cluster().await;
    for what in ["--array 0-2 --name sweep", "--name other"] {
        let line = format!("run {what} --mem 4 --cpus 1 --wait -- /bin/echo ended");
        let ran = cluster.ctl(&line).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let listed = cluster.ctl("history --array sweep -o json").await;
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let ends = listed["ends"].as_array().unwrap();
    let names: BTreeSet<&str> = ends.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["sweep-0", "sweep-1", "sweep-2"]));
    for (at, selection) in ["sweep", "--array sweep"].into_iter().enumerate() {
        let directory = cluster.site.path(&format!("results-{at}"));
        let line = format!("collect {selection} -d {}", directory.display());
        let ran = cluster.ctl(&line).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let entries = std::fs::read_dir(&directory).unwrap();
        let names: BTreeSet<String> = entries
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .map(|it| it.split('.').next().unwrap_or_default().to_owned())
            .collect();
        let expected = ["sweep-0", "sweep-1", "sweep-2"].map(ToOwned::to_owned);
        assert_eq!(names, BTreeSet::from(expected), "{selection}");
    }
}
