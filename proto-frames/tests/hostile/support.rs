//! What the tests of hostile bytes share.

use bytes::BytesMut;
use proto_frames::{Connect, DecodeError, Decoder, Encoder, Encoding, Limits, Message, Role, Uuid};

/// Small, so that random lengths are often over them.
pub(crate) const LIMITS: Limits = Limits {
    max_payload_len: 1000,
    max_connect_len: 200,
    max_skipped_len: 0,
};

/// A server's decoder behind a CONNECT, which it was given in this encoding.
pub(crate) fn connected(encoding: Encoding) -> Decoder {
    let mut src = BytesMut::new();
    Encoder::new(encoding).encode(
        &Message::Connect(Connect::new(Role::AGENT, Uuid::max())),
        &mut src,
    );
    let mut decoder = Decoder::server(LIMITS);
    assert!(matches!(
        decoder.decode(&mut src),
        Ok(Some(Message::Connect(_)))
    ));
    decoder
}

/// What a decoder makes of `bytes`: the first message, or why there is none.
pub(crate) fn first(mut decoder: Decoder, bytes: &[u8]) -> Result<Option<Message>, DecodeError> {
    let mut src = BytesMut::from(bytes);
    let result = decoder.decode(&mut src);
    if result.is_err() {
        assert_eq!(
            decoder.decode(&mut src),
            result,
            "the same bytes give the same error"
        );
    }
    result
}

pub(crate) fn malformed(what: &'static str) -> Result<Option<Message>, DecodeError> {
    Err(DecodeError::Malformed { what })
}

pub(crate) fn too_long(
    what: &'static str,
    len: u64,
    limit: usize,
) -> Result<Option<Message>, DecodeError> {
    Err(DecodeError::TooLong {
        what,
        len,
        limit: limit as u64,
    })
}

/// Feeds `bytes` as a connection would, stops at the first error, and holds the buffer to its bound all the time.
pub(crate) fn feed(mut decoder: Decoder, bytes: &[u8], chunk: usize) {
    let mut src = BytesMut::new();
    for chunk in bytes.chunks(chunk) {
        src.extend_from_slice(chunk);
        loop {
            match decoder.decode(&mut src) {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_) => return,
            }
        }
        // The length prefix of a gob message is not counted in its length.
        assert!(
            src.len() <= LIMITS.max_message_len() + 9,
            "{} bytes are held",
            src.len()
        );
    }
}
