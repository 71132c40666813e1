//! What an operator sees listed is true: no instance twice, no name twice, and none that may run missing, also where its
//! machine is cut off: then it is said to be lost, with its machine, and the machine's count agrees.

use std::collections::{BTreeMap, BTreeSet};

use super::Check;
use crate::facts::{Fact, NodeRow, Row};
use crate::world::World;

/// Knows only what launchers have listed to the scheduler that runs, and of plain instances alone: what those are that the
/// scheduler manages it says itself. Let off are instances that two machines have, as after a START that was sent again
/// while a machine could not be seen, until it is listed once, and no other machine than the one where it is listed has
/// it: of each machine it has one row at most. And those whose START was sent again, until a machine lists them.
#[derive(Default)]
pub(super) struct Listed {
    /// Plain instances that are on a machine, as its launcher said last.
    on: BTreeMap<u32, usize>,
    managed: BTreeSet<u32>,
    /// Those that two machines may have.
    twice: BTreeSet<u32>,
    /// Those with a START that was taken in and has not come to a machine or failed: the scheduler may hold it back while
    /// nodes are expected, and place it when no one looks.
    open: BTreeSet<u32>,
}

impl Check for Listed {
    fn name(&self) -> &'static str {
        "what is listed is what may run"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        match fact {
            Fact::Listed { machine, instances } => self.lists(*machine, instances),
            Fact::Gone { instance, machine } if self.on.get(instance) == Some(machine) => {
                self.on.remove(instance);
            }
            Fact::Taken {
                instance,
                is_unseen,
                ..
            } => {
                self.on.remove(instance);
                self.open.insert(*instance);
                if *is_unseen {
                    self.twice.insert(*instance);
                }
            }
            Fact::Placed { instance, .. } => {
                self.open.remove(instance);
            }
            Fact::Failed { instance, .. } | Fact::GivenUp { instance } => {
                self.on.remove(instance);
                self.open.remove(instance);
            }
            Fact::Turned { instance, .. } => {
                self.on.remove(instance);
                self.managed.insert(*instance);
            }
            Fact::SchedulerStarted { restored } => {
                self.on.clear();
                self.open.clear();
                self.managed = restored.iter().copied().collect();
            }
            Fact::Looked {
                rows,
                nodes,
                away,
                twice,
            } => {
                self.holds(rows, nodes, away)?;
                let is_listed_twice =
                    |it: u32| rows.iter().filter(|row| row.instance == it).count() > 1;
                self.twice.retain(|it| {
                    twice.contains(it) || self.open.contains(it) || is_listed_twice(*it)
                });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Listed {
    fn lists(&mut self, machine: usize, instances: &[u32]) {
        self.on
            .retain(|it, at| *at != machine || instances.contains(it));
        for &instance in instances {
            let is_plain = !self.managed.contains(&instance) && !self.twice.contains(&instance);
            let before = self.on.get(&instance).copied();
            if before.is_some_and(|at| at != machine) {
                self.on.remove(&instance);
                self.twice.insert(instance);
            } else if is_plain {
                self.on.insert(instance, machine);
            }
        }
    }

    fn holds(&self, rows: &[Row], nodes: &[NodeRow], away: &BTreeSet<usize>) -> Result<(), String> {
        let mut names = BTreeMap::new();
        let mut instances = BTreeSet::new();
        let mut places = BTreeSet::new();
        for row in rows {
            if !instances.insert(row.instance) && !self.twice.contains(&row.instance) {
                return Err(format!("{} is listed twice: {rows:?}", row.instance));
            }
            if !places.insert((row.instance, row.machine)) {
                return Err(format!("{row:?} is there twice: {rows:?}"));
            }
            let namesake = names.insert(&row.name, row.instance);
            if !row.name.is_empty() && namesake.is_some_and(|it| it != row.instance) {
                return Err(format!("two are called {}: {rows:?}", row.name));
            }
            if row.machine.is_some_and(|at| away.contains(&at)) && !row.is_lost {
                return Err(format!("its machine is away: {row:?}"));
            }
        }
        for (&instance, &machine) in &self.on {
            let is_it = |row: &&Row| row.instance == instance && row.machine == Some(machine);
            if !rows.iter().any(|row| is_it(&row)) {
                return Err(format!(
                    "{instance} may run on {machine}, and is not listed there: {rows:?}"
                ));
            }
        }
        for node in nodes.iter().filter(|node| away.contains(&node.machine)) {
            let on_it = |row: &&Row| row.machine == Some(node.machine);
            let count = rows.iter().filter(on_it).count() as i64;
            if count > node.instances {
                return Err(format!("{count} are listed on {node:?}: {rows:?}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(instance: u32, machine: usize, is_lost: bool) -> Row {
        Row {
            instance,
            machine: Some(machine),
            is_lost,
            name: format!("name-{}", instance % 2),
        }
    }

    #[test]
    fn what_is_missing_or_said_twice_or_to_run_on_a_lost_machine_is_seen() {
        let mut listed = Listed::default();
        listed.lists(0, &[1, 2]);
        let node = |instances| NodeRow {
            machine: 0,
            status: "LOST".to_owned(),
            instances,
        };
        let lost = [row(1, 0, true), row(2, 0, true)];
        let away = BTreeSet::from([0]);
        assert_eq!(listed.holds(&lost, &[node(2)], &away), Ok(()));
        assert!(listed.holds(&lost, &[node(0)], &away).is_err());
        assert!(listed.holds(&lost[..1], &[node(2)], &away).is_err());
        let running = [row(1, 0, false), row(2, 0, true)];
        assert!(listed.holds(&running, &[node(2)], &away).is_err());
        let doubled = [row(1, 0, true), row(2, 0, true), row(1, 1, false)];
        assert!(listed.holds(&doubled, &[node(2)], &away).is_err());
        listed.twice.insert(1);
        assert_eq!(listed.holds(&doubled, &[node(2)], &away), Ok(()));
        let there_twice = [row(1, 0, true), row(2, 0, true), row(1, 0, true)];
        assert!(listed.holds(&there_twice, &[node(3)], &away).is_err());
        let namesakes = [row(1, 0, true), row(2, 0, true), row(3, 1, false)];
        assert!(listed.holds(&namesakes, &[node(2)], &away).is_err());
    }
}
