//! What instances on original launchers asked for, remembered while their node or the scheduler is away.
//!
//! A native launcher says in each STATS what its instances asked for; an original one does not, so only the scheduler
//! that gave it the START knows. Its claims are put on disk after a while
//! ([`Journal::note_claims`](crate::journal::Journal)), and are also remembered in memory when a node is given up.
//! A node that comes back has them in its ledger from the moment it connects; those that it does not list are dropped
//! like any other.

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record::{ClaimRecord, ClaimsRecord, Record};
use crate::api::resources::Resources;
use crate::cluster::ledger::{ClaimState, Entry, Extras, Ledger};

impl Scheduler {
    /// What is put on disk of the claims on a node; `None` if nothing is to be there.
    pub(crate) fn claims_record(&self, uuid: Uuid) -> Option<Record> {
        let claims = match self
            .cluster
            .nodes()
            .by_uuid(uuid)
            .map(|key| self.cluster.nodes().node(key))
        {
            Some(node) if node.is_native() => return None,
            Some(node) => self.claims_of(node.ledger()),
            None => self.journal.claims_away(uuid)?.to_vec(),
        };
        (!claims.is_empty()).then_some(Record::Claims(ClaimsRecord { claims }))
    }

    /// What the plain instances in a ledger asked for, as records. Managed instances have records of their own.
    fn claims_of(&self, ledger: &Ledger) -> Vec<ClaimRecord> {
        // Managed instances have records of their own, and of one that is only claimed the node knows nothing.
        let is_kept_here = |entry: &Entry| {
            entry.is_known() && !entry.is_managed() && entry.claim_state() != ClaimState::Claimed
        };
        let entries = ledger
            .entries_from(0)
            .filter(|(_, entry)| is_kept_here(entry));
        let record = |(instance, entry): (&InstanceId, &Entry)| ClaimRecord {
            instance: instance.to_string().into(),
            mem_mib: entry.asked().mem_mib,
            vcpus: entry.asked().vcpus,
            disk_mib: entry.asked().disk_mib,
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
        self.journal.keep_claims(uuid, claims, self.now);
        self.forget_old_claims();
    }

    /// Takes over the claims on a node from disk, until the node is back or they are forgotten.
    pub(crate) fn restore_claims(&mut self, uuid: Uuid, record: ClaimsRecord) {
        self.journal.keep_claims(uuid, record.claims, self.now);
    }

    /// Forgets the claims of nodes that have been away for too long.
    pub(crate) fn forget_old_claims(&mut self) {
        while let Some((node, claims)) = self.journal.forget_claims(self.now) {
            self.notice(Notice::ClaimsForgotten(node, claims));
        }
    }

    /// A node is back: what its instances asked for is claimed on it again, if its launcher is an original one. Left
    /// out are instances that were placed elsewhere meanwhile, managed ones, and those that its ledger has.
    pub(crate) fn recall_claims(&mut self, key: NodeKey) {
        let node = self.cluster.nodes().node(key);
        let (uuid, is_native) = (node.uuid(), node.is_native());
        let Some(claims) = self.journal.take_claims(uuid, self.now) else {
            return;
        };
        if is_native {
            return;
        }
        let mut restored = Vec::with_capacity(claims.len());
        for claim in claims {
            let instance = InstanceId::new(&claim.instance);
            let ledger = self.cluster.nodes().node(key).ledger();
            let is_elsewhere = self.cluster.placement(&instance).is_some()
                || self.instances.contains(&instance)
                || ledger.get(&instance).is_some();
            if is_elsewhere {
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
            restored.push((instance, Entry::remembered(asked, extras, self.now)));
        }
        self.cluster.restore_claims(key, restored);
    }
}
