//! The count of nodes that fail, by reason, and the explanation made from it: the inner part of `explain`.
//!
//! One pass over the nodes: each fails for exactly one reason, the first in the order of [`Failed`]. Of a shortage the
//! count also remembers which node came nearest and how much any such node has in all. From these figures follow the
//! reasons for programs, the lacks for people, and whether waiting could help at all.

use std::cmp::Reverse;
use std::sync::Arc;

use sched_model::{Reason, ReasonKind};

use super::explanation::Explanation;
use crate::api::cause::Cause;
use crate::api::ids::NodeKey;
use crate::api::input::Backlog;
use crate::api::no_fit::{Amount, Countable, Lack, Never, NoFit, Shortage, Unsaid};
use crate::api::resources::Resources;
use crate::cluster::candidate::Candidate;
use crate::cluster::index::ColumnId;
use crate::cluster::node::NodeStatus;
use crate::cluster::view::Asked;
use crate::placement::choose::Search;
use crate::placement::filters::{Filter, Miss};

/// The kind of reason of nodes that are lost.
const LOST: &str = "lost";

/// Why a node does not fit. A node may fail for several reasons and is counted for one: lasting reasons first, since to
/// know them is of more use than a passing state; then what keeps all work from the node; then other filters; then
/// room. The order of variants also sorts reasons with equally many nodes, so that answers are always the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Failed {
    /// A filter's miss that waiting does not help. The filter by its place among those asked in this search.
    Lasting(u16, Miss),
    /// It is lost, and had what is asked for.
    Lost,
    /// Its status keeps all work away.
    NotReady(Unready),
    /// Its launcher reports a fault.
    Faulty,
    /// An operator or a drain keeps new work away.
    Cordoned,
    /// Its outgoing queue has stalled, or it takes no work for another reason that its status does not show, such as a
    /// full ledger.
    BackedUp,
    /// It is READY and has not said how much of memory, vcpus or disk it has: of which.
    UnknownFigures(Unsaid),
    /// A filter's miss that may pass, such as too high a load. The first such filter counts.
    Filter(u16, Miss),
    /// Less than is asked for, free or in all; so is the next.
    Amount(Amount),
    Custom(ColumnId),
    /// It fits, and its room is for others.
    Reserved,
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
        let used_up = free.amounts().into_iter().find(|(_, free)| *free <= 0);
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
    /// Nodes that are counted as lost.
    lost: usize,
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
            lost: 0,
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

    /// Counts a lost node, unless it could not run the START if it came back: whoever asks for what it alone has waits
    /// for it.
    pub(super) fn count_lost(&mut self, key: NodeKey) {
        let (asked, view) = (self.search.asked, self.search.view);
        if view.nodes.node(key).report().is_some() {
            let candidate = view.candidate(key);
            let is_ruled_out = self.search.filters.iter().any(|filter| {
                let missed = filter.admits(&candidate, asked);
                missed.is_err_and(|miss| filter.is_lasting(miss, asked))
            });
            if is_ruled_out || self.too_small(key).is_some() {
                return;
            }
        }
        self.could_ever = true;
        self.lost += 1;
        self.count_of(Failed::Lost).nodes += 1;
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
        let node = view.nodes.node(key);
        match node.slots()[view.pool as usize] {
            Some(slot) if node.is_on_offer() => view.candidate_with(key, view.table.offer(slot)),
            _ => view.candidate(key),
        }
    }

    /// Why a node does not fit, and of a shortage, how much of the resource is free. In this order:
    ///
    /// 1. It has reported nothing: it may turn out to have anything, so waiting could help.
    /// 2. A filter's lasting miss. All filters are asked, since a later one may be lasting.
    /// 3. From here on it is eligible: its capacity decides whether waiting could help. What it has too little of in all
    ///    comes before whatever may pass.
    /// 4. Its status, fault, cordon, queue and unknown figures.
    /// 5. The first filter's miss that may pass.
    /// 6. Custom resources, which fewest nodes have, then memory, vcpus, disk.
    /// 7. It calls itself full, although its figures have room.
    /// 8. It fits: its room is for others.
    fn look_at(&mut self, key: NodeKey) -> (Failed, Option<i64>) {
        let (asked, view) = (self.search.asked, self.search.view);
        let node = view.nodes.node(key);
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
                    // The only node there is, which it is to leave: any other that joins may do, unless none is meant.
                    let is_alone = view.table.len() == 1 && asked.query.leaves(node.uuid());
                    self.could_ever |= is_alone && !asked.query.is_pinned();
                    return (Failed::Lasting(at, miss), None);
                }
                Err(miss) => passing = passing.or(Some(Failed::Filter(at, miss))),
                Ok(()) => {}
            }
        }
        self.count_eligible(key);
        let free = candidate.free;
        if let Some(failed) = self.too_small(key) {
            return (failed, Some(self.free_of(failed, key, &free)));
        }
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
        } else if let Some(unsaid) = unsaid(&free) {
            return (Failed::UnknownFigures(unsaid), None);
        } else if let Some(failed) = passing {
            return (failed, None);
        }
        let wants = asked.room();
        for &(column, amount) in asked.custom() {
            let free = view.nodes.free_custom(key, column);
            if free < amount {
                return (Failed::Custom(column), Some(free));
            }
        }
        for (of, free) in free.amounts() {
            if free < wants.amount(of) {
                return (Failed::Amount(of), Some(free));
            }
        }
        if is_full {
            return (Failed::NotReady(Unready::full(&free)), None);
        }
        (Failed::Reserved, None)
    }

    /// What a node has too little of in all, however empty it is; custom resources first. A capacity of -1 is not
    /// known, and may be any.
    fn too_small(&self, key: NodeKey) -> Option<Failed> {
        let asked = self.search.asked;
        if !asked.unknown_names().is_empty() {
            // No node ever had it, so that its name has no number.
            return Some(Failed::Custom(ColumnId(u16::MAX)));
        }
        let node = self.search.view.nodes.node(key);
        let mut custom = asked.custom().iter();
        if let Some(&(column, _)) = custom.find(|(of, amount)| node.custom_total(*of) < *amount) {
            return Some(Failed::Custom(column));
        }
        let mut whole = node.capacity().amounts().into_iter();
        let is_short =
            |(of, total): &(Amount, i64)| *total != -1 && *total < asked.room().amount(*of);
        whole.find(is_short).map(|(of, _)| Failed::Amount(of))
    }

    /// How much of the missing resource is free on a node.
    fn free_of(&self, failed: Failed, key: NodeKey, free: &Resources) -> i64 {
        match failed {
            Failed::Amount(of) => free.amount(of),
            Failed::Custom(ColumnId(u16::MAX)) => 0,
            Failed::Custom(column) => self.search.view.nodes.free_custom(key, column),
            _ => 0,
        }
    }

    /// Counts a node that no lasting reason rules out, and notes whether its whole capacity would do.
    fn count_eligible(&mut self, key: NodeKey) {
        self.eligible += 1;
        self.could_ever = self.could_ever || self.too_small(key).is_none();
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
        let table = self.search.view.table;
        let mut no_fit = NoFit {
            is_network: asked.query.request().network_node,
            nodes: table.len() + self.lost,
            ..NoFit::default()
        };
        if no_fit.nodes == 0 {
            return Explanation::of(Cause::NoFit(Arc::new(no_fit)));
        }
        if let Some(list) = &self.search.list
            && list.len() < table.len()
            && let Some(at) = self.pin()
        {
            let miss = Miss(u32::from(!asked.query.names_node()));
            let others = table.len() - list.len();
            self.count_of(Failed::Lasting(at, miss)).nodes += others;
            // The host that is asked for may be one that has not said its name yet.
            let nodes = self.search.view.nodes;
            let is_silent = |key| nodes.node(key).report().is_none();
            self.could_ever |= !asked.query.names_node() && table.iter().any(is_silent);
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
                let filter: &dyn Filter = &*self.search.filters[usize::from(at)];
                reason.reason = filter.reason();
                reason.what = filter.what(miss, self.search.asked);
                reason.never = filter.is_lasting(miss, self.search.asked);
                filter.lack(miss, self.search.asked)
            }
            Failed::Lost => plain(&mut reason, other(LOST), Lack::Lost),
            Failed::Reserved => plain(&mut reason, other("reserved"), Lack::Reserved),
            Failed::NotReady(unready) => {
                reason.what = unready.what();
                plain(&mut reason, ReasonKind::NotReady, unready.lack())
            }
            Failed::Faulty => plain(&mut reason, other("fault"), Lack::Fault),
            Failed::Cordoned => plain(&mut reason, other("cordoned"), Lack::Cordoned),
            Failed::BackedUp => plain(&mut reason, ReasonKind::BackedUp, Lack::Queue),
            Failed::UnknownFigures(unsaid) => {
                let names: Vec<_> = unsaid.iter().flatten().map(|it| it.name()).collect();
                reason.what = names.join(", ");
                let kind = ReasonKind::UnknownFigures;
                plain(&mut reason, kind, Lack::Figures(unsaid))
            }
            Failed::Amount(of) => {
                reason.reason = match of {
                    Amount::Memory => ReasonKind::Memory,
                    Amount::Vcpus => ReasonKind::Vcpus,
                    Amount::Disk => ReasonKind::Disk,
                };
                self.shortage(failed, count, &mut reason, Countable::Every(of))
            }
            Failed::Custom(column) => {
                let name = self.name_of(column);
                (reason.reason, reason.what) = (ReasonKind::Resource, name.to_owned());
                self.shortage(failed, count, &mut reason, Countable::Custom(name.into()))
            }
        };
        if let Some((_, key)) = count.nearest {
            let node = view.nodes.node(key);
            reason.node_uuid = node.uuid().to_string();
            reason.hostname = node.hostname().to_owned();
        }
        (lack, reason)
    }

    /// How much the START asks for of the missing resource; 0 for reasons that are no shortage.
    fn amount(&self, failed: Failed) -> i64 {
        let asked: &Asked<'_> = self.search.asked;
        let column = match failed {
            Failed::Amount(of) => return asked.room().amount(of),
            Failed::Custom(column) => column,
            _ => return 0,
        };
        let mut custom = asked.custom().iter();
        if let Some(&(_, amount)) = custom.find(|(other, _)| *other == column) {
            return amount;
        }
        let name = self.name_of(column);
        let mut amounts = asked.query.amounts();
        let amount = amounts.find(|(other, _)| *other == name);
        amount.map_or(0, |(_, amount)| amount)
    }

    /// How much of the missing resource a node has in all; -1 if that is not known or the reason is no shortage.
    fn total(&self, failed: Failed, key: NodeKey) -> i64 {
        let node = self.search.view.nodes.node(key);
        match failed {
            Failed::Amount(of) => node.capacity().amount(of),
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
            self.search.view.columns.name(column)
        } else {
            asked.unknown_names().first().copied().unwrap_or_default()
        }
    }

    /// Fills in the reason for a shortage, with the figures. The largest capacity is told to
    /// people only where it is too small: then waiting does not help.
    fn shortage(&self, failed: Failed, count: &Count, reason: &mut Reason, of: Countable) -> Lack {
        let amount = self.amount(failed);
        let best = count.nearest.map_or(0, |(free, _)| free.max(0));
        reason.asked = Some(amount);
        reason.best = Some(best);
        reason.capacity = count.capacity;
        reason.never = !count.could_ever;
        let host = count
            .nearest
            .map_or("", |(_, key)| self.search.view.nodes.node(key).hostname());
        Lack::Room(Box::new(Shortage {
            of,
            asked: amount,
            best,
            host: host.into(),
            largest: count.capacity.filter(|_| reason.never),
        }))
    }
}

/// What is not known of what a node has free; `None` where all is.
fn unsaid(free: &Resources) -> Option<Unsaid> {
    let unsaid = free
        .amounts()
        .map(|(name, free)| (free == i64::MIN).then_some(name));
    unsaid.iter().any(Option::is_some).then_some(unsaid)
}

/// A kind of reason that has no name of its own.
fn other(word: &str) -> ReasonKind {
    ReasonKind::Other(word.to_owned())
}

/// Sets the kind of a reason that has no figures.
fn plain(reason: &mut Reason, kind: ReasonKind, lack: Lack) -> Lack {
    reason.reason = kind;
    lack
}
