//! For any messages and any split of their bytes, decoding is the inverse of encoding, in both encodings.

use bytes::{Bytes, BytesMut};
use proptest::prelude::{
    BoxedStrategy, Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest,
};
use proto_frames::{
    Connect, Connected, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Role, Term,
    Timestamp, Trace, TraceNode, Uuid, Version,
};

proptest! {
    #[test]
    fn a_client_s_stream_is_read_as_it_was_written(
        (encoding, connect, frames) in any_encoding().prop_flat_map(|encoding| {
            (Just(encoding), connect(), frames(encoding))
        }),
        chunks in chunks(),
    ) {
        let messages = stream(Message::Connect(connect), frames);
        let read = read_back(encoding, Decoder::server(Limits::default()), &messages, &chunks);
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn a_server_s_stream_is_read_as_it_was_written(
        (encoding, connected, frames) in any_encoding().prop_flat_map(|encoding| {
            (Just(encoding), connected(encoding), frames(encoding))
        }),
        chunks in chunks(),
    ) {
        let messages = stream(Message::Connected(connected), frames);
        let read = read_back(encoding, Decoder::client(encoding, Limits::default()), &messages, &chunks);
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn a_refusal_is_read_as_it_was_written(
        (encoding, frame) in any_encoding().prop_flat_map(|encoding| (Just(encoding), frame(encoding))),
        operand: u8,
        chunks in chunks(),
    ) {
        let refusal = Frame { kind: Kind::new(Kind::CONNECTION_FAILURE.ty.0, operand), ..frame };
        let messages = [Message::Frame(refusal)];
        let read = read_back(encoding, Decoder::client(encoding, Limits::default()), &messages, &chunks);
        prop_assert_eq!(&read[..], &messages[..]);
    }

    #[test]
    fn a_frame_decoded_from_one_encoding_can_be_sent_on_in_the_other(frame in frame(Encoding::Native)) {
        let originals = [Message::Connect(Connect::new(Role::AGENT, Uuid::max())), Message::Frame(frame)];
        let mut messages = originals.to_vec();
        for encoding in [Encoding::Native, Encoding::Gob, Encoding::Native] {
            messages = read_back(encoding, Decoder::server(Limits::default()), &messages, &[usize::MAX]);
        }
        prop_assert_eq!(&messages[..], &originals[..]);
    }
}

#[test]
fn what_a_format_cannot_say_is_cut() {
    let node = TraceNode::new(Uuid::max(), Role::AGENT);
    let trace = Trace {
        label: vec![b'x'; 1000].into(),
        path: Some(vec![node; 300]),
        ..Trace::default()
    };
    let frame = Frame {
        trace: Some(Box::new(trace)),
        ..Frame::new(Kind::START, Uuid::max(), "payload")
    };
    let messages = [
        Message::Connect(Connect::new(Role::AGENT, Uuid::max())),
        Message::Frame(frame.clone()),
    ];
    for (encoding, label_len) in [(Encoding::Native, 255), (Encoding::Gob, 1000)] {
        let read = read_back(
            encoding,
            Decoder::server(Limits::default()),
            &messages,
            &[usize::MAX],
        );
        let Message::Frame(read) = &read[1] else {
            panic!("a frame was sent")
        };
        assert_eq!(read.payload, frame.payload);
        let trace = read.trace.as_ref().expect("the trace survives");
        assert_eq!(trace.label.len(), label_len);
        assert_eq!(trace.path.as_ref().map(Vec::len), Some(255));
    }
}

#[test]
fn a_payload_is_handed_out_where_it_arrived() {
    for encoding in [Encoding::Native, Encoding::Gob] {
        let frame = Frame::new(Kind::START, Uuid::nil(), vec![b'x'; 300]);
        let messages = [
            Message::Connect(Connect::new(Role::CONTROLLER, Uuid::max())),
            Message::Frame(frame),
        ];
        let mut src = written(encoding, &messages);
        let arrived = src.as_ptr_range();
        let mut decoder = Decoder::server(Limits::default());
        let _connect = decoder.decode(&mut src).expect("well-formed");
        let Ok(Some(Message::Frame(frame))) = decoder.decode(&mut src) else {
            panic!("a frame was sent")
        };
        let payload = frame.payload.as_ptr_range();
        assert!(
            arrived.start < payload.start && payload.end <= arrived.end,
            "{encoding:?}"
        );
    }
}

fn stream(first: Message, frames: Vec<Frame>) -> Vec<Message> {
    [first]
        .into_iter()
        .chain(frames.into_iter().map(Message::Frame))
        .collect()
}

fn written(encoding: Encoding, messages: &[Message]) -> BytesMut {
    let mut encoder = Encoder::new(encoding);
    let mut wire = BytesMut::new();
    for message in messages {
        match message {
            // The two ways to write a frame are the same one.
            Message::Frame(frame) => encoder.encode_frame(frame, &mut wire),
            _ => encoder.encode(message, &mut wire),
        }
    }
    wire
}

/// Writes `messages` and reads them from chunks of these lengths.
fn read_back(
    encoding: Encoding,
    mut decoder: Decoder,
    messages: &[Message],
    chunks: &[usize],
) -> Vec<Message> {
    let wire = written(encoding, messages);
    let mut rest = &wire[..];
    let (mut src, mut read) = (BytesMut::new(), Vec::new());
    for len in chunks.iter().cycle() {
        let (chunk, behind) = rest.split_at((*len).min(rest.len()));
        src.extend_from_slice(chunk);
        while let Some(message) = decoder
            .decode(&mut src)
            .expect("what was written is well-formed")
        {
            assert_eq!(decoder.encoding(), Some(encoding));
            read.push(message);
        }
        rest = behind;
        if rest.is_empty() {
            break;
        }
    }
    assert!(!decoder.is_mid_message(&src), "bytes are left over");
    read
}

fn any_encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Native), Just(Encoding::Gob)]
}

/// Lengths of reads; mostly of the size of a header, where the splits hurt.
fn chunks() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![4 => 1..20_usize, 1 => 20..2000_usize], 1..20)
}

fn connect() -> impl Strategy<Value = Connect> {
    // The first byte of a native stream is 0, which is what tells it from gob.
    let version = any::<u8>().prop_map(|minor| Version { major: 0, minor });
    (version, kind(), role(), uuid(), uuid()).prop_map(
        |(version, kind, role, source, destination)| Connect {
            version,
            kind,
            role,
            source,
            destination,
        },
    )
}

fn connected(encoding: Encoding) -> impl Strategy<Value = Connected> {
    let term = (any::<u64>(), any::<u64>()).prop_map(|(generation, revision)| Term {
        generation,
        revision,
    });
    (version(), role(), uuid(), uuid(), term, payload()).prop_map(
        move |(version, role, source, destination, term, payload)| Connected {
            version,
            role,
            source,
            destination,
            // The version says whether there is one.
            term: (encoding == Encoding::Native && version.major == 0 && version.minor >= 4)
                .then_some(term),
            payload,
        },
    )
}

fn frames(encoding: Encoding) -> impl Strategy<Value = Vec<Frame>> {
    prop::collection::vec(frame(encoding), 0..12)
}

/// Any frame that `encoding` can say.
fn frame(encoding: Encoding) -> impl Strategy<Value = Frame> {
    let native = encoding == Encoding::Native;
    let kind = kind().prop_filter(
        "CONNECT and CONNECTED have layouts of their own",
        move |kind| !native || ![Kind::CONNECT, Kind::CONNECTED].contains(kind),
    );
    (
        version(),
        kind,
        uuid(),
        prop::option::of(trace(encoding)),
        payload(),
    )
        .prop_map(move |(version, kind, origin, trace, payload)| {
            let origin = if native && trace.is_none() {
                Uuid::nil()
            } else {
                origin
            };
            Frame {
                version,
                kind,
                origin,
                trace: trace.map(Box::new),
                payload,
            }
        })
}

fn trace(encoding: Encoding) -> impl Strategy<Value = Trace> {
    let node = (uuid(), role(), time(encoding), time(encoding));
    let node = node
        .prop_map(|(uuid, role, tx, rx)| TraceNode { uuid, role, tx, rx })
        .boxed();
    let path = prop_oneof![
        9 => prop::collection::vec(node.clone(), 0..6),
        1 => node.prop_map(|node| vec![node; 255]),
    ];
    let path = prop::option::of(path);
    let label = prop::collection::vec(any::<u8>(), 0..=255);
    (label, time(encoding), time(encoding), path).prop_map(|(label, start, end, path)| Trace {
        label: label.into(),
        start,
        end,
        path,
    })
}

fn time(encoding: Encoding) -> BoxedStrategy<Timestamp> {
    let instant = prop_oneof![Just(0), any::<i64>()].prop_map(Timestamp::from_unix_ns);
    let any_time = (
        any::<i64>(),
        0..1_000_000_000_i32,
        any::<i16>(),
        any::<i8>(),
    )
        .prop_map(|(seconds, nanos, zone_minutes, zone_seconds)| Timestamp {
            seconds,
            nanos,
            zone_minutes,
            zone_seconds,
        });
    match encoding {
        Encoding::Native => instant.boxed(),
        Encoding::Gob => prop_oneof![instant, any_time].boxed(),
    }
}

fn version() -> impl Strategy<Value = Version> {
    (0..128_u8, any::<u8>()).prop_map(|(major, minor)| Version { major, minor })
}

fn kind() -> impl Strategy<Value = Kind> {
    (prop_oneof![0..4_u8, any::<u8>()], any::<u8>())
        .prop_map(|(ty, operand)| Kind::new(ty, operand))
}

fn role() -> impl Strategy<Value = Role> {
    any::<u32>().prop_map(Role)
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid::from_bytes)
}

fn payload() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..300).prop_map(Bytes::from),
        1 => (0..70_000_usize).prop_map(|len| Bytes::from(vec![b'x'; len])),
    ]
}
