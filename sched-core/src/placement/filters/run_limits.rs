//! `scheduling.time_limit`, `stop`, `restart` and `retry`: only nodes whose launchers do what these say.
//!
//! A launcher that does not know them, as the original's, passes them over: a job would run for ever, and a service that
//! has crashed would stay so, without a word.

use super::{Filter, Miss};
use crate::api::input::Capabilities;
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes whose launcher has not announced the capability. Lasting: the launcher would have to be replaced.
#[derive(Debug)]
pub(super) struct RunLimits;

impl Filter for RunLimits {
    fn name(&self) -> &'static str {
        "run-limits"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["time_limit", "stop", "restart", "retry"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked
            .scheduling()
            .is_some_and(|asked| asked.needs_run_limits())
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        if node.can(Capabilities::RUN_LIMITS) {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::RunLimits
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}
