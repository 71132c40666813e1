//! Every START that the scheduler took in ends in exactly one outcome: it ran, it waits, or it failed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use proto_frames::payload::{PhaseName, QueryKind};

use super::{Check, IN_FLIGHT};
use crate::facts::{Fact, News};
use crate::names;
use crate::world::World;

/// Let off, beside what each line below says, are the STARTs that a scheduler had taken in and not settled when it
/// crashed: plain ones are in memory alone, and their controllers know by the crash that they have to look. And of what is
/// on disk a failure may be told again by the next scheduler, where the one before it had told it and not yet removed it.
#[derive(Default)]
pub(super) struct Outcomes {
    books: BTreeMap<u32, Book>,
    heard: BTreeSet<u32>,
    unheard: BTreeSet<u32>,
    /// Of what waits to be started, or is on its way to a node.
    waiting: BTreeSet<u32>,
    /// When something last came of a START of each instance.
    came: BTreeMap<u32, Instant>,
    /// Failures that each controller heard of each instance.
    failures: BTreeMap<(usize, u32), u32>,
    excused: u64,
}

/// What came of the STARTs of one instance.
#[derive(Debug, Default)]
struct Book {
    sent: u32,
    taken: u32,
    /// Failures that the scheduler said or passed on.
    failed: u32,
    /// How often a START was given to a machine.
    placed: u32,
    began: u32,
    /// How often it was started again by its launcher, as its START says.
    respawned: u32,
    gone: u32,
    /// Whether it may begin more than once for one START: it is managed, and moves, is preempted or is restarted.
    is_kept: bool,
    /// Whether a START was taken in of which nothing has come yet.
    is_open: bool,
    /// Failures of those whose machine was lost for too long: each may be there when its machine is back.
    lost: u32,
    /// Whether a scheduler crashed that had taken one in.
    has_crashed: bool,
}

impl Check for Outcomes {
    fn name(&self) -> &'static str {
        "every START ends in exactly one outcome"
    }

    fn see(&mut self, fact: &Fact, world: &World) -> Result<(), String> {
        if instance_of(fact).is_some_and(|it| names::element_of(it).is_some()) {
            // No one sends a START of an element: what comes of it is for `arrays`.
            return Ok(());
        }
        if let Fact::Failed { instance, .. } | Fact::Gone { instance, .. } = *fact {
            self.came.insert(instance, world.now);
        }
        match *fact {
            Fact::Sent { instance } => self.book(instance).sent += 1,
            Fact::Taken { instance, .. } => {
                self.book(instance).taken += 1;
                self.book(instance).is_open = true;
            }
            Fact::Failed { instance, is_lost } => {
                self.book(instance).failed += 1;
                self.book(instance).lost += u32::from(is_lost);
                return self.book(instance).came(instance);
            }
            Fact::Refused { instance } => return self.book(instance).came(instance),
            Fact::Placed { instance, .. } => self.book(instance).placed += 1,
            Fact::Respawned { instance, .. } => self.book(instance).respawned += 1,
            Fact::Turned {
                instance,
                ref state,
            } => self.turned(instance, state),
            // Who is master again is told again what a master alone was told before.
            Fact::Connected { controller } => self.failures.retain(|(it, _), _| *it != controller),
            Fact::Gone { instance, .. } => {
                self.book(instance).gone += 1;
                self.book(instance).is_open = false;
            }
            Fact::Began { instance, .. } => {
                return self.book(instance).begins(instance);
            }
            Fact::Listed { ref instances, .. } => {
                for &instance in instances {
                    if names::element_of(instance).is_some() {
                        continue;
                    }
                    self.book(instance).is_open = false;
                }
            }
            Fact::SchedulerCrashed { is_durable } => {
                // What waited to be started again, or was on its way to a node, was in memory alone: it has not come to an end that is told, and those
                // that sent it know by the crash that they have to look.
                let waiting = std::mem::take(&mut self.waiting);
                if !is_durable {
                    self.unheard.extend(waiting);
                }
                for book in self.books.values_mut().filter(|book| book.taken > 0) {
                    book.has_crashed = true;
                    self.excused += u64::from(book.is_open);
                    book.is_open = false;
                }
            }
            Fact::Unheard { instance } => {
                self.unheard.insert(instance);
            }
            Fact::Heard {
                controller,
                instance,
                news,
            } => {
                self.heard.insert(instance);
                if news == News::Failed {
                    return self.hears_failure(controller, instance);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let queue = world.ask(&QueryKind::Queue).instances;
        let waits = |instance: u32| {
            let uuid = names::instance_uuid(instance);
            queue.iter().any(|row| row.instance_uuid == uuid)
        };
        for (instance, book) in &self.books {
            if book.is_open && !waits(*instance) {
                return Err(format!("nothing came of {instance}: {book:?}"));
            }
            let came = book.failed + book.began + book.gone;
            // Who lost the frame that said so has lost it; a scheduler tells no one twice.
            let is_known = self.heard.contains(instance) || self.unheard.contains(instance);
            // A time of waiting may be over at any moment, also just before this one.
            let came_at = self.came.get(instance);
            let is_told_now = came_at.is_some_and(|at| *at + IN_FLIGHT > world.now);
            let is_known = is_known || is_told_now;
            // What waits to be started again has not come to its end: that is told then.
            if came > 0 && !is_known && !waits(*instance) {
                return Err(format!("no controller heard of {instance}: {book:?}"));
            }
        }
        Ok(())
    }

    fn excused(&self) -> u64 {
        self.excused
    }
}

/// The instance whose START something has become of.
fn instance_of(fact: &Fact) -> Option<u32> {
    match *fact {
        Fact::Failed { instance, .. }
        | Fact::Gone { instance, .. }
        | Fact::Refused { instance }
        | Fact::Placed { instance, .. }
        | Fact::Turned { instance, .. }
        | Fact::Heard { instance, .. }
        | Fact::Began { instance, .. } => Some(instance),
        _ => None,
    }
}

impl Outcomes {
    fn book(&mut self, instance: u32) -> &mut Book {
        self.books.entry(instance).or_default()
    }

    fn turned(&mut self, instance: u32, state: &PhaseName) {
        match state {
            PhaseName::Waiting | PhaseName::Placing => self.waiting.insert(instance),
            _ => self.waiting.remove(&instance),
        };
        let book = self.book(instance);
        book.is_kept = true;
        // It has failed or ended, or was deleted before it began.
        book.is_open &= *state != PhaseName::Gone;
    }

    fn hears_failure(&mut self, controller: usize, instance: u32) -> Result<(), String> {
        let failures = self.failures.entry((controller, instance)).or_default();
        *failures += 1;
        let book = self.books.get(&instance);
        let sent = book.map_or(0, |book| book.sent);
        if *failures > sent && !book.is_some_and(|book| book.has_crashed) {
            let failures = *failures;
            return Err(format!(
                "controller {controller} heard of {failures} failures of {instance}, sent {sent} times"
            ));
        }
        Ok(())
    }
}

impl Book {
    /// Something came of a START: of as many as were taken in, no more.
    fn came(&mut self, instance: u32) -> Result<(), String> {
        self.is_open = false;
        let failures = self.failed;
        if failures > self.taken && !self.has_crashed {
            return Err(format!("{instance} failed too often: {self:?}"));
        }
        let by_scheduler = match self.is_kept {
            true => self.placed,
            false => self.taken,
        };
        if self.began > by_scheduler + self.respawned {
            return Err(format!("{instance} began too often: {self:?}"));
        }
        if !self.is_kept && failures + self.began > self.taken + self.lost + self.respawned {
            return Err(format!("{instance} failed and ran: {self:?}"));
        }
        Ok(())
    }

    /// A process begins: not if all STARTs have failed before.
    fn begins(&mut self, instance: u32) -> Result<(), String> {
        self.began += 1;
        if self.failed >= self.taken + self.lost && self.respawned == 0 && !self.has_crashed {
            return Err(format!("{instance} began although it has failed: {self:?}"));
        }
        self.came(instance)
    }
}

#[test]
fn each_start_whose_machine_was_lost_may_have_failed_and_run_and_no_other() {
    let taken = |taken| Book {
        taken,
        ..Book::default()
    };
    let fails = |book: &mut Book, is_lost: bool| {
        book.failed += 1;
        book.lost += u32::from(is_lost);
        book.came(1)
    };
    let mut both = taken(2);
    for _ in 0..2 {
        assert_eq!(both.begins(1), Ok(()));
        assert_eq!(fails(&mut both, true), Ok(()), "it was lost");
    }
    let mut late = taken(2);
    assert_eq!(fails(&mut late, true), Ok(()));
    assert_eq!(fails(&mut late, false), Ok(()));
    assert_eq!(late.begins(1), Ok(()), "the one that was lost");
    assert!(late.begins(1).is_err(), "the other has failed");
    let mut ran = taken(2);
    assert_eq!(ran.begins(1), Ok(()));
    assert_eq!(fails(&mut ran, true), Ok(()));
    assert_eq!(ran.begins(1), Ok(()));
    assert!(fails(&mut ran, false).is_err(), "it ran, and was not lost");
}
