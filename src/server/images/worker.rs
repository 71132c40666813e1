//! The thread that does what is asked of the store, one thing after the other.
//!
//! What launchers fetch is limited in bytes a second, and to a quarter of that while STARTs come in ([`Pace`]): what is
//! copied and encrypted for an image is time that a START would wait for a processor. So a request to read is put into
//! a queue of its own and done when its time has come; what is pushed, listed and deleted is done as it comes. Between
//! two requests one read is done that is due, so that neither holds up the other. All blocking calls on the store's
//! files are made here.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
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

/// How long after a START images are sent slowly: longer than the time between two STARTs of those that come one after
/// the other, each waiting for its answer.
const BUSY_FOR: Duration = Duration::from_millis(20);

/// The part of the rate that images have while STARTs come in. With it, the 99th percentile of a closed loop of STARTs
/// beside ten launchers that fetch 100 MB on the same two processors is a fifth to a half above what it is alone, and no
/// lower with half of this (`benches/README.md`).
const BUSY_PART: u64 = 4;

/// How fast launchers may fetch.
#[derive(Debug)]
struct Pace {
    /// Bytes in a second for all launchers together; 0 counts as 1.
    rate: u64,
    /// STARTs that had come in when it was last looked, and when that was.
    starts: u64,
    looked: Option<Instant>,
    /// Until when images are sent slowly.
    busy_until: Option<Instant>,
}

impl Pace {
    /// Bytes that may be fetched in a second from now on, where so many STARTs have come in since the process began.
    fn rate(&mut self, now: Instant, starts: u64) -> u64 {
        let looked = self.looked.replace(now);
        let is_recent = looked.is_some_and(|looked| now <= looked + BUSY_FOR);
        // Those of longer ago may have come at any time since.
        if std::mem::replace(&mut self.starts, starts) != starts && is_recent {
            self.busy_until = Some(now + BUSY_FOR);
        }
        let is_busy = self.busy_until.is_some_and(|until| now < until);
        let rate = if is_busy {
            self.rate / BUSY_PART
        } else {
            self.rate
        };
        rate.max(1)
    }
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
    /// Chunks that launchers wait for; bounded as all requests are.
    reads: VecDeque<(SessionId, ReadImage)>,
    /// When the next of them may be read: behind each chunk by as long as the rate gives it.
    next_read: Instant,
}

impl Worker {
    /// A worker whose first read is free.
    pub(super) fn new(store: Store, rate: u64, hub: Weak<Hub>, waiting: Arc<Waiting>) -> Self {
        Self {
            store,
            pace: Pace {
                rate,
                starts: 0,
                looked: None,
                busy_until: None,
            },
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
                    self.reads.push_back((session, read));
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

    /// Reads the chunk that has been waited for longest, sends it, and sets when the next may be read. A refusal has no
    /// bytes and costs no time.
    fn read_next(&mut self) {
        let Some((session, read)) = self.reads.pop_front() else {
            return;
        };
        let digest = digest(&read.digest);
        let found = digest.and_then(|digest| self.store.read(&digest, read.offset));
        // A refusal is answered in the same kind of frame, without bytes.
        let chunk = match found {
            Ok((data, total)) => {
                let part = ImagePart {
                    id: read.id,
                    digest: read.digest,
                    offset: read.offset,
                    total,
                    ..ImagePart::default()
                };
                ImageChunk::new(part, data)
            }
            Err(refused) => failure(read.id, &read.digest, refused),
        };
        let now = Instant::now();
        // Time that has passed without reads counts up to `MOST_SAVED_UP`.
        let from = now.checked_sub(MOST_SAVED_UP).unwrap_or(now);
        let hub = self.hub.upgrade();
        let starts = hub.map_or(0, |hub| hub.read(|core| core.counters().starts));
        let takes = chunk.data.len() as f64 / self.pace.rate(now, starts) as f64;
        self.next_read = self.next_read.max(from) + Duration::from_secs_f64(takes);
        self.send(session, answer(&chunk));
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

    /// Sends an answer and takes the request off the peer's count. The frame is dropped where the peer has left.
    fn send(&self, session: SessionId, frame: Frame) {
        // First, so that a peer that has its answer is not refused its next request.
        self.waiting.end(session);
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

    use super::super::store::Quota;
    use super::*;

    /// Longer than any test runs.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn images_have_a_part_of_the_rate_while_starts_come_in() {
        let mut pace = Pace {
            rate: 400,
            starts: 0,
            looked: None,
            busy_until: None,
        };
        let begin = Instant::now();
        let mut rate = |after: Duration, starts| pace.rate(begin + after, starts);
        assert_eq!(rate(Duration::ZERO, 0), 400);
        assert_eq!(rate(BUSY_FOR, 1), 100);
        assert_eq!(rate(BUSY_FOR * 3 / 2, 1), 100);
        assert_eq!(rate(BUSY_FOR * 7 / 4, 9), 100);
        assert_eq!(rate(BUSY_FOR * 2, 9), 100, "since the latest START");
        assert_eq!(rate(BUSY_FOR * 11 / 4, 9), 400);
        assert_eq!(rate(BUSY_FOR * 4, 10), 400, "some time ago");
        assert_eq!(rate(BUSY_FOR * 4, 11), 100);
        pace.rate = 1;
        assert_eq!(pace.rate(begin + BUSY_FOR * 4, 12), 1);
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
