//! What no decent client does: streams that are reset or never read, messages that are too long or none.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tonic::Code;

use crate::peers::{Controller, Worker, channel, metrics, tell};
use crate::rpc::common::worker_status::Status as Subject;
use crate::rpc::common::{InstanceMetric, ResourceStatus as Is, WorkerMetric, WorkerStatus};
use crate::rpc::controller::controller_client::ControllerClient;
use crate::rpc::worker::worker_client::WorkerClient;
use crate::world::World;

/// Most memory that the adapter may take on top of what it had, in KiB.
const MORE: u64 = 64 * 1024;

/// A bare HTTP/2 connection.
async fn http2(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(async move { drop(connection.await) });
    client
}

fn call(path: &str) -> Request<()> {
    Request::builder()
        .method("POST")
        .uri(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A message of this length, of which so many bytes follow.
fn message(len: u32, bytes: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend(len.to_be_bytes());
    frame.extend(bytes);
    frame.into()
}

/// How a call with this body is answered.
async fn status_of(address: SocketAddr, path: &str, body: Bytes) -> Code {
    let client = http2(address).await;
    let mut client = client.ready().await.unwrap();
    let (response, mut stream) = client.send_request(call(path), false).unwrap();
    stream.send_data(body, true).unwrap();
    let mut response = response.await.unwrap();
    let status = match response.headers().get("grpc-status") {
        Some(status) => status.clone(),
        None => {
            let trailers = response.body_mut().trailers().await.unwrap();
            trailers.unwrap().get("grpc-status").unwrap().clone()
        }
    };
    Code::from_bytes(status.as_bytes())
}

/// What is pushed into a channel, as the messages of a call.
struct Received(tokio::sync::mpsc::Receiver<WorkerStatus>);

impl Stream for Received {
    type Item = WorkerStatus;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<WorkerStatus>> {
        self.0.poll_recv(context)
    }
}

/// An instance runs on the worker as ever, and the adapter takes little more memory than before (KiB).
async fn serves_as_before(world: &World, controller: &Controller, worker: &Worker, before: u64) {
    controller.creates("a").await.unwrap();
    controller.hears("a", Is::Running).await;
    // A worker may have said that it runs before it was told to create it.
    let is_created = async || worker.created() == ["a"];
    world.until("it is created", is_created).await;
    let after = world.rik_memory();
    assert!(
        after < before + MORE,
        "{before} KiB before, {after} KiB after"
    );
}

/// Begins ten thousand calls, sends a message each, and resets them at once.
async fn resets_ten_thousand(address: SocketAddr, path: &str, message_of: impl Fn(u32) -> Bytes) {
    let mut resets = 0;
    while resets < 10_000 {
        let mut client = http2(address).await;
        loop {
            // The server ends a connection that does nothing else.
            let Ok(ready) = client.ready().await else {
                break;
            };
            client = ready;
            let Ok((_, mut stream)) = client.send_request(call(path), false) else {
                break;
            };
            let _ = stream.send_data(message_of(resets), true);
            stream.send_reset(h2::Reason::CANCEL);
            resets += 1;
            if resets % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The name of a worker, as a message.
fn registration(name: &str) -> Bytes {
    let len = u8::try_from(name.len()).unwrap();
    let bytes = [&[0x0a, len], name.as_bytes()].concat();
    message(bytes.len().try_into().unwrap(), &bytes)
}

#[tokio::test]
async fn ten_thousand_workers_that_are_reset_cost_nothing_that_lasts() {
    let world = World::new().await;
    let controller = world.controller().await;
    let before = world.rik_memory();
    let at = world.workers_at();
    let path = "/worker.Worker/SendStatusUpdates";
    resets_ten_thousand(at, path, |_| message(0, &[])).await;
    let path = "/worker.Worker/Register";
    resets_ten_thousand(at, path, |at| registration(&format!("w{at}"))).await;
    let worker = world.worker("one", 4096).await;
    serves_as_before(&world, &controller, &worker, before).await;
}

#[tokio::test]
async fn giant_lengths_wrong_texts_and_half_messages_of_workers_are_refused() {
    let world = World::new().await;
    let controller = world.controller().await;
    let before = world.rik_memory();
    for (path, tag) in [
        ("/worker.Worker/Register", 0x0a),
        ("/worker.Worker/SendStatusUpdates", 0x1a),
    ] {
        for (body, code) in [
            (message(u32::MAX, &[]), Code::OutOfRange),
            (message(128 * 1024 + 1, &[tag]), Code::OutOfRange),
            (message(4, &[tag, 2, 0xff, 0xfe]), Code::Internal),
            (message(3, &[tag, 0xff, 0x7f]), Code::Internal),
            (message(100, &[tag]), Code::Internal),
        ] {
            assert_eq!(
                status_of(world.workers_at(), path, body).await,
                code,
                "{path}"
            );
        }
    }
    let mut streams = Vec::new();
    for path in [
        "/worker.Worker/Register",
        "/worker.Worker/SendStatusUpdates",
    ] {
        let mut client = http2(world.workers_at()).await;
        for _ in 0..200 {
            client = client.ready().await.unwrap();
            let (response, mut stream) = client.send_request(call(path), false).unwrap();
            stream.send_data(message(120_000, &[0x0a]), false).unwrap();
            streams.push((response, stream));
        }
    }
    let worker = world.worker("one", 4096).await;
    serves_as_before(&world, &controller, &worker, before).await;
}

#[tokio::test]
async fn a_stream_of_statuses_that_never_ends_costs_nothing_that_lasts() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    let before = world.rik_memory();
    let status = |id: String| WorkerStatus {
        status: Some(Subject::Instance(InstanceMetric {
            status: Is::Running.into(),
            metrics: "x".repeat(1000),
            instance_id: id,
        })),
        identifier: "one".to_owned(),
        host_address: None,
    };
    let (push, statuses) = tokio::sync::mpsc::channel(16);
    let endless = channel(world.workers_at()).await;
    let call = tokio::spawn(async move {
        let mut client = WorkerClient::new(endless);
        client.send_status_updates(Received(statuses)).await
    });
    // Of instances that nobody has, and of one that comes to run meanwhile.
    for at in 0..50_000 {
        push.send(status(format!("{at}"))).await.unwrap();
        push.send(status("a".to_owned())).await.unwrap();
    }
    serves_as_before(&world, &controller, &worker, before).await;
    assert!(!call.is_finished());
    assert_eq!(controller.latest().len(), 1);
}

#[tokio::test]
async fn ten_thousand_streams_that_are_reset_cost_nothing_that_lasts() {
    let world = World::new().await;
    let controller = world.controller().await;
    let before = world.rik_memory();
    let path = "/controller.Controller/GetStatusUpdates";
    resets_ten_thousand(world.controllers_at(), path, |_| message(0, &[])).await;
    let worker = world.worker("one", 4096).await;
    serves_as_before(&world, &controller, &worker, before).await;
}

#[tokio::test]
async fn streams_that_are_never_read_cost_what_there_is_and_not_what_happens() {
    let world = World::new().await;
    let worker = world.worker("one", 4096).await;
    let controller = world.controller().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        let mut client = ControllerClient::new(channel(world.controllers_at()).await);
        silent.push(client.get_status_updates(()).await.unwrap());
    }
    let before = world.rik_memory();
    let other = channel(world.workers_at()).await;
    let long = "x".repeat(60_000);
    for _ in 0..400 {
        let metric = WorkerMetric {
            status: Is::Running.into(),
            metrics: long.clone(),
        };
        tell(&other, "one", Subject::Worker(metric)).await.unwrap();
    }
    tell(&other, "one", metrics(4096)).await.unwrap();
    // Each is about another instance, of which nothing is known.
    for at in 0..2_000 {
        controller
            .destroys(&format!("{at}{}", &long[..1000]))
            .await
            .unwrap();
    }
    serves_as_before(&world, &controller, &worker, before).await;
    // One more than there may be.
    let mut more = Vec::new();
    let refused = loop {
        let mut client = ControllerClient::new(channel(world.controllers_at()).await);
        match client.get_status_updates(()).await {
            Ok(stream) => more.push(stream),
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert_eq!(refused.message(), "there are 64 streams of updates already");
}

#[tokio::test]
async fn giant_lengths_wrong_texts_and_half_messages_are_refused() {
    let world = World::new().await;
    let controller = Controller::connect_knowing(world.controllers_at()).await;
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(1 << 20));
    let refused = controller.creates_of("a", &long).await.unwrap_err();
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(300 << 10));
    let refused = controller.creates_of("a", &long).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    let before = world.rik_memory();
    let path = "/controller.Controller/ScheduleInstance";
    for (body, code) in [
        // Four gigabytes, of which none come.
        (message(u32::MAX, &[]), Code::OutOfRange),
        // An instance_id that is not UTF-8.
        (message(4, &[0x22, 2, 0xff, 0xfe]), Code::Internal),
        // A field that is longer than its message.
        (message(3, &[0x22, 0xff, 0x7f]), Code::Internal),
        // Half a message.
        (message(100, &[0x22]), Code::Internal),
    ] {
        assert_eq!(status_of(world.controllers_at(), path, body).await, code);
    }
    let mut streams = Vec::new();
    // Two hundred calls that never end, and whose message is always to come.
    let mut client = http2(world.controllers_at()).await;
    for _ in 0..200 {
        client = client.ready().await.unwrap();
        let (response, mut stream) = client.send_request(call(path), false).unwrap();
        stream.send_data(message(500_000, &[0x22]), false).unwrap();
        streams.push((response, stream));
    }
    let worker = world.worker("one", 4096).await;
    serves_as_before(&world, &controller, &worker, before).await;
}

#[tokio::test]
async fn a_worker_that_never_reads_holds_nothing_else_up() {
    let world = World::new().await;
    let silent = Worker::connect_silent(world.workers_at(), "silent").await;
    world.node_is("silent", "READY").await;
    let controller = world.controller().await;
    // More than its connection takes unread.
    let definition = format!(r#"{{"name": "{}"}}"#, "x".repeat(100 << 10));
    for at in 0..20 {
        controller
            .creates_of(&format!("unread-{at}"), &definition)
            .await
            .unwrap();
    }
    let worker = world.worker("reads", 4096).await;
    let own = r#"{"spec": {"scheduling": {"require": ["node.hostname = reads"]}}}"#;
    controller.creates_of("a", own).await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(60), controller.hears("a", Is::Running));
    heard.await.unwrap();
    assert!(worker.created().contains(&"a".to_owned()));
    controller.destroys("unread-0").await.unwrap();
    controller.hears("unread-0", Is::Destroying).await;
    drop(silent);
}
