//! Nodes that an instance is not to go to: where it could not be started, which are reserved for others, or which it is
//! to leave.
//!
//! No key of a START asks for this: the workflow that places it adds them to the query (`Query::avoiding`). They are
//! few, so each node is compared with the list and no mask is made.

use super::{Filter, Miss};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;

/// A node that could not start it, which may be tried again, or that is reserved for others.
const FOR_NOW: Miss = Miss(0);

/// The node that it is to leave: no time makes it one to go to.
const LEFT: Miss = Miss(1);

/// Rejects the nodes that the query lists.
#[derive(Debug)]
pub(super) struct Avoid;

impl Filter for Avoid {
    fn name(&self) -> &'static str {
        "avoid"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query.avoids_any()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let (query, node) = (asked.query, node.uuid());
        match query.avoids(node) {
            true if query.leaves(node) => Err(LEFT),
            true => Err(FOR_NOW),
            false => Ok(()),
        }
    }

    fn lack(&self, miss: Miss, _asked: &Asked<'_>) -> Lack {
        match miss {
            LEFT => Lack::Left,
            _ => Lack::Untried,
        }
    }

    fn is_lasting(&self, miss: Miss, _asked: &Asked<'_>) -> bool {
        miss == LEFT
    }
}
