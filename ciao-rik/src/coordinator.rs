//! The adapter's one place of decision: which instances there are, what is written down, what is sent, what controllers
//! are told.
//!
//! It alone changes instances and sets, in one tokio task without locks. [`crate::controllers`] gives it orders, the
//! workers' tasks report what workers say ([`News`]), and [`ciao_adapter::session`] what the scheduler says
//! ([`SessionEvent`]). An instance that is made is on disk before its controller has an answer and before the scheduler
//! has the START. A DELETE is sent before the write of its round; after a crash in between, the controller has no answer
//! and asks again.
//!
//! An instance has two sides. Its [`Fate`] is what its controller wants and is kept on disk. Its stage is what the
//! scheduler says of it, and is learned again after a restart. An instance that is over stays until its controller has
//! read that.
//!
//! ```text
//! Run ──(failed for good)──▶ Failed ──(destroy)──▶ Over ──(notified)──▶ forgotten
//!  └──(destroy)──▶ Destroy ──(ended, or not there)──▶ Over
//! ```
//!
//! `orders` has the part for controllers, `progress` that for scheduler and workers, [`sets`] what makes instances by
//! number, `starts` what hands STARTs to the session, `steps` what is carried out after the write, `refused` what cannot
//! be done, `notify` what controllers read, `told` what they have read.

mod notify;
mod orders;
mod progress;
mod refused;
pub(crate) mod sets;
mod starts;
mod steps;
mod told;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ciao_adapter::family::Family;
use ciao_adapter::sent::Sent;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::Status;
use tracing::{info, warn};

use crate::definition::{Defaults, Definition};
use crate::instance::{Fate, Instance, InstanceRecord};
use crate::requests::{Ask, SessionEvent};
use crate::rpc::common::WorkerMetric;
use crate::store::{Change, Kept, Store};
use crate::unwanted::Unwanted;
use crate::updates::{Caller, Subscriber, Updates};

use self::refused::{RefusedCreates, Reply};
use self::sets::Set;
use self::told::ToldEnds;

/// Longest id of an instance or workload that is kept, in bytes. Ids are on disk and repeated in each update.
pub(crate) const MAX_ID: usize = 1024;

/// Most instances that are not over, and, counted apart, most that are over and wait to be told. Of the latter the
/// oldest are forgotten first, so that a controller that never reads does not fill memory.
pub(crate) const MAX_INSTANCES: usize = 100_000;

/// Most bytes of the definitions of instances that are not over. 100 000 instances may have 2.6 KiB each.
pub(crate) const MAX_DEFINITIONS: usize = 256 << 20;

/// Most streams of updates at a time. Each holds at most one message for each instance and worker.
pub(crate) const MAX_SUBSCRIBERS: usize = 64;

/// Most bytes of unread updates of all streams together, looked at with each housekeeping.
pub(crate) const MAX_ALL_UNREAD: usize = 512 << 20;

/// Most inputs of each kind that one round of [`Coordinator::run`] takes from its channel before a write to disk.
const GROUP: usize = 256;

/// How long a round waits for more inputs if the round before had [`MANY`]: of those that come together each is handed
/// over by itself, and the first would have a round, a write and a message to controllers alone. What comes alone does
/// not wait.
const GATHER: Duration = Duration::from_millis(1);

/// From how many inputs of a round on more of them are expected in the next.
const MANY: usize = 4;

/// Pause between two rounds of housekeeping: forgetting what controllers have been told, and, at each fifth, sending
/// what the cluster could not take.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Every so many of those, refused instances are sent again: every 5 s.
const RETRY_LOOKS: u32 = 5;

/// The answer to a request. `Some` text is a notice that the controller should know: that the scheduler is not
/// reachable, or why nothing comes of a request whose controller takes no error. It is sent as metadata beside a good
/// answer.
pub(crate) type Answer = oneshot::Sender<Result<Option<String>, Status>>;

/// What controllers want.
#[derive(Debug)]
pub(crate) enum Order {
    /// Make or destroy an instance or a set.
    Schedule {
        /// What.
        request: Request,
        /// Who wants it.
        caller: Caller,
        /// Answered after the next write to disk, or at once with a refusal.
        answer: Answer,
    },
    /// Begin a stream of updates. Its first messages are the state of everything that concerns the caller.
    Subscribe {
        /// Who.
        caller: Caller,
        /// The stream, and a notice while the scheduler is not reachable; or that there are too many.
        answer: oneshot::Sender<Result<(Updates, Option<String>), Status>>,
    },
    /// All names of tokens that are banned, each time the file of tokens changes; streams of these end.
    Banned(Vec<String>),
}

/// What is to be done. It was read and checked for its form.
#[derive(Debug)]
pub(crate) struct Request {
    /// The workload's id in the controller's words; with the caller's token it names a set.
    pub(crate) workload: String,
    /// The instance's id in the controller's words; empty where the request is for a set.
    pub(crate) id: String,
    /// What is to become of it.
    pub(crate) action: Action,
}

/// What is to become of an instance or a set.
#[derive(Debug)]
pub(crate) enum Action {
    /// It is to be of this definition.
    Create(Box<Definition>),
    /// It is to be of a definition that cannot be, and this is why: it has failed before it began. Only for an instance,
    /// of a controller that takes no errors.
    Fail(Status),
    /// It is to go.
    Destroy,
}

/// What the tasks of workers report, in the order in which each worker said it.
#[derive(Debug)]
pub(crate) enum News {
    /// A worker's metrics, which are passed on to all controllers.
    Worker {
        /// Its name.
        worker: Arc<str>,
        /// Where it connects from: IP address and port. RIK's controllers parse it.
        address: String,
        /// As the worker sent it.
        metric: WorkerMetric,
    },
    /// A worker said how one of its instances is.
    Instance {
        /// UUID.
        instance: Arc<str>,
        /// Who says so.
        said: crate::instance::Said,
    },
    /// A worker's stream has ended.
    Gone {
        /// Its name.
        worker: Arc<str>,
        /// UUIDs of instances that have ended with it and are not started elsewhere.
        ended: Vec<Arc<str>>,
        /// UUIDs of instances with a lease: the scheduler starts them on another node.
        moves: Vec<Arc<str>>,
    },
}

/// How instances are run, as the flags say.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What each asks for unless its definition says it.
    pub(crate) defaults: Defaults,
    /// How long after a new connection an instance that the scheduler does not list may still come back with its
    /// worker.
    pub(crate) return_time: Duration,
    /// Most instances of a set that may be down at a time while its definition changes.
    pub(crate) max_down: u32,
    /// What workers are not to be given; this side says what.
    pub(crate) unwanted: Unwanted,
}

/// All instances and sets, and what waits to be written, sent or told.
#[derive(Debug)]
pub(crate) struct Coordinator {
    settings: Settings,
    store: Store,
    /// All that are kept, by UUID.
    instances: HashMap<Arc<str>, Instance>,
    /// UUIDs of those that are not over, by owner and id. An id may be used again once the earlier instance is over.
    by_id: HashMap<(Arc<str>, String), Arc<str>>,
    /// Those that are over and whose controllers have not been told, the oldest end first.
    over: VecDeque<Arc<str>>,
    /// Instances that could not be made, of controllers that took no error for it.
    refused: RefusedCreates,
    /// Instances that controllers which take no error want gone, where that could not be written. Tried with each look.
    to_go: BTreeSet<Arc<str>>,
    /// Instances that are forgotten, for controllers of which it is not sure that they have heard it.
    told: ToldEnds,
    /// Bytes of definitions of all instances here, compared with [`MAX_DEFINITIONS`].
    definitions: usize,
    /// By owner and workload; see `sets::key`.
    sets: BTreeMap<String, Set>,
    /// Id and UUID of the instances of each set that are not over, by the set's key; no set has an empty entry.
    members: HashMap<String, BTreeSet<(String, Arc<str>)>>,
    /// Keys of sets whose instances may differ from what the set is to be. Each round ends with looking at these alone.
    unsettled: BTreeSet<String>,
    /// Address and latest metrics of each worker that is connected, for streams that begin later.
    workers: BTreeMap<Arc<str>, (String, WorkerMetric)>,
    subscribers: Vec<Subscriber>,
    /// What the UUIDs of all our instances begin with.
    family: Family,
    /// Names of the tokens that are banned.
    banned: Vec<String>,
    /// Instances that the scheduler does not have, in the order in which they were accepted. One that has been
    /// destroyed since is skipped when it is sent.
    unsent: VecDeque<Arc<str>>,
    /// Those that are sent once it is written that they are: a program that is started again must not send them a second
    /// time without knowing.
    noted: BTreeSet<Arc<str>>,
    /// Those that the scheduler refused for the cluster's present state, and deletions that failed.
    retry: BTreeSet<Arc<str>>,
    /// The session's channel; `None` while there is no connection.
    session: Option<mpsc::UnboundedSender<Ask>>,
    /// Why there is none.
    down: String,
    /// Until when instances that are not listed may still come back with their workers.
    back_by: Instant,
    /// What is to be written with this round. A failed write leaves it for the next. It has a bound: the fate of
    /// an instance changes a few times at most, and while the disk takes no writes no instance is added and no set
    /// changed.
    changes: Vec<Change>,
    /// Instances that this round has made, and who is to be told; no one for those of sets. They are sent after the
    /// write, or removed if it fails.
    accepting: Vec<(Arc<str>, Option<Reply>)>,
    /// Requests that change what is here already. They are written first and carried out after the write, or refused if
    /// it fails. Without a reply where it was given before.
    staged: Vec<(Step, Option<Reply>)>,
    /// Other requests whose answer waits for the write.
    answers: Vec<Reply>,
    /// Whether the last write failed. Until one succeeds or the next look, sets are not settled: what they add could
    /// not be kept.
    is_unwritten: bool,
}

/// What a request changes, for [`Coordinator::commit`].
#[derive(Debug)]
enum Step {
    /// Destroy this instance.
    Destroy(Arc<str>),
    /// The set of this key is to be so.
    Set(String, Box<Set>),
    /// Destroy the set of this key, and its instances.
    ForgetSet(String),
}

impl Coordinator {
    /// A coordinator with what was kept. How far instances are that may have been sent, the first listing tells. Every
    /// set is looked at in the first round.
    pub(crate) fn new(settings: Settings, (store, kept): (Store, Kept)) -> Self {
        let mut coordinator = Self {
            settings,
            store,
            instances: HashMap::new(),
            by_id: HashMap::new(),
            over: VecDeque::new(),
            refused: RefusedCreates::default(),
            to_go: BTreeSet::new(),
            told: ToldEnds::default(),
            definitions: 0,
            unsettled: kept.sets.iter().map(|(key, _)| key.clone()).collect(),
            sets: kept.sets.into_iter().collect(),
            members: HashMap::new(),
            workers: BTreeMap::new(),
            subscribers: Vec::new(),
            family: kept.family,
            banned: Vec::new(),
            unsent: VecDeque::new(),
            noted: BTreeSet::new(),
            retry: BTreeSet::new(),
            session: None,
            down: "not connected yet".to_owned(),
            back_by: Instant::now(),
            changes: Vec::new(),
            accepting: Vec::new(),
            staged: Vec::new(),
            answers: Vec::new(),
            is_unwritten: false,
        };
        for record in kept.instances {
            let sent = Sent::kept(record.sent_ms);
            if !sent.is_sent() && record.fate == Fate::Run {
                coordinator.unsent.push_back(Arc::clone(&record.instance));
            }
            coordinator.insert(record, sent);
        }
        coordinator
    }

    /// Handles what comes until `stop` is ready.
    ///
    /// One round: wait for input, take what is there, settle the sets that it touched, and write
    /// ([`Coordinator::commit`]). The write blocks the thread, which should have nothing else to do.
    ///
    /// # Errors
    /// A part that gives input has ended, which only a panic there can cause.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut heard: mpsc::Receiver<SessionEvent>,
        mut workers: mpsc::Receiver<News>,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        tokio::pin!(stop);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = 0_u32;
        let (mut some_orders, mut events, mut news) = (Vec::new(), Vec::new(), Vec::new());
        let mut expects_more = false;
        loop {
            tokio::select! {
                () = &mut stop => return Ok(()),
                some = orders.recv_many(&mut some_orders, GROUP) => {
                    anyhow::ensure!(some > 0, "the controllers' part is gone");
                }
                some = heard.recv_many(&mut events, GROUP) => {
                    anyhow::ensure!(some > 0, "the scheduler's part is gone");
                }
                some = workers.recv_many(&mut news, GROUP) => {
                    anyhow::ensure!(some > 0, "the workers' part is gone");
                }
                _ = looks.tick() => {
                    looked += 1;
                    self.is_unwritten = false;
                    self.tidy();
                    if looked.is_multiple_of(RETRY_LOOKS) {
                        self.try_again();
                    }
                }
            }
            if expects_more {
                sleep(GATHER).await;
                take_ready(&mut orders, &mut some_orders);
                take_ready(&mut heard, &mut events);
            }
            // A worker's word is here before the scheduler's event that follows from it: it is to be taken first.
            while let Ok(it) = workers.try_recv() {
                news.push(it);
            }
            expects_more = some_orders.len() + events.len() + news.len() >= MANY;
            news.drain(..).for_each(|it| self.news(it));
            events.drain(..).for_each(|it| self.hear(it));
            if !some_orders.is_empty() || !self.unsettled.is_empty() || self.has_to_write() {
                some_orders.drain(..).for_each(|it| self.order(it));
                self.end_round();
            }
        }
    }

    /// Whether something waits for a write, or for an answer that says that it is written.
    fn has_to_write(&self) -> bool {
        !(self.changes.is_empty() && self.staged.is_empty() && self.answers.is_empty())
    }

    /// Settles sets and writes, and once more for what follows from the requests that were carried out with the write.
    fn end_round(&mut self) {
        const PASSES: usize = 2;
        for _ in 0..PASSES {
            if !self.is_unwritten {
                self.settle_sets();
            }
            if self.has_to_write() {
                self.commit();
            }
            if self.is_unwritten {
                return;
            }
        }
    }

    /// Writes what has changed and what is asked for. After that it carries the requests out, answers controllers, and
    /// sends new instances.
    ///
    /// If the write fails, the instances of this round are removed again, and all requests of the round are refused and
    /// change nothing. What has happened to instances stays to be written.
    fn commit(&mut self) {
        let happened = self.changes.len();
        let staged = std::mem::take(&mut self.staged);
        for (step, _) in &staged {
            let asked = self.changes_of(step);
            self.changes.extend(asked);
        }
        let written = self.store.write(&self.changes);
        let accepting = std::mem::take(&mut self.accepting);
        let answers = std::mem::take(&mut self.answers);
        match written {
            Ok(()) => {
                // Without changes the disk was not asked.
                self.is_unwritten &= self.changes.is_empty();
                self.changes.clear();
                let notice = self.cut_off();
                for (step, reply) in staged {
                    self.carry_out(step);
                    if let Some(reply) = reply {
                        reply.done(&notice);
                    }
                }
                for reply in answers {
                    if let Some(instance) = &reply.again {
                        self.notify_again(instance);
                    }
                    reply.done(&notice);
                }
                for (instance, reply) in accepting {
                    if let Some(reply) = reply {
                        reply.done(&notice);
                    }
                    self.submit(&instance);
                    self.notify(&instance);
                }
                let noted = std::mem::take(&mut self.noted);
                noted.iter().for_each(|it| self.submit(it));
                self.submit_unsent();
            }
            Err(error) => {
                warn!(
                    event = "changes_not_written",
                    "cannot write down what has changed, and accept nothing until then: {error}"
                );
                self.is_unwritten = true;
                self.changes.truncate(happened);
                self.remove_unwritten(&accepting);
                let refusal =
                    Status::unavailable(format!("what was asked for cannot be kept: {error}"));
                let accepting = accepting.into_iter().filter_map(|(_, reply)| reply);
                let staged = staged.into_iter().filter_map(|(_, reply)| reply);
                for reply in accepting.chain(staged).chain(answers) {
                    self.refuse(reply, refusal.clone());
                }
            }
        }
    }

    /// Removes instances that were made in this round, for they could not be written. Their sets are settled again
    /// later.
    fn remove_unwritten(&mut self, accepting: &[(Arc<str>, Option<Reply>)]) {
        for (instance, _) in accepting {
            self.touch_set(instance);
            self.remove(instance);
        }
        let made: BTreeSet<&Arc<str>> = accepting.iter().map(|(it, _)| it).collect();
        self.changes.retain(
            |it| !matches!(it, Change::Instance(record) if made.contains(&record.instance)),
        );
    }

    /// The notice for controllers while there is no connection.
    fn cut_off(&self) -> Option<String> {
        let is_down = self.session.is_none();
        is_down.then(|| {
            format!(
                "the scheduler is not reachable, what is asked for is kept and done later: {}",
                self.down
            )
        })
    }

    /// Puts an instance into the tables that its fate belongs in.
    fn insert(&mut self, record: InstanceRecord, sent: Sent) {
        let instance = Arc::clone(&record.instance);
        self.definitions += record.definition.len();
        if record.fate == Fate::Destroy {
            self.settings.unwanted.add(&instance);
        }
        match record.fate {
            Fate::Over => self.over.push_back(Arc::clone(&instance)),
            _ => {
                let key = (Arc::clone(&record.owner), record.id.clone());
                self.by_id.insert(key, Arc::clone(&instance));
                self.add_member(&record);
            }
        }
        self.instances.insert(instance, Instance::new(record, sent));
    }

    /// Takes an instance out of all tables but `over` and `unsent`, which skip what is not there.
    fn remove(&mut self, instance: &Arc<str>) -> Option<Instance> {
        let removed = self.instances.remove(instance)?;
        let record = &removed.record;
        self.definitions -= record.definition.len();
        let key = (Arc::clone(&record.owner), record.id.clone());
        if self.by_id.get(&key) == Some(instance) {
            self.by_id.remove(&key);
        }
        self.remove_member(record);
        self.noted.remove(instance);
        self.retry.remove(instance);
        self.to_go.remove(instance);
        Some(removed)
    }

    /// Has an instance's record written with this round, as it is now. Call it after each change of a record.
    fn keep(&mut self, instance: &Arc<str>) {
        if let Some(it) = self.instances.get(instance) {
            let record = Box::new(it.record.clone());
            self.changes.push(Change::Instance(record));
        }
    }

    /// Makes an instance that should run a failed one. It stays listed with its reason until its controller destroys
    /// it, and in a set it is not replaced before the set's definition changes.
    fn fail(&mut self, instance: &Arc<str>, why: String) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        if it.record.fate != Fate::Run {
            return;
        }
        info!(event = "rik_instance_failed", id = it.record.id, instance = %instance, "instance failed: {why}");
        it.record.fate = Fate::Failed(why);
        self.touch_set(instance);
        self.keep(instance);
        self.notify(instance);
    }

    /// Makes an instance one that is over: its id is free, its definition is dropped, and all that is left is to tell
    /// its controllers `Terminated`. Called twice, it does nothing the second time.
    fn finish(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        if it.record.fate == Fate::Over {
            return;
        }
        info!(event = "rik_instance_over", id = it.record.id, instance = %instance, "instance is over");
        it.record.fate = Fate::Over;
        self.definitions -= it.record.definition.len();
        it.record.definition = "".into();
        let record = it.record.clone();
        self.remove_member(&record);
        let key = (record.owner, record.id);
        if self.by_id.get(&key) == Some(instance) {
            self.by_id.remove(&key);
        }
        self.touch_set(instance);
        self.keep(instance);
        self.over.push_back(Arc::clone(instance));
        self.notify(instance);
        while self.over.len() > MAX_INSTANCES
            && let Some(oldest) = self.over.pop_front()
        {
            self.remove(&oldest);
            self.changes.push(Change::Forget(oldest));
        }
    }
}

/// Takes what is in a channel already, up to [`GROUP`].
fn take_ready<T>(from: &mut mpsc::Receiver<T>, to: &mut Vec<T>) {
    while to.len() < GROUP
        && let Ok(it) = from.try_recv()
    {
        to.push(it);
    }
}

#[cfg(test)]
mod tests;
