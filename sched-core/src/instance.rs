//! Instances that are looked after: those that may be placed again, wait, are suspended or move. What is known of each,
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
mod size;
mod table;
pub(crate) mod tried;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sched_model::{LifeState, Uuid};

use crate::api::action::PlacedStart;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::StartRequest;
use crate::api::record::Demand;
use crate::cluster::ledger::Ended;
use crate::instance::tried::AllTried;

pub(crate) use self::history::{Event, History};
pub use self::history::{MAX_HISTORY_BYTES, MAX_PAST_BYTES};
pub use self::lifecycle::TRANSITIONS;
pub use self::size::{MAX_MANAGED_BYTES, MAX_MANAGED_BYTES_OF_OPERATORS};
pub(crate) use self::table::Instances;

/// Priority of what does not say any.
pub(crate) const DEFAULT_PRIORITY: u8 = 50;

/// One instance that is looked after.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Its START, as it came, with who sent it; `None` where nobody here started it, or it cannot be placed again.
    pub(crate) start: Option<Box<PlacedStart>>,
    /// How urgent it is, 0 to 100, higher first.
    pub(crate) priority: u8,
    /// How far it is: changed by [`Instances::transition`] alone.
    state: State,
    /// Its place among those of its priority: counts arrivals.
    pub(crate) order: u64,
    /// When it came.
    pub(crate) arrived: Instant,
    /// Until when it waits for room at first; `None` = not at all. What once ran waits for as long as it takes.
    pub(crate) waits_until: Option<Instant>,
    /// The change with which it is on disk that it waits: nothing is said of that before.
    pub(crate) waits_with: u64,
    /// How many nodes it may be tried on for one START.
    pub(crate) max_attempts: u32,
    /// Nodes that could not start it, since it last ran.
    pub(crate) tried: AllTried,
    /// Whether it may be moved to another node.
    pub(crate) relocates: bool,
    /// What becomes of it when its node is lost.
    pub(crate) on_loss: OnLoss,
    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    pub(crate) has_run: bool,
    /// The node it had last, to be preferred when it is placed again.
    pub(crate) last_node: Option<Uuid>,
    /// The node that it was being shipped to when the one that had it was lost, while it is lost: it may have arrived.
    pub(crate) bound_for: Option<Uuid>,
    /// Who had it suspended last since it was started, also where that seemed to be in vain: if it is suspended after all,
    /// it is for that one.
    pub(crate) suspended_by: Option<By>,
    /// The lease of the node it had last: its launcher stops it within that time when it is cut off.
    pub(crate) lease: Option<Duration>,
    /// What became of it so far, oldest first.
    pub(crate) history: History,
    /// Which change of state was its last: what was to be done about an earlier one is then not done.
    pub(crate) epoch: u64,
    /// The operator or controller whose command is being carried out on it.
    pub(crate) asker: Option<SessionId>,
    /// The node it is to wait for, if it waits for one alone; its START does not say so.
    pub(crate) pinned: Option<Uuid>,
    /// What it is to ask for once it has moved, or its node has made it so.
    pub(crate) pending: Option<Box<Demand>>,
    /// Whether its node was told to end it, in vain as it seems: if it ends after all, that is not its end.
    pub(crate) told_to_stop: bool,
    /// Whether it has left a node to go on elsewhere and original controllers were not told.
    pub(crate) has_left_unsaid: bool,
    /// Whether an operator sent its START, rather than a controller.
    pub(crate) is_operators: bool,
    /// Bytes that are counted for it.
    pub(crate) counted: usize,
}

/// What becomes of an instance whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnLoss {
    /// Controllers are told.
    Report,
    /// It is placed again once its node's lease is over, because its launcher has stopped it by then.
    Restart,
}

/// How far an instance is: each state is named for what it awaits, or for where it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It is on no node and waits for room.
    Waiting,
    /// A node is chosen and its room claimed.
    Placing(Placing),
    /// It runs.
    Running {
        /// Where.
        node: NodeKey,
    },
    /// Its launcher was told to suspend it.
    Suspending {
        /// Where.
        node: NodeKey,
        /// Who wants it.
        by: By,
        /// When that counts as failed.
        due: Instant,
    },
    /// It is suspended: it holds all it asked for but vcpus.
    Suspended {
        /// Where.
        node: NodeKey,
        /// Who wanted it: what was evicted is resumed by itself, what somebody suspended is not.
        by: By,
    },
    /// Its launcher was told to resume it; its vcpus are claimed.
    Resuming {
        /// Where.
        node: NodeKey,
        /// Who had it suspended.
        by: By,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its launcher was told to stop it.
    Stopping {
        /// Where.
        node: NodeKey,
        /// What comes then.
        then: Then,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its launcher was told to change what it has; the larger of both is claimed.
    Updating {
        /// Where.
        node: NodeKey,
        /// What it had before.
        before: Box<Demand>,
        /// When that counts as failed.
        due: Instant,
    },
    /// It moves to another node; it is claimed on both.
    Migrating {
        /// From here.
        from: NodeKey,
        /// To here.
        to: NodeKey,
        /// How.
        how: Move,
        /// When that counts as failed.
        due: Instant,
    },
    /// Its node is lost, or has not come back since the scheduler was started: what it is, that node alone knows.
    Lost {
        /// The node.
        node: Uuid,
        /// When nothing is expected of the node any more. Where it is to be restarted, it has certainly been stopped by
        /// then.
        until: Instant,
        /// What becomes of it then, and if the node is back before.
        then: AfterLoss,
    },
}

/// How far a START is on its way to the node that is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placing {
    /// The node.
    pub(crate) node: NodeKey,
    /// What it waits for.
    pub(crate) pending_on: Awaits,
}

/// What a START that has a node waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Awaits {
    /// That the choice is on disk.
    Commit,
    /// That these are out of its way; and when that counts as failed.
    Victims(BTreeSet<InstanceId>, Instant),
    /// That its node confirms it.
    Node,
}

/// Who had an instance suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum By {
    /// A START of higher priority.
    Preemptor(InstanceId),
    /// An operator or a controller.
    Command,
}

/// What comes after an instance was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    /// It waits for room again: it had to make way for this one.
    Wait(InstanceId),
    /// It is gone.
    End,
    /// It is placed again.
    Again,
}

/// How an instance moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// Its room on the target is being put on disk.
    Claimed,
    /// It is stopped on its node, then started on the target.
    Cold,
    /// Its launcher ships its state.
    Shipped,
}

/// What becomes of an instance whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterLoss {
    /// It is placed again: when its time is up, or its node is back without it.
    Restart,
    /// It is placed again only if its node is back and says that it does not have it: nobody knows whether the START
    /// arrived. When its time is up, it has failed.
    Replace,
    /// If its node is back with it, it goes on as before; else it is gone.
    Forget,
    /// It was deleted: if its node is back with it, it is deleted there.
    Delete,
}

impl State {
    /// The node whose ledger has it.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        match self {
            Self::Placing(placing) => Some(placing.node),
            Self::Running { node }
            | Self::Suspending { node, .. }
            | Self::Suspended { node, .. }
            | Self::Resuming { node, .. }
            | Self::Updating { node, .. }
            | Self::Stopping { node, .. } => Some(*node),
            Self::Migrating { from, .. } => Some(*from),
            Self::Waiting | Self::Lost { .. } => None,
        }
    }

    /// When something is to be done about it if nothing happens.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self {
            Self::Placing(Placing {
                pending_on: Awaits::Victims(_, due),
                ..
            })
            | Self::Suspending { due, .. }
            | Self::Resuming { due, .. }
            | Self::Stopping { due, .. }
            | Self::Updating { due, .. }
            | Self::Migrating { due, .. } => Some(*due),
            Self::Lost { until, .. } => Some(*until),
            Self::Waiting | Self::Placing(_) | Self::Running { .. } | Self::Suspended { .. } => {
                None
            }
        }
    }

    /// Its name on the wire.
    pub(crate) fn word(&self) -> LifeState {
        match self {
            Self::Waiting => LifeState::Waiting,
            Self::Placing(_) => LifeState::Placing,
            Self::Running { .. } | Self::Updating { .. } => LifeState::Running,
            Self::Suspending { .. } => LifeState::Suspending,
            Self::Suspended { .. } => LifeState::Suspended,
            Self::Resuming { .. } => LifeState::Resuming,
            Self::Stopping { .. } => LifeState::Stopping,
            Self::Migrating { .. } => LifeState::Migrating,
            Self::Lost { .. } => LifeState::Lost,
        }
    }

    /// Whether it is suspended, and not being resumed.
    pub(crate) fn is_suspended(&self) -> bool {
        matches!(self, Self::Suspended { .. })
    }

    /// Whether it may stand in the queue: it waits for a node, or to be resumed by itself.
    pub(crate) fn waits(&self) -> bool {
        let by_itself = |by: &By| matches!(by, By::Preemptor(_));
        matches!(self, Self::Waiting) || matches!(self, Self::Suspended { by, .. } if by_itself(by))
    }
}

impl Instance {
    /// One in this state, of which nothing else is known: it has no START, has not run, and nothing is asked of it.
    pub(crate) fn new(state: State, order: u64, arrived: Instant) -> Self {
        Self {
            start: None,
            priority: DEFAULT_PRIORITY,
            state,
            order,
            arrived,
            waits_until: None,
            waits_with: 0,
            max_attempts: 1,
            tried: AllTried::default(),
            relocates: false,
            on_loss: OnLoss::Report,
            has_run: false,
            last_node: None,
            bound_for: None,
            suspended_by: None,
            lease: None,
            history: History::default(),
            epoch: 0,
            asker: None,
            pinned: None,
            pending: None,
            told_to_stop: false,
            has_left_unsaid: false,
            is_operators: false,
            counted: 0,
        }
    }

    /// One that nobody here started, or of which only that it is on a node is known.
    pub(crate) fn adopted(state: State, node: Uuid, order: u64, since: Instant) -> Self {
        let suspended_by = match &state {
            State::Suspended { by, .. } => Some(by.clone()),
            _ => None,
        };
        Self {
            suspended_by,
            has_run: true,
            last_node: Some(node),
            ..Self::new(state, order, since)
        }
    }

    /// How far it is.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Notes who had it suspended, for as long as that counts.
    pub(crate) fn note_suspension(&mut self) {
        match &self.state {
            State::Suspending { by, .. }
            | State::Suspended { by, .. }
            | State::Resuming { by, .. } => self.suspended_by = Some(by.clone()),
            // It is to be started: nothing that it was told before concerns it.
            State::Waiting | State::Placing(_) => self.suspended_by = None,
            _ => {}
        }
    }

    /// The node it is on, or is to be.
    pub(crate) fn node(&self) -> Option<NodeKey> {
        self.state.node()
    }

    /// Whether the launcher of its node has promised to stop it by itself when it is cut off.
    pub(crate) fn is_fenced(&self) -> bool {
        self.on_loss == OnLoss::Restart && self.lease.is_some()
    }

    /// What it asked for, where its START is known.
    pub(crate) fn request(&self) -> Option<&StartRequest> {
        self.start.as_deref().map(|start| &start.request)
    }

    /// Why it is placed again after its node has ended it in this way; `None` if that is its end.
    pub(crate) fn goes_on_after(&self, how: Ended) -> Option<Cause> {
        if how == Ended::CutOff && self.on_loss == OnLoss::Restart {
            return Some(Cause::CutOff);
        }
        self.told_to_stop.then_some(Cause::EndedAsTold)
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
        // What an earlier node was told does not concern this one.
        self.told_to_stop = false;
        self.has_left_unsaid = false;
        self.pinned = None;
        self.has_run = true;
        if let Some(start) = &mut self.start {
            start.set_restart();
        }
    }

    /// Bytes of its START's payload, and of what others said of it.
    pub(crate) fn texts(&self) -> usize {
        let payload = self.start.as_ref().map_or(0, |it| it.parcel.payload.len());
        payload + self.tried.bytes() + self.history.bytes()
    }

    /// Notes what became of it.
    pub(crate) fn note(&mut self, event: Event) {
        self.history.note(event);
    }
}
