//! The cluster configuration over HTTP: read, checked, replaced by who named the version that it was made from.

use proto_frames::payload::{Payload as _, Reloaded};
use proto_frames::{Encoding, Kind, Role};

use crate::client::{Answer, Http};
use crate::site::{Daemon, Site};
use crate::words::{instance, start};

const FIRST: &str = "configure:\n  scheduler:\n    policy: {preset: spread}\n";
const SECOND: &str = "# denser\nconfigure:\n  scheduler:\n    policy: {preset: pack}\n";

/// A daemon with the first configuration, and a client who may change it.
async fn configured() -> (Site, Daemon, Http) {
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), FIRST).unwrap();
    let state = site.path("state").display().to_string();
    let flags = ["--http", "127.0.0.1:0", "--state-dir", &state];
    let daemon = site.start(&flags).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    (site, daemon, http)
}

impl Http {
    /// PUT of a configuration, with this further line of the head.
    async fn configure(&self, query: &str, line: &str, text: &str) -> Answer {
        let request = format!(
            "PUT /v1/configuration{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{line}content-length: \
             {}\r\n\r\n{text}",
            text.len()
        );
        self.raw(request.as_bytes()).await
    }
}

#[tokio::test]
async fn the_configuration_is_replaced_by_who_names_the_version_that_is_in_force() {
    let (_site, daemon, http) = configured().await;
    let answer = http.get("/v1/configuration").await;
    assert!(answer.head.contains("etag: \"1\""), "{answer:?}");
    let read = answer.ok(200);
    let configuration = &read["configuration"];
    assert_eq!(configuration["document"], FIRST);
    assert_eq!(configuration["kept"], true);
    let versions = configuration["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 1);
    assert_eq!(versions[0]["source"], "file");
    assert!(versions[0]["at_ms"].as_u64().unwrap() > 1_600_000_000_000);

    let line = "if-match: \"1\"\r\ncontent-type: application/yaml\r\n";
    let answer = http.configure("?note=denser", line, SECOND).await;
    assert!(answer.head.contains("etag: \"2\""), "{answer:?}");
    let put = answer.ok(200);
    assert_eq!(put["configuration"]["version"], 2);
    assert_eq!(put["configuration"]["kept"], true);
    daemon
        .logged("version 2 of O=ciao (command) is in force")
        .await;
    // Who comes second changes nothing, by either way to name a version.
    let answer = http.configure("", line, FIRST).await;
    assert_eq!(answer.status, 412, "{answer:?}");
    assert_eq!(answer.problem().1, "conflict");
    let answer = http.configure("?if_version=1", "", FIRST).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert_eq!(answer.problem().1, "conflict");
    assert!(answer.body.contains("version 2 of O=ciao"), "{answer:?}");

    let answer = http.get("/v1/configuration?document").await;
    assert_eq!((answer.status, &*answer.body), (200, SECOND));
    assert!(answer.head.contains("content-type: application/yaml"));
    let answer = http.get("/v1/configuration?version=1&document").await;
    assert_eq!((answer.status, &*answer.body), (200, FIRST));
    let file = http.get("/v1/configuration?file").await;
    assert!(!file.head.contains("etag"), "{file:?}");
    assert_eq!(file.ok(200)["configuration"]["document"], FIRST);
    let read = http.get("/v1/configuration").await.ok(200);
    let newest = &read["configuration"]["versions"][0];
    assert_eq!(newest["source"], "command");
    assert_eq!(newest["note"], "denser");
    assert!(newest["by"].as_str().unwrap().contains("ciao"), "{newest}");
    assert_eq!(http.get("/v1/configuration?version=9").await.status, 404);
    // What the head of the page is drawn of.
    let status = http.get("/v1/status").await.ok(200);
    assert_eq!(status["configuration"]["version"], 2);
    assert_eq!(status["configuration"]["source"], "command");
    assert_eq!(status["log_levels"], "v=0");
}

#[tokio::test]
async fn what_makes_no_sense_changes_nothing_and_says_what() {
    let (site, daemon, http) = configured().await;
    let mistyped = "configure:\n  scheduler:\n    policy: {prest: pack}\n";
    for query in ["", "?check"] {
        let answer = http.configure(query, "", mistyped).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(answer.problem().1, "invalid_data");
        let key = "configure.scheduler.policy.prest, line 3 column 14";
        assert!(answer.body.contains(key), "{answer:?}");
    }
    let answer = http.configure("", "", "").await;
    assert_eq!(answer.status, 422, "{answer:?}");
    for (query, line) in [
        ("", "if-match: 1\r\n"),
        ("", "if-match: W/\"1\"\r\n"),
        ("", "if-match: *\r\n"),
        ("?if_version=2", "if-match: \"1\"\r\n"),
        ("?if_version=0", ""),
        ("?version=1", ""),
    ] {
        let answer = http.configure(query, line, SECOND).await;
        assert_eq!(answer.status, 400, "{query} {line}: {answer:?}");
    }
    let note = "x".repeat(257);
    let answer = http.configure(&format!("?note={note}"), "", SECOND).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let long = format!("{SECOND}# {}\n", "x".repeat(200 * 1024));
    http.configure("?check", "", &long).await.ok(200);
    let longer = format!("{SECOND}# {}\n", "x".repeat(256 * 1024));
    assert_eq!(http.configure("", "", &longer).await.status, 413);
    let viewer = site.http(&daemon, Role::VIEWER).await;
    assert_eq!(viewer.configure("", "", SECOND).await.status, 403);
    let read = viewer.get("/v1/configuration").await.ok(200);
    assert_eq!(read["configuration"]["document"], FIRST);
    assert_eq!(read["configuration"]["current"], 1);
}

#[tokio::test]
async fn a_check_changes_nothing_and_names_the_instances_that_would_not_be_where_they_are() {
    let (site, daemon, http) = configured().await;
    let mut node = site.ready_node(&daemon).await;
    let mut controller = site
        .connect(&daemon, Role::CONTROLLER, Encoding::Native)
        .await;
    controller.send(Kind::START, start(instance(1), 16)).await;
    assert_eq!(node.expect_start().await, instance(1));
    node.stats(&[instance(1)]).await;
    node.nothing_else().await;
    let reserved = format!(
        "configure:\n  scheduler:\n    aggregates:\n    - {{name: all, nodes: [{}], tenants: [blue]}}\n",
        node.uuid
    );
    let answer = http.configure("?check", "if-match: \"1\"\r\n", &reserved);
    let checked = answer.await.ok(200);
    let check = &checked["check"];
    assert_eq!(
        (&check["checked"], &check["affected_count"]),
        (&1.into(), &1.into())
    );
    assert_eq!(
        check["affected"][0]["instance_uuid"],
        instance(1).to_string()
    );
    let reason = check["affected"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("reserved for other tenants"), "{reason}");
    let answer = http
        .configure("?check", "if-match: \"2\"\r\n", &reserved)
        .await;
    assert_eq!(answer.status, 412, "{answer:?}");
    let read = http.get("/v1/configuration").await.ok(200);
    assert_eq!(read["configuration"]["current"], 1);
}

#[tokio::test]
async fn a_reload_over_a_newer_version_is_refused_unless_it_is_forced() {
    let (site, daemon, http) = configured().await;
    let mut operator = site.operator(&daemon).await;
    http.configure("", "", SECOND).await.ok(200);
    let third = format!("{FIRST}# later\n");
    std::fs::write(site.path("configuration.yaml"), &third).unwrap();
    operator
        .watch(&[proto_frames::payload::Topic::Scheduler])
        .await;
    let answer = http.send("POST", "/v1/reload", "").await;
    assert_eq!(answer.status, 422, "{answer:?}");
    assert!(
        answer.body.contains("version 2 was set since"),
        "{answer:?}"
    );
    let event = operator.skip_to(Kind::RELOADED).await;
    let news = Reloaded::decode(&event.payload).unwrap();
    assert!(news.file.ends_with("configuration.yaml"), "{news:?}");
    http.send("POST", "/v1/reload?force", "").await.ok(200);
    let answer = http.get("/v1/configuration?document").await;
    assert_eq!(answer.body, third);
    let status = http.get("/v1/status").await.ok(200);
    assert_eq!(status["configuration"]["version"], 3);
}
