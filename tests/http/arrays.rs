//! Arrays over HTTP: started, shown, run once more and deleted, and what is refused.

use proto_frames::Role;
use proto_frames::payload::{InstanceDeleted, Payload, Start};
use proto_frames::{Frame, Kind, Uuid};
use serde_json::{Value, json};

use crate::client::Http;
use crate::site::Site;
use crate::words::instance;

const ARRAY: &str = "67d86208-b46c-4465-9018-e14187d4010f";

fn body(array: &Value, values: &[&str]) -> String {
    json!({
        "array": array,
        "start": {
            "instance_uuid": ARRAY,
            "vm_type": "process",
            "command": ["sim", "{index}", "{value}"],
            "requirements": {"mem_mb": 7, "vcpus": 1},
            "scheduling": {"name": "sweep"},
        },
        "values": values,
    })
    .to_string()
}

fn gone(instance: Uuid) -> Vec<u8> {
    let deleted = InstanceDeleted {
        instance_uuid: instance.to_string(),
        ..InstanceDeleted::default()
    };
    deleted.encode().to_vec()
}

async fn shown(http: &Http) -> Value {
    http.get("/v1/arrays/sweep").await.ok(200)["array"].clone()
}

#[tokio::test]
async fn an_array_is_started_shown_and_deleted() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut node = site.ready_node(&daemon).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let one_at_a_time = body(&json!({"running_max": 1}), &["a \"b\"", "{index}"]);
    let answer = http.send("POST", "/v1/arrays", &one_at_a_time).await;
    let array = answer.ok(200)["array"].clone();
    assert_eq!(
        (&array["elements"], &array["indexes"]),
        (&2.into(), &"0-1".into())
    );
    let frame: Frame = node.expect(Kind::START).await;
    let start = Start::decode(&frame.payload).unwrap();
    assert_eq!(start.command, ["sim", "0", "a \"b\""]);
    assert_eq!(start.env["CIAO_ARRAY_COUNT"], "2");
    assert_eq!(start.scheduling.unwrap().name, "sweep-0");
    let element = start.instance_uuid.parse().unwrap();
    node.stats(&[element]).await;

    // The same again is the array that is there, and another one of its UUID a conflict.
    let again = http.send("POST", "/v1/arrays", &one_at_a_time).await;
    assert_eq!(again.ok(200)["array"]["array_uuid"], ARRAY);
    let other = body(&json!({"running_max": 2}), &["a \"b\"", "{index}"]);
    let refused = http.send("POST", "/v1/arrays", &other).await;
    assert_eq!(refused.problem().1, "instance_exists");

    let listed = http.get("/v1/arrays?fields=name,running,waiting").await;
    let expected = json!([{"name": "sweep", "running": 1, "waiting": 1}]);
    assert_eq!(listed.ok(200)["items"], expected);

    node.send(Kind::INSTANCE_DELETED, gone(element)).await;
    let frame: Frame = node.expect(Kind::START).await;
    let second = Start::decode(&frame.payload).unwrap();
    assert_eq!(second.command, ["sim", "1", "{index}"]);

    let answer = http.send("DELETE", "/v1/arrays/sweep", "").await;
    assert_eq!(answer.ok(200)["array"]["waiting"], 0);
    node.expect(Kind::DELETE).await;
    let element = second.instance_uuid.parse().unwrap();
    node.send(Kind::INSTANCE_DELETED, gone(element)).await;
    while shown(&http).await["state"] != "ended" {}
    let answer = http.send("DELETE", "/v1/arrays/sweep", "").await;
    assert_eq!(answer.ok(200)["array"], Value::Null);
    let gone = http.get("/v1/arrays/sweep").await;
    assert_eq!(gone.problem().1, "no_such_array");
    let none = instance(1).to_string();
    let rerun = http
        .send("POST", &format!("/v1/arrays/{none}/rerun"), "")
        .await;
    assert_eq!(rerun.problem().1, "no_such_array");
}

#[tokio::test]
async fn what_is_no_array_is_refused_by_its_key() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    for (array, values, field) in [
        (json!({"indexes": "5-1"}), &["a"][..], "start_array.indexes"),
        (json!({"indexes": "0-4"}), &["a"], "start_array.indexes"),
        (json!({"running_max": 0}), &["a"], "start_array.running_max"),
        (json!({"start_bytes": 3}), &["a"], "array"),
        (json!({"indices": "0-4"}), &["a"], "array.indices"),
        (json!({}), &["a\nb"], "values[0]"),
        (json!({"indexes": "0-1"}), &[], "start_array.bytes"),
    ] {
        let answer = http.send("POST", "/v1/arrays", &body(&array, values)).await;
        let (status, _, at) = answer.problem();
        assert!(matches!(status, 400 | 422), "{answer:?}");
        assert_eq!(at, field, "{answer:?}");
    }
    let listed = http.get("/v1/arrays").await;
    assert_eq!(listed.ok(200)["items"], json!([]));
}
