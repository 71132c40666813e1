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

mod configuration;
mod connections;
mod delivery;
mod doors;
mod ends;
mod images;
mod keeping;
mod leaving;
mod revoked;
#[cfg(test)]
pub(in crate::server) mod tests;
mod unread;

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
use self::ends::EndReaders;
pub use self::leaving::STORE_DEADLINE;
use self::unread::Unread;
use super::configuration::keeper::Keeper;
use super::connection_limit::CertificateId;
use super::images::Images;
use super::limits::ServerLimits;
use super::measured::{Holds, Measured};
use super::notices::{Class, Notices, Weight, Who};
use super::reload::Reloads;
use super::schedulers::Transfers;
use super::store::Store;
use super::tasks;
use super::twins::Twins;
use crate::net::budget::{Budget, Pace};
use crate::net::outbox::Outbox;
use crate::net::tls::PeerChain;
use sched_core::{Departure, Input, Message, Scheduler, SessionId};

/// The daemon's shared state.
#[derive(Debug)]
pub(super) struct Hub {
    /// The core. Held for one input batch: from taking the current time until every action that the batch caused is
    /// queued. Long holds delay every peer, so payloads are decoded before it is taken and encoded after it is
    /// released.
    scheduler: Mutex<Scheduler>,
    /// Every connection that speaks frames, from its CONNECT until it has ended or was disconnected. Removal is what
    /// makes a disconnection happen once: the task that gets the entry out reports the end to the core, any later one
    /// finds nothing.
    peers: DashMap<SessionId, Arc<PeerState>>,
    /// Sessions without a connection of frames: requests over HTTP. They share the numbers of `peers`, and a session is
    /// in one of the two maps at most.
    doors: DashMap<SessionId, Arc<dyn Door>>,
    /// How long the scheduler's lock was held, one entry for each input batch and for each read through
    /// [`Hub::read_now`] or [`Hub::ask_now`]. [`Hub::read`] and the timekeeper's look at the timeout are not counted.
    pub(super) holds: Holds,
    /// How long STARTs took from the core's taking them in until they were queued for a node.
    pub(super) placements: Holds,
    /// Connections by how far they came, for metrics.
    handshakes: Handshakes,
    /// Numbers ascend and are never used again while the process runs.
    last_session: AtomicU64,
    /// The scheduler's own UUID.
    pub(super) uuid: Uuid,
    /// Limits from the command line or their defaults; fixed for the process.
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
    ///
    /// A `watch` beside `shutting_down`, because tasks await it; set once, after the flag.
    leaving: watch::Sender<bool>,
    /// The log of connections and of the core's notices, which limits its lines by class.
    notices: Notices,
    /// How often connections with the same UUID and role replaced each other within a time; decides how long a newcomer
    /// waits.
    twins: Mutex<Twins>,
    /// Where the core's records are kept; empty where there is nothing that survives the process.
    store: OnceLock<Store>,
    /// Where programs are kept that are shipped; empty where there is no such place.
    images: OnceLock<Images>,
    /// How reloads went.
    pub(super) reloads: Reloads,
    /// Who asks that another scheduler leads.
    pub(super) transfers: Transfers,
    /// The versions of the configuration; empty in tests that have none.
    configuration: OnceLock<Keeper>,
    /// Who reads ends on record.
    end_readers: EndReaders,
    /// What waits for peers that only listen, and for controllers.
    unread: Unread,
    /// Why the daemon cannot go on, once that is so.
    failure: watch::Sender<Option<String>>,
}

/// The roles of peers that get the events that they subscribe to, and are no controllers.
///
/// Certificates can carry several roles. A peer that is a controller as well is no listener: see
/// `PeerState::is_listener`.
pub(super) const LISTENER: Role = Role(Role::OPERATOR.0 | Role::VIEWER.0);

/// What the hub and other sessions know of one connection that speaks frames. Made once its handshake is over, before
/// the core is told of it; shared through [`Hub::add_peer`]; dropped once the connection's task has ended.
#[derive(Debug)]
pub(super) struct PeerState {
    /// From its CONNECT; for launchers the UUID of the node.
    pub(super) uuid: Uuid,
    /// As it claimed in CONNECT, within what its certificate grants. The core decides by it what the peer may send.
    pub(super) role: Role,
    /// Where it comes from.
    pub(super) origin: PeerOrigin,
    /// Messages for it that are not written yet, in the order in which the core decided them.
    pub(super) outbox: Arc<Outbox<Message>>,
    /// What its own frames may take up in others' queues. The connection's task stops reading while it is exhausted.
    pub(super) budget: Arc<Budget>,
    /// What the core was told last of its queue. Locked while the core's lock is held, never the other way round.
    queue: Mutex<Queue>,
    /// Messages that came after the connection ended and before the core was told.
    ///
    /// They are handed to the core behind what the outbox gave back, so that a START pushed at the wrong moment is
    /// answered as well.
    late: Mutex<Vec<Message>>,
}

/// Where a peer comes from: a machine, and who holds the certificate.
#[derive(Debug)]
pub(super) struct PeerOrigin {
    /// The address it connected from.
    pub(super) from: SocketAddr,
    /// The subject of its certificate: named where the peer pushes or deletes an image.
    pub(super) subject: Box<str>,
    /// Its certificate, by which sessions of one client count together.
    pub(super) certificate: CertificateId,
    /// That and the CAs above it, to be held against later revocation lists.
    pub(super) chain: PeerChain,
}

impl PeerState {
    /// `budget` is in bytes, of what its frames may take up in the queues of others before reading from it pauses.
    /// `unread` is what its own queue counts in ([`Hub::unread_of`]). The core does not know the peer yet.
    pub(super) fn new(
        (uuid, role): (Uuid, Role),
        origin: PeerOrigin,
        budget: usize,
        unread: Option<Arc<Budget>>,
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
            origin,
            outbox: Arc::new(Outbox::counted_in(Arc::clone(&budget), unread)),
            budget,
            queue: Mutex::default(),
            late: Mutex::default(),
        })
    }
}

impl Hub {
    /// A hub without peers, store or images; those are added by [`Hub::add_peer`], [`Hub::keep_in`] and
    /// [`Hub::keep_images_in`]. `scheduler` may have been restored from a store already. No task is started here: the
    /// caller runs [`Hub::keep_time`].
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
            reloads: Reloads::default(),
            transfers: Transfers::default(),
            configuration: OnceLock::new(),
            end_readers: EndReaders::default(),
            unread: Unread::default(),
            failure: watch::Sender::new(None),
        }
    }

    /// A number for a new session: of a connection that is past its handshake, or of a door.
    pub(super) fn next_session(&self) -> SessionId {
        SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Registers a peer with its queue. Called before `Input::Connect`, so that the core's first message finds the
    /// queue.
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

    /// Hands inputs to the core, in order and under one hold of the lock, and puts what it decides on its way. All
    /// inputs get the same time. The actions of one input are carried out before the next one is handed in, as the core
    /// requires.
    ///
    /// What is sent is charged to `budget`, the sender's, where its receiver may hold a sender back. Writers are woken
    /// before this returns. Must not be called while the lock is held: it is not reentrant.
    pub(super) fn handle(
        &self,
        // `budget` is `None` for what no connection is to wait for: ticks, and reports of the store.
        inputs: impl IntoIterator<Item = Input>,
        budget: Option<&Arc<Budget>>,
    ) {
        self.in_batch(budget, |batch, scheduler| {
            for input in inputs {
                scheduler.handle(batch.now, input);
                self.dispatch(scheduler, batch);
            }
        });
    }

    /// As [`Hub::handle`], but the writers that have something to write are added to `wakers`, and the caller wakes
    /// them at the end of its own batch: until then more may come for the same peers, and leave in the same write. A
    /// caller that drops `wakers` without waking them leaves messages queued until something else wakes the writer.
    pub(super) fn handle_then_wake(
        &self,
        inputs: impl IntoIterator<Item = Input>,
        budget: &Arc<Budget>,
        wakers: &mut Vec<Waker>,
    ) {
        let batch = self.batch_without_waking(Some(budget), |batch, scheduler| {
            for input in inputs {
                scheduler.handle(batch.now, input);
                self.dispatch(scheduler, batch);
            }
        });
        wakers.extend(batch);
    }

    /// One hold of the lock for [`InputBatch`]'s work; wakes the writers once the lock is released.
    fn in_batch(
        &self,
        budget: Option<&Arc<Budget>>,
        work: impl FnOnce(&mut InputBatch<'_>, &mut Scheduler),
    ) {
        let wakers = self.batch_without_waking(budget, work);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes the lock, reads the clock, does `work`, releases the lock, and tells the timekeeper if the core's next
    /// timeout has changed. Returns the writers to wake, possibly with repetitions.
    fn batch_without_waking(
        &self,
        budget: Option<&Arc<Budget>>,
        work: impl FnOnce(&mut InputBatch<'_>, &mut Scheduler),
    ) -> Vec<Waker> {
        let mut scheduler = self.scheduler.lock();
        // Inside, so that no two batches take their times in another order than they take the lock.
        let mut batch = InputBatch {
            // Under the lock: times never go back between two input batches.
            now: Instant::now(),
            budget,
            wakers: Vec::new(),
        };
        // Compared before and after, so that the timekeeper is woken only if the timeout is another one now.
        let timeout = scheduler.poll_timeout();
        work(&mut batch, &mut scheduler);
        let has_changed = scheduler.poll_timeout() != timeout;
        drop(scheduler);
        // Measured from after the lock was taken: how long others were kept waiting, not how long this waited.
        self.holds.note(batch.now.elapsed());
        if has_changed {
            self.timeout_changed.notify_one();
        }
        batch.wakers
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
    /// by its `Drop` after a panic. Does nothing where the hub disconnected it. While the scheduler leaves, an end
    /// without unsent STARTs or commands is not told to the core, because that would make it report lost nodes to
    /// everybody; one with such messages is, so that their senders are answered.
    pub(super) fn ended(&self, session: SessionId, mut unsent: Vec<Message>, departure: Departure) {
        self.in_batch(None, |batch, scheduler| {
            // If it was disconnected from this side, the core knows already.
            let Some((_, peer)) = self.peers.remove(&session) else {
                return;
            };
            unsent.append(&mut peer.late.lock());
            if self.is_shutting_down() && !unsent.iter().any(needs_answer) {
                // It is the scheduler that leaves: no peer is told that another one left.
                return;
            }
            let ended = Input::Disconnected {
                session,
                unsent,
                departure,
            };
            scheduler.handle(batch.now, ended);
            self.dispatch(scheduler, batch);
        });
        self.shrink();
        if self.is_shutting_down() {
            self.left.notify_one();
        }
    }

    /// The daemon cannot go on: what the core knows is no longer so. Called by tasks whose loss makes the state wrong;
    /// the process then exits instead of deciding on a state that is wrong. The latest reason is the one that is shown.
    pub(super) fn fail(&self, why: String) {
        self.failure.send_replace(Some(why));
    }

    /// Waits until the daemon cannot go on. The boot sequence waits for it beside the shutdown signal.
    pub(super) fn failure(&self) -> impl Future<Output = String> + Send + use<> {
        tasks::told(self.failure.subscribe())
    }

    /// Gives back the table's memory after many peers have left. Hysteresis of eight, so that a cluster that comes and
    /// goes does not pay for a copy each time.
    fn shrink(&self) {
        /// Entries that are kept in any case: a table of this size costs less than to decide about it.
        const SHRINK_ABOVE: usize = 4096;
        if self.peers.capacity() > SHRINK_ABOVE && self.peers.len() < self.peers.capacity() / 8 {
            self.peers.shrink_to_fit();
        }
    }

    /// How long the store's transactions took; all zero where there is no store.
    pub(super) fn commits(&self) -> Measured {
        self.store.get().map(Store::commits).unwrap_or_default()
    }

    /// Connections that speak frames and have been accepted; sessions of the HTTP API are not among them.
    pub(super) fn peer_count(&self) -> usize {
        self.peers.len()
    }
}

/// One hold of the scheduler's lock. Passed down to whatever acts on the core's decisions, so that all of it uses one
/// moment and one list of writers to wake. It proves by being there that the lock is held.
struct InputBatch<'a> {
    /// When the lock was taken: the time of every input of this batch, and of every line that it causes in the log.
    now: Instant,
    /// Whose frames are being handled. `None` for ticks, for the store's reports and for ends of connections.
    budget: Option<&'a Arc<Budget>>,
    /// Writers with something new in their queues.
    wakers: Vec<Waker>,
}

/// Whether somebody is told if this message was not sent. A START that was not written is placed again or answered with
/// a StartFailure; a command is answered with a failure. Everything else (reports, events) may be lost with the
/// connection.
fn needs_answer(message: &Message) -> bool {
    matches!(message, Message::Start(_) | Message::Targeted(_))
}
