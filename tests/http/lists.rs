//! Lists while nodes come: each instance is on one page, and on some page.

use std::collections::BTreeMap;

use proto_frames::{Kind, Role, Uuid};

use crate::client::Http;
use crate::peer::Peer;
use crate::site::Site;
use crate::words::instance;

const NODES: usize = 6;

const INSTANCES: usize = 6000;

/// What one of the nodes has room for.
const EACH: i64 = 1000;

/// A START of an instance that waits while there is no room.
fn start(instance: Uuid) -> String {
    format!(
        "start:\n  instance_uuid: {instance}\n  requirements: {{mem_mb: 1, vcpus: 1}}\n  scheduling: {{queue: 1h}}\n"
    )
}

/// How often each instance is on the pages of a list, in which states, where something happens behind each page.
async fn listed(
    http: &Http,
    query: &str,
    mut between: impl AsyncFnMut(usize),
) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut after = String::new();
    for page in 0.. {
        let path = format!("/v1/instances?{query}{after}");
        // Asked twice, as after an answer that was cut off: the second one counts.
        http.get(&path).await.ok(200);
        let answer = http.get(&path).await.ok(200);
        for row in answer["items"].as_array().unwrap() {
            let id = row["instance_uuid"].as_str().unwrap().to_owned();
            let state = row["state"].as_str().unwrap().to_owned();
            found.entry(id).or_default().push(state);
        }
        let Some(next) = answer["next"].as_str() else {
            break;
        };
        after = format!("&after={}", next.replace(':', "%3A").replace('@', "%40"));
        between(page).await;
    }
    found
}

#[tokio::test]
async fn while_nodes_come_each_instance_is_on_one_page() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut master = site.master(&daemon).await;
    // The last of the list are the first of the queue.
    let starts = (0..INSTANCES)
        .rev()
        .map(|at| (Kind::START, start(instance(at as u128)).into()));
    master.pour(starts).await;
    for frame in master.settle().await {
        assert_ne!(frame.kind, Kind::START_FAILURE, "{frame:?}");
    }
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut nodes: Vec<Peer> = Vec::new();
    let found = listed(&http, "limit=500", async |page| {
        // What is placed on it was shown, or is still to be shown, while it waited.
        if page % 2 == 1 && nodes.len() < NODES {
            let mut node = site.node(&daemon).await;
            node.ready(EACH).await;
            node.settle().await;
            nodes.push(node);
        }
    })
    .await;
    assert_eq!(nodes.len(), NODES, "the list had too few pages");
    let several: Vec<_> = found
        .iter()
        .filter(|(_, states)| states.len() > 1)
        .collect();
    assert!(
        several.is_empty(),
        "{} are on several pages: {:?}",
        several.len(),
        several.first()
    );
    assert_eq!(found.len(), INSTANCES);
    let states = found.values().flatten();
    let waited = states.filter(|state| *state == "waiting").count();
    assert!(
        (1..INSTANCES).contains(&waited),
        "{waited} waited when they were shown"
    );
}
