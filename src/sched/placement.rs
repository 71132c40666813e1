//! A START finds its node: the choice, the claim in the same step, and what is said when nothing fits.

use std::time::Instant;

use proto_frames::payload::{InstancePlaced, StartFailure, StartFailureReason, Topic};

use super::Scheduler;
use super::action::{Message, Notice, PlacedStart};
use super::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use super::input::StartRequest;
use super::ledger::{Entry, Phase, Unconfirmed};
use super::node::{Node, Pool};
use super::table::{Slot, Table};

/// Why a START was not placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No node fits.
    NoRoom,
    /// A DELETE came before it was written to any node.
    Undone,
    /// Its node was lost, or denies having it.
    Lost,
}

impl Scheduler {
    pub(super) fn start(&mut self, now: Instant, start: PlacedStart) {
        self.counters.starts += 1;
        self.place(now, start);
    }

    /// Gives a START to the node that has its instance, else to one that fits; else it waits or fails.
    pub(super) fn place(&mut self, now: Instant, start: PlacedStart) {
        let instance = &start.request.instance;
        if let Some(&holder) = self.holders.get(instance) {
            return self.repeat(holder, start);
        }
        if self.settling.len() > 0
            && let Some(earlier) = self.settling.take_instance(instance)
        {
            // The same START again while the first one waits: the newer takes its place.
            drop(earlier);
        }
        match self.choose(&start.request) {
            Some(key) => self.claim(now, key, start),
            None => self.hold_or_fail(start),
        }
    }

    /// The node for a request, by the original's first fit, not most recently used; it becomes the most recently used.
    fn choose(&mut self, request: &StartRequest) -> Option<NodeKey> {
        let pool = pool_of(request);
        let table = &self.tables[pool as usize];
        let slot = if request.node_id.is_some() || request.hostname.is_some() {
            table.first_in_order(self.named_that_fit(request, pool))
        } else {
            table.first_fit(&request.asked)
        };
        let slot = slot.or_else(|| table.first_in_order(self.filling_that_fit(request, pool)))?;
        let table = &mut self.tables[pool as usize];
        table.touch(slot);
        table.node(slot)
    }

    /// The nodes of a table that a request names.
    pub(super) fn named_nodes(&self, request: &StartRequest, pool: Pool) -> Vec<NodeKey> {
        let by_id = request
            .node_id
            .as_deref()
            .map(|id| canonical_uuid(id).and_then(|uuid| self.nodes.by_uuid(uuid)));
        let mut keys: Vec<NodeKey> = match (by_id, request.hostname.as_deref()) {
            (Some(key), _) => key.into_iter().collect(),
            (None, Some(hostname)) => self.nodes.by_hostname(hostname).to_vec(),
            (None, None) => Vec::new(),
        };
        keys.retain(|&key| {
            let node = self.nodes.node(key);
            node.slots[pool as usize].is_some() && is_named(node, request)
        });
        keys
    }

    /// The slots of nodes that a request names and that fit it.
    fn named_that_fit<'a>(
        &'a self,
        request: &'a StartRequest,
        pool: Pool,
    ) -> impl Iterator<Item = Slot> + 'a {
        let table: &Table = &self.tables[pool as usize];
        self.named_nodes(request, pool)
            .into_iter()
            .filter_map(move |key| self.nodes.node(key).slots[pool as usize])
            .filter(|&slot| table.offer(slot).covers(&request.asked))
    }

    /// The slots of nodes whose queues are filling and that would fit otherwise: the sender is slowed down by its own
    /// budget of queued bytes rather than told that there is no room.
    fn filling_that_fit<'a>(
        &'a self,
        request: &'a StartRequest,
        pool: Pool,
    ) -> impl Iterator<Item = Slot> + 'a {
        self.filling
            .iter()
            .map(|&key| self.nodes.node(key))
            .filter(|node| node.takes_work() && is_named(node, request))
            .filter(|node| node.free(&self.config).covers(&request.asked))
            .filter_map(move |node| node.slots[pool as usize])
    }

    fn claim(&mut self, now: Instant, key: NodeKey, start: PlacedStart) {
        let node = self.nodes.node_mut(key);
        node.starts_sent += 1;
        let unconfirmed = Unconfirmed {
            sender: start.sender,
            ordinal: node.starts_sent,
            restart: start.request.restart,
        };
        let entry = Entry::placed(start.request.asked, now, unconfirmed);
        node.ledger.insert(start.request.instance.clone(), entry);
        self.holders.insert(start.request.instance.clone(), key);
        self.refresh_offer(key);
        self.hand_over(key, start);
    }

    /// A START of an instance that lives already goes to its node, which knows best how to answer.
    fn repeat(&mut self, holder: NodeKey, start: PlacedStart) {
        let node = self.nodes.node_mut(holder);
        let instance = &start.request.instance;
        let (sender, restart) = (start.sender, start.request.restart);
        if node.session().is_none() {
            // The node is lost: this START shares the doubt about the instance.
            let unconfirmed = Unconfirmed {
                sender,
                ordinal: 0,
                restart,
            };
            node.ledger.set_phase(instance, Phase::InDoubt(unconfirmed));
            return;
        }
        node.starts_sent += 1;
        let unconfirmed = Unconfirmed {
            sender,
            ordinal: node.starts_sent,
            restart,
        };
        if node
            .ledger
            .get(instance)
            .is_some_and(|entry| entry.phase == Phase::Running)
        {
            node.ledger.note_repeated(instance, unconfirmed);
        } else {
            node.ledger.set_phase(instance, Phase::Placed(unconfirmed));
        }
        self.hand_over(holder, start);
    }

    fn hand_over(&mut self, key: NodeKey, start: PlacedStart) {
        self.counters.placed += 1;
        let node = self.nodes.node(key);
        let Some(session) = node.session() else {
            return;
        };
        self.notice(Notice::Placed(start.request.instance.clone(), node.uuid));
        if !self.watchers.is_empty() {
            self.tell_placement(key, &start.request.instance);
        }
        self.send(session, Message::Start(Box::new(start)));
    }

    fn tell_placement(&mut self, key: NodeKey, instance: &InstanceId) {
        let node = self.nodes.node(key);
        let event = InstancePlaced {
            instance_uuid: instance.to_string(),
            node_uuid: node.uuid.to_string(),
            hostname: node.hostname().to_owned(),
        };
        self.tell_watchers(Topic::Placements, None, |_| {
            Some(Message::InstancePlaced(event.clone()))
        });
    }

    fn hold_or_fail(&mut self, start: PlacedStart) {
        match self.settling.hold(start) {
            Ok(instance) => self.notice(Notice::Settling(instance)),
            Err(start) => self.fail_start(&start, Refusal::NoRoom),
        }
    }

    /// Tries some of the STARTs that wait in the settle window again; once it has closed, what does not fit fails.
    pub(super) fn retry_settling(&mut self, now: Instant, attempts: usize) {
        for _ in 0..attempts.min(self.settling.len()) {
            let Some(start) = self.settling.take() else {
                return;
            };
            if let Some(&holder) = self.holders.get(&start.request.instance) {
                // A node has come back with it.
                self.repeat(holder, start);
                continue;
            }
            match self.choose(&start.request) {
                Some(key) => self.claim(now, key, start),
                None if self.settling.is_open() => self.settling.put_back(start),
                None => self.fail_start(&start, Refusal::NoRoom),
            }
        }
    }

    pub(super) fn fail_start(&mut self, start: &PlacedStart, refusal: Refusal) {
        let request = &start.request;
        let detail = match refusal {
            Refusal::NoRoom => self.why_not(request),
            Refusal::Undone | Refusal::Lost => refusal.detail().to_owned(),
        };
        let network = request.network_node;
        let reason = match refusal {
            Refusal::NoRoom if network => StartFailureReason::NoNetworkNodes,
            Refusal::NoRoom if self.tables[Pool::Compute as usize].len() == 0 => {
                StartFailureReason::NoComputeNodes
            }
            Refusal::NoRoom => StartFailureReason::FullCloud,
            Refusal::Undone | Refusal::Lost => StartFailureReason::LaunchFailure,
        };
        self.answer_start(
            start.sender,
            &request.instance,
            reason,
            request.restart,
            detail,
        );
    }

    /// Fails a START whose payload is gone: it was written to its node.
    pub(super) fn fail_unconfirmed(&mut self, instance: &InstanceId, start: Unconfirmed) {
        let detail = Refusal::Lost.detail().to_owned();
        self.answer_start(
            start.sender,
            instance,
            StartFailureReason::LaunchFailure,
            start.restart,
            detail,
        );
    }

    /// Sends a StartFailure to the sender of a START, or to all controllers if it has left.
    pub(super) fn answer_start(
        &mut self,
        sender: SessionId,
        instance: &InstanceId,
        reason: StartFailureReason,
        restart: bool,
        detail: String,
    ) {
        self.counters.failed += 1;
        self.notice(Notice::Failed(
            instance.clone(),
            format!("{reason}: {detail}"),
        ));
        let failure = StartFailure {
            node_uuid: String::new(),
            instance_uuid: instance.to_string(),
            reason,
            restart,
            detail: Some(detail),
            ..StartFailure::default()
        };
        let plain = StartFailure {
            detail: None,
            ..failure.clone()
        };
        let worded = |native: bool| {
            Message::StartFailure(if native {
                failure.clone()
            } else {
                plain.clone()
            })
        };
        match self.sessions.get(&sender) {
            Some(session) => {
                let message = worded(session.is_native());
                self.send(sender, message);
                self.tell_watchers(Topic::Failures, Some(sender), |_| Some(worded(true)));
            }
            None => {
                self.tell_controllers(Topic::Failures, |session| Some(worded(session.is_native())))
            }
        }
    }

    /// Takes an instance's entry out of a node's ledger.
    pub(super) fn release(&mut self, key: NodeKey, instance: &InstanceId) -> Option<Entry> {
        let entry = self.nodes.node_mut(key).ledger.release(instance)?;
        if self.holders.get(instance) == Some(&key) {
            self.holders.swap_remove(instance);
        }
        self.refresh_offer(key);
        Some(entry)
    }
}

impl Refusal {
    fn detail(self) -> &'static str {
        match self {
            Self::NoRoom => "no node fits",
            Self::Undone => "deleted before any node was told of it",
            Self::Lost => "its node is lost or does not have it",
        }
    }
}

/// The table a request is for.
pub(super) fn pool_of(request: &StartRequest) -> Pool {
    if request.network_node {
        Pool::Network
    } else {
        Pool::Compute
    }
}

/// Whether a node is one that the request's `node_id` and `hostname` allow.
pub(super) fn is_named(node: &Node, request: &StartRequest) -> bool {
    let id_fits = request
        .node_id
        .as_deref()
        .is_none_or(|id| canonical_uuid(id) == Some(node.uuid));
    id_fits
        && request
            .hostname
            .as_deref()
            .is_none_or(|hostname| hostname == node.hostname())
}
