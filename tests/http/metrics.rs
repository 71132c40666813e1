//! Metrics: what they count, and that there are as many series however large the cluster is.

use std::collections::BTreeMap;
use std::process::Stdio;

use proto_frames::Kind;
use proto_frames::Role;
use serde_json::Value;
use tokio::process::Command;

use crate::site::{Daemon, Site, output};
use crate::words::{instance, start};

/// Every series with its value.
fn series(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let mut master = site.master(&daemon).await;
    master.expect_node().await;
    for number in 0..3 {
        master.send(Kind::START, start(instance(number), 7)).await;
        node.expect_start().await;
    }
    master.send(Kind::START, start(instance(9), 1 << 50)).await;
    master.expect(Kind::START_FAILURE).await;
    node.stats(&[instance(0), instance(1)]).await;
    master.expect(Kind::STATS).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let answer = http.get("/metrics").await;
    assert!(
        answer
            .head
            .contains("content-type: application/openmetrics-text"),
        "{answer:?}"
    );
    let found = series(&answer.body);
    for (name, value) in [
        ("ciao_starts_total", 4.0),
        ("ciao_placements_total", 3.0),
        ("ciao_start_failures_total{reason=\"full_cloud\"}", 1.0),
        ("ciao_start_failures_total{reason=\"launch_failure\"}", 0.0),
        ("ciao_placement_duration_seconds_count", 3.0),
        ("ciao_start_confirm_seconds_count", 2.0),
        ("ciao_attempts_total{result=\"confirmed\"}", 2.0),
        ("ciao_queue_length", 0.0),
        ("ciao_nodes{role=\"compute\",status=\"READY\"}", 1.0),
        ("ciao_nodes{role=\"network\",status=\"LOST\"}", 0.0),
        ("ciao_claimed{resource=\"memory_mib\"}", 21.0),
        ("ciao_claimed{resource=\"vcpus\"}", 3.0),
        ("ciao_node_losses_total", 0.0),
        ("ciao_node_pressures_total", 0.0),
        ("ciao_pressure_moves_total", 0.0),
        ("ciao_store_durable", 0.0),
        ("ciao_is_leader", 1.0),
        ("ciao_build_info{version=\"0.1.0\"}", 1.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name} in\n{}", answer.body);
    }
    let expiry = found["ciao_certificate_expiry_timestamp_seconds{file=\"scheduler.pem\"}"];
    assert!(expiry > 1e9, "{expiry}");
    assert!(found["ciao_handshakes_total{result=\"established\"}"] >= 3.0);
    assert!(found["ciao_lock_hold_seconds_count"] > 0.0);
    assert!(found["process_resident_memory_bytes"] > 0.0);
    node.close().await;
    master.expect_node_gone().await;
    let found = series(&http.get("/metrics").await.body);
    assert_eq!(found["ciao_node_losses_total"], 1.0);
    assert_eq!(found["ciao_nodes{role=\"compute\",status=\"LOST\"}"], 1.0);
    assert_eq!(found["ciao_in_doubt"], 1.0);
}

#[tokio::test]
async fn there_are_as_many_series_with_many_nodes_as_with_none() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let names = |text: &str| series(text).into_keys().collect::<Vec<_>>();
    let before = names(&http.get("/metrics").await.body);
    let mut nodes = Vec::new();
    for _ in 0..20 {
        nodes.push(site.ready_node(&daemon).await);
    }
    let mut master = site.master(&daemon).await;
    for number in 0..20 {
        master.send(Kind::START, start(instance(number), 1)).await;
    }
    master.send(Kind::START, start(instance(99), 1 << 50)).await;
    master.skip_to(Kind::START_FAILURE).await;
    assert_eq!(names(&http.get("/metrics").await.body), before);
}

/// The same in the text format before OpenMetrics, which promtool reads: counters are described by their whole names, and
/// there is no end and no unit.
fn older_format(text: &str) -> String {
    let counters: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut older = String::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let (mark, what, name) = (words.next(), words.next(), words.next());
        let rest = words.next().unwrap_or_default();
        match (mark, what, name) {
            (Some("#"), Some("EOF" | "UNIT"), _) => continue,
            (Some("#"), Some(what), Some(name)) if counters.contains(&name) => {
                older.push_str(&format!("# {what} {name}_total {rest}"));
            }
            _ => older.push_str(line),
        }
        older.push('\n');
    }
    older
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_the_metrics() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let text = http.get("/metrics").await.body;
    let path = site.path("metrics.txt");
    std::fs::write(&path, older_format(&text)).unwrap();
    let checked = std::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(&path).unwrap())
        .output();
    let Ok(checked) = checked else {
        let is_required = std::env::var_os("CIAO_REQUIRE_PROMTOOL").is_some_and(|it| it == "1");
        assert!(!is_required, "promtool is required");
        return eprintln!("skipped: promtool is not installed");
    };
    assert!(checked.status.success(), "{checked:?}");
}

#[tokio::test]
async fn every_metric_is_explained_and_in_the_example_dashboard_only_if_it_is_one() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let text = http.get("/metrics").await.body;
    let named = |kind: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(kind));
        let names = lines.map(|line| line.split(' ').next().unwrap().to_owned());
        names.collect::<Vec<String>>()
    };
    assert_eq!(named("# HELP "), named("# TYPE "));
    let mut known = named("# TYPE ");
    // One that leads several schedulers has more than this one, all in the reference.
    let reference = crate::site::repository("docs/reference/http.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    let words = reference.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let of_several = ["ciao_leader_", "ciao_standby_", "ciao_etcd_"];
    let of_several = words.filter(|word| of_several.iter().any(|it| word.starts_with(it)));
    known.extend(of_several.map(str::to_owned));
    for file in ["dashboard.json", "alerts.yaml"] {
        let path = crate::site::repository("examples/monitoring").join(file);
        let example = std::fs::read_to_string(path).unwrap();
        for word in example.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if !word.starts_with("ciao_") {
                continue;
            }
            let is_of = |name: &String| {
                let rest = word.strip_prefix(name.as_str());
                rest.is_some_and(|rest| ["", "_total", "_bucket", "_sum", "_count"].contains(&rest))
            };
            assert!(known.iter().any(is_of), "{file}: {word}");
        }
    }
}

/// What `ciaoctl load` counted of a run against this daemon.
async fn book_of(site: &Site, daemon: &Daemon, flags: &str) -> Value {
    for (name, file) in [
        ("CAcert-localhost.pem", "CAcert.pem"),
        ("cert-Controller-localhost.pem", "controller.pem"),
        ("cert-CNAgent-localhost.pem", "agent.pem"),
    ] {
        std::fs::copy(site.path(file), site.path(name)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
    command
        .args(["load", "--json", "--server", &daemon.address.to_string()])
        .arg("--certs")
        .arg(site.path(""))
        .args(flags.split_whitespace())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = output(command).await;
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_slice(&ran.stdout).unwrap()
}

#[tokio::test]
async fn metrics_agree_with_the_book_of_a_load_run_in_which_launchers_are_killed() {
    let (site, daemon) = Site::with_http(&["--in-doubt-time", "2s"]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let flags = "--launchers 20 --starts 4000 --pipeline=200 --kill 5 --mem 1 --cpus 1";
    let book = book_of(&site, &daemon, flags).await;
    let count = |key: &str| book[key].as_f64().unwrap();
    let found = series(&http.get("/metrics").await.body);
    let failures = found
        .iter()
        .filter(|(name, _)| name.starts_with("ciao_start_failures_total"));
    let failures: f64 = failures.map(|(_, count)| count).sum();
    assert_eq!(found["ciao_starts_total"], count("sent"));
    assert_eq!(failures, count("failed"));
    assert_eq!(count("received") + count("failed"), count("sent"), "{book}");
    // Once more where a killed launcher had not been sent it yet.
    assert!(found["ciao_placements_total"] >= count("sent"), "{book}");
    // At the end of the run all others leave, without a word as well.
    assert_eq!(
        found["ciao_node_losses_total"],
        count("launchers_connected")
    );
}
