//! `scheduling.require`: expressions over labels and facts that must hold.

use proto_frames::payload::{Expression, ReasonKind};

use super::{Filter, Miss, Narrowing};
use crate::sched::facts;
use crate::sched::view::{Asked, Candidate};

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
        let failed = required(asked)
            .iter()
            .position(|expression| !node.holds(expression));
        match failed {
            Some(at) => Err(Miss(u16::try_from(at).unwrap_or(u16::MAX))),
            None => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        for expression in required(asked) {
            if !facts::is_fact(expression.key()) {
                to.masks.push(to.labels.mask(expression));
            }
        }
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::Labels
    }

    fn describe(&self, miss: Miss, asked: &Asked<'_>) -> String {
        let expression = required(asked).get(usize::from(miss.0));
        format!("without '{}'", expression.map_or("", Expression::as_str))
    }

    fn is_lasting(&self) -> bool {
        true
    }
}

fn required<'a>(asked: &Asked<'a>) -> &'a [Expression] {
    asked
        .scheduling()
        .map_or(&[], |scheduling| &scheduling.require)
}
