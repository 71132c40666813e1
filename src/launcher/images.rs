//! The images of a node: programs that STARTs name by their digest. What is not in the cache ([`cache`]) is fetched
//! from the scheduler ([`fetch`]) over the connection that stands, a few chunks at a time; a fetch that is cut off goes
//! on where it was once there is a connection again, also that of a later launcher.
//!
//! ```text
//! START ── obtain ──▶ cache ── there, and what its digest says ──▶ path
//!                       └── not there ──▶ fetch ──ReadImage──▶ run loop ──▶ scheduler
//!                                          ▲ file ◀──Image─────────┘
//! ```

mod cache;
mod disk_thread;
mod fetch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::payload::{Digest, ImageChunk, Payload as _, ReadImage};
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::task::spawn_blocking;
use tracing::debug;

use self::cache::Cache;
use self::fetch::WINDOW;

pub use self::cache::DEFAULT_CACHE_QUOTA;

/// Images that a node fetches at a time; others wait. With [`WINDOW`] this bounds what it has asked for.
const FETCHES_AT_ONCE: usize = 2;

/// Chunks of one fetch that have come and are not written yet, those of an earlier connection among them: a request is
/// answered in up to four while STARTs come in, and may be in twice as many. Further ones are dropped, and requested
/// again.
const MAX_CHUNKS: usize = 2 * 8 * WINDOW;

/// Images that a node says it has, at most, the latest used ones: labels are few.
const MAX_LABELS: usize = 16;

/// What stands for the program's path in the arguments and variables of an instance that names an image; [`placeholder`]
/// has those of further images.
pub const PLACEHOLDER: &str = "{image}";

/// How each of these begins.
const OPENING: &str = "{image";

/// Where images are kept on a node, and how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// The directory; one launcher each.
    pub directory: PathBuf,
    /// Bytes that they may have.
    pub quota: u64,
}

/// What fetching came to: where the image is, or why it cannot be had.
type Fetched = Result<PathBuf, String>;

/// The images of one node.
#[derive(Debug, Clone)]
pub(crate) struct Images(Arc<Shared>);

/// The run loop's end: what is to be requested of the scheduler, and its answers. The run loop owns the connection, and
/// so sends for the fetches.
#[derive(Debug)]
pub(crate) struct ImageLink {
    images: Images,
    requests: mpsc::Receiver<ReadImage>,
}

/// What all clones share. The two locks are never held together.
#[derive(Debug)]
struct Shared {
    cache: Mutex<Cache>,
    /// Fetches under way, one for each digest however many instances wait for it.
    fetches: Mutex<BTreeMap<Digest, Fetching>>,
    /// One for each of [`FETCHES_AT_ONCE`].
    permits: Semaphore,
    /// To the run loop. Bounded by what may be requested ahead.
    requests: mpsc::Sender<ReadImage>,
    /// What fetches watch to see a lost or another connection.
    link: watch::Sender<Link>,
    /// Told when other images are there than were.
    changed: Notify,
}

/// Whether the scheduler can be asked for images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not at present: there is no connection.
    #[default]
    None,
    /// There is a connection, and no way to ask over it.
    Mute,
    /// It can.
    Asks,
}

/// The connection to the scheduler, as fetches see it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Link {
    reach: Reach,
    /// Counts connections over which images can be requested: an answer belongs to one of them.
    number: u64,
}

/// An image that is being fetched.
#[derive(Debug)]
struct Fetching {
    /// Answers of the scheduler. What does not fit was not asked for.
    chunks: mpsc::Sender<ImageChunk>,
    /// `None` until it is over.
    outcome: watch::Receiver<Option<Fetched>>,
}

impl Images {
    /// Those in this cache, and the run loop's end.
    pub(crate) fn open(config: &CacheConfig) -> io::Result<(Self, ImageLink)> {
        let (requests, requested) = mpsc::channel(FETCHES_AT_ONCE * WINDOW);
        let images = Self(Arc::new(Shared {
            cache: Mutex::new(Cache::open(config)?),
            fetches: Mutex::default(),
            permits: Semaphore::new(FETCHES_AT_ONCE),
            requests,
            link: watch::Sender::default(),
            changed: Notify::new(),
        }));
        // What is there already is said first of all.
        images.0.changed.notify_one();
        let link = ImageLink {
            images: images.clone(),
            requests: requested,
        };
        Ok((images, link))
    }

    /// An instance runs these images, or is about to: they stay until [`Self::release`].
    pub(crate) fn hold(&self, instance: &str, digests: &[Digest]) {
        self.0.cache.lock().hold(instance, digests);
    }

    /// An instance has ended.
    pub(crate) fn release(&self, instance: &str) {
        self.0.cache.lock().release(instance);
    }

    /// The paths of these images, of which the first is the program, one after the other; all as [`Self::obtain`] has it.
    ///
    /// # Errors
    /// Why one cannot be had, and which one it is, for people.
    pub(crate) async fn obtain_all(&self, digests: &[Digest]) -> Result<Vec<PathBuf>, String> {
        let mut paths = Vec::with_capacity(digests.len());
        for (number, &digest) in digests.iter().enumerate() {
            let obtained = self.obtain(digest).await;
            paths.push(obtained.map_err(|why| named(number, &digest, why))?);
        }
        Ok(paths)
    }

    /// The path of an image whose contents are what its digest says; fetched if it is not there. The caller holds the
    /// image ([`Self::hold`]) before, so that it is not evicted between this and the start.
    ///
    /// # Errors
    /// Why it cannot be had, and what to do, for people.
    pub(crate) async fn obtain(&self, digest: Digest) -> Fetched {
        let shared = Arc::clone(&self.0);
        let found = spawn_blocking(move || cache::find(&shared.cache, &digest)).await;
        match found {
            Ok(Ok(Some(path))) => {
                self.0.changed.notify_one();
                return Ok(path);
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(format!("the node cannot read its images: {error}")),
            Err(error) => return Err(error.to_string()),
        }
        let mut outcome = self.fetch(digest);
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or_else(|| Err(String::new())),
            Err(_) => Err("its fetch was given up; try again".to_owned()),
        }
    }

    /// Joins the fetch of an image, or begins it. All who wait for an image get the one outcome. Dropping the receiver
    /// does not end the fetch.
    fn fetch(&self, digest: Digest) -> watch::Receiver<Option<Fetched>> {
        let mut fetches = self.0.fetches.lock();
        if let Some(fetching) = fetches.get(&digest) {
            return fetching.outcome.clone();
        }
        let (tell, outcome) = watch::channel(None);
        let (chunks, received) = mpsc::channel(MAX_CHUNKS);
        let fetching = Fetching {
            chunks,
            outcome: outcome.clone(),
        };
        fetches.insert(digest, fetching);
        drop(fetches);
        let images = self.clone();
        tokio::spawn(async move {
            let fetched = fetch::fetch(&images.0, digest, received).await;
            images.0.fetches.lock().remove(&digest);
            images.0.changed.notify_one();
            tell.send_replace(Some(fetched));
        });
        outcome
    }

    /// Waits until other images are there than were; the names by which nodes say so.
    pub(crate) async fn changed(&self) -> Vec<String> {
        self.0.changed.notified().await;
        self.0.cache.lock().latest(MAX_LABELS)
    }
}

impl ImageLink {
    /// A connection stands, or none.
    pub(crate) fn connection(&self, reach: Reach) {
        self.images.0.link.send_modify(|link| {
            link.number += u64::from(reach == Reach::Asks);
            link.reach = reach;
        });
    }

    /// The next thing to ask the scheduler; pending while there is none. Nothing is lost where the wait is given up.
    pub(crate) async fn next(&mut self) -> ReadImage {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }

    /// Hands an answer of the scheduler to the fetch that waits for it. Unreadable ones, and those for no fetch, are
    /// dropped.
    pub(crate) fn take(&self, payload: &[u8]) {
        let chunk = match ImageChunk::decode(payload) {
            Ok(chunk) => chunk,
            Err(error) => {
                debug!(%error, "unreadable Image ignored");
                return;
            }
        };
        let Ok(digest) = chunk.part.digest.parse::<Digest>() else {
            return;
        };
        let fetches = self.images.0.fetches.lock();
        if let Some(fetching) = fetches.get(&digest)
            && fetching.chunks.try_send(chunk).is_err()
        {
            debug!(%digest, "an answer that was not asked for is ignored");
        }
    }
}

/// Why an image cannot be had, with which of several it is: the program is what a failure is about that says nothing
/// else.
fn named(number: usize, digest: &Digest, why: String) -> String {
    if number == 0 {
        return why;
    }
    let name = placeholder(number);
    let digest = digest.to_string();
    match why.contains(&digest) {
        true => format!("{name}: {why}"),
        false => format!("{name}, {digest}: {why}"),
    }
}

/// What stands for the path of the image with this number: [`PLACEHOLDER`] for the program, which is 0, and `{image.1}`
/// and so on for further ones in their order.
#[must_use]
pub fn placeholder(number: usize) -> String {
    match number {
        0 => PLACEHOLDER.to_owned(),
        number => format!("{OPENING}.{number}}}"),
    }
}

/// The command of an instance that names images: their paths in place of each placeholder; that of the program, the
/// first, before the arguments if none of them has it.
pub(crate) fn command(paths: &[PathBuf], arguments: Vec<String>) -> Vec<String> {
    let is_placed = arguments.iter().any(|it| it.contains(PLACEHOLDER));
    let program = paths.first().filter(|_| !is_placed);
    let program = program.map(|path| path.to_string_lossy().into_owned());
    let arguments = arguments.into_iter().map(|it| filled(paths, it));
    program.into_iter().chain(arguments).collect()
}

/// The same in the environment.
pub(crate) fn environment(
    paths: &[PathBuf],
    env: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let variables = env.into_iter();
    variables
        .map(|(name, value)| (name, filled(paths, value)))
        .collect()
}

/// A text with paths in place of its placeholders. One of an image that there is not stays as it is, and so does what a
/// path has of them.
fn filled(paths: &[PathBuf], text: String) -> String {
    let Some(first) = text.find(OPENING) else {
        return text;
    };
    let mut filled = text[..first].to_owned();
    let mut rest = &text[first..];
    while !rest.is_empty() {
        let found = numbered(rest).and_then(|(number, len)| Some((paths.get(number)?, len)));
        let len = match found {
            Some((path, len)) => {
                filled.push_str(&path.to_string_lossy());
                len
            }
            None => {
                filled.push('{');
                '{'.len_utf8()
            }
        };
        rest = &rest[len..];
        let next = rest.find(OPENING).unwrap_or(rest.len());
        filled.push_str(&rest[..next]);
        rest = &rest[next..];
    }
    filled
}

/// Which image's placeholder a text begins with, and how long that is.
fn numbered(text: &str) -> Option<(usize, usize)> {
    let rest = text.strip_prefix(OPENING)?;
    if rest.starts_with('}') {
        return Some((0, PLACEHOLDER.len()));
    }
    // No further than a number of two digits reaches.
    let rest = rest.strip_prefix('.')?;
    let end = rest.bytes().take(3).position(|byte| byte == b'}')?;
    let number = rest[..end].parse().ok()?;
    // As it is written, and in no other way: `01` and `+1` are numbers too.
    let placeholder = placeholder(number);
    text.starts_with(&placeholder)
        .then_some((number, placeholder.len()))
}
