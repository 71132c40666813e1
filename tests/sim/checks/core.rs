//! The core's own invariants: every index and sum recomputed and compared.

use sched_core::Scheduler;

use super::Check;
use crate::world::World;

/// Looks only after a step in which the core had a turn: in others nothing of it can have changed.
#[derive(Default)]
pub(super) struct Core {
    turns: u64,
}

impl Check for Core {
    fn name(&self) -> &'static str {
        "the core's parts agree"
    }

    fn after_step(&mut self, world: &World) -> Result<(), String> {
        if std::mem::replace(&mut self.turns, world.turns) == world.turns {
            return Ok(());
        }
        world.core.as_ref().map_or(Ok(()), Scheduler::invariants)
    }
}
