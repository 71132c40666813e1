//! The adapter's one place of decision: which instances there are, what is written down, what is sent, what controllers
//! are told.
//!
//! It alone changes instances. [`crate::controllers`] gives it orders, the workers' tasks tell it what workers say, and
//! [`crate::session`] what the scheduler says; what was accepted is on disk before its controller hears of it and before
//! the scheduler does.

mod orders;
mod progress;
pub(crate) mod sets;
mod telling;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tonic::Status;
use tracing::{info, warn};
use uuid::Uuid;

use crate::definition::{Defaults, Definition};
use crate::instance::{Fate, Instance, Record};
use crate::rpc::common::WorkerMetric;
use crate::session::{Ask, Heard};
use crate::store::{Change, Kept, Store};
use crate::updates::{Caller, Subscriber, Updates};

use self::sets::Set;

/// Most instances that are not over, and most that are over and were told to no controller: so that memory has a bound.
pub(crate) const MAX_INSTANCES: usize = 100_000;

/// Most bytes of definitions that are kept for them.
pub(crate) const MAX_DEFINITIONS: usize = 256 << 20;

/// Most streams of updates at a time.
pub(crate) const MAX_SUBSCRIBERS: usize = 64;

/// Most inputs that are dealt with between two writes to disk.
const GROUP: usize = 256;

/// Time between two looks at what the cluster could not take, and at what controllers have been told.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Every so many of those, what the cluster could not take is sent again.
const RETRY_LOOKS: u32 = 5;

/// Most instances that are sent again at a time.
const RETRIED_AT_A_TIME: usize = 256;

/// What is answered to a request: words for its controller where it should know something.
pub(crate) type Answer = oneshot::Sender<Result<Option<String>, Status>>;

/// What controllers want.
#[derive(Debug)]
pub(crate) enum Order {
    /// Something is to be done with an instance, or with a set.
    Schedule {
        /// What.
        request: Request,
        /// Who wants it.
        caller: Caller,
        /// Who is told what became of that.
        answer: Answer,
    },
    /// To hear how everything is.
    Subscribe {
        /// Who.
        caller: Caller,
        /// Who is given the stream.
        answer: oneshot::Sender<Result<Updates, Status>>,
    },
    /// Tokens were banned: their streams end.
    Banned(Vec<String>),
}

/// What is to be done.
#[derive(Debug)]
pub(crate) struct Request {
    /// The workload, in its controller's words.
    pub(crate) workload: String,
    /// The instance; empty for a set.
    pub(crate) id: String,
    /// Its definition, where it is to be made.
    pub(crate) create: Option<Box<Definition>>,
}

/// What workers say.
#[derive(Debug)]
pub(crate) enum News {
    /// How a worker is.
    Worker {
        /// Its name.
        worker: Arc<str>,
        /// Where it connects from: IP address and port.
        address: String,
        /// Its words.
        metric: WorkerMetric,
    },
    /// How an instance is.
    Instance {
        /// Which: a UUID.
        instance: Arc<str>,
        /// Who says so.
        said: crate::instance::Said,
    },
    /// A worker is gone, and what it ran has ended.
    Gone {
        /// Its name.
        worker: Arc<str>,
        /// What has ended: UUIDs.
        ended: Vec<Arc<str>>,
        /// What the scheduler starts elsewhere: UUIDs.
        moves: Vec<Arc<str>>,
    },
}

/// How instances are run.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// What each asks for unless its definition says it.
    pub(crate) defaults: Defaults,
    /// How long after a new connection instances may still come back with their workers.
    pub(crate) return_time: Duration,
    /// Most instances of a set that are down for a change of its definition.
    pub(crate) max_down: u32,
}

/// All that is known.
#[derive(Debug)]
pub(crate) struct Desk {
    settings: Settings,
    store: Store,
    /// By UUID.
    instances: HashMap<Arc<str>, Instance>,
    /// UUIDs of those that are not over, by owner and id.
    by_id: HashMap<(Arc<str>, String), Arc<str>>,
    /// Those that are over and whose controllers have not been told, the oldest first.
    over: VecDeque<Arc<str>>,
    /// Bytes of definitions.
    definitions: usize,
    sets: BTreeMap<String, Set>,
    /// Sets that may have something to be done.
    unsettled: BTreeSet<String>,
    /// How each worker that is there is.
    workers: BTreeMap<Arc<str>, (String, WorkerMetric)>,
    subscribers: Vec<Subscriber>,
    family: u32,
    /// Instances that the scheduler does not have, in their order.
    unsent: VecDeque<Arc<str>>,
    /// Those that the cluster could not take a moment ago.
    retry: BTreeSet<Arc<str>>,
    /// Where to ask; `None` while there is no session.
    session: Option<mpsc::UnboundedSender<Ask>>,
    /// Why there is none.
    down: String,
    /// Until when instances that are not listed may still come back.
    back_by: Instant,
    /// To be written.
    changes: Vec<Change>,
    /// To be answered once written.
    accepting: Vec<(Arc<str>, Answer)>,
    /// Answers that wait for what is written.
    answers: Vec<Answer>,
}

/// What UUIDs of instances of this family begin with.
pub(crate) fn prefix(family: u32) -> String {
    format!("{family:08x}")
}

impl Desk {
    /// One with what was kept.
    pub(crate) fn new(settings: Settings, (store, kept): (Store, Kept)) -> Self {
        let mut desk = Self {
            settings,
            store,
            instances: HashMap::new(),
            by_id: HashMap::new(),
            over: VecDeque::new(),
            definitions: 0,
            unsettled: kept.sets.iter().map(|(key, _)| key.clone()).collect(),
            sets: kept.sets.into_iter().collect(),
            workers: BTreeMap::new(),
            subscribers: Vec::new(),
            family: kept.family,
            unsent: VecDeque::new(),
            retry: BTreeSet::new(),
            session: None,
            down: "not connected yet".to_owned(),
            back_by: Instant::now(),
            changes: Vec::new(),
            accepting: Vec::new(),
            answers: Vec::new(),
        };
        for record in kept.instances {
            desk.insert(record, true);
        }
        desk
    }

    /// Deals with what comes until told to stop.
    pub(crate) async fn run(
        mut self,
        mut orders: mpsc::Receiver<Order>,
        mut heard: mpsc::Receiver<Heard>,
        mut workers: mpsc::Receiver<News>,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        tokio::pin!(stop);
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looked = 0_u32;
        let (mut some_orders, mut events, mut news) = (Vec::new(), Vec::new(), Vec::new());
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
                    self.tidy();
                    if looked.is_multiple_of(RETRY_LOOKS) {
                        self.try_again();
                    }
                }
            }
            // A worker's word is here before the scheduler's event that follows from it: it is to be taken first.
            while let Ok(it) = workers.try_recv() {
                news.push(it);
            }
            news.drain(..).for_each(|it| self.news(it));
            events.drain(..).for_each(|it| self.hear(it));
            some_orders.drain(..).for_each(|it| self.order(it));
            self.settle_sets();
            if !self.changes.is_empty() || !self.answers.is_empty() {
                tokio::task::block_in_place(|| self.commit());
            }
        }
    }

    /// Writes down what has changed, and then lets the world know.
    fn commit(&mut self) {
        let written = self.store.write(&self.changes);
        let accepting = std::mem::take(&mut self.accepting);
        let answers = std::mem::take(&mut self.answers);
        match written {
            Ok(()) => {
                self.changes.clear();
                let notice = self.cut_off();
                for answer in answers {
                    // The controller may have gone.
                    let _ = answer.send(Ok(notice.clone()));
                }
                for (instance, answer) in accepting {
                    let _ = answer.send(Ok(notice.clone()));
                    self.submit(&instance);
                    self.tell(&instance);
                }
                self.submit_unsent();
            }
            Err(error) => {
                warn!(
                    event = "desk_not_written",
                    "cannot write down what has changed, and accept nothing until then: {error}"
                );
                let refusal =
                    Status::unavailable(format!("what was asked for cannot be kept: {error}"));
                for (instance, answer) in accepting {
                    self.remove(&instance);
                    self.changes.retain(
                        |it| !matches!(it, Change::Instance(record) if record.instance == instance),
                    );
                    let _ = answer.send(Err(refusal.clone()));
                }
                for answer in answers {
                    let _ = answer.send(Err(refusal.clone()));
                }
            }
        }
    }

    /// What a controller should know while there is no session.
    fn cut_off(&self) -> Option<String> {
        let is_down = self.session.is_none();
        is_down.then(|| {
            format!(
                "the scheduler is not reachable, what is asked for is kept and done later: {}",
                self.down
            )
        })
    }

    fn insert(&mut self, record: Record, is_sent: bool) {
        let instance = Arc::clone(&record.instance);
        self.definitions += record.definition.len();
        match record.fate {
            Fate::Over => self.over.push_back(Arc::clone(&instance)),
            _ => {
                let key = (Arc::clone(&record.owner), record.id.clone());
                self.by_id.insert(key, Arc::clone(&instance));
            }
        }
        self.instances
            .insert(instance, Instance::new(record, is_sent));
    }

    /// Forgets an instance.
    fn remove(&mut self, instance: &Arc<str>) -> Option<Instance> {
        let removed = self.instances.remove(instance)?;
        let record = &removed.record;
        self.definitions -= record.definition.len();
        let key = (Arc::clone(&record.owner), record.id.clone());
        if self.by_id.get(&key) == Some(instance) {
            self.by_id.remove(&key);
        }
        self.retry.remove(instance);
        Some(removed)
    }

    /// An instance is as it is now for good.
    fn keep(&mut self, instance: &Arc<str>) {
        if let Some(it) = self.instances.get(instance) {
            let record = Box::new(it.record.clone());
            self.changes.push(Change::Instance(record));
        }
    }

    /// Sends an instance to the scheduler, if that is there.
    fn submit(&mut self, instance: &Arc<str>) {
        let Some(it) = self.instances.get_mut(instance) else {
            return;
        };
        if it.is_sent || it.record.fate != Fate::Run {
            return;
        }
        let Some(session) = &self.session else {
            it.held_back = format!("the scheduler is not reachable: {}", self.down);
            self.unsent.push_back(Arc::clone(instance));
            return;
        };
        let payload = match Definition::read(&it.record.definition) {
            Ok(definition) => {
                let name = name(&it.record.id, it.is_nameless);
                let group = it.record.set.as_ref().map(|_| group(&it.record.workload));
                let (uuid, id) = (&it.record.instance, &it.record.id);
                definition.start(uuid, id, name, group.as_deref(), &self.settings.defaults)
            }
            Err(error) => return self.fail(instance, error.to_string()),
        };
        if session.send(Ask::Start(payload)).is_ok() {
            it.is_sent = true;
            it.held_back.clear();
        }
    }

    /// Sends what the scheduler does not have and has not just refused, in order.
    fn submit_unsent(&mut self) {
        if self.session.is_none() {
            return;
        }
        let all = std::mem::take(&mut self.unsent);
        all.iter().for_each(|it| self.submit(it));
    }

    /// Sends some of what the cluster could not take.
    fn try_again(&mut self) {
        if self.session.is_none() {
            return;
        }
        let some: Vec<_> = self.retry.iter().take(RETRIED_AT_A_TIME).cloned().collect();
        for instance in some {
            self.retry.remove(&instance);
            match self.instances.get(&instance).map(|it| &it.record.fate) {
                Some(Fate::Destroy) => self.delete(&instance),
                _ => self.submit(&instance),
            }
        }
    }

    /// A UUID for a new instance.
    fn new_instance(&self) -> Arc<str> {
        let mut bytes = *Uuid::new_v4().as_bytes();
        bytes[..4].copy_from_slice(&self.family.to_be_bytes());
        Uuid::from_bytes(bytes).to_string().into()
    }

    /// An instance has failed for good; it is listed until it is to go.
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
        self.tell(instance);
    }

    /// An instance is over: what is left is to tell that.
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
        let key = (Arc::clone(&it.record.owner), it.record.id.clone());
        if self.by_id.get(&key) == Some(instance) {
            self.by_id.remove(&key);
        }
        self.touch_set(instance);
        self.keep(instance);
        self.over.push_back(Arc::clone(instance));
        self.tell(instance);
        while self.over.len() > MAX_INSTANCES
            && let Some(oldest) = self.over.pop_front()
        {
            self.remove(&oldest);
            self.changes.push(Change::Forget(oldest));
        }
    }
}

/// What an instance is called in the scheduler's lists: its id, where that can be a name.
fn name(id: &str, is_nameless: bool) -> &str {
    match proto_frames::payload::scheduling::is_instance_name(id) {
        true if !is_nameless => id,
        _ => "",
    }
}

/// The group that the instances of a set are in.
fn group(workload: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
    let plain: String = workload.chars().filter(is_plain).take(40).collect();
    format!("rik-{plain}")
}
