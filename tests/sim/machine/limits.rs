//! How long processes have run, frozen time aside, and their time limits: as their supervisors see to these.

use std::time::{Duration, Instant};

use ciao_scheduler::launcher::agent::{Ran, Why};

use super::{Pace, ends_event};
use crate::agenda::{Cause, Event};
use crate::names;
use crate::world::World;

/// How long a process has run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunTime {
    before: Duration,
    /// Since when it runs; `None` while it is frozen.
    since: Option<Instant>,
    /// How long it may.
    limit: Option<Duration>,
    is_over: bool,
}

impl RunTime {
    pub(super) fn new(now: Instant, limit: Option<Duration>) -> Self {
        Self {
            before: Duration::ZERO,
            since: Some(now),
            limit,
            is_over: false,
        }
    }

    pub(crate) fn so_far(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now - since)
    }

    pub(super) fn pause(&mut self, now: Instant) {
        self.before = self.so_far(now);
        self.since = None;
    }

    pub(super) fn go_on(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// When its limit is reached if it runs on.
    pub(crate) fn ends_at(&self) -> Option<Instant> {
        Some(self.since? + self.limit?.saturating_sub(self.before))
    }

    /// What its supervisor says of it. Where nothing limits it, that is nothing.
    pub(super) fn ran(&self, now: Instant) -> Ran {
        let ms = u64::try_from(self.so_far(now).as_millis()).ok();
        Ran {
            counted_ms: ms.filter(|_| self.limit.is_some()),
            why: self.is_over.then_some(Why::TimeLimit),
            ..Ran::default()
        }
    }
}

impl World {
    /// Has the limit of a process looked at when it may be reached.
    pub(super) fn watch_limit(&mut self, at: usize, instance: u32) {
        let process = self.machines[at].processes.get(&instance);
        let due = process.and_then(|it| Some((it.time.ends_at()?, it.spawn)));
        if let Some((due, spawn)) = due {
            let event = Event::LimitEnds {
                machine: at,
                instance,
                spawn,
            };
            self.agenda.put(due, event);
        }
    }

    /// The limit of a process may be reached: then it is asked to end, if it was not before, and killed after its grace.
    pub(crate) fn limit_ends(&mut self, at: usize, instance: u32, spawn: u64) {
        let now = self.now;
        let machine = &mut self.machines[at];
        let grace = machine.graces.get(&instance).copied().unwrap_or_default();
        let process = machine.processes.get_mut(&instance);
        let Some(process) = process.filter(|it| it.spawn == spawn && it.pace != Pace::Frozen)
        else {
            return;
        };
        if process.time.ends_at().is_none_or(|ends| ends > now) {
            return;
        }
        let was_asked = process.is_asked;
        process.time.is_over |= !was_asked;
        self.note(format_args!(
            "the time of {instance} on machine {at} is over"
        ));
        if !was_asked {
            self.signal(at, &names::instance_uuid(instance), Cause::Terminated);
        }
        let event = ends_event(at, instance, spawn, Cause::Killed);
        self.agenda.put(now + grace, event);
    }
}
