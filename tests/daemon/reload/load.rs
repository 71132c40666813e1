//! A hundred reloads under load, one in four of them of broken files: no session ends, no START is lost, no
//! handshake is refused, and each that is taken shows in the next handshake.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ciao_scheduler::cert::{Anchor, Spec};
use proto_frames::{Encoding, Kind, Role, Uuid};
use tokio::task::JoinSet;

use super::{is_heard, renewed, replace, serial_of, shown_serial};
use crate::peer::{Dialer, Peer};
use crate::site::Site;
use crate::words::{PLENTY, instance, start, started};

/// Sessions that are to outlive all reloads, beside the controller's: nodes in both encodings.
const SESSIONS: usize = 1000;
/// Of these, nodes that take STARTs.
const READY: usize = 8;
const RELOADS: usize = 100;
/// Sent at once before each reload is asked for, and as many again behind that.
const STARTS: usize = 10;
/// Handshakes under way at a time while the sessions are opened.
const AT_A_TIME: usize = 16;

/// Puts broken files there, each time in another way.
fn spoil(site: &Site, round: usize) {
    let next = renewed(&site.ca.anchor);
    let path = site.path("scheduler.pem");
    match round / 4 % 4 {
        0 => replace(&path, next.certificate_pem()),
        1 => replace(&path, &next.pem()[..next.pem().len() / 2]),
        2 => {
            let other = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
            replace(&path, renewed(&other).pem());
        }
        _ => {
            let other = site.ca.anchor.sign(&Spec::localhost(Role::AGENT));
            replace(&path, other.unwrap().pem());
        }
    }
}

/// Opens the sessions, half of them in each encoding.
pub(crate) async fn open(dialers: [Dialer; 2]) -> Vec<Peer> {
    let mut opening = JoinSet::new();
    let mut peers = Vec::new();
    for number in 0..SESSIONS {
        if opening.len() == AT_A_TIME {
            peers.push(opening.join_next().await.unwrap().unwrap());
        }
        let dialer = dialers[number % 2].clone().with_uuid(Uuid::new_v4());
        opening.spawn(async move { dialer.connect().await });
    }
    peers.extend(opening.join_all().await);
    peers
}

/// Connects again and again until it is to end; how often it did. A handshake that fails ends the test.
async fn keep_connecting(dialer: Dialer, is_over: Arc<AtomicBool>, count: Arc<AtomicUsize>) {
    while !is_over.load(Ordering::Relaxed) {
        let peer = dialer.clone().with_uuid(Uuid::new_v4()).connect().await;
        peer.close().await;
        count.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_reloads_under_load_disconnect_nobody_lose_no_start_and_refuse_no_handshake() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let [native, original] = [Encoding::Native, Encoding::Gob]
        .map(|encoding| site.dialer(&daemon, Role::AGENT, encoding));
    let mut peers = open([native.clone(), original]).await;
    for node in &mut peers[..READY] {
        node.ready(PLENTY).await;
        node.settle().await;
    }
    let mut master = site.master(&daemon).await;
    master.settle().await;
    let (is_over, connected) = (Arc::default(), Arc::default());
    let operator = site.dialer(&daemon, Role::OPERATOR, Encoding::Native);
    let connecting = keep_connecting(operator, Arc::clone(&is_over), Arc::clone(&connected));
    let connecting = tokio::spawn(connecting);

    let mut shown = shown_serial(&native).await;
    let (mut sent, mut arrived) = (0, HashSet::new());
    for round in 0..RELOADS {
        let is_broken = round % 4 == 3;
        if is_broken {
            spoil(&site, round);
        } else {
            let next = renewed(&site.ca.anchor);
            assert_ne!(serial_of(next.pem()), shown);
            shown = serial_of(next.pem());
            replace(&site.path("scheduler.pem"), next.pem());
        }
        let mut starts = || {
            let numbers = sent..sent + STARTS;
            sent += STARTS;
            numbers.map(|number| (Kind::START, start(instance(number as u128), 1)))
        };
        master.pour(starts()).await;
        daemon.hang_up();
        master.pour(starts()).await;
        // Each has one line.
        let lines = daemon.logged_times("SIGHUP: all ", round + 1).await;
        let is_refused = lines[round].contains(super::REFUSED);
        assert_eq!(is_refused, is_broken, "{}", lines[round]);
        assert_eq!(shown_serial(&native).await, shown, "round {round}");
        // The controller is sent no failure of any START.
        let events = master.settle().await;
        let failed = events.iter().find(|it| it.kind == Kind::START_FAILURE);
        assert!(failed.is_none(), "{failed:?}");
        for node in &mut peers[..READY] {
            let frames = node.settle().await;
            let starts = frames.iter().filter(|it| it.kind == Kind::START);
            arrived.extend(starts.map(|it| started(&it.payload)));
        }
    }
    is_over.store(true, Ordering::Relaxed);
    connecting.await.unwrap();
    assert!(connected.load(Ordering::Relaxed) >= RELOADS / 10);

    let all: HashSet<Uuid> = (0..sent).map(|number| instance(number as u128)).collect();
    assert_eq!(arrived, all);
    for peer in &mut peers {
        is_heard(peer).await;
    }
    let log = daemon.log().join("\n");
    for unwanted in ["event=node_lost", "event=peer_cut_off"] {
        assert!(!log.contains(unwanted), "{unwanted}: {log}");
    }
}
