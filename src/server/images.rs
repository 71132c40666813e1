//! Programs that are shipped: the store of images, which controllers and operators push to and launchers fetch from.
//!
//! ```text
//! peer ── READ_IMAGE, WRITE_IMAGE, … ──▶ core: may it ask? ── Action::Image ──▶ Images::ask (core's lock held)
//!                                                                                  │ channel, bounded
//! peer ◀── IMAGE, IMAGE_LIST ◀── Hub::send_behind ◀── Worker, a thread ◀───────────┘
//!                                                       └─▶ Store, the directory
//! ```
//!
//! Requests by HTTP (`/v1/images`) come the same way, through sessions of their own (`http/images.rs`).
//!
//! The core says who may ask ([`sched_core::Action::Image`]); what is asked is done by a thread of its own, so that
//! neither the core's lock nor a task waits for the disk. Answers are queued behind all else that waits for the peer
//! ([`crate::net::outbox::Outbox::push_behind`]): a peer that asks has a few chunks under way at most, so that a START
//! is behind one of them and never behind an image. What all launchers fetch together is limited in bytes a second.
//!
//! [`store`] has the files and quotas, [`worker`] the thread. Not here: launchers' caches of what they fetched, and
//! what `ciaoctl push` does.
//!
//! Each request is answered once, as long as its peer is connected: with what it asks for, or with a failure, which has
//! a word for programs ([`ImageFailure`]) and a sentence for people.

mod store;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use proto_frames::payload::guard::first_document;
use proto_frames::payload::image::MAX_IMAGE_CHUNK;
use proto_frames::payload::{DeleteImage, ImageChunk, ImageFailure, ImageList, ImagePart, Payload};
use proto_frames::payload::{ListImages, ReadImage, WriteImage, guard};
use proto_frames::{Frame, Kind, Uuid};
use sched_core::{Parcel, SessionId};

use self::store::{Quota, Store};
use self::worker::{Ask, Worker};
use super::hub::Hub;
use super::tasks::said;

/// Requests that all peers together may have waiting: as many chunks are 64 MiB. Further ones are answered with `busy`.
const MAX_ASKS: usize = 1024;

/// Requests that one peer may have waiting; further ones are answered with `busy`. Clients have fewer under way.
const MAX_ASKS_BY_PEER: usize = 16;

/// Longest payload of a request: a chunk and what is said of it. A longer one is refused before it is read.
const MAX_ASK_LEN: usize = MAX_IMAGE_CHUNK + 4 * 1024;

/// Bytes that the images of all tenants have at most, unless `--blob-quota` says something else: 10 GiB.
pub const DEFAULT_BLOB_QUOTA: u64 = 10 << 30;

/// Bytes that all launchers together fetch in a second, unless `--blob-rate` says something else: half of what a Gbit/s
/// carries, so that frames have the other half. While STARTs come in it is a part of this, mostly no less than a 64th.
pub const DEFAULT_BLOB_RATE: u64 = 64 << 20;

/// Where images are kept, and how many: the flags `--blob-dir`, `--blob-quota`, `--blob-tenant-quota` and
/// `--blob-rate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImagesConfig {
    /// The directory; one scheduler each, which a lock in it makes sure of. Made if it is not there.
    pub directory: PathBuf,
    /// Bytes that all images may have, those being pushed included.
    pub quota: u64,
    /// Bytes that those of one tenant may have. The tenant is what the pusher says.
    pub tenant_quota: u64,
    /// Bytes that launchers together may fetch in a second.
    pub rate: u64,
}

impl ImagesConfig {
    /// The usual limits; one tenant may have half of the whole.
    #[must_use]
    pub fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            quota: DEFAULT_BLOB_QUOTA,
            tenant_quota: DEFAULT_BLOB_QUOTA / 2,
            rate: DEFAULT_BLOB_RATE,
        }
    }
}

/// The way to the store of images, held by the hub. Dropping it ends the thread.
#[derive(Debug)]
pub(super) struct Images {
    /// Bounded by [`MAX_ASKS`]. Only `try_send` is used, since the sender holds the core's lock.
    asks: SyncSender<Ask>,
    /// Shared with the thread, which counts down as it answers.
    waiting: Arc<Waiting>,
}

/// How many requests of each peer wait, in the channel or for their time to be read. A peer without any has no entry.
/// Numbers of sessions are never used again, so a peer that has left is counted down like any other.
#[derive(Debug, Default)]
struct Waiting(Mutex<BTreeMap<SessionId, usize>>);

impl Waiting {
    /// Counts one more; `false`, and not counted, if the peer has as many as it may.
    fn begin(&self, session: SessionId) -> bool {
        let mut waiting = self.0.lock();
        let own = waiting.entry(session).or_default();
        let may = *own < MAX_ASKS_BY_PEER;
        *own += usize::from(may);
        may
    }

    /// One has been answered, or could not be handed in.
    fn end(&self, session: SessionId) {
        let mut waiting = self.0.lock();
        if let Some(own) = waiting.get_mut(&session) {
            *own -= 1;
            if *own == 0 {
                waiting.remove(&session);
            }
        }
    }
}

/// A store that is open and serves no peer yet: the directory is checked and locked when the daemon starts, and the
/// thread begins once there is a hub to answer by.
#[derive(Debug)]
pub(super) struct Opened {
    store: Store,
    rate: u64,
}

impl Opened {
    /// Opens the store.
    ///
    /// # Errors
    /// The system's: the directory cannot be made or read, or another process has it.
    pub(super) fn open(config: &ImagesConfig) -> io::Result<Self> {
        let quota = Quota {
            all: config.quota,
            tenant: config.tenant_quota,
        };
        Ok(Self {
            store: Store::open(&config.directory, quota)?,
            rate: config.rate,
        })
    }

    /// Starts the thread that serves the hub's peers. It holds the hub only weakly, so that the hub can be dropped.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(super) fn start(self, hub: Weak<Hub>) -> io::Result<Images> {
        let (asks, asked) = sync_channel(MAX_ASKS);
        let waiting = Arc::<Waiting>::default();
        let worker = Worker::new(
            self.store,
            self.rate,
            Weak::clone(&hub),
            Arc::clone(&waiting),
        );
        std::thread::Builder::new()
            .name("images".to_owned())
            .spawn(move || watched(&hub, || worker.run(&asked)))?;
        Ok(Images { asks, waiting })
    }
}

/// Does the work of the thread. A panic takes the daemon down: otherwise every later request would be answered as if
/// there were too many, because nothing takes them out of the channel any more.
fn watched(hub: &Weak<Hub>, work: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work))
        && let Some(hub) = hub.upgrade()
    {
        let why = said(&*panic);
        hub.fail(format!("the store of images has panicked: {why}"));
    }
}

impl Images {
    /// Hands a request to the thread, whose answer comes by [`Hub::send_behind`]. Called under the core's lock, so it
    /// never waits.
    ///
    /// # Errors
    /// The answer to send instead: `invalid_data` where the payload is too long, `busy` where as many wait as may.
    pub(super) fn ask(&self, session: SessionId, parcel: Parcel) -> Result<(), Frame> {
        if parcel.payload.len() > MAX_ASK_LEN {
            let detail = format!(
                "{} bytes, at most {MAX_ASK_LEN} are taken",
                parcel.payload.len()
            );
            return Err(refusal(&parcel, ImageFailure::InvalidData, &detail));
        }
        let busy = |parcel: &Parcel| {
            let detail = "as much is asked of the store of images as may be at a time; try again";
            refusal(parcel, ImageFailure::Busy, detail)
        };
        if !self.waiting.begin(session) {
            return Err(busy(&parcel));
        }
        match self.asks.try_send(Ask { session, parcel }) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(ask) | TrySendError::Disconnected(ask)) => {
                self.waiting.end(session);
                Err(busy(&ask.parcel))
            }
        }
    }
}

/// The answer to a peer that asks a scheduler without `--blob-dir`.
pub(super) fn not_offered(parcel: &Parcel) -> Frame {
    let detail = "this scheduler keeps no images: give it a directory for them (--blob-dir)";
    refusal(parcel, ImageFailure::NotOffered, detail)
}

/// The answer that something is not done, in the form that the request's kind has: a list for a list, else a part of an
/// image without bytes.
fn refusal(parcel: &Parcel, failure: ImageFailure, detail: &str) -> Frame {
    let kind = super::wire::frame_of(parcel).kind;
    let (id, digest) = asked(kind, &parcel.payload);
    if kind == Kind::LIST_IMAGES {
        let detail = detail.to_owned();
        let list = ImageList {
            id,
            failure,
            detail,
            ..ImageList::default()
        };
        return Frame::new(Kind::IMAGE_LIST, Uuid::nil(), list.encode());
    }
    answer(&ImageChunk::new(
        ImagePart::fail(id, &digest, failure, detail),
        bytes::Bytes::new(),
    ))
}

/// The number and the image of a request, as far as they can be read: 0 and an empty text otherwise, so that a peer
/// gets an answer to what it sent wrongly as well. Reads the document alone, not the bytes behind it.
fn asked(kind: Kind, payload: &[u8]) -> (u64, String) {
    let document = first_document(payload, guard::SMALL).unwrap_or_default();
    match kind {
        Kind::READ_IMAGE => ReadImage::decode(document).map(|it| (it.id, it.digest)),
        Kind::WRITE_IMAGE => WriteImage::decode(document).map(|it| (it.id, it.digest)),
        Kind::DELETE_IMAGE => DeleteImage::decode(document).map(|it| (it.id, it.digest)),
        _ => ListImages::decode(document).map(|it| (it.id, String::new())),
    }
    .unwrap_or_default()
}

/// A chunk as the frame IMAGE.
fn answer(chunk: &ImageChunk) -> Frame {
    Frame::new(Kind::IMAGE, Uuid::nil(), chunk.encode())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::hub::tests::hub;

    #[tokio::test]
    async fn a_panic_of_the_store_of_images_takes_the_daemon_down() {
        let hub = Arc::new(hub());
        let weak = Arc::downgrade(&hub);
        let thread = std::thread::spawn(move || watched(&weak, || panic!("injected")));
        thread.join().unwrap();
        let why = hub.failure().await;
        assert!(
            why.contains("the store of images has panicked: injected"),
            "{why}"
        );
    }
}
