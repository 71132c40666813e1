//! Why nothing fits: how many nodes fail for which reason, who came nearest, and whether waiting could help. From the
//! same filters and figures as the choice.

mod tally;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sched_model::Reason;

use self::tally::Tally;
use crate::api::cause::Cause;
use crate::cluster::Cluster;
use crate::cluster::query::Query;
use crate::placement::Placement;
use crate::placement::choose::{Search, count_group};

/// Explanations kept: requests come in few shapes.
const KEPT: usize = 16;

/// How long an explanation is reused: spares a full cluster a walk over all nodes for each of a burst of STARTs.
const FRESH: Duration = Duration::from_millis(100);

/// Nodes walked for explanations in that time, over all shapes of requests: a few milliseconds. Who sends many shapes
/// that do not fit is told less, and delays no one. One walk is always done, whatever the size of the cluster.
const MAX_WALKED: usize = 50_000;

/// Why a START was not placed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Explanation {
    /// Why, as far as it is not counted in the reasons.
    pub(crate) cause: Cause,
    /// For programs; empty where it is not about nodes.
    pub(crate) reasons: Vec<Reason>,
    /// Whether it fits no node as they are, however long one waits.
    pub(crate) never: bool,
}

impl Explanation {
    /// One that has nothing for programs.
    pub(crate) fn of(cause: Cause) -> Self {
        Self {
            cause,
            ..Self::default()
        }
    }

    fn not_counted() -> Self {
        Self::of(Cause::NotCounted)
    }
}

/// Explanations of the latest refusals, by shape of request.
#[derive(Debug, Default)]
pub(crate) struct Explanations {
    kept: VecDeque<Kept>,
    /// Nodes walked since this moment.
    walked: Option<(Instant, usize)>,
}

#[derive(Debug)]
struct Kept {
    /// What was asked.
    query: Query,
    nodes: usize,
    explanation: Explanation,
    at: Instant,
}

impl Explanations {
    /// Whether so many nodes may be walked now.
    fn may_walk(&mut self, now: Instant, nodes: usize) -> bool {
        let walked = match self.walked {
            Some((since, walked)) if now.saturating_duration_since(since) < FRESH => {
                (since, walked)
            }
            _ => (now, 0),
        };
        let may = walked.1 == 0 || walked.1 + nodes <= MAX_WALKED;
        self.walked = Some((walked.0, walked.1 + if may { nodes } else { 0 }));
        may
    }

    /// Forgets those that are not given any more.
    fn forget_old(&mut self, now: Instant) {
        let is_fresh = |kept: &Kept| now.saturating_duration_since(kept.at) < FRESH;
        self.kept.retain(is_fresh);
    }

    /// Those remembered.
    fn len(&self) -> usize {
        self.kept.len()
    }

    fn keep(&mut self, kept: Kept) {
        self.kept.retain(|other| !other.query.is_like(&kept.query));
        if self.kept.len() >= KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(kept);
    }
}

impl Placement {
    /// Why no node fits a request now; of the same shape of request, the same answer for a short while.
    pub(crate) fn why_not(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        let nodes = cluster.table(query.pool()).len();
        let is_fresh = |kept: &&Kept| now.saturating_duration_since(kept.at) < FRESH;
        let mut kept = self.explanations.kept.iter().filter(is_fresh);
        if let Some(kept) = kept.find(|kept| kept.nodes == nodes && kept.query.is_like(query)) {
            return kept.explanation.clone();
        }
        let Some(explanation) = self.explain_if_allowed(cluster, query, now) else {
            return Explanation::not_counted();
        };
        self.explanations.keep(Kept {
            query: query.clone(),
            nodes,
            explanation: explanation.clone(),
            at: now,
        });
        explanation
    }

    /// As [`Placement::why_not`], of the cluster as it is at this very moment.
    pub(crate) fn why_not_now(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        self.explain_if_allowed(cluster, query, now)
            .unwrap_or_else(Explanation::not_counted)
    }

    /// Why no node fits a request now; `None` if too many nodes were walked for such answers recently.
    fn explain_if_allowed(
        &mut self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Option<Explanation> {
        let nodes = cluster.table(query.pool()).len();
        let may = self.explanations.may_walk(now, nodes);
        may.then(|| self.explain(cluster, query, now))
    }

    /// Why no node fits a request now.
    pub(crate) fn explain(
        &self,
        cluster: &mut Cluster,
        query: &Query,
        now: Instant,
    ) -> Explanation {
        let pool = query.pool();
        count_group(cluster, query);
        let is_absent = cluster.absent().has_what_is_named_by(query);
        let (view, labels) = cluster.view_and_labels(pool, now);
        let asked = view.asked(query, labels);
        let filters = self.policy.concerned(&asked).collect();
        let search = Search::new(view, &asked, filters, labels);
        let mut tally = Tally::new(&search);
        match &search.list {
            // The others are of no interest, however many they are.
            Some(list) => list
                .iter()
                .filter_map(|&slot| view.table().node(slot))
                .for_each(|key| tally.count(key)),
            None => view.table().iter().for_each(|key| tally.count(key)),
        }
        if is_absent {
            tally.may_return();
        }
        tally.explanation()
    }

    /// Forgets explanations that are not given any more.
    pub(crate) fn forget_old(&mut self, now: Instant) {
        self.explanations.forget_old(now);
    }

    /// Explanations remembered.
    pub(crate) fn explanations(&self) -> usize {
        self.explanations.len()
    }
}
