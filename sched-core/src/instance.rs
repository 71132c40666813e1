//! Instances that are managed: those that may be placed again, wait, are suspended or move. What is known of each,
//! and its state; the table of all of them is in `table`, what brings one state to the next in `care`.
//!
//! A plain START is not here: it leaves nothing behind but its entry in its node's ledger. An instance is kept here if
//! its START asked for something that may place it again, or the policy may, or somebody suspended or moved it.
//!
//! ```text
//!            START fits                        STATS lists it
//! (START) ───────────────▶ Placing ─────────────────────────────▶ Running ◀──────────┐
//!    │                      ▲   │ refused, lost: next node          │ │ │            │
//!    │ nothing fits     room│   │                                   │ │ │ SUSPEND    │ confirmed
//!    ▼                      │   ▼        evicted                    │ │ ▼            │
//! Waiting ──────────────────┘  Waiting ◀──── Stopping ◀─────────────┤ │ Suspending   Resuming
//!    │ deadline, DELETE                          ▲     DELETE, stop │ │   │            ▲
//!    ▼                                           │                  │ │   ▼   RESUME   │
//!  (gone)                     DELETE             └──────────────────┤ └▶ Suspended ────┘
//!                                                                   │
//!                     Migrating (claimed on the target, ◀───────────┘
//!                     stops on the source, then Placing there)
//!
//! Running, Placing, Suspended, … ── its node is lost ──▶ Lost ── back and listed ──▶ Running
//!                                                         └── lease over ──▶ Waiting
//! ```

pub(crate) mod history;
pub(crate) mod lifecycle;
pub(crate) mod machine;
mod names;
mod outputs;
mod past;
mod size;
mod state;
mod table;
pub(crate) mod tried;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use crate::api::action::PlacedStart;
use crate::api::cause::Cause;
use crate::api::ids::{NodeKey, SessionId};
use crate::api::input::StartRequest;
use crate::api::record::Demand;
use crate::cluster::ledger::Ended;
use crate::instance::tried::{AllTried, Tried};

pub use self::history::MAX_HISTORY_BYTES;
pub(crate) use self::history::{History, HistoryEvent};
pub use self::lifecycle::{Row, TRANSITIONS};
pub(crate) use self::machine::{Before, Effects, LifecycleEvent, Loss};
pub(crate) use self::names::InstanceInfo;
pub use self::names::MAX_NAMED;
pub use self::outputs::MAX_OUTPUTS;
pub(crate) use self::outputs::Output;
pub use self::past::MAX_PAST_BYTES;
pub(crate) use self::past::Run;
pub use self::size::{MAX_MANAGED_BYTES, MAX_MANAGED_BYTES_OF_OPERATORS};
pub(crate) use self::state::{
    AfterLoss, AfterStop, Awaits, DemandChange, LateEffects, Move, MoveRequest, Placing, State,
    SuspendedBy, Transit,
};
pub(crate) use self::table::Instances;

/// Priority of what does not say any.
pub(crate) const DEFAULT_PRIORITY: u8 = 50;

/// One instance that is managed.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Its START, as it came, with who sent it; `None` where no one here started it, or it cannot be placed again.
    start: Option<Box<PlacedStart>>,
    /// How urgent it is, 0 to 100, higher first.
    priority: u8,
    /// How far it is: changed by [`Instances::on`] alone.
    state: State,
    /// Its place among those of its priority: counts arrivals.
    order: u64,
    /// When it came.
    arrived: Instant,
    /// Until when it waits for room at first; `None` = not at all. What once ran waits for as long as it takes.
    waits_until: Option<Instant>,
    /// How many nodes it may be tried on for one START.
    max_attempts: u32,
    /// Nodes that could not start it, since it last ran.
    tried: AllTried,
    /// Whether it may be moved to another node.
    relocates: bool,
    /// What becomes of it when its node is lost.
    on_loss: OnLoss,
    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    has_run: bool,
    /// The node it had last, to be preferred when it is placed again.
    last_node: Option<Uuid>,
    /// The lease of the node it had last: its launcher stops it within that time when it is cut off.
    lease: Option<Duration>,
    /// What became of it so far, oldest first.
    history: History,
    /// Which change of state was its last: what was to be done about an earlier one is then not done.
    epoch: u64,
    /// Whether an operator sent its START, rather than a controller.
    is_operators: bool,
    /// Bytes that are counted for it.
    counted: usize,
}

/// What the START of an instance asks of the scheduler.
#[derive(Debug)]
pub(crate) struct Terms {
    /// The START, where it may be placed again.
    pub(crate) start: Option<Box<PlacedStart>>,
    /// How urgent it is; `None` = [`DEFAULT_PRIORITY`].
    pub(crate) priority: Option<u8>,
    /// Until when it waits for room at first; `None` = not at all.
    pub(crate) waits_until: Option<Instant>,
    /// How many nodes it may be tried on.
    pub(crate) max_attempts: u32,
    /// Whether it may be moved to another node.
    pub(crate) relocates: bool,
    /// What becomes of it when its node is lost.
    pub(crate) on_loss: OnLoss,
    /// Whether an operator sent it.
    pub(crate) is_operators: bool,
}

/// What became of an instance before the scheduler was started.
#[derive(Debug)]
pub(crate) struct RestoredPast {
    /// Nodes that could not start it, since it last ran.
    pub(crate) tried: AllTried,
    /// Whether a node ever listed it.
    pub(crate) has_run: bool,
    /// The node it had last.
    pub(crate) last_node: Option<Uuid>,
    /// The lease of that node.
    pub(crate) lease: Option<Duration>,
    /// Its latest events.
    pub(crate) history: History,
}

/// What becomes of an instance whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// Controllers are told.
    Report,
    /// It is placed again once its node's lease is over, because its launcher has stopped it by then.
    Restart,
}

impl Instance {
    /// One of which nothing else is known: it has no START, has not run, and nothing is asked of it. What it does is said
    /// where it is put into the table.
    pub(crate) fn new(order: u64, arrived: Instant) -> Self {
        Self {
            start: None,
            priority: DEFAULT_PRIORITY,
            state: State::Seeking {
                transit: Transit::default(),
            },
            order,
            arrived,
            waits_until: None,
            max_attempts: 1,
            tried: AllTried::default(),
            relocates: false,
            on_loss: OnLoss::Report,
            has_run: false,
            last_node: None,
            lease: None,
            history: History::default(),
            epoch: 0,
            is_operators: false,
            counted: 0,
        }
    }

    /// One that a START asks for, of which nothing has been heard.
    pub(crate) fn started(terms: Terms, order: u64, arrived: Instant) -> Self {
        Self {
            start: terms.start,
            priority: terms.priority.unwrap_or(DEFAULT_PRIORITY),
            waits_until: terms.waits_until,
            max_attempts: terms.max_attempts,
            relocates: terms.relocates,
            on_loss: terms.on_loss,
            is_operators: terms.is_operators,
            ..Self::new(order, arrived)
        }
    }

    /// The same with what became of it before the scheduler was started.
    pub(crate) fn with_past(mut self, past: RestoredPast) -> Self {
        self.tried = past.tried;
        self.has_run = past.has_run;
        self.last_node = past.last_node;
        self.lease = past.lease;
        self.history = past.history;
        if let Some(start) = &mut self.start
            && self.has_run
        {
            start.set_restart();
        }
        self
    }

    /// One that no one here started, or of which only that it is on a node is known.
    pub(crate) fn adopted(node: Uuid, order: u64, since: Instant) -> Self {
        Self {
            has_run: true,
            last_node: Some(node),
            ..Self::new(order, since)
        }
    }

    /// How far it is.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Says whether its node was told to end it, without effect as it seems: if it ends after all, that is not its end.
    pub(crate) fn set_told_to_stop(&mut self, is_told: bool) {
        self.state.set_told_to_stop(is_told);
    }

    /// Its START, as it came; `None` where no one here started it, or it cannot be placed again.
    pub(crate) fn start(&self) -> Option<&PlacedStart> {
        self.start.as_deref()
    }

    /// How urgent it is, 0 to 100, higher first.
    pub(crate) fn priority(&self) -> u8 {
        self.priority
    }

    /// Its place among those of its priority: counts arrivals.
    pub(crate) fn order(&self) -> u64 {
        self.order
    }

    /// When it came.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Until when it waits for room at first; `None` = not at all.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits_until
    }

    /// The change with which it is on disk that it waits; 0 where it does not.
    pub(crate) fn waits_with(&self) -> u64 {
        match self.state {
            State::Waiting { waits_with, .. } => waits_with,
            _ => 0,
        }
    }

    /// How many nodes it may be tried on for one START.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    /// Nodes that could not start it, since it last ran.
    pub(crate) fn tried(&self) -> &AllTried {
        &self.tried
    }

    /// Whether it may be moved to another node.
    pub(crate) fn relocates(&self) -> bool {
        self.relocates
    }

    /// What becomes of it when its node is lost.
    pub(crate) fn on_loss(&self) -> OnLoss {
        self.on_loss
    }

    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    /// The node it had last, to be preferred when it is placed again.
    pub(crate) fn last_node(&self) -> Option<Uuid> {
        self.last_node
    }

    /// The lease of the node it had last.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.lease
    }

    /// What became of it so far, oldest first.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Which change of state was its last.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The node it is to wait for, if it waits for one alone; its START does not say so.
    pub(crate) fn pinned(&self) -> Option<Uuid> {
        self.state.transit().pinned
    }

    /// Whether an operator sent its START, rather than a controller.
    pub(crate) fn is_operators(&self) -> bool {
        self.is_operators
    }

    /// The node it is on, or is to be.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        self.state.node()
    }

    /// Whether the launcher of its node has promised to stop it by itself when it is cut off.
    pub(crate) fn stops_with_lease(&self) -> bool {
        self.on_loss == OnLoss::Restart && self.lease.is_some()
    }

    /// What it asked for, where its START is known.
    pub(crate) fn request(&self) -> Option<&Arc<StartRequest>> {
        self.start.as_deref().map(|start| &start.request)
    }

    /// Why it is placed again after its node has ended it in this way; `None` if that is its end.
    pub(crate) fn goes_on_after(&self, how: Ended) -> Option<Cause> {
        if how == Ended::CutOff && self.on_loss == OnLoss::Restart {
            return Some(Cause::CutOff);
        }
        self.state.is_told_to_stop().then_some(Cause::EndedAsTold)
    }

    /// Whether it runs on network nodes, as CNCIs do.
    pub(crate) fn is_network_workload(&self) -> bool {
        let start = self.start.as_ref();
        start.is_some_and(|start| start.request.network_node)
    }

    /// Notes that a node has it running: from now on it is not given up for want of room, and started as one that was
    /// there before.
    pub(crate) fn note_running(&mut self) {
        self.tried.clear();
        self.has_run = true;
        if let Some(start) = &mut self.start {
            start.set_restart();
        }
    }

    /// Notes that it has left a node on which it ran: from now on it is not given up for want of room.
    pub(crate) fn note_ran(&mut self) {
        self.has_run = true;
        if let Some(start) = &mut self.start {
            start.set_restart();
        }
    }

    /// Notes that it ended by itself, and that a START of it is a new one, which fails if it does.
    pub(crate) fn note_own_end(&mut self) {
        self.has_run = false;
    }

    /// Notes that a node could not start it.
    pub(crate) fn note_refusal(&mut self, refusal: Tried) {
        self.tried.note(refusal);
    }

    /// Nodes that could not start it may be asked again.
    pub(crate) fn forget_refusals(&mut self) {
        self.tried.clear();
    }

    /// Gives it another priority.
    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.priority = priority;
    }

    /// Makes its START ask for other amounts.
    pub(crate) fn set_demand(&mut self, demand: Demand) {
        if let Some(start) = &mut self.start {
            start.set_demand(demand);
        }
    }

    /// Has another peer hear what becomes of its START.
    pub(crate) fn set_sender(&mut self, sender: SessionId) {
        if let Some(start) = &mut self.start {
            start.sender = sender;
        }
    }

    /// Notes the node it is on, and the lease of that, as far as there is any.
    pub(crate) fn note_node(&mut self, node: Option<Uuid>, lease: Option<Duration>) {
        self.last_node = node.or(self.last_node);
        self.lease = lease.or(self.lease);
    }

    /// Has it wait for one node alone, if it waits.
    pub(crate) fn pin(&mut self, node: Uuid) {
        if let State::Waiting { pinned, .. } = &mut self.state {
            *pinned = Some(node);
        }
    }

    /// Notes the change with which it is on disk that it waits: nothing is said of that before.
    pub(crate) fn note_waits_with(&mut self, ticket: u64) {
        if let State::Waiting { waits_with, .. } = &mut self.state {
            *waits_with = ticket;
        }
    }

    /// Notes that original controllers were not told that it has left its node, while it is on its way to another.
    pub(crate) fn note_stop_unannounced(&mut self) {
        self.state.note_stop_unannounced();
    }

    /// Bytes of its START's payload, and of what others said of it.
    pub(crate) fn texts(&self) -> usize {
        let payload = self.start.as_ref().map_or(0, |it| it.parcel.payload.len());
        payload + self.tried.bytes() + self.history.bytes()
    }

    /// Notes what became of it.
    pub(crate) fn note(&mut self, event: HistoryEvent) {
        self.history.note(event);
    }
}
