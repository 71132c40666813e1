//! What aggregates say of how much one of their nodes takes: instances, and STARTs under way.

use sched_model::ReasonKind;

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// One limit that aggregates may set for each of their nodes. Of several aggregates of a node the smallest counts.
/// Concerns every START as soon as any aggregate has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AggregateLimit {
    /// `max_instances`: entries in the node's ledger, with those on their way.
    Instances,
    /// `max_starts_under_way`: STARTs given to the node that it has neither confirmed nor refused.
    Starts,
}

impl Filter for AggregateLimit {
    fn name(&self) -> &'static str {
        match self {
            Self::Instances => "aggregate-instances",
            Self::Starts => "aggregate-starts",
        }
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.view.isolation.has_limits()
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        let Some(limits) = node.by_aggregates() else {
            return Ok(());
        };
        let (max, count) = match self {
            Self::Instances => (limits.max_instances(), node.instances()),
            Self::Starts => (limits.max_starts(), node.starts_under_way()),
        };
        match max {
            Some(max) if count as i64 >= max => Err(miss(max)),
            _ => Ok(()),
        }
    }

    fn reason(&self) -> ReasonKind {
        match self {
            Self::Instances => ReasonKind::Instances,
            Self::Starts => ReasonKind::Starts,
        }
    }

    /// The miss is the limit itself, so that nodes with different limits are told apart.
    fn lack(&self, miss: Miss, _asked: &Asked<'_>) -> Lack {
        self.lacking(miss)
    }

    /// With a limit of 0 nothing may ever run there; any other limit may be met once something has ended.
    fn is_lasting(&self, miss: Miss, _asked: &Asked<'_>) -> bool {
        miss.0 == 0
    }
}

impl AggregateLimit {
    /// What a node lacks that misses like this.
    fn lacking(self, miss: Miss) -> Lack {
        let max = i64::from(miss.0);
        match self {
            Self::Instances => Lack::Instances(max),
            Self::Starts => Lack::Starts(max),
        }
    }
}

/// The miss of a node with this limit. No node has so many instances or STARTs that a larger one is ever reached.
fn miss(max: i64) -> Miss {
    Miss(u32::try_from(max).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::{AggregateLimit, Lack, miss};

    #[test]
    fn a_limit_is_explained_as_it_is() {
        for max in [0, 65_535, 65_536, 1_000_000] {
            let lack = AggregateLimit::Instances.lacking(miss(max));
            assert_eq!(lack, Lack::Instances(max));
            let lack = AggregateLimit::Starts.lacking(miss(max));
            assert_eq!(lack, Lack::Starts(max));
        }
    }
}
