//! Only nodes whose load average over a minute, by CPU online, is not above a limit: `load_per_cpu` of the policy, or the
//! filter of that name with a `max`. A START that may wait does so until a node is calm; one that may not fails. A node
//! that does not report its load or its CPUs is not above any limit.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes whose load per CPU is above a limit. A passing miss.
#[derive(Debug)]
pub(super) struct LoadPerCpu {
    /// In hundredths.
    pub(super) max: i64,
}

impl Filter for LoadPerCpu {
    fn name(&self) -> &'static str {
        "load_per_cpu"
    }

    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    fn concerns_all(&self) -> bool {
        true
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        let is_calm = node.report().is_none_or(|report| {
            let most = self.max.saturating_mul(report.cpus_online);
            report.cpus_online <= 0 || report.load.saturating_mul(100) <= most
        });
        if is_calm { Ok(()) } else { Err(Miss(0)) }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::LoadPerCpu(self.max)
    }
}
