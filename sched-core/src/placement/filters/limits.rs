//! At most so much on one node, the same for all nodes: the filters `instances` and `starts-under-way` with a `max`.
//! Limits of single aggregates are in `aggregate_limits`.

use sched_model::ReasonKind;

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes that are at a limit. A passing miss.
#[derive(Debug)]
pub(super) struct Limit {
    of: Limited,
    max: i64,
}

impl Limit {
    pub(super) fn new(of: Limited, max: i64) -> Self {
        Self { of, max }
    }
}

/// What is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limited {
    /// Entries of the node's ledger: running, starting or stopping, and those of which nothing is known but that they are
    /// there.
    Instances,
    /// STARTs given to the node and neither confirmed nor failed. Keeps a burst of STARTs from one launcher, which works
    /// through them one by one or a few at a time.
    StartsUnderWay,
}

impl Filter for Limit {
    fn name(&self) -> &'static str {
        match self.of {
            Limited::Instances => "instances",
            Limited::StartsUnderWay => "starts-under-way",
        }
    }

    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    fn concerns_all(&self) -> bool {
        true
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        let count = match self.of {
            Limited::Instances => node.instances(),
            Limited::StartsUnderWay => node.starts_under_way(),
        };
        if (count as i64) < self.max {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn reason(&self) -> ReasonKind {
        match self.of {
            Limited::Instances => ReasonKind::Instances,
            Limited::StartsUnderWay => ReasonKind::Starts,
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        match self.of {
            Limited::Instances => Lack::Instances(self.max),
            Limited::StartsUnderWay => Lack::Starts(self.max),
        }
    }
}
