//! Preemption: a START that fits nowhere takes the room of instances of strictly lower priority, if the policy allows
//! it.
//!
//! The room is claimed for it in the same step, beside the claims of its victims ([`Awaits::Victims`]), so that no
//! other START gets it; the node is overcommitted by that much until they have left. The order of steps:
//!
//! 1. [`Scheduler::preempt`] looks for the node with the cheapest set of victims, and offers that node first to
//!    instances that wait and come before the preemptor in the queue.
//! 2. `evict` claims the room, and makes the transitions of preemptor and victims. Nothing is sent yet.
//! 3. Each victim's transition is on disk: [`Scheduler::begin_preempting`] sends its launcher the suspend or stop.
//! 4. Each victim is suspended or has ended: [`Scheduler::note_out_of_the_way`], [`Scheduler::victim_has_ended`]. For a stopped victim a node is
//!    looked for, as for all that has to leave its node.
//! 5. The last one is away: the preemptor's claim goes to disk, and then its START to the node.
//!
//! A START of a group whose members are to be apart on nodes may lack a place beside room: then members of the group are
//! among its victims, and so many of them leave that one place is free.
//!
//! If a victim stays or they are late, the preemptor's claim is released and it looks for another node; the others are
//! resumed or placed again by themselves. Which instances of one node are victims is chosen in `victims`; suspending
//! and resuming is done in `suspend`.

mod victims;

use std::collections::BTreeSet;
use std::time::Duration;

use self::victims::{Eviction, PreemptionPlan, Shortfall, Victim, cheapest};
use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Capabilities;
use crate::cluster::ledger::{ClaimState, Entry};
use crate::cluster::node::Pool;
use crate::cluster::query::Query;
use crate::cluster::view::{Asked, GroupNow};
use crate::effects::order::COMMAND_TIME;
use crate::instance::{AfterStop, Awaits, Instance, LifecycleEvent, Placing, State, SuspendedBy};
use crate::journal::Next;
use crate::placement::choose::count_group;
use crate::queue::{Purpose, Rank};
use crate::sight::Sight;

/// Nodes looked at for one START, in the order of the search from where the last one was placed. With
/// [`MAX_ENTRIES_LOOKED_AT`] it bounds the time that one START which fits nowhere takes to about a millisecond.
pub(crate) const MAX_NODES_LOOKED_AT: usize = 1024;

/// Instances looked at for one START, over all nodes.
pub(crate) const MAX_ENTRIES_LOOKED_AT: usize = 8192;

/// Instances looked at on one node, unless members of the START's group have to leave it: those are looked for among
/// all of [`MAX_ENTRIES_LOOKED_AT`].
pub(crate) const MAX_ENTRIES_PER_NODE: usize = 256;

/// Waiting STARTs that are tried as preemptors when a node wakes: the first in order.
const PREEMPTORS_TRIED: usize = 4;

/// Waiting STARTs that come before a preemptor in the order and are offered its node first. With more of them waiting,
/// one behind these may be passed over; each costs one look at the node.
const OFFERED_BEFORE: usize = 64;

/// Nodes that may go to such earlier STARTs before the preemptor gives up.
const OFFERS_PER_START: usize = 4;

/// How long a preemptor waits for its victims. Each of them has [`COMMAND_TIME`] of its own; the rest lets those
/// deadlines pass first.
pub(crate) const VICTIMS_TIME: Duration = Duration::from_secs(COMMAND_TIME.as_secs() + 10);

impl Scheduler {
    /// Looks for the node where preemption costs least, and begins it; whether it has begun. `false` leaves everything
    /// as it was, except that earlier instances in the queue may have been given nodes.
    ///
    /// While the disk takes no writes nothing is preempted, because the preemptor could not start. Bounded by
    /// [`MAX_NODES_LOOKED_AT`] and [`MAX_ENTRIES_LOOKED_AT`], and in repetitions by [`OFFERS_PER_START`].
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
            let Some((key, plan)) = self.sight().cheapest_plan(&nodes, instance, query) else {
                return false;
            };
            if !self.preempt_for_earlier(key, query) {
                return self.evict(instance, key, plan);
            }
        }
        false
    }

    /// Offers a node to those that wait and come before a query in the order, so that a new START does not preempt past
    /// them; whether one took it.
    fn preempt_for_earlier(&mut self, key: NodeKey, query: &Query) -> bool {
        let rank = self.sight().rank_of_query(query);
        let waiting = self.queue.iter_after(query.pool(), None);
        let earlier = waiting.take_while(|waiter| waiter.rank() < rank);
        let starts = earlier.filter(|waiter| waiter.purpose() == Purpose::Start);
        let first = starts.take(OFFERED_BEFORE).map(|it| it.instance().clone());
        let first: Vec<InstanceId> = first.collect();
        self.preempt_for_first(key, first)
    }

    /// Preempts on a node for the first of these for which that is possible; whether there is one.
    fn preempt_for_first(&mut self, key: NodeKey, waiting: Vec<InstanceId>) -> bool {
        waiting.into_iter().any(|instance| {
            let query = self.instances.query_of(&instance);
            query.is_some_and(|query| self.preempt_on(&[key], &instance, &query))
        })
    }

    /// Preempts for an instance on the cheapest of these nodes, without offering it to others first; whether that was
    /// possible.
    fn preempt_on(&mut self, nodes: &[NodeKey], instance: &InstanceId, query: &Query) -> bool {
        // Nothing is stopped for what could not start then.
        if self.journal.is_in_trouble() {
            return false;
        }
        count_group(&mut self.cluster, query);
        let Some((key, plan)) = self.sight().cheapest_plan(nodes, instance, query) else {
            return false;
        };
        self.evict(instance, key, plan)
    }

    /// Claims room for the preemptor and makes the transitions of its victims. Their launchers are sent nothing before
    /// that is on disk. `false`, with nothing changed, if the preemptor's state does not allow it or its claim is
    /// refused.
    fn evict(&mut self, instance: &InstanceId, key: NodeKey, plan: PreemptionPlan) -> bool {
        let Some(asked) = self.instances.query_of(instance) else {
            return false;
        };
        let set: BTreeSet<InstanceId> = plan.victims.iter().map(|(it, _)| it.clone()).collect();
        let cause = match set.first() {
            Some(only) if set.len() == 1 => Cause::VictimLeaves(only.clone()),
            _ => Cause::VictimsLeave(set.len()),
        };
        let event = LifecycleEvent::Preempts {
            node: key,
            victims: set,
            due: self.now + VICTIMS_TIME,
        };
        let now = self.now;
        let preempts = self.turn(instance, event, &cause, |cluster| {
            cluster.claim_as(&asked, key, now);
            cluster.set_placement(instance, key);
        });
        if !preempts {
            return false;
        }
        for (victim, _) in &plan.victims {
            self.queue.note_victim(victim.clone(), instance.clone());
        }
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

    /// Sends the suspend or stop of a victim, now that it is on disk that it is preempted: after a crash before, its
    /// end would be taken for its own. If its preemptor does not wait for it any more, it stays.
    pub(crate) fn begin_preempting(&mut self, victim: &InstanceId) {
        let (key, by) = match self.instances.state_of(victim) {
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
            self.instances.state_of(&by),
            Some(State::Placing(Placing { pending_on: Awaits::Victims(set, _), .. })) if set.contains(victim)
        );
        if !is_awaited {
            self.queue.take_preemptor_of(victim);
            self.stays(victim, key, None, &Cause::RoomNotNeeded);
            return;
        }
        match self.instances.state_of(victim) {
            Some(State::Suspending { .. }) => self.send_suspend(key, victim),
            _ => self.order_stop(key, victim),
        }
    }

    /// Preempts on a node for one of the first few that wait, in each pool the node is in; whether that was possible.
    /// Called when the node is awake and nothing that waits fits on it as it is. With a limit, only for one before it.
    pub(crate) fn preempt_for_waiting(&mut self, key: NodeKey, limit: Option<Rank>) -> bool {
        if !self.placement.policy().preempts() {
            return false;
        }
        for pool in Pool::ALL {
            if self.cluster.node(key).slots()[pool as usize].is_none() {
                continue;
            }
            let waiting = self.queue.iter_after(pool, None);
            let before = waiting.take_while(|waiter| limit.is_none_or(|it| waiter.rank() < it));
            let starts = before.filter(|waiter| waiter.purpose() == Purpose::Start);
            let first = starts.take(PREEMPTORS_TRIED);
            let first = first.map(|waiter| waiter.instance().clone()).collect();
            if self.preempt_for_first(key, first) {
                return true;
            }
        }
        false
    }
}

impl Sight<'_> {
    /// The node and the victims that cost least; of equal ones the first. Only reads. A node counts if it could take
    /// work once it has room, is not reserved for another instance, and passes all filters of the policy for this
    /// query, once members of its group that are in the way have left.
    fn cheapest_plan(
        &self,
        nodes: &[NodeKey],
        instance: &InstanceId,
        query: &Query,
    ) -> Option<(NodeKey, PreemptionPlan)> {
        let priority = self.instances.get(instance)?.priority();
        let pool = query.pool();
        let view = self.cluster.view(pool, self.now);
        let asked = view.asked(query, self.cluster.labels(pool));
        if !asked.unknown_names().is_empty() {
            return None;
        }
        let filters = self.placement.policy().concerned(&asked);
        let (mut best, mut left): (Option<(NodeKey, PreemptionPlan)>, _) =
            (None, MAX_ENTRIES_LOOKED_AT);
        for &key in nodes {
            let may_go =
                self.cluster.node(key).may_make_room() && self.is_open_to(pool, key, instance);
            if !may_go {
                continue;
            }
            let node = view.candidate(key);
            let in_the_way = filters.iter().try_fold(0, |members: u32, filter| {
                let more = filter.members_in_the_way(&node, &asked).ok()?;
                Some(members.max(more))
            });
            let Some(in_the_way) = in_the_way else {
                continue;
            };
            let lack = Shortfall {
                members: i64::from(in_the_way),
                ..self.lack(key, &asked)
            };
            // It fits as it is, and the queue gives it the room; or its node calls itself full for another reason,
            // which is not known to change when something on it is preempted.
            if lack.is_covered() {
                continue;
            }
            let group = asked.group().filter(|_| lack.members > 0);
            let victims = self.victims_on(key, priority, group, &mut left);
            let Some(plan) = cheapest(&lack, victims) else {
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

    /// What a query lacks on a node as it is now.
    fn lack(&self, key: NodeKey, asked: &Asked<'_>) -> Shortfall {
        let mut lack = Shortfall::new(*asked.room(), self.cluster.free(key));
        let custom = asked.custom().iter();
        lack.custom.extend(custom.map(|&(column, amount)| {
            let free = self.cluster.free_custom(key, column);
            (column, amount.saturating_sub(free))
        }));
        lack
    }

    /// The instances on a node that a START of this priority may preempt: managed, running, of lower priority, and not
    /// spared because they stayed recently. Counts those looked at off `left`.
    ///
    /// Where a place in a group is lacking, more of the node's entries are looked at, since only members can give it. A
    /// member gives it if it would not be resumed beside the START: its own policy keeps members as far apart.
    fn victims_on(
        &self,
        key: NodeKey,
        priority: u8,
        group: Option<&GroupNow<'_>>,
        left: &mut usize,
    ) -> Vec<Victim> {
        let is_member = |entry: &Entry, managed: &Instance| {
            let own = managed.apart_by_node();
            let (Some(asked), Some(own)) = (group.map(GroupNow::asked), own) else {
                return false;
            };
            let is_of_it = entry.group().is_some_and(|id| **id == *asked.id);
            is_of_it && !entry.gives_way() && own.max_in_place() <= asked.max_in_place()
        };
        let node = self.cluster.node(key);
        let entries = node.ledger().entries_from(0);
        let suspends = node.can(Capabilities::SUSPEND);
        let most = match group {
            Some(_) => *left,
            None => MAX_ENTRIES_PER_NODE.min(*left),
        };
        let looked_at = entries.take(most).inspect(|_| *left -= 1);
        looked_at
            .filter(|(_, entry)| entry.is_managed() && entry.claim_state() == ClaimState::Running)
            .filter_map(|(instance, entry)| {
                let managed = self.instances.get(instance)?;
                let may =
                    managed.priority() < priority && !self.queue.is_spared(instance, self.now);
                let victim =
                    may.then(|| self.as_victim(key, instance, entry, managed, suspends))??;
                Some(Victim {
                    is_member: is_member(entry, managed),
                    ..victim
                })
            })
            .collect()
    }

    /// What an instance frees as a victim; `None` if its state does not allow that. One that was suspended by command
    /// is no victim: placed again, it would run.
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
            frees: self.cluster.ledger(key).frees(entry),
            custom: entry.custom().into(),
            age: self.now.saturating_duration_since(entry.since()),
            is_member: false,
            suspends,
            stops: managed.start().is_some(),
        })
    }
}
