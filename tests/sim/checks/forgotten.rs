//! A launcher never forgets what runs on its machine.

use super::Check;
use crate::facts::Fact;
use crate::world::World;

pub(super) struct Forgotten;

impl Check for Forgotten {
    fn name(&self) -> &'static str {
        "no launcher forgets what runs"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::Forgotten {
                instance,
                machine,
                is_alive: true,
            } => Err(format!("launcher {machine} forgot {instance}, which runs")),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        for machine in &world.machines {
            for &instance in machine.processes.keys() {
                if !machine.knows(instance) {
                    let at = machine.number;
                    return Err(format!("{instance} runs on {at}, and no launcher knows it"));
                }
            }
        }
        Ok(())
    }
}
