//! Drains are what they say: a machine that is evacuated begins nothing.

use super::Check;
use crate::facts::Fact;
use crate::world::World;

pub(super) struct Drains;

impl Check for Drains {
    fn name(&self) -> &'static str {
        "a machine that is evacuated begins nothing"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::Ordered {
                instance,
                machine,
                is_evacuated: true,
            } => Err(format!("{instance} was ordered on {machine}")),
            _ => Ok(()),
        }
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let mut evacuated = world.machines.iter().filter(|it| it.maintenance);
        match evacuated.find(|it| !it.processes.is_empty()) {
            Some(it) => Err(format!(
                "machine {} still runs {:?}",
                it.number, it.processes
            )),
            None => Ok(()),
        }
    }
}
