//! A node: what it reported, what is claimed on it, and so what it still offers.
//!
//! Its fields are private to `cluster` and are changed by `inventory` and `reports` alone, which keep tables and
//! indexes in step. Fields that say "on this connection" are reset when it connects again (`Node::attach`). The store
//! of all nodes is in `nodes`.

use core::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use sched_model::{Role, Uuid};

use crate::api::config::{Config, MAX_INSTANCES_PER_NODE};
use crate::api::ids::SessionId;
use crate::api::input::{Backlog, Capabilities, Departure, NodeReport};
use crate::api::resources::Resources;
use crate::api::rules::OfferRules;
use crate::api::start::StartRequest;
use crate::api::text::ShortText;
use crate::cluster::advice::Advised;
use crate::cluster::failures::Failures;
use crate::cluster::index::ColumnId;
use crate::cluster::ledger::{Claims, Ledger, Measured};
use crate::cluster::processes::Processes;
use crate::cluster::questions::Questions;
use crate::cluster::reported::Reported;
use crate::cluster::room::Room;
use crate::cluster::table::Slot;
use crate::cluster::traits::Traits;

/// Nodes that may share the resources of one: each change of one of them is a change of all. Far more than a machine
/// has NUMA nodes.
pub const MAX_PARTS: usize = 32;

/// Volumes and ports that one node reports: each is kept, and every change of one is an update of the search index.
pub const MAX_VOLUMES_PER_NODE: usize = 1024;

/// The two tables of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pool {
    /// Nodes with role AGENT.
    Compute,
    /// Nodes with role NETAGENT.
    Network,
}

impl Pool {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Compute, Self::Network];

    /// The table a request is for.
    pub(crate) fn of(request: &StartRequest) -> Self {
        if request.network_node {
            Self::Network
        } else {
            Self::Compute
        }
    }

    /// The role a node of this table has.
    pub(crate) fn role(self) -> Role {
        match self {
            Self::Compute => Role::AGENT,
            Self::Network => Role::NETAGENT,
        }
    }
}

/// What a node last said of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeStatus {
    /// Connected, and has said nothing yet.
    Connected,
    /// Takes work.
    Ready,
    /// Has no room.
    Full,
    /// Is going away.
    Offline,
    /// Is evacuated.
    Maintenance,
}

impl NodeStatus {
    /// Its name in logs and queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Connected => "CONNECTED",
            Self::Ready => "READY",
            Self::Full => "FULL",
            Self::Offline => "OFFLINE",
            Self::Maintenance => "MAINTENANCE",
        }
    }
}

/// Whether a node is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Over this connection.
    Connected(SessionId),
    /// Its connection ended at this moment; its claims are kept for the in-doubt time.
    Lost(Instant),
}

/// Whether a report makes a node a different one, as far as labels, names and capacity go: then its traits are derived
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IsOther {
    /// Something else than figures has changed.
    Yes,
    /// Only its figures have changed.
    No,
}

impl IsOther {
    pub(super) fn new(is_other: bool) -> Self {
        if is_other { Self::Yes } else { Self::No }
    }
}

/// One node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(super) uuid: Uuid,
    pub(super) roles: Role,
    /// Whether its launcher understands what original launchers do not know.
    pub(super) is_native: bool,
    pub(super) presence: Presence,
    pub(super) since: Instant,
    /// When it last reported on this connection.
    pub(super) reported: Reported,
    /// Where its latest connection came from; empty before.
    pub(super) address: Option<SocketAddr>,
    /// The processes of launchers that have reported for it.
    pub(super) processes: Processes,
    /// How its latest connection ended, once one has.
    pub(super) departure: Departure,
    pub(super) status: NodeStatus,
    pub(super) backlog: Backlog,
    pub(super) report: Option<Arc<NodeReport>>,
    /// Whether it has sent labels or the like on this connection; later reports that do not mention them leave them as
    /// they are.
    pub(super) has_extras: bool,
    /// Whether some of them came in a STATS on this connection. Where they did, a STATS without any says something: that
    /// the node is not short of memory any more, if it had said that alone.
    pub(super) has_extras_in_stats: bool,
    /// Labels, custom resources and ratios, from its reports and the configuration.
    pub(super) traits: Traits,
    /// What room it has, from its report and its limits.
    pub(super) room: Room,
    /// Custom resources that it reports and that do not count, because there are too many names.
    pub(super) left_out: Vec<Box<str>>,
    /// Which messages about reports that do not count its launcher was sent on this connection.
    pub(super) advised: Advised,
    /// The rules for admitting STARTs that its launcher was sent on this connection.
    pub(super) told: Option<OfferRules>,
    /// Whether it was short of memory by the report before.
    pub(super) was_short_of_memory: bool,
    /// When an instance was last moved away because it was short of memory, or none could be.
    pub(super) relieved_at: Option<Instant>,
    /// The claims on it.
    pub(super) ledger: Ledger,
    /// Commands that it was sent about instances placed elsewhere.
    pub(super) questions: Questions,
    /// How often STARTs failed there recently.
    pub(super) failures: Failures,
    /// When it last had its lease extended on this connection.
    pub(super) leased_at: Option<Instant>,
    /// The change that must be on disk before its lease is extended; 0 = none.
    pub(super) lease_ticket: u64,
    /// The host name that is remembered from before it was lost; empty where there is none.
    pub(super) known_as: ShortText,
    /// When this process first knew of it; `None` where it was known before.
    pub(super) first_known: Option<Instant>,
    /// Whether it ever listed what runs on it: before, it may have instances that are not known.
    pub(super) has_listed: bool,
    /// Whether a warning was given on this connection that claims on it are not known.
    pub(super) has_unknown: bool,
    /// Whether it is cordoned; a copy of what `cordons` has.
    pub(super) is_cordoned: bool,
    /// Whether it was sent a command to stop all that it has, and has not been READY since.
    pub(super) is_evacuated: bool,
    /// STARTs given to it on this connection.
    pub(super) starts_sent: u64,
    /// What it offered outside the tables when that was computed last (`NodeStore::last_resort`).
    pub(super) last_resort: Resources,
    /// The vcpus that were free on it then, whether or not it takes work: what it has suspended waits for those alone.
    pub(super) free_vcpus: i64,
    /// Larger than that of any node before, whenever it has changed in what it is.
    pub(super) generation: u64,
    /// Its slots in the compute and the network table.
    pub(super) slots: [Option<Slot>; 2],
}

impl Node {
    /// A node that has just connected.
    pub(super) fn new(
        uuid: Uuid,
        roles: Role,
        session: SessionId,
        now: Instant,
        config: &Config,
        measured: Measured,
    ) -> Self {
        Self {
            uuid,
            roles,
            is_native: false,
            presence: Presence::Connected(session),
            since: now,
            reported: Reported::new(now),
            address: None,
            processes: Processes::default(),
            departure: Departure::Broken,
            status: NodeStatus::Connected,
            backlog: Backlog::Clear,
            report: None,
            has_extras: false,
            has_extras_in_stats: false,
            traits: Traits::new(config),
            room: Room::UNKNOWN,
            left_out: Vec::new(),
            advised: Advised::default(),
            told: None,
            was_short_of_memory: false,
            relieved_at: None,
            failures: Failures::new(now),
            leased_at: None,
            lease_ticket: 0,
            has_listed: false,
            known_as: ShortText::default(),
            first_known: Some(now),
            has_unknown: false,
            is_cordoned: false,
            is_evacuated: false,
            ledger: Ledger::new(measured),
            questions: Questions::default(),
            starts_sent: 0,
            last_resort: Resources::NEVER,
            free_vcpus: i64::MIN,
            generation: 0,
            slots: [None; 2],
        }
    }

    /// Starts a new connection of this node: nothing is placed there until it reports, and what its launcher was sent
    /// or said about itself on the old connection is forgotten. Claims, labels and its latest report stay.
    pub(super) fn attach(&mut self, session: SessionId, now: Instant) {
        self.presence = Presence::Connected(session);
        self.since = now;
        self.reported = Reported::new(now);
        self.status = NodeStatus::Connected;
        self.ledger.stop_counting_released();
        self.backlog = Backlog::Clear;
        self.free_vcpus = i64::MIN;
        self.starts_sent = 0;
        self.leased_at = None;
        self.advised = Advised::default();
        self.told = None;
        self.has_extras = false;
        self.has_extras_in_stats = false;
        self.has_unknown = false;
    }

    /// Its UUID.
    #[inline]
    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The roles it connected with.
    #[inline]
    pub(crate) fn roles(&self) -> Role {
        self.roles
    }

    /// Whether its launcher can be sent what the original's do not know.
    #[inline]
    pub(crate) fn is_native(&self) -> bool {
        self.is_native
    }

    /// Whether it is there.
    #[inline]
    pub(crate) fn presence(&self) -> Presence {
        self.presence
    }

    /// When its connection began.
    #[inline]
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// When it last reported on this connection.
    pub(crate) fn reported(&self) -> &Reported {
        &self.reported
    }

    /// What it last said of itself.
    #[inline]
    pub(crate) fn status(&self) -> NodeStatus {
        self.status
    }

    /// How much is queued for it.
    #[inline]
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Its latest report, if there was any.
    #[inline]
    pub(crate) fn report(&self) -> Option<&NodeReport> {
        self.report.as_deref()
    }

    /// Labels, custom resources and ratios, from its reports and the configuration.
    #[inline]
    pub(crate) fn traits(&self) -> &Traits {
        &self.traits
    }

    /// Custom resources that it reports and that do not count.
    #[inline]
    pub(crate) fn left_out(&self) -> &[Box<str>] {
        &self.left_out
    }

    /// The claims on it.
    #[inline]
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// How often it failed recently.
    #[inline]
    pub(crate) fn failures(&self) -> &Failures {
        &self.failures
    }

    /// When it last had its lease extended on this connection.
    #[inline]
    pub(crate) fn leased_at(&self) -> Option<Instant> {
        self.leased_at
    }

    /// The change that must be on disk before its lease is extended; 0 = none.
    #[inline]
    pub(crate) fn lease_ticket(&self) -> u64 {
        self.lease_ticket
    }

    /// Whether it ever said what runs on it: before, it may have instances that no one here knows of.
    #[inline]
    pub(crate) fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Whether it gets no new work, because somebody said so.
    #[inline]
    pub(crate) fn is_cordoned(&self) -> bool {
        self.is_cordoned
    }

    /// Whether what ends on it does so because it is evacuated.
    pub(crate) fn is_evacuated(&self) -> bool {
        self.is_evacuated || self.status == NodeStatus::Maintenance
    }

    /// STARTs given to it on this connection.
    #[inline]
    pub(crate) fn starts_sent(&self) -> u64 {
        self.starts_sent
    }

    /// Its slots in the compute and the network table.
    #[inline]
    pub(crate) fn slots(&self) -> [Option<Slot>; 2] {
        self.slots
    }

    /// A number that was larger than all before when it last became another node.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// When an instance was last moved away for want of memory, or none could be.
    pub(crate) fn relieved_at(&self) -> Option<Instant> {
        self.relieved_at
    }

    /// Where its latest connection came from.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// How its latest connection ended, once it has.
    pub(crate) fn departure(&self) -> Departure {
        self.departure
    }

    /// The connection, if there is one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        match self.presence {
            Presence::Connected(session) => Some(session),
            Presence::Lost(_) => None,
        }
    }

    /// The host name it reported; before that the one that it had when it was last connected, or none.
    pub(crate) fn hostname(&self) -> &str {
        let report = self.report.as_ref();
        report.map_or(&self.known_as, |report| &report.hostname)
    }

    /// When this process first knew of it; `None` where it was known before.
    pub(crate) fn first_known(&self) -> Option<Instant> {
        self.first_known
    }

    /// The same, to be kept elsewhere.
    pub(crate) fn hostname_text(&self) -> ShortText {
        let report = self.report.as_ref();
        report.map_or_else(|| self.known_as.clone(), |report| report.hostname.clone())
    }

    /// What is free on it with these claims, whether or not it takes work.
    #[inline]
    pub(super) fn free(&self, claims: &Claims) -> Resources {
        self.room.free(claims)
    }

    /// What it could offer if nothing ran on it: what it has, less what is reserved, scaled. Figures it does not report
    /// are -1.
    pub(crate) fn capacity(&self) -> Resources {
        self.room.capacity
    }

    /// Works out again what room it has; after every change of its report or of its limits.
    pub(super) fn measure_room(&mut self) {
        self.room = self.measured_room();
    }

    /// What room it has, from scratch.
    pub(super) fn measured_room(&self) -> Room {
        Room::new(self.report.as_deref(), &self.traits.limits)
    }

    /// Whether its launcher said on this connection that it can do all of this.
    pub(crate) fn can(&self, what: Capabilities) -> bool {
        self.capabilities().contains(what)
    }

    /// What its launcher said on this connection that it can do.
    pub(crate) fn capabilities(&self) -> Capabilities {
        match (&self.report, self.has_extras && self.is_native) {
            (Some(report), true) => report
                .extras
                .as_ref()
                .map_or_else(Capabilities::default, |extras| extras.capabilities),
            _ => Capabilities::default(),
        }
    }

    /// Why it takes no work although it may have room, as its launcher says.
    pub(crate) fn fault(&self) -> Option<&ShortText> {
        let extras = self.report.as_ref()?.extras.as_ref()?;
        extras.fault.as_ref().filter(|_| self.has_extras)
    }

    /// Whether it takes no work because it is short of memory.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let extras = self.report.as_ref().and_then(|it| it.extras.as_ref());
        self.has_extras
            && self.session().is_some()
            && extras.is_some_and(|it| it.is_short_of_memory)
    }

    /// How much of a custom resource it has in all.
    pub(crate) fn custom_total(&self, column: ColumnId) -> i64 {
        amount_of(&self.traits.resources, column)
    }

    /// Whether it is connected, READY, not cordoned and without a fault, and its ledger has room for one more instance.
    pub(crate) fn takes_work(&self) -> bool {
        self.session().is_some()
            && !self.is_cordoned
            && self.status == NodeStatus::Ready
            && self.fault().is_none()
            && self.ledger.len() < MAX_INSTANCES_PER_NODE
    }

    /// Whether the tables offer it: it takes work, and its outgoing queue is clear.
    pub(crate) fn is_on_offer(&self) -> bool {
        self.takes_work() && self.backlog == Backlog::Clear
    }

    /// Whether it could be offered once some of what it runs has left, so that preemption there makes sense: it is on
    /// offer, or only FULL keeps it from being.
    pub(crate) fn may_make_room(&self) -> bool {
        let is_full = self.status == NodeStatus::Full;
        self.is_on_offer()
            || is_full
                && self.fault().is_none()
                && self.session().is_some()
                && !self.is_cordoned
                && self.backlog == Backlog::Clear
                && self.ledger.len() < MAX_INSTANCES_PER_NODE
    }
}

/// The amount of one custom resource among amounts in order.
pub(super) fn amount_of(amounts: &[(ColumnId, i64)], column: ColumnId) -> i64 {
    match amounts.binary_search_by_key(&column, |(column, _)| *column) {
        Ok(at) => amounts[at].1,
        Err(_) => 0,
    }
}
