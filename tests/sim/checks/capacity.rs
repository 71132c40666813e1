//! What runs on a machine never asked for more than the machine has.

use super::Check;
use crate::world::World;

pub(super) struct Capacity;

impl Check for Capacity {
    fn name(&self) -> &'static str {
        "no machine runs more than it has"
    }

    fn after_step(&mut self, world: &World) -> Result<(), String> {
        for machine in &world.machines {
            let asked = machine.asked();
            if !asked.fits_into(machine.capacity) {
                let (at, capacity) = (machine.number, machine.capacity);
                return Err(format!("machine {at} has {capacity:?} and runs {asked:?}"));
            }
        }
        Ok(())
    }
}
