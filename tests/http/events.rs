//! The stream of events: it begins, goes on where it was, and says where something is missing.

use std::time::{Duration, SystemTime};

use ciao_scheduler::cert::crl::Reason;
use ciao_scheduler::cert::{CertifiedPem, RevocationList, Spec};
use ciao_scheduler::net::tls::client_config;
use proto_frames::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::certs::identity;
use crate::client::Http;
use crate::site::{Site, within};

const HOUR: Duration = Duration::from_secs(3600);

/// One stream.
struct Stream {
    connection: TlsStream<TcpStream>,
    read: String,
}

/// One event.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: String,
}

impl Stream {
    async fn open(http: &Http, path: &str, last: Option<&str>) -> Self {
        let mut connection = http.connect().await;
        let last = last
            .map(|id| format!("last-event-id: {id}\r\n"))
            .unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{last}\r\n");
        within(connection.write_all(request.as_bytes()))
            .await
            .unwrap();
        let mut stream = Self {
            connection,
            read: String::new(),
        };
        stream.until("\r\n\r\n").await;
        stream
    }

    /// What comes up to this text.
    async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.read.find(end) {
                let rest = self.read.split_off(at + end.len());
                return std::mem::replace(&mut self.read, rest);
            }
            let mut bytes = [0; 4096];
            let count = within(self.connection.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "the stream has ended: {}", self.read);
            self.read
                .push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    }

    /// The next event. Lengths of chunks and heartbeats between them are passed over.
    async fn next(&mut self) -> Event {
        self.until("id: ").await;
        let text = self.until("\n\n").await;
        let mut lines = text.lines();
        let id = lines.next().unwrap().to_owned();
        let after =
            |line: Option<&str>, key: &str| line.unwrap().strip_prefix(key).unwrap().to_owned();
        Event {
            id,
            name: after(lines.next(), "event: "),
            data: after(lines.next(), "data: "),
        }
    }
}

#[tokio::test]
async fn a_stream_goes_on_behind_the_last_event_that_was_received() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut stream = Stream::open(&http, "/v1/events", None).await;
    let begin = stream.next().await;
    assert_eq!(begin.name, "begin");
    let first = site.node(&daemon).await;
    let connected = stream.next().await;
    assert_eq!(connected.name, "node_connected");
    assert!(connected.data.contains(&first.uuid.to_string()));
    drop(stream);
    let second = site.node(&daemon).await;
    let mut stream = Stream::open(&http, "/v1/events", Some(&connected.id)).await;
    let missed = stream.next().await;
    assert!(missed.data.contains(&second.uuid.to_string()), "{missed:?}");
    // What an answer names is a place to go on from as well.
    let list = http.get("/v1/nodes").await.ok(200);
    assert_eq!(list["sequence"], missed.id);
    let path = format!("/v1/events?from={}", begin.id);
    let mut whole = Stream::open(&http, &path, None).await;
    assert_eq!(whole.next().await, connected);
    assert_eq!(whole.next().await, missed);
}

#[tokio::test]
async fn a_stream_ends_when_its_certificate_is_revoked_and_others_go_on() {
    let site = Site::new();
    let path = site.path("list.pem");
    let list = |revoked: &[&CertifiedPem], number: usize| {
        let mut list = RevocationList::default();
        for _ in 1..number {
            let signed = list.sign(&site.ca.anchor, SystemTime::now(), HOUR).unwrap();
            list = RevocationList::read(signed.as_bytes(), &site.ca.anchor).unwrap();
        }
        for certificate in revoked {
            let (_, x509) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
            assert!(list.revoke(x509.raw_serial(), SystemTime::now(), Reason::default()));
        }
        list.sign(&site.ca.anchor, SystemTime::now(), HOUR).unwrap()
    };
    std::fs::write(&path, list(&[], 1)).unwrap();
    let flag = path.display().to_string();
    let daemon = site.start(&["--http", "127.0.0.1:0", "--crl", &flag]).await;
    let own = site.ca.anchor.sign(&Spec::localhost(Role::VIEWER)).unwrap();
    let other = site.http(&daemon, Role::VIEWER).await;
    let http = Http {
        tls: client_config(&identity(own.pem()), &site.ca.anchors()).unwrap(),
        ..other.clone()
    };
    let mut ends = Stream::open(&http, "/v1/events", None).await;
    let mut stays = Stream::open(&other, "/v1/events", None).await;
    ends.next().await;
    stays.next().await;
    std::fs::write(&path, list(&[&own], 2)).unwrap();
    daemon.hang_up();
    let line = daemon.logged("HTTP: disconnected: its certificate").await;
    assert!(line.contains("is revoked 20"), "{line}");
    let mut rest = Vec::new();
    // With or without an end in order.
    let _ = within(ends.connection.read_to_end(&mut rest)).await;
    let node = site.node(&daemon).await;
    // Behind what came of the reload.
    while !stays.next().await.data.contains(&node.uuid.to_string()) {}
    assert_eq!(other.get("/v1/nodes").await.status, 200);
}

#[tokio::test]
async fn what_is_not_kept_is_said_and_never_left_out_silently() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut stream = Stream::open(&http, "/v1/events", Some("00000000-17")).await;
    let resync = stream.next().await;
    assert_eq!(resync.name, "resync");
    assert!(resync.data.contains("unknown_epoch"), "{resync:?}");
    let (epoch, _) = resync.id.split_once('-').unwrap();
    let future = format!("{epoch}-1000000");
    let mut stream = Stream::open(&http, "/v1/events", Some(&future)).await;
    let resync = stream.next().await;
    assert!(
        resync.name == "resync" && resync.data.contains("unknown_id"),
        "{resync:?}"
    );
    // And it goes on from there.
    let node = site.node(&daemon).await;
    assert!(stream.next().await.data.contains(&node.uuid.to_string()));
}

#[tokio::test]
async fn a_stream_has_the_topics_and_the_things_that_were_asked_for() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let operator = site.http(&daemon, Role::CONTROLLER).await;
    let mut failures = Stream::open(&http, "/v1/events?topics=failures", None).await;
    let mut b = Stream::open(&http, "/v1/events?instance=b", None).await;
    failures.next().await;
    b.next().await;
    let _node = site.node(&daemon).await;
    for id in ["a", "b"] {
        let start = format!("{{\"start\": {{\"instance_uuid\": \"{id}\"}}}}");
        assert_eq!(
            operator.send("POST", "/v1/instances", &start).await.status,
            503
        );
    }
    for id in ["a", "b"] {
        let event = failures.next().await;
        assert_eq!(event.name, "start_failure");
        assert!(
            event.data.contains(&format!("\"instance_uuid\":\"{id}\"")),
            "{event:?}"
        );
    }
    assert!(b.next().await.data.contains("\"instance_uuid\":\"b\""));
}

#[tokio::test]
async fn a_scheduler_that_leaves_ends_its_streams() {
    let (site, mut daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut stream = Stream::open(&http, "/v1/events", None).await;
    stream.next().await;
    daemon.terminate();
    let mut rest = Vec::new();
    let _ = within(stream.connection.read_to_end(&mut rest)).await;
    assert!(within(daemon.ended()).await.success());
}

/// Streams that are open when a scheduler is killed.
const STREAMS: usize = 40;

#[tokio::test]
async fn streams_of_a_scheduler_that_is_killed_end_and_go_on_with_the_next_after_a_resync() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(Stream::open(&http, "/v1/events", None).await);
    }
    // Some of them read nothing any more.
    let stalled = streams.split_off(STREAMS / 2);
    let node = site.node(&daemon).await;
    let mut last = String::new();
    for stream in &mut streams {
        assert_eq!(stream.next().await.name, "begin");
        let connected = stream.next().await;
        assert!(connected.data.contains(&node.uuid.to_string()));
        last = connected.id;
    }
    daemon.kill().await;
    for mut stream in streams.into_iter().chain(stalled) {
        let mut rest = Vec::new();
        // The end of it, or an error: nothing that looks like an event that did not happen.
        let _ = within(stream.connection.read_to_end(&mut rest)).await;
        assert!(!String::from_utf8_lossy(&rest).contains("node_lost"));
    }
    let daemon = site.start(&["--http", "127.0.0.1:0"]).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let mut stream = Stream::open(&http, "/v1/events", Some(&last)).await;
        let resync = stream.next().await;
        assert_eq!(resync.name, "resync");
        assert!(resync.data.contains("unknown_epoch"), "{resync:?}");
        streams.push(stream);
    }
    let node = site.node(&daemon).await;
    for stream in &mut streams {
        assert!(stream.next().await.data.contains(&node.uuid.to_string()));
    }
}
