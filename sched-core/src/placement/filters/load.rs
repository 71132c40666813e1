//! Only nodes whose load average over a minute is not above a limit; one that reports none is not above any.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::view::{Asked, Candidate};

/// Rejects nodes whose reported load is above `max`. Not scaled by the number of CPUs. A passing miss.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) max: i64,
}

impl Filter for Load {
    fn name(&self) -> &'static str {
        "load"
    }

    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    fn concerns_all(&self) -> bool {
        true
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        match node.report() {
            Some(report) if report.load > self.max => Err(Miss(0)),
            _ => Ok(()),
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Load(self.max)
    }
}
