//! `scheduling.near` with `hard: true`: only where something with a label is already.
//!
//! ```yaml
//! scheduling:
//!   near: [{label: cache, scope: rack, hard: true}]
//! ```
//!
//! Here: only nodes in a rack (the same value of their label `rack`) in which some node has the label `cache`. With the
//! scope `node` the node itself must have it. Entries with `hard: false` are a weigher's business.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::labels::Mask;
use crate::cluster::view::{Asked, NODE_SCOPE};

/// Rejects nodes that are not near what is wanted. The miss is the index of the first entry of `near` that fails.
#[derive(Debug)]
pub(super) struct HardNear;

impl Filter for HardNear {
    fn name(&self) -> &'static str {
        "near"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["near"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.near.iter().any(|near| near.asked().hard)
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let failed = asked
            .near
            .iter()
            .position(|near| near.asked().hard && !near.is_at(node));
        match failed {
            Some(at) => Err(Miss(u32::try_from(at).unwrap_or(u32::MAX))),
            None => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        for near in asked.near.iter().filter(|near| near.asked().hard) {
            let slots = near.slots(to.labels);
            to.masks.push(Mask::inside(Arc::new(slots)));
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Near
    }

    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack {
        let near = asked.near.get(miss.0 as usize);
        let Some(near) = near.map(|near| near.asked()) else {
            return Lack::Nearness;
        };
        let label = near.label.as_str().into();
        match &*near.scope {
            NODE_SCOPE => Lack::Label(label),
            scope => Lack::Near {
                scope: scope.into(),
                label,
            },
        }
    }

    fn what(&self, miss: Miss, asked: &Asked<'_>) -> String {
        let near = asked.near.get(miss.0 as usize);
        near.map_or_else(String::new, |near| near.asked().label.clone())
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
