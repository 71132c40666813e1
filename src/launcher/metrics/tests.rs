//! Tests of a launcher's metrics over real connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto_frames::Uuid;
use proto_frames::payload::{InstanceStat, InstanceState, Requested, Stats};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{MAX_CONNECTIONS, Metrics, metrics_address, serve};

const NODE: Uuid = Uuid::from_u128(1);

async fn serving() -> (Arc<Metrics>, SocketAddr) {
    let metrics = Arc::new(Metrics::default());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::clone(&metrics)));
    (metrics, address)
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    let read = tokio::time::timeout(Duration::from_secs(60), read).await;
    read.expect("it is answered").unwrap();
    text
}

async fn scrape(address: SocketAddr) -> String {
    let request = "GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let text = ask(address, request).await;
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    text
}

#[tokio::test]
async fn a_scrape_tells_what_the_node_has_reported() {
    let (metrics, address) = serving().await;
    metrics.connection(NODE, true);
    metrics.connection(NODE, false);
    metrics.connection(NODE, true);
    metrics.lease(NODE, Some(Instant::now() + Duration::from_secs(3600)));
    let instance = |state| InstanceStat {
        state,
        memory_usage_mb: 2,
        cpu_usage: 50,
        ..InstanceStat::default()
    };
    let stats = Stats {
        mem_total_mb: 10,
        mem_available_mb: -1,
        instances: vec![
            instance(InstanceState::Active),
            InstanceStat {
                // Half of four processors.
                requested: Some(Requested {
                    vcpus: 4,
                    ..Requested::default()
                }),
                ..instance(InstanceState::Active)
            },
            instance(InstanceState::Exited),
            InstanceStat {
                cpu_usage: -1,
                ..instance(InstanceState::Exited)
            },
        ],
        ..Stats::default()
    };
    metrics.report(NODE, &stats);
    let text = scrape(address).await;
    for line in [
        "ciao_launcher_instances{state=\"active\"} 2.0",
        "ciao_launcher_instances{state=\"exited\"} 2.0",
        "ciao_launcher_instances{state=\"hung\"} 0.0",
        "ciao_launcher_connected 1.0",
        "ciao_launcher_reconnects_total 1",
        "ciao_launcher_instances_memory_bytes 8388608.0",
        "ciao_launcher_instances_cpu_ratio 3.0",
        "ciao_launcher_memory_available_bytes 0.0",
    ] {
        assert!(text.lines().any(|it| it == line), "no {line}: {text}");
    }
    let lease = text
        .lines()
        .find_map(|line| line.strip_prefix("ciao_launcher_lease_left_seconds "));
    let lease: f64 = lease.unwrap().parse().unwrap();
    assert!(lease > 0.0 && lease <= 3600.0, "{lease}");
}

#[tokio::test]
async fn what_is_no_scrape_is_refused() {
    let (_metrics, address) = serving().await;
    for (request, status) in [
        (
            "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
            "404",
        ),
        (
            "POST /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            "405",
        ),
        ("nonsense\r\n\r\n", "400"),
    ] {
        let text = ask(address, request).await;
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{text}");
    }
    let long = format!(
        "GET /metrics HTTP/1.1\r\na: {}\r\n\r\n",
        "x".repeat(64 * 1024)
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It need not read all of it.
    let _ = stream.write_all(long.as_bytes()).await;
    let mut text = Vec::new();
    let _ = stream.read_to_end(&mut text).await;
    assert!(!String::from_utf8_lossy(&text).contains(" 200 "));
    scrape(address).await;
}

#[tokio::test]
async fn a_scraper_behind_as_many_silent_connections_as_may_be_has_its_turn() {
    let (_metrics, address) = serving().await;
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let scraping = tokio::spawn(async move { scrape(address).await });
    // One of them ends.
    drop(silent.pop());
    scraping.await.unwrap();
}

#[test]
fn a_port_alone_is_one_of_loopback() {
    for (text, expected) in [
        ("9100", Some("127.0.0.1:9100")),
        (":9100", Some("127.0.0.1:9100")),
        ("0.0.0.0:9100", Some("0.0.0.0:9100")),
        ("[::1]:9100", Some("[::1]:9100")),
        ("localhost", None),
        ("99999", None),
        ("", None),
    ] {
        let found = metrics_address(text).ok().map(|it| it.to_string());
        assert_eq!(found.as_deref(), expected, "{text}");
    }
}
