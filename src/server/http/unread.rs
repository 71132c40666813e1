//! Bodies of requests, and what is done with the rest of one where the answer is made before all of it is read.
//!
//! Clients that are not told to wait (`Expect: 100-continue`) send on, and some look at the answer only then; one whose
//! connection or stream ends meanwhile may never see it. So the rest is read and thrown away before the answer is
//! written, for a limited time, whatever made the answer: a handler, or a check that came before it. What is left after
//! that is kept until the answer is written: HTTP/2 resets a stream whose body that is not read, and behind an answer the
//! reset says that there was no error (RFC 9113, section 8.1). HTTP/1.1 ends the connection behind the answer.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::limits::{BODY_DEADLINE, DISCARD_PAUSE};

/// Where a body is while it is not being read; clones are of the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Unread(Arc<Mutex<Option<Body>>>);

/// A body that is being read, itself a body. It goes back to where it was when this is dropped.
#[derive(Debug)]
pub(super) struct Reading {
    body: Body,
    from: Unread,
}

impl Unread {
    /// A body of which nothing was read.
    pub(super) fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    /// Takes the body out, to read it. An empty one if there is none.
    pub(super) fn read(&self) -> Reading {
        Reading {
            body: self.0.lock().take().unwrap_or_default(),
            from: self.clone(),
        }
    }

    /// Throws away what was not read, of a client that was not told to wait, and keeps what is left then until an answer
    /// is written.
    pub(super) async fn behind(self, is_told_to_wait: bool, response: Response) -> Response {
        let rest = self.0.lock().take();
        let Some(mut rest) = rest.filter(|rest| !rest.is_end_stream()) else {
            return response;
        };
        if !is_told_to_wait {
            let all =
                async { while let Ok(Some(Ok(_))) = timeout(DISCARD_PAUSE, rest.frame()).await {} };
            // The rest stays unread then.
            let _ = timeout(BODY_DEADLINE, all).await;
        }
        response.map(|answer| {
            // Held by the answer's body, and so dropped with it.
            Body::new(answer.map_err(move |error| {
                let _rest = &rest;
                error
            }))
        })
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        *self.from.0.lock() = Some(std::mem::take(&mut self.body));
    }
}

impl HttpBody for Reading {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
