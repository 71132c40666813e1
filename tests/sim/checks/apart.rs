//! Members of a group that are to be apart on machines are, those that are suspended left out; and one that gave its place
//! up goes on when it is free.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{Group, PhaseName, QueryKind};

use super::Check;
use crate::facts::Fact;
use crate::machine::{Machine, Pace, Process};
use crate::names;
use crate::observer;
use crate::world::World;

/// Let off are instances whose START a scheduler took with it when it crashed: the next knows of which group they are, and
/// not what they asked of it, so it resumes them on command as any other.
#[derive(Default)]
pub(super) struct Apart {
    excused: BTreeSet<u32>,
    /// Those whose START a scheduler has had.
    known: BTreeSet<u32>,
}

impl Check for Apart {
    fn name(&self) -> &'static str {
        "members of a group are apart"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match fact {
            Fact::Taken { instance, .. } => {
                self.known.insert(*instance);
            }
            Fact::SchedulerStarted { restored } => {
                self.excused.append(&mut self.known);
                self.excused.retain(|it| !restored.contains(it));
                self.known.extend(restored);
            }
            _ => {}
        }
        Ok(())
    }

    fn after_step(&mut self, world: &World) -> Result<(), String> {
        for machine in &world.machines {
            let running = |it: u32, process: &Process| {
                process.pace == Pace::Runs && !self.excused.contains(&it)
            };
            for (group, (max, members)) in members_on(machine, world, running) {
                if members.len() > max as usize {
                    let at = machine.number;
                    return Err(format!(
                        "machine {at} runs {members:?} of {group}, of which it may run {max}"
                    ));
                }
            }
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let queue = world.ask(&QueryKind::Queue).instances;
        let nodes = world.ask(&QueryKind::Nodes).nodes;
        let highest = queue
            .iter()
            .filter(|row| row.life == PhaseName::Waiting.as_str())
            .filter_map(|row| row.priority)
            .max();
        let gave_way = |instance: u32| {
            let uuid = names::instance_uuid(instance);
            queue.iter().any(|row| row.instance_uuid == uuid)
        };
        let suspended = PhaseName::Suspended;
        for row in queue.iter().filter(|row| row.life == suspended.as_str()) {
            let instance = names::instance_of(&row.instance_uuid);
            let node = nodes.iter().find(|it| it.node_uuid == row.node_uuid);
            let machine = names::machine_of(&row.node_uuid);
            let (Some(instance), Some(node), Some(machine)) = (instance, node, machine) else {
                continue;
            };
            let is_first = highest.is_none_or(|highest| row.priority >= Some(highest));
            let has_vcpus = row.vcpus <= observer::free(node).vcpus;
            // One that is suspended by command keeps its place, and so does one that is let off.
            let in_place = members_on(&world.machines[machine], world, |it, _| !gave_way(it));
            let has_place = group_of(instance, world).is_none_or(|group| {
                let members = in_place.get(&group.id);
                members.is_none_or(|(_, members)| members.len() < group.max_in_place() as usize)
            });
            if is_first && has_vcpus && has_place && node.status == "READY" {
                return Err(format!(
                    "{row:?} is not resumed while there is room on {node:?}"
                ));
            }
        }
        Ok(())
    }

    fn excused(&self) -> u64 {
        self.excused.len() as u64
    }
}

/// Members on a machine that are so and that are to be apart, by their group, with how many there may be: of several that
/// ask for different numbers, the most that any asks for.
fn members_on(
    machine: &Machine,
    world: &World,
    are_so: impl Fn(u32, &Process) -> bool,
) -> BTreeMap<String, (u32, Vec<u32>)> {
    let mut all: BTreeMap<String, (u32, Vec<u32>)> = BTreeMap::new();
    let members = machine.processes.iter();
    for (&instance, _) in members.filter(|&(&it, process)| are_so(it, process)) {
        if let Some(group) = group_of(instance, world) {
            let (max, members) = all.entry(group.id.clone()).or_default();
            *max = (*max).max(group.max_in_place());
            members.push(instance);
        }
    }
    all
}

/// The group of an instance, if its members are to be apart on machines.
fn group_of(instance: u32, world: &World) -> Option<&Group> {
    let start = &world.starts.get(&instance)?.start;
    let group = start.scheduling.as_ref()?.group.as_ref()?;
    let is_apart = group.policy.is_anti() && !group.policy.is_soft() && group.scope == "node";
    is_apart.then_some(group)
}
