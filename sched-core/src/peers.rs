//! Who is connected: sessions, roles, what each may send, and who asked for what.
//!
//! [`Peers`] owns all of it and keeps it in step. It decides who is let in and who is master, and lists those who are
//! sent a message ([`Audience`](audience::Audience)). It sends nothing itself: the workflows do. A *peer* is a UUID in a role
//! ([`Identity`]); a *session* is one connection of it. A newer session of a peer replaces the older one at once, which
//! then ends.

pub(crate) mod answers;
pub(crate) mod audience;
pub(crate) mod bindings;
pub(crate) mod configuration;
pub(crate) mod outcomes;
pub(crate) mod owner;
pub(crate) mod permissions;
pub(crate) mod reads;
pub(crate) mod session;

mod consistent;

use std::time::Instant;

use indexmap::IndexSet;
use sched_model::Topic;
use sched_model::{Role, Uuid};

use crate::api::action::RefusedConnect;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Backlog, Dialect, Hello};
use crate::api::sent::{CommandName, Sent};
use crate::maps::Map;
use crate::peers::answers::Answers;
use crate::peers::bindings::{Bindings, Bound};
use crate::peers::configuration::ClusterPayload;
use crate::peers::outcomes::Outcomes;
use crate::peers::owner::Owner;
use crate::peers::reads::Reads;
use crate::peers::session::{Identity, LISTENER, Session, identity};

/// All sessions, and what is known of peers beyond them.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    sessions: Map<SessionId, Session>,
    /// The current session of each peer; an older one that has not ended yet is in `sessions` only.
    identities: Map<Identity, SessionId>,
    /// Sessions of launchers that have to name their process before they replace another (`workflow::twins`).
    candidates: IndexSet<SessionId>,
    /// UUIDs that were claimed with a certificate bound to them: no other certificate may claim these.
    bindings: Bindings,
    /// Sessions of controllers in order of connection; the first is master.
    controllers: Vec<SessionId>,
    /// Operators that subscribed to a topic, in order.
    subscribers: Vec<SessionId>,
    /// Operators that wait for the answer to a command.
    answers: Answers,
    /// Peers that wait for output of workloads.
    reads: Reads,
    /// What was sent to the master alone recently, for its successor.
    outcomes: Outcomes,
    /// The payload that every peer is sent when it is let in.
    configuration: ClusterPayload,
}

/// A session that has ended, with what follows for the order of controllers.
#[derive(Debug)]
pub(crate) struct Left {
    /// The session that has ended.
    pub(crate) session: Session,
    /// Whether it was the master's.
    pub(crate) was_master: bool,
    /// The master's session from now on, if there is any controller.
    pub(crate) master: Option<SessionId>,
}

/// Where a session of a controller stands among all controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ControllerPlace {
    /// Behind all others.
    Last,
    /// Where the controller's earlier session stood.
    Taken,
}

impl Peers {
    /// No peers; those that connect are told this configuration.
    pub(crate) fn new(configuration: ClusterPayload) -> Self {
        Self {
            configuration,
            ..Self::default()
        }
    }

    /// Whether a peer is let in. If its certificate is bound to its UUID, that is remembered: whether it is new, for
    /// the disk. Creates no session.
    ///
    /// # Errors
    /// Why it is not let in: no role, roles that exclude each other, an operator with the original protocol, or a UUID
    /// that belongs to another certificate. The server refuses the connection with that.
    pub(crate) fn admit(&mut self, hello: &Hello) -> Result<Option<Bound>, RefusedConnect> {
        if hello.role.is_empty() {
            return Err(RefusedConnect::NoRole);
        }
        if hello.role.contains(Role::OPERATOR) && hello.role.contains(Role::CONTROLLER) {
            return Err(RefusedConnect::OperatorAndController);
        }
        if hello.role.intersects(LISTENER) && hello.dialect == Dialect::Original {
            return Err(RefusedConnect::OriginalOperator);
        }
        if hello.role.contains(Role::VIEWER) && hello.role != Role::VIEWER {
            return Err(RefusedConnect::ViewerAndOther);
        }
        if hello.bound {
            return Ok(Some(self.bindings.insert(hello.uuid)));
        }
        if self.is_bound(hello.uuid) {
            return Err(RefusedConnect::BoundElsewhere);
        }
        Ok(None)
    }

    /// Whether a UUID belongs to a certificate that is bound to it.
    fn is_bound(&self, uuid: Uuid) -> bool {
        // With a full table, UUIDs of connected peers are still protected.
        let is_there = |session: &Session| session.hello.bound && session.hello.uuid == uuid;
        self.bindings.contains(uuid)
            || self.bindings.is_full() && self.sessions.values().any(is_there)
    }

    /// Remembers that a UUID is bound, as it was before a restart.
    pub(crate) fn restore_binding(&mut self, uuid: Uuid) {
        self.bindings.insert(uuid);
    }

    /// Creates the session of a peer that was admitted; returns the earlier session of the same peer, which it
    /// replaces. A controller is in no order yet: [`Peers::add_controller`] must follow.
    pub(crate) fn connect(
        &mut self,
        id: SessionId,
        hello: Hello,
        now: Instant,
    ) -> Option<SessionId> {
        let identity = identity(hello.uuid, hello.role);
        self.sessions.insert(id, Session::new(hello, now));
        self.identities.insert(identity, id)
    }

    /// Creates the session of a launcher beside the one that it may replace once it has named its process.
    pub(crate) fn connect_candidate(&mut self, id: SessionId, hello: Hello, now: Instant) {
        self.sessions.insert(id, Session::new(hello, now));
        self.candidates.insert(id);
    }

    /// Ends the candidacy of a session; `None` if it was no candidate.
    pub(crate) fn take_candidate(&mut self, id: SessionId) -> Option<Hello> {
        let was_candidate = !self.candidates.is_empty() && self.candidates.swap_remove(&id);
        let session = self.get(id).filter(|_| was_candidate)?;
        Some(session.hello.clone())
    }

    /// Makes a former candidate the current session of its launcher; returns the one that it replaces.
    pub(crate) fn replace_by_candidate(&mut self, id: SessionId) -> Option<SessionId> {
        let identity = self.session(id).identity();
        self.identities.insert(identity, id)
    }

    /// Puts a controller into the order: in the place of the session that it replaces, so that a master stays master,
    /// else at the end.
    pub(crate) fn add_controller(
        &mut self,
        id: SessionId,
        replaced: Option<SessionId>,
    ) -> ControllerPlace {
        let mut controllers = self.controllers.iter_mut();
        match controllers.find(|other| Some(**other) == replaced) {
            Some(place) => {
                *place = id;
                ControllerPlace::Taken
            }
            None => {
                self.controllers.push(id);
                ControllerPlace::Last
            }
        }
    }

    /// Removes a session from everything; `None` for one that is not known, such as one that was never let in.
    pub(crate) fn disconnect(&mut self, id: SessionId) -> Option<Left> {
        let session = self.sessions.swap_remove(&id)?;
        let identity = session.identity();
        if self.identities.get(&identity) == Some(&id) {
            self.identities.swap_remove(&identity);
        }
        self.subscribers.retain(|&other| other != id);
        self.candidates.swap_remove(&id);
        self.reads.forget(id);
        if session.hello.role.contains(Role::OPERATOR) {
            self.answers.forget(id);
        }
        let was_master = self.is_master(id);
        self.controllers.retain(|&other| other != id);
        Some(Left {
            session,
            was_master,
            master: self.master(),
        })
    }

    /// A session, if it has not ended.
    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// A session that the caller knows to be there.
    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.get(id).expect("the caller holds a live session's id")
    }

    /// The session of a peer in this role.
    pub(crate) fn by_identity(&self, uuid: Uuid, role: Role) -> Option<SessionId> {
        self.identities.get(&identity(uuid, role)).copied()
    }

    /// Whether a session is there and understands what this project added.
    pub(crate) fn is_native(&self, id: SessionId) -> bool {
        self.get(id).is_some_and(Session::is_native)
    }

    /// The node a session reports for; `None` once a newer connection has taken it over.
    pub(crate) fn node_of(&self, id: SessionId) -> Option<NodeKey> {
        self.get(id)?.node
    }

    /// To whom what a session sends belongs: all controllers together, or one operator. What a session that has ended
    /// sent belongs to the controllers.
    pub(crate) fn owner(&self, sender: SessionId) -> Owner {
        self.get(sender).map_or(Owner::Controllers, Session::owner)
    }

    /// All sessions with their numbers, in no order that means something.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// The sessions of controllers, in order.
    pub(crate) fn controllers(&self) -> &[SessionId] {
        &self.controllers
    }

    /// The sessions of operators and viewers, in no particular order.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = SessionId> {
        let operators = self.sessions.iter();
        let operators = operators.filter(|(_, session)| session.hello.role.intersects(LISTENER));
        operators.map(|(&id, _)| id)
    }

    /// The session of the controller that is master.
    pub(crate) fn master(&self) -> Option<SessionId> {
        self.controllers.first().copied()
    }

    /// Whether a session is the master's.
    pub(crate) fn is_master(&self, id: SessionId) -> bool {
        self.master() == Some(id)
    }

    /// Whether any controller is there.
    pub(crate) fn has_controllers(&self) -> bool {
        !self.controllers.is_empty()
    }

    /// Whether any operator has subscribed to a topic.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.subscribers.is_empty()
    }

    /// A session that is not sent the events of a topic; `None` if it is, or has ended. For answers that must reach
    /// their asker once.
    pub(crate) fn outside_audience(&self, id: SessionId, topic: &Topic) -> Option<&Session> {
        let session = self.get(id)?;
        let is_inside = self.controllers.contains(&id) || session.topics.contains(topic);
        (!is_inside).then_some(session)
    }

    /// Subscribes an operator to these topics in place of earlier ones; none ends its subscription. Unknown topics and
    /// repetitions are dropped, so a session has at most as many as there are topics.
    pub(crate) fn subscribe(&mut self, id: SessionId, topics: &[Topic]) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let known = Topic::KNOWN.iter().map(|&topic| Topic::from(topic));
        session.topics = known.filter(|topic| topics.contains(topic)).collect();
        self.subscribers.retain(|&other| other != id);
        if !session.topics.is_empty() {
            self.subscribers.push(id);
        }
    }

    /// Notes that an operator is to be sent the answer to a command on an instance. Does nothing for other sessions:
    /// controllers get all answers.
    ///
    /// # Errors
    /// How many answers it waits for, or all together do, if that is the most allowed: the command is refused.
    pub(crate) fn expect_answer(
        &mut self,
        id: SessionId,
        command: CommandName,
        instance: &InstanceId,
    ) -> Result<(), usize> {
        let is_operators = |session: &Session| session.hello.role.contains(Role::OPERATOR);
        if !self.get(id).is_some_and(is_operators) {
            return Ok(());
        }
        self.answers.expect(id, command, instance)
    }

    /// The operator that waits for the answer to a command on an instance; it does not wait any longer.
    pub(crate) fn take_asker(
        &mut self,
        command: CommandName,
        instance: &InstanceId,
    ) -> Option<SessionId> {
        self.answers.take(command, instance)
    }

    /// A session reports for a node.
    pub(crate) fn set_node(&mut self, id: SessionId, node: NodeKey) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.node = Some(node);
        }
    }

    /// A session reports for no node any more, because a newer one does.
    pub(crate) fn unset_node(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.node = None;
        }
    }

    /// Notes how full a session's outgoing queue is; returns the node it reports for.
    pub(crate) fn set_backlog(&mut self, id: SessionId, backlog: Backlog) -> Option<NodeKey> {
        let session = self.sessions.get_mut(&id)?;
        session.backlog = backlog;
        session.node
    }

    /// Sets whether ends in frames of their own count on this session: only after a STATS that could be read, since the
    /// number of an end also says that all ends before it were dealt with.
    pub(crate) fn set_numbers_ends(&mut self, id: SessionId, numbers_ends: bool) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.numbers_ends = numbers_ends;
        }
    }

    /// Notes that a frame of this kind was refused; returns the session if it is the first time, so that it is logged
    /// once.
    pub(crate) fn first_refusal(&mut self, id: SessionId, sent: Sent) -> Option<&Session> {
        let session = self.sessions.get_mut(&id)?;
        session.note_refusal(sent).then_some(&*session)
    }

    /// Sessions.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Subscriptions of all operators together, for `Scheduler::footprint`.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn topics(&self) -> usize {
        let topics = self.sessions.values().map(|session| session.topics.len());
        topics.sum()
    }

    /// Answers that operators wait for.
    pub(crate) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// What is being read of workloads' output.
    pub(crate) fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The same, to be changed.
    pub(crate) fn reads_mut(&mut self) -> &mut Reads {
        &mut self.reads
    }

    /// Sessions and identities there is memory for.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn capacity(&self) -> usize {
        self.sessions.capacity() + self.identities.capacity()
    }

    /// Shrinks what has become far too large, so that a burst of sessions is not paid for for ever.
    pub(crate) fn give_back_memory(&mut self, above: usize) {
        let capacity = self.sessions.capacity();
        if capacity > above && self.sessions.len() < capacity / 4 {
            self.sessions.shrink_to(2 * self.sessions.len());
            self.identities.shrink_to(2 * self.identities.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::audience::Audience;

    /// Peers, and the moment at which all of them connect.
    struct World {
        peers: Peers,
        now: Instant,
    }

    impl World {
        fn new() -> Self {
            Self {
                peers: Peers::default(),
                now: crate::simulated::start(),
            }
        }

        /// Connects the native peer with this number in its UUID; the session it replaces.
        fn connect(&mut self, session: u64, peer: u8, role: Role) -> Option<SessionId> {
            let hello = Hello::native(Uuid::from_bytes([peer; 16]), role);
            assert_eq!(self.peers.admit(&hello), Ok(None));
            let replaced = self.peers.connect(SessionId(session), hello, self.now);
            if role.contains(Role::CONTROLLER) {
                self.peers.add_controller(SessionId(session), replaced);
            }
            assert_eq!(self.peers.check(), Ok(()));
            replaced
        }

        fn disconnect(&mut self, session: u64) -> (bool, Option<SessionId>) {
            let left = self.peers.disconnect(SessionId(session)).expect("known");
            assert_eq!(self.peers.check(), Ok(()));
            (left.was_master, left.master)
        }

        fn told(&self, mut audience: Audience<'_>) -> Vec<u64> {
            let mut told = Vec::new();
            while let Some((id, _)) = audience.next(&self.peers) {
                told.push(id.0);
            }
            told
        }
    }

    #[test]
    fn the_next_controller_in_order_is_master_when_the_master_leaves() {
        let mut world = World::new();
        for number in 1..=3 {
            assert_eq!(world.connect(number, number as u8, Role::CONTROLLER), None);
        }
        assert_eq!(world.disconnect(2), (false, Some(SessionId(1))));
        assert_eq!(world.disconnect(1), (true, Some(SessionId(3))));
        assert_eq!(world.disconnect(3), (true, None));
        assert!(world.peers.disconnect(SessionId(3)).is_none());
    }

    #[test]
    fn a_newer_session_of_the_master_is_master_and_outlives_the_older_one() {
        let mut world = World::new();
        world.connect(1, 1, Role::CONTROLLER);
        world.connect(2, 2, Role::CONTROLLER);
        let replaced = world.connect(3, 1, Role::CONTROLLER);
        assert_eq!(replaced, Some(SessionId(1)));
        assert_eq!(world.peers.controllers(), [SessionId(3), SessionId(2)]);
        assert_eq!(world.disconnect(1), (false, Some(SessionId(3))));
        let found = world
            .peers
            .by_identity(Uuid::from_bytes([1; 16]), Role::CONTROLLER);
        assert_eq!(found, Some(SessionId(3)));
    }

    #[test]
    fn both_kinds_of_node_are_one_peer_and_a_controller_is_another() {
        let mut world = World::new();
        world.connect(1, 1, Role::AGENT);
        assert_eq!(world.connect(2, 1, Role::CONTROLLER), None);
        let replaced = world.connect(3, 1, Role::AGENT | Role::NETAGENT);
        assert_eq!(replaced, Some(SessionId(1)));
    }

    #[test]
    fn an_audience_is_the_controllers_and_then_those_who_subscribed_to_the_topic() {
        let mut world = World::new();
        world.connect(1, 1, Role::OPERATOR);
        world.connect(2, 2, Role::OPERATOR);
        world.connect(3, 3, Role::CONTROLLER);
        world.connect(4, 4, Role::CONTROLLER);
        let (nodes, stats) = (Topic::Nodes, Topic::Stats);
        let (first, second) = (SessionId(1), SessionId(2));
        world.peers.subscribe(second, &[Topic::Nodes, Topic::Nodes]);
        world.peers.subscribe(first, &[Topic::Nodes, Topic::Stats]);
        let peers = &world.peers;
        assert_eq!(world.told(peers.audience(&nodes, None)), [3, 4, 2, 1]);
        assert_eq!(world.told(peers.audience(&nodes, Some(second))), [3, 4, 1]);
        assert_eq!(world.told(peers.audience(&stats, None)), [3, 4, 1]);
        assert_eq!(
            world.told(peers.controllers_to_notify(Some(SessionId(3)))),
            [4]
        );
        assert_eq!(world.told(peers.subscribers_to_notify(&stats, None)), [1]);
        let is_outside = |id| peers.outside_audience(id, &stats).is_some();
        let outside = [1, 2, 3, 5].map(|id| is_outside(SessionId(id)));
        assert_eq!(outside, [false, true, false, false]);
        assert_eq!(peers.topics(), 3);
        world.peers.subscribe(first, &[]);
        assert_eq!(world.told(world.peers.audience(&nodes, None)), [3, 4, 2]);
        world.disconnect(2);
        assert_eq!(world.told(world.peers.audience(&nodes, None)), [3, 4]);
    }

    #[test]
    fn only_operators_wait_for_answers_and_none_does_after_it_has_left() {
        let mut world = World::new();
        world.connect(1, 1, Role::OPERATOR);
        world.connect(2, 2, Role::CONTROLLER);
        let instance = InstanceId::new("an instance");
        for id in [1, 2] {
            let expected = world
                .peers
                .expect_answer(SessionId(id), CommandName::Delete, &instance);
            assert_eq!(expected, Ok(()));
        }
        assert_eq!(world.peers.owner(SessionId(2)), Owner::Controllers);
        assert_eq!(
            world.peers.owner(SessionId(1)),
            Owner::Operator(Uuid::from_bytes([1; 16]))
        );
        assert_eq!(world.peers.answers(), 1);
        world.disconnect(1);
        assert_eq!(world.peers.take_asker(CommandName::Delete, &instance), None);
        assert_eq!(world.peers.owner(SessionId(1)), Owner::Controllers);
    }
}
