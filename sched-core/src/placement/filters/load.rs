//! Only nodes whose load average over a minute is not above a limit: the filter `load` with a `max`. A node that
//! reports no load (-1) is not above any limit. The load of a report says nothing of STARTs sent since, so a burst may
//! still go to one node.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

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
