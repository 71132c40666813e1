//! `GET /v1/instances/{id}/output`: what workloads wrote, over HTTP.

use proto_frames::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::Http;
use crate::site::within;
use crate::world::{Cluster, Look};

const RUNNING: &str = "--mem 16 --cpus 1 --wait=running";

async fn cluster() -> (Cluster, Http) {
    let mut cluster = Cluster::of_scheduler(
        "configure: {scheduler: {}}\n",
        &["--http", "127.0.0.1:0"],
        false,
    )
    .await;
    cluster.launch("node-a", &[]);
    cluster.ready(&["node-a"]).await;
    let http = cluster.site.http(cluster.scheduler(), Role::VIEWER).await;
    (cluster, http)
}

/// The body of an answer that came in chunks, without what stands between them; all of these are shorter than one.
fn body(text: &str) -> String {
    let mut rest = text;
    let mut body = String::new();
    while let Some((len, behind)) = rest.split_once("\r\n") {
        let len = usize::from_str_radix(len, 16).unwrap();
        body += &behind[..len];
        rest = behind[len..].trim_start_matches("\r\n");
    }
    body
}

#[tokio::test]
async fn an_instance_is_found_by_its_name_waited_for_until_it_has_ended_and_then_as_the_list_has_it()
 {
    let (cluster, http) = cluster().await;
    let go = cluster.site.path("go");
    let script = format!("until [ -e {} ]; do sleep 0.05; done; exit 3", go.display());
    let id = cluster
        .run(&format!("{RUNNING} --name job.1"), &script)
        .await;
    let running = http.get("/v1/instances/job.1").await.ok(200);
    assert_eq!(running["instance"]["state"], "running", "{running}");
    assert_eq!(running["instance"]["instance_uuid"], *id, "{running}");
    let listed = http.get("/v1/instances").await.ok(200);
    let mut listed = listed["items"][0].clone();
    listed["age_s"] = running["instance"]["age_s"].clone();
    for used in ["mem_used_mb", "disk_used_mb"] {
        listed[used] = running["instance"][used].clone();
    }
    assert_eq!(listed, running["instance"]);
    let (ended, ()) = tokio::join!(http.get("/v1/instances/job.1?wait=120s"), async {
        std::fs::write(&go, "").unwrap();
    });
    let ended = ended.ok(200);
    assert_eq!(ended["instance"]["state"], "ended", "{ended}");
    assert_eq!(ended["instance"]["exit_code"], 3, "{ended}");
    // Of one that has ended the name leads to it as well, and one row is what the list has.
    for path in [
        format!("/v1/instances/{id}"),
        "/v1/instances/job.1/".to_owned(),
    ] {
        let one = http.get(&path).await.ok(200);
        let listed = http.get("/v1/instances?ended=true").await.ok(200);
        let mut listed = listed["items"][0].clone();
        listed["age_s"] = one["instance"]["age_s"].clone();
        assert_eq!(listed, one["instance"], "{path}");
        assert_eq!(listed["name"], "job.1", "{listed}");
    }
    http.get("/v1/instances/job.1/history").await.ok(200);
    let unknown = http.get("/v1/instances/job.2").await.problem();
    assert_eq!((unknown.0, &*unknown.1), (404, "no_instance"));
    // A command, and one request that starts and waits for the end.
    let commander = cluster
        .site
        .http(cluster.scheduler(), Role::CONTROLLER)
        .await;
    let gone = commander.send("DELETE", "/v1/instances/job.1", "").await;
    let gone = gone.ok(200);
    assert_eq!(gone["instance"]["exit_code"], 3, "{gone}");
    let again = commander.send("DELETE", "/v1/instances/job.1", "").await;
    assert_eq!(again.problem().0, 404, "{again:?}");
    assert!(again.body.contains("nothing to delete"), "{again:?}");
    let start = serde_json::json!({"start": {
        "instance_uuid": "one-request",
        "vm_type": "process",
        "command": ["/bin/sh", "-c", "exit 4"],
        "requirements": {"mem_mb": 16, "vcpus": 1},
    }});
    let path = "/v1/instances?wait=120s&until=ended";
    let done = commander
        .send("POST", path, &start.to_string())
        .await
        .ok(200);
    assert_eq!(done["instance"]["state"], "ended", "{done}");
    assert_eq!(done["instance"]["exit_code"], 4, "{done}");
    let wrong = commander
        .send("POST", "/v1/instances?until=later", &start.to_string())
        .await;
    assert_eq!(wrong.problem().2, "until");
}

#[tokio::test]
async fn a_viewer_reads_what_an_instance_wrote_from_where_it_says() {
    let (cluster, http) = cluster().await;
    let id = cluster
        .run(RUNNING, "printf 'one\\ntwo\\n\\033'; exec sleep 1000")
        .await;
    let path = format!("/v1/instances/{id}/output");
    let mut look = Look::new();
    let whole = loop {
        let answer = http.get(&path).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        if answer.head.contains("ciao-output-total: 9") {
            break answer;
        }
        look.again(|| format!("{answer:?}")).await;
    };
    assert_eq!(body(&whole.body), "one\ntwo\n\u{1b}");
    assert!(whole.head.contains("content-type: text/plain"), "{whole:?}");
    assert!(
        whole.head.contains("x-content-type-options: nosniff"),
        "{whole:?}"
    );
    for (query, expected) in [
        ("tail=2", "two\n\u{1b}"),
        ("offset=5", "wo\n\u{1b}"),
        ("offset=9", ""),
        ("tail=0", ""),
    ] {
        let answer = http.get(&format!("{path}?{query}")).await;
        assert_eq!(
            (answer.status, &*body(&answer.body)),
            (200, expected),
            "{query}"
        );
    }
    for (query, field) in [
        ("tail=-1", "tail"),
        ("offset=x", "offset"),
        ("follow=yes", "follow"),
    ] {
        let (status, reason, at) = http.get(&format!("{path}?{query}")).await.problem();
        assert_eq!((status, &*reason, &*at), (400, "invalid_parameter", field));
    }
}

#[tokio::test]
async fn a_stream_goes_on_until_the_instance_ends() {
    let (cluster, http) = cluster().await;
    let go_on = cluster.site.path("go-on");
    let script = format!(
        "echo begun; while [ ! -e {} ]; do sleep 0.05; done; echo more",
        go_on.display()
    );
    let id = cluster.run(RUNNING, &script).await;
    let mut stream = http.connect().await;
    let request = format!(
        "GET /v1/instances/{id}/output?follow HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    );
    within(stream.write_all(request.as_bytes())).await.unwrap();
    within(stream.flush()).await.unwrap();
    let mut text = Vec::new();
    let mut buffer = [0; 1024];
    while !String::from_utf8_lossy(&text).contains("begun\n") {
        let len = within(stream.read(&mut buffer)).await.unwrap();
        assert!(len > 0, "it ended: {:?}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&buffer[..len]);
    }
    std::fs::write(go_on, "").unwrap();
    let _ = within(stream.read_to_end(&mut text)).await;
    let text = String::from_utf8(text).unwrap();
    let (_, chunks) = text.split_once("\r\n\r\n").unwrap();
    assert_eq!(body(chunks), "begun\nmore\n");
    assert!(chunks.ends_with("0\r\n\r\n"), "it is whole: {chunks:?}");
}

#[tokio::test]
async fn a_stream_whose_node_is_lost_is_cut_off_and_a_new_one_is_a_problem() {
    let (mut cluster, http) = cluster().await;
    let id = cluster.run(RUNNING, "echo begun; exec sleep 1000").await;
    let path = format!("/v1/instances/{id}/output");
    let mut stream = http.connect().await;
    let request = format!("GET {path}?follow HTTP/1.1\r\nhost: localhost\r\n\r\n");
    within(stream.write_all(request.as_bytes())).await.unwrap();
    within(stream.flush()).await.unwrap();
    let mut buffer = [0; 1024];
    assert!(within(stream.read(&mut buffer)).await.unwrap() > 0);
    cluster.kill_launcher("node-a").await;
    let mut text = Vec::new();
    let _ = within(stream.read_to_end(&mut text)).await;
    assert!(!text.ends_with(b"0\r\n\r\n"), "its end is missing");
    let (status, reason, _) = http.get(&path).await.problem();
    assert_eq!((status, &*reason), (503, "node_lost"));
    let (status, reason, _) = http.get("/v1/instances/none/output").await.problem();
    assert_eq!((status, &*reason), (404, "no_instance"));
}

#[tokio::test]
async fn readers_that_leave_leave_no_session_behind() {
    let (cluster, http) = cluster().await;
    let id = cluster.run(RUNNING, "echo begun; exec sleep 1000").await;
    let path = format!("/v1/instances/{id}/output?follow");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let viewers = async || {
        let page = http.get("/v1/controllers").await.ok(200);
        let rows = page["items"].as_array().unwrap().iter();
        rows.filter(|row| row["standing"] == "viewer").count()
    };
    let before = viewers().await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = http.connect().await;
        within(stream.write_all(request.as_bytes())).await.unwrap();
        within(stream.flush()).await.unwrap();
        let mut buffer = [0; 1024];
        assert!(within(stream.read(&mut buffer)).await.unwrap() > 0);
        streams.push(stream);
    }
    assert_eq!(viewers().await, before + 5);
    drop(streams);
    let mut look = Look::new();
    loop {
        let now = viewers().await;
        if now == before {
            return;
        }
        look.again(|| format!("{now} are there, {before} were"))
            .await;
    }
}
