//! Why nothing fits: how many nodes fail for which reason, which came nearest, and whether waiting could help. Uses the
//! same filters and figures as the choice, so that both always agree.
//!
//! An explanation is made only after a search has failed. It costs a look at every node of the pool, where the failed
//! search may have cost a few dozen steps; so explanations are reused for requests of the same shape, and the number of
//! nodes walked over in 100 ms is bounded.
//!
//! ```text
//!  Explanation
//!    cause     NoFit: "3 nodes: 2 lack memory (asked 4096, most free 1024 on n2), 1 is cordoned"   for people, as data
//!    reasons   [{nodes: 2, reason: memory, asked: 4096, best: 1024, ..}, {nodes: 1, ..}]           for programs
//!    never     false
//! ```
//!
//! `tally` does the counting. The sentences are made in `src/server/sentences` from the cause.

mod blocked;
mod explanation;
mod tally;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

pub(crate) use self::blocked::BlockedBy;
pub(crate) use self::explanation::Explanation;
use self::tally::Tally;
use crate::cluster::Cluster;
use crate::cluster::node::{Node, Presence};
use crate::cluster::query::Query;
use crate::placement::Placement;
use crate::placement::choose::{Search, count_group};

/// Explanations kept. A burst of STARTs that do not fit comes in few shapes, and so does what waits; each lookup
/// compares with all that are kept.
const MAX_CACHED: usize = 64;

/// How long an explanation is reused: spares a full cluster a walk over all nodes for each of a burst of STARTs.
/// A sender sees room that was released meanwhile this much later at most.
const FRESH: Duration = Duration::from_millis(100);

/// Nodes walked over for explanations within [`FRESH`], over all shapes of requests: a few milliseconds with the lock
/// held. A client that sends many shapes that do not fit gets answers without reasons ([`Cause::NotCounted`]) and
/// delays no other client. The first walk is always done, whatever the size of the cluster.
const MAX_WALKED: usize = 50_000;

/// Explanations of the latest refusals, by shape of request, and how much was spent on them.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    /// For each kind of asker, so that a decision never depends on who has read what: oldest first, at most
    /// [`MAX_CACHED`], each shape once.
    kept: [VecDeque<CachedExplanation>; 2],
    /// For each kind of asker, the beginning of the current window of length [`FRESH`], and the nodes walked over in it.
    walked: [Option<(Instant, usize)>; 2],
}

/// Who wants to know why something does not fit: each has so many nodes to be walked over for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// A START that is placed or refused.
    Start,
    /// Somebody who reads lists or metrics.
    Reader,
}

/// One explanation, with what it depends on.
#[derive(Debug)]
struct CachedExplanation {
    /// What was asked.
    query: Query,
    /// Nodes in the pool at that time: with another number the explanation is not reused.
    nodes: usize,
    explanation: Explanation,
    at: Instant,
}

impl Explanations {
    /// Drops all explanations: by other rules they may be wrong. What was spent on them still counts.
    pub(super) fn clear(&mut self) {
        self.kept.iter_mut().for_each(VecDeque::clear);
    }

    /// Whether `nodes` nodes may be walked over now; if so, they are counted. Starts a window where the last one is
    /// over.
    fn may_walk(&mut self, now: Instant, nodes: usize, asker: Asker) -> bool {
        let spent = &mut self.walked[asker as usize];
        let walked = match *spent {
            Some((since, walked)) if now.saturating_duration_since(since) < FRESH => {
                (since, walked)
            }
            _ => (now, 0),
        };
        let may = walked.1 == 0 || walked.1 + nodes <= MAX_WALKED;
        *spent = Some((walked.0, walked.1 + if may { nodes } else { 0 }));
        may
    }

    /// Keeps an explanation in place of an earlier one of the same shape, or of the oldest; returns it.
    fn keep(&mut self, new: CachedExplanation, asker: Asker) -> Option<&Explanation> {
        let kept = &mut self.kept[asker as usize];
        kept.retain(|other| !other.query.is_like(&new.query));
        if kept.len() >= MAX_CACHED {
            kept.pop_front();
        }
        kept.push_back(new);
        kept.back().map(|it| &it.explanation)
    }
}

impl Placement {
    /// Why no node fits a request now. Requests of the same shape (`Query::is_like`) get the same answer for 100 ms.
    /// Called after a failed choice. A query that avoids other nodes has another shape, so its answer is another one.
    pub(crate) fn why_not(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        let explanation = self.explained(cluster, query, now, Asker::Start);
        explanation.map_or_else(Explanation::not_counted, Explanation::clone)
    }

    /// As [`Placement::why_not`], for those who only read, whose number and rate have no bound: what is spent on them does
    /// not count against STARTs. `None` where no more nodes may be walked over for them now.
    pub(crate) fn why_waits(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Option<&Explanation> {
        self.explained(cluster, query, now, Asker::Reader)
    }

    /// The explanation that is kept for a shape of requests, made if there is none that is fresh.
    fn explained(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
        asker: Asker,
    ) -> Option<&Explanation> {
        let nodes = cluster.table(query.pool()).len();
        let is_it = |kept: &CachedExplanation| {
            let is_fresh = now.saturating_duration_since(kept.at) < FRESH;
            is_fresh && kept.nodes == nodes && kept.query.is_like(query)
        };
        let kept = &self.explanations.kept[asker as usize];
        if let Some(at) = kept.iter().position(is_it) {
            let kept = &self.explanations.kept[asker as usize];
            return kept.get(at).map(|it| &it.explanation);
        }
        let explanation = self.explain_if_allowed(cluster, query, now, asker)?;
        let new = CachedExplanation {
            query: query.clone(),
            nodes,
            explanation,
            at: now,
        };
        self.explanations.keep(new, asker)
    }

    /// As [`Placement::why_not`], but computed for the cluster as it is at this moment, and not kept: for batches and
    /// checks of a drain, whose temporary claims are part of the answer. Counts against the same limit.
    pub(crate) fn why_not_now(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        self.explain_if_allowed(cluster, query, now, Asker::Start)
            .unwrap_or_else(Explanation::not_counted)
    }

    /// Computes an explanation; `None` if too many nodes were walked over recently.
    fn explain_if_allowed(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
        asker: Asker,
    ) -> Option<Explanation> {
        let nodes = cluster.table(query.pool()).len();
        let may = self.explanations.may_walk(now, nodes, asker);
        may.then(|| self.explain(cluster, query, now))
    }

    /// Computes an explanation, whatever was spent before. Dry runs call it directly: they ask once.
    ///
    /// Where a filter gave a list of nodes (a pin), only these are looked at, and all others are counted as one reason.
    /// Nodes that are lost are counted where they could run it once they are back.
    pub(crate) fn explain(
        &self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        let pool = query.pool();
        count_group(cluster, query);
        let is_absent = cluster.is_absent(query);
        let (view, labels) = cluster.view_and_labels(pool, now);
        let asked = view.asked(query, labels);
        let filters = self.policy.concerned(&asked);
        let search = Search::new(view, &asked, filters, labels);
        let mut tally = Tally::new(&search);
        match &search.list {
            // All others fail for the same reason; `Tally::explanation` counts them without looking at them.
            Some(list) => list
                .iter()
                .filter_map(|&slot| view.table.node(slot))
                .for_each(|key| tally.count(key)),
            None => view.table.iter().for_each(|key| tally.count(key)),
        }
        let is_lost = |node: &Node| {
            matches!(node.presence(), Presence::Lost(_)) && node.roles().intersects(pool.role())
        };
        let all = view.nodes.iter_from(0);
        for (key, _) in all.filter(|(_, node)| is_lost(node)) {
            tally.count_lost(key);
        }
        if is_absent {
            tally.may_return();
        }
        tally.explanation()
    }

    /// Drops explanations that are too old to be given, so that their requests take no memory while nothing fails; called
    /// from time to time by `dispatch::time`.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        let is_fresh = |kept: &CachedExplanation| now.saturating_duration_since(kept.at) < FRESH;
        for kept in &mut self.explanations.kept {
            kept.retain(is_fresh);
        }
    }

    /// Explanations kept, for `Scheduler::footprint`.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn explanations(&self) -> usize {
        self.explanations.kept.iter().map(VecDeque::len).sum()
    }
}
