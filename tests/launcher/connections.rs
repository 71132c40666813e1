//! Connecting, reconnecting, being refused; simulated nodes; and what is said when nothing can be started at all.

use std::collections::BTreeSet;
use std::process::Output;

use bytes::Bytes;
use proto_frames::payload::{Payload, Ready, ReportReceived, Start};
use proto_frames::{Connected, Frame, Kind, Message, Role, Term, Uuid};

use crate::world::{Peer, SERVER, World, shell, until, within};

#[tokio::test]
async fn a_node_reports_itself_with_the_certificates_role_and_keeps_its_uuid() {
    let (_world, _launcher, mut peer) = World::connected(&["-hostname=node-7", "-cpus=1"]).await;
    assert_eq!(peer.connect.role, Role::AGENT);
    let ready = Ready::decode(&peer.next(&[Kind::READY]).await.payload).unwrap();
    assert_eq!(ready.node_uuid, peer.connect.source.to_string());
    assert_eq!((ready.hostname.as_str(), ready.cpus_online), ("node-7", 1));
    assert!(
        ready.mem_total_mb > 0 && ready.disk_total_mb > 0 && ready.load >= 0,
        "{ready:?}"
    );
}

#[tokio::test]
async fn the_originals_encoding_is_spoken_on_request() {
    let (world, _launcher, mut peer) = World::connected(&["-encoding=gob"]).await;
    peer.shell("a", "echo hello; exit 2").await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(2)));
    assert_eq!(world.output("a"), "hello\n");
}

#[tokio::test]
async fn a_launcher_tries_again_when_it_is_cut_off_or_refused_for_now() {
    let (world, _launcher, peer) = World::connected(&[]).await;
    drop(peer);
    let mut peer = world.knock().await;
    let refusal = Frame::new(Kind::CONNECTION_FAILURE, Uuid::nil(), "");
    peer.send_message(Message::Frame(refusal)).await;
    drop(peer);
    world.accept().await.next(&[Kind::READY]).await;
}

#[tokio::test]
async fn a_launcher_takes_nothing_from_a_scheduler_whose_term_is_earlier_than_one_that_it_has_known()
 {
    let world = World::new().await;
    let mut launcher = world.launch(&[]);
    let term = |revision| Term {
        generation: 0,
        revision,
    };
    let under = |peer: &Peer, revision| {
        let connected = Connected::new(SERVER, peer.connect.source, Bytes::new());
        Message::Connected(connected.under(term(revision)))
    };
    let mut peer = world.knock().await;
    peer.send_message(under(&peer, 5)).await;
    peer.next(&[Kind::READY]).await;
    drop(peer);
    let mut peer = world.knock().await;
    peer.send_message(under(&peer, 4)).await;
    assert!(peer.is_left().await);
    // After a restart as well.
    launcher.signal(rustix::process::Signal::KILL);
    launcher.ended().await;
    let _launcher = world.launch(&[]);
    let mut peer = world.knock().await;
    peer.send_message(under(&peer, 4)).await;
    assert!(peer.is_left().await);
    let mut peer = world.knock().await;
    peer.send_message(under(&peer, 6)).await;
    peer.next(&[Kind::READY]).await;
}

/// As a scheduler that is stopped, or a network that drops everything: nothing is closed, and the kernel takes all that
/// is sent.
#[tokio::test]
async fn a_scheduler_that_answers_no_report_any_more_is_dialled_again() {
    let world = World::new().await;
    let _launcher = world.launch(&["-lease=0"]);
    let mut peer = world.knock().await;
    let connected = Connected::new(SERVER, peer.connect.source, Bytes::new()).answering_reports();
    peer.send_message(Message::Connected(connected)).await;
    for number in 1..=3 {
        let stats = peer.stats(|_| true).await;
        assert_eq!((stats.report_seq, stats.lease_seq), (Some(number), None));
        let seq = stats.report_seq.unwrap();
        peer.send(Kind::REPORT_RECEIVED, ReportReceived { seq }.encode())
            .await;
    }
    // Silent from here on, and open until the launcher is back.
    world.accept().await;
    drop(peer);
}

#[tokio::test]
async fn of_a_scheduler_that_answers_no_reports_none_is_numbered() {
    let (_world, _launcher, mut peer) = World::connected(&["-lease=0"]).await;
    let stats = peer.stats(|_| true).await;
    assert_eq!((stats.report_seq, stats.lease_seq), (None, None));
}

#[tokio::test]
async fn a_launcher_that_finds_another_scheduler_than_it_was_told_says_so() {
    let world = World::new().await;
    let port = world.address().port();
    // Nothing listens on that address of loopback; the CA certificate's name leads to the scheduler.
    let server = format!("-server=127.9.9.9:{port}");
    let logs = world.path("logs");
    let directory = format!("-log_dir={}", logs.display());
    let _launcher = world.launch(&[&server, &directory]);
    let mut peer = world.accept().await;
    peer.next(&[Kind::READY]).await;
    until("it says where it is", || {
        let entries = std::fs::read_dir(&logs).unwrap();
        let texts = entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
        let said = format!("not the scheduler of -server (127.9.9.9:{port})");
        let log: String = texts.collect();
        log.contains(&said) && log.contains("instead, an address of the CA certificate")
    })
    .await;
}

#[tokio::test]
async fn a_launcher_opens_its_log_again_on_sighup() {
    let world = World::new().await;
    let logs = world.path("logs");
    let directory = format!("-log_dir={}", logs.display());
    let launcher = world.launch(&[&directory]);
    let mut peer = world.accept().await;
    peer.next(&[Kind::READY]).await;
    let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|it| it == "log");
    let mut entries = std::fs::read_dir(&logs).unwrap();
    let log = entries.find_map(|entry| Some(entry.unwrap().path()).filter(is_log));
    let log = log.unwrap();
    std::fs::rename(&log, logs.join("rotated.1")).unwrap();
    launcher.signal(rustix::process::Signal::HUP);
    until("the log is there again", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("event=log_reopened"))
    })
    .await;
}

#[tokio::test]
async fn a_launcher_that_is_refused_for_good_ends_and_says_why() {
    let world = World::new().await;
    let running = run(&world, &[]);
    let refuse = async {
        let mut peer = world.knock().await;
        let refusal = Frame::new(Kind::CONNECTION_ABORTED, Uuid::nil(), "");
        peer.send_message(Message::Frame(refusal)).await;
    };
    let (output, ()) = within(async { tokio::join!(running, refuse) }).await;
    assert_failed(&output, "refuses this certificate");
}

#[tokio::test]
async fn what_cannot_work_is_said_in_one_line_before_anything_is_started() {
    let world = World::new().await;
    let controller = format!("-cert={}", world.path("controller.pem").display());
    let uuid = Uuid::from_u128(7);
    for (args, reason) in [
        (&["-cert=/no/such.pem"][..], "/no/such.pem"),
        (&[controller.as_str()], "needs AGENT or NETAGENT"),
        (&["-role=netagent"], "does not grant NETAGENT"),
        (
            &["-state-dir=/dev/null/state"],
            "give another with --state-dir",
        ),
        (&["-label=a=1", "-label=a=2"], "a is given twice"),
        (
            &[&format!("-uuid={uuid}"), &format!("-shares={uuid}")],
            "this node's own UUID",
        ),
    ] {
        let output = within(run(&world, args)).await;
        assert_failed(&output, reason);
    }
}

#[tokio::test]
async fn two_launchers_with_one_state_directory_are_one_too_many() {
    let (world, _launcher, _peer) = World::connected(&[]).await;
    assert_failed(
        &within(run(&world, &[])).await,
        "in use by another launcher",
    );
}

#[tokio::test]
async fn simulated_nodes_each_have_a_connection_and_run_nothing() {
    let world = World::new().await;
    let simulate = ["-simulate=mem=1000,cpus=4,disk=5000,run=0.01", "-count=3"];
    let mut launcher = world.launch(&simulate);
    let mut uuids = BTreeSet::new();
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = world.accept().await;
        let ready = Ready::decode(&peer.next(&[Kind::READY]).await.payload).unwrap();
        assert_eq!(
            (ready.mem_total_mb, ready.cpus_online, ready.disk_total_mb),
            (1000, 4, 5000)
        );
        assert!(uuids.insert(peer.connect.source) && ready.hostname.starts_with("simulated-"));
        peers.push(peer);
    }
    let peer = &mut peers[1];
    peer.start(&Start {
        vm_type: "qemu".to_owned(),
        command: Vec::new(),
        ..shell("a", "")
    })
    .await;
    assert_eq!(peer.stopped().await, ("a".to_owned(), Some(0)));
    assert!(!world.state_dir().exists());
    launcher.signal(rustix::process::Signal::TERM);
    for peer in &mut peers {
        peer.next(&[Kind::OFFLINE]).await;
    }
    assert!(launcher.ended().await.success());
}

/// Runs the launcher until it ends by itself.
async fn run(world: &World, args: &[&str]) -> Output {
    let mut command = world.command(args);
    tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap()
}

fn assert_failed(output: &Output, reason: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    let last = stderr.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("ciao-launcher: ") && last.contains(reason),
        "{stderr}"
    );
}
