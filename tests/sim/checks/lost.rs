//! No instance is lost: what was once listed, or promised to wait, runs, waits, or its end was told.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{PhaseName, QueryKind};
use sched_core::{Life, Record, RecordKey};

use super::Check;
use crate::facts::Fact;
use crate::names;
use crate::world::World;

/// Without a store a scheduler that crashes takes with it what was on no machine then: those that sent it know by the
/// crash that they have to look. With one it takes with it what was on no machine and not on disk: of that no more was
/// said than what launchers said, and the end that the last of them told is told again by the next scheduler.
#[derive(Default)]
pub(super) struct Lost {
    /// Instances that were listed, or told to wait, and of whose end no one has been told since.
    alive: BTreeSet<u32>,
    /// Those that only have a node to go to, as far as was said, whatever else became of them since.
    unconfirmed: BTreeSet<u32>,
    /// How the scheduler says that those are that it manages.
    states: BTreeMap<u32, PhaseName>,
    /// Those that a crash has forgotten; the next scheduler tells their ends.
    forgotten: BTreeSet<u32>,
}

impl Check for Lost {
    fn name(&self) -> &'static str {
        "no instance is lost"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        match fact {
            Fact::Listed { instances, .. } => self.alive.extend(instances),
            Fact::Queued { instance, .. } => {
                self.forgotten.remove(instance);
                self.alive.insert(*instance);
            }
            Fact::Turned { instance, state } => self.enters(*instance, state),
            Fact::Gone { instance, .. } => self.leaves_machine(*instance),
            Fact::Told {
                instance: Some(instance),
                ..
            } if self.forgotten.remove(instance) => {
                self.alive.remove(instance);
            }
            Fact::Failed { instance, .. } => {
                self.alive.remove(instance);
            }
            Fact::SchedulerCrashed { is_durable } => self.crashes(*is_durable, world),
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let queue = world.ask(&QueryKind::Queue).instances;
        let waiting = queue.iter().map(|row| &row.instance_uuid);
        let waiting: BTreeSet<u32> = waiting.filter_map(|it| names::instance_of(it)).collect();
        let runs = |instance: u32| world.machines.iter().any(|it| it.has(instance));
        match self
            .alive
            .iter()
            .find(|&&it| !runs(it) && !waiting.contains(&it))
        {
            Some(instance) => Err(format!(
                "{instance} was there, is gone, and no one was told"
            )),
            None => Ok(()),
        }
    }
}

impl Lost {
    fn enters(&mut self, instance: u32, state: &PhaseName) {
        if *state == PhaseName::Gone {
            self.states.remove(&instance);
            self.unconfirmed.remove(&instance);
            self.alive.remove(&instance);
            return;
        }
        self.forgotten.remove(&instance);
        self.states.insert(instance, state.clone());
        // What only has a node to go to is in memory alone, and no one has been told of it; also where that node is lost
        // or it is deleted before its node has said that it has it.
        match state {
            PhaseName::Placing => {
                self.unconfirmed.insert(instance);
            }
            PhaseName::Stopping | PhaseName::Lost if self.unconfirmed.contains(&instance) => {}
            _ => {
                self.unconfirmed.remove(&instance);
                self.alive.insert(instance);
            }
        }
    }

    /// It has ended on a machine, which is its end unless it was to go on elsewhere.
    fn leaves_machine(&mut self, instance: u32) {
        let goes_on = [PhaseName::Stopping, PhaseName::Migrating, PhaseName::Lost];
        let state = self.states.get(&instance);
        if !state.is_some_and(|state| goes_on.contains(state)) {
            self.alive.remove(&instance);
        }
    }

    fn crashes(&mut self, is_durable: bool, world: &World) {
        self.states.clear();
        let has = |instance: u32| world.machines.iter().any(|it| it.has(instance));
        if !is_durable {
            return self.alive.retain(|&instance| has(instance));
        }
        let mut kept = BTreeSet::new();
        for (key, record) in world.disk.records() {
            let (RecordKey::Instance(name), Record::Instance(record)) = (key, record) else {
                continue;
            };
            let Some(instance) = names::instance_of(name) else {
                continue;
            };
            kept.insert(instance);
            // What was told to leave its machine goes on, whichever scheduler hears that it has left.
            if matches!(record.life, Life::Stopping | Life::Migrating) && !record.is_deleted {
                self.states.insert(instance, PhaseName::Stopping);
            }
        }
        let alive = self.alive.iter().copied();
        self.forgotten = alive.filter(|it| !kept.contains(it) && !has(*it)).collect();
    }
}
