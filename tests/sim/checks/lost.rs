//! No instance is lost: what a launcher once listed runs, or its end was told.

use std::collections::BTreeSet;

use super::Check;
use crate::facts::Fact;
use crate::world::World;

/// Let off are instances whose end a launcher told on a connection that was dead already and that it held for alive for
/// one more report interval: nothing in the protocol is acknowledged, so a launcher takes that for being heard.
#[derive(Default)]
pub(super) struct Lost {
    /// Instances that a STATS listed and of whose end the scheduler has not been told since.
    alive: BTreeSet<u32>,
    excused: BTreeSet<u32>,
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
            Fact::Unsaid { instance } => {
                self.excused.insert(*instance);
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let runs = |instance: u32| world.machines.iter().any(|it| it.has(instance));
        let mut alive = self.alive.difference(&self.excused);
        match alive.find(|&&instance| !runs(instance)) {
            Some(instance) => Err(format!(
                "{instance} was listed, is gone, and nobody was told"
            )),
            None => Ok(()),
        }
    }

    fn excused(&self) -> u64 {
        self.excused.len() as u64
    }
}
