//! Time in the core: one table of what is due when, by key. Who has something due sets its timer, and cancels it once nothing
//! is due any more; a tick runs what is due, kind by kind in the order of [`Kind`], and nothing else.
//!
//! What a workflow waits for about one node or instance has a timer of its own. What a component keeps in step with its data
//! (times of instances' states, deadlines in the queue, STARTs at the door of a disk that takes no writes) has one timer for
//! the first of it, which follows what the component says at the end of each input.
//!
//! Not here: what becomes of what is due, which is for `dispatch::time` to say. There is no more in the table than there
//! are nodes, managed instances and drains.

mod moments;

use std::time::Instant;

use sched_model::Uuid;

use crate::api::ids::{InstanceId, NodeKey};
use crate::api::names::names;

use self::moments::Moments;

/// Something that is due at a moment; one moment at most for each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Timer {
    /// A lost node is given up. Of those lost at the same moment in the order of their loss.
    GiveUp(NodeKey),
    /// The recovery window closes, or what waited for that is tried again.
    Recovery,
    /// A batch has waited long enough for its last START.
    LateBatches,
    /// The disk has been silent for too long, or what waits for it has waited long enough.
    Disk,
    /// A launcher with a lease is to have reported by now.
    Lease(NodeKey),
    /// Some of those that wait for room are looked at.
    Sweep,
    /// An instance has waited for room as long as it may.
    QueueDeadlines,
    /// Something has become of what instances come after, or all of these are looked at.
    Dependents,
    /// Nodes that refused an instance may be asked again.
    AskAgain(InstanceId),
    /// The time of a state of an instance is over.
    States,
    /// Something was left over when an input was handled.
    Rest,
    /// The time of a reservation is over.
    Reservations,
    /// An instance that was preempted is looked at again.
    LookAgain(InstanceId),
    /// Drains look for room again.
    DrainRetry,
    /// The time of a node's drain is over.
    Drain(Uuid),
    /// A launcher has not answered in time what it was asked of a workload's output.
    Reads,
}

names! {
    /// The kinds of timers, in the order in which a tick runs them.
    pub(crate) Kind:
    GiveUp,
    Recovery,
    LateBatches,
    Disk,
    Lease,
    Sweep,
    QueueDeadlines,
    Dependents,
    AskAgain,
    States,
    Rest,
    Reservations,
    LookAgain,
    DrainRetry,
    Drain,
    Reads,
}

/// What is due when.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Of those kinds of which there is one timer.
    single: [Option<Instant>; Kind::ALL.len()],
    give_up: Moments<NodeKey>,
    leases: Moments<NodeKey>,
    ask_again: Moments<InstanceId>,
    look_again: Moments<InstanceId>,
    drains: Moments<Uuid>,
    /// Counts the losses of nodes.
    losses: u64,
}

impl Timers {
    /// Has something due at this moment, and at no other.
    pub(crate) fn set(&mut self, timer: Timer, at: Instant) {
        match timer {
            Timer::GiveUp(node) => {
                self.losses += 1;
                self.give_up.set(node, at, self.losses);
            }
            Timer::Lease(node) => self.leases.set(node, at, 0),
            Timer::AskAgain(instance) => self.ask_again.set(instance, at, 0),
            Timer::LookAgain(instance) => self.look_again.set(instance, at, 0),
            Timer::Drain(node) => self.drains.set(node, at, 0),
            single => self.single[single.kind() as usize] = Some(at),
        }
    }

    /// Has something due at this moment, or not at all.
    pub(crate) fn put(&mut self, timer: Timer, at: Option<Instant>) {
        match at {
            Some(at) => self.set(timer, at),
            None => self.cancel(&timer),
        }
    }

    /// Has what a component keeps in step with its data due at this moment, or not at all. Of a kind of which there is one
    /// timer.
    #[inline]
    pub(crate) fn follow(&mut self, kind: Kind, at: Option<Instant>) {
        self.single[kind as usize] = at;
    }

    /// Has something due at this moment, unless it is due before.
    pub(crate) fn bring_forward(&mut self, timer: Timer, at: Instant) {
        if self.at(&timer).is_none_or(|earlier| at < earlier) {
            self.set(timer, at);
        }
    }

    /// Has something due no longer.
    pub(crate) fn cancel(&mut self, timer: &Timer) {
        match timer {
            Timer::GiveUp(node) => self.give_up.cancel(node),
            Timer::Lease(node) => self.leases.cancel(node),
            Timer::AskAgain(instance) => self.ask_again.cancel(instance),
            Timer::LookAgain(instance) => self.look_again.cancel(instance),
            Timer::Drain(node) => self.drains.cancel(node),
            single => self.single[single.kind() as usize] = None,
        }
    }

    /// Cancels what is due about an instance.
    pub(crate) fn forget(&mut self, instance: &InstanceId) {
        self.ask_again.cancel(instance);
        self.look_again.cancel(instance);
    }

    /// When something is due, if it is.
    pub(crate) fn at(&self, timer: &Timer) -> Option<Instant> {
        match timer {
            Timer::GiveUp(node) => self.give_up.at(node),
            Timer::Lease(node) => self.leases.at(node),
            Timer::AskAgain(instance) => self.ask_again.at(instance),
            Timer::LookAgain(instance) => self.look_again.at(instance),
            Timer::Drain(node) => self.drains.at(node),
            single => self.single[single.kind() as usize],
        }
    }

    /// When the first of all is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let first = [
            self.give_up.first(),
            self.leases.first(),
            self.ask_again.first(),
            self.look_again.first(),
            self.drains.first(),
        ];
        let single = self.single.iter().copied();
        first.into_iter().chain(single).flatten().min()
    }

    /// Takes out the first of a kind that is due by now.
    pub(crate) fn pop_due(&mut self, kind: Kind, now: Instant) -> Option<Timer> {
        let single = |timer: Timer, at: &mut Option<Instant>| {
            at.take_if(|at| *at <= now)?;
            Some(timer)
        };
        let at = &mut self.single[kind as usize];
        match kind {
            Kind::GiveUp => self.give_up.pop(now).map(Timer::GiveUp),
            Kind::Lease => self.leases.pop(now).map(Timer::Lease),
            Kind::AskAgain => self.ask_again.pop(now).map(Timer::AskAgain),
            Kind::LookAgain => self.look_again.pop(now).map(Timer::LookAgain),
            Kind::Drain => self.drains.pop(now).map(Timer::Drain),
            Kind::Recovery => single(Timer::Recovery, at),
            Kind::LateBatches => single(Timer::LateBatches, at),
            Kind::Disk => single(Timer::Disk, at),
            Kind::Sweep => single(Timer::Sweep, at),
            Kind::QueueDeadlines => single(Timer::QueueDeadlines, at),
            Kind::Dependents => single(Timer::Dependents, at),
            Kind::States => single(Timer::States, at),
            Kind::Rest => single(Timer::Rest, at),
            Kind::Reservations => single(Timer::Reservations, at),
            Kind::DrainRetry => single(Timer::DrainRetry, at),
            Kind::Reads => single(Timer::Reads, at),
        }
    }

    /// Lost nodes that are to be given up.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn losses(&self) -> usize {
        self.give_up.len()
    }

    /// Instances of which nodes that refused them are to be asked again.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn to_ask_again(&self) -> usize {
        self.ask_again.len()
    }

    /// Places in its tables.
    #[cfg(any(test, feature = "test-support"))]
    pub(crate) fn capacity(&self) -> usize {
        self.give_up.capacity()
            + self.leases.capacity()
            + self.ask_again.capacity()
            + self.look_again.capacity()
            + self.drains.capacity()
    }
}

impl Timer {
    fn kind(&self) -> Kind {
        match self {
            Self::GiveUp(_) => Kind::GiveUp,
            Self::Recovery => Kind::Recovery,
            Self::LateBatches => Kind::LateBatches,
            Self::Disk => Kind::Disk,
            Self::Lease(_) => Kind::Lease,
            Self::Sweep => Kind::Sweep,
            Self::QueueDeadlines => Kind::QueueDeadlines,
            Self::AskAgain(_) => Kind::AskAgain,
            Self::Dependents => Kind::Dependents,
            Self::States => Kind::States,
            Self::Rest => Kind::Rest,
            Self::Reservations => Kind::Reservations,
            Self::LookAgain(_) => Kind::LookAgain,
            Self::DrainRetry => Kind::DrainRetry,
            Self::Drain(_) => Kind::Drain,
            Self::Reads => Kind::Reads,
        }
    }
}

/// The earlier of two moments, as far as there are any.
#[inline]
pub(crate) fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{InstanceId, Kind, NodeKey, Timer, Timers};

    fn popped(timers: &mut Timers, kind: Kind, now: Instant) -> Vec<Timer> {
        std::iter::from_fn(|| timers.pop_due(kind, now)).collect()
    }

    #[test]
    fn each_has_one_moment_the_one_that_was_set_last() {
        let (now, second) = (crate::simulated::start(), Duration::from_secs(1));
        let of = |name| Timer::LookAgain(InstanceId::new(name));
        let mut timers = Timers::default();
        timers.set(of("a"), now);
        timers.set(of("a"), now + 3 * second);
        timers.set(of("b"), now + second);
        timers.set(of("c"), now + second);
        timers.cancel(&of("c"));
        timers.set(Timer::Sweep, now + second);
        timers.set(Timer::Sweep, now + 2 * second);
        timers.put(Timer::Disk, Some(now));
        timers.put(Timer::Disk, None);
        assert_eq!(timers.next(), Some(now + second));
        assert_eq!(popped(&mut timers, Kind::LookAgain, now), []);
        let due = popped(&mut timers, Kind::LookAgain, now + second);
        assert_eq!(due, [of("b")]);
        assert_eq!(timers.next(), Some(now + 2 * second));
        let due = popped(&mut timers, Kind::Sweep, now + 2 * second);
        assert_eq!(due, [Timer::Sweep]);
        let due = popped(&mut timers, Kind::LookAgain, now + 3 * second);
        assert_eq!(due, [of("a")]);
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn of_those_due_at_one_moment_nodes_are_given_up_in_the_order_of_loss_and_instances_in_that_of_names()
     {
        let now = crate::simulated::start();
        let mut timers = Timers::default();
        for key in [3, 1, 2] {
            timers.set(Timer::GiveUp(NodeKey(key)), now);
        }
        // It was back, and was lost again.
        timers.cancel(&Timer::GiveUp(NodeKey(3)));
        timers.set(Timer::GiveUp(NodeKey(3)), now);
        let nodes = [1, 2, 3].map(|key| Timer::GiveUp(NodeKey(key)));
        assert_eq!(timers.losses(), 3);
        assert_eq!(popped(&mut timers, Kind::GiveUp, now), nodes);
        let names = ["a", "b", "c"].map(|name| Timer::LookAgain(InstanceId::new(name)));
        for at in [2, 0, 1] {
            timers.set(names[at].clone(), now);
        }
        assert_eq!(popped(&mut timers, Kind::LookAgain, now), names);
    }

    #[test]
    fn what_is_brought_forward_is_never_put_off() {
        let (now, second) = (crate::simulated::start(), Duration::from_secs(1));
        let lease = Timer::Lease(NodeKey(1));
        let mut timers = Timers::default();
        for (timer, rest) in [(lease, Kind::Lease), (Timer::Sweep, Kind::Sweep)] {
            timers.bring_forward(timer.clone(), now + second);
            timers.bring_forward(timer.clone(), now + 2 * second);
            assert_eq!(timers.at(&timer), Some(now + second));
            timers.bring_forward(timer.clone(), now);
            assert_eq!(popped(&mut timers, rest, now), [timer]);
        }
    }
}
