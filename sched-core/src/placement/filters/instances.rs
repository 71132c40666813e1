//! At most so many instances on one node: the filter `instances` with a `max`, the same for all nodes. Limits of single
//! aggregates are in `aggregate_limits`.

use sched_model::ReasonKind;

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes whose ledger has `max` entries or more: running, starting or stopping, and those of which nothing is
/// known but that they are there.
#[derive(Debug)]
pub(super) struct Instances {
    pub(super) max: i64,
}

impl Filter for Instances {
    fn name(&self) -> &'static str {
        "instances"
    }

    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    fn concerns_all(&self) -> bool {
        true
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        if (node.instances() as i64) < self.max {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Instances
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Instances(self.max)
    }
}
