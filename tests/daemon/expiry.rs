//! Certificates of nodes that end while they are connected: the log, `ciaoctl status`, `ciaoctl describe node`, `/metrics` and
//! what the page is drawn of say so, as a warning before the end and as an error behind it. The session goes on; no new
//! one is let in.

use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::Spec;
use proto_frames::{Encoding, Role};
use serde_json::Value;

use crate::peer::{Dialer, Peer};
use crate::reload::is_heard;
use crate::reload::ways::{address, http};
use crate::site::{Daemon, Site, output};
use crate::words::PLENTY;

/// Peers that have a series of their own at most, as the reference says.
const LISTED: usize = 100;

const DAY: Duration = Duration::from_secs(86_400);

/// How long the shortest certificate is valid: long enough to connect with it on a busy machine.
const SHORT: Duration = Duration::from_secs(20);

/// A node whose certificate ends in so long.
fn dialer(site: &Site, daemon: &Daemon, ends_in: Duration) -> Dialer {
    let begun = Duration::from_secs(3600);
    let spec = Spec {
        not_before: SystemTime::now() - begun,
        lifetime: begun + ends_in,
        ..Spec::localhost(Role::AGENT)
    };
    Dialer {
        tls: site.ca.client_with(&spec),
        ..site.dialer(daemon, Role::AGENT, Encoding::Gob)
    }
}

/// What `ciaoctl` prints, and its exit code.
async fn ciaoctl(site: &Site, daemon: &Daemon, words: &[&str]) -> (Option<i32>, String) {
    let mut command = site.ciaoctl(daemon.address);
    command.args(words);
    let done = output(command).await;
    (done.status.code(), String::from_utf8(done.stdout).unwrap())
}

/// That `ciaoctl describe node` says this of a node's certificate.
async fn is_described(site: &Site, daemon: &Daemon, node: &Peer, text: &str) {
    let node = node.uuid.to_string();
    let (code, shown) = ciaoctl(site, daemon, &["describe", "node", &node]).await;
    assert_eq!(code, Some(0), "{shown}");
    let mut lines = shown.lines();
    let line = lines.find(|line| line.trim_start().starts_with("certificate"));
    assert!(line.unwrap().contains(text), "{shown}");
}

/// How the certificate of a node is graded in a list of conditions; `None` where it is not on it.
fn severity(conditions: &Value, node: &Peer) -> Option<String> {
    let node = node.uuid.to_string();
    let mut all = conditions.as_array().unwrap().iter();
    let one = all.find(|it| it["kind"] == "certificate" && it["subject"] == *node)?;
    Some(one["severity"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_nodes_certificate_that_ends_is_a_warning_and_one_that_has_ended_while_it_is_connected_an_error()
 {
    let site = Site::new();
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    let at_http = address(&daemon, "serves HTTP on ").await;
    // A month and more away, within a month, a week, a day.
    let kinds = [40 * DAY, 20 * DAY, 5 * DAY, DAY / 2, SHORT];
    let mut nodes = Vec::new();
    let mut short = None;
    for ends_in in kinds {
        let dialer = dialer(&site, &daemon, ends_in);
        let mut node = dialer.connect().await;
        node.ready(PLENTY).await;
        nodes.push(node);
        short = Some(dialer);
    }
    for (number, text) in [(1, "ends in 19d"), (2, "ends in 4d"), (3, "ends in 11h")] {
        let said = format!("the certificate of node host-{} {text}", nodes[number].uuid);
        let line = daemon.logged(&said).await;
        assert!(line.contains(" WARN "), "{line}");
        assert!(line.contains("event=certificate_ends_soon"), "{line}");
    }
    let said = format!("the certificate of node host-{} ended ", nodes[4].uuid);
    let line = daemon.logged(&said).await;
    assert!(line.contains(" ERROR "), "{line}");
    assert!(line.contains("event=certificate_expired"), "{line}");

    let expected = [
        None,
        Some("warning"),
        Some("warning"),
        Some("warning"),
        Some("error"),
    ];
    let (code, status) = ciaoctl(&site, &daemon, &["status", "--json"]).await;
    assert_eq!(code, Some(9), "{status}");
    let status: Value = serde_json::from_str(&status).unwrap();
    // The page is drawn of this.
    let (answer, _) = http(&site, at_http, "GET /v1/status").await;
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let page: Value = serde_json::from_str(body).unwrap();
    for (node, expected) in nodes.iter().zip(expected) {
        for conditions in [&status["conditions"], &page["conditions"]] {
            let severity = severity(conditions, node);
            assert_eq!(severity.as_deref(), expected, "{conditions:#}");
        }
    }
    for (number, text) in [(0, "ends in 39d"), (2, "ends in 4d"), (4, "ended ")] {
        is_described(&site, &daemon, &nodes[number], text).await;
    }
    let (metrics, _) = http(&site, at_http, "GET /metrics").await;
    for (ends, count) in [
        ("within_30_days", 1),
        ("within_7_days", 1),
        ("within_1_day", 1),
        ("expired", 1),
    ] {
        let line = format!("ciao_certificates_ending{{ends=\"{ends}\"}} {count}");
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
    for (node, expected) in nodes.iter().zip(expected) {
        let uuid = node.uuid;
        let line = format!("ciao_peer_certificate_expiry_timestamp_seconds{{uuid=\"{uuid}\"}} ");
        assert_eq!(metrics.contains(&line), expected.is_some(), "{metrics}");
    }
    // It is still there, and is not let in again.
    for node in &mut nodes {
        is_heard(node).await;
    }
    let again = short.unwrap().with_uuid(proto_frames::Uuid::new_v4());
    if let Ok(mut wire) = again.tls().await {
        assert_eq!(wire.next().await, None, "TLS 1.3 refuses in the first read");
    }
    daemon.logged("expired").await;
}

#[tokio::test]
async fn metrics_list_the_peers_whose_certificates_end_first_and_count_the_others() {
    let site = Site::new();
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    let at_http = address(&daemon, "serves HTTP on ").await;
    let usual = dialer(&site, &daemon, 20 * DAY);
    let mut peers = Vec::new();
    for _ in 0..LISTED + 2 {
        let dialer = usual.clone().with_uuid(proto_frames::Uuid::new_v4());
        peers.push(dialer.connect().await);
    }
    // It comes last and ends first.
    let first = dialer(&site, &daemon, 3 * DAY).connect().await;
    let (metrics, _) = http(&site, at_http, "GET /metrics").await;
    let series = "ciao_peer_certificate_expiry_timestamp_seconds{uuid=";
    assert_eq!(metrics.matches(series).count(), LISTED);
    let its = format!("{series}\"{}\"}} ", first.uuid);
    assert!(metrics.contains(&its), "{metrics}");
    for line in [
        "ciao_peer_certificates_unlisted 3",
        "ciao_certificates_ending{ends=\"within_30_days\"} 102",
        "ciao_certificates_ending{ends=\"within_7_days\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
}
