//! `start.vm_type`: only nodes whose launchers run workloads of that type.
//!
//! Kept the other way round, as the label `node.lacks_vm_type` of nodes that do not run a type: most nodes run all
//! types that are asked for, so that the filter mostly concerns no START at all.

use std::sync::Arc;

use sched_model::ReasonKind;

use super::{Filter, Miss, Narrowing};
use crate::api::no_fit::Lack;
use crate::cluster::candidate::Candidate;
use crate::cluster::facts::LACKS_VM_TYPE;
use crate::cluster::labels::Mask;
use crate::cluster::view::Asked;

/// Rejects nodes that do not run the START's type. Lasting.
#[derive(Debug)]
pub(super) struct RunsVmType;

impl Filter for RunsVmType {
    fn name(&self) -> &'static str {
        "vm_type"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.is_lacking
    }

    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss> {
        match node.label(LACKS_VM_TYPE).any(|lacks| lacks == word(asked)) {
            true => Err(Miss(0)),
            false => Ok(()),
        }
    }

    fn narrow(&self, asked: &Asked<'_>, to: &mut Narrowing<'_>) {
        let value = std::iter::once(word(asked));
        let lacking = to.labels.with_values(LACKS_VM_TYPE, value);
        to.masks.push(Mask::outside(Arc::new(lacking)));
    }

    fn reason(&self) -> ReasonKind {
        ReasonKind::VmType
    }

    fn lack(&self, _miss: Miss, asked: &Asked<'_>) -> Lack {
        Lack::VmType(word(asked))
    }

    fn what(&self, _miss: Miss, asked: &Asked<'_>) -> String {
        word(asked).to_owned()
    }

    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        true
    }
}

/// The START's type as labels and answers name it; empty where it names none, which no node lacks.
fn word(asked: &Asked<'_>) -> &'static str {
    asked
        .query
        .request()
        .vm_type
        .map_or("", |vm_type| vm_type.name())
}
