//! One run: trouble, rest, and everything deleted; checked all the way.

use std::time::Duration;

use proto_frames::payload::{InstanceView, PhaseName, PlacementState, QueryKind};

use crate::behaviour::{Behaviour, Measure};
use crate::checks::{Checks, IN_FLIGHT};
use crate::cluster::Seen;
use crate::features::Feature;
use crate::names;
use crate::plan::Plan;
use crate::seeds::Sums;
use crate::world::World;

/// What waits is tried again from time to time, also when everything else has come to rest. So a run goes on for a moment,
/// as often as this, while something is on its way to a node or has only just come to another state. What never comes to
/// rest is still under way then, and found by the checks.
const MOMENT: Duration = Duration::from_secs(5);
const MOMENTS: usize = 20;

/// Runs a seed.
pub(crate) fn run(seed: u64, measure: Measure) -> Sums {
    run_with(seed, measure, &[])
}

/// Runs a seed with more trouble than others have.
pub(crate) fn run_with(seed: u64, measure: Measure, more: &[Feature]) -> Sums {
    let mut world = World::new(seed, measure, more);
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
    steps += finish(&mut world, &mut checks);
    steps += rest(&mut world, &mut checks);
    checks.at_rest(&mut world);
    world.clear_away();
    steps += rest(&mut world, &mut checks);
    if world.machines.iter().any(|it| !it.processes.is_empty()) {
        // Of two copies of an instance controllers know of the second once the first is deleted.
        world.clear_away();
        steps += rest(&mut world, &mut checks);
    }
    if !world.arrays.is_empty() {
        // Those that have ended by now are forgotten.
        world.delete_arrays();
        steps += rest(&mut world, &mut checks);
    }
    checks.when_empty(&mut world);
    Sums {
        hash: world.trace.hash(),
        behaviour: world.behaviour.as_ref().map(Behaviour::measured),
        seeds: 1,
        steps,
        starts: world.starts_taken,
        began: checks.began(),
        excused: checks.excused(),
        seen: world
            .cluster
            .as_ref()
            .map_or_else(Seen::default, |it| it.seen),
    }
}

/// Lets jobs come to their ends, as long as none waits for long.
fn finish(world: &mut World, checks: &mut Checks) -> u64 {
    const TIME: Duration = Duration::from_secs(120);
    if !world.settings.has(Feature::Jobs) {
        return 0;
    }
    let steps = pass(world, checks, TIME);
    world.do_jobs_end = false;
    steps
}

/// Lets everything come to rest.
fn rest(world: &mut World, checks: &mut Checks) -> u64 {
    /// What is under way may lead to more: an instance that was preempted preempts others.
    const ROUNDS: usize = 3;
    let mut steps = pass(world, checks, world.settings.time_to_settle());
    for _ in 0..ROUNDS {
        let left = world.time_under_way();
        if left.is_zero() && !world.has_just_ended() {
            break;
        }
        steps += pass(world, checks, left + world.settings.time_to_settle());
    }
    for _ in 0..MOMENTS {
        if world.is_quiet() {
            break;
        }
        steps += pass(world, checks, MOMENT);
    }
    steps
}

fn pass(world: &mut World, checks: &mut Checks, time: Duration) -> u64 {
    let end = world.now + time;
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
    /// How long moves that are under way may still take: an UPDATE does not say how long its own may. And instances that
    /// others are preempted for, which are on no machine meanwhile.
    fn time_under_way(&mut self) -> Duration {
        let under_way = self.under_way().into_iter();
        let longest = under_way.filter_map(|row| row.deadline_ms).max();
        Duration::from_millis(longest.unwrap_or_default().unsigned_abs())
    }

    fn under_way(&mut self) -> Vec<InstanceView> {
        let lives = [PhaseName::Migrating, PhaseName::Placing];
        let mut rows = self.ask(&QueryKind::Instances).instances;
        rows.retain(|row| lives.iter().any(|life| row.life == life.as_str()));
        rows
    }

    /// Whether nothing is on its way to a node, and all have heard of what came to another state last.
    fn is_quiet(&mut self) -> bool {
        let turned = self.observer.turned;
        let times = self.machines.iter().flat_map(|it| it.processes.values());
        let is_limited = times.filter_map(|it| it.time.ends_at()).next().is_some();
        self.under_way().is_empty()
            && turned.is_none_or(|at| at + IN_FLIGHT <= self.now)
            && !is_limited
    }

    /// Whether something has ended that is not on record yet: a START may be tried again, and fail, at the end of a run.
    fn has_just_ended(&self) -> bool {
        let launchers = self.machines.iter().filter_map(|it| it.launcher.as_ref());
        let mut ends = launchers.map(|it| it.agent.unrecorded_ends());
        ends.any(|count| count > 0)
    }

    /// From now on nothing goes wrong by itself; what is away comes back in its time.
    fn calm(&mut self) {
        self.note(format_args!("calm"));
        self.is_calm = true;
        self.liars_leave();
        for machine in &mut self.machines {
            if let Some(launcher) = &mut machine.launcher {
                launcher.crashes_after = None;
            }
        }
    }

    /// Has all arrays deleted: they end, and those that have ended are forgotten.
    fn delete_arrays(&mut self) {
        if let Some(master) = self.master() {
            for array in self.arrays.keys().copied().collect::<Vec<_>>() {
                self.delete_array(master, array);
            }
        }
    }

    /// Has everything deleted that runs or waits, on machines that take work again.
    fn clear_away(&mut self) {
        self.note(format_args!("all is cleared away"));
        let master = self.master().expect("a controller is back by now");
        for liar in 0..self.liars.len() {
            self.forget_node(names::liar_uuid(liar));
        }
        self.delete_arrays();
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
