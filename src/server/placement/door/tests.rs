//! Requests without connections, to a cluster larger than there are descriptors for.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use proto_frames::Role;

use super::*;
use crate::server::hub::tests::{Joined, hub};

/// How many nodes the large cluster has, unless the variable `CIAO_NODES` says otherwise.
const NODES: usize = 3_000;

const SECRET: &str = "a-token-of-a-test";

/// What no connection of these tests is served with.
fn tls() -> Arc<ServerConfig> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let nothing = rustls::server::ResolvesServerCertUsingSni::new();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(nothing));
    Arc::new(config)
}

/// A door without a listener.
struct World {
    hub: Arc<Hub>,
    door: Door,
    /// Where the tokens are.
    _directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let hub = Arc::new(hub());
        let directory = tempfile::tempdir().unwrap();
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, SECRET).unwrap();
        let config = PlacementConfig {
            listen: Vec::new(),
            tokens,
        };
        let door = Door::new(&hub, tls(), load(&config, false, drop).unwrap());
        Self {
            hub,
            door,
            _directory: directory,
        }
    }

    async fn get(&self, path: &str, version: &str) -> (StatusCode, Value) {
        let request = Request::builder()
            .uri(path)
            .header(TOKEN, SECRET)
            .header(HEADER, format!("placement {version}"))
            .body(());
        let response = self.door.respond(&request.unwrap()).await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }
}

#[tokio::test]
async fn candidates_among_many_nodes_are_found_without_choosing_one() {
    let world = World::new();
    let said = std::env::var("CIAO_NODES").ok();
    let count = said.map_or(NODES, |text| text.parse().expect("CIAO_NODES is a number"));
    let master = Joined::new(&world.hub, Role::CONTROLLER);
    let _peers: Vec<Joined> = (0..count).map(|_| Joined::node(&world.hub)).collect();
    master.take();
    let asked = "resources=VCPU:1,MEMORY_MB:512,DISK_GB:10";
    let mut firsts = Vec::new();
    for limit in [1, 1000, 1, 1000] {
        let path = format!("/allocation_candidates?{asked}&limit={limit}");
        let (mut best, mut body) = (Duration::MAX, Value::Null);
        for _ in 0..20 {
            let begun = Instant::now();
            let (status, answer) = world.get(&path, "1.39").await;
            best = best.min(begun.elapsed());
            assert_eq!(status, StatusCode::OK, "{answer}");
            body = answer;
        }
        let requests = body["allocation_requests"].as_array().unwrap();
        let summaries = body["provider_summaries"].as_object().unwrap();
        assert_eq!(requests.len(), limit.min(count));
        assert_eq!(summaries.len(), limit.min(count));
        firsts.push(requests[0].clone());
        println!("{count} nodes, limit={limit}: {best:?} at best, parsed again by the test");
    }
    firsts.dedup();
    assert_eq!(firsts.len(), 1, "asking moves no cursor");
    let (_, list) = world.get("/resource_providers", "1.0").await;
    assert_eq!(list["resource_providers"].as_array().unwrap().len(), count);
    let read = world.hub.holds.read();
    println!(
        "turns of the lock by length: {:?} {:?}",
        read.bounds_s, read.counts
    );
}
