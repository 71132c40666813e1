//! The core's own invariants: every index and sum recomputed and compared.

use ciao_scheduler::sched::Scheduler;

use super::Check;
use crate::world::World;

pub(super) struct Core;

impl Check for Core {
    fn name(&self) -> &'static str {
        "the core's parts agree"
    }

    fn after_step(&mut self, world: &World) -> Result<(), String> {
        world.core.as_ref().map_or(Ok(()), Scheduler::invariants)
    }
}
