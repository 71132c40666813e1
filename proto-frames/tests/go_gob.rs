//! Our gob codec against Go's: what we write, Go reads into its own structs (`go/gob_peer.go`), and what Go writes of
//! them, we read as the same messages.
//!
//! The round trips need `go`. Where it is missing they say so and pass, unless `CIAO_REQUIRE_GO=1`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use proto_frames::{
    Connect, Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Timestamp,
    Trace, TraceNode, Uuid, Version,
};

const PEER: Uuid = Uuid::from_bytes([
    0x11, 0x80, 0xff, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
]);

#[test]
fn a_go_server_reads_what_our_client_sends() {
    let mut messages = vec![Message::Connect(Connect::new(
        Role::AGENT | Role::NETAGENT,
        PEER,
    ))];
    messages.extend(frames().into_iter().map(Message::Frame));
    comes_back("server", Decoder::server(Limits::default()), &messages);
}

#[test]
fn a_go_client_reads_what_our_server_sends() {
    let connected = Connected::new(
        Uuid::max(),
        PEER,
        Bytes::from_static(b"configure:\n  scheduler: {}\n"),
    );
    let mut messages = vec![Message::Connected(connected)];
    messages.extend(frames().into_iter().map(Message::Frame));
    comes_back("client", client(), &messages);
}

#[test]
fn a_go_client_reads_a_connected_without_a_configuration() {
    let messages = [Message::Connected(Connected::new(
        Uuid::max(),
        PEER,
        Bytes::new(),
    ))];
    comes_back("client", client(), &messages);
}

#[test]
fn a_go_client_that_waits_for_connected_reads_our_refusal() {
    for kind in [Kind::CONNECTION_FAILURE, Kind::CONNECTION_ABORTED] {
        let refusal = [Message::Frame(Frame::new(kind, Uuid::nil(), ""))];
        comes_back("refused", client(), &refusal);
    }
}

#[test]
fn what_go_writes_of_extended_structs_today_is_what_was_recorded() {
    let Some(live) = go_peer("extended", &[]) else {
        return;
    };
    assert_eq!(drain(Decoder::server(Limits::default()), &live), extended());
}

#[test]
fn structs_with_other_fields_in_another_order_are_read_by_name() {
    let recorded = include_bytes!("go/extended.bin");
    assert_eq!(
        drain(Decoder::server(Limits::default()), recorded),
        extended()
    );
}

/// The messages that `gob_peer extended` writes.
fn extended() -> Vec<Message> {
    let start = Timestamp {
        seconds: 1_500_000_000 + Timestamp::UNIX_EPOCH_SECONDS,
        nanos: 123_456_789,
        zone_minutes: 150,
        zone_seconds: 0,
    };
    let node = |role, tx, rx| TraceNode {
        uuid: PEER,
        role,
        tx,
        rx,
    };
    let path = vec![
        node(Role::AGENT, start, Timestamp::UNSET),
        node(Role::default(), Timestamp::UNSET, start),
    ];
    let trace = Trace {
        label: Bytes::from_static(b"label"),
        path: Some(path),
        ..Trace::default()
    };
    vec![
        Message::Connect(Connect::new(Role::AGENT | Role::NETAGENT, PEER)),
        Message::Frame(Frame::new(Kind::READY, PEER, "ready: {}\n")),
        Message::Frame(Frame {
            trace: Some(Box::new(trace)),
            ..Frame::new(Kind::STATS, PEER, "")
        }),
        Message::Frame(Frame::new(Kind::FULL, PEER, "")),
    ]
}

/// Frames with every field at its edges.
fn frames() -> Vec<Frame> {
    let time = |ns, zone_minutes| Timestamp {
        zone_minutes,
        ..Timestamp::from_unix_ns(ns)
    };
    let lmt = Timestamp {
        zone_minutes: 19,
        zone_seconds: 32,
        ..Timestamp::from_unix_ns(-1)
    };
    let node = |role, tx, rx| TraceNode {
        uuid: PEER,
        role: Role(role),
        tx,
        rx,
    };
    let traces = [
        Trace::default(),
        Trace {
            label: Bytes::from_static(b"label only"),
            ..Trace::default()
        },
        Trace {
            start: time(1, -1),
            end: lmt,
            path: Some(vec![]),
            ..Trace::default()
        },
        Trace {
            label: Bytes::from(vec![0xff; 255]),
            start: time(1_500_000_000_123_456_789, -330),
            path: Some(vec![
                node(0, Timestamp::UNSET, Timestamp::UNSET),
                node(u32::MAX, lmt, time(-1, 840)),
                node(8, time(i64::MAX, 0), time(i64::MIN, -1)),
            ]),
            ..Trace::default()
        },
        Trace {
            path: Some(vec![node(1, lmt, lmt); 255]),
            ..Trace::default()
        },
    ];
    let mut frames = vec![
        Frame::new(Kind::FULL, Uuid::nil(), ""),
        Frame::new(Kind::START, PEER, "start: {}"),
        Frame::new(Kind::new(255, 255), Uuid::max(), vec![0; 127]),
        Frame {
            version: Version {
                major: 127,
                minor: 255,
            },
            ..Frame::new(Kind::STATS, PEER, vec![1; 128])
        },
        Frame::new(Kind::STATS, PEER, vec![0xfe; 70_000]),
    ];
    for trace in traces {
        for payload in ["", "payload"] {
            let trace = Some(Box::new(trace.clone()));
            frames.push(Frame {
                trace,
                ..Frame::new(Kind::START, PEER, payload)
            });
        }
    }
    frames
}

fn client() -> Decoder {
    Decoder::client(Encoding::Gob, Limits::default())
}

/// What `gob_peer` writes of these messages are these messages; not tried where Go is not installed.
fn comes_back(mode: &str, decoder: Decoder, messages: &[Message]) {
    let mut encoder = Encoder::new(Encoding::Gob);
    let mut wire = BytesMut::new();
    messages
        .iter()
        .for_each(|message| encoder.encode(message, &mut wire));
    if let Some(back) = go_peer(mode, &wire) {
        assert_eq!(drain(decoder, &back), messages);
    }
}

fn drain(mut decoder: Decoder, bytes: &[u8]) -> Vec<Message> {
    let mut src = BytesMut::from(bytes);
    let messages = std::iter::from_fn(|| {
        decoder
            .decode(&mut src)
            .expect("what Go writes is well-formed")
    })
    .collect();
    assert!(src.is_empty());
    messages
}

/// Runs `gob_peer`; `None` where Go is not installed.
fn go_peer(mode: &str, input: &[u8]) -> Option<Vec<u8>> {
    let Some(program) = &*PROGRAM else {
        assert!(
            std::env::var_os("CIAO_REQUIRE_GO").is_none_or(|value| value != "1"),
            "go is required"
        );
        eprintln!("skipped: go is not installed");
        return None;
    };
    let mut child = Command::new(program)
        .arg(mode)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gob_peer starts");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    let output = std::thread::scope(|scope| {
        // A peer that has refused the input no longer reads; its exit status tells.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("gob_peer ends")
    });
    assert!(output.status.success(), "gob_peer {mode} failed");
    Some(output.stdout)
}

/// The built `gob_peer`; `None` where Go is not installed.
static PROGRAM: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    Command::new("go").arg("version").output().ok()?;
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = target.join("gob_peer");
    let status = Command::new("go")
        .args(["build", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go"))
        .env("GOCACHE", target.join("go-build"))
        .status()
        .expect("go runs");
    assert!(status.success(), "gob_peer does not build");
    Some(program)
});
