//! Requests to the router without connections: lists of a cluster larger than there are descriptors for, and a body that
//! never ends.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::*;
use crate::server::credentials::tests::live;
use crate::server::hub::tests::{Joined, hub};
use sched_core::{InstanceId, MAX_PAST_BYTES};

/// How many nodes the large cluster has, unless the variable `CIAO_NODES` says otherwise.
const NODES: usize = 10_000;

/// STARTs between two pages.
const STARTS_PER_PAGE: usize = 40;

/// A door without a listener, and a connection of an operator.
struct World {
    hub: Arc<Hub>,
    router: Router,
}

impl World {
    fn new() -> Self {
        Self::of(Role::CONTROLLER | Role::OPERATOR)
    }

    /// The same with a connection of these roles.
    fn of(roles: Role) -> Self {
        let hub = Arc::new(hub());
        let door = HttpDoor::open(&hub, &live(None));
        let identity = PeerIdentity {
            roles,
            bound_uuid: None,
            subject: "O=ciao".to_owned(),
            fingerprint: [0; 32],
            ends_at_s: 0,
        };
        let connection = Arc::new(Connection {
            identity,
            from: ([127, 0, 0, 1], 1).into(),
            caller: OnceLock::new(),
        });
        let router = door.router.clone().layer(Extension(connection));
        Self { hub, router }
    }

    async fn answer(&self, method: &str, path: &str, body: Body) -> Response {
        let request = Request::builder().method(method).uri(path).body(body);
        let service = TowerToHyperService::new(self.router.clone());
        service.call(request.unwrap()).await.unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: Body) -> (StatusCode, Bytes) {
        let response = self.answer(method, path, body).await;
        let status = response.status();
        let body = to_bytes(Body::new(response.into_body()), usize::MAX);
        (status, body.await.unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send("GET", path, Body::empty()).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body:?}");
        serde_json::from_slice(&body).unwrap()
    }

    /// Turns of the scheduler's lock that took longer than this, and all.
    fn holds_beyond(&self, limit: Duration) -> (u64, u64) {
        let read = self.hub.holds.read();
        let within = read
            .bounds_s
            .iter()
            .filter(|bound| **bound <= limit.as_secs_f64());
        let all = read.counts.iter().sum();
        (read.counts.iter().skip(within.count()).sum(), all)
    }
}

/// How large the large cluster is.
fn nodes() -> usize {
    let said = std::env::var("CIAO_NODES").ok();
    said.map_or(NODES, |text| text.parse().expect("CIAO_NODES is a number"))
}

#[tokio::test]
async fn a_large_cluster_is_listed_page_by_page_while_starts_go_on() {
    let world = World::new();
    let master = Joined::new(&world.hub, Role::CONTROLLER);
    let peers: Vec<Joined> = (0..nodes()).map(|_| Joined::node(&world.hub)).collect();
    master.take();
    let before = world.holds_beyond(Duration::from_millis(2));
    let (mut listed, mut started) = (BTreeSet::new(), 0);
    let mut path = "/v1/nodes?limit=1000".to_owned();
    loop {
        let page = world.get(&path).await;
        let items = page["items"].as_array().unwrap();
        let uuids = items.iter().map(|row| row["node_uuid"].as_str().unwrap());
        for uuid in uuids {
            assert!(listed.insert(uuid.to_owned()), "{uuid} is listed twice");
        }
        for _ in 0..STARTS_PER_PAGE {
            master.start(&world.hub, started, 100);
            started += 1;
        }
        // The STARTs leave for their nodes meanwhile, so that no queue holds the master back.
        let at = listed.len().min(peers.len() - 1);
        peers[..=at].iter().for_each(|node| drop(node.take()));
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/nodes?limit=1000&after={next}"),
            None => break,
        }
    }
    assert_eq!(listed.len(), peers.len());
    let begun = Instant::now();
    let (status, metrics) = world.send("GET", "/metrics", Body::empty()).await;
    let scrape = begun.elapsed();
    assert_eq!(status, StatusCode::OK);
    let metrics = String::from_utf8(metrics.to_vec()).unwrap();
    assert!(metrics.contains(&format!("\nciao_starts_total {started}\n")));
    let counted = format!(
        "ciao_nodes{{role=\"compute\",status=\"READY\"}} {}\n",
        peers.len()
    );
    assert!(metrics.contains(&counted), "{metrics}");
    let after = world.holds_beyond(Duration::from_millis(2));
    println!(
        "{} nodes, {started} STARTs: of {} turns of the lock {} took more than 2 ms; scrape {scrape:?}",
        peers.len(),
        after.1 - before.1,
        after.0 - before.0,
    );
    for line in metrics
        .lines()
        .filter(|line| line.contains("lock_hold") && !line.starts_with('#'))
    {
        println!("{line}");
    }
}

#[tokio::test]
async fn the_list_of_ends_counts_those_that_are_forgotten() {
    // Far longer than any that comes over the wire, so that few fill what is remembered.
    let name = |number: usize| InstanceId::new(&format!("{number} {}", "x".repeat(64 * 1024)));
    let world = World::of(Role::VIEWER);
    let master = Joined::new(&world.hub, Role::CONTROLLER);
    let node = Joined::node(&world.hub);
    let (mut ended, mut forgotten) = (0, 0);
    while forgotten < 3 {
        assert!(
            ended * 64 * 1024 < 2 * MAX_PAST_BYTES,
            "it is bounded by bytes"
        );
        master.run(&world.hub, &node, &name(ended));
        ended += 1;
        master.take();
        node.take();
        let page = world
            .get("/v1/instances?ended=true&limit=1&fields=state")
            .await;
        let said = page["forgotten"].as_u64().unwrap();
        assert!((forgotten..=forgotten + 2).contains(&said), "{page}");
        forgotten = said;
    }
    let (mut left, mut path) = (
        0,
        "/v1/instances?ended=true&limit=200&fields=hostname".to_owned(),
    );
    loop {
        let page = world.get(&path).await;
        // Each page says it, with the time for which nothing is missing: since a moment ago.
        assert_eq!(page["forgotten"], forgotten, "{page}");
        assert!(
            page["complete_for_ms"]
                .as_i64()
                .is_some_and(|ms| ms < 600_000),
            "{page}"
        );
        left += page["items"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => {
                path = format!("/v1/instances?ended=true&limit=200&fields=hostname&after={next}")
            }
            None => break,
        }
    }
    assert_eq!(left as u64 + forgotten, ended as u64);
}

/// A body of which a byte comes, and then nothing.
struct Slow(bool);

impl hyper::body::Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        match std::mem::replace(&mut self.0, true) {
            false => Poll::Ready(Some(Ok(hyper::body::Frame::data(Bytes::from_static(b"{"))))),
            true => Poll::Pending,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_ends_its_request() {
    let world = World::new();
    let begun = tokio::time::Instant::now();
    let body = Body::new(Slow(false));
    let (status, body) = world.send("POST", "/v1/explain", body).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    let problem: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(problem["reason"], "timeout", "{problem}");
    // The clock is the test's own: it stands still but for this wait.
    assert_eq!(begun.elapsed().as_secs(), BODY_DEADLINE.as_secs());
}

#[tokio::test]
async fn answers_for_no_path_no_method_and_no_role_are_not_kept_either() {
    let world = World::new();
    let of_a_node = World::of(Role::AGENT);
    for (world, method, path, status) in [
        (&world, "GET", "/v1/livez", StatusCode::NOT_FOUND),
        (&world, "PUT", "/v1/nodes", StatusCode::METHOD_NOT_ALLOWED),
        (&world, "POST", "/", StatusCode::METHOD_NOT_ALLOWED),
        (&of_a_node, "GET", "/", StatusCode::FORBIDDEN),
        (&of_a_node, "GET", "/v1/nodes", StatusCode::FORBIDDEN),
    ] {
        let response = world.answer(method, path, Body::empty()).await;
        assert_eq!(response.status(), status, "{method} {path}");
        let headers = response.headers();
        let said = |name| headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(said(header::CACHE_CONTROL), Some("no-store"), "{path}");
        let nosniff = said(header::X_CONTENT_TYPE_OPTIONS);
        assert_eq!(nosniff, Some("nosniff"), "{path}");
    }
}
