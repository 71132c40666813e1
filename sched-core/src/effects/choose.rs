//! The choice of a node for a START or an instance: the search of `placement`, without the nodes that are reserved for
//! others, and then those that called themselves full before room was released there.

use crate::Scheduler;
use crate::api::ids::{InstanceId, NodeKey};
use crate::cluster::query::Query;
use crate::placement::explain::Explanation;

impl Scheduler {
    /// The node for a query: a READY one, else one that called itself full and has released room since. The node
    /// becomes the most recently used, from where the next search begins; a caller that does not carry the choice out
    /// puts cursors and random generator back. Nodes that are reserved for others are left out.
    pub(crate) fn choose(&mut self, query: &Query) -> Option<NodeKey> {
        let ready = self.choose_ready(query);
        if ready.is_some() || self.cluster.full_nodes().is_empty() {
            return ready;
        }
        self.in_open(query, |scheduler, query| {
            let now = scheduler.now;
            let cluster = &mut scheduler.cluster;
            scheduler.placement.choose_full(cluster, query, now)
        })
    }

    /// The same of READY nodes alone: for instances that run, which are not moved to where they may be refused.
    pub(crate) fn choose_ready(&mut self, query: &Query) -> Option<NodeKey> {
        self.in_open(query, |scheduler, query| {
            let now = scheduler.now;
            let cluster = &mut scheduler.cluster;
            scheduler.placement.choose(cluster, query, now)
        })
    }

    /// The node for a managed instance: one that failed often recently only if no other fits.
    pub(crate) fn choose_avoiding_failing(&mut self, query: &Query) -> Option<NodeKey> {
        let failing = self.cluster.failing_nodes(self.now);
        if failing.is_empty() {
            return self.choose(query);
        }
        let avoiding = query.clone().avoiding(failing);
        self.choose_ready(&avoiding).or_else(|| self.choose(query))
    }

    /// Runs a choice without the nodes that are reserved for others. The queue is empty as a rule, so that is asked
    /// first.
    fn in_open(
        &mut self,
        query: &Query,
        choose: impl FnOnce(&mut Self, &Query) -> Option<NodeKey>,
    ) -> Option<NodeKey> {
        if self.queue.is_empty() {
            return choose(self, query);
        }
        let closed = self.sight().closed_to(query);
        if closed.is_empty() {
            return choose(self, query);
        }
        choose(self, &query.clone().avoiding(closed))
    }

    /// Why no node fits a query now. Looks at every node; for queries that are alike, the same answer is used for a
    /// short while.
    pub(crate) fn why_not(&mut self, query: &Query) -> Explanation {
        self.placement.why_not(&mut self.cluster, query, self.now)
    }

    /// The same computed again: for dry runs and batches, whose temporary claims are part of the answer.
    pub(crate) fn why_not_now(&mut self, query: &Query) -> Explanation {
        self.placement
            .why_not_now(&mut self.cluster, query, self.now)
    }

    /// The node for an instance that is placed again: the one it had last if it fits there, else any, those with recent
    /// failures only if no other fits.
    pub(crate) fn choose_again(&mut self, instance: &InstanceId, query: &Query) -> Option<NodeKey> {
        let managed = self.instances.get(instance)?;
        let (last, ran_on) = (managed.last_node(), managed.runs().node());
        if let Some(unheard) =
            ran_on.filter(|node| !query.avoids(*node) && self.cluster.is_to_list(*node))
        {
            return self.choose_again(instance, &query.clone().avoiding([unheard]));
        }
        if let Some(last) = last
            && !query.names_node()
            && !query.avoids(last)
            && let Some(key) = self.choose_ready(&query.clone().pinned(Some(last)))
        {
            return Some(key);
        }
        self.choose_avoiding_failing(query)
    }
}
