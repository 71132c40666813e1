//! The adapter's one place of decision: which tasks and nodes there are, what is written down, what is sent.
//!
//! It alone changes tasks. The socket and the upload server give it orders, the session tells it what the scheduler said;
//! what was accepted is on disk before its client hears of it and before the scheduler does.

mod orders;
mod progress;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};
use uuid::Uuid;

use crate::binaries::Binaries;
use crate::command::{Extras, Priority};
use crate::nodes::Nodes;
use crate::output::Output;
use crate::session::{Ask, Heard, Shipped, Submission};
use crate::store::{Change, Kept, Store};
use crate::task::{Binary, Record, Shape, Task};

use self::orders::Copied;

/// Most tasks that have not ended: so that memory has a bound, some 200 MiB of tasks with short arguments.
pub(crate) const MAX_TASKS: usize = 100_000;

/// Most tasks that have ended and are still listed.
const MAX_ENDED: usize = 1_000;

/// Most inputs that are dealt with between two writes to disk.
const GROUP: usize = 256;

/// Time between two looks at tasks that the cluster could not take.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// Most of those that are sent again at a time.
const RETRIED_AT_A_TIME: usize = 256;

/// Where an order is answered.
pub(crate) type Answer = oneshot::Sender<Result<Accepted, String>>;

/// What somebody wants.
#[derive(Debug)]
pub(crate) enum Order {
    /// A new task.
    New {
        /// Its files.
        source: Source,
        /// Its class.
        priority: Priority,
        /// What else it is told.
        extras: Extras,
        /// Who is told what became of that.
        answer: Answer,
    },
    /// A task is to run on another node.
    Migrate {
        /// Which task.
        task: u32,
        /// Which node.
        node: u32,
        /// Who is told.
        answer: Answer,
    },
    /// What there is.
    List {
        /// As JSON.
        json: bool,
        /// Who is told.
        answer: Answer,
    },
}

/// Where a new task's files are.
#[derive(Debug)]
pub(crate) enum Source {
    /// At these paths, to be copied.
    Paths(Vec<PathBuf>),
    /// In the store already, each in use once.
    Stored(Vec<Binary>),
}

/// What is answered to an order that was carried out.
#[derive(Debug, Clone)]
pub(crate) enum Accepted {
    /// A task has this number and is safe.
    Queued {
        /// Its number.
        task: u32,
        /// What its client should know; empty where all is well.
        notice: String,
    },
    /// This text.
    Text(String),
}

/// How tasks are run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What each asks for.
    pub(crate) shape: Shape,
    /// Vcpus of each; `None`: so many that no node runs two.
    pub(crate) vcpus: Option<i64>,
    /// How long after a new connection instances may still come back with their nodes.
    pub(crate) return_time: Duration,
}

/// All that is known.
#[derive(Debug)]
pub(crate) struct Desk {
    settings: Settings,
    store: Store,
    binaries: Binaries,
    output: Output,
    tasks: BTreeMap<u32, Task>,
    by_instance: HashMap<String, u32>,
    nodes: Nodes,
    next_task: u32,
    family: u32,
    /// Tasks that have ended, the oldest first.
    ended: VecDeque<u32>,
    /// Tasks that the scheduler does not have, in their order.
    unsent: BTreeSet<u32>,
    /// Those of them that the cluster could not take a moment ago.
    retry: BTreeSet<u32>,
    /// Where to ask; `None` while there is no session.
    session: Option<mpsc::UnboundedSender<Ask>>,
    /// Why there is none.
    down: String,
    /// Until when instances that are not listed may still come back.
    back_by: Instant,
    /// Vcpus that a task asks for; `None` where no node has said how many it has.
    vcpus: Option<i64>,
    /// To be written.
    changes: Vec<Change>,
    /// To be accepted once written.
    accepting: Vec<(Record, Answer)>,
    /// Not in use any more once written.
    releases: Vec<Binary>,
    /// Whether the last write failed: then what was promised to no client is not noted, so that what waits for the disk has a
    /// bound.
    is_unwritten: bool,
    /// Copies on their way.
    copies: mpsc::Sender<Copied>,
}

/// What UUIDs of instances of this family begin with.
pub(crate) fn prefix(family: u32) -> String {
    format!("{family:08x}")
}

impl Desk {
    /// One with what was kept; and where copies are to come from.
    pub(crate) fn new(
        settings: Settings,
        (store, kept): (Store, Kept),
        binaries: Binaries,
        output: Output,
    ) -> (Self, mpsc::Receiver<Copied>) {
        let (copies, copied) = mpsc::channel(GROUP);
        let mut desk = Self {
            vcpus: settings.vcpus,
            settings,
            store,
            binaries,
            output,
            tasks: BTreeMap::new(),
            by_instance: HashMap::new(),
            nodes: Nodes::new(kept.nodes),
            next_task: kept.next_task,
            family: kept.family,
            ended: VecDeque::new(),
            unsent: BTreeSet::new(),
            retry: BTreeSet::new(),
            session: None,
            down: "not connected yet".to_owned(),
            back_by: Instant::now(),
            changes: Vec::new(),
            accepting: Vec::new(),
            releases: Vec::new(),
            is_unwritten: false,
            copies,
        };
        for record in kept.tasks {
            desk.insert(record, true);
        }
        (desk, copied)
    }

    /// Deals with what comes until told to stop.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut heard: mpsc::Receiver<Heard>,
        mut copied: mpsc::Receiver<Copied>,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        tokio::pin!(stop);
        let mut retries = interval(RETRY_EVERY);
        retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut some_orders, mut news, mut files) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                some = orders.recv_many(&mut some_orders, GROUP) => {
                    anyhow::ensure!(some > 0, "the socket's part is gone");
                }
                some = heard.recv_many(&mut news, GROUP) => {
                    anyhow::ensure!(some > 0, "the scheduler's part is gone");
                }
                _ = copied.recv_many(&mut files, GROUP) => {}
                _ = retries.tick() => self.try_again(),
            }
            news.drain(..).for_each(|it| self.hear(it));
            files.drain(..).for_each(|it| self.take_copy(it));
            some_orders.drain(..).for_each(|it| self.order(it));
            tokio::task::block_in_place(|| self.commit());
        }
    }

    /// Writes down what has changed, and then lets the world know.
    fn commit(&mut self) {
        let changed = self.changes.len();
        for (record, _) in &self.accepting {
            self.changes.push(Change::Task(Box::new(record.clone())));
        }
        let accepting = std::mem::take(&mut self.accepting);
        match self.store.write(&self.changes) {
            Ok(()) => {
                self.is_unwritten = false;
                self.changes.clear();
                for binary in self.releases.drain(..) {
                    self.binaries.release(&binary);
                }
                for (record, answer) in accepting {
                    self.accept(record, answer);
                }
            }
            Err(error) => {
                warn!(
                    event = "desk_not_written",
                    "cannot write down what has changed, and accept no tasks until then: {error}"
                );
                self.is_unwritten = true;
                // What has happened stays to be written; what was promised to no client is not.
                self.changes.truncate(changed);
                for (record, answer) in accepting {
                    let files = record.files.iter();
                    files.for_each(|it| self.binaries.release(it));
                    let _ = answer.send(Err(format!("the task cannot be kept: {error}")));
                }
            }
        }
    }

    /// A task is on disk: its client is told, and the scheduler.
    fn accept(&mut self, record: Record, answer: Answer) {
        let id = record.id;
        self.insert(record, false);
        self.submit(id);
        let notice = self.tasks.get(&id).map(|it| it.held_back.clone());
        // The client may have gone.
        let _ = answer.send(Ok(Accepted::Queued {
            task: id,
            notice: notice.unwrap_or_default(),
        }));
    }

    fn insert(&mut self, record: Record, is_sent: bool) {
        let id = record.id;
        if record.outcome.is_some() {
            self.ended.push_back(id);
        } else {
            self.by_instance.insert(record.instance.clone(), id);
            if !is_sent {
                self.unsent.insert(id);
            }
        }
        self.tasks.insert(id, Task::new(record, is_sent));
    }

    /// Sends a task to the scheduler, if that is there.
    fn submit(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let (Some(session), Some(vcpus)) = (&self.session, self.vcpus) else {
            task.held_back = match self.session {
                None => format!(
                    "the scheduler is not reachable, it is sent later: {}",
                    self.down
                ),
                Some(_) => "no node is there yet, it is sent later".to_owned(),
            };
            return;
        };
        let paths: Vec<String> = task
            .record
            .files
            .iter()
            .map(|it| self.binaries.path(it).display().to_string())
            .collect();
        let shape = &self.settings.shape;
        let shipped = task.record.shipped_start(shape, vcpus);
        let shipped = shipped.zip(task.record.files.first());
        let submission = Submission {
            start: task.record.start(shape, vcpus, &paths),
            shipped: shipped.map(|(start, file)| Shipped {
                start,
                path: self.binaries.path(file),
                sha256: file.sha256.clone(),
                tenant: shape.tenant.clone(),
            }),
        };
        if session.send(Ask::Start(Box::new(submission))).is_ok() {
            task.is_sent = true;
            task.held_back.clear();
            self.unsent.remove(&id);
        }
    }

    /// Sends what the scheduler does not have and has not just refused, in order.
    fn submit_unsent(&mut self) {
        let ready: Vec<u32> = self.unsent.difference(&self.retry).copied().collect();
        ready.into_iter().for_each(|id| self.submit(id));
    }

    /// Sends some of what the cluster could not take.
    fn try_again(&mut self) {
        if self.session.is_none() {
            return;
        }
        let some: Vec<u32> = self.retry.iter().copied().take(RETRIED_AT_A_TIME).collect();
        for id in some {
            self.retry.remove(&id);
            self.submit(id);
        }
    }

    fn living(&self) -> usize {
        self.tasks.len() - self.ended.len()
    }

    /// A name for a new instance.
    fn new_instance(&self) -> String {
        let mut bytes = *Uuid::new_v4().as_bytes();
        bytes[..4].copy_from_slice(&self.family.to_be_bytes());
        Uuid::from_bytes(bytes).to_string()
    }

    /// Tells people, as the original's primary does on its output.
    fn say(&self, text: impl fmt::Display) {
        info!(event = "task_changed", "{text}");
        self.output.line(&text);
    }
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queued { task, notice } if notice.is_empty() => write!(f, "task {task} queued"),
            Self::Queued { task, notice } => write!(f, "task {task} queued ({notice})"),
            Self::Text(text) => f.write_str(text),
        }
    }
}
