//! Nodes as clients see them that choose one themselves (Placement's *resource providers*): what each has, what is
//! claimed of it, and which nodes fit a request. The names that such clients use (resource classes, traits) are known
//! to `src/server/placement` alone.
//!
//! All of it is read in steps of bounded size, between which the core's lock is released.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::no_fit::{Amount, Countable};
use crate::api::provider::{Claimed, Constraint, Consumed, Stock};
use crate::api::resources::{MAX_REPORTED, Resources};
use crate::api::rules::TenantId;
use crate::api::start::StartRequest;
use crate::cluster::Cluster;
use crate::cluster::columns::Columns;
use crate::cluster::facts::{AGGREGATE, is_reserved};
use crate::cluster::index::ColumnId;
use crate::cluster::ledger::Entry;
use crate::cluster::node::{Node, Pool};
use crate::cluster::query::Query;

/// Nodes that one step shows: bounds the time under the core's lock.
const NODES_PER_STEP: usize = 200;

/// Claims that one step looks at: bounds the time under the core's lock.
const CLAIMS_PER_STEP: usize = 1_000;

/// Where the next step goes on; begins at the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProvidersCursor(usize);

/// Where the next step over all claims goes on; begins at the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClaimsCursor {
    node: usize,
    /// The position in its ledger.
    entry: usize,
}

/// A node that has reported what it has, read-only and only as long as the lock is held.
#[derive(Debug, Clone, Copy)]
pub struct Provider<'a> {
    cluster: &'a Cluster,
    node: &'a Node,
}

impl<'a> Provider<'a> {
    fn new(cluster: &'a Cluster, key: NodeKey) -> Option<Self> {
        let node = cluster.node(key);
        node.report().map(|_| Self { cluster, node })
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.node.uuid()
    }

    /// The host name it reported.
    #[must_use]
    pub fn hostname(&self) -> &'a str {
        self.node.hostname()
    }

    /// A number that is larger whenever its labels, its size, what is configured about it or its cordon has changed. Not
    /// kept over a restart of the scheduler.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.node.generation()
    }

    /// Whether it is cordoned: it gets no new work.
    #[must_use]
    pub fn is_cordoned(&self) -> bool {
        self.node.is_cordoned()
    }

    /// Whether it is a compute node; else it is a network node alone.
    #[must_use]
    pub fn is_compute(&self) -> bool {
        self.node.roles().contains(Pool::Compute.role())
    }

    /// Its labels, in order, without those that the scheduler itself makes.
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let labels = self.node.traits().labels.iter();
        let own = labels.filter(|(key, _)| !is_reserved(key));
        own.map(|(key, value)| (&**key, &**value))
    }

    /// The names of the aggregates it is in, in order.
    pub fn aggregates(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let labels = self.node.traits().labels.iter();
        labels.filter_map(|(key, _)| key.strip_prefix(AGGREGATE))
    }

    /// What it has of each resource, vcpus, memory and disk first; resources that it does not report are left out. Of
    /// custom resources all is offered: they have no ratio and no reserve.
    #[must_use]
    pub fn stocks(&self) -> Vec<Stock> {
        let mut stocks = self.every();
        let columns = self.cluster.columns();
        let held = self.node.ledger().held_custom();
        stocks.extend(self.node.traits().resources.iter().map(|&(column, total)| {
            let held = held.iter().find(|(other, _)| *other == column);
            Stock {
                of: Countable::Custom(columns.name(column).into()),
                total,
                reserved: 0,
                ratio: 1.0,
                capacity: total,
                claimed: held.map_or(0, |(_, amount)| *amount),
            }
        }));
        stocks
    }

    /// Its vcpus, memory and disk, with the ratio and reserve in force for this node. `claimed` is what its instances
    /// asked for, not what they use.
    fn every(&self) -> Vec<Stock> {
        let Some(report) = self.node.report() else {
            return Vec::new();
        };
        let (limits, capacity) = (self.node.traits().limits, self.node.capacity());
        let claimed = self.node.ledger().claims().asked;
        let figures = [
            (
                Amount::Vcpus,
                report.cpus_online,
                limits.reserved_cpus,
                limits.cpu_ratio,
            ),
            (
                Amount::Memory,
                report.mem_total_mib,
                limits.reserved_mem_mib,
                limits.mem_ratio,
            ),
            (
                Amount::Disk,
                report.disk_total_mb,
                limits.reserved_disk_mib,
                limits.disk_ratio,
            ),
        ];
        let stock = |(of, total, reserved, ratio): (Amount, i64, i64, f64)| {
            let capacity = capacity.amount(of);
            let is_known = total >= 0 && capacity >= 0;
            is_known.then(|| Stock {
                of: Countable::Every(of),
                total: total.min(MAX_REPORTED),
                reserved,
                ratio,
                capacity,
                claimed: claimed.amount(of).max(0),
            })
        };
        figures.into_iter().filter_map(stock).collect()
    }

    /// What some of its instances asked for, from a position on; and where the next step goes on. Positions shift when
    /// an instance leaves: then another may be shown twice or be skipped.
    #[must_use]
    pub fn claims(&self, from: usize) -> (Vec<Claimed>, Option<usize>) {
        let ledger = self.node.ledger();
        let entries = ledger.entries_from(from).take(CLAIMS_PER_STEP);
        let claims = entries.map(|(instance, entry)| self.claimed(instance, entry));
        let next = from.saturating_add(CLAIMS_PER_STEP);
        (claims.collect(), (next < ledger.len()).then_some(next))
    }

    /// An entry as clients see it.
    fn claimed(&self, instance: &InstanceId, entry: &Entry) -> Claimed {
        Claimed {
            instance: instance.clone(),
            amounts: amounts(entry.asked(), entry.custom(), self.cluster.columns()),
        }
    }

    /// What an instance asked for here, if it is here.
    #[must_use]
    pub fn claim(&self, instance: &InstanceId) -> Option<Claimed> {
        let entry = self.node.ledger().get(instance)?;
        Some(self.claimed(instance, entry))
    }
}

/// Amounts above 0, by what they are of.
fn amounts(
    asked: Resources,
    custom: &[(ColumnId, i64)],
    columns: &Columns,
) -> Vec<(Countable, i64)> {
    let every = [Amount::Vcpus, Amount::Memory, Amount::Disk];
    let every = every.map(|of| (Countable::Every(of), asked.amount(of)));
    let custom = custom.iter().map(|&(column, amount)| {
        let name = columns.name(column).into();
        (Countable::Custom(name), amount)
    });
    let all = every.into_iter().chain(custom);
    all.filter(|(_, amount)| *amount > 0).collect()
}

impl Scheduler {
    /// Shows the next nodes that have reported. Returns where to go on, `None` once all were shown. Nodes that connect
    /// or are forgotten between two steps may be shown or not.
    pub fn visit_providers(
        &self,
        from: ProvidersCursor,
        visit: &mut dyn FnMut(Provider<'_>),
    ) -> Option<ProvidersCursor> {
        let mut nodes = self.cluster.nodes_from(from.0);
        for (key, _) in nodes.by_ref().take(NODES_PER_STEP) {
            if let Some(provider) = Provider::new(&self.cluster, key) {
                visit(provider);
            }
        }
        let (next, _) = nodes.next()?;
        Some(ProvidersCursor(next.0 as usize))
    }

    /// The tenant of an instance: what its START says, or of one whose START is not kept what was said of it last.
    /// `None` where it has none, or that is not known.
    #[must_use]
    pub fn tenant_of(&self, instance: &InstanceId) -> Option<&TenantId> {
        let request = self.instances.get(instance).and_then(|it| it.request());
        let said = || self.instances.about(instance)?.tenant;
        request.and_then(|it| it.tenant.as_ref()).or_else(said)
    }

    /// An instance that is on a node which has reported, and whose it is.
    #[must_use]
    pub fn consumed(&self, instance: &InstanceId) -> Option<(Provider<'_>, Consumed)> {
        let provider = self.provider_of(instance)?;
        let claimed = provider.claim(instance)?;
        let tenant = self.tenant_of(instance).cloned();
        Some((provider, Consumed { tenant, claimed }))
    }

    /// Shows what instances of some tenants asked for, node by node; of `None` those without a tenant, or of which it
    /// is not known. Returns where to go on, `None` once all were looked at. Of instances that come, leave or move
    /// between two steps one may be shown twice or not at all.
    pub fn visit_claims(
        &self,
        from: ClaimsCursor,
        is_wanted: &dyn Fn(Option<&TenantId>) -> bool,
        visit: &mut dyn FnMut(Claimed),
    ) -> Option<ClaimsCursor> {
        let mut left = CLAIMS_PER_STEP;
        let mut nodes = self.cluster.nodes_from(from.node);
        for (key, node) in nodes.by_ref().take(NODES_PER_STEP) {
            let at = key.0 as usize;
            let start = if at == from.node { from.entry } else { 0 };
            let Some(provider) = Provider::new(&self.cluster, key) else {
                continue;
            };
            let ledger = node.ledger();
            for (instance, entry) in ledger.entries_from(start).take(left) {
                if is_wanted(self.tenant_of(instance)) {
                    visit(provider.claimed(instance, entry));
                }
            }
            let seen = ledger.len().saturating_sub(start);
            if seen > left {
                let entry = start + left;
                return Some(ClaimsCursor { node: at, entry });
            }
            left -= seen;
        }
        let (next, _) = nodes.next()?;
        Some(ClaimsCursor {
            node: next.0 as usize,
            entry: 0,
        })
    }

    /// A node by its UUID, once it has reported.
    #[must_use]
    pub fn provider(&self, uuid: Uuid) -> Option<Provider<'_>> {
        let key = self.cluster.by_uuid(uuid)?;
        Provider::new(&self.cluster, key)
    }

    /// The node that an instance is placed on, if that node has reported.
    #[must_use]
    pub fn provider_of(&self, instance: &InstanceId) -> Option<Provider<'_>> {
        let key = self.cluster.placement(instance)?;
        Provider::new(&self.cluster, key)
    }

    /// The first nodes that fit a START and meet these constraints, at most `limit`, in the order in which they would
    /// be tried.
    ///
    /// Nothing is claimed and the order of later choices does not change. It takes `&mut self` only because searches
    /// keep sets of slots for expressions. At worst it looks at every node, as a choice does.
    pub fn candidates(
        &mut self,
        now: Instant,
        (start, constraints): (&Arc<StartRequest>, &[Constraint]),
        limit: usize,
    ) -> Vec<Uuid> {
        let query = Query::of(start);
        let asked = (&query, constraints);
        let found = self.placement.list(&mut self.cluster, asked, limit, now);
        let uuids = found.into_iter().map(|key| self.cluster.uuid(key));
        uuids.collect()
    }

    /// The labels of nodes for which `key` holds of the key and `label` of both, at most `limit` of them.
    /// Labels that the scheduler itself gives are left out.
    #[must_use]
    pub fn labels_where(
        &self,
        key: &dyn Fn(&str) -> bool,
        label: &dyn Fn(&str, &str) -> bool,
        limit: usize,
    ) -> Vec<(Box<str>, Box<str>)> {
        let pools = Pool::ALL.into_iter();
        let labels = pools.flat_map(|pool| self.cluster.labels(pool).pairs(key));
        let found = labels.filter(|(key, value)| !is_reserved(key) && label(key, value));
        // A set, because nodes of both pools may have a label.
        let mut pairs = BTreeSet::new();
        for (key, value) in found {
            if pairs.len() >= limit {
                break;
            }
            pairs.insert((key, value));
        }
        pairs
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }

    /// The names of the custom resources that nodes have, in order.
    pub fn resource_names(&self) -> impl Iterator<Item = &str> {
        self.cluster.columns().names()
    }

    /// The names of the configured aggregates, in order.
    pub fn aggregate_names(&self) -> impl Iterator<Item = &str> {
        self.cluster.aggregate_names()
    }
}
