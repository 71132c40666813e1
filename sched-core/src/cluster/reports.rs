//! What changes a node itself: its connections, what it reports, and what operators and the policy say of it.
//!
//! Each method ends with the tables being up to date again. Who is notified of the change, and what becomes of the
//! instances on the node, is decided by `workflow::connections`, `workflow::reports` and `workflow::node_loss`, which call
//! these.

use core::net::SocketAddr;
use std::time::Instant;

use sched_model::{Role, Uuid};

use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::{Backlog, Departure, Dialect, Hello, NodeExtras, NodeReport};
use crate::api::known_node::KnownNode;
use crate::api::sent::{CommandName, ReportName};
use crate::api::text::ShortText;
use crate::cluster::node::{IsOther, Node, NodeStatus, Presence};
use crate::cluster::questions::Asker;
use crate::cluster::{Cluster, ClusterChange};

impl Cluster {
    /// A node that was not known: it enters the tables of its roles, and offers nothing before it reports. If it was
    /// cordoned before it connected, it is cordoned.
    pub(crate) fn add_node(
        &mut self,
        uuid: Uuid,
        roles: Role,
        session: SessionId,
        now: Instant,
        before: Option<&KnownNode>,
    ) -> NodeKey {
        let mut node = Node::new(uuid, roles, session, now, &self.config, self.measured());
        node.is_cordoned = self.is_cordoned(uuid);
        if let Some(before) = before {
            node.known_as = ShortText::new(&before.hostname);
            if !before.is_brief {
                node.first_known = None;
            }
        }
        let key = self.nodes.insert(node);
        self.enter_tables(key);
        key
    }

    /// A newer connection of a node that is still connected. Its slots stay; its unconfirmed STARTs are in doubt,
    /// because they may have been lost with the old connection, or be carried out by another machine with its UUID.
    pub(crate) fn replace_connection(
        &mut self,
        key: NodeKey,
        session: SessionId,
        hello: &Hello,
        now: Instant,
    ) {
        let node = self.nodes.node_mut(key);
        // Of a native launcher it is known with its first report which process it is.
        if hello.dialect == Dialect::Original {
            node.processes.replaced(node.address, hello.address, now);
        }
        let contested = now + self.config.in_doubt_time;
        node.ledger.put_in_doubt(now, Some(contested));
        node.attach(session, now);
        self.filling.swap_remove(&key);
        self.refresh_offer(key);
    }

    /// A lost node is back, perhaps with other roles. It enters the tables at their end, with the claims it had.
    pub(crate) fn return_node(
        &mut self,
        key: NodeKey,
        roles: Role,
        session: SessionId,
        now: Instant,
    ) {
        let node = self.nodes.node_mut(key);
        node.roles = roles;
        node.attach(session, now);
        self.enter_tables(key);
        self.refresh_offer(key);
    }

    /// Notes where a node's connection comes from, and whether its launcher understands what original launchers do not
    /// know.
    pub(crate) fn set_peer(&mut self, key: NodeKey, address: Option<SocketAddr>, is_native: bool) {
        let node = self.nodes.node_mut(key);
        node.address = address;
        node.is_native = is_native;
    }

    /// A node's connection has ended. It leaves the tables and keeps its claims; its unconfirmed STARTs are in doubt.
    /// Returns how many those are.
    pub(crate) fn lose_node(&mut self, key: NodeKey, departure: Departure, now: Instant) -> usize {
        self.leave_tables(key);
        self.filling.swap_remove(&key);
        self.full.swap_remove(&key);
        let until = now + self.config.in_doubt_time;
        let node = self.nodes.node_mut(key);
        node.presence = Presence::Lost(now);
        node.departure = departure;
        let contested = node.processes.are_two(now).then_some(until);
        node.ledger.put_in_doubt(now, contested)
    }

    /// Forgets a lost node, with its claims, its instances' placements and its members of groups. Its key must not be
    /// used after that.
    pub(crate) fn remove_node(&mut self, key: NodeKey) -> Option<Node> {
        self.tries.forget_on(key, |_| false);
        let relatives = self.nodes.relatives(key);
        let node = self.nodes.remove(key)?;
        self.full.swap_remove(&key);
        for (group, members) in node.ledger.memberships() {
            let labels = &node.traits.labels;
            self.groups
                .count(group, key, [None; 2], labels, members.negated());
        }
        for relative in relatives {
            self.refresh_offer(relative);
        }
        for (instance, _) in node.ledger.entries_from(0) {
            self.remove_placement(instance, key);
        }
        Some(node)
    }

    /// READY: what a node has now. It takes work from here on, unless it is cordoned or reports a fault. Only a report
    /// that changes what the node is, or that may make room for names left out before, derives its traits again.
    pub(crate) fn ready(&mut self, key: NodeKey, report: Box<NodeReport>, now: Instant) {
        let is_calmer = self.follows_load && {
            let before = self.nodes.node(key).report();
            before.is_some_and(|before| before.load > report.load)
        };
        let is_other = self.nodes.set_report(key, report);
        let node = self.nodes.node_mut(key);
        node.status = NodeStatus::Ready;
        node.is_evacuated = false;
        node.ledger.stop_counting_released();
        // There may be room by now for names that were left out.
        if is_other == IsOther::Yes || !node.left_out.is_empty() {
            self.refresh_traits(key, now);
        }
        self.notify_capacity(key);
        self.note_pressure(key);
        self.refresh_offer(key);
        if is_calmer {
            // Who waits for a calm node finds one by that alone.
            self.changes.push_back(ClusterChange::Capacity(key));
        }
    }

    /// It is sent a command to stop all that it has.
    pub(crate) fn note_evacuated(&mut self, key: NodeKey) {
        self.nodes.node_mut(key).is_evacuated = true;
    }

    /// A STATS came: its launcher is there.
    pub(crate) fn note_reported(&mut self, key: NodeKey, now: Instant) {
        self.nodes.node_mut(key).reported.note(now);
    }

    /// FULL, OFFLINE or MAINTENANCE: it takes no more work. From a FULL on, what is released is counted, so that the
    /// node may be tried again (`cluster::full`).
    pub(crate) fn set_status(&mut self, key: NodeKey, status: NodeStatus) {
        let node = self.nodes.node_mut(key);
        node.status = status;
        if status == NodeStatus::Full {
            node.ledger.count_released();
        } else {
            node.ledger.stop_counting_released();
        }
        self.refresh_offer(key);
    }

    /// Labels and the like that came without READY's figures, as in a native launcher's STATS.
    pub(crate) fn set_extras(&mut self, key: NodeKey, extras: Box<NodeExtras>, now: Instant) {
        if self.nodes.set_extras(key, extras) == IsOther::Yes {
            self.refresh_traits(key, now);
            self.notify_capacity(key);
            self.note_pressure(key);
            self.refresh_offer(key);
        }
    }

    /// A STATS came without labels and the like; whether the node is not short of memory any more by that.
    pub(crate) fn note_no_extras(&mut self, key: NodeKey) -> bool {
        let is_over = self.nodes.note_no_extras(key);
        if is_over {
            self.note_pressure(key);
            self.refresh_offer(key);
        }
        is_over
    }

    /// Notes that a node has listed what runs on it, for as long as the node is known.
    pub(crate) fn note_listed(&mut self, key: NodeKey) {
        if !std::mem::replace(&mut self.nodes.node_mut(key).has_listed, true) {
            // Members of groups wait for that, and instances that were on it before it was lost.
            self.changes.push_back(ClusterChange::Capacity(key));
        }
    }

    /// How many instances an original launcher has listed whose claims are not known; 0 if that was said on this
    /// connection before. So a warning appears once.
    pub(crate) fn take_unknown(&mut self, key: NodeKey) -> usize {
        let node = self.nodes.node_mut(key);
        if node.is_native || node.has_unknown {
            return 0;
        }
        let unknown = node.ledger.unknown();
        node.has_unknown = unknown > 0;
        unknown
    }

    /// How full a node's outgoing queue is. While it is filling or stalled, the tables do not offer the node.
    pub(crate) fn set_backlog(&mut self, key: NodeKey, backlog: Backlog) {
        self.nodes.node_mut(key).backlog = backlog;
        if backlog == Backlog::Filling {
            self.filling.insert(key);
        } else {
            self.filling.swap_remove(&key);
        }
        self.refresh_offer(key);
    }

    /// Notes that a node's lease was extended now. Returns when it was extended before on this connection.
    pub(crate) fn extend_lease(&mut self, key: NodeKey, now: Instant) -> Option<Instant> {
        self.nodes.node_mut(key).leased_at.replace(now)
    }

    /// Notes the change that must be on disk before a node's lease is extended.
    pub(crate) fn set_lease_ticket(&mut self, key: NodeKey, ticket: u64) {
        self.nodes.node_mut(key).lease_ticket = ticket;
    }

    /// Notes that a node is asked something about an instance of another.
    pub(crate) fn note_question(
        &mut self,
        key: NodeKey,
        instance: InstanceId,
        command: CommandName,
        asker: Asker,
    ) {
        let questions = &mut self.nodes.node_mut(key).questions;
        questions.ask(instance, command, asker);
    }

    /// Who asked a node the question that this report answers; `None` where no question is open. The question is closed
    /// by it.
    pub(crate) fn question_answered(
        &mut self,
        key: NodeKey,
        instance: &InstanceId,
        answer: ReportName,
    ) -> Option<(CommandName, Asker)> {
        self.nodes
            .node_mut(key)
            .questions
            .answered(instance, answer)
    }
}
