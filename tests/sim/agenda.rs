//! What is to happen, and when: the one queue of everything that takes time.

use std::collections::BTreeMap;
use std::time::Instant;

use ciao_scheduler::launcher::agent;

use crate::cluster::ClusterEvent;
use crate::network::{Link, Peer};

/// Something that happens by itself when its time has come.
#[derive(Debug)]
pub(crate) enum Event {
    /// A peer dials, unless it has thought better of it: the number is that of its latest decision to dial.
    Dial(Peer, u64),
    /// A connection reaches the scheduler.
    Arrives(Link),
    /// The next frame reaches the peer.
    ReachesPeer(Link),
    /// The next frame reaches the scheduler.
    ReachesScheduler(Link),
    /// The peer learns that the connection is over.
    PeerLearns(Link),
    /// The scheduler learns that the connection is over.
    SchedulerLearns(Link),
    /// A peer reads again what is sent to it.
    Reads(Link),
    /// The scheduler reads again what a peer sends to it.
    IsReadFrom(Link),
    /// A connection breaks.
    Breaks(Link),
    /// Nothing has left a queue for a while.
    Stalls(Link),
    /// A process that was ordered begins, or cannot.
    Begins {
        machine: usize,
        instance: u32,
        spawn: u64,
    },
    /// A process ends, if it is still that one.
    Ends {
        machine: usize,
        instance: u32,
        spawn: u64,
        cause: Cause,
    },
    /// The time limit of a process may be reached, if it is still that one.
    LimitEnds {
        machine: usize,
        instance: u32,
        spawn: u64,
    },
    /// A machine's lease may be over.
    LeaseEnds(usize),
    /// A launcher hears of something on its machine, if it is still that launcher.
    Hears {
        machine: usize,
        launcher: u64,
        input: agent::Input,
    },
    /// A launcher that crashed or was stopped comes back.
    LauncherReturns(usize),
    /// A controller comes back.
    ControllerReturns(usize),
    /// The scheduler comes back.
    SchedulerReturns,
    /// The scheduler's disk has taken what was given to it first.
    Committed { scheduler: u64 },
    /// Something happens between one of several schedulers and etcd.
    Cluster(ClusterEvent),
}

impl Event {
    /// The connection of which the scheduler's end has something to do then.
    pub(crate) fn of_scheduler(&self) -> Option<Link> {
        match self {
            Self::Arrives(link)
            | Self::ReachesScheduler(link)
            | Self::SchedulerLearns(link)
            | Self::Stalls(link) => Some(*link),
            _ => None,
        }
    }
}

/// Why a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It is done.
    Itself,
    /// It was asked to.
    Terminated,
    /// It was killed.
    Killed,
}

/// Events in the order of their times; those of one moment in the order in which they were put down.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    events: BTreeMap<(Instant, u64), Event>,
    count: u64,
}

impl Agenda {
    pub(crate) fn put(&mut self, at: Instant, event: Event) {
        self.count += 1;
        self.events.insert((at, self.count), event);
    }

    /// When the next event is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn take(&mut self) -> Option<Event> {
        self.events.pop_first().map(|(_, event)| event)
    }
}
