//! Of several schedulers one leads at a time: nothing of another leaves it, reaches a node that knows a later one, or is
//! recorded; and what one was told is recorded the next finds.

use std::collections::BTreeMap;

use proto_frames::Term;

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// Nothing is let off.
#[derive(Default)]
pub(super) struct Leaders {
    /// The term of the scheduler that each node was connected with last.
    terms: BTreeMap<usize, Term>,
}

impl Check for Leaders {
    fn name(&self) -> &'static str {
        "one scheduler leads"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::Left { term, leader } if leader != Some(term.revision) => Err(format!(
                "a frame of {term} has left while the leader's key is of {leader:?}"
            )),
            Fact::Admitted { machine, term } => match self.terms.insert(machine, term) {
                Some(before) if before > term => {
                    Err(format!("node {machine} takes {term} after {before}"))
                }
                _ => Ok(()),
            },
            Fact::Commanded { machine, term } if self.terms.get(&machine) != Some(&term) => {
                Err(format!(
                    "node {machine} is told something by {term}, and knows {:?}",
                    self.terms.get(&machine)
                ))
            }
            Fact::Recorded { by, leads } if leads != Some(by) => Err(format!(
                "a write of {by:?} is carried out while {leads:?} leads"
            )),
            Fact::TookOver { is_whole: false } => Err(
                "what is found is not what was acknowledged, nor that with the last write".into(),
            ),
            _ => Ok(()),
        }
    }
}
