//! What one thread's connections read into, one after the other: a connection has it while it reads, and gives it back
//! when everything was decoded. So the many that have something now and then need no memory of their own for it, and
//! none is asked for and given back for each batch.

use std::cell::Cell;

use bytes::BytesMut;
use proto_frames::Message;

use super::{READ_BATCH, READ_CHUNK};

/// Room of a buffer: a batch, and the read that ends it.
const BUFFER_LEN: usize = READ_BATCH + READ_CHUNK;

/// Messages of a batch that room is kept for; a batch of more is one of very short ones, and its list is not kept.
const KEEP_MESSAGES: usize = 1024;

thread_local! {
    static BUFFER: Cell<BytesMut> = Cell::default();
    static MESSAGES: Cell<Vec<Message>> = Cell::default();
}

/// An empty buffer of [`BUFFER_LEN`] bytes: the thread's, or a newly made one where another connection has it.
pub(super) fn take_buffer() -> BytesMut {
    let buffer = BUFFER.take();
    if buffer.capacity() > 0 {
        buffer
    } else {
        BytesMut::with_capacity(BUFFER_LEN)
    }
}

/// Keeps a buffer for the next connection of this thread. Not if it has grown, or if a payload that was decoded from it
/// is still in use: then it is freed with that.
pub(super) fn give_back_buffer(mut buffer: BytesMut) {
    buffer.clear();
    if buffer.try_reclaim(BUFFER_LEN) && buffer.capacity() == BUFFER_LEN {
        BUFFER.set(buffer);
    }
}

/// An empty list, with the room that the last batch needed.
pub(super) fn take_messages() -> Vec<Message> {
    MESSAGES.take()
}

/// Keeps the list's room for the next connection.
pub(super) fn give_back_messages(mut messages: Vec<Message>) {
    messages.clear();
    if messages.capacity() <= KEEP_MESSAGES {
        MESSAGES.set(messages);
    }
}

#[cfg(test)]
mod tests {
    use super::{BUFFER_LEN, give_back_buffer, take_buffer};

    #[test]
    fn a_buffer_is_used_again_unless_it_has_grown_or_a_part_of_it_is_in_use() {
        let mut buffer = take_buffer();
        let first = buffer.as_ptr();
        buffer.extend_from_slice(&[0; BUFFER_LEN]);
        let part = buffer.split_to(1000).freeze();
        drop(part);
        give_back_buffer(buffer);
        let mut buffer = take_buffer();
        assert_eq!((buffer.as_ptr(), buffer.capacity()), (first, BUFFER_LEN));

        buffer.extend_from_slice(&[0; BUFFER_LEN]);
        let part = buffer.split_to(1000).freeze();
        give_back_buffer(buffer);
        let mut buffer = take_buffer();
        assert_eq!((buffer.len(), buffer.capacity()), (0, BUFFER_LEN));
        assert_ne!(buffer.as_ptr(), part.as_ptr());

        buffer.reserve(BUFFER_LEN + 1);
        give_back_buffer(buffer);
        assert_eq!(take_buffer().capacity(), BUFFER_LEN);
    }
}
