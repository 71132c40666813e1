//! Runs of instances that are over: what became of each, how it ended and where, what it was called and ran. The latest
//! are remembered, also across restarts; the oldest are forgotten first, by all the bytes that they take.
//!
//! A run has a number, counted up with each run that ends; it is the key of the run's record on disk and the cursor of
//! `ended` queries. The runs of one instance are a linked list in the order in which they began: `latest` names the last
//! one, which is the outcome, and each names the one before it. That is not always the order in which their ends became
//! known: a node that was lost reports the end of its run after a later one has ended elsewhere ([`RunNumbers`](super::numbering::RunNumbers)).

mod reach;
mod run;
mod unsent;

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use sched_model::Uuid;

use self::reach::Reach;
pub(crate) use self::run::{Run, UnsentFailure};
use super::Instances;
use super::history::HistoryEvent;
use super::numbering::RunNumbers;
use crate::api::ids::InstanceId;
use crate::maps::Map;

/// Bytes of all runs that are remembered, with their places in the tables; the oldest are forgotten first. More than
/// 100 000 runs as they usually are: many nights of work of a cluster, and little beside what a scheduler of that size
/// takes.
pub const MAX_PAST_BYTES: usize = 64 * 1024 * 1024;

/// Below so many entries, those of forgotten runs are left in the index by instance.
const PRUNE_ABOVE: usize = 4096;

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
    /// The sum of `Run::bytes`: at most [`MAX_PAST_BYTES`] between two inputs.
    bytes: usize,
    /// Runs that were added, changed or forgotten, and are not noted in the journal yet.
    changed: Vec<u64>,
    /// Those whose failure is to be sent to the next controller.
    to_send: BTreeSet<u64>,
    reach: Reach,
}

/// A run with its number, and with that of the run of the same instance before it: one that may be forgotten by now.
#[derive(Debug)]
struct Noted {
    number: u64,
    before: Option<u64>,
    run: Run,
}

impl Instances {
    /// All runs from before a restart are taken in: no end since `since` is missing but those that were forgotten.
    pub(crate) fn begin_history(&mut self, since: Instant, now: Instant) {
        let runs = self.past.runs.iter();
        let runs = runs.map(|noted| (noted.number, &noted.run));
        self.past.reach.begin(since, now, runs);
    }

    /// Ends before this moment were told to another scheduler.
    pub(crate) fn note_gap(&mut self, until: Instant) {
        self.past.reach.note_gap(until);
    }

    /// Every end after this moment is remembered; `None` where that is not known.
    pub(crate) fn history_complete_since(&self) -> Option<Instant> {
        self.past.reach.since
    }

    /// Notes a run that is over, with what its instance is called and runs.
    pub(crate) fn note_run(&mut self, mut run: Run) {
        self.name_run(&mut run);
        run.set_ended_by(self.take_ended_by(run.instance()));
        self.past.note(run);
    }

    /// Notes the run of an instance that begins and ends with this report of its node; its numbers go on from those of
    /// the latest run.
    pub(crate) fn note_whole_run(&mut self, node: Uuid, mut run: Run) {
        self.name_run(&mut run);
        run.set_ended_by(self.take_ended_by(run.instance()));
        self.past.note_whole(node, run);
    }

    /// Notes a run that a node remembers and the scheduler does not. Only if there is room: no known run is forgotten
    /// for it, because known ones are mostly newer.
    pub(crate) fn learn_run(&mut self, now: Instant, mut run: Run) {
        self.name_run(&mut run);
        if self.past.bytes + run.bytes() <= MAX_PAST_BYTES {
            self.past.reach.note_learnt(now);
            self.past.note(run);
        }
    }

    /// Has a run say what is known of its instance now: that is forgotten before the run is.
    fn name_run(&self, run: &mut Run) {
        if let Some(about) = self.about(run.instance()) {
            run.set_known(about);
        }
    }

    /// Takes over a run from disk under the number it had. Records come in any order, so each is put where its number
    /// belongs.
    pub(crate) fn restore_run(&mut self, number: u64, run: Run) {
        self.past.last = self.past.last.max(number);
        self.past.bytes += run.bytes();
        let before = self.past.link(number, &run);
        if run.unsent().is_some() {
            self.past.to_send.insert(number);
        }
        let at = self
            .past
            .runs
            .partition_point(|noted| noted.number < number);
        self.past.runs.insert(
            at,
            Noted {
                number,
                before,
                run,
            },
        );
        self.past.forget_oldest();
    }

    /// Whether the run of an instance is remembered that ended on a node under this number. O(runs of the instance).
    pub(crate) fn knows_run(&self, instance: &InstanceId, node: Uuid, end: u64) -> bool {
        let mut runs = self.past.runs_of(instance);
        runs.any(|run| run.node() == Some(node) && run.end() == Some(end))
    }

    /// The latest run of an instance that ended on this node, by that node's own word. O(runs of the instance).
    pub(crate) fn last_end_on(&self, instance: &InstanceId, node: Uuid) -> Option<&Run> {
        let mut runs = self.past.runs_of(instance);
        runs.find(|run| run.node() == Some(node) && run.is_told_by_node())
    }

    /// Whether the latest run of an instance that does not live was begun from here and ended on another node, as that node
    /// says with its exit status, and nothing is missing since: then no START of it has left since, and it has ended nowhere
    /// else.
    pub(crate) fn has_ended_elsewhere(&self, instance: &InstanceId, node: Uuid) -> bool {
        let is_complete = |run: &Run| {
            let since = self.history_complete_since();
            since.is_some_and(|since| since <= run.ended())
        };
        let last = self.last_run_of(instance);
        last.is_some_and(|run| {
            run.node().is_some_and(|other| other != node)
                && (run.was_started_here() && run.exit_code().is_some())
                && (run.is_told_by_node() && is_complete(run))
        })
    }

    /// The same of a run that ended at this moment or later.
    pub(crate) fn has_ended_on_since(
        &self,
        instance: &InstanceId,
        node: Uuid,
        since: Instant,
    ) -> bool {
        let last = self.last_run_of(instance);
        let is_there = |run: &Run| run.node() == Some(node) && run.ended() >= since;
        last.is_some_and(is_there) && self.last_end_on(instance, node).is_some()
    }

    /// How many runs were forgotten so far, over restarts too: numbers count all there were.
    pub(crate) fn runs_forgotten(&self) -> u64 {
        let kept = u64::try_from(self.past.runs.len()).unwrap_or(u64::MAX);
        self.past.last.saturating_sub(kept)
    }

    /// The number of the latest run that is over. A caller notes it before an end is dealt with, to find with
    /// [`Instances::amend_run`] the run that the end has made.
    pub(crate) fn last_run(&self) -> u64 {
        self.past.last
    }

    /// The latest run of an instance that is over and remembered.
    pub(crate) fn last_run_of(&self, instance: &InstanceId) -> Option<&Run> {
        self.past.runs_of(instance).next()
    }

    /// The run that decides what comes after an instance: the latest. An end that a node reports, and of which nothing else
    /// was known, does not count where its START failed before any node was given it: that node cannot have had it.
    pub(crate) fn outcome_of(&self, instance: &InstanceId) -> Option<&Run> {
        let mut runs = self.past.runs_of(instance);
        let latest = runs.next()?;
        let was_refused = |run: &&Run| run.failed().is_some() && run.node().is_none();
        if latest.was_started_here() || was_refused(&latest) {
            return Some(latest);
        }
        let own = runs.find(|run| run.was_started_here() || was_refused(run));
        Some(own.filter(was_refused).unwrap_or(latest))
    }

    /// Whether this is the latest run of its instance that is remembered.
    pub(crate) fn is_last_run(&self, run: &Run) -> bool {
        let latest = self.last_run_of(run.instance());
        latest.is_some_and(|latest| std::ptr::eq(latest, run))
    }

    /// The number of the latest run of an instance, if that is remembered.
    pub(crate) fn number_of_last_run(&self, instance: &InstanceId) -> Option<u64> {
        let latest = self.past.latest.get(instance).copied();
        latest.filter(|number| self.past.position(*number).is_some())
    }

    /// Changes the latest run of an instance if `wants` says so; whether it does.
    pub(crate) fn amend_last_run(
        &mut self,
        instance: &InstanceId,
        wants: impl FnOnce(&Run) -> bool,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        let latest = self.past.latest.get(instance).copied();
        let at = latest.and_then(|number| self.past.position(number));
        let Some(at) = at.filter(|at| self.past.runs.get(*at).is_some_and(|it| wants(&it.run)))
        else {
            return false;
        };
        self.past.change(at, change)
    }

    /// Changes the run of an instance that was noted after this number; whether there is one. For reports that arrive in
    /// parts: the number is the latest before the first part came.
    pub(crate) fn amend_run(
        &mut self,
        number: u64,
        instance: &InstanceId,
        change: impl FnOnce(&mut Run),
    ) -> bool {
        if self.past.last <= number {
            return false;
        }
        let first = self
            .past
            .runs
            .partition_point(|noted| noted.number <= number);
        let mut noted_after = self.past.runs.range(first..);
        match noted_after.rposition(|noted| noted.run.instance() == instance) {
            Some(at) => self.past.change(first + at, change),
            None => false,
        }
    }

    /// A run that has changed, in no particular order; the same may come more than once. `None` once all were handed
    /// out.
    pub(crate) fn next_changed_run(&mut self) -> Option<u64> {
        self.past.changed.pop()
    }

    /// A run by its number; `None` if it is forgotten: its record is to be deleted.
    pub(crate) fn run(&self, number: u64) -> Option<&Run> {
        self.past.get(number)
    }

    /// Runs that are over, after the one with this number, oldest first.
    pub(crate) fn runs_after(&self, number: u64) -> impl Iterator<Item = (u64, &Run)> {
        let from = self
            .past
            .runs
            .partition_point(|noted| noted.number <= number);
        let noted = self.past.runs.range(from..);
        noted.map(|noted| (noted.number, &noted.run))
    }

    /// Runs that are over, before the one with this number, the latest first.
    pub(crate) fn runs_before(&self, number: u64) -> impl Iterator<Item = (u64, &Run)> {
        let to = self
            .past
            .runs
            .partition_point(|noted| noted.number < number);
        let noted = self.past.runs.range(..to).rev();
        noted.map(|noted| (noted.number, &noted.run))
    }

    /// The events of an instance over all its remembered runs, oldest first. The last event of each run comes with the
    /// run.
    pub(super) fn past_events(
        &self,
        instance: &InstanceId,
    ) -> impl Iterator<Item = (Cow<'_, HistoryEvent>, Option<&Run>)> {
        let runs: Vec<&Run> = self.past.runs_of(instance).collect();
        let events = runs.into_iter().rev().flat_map(|run| {
            let last = run.events().count().saturating_sub(1);
            let events = run.events().enumerate();
            events.map(move |(at, event)| (event, (at == last).then_some(run)))
        });
        // The end of an earlier run may lie between the events of a later one.
        let mut events: Vec<_> = events.collect();
        events.sort_by_key(|(event, _)| event.at);
        events.into_iter()
    }

    /// The runs of one instance after a number, oldest first. O(runs of the instance).
    pub(crate) fn runs_of_after(&self, instance: &InstanceId, number: u64) -> Vec<(u64, &Run)> {
        let mut next = self.past.latest.get(instance).copied();
        let mut found = Vec::new();
        while let Some(at) = next
            && let Some(noted) = self.past.position(at).and_then(|at| self.past.runs.get(at))
        {
            found.push((at, &noted.run));
            next = noted.before;
        }
        // Their order by number is not that in which they began.
        found.retain(|(at, _)| *at > number);
        found.sort_unstable_by_key(|(at, _)| *at);
        found
    }

    /// Forgets the oldest runs, so that all take no more bytes than they may. Called once the records of what an input has
    /// changed are handed out: a run that was forgotten before would have no record.
    pub(crate) fn forget_oldest_runs(&mut self) {
        self.past.forget_oldest();
    }

    /// The number of remembered runs, and the bytes that they take.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn past_size(&self) -> (usize, usize) {
        (self.past.runs.len(), self.past.bytes)
    }
}

impl Past {
    /// Notes a run that is over now.
    fn note(&mut self, run: Run) {
        self.last += 1;
        let before = self.link(self.last, &run);
        self.push(before, run);
    }

    /// Notes a run that begins and ends on this node now: it is the latest of its instance.
    fn note_whole(&mut self, node: Uuid, mut run: Run) {
        self.last += 1;
        let (_, before) = self.latest.insert_full(run.instance().clone(), self.last);
        let last = before.and_then(|before| self.get(before));
        let mut numbers = last.map_or_else(RunNumbers::default, |last| {
            RunNumbers::after(last.numbers())
        });
        numbers.begin(node);
        numbers.close(node);
        run.set_numbers(numbers);
        self.push(before, run);
    }

    /// Puts the run with the latest number behind all others.
    fn push(&mut self, before: Option<u64>, run: Run) {
        let number = self.last;
        self.bytes += run.bytes();
        self.runs.push_back(Noted {
            number,
            before,
            run,
        });
        self.changed.push(number);
    }

    /// Puts a number into the linked list of an instance's runs; returns the number before it. Costs as much as there are
    /// later runs of that instance: none as a rule.
    fn link(&mut self, number: u64, run: &Run) -> Option<u64> {
        let is_before = |past: &Self, other: u64| {
            let other_run = past.get(other);
            other_run.is_none_or(|it| (it.order(), other) < (run.order(), number))
        };
        let (place, latest) = self.latest.insert_full(run.instance().clone(), number);
        let Some(mut after) = latest.filter(|latest| !is_before(self, *latest)) else {
            return latest;
        };
        // It came late: a later run is still the latest.
        if let Some((_, latest)) = self.latest.get_index_mut(place) {
            *latest = after;
        }
        loop {
            let at = self.position(after)?;
            let before = self.runs.get(at).and_then(|noted| noted.before);
            match before.filter(|before| !is_before(self, *before)) {
                Some(before) => after = before,
                None => {
                    let noted = self.runs.get_mut(at);
                    return noted.and_then(|noted| noted.before.replace(number));
                }
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
            self.to_send.remove(&number);
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

    /// Changes the run at this place; whether there is one.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Run)) -> bool {
        let Some(noted) = self.runs.get_mut(at) else {
            return false;
        };
        self.bytes -= noted.run.bytes();
        change(&mut noted.run);
        self.bytes += noted.run.bytes();
        self.changed.push(noted.number);
        true
    }

    /// A run by its number, if it is remembered.
    fn get(&self, number: u64) -> Option<&Run> {
        Some(&self.runs.get(self.position(number)?)?.run)
    }
}

#[cfg(test)]
mod tests;
