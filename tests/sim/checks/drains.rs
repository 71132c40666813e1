//! Drains are what they say: a machine that is evacuated begins nothing, one that is drained has nothing, and what is
//! said of each adds up.

use super::Check;
use crate::facts::Fact;
use crate::world::World;

pub(super) struct Drains;

impl Check for Drains {
    fn name(&self) -> &'static str {
        "evacuations and drains are what they say"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        match *fact {
            Fact::Ordered {
                instance,
                machine,
                is_evacuated: true,
            } => Err(format!("{instance} was ordered on {machine}")),
            Fact::Drained { machine } if !world.machines[machine].processes.is_empty() => {
                let runs = &world.machines[machine].processes;
                Err(format!("machine {machine} is drained and runs {runs:?}"))
            }
            Fact::DrainCounted {
                total,
                moved,
                ended,
                moving,
                left,
            } if moved + moving + left != total || ended > moved => Err(format!(
                "of {total} are {moved} gone, {ended} of them ended, {moving} on their way and {left} left"
            )),
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
