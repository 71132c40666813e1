//! The adapter's one place of decision: which tasks and nodes there are, what is written down, what is sent.
//!
//! It alone changes tasks, in one tokio task without locks. The socket and the upload server give it [`Order`]s, the
//! session reports what the scheduler said ([`SessionEvent`]), and copies of files come back when they are made. One
//! round of the loop takes a group of each and ends with one write to disk ([`Coordinator::run`]).
//!
//! What was accepted is on disk before its client hears of it and before the scheduler does. A crash at any point
//! leaves either no task, and a client without an answer, or a task that is sent after the restart.
//!
//! The life of a task here:
//!
//! ```text
//! order ─▶ (copied) ─▶ accepting ─▶ on disk ─▶ unsent ─▶ sent ─▶ events, listings ─▶ ended ─▶ on disk ─▶ forgotten
//!                                               ▲                │
//!                                               └── refused for want of room, never came there, or its program
//!                                                   is not there and is pushed first
//! ```
//!
//! [`orders`] has the part for clients, [`progress`] the part for what the scheduler says, and [`preemption`] what is
//! concluded of its configuration.

mod orders;
mod preemption;
mod progress;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ciao_adapter::family::Family;
use ciao_adapter::sent::{Sent, unix_ms};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::binaries::Binaries;
use crate::command::{Extras, Priority};
use crate::nodes::Nodes;
use crate::output::Output;
use crate::requests::{Ask, SessionEvent};
use crate::shipping::{News, PushOrder};
use crate::store::{Change, Kept, Store};
use crate::task::{Binary, Shape, Task, TaskRecord};

use self::orders::Copied;
use self::preemption::Preemption;

/// Most tasks that have not ended, so that memory has a bound: some 200 MiB beside their texts. Tasks whose files are
/// still being copied, and those that wait for the write, are counted.
pub(crate) const MAX_TASKS: usize = 100_000;

/// Most bytes that the texts of those may have together, their arguments and the names of their files: more than a
/// kilobyte for each of [`MAX_TASKS`]. A single task may have 64 KiB.
pub(crate) const MAX_TASK_BYTES: usize = 128 * 1024 * 1024;

/// Most ended tasks that are kept and listed; the oldest are forgotten first.
const MAX_ENDED: usize = 1_000;

/// Most inputs of each kind that one round handles. A round costs one write to disk with a sync, so that under load
/// many tasks share it.
const GROUP: usize = 256;

/// How often a task's program may be refused by the scheduler's store of programs before the task has failed: some ten
/// minutes, with [`RETRY_EVERY`] between two tries, in which a full store may be cleared.
const MAX_REFUSALS: u32 = 120;

/// How often a task's program may be pushed for one START and be gone from the scheduler's store each time, before the
/// task has failed. Something deletes it there, and a program may have a GiB.
const MAX_PUSHES: u32 = 8;

/// Pause between two tries to send tasks that the cluster refused for its present state.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// Most of those that are sent again at a time, the lowest numbers first: about 50 a second.
const RETRIED_AT_A_TIME: usize = 256;

/// Where an order is answered: with what is told to the client, or with the reason for a refusal. Who waits may have
/// gone; that is no error.
pub(crate) type Answer = oneshot::Sender<Result<Accepted, String>>;

/// A client's command, read and checked for its form.
#[derive(Debug)]
pub(crate) enum Order {
    /// A new task. It is answered once the task is on disk.
    New {
        /// Its files.
        source: Source,
        /// Its class.
        priority: Priority,
        /// Its arguments and frequencies.
        extras: Extras,
        /// [`Accepted::Queued`] or why there is no task.
        answer: Answer,
    },
    /// Move a task to another node. It is answered once the scheduler has accepted or refused that.
    Migrate {
        /// Number of the task.
        task: u32,
        /// Number of the node.
        node: u32,
        /// [`Accepted::Text`] or why it is not moved.
        answer: Answer,
    },
    /// List tasks and nodes, from memory.
    List {
        /// JSON rather than tables.
        json: bool,
        /// Always [`Accepted::Text`].
        answer: Answer,
    },
}

/// Where a new task's files come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// Paths that a client wrote at the socket; the files are copied before the task is accepted.
    Paths(Vec<PathBuf>),
    /// Files of an upload, which are in the store already. Each has been counted as in use once, and the coordinator
    /// releases them if it accepts no task.
    Stored(Vec<Binary>),
}

/// The answer to an order that was carried out.
#[derive(Debug, Clone)]
pub(crate) enum Accepted {
    /// A task was accepted and is on disk.
    Queued {
        /// Its number.
        task: u32,
        /// Why the scheduler does not have it yet, for people; empty where it was sent.
        notice: String,
    },
    /// A finished text.
    Text(String),
}

/// How tasks are run, as the flags say; the same until the program ends.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Memory, vcpus, tenant, monitor and treatment of arguments.
    pub(crate) shape: Shape,
    /// How long after a new connection an instance that the scheduler does not list may still come back with its node.
    /// After a restart, a scheduler learns from the launchers what runs; a task that is sent again too early could run
    /// twice in a row.
    pub(crate) return_time: Duration,
}

/// All tasks and nodes, and what waits to be written or sent.
///
/// A task that has not ended is in `by_instance`; it is in `unsent` too if the scheduler is not known to have it.
/// `retry` is a part of `unsent`.
#[derive(Debug)]
pub(crate) struct Coordinator {
    settings: Settings,
    store: Store,
    /// Copies of files. It counts their uses; the coordinator's tasks hold one use of each of their files until they
    /// end.
    binaries: Binaries,
    output: Output,
    /// All that are listed, by number: those that have not ended, and the latest [`MAX_ENDED`] that have.
    tasks: BTreeMap<u32, Task>,
    /// Numbers of tasks by the UUID of their instance, to find whose an event is. Ended tasks are not in it.
    by_instance: HashMap<String, u32>,
    nodes: Nodes,
    /// The number that the next task gets. It is on disk only as part of a record.
    next_task: u32,
    /// What the UUIDs of all our instances begin with.
    family: Family,
    /// Numbers of tasks that have ended, the oldest end first.
    ended: VecDeque<u32>,
    /// Tasks that the scheduler does not have, in the order of their numbers, which is the order in which they are
    /// sent.
    unsent: BTreeSet<u32>,
    /// Those of `unsent` that the scheduler has refused for the cluster's present state. They wait for the next tick of
    /// [`RETRY_EVERY`]; listings do not send them.
    retry: BTreeSet<u32>,
    /// The session's channel for commands; `None` while there is no connection.
    session: Option<mpsc::UnboundedSender<Ask>>,
    /// Why there is none; the text of the last [`SessionEvent::Down`].
    down: String,
    /// Whether the scheduler is seen to let high tasks take the room of low ones.
    preemption: Preemption,
    /// Until when an instance that is not listed may still come back with its node.
    back_by: Instant,
    /// Those of `unsent` of which a file is being pushed, and which; they are sent when that is done.
    pushing: BTreeMap<u32, usize>,
    /// Where programs to be pushed go; what waits there is bounded by `pushing`.
    pushes: mpsc::UnboundedSender<PushOrder>,
    /// Those of `unsent` that are sent as soon as it is on disk that they may have been.
    noted: BTreeSet<u32>,
    /// What has happened and is not on disk. A failed write leaves it here for the next.
    changes: Vec<Change>,
    /// How many tasks have their number, and their files still being copied.
    copying: usize,
    /// The sum of [`TaskRecord::bytes`] of all that [`MAX_TASKS`] counts.
    bytes: usize,
    /// Tasks that become tasks with the next write, and who is to be told.
    accepting: Vec<(TaskRecord, Answer)>,
    /// Files of tasks whose end is not on disk yet. They are released after the write: after a crash the task would be
    /// sent again and need them.
    releases: Vec<Binary>,
    /// Whether the last write failed. While it is set, changes that can be lost without breaking a promise (a task that
    /// failed at once, one that is forgotten) are not added to `changes`, so that what waits for the disk has a bound.
    is_unwritten: bool,
    /// Given to each task that copies files, to send the result back with.
    copies: mpsc::Sender<Copied>,
}

impl Coordinator {
    /// A coordinator with what was kept, and the channel from which [`Coordinator::run`] takes finished copies.
    ///
    /// Tasks from the store count as sent if their records say so. The first listing of the first connection finds out
    /// which of them the scheduler knows. [`Settings::return_time`] later those are sent again that certainly never
    /// ran, and the others have ended unseen ([`ciao_adapter::tracking::Seen`]).
    pub(crate) fn new(
        settings: Settings,
        (store, kept): (Store, Kept),
        (binaries, pushes): (Binaries, mpsc::UnboundedSender<PushOrder>),
        output: Output,
    ) -> (Self, mpsc::Receiver<Copied>) {
        let (copies, copied) = mpsc::channel(GROUP);
        let mut coordinator = Self {
            pushing: BTreeMap::new(),
            pushes,
            noted: BTreeSet::new(),
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
            preemption: Preemption::default(),
            back_by: Instant::now(),
            changes: Vec::new(),
            copying: 0,
            bytes: 0,
            accepting: Vec::new(),
            releases: Vec::new(),
            is_unwritten: false,
            copies,
        };
        for record in kept.tasks {
            let sent = Sent::kept(record.sent_ms);
            coordinator.insert(record, sent);
        }
        (coordinator, copied)
    }

    /// Handles what comes until `stop` is ready.
    ///
    /// One round: wait until something is there, take at most [`GROUP`] of that kind, handle it in memory, then write
    /// once ([`Coordinator::commit`]). The write blocks this thread, and nothing of the coordinator goes on meanwhile.
    ///
    /// # Errors
    /// A part that gives orders or reports has ended, which only a panic there can cause.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut heard: mpsc::Receiver<SessionEvent>,
        (mut copied, mut shipped): (mpsc::Receiver<Copied>, mpsc::Receiver<News>),
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        tokio::pin!(stop);
        let mut retries = interval(RETRY_EVERY);
        retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut some_orders, mut news, mut files) = (Vec::new(), Vec::new(), Vec::new());
        let mut programs = Vec::new();
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
                some = shipped.recv_many(&mut programs, GROUP) => {
                    anyhow::ensure!(some > 0, "the scheduler's part is gone");
                }
                _ = retries.tick() => self.try_again(),
            }
            news.drain(..).for_each(|it| self.hear(it));
            programs.drain(..).for_each(|it| self.program(it));
            files.drain(..).for_each(|it| self.take_copied(it));
            some_orders.drain(..).for_each(|it| self.order(it));
            tokio::task::block_in_place(|| self.commit());
        }
    }

    /// Writes what has changed and, after that, tells clients and the scheduler about it.
    ///
    /// If the write fails, changes stay to be written with the next round, files stay in use, and new tasks are
    /// refused: their clients get the error and their files are released. Their numbers are skipped.
    fn commit(&mut self) {
        let changed = self.changes.len();
        // What is sent at once is noted as sent in the same write.
        let sent_ms = self.session.is_some().then(unix_ms);
        for (record, _) in &mut self.accepting {
            record.sent_ms = sent_ms;
            self.changes.push(Change::Task(Arc::new(record.clone())));
        }
        let accepting = std::mem::take(&mut self.accepting);
        match self.store.write(&self.changes) {
            Ok(()) => {
                self.is_unwritten = false;
                self.changes.clear();
                for binary in self.releases.drain(..) {
                    self.binaries.release(&binary);
                }
                for id in std::mem::take(&mut self.noted) {
                    self.submit(id);
                }
                for (record, answer) in accepting {
                    self.accept(record, answer);
                }
            }
            Err(error) => {
                warn!(
                    event = "changes_not_written",
                    "cannot write down what has changed, and accept no tasks until then: {error}"
                );
                self.is_unwritten = true;
                // What has happened stays to be written; what was promised to no client is not.
                self.changes.truncate(changed);
                for (record, answer) in accepting {
                    self.bytes -= record.bytes();
                    let files = record.files.iter();
                    files.for_each(|it| self.binaries.release(it));
                    let _ = answer.send(Err(format!("the task cannot be kept: {error}")));
                }
            }
        }
    }

    /// Takes a task that is on disk into the tables, sends it if possible, and answers its client. The answer's notice
    /// says why it was not sent.
    fn accept(&mut self, record: TaskRecord, answer: Answer) {
        let id = record.id;
        // They are counted already, and are counted again here.
        self.bytes -= record.bytes();
        self.insert(record, Sent::No);
        self.submit(id);
        let notice = self.tasks.get(&id).map(|it| it.held_back.clone());
        // The client may have gone.
        let _ = answer.send(Ok(Accepted::Queued {
            task: id,
            notice: notice.unwrap_or_default(),
        }));
    }

    /// Puts a task into the tables in which its state belongs.
    fn insert(&mut self, record: TaskRecord, sent: Sent) {
        let id = record.id;
        if record.outcome.is_some() {
            self.ended.push_back(id);
        } else {
            self.by_instance.insert(record.instance.clone(), id);
            self.bytes += record.bytes();
            if !sent.is_sent() {
                self.unsent.insert(id);
            }
        }
        self.tasks.insert(id, Task::new(record, sent));
    }

    /// Hands a task's START to the session, or notes in `held_back` that there is no connection. One that is sent already
    /// or has ended is left as it is.
    ///
    /// That it may have been sent is on disk before it is: one that is first sent now waits for the next write. It counts
    /// as sent as soon as it is in the channel. If the connection is lost before it is written, the listing of the next
    /// connection does not have it, and it is sent again after [`Settings::return_time`], if it certainly never ran.
    fn submit(&mut self, id: u32) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        let is_on_its_way = self.noted.contains(&id) || self.pushing.contains_key(&id);
        if task.is_sent() || task.is_over() || is_on_its_way {
            return;
        }
        let Some(session) = &self.session else {
            task.held_back = format!(
                "the scheduler is not reachable, it is sent later: {}",
                self.down
            );
            return;
        };
        if task.record.sent_ms.is_none() {
            Arc::make_mut(&mut task.record).sent_ms = Some(unix_ms());
            self.changes.push(Change::Task(Arc::clone(&task.record)));
            self.noted.insert(id);
            return;
        }
        // The START is encoded when it is sent: what waits in the channel is the record alone.
        if session.send(Ask::Start(Arc::clone(&task.record))).is_ok() {
            task.note_sent();
            self.unsent.remove(&id);
        }
    }

    /// Sends what the scheduler does not have and has not just refused, the lowest number first.
    fn submit_unsent(&mut self) {
        let ready: Vec<u32> = self.unsent.difference(&self.retry).copied().collect();
        ready.into_iter().for_each(|id| self.submit(id));
    }

    /// Sends some of what the scheduler refused for the cluster's state, at each tick of [`RETRY_EVERY`].
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

    /// How many tasks have not ended.
    fn living(&self) -> usize {
        self.tasks.len() - self.ended.len()
    }

    /// Writes a line to the standard output, in the words of the original's primary, whose readers parse it; and to the
    /// log.
    fn say(&self, text: impl fmt::Display) {
        info!(event = "task_changed", "{text}");
        self.output.line(&text);
    }
}

impl Accepted {
    /// The reply's text, without a line end.
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Queued { task, notice } if notice.is_empty() => format!("task {task} queued"),
            Self::Queued { task, notice } => format!("task {task} queued ({notice})"),
            Self::Text(text) => text,
        }
    }
}

#[cfg(test)]
mod tests;
