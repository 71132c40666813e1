//! The thread that does what is asked of the store, one thing after the other.
//!
//! What launchers fetch is limited in bytes a second. While STARTs come in it is a part of that, and in smaller chunks
//! ([`Pace`]): what is copied, encrypted and hashed of an image is time that a START may have to wait for a processor.
//! So a request to read is put into a queue of its own and answered a chunk at a time, when that is due; what is pushed,
//! listed and deleted is done as it comes. Between two requests one chunk is read that is due, so that neither holds up
//! the other. All blocking calls on the store's files are made here.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{
    DeleteImage, Digest, ImageChunk, ImageFailure, ImagePart, ImageWrite, ListImages, Payload,
    PayloadError, ReadImage,
};
use proto_frames::{Frame, Kind, Uuid};
use sched_core::{Parcel, SessionId};
use tracing::info;

use super::store::{InUse, Pushed, Refused, Store};
use super::{Waiting, answer};
use crate::server::hub::Hub;
use crate::server::wire;

/// How much of the time in which nothing was fetched is made up for: after a pause the first reads follow each other at
/// once up to the bytes of this time, two chunks at the default rate. As much as a timer that comes late may take; more
/// would be a burst, behind which other frames wait for a processor.
const MOST_SAVED_UP: Duration = Duration::from_millis(2);

/// For how long STARTs are counted before the rate follows them.
const COUNT_FOR: Duration = Duration::from_millis(20);

/// The least part of the rate that images have, however many STARTs come in, unless [`ANSWER_WITHIN`] asks for more. What
/// a closed loop of STARTs has to wait beside ten launchers that fetch 100 MB, with this part and with others, is in
/// `benches/README.md`.
const LEAST_PART: u32 = 64;

/// In how much time all reads that wait are answered, as far as the rate allows, however many STARTs come in: half of the
/// time after which launchers request again what has not come, so that a large cluster that fetches does not fail.
const ANSWER_WITHIN: Duration = Duration::from_secs(15);

/// Bytes of a chunk while STARTs come in. A START waits for what is done with a chunk at a stretch.
const BUSY_CHUNK: usize = 16 * 1024;

/// How fast launchers may fetch, by how many STARTs come in.
#[derive(Debug)]
struct Pace {
    /// Bytes in a second for all launchers together; 0 counts as 1.
    rate: u64,
    /// When STARTs were last counted from, and how many had come in until then.
    since: Option<(Instant, u64)>,
    /// How many came in [`COUNT_FOR`] before that.
    before: u64,
}

impl Pace {
    /// One that has not counted any START.
    fn new(rate: u64) -> Self {
        Self {
            rate,
            since: None,
            before: 0,
        }
    }

    /// Bytes that may be fetched in a second from now on, and those of a chunk at most, where so many STARTs have come in
    /// since the process began, and so many reads wait. One START in 20 ms halves the rate, two leave a third of it.
    fn at(&mut self, now: Instant, starts: u64, waiting: usize) -> (u64, usize) {
        let (since, until_then) = *self.since.get_or_insert((now, starts));
        let passed = now.saturating_duration_since(since);
        let mut came = starts.saturating_sub(until_then);
        if passed >= COUNT_FOR {
            // After a pause it is not known when they came: their mean counts.
            came = (came as f64 * COUNT_FOR.as_secs_f64() / passed.as_secs_f64()).round() as u64;
            (self.since, self.before) = (Some((now, starts)), came);
        }
        let recent = u32::try_from(came.max(self.before)).unwrap_or(u32::MAX);
        let part = recent.saturating_add(1).min(LEAST_PART);
        let chunk = match part {
            1 => MAX_IMAGE_CHUNK,
            _ => BUSY_CHUNK,
        };
        let least = (waiting * MAX_IMAGE_CHUNK) as u64 / ANSWER_WITHIN.as_secs();
        let rate = (self.rate / u64::from(part)).max(least.min(self.rate));
        (rate.max(1), chunk)
    }
}

/// A request to read of which not all bytes have been sent.
#[derive(Debug)]
struct Reading {
    session: SessionId,
    /// Its offset is that of the next chunk.
    read: ReadImage,
    /// Bytes that it is still to be answered with, if the image has as many.
    left: usize,
}

/// Something that is asked of the store, as it came.
#[derive(Debug)]
pub(super) struct Ask {
    /// Who asked, and gets the answer.
    pub(super) session: SessionId,
    /// The frame, of one of the four kinds that ask. The core has let it through; its payload is not read yet.
    pub(super) parcel: Parcel,
}

/// The thread's own state. No lock: nothing else has it.
#[derive(Debug)]
pub(super) struct Worker {
    store: Store,
    pace: Pace,
    /// To answer by, and to ask which images STARTs name. Once the hub is gone, answers are dropped.
    hub: Weak<Hub>,
    waiting: Arc<Waiting>,
    /// Requests of launchers, answered in their order; bounded as all requests are.
    reads: VecDeque<Reading>,
    /// When the next chunk may be read: behind each by as long as the rate gives it.
    next_read: Instant,
}

impl Worker {
    /// A worker whose first read is free.
    pub(super) fn new(store: Store, rate: u64, hub: Weak<Hub>, waiting: Arc<Waiting>) -> Self {
        Self {
            store,
            pace: Pace::new(rate),
            hub,
            waiting,
            reads: VecDeque::new(),
            next_read: Instant::now(),
        }
    }

    /// Works until the sending end of the channel is gone. While reads wait it waits no longer than until the next is
    /// due.
    pub(super) fn run(mut self, asked: &Receiver<Ask>) {
        while self.step(asked).is_continue() {}
    }

    /// Does the next request, then the read that is due, if one is: requests that come without a pause keep no read
    /// waiting. `Break` once the sending end is gone.
    fn step(&mut self, asked: &Receiver<Ask>) -> ControlFlow<()> {
        let ask = match self.reads.is_empty() {
            true => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => {
                let wait = self.next_read.saturating_duration_since(Instant::now());
                asked.recv_timeout(wait)
            }
        };
        match ask {
            Ok(ask) => self.take(ask),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        if self.next_read <= Instant::now() {
            self.read_next();
        }
        ControlFlow::Continue(())
    }

    /// Does what was asked, or puts it into the queue of reads. A payload that cannot be read is answered with
    /// `invalid_data`.
    fn take(&mut self, Ask { session, parcel }: Ask) {
        let frame = wire::frame_of(&parcel);
        let answer = match frame.kind {
            Kind::READ_IMAGE => match ReadImage::decode(&frame.payload) {
                Ok(read) => {
                    self.reads.push_back(Reading {
                        session,
                        read,
                        left: MAX_IMAGE_CHUNK,
                    });
                    return;
                }
                Err(error) => unreadable(&error),
            },
            Kind::WRITE_IMAGE => match ImageWrite::decode(&frame.payload) {
                Ok(write) => self.write(session, &write),
                Err(error) => unreadable(&error),
            },
            Kind::DELETE_IMAGE => match DeleteImage::decode(&frame.payload) {
                Ok(delete) => self.delete(session, &delete),
                Err(error) => unreadable(&error),
            },
            _ => self.list(&frame.payload),
        };
        self.send(session, answer);
    }

    /// Reads the next chunk of the request that has waited longest, sends it, and sets when the next may be read. A
    /// refusal has no bytes and costs no time. The request has been answered with its last byte, that of its image, or a
    /// refusal.
    fn read_next(&mut self) {
        let waiting = self.reads.len();
        let Some(mut reading) = self.reads.pop_front() else {
            return;
        };
        let now = Instant::now();
        let hub = self.hub.upgrade();
        let starts = hub.map_or(0, |hub| hub.read(|core| core.counters().starts));
        let (rate, most) = self.pace.at(now, starts, waiting);
        let Reading { read, left, .. } = &mut reading;
        let found = digest(&read.digest).and_then(|digest| {
            let len = most.min(*left);
            self.store.read(&digest, read.offset, len)
        });
        // A refusal is answered in the same kind of frame, without bytes.
        let (chunk, is_last) = match found {
            Ok((data, total)) => {
                let part = ImagePart {
                    id: read.id,
                    digest: read.digest.clone(),
                    offset: read.offset,
                    total,
                    ..ImagePart::default()
                };
                *left -= data.len();
                read.offset += data.len() as u64;
                let is_last = *left == 0 || read.offset >= total;
                (ImageChunk::new(part, data), is_last)
            }
            Err(refused) => (failure(read.id, &read.digest, refused), true),
        };
        // Time that has passed without reads counts up to `MOST_SAVED_UP`.
        let from = now.checked_sub(MOST_SAVED_UP).unwrap_or(now);
        let takes = Duration::from_secs_f64(chunk.data.len() as f64 / rate as f64);
        self.next_read = self.next_read.max(from) + takes;
        let session = reading.session;
        if is_last {
            self.send(session, answer(&chunk));
        } else {
            // Before those that the same launcher has sent since: it takes chunks in the order of their offsets.
            self.reads.push_front(reading);
            self.send_part(session, answer(&chunk));
        }
    }

    /// Takes in a chunk that is pushed. The answer says how many bytes are there, from which the pusher goes on, and
    /// whether the image is complete. A complete image is logged with who pushed it.
    fn write(&mut self, session: SessionId, write: &ImageWrite) -> Frame {
        let hub = self.hub.clone();
        // Empty where the peer has left meanwhile.
        let by = hub.upgrade().and_then(|hub| hub.subject_of(session));
        let by = by.unwrap_or_default();
        let ImageWrite { part, data } = write;
        let pushed = digest(&part.digest).and_then(|digest| {
            let pushed = self
                .store
                .write(&digest, (part, data), &by, || in_use(&hub))?;
            // Only the push that completes it; later ones find it there and are not logged.
            if let Pushed::Complete(bytes) = pushed {
                let tenant = &part.tenant;
                info!(
                    event = "image_pushed",
                    "{digest}, {bytes} bytes, pushed by {by} for tenant '{tenant}'"
                );
            }
            Ok(pushed)
        });
        let chunk = match pushed {
            Ok(pushed) => {
                // The pusher goes on from `offset`, whether or not its bytes were taken.
                let (offset, complete) = match pushed {
                    Pushed::Part(have) => (have, false),
                    Pushed::There(len) | Pushed::Complete(len) => (len, true),
                };
                let part = ImagePart {
                    id: part.id,
                    digest: part.digest.clone(),
                    offset,
                    total: part.total,
                    complete,
                    ..ImagePart::default()
                };
                ImageChunk::new(part, Bytes::new())
            }
            Err(refused) => failure(part.id, &part.digest, refused),
        };
        answer(&chunk)
    }

    /// Deletes an image that no START names; logged with who did it.
    fn delete(&mut self, session: SessionId, delete: &DeleteImage) -> Frame {
        let hub = self.hub.upgrade();
        let by = hub.and_then(|hub| hub.subject_of(session));
        let deleted = digest(&delete.digest).and_then(|digest| {
            // The core's lock is taken for `in_use` before the store is asked, not while a file is removed.
            let owner = self.store.delete(&digest, &in_use(&self.hub))?;
            info!(
                event = "image_deleted",
                "{digest} of tenant '{}' deleted by {}",
                owner.tenant,
                by.unwrap_or_default()
            );
            Ok(())
        });
        let chunk = match deleted {
            Ok(()) => {
                let part = ImagePart {
                    id: delete.id,
                    digest: delete.digest.clone(),
                    ..ImagePart::default()
                };
                ImageChunk::new(part, Bytes::new())
            }
            Err(refused) => failure(delete.id, &delete.digest, refused),
        };
        answer(&chunk)
    }

    /// A page of images. A request that cannot be read lists from the beginning.
    fn list(&self, payload: &[u8]) -> Frame {
        // Rows begin behind `after`; one that is no digest is none.
        let list = ListImages::decode(payload).unwrap_or_default();
        let mut rows = self.store.list(list.after.parse().ok(), &in_use(&self.hub));
        rows.id = list.id;
        Frame::new(Kind::IMAGE_LIST, Uuid::nil(), rows.encode())
    }

    /// Sends an answer, the last one to a request, and takes that off the peer's count.
    fn send(&self, session: SessionId, frame: Frame) {
        // First, so that a peer that has its answer is not refused its next request.
        self.waiting.end(session);
        self.send_part(session, frame);
    }

    /// Sends an answer behind which more come. The frame is dropped where the peer has left.
    fn send_part(&self, session: SessionId, frame: Frame) {
        if let Some(hub) = self.hub.upgrade() {
            hub.send_behind(session, frame);
        }
    }
}

/// Which images STARTs name that the scheduler keeps, by their short names. Takes the core's lock for as long as it
/// takes to look at them; none where the hub is gone.
fn in_use(hub: &Weak<Hub>) -> InUse {
    let hub = hub.upgrade();
    hub.map(|hub| hub.read(sched_core::Scheduler::images_in_use))
        .unwrap_or_default()
}

/// The digest that a request names.
///
/// # Errors
/// `invalid_data`; the text is made printable, since it is a peer's.
fn digest(text: &str) -> Result<Digest, Refused> {
    text.parse().map_err(|error| {
        let detail = format!("'{}': {error}", crate::printable::Printable::new(text));
        Refused::new(ImageFailure::InvalidData, detail)
    })
}

/// The answer that something was refused.
fn failure(id: u64, digest: &str, refused: Refused) -> ImageChunk {
    let Refused { failure, detail } = refused;
    ImageChunk::new(ImagePart::fail(id, digest, failure, detail), Bytes::new())
}

/// The answer to a payload that cannot be read, whose number and digest are not known.
fn unreadable(error: &PayloadError) -> Frame {
    let part = ImagePart::fail(0, "", ImageFailure::InvalidData, error.to_string());
    answer(&ImageChunk::new(part, Bytes::new()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use proto_frames::payload::WriteImage;

    use super::super::store::Quota;
    use super::*;
    use crate::image_file::Hash;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn images_have_a_part_of_the_rate_while_starts_come_in() {
        let rate = 1_000_000;
        let mut pace = Pace::new(rate);
        let begin = Instant::now();
        let mut at = |times: u32, quarters: u32, starts| {
            let now = begin + COUNT_FOR * times + COUNT_FOR * quarters / 4;
            pace.at(now, starts, 1)
        };
        let idle = (rate, MAX_IMAGE_CHUNK);
        assert_eq!(at(0, 0, 7), idle, "they may be of long ago");
        assert_eq!(at(0, 1, 8), (rate / 2, BUSY_CHUNK));
        assert_eq!(at(0, 2, 10), (rate / 4, BUSY_CHUNK));
        assert_eq!(at(1, 0, 10), (rate / 4, BUSY_CHUNK));
        assert_eq!(
            at(1, 3, 10),
            (rate / 4, BUSY_CHUNK),
            "those before count still"
        );
        assert_eq!(at(2, 0, 10), idle);
        assert_eq!(
            at(2, 1, 9_999),
            (rate / 64, BUSY_CHUNK),
            "no less than that"
        );
        assert_eq!(at(3, 0, 9_999), (rate / 64, BUSY_CHUNK));
        assert_eq!(at(13, 0, 9_999 + 29), (rate / 4, BUSY_CHUNK), "3 in 20 ms");
        assert_eq!(at(14, 0, 9_999 + 29), idle);
        assert_eq!(at(24, 0, 9_999 + 33), idle, "4 in 200 ms");
        assert_eq!(Pace::new(1).at(begin, 0, 1), (1, MAX_IMAGE_CHUNK));
        assert_eq!(Pace::new(0).at(begin, 0, 1), (1, MAX_IMAGE_CHUNK));
    }

    #[test]
    fn all_that_wait_are_answered_in_time_beside_any_number_of_starts() {
        let mut pace = Pace::new(64 << 20);
        let begin = Instant::now();
        pace.at(begin, 0, 1);
        let mut at = |waiting| pace.at(begin, u64::MAX, waiting).0;
        assert_eq!(at(40), 1 << 20, "the least part is enough for these");
        for waiting in [1_000, 8_000, 15_000] {
            let bytes = (waiting * MAX_IMAGE_CHUNK) as u64;
            let takes = bytes / at(waiting);
            assert!(takes <= ANSWER_WITHIN.as_secs(), "{waiting} in {takes} s");
        }
        assert_eq!(at(100_000), 64 << 20, "no more than the rate");
    }

    #[test]
    fn a_request_is_answered_in_small_chunks_in_their_order_while_starts_come_in() {
        let directory = tempfile::tempdir().unwrap();
        let quota = Quota {
            all: 1 << 20,
            tenant: 1 << 20,
        };
        let store = Store::open(directory.path(), quota).unwrap();
        let mut worker = Worker::new(store, u64::MAX, Weak::new(), Arc::default());
        let image = vec![7; MAX_IMAGE_CHUNK + 1];
        let digest = Hash::of(image.as_slice()).unwrap().digest().unwrap();
        for bytes in [&image[..MAX_IMAGE_CHUNK], &image[MAX_IMAGE_CHUNK..]] {
            let part = WriteImage {
                digest: digest.to_string(),
                offset: if bytes.len() == 1 {
                    MAX_IMAGE_CHUNK as u64
                } else {
                    0
                },
                total: image.len() as u64,
                bytes: bytes.len() as u64,
                ..WriteImage::default()
            };
            worker.write(
                SessionId(1),
                &ImageWrite::new(part, Bytes::copy_from_slice(bytes)),
            );
        }
        let offsets = |worker: &mut Worker, offset| {
            let session = SessionId(1);
            worker.reads.push_back(Reading {
                session,
                read: ReadImage {
                    digest: digest.to_string(),
                    offset,
                    ..ReadImage::default()
                },
                left: MAX_IMAGE_CHUNK,
            });
            let mut offsets = Vec::new();
            while let Some(reading) = worker.reads.front() {
                offsets.push(reading.read.offset);
                worker.read_next();
            }
            offsets
        };
        assert_eq!(offsets(&mut worker, 0), [0], "in one where none come in");
        worker.pace.before = 1;
        worker.pace.since = Some((Instant::now() + LONG, 0));
        let step = BUSY_CHUNK as u64;
        assert_eq!(offsets(&mut worker, 0), [0, step, 2 * step, 3 * step]);
        assert_eq!(offsets(&mut worker, 4 * step), [4 * step], "the last byte");
        assert_eq!(offsets(&mut worker, 9 * step), [9 * step], "behind the end");
    }

    #[test]
    fn a_read_that_is_due_is_done_although_other_requests_go_on_coming() {
        let directory = tempfile::tempdir().unwrap();
        let quota = Quota {
            all: 100,
            tenant: 100,
        };
        let store = Store::open(directory.path(), quota).unwrap();
        let mut worker = Worker::new(store, 1, Weak::new(), Arc::default());
        let (asks, asked) = sync_channel(8);
        let ask = |kind, payload| {
            let parcel = wire::parcel(Frame::new(kind, Uuid::nil(), payload));
            let session = SessionId(1);
            asks.send(Ask { session, parcel }).unwrap();
        };
        worker.next_read = Instant::now() + LONG;
        for id in 1..=2 {
            let read = ReadImage {
                id,
                ..ReadImage::default()
            };
            ask(Kind::READ_IMAGE, read.encode());
            assert!(worker.step(&asked).is_continue());
        }
        for _ in 0..3 {
            ask(Kind::LIST_IMAGES, ListImages::default().encode());
        }
        assert!(worker.step(&asked).is_continue());
        assert_eq!(worker.reads.len(), 2, "none is due");
        for left in [1, 0] {
            worker.next_read = Instant::now();
            assert!(worker.step(&asked).is_continue());
            assert_eq!(worker.reads.len(), left, "one after each request");
        }
        drop(asks);
        assert!(worker.step(&asked).is_break());
    }
}
