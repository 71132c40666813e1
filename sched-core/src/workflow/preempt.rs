//! A START that fits nowhere takes the room of instances of strictly lower priority, if the policy allows it.
//!
//! The room is claimed for it in the same step, beside the claims of those that leave ([`Awaits::Victims`]), so that
//! no other START gets it. They are suspended where that is enough, and else stopped, to wait for room again; their launcher
//! is told once it is on disk that they go on ([`Scheduler::leave`]). Its START
//! leaves once all of them are out of the way and the choice is on disk. If one of them stays, it looks for another
//! node; the others are resumed or placed again by themselves.
//!
//! Which of the instances on one node leave is chosen in `victims`; suspending and resuming is `suspend`'s.

mod victims;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Capabilities;
use crate::api::phase::EventKind;
use crate::cluster::ledger::{ClaimState, Entry};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::cluster::view::Asked;
use crate::instance::{AfterStop, Awaits, Instance, LifecycleEvent, Placing, State, SuspendedBy};
use crate::journal::Next;
use crate::placement::choose::count_group;
use crate::queue::Purpose;
use crate::workflow::managed::COMMAND_TIME;

use self::victims::{Eviction, PreemptionPlan, Shortfall, Victim, cheapest};

/// Nodes looked at for one START, in the order of the search from where the last one was placed: with
/// [`MAX_ENTRIES_LOOKED_AT`] what bounds how long a START that fits nowhere keeps everybody else waiting, to about a
/// millisecond.
pub(crate) const MAX_NODES_LOOKED_AT: usize = 1024;

/// Instances looked at for one START, over all nodes.
pub(crate) const MAX_ENTRIES_LOOKED_AT: usize = 8192;

/// Instances looked at on one node.
pub(crate) const MAX_ENTRIES_PER_NODE: usize = 256;

/// Waiting STARTs for which a node is looked at when more of what runs there could leave: the first in order.
const PREEMPTORS_TRIED: usize = 4;

/// Waiting STARTs of higher priority to which a node is offered before anything on it is preempted for another START.
/// With more of them waiting, one that stands behind these may be passed by; each costs one look at the node.
const OFFERED_BEFORE: usize = 64;

/// Nodes that may go to others in this way before a START gives up.
const OFFERS_PER_START: usize = 4;

/// How long a START waits for those that leave for it. Each of them has [`COMMAND_TIME`], and is dealt with first.
pub(crate) const VICTIMS_TIME: Duration = Duration::from_secs(COMMAND_TIME.as_secs() + 10);

/// Instances that were stopped to leave and are looked a node for in one turn, once the queue has been served.
const SOUGHT_PER_TURN: usize = 64;

impl Scheduler {
    /// Makes room for an instance by having others suspended or stopped; whether it is being made.
    pub(crate) fn preempt(&mut self, instance: &InstanceId, query: &Query) -> bool {
        if !self.placement.policy().preempts() {
            return false;
        }
        let table = self.cluster.table(query.pool());
        let from = table.cursor().map_or(0, |slot| slot as usize + 1);
        let slots = (from..table.slot_count()).chain(0..from.min(table.slot_count()));
        let nodes = slots.filter_map(|slot| table.node(u32::try_from(slot).ok()?));
        let nodes: Vec<NodeKey> = nodes.take(MAX_NODES_LOOKED_AT).collect();
        if self.journal.is_in_trouble() {
            return false;
        }
        for _ in 0..OFFERS_PER_START {
            count_group(&mut self.cluster, query);
            let Some((key, plan)) = self.cheapest_plan(&nodes, instance, query) else {
                return false;
            };
            if !self.preempt_for_earlier(key, query) {
                return self.evict(instance, key, plan);
            }
        }
        false
    }

    /// Makes room on a node for one that waits and stands before what a query is for in the order; whether there is one.
    fn preempt_for_earlier(&mut self, key: NodeKey, query: &Query) -> bool {
        let rank = self.rank_of_query(query);
        let waiting = self.queue.iter_after(query.pool(), None);
        let earlier = waiting.take_while(|waiter| waiter.rank() < rank);
        let starts = earlier.filter(|waiter| waiter.purpose() == Purpose::Start);
        let first = starts.take(OFFERED_BEFORE).map(|it| it.instance().clone());
        let first: Vec<InstanceId> = first.collect();
        self.preempt_for_first(key, first)
    }

    /// Makes room on a node for the first of these for which that can be done; whether there is one.
    fn preempt_for_first(&mut self, key: NodeKey, waiting: Vec<InstanceId>) -> bool {
        waiting.into_iter().any(|instance| {
            let query = self.query_of(&instance);
            query.is_some_and(|query| self.preempt_on(&[key], &instance, &query))
        })
    }

    /// Makes room for an instance on one of these nodes, whatever else waits; whether it is being made.
    fn preempt_on(&mut self, nodes: &[NodeKey], instance: &InstanceId, query: &Query) -> bool {
        // Nothing is stopped for what could not start then.
        if self.journal.is_in_trouble() {
            return false;
        }
        count_group(&mut self.cluster, query);
        let Some((key, plan)) = self.cheapest_plan(nodes, instance, query) else {
            return false;
        };
        self.evict(instance, key, plan)
    }

    /// The node on which it costs least that others leave, and who that is; of several the first.
    fn cheapest_plan(
        &self,
        nodes: &[NodeKey],
        instance: &InstanceId,
        query: &Query,
    ) -> Option<(NodeKey, PreemptionPlan)> {
        let priority = self.instances.get(instance)?.priority();
        let pool = query.pool();
        let view = self.view(pool);
        let asked = view.asked(query, self.cluster.labels(pool));
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let filters: Vec<_> = self.placement.policy().concerned(&asked).collect();
        let (mut best, mut left): (Option<(NodeKey, PreemptionPlan)>, _) =
            (None, MAX_ENTRIES_LOOKED_AT);
        for &key in nodes {
            let may_go = self.cluster.nodes().node(key).may_make_room()
                && self.is_open_to(pool, key, instance)
                && {
                    let node = view.candidate(key);
                    filters
                        .iter()
                        .all(|filter| filter.admits(&node, &asked).is_ok())
                };
            if !may_go {
                continue;
            }
            let lack = self.lack(key, &asked);
            // It fits as it is, and the queue gives it the room; or its node calls itself full for another reason, which is
            // not known to change when something on it is preempted.
            if lack.is_covered() {
                continue;
            }
            let Some(plan) = cheapest(&lack, self.victims_on(key, priority, &mut left)) else {
                continue;
            };
            if best.as_ref().is_none_or(|(_, best)| plan.cost < best.cost) {
                best = Some((key, plan));
            }
            if left == 0 {
                break;
            }
        }
        best
    }

    fn lack(&self, key: NodeKey, asked: &Asked<'_>) -> Shortfall {
        let mut lack = Shortfall::new(*asked.room(), self.cluster.nodes().free(key));
        let custom = asked.custom().iter();
        lack.custom.extend(custom.map(|&(column, amount)| {
            let free = self.cluster.nodes().free_custom(key, column);
            (column, amount.saturating_sub(free))
        }));
        lack
    }

    /// The instances on a node that may have to leave for one of this priority.
    fn victims_on(&self, key: NodeKey, priority: u8, left: &mut usize) -> Vec<Victim> {
        let node = self.cluster.nodes().node(key);
        let entries = node.ledger().entries_from(0);
        let suspends = node.can(Capabilities::SUSPEND);
        let looked_at = entries
            .take(MAX_ENTRIES_PER_NODE.min(*left))
            .inspect(|_| *left -= 1);
        looked_at
            .filter(|(_, entry)| entry.is_managed() && entry.claim_state() == ClaimState::Running)
            .filter_map(|(instance, entry)| {
                let managed = self.instances.get(instance)?;
                let may =
                    managed.priority() < priority && !self.queue.is_spared(instance, self.now);
                may.then(|| self.as_victim(key, instance, entry, managed, suspends))?
            })
            .collect()
    }

    /// What one gives by leaving; `None` if it is not in a state in which it can. What somebody suspended stays
    /// where it is: placed again, it would run.
    fn as_victim(
        &self,
        key: NodeKey,
        instance: &InstanceId,
        entry: &Entry,
        managed: &Instance,
        suspends: bool,
    ) -> Option<Victim> {
        let suspends = match managed.state() {
            State::Running { node, .. } if *node == key => suspends,
            State::Suspended {
                node,
                by: SuspendedBy::Preemptor(_),
                ..
            } if *node == key => false,
            _ => return None,
        };
        Some(Victim {
            instance: instance.clone(),
            priority: managed.priority(),
            frees: self.cluster.nodes().node(key).ledger().frees(entry),
            custom: entry.custom().into(),
            age: self.now.saturating_duration_since(entry.since()),
            suspends,
            stops: managed.start().is_some(),
        })
    }

    /// Claims room for an instance on a node, and has those who are in its way make it.
    fn evict(&mut self, instance: &InstanceId, key: NodeKey, plan: PreemptionPlan) -> bool {
        if !self.may(instance, EventKind::Preempts) || !self.claim_room(instance, key) {
            return false;
        }
        self.cluster.set_placement(instance, key);
        let set: BTreeSet<InstanceId> = plan.victims.iter().map(|(it, _)| it.clone()).collect();
        for victim in &set {
            self.queue.note_victim(victim.clone(), instance.clone());
        }
        let cause = match set.first() {
            Some(only) if set.len() == 1 => Cause::VictimLeaves(only.clone()),
            _ => Cause::VictimsLeave(set.len()),
        };
        let event = LifecycleEvent::Preempts {
            node: key,
            victims: set,
            due: self.now + VICTIMS_TIME,
        };
        self.transition(instance, event, &cause);
        self.count_placement(instance);
        let cause = Cause::LeavesFor(instance.clone());
        for (victim, way) in &plan.victims {
            match way {
                Eviction::Suspend => {
                    self.counters.preempted_by_suspend += 1;
                    let by = SuspendedBy::Preemptor(instance.clone());
                    self.begin_suspending(victim, by, None, &cause);
                }
                Eviction::Stop => {
                    self.counters.preempted_by_stop += 1;
                    let (by, due) = (instance.clone(), self.now + COMMAND_TIME);
                    self.transition(victim, LifecycleEvent::Preempted { by, due }, &cause);
                }
            }
            self.after_commit(victim, Next::Preempt);
        }
        true
    }

    /// Suspends or stops a preempted instance, now that it is on disk that it is preempted: after a crash before, its end
    /// would be taken for its own. If no START waits for its room any more, it stays.
    pub(crate) fn begin_preempting(&mut self, victim: &InstanceId) {
        let (key, by) = match self.state_of(victim) {
            Some(State::Stopping {
                node,
                then: AfterStop::Wait(by),
                ..
            }) => (node, by),
            Some(State::Suspending {
                node,
                by: SuspendedBy::Preemptor(by),
                ..
            }) => (node, by),
            _ => return,
        };
        let is_awaited = matches!(
            self.state_of(&by),
            Some(State::Placing(Placing { pending_on: Awaits::Victims(set, _), .. })) if set.contains(victim)
        );
        if !is_awaited {
            self.queue.take_preemptor_of(victim);
            return self.stays(victim, key, &Cause::RoomNotNeeded);
        }
        match self.state_of(victim) {
            Some(State::Suspending { .. }) => self.send_suspend(key, victim),
            _ => self.order_stop(key, victim),
        }
    }

    /// An instance that had to leave for another has been suspended, or stopped and is on no node.
    pub(crate) fn victim_is_away(&mut self, victim: &InstanceId, by: &InstanceId) {
        if self
            .state_of(victim)
            .is_some_and(|state| !state.is_suspended())
        {
            self.wait_again(victim, &Cause::LeftFor(by.clone()));
        }
        self.note_out_of_the_way(victim);
    }

    /// Lets an instance that was stopped wait for room: in the queue, so that who stands before it is served first.
    fn wait_again(&mut self, victim: &InstanceId, cause: &Cause) {
        if self.on(victim, LifecycleEvent::Sought).is_none() {
            return;
        }
        if let Some(managed) = self.instances.get_mut(victim) {
            managed.note_ran();
            managed.forget_refusals();
        }
        match self.query_of(victim) {
            Some(query) => {
                self.wait_or_fail(victim, &query, cause);
                self.queue.seek(self.rank_of_query(&query), victim.clone());
            }
            None => self.end_managing(victim, &Cause::StartUnknown),
        }
    }

    /// Looks for nodes for those that were stopped to leave, now that the queue has been served; whether there was
    /// anything to do.
    pub(crate) fn seek_for_evicted(&mut self) -> bool {
        let mut any = false;
        for _ in 0..SOUGHT_PER_TURN {
            if self.queue.has_awake() {
                return any;
            }
            let Some(instance) = self.queue.next_seeking() else {
                return any;
            };
            let managed = self.instances.get(&instance);
            if !managed.is_some_and(|managed| managed.state().is_waiting()) {
                continue;
            }
            let Some(query) = self.query_of(&instance) else {
                continue;
            };
            any = true;
            if let Some(key) = self.choose_again(&instance, &query) {
                self.claim_managed(&instance, key, &Cause::RoomFound);
            } else {
                self.preempt(&instance, &query);
            }
        }
        any
    }

    /// An instance is in no one's way any more: who waited for that may have its room now.
    pub(crate) fn note_out_of_the_way(&mut self, victim: &InstanceId) {
        let Some(preemptor) = self.queue.take_preemptor_of(victim) else {
            return;
        };
        let Some(State::Placing(Placing {
            pending_on: Awaits::Victims(victims, _),
            ..
        })) = self.state_of(&preemptor)
        else {
            return;
        };
        if !victims.contains(victim) {
            return;
        }
        let event = LifecycleEvent::VictimAway(victim.clone());
        if victims.len() == 1 {
            self.transition(&preemptor, event, &Cause::RoomFreed);
            self.after_commit(&preemptor, Next::Give);
        } else {
            self.on(&preemptor, event);
        }
    }

    /// An instance that was to leave for another does not.
    pub(crate) fn victim_stays(&mut self, preemptor: &InstanceId, victim: &InstanceId) {
        self.queue.spare(victim.clone(), self.now);
        let is_awaited = self.queue.preemptor_of(victim) == Some(preemptor);
        if is_awaited {
            self.queue.take_preemptor_of(victim);
        }
        if let Some(State::Placing(Placing {
            node,
            pending_on: Awaits::Victims(set, _),
            ..
        })) = self.state_of(preemptor)
            && set.contains(victim)
        {
            self.make_no_room(node, preemptor, &Cause::VictimStays(victim.clone()));
        }
    }

    /// An instance that was to be stopped is not: who waits for its room, if anybody does, goes elsewhere.
    pub(crate) fn note_not_stopped(&mut self, victim: &InstanceId) {
        if let Some(preemptor) = self.queue.preemptor_of(victim).cloned() {
            self.victim_stays(&preemptor, victim);
        }
    }

    /// Those that were to leave for an instance have not in time.
    pub(crate) fn victims_are_late(&mut self, key: NodeKey, instance: &InstanceId) {
        if let Some(State::Placing(Placing {
            pending_on: Awaits::Victims(set, _),
            ..
        })) = self.state_of(instance)
        {
            for victim in set {
                self.queue.spare(victim, self.now);
            }
        }
        self.make_no_room(key, instance, &Cause::VictimsLate);
    }

    /// Gives up the room that was being made for an instance, and looks for another.
    fn make_no_room(&mut self, key: NodeKey, instance: &InstanceId, cause: &Cause) {
        self.release_and_seek(key, instance, cause);
    }

    /// More of what runs on a node could leave now: who waits may take its room.
    pub(crate) fn wake_for_preemption(&mut self, key: NodeKey) {
        if self.placement.policy().preempts() {
            self.wake(key);
        }
    }

    /// Makes room on a node for one of the first who wait; whether there is one.
    pub(crate) fn preempt_for_waiting(&mut self, key: NodeKey) -> bool {
        if !self.placement.policy().preempts() {
            return false;
        }
        for pool in Pool::ALL {
            if self.cluster.nodes().node(key).slots()[pool as usize].is_none() {
                continue;
            }
            let waiting = self.queue.iter_after(pool, None);
            let starts = waiting.filter(|waiter| waiter.purpose() == Purpose::Start);
            let first = starts.take(PREEMPTORS_TRIED);
            let first = first.map(|waiter| waiter.instance().clone()).collect();
            if self.preempt_for_first(key, first) {
                return true;
            }
        }
        false
    }
}
