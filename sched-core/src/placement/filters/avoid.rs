//! Nodes that an instance is not to go to: where it could not be started, which are reserved for others, or which it is
//! to leave.
//!
//! No key of a START asks for this: the workflow that places it adds them to the query (`Query::avoiding`). They are
//! few, so each node is compared with the list and no mask is made.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::view::{Asked, Candidate};

/// Rejects the nodes that the query lists. The miss has no number: they are one reason.
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
