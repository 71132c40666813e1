//! The count of nodes that fail, by reason, and the explanation made from it: the inner part of `explain`.
//!
//! One pass over the nodes: each fails for exactly one reason, the first in the order of [`Failed`]. Of a shortage the
//! count also remembers which node came nearest and how much any such node has in all. From these figures follow the
//! reasons for programs, the lacks for people, and whether waiting could help at all.

use std::cmp::Reverse;
use std::sync::Arc;

use sched_model::{Reason, ReasonKind};

use super::Explanation;
use crate::api::cause::Cause;
use crate::api::ids::NodeKey;
use crate::api::input::Backlog;
use crate::api::no_fit::{Amount, Countable, Lack, Never, NoFit, Shortage};
use crate::api::resources::Resources;
use crate::cluster::index::ColumnId;
use crate::cluster::node::NodeStatus;
use crate::cluster::view::{Asked, Candidate};
use crate::placement::choose::Search;
use crate::placement::filters::Miss;

/// Why a node does not fit. A node may fail for several reasons and is counted for one: lasting reasons first, since to
/// know them is of more use than a passing state; then what keeps all work from the node; then other filters; then
/// room. The order of variants also sorts reasons with equally many nodes, so that answers are always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Failed {
    /// A filter's miss that waiting does not help. The filter by its place among those asked in this search.
    Lasting(u16, Miss),
    /// Its status keeps all work away.
    NotReady(Unready),
    /// Its launcher reports a fault.
    Faulty,
    /// An operator or a drain keeps new work away.
    Cordoned,
    /// Its outgoing queue has stalled, or it takes no work for another reason that its status does not show, such as a
    /// full ledger.
    BackedUp,
    /// It is READY and has not said how much of memory, vcpus or disk it has.
    UnknownFigures,
    /// A filter's miss that may pass, such as too high a load. The first such filter counts.
    Filter(u16, Miss),
    /// Less free than is asked for; so are the next three.
    Memory,
    Vcpus,
    Disk,
    Custom(ColumnId),
}

/// The status that keeps work from a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Unready {
    /// Nothing yet of what it has.
    Silent,
    Offline,
    Maintenance,
    /// It says that it is full. Of what: the first of memory, vcpus and disk of which nothing is free by its own
    /// figures; `None` where its figures show room.
    Full(Option<Amount>),
}

impl Unready {
    /// What a node is full of, by what is free on it.
    fn full(free: &Resources) -> Self {
        let amounts = [
            (Amount::Memory, free.mem_mib),
            (Amount::Vcpus, free.vcpus),
            (Amount::Disk, free.disk_mib),
        ];
        let used_up = amounts.into_iter().find(|(_, free)| *free <= 0);
        Self::Full(used_up.map(|(name, _)| name))
    }

    /// The word in `Reason::what`, for programs.
    fn what(self) -> String {
        match self {
            Self::Silent => "no report".to_owned(),
            Self::Offline => "offline".to_owned(),
            Self::Maintenance => "maintenance".to_owned(),
            Self::Full(Some(amount)) => format!("full of {}", amount.name()),
            Self::Full(None) => "full".to_owned(),
        }
    }

    /// The same as a [`Lack`], for people.
    fn lack(self) -> Lack {
        match self {
            Self::Silent => Lack::Report,
            Self::Offline => Lack::Offline,
            Self::Maintenance => Lack::Maintenance,
            Self::Full(of) => Lack::Full(of),
        }
    }
}

/// The nodes that fail for one reason. The last three fields are filled in for shortages alone.
#[derive(Debug, Default)]
struct Count {
    /// How many; never 0 in a finished tally.
    nodes: usize,
    /// The most of the missing resource that any of them has free, and the first node that has it.
    nearest: Option<(i64, NodeKey)>,
    /// The most of the missing resource that any of them has in all; `None` where no capacity is known.
    capacity: Option<i64>,
    /// Whether one of them has enough in all, or might have: its capacity is not known.
    could_ever: bool,
}

/// All reasons, and whether waiting could help. Filled by [`Tally::count`], consumed by [`Tally::explanation`].
pub(super) struct Tally<'a> {
    search: &'a Search<'a>,
    /// By reason, in order of appearance. A list rather than a map: there are few reasons, and neighbouring nodes
    /// mostly fail for the same one, which `latest` finds at once.
    counts: Vec<(Failed, Count)>,
    /// The index in `counts` of the latest node's reason.
    latest: usize,
    /// Nodes that have reported and that no lasting reason rules out.
    eligible: usize,
    /// Whether some node could run the START if it were empty, READY and reachable, or might turn out to.
    could_ever: bool,
}

impl<'a> Tally<'a> {
    /// An empty tally over the nodes of a search that found nothing.
    pub(super) fn new(search: &'a Search<'a>) -> Self {
        Self {
            search,
            counts: Vec::new(),
            latest: 0,
            eligible: 0,
            could_ever: false,
        }
    }

    /// Counts one node. It must not fit; each node is counted once.
    pub(super) fn count(&mut self, key: NodeKey) {
        let (failed, free) = self.look_at(key);
        let (asked, total) = (self.amount(failed), self.total(failed, key));
        let count = self.count_of(failed);
        count.nodes += 1;
        let Some(free) = free else { return };
        if count.nearest.is_none_or(|(most, _)| free > most) {
            count.nearest = Some((free, key));
        }
        let known = (total >= 0).then_some(total);
        count.capacity = count.capacity.max(known);
        count.could_ever |= known.is_none_or(|total| total >= asked);
    }

    /// The count for a reason, which it becomes the latest of; made where it does not exist yet.
    fn count_of(&mut self, failed: Failed) -> &mut Count {
        let is_it = |(other, _): &(Failed, Count)| *other == failed;
        if !self.counts.get(self.latest).is_some_and(is_it) {
            let found = self.counts.iter().position(is_it);
            self.latest = found.unwrap_or(self.counts.len());
            if found.is_none() {
                self.counts.push((failed, Count::default()));
            }
        }
        &mut self.counts[self.latest].1
    }

    /// A node with what it has free. Of nodes on offer the table has the figure ready; of others it is computed.
    fn candidate(&self, key: NodeKey) -> Candidate<'a> {
        let view = self.search.view;
        let node = view.nodes().node(key);
        match node.slots()[view.pool() as usize] {
            Some(slot) if node.is_on_offer() => view.candidate_with(key, view.table().offer(slot)),
            _ => view.candidate(key),
        }
    }

    /// Why a node does not fit, and of a shortage, how much of the resource is free. In this order:
    ///
    /// 1. It has reported nothing: it may turn out to have anything, so waiting could help.
    /// 2. A filter's lasting miss. All filters are asked, since a later one may be lasting.
    /// 3. From here on it is eligible: its capacity decides whether waiting could help.
    /// 4. Its status, fault, cordon, queue and unknown figures.
    /// 5. The first filter's miss that may pass.
    /// 6. Memory, vcpus, disk, custom resources, in this order.
    /// 7. It calls itself full, although its figures have room.
    fn look_at(&mut self, key: NodeKey) -> (Failed, Option<i64>) {
        let (asked, view) = (self.search.asked, self.search.view);
        let node = view.nodes().node(key);
        if node.report().is_none() {
            // It may yet say that it is and has whatever is asked for.
            self.could_ever = true;
            return (Failed::NotReady(Unready::Silent), None);
        }
        let candidate = self.candidate(key);
        let filters = self.search.filters.iter().enumerate();
        let mut passing = None;
        for (at, filter) in filters {
            let at = u16::try_from(at).unwrap_or(u16::MAX);
            match filter.admits(&candidate, asked) {
                Err(miss) if filter.is_lasting(miss, asked) => {
                    return (Failed::Lasting(at, miss), None);
                }
                Err(miss) => passing = passing.or(Some(Failed::Filter(at, miss))),
                Ok(()) => {}
            }
        }
        self.count_eligible(key);
        let free = candidate.free();
        // Of one that calls itself full, it is better to know of what.
        let is_full = node.status() == NodeStatus::Full;
        let unready = match node.status() {
            NodeStatus::Ready | NodeStatus::Full => None,
            NodeStatus::Connected => Some(Unready::Silent),
            NodeStatus::Offline => Some(Unready::Offline),
            NodeStatus::Maintenance => Some(Unready::Maintenance),
        };
        if let Some(unready) = unready {
            return (Failed::NotReady(unready), None);
        } else if node.fault().is_some() {
            return (Failed::Faulty, None);
        } else if node.is_cordoned() {
            return (Failed::Cordoned, None);
        } else if node.backlog() == Backlog::Stalled || !is_full && !node.takes_work() {
            return (Failed::BackedUp, None);
        } else if [free.mem_mib, free.vcpus, free.disk_mib].contains(&i64::MIN) {
            return (Failed::UnknownFigures, None);
        } else if let Some(failed) = passing {
            return (failed, None);
        }
        let wants = asked.room();
        if free.mem_mib < wants.mem_mib {
            return (Failed::Memory, Some(free.mem_mib));
        } else if free.vcpus < wants.vcpus {
            return (Failed::Vcpus, Some(free.vcpus));
        } else if free.disk_mib < wants.disk_mib {
            return (Failed::Disk, Some(free.disk_mib));
        }
        for &(column, amount) in asked.custom() {
            let free = view.nodes().free_custom(key, column);
            if free < amount {
                return (Failed::Custom(column), Some(free));
            }
        }
        if is_full {
            return (Failed::NotReady(Unready::full(&free)), None);
        }
        // Custom resources that no one has, whose name has no number.
        (Failed::Custom(ColumnId(u16::MAX)), Some(0))
    }

    /// Counts a node that no lasting reason rules out, and notes whether its whole capacity would do. A capacity of -1
    /// is not known, and may be any. Where the START asks for a custom resource that no node ever reported, no capacity
    /// would do.
    fn count_eligible(&mut self, key: NodeKey) {
        self.eligible += 1;
        if self.could_ever {
            return;
        }
        let asked = self.search.asked;
        let node = self.search.view.nodes().node(key);
        let whole = node.capacity();
        let wants = asked.room();
        let base = [
            (whole.mem_mib, wants.mem_mib),
            (whole.vcpus, wants.vcpus),
            (whole.disk_mib, wants.disk_mib),
        ];
        let custom = asked.custom().iter();
        let custom = custom.map(|&(column, amount)| (node.custom_total(column), amount));
        // A figure no one knows yet may be any.
        let is_enough = |(total, need): (i64, i64)| total == -1 || total >= need;
        let has_all = base.into_iter().chain(custom).all(is_enough);
        self.could_ever = asked.unknown_names().is_empty() && has_all;
    }

    /// Says that the one node that is asked for is lost and may come back, so waiting could help.
    pub(super) fn may_return(&mut self) {
        self.could_ever = true;
    }

    /// Makes the explanation: reasons by number of nodes, most first. Where a pin gave a list of nodes, all other nodes
    /// are counted here as failing at the pin. A host name may still be reported by a node that has not reported
    /// anything, so while there is one, waiting could help; a UUID is known from the handshake.
    pub(super) fn explanation(mut self) -> Explanation {
        let asked = self.search.asked;
        let table = self.search.view.table();
        let mut no_fit = NoFit {
            is_network: asked.query().request().network_node,
            nodes: table.len(),
            ..NoFit::default()
        };
        if table.len() == 0 {
            return Explanation::of(Cause::NoFit(Arc::new(no_fit)));
        }
        if let Some(list) = &self.search.list
            && list.len() < table.len()
            && let Some(at) = self.pin()
        {
            let miss = Miss(u32::from(!asked.query().names_node()));
            let others = table.len() - list.len();
            self.count_of(Failed::Lasting(at, miss)).nodes += others;
            // The host that is asked for may be one that has not said its name yet.
            let nodes = self.search.view.nodes();
            let is_silent = |key| nodes.node(key).report().is_none();
            self.could_ever |= !asked.query().names_node() && table.iter().any(is_silent);
        }
        let mut counts: Vec<_> = self.counts.iter().collect();
        counts.sort_by_key(|(failed, count)| (Reverse(count.nodes), *failed));
        let mut reasons = Vec::with_capacity(counts.len());
        for &(failed, ref count) in counts {
            let (lack, reason) = self.reason(failed, count);
            no_fit.lacks.push((count.nodes, lack));
            reasons.push(reason);
        }
        let never = !self.could_ever;
        no_fit.never = never.then(|| self.why_never());
        Explanation {
            cause: Cause::NoFit(Arc::new(no_fit)),
            reasons,
            never,
        }
    }

    /// The place of the `pin` filter among those asked: the only one that gives a list of nodes.
    fn pin(&self) -> Option<u16> {
        let mut filters = self.search.filters.iter();
        let at = filters.position(|filter| filter.reason() == ReasonKind::Pinned)?;
        u16::try_from(at).ok()
    }

    /// Why waiting does not help: no node matches at all, or those that do are too small.
    fn why_never(&self) -> Never {
        if self.eligible == 0 {
            Never::NoMatch
        } else {
            Never::TooLarge
        }
    }

    /// One reason in both forms: for people and for programs.
    fn reason(&self, failed: Failed, count: &Count) -> (Lack, Reason) {
        let view = self.search.view;
        let mut reason = Reason {
            nodes: count.nodes as i64,
            ..Reason::default()
        };
        let lack = match failed {
            Failed::Lasting(at, miss) | Failed::Filter(at, miss) => {
                let filter = self.search.filters[usize::from(at)];
                reason.reason = filter.reason();
                reason.what = filter.what(miss, self.search.asked);
                reason.never = filter.is_lasting(miss, self.search.asked);
                filter.lack(miss, self.search.asked)
            }
            Failed::NotReady(unready) => {
                reason.what = unready.what();
                plain(&mut reason, ReasonKind::NotReady, unready.lack())
            }
            Failed::Faulty => {
                let kind = ReasonKind::Other("fault".to_owned());
                plain(&mut reason, kind, Lack::Fault)
            }
            Failed::Cordoned => {
                let kind = ReasonKind::Other("cordoned".to_owned());
                plain(&mut reason, kind, Lack::Cordoned)
            }
            Failed::BackedUp => plain(&mut reason, ReasonKind::BackedUp, Lack::Queue),
            Failed::UnknownFigures => plain(&mut reason, ReasonKind::UnknownFigures, Lack::Figures),
            Failed::Memory | Failed::Vcpus | Failed::Disk | Failed::Custom(_) => {
                self.shortage(failed, count, &mut reason)
            }
        };
        if let Some((_, key)) = count.nearest {
            let node = view.nodes().node(key);
            reason.node_uuid = node.uuid().to_string();
            reason.hostname = node.hostname().to_owned();
        }
        (lack, reason)
    }

    /// How much the START asks for of the missing resource; 0 for reasons that are no shortage.
    fn amount(&self, failed: Failed) -> i64 {
        let asked: &Asked<'_> = self.search.asked;
        let wants = asked.room();
        let Failed::Custom(column) = failed else {
            return match failed {
                Failed::Memory => wants.mem_mib,
                Failed::Vcpus => wants.vcpus,
                Failed::Disk => wants.disk_mib,
                _ => 0,
            };
        };
        let mut custom = asked.custom().iter();
        if let Some(&(_, amount)) = custom.find(|(other, _)| *other == column) {
            return amount;
        }
        let name = self.name_of(column);
        let mut amounts = asked.query().amounts();
        let amount = amounts.find(|(other, _)| *other == name);
        amount.map_or(0, |(_, amount)| amount)
    }

    /// How much of the missing resource a node has in all; -1 if that is not known or the reason is no shortage.
    fn total(&self, failed: Failed, key: NodeKey) -> i64 {
        let node = self.search.view.nodes().node(key);
        match failed {
            Failed::Memory => node.capacity().mem_mib,
            Failed::Vcpus => node.capacity().vcpus,
            Failed::Disk => node.capacity().disk_mib,
            Failed::Custom(column) => node.custom_total(column),
            _ => -1,
        }
    }

    /// The name of a custom resource. One that no node ever reported has no number; [`Tally::look_at`] then gives
    /// `u16::MAX`, and the first unknown name of the START is meant.
    fn name_of(&self, column: ColumnId) -> &'a str {
        let asked = self.search.asked;
        let mut custom = asked.custom().iter();
        if custom.any(|(other, _)| *other == column) {
            self.search.view.columns().name(column)
        } else {
            asked.unknown_names().first().copied().unwrap_or_default()
        }
    }

    /// Fills in the reason for a shortage of memory, vcpus, disk or a custom resource. The largest capacity is told to
    /// people only where it is too small: then waiting does not help.
    fn shortage(&self, failed: Failed, count: &Count, reason: &mut Reason) -> Lack {
        let (kind, of) = match failed {
            Failed::Vcpus => (ReasonKind::Vcpus, Countable::Every(Amount::Vcpus)),
            Failed::Disk => (ReasonKind::Disk, Countable::Every(Amount::Disk)),
            Failed::Custom(column) => {
                let name = self.name_of(column);
                reason.what = name.to_owned();
                (ReasonKind::Resource, Countable::Custom(name.into()))
            }
            _ => (ReasonKind::Memory, Countable::Every(Amount::Memory)),
        };
        let amount = self.amount(failed);
        let best = count.nearest.map_or(0, |(free, _)| free.max(0));
        reason.asked = Some(amount);
        reason.best = Some(best);
        reason.capacity = count.capacity;
        reason.never = !count.could_ever;
        reason.reason = kind;
        let host = count
            .nearest
            .map_or("", |(_, key)| self.search.view.nodes().node(key).hostname());
        Lack::Room(Box::new(Shortage {
            of,
            asked: amount,
            best,
            host: host.into(),
            largest: count.capacity.filter(|_| reason.never),
        }))
    }
}

/// Sets the kind of a reason that has no figures.
fn plain(reason: &mut Reason, kind: ReasonKind, lack: Lack) -> Lack {
    reason.reason = kind;
    lack
}
