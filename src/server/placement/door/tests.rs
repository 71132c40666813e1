//! Requests without connections, to a cluster larger than there are descriptors for.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use proto_frames::Role;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::time::{advance, timeout};

use super::super::limits::WRITE_DEADLINE;
use super::*;
use crate::server::accept::Held;
use crate::server::credentials::tests::live;
use crate::server::hub::tests::{Joined, hub};

/// How many nodes the large cluster has, unless the variable `CIAO_NODES` says otherwise.
const NODES: usize = 10_000;

/// Nodes of which a list is longer than what is between the door and a client that does not read.
const SOME_NODES: usize = 500;

/// Bytes that are on their way to a client.
const PIPE: usize = 1024;

/// Where requests come from.
const CLIENT: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

const SECRET: &str = "a-token-of-a-test";

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
        let door = Door::new(&hub, &live(Some(&tokens)));
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
        let response = self
            .door
            .respond(&request.unwrap(), "", &Writing::new(CLIENT.into(), None))
            .await;
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    /// A world with nodes, of which each connection asks for the list.
    fn with_nodes() -> (Self, Vec<Joined>) {
        let world = Self::new();
        let nodes = (0..SOME_NODES).map(|_| Joined::node(&world.hub)).collect();
        (world, nodes)
    }

    /// A client that asks for all nodes, and has not read anything.
    async fn ask(&self) -> DuplexStream {
        let (mut client, stream) = duplex(PIPE);
        let place = Held::alone();
        let serving = self.door.clone().serve(stream, CLIENT.into(), place);
        tokio::spawn(serving);
        let request = format!(
            "GET /resource_providers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{TOKEN}: {SECRET}\r\n\r\n"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        client
    }

    /// Clients that have an answer each, as many as there may be, and read no further than that it is one.
    async fn stalled(&self) -> Vec<DuplexStream> {
        let mut clients = Vec::new();
        for _ in 0..MAX_REQUESTS {
            let mut client = self.ask().await;
            let mut head = [0; 12];
            client.read_exact(&mut head).await.unwrap();
            assert_eq!(&head, b"HTTP/1.1 200");
            clients.push(client);
        }
        clients
    }
}

/// All that a client gets until its connection ends.
async fn rest(mut client: DuplexStream) -> String {
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).await.unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(start_paused = true)]
async fn no_more_answers_are_made_than_may_be_while_nobody_reads_them() {
    let (world, _nodes) = World::with_nodes();
    let mut stalled = world.stalled().await;
    let mut further = world.ask().await;
    // The clock goes on by itself once nothing else is to be done, so this is not a matter of speed.
    let answered = timeout(Duration::from_secs(1), further.read_u8()).await;
    assert!(answered.is_err(), "{answered:?}");
    // One that is read to its end makes place, and so does one that is given up.
    let first = rest(stalled.remove(0)).await;
    assert!(first.ends_with("}]}"), "{} bytes", first.len());
    assert!(rest(further).await.ends_with("}]}"));
    stalled.remove(0);
    assert!(rest(world.ask().await).await.ends_with("}]}"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_has_shown_a_token_keeps_its_place() {
    let world = World::new();
    let ask = async |token: &str, writing: &Writing| {
        let request = Request::builder().uri("/placement/traits/HW_NONE");
        let request = request.header(TOKEN, token).body(()).unwrap();
        let answer = world.door.respond_mounted(&request, writing).await;
        answer.unwrap().status()
    };
    let time = Duration::from_secs(30);
    for (token, status, has_to_leave) in [
        ("another", StatusCode::UNAUTHORIZED, true),
        (SECRET, StatusCode::NOT_FOUND, false),
    ] {
        let writing = Writing::new(CLIENT.into(), world.door.guest(CLIENT.0.into()));
        let begun = tokio::time::Instant::now();
        assert_eq!(ask(token, &writing).await, status);
        let ended = timeout(2 * time, writing.has_to_end(time)).await;
        assert_eq!(ended.is_ok(), has_to_leave);
        assert!(begun.elapsed() >= time);
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_nothing_give_way_to_others() {
    let (world, _nodes) = World::with_nodes();
    let mut stalled = world.stalled().await;
    let further = world.ask().await;
    assert!(rest(further).await.ends_with("}]}"));
    let cut = rest(stalled.remove(0)).await;
    assert!(!cut.ends_with("}]}"), "{} bytes", cut.len());
}

#[tokio::test(start_paused = true)]
async fn clients_that_read_a_byte_now_and_then_give_way_to_others() {
    let (world, _nodes) = World::with_nodes();
    let mut stalled = world.stalled().await;
    let mut further = world.ask().await;
    let now_and_then = world.hub.limits.progress_deadline / 2;
    let mut passed = Duration::ZERO;
    while passed < WRITE_DEADLINE {
        for client in &mut stalled {
            client.read_u8().await.unwrap();
        }
        advance(now_and_then).await;
        passed += now_and_then;
    }
    let answered = timeout(Duration::from_secs(1), further.read_u8()).await;
    assert!(answered.is_ok(), "{answered:?}");
    let cut = rest(stalled.remove(0)).await;
    assert!(!cut.ends_with("}]}"), "{} bytes", cut.len());
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
