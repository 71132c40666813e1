//! What must always hold, recomputed from scratch and compared. Tests and simulation call it after each step.

use crate::Scheduler;
use crate::api::ids::InstanceId;
use crate::cluster::ledger::ClaimState;
use crate::cluster::node::{Pool, Presence};
use crate::instance::{Awaits, Instance, Placing, State, SuspendedBy};
use crate::queue::Purpose;
use crate::sight::Sight;

impl Scheduler {
    /// Recomputes every index and sum and compares.
    ///
    /// # Errors
    /// Names the first thing that does not hold.
    pub fn invariants(&self) -> Result<(), String> {
        self.cluster.check()?;
        self.peers.check()?;
        for (key, node) in self.cluster.nodes_from(0) {
            let uuid = node.uuid();
            if let Presence::Connected(session) = node.presence() {
                ensure(self.peers.node_of(session) == Some(key), || {
                    format!("the session of node {uuid} is not its own")
                })?;
            }
        }
        ensure(self.instances.is_consistent(), || {
            "what is due, and who is on no node, is not what the states of instances say".to_owned()
        })?;
        let illegal = self.counters.illegal_transitions;
        ensure(illegal == 0, || {
            format!(
                "{illegal} transitions of instances were refused that their lifecycle does not have"
            )
        })?;
        ensure(self.arrays.is_consistent(), || {
            "what is counted of arrays is not what their elements are".to_owned()
        })?;
        let sight = self.sight();
        sight.check_elements()?;
        sight.check_managed()?;
        sight.check_places()?;
        sight.check_starts_that_wait()?;
        sight.check_waiters()?;
        sight.check_moves()
    }
}

impl Sight<'_> {
    /// Elements that are live are managed instances, waiting as their states say, and no more of an array than may be.
    fn check_elements(&self) -> Result<(), String> {
        for array in self.arrays.latest_first(None) {
            let mut live = 0;
            for element in array.live() {
                live += 1;
                let managed = self.instances.get(&element.instance());
                let is_it = |it: &&Instance| it.element() == Some(element);
                let is_waiting = managed.filter(is_it).map(|it| it.state().is_waiting());
                ensure(is_waiting == Some(array.is_queued(element.index)), || {
                    format!("{element:?} is live, and not as its instance is")
                })?;
            }
            let most = array.running_max().unwrap_or(u32::MAX);
            ensure(live <= most, || {
                format!(
                    "{live} elements of array {} are instances, and {most} may be",
                    array.id()
                )
            })?;
        }
        Ok(())
    }

    /// What moves has its room on both nodes, and nothing is claimed but for what moves or is on its way.
    fn check_moves(&self) -> Result<(), String> {
        for (instance, managed) in self.instances.iter() {
            let State::Migrating { from, to, .. } = *managed.state() else {
                continue;
            };
            for (key, what) in [(from, "left"), (to, "reached")] {
                let has_it =
                    self.cluster.contains(key) && self.cluster.entry(key, instance).is_some();
                ensure(from != to && has_it, || {
                    format!("{instance} moves, and has no room on the node to be {what}")
                })?;
            }
        }
        for (key, node) in self.cluster.nodes_from(0) {
            let entries = node.ledger().entries_from(0);
            for (instance, _) in
                entries.filter(|(_, entry)| entry.claim_state() == ClaimState::Claimed)
            {
                let is_due = match self.instances.get(instance).map(|managed| managed.state()) {
                    Some(State::Placing(placing)) => placing.node == key,
                    Some(State::Migrating { to, .. }) => *to == key,
                    _ => false,
                };
                ensure(is_due, || {
                    format!(
                        "node {} keeps room for {instance}, which is not to come",
                        node.uuid()
                    )
                })?;
            }
        }
        Ok(())
    }

    /// What is managed is where its state says, and suspended or claimed there as it says.
    fn check_managed(&self) -> Result<(), String> {
        ensure(self.instances.is_consistent(), || {
            "what is due about instances is not what their states say".to_owned()
        })?;
        for (instance, managed) in self.instances.iter() {
            ensure(!matches!(managed.state(), State::Seeking { .. }), || {
                format!("no node is looked for any more for {instance}, and it does not wait")
            })?;
            let entry = managed.node().and_then(|key| {
                let ledger = self.cluster.ledger(key);
                Some((key, ledger.get(instance)?))
            });
            match (managed.state(), entry) {
                (State::Seeking { .. } | State::Waiting { .. } | State::Lost { .. }, _) => {}
                (state, None) => {
                    return Err(format!("{instance} is {} on no node", state.life_state()));
                }
                (state, Some((_, entry))) => {
                    let may_be = matches!(
                        state,
                        State::Suspended { .. } | State::Stopping { .. } | State::Migrating { .. }
                    );
                    ensure(entry.is_suspended() <= may_be, || {
                        format!(
                            "{instance} is {}, and its vcpus are free",
                            state.life_state()
                        )
                    })?;
                    let by = state.suspended_by();
                    let is_for_preemptor = matches!(by, Some(SuspendedBy::Preemptor(_)));
                    let is_preempted =
                        entry.is_suspended() && state.is_suspended() && is_for_preemptor;
                    let agrees =
                        is_preempted <= entry.gives_way() && entry.gives_way() <= by.is_some();
                    ensure(agrees, || {
                        format!(
                            "{instance} is {}, and its place in its group is not as by whom it is suspended",
                            state.life_state()
                        )
                    })?;
                    let is_free = entry.is_suspended() || entry.may_resume();
                    ensure(is_free >= state.is_suspended(), || {
                        format!("{instance} is suspended, and its vcpus are not free")
                    })?;
                    ensure(!(entry.is_suspended() && entry.may_resume()), || {
                        format!("{instance} may be resumed any moment, and its vcpus are free")
                    })?;
                }
            }
            if let State::Placing(placing) = managed.state() {
                self.check_placing(instance, placing)?;
            }
        }
        Ok(())
    }

    /// What is managed is in one place: where its state says that it is, the map of placements has it, and its claim is
    /// marked as its own; what is on no node is in no such place.
    fn check_places(&self) -> Result<(), String> {
        for (instance, managed) in self.instances.iter() {
            let (state, placement) = (
                managed.state().life_state(),
                self.cluster.placement(instance),
            );
            ensure(placement == managed.node(), || {
                format!("{instance} is {state}, and held by another node than its state says")
            })?;
            let entry = managed.node().and_then(|key| {
                let is_there = self.cluster.contains(key);
                is_there.then(|| self.cluster.entry(key, instance))?
            });
            ensure(
                entry.is_some_and(|it| it.is_managed()) == managed.node().is_some(),
                || {
                    format!(
                        "{instance} is {state}, and its claim is not marked as that of a managed instance"
                    )
                },
            )?;
        }
        for (key, node) in self.cluster.nodes_from(0) {
            let entries = node.ledger().entries_from(0);
            for (instance, _) in entries.filter(|(_, entry)| entry.is_managed()) {
                let is_here = match self.instances.get(instance).map(|managed| managed.state()) {
                    Some(State::Migrating { from, to, .. }) => *from == key || *to == key,
                    state => state.and_then(State::node) == Some(key),
                };
                ensure(is_here, || {
                    format!(
                        "node {} has a claim of {instance}, which is not its",
                        node.uuid()
                    )
                })?;
            }
        }
        Ok(())
    }

    /// A START that waits for the disk, for nodes, or for the rest of its batch is in the one table, and in its line.
    fn check_starts_that_wait(&self) -> Result<(), String> {
        ensure(self.pending.is_consistent(), || {
            "a line of STARTs that wait does not have just those that wait for it".to_owned()
        })?;
        ensure(self.pending.are_batches_consistent(), || {
            "batches do not have just the STARTs that wait in them".to_owned()
        })
    }

    /// What has a node has its claim there, and waits for instances that leave for it there.
    fn check_placing(&self, instance: &InstanceId, placing: &Placing) -> Result<(), String> {
        let has_it = self.cluster.placement(instance) == Some(placing.node);
        ensure(has_it, || {
            format!("{instance} is placed on a node that does not hold it")
        })?;
        if placing.pending_on.is_given() {
            return Ok(());
        }
        let entry = self.cluster.entry(placing.node, instance);
        let is_claimed = entry.is_some_and(|entry| entry.claim_state() == ClaimState::Claimed);
        ensure(is_claimed, || format!("no room is claimed for {instance}"))?;
        let Awaits::Victims(victims, _) = &placing.pending_on else {
            return Ok(());
        };
        ensure(!victims.is_empty(), || {
            format!("{instance} waits for victims and has none")
        })?;
        for victim in victims {
            let is_there = self
                .instances
                .get(victim)
                .is_some_and(|victim| victim.node() == Some(placing.node));
            ensure(
                is_there && self.queue.preemptor_of(victim) == Some(instance),
                || format!("{victim} is not a victim of {instance}"),
            )?;
        }
        Ok(())
    }

    /// Who waits in the queue is in a state that waits, and the other way round.
    fn check_waiters(&self) -> Result<(), String> {
        self.queue.invariants()?;
        let mut waiting = 0;
        for pool in Pool::ALL {
            for waiter in self.queue.iter_after(pool, None) {
                let state = self.instances.get(waiter.instance()).map(|it| it.state());
                let is_right = match waiter.purpose() {
                    Purpose::Start => state.is_some_and(State::is_waiting),
                    Purpose::Resume => state.is_some_and(State::is_suspended),
                };
                ensure(is_right && state.is_some_and(State::waits), || {
                    format!("{} is in the queue and does not wait", waiter.instance())
                })?;
                waiting += usize::from(waiter.purpose() == Purpose::Start);
            }
        }
        let managed = self.instances.iter();
        let waits = managed
            .filter(|(_, managed)| managed.state().is_waiting())
            .count();
        ensure(waits == waiting, || {
            format!("{waits} instances wait, and {waiting} of them are in the queue")
        })
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
