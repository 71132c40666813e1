//! Streams recorded between the original's client library and the original's scheduler (`golden/README.md`) decode to
//! what their index says, and our encoder writes them byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::BytesMut;
use proptest::prelude::{prop, prop_assert_eq, proptest};
use proto_frames::{Decoder, Encoder, Encoding, Frame, Limits, Message, Timestamp, Trace, Uuid};
use serde_json::Value;

/// One recorded stream and what its index says of it.
struct Stream {
    name: String,
    bytes: Vec<u8>,
    /// From client to server.
    to_server: bool,
    /// The messages in it, as the index describes them.
    expected: Vec<Value>,
}

impl Stream {
    fn decoder(&self) -> Decoder {
        if self.to_server {
            Decoder::server(Limits::default())
        } else {
            Decoder::client(Encoding::Gob, Limits::default())
        }
    }

    fn messages(&self) -> Vec<Message> {
        let mut src = BytesMut::from(&self.bytes[..]);
        let messages = drain(&mut self.decoder(), &mut src);
        assert!(
            src.is_empty(),
            "{}: {} bytes are left over",
            self.name,
            src.len()
        );
        messages
    }
}

fn drain(decoder: &mut Decoder, src: &mut BytesMut) -> Vec<Message> {
    std::iter::from_fn(|| decoder.decode(src).expect("a well-formed stream")).collect()
}

fn encode(encoding: Encoding, messages: &[Message]) -> BytesMut {
    let mut encoder = Encoder::new(encoding);
    let mut dst = BytesMut::new();
    messages
        .iter()
        .for_each(|message| encoder.encode(message, &mut dst));
    dst
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn streams() -> Vec<Stream> {
    let mut streams = Vec::new();
    for index in ["index-main.json", "index-noconfig.json"] {
        let index = fs::read(golden().join(index)).expect("the index is there");
        let index: Value = serde_json::from_slice(&index).expect("the index is JSON");
        for stream in index["streams"]
            .as_array()
            .expect("the index lists streams")
        {
            let name = stream["file"]
                .as_str()
                .expect("a stream has a file")
                .to_owned();
            streams.push(Stream {
                bytes: fs::read(golden().join(&name)).expect("the stream is there"),
                to_server: stream["direction"] == "c2s",
                expected: stream["frames"]
                    .as_array()
                    .expect("a stream has frames")
                    .clone(),
                name,
            });
        }
    }
    assert_eq!(streams.len(), 22, "no stream goes untested");
    streams
}

#[test]
fn every_stream_decodes_to_what_its_index_says() {
    let mut frames = 0;
    for stream in streams() {
        let messages = stream.messages();
        assert_eq!(messages.len(), stream.expected.len(), "{}", stream.name);
        for (at, (message, expected)) in messages.iter().zip(&stream.expected).enumerate() {
            check(message, expected, &format!("{} message {at}", stream.name));
            frames += 1;
        }
    }
    assert_eq!(frames, 124);
}

#[test]
fn every_stream_is_written_byte_for_byte_as_the_original_wrote_it() {
    for stream in streams() {
        let written = encode(Encoding::Gob, &stream.messages());
        assert_eq!(written, stream.bytes, "{}", stream.name);
    }
}

/// The recorder stamped START frames labelled `now` in its local zone (offset 0), the others in UTC (-1); whatever the
/// label, the original stamps the path's nodes in its local zone.
#[test]
fn zones_are_kept() {
    let messages: Vec<_> = streams().iter().flat_map(Stream::messages).collect();
    let traces = messages.iter().filter_map(|message| match message {
        Message::Frame(frame) => frame.trace.as_ref(),
        _ => None,
    });
    let mut seen = 0;
    for trace in traces.filter(|trace| !trace.start.is_unset()) {
        let zone = if trace.label == "now" { 0 } else { -1 };
        assert_eq!(trace.start.zone_minutes, zone);
        let path = trace
            .path
            .as_deref()
            .expect("every recorded trace with a start has a path");
        assert!(path.iter().all(|node| node.tx.zone_minutes == 0));
        seen += 1;
    }
    assert_eq!(seen, 8);
}

#[test]
fn a_byte_at_a_time_gives_the_same_messages() {
    for stream in streams() {
        let whole = stream.messages();
        let mut decoder = stream.decoder();
        let (mut src, mut messages) = (BytesMut::new(), Vec::new());
        for byte in &stream.bytes {
            src.extend_from_slice(&[*byte]);
            messages.extend(drain(&mut decoder, &mut src));
        }
        assert_eq!(messages, whole, "{}", stream.name);
        assert!(!decoder.is_mid_message(&src), "{}", stream.name);
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_messages(chunks in prop::collection::vec(1..700_usize, 1..40)) {
        for stream in streams() {
            let mut decoder = stream.decoder();
            let (mut src, mut messages) = (BytesMut::new(), Vec::new());
            let mut rest = &stream.bytes[..];
            for len in chunks.iter().cycle() {
                let (chunk, behind) = rest.split_at((*len).min(rest.len()));
                src.extend_from_slice(chunk);
                messages.extend(drain(&mut decoder, &mut src));
                rest = behind;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(messages, stream.messages());
        }
    }
}

#[test]
fn a_stream_cut_anywhere_asks_for_more() {
    for stream in streams() {
        let whole = stream.messages();
        for len in 0..stream.bytes.len() {
            let mut src = BytesMut::from(&stream.bytes[..len]);
            let messages = drain(&mut stream.decoder(), &mut src);
            assert_eq!(
                messages,
                whole[..messages.len()],
                "{} cut at {len}",
                stream.name
            );
            assert!(messages.len() < whole.len(), "{} cut at {len}", stream.name);
        }
    }
}

#[test]
fn through_the_native_encoding_and_back_everything_but_the_zones_survives() {
    for stream in streams() {
        let originals = stream.messages();
        let mut src = encode(Encoding::Native, &originals);
        let native = if stream.to_server {
            drain(&mut Decoder::server(Limits::default()), &mut src)
        } else {
            drain(
                &mut Decoder::client(Encoding::Native, Limits::default()),
                &mut src,
            )
        };
        let mut src = encode(Encoding::Gob, &native);
        let back = drain(&mut stream.decoder(), &mut src);

        let originals: Vec<_> = originals.into_iter().map(as_native_says).collect();
        assert_eq!(native, originals, "{}", stream.name);
        assert_eq!(back, originals, "{}", stream.name);
    }
}

/// What the native encoding can say of a message: instants without zones, an origin only along with a trace.
fn as_native_says(message: Message) -> Message {
    let Message::Frame(mut frame) = message else {
        return message;
    };
    match &mut frame.trace {
        None => frame.origin = Uuid::nil(),
        Some(trace) => {
            let nodes = trace
                .path
                .iter_mut()
                .flatten()
                .flat_map(|node| [&mut node.tx, &mut node.rx]);
            for time in nodes.chain([&mut trace.start, &mut trace.end]) {
                *time = Timestamp::from_unix_ns(time.unix_ns());
            }
        }
    }
    Message::Frame(frame)
}

/// Compares a message with its entry in the index, whose three shapes are the recorder's.
fn check(message: &Message, expected: &Value, what: &str) {
    let number = |key: &str| {
        expected[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{what}: no {key}"))
    };
    match message {
        Message::Connect(connect) => {
            assert_eq!(u64::from(connect.version.major), number("Major"), "{what}");
            assert_eq!(u64::from(connect.version.minor), number("Minor"), "{what}");
            assert_eq!(u64::from(connect.kind.ty.0), number("Type"), "{what}");
            assert_eq!(u64::from(connect.kind.operand), number("Operand"), "{what}");
            assert_eq!(u64::from(connect.role.0), number("Role"), "{what}");
            assert_eq!(
                connect.source.as_bytes()[..],
                base64(&expected["Source"]),
                "{what}"
            );
            assert_eq!(
                connect.destination.as_bytes()[..],
                base64(&expected["Destination"]),
                "{what}"
            );
        }
        Message::Connected(connected) => {
            assert_eq!(
                u64::from(connected.version.major),
                number("Major"),
                "{what}"
            );
            assert_eq!(
                u64::from(connected.version.minor),
                number("Minor"),
                "{what}"
            );
            assert_eq!((number("Type"), number("Operand")), (1, 0), "{what}");
            assert_eq!(u64::from(connected.role.0), number("Role"), "{what}");
            assert_eq!(
                connected.source.simple().to_string(),
                expected["Source"],
                "{what}"
            );
            assert_eq!(
                connected.destination.simple().to_string(),
                expected["Destination"],
                "{what}"
            );
            assert_eq!(text(&connected.payload), expected["Payload"], "{what}");
            assert_eq!(
                connected.payload.len() as u64,
                number("PayloadLength"),
                "{what}"
            );
        }
        Message::Frame(frame) => check_frame(frame, expected, what),
    }
}

fn check_frame(frame: &Frame, expected: &Value, what: &str) {
    let traced = frame
        .trace
        .as_ref()
        .is_some_and(|trace| trace.path.is_some());
    assert_eq!(
        frame.version.major | if traced { 0x80 } else { 0 },
        expected["Major"],
        "{what}"
    );
    assert_eq!(frame.version.minor, expected["Minor"], "{what}");
    let ty = expected["Type"]
        .as_str()
        .expect("the index names a frame's type");
    // The recorder has no name for the one frame of an unknown type.
    assert_eq!(
        if frame.kind.ty.is_known() {
            frame.kind.ty.to_string()
        } else {
            String::new()
        },
        ty,
        "{what}"
    );
    assert_eq!(frame.kind.operand, expected["Operand"], "{what}");
    assert_eq!(
        frame.origin.hyphenated().to_string(),
        expected["Origin"],
        "{what}"
    );
    assert_eq!(text(&frame.payload), expected["Payload"], "{what}");
    assert_eq!(frame.payload.len(), expected["PayloadLength"], "{what}");
    match (&frame.trace, &expected["Trace"]) {
        (None, Value::Null) => {}
        (Some(trace), expected) => check_trace(trace, expected, what),
        (None, expected) => panic!("{what}: no trace, but the index has {expected}"),
    }
}

fn check_trace(trace: &Trace, expected: &Value, what: &str) {
    assert_eq!(trace.label[..], base64(&expected["Label"]), "{what}");
    check_time(trace.start, &expected["StartTimestamp"], what);
    check_time(trace.end, &expected["EndTimestamp"], what);
    let path = trace.path.as_deref().unwrap_or_default();
    let nodes = expected["Path"].as_array().map_or(&[][..], Vec::as_slice);
    assert_eq!(path.len(), expected["PathLength"], "{what}");
    assert_eq!(path.len(), nodes.len(), "{what}");
    for (node, expected) in path.iter().zip(nodes) {
        assert_eq!(
            node.uuid.as_bytes()[..],
            base64(&expected["UUID"]),
            "{what}"
        );
        assert_eq!(node.role.0, expected["Role"], "{what}");
        check_time(node.tx, &expected["TxTimestamp"], what);
        check_time(node.rx, &expected["RxTimestamp"], what);
    }
}

/// Compares the instant; that the zone survives is seen where a stream is written byte for byte.
fn check_time(time: Timestamp, expected: &Value, what: &str) {
    let expected: jiff::Timestamp = expected
        .as_str()
        .expect("a time is text")
        .parse()
        .expect("RFC 3339");
    assert_eq!(
        time.seconds - Timestamp::UNIX_EPOCH_SECONDS,
        expected.as_second(),
        "{what}"
    );
    assert_eq!(time.nanos, expected.subsec_nanosecond(), "{what}");
}

fn base64(value: &Value) -> Vec<u8> {
    value.as_str().map_or_else(Vec::new, |text| {
        BASE64_STANDARD.decode(text).expect("base64")
    })
}

fn text(payload: &[u8]) -> &str {
    std::str::from_utf8(payload).expect("recorded payloads are text")
}
