//! One node's claims: an entry per instance on it, what it asked for, and what of that is still to be held back.
//!
//! What a node reports as available already lacks what its instances use; what they asked for beyond that is *held*.
//! The sum of it is kept up to date with every change, so that a node's free resources are known without a walk.

use std::sync::Arc;
use std::time::Instant;

use indexmap::IndexMap;

use super::columns::{Amounts, Columns};
use super::config::Accounting;
use super::ids::{InstanceId, SessionId};
use super::index::ColumnId;
use super::input::{InstanceReport, InstanceState};
use super::resources::{MAX_ADOPTED, Resources};

/// One instance on a node.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// What it asked for; zero where nobody said (an instance of an original launcher after a scheduler restart).
    pub(super) asked: Resources,
    /// What else it asked for; `None` for most.
    extras: Option<Box<Extras>>,
    /// What it uses, from the latest STATS; 0 while unknown.
    pub(super) used_mem_mib: i64,
    /// What it uses, from the latest STATS; 0 while unknown.
    pub(super) used_disk_mib: i64,
    /// How sure it is.
    pub(super) phase: Phase,
    /// When the entry was made.
    pub(super) since: Instant,
    /// The launcher's word for its state, from the latest STATS.
    pub(super) reported: Option<InstanceState>,
    /// Who asked for it, while that is known: told what its launcher says of its start.
    pub(super) sender: Option<SessionId>,
    /// A START repeated while it ran, until the node has answered or reported again.
    repeated: Option<Unconfirmed>,
    /// STATS in a row that should have listed it and did not.
    misses: u8,
    /// The latest STATS that listed it, by the ledger's count.
    listed_in: u64,
}

/// What few instances have: custom resources, and a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Extras {
    /// Custom resources it asked for.
    pub(super) custom: Amounts,
    /// The group it is a member of.
    pub(super) group: Option<Arc<str>>,
}

/// How sure it is that an instance is on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its START was given to the node, which has not listed it yet.
    Placed(Unconfirmed),
    /// As `Placed`, but the connection has ended since.
    InDoubt(Unconfirmed),
    /// The node listed it.
    Running,
}

/// A START without an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unconfirmed {
    /// Who is to be told if it fails.
    pub(super) sender: SessionId,
    /// Which START on the node's connection it was, from 1.
    pub(super) ordinal: u64,
    /// Whether it was a restart; only echoed in failures.
    pub(super) restart: bool,
}

/// Which resources count as what is used once an instance is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Measured {
    pub(super) mem: bool,
    pub(super) disk: bool,
}

impl Measured {
    /// As the settings and the cluster configuration say.
    pub(super) fn new(accounting: Accounting, mem_limit: bool, disk_limit: bool) -> Self {
        let all = accounting == Accounting::Measured;
        Self {
            mem: all || !mem_limit,
            disk: all || !disk_limit,
        }
    }
}

/// What one STATS changed.
#[derive(Debug, Default)]
pub(super) struct StatsOutcome {
    /// STARTs in doubt that the node does not have.
    pub(super) failed: Vec<(InstanceId, Unconfirmed)>,
    /// Entries dropped after too many STATS without them; the START, if it never was confirmed.
    pub(super) dropped: Vec<(InstanceId, Option<Unconfirmed>)>,
}

/// When an instance that a STATS does not list counts as missing.
#[derive(Debug, Clone, Copy)]
pub(super) struct MissRules {
    /// STARTs the launcher has taken in on this connection, where it says so.
    pub(super) starts_seen: Option<u64>,
    /// Whether everything queued for the node leaves at once.
    pub(super) is_queue_clear: bool,
    /// STATS in a row without an instance after which its entry is dropped.
    pub(super) missed_stats: u8,
}

/// The claims on one node.
#[derive(Debug, Clone)]
pub(super) struct Ledger {
    entries: IndexMap<InstanceId, Entry>,
    measured: Measured,
    held: Resources,
    /// Custom resources asked for, in order of their numbers, none of them zero.
    held_custom: Vec<(ColumnId, i64)>,
    /// Members of groups that came or went since [`Ledger::take_group_changes`].
    group_changes: Vec<(Arc<str>, i32)>,
    unconfirmed: usize,
    /// Whether a STATS ever listed an instance: from then on an empty list means something.
    has_listed: bool,
    /// STATS applied so far.
    stats_count: u64,
}

impl Entry {
    /// The entry of a START just given to its node.
    pub(super) fn placed(
        asked: Resources,
        extras: Extras,
        since: Instant,
        unconfirmed: Unconfirmed,
    ) -> Self {
        Self {
            asked,
            extras: extras.boxed(),
            used_mem_mib: 0,
            used_disk_mib: 0,
            phase: Phase::Placed(unconfirmed),
            since,
            reported: None,
            sender: Some(unconfirmed.sender),
            repeated: None,
            misses: 0,
            listed_in: 0,
        }
    }

    /// The START behind it, while it has no outcome.
    pub(super) fn unconfirmed(&self) -> Option<Unconfirmed> {
        match self.phase {
            Phase::Placed(unconfirmed) | Phase::InDoubt(unconfirmed) => Some(unconfirmed),
            Phase::Running => None,
        }
    }

    /// The entry of an instance that nobody started here.
    fn adopted(since: Instant) -> Self {
        let nobody = Unconfirmed {
            sender: SessionId(0),
            ordinal: 0,
            restart: false,
        };
        Self {
            phase: Phase::Running,
            sender: None,
            ..Self::placed(Resources::ZERO, Extras::default(), since, nobody)
        }
    }

    /// Custom resources it asked for.
    pub(super) fn custom(&self) -> &[(ColumnId, i64)] {
        self.extras.as_ref().map_or(&[], |extras| &extras.custom)
    }

    /// The group it is a member of.
    pub(super) fn group(&self) -> Option<&Arc<str>> {
        self.extras.as_ref()?.group.as_ref()
    }

    /// Whether its START was repeated while it ran and has not been answered.
    pub(super) fn is_repeated(&self) -> bool {
        self.repeated.is_some()
    }

    /// Counts a STATS that does not list it; whether that was one too many.
    fn is_gone(&mut self, is_evidence: bool, rules: &MissRules) -> bool {
        match self.phase {
            // The first STATS after a reconnect settles what was in doubt.
            Phase::InDoubt(_) => return true,
            _ if !is_evidence => return false,
            // It may not have left yet, or the launcher says that it has not come to it.
            Phase::Placed(_) if !rules.is_queue_clear => return false,
            Phase::Placed(start) if rules.starts_seen.is_some_and(|seen| seen < start.ordinal) => {
                return false;
            }
            Phase::Placed(_) | Phase::Running => {}
        }
        self.misses += 1;
        self.misses >= rules.missed_stats
    }

    /// What of its request the node's reported figures do not show yet.
    fn held(&self, measured: Measured) -> Resources {
        let listed = self.phase == Phase::Running;
        let unused = |asked: i64, used: i64, measured: bool| {
            if measured && listed {
                0
            } else {
                asked.saturating_sub(used.max(0)).max(0)
            }
        };
        Resources {
            mem_mib: unused(self.asked.mem_mib, self.used_mem_mib, measured.mem),
            vcpus: self.asked.vcpus,
            disk_mib: unused(self.asked.disk_mib, self.used_disk_mib, measured.disk),
        }
    }
}

impl Extras {
    fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}

impl Ledger {
    /// A ledger without entries.
    pub(super) fn new(measured: Measured) -> Self {
        Self {
            entries: IndexMap::new(),
            measured,
            held: Resources::ZERO,
            held_custom: Vec::new(),
            group_changes: Vec::new(),
            unconfirmed: 0,
            has_listed: false,
            stats_count: 0,
        }
    }

    /// What is to be held back from the node's reported figures.
    pub(super) fn held(&self) -> Resources {
        self.held
    }

    /// Custom resources asked for, in order of their numbers.
    pub(super) fn held_custom(&self) -> &[(ColumnId, i64)] {
        &self.held_custom
    }

    /// Members of groups that came (1) or went (-1) since this was asked last.
    pub(super) fn take_group_changes(&mut self) -> Vec<(Arc<str>, i32)> {
        std::mem::take(&mut self.group_changes)
    }

    /// The groups of its entries, once for each entry that has one.
    pub(super) fn groups(&self) -> impl Iterator<Item = &Arc<str>> {
        self.entries.values().filter_map(Entry::group)
    }

    /// Instances known.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// STARTs without an outcome.
    pub(super) fn unconfirmed(&self) -> usize {
        self.unconfirmed
    }

    /// The entry of an instance.
    pub(super) fn get(&self, instance: &InstanceId) -> Option<&Entry> {
        self.entries.get(instance)
    }

    /// The entries from a position on; positions shift when entries are released.
    pub(super) fn entries_from(&self, start: usize) -> impl Iterator<Item = (&InstanceId, &Entry)> {
        self.entries.iter().skip(start)
    }

    /// Adds or replaces an entry.
    pub(super) fn insert(&mut self, instance: InstanceId, entry: Entry) {
        self.count_in(&entry);
        if let Some(old) = self.entries.insert(instance, entry) {
            self.count_out(&old);
        }
    }

    /// Takes an entry out.
    pub(super) fn release(&mut self, instance: &InstanceId) -> Option<Entry> {
        let entry = self.entries.swap_remove(instance)?;
        self.count_out(&entry);
        const SHRINK_ABOVE: usize = 1024;
        if self.entries.capacity() > SHRINK_ABOVE
            && self.entries.len() < self.entries.capacity() / 4
        {
            self.entries.shrink_to(2 * self.entries.len());
        }
        Some(entry)
    }

    /// Changes how sure an entry is.
    pub(super) fn set_phase(&mut self, instance: &InstanceId, phase: Phase) {
        let measured = self.measured;
        let Some(entry) = self.entries.get_mut(instance) else {
            return;
        };
        self.held -= entry.held(measured);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
        if let Phase::Placed(start) | Phase::InDoubt(start) = phase {
            entry.sender = Some(start.sender);
        }
        entry.phase = phase;
        entry.repeated = None;
        entry.misses = 0;
        self.held += entry.held(measured);
        self.unconfirmed += usize::from(entry.unconfirmed().is_some());
    }

    /// The one START without an outcome, if there is exactly one.
    pub(super) fn only_unconfirmed(&self) -> Option<InstanceId> {
        if self.unconfirmed != 1 {
            return None;
        }
        let (instance, _) = self
            .entries
            .iter()
            .find(|(_, entry)| entry.unconfirmed().is_some())?;
        Some(instance.clone())
    }

    /// Puts every START given to the node and not answered in doubt; says how many there are.
    pub(super) fn put_in_doubt(&mut self) -> usize {
        for entry in self.entries.values_mut() {
            let start = match entry.phase {
                Phase::Placed(start) => Some(start),
                Phase::Running => entry.repeated,
                Phase::InDoubt(_) => None,
            };
            if let Some(start) = start {
                let before = entry.held(self.measured);
                self.unconfirmed += usize::from(entry.phase == Phase::Running);
                entry.phase = Phase::InDoubt(Unconfirmed {
                    ordinal: 0,
                    ..start
                });
                self.held -= before;
                self.held += entry.held(self.measured);
            }
        }
        self.unconfirmed
    }

    /// Notes that the START of an instance that runs was given to its node again.
    pub(super) fn note_repeated(&mut self, instance: &InstanceId, start: Unconfirmed) {
        if let Some(entry) = self.entries.get_mut(instance) {
            entry.repeated = Some(start);
        }
    }

    /// Changes what counts as used and recomputes what is held.
    pub(super) fn set_measured(&mut self, measured: Measured) {
        self.measured = measured;
        self.held = self.recomputed().0;
    }

    /// Applies one STATS: confirms, measures and adopts what is listed, counts what is missing.
    pub(super) fn apply_stats(
        &mut self,
        reports: Vec<InstanceReport>,
        misses: &MissRules,
        columns: &mut Columns,
        now: Instant,
    ) -> StatsOutcome {
        let mut outcome = StatsOutcome::default();
        self.stats_count += 1;
        // An original launcher's empty list may only mean that it has not looked yet.
        let is_evidence = misses.starts_seen.is_some() || self.has_listed || !reports.is_empty();
        self.has_listed |= !reports.is_empty();
        let mut listed = 0;
        for report in reports {
            listed += usize::from(self.apply_report(report, columns, now));
        }
        if listed < self.entries.len() {
            self.count_missing(is_evidence, misses, &mut outcome);
        }
        outcome
    }

    /// Applies what one STATS says of one instance; whether it is the first to say so.
    fn apply_report(
        &mut self,
        report: InstanceReport,
        columns: &mut Columns,
        now: Instant,
    ) -> bool {
        let (stats_count, measured) = (self.stats_count, self.measured);
        if !self.entries.contains_key(&report.instance) {
            self.insert(report.instance.clone(), Entry::adopted(now));
        }
        if report.requested.is_some() || report.group.is_some() {
            self.learn_extras(&report, columns);
        }
        let Some(entry) = self.entries.get_mut(&report.instance) else {
            return false;
        };
        let is_first = entry.listed_in != stats_count;
        let before = entry.held(measured);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
        entry.phase = Phase::Running;
        entry.asked = report
            .requested
            .map_or(entry.asked, |asked| asked.clamped(MAX_ADOPTED));
        entry.used_mem_mib = report.mem_used_mib.max(0);
        entry.used_disk_mib = report.disk_used_mib.max(0);
        entry.reported = Some(report.state);
        entry.repeated = None;
        entry.misses = 0;
        entry.listed_in = stats_count;
        self.held -= before;
        self.held += entry.held(measured);
        is_first
    }

    /// Takes in what a launcher says an instance asked for beside memory, vcpus and disk.
    fn learn_extras(&mut self, report: &InstanceReport, columns: &mut Columns) {
        let Some(entry) = self.entries.get_mut(&report.instance) else {
            return;
        };
        let known = entry.extras.as_deref();
        let custom = if report.requested.is_some() {
            let amounts = report.custom.iter();
            columns.amounts(amounts.map(|(name, amount)| (&**name, (*amount).min(MAX_ADOPTED))))
        } else {
            known
                .map(|extras| extras.custom.clone())
                .unwrap_or_default()
        };
        let group = report
            .group
            .as_deref()
            .map(Arc::from)
            .or_else(|| known?.group.clone());
        let extras = Extras { custom, group };
        if known.is_none_or(|known| *known != extras)
            && (known.is_some() || extras != Extras::default())
        {
            let before = std::mem::replace(&mut entry.extras, extras.boxed());
            let now = entry.extras.clone();
            self.count_extras(before.as_deref(), -1);
            self.count_extras(now.as_deref(), 1);
        }
    }

    /// Adds what an entry has beside the usual to the sums, or takes it off.
    fn count_extras(&mut self, extras: Option<&Extras>, sign: i32) {
        let Some(extras) = extras else { return };
        for &(column, amount) in &extras.custom {
            let change = amount.saturating_mul(i64::from(sign));
            match self
                .held_custom
                .binary_search_by_key(&column, |(column, _)| *column)
            {
                Ok(at) => {
                    self.held_custom[at].1 = self.held_custom[at].1.saturating_add(change);
                    if self.held_custom[at].1 == 0 {
                        self.held_custom.remove(at);
                    }
                }
                Err(at) => self.held_custom.insert(at, (column, change)),
            }
        }
        if let Some(group) = &extras.group {
            self.group_changes.push((Arc::clone(group), sign));
        }
    }

    fn count_missing(&mut self, is_evidence: bool, rules: &MissRules, outcome: &mut StatsOutcome) {
        let (stats_count, measured) = (self.stats_count, self.measured);
        let mut gone = Vec::new();
        for (instance, entry) in &mut self.entries {
            if entry.listed_in == stats_count {
                continue;
            }
            let before = entry.held(measured);
            // Not listed: as far as anybody knows it uses nothing.
            (entry.used_mem_mib, entry.used_disk_mib) = (0, 0);
            self.held -= before;
            self.held += entry.held(measured);
            if entry.is_gone(is_evidence, rules) {
                gone.push(instance.clone());
            }
        }
        for instance in gone {
            let Some(entry) = self.release(&instance) else {
                continue;
            };
            match (entry.phase, entry.unconfirmed()) {
                (Phase::InDoubt(start), _) => outcome.failed.push((instance, start)),
                (_, start) => outcome.dropped.push((instance, start)),
            }
        }
    }

    fn count_in(&mut self, entry: &Entry) {
        self.held += entry.held(self.measured);
        self.count_extras(entry.extras.as_deref(), 1);
        self.unconfirmed += usize::from(entry.unconfirmed().is_some());
    }

    fn count_out(&mut self, entry: &Entry) {
        self.held -= entry.held(self.measured);
        self.count_extras(entry.extras.as_deref(), -1);
        self.unconfirmed -= usize::from(entry.unconfirmed().is_some());
    }

    /// What is held and how many STARTs have no outcome, from scratch.
    fn recomputed(&self) -> (Resources, usize) {
        let held = self.entries.values().fold(Resources::ZERO, |sum, entry| {
            sum + entry.held(self.measured)
        });
        let unconfirmed = self
            .entries
            .values()
            .filter(|entry| entry.unconfirmed().is_some())
            .count();
        (held, unconfirmed)
    }

    /// Whether the running sums are what a walk over the entries finds.
    pub(super) fn is_consistent(&self) -> bool {
        let mut custom = std::collections::BTreeMap::new();
        for &(column, amount) in self.entries.values().flat_map(Entry::custom) {
            *custom.entry(column).or_insert(0) += amount;
        }
        self.recomputed() == (self.held, self.unconfirmed)
            && custom.into_iter().eq(self.held_custom.iter().copied())
            && self.group_changes.is_empty()
    }
}
