//! What instances on original launchers asked for, remembered while their node or the scheduler is away; and the plain
//! instances of lost nodes, which are listed as lost until their node is back, or nobody waits for them any more.
//!
//! A native launcher says in each STATS what its instances asked for; an original one does not, so only the scheduler
//! that gave it the START knows. Its claims are put on disk after a while
//! ([`Journal::note_claims`](crate::journal::Journal)), and are also remembered in memory when a node is given up. The plain
//! instances of any node are put there when its connection ends, until it is back.
//! A node that comes back has them in its ledger from the moment it connects; those that it does not list are dropped
//! like any other.

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::action::Notice;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::record::{ClaimRecord, ClaimsRecord, LostDelete};
use crate::api::resources::Resources;
use crate::api::rules::TenantId;
use crate::api::text::ShortText;
use crate::cluster::ledger::{Entry, Extras, Remains};
use crate::cluster::node::Node;
use crate::instance::{InstanceInfo, Run};
use crate::journal::LostPlain;

impl Scheduler {
    /// A node is given up: these of its claims are remembered, for the case that it comes back with what has them. Of a
    /// native launcher only the plain instances that are listed as lost with it: it says all when it is back.
    pub(crate) fn remember_claims(&mut self, node: &Node, mut claims: Vec<ClaimRecord>) {
        if node.is_native() {
            claims.retain(|claim| claim.is_lost);
        }
        if !claims.is_empty() {
            self.journal.note_claims(node.uuid(), self.now);
        }
        self.journal.keep_claims(node.uuid(), claims, self.now);
        self.forget_old_claims();
    }

    /// Takes over the claims on a node from disk, until the node is back or they are forgotten; without those whose
    /// ends are on disk already, which is before claims are written again.
    pub(crate) fn restore_claims(&mut self, uuid: Uuid, mut record: ClaimsRecord) {
        let before = record.claims.len();
        record.claims.retain(|claim| {
            let instance = InstanceId::new(&claim.instance);
            let since = self.clock.instant_of(claim.since_ms);
            !self.instances.has_ended_on_since(&instance, uuid, since)
        });
        if record.claims.len() < before {
            self.journal.note_claims(uuid, self.now);
        }
        for claim in record.claims.iter().filter(|claim| claim.is_lost) {
            let instance = InstanceId::new(&claim.instance);
            let tenant = claim.tenant.as_deref().map(TenantId::new);
            let named = self.instances.called(&tenant, &claim.name);
            // It may have been given up, and its name given to another, just before the scheduler was killed.
            let is_taken =
                named.is_some_and(|other| *other != instance && self.sight().exists(other));
            let about = InstanceInfo {
                name: if is_taken {
                    "".into()
                } else {
                    claim.name.clone()
                },
                tenant,
                program: claim.program.clone(),
                since: None,
            };
            self.instances.note_about(&instance, about);
        }
        self.journal.keep_claims(uuid, record.claims, self.now);
    }

    /// Forgets the claims of nodes that have been away for too long.
    pub(crate) fn forget_old_claims(&mut self) {
        while let Some((node, claims)) = self.journal.forget_claims(self.now) {
            self.notice(Notice::ClaimsForgotten(node, claims.len()));
            self.lost_are_over(node, &claims, &Cause::NodeLost);
        }
    }

    /// What a node was lost with is not expected back with it any more, because its time is over or the node is
    /// forgotten: how each ended is not known.
    pub(crate) fn lost_are_over(&mut self, node: Uuid, claims: &[ClaimRecord], why: &Cause) {
        for claim in claims.iter().filter(|claim| claim.is_lost) {
            let instance = InstanceId::new(&claim.instance);
            // Started again meanwhile, it is what became of that.
            if self.sight().exists(&instance) {
                continue;
            }
            let since = (claim.since_ms > 0).then(|| self.clock.instant_of(claim.since_ms));
            let place = (node, ShortText::new(self.cluster.name_of(node)));
            // Not closed: the node may come back and report how it ended.
            let mut numbers = self.instances.numbers_after(&instance);
            numbers.begin(node);
            let run = Run::plain(instance, place, since, self.now, why.kept());
            self.instances.note_run(run.numbered(numbers, None));
        }
        self.note_changed_runs();
    }

    /// An operator gives up a plain instance of a lost node; whether it was one.
    pub(crate) fn forget_lost_plain(&mut self, instance: &InstanceId) -> bool {
        let Some(LostPlain { node, claim, .. }) = self.sight().lost_plain(instance) else {
            return false;
        };
        let claim = claim.clone();
        self.journal.forget_lost_plain(instance, self.now);
        self.lost_are_over(node, &[claim], &Cause::Forgotten);
        true
    }

    /// A node is back: what it had is in its ledger again, until a STATS says what of it is there. Left out are
    /// instances that were placed elsewhere meanwhile, managed ones, and those that its ledger has; and on a native
    /// launcher those that were not listed as lost with it.
    pub(crate) fn recall_claims(&mut self, key: NodeKey) {
        let node = self.cluster.node(key);
        let (uuid, is_native) = (node.uuid(), node.is_native());
        let Some(mut claims) = self.journal.take_claims(uuid, self.now) else {
            return;
        };
        claims.retain(|claim| claim.is_lost || !is_native);
        let mut restored = Vec::with_capacity(claims.len());
        for claim in claims {
            let instance = InstanceId::new(&claim.instance);
            let ledger = self.cluster.ledger(key);
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
            let since = match claim.since_ms {
                0 => self.now,
                since_ms => self.clock.instant_of(since_ms).min(self.now),
            };
            let entry = Entry::remembered(asked, extras, since);
            let lost_delete = claim.lost_delete.map(|lost| match lost {
                LostDelete::Delete => Remains::Nothing,
                LostDelete::Stop => Remains::ForRestart,
            });
            let entry = entry.known_if(!claim.is_unknown);
            restored.push((instance, entry.with_lost_delete(lost_delete)));
        }
        self.cluster.restore_claims(key, restored);
    }
}
