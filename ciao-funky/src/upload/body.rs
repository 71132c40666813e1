//! The body of a form on its way to the parser, which by itself reads ahead without a bound: as long as something is
//! there, and for a part whose head has no end as long as anything comes.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use axum::body::BodyDataStream;
use bytes::Bytes;
use futures_util::Stream;

use crate::upload::places::Pace;

/// Bytes that the parser is given before it needs them.
const READ_AHEAD: usize = 64 * 1024;

/// Most bytes that the parser may have and not find the head of a part in, nor its end.
const MAX_UNPARSED: usize = 256 * 1024;

/// The form's heads are longer than [`MAX_UNPARSED`].
#[derive(Debug, thiserror::Error)]
#[error("a field's head is too long")]
pub(super) struct HeadTooLong;

/// What the parser has of a form and has not handed on. Heads and boundaries stay counted: a form has few.
#[derive(Debug, Default)]
pub(super) struct Unparsed {
    bytes: AtomicUsize,
    /// Whether the parser gets more when it asks next. It asks for more before it looks at what it has.
    may_read: AtomicBool,
}

/// The body as the parser reads it.
pub(super) struct Measured {
    body: BodyDataStream,
    unparsed: Arc<Unparsed>,
    pace: Arc<Pace>,
}

impl Measured {
    /// A body of which nothing is read yet.
    pub(super) fn new(body: BodyDataStream, unparsed: Arc<Unparsed>, pace: Arc<Pace>) -> Self {
        Self {
            body,
            unparsed,
            pace,
        }
    }
}

impl Unparsed {
    /// The parser is about to be asked for a field or a piece of one.
    pub(super) fn about_to_parse(&self) {
        let may_read = self.bytes.load(Relaxed) < READ_AHEAD;
        self.may_read.store(may_read, Relaxed);
    }

    /// It has handed on so many bytes of a field's value.
    pub(super) fn handed_on(&self, bytes: usize) {
        let left = self.bytes.load(Relaxed).saturating_sub(bytes);
        self.bytes.store(left, Relaxed);
    }
}

impl Stream for Measured {
    type Item = Result<Bytes, axum::BoxError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.unparsed.may_read.swap(true, Relaxed) {
            // It looks at what it has now. If that is not enough, it asks again.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.body).poll_next(cx);
        if let Poll::Ready(Some(Ok(data))) = &polled {
            self.pace.came(data.len());
            self.unparsed.may_read.store(false, Relaxed);
            let before = self.unparsed.bytes.fetch_add(data.len(), Relaxed);
            if before > MAX_UNPARSED {
                return Poll::Ready(Some(Err(HeadTooLong.into())));
            }
        }
        polled.map_err(Into::into)
    }
}
