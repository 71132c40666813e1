//! What is read: lists page by page, selectors, fields, single rows, status and readiness.

use proto_frames::payload::{InstanceStopped, Payload};
use proto_frames::{Kind, Role};
use serde_json::Value;

use crate::client::Answer;
use crate::peer::Peer;
use crate::site::Site;
use crate::words::{PLENTY, instance, start};

fn hosts(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|row| row["hostname"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn nodes_are_listed_page_by_page_each_once() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut nodes = Vec::new();
    for _ in 0..5 {
        nodes.push(site.ready_node(&daemon).await);
    }
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut found = Vec::new();
    let mut path = "/v1/nodes?limit=2".to_owned();
    loop {
        let page = http.get(&path).await.ok(200);
        assert!(page["items"].as_array().unwrap().len() <= 2);
        assert!(page["sequence"].as_str().unwrap().contains('-'));
        found.extend(hosts(&page));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/nodes?limit=2&after={next}"),
            None => break,
        }
    }
    let mut expected: Vec<String> = nodes
        .iter()
        .map(|node| format!("host-{}", node.uuid))
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
    let first = &nodes[0];
    let one = http
        .get(&format!("/v1/nodes/host-{}?fields=node_uuid", first.uuid))
        .await;
    let row = &one.ok(200)["node"];
    assert_eq!(row["node_uuid"], first.uuid.to_string());
    assert_eq!(row.as_object().unwrap().len(), 1);
    let selector = format!("/v1/nodes?selector=hostname%20=%20host-{}", first.uuid);
    let page = http.get(&selector).await.ok(200);
    assert_eq!(hosts(&page), [format!("host-{}", first.uuid)]);
    // Few of many, one at a time: none is passed over, and none needs more than one request.
    let mut path = "/v1/nodes?selector=status%20=%20READY&limit=1".to_owned();
    let mut one_by_one = Vec::new();
    loop {
        let page = http.get(&path).await.ok(200);
        let found = hosts(&page);
        assert!(found.len() == 1 || page["next"].is_null(), "{page}");
        one_by_one.extend(found);
        match page["next"].as_str() {
            Some(next) => {
                path = format!("/v1/nodes?selector=status%20=%20READY&limit=1&after={next}");
            }
            None => break,
        }
    }
    one_by_one.sort();
    assert_eq!(one_by_one, expected);
    let none = http
        .get("/v1/nodes?selector=status%20!=%20READY")
        .await
        .ok(200);
    assert_eq!(hosts(&none), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_named() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    for (path, field) in [
        ("/v1/nodes?limit=0", "limit"),
        ("/v1/nodes?limit=1001", "limit"),
        ("/v1/nodes?after=nowhere", "after"),
        ("/v1/nodes?selector=zone", "selector"),
        ("/v1/nodes?fields=colour", "fields"),
        ("/v1/instances?selector=colour%20=%20red", "selector"),
        ("/v1/instances?selector=state%20=%20runing", "selector"),
        (
            "/v1/instances?selector=life%20not%20in%20(gone,%20lots)",
            "selector",
        ),
        ("/v1/queue?selector=state%20!=%20Waiting", "selector"),
        ("/v1/nodes?limit=1&limit=2", "limit"),
        ("/v1/nodes?colour=red", "colour"),
        ("/v1/events?topics=news", "topics"),
        ("/v1/events?from=yesterday", "from"),
    ] {
        let (status, reason, at) = http.get(path).await.problem();
        assert_eq!((status, &*reason), (400, "invalid_parameter"), "{path}");
        assert_eq!(at, field, "{path}");
    }
    for (path, expected) in [
        ("/v1/nodes/none", "no_such_node"),
        ("/v1/instances/none", "no_instance"),
        ("/v1/instances/none/history", "no_instance"),
        ("/v2/nodes", "no_such_path"),
    ] {
        let (status, reason, at) = http.get(path).await.problem();
        assert_eq!((status, &*reason, &*at), (404, expected, ""), "{path}");
    }
    let answer = http.send("PATCH", "/v1/nodes", "").await;
    assert_eq!(answer.problem().1, "method_not_allowed");
    assert!(answer.head.contains("allow: get,head"), "{answer:?}");
}

#[tokio::test]
async fn the_status_adds_up_and_the_probes_answer() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let mut master = site.master(&daemon).await;
    master.expect_node().await;
    master.send(Kind::START, start(instance(1), 7)).await;
    let started = node.expect_start().await;
    node.stats(&[started]).await;
    master.expect(Kind::STATS).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let status = http.get("/v1/status").await.ok(200);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["nodes"]["by_status"]["READY"], 1);
    assert_eq!(status["instances"]["on_nodes"], 1);
    assert_eq!(status["instances"]["unconfirmed"], 0);
    assert_eq!(status["resources"]["mem_mb"]["claimed"], 7);
    assert_eq!(status["starts"]["placed"], 1);
    assert_eq!(status["controllers"], 1);
    assert_eq!(status["store"]["state"], "memory");
    let row = http.get(&format!("/v1/instances/{started}")).await.ok(200);
    assert_eq!(row["instance"]["state"], "running");
    let agent = site.http(&daemon, Role::AGENT).await;
    assert_eq!(agent.get("/livez").await.body, "ok\n");
    let ready = agent.get("/readyz?verbose").await.ok(200);
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["checks"].as_array().unwrap().len(), 4, "{ready}");
    assert_eq!(status["well"], true, "{status}");
    assert_eq!(ready["conditions"], Value::Null, "for those who may read");
    let evacuate = format!(
        "evacuate:\n  workload_agent_uuid: {}\n  mode: cordon\n",
        node.uuid
    );
    master.send(Kind::EVACUATE, evacuate.into_bytes()).await;
    let listed = loop {
        let listed = http.get("/readyz?verbose").await.ok(200);
        if listed["conditions"]
            .as_array()
            .is_some_and(|it| it.len() == 2)
        {
            break listed;
        }
        tokio::task::yield_now().await;
    };
    let status = http.get("/v1/status").await.ok(200);
    assert_eq!(status["well"], false);
    for list in [&listed["conditions"], &status["conditions"]] {
        assert_eq!(list[0]["kind"], "no_node", "{list}");
        assert_eq!(list[1]["kind"], "node_cordoned", "{list}");
        assert_eq!(list[1]["subject"], node.uuid.to_string(), "{list}");
        assert!(
            list[1]["since_s"].is_u64() && list[1]["advice"].is_string(),
            "{list}"
        );
    }
    assert_eq!(status["nodes"]["by_status"]["CORDONED"], 1);
    assert_eq!(
        agent.get("/readyz").await.ok(200)["checks"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test]
async fn a_viewer_reads_over_ssntp_and_commands_nothing() {
    use proto_frames::Encoding;
    use proto_frames::payload::{QueryKind, RefusalReason, Topic};

    let (site, daemon) = Site::with_http(&[]).await;
    let mut viewer = site.connect(&daemon, Role::VIEWER, Encoding::Native).await;
    viewer.watch(&[Topic::Nodes]).await;
    let node = site.ready_node(&daemon).await;
    assert_eq!(viewer.expect_node().await, node.uuid);
    assert_eq!(viewer.query(QueryKind::Nodes).await.nodes.len(), 1);
    viewer.start(instance(1), 1).await;
    let refused = viewer.expect_refused().await;
    assert_eq!(refused.reason, RefusalReason::NotPermitted);
    let original = site.dialer(&daemon, Role::VIEWER, Encoding::Gob);
    assert_eq!(original.refusal().await, Kind::CONNECTION_ABORTED);
}

/// The value of a header of an answer.
fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let lines = answer.head.lines().filter_map(|line| line.split_once(": "));
    let mut found = lines.filter(|(its, _)| *its == name);
    found.next().map(|(_, value)| value)
}

#[tokio::test]
async fn a_head_has_the_length_of_what_get_answers_or_none() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    for path in ["/v1/nodes", "/v1/openapi.json", "/livez", "/no/such/path"] {
        let got = http.get(path).await;
        let head = http.send("HEAD", path, "").await;
        assert_eq!((head.status, &*head.body), (got.status, ""), "{path}");
        let length = header(&head, "content-length");
        assert_eq!(length, Some(&*got.body.len().to_string()), "{path}");
        assert_eq!(length, header(&got, "content-length"), "{path}");
    }
    let stream = http.send("HEAD", "/v1/events", "").await;
    assert_eq!((stream.status, &*stream.body), (200, ""), "{stream:?}");
    assert_eq!(header(&stream, "content-length"), None, "{stream:?}");
}

#[tokio::test]
async fn proxies_are_told_to_pass_streams_on_as_they_come() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let stream = http.send("HEAD", "/v1/events", "").await;
    assert_eq!(
        header(&stream, "x-accel-buffering"),
        Some("no"),
        "{stream:?}"
    );
    assert_eq!(
        header(&http.get("/v1/nodes").await, "x-accel-buffering"),
        None
    );
}

#[tokio::test]
async fn a_slash_at_the_end_of_a_path_makes_no_difference() {
    let (site, daemon) = Site::with_http(&[]).await;
    let node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    for path in [
        "/v1/nodes/?limit=1",
        &format!("/v1/nodes/{}/", node.uuid),
        "/livez/",
    ] {
        assert_eq!(http.get(path).await.status, 200, "{path}");
    }
    assert_eq!(http.get("/v1/none/").await.problem().1, "no_such_path");
}

#[tokio::test]
async fn the_list_of_ends_says_how_far_back_it_reaches() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let ended = http.get("/v1/instances?ended=true").await.ok(200);
    assert_eq!(ended["items"], serde_json::json!([]));
    assert_eq!(ended["forgotten"], 0, "{ended}");
    let before = ended["complete_for_ms"].as_i64().expect("a time");
    assert!(before >= 0, "{ended}");
    // Of what is there nothing is forgotten: the list does not speak of it.
    let there = http.get("/v1/instances").await.ok(200);
    assert_eq!(there.get("complete_for_ms"), None, "{there}");
    assert_eq!(there.get("forgotten"), None, "{there}");
}

/// Runs an instance called `web` of this tenant to its end.
async fn run_web(master: &mut Peer, node: &mut Peer, number: u128, tenant: &str) {
    let id = instance(number);
    let start = format!(
        "start:\n  instance_uuid: {id}\n  tenant_uuid: {tenant}\n  requirements: {{mem_mb: 1, vcpus: 1}}\n  scheduling: \
         {{name: web}}\n"
    );
    master.send(Kind::START, start).await;
    assert_eq!(node.expect_start().await, id);
    node.stats(&[id]).await;
    node.settle().await;
    let stopped = InstanceStopped {
        instance_uuid: id.to_string(),
        ..InstanceStopped::default()
    };
    node.send(Kind::INSTANCE_STOPPED, stopped.encode()).await;
    node.settle().await;
}

#[tokio::test]
async fn a_name_of_what_ended_is_the_latest_one_s_unless_several_tenants_used_it() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut master = site.master(&daemon).await;
    let mut node = site.node(&daemon).await;
    node.ready(PLENTY).await;
    node.settle().await;
    let http = site.http(&daemon, Role::VIEWER).await;
    run_web(&mut master, &mut node, 1, "red").await;
    run_web(&mut master, &mut node, 2, "red").await;
    let found = http.get("/v1/instances/web").await.ok(200);
    assert_eq!(found["instance"]["instance_uuid"], instance(2).to_string());
    assert_eq!(found["instance"]["tenant_uuid"], "red");
    run_web(&mut master, &mut node, 3, "blue").await;
    for path in ["/v1/instances/web", "/v1/instances/web/history"] {
        let answer = http.get(path).await;
        assert_eq!(answer.problem().1, "ambiguous", "{answer:?}");
        assert_eq!(answer.json()["detail"], "3 instances are called 'web'");
        let help = answer.json()["help"].as_str().unwrap().to_owned();
        assert!(help.contains("GET /v1/instances?ended=true"), "{help}");
    }
}
