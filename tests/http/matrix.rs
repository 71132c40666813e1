//! Who may use which route: every route of the document with every role of a certificate.

use proto_frames::Role;
use serde_json::Value;

use crate::site::Site;

const ROLES: [Role; 6] = [
    Role::CONTROLLER,
    Role::VIEWER,
    Role::AGENT,
    Role::NETAGENT,
    Role::CNCIAGENT,
    Role::SERVER,
];

/// Whether a certificate of this role may use a route that is for these.
fn may(role: Role, roles: &str) -> bool {
    match roles {
        "every peer" => true,
        "VIEWER, OPERATOR" => role == Role::VIEWER || role == Role::CONTROLLER,
        "OPERATOR" => role == Role::CONTROLLER,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn every_route_is_for_the_roles_that_the_document_names() {
    let (site, daemon) = Site::with_http(&[]).await;
    let reader = site.http(&daemon, Role::VIEWER).await;
    let document = reader.get("/v1/openapi.json").await.ok(200);
    let paths = document["paths"].as_object().unwrap();
    let mut tried = 0;
    for role in ROLES {
        let http = site.http(&daemon, role).await;
        for (path, methods) in paths {
            for (method, operation) in methods.as_object().unwrap() {
                let roles = operation["x-roles"].as_str().unwrap();
                if path == "/v1/events" && may(role, roles) {
                    // It has no end.
                    continue;
                }
                let path = path.replace("{id}", "none");
                let answer = http.send(&method.to_ascii_uppercase(), &path, "").await;
                let case = format!("{role}: {method} {path}: {answer:?}");
                assert_eq!(answer.status == 403, !may(role, roles), "{case}");
                if answer.status == 403 {
                    assert_eq!(answer.problem().1, "not_permitted", "{case}");
                    assert!(answer.json()["help"].is_string(), "{case}");
                }
                tried += 1;
            }
        }
    }
    assert!(tried > 140, "{tried} cases");
}

#[tokio::test]
async fn commands_have_no_effect_for_who_may_not_give_them() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let viewer = site.http(&daemon, Role::VIEWER).await;
    let start = r#"{"start": {"instance_uuid": "a", "requirements": {"mem_mb": 1, "vcpus": 1}}}"#;
    assert_eq!(
        viewer.send("POST", "/v1/instances", start).await.status,
        403
    );
    let path = format!("/v1/nodes/{}/cordon", node.uuid);
    assert_eq!(viewer.send("POST", &path, "").await.status, 403);
    let decision = viewer.send("POST", "/v1/explain", start).await.ok(200);
    assert_eq!(decision["decision"]["fits"], 1, "it may ask: {decision}");
    node.nothing_else().await;
    let row = viewer
        .get(&format!("/v1/nodes/{}", node.uuid))
        .await
        .ok(200);
    assert_eq!(row["node"].get("cordoned"), None);
}

#[tokio::test]
async fn every_operation_of_the_document_is_whole() {
    let (site, daemon) = Site::with_http(&[]).await;
    let reader = site.http(&daemon, Role::VIEWER).await;
    let document = reader.get("/v1/openapi.json").await.ok(200);
    let mut ids = Vec::new();
    for methods in document["paths"].as_object().unwrap().values() {
        for operation in methods.as_object().unwrap().values() {
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            assert!(!operation["summary"].as_str().unwrap().is_empty());
        }
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "each has a name of its own");
    // Every reference leads somewhere.
    let mut open = vec![&document];
    while let Some(value) = open.pop() {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(to)) = fields.get("$ref") {
                    let to = to.strip_prefix('#').unwrap();
                    assert!(document.pointer(to).is_some(), "{to}");
                }
                open.extend(fields.values());
            }
            Value::Array(items) => open.extend(items),
            _ => {}
        }
    }
}
