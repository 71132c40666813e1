//! Commands: what launchers are told, what the sender is answered, and that the same START twice is one.

use std::collections::BTreeSet;

use proto_frames::Kind;
use proto_frames::Role;
use proto_frames::payload::{Payload, Start};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::Answer;
use crate::site::{Site, within};
use crate::words::{deleted, instance};

fn start(id: &str, mem_mb: i64) -> String {
    json!({"start": {
        "instance_uuid": id,
        "vm_type": "process",
        "command": ["/bin/sh", "-c", "echo \"[{\" # yes"],
        "env": {"SECRET": "hunter2", "EMPTY": ""},
        "requirements": {"mem_mb": mem_mb, "vcpus": 1},
        "later": {"unknown": [1, {"a": null}]},
    }})
    .to_string()
}

#[tokio::test]
async fn a_start_as_json_reaches_its_launcher_as_block_yaml_and_is_answered_once_it_runs() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let id = instance(1).to_string();
    let body = start(&id, 7);
    let (answer, ()) = tokio::join!(http.send("POST", "/v1/instances?wait=60s", &body), async {
        let frame = node.expect(Kind::START).await;
        let text = std::str::from_utf8(&frame.payload).unwrap();
        assert!(text.starts_with("start:\n"), "{text}");
        let start = Start::decode(&frame.payload).unwrap();
        assert_eq!(start.env["SECRET"], "hunter2");
        assert_eq!(start.command[2], "echo \"[{\" # yes");
        assert!(
            text.contains("unknown:"),
            "what is not known here is kept: {text}"
        );
        node.stats(&[start.instance_uuid.parse().unwrap()]).await;
    });
    let outcome = answer.ok(200);
    assert_eq!(outcome["instance"]["state"], "running", "{outcome}");
    assert_eq!(outcome["follow"], format!("/v1/instances/{id}"));
    assert!(
        answer
            .head
            .contains(&format!("location: /v1/instances/{id}"))
    );
    // No secret is repeated anywhere.
    for path in [
        "/v1/instances",
        &format!("/v1/instances/{id}"),
        &format!("/v1/instances/{id}/history"),
    ] {
        assert!(!http.get(path).await.body.contains("hunter2"));
    }
    assert!(!daemon.log().iter().any(|line| line.contains("hunter2")));
}

#[tokio::test]
async fn the_same_start_is_one_and_another_of_its_instance_is_a_conflict() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let id = instance(1).to_string();
    let body = start(&id, 7);
    let first = http.send("POST", "/v1/instances", &body).await;
    assert_eq!(first.ok(202)["instance"]["state"], "placed");
    node.expect_start().await;
    let again = http.send("POST", "/v1/instances", &body).await;
    assert_eq!(again.ok(200)["instance"]["instance_uuid"], id);
    let yaml = "start:\n  instance_uuid: other\n  requirements:\n    mem_mb: 1\n    vcpus: 1\n";
    assert_eq!(http.send("POST", "/v1/instances", yaml).await.status, 202);
    let frame = node.expect(Kind::START).await;
    assert_eq!(frame.payload, yaml, "as it came");
    let other = http.send("POST", "/v1/instances", &start(&id, 8)).await;
    let (status, reason, field) = other.problem();
    assert_eq!(
        (status, &*reason, &*field),
        (409, "instance_exists", "start.instance_uuid")
    );
    node.nothing_else().await;
}

#[tokio::test]
async fn a_start_that_cannot_be_is_answered_with_the_reason_and_the_field() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let no_nodes = http.send("POST", "/v1/instances", &start("a", 7)).await;
    assert_eq!(no_nodes.problem().1, "no_cn");
    let _node = site.ready_node(&daemon).await;
    let full = http
        .send("POST", "/v1/instances", &start("a", 1 << 50))
        .await;
    let (status, reason, _) = full.problem();
    assert_eq!((status, &*reason), (503, "full_cloud"));
    assert_eq!(full.json()["reasons"][0]["reason"], "memory", "{full:?}");
    assert_eq!(full.json()["never"], true);
    for (body, status, reason, field) in [
        ("{\"start\": [", 400, "invalid_payload", ""),
        ("{}", 422, "invalid_data", "start"),
        (
            "{\"start\": {}}",
            422,
            "invalid_data",
            "start.instance_uuid",
        ),
        (
            "{\"start\": {\"instance_uuid\": \"a\", \"requirements\": {\"vcpus\": \"many\"}}}",
            400,
            "invalid_payload",
            "start.requirements.vcpus",
        ),
        (
            "{\"start\": {\"instance_uuid\": \"a\", \"scheduling\": {\"priorty\": 1}}}",
            422,
            "invalid_data",
            "start.scheduling.priorty",
        ),
        (
            "{\"start\": {\"instance_uuid\": \"a\", \"image\": \"\", \"more_images\": [\"sha256:0\"]}}",
            400,
            "invalid_payload",
            "start.more_images[0]",
        ),
        (
            "{\"start\": {\"instance_uuid\": \"a b\"}}",
            422,
            "invalid_data",
            "start.instance_uuid",
        ),
    ] {
        let answer = http.send("POST", "/v1/instances", body).await;
        let (found, why, at) = answer.problem();
        assert_eq!(
            (found, &*why, &*at),
            (status, reason, field),
            "{body}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn a_client_that_has_shut_its_sending_half_gets_its_answer() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let body = start(&instance(1).to_string(), 7);
    let mut stream = http.connect().await;
    let request = format!(
        "POST /v1/instances?wait=60s HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    within(stream.write_all(request.as_bytes())).await.unwrap();
    within(stream.shutdown()).await.unwrap();
    let started = node.expect_start().await;
    // Once more round, so that the end of the stream is there before there is anything to answer.
    assert_eq!(http.get("/livez").await.status, 200);
    node.stats(&[started]).await;
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.unwrap();
    assert_eq!(Answer::read(&bytes).ok(200)["instance"]["state"], "running");
}

#[tokio::test]
async fn an_explanation_names_as_many_alternates_as_are_asked_for() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(site.ready_node(&daemon).await);
    }
    let http = site.http(&daemon, Role::VIEWER).await;
    let body = start(&instance(1).to_string(), 7);
    let asked = async |query: &str| {
        http.send("POST", &format!("/v1/explain{query}"), &body)
            .await
    };
    for (query, count) in [
        ("", 0),
        ("?alternates=0", 0),
        ("?alternates=1", 1),
        ("?alternates=2", 2),
        ("?alternates=3", 2),
    ] {
        let decision = asked(query).await.ok(200)["decision"].clone();
        assert_eq!(decision["fits"], 1, "{query}");
        let row = |list: &str| decision[list].as_array().cloned().unwrap_or_default();
        let (placements, alternates) = (row("placements"), row("alternates"));
        assert_eq!(alternates.len(), count, "{query}: {decision}");
        let named = placements.iter().chain(&alternates);
        let named: BTreeSet<&str> = named.filter_map(|it| it["node_uuid"].as_str()).collect();
        assert_eq!(named.len(), 1 + count, "each is another node: {decision}");
    }
    for wrong in ["-1", "many", "100000"] {
        let answer = asked(&format!("?alternates={wrong}")).await;
        let (status, reason, field) = answer.problem();
        assert_eq!(
            (status, &*reason, &*field),
            (400, "invalid_parameter", "alternates")
        );
    }
    for node in &mut nodes {
        node.nothing_else().await;
    }
}

#[tokio::test]
async fn a_delete_goes_to_the_node_that_has_the_instance() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let id = instance(1).to_string();
    http.send("POST", "/v1/instances", &start(&id, 7))
        .await
        .ok(202);
    let started = node.expect_start().await;
    node.stats(&[started]).await;
    let path = format!("/v1/instances/{id}");
    let waiting = format!("{path}?wait=60s");
    let (answer, ()) = tokio::join!(http.send("DELETE", &waiting, ""), async {
        let frame = node.expect(Kind::DELETE).await;
        assert_eq!(deleted(&frame.payload), started);
        let gone = format!("instance_deleted:\n  instance_uuid: {started}\n");
        node.send(Kind::INSTANCE_DELETED, gone).await;
    });
    answer.ok(200);
    // Once more: the answer is the same, and says that it was there.
    let (again, ()) = tokio::join!(http.send("DELETE", &path, ""), async {
        let frame = node.expect(Kind::DELETE).await;
        assert_eq!(deleted(&frame.payload), started);
        let failure = format!("instance_uuid: {started}\nreason: no_instance\n");
        node.send(Kind::DELETE_FAILURE, failure).await;
    });
    let (status, reason, _) = again.problem();
    assert_eq!((status, &*reason), (404, "no_instance"));
    let answer = again.json();
    let detail = answer["detail"].as_str().unwrap_or_default();
    assert!(detail.ends_with(" ago; nothing to delete"), "{detail}");
    assert_eq!(
        http.send("DELETE", "/v1/instances/none", "")
            .await
            .problem()
            .1,
        "no_instance"
    );
    let line = daemon.logged("COMMAND DELETE of instance").await;
    assert!(line.contains("HTTP"), "{line}");
}

#[tokio::test]
async fn a_node_is_cordoned_its_drain_is_ended_and_it_is_let_in_again() {
    let (site, daemon) = Site::with_http(&[]).await;
    let node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let path = format!("/v1/nodes/{}", node.uuid);
    let cordoned = http
        .send("POST", &format!("{path}/cordon"), "")
        .await
        .ok(202);
    assert_eq!(cordoned["node"]["cordoned"], true);
    let drain = format!("{path}/drain");
    let draining = http.send("POST", &drain, "").await.ok(202);
    assert_eq!(draining["follow"], path);
    let abort = format!("{path}/abort-drain");
    http.send("POST", &abort, "").await.ok(202);
    assert_eq!(
        http.send("POST", &abort, "").await.problem().1,
        "no_such_node"
    );
    let bad = http
        .send("POST", &format!("{path}/drain"), "{\"paralel\": 2}")
        .await;
    assert_eq!(bad.problem().2, "drain.paralel");
    let back = http
        .send("POST", &format!("{path}/uncordon"), "")
        .await
        .ok(202);
    assert_eq!(back["node"].get("cordoned"), None);
}

#[tokio::test]
async fn a_uuid_in_capitals_is_the_same_in_paths_and_bodies() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let here = node.uuid.to_string();
    let found = http
        .get(&format!("/v1/nodes/{}", here.to_uppercase()))
        .await;
    assert_eq!(found.ok(200)["node"]["node_uuid"], here);
    let id = "0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01";
    let start = |id: &str| {
        let node = here.to_uppercase();
        format!(
            "start:\n  instance_uuid: {id}\n  requirements: {{mem_mb: 1, vcpus: 1, node_id: {node}}}\n"
        )
    };
    let capitals = id.to_uppercase();
    let first = http.send("POST", "/v1/instances", &start(&capitals)).await;
    assert_eq!(first.ok(202)["follow"], format!("/v1/instances/{id}"));
    // Its bytes are as they came.
    let frame = node.expect(Kind::START).await;
    assert_eq!(frame.payload, start(&capitals));
    node.stats(&[capitals.parse().unwrap()]).await;
    node.nothing_else().await;
    for name in [id, &capitals] {
        let row = http.get(&format!("/v1/instances/{name}")).await.ok(200);
        assert_eq!(row["instance"]["state"], "running");
        assert_eq!(row["instance"]["instance_uuid"], id);
    }
    let other = start(id).replace("mem_mb: 1", "mem_mb: 2");
    let other = http.send("POST", "/v1/instances", &other).await;
    assert_eq!(other.problem().1, "instance_exists");
    let path = format!("/v1/instances/{capitals}");
    http.send("DELETE", &path, "").await.ok(202);
    node.expect(Kind::DELETE).await;
    node.nothing_else().await;
}

#[tokio::test]
async fn a_key_that_stands_twice_and_a_merge_key_are_refused_by_their_field() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let merge =
        "defaults: &it\n  mem_mb: 256\nstart:\n  instance_uuid: a\n  requirements:\n    <<: *it\n";
    let twice = "start:\n  instance_uuid: a\n  command: [one]\n  command: [two]\n";
    for (body, status, field) in [
        (merge, 422, "start.requirements.<<"),
        (twice, 422, "start.command"),
        (
            "{\"start\": {\"instance_uuid\": \"a\", \"requirements\": {\"<<\": {\"mem_mb\": 1}}}}",
            422,
            "start.requirements.<<",
        ),
        (
            "{\"start\": {\"instance_uuid\": \"a\", \"vm_type\": \"a\", \"vm_type\": \"b\"}}",
            400,
            "",
        ),
    ] {
        let answer = http.send("POST", "/v1/instances", body).await;
        let (found, _, at) = answer.problem();
        assert_eq!((found, &*at), (status, field), "{body}");
    }
    let update = http
        .send(
            "POST",
            "/v1/instances/a/update",
            "{\"mem_mb\": 1, \"mem_mb\": 2}",
        )
        .await;
    assert_eq!(update.problem().0, 400);
    node.nothing_else().await;
}
