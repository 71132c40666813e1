//! Who reads what workloads wrote: each request is answered with one chunk, by a task beside the loop that obeys. What
//! is read of a node is limited in bytes a second, so that commands and reports have the connection to themselves
//! nearly all the time, whatever workloads write.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proto_frames::payload::identifier::make_usual;
use proto_frames::payload::{OutputChunk, OutputFailure, Payload, ReadOutput};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::debug;

use super::agent::is_file_name;
use super::kept::KeepOutput;

mod file;
mod work;

use file::{OutputRead, Places};

/// Requests that are answered at a time; further ones are refused as busy. Each holds at most one chunk in memory.
pub(super) const MAX_READERS: usize = 16;

/// Bytes of output that leave a node in a second, for all readers together: a tenth of what a Gbit/s carries.
pub(super) const OUTPUT_BYTES_PER_SECOND: u32 = 8 * 1024 * 1024;

/// How long a reader that follows is kept waiting for more: then it is told that there is none yet, and asks again.
pub(super) const FOLLOW_WAIT: Duration = Duration::from_secs(5);

/// How long it is tried to read a file that is being cut; then the request fails.
const CUT_WAIT: Duration = Duration::from_secs(1);

/// Pause between two looks at a file, for a reader that follows or a file that is being cut.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The readers of one node's output. Owned by the run loop, which calls `ask` with each request and sends what `next`
/// gives.
#[derive(Debug, Default)]
pub(crate) struct Readers {
    /// Where the output of its instances is; `None` for a simulated node, which has none.
    places: Option<Arc<Places>>,
    /// Limits the bytes a second of all readers together.
    pace: Arc<RateLimit>,
    /// A task for each request.
    answers: JoinSet<OutputChunk>,
}

impl Readers {
    /// Reads in this state directory, whose output is kept by this rule.
    pub(crate) fn new(root: PathBuf, rule: KeepOutput) -> Self {
        Self {
            places: Some(Arc::new(Places { root, rule })),
            ..Self::default()
        }
    }

    /// Begins to answer a request. An answer is returned at once only where it is a refusal; the instance's id becomes
    /// part of a path and is checked first. An unreadable request is dropped.
    pub(crate) fn ask(&mut self, payload: &[u8]) -> Option<OutputChunk> {
        let mut request = match ReadOutput::decode(payload) {
            Ok(request) => request,
            Err(error) => {
                debug!(%error, "unreadable ReadOutput ignored");
                return None;
            }
        };
        make_usual(&mut request.instance_uuid);
        let fail = |failure, detail: &str| {
            let part = request.fail(failure, detail);
            Some(OutputChunk::new(part, Default::default()))
        };
        let Some(places) = self.places.clone() else {
            return fail(
                OutputFailure::NotSupported,
                "its launcher runs nothing really",
            );
        };
        if !is_file_name(&request.instance_uuid) {
            return fail(OutputFailure::NoInstance, "no instance can be called so");
        }
        if self.answers.len() >= MAX_READERS {
            let detail = "as many read from its node as may at a time; try again";
            return fail(OutputFailure::Busy, detail);
        }
        self.answers
            .spawn(answer(places, Arc::clone(&self.pace), request));
        None
    }

    /// The next answer; pending as long as there is no reader. Nothing is lost where the wait is given up.
    pub(crate) async fn next(&mut self) -> OutputChunk {
        loop {
            match self.answers.join_next().await {
                Some(Ok(answer)) => return answer,
                Some(Err(error)) => debug!(%error, "a reader was not answered"),
                None => std::future::pending().await,
            }
        }
    }

    /// Drops all requests: those who asked are not there any more.
    pub(crate) fn forget(&mut self) {
        self.answers = JoinSet::new();
    }
}

/// The chunk that a request is answered with, when there is one and the pace allows it to leave.
///
/// A reader that follows and would get nothing waits up to [`FOLLOW_WAIT`]. Meanwhile the run and the offset stay those
/// of the first look.
async fn answer(places: Arc<Places>, pace: Arc<RateLimit>, mut request: ReadOutput) -> OutputChunk {
    let begun = Instant::now();
    loop {
        let (at, asked) = (Arc::clone(&places), request.clone());
        let found = spawn_blocking(move || at.read(&asked)).await;
        let waited = begun.elapsed();
        match found.unwrap_or(OutputRead::Changing) {
            OutputRead::Chunk(chunk)
                if !is_waited_for(&chunk, &request) || waited >= FOLLOW_WAIT =>
            {
                pace.wait(chunk.data.len()).await;
                return chunk;
            }
            OutputRead::Chunk(chunk) => {
                // What comes from here on is wanted, also if that begins in the middle of the last lines.
                request.run = chunk.part.run;
                request.offset = Some(chunk.part.offset);
                request.tail = None;
            }
            OutputRead::Changing if waited >= CUT_WAIT => {
                let detail = "it is cut faster than it can be read; try again";
                let part = request.fail(OutputFailure::Failed, detail);
                return OutputChunk::new(part, Default::default());
            }
            OutputRead::Changing => {}
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether a reader that follows is to wait rather than be told this.
fn is_waited_for(chunk: &OutputChunk, request: &ReadOutput) -> bool {
    let says_something = chunk.part.is_failure() || chunk.part.ended || chunk.part.truncated;
    request.follow && chunk.data.is_empty() && !says_something
}

/// Limits bytes a second: each chunk reserves the time that it takes at [`OUTPUT_BYTES_PER_SECOND`], behind those
/// before it.
#[derive(Debug, Default)]
struct RateLimit {
    /// When what was let through has had its time.
    free: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// Waits until so many bytes may leave.
    async fn wait(&self, bytes: usize) {
        sleep_until(self.reserve(Instant::now(), bytes)).await;
    }

    /// When so many bytes may leave; those after them wait until they have had their time.
    fn reserve(&self, now: Instant, bytes: usize) -> Instant {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let takes = Duration::from_secs(1) * bytes / OUTPUT_BYTES_PER_SECOND;
        let mut free = self.free.lock();
        let at = free.map_or(now, |free| free.max(now));
        *free = Some(at + takes);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Instant, OUTPUT_BYTES_PER_SECOND, RateLimit};

    #[test]
    fn so_many_bytes_leave_a_second_and_pauses_save_none_up() {
        let pace = RateLimit::default();
        let (begun, chunk) = (Instant::now(), 64 * 1024);
        let last = (0..OUTPUT_BYTES_PER_SECOND / 65_536).map(|_| pace.reserve(begun, chunk));
        let last = last.last().unwrap();
        assert!(last > begun + Duration::from_millis(990) && last < begun + Duration::from_secs(1));
        let later = begun + Duration::from_secs(60);
        assert_eq!(pace.reserve(later, chunk), later);
        assert!(pace.reserve(later, chunk) > later);
    }
}
