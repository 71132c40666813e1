//! Processes that are frozen, go on, get other limits, and are killed because a lease is over.

use std::time::Instant;

use ciao_scheduler::launcher::agent::{Demand, Input, InstanceRecord, Stage};

use super::{Machine, Pace, Process, named};
use crate::agenda::Cause;
use crate::names;
use crate::work::{Amounts, GPU};
use crate::world::World;

/// One in so many changes of a process does not work.
const FAILURES: u8 = 16;

impl Machine {
    /// A process is what its launcher says it is to have: memory and vcpus it was given before ([`World::set_limits`]), the
    /// rest is in the launcher's books alone.
    pub(super) fn follow(&mut self, record: &InstanceRecord) {
        if let Stage::Exited(_) | Stage::Gone(..) = record.stage {
            return;
        }
        if let Some(process) = self.processes.get_mut(&named(&record.instance)) {
            let demand = amounts(&record.demand);
            process.asked.disk = demand.disk;
            process.asked.gpus = demand.gpus;
            process.clamp();
        }
    }

    /// The lease that a new launcher finds.
    pub(crate) fn lease_left(&self, now: Instant) -> Option<Instant> {
        self.lease_until.filter(|until| *until > now)
    }
}

impl Process {
    fn clamp(&mut self) {
        self.used_mem = self.used_mem.min(self.asked.mem);
        self.used_disk = self.used_disk.min(self.asked.disk);
    }
}

/// What a launcher holds for an instance.
pub(super) fn amounts(demand: &Demand) -> Amounts {
    Amounts {
        mem: demand.mem_mb,
        vcpus: demand.vcpus,
        disk: demand.disk_mb,
        gpus: demand.resources.get(GPU).copied().unwrap_or(0),
    }
}

impl World {
    /// A process is frozen, or is not; sometimes it is although that took too long.
    pub(super) fn freeze(&mut self, at: usize, instance: String) {
        let (fails, is_frozen) = (self.fails(), self.chance.bool());
        let process = self.machines[at].processes.get_mut(&named(&instance));
        if let Some(process) = process
            && process.pace == Pace::Runs
            && (!fails || is_frozen)
        {
            process.pace = Pace::Frozen;
            process.time.pause(self.now);
        }
        let result = answer(fails);
        self.tell_launcher(at, Input::Frozen { instance, result });
    }

    /// A process goes on, or does not.
    pub(super) fn thaw(&mut self, at: usize, instance: String) {
        let fails = self.fails();
        let process = self.machines[at].processes.get_mut(&named(&instance));
        if let Some(process) = process
            && process.pace == Pace::Frozen
            && !fails
        {
            process.pace = Pace::Runs;
            process.time.go_on(self.now);
        }
        self.watch_limit(at, named(&instance));
        let result = answer(fails);
        self.tell_launcher(at, Input::Thawed { instance, result });
    }

    /// A process gets other limits, or keeps those it had.
    pub(super) fn set_limits(&mut self, at: usize, instance: String, mem_mb: i64, vcpus: i64) {
        let fails = self.fails();
        let machine = &mut self.machines[at];
        let before = machine.records.get(&instance).map(|it| amounts(&it.demand));
        let process = machine.processes.get_mut(&named(&instance));
        if let (Some(process), Some(before)) = (process, before) {
            let (mem, vcpus) = match fails {
                true => (before.mem, before.vcpus),
                false => (mem_mb, vcpus),
            };
            process.asked = Amounts {
                mem,
                vcpus,
                ..process.asked
            };
            process.clamp();
        }
        let result = answer(fails);
        self.tell_launcher(at, Input::LimitsSet { instance, result });
    }

    fn fails(&mut self) -> bool {
        self.chance.u8(..FAILURES) == 0
    }

    /// The lease of a machine may be over: then what runs under it is killed, whatever has become of the launcher.
    pub(crate) fn lease_ends(&mut self, at: usize) {
        let machine = &mut self.machines[at];
        if machine.lease_until.is_none_or(|until| until > self.now) {
            return;
        }
        machine.lease_until = None;
        let leased = machine.processes.iter().filter(|(_, it)| it.leased);
        let leased: Vec<u32> = leased.map(|(instance, _)| *instance).collect();
        for instance in leased {
            self.note(format_args!(
                "the lease of {instance} on machine {at} is over"
            ));
            self.signal(at, &names::instance_uuid(instance), Cause::Killed);
        }
    }
}

fn answer(fails: bool) -> Result<(), String> {
    if fails {
        return Err("it does not work".to_owned());
    }
    Ok(())
}
