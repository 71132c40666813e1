//! The gRPC service that workers call: `Register`, whose answer is a stream of jobs, and `SendStatusUpdates`, by which
//! the worker says how it and its instances are.
//!
//! Each registered worker has a task of its own ([`crate::node`]), which makes it a node of the scheduler. Here is the
//! list of them, and what each says is handed to its task. Both calls come with a token where tokens are asked for, and
//! a worker may be spoken for by the token alone that it registered with.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Request, Response, Status, Streaming};
use tracing::{debug, info, warn};

use crate::coordinator::News;
use crate::node::{self, Report};
use crate::rpc::common::worker_status::Status as Subject;
use crate::rpc::common::{WorkerRegistration, WorkerStatus};
use crate::rpc::worker::InstanceScheduling;
use crate::rpc::worker::worker_server::Worker;
use crate::tokens::{Role, Tokens};

/// Most workers at a time. Each costs a connection here and one with the scheduler.
pub(crate) const MAX_WORKERS: usize = 10_000;

/// Longest name of a worker, in bytes: that of a host in the DNS (RFC 1035).
const MAX_NAME: usize = 253;

/// Statuses of a worker that wait for its task. Beyond it the worker's call is not read, which slows the worker by
/// HTTP/2's flow control.
const REPORTS: usize = 64;

/// Longest text beside a status, in bytes. It is kept for each instance and sent to controllers.
const MAX_METRICS: usize = 64 * 1024;

/// Bytes of jobs that may wait for a worker; a worker that is further behind is given up and its stream ended.
const MAX_JOBS: usize = 64 << 20;

/// How long a worker that comes back waits until its earlier stream is cleared away, before it is refused.
const CLEARED_WITHIN: Duration = Duration::from_secs(10);

/// How long the first status of a stream waits for its worker to register. RIK's workers make the two calls side by side,
/// so that either may come first. After that a status is passed over, as RIK's own scheduler does.
const REGISTERED_WITHIN: Duration = CLEARED_WITHIN;

/// The service; clones share one list.
#[derive(Debug, Clone)]
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// What all nodes have in common.
    settings: Arc<node::Settings>,
    coordinator: mpsc::Sender<News>,
    tokens: Tokens,
    /// Registered workers by name. The lock is held for moments, never across an `await`.
    all: Mutex<HashMap<Arc<str>, Handle>>,
    /// Woken whenever a worker has registered.
    registered: Notify,
}

/// The way to a worker's task.
#[derive(Debug, Clone)]
struct Handle {
    /// Closed once the task has ended.
    reports: mpsc::Sender<Report>,
    /// The name of the token that it registered with; empty without tokens.
    owner: Arc<str>,
    state: watch::Receiver<WorkerState>,
}

/// Where a worker's task is, for a worker of the same name that registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerState {
    /// Its stream is there: the name is taken.
    Connected,
    /// Its stream has ended and its node reports that; the name will be free.
    Leaving,
}

/// The stream of jobs, as tonic reads it. An error in it is the call's status and ends it.
#[derive(Debug)]
pub(crate) struct Jobs {
    receiver: mpsc::UnboundedReceiver<Result<InstanceScheduling, Status>>,
    /// What the jobs in the channel take, shared with the sender.
    bytes: Arc<AtomicUsize>,
}

/// The sending end. The channel is unbounded; `bytes` bounds it.
#[derive(Debug, Clone)]
pub(crate) struct JobSender {
    sender: mpsc::UnboundedSender<Result<InstanceScheduling, Status>>,
    bytes: Arc<AtomicUsize>,
}

impl JobSender {
    /// Queues a job. `false` if the worker is so far behind that its stream was ended instead.
    pub(crate) fn send(&self, job: InstanceScheduling) -> bool {
        let cost = cost(&job);
        let queued = self.bytes.fetch_add(cost, Ordering::Relaxed);
        if queued.saturating_add(cost) > MAX_JOBS {
            let text =
                format!("the worker has not read {queued} bytes of jobs; at most {MAX_JOBS} wait");
            self.end(Status::resource_exhausted(text));
            return false;
        }
        // A worker that is gone is noticed where its stream is.
        let _ = self.sender.send(Ok(job));
        true
    }

    /// Ends the stream with this status, after the jobs that wait.
    pub(crate) fn end(&self, status: Status) {
        let _ = self.sender.send(Err(status));
    }

    /// Waits until the worker's stream has ended, from either side.
    pub(crate) async fn closed(&self) {
        self.sender.closed().await;
    }
}

impl Stream for Jobs {
    type Item = Result<InstanceScheduling, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let polled = self.receiver.poll_recv(context);
        if let Poll::Ready(Some(Ok(job))) = &polled {
            self.bytes.fetch_sub(cost(job), Ordering::Relaxed);
        }
        polled
    }
}

/// Bytes that a job takes while it waits.
fn cost(job: &InstanceScheduling) -> usize {
    size_of::<InstanceScheduling>() + job.instance_id.len() + job.definition.len()
}

impl Workers {
    /// A service without workers.
    pub(crate) fn new(
        settings: node::Settings,
        coordinator: mpsc::Sender<News>,
        tokens: Tokens,
    ) -> Self {
        let shared = Arc::new(Shared {
            settings: Arc::new(settings),
            coordinator,
            tokens,
            all: Mutex::new(HashMap::new()),
            registered: Notify::new(),
        });
        Self { shared }
    }

    /// Registers a worker, and starts its task, which ends with its stream or when it is given up. The task takes the
    /// worker from the list when it has ended.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if a worker of this name is connected, `RESOURCE_EXHAUSTED` if there are [`MAX_WORKERS`].
    async fn admit(
        &self,
        name: Arc<str>,
        owner: Arc<str>,
        address: SocketAddr,
    ) -> Result<Jobs, Status> {
        self.until_cleared(&name).await?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let jobs = Jobs {
            receiver,
            bytes: Arc::clone(&bytes),
        };
        let sender = JobSender { sender, bytes };
        let (reports, reported) = mpsc::channel(REPORTS);
        let (state, watched) = watch::channel(WorkerState::Connected);
        {
            let mut all = self.shared.all.lock();
            if all.len() >= MAX_WORKERS {
                let text = format!("there are {MAX_WORKERS} workers already");
                return Err(Status::resource_exhausted(text));
            }
            match all.entry(Arc::clone(&name)) {
                Entry::Occupied(_) => return Err(exists()),
                Entry::Vacant(free) => {
                    free.insert(Handle {
                        reports,
                        owner: Arc::clone(&owner),
                        state: watched,
                    });
                }
            }
        }
        self.shared.registered.notify_waiters();
        info!(event = "worker_registered", worker = %name, %address, "worker registered");
        let node = node::Node::new(
            Arc::clone(&self.shared.settings),
            (Arc::clone(&name), address),
            sender.clone(),
            self.shared.coordinator.clone(),
        );
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            let mut bans = shared.tokens.bans();
            let banned = async {
                // Without tokens none is banned.
                let is_banned = |banned: &Vec<String>| banned.iter().any(|it| **it == *owner);
                if !owner.is_empty() && bans.wait_for(is_banned).await.is_ok() {
                    sender.end(Status::permission_denied("the token is banned"));
                }
                // The stream's end is seen where every end of it is.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = node.run(reported, &state) => {}
                () = banned => {}
            }
            shared.all.lock().remove(&name);
            info!(event = "worker_gone", worker = %name, "worker is gone");
        });
        Ok(jobs)
    }

    /// Waits for the task of an earlier stream of this name, if that stream has ended. So a worker that reconnects at
    /// once is not refused, and its node does not meet its own earlier connection at the scheduler.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if the stream has not ended, or its task takes too long.
    async fn until_cleared(&self, name: &Arc<str>) -> Result<(), Status> {
        let handle = self.shared.all.lock().get(name).cloned();
        let Some(mut handle) = handle else {
            return Ok(());
        };
        if *handle.state.borrow_and_update() == WorkerState::Connected {
            return Err(exists());
        }
        // Ends with the task.
        let cleared = async { while handle.state.changed().await.is_ok() {} };
        timeout(CLEARED_WITHIN, cleared)
            .await
            .map_err(|_| exists())?;
        // The task takes its name from the list a moment later.
        self.shared
            .all
            .lock()
            .retain(|it, handle| it != name || !handle.reports.is_closed());
        Ok(())
    }

    /// The way to a worker's task, once it has registered; `None` if it does not until `deadline`.
    async fn handle(&self, name: &str, deadline: Instant) -> Option<Handle> {
        loop {
            // Before the look: one that registers between the two is not missed.
            let registered = self.shared.registered.notified();
            let handle = self.shared.all.lock().get(name).cloned();
            if handle.is_some() {
                return handle;
            }
            timeout_at(deadline, registered).await.ok()?;
        }
    }

    /// Checks a status and hands it to the worker's task; waits while that has [`REPORTS`] of them. That of a worker
    /// which has not registered, and does not until `deadline`, is passed over.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` for another's, `INVALID_ARGUMENT` for a status that is empty or too long.
    async fn report(
        &self,
        status: WorkerStatus,
        owner: &Arc<str>,
        deadline: Instant,
    ) -> Result<(), Status> {
        let Some(handle) = self.handle(&status.identifier, deadline).await else {
            debug!(
                event = "worker_status_ignored",
                worker = short(&status.identifier),
                "status ignored: no worker of this name is registered"
            );
            return Ok(());
        };
        if handle.owner != *owner {
            let text = format!(
                "worker {:?} has registered with another token",
                short(&status.identifier)
            );
            return Err(Status::permission_denied(text));
        }
        let report = match status.status {
            Some(Subject::Worker(metric)) if metric.metrics.len() <= MAX_METRICS => {
                Report::Worker(metric)
            }
            Some(Subject::Instance(metric)) if metric.metrics.len() <= MAX_METRICS => {
                Report::Instance(metric)
            }
            Some(_) => {
                let text = format!("metrics: longer than {MAX_METRICS} bytes");
                return Err(Status::invalid_argument(text));
            }
            None => return Err(Status::invalid_argument("neither an instance nor a worker")),
        };
        // One that is just leaving says nothing that counts.
        let _ = handle.reports.send(report).await;
        Ok(())
    }
}

/// The refusal of a second worker with one name, in RIK's own words.
fn exists() -> Status {
    Status::already_exists("Worker with this hostname already exist")
}

/// The first 64 characters of a text of others, to be repeated in an error or a log.
fn short(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Checks a worker's name. It becomes a host name and part of log lines.
///
/// # Errors
/// `FAILED_PRECONDITION` for an empty one, `INVALID_ARGUMENT` for one that is too long or has blanks or control
/// characters.
fn check_name(name: &str) -> Result<(), Status> {
    match name {
        "" => Err(Status::failed_precondition(
            "the worker's hostname is empty",
        )),
        name if name.len() > MAX_NAME => {
            let text = format!("the worker's hostname is longer than {MAX_NAME} bytes");
            Err(Status::invalid_argument(text))
        }
        name if name.chars().any(|c| c.is_control() || c.is_whitespace()) => Err(
            Status::invalid_argument("the worker's hostname has blanks or control characters"),
        ),
        _ => Ok(()),
    }
}

#[tonic::async_trait]
impl Worker for Workers {
    type RegisterStream = Jobs;

    async fn register(
        &self,
        request: Request<WorkerRegistration>,
    ) -> Result<Response<Jobs>, Status> {
        let owner = self.shared.tokens.check(request.metadata(), Role::Worker)?;
        let address = request.remote_addr();
        let name = request.into_inner().hostname;
        check_name(&name)?;
        let Some(address) = address else {
            return Err(Status::internal("the connection has no address"));
        };
        let admitted = self.admit(name.as_str().into(), owner, address).await;
        if let Err(status) = &admitted {
            warn!(event = "worker_refused", worker = short(&name), %address, "worker refused: {}", status.message());
        }
        admitted.map(Response::new)
    }

    async fn send_status_updates(
        &self,
        request: Request<Streaming<WorkerStatus>>,
    ) -> Result<Response<()>, Status> {
        let owner = self.shared.tokens.check(request.metadata(), Role::Worker)?;
        let mut statuses = request.into_inner();
        let deadline = Instant::now() + REGISTERED_WITHIN;
        while let Some(status) = statuses.message().await? {
            self.report(status, &owner, deadline).await?;
        }
        Ok(Response::new(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_worker_that_does_not_read_its_jobs_is_given_up() {
        let (sender, receiver) = mpsc::unbounded_channel();
        let bytes = Arc::new(AtomicUsize::new(0));
        let sender = JobSender {
            sender,
            bytes: Arc::clone(&bytes),
        };
        let mut jobs = Jobs { receiver, bytes };
        let job = || InstanceScheduling {
            definition: "x".repeat(1 << 20),
            ..InstanceScheduling::default()
        };
        let taken = (0..100).take_while(|_| sender.send(job())).count();
        assert_eq!(taken, 63, "each costs a little more than its definition");
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut last = None;
        while let Poll::Ready(Some(job)) = Pin::new(&mut jobs).poll_next(&mut context) {
            last = Some(job);
        }
        let end = last.unwrap().unwrap_err();
        assert_eq!(end.code(), tonic::Code::ResourceExhausted);
    }

    #[test]
    fn names_of_workers_are_checked() {
        assert!(check_name("worker-1.example").is_ok());
        assert_eq!(
            check_name("").unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
        for bad in ["a b", "a\nb", &"x".repeat(254)] {
            assert_eq!(
                check_name(bad).unwrap_err().code(),
                tonic::Code::InvalidArgument
            );
        }
    }
}
