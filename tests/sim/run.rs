//! One run: trouble, rest, and everything deleted; checked all the way.

use proto_frames::payload::{PlacementState, QueryKind};

use crate::checks::Checks;
use crate::names;
use crate::plan::Plan;
use crate::seeds::Sums;
use crate::world::World;

/// Runs a seed.
pub(crate) fn run(seed: u64) -> Sums {
    let mut world = World::new(seed);
    let mut plan = Plan::new(seed);
    let mut checks = Checks::all();
    let mut steps = 0;
    while let Some(at) = plan.due(world.now) {
        if world.due().is_some_and(|due| due < at) {
            world.step();
        } else {
            world.pass_until(at);
            plan.act(&mut world);
        }
        checks.after_step(&mut world);
        steps += 1;
    }
    world.calm();
    steps += rest(&mut world, &mut checks);
    checks.at_rest(&mut world);
    world.clear_away();
    steps += rest(&mut world, &mut checks);
    checks.when_empty(&mut world);
    Sums {
        hash: world.trace.hash(),
        seeds: 1,
        steps,
        starts: world.starts_taken,
        began: checks.began(),
        excused: checks.excused(),
    }
}

/// Lets everything come to rest.
fn rest(world: &mut World, checks: &mut Checks) -> u64 {
    let end = world.now + world.settings.time_to_settle();
    let mut steps = 0;
    while world.due().is_some_and(|due| due <= end) {
        world.step();
        checks.after_step(world);
        steps += 1;
    }
    world.pass_until(end);
    steps
}

impl World {
    /// From now on nothing goes wrong by itself; what is away comes back in its time.
    fn calm(&mut self) {
        self.note(format_args!("calm"));
        self.is_calm = true;
        for machine in &mut self.machines {
            if let Some(launcher) = &mut machine.launcher {
                launcher.crashes_after = None;
            }
        }
    }

    /// Has everything deleted that runs or waits, on machines that take work again.
    fn clear_away(&mut self) {
        self.note(format_args!("all is cleared away"));
        let master = self.master().expect("a controller is back by now");
        for at in 0..self.machines.len() {
            self.restore(master, at);
            let view = &self.controllers[master].view;
            let listed = view.on.get(&at).cloned().unwrap_or_default();
            for instance in listed {
                self.delete(master, instance, at, false);
            }
        }
        let rows = self.ask(&QueryKind::Instances).instances;
        let waiting = rows.iter().filter(|it| it.state == PlacementState::Waiting);
        for instance in waiting.filter_map(|it| names::instance_of(&it.instance_uuid)) {
            self.delete(master, instance, 0, false);
        }
    }
}
