//! What has become of the instances that were started or are waited for: a small state machine over events and
//! listings, without IO. `start`, `run` and `wait` drive it, see [`crate::ctl::commands::wait`].
//!
//! ```text
//!             ┌──────────── Waiting ◀───────────┐  preempted
//!             │                ▲                │
//! Sent ───────┼────────────────┴──▶ Placed ──▶ Running ──▶ Ended
//!             │                       ▲           │
//!             └──▶ Failed             └── Held ◀──┘  suspended, moved
//! ```
//!
//! An instance that is listed no more becomes `Vanished`; a dry run goes from `Sent` to `Decided`. Events can be lost
//! with a connection and can come late, so that listings of the scheduler fill in: [`Tracker::observe`] takes events,
//! [`Tracker::observe_listing`] and [`Tracker::observe_ended`] take listings. The caller hands in what it received
//! before a listing first.

use std::collections::HashMap;
use std::time::Duration;

use proto_frames::Kind;
use proto_frames::payload::{
    AttemptFailed, InstancePlaced, InstanceQueued, InstanceStateEvent, InstanceView, PhaseName,
    PlacementDecision, Reason,
};

use crate::ctl::event::{Event, refused_kind};
use crate::ctl::exit::Exit;
use crate::ctl::start_file::StartRequest;
use crate::ctl::track::views::{is_running, node_of, stage_of};

mod batches;
#[cfg(test)]
mod tests;
mod text;
mod views;

/// How far an instance has to come before it is done with.
///
/// Ordered: a later one includes the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// Given to a node.
    ///
    /// `start` without `--wait`. A START that is queued is done with as well: it was told that it may wait.
    Placed,
    /// Reported as running by its node.
    ///
    /// `--wait=running`. Suspension or a move afterwards makes it wait again.
    Running,
    /// Ended.
    ///
    /// `--wait=exited`, and `ciaoctl wait`.
    Exited,
}

/// Where an instance is.
///
/// The stages that nothing can follow are `Ended`, `Failed`, `Decided` and `Vanished`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Sent to the scheduler.
    ///
    /// Nothing has come about it yet.
    Sent,
    /// It waits for room: for the first time, or again after it was preempted.
    ///
    /// The position is 0 where only a change of its state told of it.
    Waiting(Box<InstanceQueued>),
    /// It does not run at present: suspended, on its way to another node, or gone in a way that is not yet told.
    Held {
        /// Where it is in its life.
        state: PhaseName,
        /// More about it, for people.
        detail: String,
    },
    /// Given to its node.
    ///
    /// Its node has not reported it yet.
    Placed,
    /// Reported as running.
    ///
    /// A later event can take it back to a stage before.
    Running,
    /// It ended on its node.
    Ended {
        /// The exit status, minus the signal that ended it; `None` = it is not known.
        ///
        /// From the launcher, over the scheduler.
        exit_code: Option<i64>,
    },
    /// It was not started.
    Failed {
        /// The protocol's word for why.
        ///
        /// A word of a StartFailure or of a refused command, or `deleted` where it was deleted while it waited.
        reason: String,
        /// The scheduler's explanation.
        ///
        /// `None` from schedulers that only give the reason.
        detail: Option<String>,
        /// Why nodes did not fit.
        ///
        /// Empty unless it fitted nowhere.
        reasons: Vec<Reason>,
        /// The nodes it was tried on before.
        ///
        /// In the order of the tries; may include the node that this failure is from.
        attempts: Vec<AttemptFailed>,
    },
    /// It was a dry run, and this is the answer.
    Decided(Box<PlacementDecision>),
    /// The scheduler no longer knows it, and nothing said why.
    ///
    /// It may have succeeded or failed. [`Exit::Unknown`] says so to scripts.
    Vanished,
}

/// One instance.
///
/// Printed with [`Tracked::line`] and [`Tracked::json`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// Where its START came from: a file's name, or the program's.
    pub name: String,
    /// Its UUID.
    pub instance_uuid: String,
    /// The node it was given to: UUID and host name.
    ///
    /// `None` before it was placed. The name may be empty.
    pub node: Option<(String, String)>,
    /// How far it is.
    pub stage: Stage,
    /// What it waits for before anything is answered: the rest of its batch, which this command does not send.
    pub incomplete: Option<String>,
}

/// All instances of a command, in the order they were asked for.
///
/// Finding an instance by its UUID is one look-up, because a command can have many thousands of them.
#[derive(Debug, Clone)]
pub struct Tracker {
    /// When an instance is done with; the same for all.
    until: Until,
    /// Never grows or shrinks after the start.
    all: Vec<Tracked>,
    /// From UUID to place in `all`.
    index: HashMap<String, usize>,
    /// How many of `all` are not done with, so that [`Tracker::is_settled`] costs nothing. [`Tracker::advance`] keeps
    /// it.
    open: usize,
    /// Whether events may have been missed, so that a listing is the news.
    ///
    /// Then also an instance without an answer so far is expected in a listing.
    is_reattached: bool,
    /// How often those were listed as ended without an exit status whose end may still be told.
    ///
    /// By place in `all`; see [`UNTOLD_LOOKS`].
    untold: HashMap<usize, u32>,
}

/// After so many looks at an instance that has ended without an exit status, nothing more is expected to be told of its
/// end: that it failed to start is told once it is on the scheduler's disk. The looks take about a second.
const UNTOLD_LOOKS: u32 = 5;

impl Tracker {
    /// Tracks the instances of these requests until they are so far.
    ///
    /// Nothing was sent yet: all begin as [`Stage::Sent`]. UUIDs must differ.
    #[must_use]
    pub fn new(requests: &[StartRequest], until: Until) -> Self {
        let incomplete = batches::incomplete(requests);
        let tracked = |request: &StartRequest| Tracked {
            name: request.name.clone(),
            instance_uuid: request.instance_uuid.clone(),
            node: None,
            stage: Stage::Sent,
            incomplete: incomplete.get(request.instance_uuid.as_str()).cloned(),
        };
        Self::of(requests.iter().map(tracked).collect(), until)
    }

    /// Tracks instances as the scheduler lists them, also ended ones, until they have ended.
    ///
    /// What happened to them before is not known to this connection, so that it counts as reattached from the start.
    #[must_use]
    pub fn attached(views: &[InstanceView]) -> Self {
        let tracked = |view: &InstanceView| Tracked {
            name: view.instance_uuid.clone(),
            instance_uuid: view.instance_uuid.clone(),
            node: node_of(view),
            stage: stage_of(view),
            incomplete: None,
        };
        let mut tracker = Self::of(views.iter().map(tracked).collect(), Until::Exited);
        tracker.reattach();
        tracker
    }

    /// Some of those that are listed may be done with already.
    fn of(all: Vec<Tracked>, until: Until) -> Self {
        let index = all
            .iter()
            .enumerate()
            .map(|(i, t)| (t.instance_uuid.clone(), i))
            .collect();
        let mut tracker = Self {
            until,
            open: 0,
            all,
            index,
            is_reattached: false,
            untold: HashMap::new(),
        };
        let is_open = |it: &&Tracked| !tracker.is_done(&it.stage);
        tracker.open = tracker.all.iter().filter(is_open).count();
        tracker
    }

    /// The connection is another one: what came meanwhile is learned from listings.
    ///
    /// Instances that have no answer yet are then looked for in listings too: their answer may have been lost.
    pub fn reattach(&mut self) {
        self.is_reattached = true;
    }

    /// Whether an instance that is open and should be listed is not among these.
    ///
    /// If so, the caller asks for the instances that have ended, before it hands the listing to
    /// [`Tracker::observe_listing`].
    #[must_use]
    pub fn misses(&self, listed: &[InstanceView], concerns: impl Fn(&Tracked) -> bool) -> bool {
        let is_listed = |it: &Tracked| {
            listed
                .iter()
                .any(|view| view.instance_uuid == it.instance_uuid)
        };
        self.open()
            .any(|it| concerns(it) && self.is_to_be_listed(&it.stage) && !is_listed(it))
    }

    /// Takes the scheduler's list of instances that have ended in, oldest first: of those that ended within this time.
    ///
    /// The latest end of a UUID comes first in the loop and decides, because the same UUID can have ended several
    /// times. An end that is older than `within` belongs to an earlier run and is skipped.
    ///
    /// An end without an exit status is taken as final only after several looks: the event that tells how it
    /// ended, or that it failed to start, may still be on its way. On a reattached tracker that event cannot come any
    /// more, so that the first look decides.
    pub fn observe_ended(&mut self, ended: &[InstanceView], within: Duration) -> Vec<Tracked> {
        let mut changed = Vec::new();
        // The end of a run that a later one has followed is not what became of the instance.
        for view in ended.iter().rev().filter(|view| !view.earlier) {
            let age = Duration::from_secs(u64::try_from(view.age_s).unwrap_or(u64::MAX));
            let Some(&at) = self
                .index
                .get(&view.instance_uuid)
                .filter(|_| age <= within)
            else {
                continue;
            };
            if view.exit_code.is_none() && view.failed.is_none() && !self.is_reattached {
                let looks = self.untold.entry(at).or_default();
                *looks += 1;
                if *looks < UNTOLD_LOOKS {
                    continue;
                }
            }
            if self.is_to_be_listed(&self.all[at].stage) {
                self.all[at].node = node_of(view).or(self.all[at].node.take());
                changed.extend(self.advance(at, stage_of(view)).cloned());
            }
        }
        changed
    }

    /// Whether the scheduler is expected to list an instance that is so far.
    ///
    /// What was sent and what is queued need not be listed while its answer comes as an event.
    fn is_to_be_listed(&self, stage: &Stage) -> bool {
        match stage {
            Stage::Placed | Stage::Running | Stage::Held { .. } => true,
            Stage::Sent | Stage::Waiting(_) => self.is_reattached,
            _ => false,
        }
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Tracked] {
        &self.all
    }

    /// Whether every one is done with.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open == 0
    }

    /// Those not done with.
    pub fn open(&self) -> impl Iterator<Item = &Tracked> {
        self.all
            .iter()
            .filter(|tracked| !self.is_done(&tracked.stage))
    }

    /// Takes an event in; the instance whose stage it changed, if it did.
    ///
    /// The events that decide are placement, queueing, failure, refusal, a change of state, and the end. An event
    /// about an instance that is not tracked, or that says nothing that is not known, changes nothing. An instance
    /// that has ended does not change again.
    pub fn observe(&mut self, event: &Event) -> Option<&Tracked> {
        let at = self.subject(event)?;
        let stage = match event {
            Event::Placed(placed) => return self.placed(at, placed),
            Event::StartFailure(failure) => Stage::Failed {
                reason: failure.reason.to_string(),
                detail: failure.detail.clone(),
                reasons: failure.reasons.clone(),
                attempts: failure.attempts.clone(),
            },
            Event::Queued(queued) => Stage::Waiting(queued.clone()),
            Event::Transition(transition) => return self.transition(at, transition),
            Event::Decided(decision) => Stage::Decided(decision.clone()),
            Event::Refused(refused) => Stage::Failed {
                reason: refused.reason.to_string(),
                detail: Some(refused.detail.clone()),
                reasons: Vec::new(),
                attempts: Vec::new(),
            },
            // It leaves its node to go on elsewhere: that is not its end.
            Event::InstanceStopped(_) if self.all[at].stage.is_moving() => return None,
            Event::InstanceStopped(stopped) => Stage::Ended {
                exit_code: stopped.exit_code,
            },
            Event::InstanceDeleted(_) if matches!(self.all[at].stage, Stage::Waiting(_)) => {
                Stage::Failed {
                    reason: "deleted".to_owned(),
                    detail: Some("it was deleted while it waited".to_owned()),
                    reasons: Vec::new(),
                    attempts: Vec::new(),
                }
            }
            Event::InstanceDeleted(deleted) => Stage::Ended {
                exit_code: deleted.exit_code,
            },
            _ => return None,
        };
        self.advance(at, stage)
    }

    /// Takes the scheduler's list of instances in; those whose stage it changed. A listing of only some instances must
    /// be restricted with `concerns` to those. What is not listed has vanished, unless nodes may still come back with
    /// it.
    ///
    /// For each instance that is to be listed, in this order: absent and possibly on its way back: unchanged; absent
    /// otherwise: vanished; listed as running: running; listed otherwise, with an answer already: unchanged, because
    /// events say more; listed otherwise, without an answer: as listed.
    pub fn observe_listing(
        &mut self,
        listed: &[InstanceView],
        absence: Absence,
        concerns: impl Fn(&Tracked) -> bool,
    ) -> Vec<Tracked> {
        let listed: HashMap<&str, &InstanceView> = listed
            .iter()
            .map(|i| (i.instance_uuid.as_str(), i))
            .collect();
        let mut changed = Vec::new();
        for at in 0..self.all.len() {
            let tracked = &self.all[at];
            if !concerns(tracked) || !self.is_to_be_listed(&tracked.stage) {
                continue;
            }
            let has_answer = !matches!(tracked.stage, Stage::Sent | Stage::Waiting(_));
            let stage = match listed.get(tracked.instance_uuid.as_str()) {
                None if absence == Absence::MayReturn || self.untold.contains_key(&at) => continue,
                None => Stage::Vanished,
                Some(view) if is_running(view) => {
                    if self.is_reattached || tracked.node.is_none() {
                        let node = node_of(view);
                        self.all[at].node = node.or(self.all[at].node.take());
                    }
                    Stage::Running
                }
                Some(_) if has_answer => continue,
                Some(view) => {
                    self.all[at].node = node_of(view);
                    stage_of(view)
                }
            };
            changed.extend(self.advance(at, stage).cloned());
        }
        changed
    }

    /// How the command that asked for them ends.
    ///
    /// Over all instances the code that a caller has to act on first, as [`Exit::and`] orders them. One that is not
    /// far enough is [`Exit::Timeout`]: the caller stops before all are settled only if its time is over.
    ///
    /// A workload's exit status counts only if the command waits for more than placement.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let of = |tracked: &Tracked| match &tracked.stage {
            Stage::Failed { .. } => Exit::Refused,
            Stage::Vanished => Exit::Unknown,
            Stage::Decided(decision) if decision.fits < decision.count => Exit::Refused,
            Stage::Ended {
                exit_code: Some(code),
            } if *code != 0 && self.until > Until::Placed => Exit::Workload,
            Stage::Ended { exit_code: None } if self.until > Until::Placed => Exit::Unknown,
            stage if self.is_done(stage) => Exit::Done,
            _ => Exit::Timeout,
        };
        self.all.iter().map(of).fold(Exit::Done, Exit::and)
    }

    /// The instance an event is about: by its UUID, or, for a refused START that names none, the only one without an
    /// answer. (A StartFailure that names none may be about anybody's.)
    ///
    /// A refusal cannot be assigned if several STARTs wait for an answer: it then changes nothing, and the wait times
    /// out.
    fn subject(&self, event: &Event) -> Option<usize> {
        match (event, event.instance_uuid()) {
            (_, Some(id)) if !id.is_empty() => self.index.get(id).copied(),
            (Event::Refused(refused), _) if refused_kind(refused) == Kind::START => {
                let is_open = |(_, tracked): &(usize, &Tracked)| tracked.stage == Stage::Sent;
                let mut sent = self.all.iter().enumerate().filter(is_open);
                match (sent.next(), sent.next()) {
                    (Some((only, _)), None) => Some(only),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A START can be given to a second node, when the first went away before it had it.
    ///
    /// The placement of an instance that runs or is placed only changes its node.
    fn placed(&mut self, at: usize, placed: &InstancePlaced) -> Option<&Tracked> {
        let node = Some((placed.node_uuid.clone(), placed.hostname.clone()));
        let moved = self.all[at].node != node;
        match self.all[at].stage {
            Stage::Sent | Stage::Waiting(_) | Stage::Held { .. } => {
                self.all[at].node = node;
                self.advance(at, Stage::Placed)
            }
            Stage::Placed | Stage::Running if moved => {
                self.all[at].node = node;
                Some(&self.all[at])
            }
            _ => None,
        }
    }

    /// What happens to it after it was placed: it may be preempted, or moved.
    ///
    /// A state that has no stage of its own is kept as [`Stage::Held`].
    fn transition(&mut self, at: usize, transition: &InstanceStateEvent) -> Option<&Tracked> {
        let detail = transition.detail.clone();
        let stage = match &transition.state {
            PhaseName::Waiting => Stage::Waiting(Box::new(InstanceQueued {
                detail,
                ..InstanceQueued::default()
            })),
            PhaseName::Placing => Stage::Placed,
            PhaseName::Running | PhaseName::Updated => Stage::Running,
            state => Stage::Held {
                state: state.clone(),
                detail,
            },
        };
        // The state machine of the scheduler reports each of these pairs a second time, and in the less precise form.
        let is_old = matches!(
            (&self.all[at].stage, &stage),
            // Where it stands in the queue, and which node it was given to, is said by events of their own.
            (Stage::Waiting(_), Stage::Waiting(_))
                | (Stage::Sent, Stage::Waiting(_))
                | (
                    Stage::Sent | Stage::Waiting(_) | Stage::Running,
                    Stage::Placed
                )
        );
        if is_old {
            return None;
        }
        let changed = self.advance(at, stage);
        changed.filter(|_| transition.state != PhaseName::Gone) // how is the news, and still to come
    }

    /// The only place that changes a stage and the number of open ones. `None` if nothing changed or the instance has
    /// ended.
    fn advance(&mut self, at: usize, stage: Stage) -> Option<&Tracked> {
        let was_done = self.is_done(&self.all[at].stage);
        if self.all[at].stage.is_end() || self.all[at].stage == stage {
            return None;
        }
        self.all[at].stage = stage;
        match (was_done, self.is_done(&self.all[at].stage)) {
            (false, true) => self.open -= 1,
            (true, false) => self.open += 1,
            _ => {}
        }
        Some(&self.all[at])
    }

    /// A dry run and a failure are done at once, whatever was waited for.
    fn is_done(&self, stage: &Stage) -> bool {
        match stage {
            Stage::Sent => false,
            // How it ended is still to come.
            Stage::Held {
                state: PhaseName::Gone,
                ..
            } => false,
            // It was asked to wait, and does.
            Stage::Waiting(_) | Stage::Held { .. } | Stage::Placed => self.until <= Until::Placed,
            Stage::Running => self.until <= Until::Running,
            ended => ended.is_end(),
        }
    }
}

impl Stage {
    /// Whether nothing can follow.
    ///
    /// Further events about such an instance are ignored.
    const fn is_end(&self) -> bool {
        matches!(
            self,
            Self::Ended { .. } | Self::Failed { .. } | Self::Decided(_) | Self::Vanished
        )
    }

    /// Whether it is to go on elsewhere.
    ///
    /// Then InstanceStopped says that it left its old node, or was preempted, not that it ended.
    const fn is_moving(&self) -> bool {
        matches!(
            self,
            Self::Waiting(_)
                | Self::Held {
                    state: PhaseName::Migrating | PhaseName::Stopping,
                    ..
                }
        )
    }
}

/// What it means that an instance is not listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absence {
    /// The scheduler knows it no more.
    ///
    /// The scheduler does not list it and has no reason to expect it again.
    Final,
    /// The scheduler may have been restarted, and nodes may be on their way back.
    ///
    /// The caller says so for a limited time after it has connected again.
    MayReturn,
}
