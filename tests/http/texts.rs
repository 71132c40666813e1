//! Texts that others chose, where they are shown: in answers over HTTP, by `ciaoctl` and in the log. Each on one line, of
//! characters that are shown, and short.

use std::time::Duration;

use ciao_scheduler::cert::Spec;
use ciao_scheduler::printable::is_unprintable;
use proto_frames::payload::{
    CommandFailure, CommandFailureReason, Delete, InstanceStopped, LifecycleCommand, Payload,
    Ready, Start, StartFailure, StartFailureReason,
};
use proto_frames::{Encoding, Kind, Role, Uuid};

use crate::client::Http;
use crate::peer::{Dialer, Peer};
use crate::site::{Daemon, Site, output};
use crate::words::{PLENTY, instance};

/// Clears the screen, forges a line of the log, colours the rest, turns the direction of writing around.
const EVIL: &str = "x\u{1b}[2J\n2030-01-01T00:00:00.000000Z  WARN forged\r\u{9b}31m\u{202e}\u{2028}\u{7f}\u{e0041}z";

/// Most bytes of a line or answer about one thing: more than [`sched_core::MAX_TEXT_LEN`], and each character that is not
/// shown takes some more.
const SHORT: usize = 4096;

/// That, and much more behind it.
fn evil() -> String {
    format!("{EVIL}{}", "y".repeat(3000))
}

/// The same as part of a path.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |all, byte| match byte {
        b'a'..=b'z' | b'0'..=b'9' => all + &char::from(byte).to_string(),
        other => all + &format!("%{other:02X}"),
    })
}

/// Nothing in it is an order to a terminal, and no line of it is another's.
fn is_shown(text: &str, what: &str) {
    let found = text.find(|c| c != '\n' && is_unprintable(c));
    assert_eq!(found, None, "{what}: {text:?}");
    assert!(
        !text.lines().any(|line| line.starts_with("2030")),
        "{what}: {text:?}"
    );
}

/// All lines of the log are the daemon's, and none is long.
fn is_log_clean(daemon: &Daemon) {
    for line in daemon.log() {
        is_shown(&line, "the log");
        assert!(line.len() < 2 * SHORT, "{} bytes: {line}", line.len());
    }
}

/// Runs `ciaoctl`; what it prints.
async fn ciaoctl(site: &Site, daemon: &Daemon, args: &[&str]) -> String {
    let mut command = site.ciaoctl(daemon.address);
    command.args(args);
    let ran = output(command).await;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, err) = (text(&ran.stdout), text(&ran.stderr));
    is_shown(&out, args[0]);
    is_shown(&err, args[0]);
    out + &err
}

/// A report of a node that is called so, with this fault.
fn ready(node: Uuid, hostname: &str, fault: &str) -> Ready {
    Ready {
        node_uuid: node.to_string(),
        mem_total_mb: PLENTY,
        mem_available_mb: PLENTY,
        disk_total_mb: PLENTY,
        disk_available_mb: PLENTY,
        load: 0,
        cpus_online: 1 << 20,
        hostname: hostname.to_owned(),
        fault: fault.to_owned(),
        ..Ready::default()
    }
}

async fn node_called(site: &Site, daemon: &Daemon, hostname: &str, fault: &str) -> Peer {
    let mut node = site.node(daemon).await;
    let report = ready(node.uuid, hostname, fault);
    node.send(Kind::READY, report.encode()).await;
    node.settle().await;
    node
}

#[tokio::test]
async fn a_refusal_repeats_what_was_asked_for_short_and_escaped() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let evil = encoded(&evil());
    for (method, path) in [
        ("GET", "/v1/nodes/{}"),
        ("POST", "/v1/nodes/{}/cordon"),
        ("POST", "/v1/nodes/{}/drain"),
        ("POST", "/v1/nodes/{}/abort-drain"),
        ("DELETE", "/v1/nodes/{}"),
        ("POST", "/v1/nodes/{}/none"),
        ("GET", "/v1/instances/{}"),
        ("GET", "/v1/instances/{}/history"),
        ("GET", "/v1/instances/{}/output"),
        ("DELETE", "/v1/instances/{}"),
        ("POST", "/v1/instances/{}/suspend"),
        ("POST", "/v1/instances/{}/migrate"),
        ("GET", "/v1/{}"),
        ("GET", "/v1/nodes?{}=1"),
        ("GET", "/v1/nodes?limit={}"),
        ("GET", "/v1/nodes?fields={}"),
        ("GET", "/v1/nodes?after={}"),
        ("GET", "/v1/instances?ended={}"),
        ("GET", "/v1/instances?after={}"),
        ("GET", "/v1/instances?selector={}"),
        ("GET", "/v1/instances?selector=state%20%3D%20{}"),
        ("GET", "/v1/events?from={}"),
        ("GET", "/v1/events?topics={}"),
        ("GET", "/v1/images/{}"),
    ] {
        let answer = http.send(method, &path.replace("{}", &evil), "").await;
        let what = format!("{method} {path}");
        let (status, reason, field) = answer.problem();
        assert!((400..500).contains(&status), "{what}: {answer:?}");
        is_shown(&answer.body, &what);
        let document = answer.json();
        let detail = document["detail"].as_str().unwrap();
        is_shown(detail, &what);
        is_shown(&field, &what);
        assert!(
            !detail.contains('\n') && !field.contains('\n'),
            "{what}: {document}"
        );
        assert!(
            detail.len() + field.len() < SHORT / 2,
            "{what} {reason}: {document}"
        );
    }
    is_log_clean(&daemon);
}

#[tokio::test]
async fn a_name_that_several_have_is_repeated_short() {
    let (site, daemon) = Site::with_http(&[]).await;
    // As long as a host name may be.
    let name = format!("<b>Ann's {}", "n".repeat(246));
    let _nodes = [
        node_called(&site, &daemon, &name, "").await,
        node_called(&site, &daemon, &name, "").await,
    ];
    let http = site.http(&daemon, Role::CONTROLLER).await;
    for (method, end) in [("GET", ""), ("POST", "/cordon"), ("POST", "/drain")] {
        let path = format!("/v1/nodes/{}{end}", encoded(&name));
        let answer = http.send(method, &path, "").await;
        assert_eq!(answer.problem().1, "ambiguous", "{answer:?}");
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        assert!(
            detail.starts_with("2 nodes have the host name '<b>Ann's n"),
            "{detail}"
        );
        assert!(detail.len() < 120, "{detail}");
    }
    let mut master = site.master(&daemon).await;
    for (number, tenant) in [(1, "a"), (2, "b")] {
        let start = format!(
            "start:\n  instance_uuid: {}\n  tenant_uuid: {tenant}\n  requirements: {{mem_mb: 1, vcpus: 1}}\n  scheduling: {{name: web}}\n",
            instance(number)
        );
        master.send(Kind::START, start).await;
    }
    master.settle().await;
    let answer = http.get("/v1/instances/web").await;
    assert_eq!(answer.problem().1, "ambiguous", "{answer:?}");
    assert_eq!(answer.json()["detail"], "2 instances are called 'web'");
}

#[tokio::test]
async fn what_is_not_well_is_shown_short_and_escaped_however_a_node_says_it() {
    let (site, daemon) = Site::with_http(&[]).await;
    let host = "<img src=x> Ann's";
    let _node = node_called(&site, &daemon, host, &evil()).await;
    let http = site.http(&daemon, Role::VIEWER).await;
    let ready = http.get("/readyz?verbose").await;
    is_shown(&ready.body, "/readyz");
    let conditions = ready.ok(200)["conditions"].as_array().unwrap().clone();
    let fault = conditions
        .iter()
        .find(|it| it["kind"] == "node_fault")
        .unwrap();
    let what = fault["what"].as_str().unwrap();
    // A program that reads JSON gets it as it is, as far as it is kept.
    assert!(
        what.starts_with(&format!("node {host} takes no work: {EVIL}")),
        "{what:?}"
    );
    assert!(what.len() < SHORT / 2, "{} bytes", what.len());
    let nodes = http.get("/v1/nodes").await;
    is_shown(&nodes.body, "/v1/nodes");
    assert_eq!(nodes.ok(200)["items"][0]["hostname"], host);
    for args in [
        &["status"][..],
        &["status", "--json"],
        &["nodes", "--wide"],
        &["describe", "node", host],
    ] {
        let said = ciaoctl(&site, &daemon, args).await;
        assert!(said.contains("Ann's"), "{args:?}: {said}");
        assert!(
            said.lines().all(|line| line.len() < SHORT),
            "{args:?}: {said}"
        );
    }
    let status = ciaoctl(&site, &daemon, &["status"]).await;
    assert!(
        status.contains("takes no work: x\\u{1b}[2J\\n2030"),
        "{status}"
    );
    is_log_clean(&daemon);
}

/// A node on which nothing can be started, and that cannot delete or migrate anything, for reasons of its own.
async fn fails(mut node: Peer) {
    while let Some(frame) = node.next().await {
        let failure = match frame.kind {
            Kind::START => {
                let start = Start::decode(&frame.payload).unwrap();
                let failure = StartFailure {
                    node_uuid: node.uuid.to_string(),
                    instance_uuid: start.instance_uuid,
                    reason: StartFailureReason::LaunchFailure,
                    detail: Some(evil()),
                    ..StartFailure::default()
                };
                (Kind::START_FAILURE, failure.encode())
            }
            Kind::MIGRATE => {
                let failure = CommandFailure {
                    command: LifecycleCommand::Migrate,
                    instance_uuid: instance(1).to_string(),
                    node_uuid: node.uuid.to_string(),
                    reason: CommandFailureReason::Other(evil()),
                    detail: evil(),
                };
                (Kind::COMMAND_FAILURE, failure.encode())
            }
            _ => continue,
        };
        node.send(failure.0, failure.1).await;
    }
}

/// A node whose instances end once that is asked for.
async fn obeys(mut node: Peer) {
    while let Some(frame) = node.next().await {
        if frame.kind == Kind::DELETE {
            let stopped = InstanceStopped {
                instance_uuid: Delete::decode(&frame.payload).unwrap().instance_uuid,
                ..InstanceStopped::default()
            };
            node.send(Kind::INSTANCE_STOPPED, stopped.encode()).await;
            node.stats(&[]).await;
        }
    }
}

/// Waits until the rows of an instance's history have this in them; the whole answer.
async fn history_with(http: &Http, text: &str) -> String {
    let path = format!("/v1/instances/{}/history", instance(1));
    let mut look = tokio::time::interval(Duration::from_millis(50));
    loop {
        look.tick().await;
        let answer = http.get(&path).await;
        is_shown(&answer.body, &path);
        if answer.body.contains(text) {
            return answer.body;
        }
        assert!(answer.status == 200, "{answer:?}");
    }
}

#[tokio::test]
async fn what_a_drain_comes_to_is_shown_short_and_escaped_however_a_node_says_it() {
    let (site, daemon) = Site::with_http(&[]).await;
    let http = site.http(&daemon, Role::CONTROLLER).await;
    let mut node = node_called(&site, &daemon, "Ann's", "").await;
    let uuid = node.uuid;
    let mut master = site.master(&daemon).await;
    let start = format!(
        "start:\n  instance_uuid: {}\n  requirements: {{mem_mb: 1, vcpus: 1}}\n  scheduling: {{queue: 1h, relocate: true, \
         name: web}}\n",
        instance(1)
    );
    master.send(Kind::START, start).await;
    assert_eq!(node.expect_start().await, instance(1));
    node.stats(&[instance(1)]).await;
    node.settle().await;
    let other = node_called(&site, &daemon, "<b>Bea", "").await;
    tokio::spawn(obeys(node));
    tokio::spawn(fails(other));
    http.send("POST", &format!("/v1/nodes/{uuid}/drain"), "")
        .await
        .ok(202);
    let history = crate::site::within(history_with(&http, "forged")).await;
    assert!(history.len() < 4 * SHORT, "{} bytes", history.len());
    for path in [
        "/v1/nodes",
        "/v1/instances",
        "/v1/queue",
        "/v1/status",
        "/readyz?verbose",
        "/metrics",
    ] {
        let answer = http.get(path).await;
        is_shown(&answer.body, path);
    }
    let id = instance(1).to_string();
    for args in [
        &["status"][..],
        &["history", &id],
        &["history", "web", "--json"],
        &["instances", "--all", "--wide"],
        &["describe", "instance", "web"],
        &["describe", "node", "Ann's"],
        &["explain", "--instance", "web"],
        &["queue", "--wide"],
        &["drain", "--check", "Ann's"],
        &["nodes", "--wide"],
    ] {
        let said = ciaoctl(&site, &daemon, args).await;
        assert!(
            said.lines().all(|line| line.len() < SHORT),
            "{args:?}: {said}"
        );
    }
    let history = ciaoctl(&site, &daemon, &["history", &id]).await;
    assert!(history.contains("x\\u{1b}[2J\\n2030"), "{history}");
    is_log_clean(&daemon);
}

#[tokio::test]
async fn the_subject_of_a_certificate_is_shown_short_and_escaped() {
    let (site, daemon) = Site::with_http(&["-v=1"]).await;
    let node = site.ready_node(&daemon).await;
    let of = |role: Role| Spec {
        organization: Some(evil()),
        lifetime: Duration::from_secs(86_400),
        ..Spec::localhost(role)
    };
    // It ends soon: a condition of its own.
    let peer = Dialer {
        tls: site.ca.client_with(&of(Role::AGENT)),
        ..site.dialer(&daemon, Role::AGENT, Encoding::Native)
    };
    let peer = peer.connect().await;
    let http = Http {
        tls: site.ca.client_with(&of(Role::CONTROLLER)),
        ..site.http(&daemon, Role::CONTROLLER).await
    };
    http.send("POST", &format!("/v1/nodes/{}/cordon", node.uuid), "")
        .await
        .ok(202);
    let line = daemon.logged("COMMAND EVACUATE of node").await;
    assert!(line.contains(" by O=x\\u{1b}[2J\\n2030"), "{line}");
    let ready = http.get("/readyz?verbose").await;
    is_shown(&ready.body, "/readyz");
    let conditions = ready.ok(200)["conditions"].as_array().unwrap().clone();
    let ends = conditions
        .iter()
        .find(|it| it["kind"] == "certificate")
        .unwrap();
    assert_eq!(ends["subject"], peer.uuid.to_string());
    assert!(ready.body.len() < SHORT, "{ready:?}");
    let status = ciaoctl(&site, &daemon, &["status"]).await;
    assert!(status.contains("ends in"), "{status}");
    let longest = daemon.log().iter().map(String::len).max();
    assert!(longest < Some(2000), "{longest:?}");
    is_log_clean(&daemon);
}
