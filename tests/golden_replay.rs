//! The recorded client streams (`proto-frames/tests/golden`), replayed byte for byte against the built daemon in the
//! order in which they were recorded. What comes back is what the original scheduler answered, but for the differences
//! listed in `golden_replay/differences.rs`, each with its reason.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

#[path = "common/certs.rs"]
mod certs;
#[path = "golden_replay/differences.rs"]
mod differences;
#[path = "common/peer.rs"]
mod peer;
#[path = "golden_replay/recording.rs"]
mod recording;
#[path = "common/site.rs"]
mod site;

use std::collections::{BTreeMap, BTreeSet};

use bytes::BytesMut;
use proto_frames::{
    Decoder, Encoding, Frame, Kind, Limits, Message, Timestamp, Trace, TraceNode, Uuid,
};

use differences::{DIFFERENCES, Difference};
use peer::{Dialer, NO_SUCH_TYPE, Wire};
use recording::{Recording, closed_after, closed_before};
use site::{Daemon, Site, within};

/// The replay of one recording.
struct Replay<'a> {
    site: &'a Site,
    daemon: &'a Daemon,
    recording: &'a Recording,
    connections: BTreeMap<String, Connection>,
    /// Steps in which a listed difference was met.
    met: BTreeSet<&'static str>,
}

/// One replayed connection, with a decoder for what the original sent on it.
struct Connection {
    wire: Wire,
    original: Decoder,
}

#[tokio::test]
async fn every_recorded_step_is_answered_as_the_original_did_but_for_the_listed_differences() {
    let recording = Recording::load("main");
    let site = Site::new();
    std::fs::write(site.path("configuration.yaml"), recording.configuration()).unwrap();
    let daemon = site.start(&["--in-doubt-time", "10min"]).await;
    let met = Replay::run(&site, &daemon, &recording).await;
    let listed: BTreeSet<_> = DIFFERENCES.iter().map(|listed| listed.step).collect();
    assert_eq!(met, listed, "every listed difference is there");
}

#[tokio::test]
async fn without_a_configuration_connected_is_empty_as_the_originals_is() {
    let recording = Recording::load("noconfig");
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let met = Replay::run(&site, &daemon, &recording).await;
    assert!(met.is_empty());
}

#[test]
fn every_listed_difference_is_of_a_recorded_step_and_has_a_reason() {
    let recording = Recording::load("main");
    for Difference { step, reason, .. } in DIFFERENCES {
        assert!(recording.steps().contains(step), "there is no step {step}");
        assert!(!reason.is_empty(), "{step} has no reason");
    }
}

impl<'a> Replay<'a> {
    /// Replays every step; the steps that were answered differently, as listed.
    async fn run(
        site: &'a Site,
        daemon: &'a Daemon,
        recording: &'a Recording,
    ) -> BTreeSet<&'static str> {
        let mut replay = Self {
            site,
            daemon,
            recording,
            connections: BTreeMap::new(),
            met: BTreeSet::new(),
        };
        for step in recording.steps() {
            // Shown where the test fails.
            println!("step {step}");
            replay.step(step).await;
        }
        replay.met
    }

    async fn step(&mut self, step: &str) {
        if let Some(conn) = closed_before(step) {
            self.close(conn).await;
        }
        let parts = self.recording.parts(step);
        for part in parts.iter().filter(|part| part.is_sent) {
            self.open(part.conn).await;
            let wire = &mut self.connections.get_mut(part.conn).unwrap().wire;
            wire.write(part.bytes).await.unwrap();
        }
        // Those who are closed in this step first: the others are told of it.
        let mut names: Vec<String> = self.connections.keys().cloned().collect();
        names.sort_by_key(|name| closed_after(step) != Some(name));
        for name in &names {
            let received = parts
                .iter()
                .filter(|part| part.conn == name && !part.is_sent);
            let bytes = received.flat_map(|part| part.bytes).copied().collect();
            self.compare(step, name, bytes).await;
            if closed_after(step) == Some(name) {
                self.close(name).await;
            }
        }
        // Senders before receivers: what a sender caused is queued for a receiver once the sender's marker is back.
        let is_sender = |name: &String| parts.iter().any(|part| part.is_sent && part.conn == name);
        names.sort_by_key(|name| !is_sender(name));
        for name in &names {
            self.nothing_else(name).await;
        }
    }

    /// Connects through TLS, unless the connection is there; CONNECT is in the recording.
    async fn open(&mut self, conn: &str) {
        if self.connections.contains_key(conn) {
            return;
        }
        let roles = self.recording.roles(conn);
        let dialer: Dialer = self.site.dialer(self.daemon, roles, Encoding::Gob);
        let connection = Connection {
            wire: within(dialer.tls()).await.unwrap(),
            original: Decoder::client(Encoding::Gob, Limits::default()),
        };
        self.connections.insert(conn.to_owned(), connection);
    }

    async fn close(&mut self, conn: &str) {
        self.connections.remove(conn).unwrap();
        if conn == "controller" {
            // Nobody is told of a promotion in gob, and what the next master sends must come after it.
            self.daemon
                .logged("controller 22222222-2222-4222-8222-222222222222 is master")
                .await;
        }
    }

    /// Compares what the original sent on a connection in a step with what is received.
    async fn compare(&mut self, step: &str, name: &str, original: Vec<u8>) {
        let mut original = BytesMut::from(&original[..]);
        let connection = self.connections.get_mut(name).unwrap();
        let mut expected = Vec::new();
        while let Some(message) = connection.original.decode(&mut original).unwrap() {
            expected.push(told(&message, self.recording.scheduler()));
        }
        assert!(original.is_empty(), "{step}: a recorded message is torn");
        let listed = DIFFERENCES
            .iter()
            .find(|listed| listed.step == step && listed.conn == name);
        if let Some(listed) = listed {
            assert_ne!(expected, listed.ours, "{step}: no difference");
            expected = listed.ours.iter().map(ToString::to_string).collect();
            self.met.insert(listed.step);
        }
        for expected in expected {
            let message = connection.wire.next().await;
            let got = message.map(|message| told(&message, self.daemon.uuid));
            assert_eq!(got, Some(expected), "{step}: what {name} is told");
        }
    }

    /// Makes sure that nothing more was sent on a connection: the next is the answer to a frame of a type that nobody
    /// knows, or the end if the peer was refused.
    async fn nothing_else(&mut self, name: &str) {
        let Some(connection) = self.connections.get_mut(name) else {
            return;
        };
        if name == "rawwrongrole" || name == "rawnotconnect" {
            assert_eq!(connection.wire.next().await, None, "{name} is refused");
            self.connections.remove(name);
            return;
        }
        // The frame brings descriptors of its own, as one of a second encoder would.
        let frame = Frame::new(NO_SUCH_TYPE, Uuid::nil(), "");
        connection.wire.send(&Message::Frame(frame)).await;
        let next = connection.wire.next().await;
        let is_answer =
            matches!(&next, Some(Message::Frame(it)) if it.kind == Kind::INVALID_FRAME_TYPE);
        assert!(is_answer, "{name} is told {next:?} as well");
    }
}

/// A message in words, without what cannot be the same twice: the scheduler's UUID, and the times it stamps.
fn told(message: &Message, scheduler: Uuid) -> String {
    let name = |uuid: Uuid| match uuid == scheduler {
        true => "the scheduler".to_owned(),
        false => uuid.to_string(),
    };
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    match message {
        Message::Connected(connected) => format!(
            "CONNECTED {} from {} to {}: {}",
            connected.role,
            name(connected.source),
            name(connected.destination),
            text(&connected.payload)
        ),
        Message::Frame(frame) => format!(
            "{} {}.{} from {}, {}: {}",
            frame.kind,
            frame.version.major,
            frame.version.minor,
            name(frame.origin),
            traced(frame.trace.as_deref(), scheduler),
            text(&frame.payload)
        ),
        Message::Connect(connect) => panic!("a scheduler sends {connect:?}"),
    }
}

fn traced(trace: Option<&Trace>, scheduler: Uuid) -> String {
    let Some(trace) = trace else {
        return "no trace".to_owned();
    };
    let node = |node: &TraceNode| {
        let time = |time: Timestamp| match node.uuid == scheduler && !time.is_unset() {
            true => "stamped".to_owned(),
            false => format!("{time:?}"),
        };
        let name = match node.uuid == scheduler {
            true => "the scheduler".to_owned(),
            false => node.uuid.to_string(),
        };
        format!(
            "{name} {} tx {} rx {}",
            node.role,
            time(node.tx),
            time(node.rx)
        )
    };
    let path: Option<Vec<String>> = trace
        .path
        .as_ref()
        .map(|path| path.iter().map(node).collect());
    format!(
        "{:?} {:?} {:?} {path:?}",
        trace.label, trace.start, trace.end
    )
}
