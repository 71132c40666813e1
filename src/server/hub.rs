//! The scheduler's core behind its lock, and the queues of all peers: where what was decided is put on its way.
//!
//! The lock is held while a batch of frames is handled and the resulting messages are queued, so that the order of the
//! core's decisions is the order on every queue; never across an await. Writers are woken after it is released.
//!
//! What comes in as inputs of the core: the tasks of sessions ([`Hub::handle_then_wake`]), requests over HTTP and the
//! store's thread ([`Hub::handle`]), and time ([`Hub::keep_time`]). What goes out: [`delivery`] takes each action of
//! the core to a queue, the store, the images or the log. [`doors`] are sessions without a connection, [`leaving`] is
//! the shutdown.
//!
//! Locks are taken in this order, and none is held across an await: the core's, then a peer's `queue` or `late`.

mod connections;
mod delivery;
mod doors;
mod images;
mod keeping;
mod leaving;
#[cfg(test)]
pub(in crate::server) mod tests;

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Instant;

use dashmap::DashMap;
use parking_lot::Mutex;
use proto_frames::{Role, Uuid};
use tokio::sync::{Notify, watch};

pub(super) use self::connections::Came;
use self::connections::Handshakes;
use self::delivery::Queue;
pub(super) use self::doors::Door;
pub(super) use self::leaving::STORE_DEADLINE;
use super::images::Images;
use super::limits::ServerLimits;
use super::measured::{Holds, Measured};
use super::notices::{Class, Notices, Weight, Who};
use super::store::Store;
use super::tasks;
use super::twins::Twins;
use crate::net::budget::{Budget, Pace};
use crate::net::outbox::Outbox;
use sched_core::{Departure, Input, Message, Scheduler, SessionId};

/// The daemon's shared state.
#[derive(Debug)]
pub(super) struct Hub {
    /// The one lock that matters: held for one input batch.
    scheduler: Mutex<Scheduler>,
    /// Every connection that speaks frames, from its CONNECT until it has ended or was disconnected.
    peers: DashMap<SessionId, Arc<PeerState>>,
    /// Sessions without a connection of frames.
    doors: DashMap<SessionId, Arc<dyn Door>>,
    /// How long the scheduler's lock was held.
    pub(super) holds: Holds,
    /// How long STARTs took from the core's taking them in until they were queued for a node.
    pub(super) placements: Holds,
    handshakes: Handshakes,
    /// Numbers ascend and are never used again while the process runs.
    last_session: AtomicU64,
    /// The scheduler's own UUID.
    pub(super) uuid: Uuid,
    pub(super) limits: ServerLimits,
    /// Told when the core's next timeout may be earlier than it was.
    timeout_changed: Notify,
    /// Told when the set of known nodes changed.
    pub(super) nodes_changed: Notify,
    /// Told of each session that has ended, while shutting down.
    left: Notify,
    /// Set under the scheduler's lock.
    shutting_down: AtomicBool,
    /// Whether the scheduler is about to leave, for those who wait for that.
    leaving: watch::Sender<bool>,
    notices: Notices,
    /// Peers whose connections replace each other.
    twins: Mutex<Twins>,
    /// Where the core's records are kept; empty where there is nothing that survives the process.
    store: OnceLock<Store>,
    /// Where programs are kept that are shipped; empty where there is no such place.
    images: OnceLock<Images>,
    /// Why the daemon cannot go on, once that is so.
    failure: watch::Sender<Option<String>>,
}

/// The roles of those who hear what they subscribe to and are no controllers.
pub(super) const LISTENER: Role = Role(Role::OPERATOR.0 | Role::VIEWER.0);

/// One peer as others see it.
#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) uuid: Uuid,
    pub(super) role: Role,
    /// Where it connected from.
    pub(super) from: SocketAddr,
    /// The subject of its certificate.
    pub(super) subject: Box<str>,
    pub(super) outbox: Arc<Outbox<Message>>,
    /// What its own frames may take up in others' queues.
    pub(super) budget: Arc<Budget>,
    /// What the core was told last of its queue.
    queue: Mutex<Queue>,
    /// Messages that came after the connection ended and before the core was told.
    late: Mutex<Vec<Message>>,
}

impl PeerState {
    /// `budget` is in bytes, of what its frames may take up in the queues of others.
    pub(super) fn new(
        uuid: Uuid,
        role: Role,
        (from, subject): (SocketAddr, Box<str>),
        budget: usize,
    ) -> Arc<Self> {
        // A controller talks to every node, and is not to wait for one of them.
        let pace = if role.intersects(Role::CONTROLLER | LISTENER) {
            Pace::Budget
        } else {
            Pace::Queues
        };
        let budget = Budget::new(budget, pace);
        Arc::new(Self {
            uuid,
            role,
            from,
            subject,
            outbox: Arc::new(Outbox::new(Arc::clone(&budget))),
            budget,
            queue: Mutex::default(),
            late: Mutex::default(),
        })
    }
}

impl Hub {
    pub(super) fn new(scheduler: Scheduler, uuid: Uuid, limits: ServerLimits) -> Self {
        Self {
            scheduler: Mutex::new(scheduler),
            peers: DashMap::new(),
            doors: DashMap::new(),
            holds: Holds::default(),
            placements: Holds::default(),
            handshakes: Handshakes::default(),
            last_session: AtomicU64::new(0),
            uuid,
            limits,
            timeout_changed: Notify::new(),
            nodes_changed: Notify::new(),
            left: Notify::new(),
            shutting_down: AtomicBool::new(false),
            leaving: watch::Sender::new(false),
            notices: Notices::default(),
            twins: Mutex::default(),
            store: OnceLock::new(),
            images: OnceLock::new(),
            failure: watch::Sender::new(None),
        }
    }

    /// A number for a new connection.
    pub(super) fn next_session(&self) -> SessionId {
        SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes a peer's queue known; before the core hears of the peer. Called before `Input::Connect`, so that the
    /// core's first message finds the queue.
    pub(super) fn add_peer(&self, session: SessionId, peer: Arc<PeerState>) {
        self.peers.insert(session, Arc::clone(&peer));
        self.has_joined(&peer);
        // The flag is set first and the map walked then; here the peer is put in first and the flag read then.
        // Whichever comes second, this or the flag, sees the other.
        if self.is_shutting_down() {
            peer.budget.close();
            peer.outbox.finish();
        }
    }

    /// Hands inputs to the core, in order and under one turn of the lock, and puts what it decides on its way.
    /// What is sent is charged to `budget`, the sender's, where its receiver may hold a sender back.
    pub(super) fn handle(
        &self,
        // `budget` is `None` for what no connection is to wait for: ticks, and reports of the store.
        inputs: impl IntoIterator<Item = Input>,
        budget: Option<&Arc<Budget>>,
    ) {
        self.turn(budget, |turn, scheduler| {
            for input in inputs {
                scheduler.handle(turn.now, input);
                self.dispatch(scheduler, turn);
            }
        });
    }

    /// As [`Hub::handle`], but whom it concerns is woken by the caller, at the end of its own turn: until then more may
    /// come for the same peers, and leave with it.
    pub(super) fn handle_then_wake(
        &self,
        inputs: impl IntoIterator<Item = Input>,
        budget: &Arc<Budget>,
        wakers: &mut Vec<Waker>,
    ) {
        let turn = self.turn_without_waking(Some(budget), |turn, scheduler| {
            for input in inputs {
                scheduler.handle(turn.now, input);
                self.dispatch(scheduler, turn);
            }
        });
        wakers.extend(turn);
    }

    /// One turn of the lock; wakes whom it concerns once it is over.
    fn turn(
        &self,
        budget: Option<&Arc<Budget>>,
        work: impl FnOnce(&mut LockTurn<'_>, &mut Scheduler),
    ) {
        let wakers = self.turn_without_waking(budget, work);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn turn_without_waking(
        &self,
        budget: Option<&Arc<Budget>>,
        work: impl FnOnce(&mut LockTurn<'_>, &mut Scheduler),
    ) -> Vec<Waker> {
        let mut scheduler = self.scheduler.lock();
        // Inside, so that no two batches take their times in another order than they take the lock.
        let mut turn = LockTurn {
            // Under the lock: times never go back between two turns.
            now: Instant::now(),
            budget,
            wakers: Vec::new(),
        };
        // Compared before and after, so that the timekeeper is woken only if the timeout is another one now.
        let timeout = scheduler.poll_timeout();
        work(&mut turn, &mut scheduler);
        let has_changed = scheduler.poll_timeout() != timeout;
        drop(scheduler);
        // Measured from after the lock was taken: how long others were kept waiting, not how long this waited.
        self.holds.note(turn.now.elapsed());
        if has_changed {
            self.timeout_changed.notify_one();
        }
        turn.wakers
    }

    /// Reads from the core under its lock. For short questions without a moment of time, such as the heartbeat's; see
    /// [`Hub::read_now`] for others.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Scheduler) -> T) -> T {
        read(&self.scheduler.lock())
    }

    /// Hands in ticks when they are due; ends never. A notification that comes between reading the timeout and waiting
    /// is not lost: [`Notify`] keeps one.
    pub(super) async fn keep_time(&self) {
        loop {
            let timeout = self.scheduler.lock().poll_timeout();
            let changed = self.timeout_changed.notified();
            match timeout {
                None => changed.await,
                Some(due) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(due.into()) => self.tick(),
                    }
                }
            }
        }
    }

    fn tick(&self) {
        self.handle([Input::Tick], None);
    }

    /// Logs a line about a connection, or counts it.
    pub(super) fn note(&self, class: Class, who: Who, weight: Weight, line: impl Display) {
        self.notices.say(class, who, weight, line, Instant::now());
    }

    /// What is written to the log, and what is summed up.
    pub(super) fn notices(&self) -> &Notices {
        &self.notices
    }

    /// A session has ended; `unsent` is what had not begun to be written. Called once for each session, by its task or
    /// by its `Drop` after a panic. Does nothing where the hub disconnected it.
    pub(super) fn ended(&self, session: SessionId, mut unsent: Vec<Message>, departure: Departure) {
        self.turn(None, |turn, scheduler| {
            // If it was disconnected from this side, the core knows already.
            let Some((_, peer)) = self.peers.remove(&session) else {
                return;
            };
            unsent.append(&mut peer.late.lock());
            if self.is_shutting_down() && !unsent.iter().any(needs_answer) {
                // It is the scheduler that leaves: no news to anybody.
                return;
            }
            let ended = Input::Disconnected {
                session,
                unsent,
                departure,
            };
            scheduler.handle(turn.now, ended);
            self.dispatch(scheduler, turn);
        });
        self.shrink();
        if self.is_shutting_down() {
            self.left.notify_one();
        }
    }

    /// The daemon cannot go on: what the core knows is no longer so.
    pub(super) fn fail(&self, why: String) {
        self.failure.send_replace(Some(why));
    }

    /// Waits until the daemon cannot go on.
    pub(super) fn failure(&self) -> impl Future<Output = String> + Send + use<> {
        tasks::told(self.failure.subscribe())
    }

    /// Gives back the table's memory after many peers have left. Hysteresis of eight, so that a cluster that comes and
    /// goes does not pay for a copy each time.
    fn shrink(&self) {
        const SHRINK_ABOVE: usize = 4096;
        if self.peers.capacity() > SHRINK_ABOVE && self.peers.len() < self.peers.capacity() / 8 {
            self.peers.shrink_to_fit();
        }
    }

    /// How long the store's transactions took.
    pub(super) fn commits(&self) -> Measured {
        self.store.get().map(Store::commits).unwrap_or_default()
    }

    /// Sessions that stand.
    pub(super) fn peer_count(&self) -> usize {
        self.peers.len()
    }
}

/// One turn of the scheduler's lock. Passed down to whatever acts on the core's decisions, so that all of it uses one
/// moment and one list of writers to wake.
struct LockTurn<'a> {
    now: Instant,
    /// Whose frames are being handled.
    budget: Option<&'a Arc<Budget>>,
    /// Writers with something new in their queues.
    wakers: Vec<Waker>,
}

/// Whether somebody is told if this message was not sent.
fn needs_answer(message: &Message) -> bool {
    matches!(message, Message::Start(_) | Message::Targeted(_))
}
