//! What aggregates say of how much one of their nodes takes: instances, and STARTs under way.

use sched_model::ReasonKind;

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::view::{Asked, Candidate};

#[derive(Debug)]
pub(super) struct AggregateLimits;

/// Of a miss: it is about STARTs under way rather than instances. What is left is the limit.
const STARTS: u16 = 1 << 15;

impl Filter for AggregateLimits {
    fn name(&self) -> &'static str {
        "aggregate-limits"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.isolation().has_limits()
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        let Some(limits) = node.by_aggregates() else {
            return Ok(());
        };
        let miss = |max: i64, of: u16| Err(Miss(of | max.clamp(0, i64::from(STARTS) - 1) as u16));
        match (limits.max_instances(), limits.max_starts()) {
            (Some(max), _) if node.instances() as i64 >= max => miss(max, 0),
            (_, Some(max)) if node.starts_under_way() as i64 >= max => miss(max, STARTS),
            _ => Ok(()),
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Instances
    }

    fn lack(&self, miss: Miss, _asked: &Asked<'_>) -> Lack {
        let max = i64::from(miss.0 & !STARTS);
        match miss.0 & STARTS {
            0 => Lack::Instances(max),
            _ => Lack::Starts(max),
        }
    }

    fn what(&self, miss: Miss, _asked: &Asked<'_>) -> String {
        match miss.0 & STARTS {
            0 => String::new(),
            _ => ReasonKind::Starts.to_string(),
        }
    }

    fn is_lasting(&self, miss: Miss, _asked: &Asked<'_>) -> bool {
        miss.0 & !STARTS == 0
    }
}
