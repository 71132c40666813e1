//! Managed instances: those that the scheduler may have to place again, that wait, are suspended or move. This folder
//! owns what is known of each and its state; the table of all of them is in `table`, and the workflow that brings one
//! state to the next begins in `workflow::managed`.
//!
//! A plain START is not here: it leaves nothing behind but its entry in its node's ledger. An instance is managed if
//! its START asked for something that may place it again, or the policy may, or somebody suspended, changed or moved
//! it.
//!
//! ```text
//!            START fits                        STATS lists it
//! (START) ───────────────▶ Placing ─────────────────────────────▶ Running ◀──────────┐
//!    │                      ▲   │ refused, lost: next node          │ │ │            │
//!    │ nothing fits     room│   │                                   │ │ │ SUSPEND    │ confirmed
//!    ▼                      │   ▼        preempted                  │ │ ▼            │
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
//!
//! The picture leaves out rare ways; `lifecycle` has all of them, and the reference page of states is generated from it.

mod by_id;
mod events;
pub(crate) mod history;
mod lifecycle;
mod names;
mod numbering;
mod outputs;
mod past;
mod retries;

#[cfg(any(test, feature = "test-support"))]
pub(crate) mod samples;
mod size;
mod state;
mod table;
pub(crate) mod tried;

use std::sync::Arc;
use std::time::{Duration, Instant};

use sched_model::{Group, RetryPolicy, StartFailureReason, Uuid};

use crate::api::array::ElementId;
use crate::api::cause::Cause;
use crate::api::ids::{NodeKey, SessionId};
use crate::api::start::{Demand, PlacedStart, StartRequest};
use crate::cluster::ledger::Ended;
use crate::cluster::view::is_apart_by_node;
use crate::instance::retries::Retries;
use crate::instance::tried::{AllTried, Tried};

pub(crate) use self::events::{Before, Effects, LifecycleEvent, Loss, RunOf};
pub use self::history::MAX_HISTORY_BYTES;
pub(crate) use self::history::{History, HistoryEvent};
pub(crate) use self::names::InstanceInfo;
pub use self::names::MAX_NAMED;
pub(crate) use self::numbering::RunNumbers;
pub use self::outputs::MAX_OUTPUTS;
pub(crate) use self::outputs::Output;
pub use self::past::MAX_PAST_BYTES;
pub(crate) use self::past::{Run, UnsentFailure};
pub use self::size::{MAX_MANAGED_BYTES, MAX_MANAGED_BYTES_OF_OPERATORS};
pub(crate) use self::state::{
    AfterLoss, AfterStop, Awaits, DemandChange, LateEffects, Move, MoveRequest, Placing, State,
    SuspendedBy, Transit,
};
pub(crate) use self::table::Instances;

/// Priority of a START that names none: the middle of 0 to 100, so that STARTs can be put before and behind it.
pub(crate) const DEFAULT_PRIORITY: u8 = 50;

/// One managed instance. Its identifier is the key of the table. Fields are private: the state is changed by
/// [`Instances::on`] alone, so that the table's indexes never differ from it.
#[derive(Debug)]
pub(crate) struct Instance {
    /// What its START asks for, with the START itself.
    terms: Terms,
    /// How far it is: changed by [`Instances::on`] alone.
    state: State,
    /// Its place among those of its priority: a number counted up with each arrival, the smaller first. Kept over
    /// restarts.
    order: u64,
    /// When its START came in; after a restart converted from the record.
    arrived: Instant,
    /// Nodes that could not start it since it last ran: they are not chosen again.
    tried: AllTried,
    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    has_run: bool,
    /// The node it had last, to be preferred when it is placed again.
    last_node: Option<Uuid>,
    /// Its runs so far.
    runs: RunNumbers,
    /// The lease of the node it had last: its launcher stops it by itself once it has been cut off for that long.
    /// `None` where that launcher has promised nothing.
    lease: Option<Duration>,
    /// How often it was placed again because its START says so of an end.
    retries: Retries,
    /// Its latest events, oldest first; bounded in number and bytes.
    history: History,
    /// The number of its latest transition, unique over all instances. Work that waits for the disk notes it, and is
    /// dropped if the instance has changed since (`journal`).
    epoch: u64,
    /// The bytes that `Size` has counted for it, to be taken off again.
    counted: usize,
}

/// What a START asks of the scheduler beyond amounts: the decoded keys of `scheduling` that decide how its instance is
/// managed.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Its START, as it came, with who sent it. `None` where this scheduler never had it (an adopted instance) or it
    /// could not be read back from disk: it cannot be placed again then.
    pub(crate) start: Option<Box<PlacedStart>>,
    /// How urgent it is, 0 to 100, higher first; `None` = [`DEFAULT_PRIORITY`].
    pub(crate) priority: Option<u8>,
    /// The deadline of waiting for room before it first runs; `None` = it does not wait at all. What has run waits
    /// without a deadline.
    pub(crate) waits_until: Option<Instant>,
    /// How many nodes one START may be tried on before its failure is final.
    pub(crate) max_attempts: u32,
    /// Whether the scheduler may move it by itself, by stopping it and starting it elsewhere.
    pub(crate) relocates: bool,
    /// What becomes of it when its node is lost.
    pub(crate) on_loss: OnLoss,
    /// Whether an operator sent its START, rather than a controller: operators together may fill only part of the
    /// memory for managed instances (`size`).
    pub(crate) is_operators: bool,
}

impl Default for Terms {
    /// Those of an instance whose START is not known.
    fn default() -> Self {
        Self {
            start: None,
            priority: None,
            waits_until: None,
            max_attempts: 1,
            relocates: false,
            on_loss: OnLoss::Report,
            is_operators: false,
        }
    }
}

/// What a record says of an instance's time before a restart of the scheduler. Fields are as those of [`Instance`].
#[derive(Debug)]
pub(crate) struct RestoredPast {
    /// Nodes that could not start it, since it last ran.
    pub(crate) tried: AllTried,
    /// Whether a node ever listed it.
    pub(crate) has_run: bool,
    /// The node it had last.
    pub(crate) last_node: Option<Uuid>,
    /// Its runs.
    pub(crate) runs: RunNumbers,
    /// The lease of that node.
    pub(crate) lease: Option<Duration>,
    /// How often it was placed again because its START says so of an end.
    pub(crate) retries: u32,
    /// Its latest events.
    pub(crate) history: History,
}

/// What the START asks for in case its node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// Controllers are notified. If the node comes back with it, it goes on.
    Report,
    /// It is placed again once its node's fencing deadline is over, because its launcher has stopped it by then.
    Restart,
}

impl Instance {
    /// One without a START that has not run and asks for nothing.
    pub(crate) fn new(order: u64, arrived: Instant) -> Self {
        Self::started(Terms::default(), order, arrived)
    }

    /// One that a START asks for and that has not run. The state is a placeholder:
    /// [`Vacant::insert`](table::Vacant::insert) sets the first one.
    pub(crate) fn started(terms: Terms, order: u64, arrived: Instant) -> Self {
        Self {
            terms,
            state: State::Seeking {
                transit: Transit::default(),
            },
            order,
            arrived,
            tried: AllTried::default(),
            has_run: false,
            last_node: None,
            runs: RunNumbers::default(),
            lease: None,
            retries: Retries::default(),
            history: History::default(),
            epoch: 0,
            counted: 0,
        }
    }

    /// The same with what became of it before the scheduler was started. If it ran then, its START becomes a restart.
    pub(crate) fn with_past(mut self, past: RestoredPast) -> Self {
        self.tried = past.tried;
        self.has_run = past.has_run;
        self.last_node = past.last_node;
        self.runs = past.runs;
        self.lease = past.lease;
        self.retries.count = past.retries;
        self.history = past.history;
        if let Some(start) = &mut self.terms.start
            && self.has_run
        {
            start.set_restart();
        }
        self
    }

    /// One that runs on a node and whose START this scheduler does not have.
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

    /// Sets whether its node was sent a stop that had no visible effect. While it is set, an end that the node reports
    /// is that stop and not the instance's own end: the instance is placed again.
    pub(crate) fn set_stop_sent(&mut self, is_told: bool) {
        self.state.set_stop_sent(is_told);
    }

    /// Its START, as it came; `None` where no one here started it, or it cannot be placed again.
    pub(crate) fn start(&self) -> Option<&PlacedStart> {
        self.terms.start.as_deref()
    }

    /// The element of an array that it is, if it is one.
    pub(crate) fn element(&self) -> Option<ElementId> {
        self.start()?.element()
    }

    /// How urgent it is, 0 to 100, higher first.
    pub(crate) fn priority(&self) -> u8 {
        self.terms.priority.unwrap_or(DEFAULT_PRIORITY)
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
        self.terms.waits_until
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
        self.terms.max_attempts
    }

    /// Whether it waits where no node has room for it: without a deadline if it has run, else until that of its START.
    pub(crate) fn may_wait(&self, now: Instant) -> bool {
        self.has_run || self.terms.waits_until.is_some_and(|until| until > now)
    }

    /// Whether its START may be tried on one more node. What a full node has refused is no attempt while it may wait for
    /// room.
    pub(crate) fn has_attempts_left(&self, now: Instant) -> bool {
        let may_wait = self.may_wait(now);
        let counts = |it: &&Tried| !may_wait || it.reason != StartFailureReason::FullComputeNode;
        self.tried.iter().filter(counts).count() < self.terms.max_attempts as usize
    }

    /// Nodes that could not start it, since it last ran.
    pub(crate) fn tried(&self) -> &AllTried {
        &self.tried
    }

    /// Whether it may be moved to another node.
    pub(crate) fn relocates(&self) -> bool {
        self.terms.relocates
    }

    /// What becomes of it when its node is lost.
    pub(crate) fn on_loss(&self) -> OnLoss {
        self.terms.on_loss
    }

    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    pub(crate) fn has_run(&self) -> bool {
        self.has_run
    }

    /// The node it had last, to be preferred when it is placed again.
    pub(crate) fn last_node(&self) -> Option<Uuid> {
        self.last_node
    }

    /// Its runs so far.
    pub(crate) fn runs(&self) -> &RunNumbers {
        &self.runs
    }

    /// Its runs go on from those of an earlier time.
    pub(crate) fn with_runs(mut self, runs: RunNumbers) -> Self {
        self.runs = runs;
        self
    }

    /// The START that was given to this node has failed there.
    pub(crate) fn note_not_run(&mut self, node: Uuid) {
        self.runs.take_back(node);
    }

    /// This node has reported the end of the run that it had.
    pub(crate) fn note_run_over(&mut self, node: Uuid) {
        self.runs.close(node);
    }

    /// The next run of it begins: its START is given to a node.
    pub(crate) fn note_run(&mut self, node: Uuid) {
        self.runs.begin(node);
    }

    /// A node has its latest run.
    pub(crate) fn note_found_on(&mut self, node: Uuid) {
        self.runs.found_on(node);
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
        self.terms.is_operators
    }

    /// The node it is on, or is to be.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        self.state.node()
    }

    /// Whether the launcher of its node has promised to stop it by itself when cut off: it has a fencing deadline.
    pub(crate) fn stops_with_lease(&self) -> bool {
        self.terms.on_loss == OnLoss::Restart && self.lease.is_some()
    }

    /// What it asked for, where its START is known.
    pub(crate) fn request(&self) -> Option<&Arc<StartRequest>> {
        self.terms.start.as_deref().map(|start| &start.request)
    }

    /// The group whose members are kept apart on nodes by its own policy; `None` where it has no such group, or its
    /// START is not known.
    pub(crate) fn apart_by_node(&self) -> Option<&Group> {
        let scheduling = self.request()?.scheduling.as_deref()?;
        scheduling.group.as_ref().filter(|it| is_apart_by_node(it))
    }

    /// Why it is placed again after its node reported its end; `None` if that was its own end. It is placed again if
    /// its launcher cut it off and its START asks for a restart then, if its START says so of its own end, or if the end
    /// may be the late effect of a stop: an original launcher cannot tell that from its own end.
    pub(crate) fn goes_on_after(&self, how: Ended) -> Option<Cause> {
        if how == Ended::CutOff && self.restarts_on_loss() {
            return Some(Cause::CutOff);
        }
        if how == Ended::ByItself {
            return self.retries.cause(self.retry());
        }
        self.state.is_stop_sent().then_some(Cause::EndedAsTold)
    }

    /// Whether it runs on network nodes, as CNCIs (ciao's per-tenant network concentrators) do.
    pub(crate) fn is_network_workload(&self) -> bool {
        let start = self.terms.start.as_ref();
        start.is_some_and(|start| start.request.network_node)
    }

    /// Notes that a node lists it as running. From now on it waits for room without a deadline, its next START is a
    /// restart, and nodes that refused it before may be chosen again.
    pub(crate) fn note_running(&mut self) {
        self.tried.clear();
        self.has_run = true;
        if let Some(start) = &mut self.terms.start {
            start.set_restart();
        }
    }

    /// Notes that it has left a node on which it ran: as [`Instance::note_running`], but nodes that refused it stay
    /// excluded.
    pub(crate) fn note_ran(&mut self) {
        self.has_run = true;
        if let Some(start) = &mut self.terms.start {
            start.set_restart();
        }
    }

    /// Notes how much of its time limit it has used up so far, if that is known.
    pub(crate) fn note_time_used(&mut self, ms: Option<u64>) {
        if let (Some(ms), Some(start)) = (ms, &mut self.terms.start) {
            start.set_time_used(ms);
        }
    }

    /// How much of its time limit it has used up on nodes that it has left.
    pub(crate) fn time_used_ms(&self) -> Option<u64> {
        let start = self.terms.start.as_ref()?;
        start.changes.as_ref()?.time_used_ms
    }

    /// Notes that it ended by itself while a resent START was on its way: that START is a new one, whose failure is the
    /// failure of the instance.
    pub(crate) fn note_own_end(&mut self) {
        self.has_run = false;
    }

    /// Notes that a node could not start it.
    pub(crate) fn note_refusal(&mut self, refusal: Tried) {
        self.tried.note(refusal);
    }

    /// Nodes that could not start it may be chosen again.
    pub(crate) fn forget_refusals(&mut self) {
        self.tried.clear();
    }

    /// Nodes that were full may be chosen again, and all that refused it where it has run: that is never given up, so that
    /// no attempts are counted.
    pub(crate) fn ask_again(&mut self) {
        match self.has_run {
            true => self.tried.clear(),
            false => self.tried.clear_full(),
        }
    }

    /// After which ends it is placed again, and how often, where its START says that and is known.
    pub(crate) fn retry(&self) -> Option<&RetryPolicy> {
        self.request()?.scheduling.as_deref()?.retry.as_ref()
    }

    /// How often it was placed again because its START says so of an end.
    pub(crate) fn retries(&self) -> u32 {
        self.retries.count
    }

    /// Whether it is placed again once its lost node has certainly stopped it.
    pub(crate) fn restarts_on_loss(&self) -> bool {
        self.terms.on_loss == OnLoss::Restart && self.retries.allow_loss(self.retry())
    }

    /// A report of its end is about to be dealt with: by itself with this exit status, or minus this signal, where it is one
    /// after which there may be a retry.
    pub(crate) fn expect_end(&mut self, code: Option<i64>) {
        let mut retries = self.retries;
        retries.expect(self.retry(), code);
        self.retries = retries;
    }

    /// An end of it was dealt with, and it goes on after it or not. A retry is a fresh start: nodes that refused it before
    /// may be chosen again.
    pub(crate) fn note_going_on(&mut self, how: Ended, goes_on: bool) {
        let mut retries = self.retries;
        let is_retry = retries.settle(self.retry(), (how, goes_on));
        self.retries = retries;
        if is_retry {
            self.note_running();
        }
    }

    /// Until when it waits for room at first; `None` = not at all.
    pub(crate) fn set_waits_until(&mut self, until: Option<Instant>) {
        self.terms.waits_until = until;
    }

    /// It begins to wait for room now, as long as its START says.
    pub(crate) fn begin_to_wait(&mut self, now: Instant) {
        let scheduling = (self.request()).and_then(|it| it.scheduling.as_deref());
        let span = scheduling.and_then(|it| it.queue);
        let time = span.map(|span| Duration::from_millis(span.ms()));
        self.terms.waits_until = time.filter(|it| !it.is_zero()).map(|it| now + it);
    }

    /// Gives it another priority.
    pub(crate) fn set_priority(&mut self, priority: u8) {
        self.terms.priority = Some(priority);
    }

    /// Makes its START ask for other amounts.
    pub(crate) fn set_demand(&mut self, demand: Demand) {
        if let Some(start) = &mut self.terms.start {
            start.set_demand(demand);
        }
    }

    /// Has another session notified of what becomes of its START: the one that sent the same START last.
    pub(crate) fn set_sender(&mut self, sender: SessionId) {
        if let Some(start) = &mut self.terms.start {
            start.sender = sender;
        }
    }

    /// Notes the node it is on and that node's lease. `None` leaves what was known: after it has left, both still say
    /// where it may run.
    pub(crate) fn note_node(&mut self, node: Option<Uuid>, lease: Option<Duration>) {
        self.last_node = node.or(self.last_node);
        self.lease = lease.or(self.lease);
    }

    /// Restricts one that waits to one node, until a node lists it. Its START does not name that node.
    pub(crate) fn pin(&mut self, node: Uuid) {
        if let State::Waiting { pinned, .. } = &mut self.state {
            *pinned = Some(node);
        }
    }

    /// Notes the number of the change that puts its waiting on disk: no event says that it waits before that is
    /// committed.
    pub(crate) fn note_waits_with(&mut self, ticket: u64) {
        if let State::Waiting { waits_with, .. } = &mut self.state {
            *waits_with = ticket;
        }
    }

    /// Notes that original controllers were not notified that it left its node, because it was on its way to another.
    /// If it ends up waiting, they are notified then.
    pub(crate) fn note_stop_unannounced(&mut self) {
        self.state.note_stop_unannounced();
    }

    /// Bytes that vary: its START's payload, and the texts of launchers in its refusals and history.
    pub(crate) fn texts(&self) -> usize {
        let payload = self
            .terms
            .start
            .as_ref()
            .map_or(0, |it| it.parcel.payload.len());
        payload + self.tried.bytes() + self.history.bytes()
    }

    /// Adds an event to its history, as one of the run that it is in.
    pub(crate) fn note(&mut self, event: HistoryEvent) {
        let run = self.run_now();
        self.history.note(HistoryEvent { run, ..event });
    }

    /// The number of the run that it is in, or that is to begin on the node that is chosen; 0 while it is to be on none.
    fn run_now(&self) -> u32 {
        let latest = self.runs.latest();
        match &self.state {
            State::Seeking { .. } | State::Waiting { .. } => 0,
            State::Placing(placing) if !placing.pending_on.is_given() => latest.saturating_add(1),
            _ => latest,
        }
    }
}
