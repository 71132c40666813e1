//! What other rules would change, worked out on a copy of the cluster: which instances would not be placed where they are.
//!
//! A [`Trial`] is taken under the core's lock ([`Trial::of`]) and run outside it, so that a look at a large
//! cluster holds the scheduler up for no longer than the copy takes: some 250 instructions for a node and as many for an
//! instance, without an allocation for each label. Nothing of the cluster itself is changed.
//!
//! Each instance is asked about twice, by the rules in force and by the new ones: what speaks against its node by both is
//! none of the new rules' doing. Its own claim stays in both, so that what it itself is in the way of (its group, its
//! room) is the same in both as well.

use std::sync::Arc;
use std::time::Instant;

use crate::api::affected::{Affected, AffectedPlacement};
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::ConfigurationFlags;
use crate::api::no_fit::{Countable, Lack, Shortage};
use crate::api::rules::{NodeRule, RuleError, Rules, TenantId};
use crate::api::start::StartRequest;
use crate::cluster::Cluster;
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::placement::choose::count_group;
use crate::placement::filters::Miss;
use crate::placement::policy::Policy;

/// The cluster and its policy at one moment, to try other rules on.
#[derive(Debug)]
pub struct Trial {
    now: Instant,
    cluster: Cluster,
    found: Vec<Found>,
}

/// An instance as it was found on its node: no more than has to be copied under the core's lock.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) node: NodeKey,
    pub(crate) instance: InstanceId,
    /// What it is called; empty for nothing.
    pub(crate) name: Box<str>,
    /// Whose it is, where that is known.
    pub(crate) tenant: Option<TenantId>,
    /// What its START asked for, where the scheduler knows it.
    pub(crate) query: Option<Box<Query>>,
    /// Whether that START is kept; of others the amounts are those that are claimed.
    pub(crate) has_start: bool,
}

/// An instance where it is.
struct Placed {
    node: NodeKey,
    name: Box<str>,
    query: Query,
}

impl Found {
    /// With what it asks for, as far as that is known.
    fn placed(self, cluster: &Cluster) -> Placed {
        let amounts = match self.has_start {
            true => None,
            false => cluster.demand_on(self.node, &self.instance),
        };
        let query = self.query.map(|query| *query);
        let query = query.unwrap_or_else(|| {
            let mut request = StartRequest::plain(self.instance);
            request.network_node =
                cluster.node(self.node).slots()[Pool::Compute as usize].is_none();
            request.tenant = self.tenant;
            Query::of(&Arc::new(request))
        });
        Placed {
            node: self.node,
            name: self.name,
            query: match amounts {
                Some(amounts) => query.demanding(amounts),
                None => query,
            },
        }
    }
}

impl Trial {
    /// Of a copy of the cluster and these instances on it.
    pub(crate) fn new(now: Instant, cluster: &Cluster, found: Vec<Found>) -> Self {
        Self {
            now,
            cluster: cluster.clone(),
            found,
        }
    }

    /// Which instances would not be placed where they are by these rules, and of them at most so many by name.
    ///
    /// # Errors
    /// The rules do not hold together.
    pub fn with_rules(
        mut self,
        flags: ConfigurationFlags,
        rules: Rules,
        at_most: usize,
    ) -> Result<Affected, RuleError> {
        let old = Policy::new(&self.cluster.configuration().1.policy).unwrap_or_default();
        let new = Policy::new(&rules.policy)?;
        let placed = self.placed();
        let before = self.misses(&placed, &old);
        self.cluster.configure(flags, Some(rules), self.now);
        Ok(self.compare(&placed, &before, &new, at_most))
    }

    /// The same where the node file says this.
    pub fn with_node_rules(mut self, rules: Vec<NodeRule>, at_most: usize) -> Affected {
        let policy = Policy::new(&self.cluster.configuration().1.policy).unwrap_or_default();
        let placed = self.placed();
        let before = self.misses(&placed, &policy);
        self.cluster.set_node_rules(rules, self.now);
        self.compare(&placed, &before, &policy, at_most)
    }

    /// The instances, with what each asks for.
    fn placed(&mut self) -> Vec<Placed> {
        let found = std::mem::take(&mut self.found).into_iter();
        found.map(|found| found.placed(&self.cluster)).collect()
    }

    /// What speaks against each instance's node, without words for it.
    fn misses(&mut self, placed: &[Placed], policy: &Policy) -> Vec<Vec<Against>> {
        let Self { now, cluster, .. } = self;
        let against = |placed: &Placed| {
            let all = against(cluster, policy, placed, *now);
            all.into_iter().map(|(against, _)| against).collect()
        };
        placed.iter().map(against).collect()
    }

    /// Those of whose nodes something speaks against now that did not before.
    fn compare(
        &mut self,
        placed: &[Placed],
        before: &[Vec<Against>],
        policy: &Policy,
        at_most: usize,
    ) -> Affected {
        let Self { now, cluster, .. } = self;
        let mut affected = Affected {
            checked: placed.len(),
            ..Affected::default()
        };
        for (placed, before) in placed.iter().zip(before) {
            let now = against(cluster, policy, placed, *now);
            let new = now.into_iter().find(|(it, _)| !before.contains(it));
            let Some((_, lack)) = new else { continue };
            affected.count += 1;
            if affected.first.len() < at_most {
                let node = cluster.node(placed.node);
                affected.first.push(AffectedPlacement {
                    instance: placed.query.instance().clone(),
                    name: placed.name.clone(),
                    node: node.uuid(),
                    hostname: node.hostname().into(),
                    lack,
                });
            }
        }
        affected
    }
}

/// One thing that speaks against a node: a filter's miss, or that more is claimed of something than there is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Against {
    Filter(&'static str, Miss),
    Claims(Countable),
}

/// All that speaks against an instance's node.
fn against(
    cluster: &mut Cluster,
    policy: &Policy,
    placed: &Placed,
    now: Instant,
) -> Vec<(Against, Lack)> {
    let query = &placed.query;
    count_group(cluster, query);
    let (view, labels) = cluster.view_and_labels(query.pool(), now);
    let asked = view.asked(query, labels);
    let node = view.candidate(placed.node);
    let missed = policy.concerned(&asked).iter().filter_map(|filter| {
        let miss = filter.admits(&node, &asked).err()?;
        let lack = filter.lack(miss, &asked);
        Some((Against::Filter(filter.name(), miss), lack))
    });
    let mut all: Vec<_> = missed.collect();
    let free = view.nodes.free(placed.node).amounts();
    let wanted = asked.room().amounts();
    let every = free.into_iter().zip(wanted);
    let every = every.map(|((amount, free), (_, wanted))| (Countable::Every(amount), free, wanted));
    let custom = query.amounts();
    let custom = custom.map(|(name, wanted)| {
        let free = asked.free_custom(&node, name);
        (Countable::Custom(name.into()), free, wanted)
    });
    for (of, free, wanted) in every.chain(custom) {
        // What is not reported is `i64::MIN`, by both rules.
        if free >= 0 || wanted <= 0 {
            continue;
        }
        let shortage = Shortage {
            of: of.clone(),
            asked: wanted,
            best: free.saturating_add(wanted),
            host: Box::default(),
            largest: None,
        };
        all.push((Against::Claims(of), Lack::Room(Box::new(shortage))));
    }
    all
}
