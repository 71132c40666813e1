//! One controller's stream of updates: what it is yet to be told, and how that is read.
//!
//! Of each instance and worker only the latest status waits, in the order in which they began to be news. So a
//! controller that does not read costs memory by the number of subjects, not by the number of events, and the
//! coordinator never waits for it. Subjects may come and go without end, so that what waits has a bound in bytes as
//! well ([`MAX_UNREAD_BYTES`]): a stream that is further behind is ended with `RESOURCE_EXHAUSTED`, and what waited is
//! dropped. The stream that the controller then begins has the present state first.
//!
//! ```text
//! push(a, Creating)  push(b, Running)  push(a, Running)   ──▶   reader gets: a Running, b Running
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream;
use parking_lot::Mutex;
use tonic::Status;

use crate::coordinator::MAX_ID;
use crate::rpc::common::WorkerStatus;
use crate::rpc::common::worker_status::Status as Subject;

/// How long a controller is not told a second time that nothing is left of an instance. A controller may ask again
/// before it has read the first answer, and RIK's own ends as a process where it hears the end of an instance that it
/// has removed from its list.
const REPEATED_AFTER: Duration = Duration::from_secs(10);

/// Most ends of instances that are remembered for that, of each stream; the oldest are dropped first. Ids that are too
/// long to be kept are not among them.
const MAX_ENDS: usize = 1024;

/// Most bytes of unread updates of one stream: about 400 000 of an instance without a text. A controller that reads is
/// never near it.
const MAX_UNREAD_BYTES: usize = 128 << 20;

/// What an update is about: a later update replaces an unread one about the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum About {
    /// An instance, by its UUID. Its id would not do: an instance may have the id of an earlier one whose end is
    /// unread.
    Instance(Arc<str>),
    /// An instance of which nothing is known, by its id.
    Unknown(Arc<str>),
    /// A worker, by its name.
    Worker(Arc<str>),
}

/// Whether an update is the last one about its subject. Once it is read, the instance can be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    Yes,
    No,
}

/// Who calls, and so what it may see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The name of its token; empty where there are none.
    pub(crate) owner: Arc<str>,
    /// Where its connection comes from. It joins a controller's requests with its stream.
    pub(crate) address: Option<SocketAddr>,
    /// Whether it says that it knows instances of sets, which it did not name itself.
    pub(crate) knows_sets: bool,
}

impl Caller {
    /// Whether it takes errors of `ScheduleInstance`. RIK's own controller ends over them, and says nothing of sets.
    pub(crate) fn takes_errors(&self) -> bool {
        self.knows_sets
    }
}

/// The coordinator's end of a stream.
#[derive(Debug)]
pub(crate) struct Subscriber {
    pub(crate) caller: Caller,
    shared: Arc<Mutex<UpdateQueue>>,
}

/// The reader's end, which tonic polls. Dropping it is how the coordinator learns that the controller has gone.
#[derive(Debug)]
pub(crate) struct Updates {
    shared: Arc<Mutex<UpdateQueue>>,
}

/// What both ends share; the lock is held for moments.
#[derive(Debug, Default)]
struct UpdateQueue {
    /// Subjects with an unread update, the longest waiting first.
    order: VecDeque<About>,
    /// The unread update of each of them.
    latest: HashMap<About, (WorkerStatus, Last)>,
    /// Bytes of all of them; see [`cost`].
    bytes: usize,
    /// Instances whose last update has been read since the coordinator last asked.
    done: Vec<Arc<str>>,
    /// Ids of instances whose last update was pushed, and when; the oldest first.
    ends: VecDeque<(Instant, String)>,
    /// With what the stream ends, after what is unread.
    end: Option<Status>,
    /// The reader's, while it waits.
    waker: Option<Waker>,
    /// Whether the reader's end was dropped.
    is_gone: bool,
}

/// Both ends of a stream for this caller.
pub(crate) fn channel(caller: Caller) -> (Subscriber, Updates) {
    let shared = Arc::new(Mutex::new(UpdateQueue::default()));
    let subscriber = Subscriber {
        caller,
        shared: Arc::clone(&shared),
    };
    (subscriber, Updates { shared })
}

impl Subscriber {
    /// Queues an update, in the place of an unread one about the same subject, and wakes the reader. A stream that has
    /// [`MAX_UNREAD_BYTES`] of them is ended instead.
    pub(crate) fn push(&self, about: About, status: WorkerStatus, last: Last) {
        let waker = {
            let mut queue = self.shared.lock();
            if queue.end.is_some() || queue.is_gone {
                return;
            }
            if let (Last::Yes, Some(Subject::Instance(it))) = (last, &status.status)
                && it.instance_id.len() <= MAX_ID
            {
                if queue.ends.len() >= MAX_ENDS {
                    queue.ends.pop_front();
                }
                let end = (Instant::now(), it.instance_id.clone());
                queue.ends.push_back(end);
            }
            queue.bytes += cost(&about, &status);
            match queue.latest.insert(about.clone(), (status, last)) {
                Some((earlier, _)) => queue.bytes -= cost(&about, &earlier),
                None => queue.order.push_back(about),
            }
            if queue.bytes > MAX_UNREAD_BYTES {
                queue.overflow();
            }
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the end of an instance with this id was pushed within [`REPEATED_AFTER`], read or not.
    pub(crate) fn has_heard_the_end(&self, id: &str) -> bool {
        let queue = self.shared.lock();
        let mut latest = queue.ends.iter().rev();
        latest.any(|(at, it)| it == id && at.elapsed() < REPEATED_AFTER)
    }

    /// Whether the controller has gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.shared.lock().is_gone
    }

    /// Instances whose last update has been read since this was last called.
    pub(crate) fn done(&self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.shared.lock().done)
    }

    /// Bytes of what the controller has not read.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.shared.lock().bytes
    }

    /// Ends the stream, and drops what the controller has not read.
    pub(crate) fn overflow(&self) {
        let waker = {
            let mut queue = self.shared.lock();
            queue.overflow();
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the stream with this status once the reader has what waits.
    pub(crate) fn end(&self, status: Status) {
        let waker = {
            let mut queue = self.shared.lock();
            queue.end = Some(status);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl UpdateQueue {
    fn overflow(&mut self) {
        let text = format!(
            "{} bytes of updates have not been read; call again",
            self.bytes
        );
        self.end = Some(Status::resource_exhausted(text));
        self.order = VecDeque::new();
        self.latest = HashMap::new();
        self.ends = VecDeque::new();
        self.bytes = 0;
    }
}

/// Bytes that an unread update takes, without what the maps around it need.
fn cost(about: &About, status: &WorkerStatus) -> usize {
    let text = match &status.status {
        Some(Subject::Instance(it)) => it.metrics.len() + it.instance_id.len(),
        Some(Subject::Worker(it)) => it.metrics.len(),
        None => 0,
    };
    let subject = match about {
        About::Unknown(id) => id.len(),
        // Held elsewhere as well.
        About::Instance(_) | About::Worker(_) => 0,
    };
    let host_address = status.host_address.as_ref().map_or(0, String::len);
    // A subject is in the order and in the map.
    2 * size_of::<About>()
        + size_of::<(WorkerStatus, Last)>()
        + text
        + subject
        + status.identifier.len()
        + host_address
}

impl Stream for Updates {
    type Item = Result<WorkerStatus, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = self.shared.lock();
        if let Some(about) = queue.order.pop_front()
            && let Some((status, last)) = queue.latest.remove(&about)
        {
            queue.bytes -= cost(&about, &status);
            if let (About::Instance(instance), Last::Yes) = (about, last) {
                queue.done.push(instance);
            }
            return Poll::Ready(Some(Ok(status)));
        }
        if let Some(end) = queue.end.clone() {
            return Poll::Ready(Some(Err(end)));
        }
        queue.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        self.shared.lock().is_gone = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(identifier: &str) -> WorkerStatus {
        WorkerStatus {
            identifier: identifier.to_owned(),
            ..WorkerStatus::default()
        }
    }

    fn take(updates: &mut Updates) -> Option<String> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(updates).poll_next(&mut context) {
            Poll::Ready(Some(Ok(status))) => Some(status.identifier),
            _ => None,
        }
    }

    fn anyone() -> Caller {
        Caller {
            owner: "".into(),
            address: None,
            knows_sets: false,
        }
    }

    /// A status with so many bytes of text.
    fn long(bytes: usize) -> WorkerStatus {
        WorkerStatus {
            identifier: "x".repeat(bytes),
            ..WorkerStatus::default()
        }
    }

    #[test]
    fn a_stream_whose_subjects_come_and_go_unread_is_ended_at_a_bound() {
        let (subscriber, mut updates) = channel(anyone());
        let (mut pushed, mut most) = (0, 0);
        while subscriber.shared.lock().end.is_none() {
            let about = About::Unknown(format!("instance {pushed}").into());
            subscriber.push(about, long(1 << 16), Last::Yes);
            most = most.max(subscriber.unread_bytes());
            pushed += 1;
            assert!(pushed < 10_000, "{most} bytes wait");
        }
        assert!(most <= MAX_UNREAD_BYTES);
        assert_eq!(subscriber.unread_bytes(), 0);
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Err(end))) = Pin::new(&mut updates).poll_next(&mut context) else {
            panic!("the stream has not ended");
        };
        assert_eq!(end.code(), tonic::Code::ResourceExhausted);
        // Nothing is added to one that has ended.
        subscriber.push(About::Worker("one".into()), status("one"), Last::No);
        assert_eq!(subscriber.unread_bytes(), 0);
    }

    #[test]
    fn the_bytes_that_wait_are_those_of_what_is_unread() {
        let (subscriber, mut updates) = channel(anyone());
        let about = || About::Worker("one".into());
        subscriber.push(about(), long(1000), Last::No);
        let one = subscriber.unread_bytes();
        subscriber.push(about(), long(3000), Last::No);
        assert_eq!(subscriber.unread_bytes(), one + 2000);
        assert!(take(&mut updates).is_some());
        assert_eq!(subscriber.unread_bytes(), 0);
    }

    #[test]
    fn of_each_subject_the_latest_is_told_in_the_order_of_news() {
        let (subscriber, mut updates) = channel(anyone());
        let instance = |name: &str| About::Instance(name.into());
        subscriber.push(instance("a"), status("a1"), Last::No);
        subscriber.push(instance("b"), status("b1"), Last::No);
        subscriber.push(instance("a"), status("a2"), Last::Yes);
        assert!(subscriber.done().is_empty());
        assert_eq!(take(&mut updates).unwrap(), "a2");
        assert_eq!(subscriber.done(), ["a".into()]);
        assert_eq!(take(&mut updates).unwrap(), "b1");
        assert_eq!(take(&mut updates), None);
        drop(updates);
        assert!(subscriber.is_gone());
    }
}
