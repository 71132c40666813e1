//! Who may be placed where: nodes that are reserved for others, failed often, or called themselves full are told from the
//! rest before the choice.

use crate::Scheduler;
use crate::api::ids::NodeKey;
use crate::api::input::StartRequest;
use crate::cluster::node::Pool;
use crate::cluster::view::View;
use crate::placement::explain::Explanation;

impl Scheduler {
    /// The node for a request; it becomes the most recently used.
    pub(crate) fn choose(&mut self, request: &StartRequest) -> Option<NodeKey> {
        let ready = self.choose_ready(request);
        if ready.is_some() || self.cluster.full_nodes().is_empty() {
            return ready;
        }
        self.in_open(request, Self::choose_full)
    }

    /// The same, of READY nodes alone.
    pub(crate) fn choose_ready(&mut self, request: &StartRequest) -> Option<NodeKey> {
        self.in_open(request, |scheduler, request| {
            let now = scheduler.now;
            scheduler
                .placement
                .choose(&mut scheduler.cluster, request, now)
        })
    }

    /// The node for a managed instance: one that failed often recently only if no other fits.
    pub(crate) fn choose_wary(&mut self, request: &StartRequest) -> Option<NodeKey> {
        let failing = self.cluster.failing_nodes(self.now);
        if failing.is_empty() {
            return self.choose(request);
        }
        let mut wary = request.clone();
        wary.avoid.extend(failing);
        self.choose_ready(&wary).or_else(|| self.choose(request))
    }

    /// Chooses of those nodes that are not kept for others.
    fn in_open(
        &mut self,
        request: &StartRequest,
        choose: impl FnOnce(&mut Self, &StartRequest) -> Option<NodeKey>,
    ) -> Option<NodeKey> {
        let closed = self.closed_to(request);
        if closed.is_empty() {
            return choose(self, request);
        }
        let mut request = request.clone();
        request.avoid.extend(closed);
        choose(self, &request)
    }

    /// Why no node fits a request now; of the same shape of request, the same answer for a short while.
    pub(crate) fn why_not(&mut self, request: &StartRequest) -> Explanation {
        self.placement.why_not(&mut self.cluster, request, self.now)
    }

    /// The same of the cluster as it is at this very moment: with what is claimed for a while only.
    pub(crate) fn why_not_now(&mut self, request: &StartRequest) -> Explanation {
        self.placement
            .why_not_now(&mut self.cluster, request, self.now)
    }

    /// A pool as it is now, to be looked at.
    pub(crate) fn view(&self, pool: Pool) -> View<'_> {
        self.cluster.view(pool, self.now)
    }
}
