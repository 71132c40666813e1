//! Claims on nodes with original launchers: of which nodes they are to be put on disk, and those of nodes that are away.
//! Of any node that is lost the plain instances on it are among these, and are listed until the node is back.
//!
//! They are put on disk behind the STARTs, one record for each node, [`WRITE_DELAY`] later unless many nodes are before it,
//! and no START waits for that: however many there are, writing takes a few per cent of one processor
//! ([`CLAIMS_PER_WRITE`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use sched_model::Uuid;

use crate::api::config::LOST_TIME;
use crate::api::ids::InstanceId;
use crate::api::record::ClaimRecord;
use crate::journal::Journal;
use crate::timers::earlier;

/// How long after a change the claims on a node are put on disk. A crash loses the claims of STARTs younger than that:
/// they count as what nothing is known of.
const WRITE_DELAY: Duration = Duration::from_millis(250);

/// Claims put on disk at once, if not one node alone has more: about 0.2 ms in which nothing else is done.
const CLAIMS_PER_WRITE: usize = 1024;

/// How long after that the next are put there.
const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// Most claims remembered of nodes that are away, of all of them together; the node that has been away longest is
/// forgotten first.
const MAX_REMEMBERED: usize = 1 << 20;

/// Which claims are to be written, and those of nodes that are away.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// Nodes whose claims have changed since they were put on disk, in that order.
    changed: VecDeque<Uuid>,
    /// The same.
    is_changed: BTreeSet<Uuid>,
    /// When they are put there.
    due: Option<Instant>,
    away: IndexMap<Uuid, Away>,
    /// The nodes that are away and when they were noted, oldest first; some may be back since.
    in_order: VecDeque<(Instant, Uuid)>,
    /// Claims of all that are away.
    count: usize,
    /// The instances that nodes are lost with, by the number of the node's loss: the node, and where it is among its
    /// claims. Of several nodes that were lost with one instance, it is listed with the last.
    lost: BTreeMap<(InstanceId, u64), (Uuid, usize)>,
    /// The number of the next loss.
    next: u64,
}

#[derive(Debug)]
struct Away {
    since: Instant,
    /// The number of its loss.
    number: u64,
    claims: Vec<ClaimRecord>,
    /// How many of them are listed as lost with it.
    lost: usize,
}

/// A plain instance that its node is lost with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LostPlain<'a> {
    /// The node.
    pub(crate) node: Uuid,
    /// Since when it is given up.
    pub(crate) since: Instant,
    /// What is remembered of it.
    pub(crate) claim: &'a ClaimRecord,
}

impl LostPlain<'_> {
    /// When it is not expected back any more.
    pub(crate) fn until(&self) -> Instant {
        self.since + LOST_TIME
    }
}

impl Journal {
    /// Has the claims on a node put on disk in a while.
    pub(crate) fn note_claims(&mut self, node: Uuid, now: Instant) {
        if self.is_on {
            self.claims.note_changed(node, now);
        }
    }

    /// Remembers the claims on a node that is away, for the case that it comes back with its instances.
    pub(crate) fn keep_claims(&mut self, node: Uuid, claims: Vec<ClaimRecord>, now: Instant) {
        self.claims.keep(node, claims, now);
    }

    /// The claims on a node that is away.
    pub(crate) fn claims_away(&self, node: Uuid) -> Option<&[ClaimRecord]> {
        self.claims.away.get(&node).map(|away| &*away.claims)
    }

    /// The claims on a node that is there again: they are remembered no longer.
    pub(crate) fn take_claims(&mut self, node: Uuid, now: Instant) -> Option<Vec<ClaimRecord>> {
        let claims = self.claims.take(node)?;
        self.note_claims(node, now);
        Some(claims)
    }

    /// Forgets the claims on a node that has been away for too long, or for which there is no room: which node, and
    /// what they were.
    pub(crate) fn forget_claims(&mut self, now: Instant) -> Option<(Uuid, Vec<ClaimRecord>)> {
        let (node, claims) = self.claims.take_expired(now)?;
        self.note_claims(node, now);
        Some((node, claims))
    }

    /// Whether any node is lost with plain instances.
    pub(crate) fn has_lost_plain(&self) -> bool {
        !self.claims.lost.is_empty()
    }

    /// Whether a plain instance is listed as lost with its node.
    pub(crate) fn is_lost_plain(&self, instance: &InstanceId) -> bool {
        self.claims.last_lost(instance).is_some()
    }

    /// A plain instance that its node is lost with.
    pub(crate) fn lost_plain(&self, instance: &InstanceId) -> Option<LostPlain<'_>> {
        let (_, node, at) = self.claims.last_lost(instance)?;
        let away = self.claims.away.get(&node)?;
        let claim = away.claims.get(at)?;
        let since = away.since;
        Some(LostPlain { node, since, claim })
    }

    /// The first plain instance behind this one that its node is lost with.
    pub(crate) fn next_lost_plain(&self, after: Option<&InstanceId>) -> Option<&InstanceId> {
        let from = after.map(|it| (it.clone(), u64::MAX));
        let from = from.map_or(Bound::Unbounded, Bound::Excluded);
        let mut behind = self.claims.lost.range((from, Bound::Unbounded));
        behind.next().map(|((instance, _), _)| instance)
    }

    /// How many plain instances a node is lost with.
    pub(crate) fn lost_plain_on(&self, node: Uuid) -> usize {
        self.claims.away.get(&node).map_or(0, |away| away.lost)
    }

    /// A plain instance is not expected back with its lost node any more: it is given up, or started again.
    pub(crate) fn forget_lost_plain(&mut self, instance: &InstanceId, now: Instant) {
        while let Some(node) = self.claims.forget_lost(instance) {
            self.note_claims(node, now);
        }
    }

    /// Claims that are remembered of nodes that are away.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn remembered_claims(&self) -> usize {
        self.claims.count
    }

    /// Whether claims are to be handed out for the disk with this input.
    pub(super) fn are_claims_due(&self, now: Instant) -> bool {
        let due = self.claims.due;
        due.is_some_and(|due| due <= now || self.is_leaving)
    }
}

impl Claims {
    /// When something is to be done next.
    pub(super) fn due(&self) -> Option<Instant> {
        let expires = self.in_order.front().map(|(since, _)| *since + LOST_TIME);
        earlier(self.due, expires)
    }

    /// Nodes whose claims are put on disk now: all of them if what is put off may never be done, because the scheduler is
    /// about to end.
    pub(super) fn take_changed(
        &mut self,
        now: Instant,
        is_leaving: bool,
        claims_on: impl Fn(Uuid) -> usize,
    ) -> Vec<Uuid> {
        let (mut nodes, mut claims) = (Vec::new(), 0);
        while (claims < CLAIMS_PER_WRITE || is_leaving)
            && let Some(node) = self.changed.pop_front()
        {
            self.is_changed.remove(&node);
            claims += claims_on(node);
            nodes.push(node);
        }
        let is_more = !self.changed.is_empty();
        self.due = is_more.then(|| now + WRITE_PAUSE);
        nodes
    }

    fn note_changed(&mut self, node: Uuid, now: Instant) {
        if self.is_changed.insert(node) {
            self.changed.push_back(node);
        }
        self.due.get_or_insert(now + WRITE_DELAY);
    }

    fn keep(&mut self, node: Uuid, claims: Vec<ClaimRecord>, now: Instant) {
        self.take(node);
        if claims.is_empty() {
            return;
        }
        self.count += claims.len();
        let (mut lost, number) = (0, self.next);
        self.next += 1;
        for (at, claim) in claims.iter().enumerate().filter(|(_, it)| it.is_lost) {
            lost += 1;
            let instance = InstanceId::new(&claim.instance);
            self.lost.insert((instance, number), (node, at));
        }
        let since = now;
        self.away.insert(
            node,
            Away {
                since,
                number,
                claims,
                lost,
            },
        );
        self.in_order.push_back((now, node));
    }

    fn take(&mut self, node: Uuid) -> Option<Vec<ClaimRecord>> {
        let away = self.away.swap_remove(&node)?;
        self.count -= away.claims.len();
        for claim in away.claims.iter().filter(|claim| claim.is_lost) {
            let instance = InstanceId::new(&claim.instance);
            self.lost.remove(&(instance, away.number));
        }
        Some(away.claims)
    }

    /// Of the nodes that are lost with an instance, the last: the number of its loss, which it is, and where the instance
    /// is among its claims.
    fn last_lost(&self, instance: &InstanceId) -> Option<(u64, Uuid, usize)> {
        if self.lost.is_empty() {
            return None;
        }
        let all = (instance.clone(), 0)..=(instance.clone(), u64::MAX);
        let ((_, number), (node, at)) = self.lost.range(all).next_back()?;
        Some((*number, *node, *at))
    }

    /// Drops one instance from what is listed, with the node that was lost with it last, which is returned.
    fn forget_lost(&mut self, instance: &InstanceId) -> Option<Uuid> {
        let (number, node, at) = self.last_lost(instance)?;
        self.lost.remove(&(instance.clone(), number));
        let away = self.away.get_mut(&node)?;
        away.claims.swap_remove(at);
        away.lost -= 1;
        self.count -= 1;
        // The last one has its place now.
        if let Some(moved) = away.claims.get(at).filter(|it| it.is_lost) {
            let moved = InstanceId::new(&moved.instance);
            if let Some((_, place)) = self.lost.get_mut(&(moved, number)) {
                *place = at;
            }
        }
        if away.claims.is_empty() {
            self.away.swap_remove(&node);
        }
        Some(node)
    }

    /// A node that is to be forgotten now, if there is one.
    fn take_expired(&mut self, now: Instant) -> Option<(Uuid, Vec<ClaimRecord>)> {
        while let Some(&(since, node)) = self.in_order.front() {
            let is_current = self.away.get(&node).is_some_and(|it| it.since == since);
            if is_current && since + LOST_TIME > now && self.count <= MAX_REMEMBERED {
                return None;
            }
            self.in_order.pop_front();
            if is_current && let Some(claims) = self.take(node) {
                return Some((node, claims));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sched_model::Uuid;

    use super::{ClaimRecord, Claims, InstanceId, LOST_TIME, MAX_REMEMBERED};

    fn claims(count: usize) -> Vec<ClaimRecord> {
        vec![ClaimRecord::default(); count]
    }

    #[test]
    fn what_two_nodes_are_lost_with_is_listed_until_both_are_back() {
        let (mut remembered, now) = (Claims::default(), crate::simulated::start());
        let nodes = [1, 2, 3].map(Uuid::from_u128);
        let lost = |names: &[&str]| -> Vec<ClaimRecord> {
            let claim = |name: &&str| ClaimRecord {
                instance: (*name).into(),
                is_lost: true,
                ..ClaimRecord::default()
            };
            names.iter().map(claim).collect()
        };
        remembered.keep(nodes[0], lost(&["a", "b"]), now);
        remembered.keep(nodes[1], lost(&["c", "a"]), now);
        let a = InstanceId::new("a");
        let with = |remembered: &Claims| remembered.last_lost(&a).map(|(_, node, _)| node);
        assert_eq!(with(&remembered), Some(nodes[1]), "with the last");
        assert_eq!(remembered.take(nodes[1]).map(|it| it.len()), Some(2));
        assert_eq!(with(&remembered), Some(nodes[0]), "the other is away");
        remembered.keep(nodes[2], lost(&["a"]), now);
        assert_eq!(remembered.forget_lost(&a), Some(nodes[2]));
        assert_eq!(remembered.forget_lost(&a), Some(nodes[0]));
        assert_eq!(
            (with(&remembered), remembered.forget_lost(&a)),
            (None, None)
        );
        let b = InstanceId::new("b");
        assert_eq!(remembered.last_lost(&b).map(|(.., at)| at), Some(0));
        assert_eq!(remembered.count, 1);
    }

    #[test]
    fn beyond_the_limit_the_node_that_has_been_away_longest_is_forgotten() {
        let (mut remembered, now) = (Claims::default(), crate::simulated::start());
        let second = Duration::from_secs(1);
        let node = Uuid::from_u128;
        remembered.keep(node(1), claims(2), now);
        remembered.keep(node(2), claims(MAX_REMEMBERED - 3), now + second);
        assert_eq!(remembered.take_expired(now + second), None);
        remembered.keep(node(3), claims(2), now + 2 * second);
        assert_eq!(
            remembered.take_expired(now + 2 * second),
            Some((node(1), claims(2)))
        );
        assert_eq!(remembered.take_expired(now + 2 * second), None);
        assert_eq!(remembered.count, MAX_REMEMBERED - 1);
        assert_eq!(remembered.due(), Some(now + second + LOST_TIME));
        // One that is back is not in its way.
        assert_eq!(
            remembered.take(node(2)).map(|it| it.len()),
            Some(MAX_REMEMBERED - 3)
        );
        assert_eq!(remembered.take_expired(now + second + LOST_TIME), None);
        assert_eq!(
            remembered.take_expired(now + 2 * second + LOST_TIME),
            Some((node(3), claims(2)))
        );
        assert_eq!((remembered.count, remembered.due()), (0, None));
    }
}
