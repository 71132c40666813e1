//! `PUT /v1/images/{id}`: an image as the body of a request, taken in chunk by chunk as the store has written it.
//!
//! The next chunk is read from the connection once the store has the one before it, so that an upload holds one chunk,
//! and a client that sends faster than the disk writes is held back by TCP, or by the window of its stream. The store is
//! asked first, without a byte: what it refuses it refuses then, before anything is read, and of what it has already
//! nothing is handed in again. So an upload that was cut off is sent once more from its beginning, and only what was
//! missing is written.
//!
//! ```text
//! client                     handler                         store
//!   ── head, length ──────▶     ── WRITE offset 0, no bytes ──▶
//!                               ◀── 65536 are there ───────────
//!   ── 64 KiB ────────────▶     (passed over)
//!   ── 64 KiB ────────────▶     ── WRITE offset 65536, bytes ─▶
//!                               ◀── complete ──────────────────
//!   ◀── 201, the row ──────
//! ```

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use bytes::BytesMut;
use http_body_util::BodyExt as _;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{ImageFailure, ImagePart, ImageWrite, Payload, WriteImage};
use proto_frames::{Kind, Role};
use tokio::time::{sleep, timeout};

use super::super::call::{Answer, Call, answer_with};
use super::super::json::to_json;
use super::super::limits::{BODY_DEADLINE, STORE_BUSY_PAUSE, STORE_BUSY_TRIES};
use super::super::problem::Problem;
use super::super::shares::NoPlace;
use super::super::unread::Reading;
use super::{Store, digest_of, refused};
use sched_core::ImageCommand;

/// `PUT /v1/images/{id}?tenant=…`: 201 with the image's row once the store has all of it, 200 where it had all of it
/// before, in which case the body is of no use.
///
/// # Errors
/// 411 without a length; 422 `wrong_digest`, 422 for what is no digest and for an empty body; 507 `quota`; 503 where as
/// many uploads are under way as may be; 408 and 400 where the body does not come, or not all of it; 409 where what had
/// come of it is gone.
pub(in crate::server::http) async fn put(call: Call) -> Answer {
    let digest = digest_of(&call)?;
    let total = length(&call.headers)?;
    let place = call.app.uploads.take(call.connection.identity.fingerprint);
    let _place = place.map_err(no_place)?;
    let mut store = Store::open(&call, Role::OPERATOR)?;
    let write = WriteImage {
        digest: digest.to_string(),
        total,
        tenant: call.query.text("tenant").unwrap_or_default().to_owned(),
        ..WriteImage::default()
    };
    let mut part = store.part(asked(write.clone(), 0, Bytes::new())).await?;
    let was_there = part.complete;
    let mut incoming = Incoming {
        body: call.unread.read(),
        rest: Bytes::new(),
    };
    // Where the next chunk of the body begins.
    let mut at = 0;
    while !part.complete {
        if call.app.hub.is_shutting_down() {
            return Err(Problem::leaving());
        }
        let chunk = incoming.chunk().await?;
        let end = at + chunk.len() as u64;
        // Another upload of the same image may have brought the store to anywhere.
        while !part.complete && part.offset < end {
            let offset = part.offset;
            let known = offset.checked_sub(at).ok_or_else(gone)?;
            let data = chunk.slice(usize::try_from(known).unwrap_or(chunk.len())..);
            part = store.write(&write, offset, data).await?;
            if !part.complete && part.offset <= offset {
                return Err(gone());
            }
        }
        at = end;
    }
    let at = call.app.ring.end();
    // One that is deleted at once has no row.
    let row = store.row(&digest).await?.unwrap_or_default();
    let status = match was_there {
        true => StatusCode::OK,
        false => StatusCode::CREATED,
    };
    Ok(answer_with(status, at, "image", to_json(&row).into()))
}

impl Store {
    /// Hands in bytes of an image. Waits where as much is asked of the store as may be.
    ///
    /// # Errors
    /// As [`Store::ask`], and what the store refuses.
    async fn write(
        &mut self,
        write: &WriteImage,
        offset: u64,
        data: Bytes,
    ) -> Result<ImagePart, Problem> {
        for _ in 0..STORE_BUSY_TRIES {
            let asked = asked(write.clone(), offset, data.clone());
            let part = self.any_part(asked).await?;
            match part.failure {
                ImageFailure::Busy => sleep(STORE_BUSY_PAUSE).await,
                _ if part.is_failure() => return Err(refused(&part.failure, &part.detail)),
                _ => return Ok(part),
            }
        }
        self.part(asked(write.clone(), offset, data)).await
    }
}

/// What the store is asked with these bytes.
fn asked(mut write: WriteImage, offset: u64, data: Bytes) -> (ImageCommand, Kind, Bytes) {
    write.offset = offset;
    let write = ImageWrite::new(write, data);
    (ImageCommand::Write, Kind::WRITE_IMAGE, write.encode())
}

/// A body on its way.
struct Incoming {
    body: Reading,
    /// What has come and is in no chunk yet.
    rest: Bytes,
}

impl Incoming {
    /// The next bytes of the body: as many as the store takes at a time, fewer at its end.
    ///
    /// # Errors
    /// 408 where they do not come within [`BODY_DEADLINE`]; 400 where the body has ended or was cut off.
    async fn chunk(&mut self) -> Result<Bytes, Problem> {
        match timeout(BODY_DEADLINE, self.gather()).await {
            Ok(Ok(chunk)) if !chunk.is_empty() => Ok(chunk),
            Ok(Ok(_)) => Err(cut_off("it ended")),
            Ok(Err(error)) => Err(cut_off(error)),
            Err(_) => {
                let detail =
                    format!("{MAX_IMAGE_CHUNK} bytes did not come within {BODY_DEADLINE:?}");
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail))
            }
        }
    }

    /// The same without a deadline; empty at the end of the body.
    async fn gather(&mut self) -> Result<Bytes, axum::Error> {
        let mut chunk = BytesMut::with_capacity(MAX_IMAGE_CHUNK);
        while chunk.len() < MAX_IMAGE_CHUNK {
            if self.rest.is_empty() {
                match self.body.frame().await.transpose()? {
                    // Trailers are passed over.
                    Some(frame) => self.rest = frame.into_data().unwrap_or_default(),
                    None => break,
                }
            }
            let len = self.rest.len().min(MAX_IMAGE_CHUNK - chunk.len());
            chunk.extend_from_slice(&self.rest.split_to(len));
        }
        Ok(chunk.freeze())
    }
}

/// How many bytes a body will have. The store makes room for all of them before the first.
///
/// # Errors
/// 411 `length_required`.
fn length(headers: &HeaderMap) -> Result<u64, Problem> {
    let length = headers.get(header::CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
    length.ok_or_else(|| {
        let detail = "the length of an image has to be known before it is sent";
        Problem::new(StatusCode::LENGTH_REQUIRED, "length_required", detail)
            .with_help("send Content-Length")
    })
}

/// 400: the body was not whole.
fn cut_off(why: impl std::fmt::Display) -> Problem {
    Problem::invalid_payload("", format!("the body: {why}")).with_help("send it again: it goes on")
}

/// 409: bytes that the store had of this image, and that this request has passed over, are not there any more.
fn gone() -> Problem {
    let detail = "what had come of it was deleted, or was damaged by another upload of it";
    Problem::new(StatusCode::CONFLICT, "upload_lost", detail).with_help("send it again")
}

/// 503: as many uploads are under way as may be.
fn no_place(no_place: NoPlace) -> Problem {
    match no_place {
        NoPlace::Full => Problem::busy("as many images are uploaded as may be at a time"),
        NoPlace::OwnShare(most) => Problem::busy(format!(
            "this certificate uploads {most} images, as many as one may at a time"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};
    use std::time::Duration;

    use axum::body::Body;
    use hyper::body::Frame;
    use tokio::time::{Instant, Sleep, sleep_until};

    use super::super::super::unread::Unread;
    use super::*;

    /// A body whose frames come one after the other, each so long after the one before it, by the test's own clock. One
    /// that is `None` is the end of the body; behind the last nothing comes.
    struct Dripping {
        frames: VecDeque<(Duration, Option<usize>)>,
        wait: Option<Pin<Box<Sleep>>>,
    }

    impl hyper::body::Body for Dripping {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let Some((after, len)) = self.frames.front().copied() else {
                return Poll::Pending;
            };
            let wait = self
                .wait
                .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + after)));
            ready!(wait.as_mut().poll(cx));
            self.wait = None;
            self.frames.pop_front();
            Poll::Ready(len.map(|len| Ok(Frame::data(vec![0; len].into()))))
        }
    }

    fn incoming(frames: impl IntoIterator<Item = (Duration, Option<usize>)>) -> Incoming {
        let body = Dripping {
            frames: frames.into_iter().collect(),
            wait: None,
        };
        Incoming {
            body: Unread::new(Body::new(body)).read(),
            rest: Bytes::new(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_chunk_has_a_deadline_of_its_own() {
        const CHUNKS: u32 = 5;
        let nearly = BODY_DEADLINE - Duration::from_secs(1);
        let all = (0..CHUNKS).map(|_| (nearly, Some(MAX_IMAGE_CHUNK)));
        let mut incoming = incoming(all.chain([(nearly, None)]));
        let begun = Instant::now();
        for _ in 0..CHUNKS {
            assert_eq!(incoming.chunk().await.unwrap().len(), MAX_IMAGE_CHUNK);
        }
        assert!(begun.elapsed() > BODY_DEADLINE, "all together take longer");
        let ended = incoming.chunk().await.unwrap_err();
        assert!(ended.text().contains("it ended"), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_upload_that_stands_still_or_hardly_moves_is_ended() {
        let moment = Duration::from_secs(1);
        let still = vec![(moment, Some(1))];
        let slow = vec![(moment, Some(1)); 10 * BODY_DEADLINE.as_secs() as usize];
        for frames in [Vec::new(), still, slow] {
            let mut incoming = incoming(frames);
            let begun = Instant::now();
            let late = incoming.chunk().await.unwrap_err();
            assert!(late.text().ends_with("(timeout)"), "{late:?}");
            assert_eq!(begun.elapsed().as_secs(), BODY_DEADLINE.as_secs());
        }
    }
}
