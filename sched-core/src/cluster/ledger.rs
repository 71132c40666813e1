//! One node's claims: an entry per instance on it, what it asked for, and what of that is still to be held back.
//!
//! What a node reports as available already lacks what its instances use; what they asked for beyond that is *held*.
//! The sums over all entries are kept up to date with every change, so that a node's free resources are known without a
//! walk.
//!
//! The states of an entry (`ClaimState`), and what moves it from one to the next:
//!
//! ```text
//!  Claimed ──START given──▶ Placed ──listed in STATS──▶ Running ──ended, or missing in several STATS──▶ (removed)
//!                             │ connection lost                      │ the same, with a START open
//!                             ▼                                      ▼
//!                          InDoubt ──listed──▶ Running            InDoubt
//!                             └──not listed──▶ (removed; the START has failed)
//! ```
//!
//! A ledger knows nothing of other nodes, of tables, or of what a managed instance awaits. `Cluster::ledger_mut` hands
//! it out so that the node's offer is updated afterwards.

mod doubt;
mod entries;
mod entry;
mod listing;
mod open;
mod orders;
mod sent;
mod sums;
mod window;

use std::sync::Arc;
use std::time::Instant;

use indexmap::{IndexMap, IndexSet};
use sched_model::RunProgress;

use crate::api::ids::InstanceId;
use crate::api::input::{InstanceReport, InstanceState};
use crate::api::resources::{MAX_ADOPTED, Resources};
use crate::api::tally::Times;
use crate::cluster::columns::{Amounts, Columns};
use crate::cluster::index::ColumnId;

use self::entries::Entries;
use self::sums::Sums;

/// Largest processor use of one instance that is taken in, in per cent for each of its vcpus: more is no measurement.
const MAX_CPU_SHARE: i64 = 100_000;

pub(crate) use self::entry::{
    ClaimState, Claims, Entry, Extras, Floor, Measured, Members, Suspension, Unconfirmed, larger,
};
pub(crate) use self::listing::MissRules;
pub(crate) use self::open::{Ended, EntryEnd};
pub(crate) use self::sent::{Remains, Resumption};

/// What one STATS changed; for `workflow::reports` to act on.
#[derive(Debug, Default)]
pub(crate) struct StatsOutcome {
    /// STARTs in doubt that the node does not have: they have failed, and their entries are gone.
    pub(crate) failed: Vec<(InstanceId, Unconfirmed)>,
    /// Entries dropped after too many STATS without them; the START, if it never was confirmed.
    pub(crate) dropped: Vec<(InstanceId, Option<Unconfirmed>)>,
    /// How long each START took from its claim to the first STATS that lists it.
    pub(crate) confirmed: Times,
    /// Managed instances that were listed with something new: for the first time, or in another state than before.
    pub(crate) listed: Vec<(InstanceId, InstanceState)>,
}

/// The claims on one node.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    entries: Entries,
    sums: Sums,
    /// Whether an instance came or went, or what it asks for changed, since [`Ledger::take_claims_changed`].
    claims_changed: bool,
    /// Whether any STATS has listed an instance. An original launcher sends an empty list before it has looked at its
    /// instances, so before that an empty list says nothing.
    has_listed: bool,
    /// Whether stops were lost with a connection ([`Ledger::take_lost_stops`]).
    has_lost_stops: bool,
    /// Instances that ended by themselves with a stop of them under way, which is answered later: for what ended, whatever was
    /// started since.
    late_stops: IndexSet<InstanceId>,
    /// Whether its launcher reports which STARTs it has seen.
    counts_starts: bool,
    /// STARTs in doubt of which another process than the one that reports now may know, until when that is waited for
    /// ([`Ledger::put_in_doubt`]). Some may have an outcome since.
    contested: IndexMap<InstanceId, Instant>,
    /// STATS applied so far; entries note the last one that listed them.
    stats_count: u64,
    /// Processors that its instances use, as the latest STATS says, in per cent of one.
    cpu_use: i64,
    /// Rows of the latest STATS whose program ends again and again.
    crash_loops: usize,
}

impl Ledger {
    /// A ledger without entries.
    pub(crate) fn new(measured: Measured) -> Self {
        Self {
            entries: Entries::with_places(),
            sums: Sums::new(measured),
            claims_changed: false,
            has_listed: false,
            has_lost_stops: false,
            late_stops: IndexSet::new(),
            counts_starts: false,
            contested: IndexMap::new(),
            stats_count: 0,
            cpu_use: 0,
            crash_loops: 0,
        }
    }

    /// The entries whose program ends again and again, as the latest STATS says. Costs nothing where there are none.
    pub(crate) fn crash_loops(&self) -> impl Iterator<Item = (&InstanceId, &RunProgress)> {
        let none = self.crash_loops == 0;
        let entries = self
            .entries
            .iter_from(if none { self.entries.len() } else { 0 });
        let progress = entries.filter_map(|(instance, entry)| Some((instance, entry.progress()?)));
        progress.filter(|(_, progress)| progress.is_crash_loop())
    }

    /// Processors that its instances use, as the latest STATS says, in per cent of one.
    pub(crate) fn cpu_use(&self) -> i64 {
        self.cpu_use
    }

    /// The sum of what its entries claim: asked for, and held.
    pub(crate) fn claims(&self) -> Claims {
        self.sums.claims
    }

    /// The sum of custom resources asked for, in the order of their numbers.
    pub(crate) fn held_custom(&self) -> &[(ColumnId, i64)] {
        &self.sums.held_custom
    }

    /// Members of groups that came or went since the last call, or gave up or took their place; for the cluster to count.
    pub(crate) fn take_group_changes(&mut self) -> Vec<(Arc<str>, Members)> {
        std::mem::take(&mut self.sums.group_changes)
    }

    /// The groups of its entries, once for each entry that has one.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.memberships().map(|(group, _)| group)
    }

    /// The groups of its entries, and what each entry counts for in its group.
    pub(crate) fn memberships(&self) -> impl Iterator<Item = (&Arc<str>, Members)> {
        let entries = self.entries.values();
        entries.filter_map(|entry| Some((entry.group()?, entry.membership())))
    }

    /// Instances known.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// STARTs without an outcome.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.sums.unconfirmed
    }

    /// The entry of an instance.
    pub(crate) fn get(&self, instance: &InstanceId) -> Option<&Entry> {
        self.entries.get(instance)
    }

    /// What becomes free on the node when an entry is removed and its instance gone.
    pub(crate) fn frees(&self, entry: &Entry) -> Resources {
        entry.frees(self.sums.measured)
    }

    /// What was released less what was claimed since [`Ledger::count_released`]; `None` while that is not counted.
    pub(crate) fn released(&self) -> Option<Resources> {
        self.sums.released
    }

    /// Begins to count from zero what is released: the node has just called itself full.
    pub(crate) fn count_released(&mut self) {
        self.sums.released = Some(Resources::ZERO);
    }

    /// Stops counting: the node has reported another status, or has a new connection.
    pub(crate) fn stop_counting_released(&mut self) {
        self.sums.released = None;
    }

    /// Whether an instance has an entry, and its node has not reported that it runs there.
    pub(crate) fn is_unanswered(&self, instance: &InstanceId) -> bool {
        let entry = self.entries.get(instance);
        entry.is_some_and(|entry| entry.claim_state != ClaimState::Running)
    }

    /// The entries from a position on; positions shift when entries are released.
    pub(crate) fn entries_from(&self, start: usize) -> impl Iterator<Item = (&InstanceId, &Entry)> {
        self.entries.iter_from(start)
    }

    /// The first `count` entries, the last of them first, with their positions. When an entry is removed, the last one
    /// takes its position, so a walk in this order sees every entry that stays.
    pub(crate) fn entries_before(
        &self,
        count: usize,
    ) -> impl Iterator<Item = (usize, &InstanceId, &Entry)> {
        let positions = (0..count.min(self.entries.len())).rev();
        positions.filter_map(|at| {
            let (instance, entry) = self.entries.at(at)?;
            Some((at, instance, entry))
        })
    }

    /// Adds or replaces an entry.
    pub(crate) fn insert(&mut self, instance: InstanceId, mut entry: Entry) {
        entry.is_stop_late = self.late_stops.swap_remove(&instance);
        self.claims_changed |= entry.is_known;
        self.has_lost_stops |= entry.is_stop_lost();
        self.sums.count_in(&entry);
        if let Some(old) = self.entries.insert(instance, entry) {
            self.sums.count_out(&old);
        }
    }

    /// Removes an entry and takes its claims off; returns its state, if there was one.
    pub(crate) fn release(&mut self, instance: &InstanceId) -> Option<ClaimState> {
        let (sums, claims_changed) = (&mut self.sums, &mut self.claims_changed);
        let late_stops = &mut self.late_stops;
        self.entries.remove(instance, |entry| {
            if entry.is_stop_late {
                // Its START was not given to the node: the answer is still owed.
                late_stops.insert(instance.clone());
            }
            *claims_changed |= entry.is_known;
            sums.count_out(entry);
            entry.claim_state
        })
    }

    /// Changes the state of an entry, and resets what was counted about its START: misses, and an earlier START that
    /// was open.
    pub(crate) fn set_claim_state(&mut self, instance: &InstanceId, claim_state: ClaimState) {
        let Some(entry) = self.entries.get_mut(instance) else {
            return;
        };
        self.sums.recount(entry, |entry| {
            if let Some(start) = claim_state.unconfirmed() {
                entry.sender = Some(start.sender);
            }
            entry.claim_state = claim_state;
            // That it runs was said behind the answers to all stops of before.
            entry.is_stop_late &= claim_state != ClaimState::Running;
            entry.repeated = None;
            entry.misses = 0;
        });
    }

    /// Says whether an instance is managed.
    pub(crate) fn set_managed(&mut self, instance: &InstanceId, is_managed: bool) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.is_managed = is_managed;
            self.claims_changed = true;
        }
    }

    /// Says whether an instance is suspended, and for whom.
    pub(crate) fn set_suspended(&mut self, instance: &InstanceId, suspension: Suspension) {
        let Some(entry) = self.entries.get_mut(instance) else {
            return;
        };
        let before = entry.membership().in_place;
        self.sums
            .change(entry, |entry| entry.suspension = suspension);
        if let Some(group) = entry.group() {
            let in_place = entry.membership().in_place - before;
            self.sums.count_members(group, Members { all: 0, in_place });
        }
    }

    /// Changes what an instance asks for.
    pub(crate) fn set_asked(&mut self, instance: &InstanceId, asked: Resources, custom: Amounts) {
        let Some(entry) = self.entries.get_mut(instance) else {
            return;
        };
        let group = entry.group().cloned();
        self.sums.set_extras(entry, Extras { custom, group });
        self.sums.change(entry, |entry| {
            entry.asked = asked;
            entry.is_known = true;
        });
        self.claims_changed = true;
    }

    /// Whether an instance came or went, or what it asks for changed, since the last call. Claims on original
    /// launchers' nodes are kept on disk, because those do not report them.
    pub(crate) fn take_claims_changed(&mut self) -> bool {
        std::mem::take(&mut self.claims_changed)
    }

    /// Sets the least that an instance claims whatever its launcher reports, while an UPDATE of it is under way; `None`
    /// ends that.
    pub(crate) fn set_floor(&mut self, instance: &InstanceId, floor: Option<Floor>) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.floor = floor.map(Box::new);
        }
    }

    /// The amounts that its launcher has reported for an instance since it has a floor: how a late UPDATE is decided.
    pub(crate) fn said(&self, instance: &InstanceId) -> Option<Resources> {
        self.entries.get(instance)?.floor.as_ref()?.said
    }

    /// Changes an entry in a way that may change its claims, and the sums with it.
    fn change(&mut self, instance: &InstanceId, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.entries.get_mut(instance) {
            self.sums.change(entry, change);
        }
    }

    /// Instances listed of which it is not known what they asked for.
    pub(crate) fn unknown(&self) -> usize {
        self.entries.values().filter(|it| !it.is_known).count()
    }

    /// The one START without an outcome, if there is exactly one: which one an original launcher means by a
    /// StartFailure without an instance.
    pub(crate) fn only_unconfirmed(&self) -> Option<InstanceId> {
        let mut entries = (self.sums.unconfirmed == 1).then(|| self.entries.iter_from(0))?;
        let found = entries.find(|(_, entry)| entry.unconfirmed().is_some());
        found.map(|(instance, _)| instance.clone())
    }

    /// Changes how instances that run are counted, and recomputes the sums of claims.
    pub(crate) fn set_measured(&mut self, measured: Measured) {
        self.sums.measured = measured;
        self.sums.claims = self.recomputed().0;
    }

    /// Whether the node's launcher says which STARTs it has seen.
    pub(crate) fn counts_starts(&self) -> bool {
        self.counts_starts
    }

    /// Notes that the node's launcher says which STARTs it has seen.
    pub(crate) fn note_counting(&mut self) {
        self.counts_starts = true;
    }

    /// Applies one STATS: confirms, measures and adopts what is listed, counts what is missing. All entries are up to
    /// date afterwards; what follows for managed instances is up to the caller, by the outcome.
    pub(crate) fn apply_stats(
        &mut self,
        reports: Vec<InstanceReport>,
        misses: &MissRules,
        columns: &Columns,
        now: Instant,
    ) -> StatsOutcome {
        let mut outcome = StatsOutcome::default();
        self.stats_count += 1;
        (self.cpu_use, self.crash_loops) = (0, 0);
        // An original launcher's empty list may only mean that it has not looked yet.
        let is_evidence = misses.starts_seen.is_some() || self.has_listed || !reports.is_empty();
        self.has_listed |= !reports.is_empty();
        let mut listed = 0;
        for report in reports {
            listed += usize::from(self.apply_report(report, misses, columns, now, &mut outcome));
        }
        if listed < self.entries.len() {
            self.count_missing(is_evidence, misses, now, &mut outcome);
        }
        outcome
    }

    /// Applies one row of a STATS; returns whether it is the first row about this instance. An instance without an
    /// entry is adopted. Figures are clamped, so that no launcher can overflow sums.
    fn apply_report(
        &mut self,
        report: InstanceReport,
        rules: &MissRules,
        columns: &Columns,
        now: Instant,
        outcome: &mut StatsOutcome,
    ) -> bool {
        if !self.entries.contains(&report.instance) {
            self.insert(report.instance.clone(), Entry::adopted(now));
        }
        let Some(entry) = self.entries.get_mut(&report.instance) else {
            return false;
        };
        if let Some(extras) = entry.other_extras(&report, columns) {
            self.sums.set_extras(entry, extras);
        }
        if entry.unconfirmed().is_some() {
            let took = now.saturating_duration_since(entry.since());
            outcome.confirmed.note(took);
        }
        let progress = report.run.as_deref();
        self.crash_loops += usize::from(progress.is_some_and(RunProgress::is_crash_loop));
        let measured = self.sums.measured;
        let is_news = self
            .sums
            .recount(entry, |entry| entry.list(&report, rules, measured, now));
        if entry.is_managed && is_news {
            outcome.listed.push((report.instance, report.state));
        }
        // Launchers give it by vcpu.
        let share = report.cpu_used_percent.clamp(0, MAX_CPU_SHARE);
        self.cpu_use += share * entry.asked.vcpus.clamp(1, MAX_ADOPTED);
        std::mem::replace(&mut entry.listed_in, self.stats_count) != self.stats_count
    }

    /// Counts a miss for every entry that this STATS did not list, and removes entries with too many. Without
    /// `is_evidence` the list may just not be complete yet.
    fn count_missing(
        &mut self,
        is_evidence: bool,
        rules: &MissRules,
        now: Instant,
        outcome: &mut StatsOutcome,
    ) {
        let (stats_count, mut gone) = (self.stats_count, Vec::new());
        self.contested.retain(|_, until| now < *until);
        let (entries, sums, contested) = (&mut self.entries, &mut self.sums, &self.contested);
        let waits = |instance: &InstanceId, entry: &Entry| {
            matches!(entry.claim_state, ClaimState::InDoubt(_)) && contested.contains_key(instance)
        };
        entries.for_each_mut(|instance, entry| {
            if entry.listed_in == stats_count {
                return;
            }
            sums.recount(entry, |entry| {
                (entry.is_doubted, entry.is_starting) = (false, false);
                // It is taken to use nothing.
                (entry.used_mem_mib, entry.used_disk_mib) = (0, 0);
            });
            if !waits(instance, entry) && entry.count_miss(is_evidence, rules) {
                gone.push(instance.clone());
            }
        });
        for instance in gone {
            match self.release(&instance) {
                Some(ClaimState::InDoubt(start)) => outcome.failed.push((instance, start)),
                Some(claim_state) => outcome.dropped.push((instance, claim_state.unconfirmed())),
                None => {}
            }
        }
    }

    /// What is claimed and how many STARTs have no outcome, from scratch.
    fn recomputed(&self) -> (Claims, usize) {
        let mut claims = Claims::default();
        for entry in self.entries.values() {
            claims += entry.claims(self.sums.measured);
        }
        let unconfirmed = self
            .entries
            .values()
            .filter(|entry| entry.unconfirmed().is_some())
            .count();
        (claims, unconfirmed)
    }

    /// Whether the running sums are what a walk over the entries finds.
    pub(crate) fn is_consistent(&self) -> bool {
        let mut custom = std::collections::BTreeMap::new();
        for &(column, amount) in self.entries.values().flat_map(Entry::custom) {
            let sum = custom.entry(column).or_insert(0_i64);
            *sum = sum.saturating_add(amount);
        }
        self.recomputed() == (self.sums.claims, self.sums.unconfirmed)
            && custom.into_iter().eq(self.sums.held_custom.iter().copied())
            && self.sums.group_changes.is_empty()
    }
}
