//! At most so many STARTs under way on one node: given to it and neither confirmed nor failed. The filter
//! `starts-under-way` with a `max`; it keeps a burst of STARTs from one launcher, which works through them one by one
//! or a few at a time.

use sched_model::ReasonKind;

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// Rejects nodes with `max` or more STARTs under way. A passing miss.
#[derive(Debug)]
pub(super) struct StartsUnderWay {
    pub(super) max: i64,
}

impl Filter for StartsUnderWay {
    fn name(&self) -> &'static str {
        "starts-under-way"
    }

    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    fn concerns_all(&self) -> bool {
        true
    }

    fn admits(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> Result<(), Miss> {
        if (node.starts_under_way() as i64) < self.max {
            Ok(())
        } else {
            Err(Miss(0))
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Starts
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Starts(self.max)
    }
}
