//! Messages from a stream of frames, as they come.

#![allow(clippy::unwrap_used, reason = "a test ends where it fails")]

use bytes::BytesMut;
use proto_frames::{Decoder, Message};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The next message; `None` at the end of the stream, however it came. `buffer` keeps what was read beyond it.
pub(crate) async fn next_message(
    stream: &mut (impl AsyncRead + Unpin),
    decoder: &mut Decoder,
    buffer: &mut BytesMut,
) -> Option<Message> {
    loop {
        if let Some(message) = decoder.decode(buffer).unwrap() {
            return Some(message);
        }
        match stream.read_buf(buffer).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}
