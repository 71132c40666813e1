//! The ends of instances on record: each exactly once, with the exit status that the job itself wrote down, whatever is
//! killed meanwhile; and the same for `ciaoctl`, over HTTP and in the metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use proto_frames::Role;
use serde_json::Value;

use crate::client::Http;
use crate::world::Cluster;

const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];

/// Jobs of a test that runs each time, and of one that takes minutes.
const JOBS: usize = 24;
const MANY_JOBS: usize = 600;

/// How long all jobs may take, with many of them on a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(300);

/// Three nodes, and the jobs' own words on how they end.
async fn cluster(has_store: bool, flags: &[&str]) -> Cluster {
    let flags: Vec<&str> = ["--http", "127.0.0.1:0"]
        .iter()
        .chain(flags)
        .copied()
        .collect();
    let mut cluster =
        Cluster::of_scheduler("configure: {scheduler: {}}\n", &flags, has_store).await;
    for node in NODES {
        cluster.launch(node, &[]);
    }
    cluster.ready(&NODES).await;
    std::fs::create_dir(cluster.site.path("codes")).unwrap();
    cluster
}

/// A job that waits until it may go on, writes down how it ends, 0 to 3 by its identifier, and ends so.
fn job(cluster: &Cluster) -> String {
    let (codes, gate) = (cluster.site.path("codes"), cluster.site.path("gate"));
    let (codes, gate) = (codes.display(), gate.display());
    format!(
        "read -r _ <{gate}; n=$((0x$(printf %.2s $CIAO_INSTANCE_UUID) % 4)); \
         echo $n > {codes}/$CIAO_INSTANCE_UUID.new; mv {codes}/$CIAO_INSTANCE_UUID.new {codes}/$CIAO_INSTANCE_UUID; exit $n"
    )
}

/// Starts so many jobs, and waits until all run.
async fn start(cluster: &Cluster, count: usize) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(
        CWD,
        cluster.site.path("gate"),
        FileType::Fifo,
        Mode::RWXU,
        0,
    )
    .unwrap();
    let line = format!(
        "run --quiet --wait=running --queue 10m --mem 4 --cpus 1 --count {count} -- /bin/sh -c"
    );
    let ran = cluster.ctl_with(&line, &[&job(cluster)]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Lets all jobs go on: the pipe that they read has no writer then.
fn open_gate(cluster: &Cluster) {
    drop(
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(cluster.site.path("gate"))
            .unwrap(),
    );
}

/// What the jobs have written, by instance.
fn written(cluster: &Cluster) -> BTreeMap<String, i64> {
    let entries = std::fs::read_dir(cluster.site.path("codes")).unwrap();
    let of = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let code = std::fs::read_to_string(entry.path()).ok()?;
        Some((name, code.trim().parse().ok()?))
    };
    entries
        .flatten()
        .filter(|it| it.path().extension().is_none())
        .filter_map(of)
        .collect()
}

/// The ends that `ciaoctl` lists, and what it says that they come to.
async fn listed(cluster: &Cluster, options: &str) -> Value {
    let ran = cluster.ctl(&format!("history -o json {options}")).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.out).unwrap()
}

/// Every end over HTTP, page by page.
async fn over_http(http: &Http, filter: &str) -> Vec<Value> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = http
            .get(&format!("/v1/history?limit=7{filter}{after}"))
            .await
            .ok(200);
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return all,
        }
    }
}

/// The exit status of each end, which must be of an instance of its own.
fn codes(ends: &[Value]) -> BTreeMap<String, i64> {
    let of = |end: &Value| {
        let instance = end["instance_uuid"].as_str().unwrap().to_owned();
        (instance, end["exit_code"].as_i64().expect("an exit status"))
    };
    let codes: BTreeMap<String, i64> = ends.iter().map(of).collect();
    assert_eq!(codes.len(), ends.len(), "an instance has two ends");
    codes
}

/// The ends on record once there are so many.
async fn all_ended(cluster: &Cluster, count: usize) -> Value {
    let begun = std::time::Instant::now();
    loop {
        let ends = listed(cluster, "--since all").await;
        if ends["totals"]["ends"].as_u64().unwrap() >= count as u64 {
            return ends;
        }
        if begun.elapsed() > DEADLINE {
            let there = cluster.ctl("instances -o wide").await;
            panic!("{}\n{}\n{:?}", there.out, ends["totals"], written(cluster));
        }
    }
}

/// Runs jobs through crashes of the scheduler and of a launcher, and compares what everybody says of them.
async fn each_has_one_record(count: usize) {
    let mut cluster = cluster(true, &["--cpu-ratio", "500"]).await;
    start(&cluster, count).await;
    open_gate(&cluster);
    cluster.crash_scheduler().await;
    cluster.kill_launcher("node-b").await;
    cluster.crash_scheduler().await;
    cluster.launch("node-b", &[]);
    cluster.ready(&NODES).await;
    let ends = all_ended(&cluster, count).await;
    // What was acknowledged is there after one more.
    cluster.crash_scheduler().await;
    let after = listed(&cluster, "--since all").await;
    assert_eq!(after["ends"], ends["ends"]);
    let rows = after["ends"].as_array().unwrap();
    let written = written(&cluster);
    assert_eq!(codes(rows), written);
    let bad = written.values().filter(|code| **code != 0).count();
    let outcomes = &after["totals"]["by_outcome"];
    assert_eq!(
        outcomes["failed"].as_u64().unwrap_or(0),
        bad as u64,
        "{outcomes}"
    );
    assert_eq!(
        outcomes["succeeded"].as_u64().unwrap_or(0),
        (count - bad) as u64
    );
    let numbers: Vec<u64> = rows
        .iter()
        .map(|it| it["number"].as_u64().unwrap())
        .collect();
    assert!(
        numbers.is_sorted_by(|one, other| one > other),
        "the latest first"
    );

    let http = cluster.site.http(cluster.scheduler(), Role::VIEWER).await;
    assert_eq!(over_http(&http, "").await, *rows, "the same over HTTP");
    let failed = over_http(&http, "&state=failed").await;
    assert_eq!(failed.len(), bad);
    let failed_there = listed(&cluster, "--since 1h --state failed").await;
    assert_eq!(*failed_there["ends"].as_array().unwrap(), failed);
    let metrics = http.get("/metrics").await;
    let line = format!("ciao_history_records {count}.0");
    assert!(
        metrics.body.lines().any(|it| it == line),
        "{}",
        metrics.body
    );
}

#[tokio::test]
async fn each_job_has_one_record_with_the_status_that_it_wrote_itself_whatever_is_killed() {
    each_has_one_record(JOBS).await;
}

#[tokio::test]
#[ignore = "takes minutes; run it before a change of how ends are recorded"]
async fn so_have_many_jobs() {
    each_has_one_record(MANY_JOBS).await;
}

#[tokio::test]
async fn ends_are_listed_by_what_is_asked_with_what_each_has_used() {
    let cluster = cluster(true, &[]).await;
    let script = "head -c 20000000 /dev/zero | tail -c 1 >/dev/null; echo done; exit 3";
    let id = cluster
        .run("--mem 64 --cpus 1 --name nightly-1", script)
        .await;
    cluster.until_gone(&id).await;
    let other = cluster.run("--mem 16 --cpus 1", "exit 0").await;
    cluster.until_gone(&other).await;
    let ends = listed(&cluster, "--name nightly-*").await;
    assert_eq!(ends["totals"]["ends"], 1, "{ends}");
    let end = &ends["ends"][0];
    assert_eq!(end["instance_uuid"], *id);
    assert_eq!(
        (&end["outcome"], &end["exit_code"]),
        (&"failed".into(), &3.into())
    );
    assert_eq!(end["output_bytes"], 5);
    assert!(end["peak_kib"].as_u64() > Some(1000), "{end}");
    assert!(
        end["started_at_ms"].as_u64() <= end["ended_at_ms"].as_u64(),
        "{end}"
    );
    assert!(
        end["submitted_at_ms"].as_u64() <= end["started_at_ms"].as_u64(),
        "{end}"
    );
    let host = end["hostname"].as_str().unwrap();
    for (options, count) in [
        ("", 2),
        ("--since 2h", 2),
        ("--since all --until 1h", 0),
        ("--until 1960-01-01", 0),
        ("--state succeeded", 1),
        ("--state oom", 0),
        ("--program /bin/sh*", 2),
        ("--program bash", 0),
        ("--tenant another", 0),
        ("--limit 1", 1),
    ] {
        let ends = listed(&cluster, options).await;
        assert_eq!(ends["totals"]["ends"], count, "{options}: {ends}");
    }
    let there = listed(&cluster, &format!("--node {host}")).await;
    assert!(there["totals"]["ends"].as_u64() >= Some(1), "{there}");

    let table = cluster.ctl("history").await;
    assert!(
        table.out.contains("nightly-1") && table.out.contains("exited, status 3"),
        "{table:?}"
    );
    assert!(
        table.err.contains("2 ended: 1 succeeded, 1 failed; "),
        "{table:?}"
    );
    let csv = cluster.ctl("history -o csv --state failed").await.out;
    let lines: Vec<&str> = csv.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("number,instance_uuid,"),
        "{csv}"
    );
    assert!(lines[1].contains(&id), "{csv}");
    let wrong = cluster.ctl("history --state faled").await;
    assert!(
        wrong.code != Some(0) && wrong.err.contains("succeeded"),
        "{wrong:?}"
    );
    // With an instance as ever.
    let one = cluster.ctl("history nightly-1").await;
    assert!(
        one.out.contains("running") && one.out.contains("exited, status 3"),
        "{one:?}"
    );
}

#[tokio::test]
async fn what_is_beyond_the_limits_is_deleted_the_oldest_first_and_counted() {
    let cluster = cluster(true, &["--history-time", "1s"]).await;
    let http = cluster.site.http(cluster.scheduler(), Role::VIEWER).await;
    let begun = std::time::Instant::now();
    let mut trimmed = false;
    while !trimmed {
        assert!(begun.elapsed() < DEADLINE, "nothing was deleted");
        let id = cluster.run("--mem 16 --cpus 1", "exit 0").await;
        cluster.until_gone(&id).await;
        let metrics = http.get("/metrics").await.body;
        let count = |line: &str| {
            line.strip_prefix("ciao_history_trimmed_total{limit=\"time\"} ")
                .map(str::to_owned)
        };
        let counted = metrics.lines().find_map(count).expect("the metric");
        trimmed = counted.parse::<u64>().unwrap() > 0;
    }
}

#[tokio::test]
async fn without_a_state_directory_ends_are_listed_from_memory_which_is_said() {
    let cluster = cluster(false, &[]).await;
    let id = cluster.run("--mem 16 --cpus 1", "exit 4").await;
    cluster.until_gone(&id).await;
    let ends = listed(&cluster, "").await;
    assert_eq!(ends["in_memory"], true);
    assert_eq!(ends["ends"][0]["exit_code"], 4, "{ends}");
    assert_eq!(ends["ends"][0]["outcome"], "failed", "{ends}");
    let http = cluster.site.http(cluster.scheduler(), Role::VIEWER).await;
    assert_eq!(
        over_http(&http, "").await,
        *ends["ends"].as_array().unwrap()
    );
    let said = cluster.ctl("history").await.err;
    assert!(said.contains("in its memory"), "{said}");
    let wrong = http.get("/v1/history?after=x").await.problem();
    assert_eq!((wrong.0, &*wrong.1), (400, "invalid_parameter"));
}

/// Instances with labels: deleted by `ciaoctl`, stopped, deleted over HTTP, and one that ended by itself.
async fn ended_in_four_ways(cluster: &Cluster) -> [String; 4] {
    let sleeping = "--mem 16 --cpus 1 --wait=running";
    let apollo = "--label project=apollo --label step=1";
    let deleted = cluster
        .run(&format!("{sleeping} {apollo}"), "exec sleep 1000")
        .await;
    let stopped = cluster
        .run(
            &format!("{sleeping} --label project=gemini"),
            "exec sleep 1000",
        )
        .await;
    let managed = cluster
        .run(
            &format!("{sleeping} {apollo} --relocate"),
            "exec sleep 1000",
        )
        .await;
    let itself = cluster
        .run("--mem 16 --cpus 1 --label project=apollo", "exit 0")
        .await;
    cluster.until_gone(&itself).await;
    for line in [
        format!("delete --wait {deleted}"),
        format!("stop --wait {stopped}"),
    ] {
        let ran = cluster.ctl(&line).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    let http = cluster
        .site
        .http(cluster.scheduler(), Role::CONTROLLER)
        .await;
    let path = format!("/v1/instances/{managed}?wait=1m");
    http.send("DELETE", &path, "").await.ok(200);
    cluster.until_gone(&managed).await;
    [deleted, stopped, managed, itself]
}

#[tokio::test]
async fn ends_have_the_labels_of_their_starts_and_who_asked_for_them_and_are_found_by_both() {
    let mut cluster = cluster(true, &[]).await;
    let [deleted, stopped, managed, itself] = ended_in_four_ways(&cluster).await;
    // What is restored knows it too.
    cluster.crash_scheduler().await;
    cluster.ready(&NODES).await;

    let ids = |ends: &Value| {
        let rows = ends["ends"].as_array().unwrap().iter();
        let mut ids: Vec<String> = rows
            .map(|it| it["instance_uuid"].as_str().unwrap().to_owned())
            .collect();
        ids.sort();
        ids
    };
    let of = |expected: &[&String]| {
        let mut ids: Vec<String> = expected.iter().map(|&id| id.clone()).collect();
        ids.sort();
        ids
    };
    for (options, expected) in [
        ("--label project=apollo", &[&deleted, &managed, &itself][..]),
        ("--label project=apollo --label step", &[&deleted, &managed]),
        ("--label project", &[&deleted, &stopped, &managed, &itself]),
        ("--label step=2", &[]),
        ("--by OPERATOR*", &[&deleted, &stopped, &managed]),
        ("--by nobody", &[]),
    ] {
        let ends = listed(&cluster, options).await;
        assert_eq!(ids(&ends), of(expected), "{options}: {ends}");
    }
    let ends = listed(&cluster, "--label project=apollo").await;
    for end in ends["ends"].as_array().unwrap() {
        let by = end["by"].as_str();
        let is_by_itself = end["instance_uuid"] == *itself;
        assert_eq!(by.is_none(), is_by_itself, "{end}");
        assert!(by.is_none_or(|by| by.starts_with("OPERATOR ")), "{end}");
        assert_eq!(end["labels"]["project"], "apollo", "{end}");
    }
    let http = cluster.site.http(cluster.scheduler(), Role::VIEWER).await;
    let rows = over_http(&http, "&labels=project%3Dapollo,step&by=OPERATOR*").await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    let csv = cluster.ctl("history -o csv --label step").await.out;
    assert!(csv.contains(",project=apollo step=1"), "{csv}");
    let table = cluster.ctl("history --label project=gemini").await.out;
    assert!(table.contains("by OPERATOR"), "{table}");
}
