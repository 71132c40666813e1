//! Which nodes fit, listed and not chosen: nothing is claimed, no cursor moves and no weigher is asked.
//!
//! For the allocation candidates of the Placement API (`query::providers`), whose clients choose among the nodes
//! themselves.

use std::sync::Arc;
use std::time::Instant;

use crate::api::ids::NodeKey;
use crate::api::provider::{Constraint, Having};
use crate::cluster::Cluster;
use crate::cluster::facts::AGGREGATE;
use crate::cluster::labels::{LabelIndex, Mask};
use crate::cluster::query::Query;
use crate::placement::Placement;
use crate::placement::choose::{Search, count_group};

impl Placement {
    /// The first nodes for a query that meet these constraints as well, at most `limit` of them, in the order of the
    /// search.
    ///
    /// Costs what a choice costs, and then as much again for each further node. The caller bounds `limit`.
    pub(crate) fn list(
        &self,
        cluster: &mut Cluster,
        (query, constraints): (&Query, &[Constraint]),
        limit: usize,
        now: Instant,
    ) -> Vec<NodeKey> {
        count_group(cluster, query);
        let (view, labels) = cluster.view_and_labels(query.pool(), now);
        let asked = view.asked(query, labels);
        if limit == 0 || !asked.unknown_names().is_empty() {
            return Vec::new();
        }
        let filters = self.policy().concerned(&asked);
        let search = Search::new(view, &asked, filters, labels);
        let masks: Vec<Mask> = constraints.iter().map(|it| mask(it, labels)).collect();
        let mut slots = Vec::new();
        search.collect(limit, &masks, &mut slots);
        let nodes = slots.into_iter().filter_map(|slot| view.table.node(slot));
        nodes.collect()
    }
}

/// A constraint as slots: those that have any of its labels or are in any of its aggregates, or all others where it
/// forbids them. An aggregate is the label `aggregate.NAME` with the value `true`.
fn mask(constraint: &Constraint, labels: &LabelIndex) -> Mask {
    if constraint.any_of.contains(&Having::Compute) {
        // What is searched for are compute nodes: it holds of all of them, and without it of none.
        let none = Arc::default();
        return match constraint.is_forbidden {
            true => Mask::inside(none),
            false => Mask::outside(none),
        };
    }
    let pairs = constraint.any_of.iter().filter_map(|having| match having {
        Having::Label(key, value) => Some((key.clone(), &**value)),
        Having::Aggregate(name) => Some((format!("{AGGREGATE}{name}").into(), "true")),
        // What is cordoned is found by no search.
        Having::Cordon | Having::Compute => None,
    });
    let set = Arc::new(labels.with_any(pairs));
    match constraint.is_forbidden {
        true => Mask::outside(set),
        false => Mask::inside(set),
    }
}
