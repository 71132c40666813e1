//! What the core decided on its way to the peers' queues: whose budget holds it, and what happens where a peer does not
//! read.
//!
//! A launcher that adds to a long queue is not read from until that queue is shorter
//! ([`crate::net::outbox::LONG_QUEUE`]). No peer waits for a listener. What is queued for an operator because of what
//! others do is charged to no sender, what is queued for a launcher or controller that has stalled no longer. Memory is
//! bounded all the same: by disconnecting operators and controllers beyond a number of uncharged bytes, and by leaving
//! charges beyond it with launchers, on which nothing is placed meanwhile.
//!
//! What becomes of one message: [`Hub::dispatch`] takes it from the core, `send` finds the receiver's queue, `charge`
//! finds whose budget it is counted in, and the outbox takes it; its writer is woken by the caller that has the list of
//! wakers, once the core's lock is released.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto_frames::payload::Payload;
use proto_frames::{Frame, Kind, Role, Uuid};

use super::{Hub, InputBatch, LISTENER, PeerState};
use crate::net::budget::Charge;
use crate::net::outbox::Others;
use crate::net::peer::Flow;
use crate::server::limits::{
    MAX_UNCHARGED_CONTROLLER, MAX_UNCHARGED_LAUNCHER, MAX_UNCHARGED_OPERATOR,
};
use crate::server::notices::{Class, Weight, Who};
use crate::server::sentences;
use crate::server::twins::{FREE_REPLACEMENTS, HOLD_TIME, TWIN_WINDOW};
use crate::server::wire::{self, PeerAddress};
use sched_core::{
    Action, Backlog, Departure, DisconnectReason, Input, Message, Scheduler, SessionId,
};

/// How a peer's queue stands, as far as the core has to know. Lives in [`PeerState`] under a lock of its own, which is
/// taken below the core's.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// What the core was last told. Told again only if it changes: see [`Hub::look_at_queue`]. The core places nothing
    /// on a node whose backlog is not clear.
    backlog: Backlog,
    /// Set and cleared by the peer's writer ([`Hub::flow`]), under the core's lock.
    is_stalled: bool,
}

impl Queue {
    /// Whether the peer's connection has taken next to nothing for `stall_time`, by its writer's last word.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// What the core is to be told of a queue of `bytes`. Once more than clear, it is clear only when half of the
    /// high-water mark is left; a peer that reads again after a stall is given nothing more until then.
    /// ```text
    ///            > high water        <= half of it
    /// Clear ───────────────▶ Filling ──────────▶ Clear        Stalled: at any time, while the writer says so
    /// ```
    fn next(&self, bytes: usize, high_water: usize) -> Backlog {
        match self.backlog {
            _ if self.is_stalled => Backlog::Stalled,
            Backlog::Clear if bytes > high_water => Backlog::Filling,
            before if bytes > high_water / 2 => before,
            _ => Backlog::Clear,
        }
    }
}

#[cfg(test)]
impl Queue {
    /// Whether nothing speaks against giving the peer more.
    pub(super) fn is_open(&self) -> bool {
        self.backlog == Backlog::Clear
    }
}

impl PeerState {
    /// Whether it only listens to what others do: an operator or viewer that is not a controller as well. Nothing that
    /// it does not read may slow anybody else down.
    fn is_listener(&self) -> bool {
        self.role.intersects(LISTENER) && !self.role.contains(Role::CONTROLLER)
    }

    /// Bytes that may be queued for it and are charged to no sender, and whether it is disconnected beyond that. Beyond
    /// it, a launcher is not disconnected: what comes then stays charged to its senders, because a launcher that is cut
    /// is a lost node.
    fn max_uncharged(&self) -> (usize, bool) {
        if self.is_listener() {
            (MAX_UNCHARGED_OPERATOR, true)
        } else if self.role.contains(Role::CONTROLLER) {
            (MAX_UNCHARGED_CONTROLLER, true)
        } else {
            (MAX_UNCHARGED_LAUNCHER, false)
        }
    }

    /// Only peers that are disconnected for it can have too much: with launchers the rest stays charged to its senders.
    fn has_too_much(&self, uncharged: usize) -> bool {
        let (limit, disconnects) = self.max_uncharged();
        disconnects && uncharged > limit
    }
}

impl Hub {
    /// Puts everything the core has decided on its way. Handling a disconnection inside makes further actions, which
    /// this loop takes as well: it ends when the core has none left. Called under the core's lock, after each input.
    /// Order matters: actions are carried out in the order of the core's decisions, which is the order on every queue.
    /// Unbounded loops cannot come of it, because each disconnection takes one peer out of the map.
    pub(super) fn dispatch(&self, scheduler: &mut Scheduler, batch: &mut InputBatch<'_>) {
        while let Some(mut action) = scheduler.poll_action() {
            // Before anything else, so that what is sent, kept and logged has the same sentence.
            sentences::write(&mut action);
            self.add_schedulers(&mut action);
            match action {
                Action::Send { to, message } => self.send(scheduler, batch, to, message),
                Action::Notice(notice) => self.notices.log(&notice, batch.now),
                Action::Persist(change) => self.persist(change),
                Action::Ends { session, query } => self.ask_ends(batch, session, query),
                Action::Image { session, parcel } => self.ask_images(batch, session, parcel),
                Action::Configuration { session, parcel } => {
                    self.ask_configuration(batch, session, parcel);
                }
                Action::Configured { session, payload } => self.configured(session, payload),
                Action::Reload { session, reload } => self.ask_reload(batch, session, &reload),
                Action::TransferLeadership { session, transfer } => {
                    self.ask_transfer(batch, session, *transfer);
                }
                Action::RememberNodes => self.nodes_changed.notify_one(),
                Action::Refuse { session, why } => {
                    self.refuse(batch, session, why);
                }
                Action::Disconnect { session, why } => {
                    match why {
                        DisconnectReason::Replaced { by } => {
                            self.note_replaced(session, by, batch.now);
                        }
                        DisconnectReason::Twin { first } => {
                            self.refuse_twin(scheduler, batch, session, first);
                            continue;
                        }
                        DisconnectReason::Silent => {}
                    }
                    self.disconnect(scheduler, batch, session, Weight::News, why);
                }
            }
        }
    }

    /// The receiver may be a connection, a door, or gone: then the message is dropped, and the core learns of the end
    /// by itself.
    ///
    /// A START counts in the metric of placements here. After the push, the queue's length may make the core stop
    /// placing on the peer, or the uncharged bytes may end its connection; both take effect before the next action.
    fn send(
        &self,
        scheduler: &mut Scheduler,
        batch: &mut InputBatch<'_>,
        to: SessionId,
        message: Message,
    ) {
        let Some(peer) = self.peers.get(&to).map(|peer| Arc::clone(&peer)) else {
            if let Some(door) = self.doors.get(&to) {
                door.take(message);
            }
            return;
        };
        // From the core's taking the batch in to the queue of the node: what the metric of placements counts.
        if matches!(message, Message::Start(_)) {
            self.placements.note(batch.now.elapsed());
        }
        let cost = wire::cost(&message);
        let charge = self.charge(batch, &peer, &message, cost);
        match peer.outbox.push(message, cost, charge) {
            Ok(pushed) => {
                batch.wakers.extend(pushed.writer);
                // Looked at only beyond the mark: below it nothing can have changed for the worse.
                if pushed.bytes > self.limits.high_water {
                    self.look_at_queue(scheduler, batch, to, &peer);
                }
                if peer.has_too_much(pushed.uncharged) {
                    let why = TooMuch::of(&peer, pushed.uncharged);
                    self.disconnect(scheduler, batch, to, Weight::Warning, why);
                }
                if self.has_too_much_unread(peer.role) {
                    self.disconnect_unread(scheduler, batch, peer.role);
                }
            }
            // Its connection ended a moment ago; the core is told next, and given this back.
            Err(message) => peer.late.lock().push(message),
        }
    }

    /// The budget that holds this message until it has left, so that its causer is not read from meanwhile; `None`
    /// where no peer is to wait for it. In this order:
    ///
    /// 1. a START or a command: who sent it, while connected, also when another one's batch sends it on (a START that
    ///    had to wait);
    /// 2. the same from a door: the budget of the HTTP connection;
    /// 3. anything else (answers, events, reports): whose frames are being handled, unless it goes to a listener that
    ///    is not the causer;
    /// 4. nothing, for what a tick or the store caused.
    fn charge(
        &self,
        batch: &InputBatch<'_>,
        to: &PeerState,
        message: &Message,
        cost: usize,
    ) -> Option<Charge> {
        // The sender of a START or a command is charged for it, also when another peer's input batch sends it on.
        let sender = match message {
            Message::Start(start) => Some(start.sender),
            Message::Targeted(command) => Some(command.sender),
            _ => None,
        };
        if let Some(sender) = sender.and_then(|sender| self.peers.get(&sender)) {
            return Some(sender.budget.charge(cost));
        }
        // A door's commands are charged to its connection's budget.
        let door = sender.and_then(|sender| self.doors.get(&sender));
        if let Some(budget) = door.as_ref().and_then(|door| door.budget()) {
            return Some(budget.charge(cost));
        }
        // What no peer sent (ticks, the store) is charged to none.
        let causer = batch.budget?;
        // An event for a listener is not charged to the peer that caused it, unless that is the listener itself.
        let is_copy = to.is_listener() && !Arc::ptr_eq(causer, &to.budget);
        (!is_copy).then(|| causer.charge(cost))
    }

    /// Ends a connection at once. `why` stands in the log behind role and UUID. What was not sent comes back to the
    /// core as `unsent`, in order, and is answered or placed again; an answer to CONNECT that was not sent yet still
    /// leaves. Does nothing where the peer is gone already.
    ///
    /// Called under the core's lock; the next actions are taken by the caller's loop.
    pub(super) fn disconnect(
        &self,
        scheduler: &mut Scheduler,
        batch: &InputBatch<'_>,
        session: SessionId,
        weight: Weight,
        why: impl Display,
    ) {
        let Some((_, peer)) = self.peers.remove(&session) else {
            return;
        };
        let line = format_args!("{} {}: {why}", peer.role, peer.uuid);
        let who = Who::Peer(peer.uuid);
        self.notices.say(Class::Cut, who, weight, line, batch.now);
        // An original client that is cut before CONNECTED never comes back.
        let is_connected = |message: &Message| matches!(message, Message::Connected { .. });
        let mut unsent = peer.outbox.shut_behind(is_connected);
        unsent.append(&mut peer.late.lock());
        let departure = Departure::Broken;
        let ended = Input::Disconnected {
            session,
            unsent,
            departure,
        };
        scheduler.handle(batch.now, ended);
    }

    /// A connection of the same peer took the place of another. The log warns once that has happened more than
    /// [`FREE_REPLACEMENTS`] times within [`TWIN_WINDOW`]: then two machines have one UUID, rather than one that
    /// reconnects.
    fn note_replaced(&self, older: SessionId, newer: SessionId, now: Instant) {
        let peers = (self.peers.get(&older), self.peers.get(&newer));
        let (Some(older), Some(newer)) = peers else {
            return;
        };
        let (uuid, role) = (newer.uuid, newer.role);
        let times = self.twins.lock().note((uuid, role), now);
        if times > FREE_REPLACEMENTS {
            let line = format_args!(
                "{role} {uuid}: two machines seem to have one UUID: {} took the place of {}, the connections of this UUID \
                 have replaced each other {times} times within {TWIN_WINDOW:?}; each newer one waits {HOLD_TIME:?} from \
                 now on. A cloned machine needs a UUID of its own: remove the launcher's state directory from the copy",
                newer.origin.from, older.origin.from
            );
            let who = Who::Peer(uuid);
            self.notices
                .say(Class::Twins, who, Weight::Warning, line, now);
        }
    }

    /// How long the handshake of this peer is to wait before it takes the place of another connection; `None` as long
    /// as they do not replace each other often. Called by the handshake, without the core's lock.
    pub(in crate::server) fn hold_time(&self, uuid: Uuid, role: Role) -> Option<Duration> {
        self.twins.lock().hold_time((uuid, role), Instant::now())
    }

    /// Tells a peer that the core does not let it in, and closes its connection once this one frame is written.
    /// `ConnectionAborted` tells ciao's peers that trying again does not help. The peer stays in the map until its task
    /// ends.
    fn refuse(&self, batch: &mut InputBatch<'_>, session: SessionId, why: impl Display) {
        let Some(peer) = self.peers.get(&session) else {
            return;
        };
        let line = format_args!("refused {} {}: it {why}", peer.role, peer.uuid);
        let who = Who::Peer(peer.uuid);
        self.notices
            .say(Class::Refused, who, Weight::Warning, line, batch.now);
        let frame = Frame::new(Kind::CONNECTION_ABORTED, Uuid::nil(), Vec::new());
        let message = Message::Forward(wire::parcel(frame));
        // A queue that has just been made takes it, unless the scheduler is leaving.
        if let Ok(pushed) = peer.outbox.push(message, 0, None) {
            batch.wakers.extend(pushed.writer);
        }
        peer.outbox.finish();
    }

    /// Ends the connection of a launcher whose node another one reports for, and tells it so, with the address of that
    /// one (`first`). It is told in the payload of `ConnectionAborted`, so that its operator reads it on that machine.
    /// For the core the session has closed, not broken off: the node is not lost.
    fn refuse_twin(
        &self,
        scheduler: &mut Scheduler,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        first: Option<SocketAddr>,
    ) {
        let Some((_, peer)) = self.peers.remove(&session) else {
            return;
        };
        let line = format_args!(
            "refused {} {} at {}: another launcher with this UUID is connected from {}",
            peer.role,
            peer.uuid,
            peer.origin.from,
            PeerAddress(first)
        );
        let who = Who::Peer(peer.uuid);
        self.notices
            .say(Class::Refused, who, Weight::Warning, line, batch.now);
        let payload = wire::twin(peer.uuid, first).encode();
        let frame = Frame::new(Kind::CONNECTION_ABORTED, Uuid::nil(), payload);
        let message = Message::Forward(wire::parcel(frame));
        if let Ok(pushed) = peer.outbox.push(message, 0, None) {
            batch.wakers.extend(pushed.writer);
        }
        peer.outbox.finish();
        // A launcher that has reported nothing else was told nothing that has to be told to others.
        let ended = Input::Disconnected {
            session,
            unsent: Vec::new(),
            departure: Departure::Closed,
        };
        scheduler.handle(batch.now, ended);
    }

    /// A peer's writer wrote something; `queued` bytes still wait. Called by the peer's task after each write, without
    /// a lock. Takes the core's lock only where the core has to be told, which is when a queue that was more than clear
    /// has run down to half of the high-water mark.
    pub(in crate::server) fn written(&self, session: SessionId, peer: &PeerState, queued: usize) {
        if queued <= self.limits.high_water / 2 && peer.queue.lock().backlog != Backlog::Clear {
            self.in_batch(None, |batch, scheduler| {
                self.look_at_queue(scheduler, batch, session, peer);
                self.dispatch(scheduler, batch);
            });
        }
    }

    /// A peer's writer stalled, or moves again. Called by the peer's task, without a lock.
    ///
    /// On a stall, what is queued stops being charged to its senders within the limits of the peer's role, so that no
    /// sender waits for a dead connection. Charges are given back before the core's lock is taken, so that senders that
    /// were held go on at once. Then the core is told, which places nothing more there, and an operator or controller
    /// for which too much waits is cut.
    pub(in crate::server) fn flow(&self, session: SessionId, peer: &PeerState, flow: Flow) {
        let is_stalled = flow == Flow::Stalled;
        let uncharged = if is_stalled {
            let (limit, disconnects) = peer.max_uncharged();
            let limit = if disconnects { usize::MAX } else { limit };
            peer.outbox.release_charges(limit, self.others_than(peer))
        } else {
            peer.outbox.keep_charges();
            0
        };
        let (role, uuid, who) = (peer.role, peer.uuid, Who::Peer(peer.uuid));
        if is_stalled {
            let line = format_args!(
                "{role} {uuid} does not read what is sent to it: {} bytes wait, and its connection has taken next to \
                 nothing for {:?}",
                peer.outbox.bytes(),
                self.limits.stall_time
            );
            self.note(Class::Stalled, who, Weight::Warning, line);
        } else {
            let line = format_args!("{role} {uuid} reads again");
            self.note(Class::Stalled, who, Weight::News, line);
        }
        self.in_batch(None, |batch, scheduler| {
            peer.queue.lock().is_stalled = is_stalled;
            self.look_at_queue(scheduler, batch, session, peer);
            if peer.has_too_much(uncharged) {
                let why = TooMuch::of(peer, uncharged);
                self.disconnect(scheduler, batch, session, Weight::Warning, why);
            }
            self.dispatch(scheduler, batch);
        });
    }

    /// Whether what a peer does not read is read by others. For a controller: whether another controller reads, because
    /// reports go to all of them. For launchers and listeners always: only what is meant for them waits there, and no
    /// burst of many senders does.
    ///
    /// The cost is a look at each peer, for a controller that has stalled.
    fn others_than(&self, peer: &PeerState) -> Others {
        let reads = |other: &PeerState| {
            other.role.contains(Role::CONTROLLER)
                && !std::ptr::eq(other, peer)
                && !other.queue.lock().is_stalled
        };
        if peer.role.contains(Role::CONTROLLER) && !self.peers.iter().any(|other| reads(&other)) {
            Others::None
        } else {
            Others::Read
        }
    }

    /// A controller that joins reads what stalled controllers do not, so the senders that are held by the queues of
    /// those are read from again.
    pub(super) fn has_joined(&self, peer: &PeerState) {
        if peer.role.contains(Role::CONTROLLER) {
            for other in &self.peers {
                other.outbox.allow_more(usize::MAX);
            }
        }
    }

    /// Tells the core how a peer's queue stands, if that has changed since it was told last. The caller holds the
    /// core's lock and takes the actions that follow. While the scheduler leaves nothing is told: it has said that no
    /// node takes anything.
    pub(super) fn look_at_queue(
        &self,
        scheduler: &mut Scheduler,
        batch: &InputBatch<'_>,
        session: SessionId,
        peer: &PeerState,
    ) {
        if self.is_shutting_down() {
            // Nothing is placed any more.
            return;
        }
        let backlog = {
            // The scheduler's lock before this one. Bytes that leave after they are counted here are followed by a call
            // of `written`, which waits for it.
            let mut queue = peer.queue.lock();
            let next = queue.next(peer.outbox.bytes(), self.limits.high_water);
            if next == queue.backlog {
                return;
            }
            queue.backlog = next;
            next
        };
        scheduler.handle(batch.now, Input::Backlog { session, backlog });
    }
}

/// Why a peer is disconnected for which too much waits, with the bytes queued for it that are charged to no sender.
enum TooMuch {
    /// Its connection takes nothing.
    Stalled(usize),
    /// Its connection takes what is written, but more is queued.
    Slow(usize),
}

impl TooMuch {
    fn of(peer: &PeerState, uncharged: usize) -> Self {
        if peer.queue.lock().is_stalled {
            Self::Stalled(uncharged)
        } else {
            Self::Slow(uncharged)
        }
    }
}

impl Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Stalled(bytes) | Self::Slow(bytes)) = self;
        write!(
            f,
            "disconnected: {bytes} bytes of what others do wait for it, "
        )?;
        f.write_str(match self {
            Self::Stalled(_) => "and its connection takes none of them",
            Self::Slow(_) => "and more are queued than its connection takes",
        })
    }
}
