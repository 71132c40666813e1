//! The metrics of a launcher that runs.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::site::within;
use crate::world::{Cluster, Look};

async fn scrape(address: &str) -> String {
    let mut stream = within(TcpStream::connect(address)).await.unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    within(stream.write_all(request)).await.unwrap();
    let mut text = String::new();
    within(stream.read_to_string(&mut text)).await.unwrap();
    text
}

#[tokio::test]
async fn a_launcher_tells_scrapers_of_its_instances_and_its_connection() {
    let mut cluster = Cluster::new(&[]).await;
    let flags = ["--metrics", "127.0.0.1:0", "--logtostderr"];
    let mut launcher = cluster.launcher("node-a", &flags);
    let mut launcher = launcher.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stderr.take().unwrap()).lines();
    let address = loop {
        let line = within(lines.next_line()).await.unwrap().unwrap();
        if let Some((_, address)) = line.split_once("serves metrics on ") {
            break address.trim().to_owned();
        }
    };
    // What it says later is not waited for, and must not fill its pipe.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    cluster.ready(&["node-a"]).await;
    cluster
        .run("--mem 16 --cpus 1 --wait=running", "exec sleep 1000")
        .await;
    let expected = [
        "ciao_launcher_connected 1.0",
        "ciao_launcher_instances{state=\"active\"} 1.0",
        "ciao_launcher_reconnects_total 0",
    ];
    let has = |text: &str, line: &str| text.lines().any(|it| it == line);
    let mut look = Look::new();
    loop {
        let text = scrape(&address).await;
        if expected.iter().all(|line| has(&text, line)) {
            break;
        }
        look.again(|| text).await;
    }
    cluster.kill_scheduler().await;
    let mut look = Look::new();
    loop {
        let text = scrape(&address).await;
        if has(&text, "ciao_launcher_connected 0.0") {
            break;
        }
        look.again(|| text).await;
    }
    launcher.start_kill().unwrap();
    within(launcher.wait()).await.unwrap();
}
