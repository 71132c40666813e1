//! `ciaoctl web`: who is let in, what is passed on, and what becomes of it when the scheduler is away.

use std::process::Stdio;

use proto_frames::Role;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use crate::client::{Answer, http_address};
use crate::site::{Daemon, Site, output, within};

/// One that runs.
struct Web {
    /// Where it listens, as `Host` has it.
    host: String,
    /// The address to open, behind the host.
    open: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Web {
    async fn start(site: &Site, daemon: &Daemon) -> Self {
        Self::in_line(command(site, daemon, &[]).await, 0).await
    }

    /// A program that prints the address in this line.
    async fn in_line(mut command: Command, number: usize) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..number {
            within(lines.next_line()).await.unwrap().unwrap();
        }
        let url = within(lines.next_line()).await.unwrap().unwrap();
        let (host, open) = address_in(&url);
        Self {
            host,
            open,
            child,
            lines,
        }
    }

    /// What comes of a request with these headers beside `Host`.
    async fn send(&self, method: &str, path: &str, headers: &str) -> Answer {
        let mut stream = within(TcpStream::connect(&self.host)).await.unwrap();
        let host = match headers.contains("host:") {
            true => String::new(),
            false => format!("host: {}\r\n", self.host),
        };
        let request =
            format!("{method} {path} HTTP/1.1\r\n{host}connection: close\r\n{headers}\r\n");
        within(stream.write_all(request.as_bytes())).await.unwrap();
        let mut bytes = Vec::new();
        within(stream.read_to_end(&mut bytes)).await.unwrap();
        Answer::read(&bytes)
    }

    /// Sends it what Ctrl-C does.
    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::INT).unwrap();
    }

    /// Exchanges the token; the header with the cookie.
    async fn let_in(&self) -> String {
        let answer = self.send("GET", &self.open, "").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let (_, cookie) = answer.head.split_once("set-cookie: ").unwrap();
        let (cookie, attributes) = cookie.split_once("; ").unwrap();
        assert!(
            attributes.starts_with("path=/; httponly; samesite=strict\r\n"),
            "{attributes}"
        );
        format!("cookie: {cookie}\r\n")
    }
}

async fn command(site: &Site, daemon: &Daemon, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
    command
        .arg("web")
        .arg("--http")
        .arg(format!("https://{}", http_address(daemon).await))
        .arg("--cert")
        .arg(site.path("controller.pem"))
        .arg("--cacert")
        .arg(site.path("CAcert.pem"))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Host and rest of an address in a line.
fn address_in(line: &str) -> (String, String) {
    let (_, address) = line.split_once("http://").unwrap();
    let (host, rest) = address.split_once('/').unwrap();
    (host.to_owned(), format!("/{rest}"))
}

#[tokio::test]
async fn a_browser_is_let_in_by_a_token_that_is_good_once() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut web = Web::start(&site, &daemon).await;
    let refused = web.send("GET", "/v1/status", "").await;
    assert_eq!(refused.problem().1, "no_session");
    let for_people = web.send("GET", "/", "accept: text/html\r\n").await;
    assert_eq!(for_people.status, 401);
    assert!(for_people.body.contains("ciaoctl web"), "{for_people:?}");
    let cookie = web.let_in().await;
    let page = web.send("GET", "/", &cookie).await;
    assert_eq!(page.status, 200);
    assert!(
        page.head
            .contains("content-security-policy: default-src 'none'; script-src 'self'")
    );
    let status = web.send("GET", "/v1/status", &cookie).await.ok(200);
    assert_eq!(status["caller"]["may_command"], true);
    assert_eq!(
        web.send("GET", &web.open, "").await.problem().1,
        "wrong_token"
    );
    // Another browser is let in by the next address, which was printed.
    let next = loop {
        let line = within(web.lines.next_line()).await.unwrap().unwrap();
        if line.contains("http://") {
            break address_in(&line).1;
        }
    };
    assert_ne!(next, web.open);
    web.open = next;
    assert_eq!(web.let_in().await, cookie);
}

#[tokio::test]
async fn commands_need_the_header_that_no_other_page_can_send() {
    let (site, daemon) = Site::with_http(&[]).await;
    let node = site.ready_node(&daemon).await;
    let web = Web::start(&site, &daemon).await;
    let cookie = web.let_in().await;
    let path = format!("/v1/nodes/{}/cordon", node.uuid);
    for (headers, reason) in [
        ("", "no_command_header"),
        (
            "origin: http://evil.example\r\nciao-web: command\r\n",
            "cross_origin",
        ),
        (
            "sec-fetch-site: cross-site\r\nciao-web: command\r\n",
            "cross_origin",
        ),
        ("host: evil.example\r\nciao-web: command\r\n", "wrong_host"),
    ] {
        let answer = web
            .send(
                "POST",
                &path,
                &format!("{cookie}{headers}content-length: 0\r\n"),
            )
            .await;
        assert_eq!(answer.problem().1, reason, "{headers}");
    }
    let http = site.http(&daemon, Role::VIEWER).await;
    let row = http.get(&format!("/v1/nodes/{}", node.uuid)).await.ok(200);
    assert_eq!(row["node"].get("cordoned"), None);
    let ours = format!(
        "{cookie}origin: http://{}\r\nciao-web: command\r\ncontent-length: 0\r\n",
        web.host
    );
    assert_eq!(web.send("POST", &path, &ours).await.status, 202);
    let row = http.get(&format!("/v1/nodes/{}", node.uuid)).await.ok(200);
    assert_eq!(row["node"]["cordoned"], true);
    let long = format!("{cookie}ciao-web: command\r\ncontent-length: 10000000\r\n");
    let answer = web.send("POST", "/v1/explain", &long).await;
    assert_eq!(answer.problem().1, "too_long");
}

#[tokio::test]
async fn events_are_passed_on_as_they_come() {
    let (site, daemon) = Site::with_http(&[]).await;
    let web = Web::start(&site, &daemon).await;
    let cookie = web.let_in().await;
    let mut stream = within(TcpStream::connect(&web.host)).await.unwrap();
    let request = format!(
        "GET /v1/events HTTP/1.1\r\nhost: {}\r\n{cookie}\r\n",
        web.host
    );
    within(stream.write_all(request.as_bytes())).await.unwrap();
    let mut text = String::new();
    let mut until = async |end: &str| {
        while !text.contains(end) {
            let mut bytes = [0; 4096];
            let count = within(stream.read(&mut bytes)).await.unwrap();
            assert!(count > 0, "the stream has ended: {text}");
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
    };
    until("event: begin").await;
    let node = site.node(&daemon).await;
    until(&format!("{}", node.uuid)).await;
}

#[tokio::test]
async fn it_says_that_the_scheduler_is_away_and_ends_with_ctrl_c() {
    let (site, daemon) = Site::with_http(&[]).await;
    let mut web = Web::start(&site, &daemon).await;
    let cookie = web.let_in().await;
    web.send("GET", "/v1/status", &cookie).await.ok(200);
    daemon.kill().await;
    let answer = web.send("GET", "/v1/status", &cookie).await;
    let (status, reason, _) = answer.problem();
    assert_eq!((status, &*reason), (502, "scheduler_away"));
    web.interrupt();
    let status = within(web.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn more_connections_than_it_takes_are_closed_at_once() {
    let (site, daemon) = Site::with_http(&[]).await;
    let web = Web::start(&site, &daemon).await;
    let cookie = web.let_in().await;
    let mut held = Vec::new();
    // Each has been answered once and stays open, until one more is closed without an answer.
    let closed = loop {
        let mut stream = within(TcpStream::connect(&web.host)).await.unwrap();
        let request = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n{cookie}\r\n", web.host);
        let mut bytes = [0; 1024];
        let written = within(stream.write_all(request.as_bytes())).await;
        match within(stream.read(&mut bytes)).await {
            Ok(count) if count > 0 && written.is_ok() => held.push(stream),
            _ => break held.len(),
        }
        assert!(held.len() < 1000, "there is no limit");
    };
    assert!((8..100).contains(&closed), "{closed} connections");
    // A place that is given back is taken by the next.
    held.clear();
    let answer = loop {
        let mut stream = within(TcpStream::connect(&web.host)).await.unwrap();
        let request = format!("GET /livez HTTP/1.1\r\nhost: {}\r\n{cookie}\r\n", web.host);
        let mut bytes = [0; 1024];
        let _ = within(stream.write_all(request.as_bytes())).await;
        if let Ok(count @ 1..) = within(stream.read(&mut bytes)).await {
            break Answer::read(&bytes[..count]);
        }
    };
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn what_other_machines_could_reach_is_not_listened_on() {
    let (site, daemon) = Site::with_http(&[]).await;
    for (flags, said) in [
        (
            ["--listen", "0.0.0.0:0"],
            "can be reached from other machines",
        ),
        (["--http", "http://localhost:1"], "HTTPS alone"),
        (["--http", "https://a/b"], "characters that no host has"),
    ] {
        let mut command = command(&site, &daemon, &[]).await;
        let output = output(match flags[0] {
            "--http" => {
                let mut other = Command::new(env!("CARGO_BIN_EXE_ciaoctl"));
                other.arg("web").args(flags);
                other
            }
            _ => {
                command.args(flags);
                command
            }
        })
        .await;
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(said), "{err}");
    }
}

#[tokio::test]
async fn dev_prints_the_address_of_the_page_as_its_second_line() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ciao-scheduler"));
    command
        .args(["dev", "--nodes", "1", "--directory"])
        .arg(directory.path().join("dev"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut dev = Web::in_line(command, 1).await;
    let cookie = dev.let_in().await;
    let status = dev.send("GET", "/v1/status", &cookie).await.ok(200);
    assert_eq!(status["nodes"]["by_status"]["READY"], 1);
    assert_eq!(status["caller"]["may_command"], true);
    dev.interrupt();
    let status = within(dev.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0));
}
