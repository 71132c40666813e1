//! The scheduler's core behind its lock, and the queues of all peers: where what was decided is put on its way.
//!
//! The lock is held while a batch of frames is handled and the resulting messages are queued, so that the order of the
//! core's decisions is the order on every queue; never across an await. Writers are woken after it is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::time::Instant;

use dashmap::DashMap;
use parking_lot::Mutex;
use proto_frames::{Frame, Kind, Role, Uuid};
use tokio::sync::Notify;
use tracing::{info, warn};

use super::limits::ServerLimits;
use super::notices::Notices;
use super::render;
use crate::net::budget::Budget;
use crate::net::outbox::Outbox;
use crate::net::peer::Flow;
use crate::sched::{Action, Backlog, Input, Message, Scheduler, SessionId};

/// The daemon's shared state.
#[derive(Debug)]
pub(super) struct Hub {
    scheduler: Mutex<Scheduler>,
    peers: DashMap<SessionId, Arc<PeerState>>,
    last_session: AtomicU64,
    /// The scheduler's own UUID.
    pub(super) uuid: Uuid,
    pub(super) limits: ServerLimits,
    /// Told when the core's next timeout may be earlier than it was.
    timeout_changed: Notify,
    /// Told when the set of known nodes changed.
    pub(super) nodes_changed: Notify,
    /// Told when the last session has ended, while shutting down.
    pub(super) emptied: Notify,
    shutting_down: AtomicBool,
    notices: Notices,
    /// Sessions that have ended and ticks that were due, so far: after either, memory may have become free.
    frees: AtomicU64,
}

/// One peer as others see it.
#[derive(Debug)]
pub(super) struct PeerState {
    pub(super) uuid: Uuid,
    pub(super) role: Role,
    pub(super) outbox: Arc<Outbox<Message>>,
    /// What its own frames may take up in others' queues.
    pub(super) budget: Arc<Budget>,
    /// What the core was last told of its queue.
    backlog: Mutex<Backlog>,
    /// Messages that came after the connection ended and before the core was told.
    late: Mutex<Vec<Message>>,
}

impl PeerState {
    pub(super) fn new(uuid: Uuid, role: Role, budget: usize) -> Arc<Self> {
        Arc::new(Self {
            uuid,
            role,
            outbox: Arc::default(),
            budget: Budget::new(budget),
            backlog: Mutex::default(),
            late: Mutex::default(),
        })
    }
}

impl Hub {
    pub(super) fn new(scheduler: Scheduler, uuid: Uuid, limits: ServerLimits) -> Self {
        Self {
            scheduler: Mutex::new(scheduler),
            peers: DashMap::new(),
            last_session: AtomicU64::new(0),
            uuid,
            limits,
            timeout_changed: Notify::new(),
            nodes_changed: Notify::new(),
            emptied: Notify::new(),
            shutting_down: AtomicBool::new(false),
            notices: Notices::default(),
            frees: AtomicU64::new(0),
        }
    }

    /// A number for a new connection.
    pub(super) fn next_session(&self) -> SessionId {
        SessionId(self.last_session.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Makes a peer's queue known; before the core hears of the peer.
    pub(super) fn add_peer(&self, session: SessionId, peer: Arc<PeerState>) {
        self.peers.insert(session, peer);
    }

    /// Hands inputs to the core, in order and under one turn of the lock, and puts what it decides on its way.
    /// Everything sent is charged to `budget`, the sender's.
    pub(super) fn handle(
        &self,
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
    fn turn(&self, budget: Option<&Arc<Budget>>, work: impl FnOnce(&mut Turn<'_>, &mut Scheduler)) {
        let wakers = self.turn_without_waking(budget, work);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn turn_without_waking(
        &self,
        budget: Option<&Arc<Budget>>,
        work: impl FnOnce(&mut Turn<'_>, &mut Scheduler),
    ) -> Vec<Waker> {
        let mut scheduler = self.scheduler.lock();
        let mut turn = Turn {
            // Under the lock: times never go back between two turns.
            now: Instant::now(),
            budget,
            wakers: Vec::new(),
        };
        let timeout = scheduler.poll_timeout();
        work(&mut turn, &mut scheduler);
        let has_changed = scheduler.poll_timeout() != timeout;
        drop(scheduler);
        if has_changed {
            self.timeout_changed.notify_one();
        }
        turn.wakers
    }

    /// Reads from the core under its lock.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Scheduler) -> T) -> T {
        read(&self.scheduler.lock())
    }

    /// Hands in ticks when they are due; ends never.
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
        self.frees.fetch_add(1, Ordering::Relaxed);
    }

    /// A session has ended; `unsent` is what had not begun to be written.
    pub(super) fn ended(&self, session: SessionId, mut unsent: Vec<Message>) {
        if self.is_shutting_down() {
            self.peers.remove(&session);
            if self.peers.is_empty() {
                self.emptied.notify_one();
            }
            return;
        }
        self.turn(None, |turn, scheduler| {
            // If it was replaced, the core knows already.
            let Some((_, peer)) = self.peers.remove(&session) else {
                return;
            };
            unsent.append(&mut peer.late.lock());
            scheduler.handle(turn.now, Input::Disconnected { session, unsent });
            self.dispatch(scheduler, turn);
        });
        self.shrink();
    }

    /// How often something large was freed so far.
    pub(super) fn frees(&self) -> u64 {
        self.frees.load(Ordering::Relaxed)
    }

    /// Gives back the table's memory after many peers have left.
    fn shrink(&self) {
        self.frees.fetch_add(1, Ordering::Relaxed);
        const SHRINK_ABOVE: usize = 4096;
        if self.peers.capacity() > SHRINK_ABOVE && self.peers.len() < self.peers.capacity() / 8 {
            self.peers.shrink_to_fit();
        }
    }

    /// From now on, ends of sessions are no news: the scheduler itself is leaving. Every queue is finished.
    pub(super) fn begin_shutdown(&self) {
        self.shutting_down.store(true, Ordering::SeqCst);
        let outboxes: Vec<_> = self
            .peers
            .iter()
            .map(|peer| Arc::clone(&peer.outbox))
            .collect();
        outboxes.iter().for_each(|outbox| outbox.finish());
        if self.peers.is_empty() {
            self.emptied.notify_one();
        }
    }

    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }

    /// Sessions that stand.
    pub(super) fn peer_count(&self) -> usize {
        self.peers.len()
    }

    fn dispatch(&self, scheduler: &mut Scheduler, turn: &mut Turn<'_>) {
        while let Some(action) = scheduler.poll_action() {
            match action {
                Action::Send { to, message } => self.send(scheduler, turn, to, message),
                Action::Notice(notice) => self.notices.log(&notice, turn.now),
                Action::RememberNodes => self.nodes_changed.notify_one(),
                Action::Refuse { session, why } => {
                    warn!("refused a peer: it {why}");
                    self.refuse(session);
                }
                Action::Disconnect { session, why } => {
                    let Some((_, peer)) = self.peers.remove(&session) else {
                        continue;
                    };
                    info!("{} {}: {why}", peer.role, peer.uuid);
                    let unsent = peer.outbox.shut();
                    scheduler.handle(turn.now, Input::Disconnected { session, unsent });
                }
            }
        }
    }

    fn send(
        &self,
        scheduler: &mut Scheduler,
        turn: &mut Turn<'_>,
        to: SessionId,
        message: Message,
    ) {
        let Some(peer) = self.peers.get(&to).map(|peer| Arc::clone(&peer)) else {
            return;
        };
        let cost = render::cost(&message);
        let charge = turn.budget.map(|budget| budget.charge(cost));
        match peer.outbox.push(message, cost, charge) {
            Ok(pushed) => {
                turn.wakers.extend(pushed.writer);
                if pushed.bytes > self.limits.high_water {
                    note_high_water(scheduler, turn.now, to, &peer);
                }
            }
            // Its connection ended a moment ago; the core is told next, and given this back.
            Err(message) => peer.late.lock().push(message),
        }
    }

    fn refuse(&self, session: SessionId) {
        let Some(peer) = self.peers.get(&session) else {
            return;
        };
        let frame = Frame::new(Kind::CONNECTION_ABORTED, Uuid::nil(), Vec::new());
        // A queue that has just been made takes it.
        let _ = peer.outbox.push(Message::Forward(frame), 0, None);
        peer.outbox.finish();
    }

    /// A peer's writer wrote something; `queued` bytes still wait.
    pub(super) fn written(&self, session: SessionId, peer: &PeerState, queued: usize) {
        if queued <= self.limits.high_water / 2 && *peer.backlog.lock() == Backlog::Filling {
            self.set_backlog(session, peer, Backlog::Clear);
        }
    }

    /// A peer's writer stalled, or moves again.
    pub(super) fn flow(&self, session: SessionId, peer: &PeerState, flow: Flow) {
        match flow {
            Flow::Stalled => {
                warn!(
                    "{} {} does not read what is sent to it",
                    peer.role, peer.uuid
                );
                self.set_backlog(session, peer, Backlog::Stalled);
                if peer.role.intersects(LAUNCHERS) {
                    peer.outbox.release_charges();
                }
            }
            Flow::Moving => {
                info!("{} {} reads again", peer.role, peer.uuid);
                let is_long = peer.outbox.bytes() > self.limits.high_water;
                self.set_backlog(
                    session,
                    peer,
                    if is_long {
                        Backlog::Filling
                    } else {
                        Backlog::Clear
                    },
                );
            }
        }
    }

    fn set_backlog(&self, session: SessionId, peer: &PeerState, backlog: Backlog) {
        // The scheduler's lock before the peer's, as in `send`.
        let mut scheduler = self.scheduler.lock();
        *peer.backlog.lock() = backlog;
        scheduler.handle(Instant::now(), Input::Backlog { session, backlog });
    }
}

/// One turn of the scheduler's lock.
struct Turn<'a> {
    now: Instant,
    /// Whose frames are being handled.
    budget: Option<&'a Arc<Budget>>,
    /// Writers with something new in their queues.
    wakers: Vec<Waker>,
}

fn note_high_water(scheduler: &mut Scheduler, now: Instant, session: SessionId, peer: &PeerState) {
    let mut backlog = peer.backlog.lock();
    if *backlog == Backlog::Clear {
        *backlog = Backlog::Filling;
        scheduler.handle(
            now,
            Input::Backlog {
                session,
                backlog: Backlog::Filling,
            },
        );
    }
}

/// Roles whose senders must not wait for a peer that has stalled.
const LAUNCHERS: Role = Role(Role::AGENT.0 | Role::NETAGENT.0 | Role::CNCIAGENT.0);
