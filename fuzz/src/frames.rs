//! Both decoders: no bytes panic or fill memory, however they are cut; what was decoded can be encoded and is then the
//! same.

use bytes::BytesMut;
use proto_frames::limits::MAX_HEAD_LEN;
use proto_frames::{
    Connect, DecodeError, Decoder, Encoder, Encoding, Kind, Limits, Message, Received, Role, Uuid,
};

use crate::choice;

/// Small, so that lengths are often over them.
const LIMITS: Limits = Limits {
    max_payload_len: 4000,
    max_connect_len: 400,
    max_skipped_len: 60_000,
};

/// What stands before a gob message: the length of its length.
const LENGTH_PREFIX: usize = 9;

/// A native stream.
pub fn native(data: &[u8]) {
    stream(Encoding::Native, data);
}

/// A gob stream.
pub fn gob(data: &[u8]) {
    stream(Encoding::Gob, data);
}

/// First byte: which end reads (0: a server, from CONNECT on; 1: a server that has read a CONNECT; 2: a client). Second
/// byte: how the stream is cut. The rest is the stream.
fn stream(encoding: Encoding, data: &[u8]) {
    let Some((which, data)) = choice(data) else {
        return;
    };
    let Some((cut, data)) = choice(data) else {
        return;
    };
    let mut bytes = BytesMut::new();
    if which % 3 == 1 {
        let connect = Message::Connect(Connect::new(Role::AGENT, Uuid::max()));
        Encoder::new(encoding).encode(&connect, &mut bytes);
    }
    bytes.extend_from_slice(data);
    let new = || match which % 3 {
        2 => Decoder::client(encoding, LIMITS),
        _ => Decoder::server(LIMITS),
    };
    if which % 3 != 2 && (bytes.first() == Some(&0)) != (encoding == Encoding::Native) {
        return; // the other encoding's
    }
    skip(new(), &bytes, cut + 1);
    let whole = read(new(), &bytes, usize::MAX);
    assert_eq!(
        read(new(), &bytes, cut + 1),
        whole,
        "cut into pieces of {}",
        cut + 1
    );
    again(encoding, new(), &whole.0);
    in_the_other_encoding(encoding, &whole.0);
}

/// What is too long is thrown away as it comes, and kept no more of than is said.
fn skip(mut decoder: Decoder, bytes: &[u8], size: usize) {
    let mut src = BytesMut::new();
    for piece in bytes.chunks(size) {
        src.extend_from_slice(piece);
        loop {
            match decoder.decode_or_skip(&mut src) {
                Ok(Some(Received::Message(_))) => {}
                Ok(Some(Received::TooLong(refused))) => {
                    assert!(refused.len > LIMITS.max_payload_len as u64);
                    assert!(refused.head.len() <= MAX_HEAD_LEN);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(src.len() <= LIMITS.max_message_len() + LENGTH_PREFIX);
        assert!(!decoder.is_skipping() || src.is_empty());
    }
}

/// The messages in a stream that comes in pieces of this size, and what ends it.
fn read(mut decoder: Decoder, bytes: &[u8], size: usize) -> (Vec<Message>, Option<DecodeError>) {
    let mut messages = Vec::new();
    let mut src = BytesMut::new();
    for piece in bytes.chunks(size.min(bytes.len().max(1))) {
        src.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut src) {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => {
                    let again = decoder.decode(&mut src);
                    assert_eq!(
                        again.as_ref(),
                        Err(&error),
                        "the same bytes, the same error"
                    );
                    return (messages, Some(error));
                }
            }
        }
        let held = src.len();
        assert!(
            held <= LIMITS.max_message_len() + LENGTH_PREFIX,
            "{held} bytes held"
        );
    }
    for message in &messages {
        if let Message::Frame(frame) = message {
            assert!(frame.payload.len() <= LIMITS.max_payload_len);
        }
    }
    (messages, None)
}

/// What was decoded is encoded, and decoded again.
fn again(encoding: Encoding, decoder: Decoder, messages: &[Message]) {
    let mut encoder = Encoder::new(encoding);
    let mut bytes = BytesMut::new();
    for message in messages {
        encoder.encode(message, &mut bytes);
    }
    let (back, error) = read(decoder, &bytes, usize::MAX);
    assert_eq!(
        (&back[..], error),
        (messages, None),
        "after encoding and decoding"
    );
}

/// A forwarded frame keeps what the format of its receiver can say: its kind, its payload and its origin.
fn in_the_other_encoding(encoding: Encoding, messages: &[Message]) {
    let other = match encoding {
        Encoding::Native => Encoding::Gob,
        Encoding::Gob => Encoding::Native,
    };
    let connect = Message::Connect(Connect::new(Role::AGENT, Uuid::max()));
    // A gob stream can hold frames of the kinds that open a native one. They have no layout there, and no scheduler
    // passes them on: no role may send them.
    let is_sent_on = |message: &&Message| match message {
        Message::Frame(frame) => ![Kind::CONNECT, Kind::CONNECTED].contains(&frame.kind),
        _ => false,
    };
    let frames = messages.iter().filter(is_sent_on);
    let sent: Vec<&Message> = std::iter::once(&connect).chain(frames).collect();
    let mut encoder = Encoder::new(other);
    let mut bytes = BytesMut::new();
    for message in &sent {
        encoder.encode(message, &mut bytes);
    }
    let (back, error) = read(Decoder::server(LIMITS), &bytes, usize::MAX);
    assert_eq!(
        (back.len(), error),
        (sent.len(), None),
        "in the other encoding"
    );
    for (back, sent) in back.iter().zip(sent) {
        if let (Message::Frame(back), Message::Frame(sent)) = (back, sent) {
            assert_eq!((back.kind, &back.payload), (sent.kind, &sent.payload));
        }
    }
}
