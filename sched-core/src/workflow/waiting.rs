//! The waiting queue at work: which START may wait, what is reported of it, and which is served when a node has room
//! again.
//!
//! No code walks through the queue. A node is marked awake when what it offers has grown, and at the end of the input
//! the queue is asked which of those that wait may use it. What waits and in which order is the `queue`'s; here is what
//! becomes of it.

use std::time::{Duration, Instant};

use sched_model::StartFailureReason;

use crate::Scheduler;
use crate::api::cause::Cause;
use crate::api::declined::Refusal;
use crate::api::ids::{InstanceId, NodeKey};
use crate::api::input::Backlog;
use crate::api::start::StartRequest;
use crate::cluster::node::{NodeStatus, Pool};
use crate::cluster::query::Query;
use crate::effects::admission::NewStart;
use crate::effects::wait::RESUME_ELSEWHERE_AFTER;
use crate::instance::{LifecycleEvent, State, SuspendedBy};
use crate::placement::explain::Explanation;
use crate::query::dependencies::cause_of;
use crate::queue::{Begin, Found, Full, Rank, Room, Shape};
use crate::sight::Sight;
use crate::timers::Timer;

/// Awake nodes dealt with in one round: bounds how long the return of many nodes delays everything else. What is left
/// is dealt with in a tick that is due at once.
const SERVED_PER_ROUND: usize = 64;

/// Waiting instances tried on one node that the queue thinks fit and that do not, for reasons it does not know
/// (filters, reservations), before the next node is served.
const MAX_TRIED_PER_NODE: usize = 4;

/// Instances that come after others looked at in one round; what is left is due at once.
const DEPENDENTS_PER_ROUND: usize = 256;

/// How long nodes that refused an instance which ran before are not asked again while it waits, and at most any other that
/// may wait. Such an instance is not given up, so without a pause it would go to the same launchers as fast as they refuse
/// it.
const REFUSED_TIME: Duration = Duration::from_secs(60);

/// How long full nodes are at least not asked again for an instance that has not run. Beyond that it is as long as it has
/// waited so far: room that its launcher did not have yet is there after moments, if at all.
const FULL_TIME: Duration = Duration::from_secs(1);

impl Scheduler {
    /// A START fits nowhere, or comes after others that have not ended: it waits for these, or fails because that will not
    /// come. In the recovery window, one that may not wait otherwise waits for nodes to come back; else
    /// room is made for it by preemption, or it is queued, or it fails.
    pub(crate) fn without_room(&mut self, start: NewStart) {
        if self.sight().comes_after_others(start.request()) {
            let left = self.sight().left_of_start(start.request());
            // It is managed in either case, so that how it ended is remembered for those that come after it.
            let Some(instance) = self.keep(start) else {
                return;
            };
            let Some(managed) = self.instances.get_mut(&instance) else {
                return;
            };
            managed.set_waits_until(None);
            let place = (managed.order(), managed.is_operators());
            let left = match left {
                Ok(_) if self.journal.is_leaving() && !self.config.durable => {
                    let why = Explanation::of(Refusal::Leaving.into());
                    let reason = StartFailureReason::LaunchFailure;
                    return self.fail_managed(&instance, reason, None, why);
                }
                Ok(left) => left,
                Err(cause) => {
                    let reason = StartFailureReason::DependencyFailed;
                    return self.fail_managed(&instance, reason, None, Explanation::of(cause));
                }
            };
            let cause = cause_of(&left);
            self.transition(&instance, LifecycleEvent::Queued, &cause);
            return match self.queue.depend(self.now, &instance, place, left) {
                Ok(()) => self.notify_queued_once_on_disk(&instance),
                Err(Full) => {
                    let count = self.queue.dependents();
                    let why = Explanation::of(Cause::AndQueueFull(Box::new(cause), count));
                    self.fail_managed(&instance, StartFailureReason::FullCloud, None, why);
                }
            };
        }
        let may_wait = start
            .request()
            .scheduling
            .as_deref()
            .is_some_and(|asked| asked.queue.is_some_and(|span| span.ms() > 0));
        if self.recovery.is_open() && !may_wait {
            return self.hold(start.into_start(), None);
        }
        if !self.placement.manages(start.request()) {
            return self.fail_without_node(start.as_start());
        }
        let Some(instance) = self.keep(start) else {
            return;
        };
        let Some(query) = self.instances.query_of(&instance) else {
            return;
        };
        if !self.preempt(&instance, &query) {
            self.wait_or_fail(&instance, &query, &Cause::Plain);
        }
    }

    /// Queues an instance if it may wait, else fails it: one that has run waits without a deadline, any other while its
    /// START allows it and a node could ever fit.
    pub(crate) fn wait_or_fail(&mut self, instance: &InstanceId, query: &Query, cause: &Cause) {
        let why = self.why_not(query);
        let Some(managed) = self.instances.get(instance) else {
            return;
        };
        let may_wait = managed.may_wait(self.now);
        if self.journal.is_leaving() && !self.config.durable {
            let why = Explanation::of(Refusal::Leaving.into());
            return self.fail_managed(instance, StartFailureReason::LaunchFailure, None, why);
        }
        // What ran once is not given up because of how the cluster happens to be.
        let is_hopeless = why.never && !managed.has_run() && !self.recovery.is_open();
        if !may_wait || is_hopeless {
            if let Some(last) = managed.tried().last() {
                // Nowhere else is left to be tried: what the last node said is why.
                let (reason, node) = (last.reason.clone(), last.node);
                return self.fail_managed(instance, reason, Some(node), why);
            }
            let reason = self.cluster.no_room(query.request());
            return self.fail_managed(instance, reason, None, why);
        }
        let cause = if *cause == Cause::Plain {
            &why.cause
        } else {
            cause
        };
        let (is_refused, is_full) = (!managed.tried().is_empty(), managed.tried().has_full());
        let (has_run, waited) = (managed.has_run(), self.now - managed.arrived());
        self.transition(instance, LifecycleEvent::Queued, cause);
        if is_full && !has_run {
            let at = self.now + waited.clamp(FULL_TIME, REFUSED_TIME);
            self.timers.set(Timer::AskAgain(instance.clone()), at);
        } else if is_refused && has_run {
            self.timers.set(
                Timer::LookAgain(instance.clone()),
                self.now + RESUME_ELSEWHERE_AFTER,
            );
            if matches!(cause, Cause::NotStarted(..)) {
                let at = self.now + REFUSED_TIME;
                self.timers.set(Timer::AskAgain(instance.clone()), at);
            }
        }
        let queued = match cause {
            // It waited until now, and must not fail because others wait.
            Cause::DemandChanged => {
                self.enqueue_unlimited(instance, query);
                Ok(())
            }
            _ => self.enqueue(instance, query),
        };
        match queued {
            Ok(()) => self.notify_queued_once_on_disk(instance),
            Err(Full) => {
                let reason = self.cluster.no_room(query.request());
                let cause = Cause::AndQueueFull(Box::new(why.cause), self.queue.len());
                self.fail_managed(instance, reason, None, Explanation::of(cause));
            }
        }
    }

    /// Offers awake nodes to those that wait, in the order in which they woke; whether anything was placed. With a limit,
    /// only to those that come before that rank in the order: the nodes stay awake for the others.
    pub(crate) fn serve_waiting(&mut self, limit: Option<Rank>) -> bool {
        let (mut any, mut left) = (false, Vec::new());
        for _ in 0..SERVED_PER_ROUND {
            let Some((key, after)) = self.queue.next_awake() else {
                break;
            };
            match self.serve(key, after, limit) {
                // There may be room for another.
                Served::One => {
                    self.queue.ask_later(key, Begin::AtHead);
                    any = true;
                    if limit.is_none() && self.arrays.has_ready() {
                        // The next of its elements comes before who stands behind the array.
                        break;
                    }
                }
                Served::NoOne => {}
                // It is served again after the others.
                Served::More(after) => self.queue.ask_later(key, after),
                Served::UpToLimit => left.push((key, after)),
            }
        }
        for (key, after) in left {
            self.queue.ask_later(key, after);
        }
        any
    }

    /// Serves those that wait before a START is placed that did not wait, or an instance is placed again, if one of them
    /// comes before it in the order: room that is free goes to them first.
    pub(crate) fn serve_before(&mut self, request: &StartRequest) {
        if !self.queue.has_awake() {
            return;
        }
        let rank = self.sight().rank_of(request);
        let first = self.queue.iter_after(Pool::of(request), None).next();
        if first.is_some_and(|first| first.rank() < rank) {
            self.serve_waiting(Some(rank));
        }
    }

    /// Offers a node's room to the first that waits and fits; if there is none, room is made there for one by
    /// preemption. With a limit, only to one that comes before it.
    fn serve(&mut self, key: NodeKey, begin: Begin, limit: Option<Rank>) -> Served {
        if !self.cluster.contains(key) {
            return Served::NoOne;
        }
        for pool in Pool::ALL {
            let has_slot = self.cluster.node(key).slots()[pool as usize].is_some();
            if !has_slot || !self.sight().is_to_serve(key) {
                continue;
            }
            match self.serve_in(pool, key, begin, limit) {
                Served::NoOne => {}
                other => return other,
            }
        }
        if self.serve_suspended(key, limit) || self.preempt_for_waiting(key, limit) {
            return Served::One;
        }
        match limit {
            // One behind it may preempt.
            Some(_) => Served::UpToLimit,
            None => Served::NoOne,
        }
    }

    /// The same of one pool's queue.
    fn serve_in(
        &mut self,
        pool: Pool,
        key: NodeKey,
        mut begin: Begin,
        limit: Option<Rank>,
    ) -> Served {
        for _ in 0..MAX_TRIED_PER_NODE {
            let may = |_, shape: &Shape| self.sight().may_run(pool, key, shape.query());
            let room = Room::to_serve(&self.cluster, key);
            let found = self.queue.candidate(pool, &room, begin, may);
            let instance = match found {
                Found::First(instance) => instance,
                Found::Nothing => return Served::NoOne,
                Found::GaveUp(cursor) => return Served::More(Begin::GoOn(cursor)),
            };
            if self.queue.is_past(&instance, limit) {
                return Served::UpToLimit;
            }
            // Who stands behind the one for whom the node is kept has to wait for that.
            if !self.sight().is_open_to(pool, key, &instance) {
                return Served::NoOne;
            }
            if self.serve_instance(&instance, key) {
                return Served::One;
            }
            begin = match self.queue.waiter(&instance) {
                Some(waiter) => Begin::After(waiter.rank()),
                None => begin,
            };
        }
        Served::More(begin)
    }

    /// Resumes the first that waits for that on a node whose room goes to no one else, or not all of it: what is
    /// suspended has all but its vcpus there, and needs those alone, also where the node is cordoned, full, has a fault, or
    /// has less than nothing left of its memory or disk. What keeps the first from being resumed keeps the others too;
    /// whether one was.
    fn serve_suspended(&mut self, key: NodeKey, limit: Option<Rank>) -> bool {
        let node = self.cluster.node(key);
        if node.session().is_none() || node.backlog() == Backlog::Stalled {
            return false;
        }
        let vcpus = self.cluster.free(key).vcpus;
        let waiting = self.queue.resumable(key, vcpus);
        let mut waiting = waiting.iter();
        let first = waiting.find(|instance| self.sight().is_to_resume(instance, key));
        first.is_some_and(|instance| {
            !self.queue.is_past(instance, limit) && self.resume_evicted(instance, key)
        })
    }

    /// Serves one instance that the queue thinks fits on a node: resumes it there, or has it placed; whether it was.
    fn serve_instance(&mut self, instance: &InstanceId, key: NodeKey) -> bool {
        let Some(managed) = self.instances.get(instance) else {
            self.queue.remove(instance);
            return true;
        };
        match managed.state() {
            State::Suspended {
                by: SuspendedBy::Preemptor(_),
                ..
            } => self.resume_evicted(instance, key),
            _ => self.serve_start(instance),
        }
    }

    /// Places an instance that waits to be started, on whichever node the policy now likes best; whether one fits.
    fn serve_start(&mut self, instance: &InstanceId) -> bool {
        let Some(query) = self.instances.query_of(instance) else {
            return false;
        };
        let Some(chosen) = self.choose_again(instance, &query) else {
            return false;
        };
        self.claim_managed(instance, chosen, &Cause::RoomFound);
        true
    }

    /// Looks at what waits for something else than room: those that come after others of which something has become are
    /// placed, or fail, or go on waiting. And tries some of those that wait on all nodes, once a second: for what lets an
    /// instance fit without any node offering more, as when a member of its group has left another rack.
    pub(crate) fn sweep(&mut self, now: Instant) {
        for _ in 0..DEPENDENTS_PER_ROUND {
            // While nodes are still coming back after a restart, it is not known what has ended.
            let due = (!self.recovery.is_open()).then(|| self.queue.take_due_dependent(now));
            let Some(instance) = due.flatten() else {
                break;
            };
            match self.sight().left_of_dependent(&instance) {
                None => self.end_managing(&instance, &Cause::StartForgotten),
                Some(Err(cause)) => {
                    let reason = StartFailureReason::DependencyFailed;
                    self.fail_managed(&instance, reason, None, Explanation::of(cause));
                }
                Some(Ok(left)) if left.is_empty() => {
                    self.queue.depend_no_more(&instance);
                    if let Some(managed) = self.instances.get_mut(&instance) {
                        managed.begin_to_wait(now);
                    }
                    self.reschedule(&instance, &Cause::OthersEnded);
                }
                Some(Ok(left)) => {
                    if self.queue.set_dependencies(&instance, left) {
                        self.journal.note_instance(&instance);
                    }
                }
            }
        }
        if !self.queue.begin_sweep(now) {
            return;
        }
        for pool in Pool::ALL {
            for instance in self.queue.take_swept(pool) {
                self.serve_start(&instance);
            }
        }
    }

    /// Fails those whose deadline of waiting is over, with the reason why nothing fits now.
    pub(crate) fn fail_late_waiters(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(instance) = self.queue.due(now).map(|waiter| waiter.instance().clone()) else {
                return;
            };
            let why = self
                .instances
                .query_of(&instance)
                .map(|query| self.why_not(&query));
            self.leave_queue(&instance);
            if let Some(why) = why {
                self.fail_managed(&instance, StartFailureReason::QueueTimeout, None, why);
            }
        }
    }
}

impl Sight<'_> {
    /// Whether a node's room may go to those that wait. A node that calls itself full may be tried with what was
    /// released there since.
    fn is_to_serve(&self, key: NodeKey) -> bool {
        let node = self.cluster.node(key);
        match node.status() {
            NodeStatus::Full => node.may_be_tried() && self.cluster.has_room_to_try(),
            _ => node.takes_work() && node.backlog() != Backlog::Stalled,
        }
    }
}

/// What came of offering a node.
enum Served {
    /// An instance was placed or resumed there: there may be room for another.
    One,
    /// Nothing that waits can use it.
    NoOne,
    /// The search was cut off: it goes on from here when the other nodes have been served.
    More(Begin),
    /// Nothing that comes before the limit can use it; others may.
    UpToLimit,
}
