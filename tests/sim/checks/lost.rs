//! No instance is lost: what a launcher once listed runs, or its end was told.

use std::collections::BTreeSet;

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// Instances that a STATS listed and of whose end the scheduler has not been told since.
#[derive(Default)]
pub(super) struct Lost {
    alive: BTreeSet<u32>,
}

impl Check for Lost {
    fn name(&self) -> &'static str {
        "no instance is lost"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match fact {
            Fact::Listed { instances, .. } => self.alive.extend(instances),
            Fact::Gone { instance }
            | Fact::Failed { instance, .. }
            | Fact::Refused {
                instance,
                fatal: true,
            } => {
                self.alive.remove(instance);
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let runs = |instance: u32| world.machines.iter().any(|it| it.has(instance));
        match self.alive.iter().find(|&&instance| !runs(instance)) {
            Some(instance) => Err(format!(
                "{instance} was listed, is gone, and nobody was told"
            )),
            None => Ok(()),
        }
    }
}
