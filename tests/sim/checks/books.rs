//! At rest the scheduler and every controller know exactly what runs, and at last nothing is left anywhere.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{InstanceView, PhaseName, PlacementState, QueryKind};
use sched_core::{InstanceState, NodeRecord, Record};

use super::Check;
use crate::machine::Pace;
use crate::names;
use crate::observer;
use crate::work::Amounts;
use crate::world::World;

pub(super) struct Books;

/// What runs: machine and instance, with what it asked for.
type Runs = BTreeMap<(usize, u32), Amounts>;

impl Check for Books {
    fn name(&self) -> &'static str {
        "the books say what runs"
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        all_are_back(world)?;
        let runs = runs(world);
        controllers_know(world, &runs)?;
        scheduler_knows(world, &runs)
    }

    fn when_empty(&mut self, world: &mut World) -> Result<(), String> {
        self.at_rest(world)?;
        let runs = runs(world);
        if let Some((machine, instance)) = runs.keys().next() {
            return Err(format!("{instance} still runs on {machine}"));
        }
        nothing_is_known(world)?;
        nodes_are_free(world)
    }
}

fn all_are_back(world: &World) -> Result<(), String> {
    let controllers = world.controllers.iter();
    if controllers.clone().any(|it| it.link().is_none()) {
        return Err("a controller is not connected".to_owned());
    }
    let connected =
        |it: &crate::machine::Machine| it.launcher.as_ref().is_some_and(|it| it.link().is_some());
    match world.machines.iter().find(|it| !connected(it)) {
        Some(it) => Err(format!("launcher {} is not connected", it.number)),
        None => Ok(()),
    }
}

fn runs(world: &World) -> Runs {
    let machines = world.machines.iter();
    let runs = machines.flat_map(|machine| {
        let processes = machine.processes.iter();
        processes.map(|(&instance, process)| ((machine.number, instance), process.asked))
    });
    runs.collect()
}

fn controllers_know(world: &World, runs: &Runs) -> Result<(), String> {
    let run: BTreeSet<(usize, u32)> = runs.keys().copied().collect();
    for (number, controller) in world.controllers.iter().enumerate() {
        let view = controller.view.on.iter();
        let listed = view.flat_map(|(&machine, on)| on.iter().map(move |&it| (machine, it)));
        let listed: BTreeSet<(usize, u32)> = listed.collect();
        if !is_told(&listed, &run) {
            return Err(format!(
                "controller {number} believes in {listed:?}, not {run:?}"
            ));
        }
    }
    Ok(())
}

/// Whether a controller knows what runs. Of an instance that was started again while its node was lost, which is its
/// controller's decision, two copies may run: the controllers are told of the one that the scheduler takes for it, as of
/// any instance that a node lists and another has.
fn is_told(listed: &BTreeSet<(usize, u32)>, run: &BTreeSet<(usize, u32)>) -> bool {
    let known: BTreeSet<u32> = listed.iter().map(|(_, instance)| *instance).collect();
    listed.len() == known.len()
        && listed.is_subset(run)
        && run.iter().all(|(_, instance)| known.contains(instance))
}

fn scheduler_knows(world: &mut World, runs: &Runs) -> Result<(), String> {
    let mut rows = world.ask(&QueryKind::Instances).instances;
    let is_of_liar = |it: &InstanceView| names::liar_of(&it.node_uuid).is_some();
    if let Some(row) = rows
        .iter()
        .find(|it| is_of_liar(it) && !is_left_by_liar(it, world, runs))
    {
        return Err(format!("the scheduler takes a lie for true: {row:?}"));
    }
    rows.retain(|it| it.state != PlacementState::Waiting && !is_of_liar(it));
    if let Some(row) = rows.iter().find(|it| !is_sure(it)) {
        return Err(format!("the scheduler is not sure of {row:?}"));
    }
    if let Some(row) = rows.iter().find(|it| !is_as_it_says(it, world)) {
        return Err(format!("{row:?} is suspended, or is not"));
    }
    let listed: Runs = rows.iter().map(runs_as).collect();
    if listed != *runs {
        return Err(format!(
            "the scheduler believes in {listed:?}, not {runs:?}"
        ));
    }
    Ok(())
}

/// Whether a row is what a hostile launcher may leave: what it listed, and nobody else had any more, is the only copy
/// that there is as far as anybody can know, as with any launcher. It is lost with the liar's node, and its UUID stays
/// taken until somebody forgets that node. What an honest launcher has is never a liar's.
fn is_left_by_liar(row: &InstanceView, world: &World, runs: &Runs) -> bool {
    let liar = names::liar_of(&row.node_uuid);
    let instance = names::instance_of(&row.instance_uuid);
    let (Some(liar), Some(instance)) = (liar, instance) else {
        return false;
    };
    let is_listed = world.lies.listed.contains(&(liar, instance));
    let runs_elsewhere = runs.keys().any(|&(_, it)| it == instance);
    row.state == PlacementState::Lost && is_listed && !runs_elsewhere
}

/// Whether nothing is under way with an instance.
fn is_sure(row: &InstanceView) -> bool {
    let rests = [
        "",
        PhaseName::Running.as_str(),
        PhaseName::Suspended.as_str(),
    ];
    row.state == PlacementState::Running && rests.contains(&row.life.as_str())
}

/// Whether an instance is suspended if the scheduler says so.
fn is_as_it_says(row: &InstanceView, world: &World) -> bool {
    let ((machine, instance), _) = runs_as(row);
    let process = world.machines[machine].processes.get(&instance);
    let is_frozen = process.is_some_and(|it| it.pace == Pace::Frozen);
    // A scheduler that had no store knows after a crash what is suspended, and not who wanted it.
    let reported = row.reported.as_deref() == Some(InstanceState::ExitPaused.name());
    is_frozen == (row.life == PhaseName::Suspended.as_str())
        || is_frozen && row.life.is_empty() && reported
}

fn runs_as(row: &InstanceView) -> ((usize, u32), Amounts) {
    let machine = names::machine_of(&row.node_uuid).expect("machines are named here");
    let instance = names::instance_of(&row.instance_uuid).expect("instances are named here");
    ((machine, instance), observer::amounts(row))
}

/// Nothing is left in the scheduler's tables and on its disk.
fn nothing_is_known(world: &mut World) -> Result<(), String> {
    for what in [QueryKind::Instances, QueryKind::Queue] {
        let rows = world.ask(&what).instances;
        if let Some(row) = rows.first() {
            return Err(format!("the scheduler still has {row:?}"));
        }
    }
    // That a UUID is bound, which ends on a node are dealt with, and how instances ended is remembered.
    let is_left = |record: &Record| match record {
        Record::Node(node) => {
            *node
                != NodeRecord {
                    ends: node.ends,
                    ..NodeRecord::default()
                }
        }
        Record::Binding(_) | Record::Claims(_) | Record::Run(_) => false,
        Record::Instance(_) | Record::Array(_) | Record::ArrayProgress(_) => true,
    };
    let mut records = world.disk.records();
    match records.find(|(_, record)| is_left(record)) {
        Some(record) => Err(format!("on disk there is still {record:?}")),
        None => Ok(()),
    }
}

/// Every node offers all that its machine has.
fn nodes_are_free(world: &mut World) -> Result<(), String> {
    let rows = world.ask(&QueryKind::Nodes).nodes;
    if rows.len() != world.machines.len() {
        return Err(format!("there are nodes too many or too few: {rows:?}"));
    }
    for row in rows {
        let machine = names::machine_of(&row.node_uuid).expect("machines are named here");
        let free = observer::free(&row);
        let capacity = world.machines[machine].capacity;
        let is_empty = row.instances == 0 && row.unconfirmed == 0;
        if !is_empty || free != capacity || row.status != "READY" {
            return Err(format!("machine {machine} has {capacity:?} and is {row:?}"));
        }
    }
    Ok(())
}
