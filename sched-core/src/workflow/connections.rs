//! Peers come and go: sessions, the roles of controllers, nodes that connect, are lost and come back, and what becomes
//! of messages that a connection had not written when it ended.
//!
//! A node has one connection that counts. A newer one of the same peer takes its place at once, and takes over what the
//! older one had not written; the older one is then ended, and its `Disconnected` finds the session already replaced.
//! How two launchers with one UUID are told apart is in `twins`; how instances of a lost node go on, in `node_loss`.

use std::time::Instant;

use indexmap::IndexMap;
use sched_model::{
    ControllerRole, ControllerStatus, NodeConnected, NodeDisconnected, NodeType, Role,
    StartFailure, Topic, Uuid,
};

use crate::Scheduler;
use crate::api::action::{Action, DisconnectReason, Message, Notice, TargetedCommand};
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Backlog, Departure, Dialect, Hello};
use crate::api::start::PlacedStart;
use crate::cluster::node::Node;
use crate::instance::{AfterStop, Instance, LifecycleEvent, Placing, State, SuspendedBy};
use crate::peers::ControllerPlace;
use crate::peers::bindings::Bound;
use crate::peers::session::{LAUNCHER, Session};
use crate::query::known::Known;
use crate::timers::Timer;

impl Scheduler {
    /// A peer asks to be let in: its claim to role and UUID is checked, and it is answered with the cluster
    /// configuration before anything else is queued for it. Nodes and controllers are then announced to each other.
    pub(crate) fn connect(&mut self, now: Instant, id: SessionId, hello: Hello) {
        match self.peers.admit(&hello) {
            Ok(bound) => self.note_bound(hello.uuid, bound),
            Err(why) => return self.act(Action::Refuse { session: id, why }),
        }
        if self.connect_candidate(now, id, &hello) {
            return;
        }
        let configuration = self.peers.configuration(hello.dialect);
        self.send(id, Message::Connected { configuration });
        if hello.uuid != self.config.uuid {
            self.notice(Notice::Connected(hello.uuid, hello.role));
        }
        let old = self.peers.connect(id, hello.clone(), now);
        if hello.role.intersects(LAUNCHER) {
            self.connect_node(now, id, &hello);
        }
        if hello.role.contains(Role::CONTROLLER) {
            self.connect_controller(id, old);
        }
        if let Some(old) = old {
            self.act(Action::Disconnect {
                session: old,
                why: DisconnectReason::Replaced { by: id },
            });
        }
    }

    /// Has it recorded that a UUID belongs to a certificate, if that is new: another certificate is refused under it
    /// from then on.
    fn note_bound(&mut self, uuid: Uuid, bound: Option<Bound>) {
        match bound {
            Some(Bound::Now) => self.journal.note_binding(uuid),
            Some(Bound::NoRoom) => self.notice(Notice::NotBound(uuid)),
            Some(Bound::Already) | None => {}
        }
    }

    /// A launcher has connected: as a new node, as a lost one that is back, or over a newer connection.
    pub(crate) fn connect_node(&mut self, now: Instant, id: SessionId, hello: &Hello) {
        let roles = Role(hello.role.0 & LAUNCHER.0);
        let key = match self.cluster.by_uuid(hello.uuid) {
            Some(key) => {
                self.reattach(now, key, id, hello);
                key
            }
            None => {
                let uuid = hello.uuid;
                let before = self.cluster.forget_absent(uuid);
                let before = before.as_ref();
                let key = self.cluster.add_node(uuid, roles, id, now, before);
                self.note_changes();
                self.announce_node(key);
                key
            }
        };
        let is_native = hello.dialect == Dialect::Native;
        self.cluster.set_peer(key, hello.address, is_native);
        self.peers.set_node(id, key);
        self.recall_claims(key);
        self.act(Action::RememberNodes);
    }

    /// A launcher of a node that is known has connected. With other roles than before it is another node as far as
    /// controllers can see: the old one is lost first.
    fn reattach(&mut self, now: Instant, key: NodeKey, id: SessionId, hello: &Hello) {
        let roles = Role(hello.role.0 & LAUNCHER.0);
        let (old, old_roles) = (self.cluster.session(key), self.cluster.node(key).roles());
        if let Some(old) = old {
            self.peers.unset_node(old);
            if old_roles == roles {
                // The same node over a newer connection: its place stays, and others do not notice. It may not have
                // read what it was asked over the older one.
                self.fail_reads(key);
                return self.cluster.replace_connection(key, id, hello, now);
            }
            self.lose_node(now, key, Departure::Closed, Vec::new());
        }
        self.timers.cancel(&Timer::GiveUp(key));
        self.cluster.return_node(key, roles, id, now);
        self.note_changes();
        // A native launcher says itself from now on what it has.
        self.journal.note_claims(self.cluster.uuid(key), now);
        self.announce_node(key);
    }

    /// A controller has connected: it gets its role, an event for each connected node, and, if it is master, the
    /// snapshot.
    fn connect_controller(&mut self, id: SessionId, old: Option<SessionId>) {
        let place = self.peers.add_controller(id, old);
        self.notify_role(id);
        let is_new_master = place == ControllerPlace::Last && self.peers.is_master(id);
        if is_new_master {
            self.notice(Notice::Master(self.peers.session(id).uuid()));
        }
        let events: Vec<NodeConnected> = self
            .cluster
            .nodes_from(0)
            .filter(|(_, node)| node.session().is_some_and(|session| session != id))
            .flat_map(|(_, node)| connected(node))
            .collect();
        for event in events {
            self.send(id, Message::NodeConnected(event));
        }
        if is_new_master {
            self.sync_first(id);
        }
    }

    /// Sends a native controller its role; original ones have no frame for it.
    fn notify_role(&mut self, id: SessionId) {
        if self.peers.is_native(id) {
            let status = if self.peers.is_master(id) {
                ControllerRole::Master
            } else {
                ControllerRole::Backup
            };
            self.send(id, Message::ControllerStatus(ControllerStatus { status }));
        }
    }

    /// A connection has ended, with the messages it had not begun to write. The order of steps matters: the session
    /// goes first, so that nothing below is sent to it; the node is taken off the tables before anything is placed
    /// again; the next master is promoted before outcomes are sent.
    pub(crate) fn disconnected(
        &mut self,
        now: Instant,
        id: SessionId,
        mut unsent: Vec<Message>,
        departure: Departure,
    ) {
        // First of all, so that nothing below is sent to a session that has ended.
        let Some(left) = self.peers.disconnect(id) else {
            return;
        };
        let session = left.session;
        match session.node() {
            Some(key) => {
                self.note_departure(key, &session, departure);
                let starts = take_starts(&mut unsent);
                self.lose_node(now, key, departure, starts);
            }
            None => self.notice(Notice::Left(session.uuid(), session.role())),
        }
        let was_being_synced = self.sync.end_of(id, &unsent);
        if left.was_master {
            let has_successors = left.master.is_some();
            self.peers
                .note_unsent(now, session.uuid(), &unsent, has_successors);
            if let Some(master) = left.master {
                self.promote(master);
            }
        }
        self.take_back(now, &session, unsent, was_being_synced);
        self.peers.forget_outcomes(now);
        self.give_back_memory();
    }

    /// A backup becomes master: it is sent its role, then the snapshot.
    fn promote(&mut self, master: SessionId) {
        self.notice(Notice::Master(self.peers.session(master).uuid()));
        self.notify_role(master);
        self.sync_from_start(master);
    }

    /// A node's connection has ended. The node leaves the tables, its unconfirmed STARTs are in doubt, and it is given
    /// up unless it is back within [`crate::Config::in_doubt_time`]. STARTs that were not written (`unsent`) are placed
    /// elsewhere at once: the node cannot run them.
    fn lose_node(
        &mut self,
        now: Instant,
        key: NodeKey,
        departure: Departure,
        unsent: Vec<PlacedStart>,
    ) {
        self.counters.node_losses += 1;
        self.fail_reads(key);
        let in_doubt = self.cluster.lose_node(key, departure, now);
        self.note_changes();
        // Should the scheduler die before the node is back or given up, its plain instances are known.
        self.journal.note_claims(self.cluster.uuid(key), now);
        let node = self.cluster.node(key);
        let (uuid, node_type) = (node.uuid(), node_type(node.roles()));
        if in_doubt > 0 {
            self.notice(Notice::InDoubt(uuid, in_doubt));
        }
        let given_up = now + self.config.in_doubt_time;
        self.timers.set(Timer::GiveUp(key), given_up);
        // What is placed again finds other nodes only now that this one is off the tables.
        self.place_not_given(now, key, unsent);
        let event = NodeDisconnected {
            node_uuid: uuid.to_string(),
            node_type,
        };
        self.notify_controllers(Topic::Nodes, |_| {
            Some(Message::NodeDisconnected(event.clone()))
        });
    }

    /// Sends all controllers that a node has connected.
    fn announce_node(&mut self, key: NodeKey) {
        let events: Vec<NodeConnected> = connected(self.cluster.node(key)).collect();
        for event in events {
            self.notify_controllers(Topic::Nodes, |_| {
                Some(Message::NodeConnected(event.clone()))
            });
        }
    }

    /// Deals with what an ended connection had not written. STARTs are placed again; state that every new connection is
    /// sent anyway is dropped; the rest goes to the peer's newer connection, or, if there is none, commands have failed
    /// and failures of STARTs go to the other controllers.
    fn take_back(
        &mut self,
        now: Instant,
        peer: &Session,
        unsent: Vec<Message>,
        was_being_synced: bool,
    ) {
        let newer = self.peers.by_identity(peer.uuid(), peer.role());
        let deletes = last_deletes(&unsent);
        for (at, message) in unsent.into_iter().enumerate() {
            match (message, newer) {
                (Message::Start(start), _) => {
                    let is_cancelled = deletes
                        .get(&start.request.instance)
                        .is_some_and(|&delete| delete > at);
                    self.place_again(now, peer.uuid(), *start, is_cancelled);
                }
                // A launcher that was restarted counts its reports from the beginning: this answer would be taken for
                // another one's.
                (Message::LeaseRenewed(_) | Message::ReportReceived(_), _) => {}
                // Sent to every new connection anyway.
                (
                    Message::Connected { .. }
                    | Message::NodeConnected(_)
                    | Message::NodeDisconnected(_)
                    | Message::ControllerStatus(_)
                    | Message::OfferRules(_)
                    | Message::Snapshot(_),
                    _,
                ) => {}
                (message, Some(_))
                    if was_being_synced && self.peers.is_outcome_to_come(peer.uuid(), &message) => {
                }
                // Noted already where that matters.
                (message, Some(to)) => {
                    self.cluster.note_moved(peer.uuid(), &message);
                    self.act(Action::Send { to, message });
                }
                (Message::Targeted(command), None) => {
                    let TargetedCommand {
                        sender,
                        target,
                        volume,
                        ..
                    } = *command;
                    if volume.is_none() {
                        self.delete_unsent(peer.uuid(), &target.instance);
                    }
                    self.no_such_instance(sender, &target, volume);
                }
                (Message::StartFailure(failure), None) => self.pass_on_failure(&failure),
                (Message::StartFailureCopy(failure), None) if !self.peers.has_controllers() => {
                    self.failure_not_written(&failure);
                }
                (_, None) => {}
            }
        }
        if let Some(newer) = newer.filter(|&newer| was_being_synced && self.peers.is_master(newer))
        {
            self.sync_from_start(newer);
        }
    }

    /// A DELETE was never written to its node: it has failed, and so is not to be carried out when the node comes back. A
    /// managed instance is again what it was: being changed, starting, suspended or running.
    fn delete_unsent(&mut self, peer: Uuid, instance: &InstanceId) {
        let Some(key) = self.cluster.by_uuid(peer) else {
            return;
        };
        let state = self.instances.get(instance).map(|managed| managed.state());
        if state.is_none() {
            // Of a managed one its state says what is to be stopped.
            let _ = self.cluster.ledger_mut(key).take_lost_stop(instance);
        }
        let is_to_end = matches!(
            state,
            Some(State::Stopping { node, then: AfterStop::End(_), .. }) if *node == key
        );
        if !is_to_end {
            return;
        }
        let cause = &Cause::NodeLostBeforeStop;
        if self.take_up_update(instance, cause) {
            return;
        }
        let entry = self.cluster.entry(key, instance);
        if entry.is_some_and(|entry| entry.unconfirmed().is_some()) {
            return self.transition(instance, LifecycleEvent::StartAwaited, cause);
        }
        let managed = self.instances.get(instance);
        let by = managed.and_then(|managed| managed.state().suspended_by().cloned());
        self.rolled_back(key, instance, by.unwrap_or(SuspendedBy::Command), cause);
        self.note_not_stopped(instance);
    }

    /// A START's sender has left before it was sent the failure: the other controllers get it.
    fn pass_on_failure(&mut self, failure: &Explained<StartFailure>) {
        if !self.peers.has_controllers() {
            return self.failure_not_written(failure);
        }
        let plain = Explained::from(StartFailure {
            detail: None,
            reasons: Vec::new(),
            never: false,
            ..failure.payload.clone()
        });
        self.notify_controllers(Topic::Failures, |session| {
            let failure = if session.is_native() { failure } else { &plain };
            Some(Message::StartFailureCopy(Box::new(failure.clone())))
        });
    }

    /// A START comes back that was never written to its node. It is placed elsewhere, unless a DELETE behind it in the
    /// same queue cancels it, or an earlier START of the same instance was written, whose outcome is then that of both.
    fn place_again(&mut self, now: Instant, peer: Uuid, start: PlacedStart, is_cancelled: bool) {
        let instance = &start.request.instance;
        let held_here = self
            .cluster
            .by_uuid(peer)
            .filter(|key| self.cluster.placement(instance) == Some(*key));
        if let Some(key) = held_here {
            if !self.cluster.ledger_mut(key).take_back(instance) {
                // It runs there, or an earlier START of it was written: this one shares what becomes of that.
                return;
            }
            self.cluster.release(key, instance);
            if self.instances.contains(instance) {
                return self.unsent_again(&start.request.instance.clone(), is_cancelled);
            }
        }
        match self.sight().known(instance) {
            Known::Nowhere if is_cancelled => self.fail_start(&start, Refusal::Cancelled),
            // It is elsewhere by now, and this START, which was deleted again, never was.
            _ if is_cancelled => {}
            _ => self.place(now, Box::new(start)),
        }
    }

    /// A peer's queue has filled or drained: a node gets no new work while its queue is not clear.
    pub(crate) fn backlog(&mut self, id: SessionId, backlog: Backlog) {
        if let Some(key) = self.peers.set_backlog(id, backlog) {
            self.cluster.set_backlog(key, backlog);
        }
    }

    /// Lets a launcher in as a candidate if its node had reports from two processes; whether it did. Original launchers
    /// never name their process, so they are no candidates.
    fn connect_candidate(&mut self, now: Instant, id: SessionId, hello: &Hello) -> bool {
        let is_launcher =
            hello.role.intersects(LAUNCHER) && Role(hello.role.0 & !LAUNCHER.0).is_empty();
        if !is_launcher
            || hello.dialect == Dialect::Original
            || self.cluster.asks_process(hello).is_none()
        {
            return false;
        }
        let configuration = self.peers.configuration(hello.dialect);
        self.send(id, Message::Connected { configuration });
        self.peers.connect_candidate(id, hello.clone(), now);
        true
    }

    /// Shrinks tables that have become far too large, so that the memory of a burst of nodes or instances is given
    /// back.
    pub(crate) fn give_back_memory(&mut self) {
        const SHRINK_ABOVE: usize = 4096;
        self.placement.forget_old(self.now);
        self.cluster.give_back_memory(SHRINK_ABOVE);
        self.peers.give_back_memory(SHRINK_ABOVE);
    }

    /// A node's connection has ended: what it was never sent is placed elsewhere, in the order of the queue, whether it
    /// waited for the disk or in the connection's queue. Safe at once, since the node cannot run what it never got.
    fn place_not_given(&mut self, now: Instant, key: NodeKey, unsent: Vec<PlacedStart>) {
        let uuid = self.cluster.uuid(key);
        let is_claimed = |managed: &Instance| {
            matches!(
                *managed.state(),
                State::Placing(Placing { node, ref pending_on, .. }) if node == key && !pending_on.is_given()
            )
        };
        let starts = unsent
            .into_iter()
            .map(|start| (start.request.instance.clone(), Some(start)));
        let mut untold: Vec<(InstanceId, Option<PlacedStart>)> = starts.collect();
        if !self.instances.is_empty() {
            let there = self.cluster.managed_on(key).into_iter();
            let claimed =
                there.filter(|instance| self.instances.get(instance).is_some_and(is_claimed));
            untold.extend(claimed.map(|instance| (instance, None)));
        }
        self.sight()
            .put_in_order(&mut untold, |(instance, _)| instance);
        for (instance, start) in untold {
            match start {
                Some(start) => self.place_again(now, uuid, start, false),
                // What was placed before it may have changed it.
                None if self.instances.get(&instance).is_some_and(is_claimed) => {
                    self.release_and_reschedule(key, &instance, &Cause::NodeLostUntold);
                }
                None => {}
            }
        }
    }
}

/// Takes the STARTs out of an unwritten queue, except for those that a DELETE further back cancels; these stay in it,
/// with the DELETE.
fn take_starts(unsent: &mut Vec<Message>) -> Vec<PlacedStart> {
    let deletes = last_deletes(unsent);
    let mut starts = Vec::new();
    let mut rest = Vec::with_capacity(unsent.len());
    for (at, message) in unsent.drain(..).enumerate() {
        match message {
            Message::Start(start)
                if deletes
                    .get(&start.request.instance)
                    .is_none_or(|&delete| delete < at) =>
            {
                starts.push(*start);
            }
            message => rest.push(message),
        }
    }
    *unsent = rest;
    starts
}

/// The position of each instance's last DELETE in a queue. Commands about volumes are not counted.
fn last_deletes(unsent: &[Message]) -> IndexMap<InstanceId, usize> {
    let delete = |(at, message): (usize, &Message)| match message {
        Message::Targeted(command) if command.volume.is_none() => {
            Some((command.target.instance.clone(), at))
        }
        _ => None,
    };
    unsent.iter().enumerate().filter_map(delete).collect()
}

/// The events that announce a node, one for each of its roles: original controllers add up the roles of a node from
/// both.
fn connected(node: &Node) -> impl Iterator<Item = NodeConnected> {
    let (uuid, roles) = (node.uuid(), node.roles());
    let types = [
        (Role::AGENT, NodeType::Compute),
        (Role::NETAGENT, NodeType::Network),
    ];
    let of_node = types
        .into_iter()
        .filter(move |(role, _)| roles.contains(*role));
    of_node.map(move |(_, node_type)| NodeConnected {
        node_uuid: uuid.to_string(),
        node_type,
    })
}

/// The type with which the loss of a node is announced. One event stands for both roles, because original controllers
/// crash on a second one.
fn node_type(roles: Role) -> NodeType {
    if roles.contains(Role::AGENT) {
        NodeType::Compute
    } else {
        NodeType::Network
    }
}
