//! Every end is told once by a scheduler, and comes to be on record.

use std::collections::BTreeSet;

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// A scheduler that has crashed may have told what its disk did not have; so the next may tell it again.
#[derive(Default)]
pub(super) struct Ends {
    told: BTreeSet<(usize, u64)>,
}

impl Check for Ends {
    fn name(&self) -> &'static str {
        "every end is told once and comes to be on record"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::SchedulerCrashed { .. } => self.told.clear(),
            Fact::Told { machine, seq, .. } if !self.told.insert((machine, seq)) => {
                return Err(format!("end {seq} on machine {machine} was told twice"));
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        for machine in &world.machines {
            let ends = machine
                .launcher
                .as_ref()
                .map(|it| it.agent.unrecorded_ends());
            if ends != Some(0) {
                let at = machine.number;
                return Err(format!("launcher {at} still keeps {ends:?} ends"));
            }
        }
        Ok(())
    }
}
