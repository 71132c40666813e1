//! A frame whose payload is too long is refused alone: its bytes are thrown away as they come, however they are cut, and
//! the stream goes on behind it.

use bytes::{Bytes, BytesMut};
use proptest::prelude::{any, prop, prop_assert_eq, proptest};
use proto_frames::limits::{MAX_GOB_OVERHEAD, MAX_HEAD_LEN};
use proto_frames::{
    Connect, DecodeError, Decoder, Encoder, Encoding, Frame, Kind, Limits, Message, Received, Role,
    Trace, Uuid,
};

const LIMITS: Limits = Limits {
    max_payload_len: 1000,
    max_connect_len: 200,
    max_skipped_len: 200_000,
};

const ENCODINGS: [Encoding; 2] = [Encoding::Native, Encoding::Gob];

/// A stream of frames behind a CONNECT, and the decoder that has read that.
fn stream(encoding: Encoding, frames: &[Frame]) -> (Decoder, BytesMut) {
    let mut encoder = Encoder::new(encoding);
    let mut bytes = BytesMut::new();
    let connect = Message::Connect(Connect::new(Role::AGENT, Uuid::from_u128(7)));
    encoder.encode(&connect, &mut bytes);
    let mut decoder = Decoder::server(LIMITS);
    assert_eq!(decoder.decode(&mut bytes), Ok(Some(connect)));
    for frame in frames {
        encoder.encode_frame(frame, &mut bytes);
    }
    (decoder, bytes)
}

fn frame(len: usize, fill: u8) -> Frame {
    Frame::new(Kind::STATS, Uuid::from_u128(7), vec![fill; len])
}

/// What a decoder finds, in short: lengths of payloads, and of what is refused what is kept as well.
fn found(decoder: &mut Decoder, src: &mut BytesMut, into: &mut Vec<(usize, Option<Bytes>)>) {
    while let Some(received) = decoder
        .decode_or_skip(src)
        .expect("what is too long is skipped")
    {
        into.push(match received {
            Received::Message(Message::Frame(frame)) => (frame.payload.len(), None),
            Received::TooLong(refused) => {
                assert_eq!((refused.kind, refused.limit), (Kind::STATS, 1000));
                (refused.len as usize, Some(refused.head))
            }
            Received::Message(other) => panic!("{other:?}"),
        });
    }
}

proptest! {
    #[test]
    fn frames_around_one_that_is_too_long_come_through_however_the_stream_is_cut(
        lens in prop::collection::vec(prop::sample::select(vec![
            0, 1, 999, 1000, 1001, 5000, MAX_HEAD_LEN, MAX_HEAD_LEN + 1,
            MAX_GOB_OVERHEAD + 900, MAX_GOB_OVERHEAD + 1001, 2 * MAX_GOB_OVERHEAD, 150_000,
        ]), 1..6),
        cuts in prop::collection::vec(1_usize..40_000, 1..40),
        is_gob in any::<bool>(),
        is_traced in any::<bool>(),
    ) {
        let encoding = ENCODINGS[usize::from(is_gob)];
        let frames: Vec<Frame> = lens.iter().zip(b'a'..).map(|(&len, fill)| {
            let trace = is_traced.then(|| Box::new(Trace::default()));
            Frame { trace, ..frame(len, fill) }
        }).collect();
        let (mut decoder, mut bytes) = stream(encoding, &frames);
        let (mut src, mut got) = (BytesMut::new(), Vec::new());
        for cut in cuts.iter().cycle() {
            if bytes.is_empty() {
                break;
            }
            src.extend_from_slice(&bytes.split_to((*cut).min(bytes.len())));
            found(&mut decoder, &mut src, &mut got);
            // What is thrown away is not held.
            prop_assert_eq!(src.len() <= LIMITS.max_message_len() + 40_000, true);
        }
        let expected: Vec<_> = frames.iter().map(|frame| {
            let payload = &frame.payload;
            let head = payload.slice(..payload.len().min(MAX_HEAD_LEN));
            (payload.len(), (payload.len() > 1000).then_some(head))
        }).collect();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(decoder.is_mid_message(&src), false);
    }
}

#[test]
fn one_that_is_longer_than_is_skipped_ends_the_stream_before_its_bytes_come() {
    for encoding in ENCODINGS {
        for (len, is_skipped) in [(150_000, true), (200_001, false)] {
            let (mut decoder, bytes) = stream(encoding, &[frame(len, b'x')]);
            // The gob encoding's descriptors and what stands before a payload.
            let mut src = BytesMut::from(&bytes[..bytes.len().min(MAX_GOB_OVERHEAD + 2000)]);
            let result = decoder.decode_or_skip(&mut src);
            match result {
                Ok(None) => assert!(is_skipped && decoder.is_skipping()),
                Err(DecodeError::TooLong { .. }) => assert!(!is_skipped),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn who_does_not_ask_for_it_has_nothing_skipped() {
    for encoding in ENCODINGS {
        let (mut decoder, mut bytes) = stream(encoding, &[frame(1001, b'x')]);
        let error = decoder.decode(&mut bytes).unwrap_err();
        let limit = 1000;
        let what = "payload, in bytes,";
        assert_eq!(
            error,
            DecodeError::TooLong {
                what,
                len: 1001,
                limit
            }
        );
    }
}
