//! An instance never runs on two machines at once.

use std::collections::BTreeSet;

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// Let off are instances of which a START was taken in while they ran where the scheduler could not know it: on a machine
/// that it had given up, or that had not reported since the scheduler came back. A plain START is not waited for by
/// anything that survives, so its controller has to wait for the machines before it sends it again.
#[derive(Default)]
pub(super) struct Once {
    excused: BTreeSet<u32>,
}

impl Check for Once {
    fn name(&self) -> &'static str {
        "no instance runs on two machines at once"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        match *fact {
            Fact::Taken {
                instance,
                is_unseen: true,
                ..
            } => {
                self.excused.insert(instance);
            }
            Fact::Began { instance, .. } if !self.excused.contains(&instance) => {
                let runs = world.machines.iter();
                let runs = runs.filter(|it| it.processes.contains_key(&instance));
                let runs: Vec<usize> = runs.map(|it| it.number).collect();
                if runs.len() > 1 {
                    return Err(format!("{instance} runs on {runs:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn excused(&self) -> u64 {
        self.excused.len() as u64
    }
}
