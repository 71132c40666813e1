//! Nodes that an instance is not to go to: where it could not be started, or what it is to leave.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::view::{Asked, Candidate};

#[derive(Debug)]
pub(super) struct Avoid;

impl Filter for Avoid {
    fn name(&self) -> &'static str {
        "avoid"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query().avoids_any()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        if asked.query().avoids(node.uuid()) {
            Err(Miss(0))
        } else {
            Ok(())
        }
    }

    fn lack(&self, _miss: Miss, _asked: &Asked<'_>) -> Lack {
        Lack::Untried
    }
}
