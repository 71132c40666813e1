//! Runs of instances that are over: what became of each, how it ended and where, what it was called and ran. The latest
//! are remembered, also across restarts; the oldest are forgotten first, by all the bytes that they take.
//!
//! A run has a number, counted up with each run that ends; it is the key of the run's record on disk and the cursor of
//! `ended` queries. The runs of one instance are a linked list: `latest` names the last one, and each names the one
//! before it.

mod reach;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Instant;

use sched_model::{PhaseName, StartFailureReason, Uuid};

use self::reach::Reach;
use super::history::{History, HistoryEvent};
use crate::api::cause::Cause;
use crate::api::ids::InstanceId;
use crate::api::text::ShortText;
use crate::maps::Map;

/// Bytes of all runs that are remembered, with their places in the tables; the oldest are forgotten first. More than
/// 100 000 runs as they usually are: many nights of work of a cluster, and little beside what a scheduler of that size
/// takes.
pub const MAX_PAST_BYTES: usize = 64 * 1024 * 1024;

/// Below so many entries, those of forgotten runs are left in the index by instance.
const PRUNE_ABOVE: usize = 4096;

/// One run of an instance, from its beginning until it was gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    instance: InstanceId,
    /// When the scheduler learned of the end; of a restored run converted from wall-clock time.
    at: Instant,
    node: Option<Uuid>,
    hostname: ShortText,
    /// What it was called; empty for nothing.
    name: Box<str>,
    /// What it ran; empty where that is not known.
    program: Box<str>,
    /// Why its START failed, in the protocol's word, if it never ran.
    failed: Option<StartFailureReason>,
    exit_code: Option<i64>,
    /// The number that the launcher gave this end; two reports with the same number and node are of the same run.
    end: Option<u64>,
    story: Story,
}

/// What became of an instance in one run. Two forms, because most runs are of plain instances and have just two events.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Story {
    /// It was managed, or was restored from disk: all events that are remembered.
    Told(History),
    /// It was a plain instance: its node had it since then, where that is known, until it was gone for this cause. The
    /// events are made from this when they are asked for.
    Plain {
        since: Option<Instant>,
        cause: Cause,
    },
}

/// Runs that are over, by number.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// In order of numbers.
    runs: VecDeque<Noted>,
    /// The number of the latest run of each instance. Entries of runs that are forgotten are removed only once there
    /// are twice as many entries as runs may be remembered, so that forgetting one run costs O(1).
    latest: Map<InstanceId, u64>,
    /// The latest number given.
    last: u64,
    /// The sum of `Run::bytes`: at most [`MAX_PAST_BYTES`].
    bytes: usize,
    /// Runs that were added, changed or forgotten, and are not noted in the journal yet.
    changed: Vec<u64>,
    reach: Reach,
}

/// A run with its number, and with that of the run of the same instance before it: one that may be forgotten by now.
#[derive(Debug)]
struct Noted {
    number: u64,
    before: Option<u64>,
    run: Run,
}

impl Run {
    /// A run of a managed instance, which is gone since `at`.
    pub(super) fn managed(instance: InstanceId, at: Instant, mut history: History) -> Self {
        history.shrink();
        Self {
            instance,
            at,
            node: None,
            hostname: ShortText::default(),
            name: Box::default(),
            program: Box::default(),
            failed: None,
            exit_code: None,
            end: None,
            story: Story::Told(history),
        }
    }

    /// A run of a plain instance: its node had it `since` then, if that is known, and reports `at` that it is gone, and
    /// why.
    pub(crate) fn plain(
        instance: InstanceId,
        (node, hostname): (Uuid, ShortText),
        since: Option<Instant>,
        at: Instant,
        cause: Cause,
    ) -> Self {
        Self {
            instance,
            at,
            node: Some(node),
            hostname,
            name: Box::default(),
            program: Box::default(),
            failed: None,
            exit_code: None,
            end: None,
            story: Story::Plain { since, cause },
        }
    }

    /// A run that was remembered before a restart.
    pub(crate) fn restored(
        instance: InstanceId,
        (node, hostname): (Option<Uuid>, ShortText),
        at: Instant,
        (exit_code, end): (Option<i64>, Option<u64>),
        history: History,
    ) -> Self {
        Self {
            instance,
            at,
            node,
            hostname,
            name: Box::default(),
            program: Box::default(),
            failed: None,
            exit_code,
            end,
            story: Story::Told(history),
        }
    }

    /// The same run, of an instance that was called so and ran this. Empty where that is not known.
    pub(crate) fn called(self, name: &str, program: &str) -> Self {
        Self {
            name: name.into(),
            program: program.into(),
            ..self
        }
    }

    /// What the instance was called; empty for nothing.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What it ran; empty where that is not known.
    pub(crate) fn program(&self) -> &str {
        &self.program
    }

    /// The instance.
    pub(crate) fn instance(&self) -> &InstanceId {
        &self.instance
    }

    /// When it was gone.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// The node that said how it ended; `None` = it was on none, or its node has not said.
    pub(crate) fn node(&self) -> Option<Uuid> {
        self.node
    }

    /// The host name of that node.
    pub(crate) fn hostname(&self) -> &ShortText {
        &self.hostname
    }

    /// Its exit status, or minus the signal that ended it; `None` = not known.
    pub(crate) fn exit_code(&self) -> Option<i64> {
        self.exit_code
    }

    /// The number of its end on that node, where its launcher numbers them.
    pub(crate) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Notes how it ended: the number of its end, and its exit status, or minus a signal, if that is known.
    pub(crate) fn set_end(&mut self, end: u64, exit_code: Option<i64>) {
        self.end = Some(end);
        self.exit_code = exit_code.or(self.exit_code);
    }

    /// Why its START failed, if it never ran.
    pub(crate) fn failed(&self) -> Option<&StartFailureReason> {
        self.failed.as_ref()
    }

    /// The same run, of which nothing came: its START failed for this reason.
    pub(crate) fn not_started(self, failed: Option<StartFailureReason>) -> Self {
        Self { failed, ..self }
    }

    /// Notes that its START failed.
    pub(crate) fn set_failed(&mut self, reason: StartFailureReason) {
        self.failed = Some(reason);
    }

    /// Notes which node has said how it ended.
    pub(crate) fn set_node(&mut self, node: Uuid, hostname: ShortText) {
        (self.node, self.hostname) = (Some(node), hostname);
    }

    /// What became of the instance, oldest first.
    pub(crate) fn events(&self) -> impl Iterator<Item = Cow<'_, HistoryEvent>> {
        let (told, plain) = match &self.story {
            Story::Told(history) => (Some(history), None),
            Story::Plain { since, cause } => (None, Some((*since, cause))),
        };
        let told = told.into_iter().flat_map(History::iter).map(Cow::Borrowed);
        told.chain(plain.into_iter().flat_map(|(since, cause)| {
            let event = |at, what, cause| HistoryEvent {
                at,
                what,
                node: self.node,
                cause,
            };
            let (what, why) = match self.failed {
                Some(_) => (PhaseName::Placing, Cause::Plain),
                None => (PhaseName::Running, Cause::KnownSince),
            };
            let began = since.map(|at| event(at, what.clone(), why.clone()));
            let gone = event(self.at, PhaseName::Gone, cause.clone());
            began.into_iter().chain([gone]).map(Cow::Owned)
        }))
    }

    /// Why it is over.
    pub(crate) fn cause(&self) -> Option<&Cause> {
        match &self.story {
            Story::Told(history) => history.last().map(|event| &event.cause),
            Story::Plain { cause, .. } => Some(cause),
        }
    }

    /// Bytes that it takes: with its place in both tables, and all that it has on the heap.
    fn bytes(&self) -> usize {
        /// The number of the latest run by instance, and that entry's place in the table's index.
        const IN_LATEST: usize = size_of::<(InstanceId, u64)>() + 2 * size_of::<usize>();
        let story = match &self.story {
            Story::Told(history) => history.bytes(),
            Story::Plain { cause, .. } => cause.text_len(),
        };
        let id = match &self.instance {
            InstanceId::Text(text) => 2 * text.len(),
            InstanceId::Uuid(_) | InstanceId::DryRun(_) => 0,
        };
        let texts = self.hostname.len() + self.name.len() + self.program.len();
        size_of::<Noted>() + IN_LATEST + story + id + texts
    }
}

impl Past {
    /// What was remembered before a restart is restored, and no end since `since` is missing but those that were
    /// forgotten.
    pub(super) fn begin(&mut self, since: Instant, now: Instant) {
        let runs = self.runs.iter().map(|noted| (noted.number, &noted.run));
        self.reach.begin(since, now, runs);
    }

    /// Ends before this moment are missing.
    pub(super) fn note_gap(&mut self, until: Instant) {
        self.reach.note_gap(until);
    }

    /// Every end after this moment is remembered; `None` where that is not known.
    pub(super) fn complete_since(&self) -> Option<Instant> {
        self.reach.since()
    }

    /// Notes a run that is over now.
    pub(super) fn note(&mut self, run: Run) {
        self.last += 1;
        self.bytes += run.bytes();
        let number = self.last;
        let before = self.latest.insert(run.instance.clone(), number);
        self.runs.push_back(Noted {
            number,
            before,
            run,
        });
        self.changed.push(number);
        self.forget_oldest();
    }

    /// Notes a run that a node remembers and the scheduler does not. Only if there is room: no known run is forgotten
    /// for it, because known ones are mostly newer.
    pub(super) fn learn(&mut self, now: Instant, run: Run) {
        if self.bytes + run.bytes() <= MAX_PAST_BYTES {
            self.reach.note_learnt(now);
            self.note(run);
        }
    }

    /// Takes over a run from disk under the number it had. Records come in any order, so each is put where its number
    /// belongs.
    pub(super) fn restore(&mut self, number: u64, run: Run) {
        self.last = self.last.max(number);
        self.bytes += run.bytes();
        let before = self.link(number, &run.instance);
        let at = self.runs.partition_point(|noted| noted.number < number);
        self.runs.insert(
            at,
            Noted {
                number,
                before,
                run,
            },
        );
        self.forget_oldest();
    }

    /// Puts a number into the linked list of an instance's runs; returns the number before it.
    fn link(&mut self, number: u64, instance: &InstanceId) -> Option<u64> {
        let mut after = match self.latest.get_mut(instance) {
            None => return self.latest.insert(instance.clone(), number),
            Some(latest) if *latest < number => return Some(std::mem::replace(latest, number)),
            Some(latest) => *latest,
        };
        loop {
            let noted = self.position(after).and_then(|at| self.runs.get_mut(at))?;
            match noted.before.filter(|before| *before > number) {
                Some(before) => after = before,
                None => return noted.before.replace(number),
            }
        }
    }

    /// Forgets the oldest runs until their bytes are within the limit. Their records are to be deleted, so they count as
    /// changed.
    fn forget_oldest(&mut self) {
        while self.bytes > MAX_PAST_BYTES {
            let Some(Noted { number, run, .. }) = self.runs.pop_front() else {
                return;
            };
            self.bytes -= run.bytes();
            self.reach.forget(&run);
            self.changed.push(number);
        }
        if self.latest.len() > PRUNE_ABOVE.max(2 * self.runs.len()) {
            let first = self.runs.front().map_or(u64::MAX, |noted| noted.number);
            self.latest.retain(|_, number| *number >= first);
        }
    }

    /// Where a run is in `runs`; `None` if it is forgotten.
    fn position(&self, number: u64) -> Option<usize> {
        let at = self
            .runs
            .binary_search_by_key(&number, |noted| noted.number);
        at.ok()
    }

    /// The runs of an instance, the latest first.
    fn runs_of(&self, instance: &InstanceId) -> impl Iterator<Item = &Run> {
        let mut next = self.latest.get(instance).copied();
        std::iter::from_fn(move || {
            let noted = self.runs.get(self.position(next?)?)?;
            next = noted.before;
            Some(&noted.run)
        })
    }

    /// Whether the run of an instance is remembered that ended on a node under this number. O(runs of the instance).
    pub(super) fn knows(&self, instance: &InstanceId, node: Uuid, end: u64) -> bool {
        let mut runs = self.runs_of(instance);
        runs.any(|run| run.node == Some(node) && run.end == Some(end))
    }

    /// Whether the latest run of an instance ended on this node, by that node's own word.
    pub(super) fn has_ended_on(&self, instance: &InstanceId, node: Uuid) -> bool {
        self.runs_of(instance).next().is_some_and(|run| {
            let is_told = run.end.is_some() || run.cause() == Some(&Cause::Ended);
            run.node == Some(node) && is_told
        })
    }

    /// How many runs were forgotten so far, over restarts too: numbers count all there were.
    pub(super) fn forgotten(&self) -> u64 {
        let kept = u64::try_from(self.runs.len()).unwrap_or(u64::MAX);
        self.last.saturating_sub(kept)
    }

    /// The latest number given.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Changes the latest run of an instance, if it was noted after this number; whether it was. For reports that
    /// arrive in parts: the number is the latest before the first part came.
    pub(super) fn amend(
        &mut self,
        number: u64,
        instance: &InstanceId,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        if self.last <= number {
            return false;
        }
        let latest = self.latest.get(instance);
        let Some(number) = latest.copied().filter(|latest| *latest > number) else {
            return false;
        };
        let Some(noted) = self.position(number).and_then(|at| self.runs.get_mut(at)) else {
            return false;
        };
        let run = &mut noted.run;
        self.bytes -= run.bytes();
        change(run);
        self.bytes += run.bytes();
        self.changed.push(number);
        true
    }

    /// A run that has changed, in no particular order; the same may come more than once. `None` once all were handed
    /// out.
    pub(super) fn next_changed(&mut self) -> Option<u64> {
        self.changed.pop()
    }

    /// A run by its number; `None` if it is forgotten: its record is to be deleted.
    pub(super) fn get(&self, number: u64) -> Option<&Run> {
        Some(&self.runs.get(self.position(number)?)?.run)
    }

    /// Those after a number, oldest first.
    pub(super) fn iter_after(&self, number: u64) -> impl Iterator<Item = (u64, &Run)> {
        let from = self.runs.partition_point(|noted| noted.number <= number);
        let noted = self.runs.range(from..);
        noted.map(|noted| (noted.number, &noted.run))
    }

    /// The events of an instance over all its remembered runs, oldest first. The last event of each run comes with the
    /// run.
    pub(super) fn of(
        &self,
        instance: &InstanceId,
    ) -> impl Iterator<Item = (Cow<'_, HistoryEvent>, Option<&Run>)> {
        let runs: Vec<&Run> = self.runs_of(instance).collect();
        runs.into_iter().rev().flat_map(|run| {
            let last = run.events().count().saturating_sub(1);
            let events = run.events().enumerate();
            events.map(move |(at, event)| (event, (at == last).then_some(run)))
        })
    }

    /// The runs of one instance after a number, oldest first. O(runs of the instance).
    pub(super) fn runs_of_after(&self, instance: &InstanceId, number: u64) -> Vec<(u64, &Run)> {
        let mut next = self.latest.get(instance).copied();
        let mut found = Vec::new();
        while let Some(at) = next.filter(|at| *at > number)
            && let Some(noted) = self.position(at).and_then(|at| self.runs.get(at))
        {
            found.push((at, &noted.run));
            next = noted.before;
        }
        found.reverse();
        found
    }

    /// Those remembered, and the bytes that they take.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.runs.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests;
