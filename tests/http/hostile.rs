//! Hostile HTTP: each ends in a clear error, no other is held up, and the daemon goes on.

use proto_frames::Role;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::client::{Answer, Http, http_address};
use crate::site::{Site, within};

#[tokio::test]
async fn what_is_too_long_or_no_request_is_answered_and_the_connection_ends() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let long = "x".repeat(1 << 20);
    let head = "host: localhost\r\nconnection: close\r\n";
    for (request, expected) in [
        (
            format!("GET /{long} HTTP/1.1\r\n{head}\r\n"),
            &[414, 431][..],
        ),
        (
            format!("GET /livez HTTP/1.1\r\n{head}x: {long}\r\n\r\n"),
            &[431],
        ),
        (
            format!("GET /livez HTTP/1.1\r\n{head}content-length: many\r\n\r\n"),
            &[400],
        ),
        (
            format!("POST /v1/explain HTTP/1.1\r\n{head}content-length: -1\r\n\r\n"),
            &[400],
        ),
        (
            format!("POST /v1/explain HTTP/1.1\r\n{head}content-length: 1048576\r\n\r\n{long}"),
            &[413],
        ),
        (
            format!(
                "POST /v1/explain HTTP/1.1\r\n{head}transfer-encoding: chunked\r\n\r\n100000\r\n{long}\r\n0\r\n\r\n"
            ),
            &[413],
        ),
        (
            format!(
                "POST /v1/explain HTTP/1.1\r\n{head}content-length: 1\r\ncontent-length: 2\r\n\r\nab"
            ),
            &[400],
        ),
        (
            format!("POST /v1/explain HTTP/1.1\r\n{head}transfer-encoding: chunked\r\n\r\nzz\r\n"),
            &[400],
        ),
        ("\u{0}\u{1}\u{2}\r\n\r\n".to_owned(), &[400]),
        (format!("GET /v1/nodes?%ff HTTP/1.1\r\n{head}\r\n"), &[400]),
        (format!("GET /v1/nodes/%ff HTTP/1.1\r\n{head}\r\n"), &[400]),
        (
            format!("POST /v1/nodes/none/cordon HTTP/1.1\r\n{head}content-length: 2\r\n\r\n{{}}"),
            &[400],
        ),
    ] {
        let answer = http.raw(request.as_bytes()).await;
        let begin: String = request.chars().take(80).collect();
        assert!(expected.contains(&answer.status), "{begin:?}: {answer:?}");
    }
    let deep = format!("{{\"start\": {}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let answer = http.send("POST", "/v1/explain", &deep).await;
    assert_eq!(answer.problem().1, "invalid_payload");
    assert_eq!(http.get("/livez").await.status, 200);
}

#[tokio::test]
async fn silent_connections_do_not_keep_others_out() {
    /// Many times as many as there may be handshakes; each is given some time before it is turned away.
    const SILENT: usize = 60;
    let (site, daemon) = Site::with_http(&["--max-handshakes=4"]).await;
    let address = http_address(&daemon).await;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        let mut tcp = TcpStream::connect(address).await.unwrap();
        if silent.len() % 2 == 0 {
            // The beginning of a handshake that never goes on.
            let _ = tcp.write_all(&[0x16, 3, 1]).await;
        }
        silent.push(tcp);
    }
    let http = site.http(&daemon, Role::VIEWER).await;
    assert_eq!(http.get("/livez").await.status, 200);
    let mut node = site.ready_node(&daemon).await;
    node.nothing_else().await;
}

/// Connections that begin a handshake and do not go on with it, where there are descriptors for so many.
const HALF_OPEN: u64 = 10_000;

/// Descriptors that other tests of this program may need meanwhile.
const OTHER_DESCRIPTORS: u64 = 512;

/// Lets this process, and the daemons that it starts, have as many descriptors as it may; how many.
fn all_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    limit.maximum.unwrap_or(u64::MAX)
}

#[tokio::test]
async fn ten_thousand_half_open_connections_are_bounded_and_keep_no_other_out() {
    let most = all_descriptors().saturating_sub(OTHER_DESCRIPTORS);
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let before = daemon.resident_kib();
    let mut half_open = Vec::new();
    for number in 0..HALF_OPEN.min(most) {
        let mut tcp = within(TcpStream::connect(http.address)).await.unwrap();
        let begun: &[u8] = match number % 3 {
            0 => &[],
            1 => &[0x16, 3, 1],
            // The whole head of a record of 16 KiB that does not come.
            _ => &[0x16, 3, 1, 0x40, 0],
        };
        // It may have been turned away already.
        let _ = tcp.write_all(begun).await;
        half_open.push(tcp);
        if number % 1_000 == 999 {
            assert_eq!(http.get("/livez").await.status, 200, "after {number}");
        }
    }
    let mut node = site.ready_node(&daemon).await;
    node.nothing_else().await;
    let grown = daemon.resident_kib().saturating_sub(before);
    assert!(grown < 256 * 1024, "it takes {grown} KiB more");
}

#[tokio::test]
async fn ssntp_on_the_http_port_and_http_on_the_ssntp_port_get_nowhere() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut http = site.http(&daemon, Role::CONTROLLER).await;
    http.address = daemon.address;
    assert_eq!(http.get("/livez").await.status, 0);
    http.address = http_address(&daemon).await;
    assert_eq!(http.get("/livez").await.status, 200);
}

/// A stream of events on a connection of its own, and the status of its head.
async fn stream(http: &Http) -> (u16, TlsStream<TcpStream>) {
    let mut stream = http.connect().await;
    let request = b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let _ = within(stream.write_all(request)).await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match within(stream.read_u8()).await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    (Answer::read(&head).status, stream)
}

#[tokio::test]
async fn streams_of_one_viewer_keep_neither_operators_nor_launchers_nor_other_viewers_out() {
    let (site, daemon) = Site::with_http(&["--max-connections=16"]).await;
    let viewer = site.http(&daemon, Role::VIEWER).await;
    let mut streams = Vec::new();
    loop {
        assert!(streams.len() < 16, "one certificate has every connection");
        match stream(&viewer).await {
            (200, stream) => streams.push(stream),
            (status, _) => {
                assert_eq!(status, 503);
                break;
            }
        }
    }
    // It is said what to do, over either protocol; what comes at once may be closed without a word.
    let refused = viewer.get("/v1/status").await;
    if refused.status != 0 {
        assert_eq!(refused.problem().1, "too_many");
        assert!(refused.body.contains("its certificate has"), "{refused:?}");
    }
    daemon.logged("connections of readers already").await;
    let other = site.http(&daemon, Role::VIEWER).await;
    assert_eq!(other.get("/v1/status").await.status, 200);
    let operator = site.http(&daemon, Role::CONTROLLER).await;
    assert_eq!(operator.get("/v1/status").await.status, 200);
    let mut node = site.ready_node(&daemon).await;
    node.nothing_else().await;
}
