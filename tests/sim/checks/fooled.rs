//! What a launcher says of an instance that another has reaches no controller.

use super::Check;
use crate::facts::Fact;
use crate::world::World;

pub(super) struct Fooled;

impl Check for Fooled {
    fn name(&self) -> &'static str {
        "no controller is fooled"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match *fact {
            Fact::Fooled {
                controller,
                instance,
            } => Err(format!(
                "controller {controller} was told what a liar said of {instance}"
            )),
            _ => Ok(()),
        }
    }
}
