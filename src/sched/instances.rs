//! Instances that are looked after: those that may be placed again, wait, are suspended or move. What is known of each,
//! its state, and the table of all of them; what brings one state to the next is in `care`.
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

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use indexmap::{IndexMap, IndexSet};
use proto_frames::Uuid;
use proto_frames::payload::{AttemptFailed, LifeState};

use super::action::PlacedStart;
use super::ids::{InstanceId, NodeKey, SessionId};
use super::input::StartRequest;
use super::record::Demand;

/// Events kept of one instance; the oldest are forgotten first.
pub(super) const MAX_HISTORY: usize = 32;

/// Instances that are gone and whose history is still known; the oldest are forgotten first.
pub(super) const MAX_PAST: usize = 4096;

/// Priority of what does not say any.
pub(super) const DEFAULT_PRIORITY: u8 = 50;

/// One instance that is looked after.
#[derive(Debug)]
pub(super) struct Instance {
    /// Its START, as it came, with who sent it; `None` where nobody here started it, or it cannot be placed again.
    pub(super) start: Option<Box<PlacedStart>>,
    /// How urgent it is, 0 to 100, higher first.
    pub(super) priority: u8,
    /// How far it is.
    pub(super) state: State,
    /// Its place among those of its priority: counts arrivals.
    pub(super) order: u64,
    /// When it came.
    pub(super) arrived: Instant,
    /// Until when it waits for room at first; `None` = not at all. What once ran waits for as long as it takes.
    pub(super) waits_until: Option<Instant>,
    /// How many nodes it may be tried on for one START.
    pub(super) max_attempts: u32,
    /// Nodes that could not start it, since it last ran.
    pub(super) tried: Vec<AttemptFailed>,
    /// Whether it may be moved to another node.
    pub(super) relocates: bool,
    /// What becomes of it when its node is lost.
    pub(super) on_loss: OnLoss,
    /// Whether a node ever listed it: from then on it waits for room as long as it takes.
    pub(super) has_run: bool,
    /// The node it had last, to be preferred when it is placed again.
    pub(super) last_node: Option<Uuid>,
    /// Who had it suspended, while it is, or while it moves as such, or was when its node was lost.
    pub(super) suspended_by: Option<By>,
    /// The lease of the node it had last: its launcher stops it within that time when it is cut off.
    pub(super) lease: Option<Duration>,
    /// What became of it so far, oldest first, at most [`MAX_HISTORY`].
    pub(super) history: VecDeque<Event>,
    /// Counts its changes of state: what was to be done about an earlier one is then not done.
    pub(super) epoch: u64,
    /// The operator or controller whose command is being carried out on it.
    pub(super) asker: Option<SessionId>,
    /// The node it is to wait for, if it waits for one alone; its START does not say so.
    pub(super) pinned: Option<Uuid>,
    /// What it is to ask for once it has moved, or its node has made it so.
    pub(super) pending: Option<Box<Demand>>,
    /// Whether its node was told to end it, in vain as it seems: if it ends after all, that is not its end.
    pub(super) told_to_stop: bool,
}

/// What becomes of an instance whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnLoss {
    /// Controllers are told.
    Report,
    /// It is placed again once its node's lease is over, because its launcher has stopped it by then.
    Restart,
}

/// How far an instance is: each state is named for what it awaits, or for where it rests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
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
pub(super) struct Placing {
    /// The node.
    pub(super) node: NodeKey,
    /// What it waits for.
    pub(super) pending_on: Awaits,
}

/// What a START that has a node waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Awaits {
    /// That the choice is on disk.
    Commit,
    /// That these are out of its way; and when that counts as failed.
    Victims(BTreeSet<InstanceId>, Instant),
    /// That its node confirms it.
    Node,
}

/// Who had an instance suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    /// A START of higher priority.
    Preemptor(InstanceId),
    /// An operator or a controller.
    Command,
}

/// What comes after an instance was stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Then {
    /// It waits for room again: it had to make way for this one.
    Wait(InstanceId),
    /// It is gone.
    End,
    /// It is placed again.
    Again,
}

/// How an instance moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Its room on the target is being put on disk.
    Claimed,
    /// It is stopped on its node, then started on the target.
    Cold,
    /// Its launcher ships its state.
    Shipped,
}

/// What becomes of an instance whose node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterLoss {
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

/// Something that became of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// When.
    pub(super) at: Instant,
    /// The state it came to.
    pub(super) what: LifeState,
    /// Where.
    pub(super) node: Option<Uuid>,
    /// Why, for people.
    pub(super) detail: String,
}

impl State {
    /// The node whose ledger has it.
    pub(super) fn node(&self) -> Option<NodeKey> {
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
    pub(super) fn due(&self) -> Option<Instant> {
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
    pub(super) fn word(&self) -> LifeState {
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
    pub(super) fn is_suspended(&self) -> bool {
        matches!(self, Self::Suspended { .. })
    }

    /// Whether it may stand in the queue: it waits for a node, or to be resumed by itself.
    pub(super) fn waits(&self) -> bool {
        let by_itself = |by: &By| matches!(by, By::Preemptor(_));
        matches!(self, Self::Waiting) || matches!(self, Self::Suspended { by, .. } if by_itself(by))
    }
}

impl Instance {
    /// One that nobody here started, or of which only that it is on a node is known.
    pub(super) fn adopted(state: State, node: Uuid, order: u64, since: Instant) -> Self {
        Self {
            start: None,
            suspended_by: match &state {
                State::Suspended { by, .. } => Some(by.clone()),
                _ => None,
            },
            priority: DEFAULT_PRIORITY,
            state,
            order,
            arrived: since,
            waits_until: None,
            max_attempts: 1,
            tried: Vec::new(),
            relocates: false,
            on_loss: OnLoss::Report,
            has_run: true,
            last_node: Some(node),
            history: VecDeque::new(),
            epoch: 0,
            asker: None,
            pinned: None,
            pending: None,
            told_to_stop: false,
            lease: None,
        }
    }

    /// Notes who had it suspended, for as long as that counts.
    pub(super) fn note_suspension(&mut self) {
        match &self.state {
            State::Suspending { by, .. }
            | State::Suspended { by, .. }
            | State::Resuming { by, .. } => self.suspended_by = Some(by.clone()),
            State::Lost { .. } | State::Migrating { .. } | State::Stopping { .. } => {}
            _ => self.suspended_by = None,
        }
    }

    /// The node it is on, or is to be.
    pub(super) fn node(&self) -> Option<NodeKey> {
        self.state.node()
    }

    /// What it asked for, where its START is known.
    pub(super) fn request(&self) -> Option<&StartRequest> {
        self.start.as_deref().map(|start| &start.request)
    }

    /// Notes that a node has it running: from now on it is not given up for want of room, and started as one that was
    /// there before.
    pub(super) fn note_running(&mut self) {
        self.tried.clear();
        // What an earlier node was told does not concern this one.
        self.told_to_stop = false;
        self.pinned = None;
        self.has_run = true;
        if let Some(start) = &mut self.start {
            start.set_restart();
        }
    }

    /// Notes what became of it.
    pub(super) fn note(&mut self, event: Event) {
        if self.history.len() >= MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(event);
    }
}

/// All instances that are looked after.
#[derive(Debug, Default)]
pub(super) struct Instances {
    kept: IndexMap<InstanceId, Box<Instance>>,
    /// When something is due about those of which something is.
    due: BTreeSet<(Instant, InstanceId)>,
    /// Those on no node.
    nowhere: BTreeSet<InstanceId>,
    /// Those that wait although nodes refused them, and when those nodes may be asked again.
    again: BTreeSet<(Instant, InstanceId)>,
    /// Those whose nodes are lost, by node.
    lost: IndexMap<Uuid, IndexSet<InstanceId>>,
    /// What became of those that are gone, oldest first.
    past: VecDeque<(InstanceId, VecDeque<Event>)>,
}

impl Instances {
    /// Whether none is looked after.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether this one is looked after.
    pub(super) fn contains(&self, instance: &InstanceId) -> bool {
        !self.kept.is_empty() && self.kept.contains_key(instance)
    }

    /// One that is looked after.
    pub(super) fn get(&self, instance: &InstanceId) -> Option<&Instance> {
        if self.kept.is_empty() {
            return None;
        }
        self.kept.get(instance).map(|kept| &**kept)
    }

    /// One that is looked after, to be changed; its state is changed by [`Instances::turn`] alone.
    pub(super) fn get_mut(&mut self, instance: &InstanceId) -> Option<&mut Instance> {
        self.kept.get_mut(instance).map(|kept| &mut **kept)
    }

    /// All of them, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&InstanceId, &Instance)> {
        self.kept.iter().map(|(instance, kept)| (instance, &**kept))
    }

    /// The first on no node, in order of identifiers, or the one behind another.
    pub(super) fn next_nowhere(
        &self,
        after: Option<&InstanceId>,
    ) -> Option<(&InstanceId, &Instance)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let instance = self.nowhere.range((from, Bound::Unbounded)).next()?;
        Some((instance, self.get(instance)?))
    }

    /// Looks after one from now on.
    pub(super) fn insert(&mut self, instance: InstanceId, kept: Instance) {
        self.note_place(&instance, kept.state.node());
        if let Some(due) = kept.state.due() {
            self.due.insert((due, instance.clone()));
        }
        self.note_lost(&instance, None, lost_node(&kept.state));
        self.kept.insert(instance, Box::new(kept));
    }

    fn note_lost(&mut self, instance: &InstanceId, before: Option<Uuid>, after: Option<Uuid>) {
        if before == after {
            return;
        }
        if let Some(node) = before
            && let Some(instances) = self.lost.get_mut(&node)
        {
            instances.swap_remove(instance);
            if instances.is_empty() {
                self.lost.swap_remove(&node);
            }
        }
        if let Some(node) = after {
            self.lost.entry(node).or_default().insert(instance.clone());
        }
    }

    /// Those whose node is this one, which is lost, or was when they were heard of last.
    pub(super) fn lost_with(&self, node: Uuid) -> Vec<InstanceId> {
        let lost = self.lost.get(&node).into_iter().flatten();
        lost.cloned().collect()
    }

    /// Changes the state of one.
    pub(super) fn turn(&mut self, instance: &InstanceId, state: State) -> Option<&mut Instance> {
        let kept = self.kept.get_mut(instance)?;
        let (before, after) = (kept.state.due(), state.due());
        let (place, is_moved) = (
            state.node(),
            kept.state.node().is_some() != state.node().is_some(),
        );
        let nodes = (lost_node(&kept.state), lost_node(&state));
        kept.state = state;
        kept.epoch += 1;
        self.note_lost(instance, nodes.0, nodes.1);
        if before != after {
            if let Some(due) = before {
                self.due.remove(&(due, instance.clone()));
            }
            if let Some(due) = after {
                self.due.insert((due, instance.clone()));
            }
        }
        if is_moved {
            self.note_place(instance, place);
        }
        self.get_mut(instance)
    }

    fn note_place(&mut self, instance: &InstanceId, place: Option<NodeKey>) {
        if place.is_none() {
            self.nowhere.insert(instance.clone());
        } else {
            self.nowhere.remove(instance);
        }
    }

    /// No longer looks after one; its history is kept for a while.
    pub(super) fn remove(&mut self, instance: &InstanceId) -> Option<Box<Instance>> {
        let mut kept = self.kept.swap_remove(instance)?;
        self.nowhere.remove(instance);
        if let Some(due) = kept.state.due() {
            self.due.remove(&(due, instance.clone()));
        }
        self.note_lost(instance, lost_node(&kept.state), None);
        if self.past.len() >= MAX_PAST {
            self.past.pop_front();
        }
        let history = std::mem::take(&mut kept.history);
        self.past.push_back((instance.clone(), history));
        const SHRINK_ABOVE: usize = 4096;
        if self.kept.capacity() > SHRINK_ABOVE && self.kept.len() < self.kept.capacity() / 4 {
            self.kept.shrink_to(2 * self.kept.len());
        }
        Some(kept)
    }

    /// When something is due next.
    pub(super) fn due(&self) -> Option<Instant> {
        let due = self.due.first().map(|(due, _)| *due);
        let again = self.again.first().map(|(again, _)| *again);
        due.into_iter().chain(again).min()
    }

    /// Has the nodes that refused one asked again from this moment on, if it still waits then.
    pub(super) fn ask_again(&mut self, instance: InstanceId, at: Instant) {
        self.again.insert((at, instance));
    }

    /// One whose nodes may be asked again.
    pub(super) fn take_again(&mut self, now: Instant) -> Option<InstanceId> {
        self.again.first().filter(|(at, _)| *at <= now)?;
        self.again.pop_first().map(|(_, instance)| instance)
    }

    /// One about which something is due.
    pub(super) fn next_due(&self, now: Instant) -> Option<InstanceId> {
        let (due, instance) = self.due.first()?;
        (*due <= now).then(|| instance.clone())
    }

    /// What became of one, latest life last.
    pub(super) fn history(&self, instance: &InstanceId) -> impl Iterator<Item = &Event> {
        let past = self.past.iter().filter(move |(past, _)| past == instance);
        let now = self.kept.get(instance).into_iter();
        past.flat_map(|(_, history)| history)
            .chain(now.flat_map(|kept| &kept.history))
    }

    /// Whether the times at which something is due, and who is on no node, are what the states say.
    pub(super) fn is_consistent(&self) -> bool {
        let of = |(instance, kept): (&InstanceId, &Instance)| {
            Some((kept.state.due()?, instance.clone()))
        };
        let due: BTreeSet<_> = self.iter().filter_map(of).collect();
        let nowhere = self.kept.iter().filter(|(_, kept)| kept.node().is_none());
        let nowhere: BTreeSet<_> = nowhere.map(|(instance, _)| instance.clone()).collect();
        let lost = |(instance, kept): (&InstanceId, &Instance)| {
            let node = lost_node(&kept.state)?;
            Some((node, instance.clone()))
        };
        let lost: BTreeSet<_> = self.iter().filter_map(lost).collect();
        let listed = self.lost.iter();
        let listed = listed.flat_map(|(&node, all)| all.iter().map(move |it| (node, it.clone())));
        due == self.due && nowhere == self.nowhere && lost == listed.collect()
    }
}

/// The node that is lost with an instance.
fn lost_node(state: &State) -> Option<Uuid> {
    match state {
        State::Lost { node, .. } => Some(*node),
        _ => None,
    }
}
