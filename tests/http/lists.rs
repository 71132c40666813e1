//! Lists while nodes come and come back: each instance and each node is on one page, and on some page.

use std::collections::BTreeMap;

use proto_frames::{Encoding, Kind, Role, Uuid};
use serde_json::Value;
use tokio::sync::watch;

use crate::client::Http;
use crate::peer::{Dialer, Peer};
use crate::site::{Daemon, Site, output, within};
use crate::words::{PLENTY, instance};

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
    between: impl AsyncFnMut(usize),
) -> BTreeMap<String, Vec<String>> {
    pages(
        http,
        ("instances", "instance_uuid", "state"),
        query,
        between,
    )
    .await
}

/// The same of any list, by the fields that name a row and say how it is.
async fn pages(
    http: &Http,
    (list, id, state): (&str, &str, &str),
    query: &str,
    mut between: impl AsyncFnMut(usize),
) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut after = String::new();
    for page in 0.. {
        let path = format!("/v1/{list}?{query}{after}");
        // Asked twice, as after an answer that was cut off: the second one counts.
        http.get(&path).await.ok(200);
        let answer = http.get(&path).await.ok(200);
        for row in answer["items"].as_array().unwrap() {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            found.entry(text(id)).or_default().push(text(state));
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

/// Nodes of the scheduler before it is started again.
const BEFORE: usize = 12;

/// Instances on each of them.
const ON_EACH: usize = 500;

/// A scheduler that was started again and waits for its nodes, and how each of these connects.
struct Recovering {
    site: Site,
    daemon: Daemon,
    nodes: Vec<Dialer>,
}

/// The instances of the node with this number.
fn of_node(node: usize) -> Vec<Uuid> {
    let from = node * ON_EACH;
    (from..from + ON_EACH)
        .map(|at| instance(at as u128))
        .collect()
}

impl Recovering {
    /// One whose nodes had so many instances each: every other one is managed.
    async fn with(instances: usize) -> Self {
        let site = Site::new();
        let state = site.path("state").display().to_string();
        let flags = [
            "--http",
            "127.0.0.1:0",
            "--state-dir",
            &state,
            "--settle-time",
            "10min",
            "--in-doubt-time",
            "10min",
        ];
        let mut daemon = site.start(&flags).await;
        let mut master = site.master(&daemon).await;
        let mut nodes = Vec::new();
        for number in 0..BEFORE {
            let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
            let mut node = dialer.connect().await;
            node.ready(PLENTY).await;
            node.settle().await;
            let uuid = node.uuid;
            let start = |(at, id): (usize, &Uuid)| {
                let relocate = at % 2 == 1;
                let start = format!(
                    "start:\n  instance_uuid: {id}\n  requirements: {{mem_mb: 1, vcpus: 1}}\n  scheduling: \
                     {{queue: 1h, relocate: {relocate}, require: [node.uuid = {uuid}]}}\n"
                );
                (Kind::START, start.into())
            };
            let ids = of_node(number);
            let starts = ids.iter().take(instances).enumerate().map(start);
            master.pour(starts).await;
            let mut came = 0;
            while came < instances {
                let frame = node.next().await.unwrap();
                came += usize::from(frame.kind == Kind::START);
            }
            node.stats(&ids[..instances]).await;
            node.settle().await;
            for frame in master.settle().await {
                assert_ne!(frame.kind, Kind::START_FAILURE, "{frame:?}");
            }
            // It stays connected until the scheduler leaves.
            nodes.push((dialer, node));
        }
        daemon.logged(&format!("{BEFORE} nodes remembered")).await;
        daemon.terminate();
        daemon.ended().await;
        let daemon = site.start(&flags).await;
        let nodes = nodes.into_iter().map(|(dialer, _)| Dialer {
            address: daemon.address,
            ..dialer
        });
        Self {
            nodes: nodes.collect(),
            site,
            daemon,
        }
    }

    /// A node comes back, and says what it has.
    async fn comes_back(&self, number: usize, instances: usize) -> Peer {
        let mut node = self.nodes[number].connect().await;
        node.ready(PLENTY).await;
        node.stats(&of_node(number)[..instances]).await;
        node.settle().await;
        node
    }
}

/// Each of these is listed once.
fn is_whole(found: &BTreeMap<String, Vec<String>>, count: usize) {
    let several: Vec<_> = found
        .iter()
        .filter(|(_, states)| states.len() > 1)
        .collect();
    assert!(
        several.is_empty(),
        "{} are listed several times: {:?}",
        several.len(),
        several.first()
    );
    assert_eq!(found.len(), count);
}

#[tokio::test]
async fn while_nodes_come_back_after_a_restart_each_instance_is_on_one_page() {
    let cluster = Recovering::with(ON_EACH).await;
    let http = cluster.site.http(&cluster.daemon, Role::VIEWER).await;
    let mut nodes: Vec<Peer> = Vec::new();
    let found = listed(&http, "limit=400", async |_| {
        if nodes.len() < BEFORE {
            nodes.push(cluster.comes_back(nodes.len(), ON_EACH).await);
        }
    })
    .await;
    assert_eq!(nodes.len(), BEFORE, "the list had too few pages");
    is_whole(&found, BEFORE * ON_EACH);
    let lost = found
        .values()
        .flatten()
        .filter(|state| *state == "lost")
        .count();
    assert!(
        (1..BEFORE * ON_EACH).contains(&lost),
        "{lost} were lost when they were shown"
    );
}

/// What `ciaoctl` lists in JSON.
async fn ciaoctl_lists(cluster: &Recovering, list: &str) -> Vec<Value> {
    let mut command = cluster.site.ciaoctl(cluster.daemon.address);
    command.args([list, "--json"]);
    let ran = output(command).await;
    let listed: Value = serde_json::from_slice(&ran.stdout).unwrap();
    listed[list].as_array().unwrap().clone()
}

#[tokio::test]
async fn while_nodes_come_back_after_a_restart_ciaoctl_lists_each_instance_and_node_once() {
    let cluster = Recovering::with(ON_EACH).await;
    // How many listings are done. None begins before the one before it is.
    let (done, mut listings) = watch::channel(0_usize);
    let lists = async {
        let mut states: Vec<usize> = Vec::new();
        loop {
            let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for row in ciaoctl_lists(&cluster, "instances").await {
                let text = |key: &str| row[key].as_str().unwrap().to_owned();
                found
                    .entry(text("instance_uuid"))
                    .or_default()
                    .push(text("state"));
            }
            is_whole(&found, BEFORE * ON_EACH);
            let states_now = found.values().flatten();
            let lost = states_now.filter(|state| *state == "lost").count();
            states.push(lost);
            done.send_modify(|done| *done += 1);
            let nodes = ciaoctl_lists(&cluster, "nodes").await;
            assert_eq!(nodes.len(), BEFORE, "{nodes:?}");
            if lost == 0 {
                return states;
            }
        }
    };
    let come_back = async {
        let mut nodes: Vec<Peer> = Vec::new();
        for number in 0..BEFORE {
            if [0, BEFORE / 2].contains(&number) {
                // One that began since the node before came back, and ended before this one does.
                let before = *listings.borrow_and_update();
                let has_listed = |done: &usize| *done >= before + 2;
                listings.wait_for(has_listed).await.unwrap();
            }
            nodes.push(cluster.comes_back(number, ON_EACH).await);
        }
        nodes
    };
    let (states, _nodes) = within(async { tokio::join!(lists, come_back) }).await;
    assert!(states.is_sorted_by(|a, b| a >= b), "{states:?}");
    for lost in [BEFORE, BEFORE - BEFORE / 2] {
        assert!(states.contains(&(lost * ON_EACH)), "{states:?}");
    }
}

#[tokio::test]
async fn while_nodes_come_back_after_a_restart_each_node_is_on_one_page() {
    let cluster = Recovering::with(1).await;
    let http = cluster.site.http(&cluster.daemon, Role::VIEWER).await;
    let mut nodes: Vec<Peer> = Vec::new();
    // In another order than that of the list, which is by UUID.
    let found = pages(
        &http,
        ("nodes", "node_uuid", "status"),
        "limit=2",
        async |page| {
            for number in [page * 2, page * 2 + 1] {
                if number < BEFORE {
                    nodes.push(cluster.comes_back(number, 1).await);
                }
            }
        },
    )
    .await;
    is_whole(&found, BEFORE);
    let states: Vec<&String> = found.values().flatten().collect();
    assert!(states.iter().any(|state| *state == "EXPECTED"), "{found:?}");
    assert!(states.iter().any(|state| *state == "READY"), "{found:?}");
}
