//! What is done to jobs and arrays, in the runs that have them.

use proto_frames::payload::Migrate;

use super::Plan;
use crate::jobs;
use crate::names;
use crate::world::World;

impl Plan {
    /// Does something about jobs or arrays, or nothing.
    pub(super) fn act_on_jobs(&mut self, world: &mut World) {
        match self.beside.u8(..24) {
            0..5 => self.start_job(world),
            5..7 => self.start_array(world),
            7 => self.start_array_again(world),
            8 => self.with_array(world, World::rerun_array),
            9 if self.beside.bool() => self.with_array(world, World::delete_array),
            10..12 => self.act_on_element(world),
            _ => {}
        }
    }

    /// The controller that gives the next command about arrays, if it knows these.
    fn native_beside(&mut self, world: &World) -> Option<usize> {
        let number = world.master()?;
        Some(number).filter(|&number| world.is_native(number))
    }

    /// Some of the latest instances and elements.
    fn earlier(&mut self, world: &World) -> Vec<u32> {
        let first = self.instances.saturating_sub(6).max(1);
        let mut earlier: Vec<u32> = (first..=self.instances).collect();
        earlier.retain(|it| world.starts.contains_key(it));
        if let Some((&array, sent)) = world.arrays.last_key_value() {
            let index = self.beside.u32(..sent.count);
            earlier.push(names::element(array, index));
        }
        earlier
    }

    fn start_job(&mut self, world: &mut World) {
        let earlier = self.earlier(world);
        self.instances += 1;
        let instance = self.instances;
        let start = jobs::job(&mut self.beside, instance, &earlier);
        if let Some(number) = world.master() {
            world.start(number, instance, start);
            if let Some(sent) = world.starts.get_mut(&instance) {
                sent.is_job = true;
            }
        }
    }

    fn start_array(&mut self, world: &mut World) {
        let earlier = self.earlier(world);
        if let Some(number) = self.native_beside(world) {
            let array = world.arrays.len() as u32;
            let sent = jobs::array(&mut self.beside, array, &earlier);
            world.arrays.insert(array, sent);
            world.start_array(number, array);
        }
    }

    fn start_array_again(&mut self, world: &mut World) {
        self.with_array(world, World::start_array);
    }

    fn with_array(&mut self, world: &mut World, command: fn(&mut World, usize, u32)) {
        let count = world.arrays.len() as u32;
        if let Some(number) = self.native_beside(world).filter(|_| count > 0) {
            let array = self.beside.u32(..count);
            command(world, number, array);
        }
    }

    /// Deletes, suspends, resumes or moves an element.
    fn act_on_element(&mut self, world: &mut World) {
        let machines = world.machines.iter();
        let on: Vec<(usize, u32)> = machines
            .flat_map(|it| {
                it.processes
                    .keys()
                    .map(move |&instance| (it.number, instance))
            })
            .filter(|(_, instance)| names::element_of(*instance).is_some())
            .collect();
        let found = self.beside.choice(&on).copied();
        let (Some((machine, instance)), Some(number)) = (found, self.native_beside(world)) else {
            return;
        };
        match self.beside.u8(..6) {
            0 => world.delete(number, instance, machine, self.beside.bool()),
            1 | 2 => world.suspend(number, instance),
            3 | 4 => world.resume(number, instance),
            _ => world.migrate(number, instance, Migrate::default()),
        }
    }
}
