//! `scheduling.require`: expressions over labels and facts that must all hold.
//!
//! ```yaml
//! scheduling:
//!   require: ["ssd exists", "zone in (a, b)", "node.cpus >= 8"]
//! ```
//!
//! Labels become masks, which the label index keeps for the next START; so do names and UUIDs of nodes. Other facts
//! change with each report and are read off each node that the masks let pass.

use std::sync::Arc;

use sched_model::{Expression, ReasonKind};

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::facts;
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;

/// Rejects nodes for which an expression does not hold. The miss is the index of the expression: the first that fails
/// and is lasting, else the first that fails.
#[derive(Debug)]
pub(super) struct Required;

impl Filter for Required {
    fn name(&self) -> &'static str {
        "labels"
    }

    fn keys(&self) -> &'static [&'static str] {
        &["require"]
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        !required(asked).is_empty()
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        let required = required(asked).iter().enumerate();
        let mut failed = required.filter(|(_, expression)| !node.holds(expression));
        let Some(first) = failed.next() else {
            return Ok(());
        };
        // A lasting reason is of more use to the reader than one that may pass.
        let is_lasting =
            |(_, expression): &(usize, &Expression)| facts::is_lasting(expression.key());
        let (at, _) = if is_lasting(&first) {
            first
        } else {
            failed.find(is_lasting).unwrap_or(first)
        };
        Err(Miss(u32::try_from(at).unwrap_or(u32::MAX)))
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        for expression in required(asked) {
            if !facts::is_fact(expression.key()) {
                to.masks.push(to.labels.mask(expression));
            } else if let Some(named) = to.view.named(expression) {
                to.masks.push(Mask::inside(Arc::new(named)));
            }
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Labels
    }

    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack {
        let expression = missed(miss, asked);
        Lack::Label(expression.map_or("", Expression::as_str).into())
    }

    fn what(&self, miss: Miss, asked: &Asked<'_>) -> String {
        missed(miss, asked).map_or_else(String::new, ToString::to_string)
    }

    fn is_lasting(&self, miss: Miss, asked: &Asked<'_>) -> bool {
        missed(miss, asked).is_some_and(|expression| facts::is_lasting(expression.key()))
    }
}

/// The expressions that must hold; none where the START has no `scheduling`.
fn required<'a>(asked: &Asked<'a>) -> &'a [Expression] {
    asked
        .scheduling()
        .map_or(&[], |scheduling| &scheduling.require)
}

/// The expression that a miss means.
fn missed<'a>(miss: Miss, asked: &Asked<'a>) -> Option<&'a Expression> {
    required(asked).get(miss.0 as usize)
}
