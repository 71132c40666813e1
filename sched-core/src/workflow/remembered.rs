//! What instances on original launchers asked for, remembered while their node or the scheduler is away.
//!
//! A native launcher says in each STATS what its instances asked for; an original one does not, so only the scheduler that
//! gave it the START knows. Its claims are put on disk behind the STARTs, one record for each node, [`WRITE_DELAY`] later
//! unless many nodes are before it, and no START waits for that: however many there are, writing takes a few per cent of
//! one processor ([`CLAIMS_PER_WRITE`]). They are remembered in memory when a node is given up as well.
//! A node that comes back has them in its ledger from the moment it connects; those that it does not list are dropped
//! like any other.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use proto_frames::Uuid;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::config::MAX_INSTANCES_PER_NODE;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record::{ClaimRecord, ClaimsRecord, Record};
use crate::api::resources::Resources;
use crate::cluster::ledger::{Entry, Extras, Ledger, Phase};
use crate::workflow::losses::LOST_TIME;

/// How long after a change the claims on a node are put on disk. A crash loses the claims of STARTs younger than that:
/// they count as what nothing is known of.
const WRITE_DELAY: Duration = Duration::from_millis(250);

/// Claims put on disk at once, if not one node alone has more: about 0.2 ms in which nothing else is done.
const CLAIMS_PER_WRITE: usize = 1024;

/// How long after that the next are put there.
const WRITE_PAUSE: Duration = Duration::from_millis(10);

/// Most claims remembered of nodes that are away, of all of them together; the node that has been away longest is
/// forgotten first.
pub(crate) const MAX_REMEMBERED: usize = 1 << 20;

/// Claims on nodes with original launchers: which are to be written, and those of nodes that are away.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
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
}

#[derive(Debug)]
struct Away {
    since: Instant,
    claims: Vec<ClaimRecord>,
}

impl Remembered {
    /// When something is to be done next.
    pub(crate) fn due(&self) -> Option<Instant> {
        let expires = self.in_order.front().map(|(since, _)| *since + LOST_TIME);
        [self.due, expires].into_iter().flatten().min()
    }

    /// Claims that are remembered of nodes that are away.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn note_changed(&mut self, node: Uuid, now: Instant) {
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
        self.away.insert(node, Away { since: now, claims });
        self.in_order.push_back((now, node));
    }

    fn take(&mut self, node: Uuid) -> Option<Vec<ClaimRecord>> {
        let away = self.away.swap_remove(&node)?;
        self.count -= away.claims.len();
        Some(away.claims)
    }

    /// A node that is to be forgotten now, if there is one.
    fn take_expired(&mut self, now: Instant) -> Option<(Uuid, usize)> {
        while let Some(&(since, node)) = self.in_order.front() {
            let is_current = self.away.get(&node).is_some_and(|it| it.since == since);
            if is_current && since + LOST_TIME > now && self.count <= MAX_REMEMBERED {
                return None;
            }
            self.in_order.pop_front();
            if is_current && let Some(claims) = self.take(node) {
                return Some((node, claims.len()));
            }
        }
        None
    }
}

impl Scheduler {
    /// Whether claims are to be handed out for the disk with this input.
    pub(crate) fn are_claims_due(&self) -> bool {
        let due = self.remembered.due;
        due.is_some_and(|due| due <= self.now || self.is_leaving)
    }

    /// Nodes whose claims are put on disk now.
    pub(crate) fn take_changed_claims(&mut self) -> Vec<Uuid> {
        let mut nodes = Vec::new();
        if !self.are_claims_due() {
            return nodes;
        }
        let mut claims = 0;
        // What is to be done later may never be done where the scheduler is about to end.
        while (claims < CLAIMS_PER_WRITE || self.is_leaving)
            && let Some(uuid) = self.remembered.changed.pop_front()
        {
            self.remembered.is_changed.remove(&uuid);
            let key = self.cluster.nodes().by_uuid(uuid);
            claims += key.map_or(0, |key| self.cluster.nodes().node(key).ledger.len());
            nodes.push(uuid);
        }
        let is_more = !self.remembered.changed.is_empty();
        self.remembered.due = is_more.then(|| self.now + WRITE_PAUSE);
        nodes
    }

    /// What is put on disk of the claims on a node; `None` if nothing is to be there.
    pub(crate) fn claims_record(&self, uuid: Uuid) -> Option<Record> {
        let claims = match self
            .cluster
            .nodes()
            .by_uuid(uuid)
            .map(|key| self.cluster.nodes().node(key))
        {
            Some(node) if node.is_native => return None,
            Some(node) => self.claims_of(&node.ledger),
            None => self.remembered.away.get(&uuid)?.claims.clone(),
        };
        (!claims.is_empty()).then_some(Record::Claims(ClaimsRecord { claims }))
    }

    fn claims_of(&self, ledger: &Ledger) -> Vec<ClaimRecord> {
        // Of one that is managed more is on disk, and a node was not told of one whose room is claimed alone.
        let is_kept_here =
            |entry: &Entry| entry.is_known && !entry.is_kept && entry.phase != Phase::Claimed;
        let entries = ledger
            .entries_from(0)
            .filter(|(_, entry)| is_kept_here(entry));
        let record = |(instance, entry): (&InstanceId, &Entry)| ClaimRecord {
            instance: instance.to_string().into(),
            mem_mib: entry.asked.mem_mib,
            vcpus: entry.asked.vcpus,
            disk_mib: entry.asked.disk_mib,
            resources: entry
                .custom()
                .iter()
                .map(|&(column, amount)| (self.cluster.columns().name(column).into(), amount))
                .collect(),
            group: entry.group().map(|group| (&**group).into()),
        };
        entries.map(record).collect()
    }

    /// A node is given up: its claims are remembered for the case that it comes back with its instances.
    pub(crate) fn remember_claims(&mut self, uuid: Uuid, ledger: &Ledger) {
        let claims = self.claims_of(ledger);
        self.remembered.keep(uuid, claims, self.now);
        self.forget_old_claims();
    }

    /// Takes up what the process before this one left.
    pub(crate) fn restore_claims(&mut self, uuid: Uuid, record: ClaimsRecord) {
        self.remembered.keep(uuid, record.claims, self.now);
    }

    /// Forgets the claims of nodes that have been away for too long.
    pub(crate) fn forget_old_claims(&mut self) {
        while let Some((node, claims)) = self.remembered.take_expired(self.now) {
            self.notice(Notice::ClaimsForgotten(node, claims));
            if self.durable.is_on() {
                self.remembered.note_changed(node, self.now);
            }
        }
    }

    /// A node with an original launcher is there again: what its instances asked for counts from now on. Of instances
    /// that have been placed elsewhere, and of those that are managed, more is known elsewhere.
    pub(crate) fn recall_claims(&mut self, key: NodeKey) {
        let node = self.cluster.nodes().node(key);
        let (uuid, is_native) = (node.uuid, node.is_native);
        let Some(claims) = self.remembered.take(uuid) else {
            return;
        };
        if self.durable.is_on() {
            self.remembered.note_changed(uuid, self.now);
        }
        if is_native {
            return;
        }
        for claim in claims {
            let instance = InstanceId::new(&claim.instance);
            let ledger = &self.cluster.nodes().node(key).ledger;
            let is_elsewhere = self.cluster.placement(&instance).is_some()
                || self.instances.contains(&instance)
                || ledger.get(&instance).is_some();
            if is_elsewhere || ledger.len() >= MAX_INSTANCES_PER_NODE {
                continue;
            }
            let asked = Resources {
                mem_mib: claim.mem_mib,
                vcpus: claim.vcpus,
                disk_mib: claim.disk_mib,
            };
            let amounts = claim.resources.iter();
            let extras = Extras {
                custom: self
                    .cluster
                    .amounts(amounts.map(|(name, amount)| (&**name, *amount))),
                group: claim.group.as_deref().map(Into::into),
            };
            let entry = Entry::remembered(asked, extras, self.now);
            self.cluster.ledger_mut(key).insert(instance, entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proto_frames::Uuid;

    use super::{ClaimRecord, LOST_TIME, MAX_REMEMBERED, Remembered};

    fn claims(count: usize) -> Vec<ClaimRecord> {
        vec![ClaimRecord::default(); count]
    }

    #[test]
    fn beyond_the_limit_the_node_that_has_been_away_longest_is_forgotten() {
        let (mut remembered, now) = (Remembered::default(), Instant::now());
        let second = Duration::from_secs(1);
        let node = Uuid::from_u128;
        remembered.keep(node(1), claims(2), now);
        remembered.keep(node(2), claims(MAX_REMEMBERED - 3), now + second);
        assert_eq!(remembered.take_expired(now + second), None);
        remembered.keep(node(3), claims(2), now + 2 * second);
        assert_eq!(
            remembered.take_expired(now + 2 * second),
            Some((node(1), 2))
        );
        assert_eq!(remembered.take_expired(now + 2 * second), None);
        assert_eq!(remembered.len(), MAX_REMEMBERED - 1);
        assert_eq!(remembered.due(), Some(now + second + LOST_TIME));
        // One that is back is not in its way.
        assert_eq!(
            remembered.take(node(2)).map(|it| it.len()),
            Some(MAX_REMEMBERED - 3)
        );
        assert_eq!(remembered.take_expired(now + second + LOST_TIME), None);
        assert_eq!(
            remembered.take_expired(now + 2 * second + LOST_TIME),
            Some((node(3), 2))
        );
        assert_eq!((remembered.len(), remembered.due()), (0, None));
    }
}
