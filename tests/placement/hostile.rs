//! Addresses that other machines reach, and clients that write what makes no sense.

use proto_frames::Role;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;

use crate::client::{NODE, TOKEN, World};
use crate::site::within;

/// Requests of one connection.
const MANY: usize = 10_000;

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nx-auth-token: {TOKEN}\r\n\r\n")
}

/// A connection over TLS. The server asks for no certificate: OpenStack's clients show a token.
async fn https(world: &World) -> tokio_rustls::client::TlsStream<TcpStream> {
    let tcp = TcpStream::connect(("127.0.0.1", world.address.port()));
    let tcp = within(tcp).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(world.site.ca.client(Role::CONTROLLER));
    within(connector.connect(name, tcp)).await.unwrap()
}

/// What comes of these bytes until the server ends the connection.
async fn all_of(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> String {
    // A server that has answered already need not read the rest.
    let _ = within(stream.write_all(bytes)).await;
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn where_other_machines_reach_it_tokens_are_shown_over_tls_alone() {
    let world = World::on("0.0.0.0:0").await;
    let _node = world.node().await;
    let closing = "GET /resource_providers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let answer = all_of(
        https(&world).await,
        format!("{closing}x-auth-token: {TOKEN}\r\n\r\n").as_bytes(),
    )
    .await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(&NODE.to_string()), "{answer}");
    let answer = all_of(https(&world).await, format!("{closing}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let plain = TcpStream::connect(("127.0.0.1", world.address.port()));
    let plain = within(plain).await.unwrap();
    let answer = all_of(plain, request("/resource_providers").as_bytes()).await;
    assert!(!answer.contains("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn a_request_may_come_in_pieces_and_many_over_one_connection() {
    let world = World::new().await;
    let mut stream = within(TcpStream::connect(world.address)).await.unwrap();
    for byte in request("/resource_classes").bytes() {
        within(stream.write_all(&[byte])).await.unwrap();
    }
    let mut head = [0; 12];
    within(stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 404", "not before version 1.2");
    let (mut reading, mut writing) = within(TcpStream::connect(world.address))
        .await
        .unwrap()
        .into_split();
    let wrote = tokio::spawn(async move {
        let request = request("/allocation_candidates?resources=VCPU:1&limit=1");
        let request = request.replace("x-auth", "openstack-api-version: placement 1.39\r\nx-auth");
        for _ in 0..MANY {
            writing.write_all(request.as_bytes()).await.unwrap();
        }
        writing
    });
    let mut answers = 0;
    let mut bytes = vec![0; 64 * 1024];
    let mut rest = String::new();
    while answers < MANY {
        let read = within(reading.read(&mut bytes)).await.unwrap();
        assert!(read > 0, "ended after {answers} answers");
        rest.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        answers += rest.matches("HTTP/1.1 200 OK\r\n").count();
        // What may be the beginning of the next answer.
        let keep = rest.len().saturating_sub("HTTP/1.1 200 OK\r\n".len() - 1);
        rest.drain(..keep);
    }
    assert_eq!(answers, MANY);
    drop(wrote.await.unwrap());
}

#[tokio::test]
async fn a_client_that_has_shut_its_sending_half_gets_its_answer() {
    let world = World::new().await;
    let _node = world.node().await;
    let mut stream = within(TcpStream::connect(world.address)).await.unwrap();
    let request = request("/resource_providers");
    within(stream.write_all(request.as_bytes())).await.unwrap();
    within(stream.shutdown()).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains(&NODE.to_string()), "{answer}");
}

/// Connections that there may be at once, as the limits say.
const CONNECTIONS: usize = 64;

#[tokio::test]
async fn silent_clients_make_room_for_who_shows_a_token() {
    let world = World::new().await;
    let mut silent = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = within(TcpStream::connect(world.address)).await.unwrap();
        // Its first request is answered, so it has a place.
        let versions = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        within(stream.write_all(versions)).await.unwrap();
        let mut head = [0; 12];
        within(stream.read_exact(&mut head)).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        // Some begin a second one that never ends.
        if number % 2 == 0 {
            within(stream.write_all(b"GET / HT")).await.unwrap();
        }
        silent.push(stream);
    }
    let answer = world.send("GET", "/resource_providers", "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    // It had the place of the first of them.
    let mut rest = Vec::new();
    let _ = within(silent[0].read_to_end(&mut rest)).await;
    // Launchers and others are not kept out.
    let _node = world.node().await;
}

#[tokio::test]
async fn clients_that_never_read_cost_little_and_end() {
    /// Requests of each of them: answers of some 10 KB each.
    const UNREAD: usize = 300;
    /// What all of them may cost together: for each what hyper and its socket's buffer hold, and room to spare.
    const MAX_GROWTH_KIB: usize = 48 * 1024;
    let flags = ["-placement", "127.0.0.1:0", "-progress-deadline=2s"];
    let world = World::with(&flags, "answers as the Placement API on ").await;
    let _node = world.node().await;
    world.get("/traits", "1.39").await;
    let before = world.daemon.resident_kib();
    let mut request =
        request("/traits").replace("x-auth", "openstack-api-version: placement 1.39\r\nx-auth");
    request = request.repeat(UNREAD);
    let mut unread = Vec::new();
    for _ in 1..CONNECTIONS {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = within(socket.connect(world.address)).await.unwrap();
        within(stream.write_all(request.as_bytes())).await.unwrap();
        unread.push(stream);
    }
    world.get("/resource_classes", "1.39").await;
    let grown = world.daemon.resident_kib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_KIB, "it takes {grown} KiB more");
    for mut stream in unread {
        // It is cut off with what it has asked for unread, so the kernel resets it.
        within(stream.ready(Interest::ERROR)).await.unwrap();
        let mut bytes = Vec::new();
        let _ = within(stream.read_to_end(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.matches("HTTP/1.1 200 OK").count() < UNREAD);
    }
    world.get("/resource_classes", "1.39").await;
}

#[tokio::test]
async fn what_is_no_request_ends_with_an_answer_or_with_its_connection() {
    let world = World::new().await;
    let long = "x".repeat(1 << 20);
    let with = |line: &str| {
        request("/resource_providers").replace("\r\n\r\n", &format!("\r\n{line}\r\n\r\n"))
    };
    for (bytes, status) in [
        (with(&format!("x-long: {long}")).into_bytes(), "431"),
        (request(&format!("/{long}")).into_bytes(), "431"),
        (
            with("content-length: 99999999999999999999").into_bytes(),
            "400",
        ),
        (with("content-length: -1").into_bytes(), "400"),
        (b"\xff\xfe\x00 / HTTP/1.1\r\n\r\n".to_vec(), "400"),
        (b"GET / HTTP/9.9\r\n\r\n".to_vec(), "400"),
    ] {
        let stream = within(TcpStream::connect(world.address)).await.unwrap();
        let answer = all_of(stream, &bytes).await;
        let is_refused = answer.starts_with(&format!("HTTP/1.1 {status} "));
        assert!(is_refused || answer.is_empty(), "{status}: {answer}");
    }
    for query in [
        "resources=VCPU:%FF",
        "resources=VCPU:1&limit=0",
        "resources=VCPU:99999999999999999999",
        "resources=",
    ] {
        let answer = world
            .send("GET", &format!("/allocation_candidates?{query}"), "1.39")
            .await;
        assert_eq!(answer.status, 400, "{query}: {answer:?}");
        assert!(answer.body.contains("\"detail\""), "{query}: {answer:?}");
    }
    let answer = world.send("GET", "/resource_classes", "1.39").await;
    assert_eq!(answer.status, 200, "it still answers");
}
