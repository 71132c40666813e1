//! The time of trouble: what is done to the cluster, drawn from the seed by weights.

mod jobs;

use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent::Workloads;
use fastrand::Rng;
use proto_frames::payload::{Evacuate, EvacuateMode, Migrate, Span};

use crate::disk::Trouble;
use crate::features::Feature;
use crate::names;
use crate::network::{Peer, Silence};
use crate::work;
use crate::world::World;

/// What is done in one run, at most.
const OPERATIONS_IN_RUN: u32 = 150;

/// Longest time between two operations, in ms.
const PAUSE_MS: u64 = 500;

/// Longest time that moves and drains are given, in ms.
const DEADLINE_MS: u64 = 40_000;

/// Longest time that what a peer says is held up, in ms.
const HELD_UP_MS: u64 = 10_000;

/// Longest time that the scheduler's disk takes no writes, in ms.
const FULL_MS: u64 = 20_000;

/// Longest step that the clock jumps, in ms.
const JUMP_MS: u64 = 40_000;

/// An operation: its name, how often it is done beside the others, and what it is.
type Operation = (&'static str, u32, fn(&mut Plan, &mut World));

/// Everything that is done.
const OPERATIONS: &[Operation] = &[
    ("start", 30, |plan, world| plan.start(world, work::plain)),
    ("start with scheduling", 15, |plan, world| {
        plan.start(world, work::with_scheduling);
    }),
    ("start what may wait", 25, |plan, world| {
        plan.start(world, work::waiting);
    }),
    ("start a batch", 2, Plan::start_batch),
    ("start again", 8, Plan::start_again),
    ("start a batch of what there is", 4, |plan, world| {
        if world.settings.has(Feature::BatchesOfTheLiving) {
            plan.start_batch_again(world);
        }
    }),
    ("start again across a cut", 6, |plan, world| {
        if world.settings.has(Feature::StartsAcrossACut) {
            plan.start_across_a_cut(world);
        }
    }),
    ("hold up", 5, |plan, world| {
        let time = Duration::from_millis(plan.chance.u64(..HELD_UP_MS));
        if world.settings.has(Feature::HeldUp)
            && let Some(link) = plan.any(&world.network.open_links())
        {
            world.hold_up(link, time);
        }
    }),
    ("lie", 20, |plan, world| {
        if !world.liars.is_empty() {
            let number = plan.chance.usize(..world.liars.len());
            world.liar_speaks(number, &mut plan.chance);
        }
    }),
    ("delete", 12, Plan::delete),
    ("evacuate", 2, Plan::evacuate),
    ("restore", 6, Plan::restore),
    ("suspend", 6, |plan, world| {
        plan.command(world, World::suspend);
    }),
    ("resume", 6, |plan, world| {
        plan.command(world, World::resume);
    }),
    ("migrate", 8, Plan::migrate),
    ("update", 8, Plan::update),
    ("drain", 4, |plan, world| {
        plan.evacuate_as(world, EvacuateMode::Relocate);
    }),
    ("cordon", 2, |plan, world| {
        plan.evacuate_as(world, EvacuateMode::Cordon);
    }),
    ("abort a drain", 2, |plan, world| {
        plan.evacuate_as(world, EvacuateMode::Abort);
    }),
    ("look at a drain", 1, |plan, world| {
        plan.evacuate_as(world, EvacuateMode::Check);
    }),
    ("uncordon", 5, |plan, world| {
        let machine = plan.machine(world);
        if let Some(number) = plan.native(world) {
            world.uncordon(number, machine);
        }
    }),
    ("use otherwise", 15, |plan, world| {
        let at = plan.machine(world);
        world.use_otherwise(at);
    }),
    ("break a connection", 8, |plan, world| {
        if let Some(link) = plan.any(&world.network.open_links()) {
            world.break_link(link);
        }
    }),
    ("do not read", 5, |plan, world| {
        if let Some(link) = plan.any(&world.network.open_links()) {
            world.stall(link);
        }
    }),
    ("is not read from", 5, |plan, world| {
        if let Some(link) = plan.any(&world.network.open_links()) {
            let breaks = plan.chance.bool();
            world.hold(link, breaks);
        }
    }),
    ("crash a launcher", 3, |plan, world| {
        let at = plan.machine(world);
        world.launcher_crashes(at);
    }),
    ("crash a launcher amidst what it does", 3, |plan, world| {
        let at = plan.machine(world);
        world.launcher_crashes_soon(at);
    }),
    ("stop a launcher", 2, |plan, world| {
        let workloads = [Workloads::Leave, Workloads::Stop][plan.chance.usize(..2)];
        let at = plan.machine(world);
        world.launcher_is_stopped(at, workloads);
    }),
    ("reboot a machine", 1, |plan, world| {
        let at = plan.machine(world);
        world.reboot(at);
    }),
    ("crash the scheduler", 1, |_, world| {
        world.scheduler_crashes()
    }),
    ("crash a controller", 2, |plan, world| {
        let number = plan.chance.usize(..world.controllers.len());
        world.controller_crashes(number);
    }),
    ("connect a controller twice", 2, |plan, world| {
        let number = plan.chance.usize(..world.controllers.len());
        world.controller_connects_twice(number);
    }),
    ("fill the disk", 3, |plan, world| {
        let time = Duration::from_millis(plan.chance.u64(..FULL_MS));
        let trouble = Trouble {
            until: world.now + time,
            is_said: plan.chance.bool(),
            was_said: false,
        };
        if world.settings.has(Feature::FullDisk) {
            world.disk_fails(trouble);
        }
    }),
    ("jump", 2, |plan, world| {
        let jump = Duration::from_millis(plan.chance.u64(0..JUMP_MS));
        world.note(format_args!("the clock jumps by {jump:?}"));
        world.pass_until(world.now + jump);
    }),
];

/// What is still to be done.
#[derive(Debug)]
pub(crate) struct Plan {
    chance: Rng,
    /// For what some runs have beside, so that it changes nothing in the others.
    beside: Rng,
    left: u32,
    due: Option<Instant>,
    /// Instances named so far.
    instances: u32,
    batches: u32,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        // Its own, so that what is done to a cluster does not depend on what the cluster draws.
        let mut chance = Rng::with_seed(!seed);
        let left = chance.u32(OPERATIONS_IN_RUN / 3..=OPERATIONS_IN_RUN);
        Self {
            chance,
            beside: Rng::with_seed(seed.rotate_left(32)),
            left,
            due: None,
            instances: 0,
            batches: 0,
        }
    }

    /// When something is done next; `None` once all is.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Instant> {
        if self.left == 0 {
            return None;
        }
        // Most things come thick and fast, some after a while.
        let longest = if self.chance_of_pause() {
            8 * PAUSE_MS
        } else {
            PAUSE_MS
        };
        let chance = &mut self.chance;
        Some(
            *self
                .due
                .get_or_insert_with(|| now + Duration::from_millis(chance.u64(..longest))),
        )
    }

    fn chance_of_pause(&mut self) -> bool {
        self.due.is_none() && self.chance.u8(..8) == 0
    }

    /// Does the next thing.
    pub(crate) fn act(&mut self, world: &mut World) {
        self.due = None;
        self.left -= 1;
        self.act_beside(world);
        let all: u32 = OPERATIONS.iter().map(|(_, weight, _)| weight).sum();
        let mut drawn = self.chance.u32(..all);
        for (name, weight, act) in OPERATIONS {
            if drawn < *weight {
                world.note(format_args!("plan: {name}"));
                return act(self, world);
            }
            drawn -= weight;
        }
    }

    /// Does what only some runs have.
    fn act_beside(&mut self, world: &mut World) {
        let drawn = self.beside.u8(..);
        if world.settings.has(Feature::SilentLinks) && drawn < 16 {
            let links = world.network.open_links();
            if let Some(link) = self.beside.choice(&links) {
                let silence = Silence::ALL[self.beside.usize(..Silence::ALL.len())];
                world.fall_silent(*link, silence);
            }
        }
        if world.settings.has(Feature::Looks) {
            match drawn % 32 {
                0 => world.forget_lost(self.beside.u64(..)),
                1..8 => world.look_at_lists(),
                _ => {}
            }
        }
        if world.settings.has(Feature::Schedulers) && drawn < 12 {
            world.cluster_fails(&mut self.beside);
        }
        if world.settings.has(Feature::Jobs) {
            self.act_on_jobs(world);
        }
    }

    fn any<T: Copy>(&mut self, things: &[T]) -> Option<T> {
        (!things.is_empty()).then(|| things[self.chance.usize(..things.len())])
    }

    fn machine(&mut self, world: &World) -> usize {
        self.chance.usize(..world.machines.len())
    }

    /// The controller that gives the next command: the master as a rule.
    fn controller(&mut self, world: &World) -> usize {
        let any = self.chance.usize(..world.controllers.len());
        let is_any = self.chance.u8(..16) == 0;
        world.master().filter(|_| !is_any).unwrap_or(any)
    }

    /// The controller that gives the next command, if it knows more commands than original ones.
    fn native(&mut self, world: &World) -> Option<usize> {
        let number = self.controller(world);
        Some(number).filter(|&number| world.is_native(number))
    }

    /// One of the latest instances: most of the earlier ones are history.
    fn instance(&mut self) -> u32 {
        let back = self.chance.u32(..12).min(self.instances);
        self.instances - back
    }

    fn start(
        &mut self,
        world: &mut World,
        draw: fn(&mut Rng, u32) -> proto_frames::payload::Start,
    ) {
        self.instances += 1;
        let instance = self.instances;
        let mut start = draw(&mut self.chance, instance);
        if world.settings.has(Feature::Members) && start.scheduling.is_some() {
            start = work::of_group(start, instance);
        }
        if world.settings.has(Feature::Looks) && instance.is_multiple_of(2) {
            start = work::called(start, instance);
        }
        let number = self.controller(world);
        world.start(number, instance, start);
    }

    /// Sends a batch, of which one START may be missing.
    fn start_batch(&mut self, world: &mut World) {
        self.batches += 1;
        let count = self.chance.u32(2..5);
        let missing = u32::from(self.chance.u8(..4) == 0);
        let number = self.controller(world);
        for _ in missing..count {
            self.instances += 1;
            let instance = self.instances;
            let start = work::of_batch(&mut self.chance, instance, self.batches, count);
            world.start(number, instance, start);
        }
    }

    /// Sends a START once more, whatever has become of it.
    fn start_again(&mut self, world: &mut World) {
        let (instance, number) = (self.instance(), self.controller(world));
        let restart = self.chance.bool();
        world.start_again(number, instance, restart);
    }

    /// Sends STARTs that were sent before once more, as a batch, with one that is new or without.
    fn start_batch_again(&mut self, world: &mut World) {
        let drawn = (0..self.chance.u32(1..4)).map(|_| self.instance());
        let mut instances: Vec<u32> = drawn.collect();
        // Where it matters most that nothing is started twice: on machines that the scheduler does not hear.
        let machines = world.machines.iter();
        let unheard = machines.filter(|it| {
            let session = world.network.session_of(Peer::Machine(it.number));
            session.is_none() && it.launcher.is_none()
        });
        let unheard: Vec<u32> = unheard
            .flat_map(|it| it.processes.keys().copied())
            .collect();
        instances.extend(self.any(&unheard));
        instances.sort_unstable();
        instances.dedup();
        instances.retain(|it| world.starts.contains_key(it));
        let with_new = u32::from(self.chance.bool());
        self.batches += 1;
        let (id, count) = (self.batches, instances.len() as u32 + with_new);
        let number = self.controller(world);
        for instance in instances {
            world.start_again_in_batch(number, instance, id, count);
        }
        for _ in 0..with_new {
            self.instances += 1;
            let instance = self.instances;
            let start = work::of_batch(&mut self.chance, instance, id, count);
            world.start(number, instance, start);
        }
    }

    /// Sends STARTs of what runs on a machine once more, while the machine hears nothing, is cut off, or is told to end it.
    fn start_across_a_cut(&mut self, world: &mut World) {
        let runs: Vec<(usize, u32)> = world
            .machines
            .iter()
            .flat_map(|it| it.processes.keys().map(|&instance| (it.number, instance)))
            .collect();
        let Some((machine, instance)) = self.any(&runs) else {
            return;
        };
        let number = self.controller(world);
        let link = world.network.link_of(Peer::Machine(machine));
        if let Some(link) = link.filter(|_| self.chance.bool()) {
            world.stall(link);
        }
        for _ in 0..self.chance.u32(1..4) {
            let restart = self.chance.bool();
            world.start_again(number, instance, restart);
        }
        match self.chance.u8(..5) {
            0 => world.delete(number, instance, machine, self.chance.bool()),
            1 if world.is_native(number) => world.suspend(number, instance),
            2 => {
                if let Some(link) = link {
                    world.break_link(link);
                }
            }
            3 => world.launcher_crashes(machine),
            _ => {}
        }
    }

    /// Deletes an instance where the controller saw it last, else where it is not.
    fn delete(&mut self, world: &mut World) {
        let (instance, number) = (self.instance(), self.controller(world));
        let seen = world.controllers[number].view.machines_of(instance).next();
        let machine = seen.unwrap_or_else(|| self.machine(world));
        let stop = self.chance.u8(..3) == 0;
        world.delete(number, instance, machine, stop);
    }

    fn evacuate(&mut self, world: &mut World) {
        let (number, machine) = (self.controller(world), self.machine(world));
        world.evacuate(number, machine);
    }

    /// Restores a machine that is evacuated, else one that is not.
    fn restore(&mut self, world: &mut World) {
        let number = self.controller(world);
        let mut machines = world.machines.iter();
        let evacuated = machines.find(|it| it.maintenance).map(|it| it.number);
        let machine = evacuated.unwrap_or_else(|| self.machine(world));
        world.restore(number, machine);
    }

    fn command(&mut self, world: &mut World, command: fn(&mut World, usize, u32)) {
        let instance = self.instance();
        if let Some(number) = self.native(world) {
            command(world, number, instance);
        }
    }

    fn migrate(&mut self, world: &mut World) {
        let instance = self.instance();
        let machine = self.chance.bool().then(|| self.machine(world));
        let target = machine.map(|it| names::machine_uuid(it).to_string());
        let migrate = Migrate {
            target_node_uuid: target.unwrap_or_default(),
            deadline: Some(Span::from_ms(self.chance.u64(1_000..DEADLINE_MS))),
            ..Migrate::default()
        };
        if let Some(number) = self.native(world) {
            world.migrate(number, instance, migrate);
        }
    }

    fn update(&mut self, world: &mut World) {
        let instance = self.instance();
        let update = work::change(&mut self.chance);
        if let Some(number) = self.native(world)
            && !update.changes_nothing()
        {
            world.update(number, instance, update);
        }
    }

    fn evacuate_as(&mut self, world: &mut World, mode: EvacuateMode) {
        let machine = self.machine(world);
        let evacuate = Evacuate {
            mode,
            deadline: Some(Span::from_ms(self.chance.u64(1_000..DEADLINE_MS))),
            parallel: self.chance.bool().then(|| self.chance.u32(1..4)),
            ..Evacuate::default()
        };
        if let Some(number) = self.native(world) {
            world.evacuate_as(number, machine, evacuate);
        }
    }
}
