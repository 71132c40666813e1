//! Hostile bytes: whatever a peer sends, the decoder says so with a typed error or asks for more; it never panics, and
//! what it has the caller hold is bounded.

use bytes::{Bytes, BytesMut};
use proptest::prelude::{any, prop, prop_assert, proptest};
use proto_frames::limits::MAX_TRACE_BLOCK_LEN;
use proto_frames::{Decoder, Encoder, Encoding, Frame, Kind, Role, Trace, TraceNode, Uuid};

#[path = "hostile/support.rs"]
mod support;

use support::{LIMITS, connected, feed, first, malformed, too_long};

#[test]
fn a_message_over_the_limit_is_refused_from_its_length_alone() {
    let limit = LIMITS.max_message_len();
    let prefix = [0xfc, 0x7f, 0xff, 0xff, 0xff];
    assert_eq!(
        first(connected(Encoding::Gob), &prefix),
        too_long("gob message, in bytes,", 0x7fff_ffff, limit)
    );
    let prefix = [0xf8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(
        first(connected(Encoding::Gob), &prefix),
        too_long("gob message, in bytes,", u64::MAX, limit)
    );
    let header = [0, 1, 0, 1, 0, 0, 0x03, 0xe9];
    assert_eq!(
        first(connected(Encoding::Native), &header),
        too_long("payload, in bytes,", 1001, 1000)
    );
    let header = [0x80, 1, 0, 1, 0, 0, 0x03, 0xe8, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(
        first(connected(Encoding::Native), &header),
        too_long("trace block, in bytes,", 0xffff_ffff, MAX_TRACE_BLOCK_LEN)
    );
}

#[test]
fn before_connect_a_peer_may_send_next_to_nothing() {
    assert_eq!(first(Decoder::server(LIMITS), &[0xff, 200]), Ok(None));
    assert_eq!(
        first(Decoder::server(LIMITS), &[0xff, 201]),
        too_long("gob message, in bytes,", 201, 200)
    );
}

#[test]
fn a_payload_over_the_limit_is_refused() {
    let long = Frame::new(Kind::START, Uuid::nil(), vec![0; 1001]);
    for encoding in [Encoding::Native, Encoding::Gob] {
        let mut src = BytesMut::new();
        Encoder::new(encoding).encode_frame(&long, &mut src);
        assert_eq!(
            first(connected(encoding), &src),
            too_long("payload, in bytes,", 1001, 1000)
        );
    }
}

#[test]
fn native_trace_blocks_that_contradict_themselves_are_refused() {
    let node = TraceNode::new(Uuid::max(), Role::AGENT);
    let trace = Trace {
        label: Bytes::from_static(b"label"),
        path: Some(vec![node]),
        ..Trace::default()
    };
    let traced = Frame {
        trace: Some(Box::new(trace)),
        ..Frame::new(Kind::START, Uuid::max(), "")
    };
    let mut good = BytesMut::new();
    Encoder::new(Encoding::Native).encode_frame(&traced, &mut good);
    assert!(matches!(
        first(connected(Encoding::Native), &good),
        Ok(Some(_))
    ));

    // Offsets: block length 8, flags 12, origin 13, label length 29, label 30, start 35, end 43, node count 51.
    let with = |at: usize, value: u8| {
        let mut bad = good.clone();
        bad[at] = value;
        first(connected(Encoding::Native), &bad)
    };
    let contradictory = malformed("trace block: its length contradicts its content");
    assert_eq!(with(29, 4), contradictory);
    assert_eq!(with(29, 255), contradictory);
    assert_eq!(with(51, 0), contradictory);
    assert_eq!(with(51, 2), contradictory);
    assert_eq!(with(11, 30), contradictory);
    assert_eq!(with(12, 3), malformed("trace block: unknown flags"));
    assert_eq!(
        with(12, 0),
        malformed("trace block: nodes without a path trace")
    );
}

#[test]
fn what_opens_a_stream_cannot_come_elsewhere_and_nothing_else_can_open_it() {
    let mut answer = BytesMut::new();
    Encoder::new(Encoding::Gob)
        .encode_frame(&Frame::new(Kind::READY, Uuid::nil(), ""), &mut answer);
    let client = |encoding| Decoder::client(encoding, LIMITS);
    assert_eq!(
        first(client(Encoding::Gob), &answer),
        malformed("answer to CONNECT")
    );
    assert_eq!(
        first(client(Encoding::Native), &[0, 1, 1, 1, 0, 0, 0, 0]),
        malformed("answer to CONNECT")
    );
    let native = || connected(Encoding::Native);
    assert_eq!(
        first(native(), &[0, 1, 0, 0, 0, 0, 0, 0]),
        malformed("frame: a second CONNECT")
    );
    assert_eq!(
        first(native(), &[0, 1, 1, 0, 0, 0, 0, 0]),
        malformed("frame: a second CONNECTED")
    );
    let frame_first = first(Decoder::server(LIMITS), &answer);
    assert_eq!(frame_first, malformed("CONNECT: it has no source UUID"));
}

fn recorded(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/");
    std::fs::read(format!("{folder}{name}")).expect("the recorded stream is there")
}

proptest! {
    #[test]
    fn random_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..4000), chunk in 1..600_usize) {
        feed(Decoder::server(LIMITS), &bytes, chunk);
        feed(Decoder::client(Encoding::Gob, LIMITS), &bytes, chunk);
        feed(Decoder::client(Encoding::Native, LIMITS), &bytes, chunk);
        feed(connected(Encoding::Gob), &bytes, chunk);
        feed(connected(Encoding::Native), &bytes, chunk);
    }

    #[test]
    fn recorded_streams_with_flipped_bits_are_survived(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..6),
        chunk in 1..600_usize,
    ) {
        for (name, decoder) in [
            ("main-full-controller.c2s.bin", Decoder::server(LIMITS)),
            ("main-full-agent.c2s.bin", Decoder::server(LIMITS)),
            ("main-full-agent.s2c.bin", Decoder::client(Encoding::Gob, LIMITS)),
            ("main-full-rawwrongrole.s2c.bin", Decoder::client(Encoding::Gob, LIMITS)),
        ] {
            let mut bytes = recorded(name);
            for (at, bit) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            feed(decoder, &bytes, chunk);
        }
    }

    #[test]
    fn native_streams_with_flipped_bits_are_survived(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u32), 1..6),
        chunk in 1..600_usize,
    ) {
        let mut src = BytesMut::from(&recorded("main-full-controller.c2s.bin")[..]);
        let (mut decoder, mut encoder) = (Decoder::server(LIMITS), Encoder::new(Encoding::Native));
        let mut bytes = BytesMut::new();
        while let Ok(Some(message)) = decoder.decode(&mut src) {
            encoder.encode(&message, &mut bytes);
        }
        prop_assert!(bytes.len() > 4000);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        feed(Decoder::server(LIMITS), &bytes, chunk);
    }
}
