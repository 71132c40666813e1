//! Who may be placed where: nodes that are reserved for others, failed often, or called themselves full are told from the
//! rest before the choice.

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::cluster::view::View;
use crate::placement::explain::Explanation;

impl Scheduler {
    /// The node for a query; it becomes the most recently used.
    pub(crate) fn choose(&mut self, query: &Query) -> Option<NodeKey> {
        let ready = self.choose_ready(query);
        if ready.is_some() || self.cluster.full_nodes().is_empty() {
            return ready;
        }
        self.in_open(query, Self::choose_full)
    }

    /// The same, of READY nodes alone.
    pub(crate) fn choose_ready(&mut self, query: &Query) -> Option<NodeKey> {
        self.in_open(query, |scheduler, query| {
            let now = scheduler.now;
            let cluster = &mut scheduler.cluster;
            scheduler.placement.choose(cluster, query, now)
        })
    }

    /// The node for a managed instance: one that failed often recently only if no other fits.
    pub(crate) fn choose_wary(&mut self, query: &Query) -> Option<NodeKey> {
        let failing = self.cluster.failing_nodes(self.now);
        if failing.is_empty() {
            return self.choose(query);
        }
        let wary = query.clone().avoiding(failing);
        self.choose_ready(&wary).or_else(|| self.choose(query))
    }

    /// Chooses of those nodes that are not kept for others.
    fn in_open(
        &mut self,
        query: &Query,
        choose: impl FnOnce(&mut Self, &Query) -> Option<NodeKey>,
    ) -> Option<NodeKey> {
        let closed = self.closed_to(query);
        if closed.is_empty() {
            return choose(self, query);
        }
        choose(self, &query.clone().avoiding(closed))
    }

    /// Why no node fits a query now; of queries that are alike, the same answer for a short while.
    pub(crate) fn why_not(&mut self, query: &Query) -> Explanation {
        self.placement.why_not(&mut self.cluster, query, self.now)
    }

    /// The same of the cluster as it is at this very moment: with what is claimed for a while only.
    pub(crate) fn why_not_now(&mut self, query: &Query) -> Explanation {
        self.placement
            .why_not_now(&mut self.cluster, query, self.now)
    }

    /// A pool as it is now, to be looked at.
    pub(crate) fn view(&self, pool: Pool) -> View<'_> {
        self.cluster.view(pool, self.now)
    }
}
