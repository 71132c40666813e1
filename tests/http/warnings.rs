//! What in a START does not do what it seems to: it is warned of in every answer, and refused with `strict`.

use proto_frames::Role;
use serde_json::{Value, json};

use crate::client::Answer;
use crate::site::Site;

const JSON: &str = r#"{"start": {"instance_uuid": "00000000-0000-4000-8000-00000000000a", "vm_type": "process", "restart": true,
    "comand": ["true"],
    "requirements": {"mem_mb": 1, "vcpus": 1, "vcpu": 2}, "\u202e\u001b[2J": 1}}"#;

const YAML: &str = "\
start:
  instance_uuid: 00000000-0000-4000-8000-00000000000b
  vm_type: process
  comand: [true]
  requirements: {mem_mb: 1, vcpus: 1, vcpu: 2}
  restart: true
  \"\\u202E\\e[2J\": 1
...
start: {nothing: here}
";

/// What is warned of in both.
const RESTART: &str = "start.restart is the original's mark that the instance ran before, and no policy: nothing is \
                       started again by it; did you mean 'start.scheduling.restart: {when: on-failure}', or \
                       'start.scheduling.on_node_loss: restart'?";

/// The warnings of an answer, without their lines.
fn warnings(of: &Value) -> Vec<String> {
    let warnings = of["warnings"].as_array().expect("warnings");
    let texts = warnings.iter().map(|it| it.as_str().unwrap());
    let without_line = |text: &str| match text.strip_prefix("line ") {
        Some(rest) => rest.split_once(": ").unwrap().1.to_owned(),
        None => text.to_owned(),
    };
    texts.map(without_line).collect()
}

#[tokio::test]
async fn keys_that_mean_nothing_are_in_the_answer_with_what_may_be_meant() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let expected = [
        "start.comand: no such key, ignored; did you mean 'command'?",
        "start.requirements.vcpu: no such key, ignored; did you mean 'vcpus'?",
        "start.\\u{202e}\\u{1b}[2J: no such key, ignored",
        RESTART,
    ];
    for (body, lines) in [
        (JSON, ["line 2: ", "line 3: "]),
        (YAML, ["line 4: ", "line 5: "]),
    ] {
        for path in ["/v1/explain", "/v1/instances", "/v1/instances"] {
            let answer = http.send("POST", path, body).await;
            let answer = match (path, answer.status) {
                ("/v1/instances", 202) => answer.ok(202),
                _ => answer.ok(200),
            };
            assert_eq!(warnings(&answer), expected, "{path}: {answer}");
            for (at, line) in lines.iter().enumerate() {
                let text = answer["warnings"][at].as_str().unwrap();
                assert!(text.starts_with(line), "{path}: {text}");
            }
        }
        node.expect_start().await;
    }
    let right = json!({"start": {"instance_uuid": "c", "requirements": {"mem_mb": 1, "vcpus": 1}}});
    let answer = http.send("POST", "/v1/explain", &right.to_string()).await;
    assert_eq!(answer.ok(200)["warnings"], json!([]));
    node.nothing_else().await;
}

#[tokio::test]
async fn a_start_that_fails_is_answered_with_what_may_be_why() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    for path in ["/v1/instances", "/v1/explain"] {
        let answer = http.send("POST", path, YAML).await;
        if path == "/v1/instances" {
            assert_eq!(answer.problem().1, "no_cn");
        }
        assert_eq!(warnings(&answer.json()).len(), 4, "{path}: {answer:?}");
    }
}

#[tokio::test]
async fn with_strict_what_is_warned_of_refuses_the_start() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let refused = |answer: &Answer, field: &str, detail: &str| {
        let (status, reason, at) = answer.problem();
        assert_eq!(
            (status, &*reason, &*at),
            (422, "invalid_data", field),
            "{answer:?}"
        );
        let found = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(found.contains(detail), "{found}");
    };
    for path in [
        "/v1/explain?strict",
        "/v1/instances?strict=true",
        "/v1/instances?wait=5s&strict",
    ] {
        for body in [JSON, YAML] {
            let answer = http.send("POST", path, body).await;
            refused(
                &answer,
                "start.comand",
                "start.comand: no such key; did you mean 'command'?; line ",
            );
            refused(&answer, "start.comand", RESTART);
        }
        let restart = r#"{"start": {"instance_uuid": "a", "restart": true}}"#;
        refused(
            &http.send("POST", path, restart).await,
            "start.restart",
            RESTART,
        );
        let no_type = r#"{"start": {"instance_uuid": "a", "command": ["true"]}}"#;
        refused(
            &http.send("POST", path, no_type).await,
            "start.vm_type",
            "'qemu'",
        );
    }
    let answer = http.send("POST", "/v1/explain?strict=false", YAML).await;
    assert_eq!(answer.ok(200)["decision"]["fits"], 1);
    let wrong = http.send("POST", "/v1/explain?strict=yes", YAML).await;
    assert_eq!(wrong.problem().2, "strict");
    node.nothing_else().await;
}

#[tokio::test]
async fn many_keys_that_mean_nothing_are_counted_and_long_ones_cut() {
    let (site, daemon) = Site::with_http(&[]).await;
    let _node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let keys: String = (0..2000)
        .map(|number| format!("\"{number}{}\": 1,", "x".repeat(90)))
        .collect();
    let body =
        format!("{{\"start\": {{{keys} \"requirements\": {{\"mem_mb\": 1, \"vcpus\": 1}}}}}}");
    let answer = http.send("POST", "/v1/explain", &body).await.ok(200);
    let found = warnings(&answer);
    assert_eq!(found.len(), 11, "{found:?}");
    assert_eq!(found[10], "1990 more keys that do not exist, ignored");
    assert!(found.iter().all(|text| text.len() < 200), "{found:?}");
}

#[tokio::test]
async fn a_start_that_is_only_asked_about_needs_no_instance() {
    let (site, daemon) = Site::with_http(&[]).await;
    let _node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    for body in [
        "start:\n  requirements: {mem_mb: 1, vcpus: 1}\n",
        "start: {instance_uuid: '', requirements: {mem_mb: 1, vcpus: 1}}\n",
        "start:\n  instance_uuid:\n  requirements: {mem_mb: 1, vcpus: 1}\n",
        r#"{"start": {"requirements": {"mem_mb": 1, "vcpus": 1}}}"#,
        r#"{"start": {"instance_uuid": "", "requirements": {"mem_mb": 1, "vcpus": 1}}}"#,
        r#"{"start": {"instance_uuid": null, "requirements": {"mem_mb": 1, "vcpus": 1}}}"#,
    ] {
        let answer = http.send("POST", "/v1/explain", body).await;
        assert_eq!(answer.ok(200)["decision"]["fits"], 1, "{body}");
    }
}
