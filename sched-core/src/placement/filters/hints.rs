//! `scheduling.same_node` and `different_node`: on a node that has one of some instances, or on one that has none of
//! them.
//!
//! The instances are looked up once, when the query is resolved (`View::asked`): where each is placed now, the START's
//! own instance aside. They are named one by one and need not belong to a group.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::ids::NodeKey;
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::labels::Mask;
use crate::cluster::slot_set::SlotSet;
use crate::cluster::view::Asked;

/// Only nodes that have one of the instances of `same_node`. Where none of these is placed anywhere, no node fits. The
/// miss may pass: one of them may be started or moved.
#[derive(Debug)]
pub(super) struct SameNode;

/// Only nodes that have none of the instances of `different_node`.
#[derive(Debug)]
pub(super) struct DifferentNode;

impl Filter for SameNode {
    fn name(&self) -> &'static str {
        "same-node"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["same_node"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.same_node.is_some()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        match &asked.same_node {
            Some(nodes) if !nodes.contains(&node.key) => Err(Miss(0)),
            _ => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let nodes = asked.same_node.as_deref().unwrap_or_default();
        to.masks.push(Mask::inside(slots(nodes, to)));
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::SameNode
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::SameNode
    }
}

impl Filter for DifferentNode {
    fn name(&self) -> &'static str {
        "different-node"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["different_node"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        !asked.different_node.is_empty()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        if asked.different_node.contains(&node.key) {
            return Err(Miss(0));
        }
        Ok(())
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let slots = slots(&asked.different_node, to);
        to.masks.push(Mask::outside(slots));
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::DifferentNode
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::DifferentNode
    }
}

/// The slots of these nodes in the pool that is searched.
fn slots(nodes: &[NodeKey], narrowing: &Narrowing<'_>) -> Arc<SlotSet> {
    let nodes = nodes.iter();
    Arc::new(nodes.filter_map(|&key| narrowing.view.slot(key)).collect())
}
