//! Lost nodes stay known: listed until they return or an operator forgets them, over restarts of the scheduler as well.

use std::time::Instant;

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::action::{Action, Notice};
use crate::api::config::LOST_TIME;
use crate::api::ids::NodeKey;
use crate::api::input::Departure;
use crate::api::known_node::KnownNode;
use crate::cluster::node::{Node, Presence};
use crate::peers::session::Session;

impl Scheduler {
    /// All nodes known: connected, lost, and expected back after a restart, in no particular order.
    #[must_use]
    pub fn known_nodes(&self) -> Vec<KnownNode> {
        let present = self.cluster.nodes_from(0);
        let present = present.map(|(_, node)| KnownNode {
            instances: 0,
            ..known(node)
        });
        let absent = self.cluster.absent_from(Uuid::nil()).cloned();
        present.chain(absent).collect()
    }

    /// Takes over the nodes that the process before this one knew, from the state directory.
    pub(crate) fn restore_known_nodes(&mut self, nodes: Vec<KnownNode>) {
        for node in nodes {
            self.cluster.note_absent(node);
        }
    }

    /// Logs the end of a node's connection: that it left in order, or that it is lost.
    pub(crate) fn note_departure(&mut self, key: NodeKey, session: &Session, departure: Departure) {
        match departure {
            Departure::Closed => self.notice(Notice::Left(session.uuid(), session.role())),
            Departure::Broken => {
                let node = known(self.cluster.node(key));
                self.notice(Notice::NodeLost(Box::new(node)));
            }
        }
    }

    /// A lost node leaves the store because its in-doubt time is over. It stays in lists as absent, unless its launcher
    /// left in order, or it has never reported what it has, and nothing was on it: then it is forgotten. One that was
    /// lost soon after it was first known, with nothing on it, is forgotten [`LOST_TIME`] later.
    pub(crate) fn remember_lost(&mut self, node: &Node) {
        let uuid = node.uuid();
        let managed = self.instances.lost_count(uuid);
        let has_nothing = node.ledger().len() == 0 && managed == 0;
        let has_said_nothing = node.report().is_none() && node.first_known().is_some();
        if has_nothing && (node.departure() == Departure::Closed || has_said_nothing) {
            self.node_is_gone(uuid);
            return;
        }
        let Presence::Lost(since) = node.presence() else {
            return;
        };
        let first_known = node.first_known();
        let is_new = first_known.is_some_and(|first| since < first + LOST_TIME);
        let known = KnownNode {
            lost_since_ms: Some(self.clock.unix_ms(since)),
            instances: (node.ledger().len() + managed) as u64,
            is_brief: has_nothing && is_new && !self.cluster.is_cordoned(uuid),
            ..known(node)
        };
        self.notice(Notice::NodeGivenUp(Box::new(known.clone())));
        self.note_absent(known);
    }

    /// The recovery window is over: nodes that were expected back after the restart and have not come count as lost
    /// from this moment on.
    pub(crate) fn lose_expected_nodes(&mut self) {
        let expected: Vec<KnownNode> = self
            .cluster
            .absent_from(Uuid::nil())
            .filter(|node| node.lost_since_ms.is_none())
            .cloned()
            .collect();
        for node in expected {
            self.notice(Notice::NodeNotBack(Box::new(node.clone())));
            self.note_absent(KnownNode {
                lost_since_ms: Some(self.clock.unix_ms(self.now)),
                ..node
            });
        }
    }

    /// When the next of the lost nodes is to be forgotten that were known only briefly.
    pub(crate) fn brief_due(&self) -> Option<Instant> {
        let since_ms = self.cluster.first_brief()?;
        Some(self.clock.instant_of(since_ms) + LOST_TIME)
    }

    /// Forgets lost nodes that were known only briefly, once their time is over.
    pub(crate) fn forget_brief(&mut self) {
        while self.brief_due().is_some_and(|due| due <= self.now)
            && let Some(node) = self.cluster.forget_first_brief()
        {
            self.uncordon(node.uuid);
            self.node_is_gone(node.uuid);
            self.notice(Notice::NodeForgotten(Box::new(node)));
            self.act(Action::RememberNodes);
        }
    }

    /// Puts a node among the absent ones, and logs the one that was forgotten to make room.
    fn note_absent(&mut self, node: KnownNode) {
        if let Some(forgotten) = self.cluster.note_absent(node) {
            self.node_is_gone(forgotten.uuid);
            self.notice(Notice::NodeForgotten(Box::new(forgotten)));
        }
    }

    /// The history of ends has a gap up to this moment, as a node's numbers say; also after the next restart.
    pub(crate) fn note_missing_ends(&mut self, node: Uuid, until: Instant) {
        self.instances.note_gap(until);
        self.journal
            .note_missing_ends(node, self.clock.unix_ms(until));
    }

    /// A node is no longer known: it has left in order and empty, or was forgotten. Its report is not waited for any
    /// more; if it was, what ended on it may never have been told here.
    pub(crate) fn node_is_gone(&mut self, node: Uuid) {
        if self.journal.node_is_gone(node) {
            self.note_missing_ends(node, self.now);
        }
    }
}

/// What is remembered of a node beyond its connection.
fn known(node: &Node) -> KnownNode {
    KnownNode {
        uuid: node.uuid(),
        roles: node.roles(),
        hostname: node.hostname().into(),
        address: node.address(),
        instances: node.ledger().len() as u64,
        lost_since_ms: None,
        is_brief: false,
    }
}
