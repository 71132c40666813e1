//! Which waiter gets a node that has room? A walk over the classes that concern the node, best first as far as that is
//! cheap, which looks in each promising class for a waiter that is before the best found so far.
//!
//! The walk is bounded in steps and in classes for which filters are asked. Where it gives up, the [`Cursor`] has the
//! seat it came to and the best waiter found so far, and the next round goes on there: over some rounds the answer is
//! as exact as that of a single walk without bounds.

use super::bunch::{Bunch, Next};
use super::line::{BUNCHES, Class, Line};
use super::ordered::Scan;
use super::rank::Key;
use super::{ClassId, Shape};
use super::{Cursor, MAX_ASKED, MAX_STEPS, Purpose, Room};

/// Which waiters count.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchRange {
    /// None before this place.
    pub(super) from: Key,
    /// None from this place on.
    pub(super) before: Key,
    pub(super) whom: Whom,
}

/// Which of the waiters between these places is sought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    /// The first in order, whatever its purpose.
    First,
    /// Any waiter that waits to be started: the question is only whether there is one.
    AnyStart,
}

/// What a round has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// All classes were looked at; the waiter that was found, if any.
    Done(Option<Key>),
    /// Steps or questions are used up; where to go on.
    GaveUp(Cursor),
}

/// One round of a search. `may` says whether a class's shape may run on the node, by the filters.
pub(super) struct Walk<'a, F> {
    line: &'a Line,
    room: &'a Room<'a>,
    sought: SearchRange,
    may: F,
    /// The best waiter found so far.
    best: Option<Key>,
    /// Steps left; nodes of trees and chunks count.
    steps: u32,
    /// Classes that may still be asked about, each costs a run of all filters.
    asks: u32,
}

impl<'a, F: FnMut(ClassId, &Shape) -> bool> Walk<'a, F> {
    pub(super) fn new(line: &'a Line, room: &'a Room<'a>, sought: SearchRange, may: F) -> Self {
        Self {
            line,
            room,
            sought,
            may,
            best: None,
            steps: MAX_STEPS,
            asks: MAX_ASKED,
        }
    }

    /// Looks from the first class on: first the bunches for this node alone, then in the open one the class with the
    /// best head, then the rest of the open one.
    pub(super) fn begin(mut self) -> Round {
        for number in 0..BUNCHES - 1 {
            if let Some(bunch) = self.line.bunch(number, self.room)
                && let Some(cursor) = self.walk(bunch, number, 0, Key::FIRST)
            {
                return Round::GaveUp(cursor);
            }
        }
        self.begin_with_leader();
        self.go_on_from(BUNCHES - 1, 0, Key::FIRST)
    }

    /// Goes on where an earlier round gave up. Classes that came or went meanwhile may be looked at twice or not at
    /// all.
    pub(super) fn go_on(mut self, cursor: Cursor) -> Round {
        self.best = cursor.best;
        self.go_on_from(cursor.bunch, cursor.seat, cursor.within)
    }

    fn go_on_from(mut self, first: u8, seat: u32, within: Key) -> Round {
        let (mut seat, mut within) = (seat, within);
        for number in first..BUNCHES {
            if let Some(bunch) = self.line.bunch(number, self.room)
                && let Some(cursor) = self.walk(bunch, number, seat, within)
            {
                return Round::GaveUp(cursor);
            }
            (seat, within) = (0, Key::FIRST);
        }
        Round::Done(self.best)
    }

    /// Walks over a bunch's classes from a seat on, in that seat's class from a place on. Returns where it gave up;
    /// `None` if it came to the end.
    fn walk(&mut self, bunch: &Bunch, number: u8, seat: u32, within: Key) -> Option<Cursor> {
        let (mut from, mut within) = (seat, within);
        loop {
            let next = bunch.next(from, &self.room.free, self.bound(), &mut self.steps);
            let (Next::Seat(at) | Next::GaveUp(at)) = next else {
                return None;
            };
            if at != from {
                within = Key::FIRST;
            }
            let gave_up = match next {
                Next::Seat(_) => {
                    let class = bunch.class(at).and_then(|class| self.line.class(class));
                    class.and_then(|class| self.look(class, within))
                }
                _ => Some(within),
            };
            let Some(within_class) = gave_up else {
                (from, within) = (at + 1, Key::FIRST);
                continue;
            };
            return Some(Cursor {
                bunch: number,
                seat: at,
                within: within_class,
                best: self.best,
                from: self.sought.from,
            });
        }
    }

    /// Looks for a better waiter in a class, from a place on. Returns the place where it gave up; `None` if the class
    /// was looked at to the end or cannot have one.
    fn look(&mut self, class: &Class, within: Key) -> Option<Key> {
        let from = self.sought.from.max(within);
        let is_sought = self.sought.whom == Whom::First || class.purpose == Purpose::Start;
        if !is_sought || class.waiters.last() < Some(from) {
            return None;
        }
        if self.asks == 0 {
            return Some(within);
        }
        self.asks -= 1;
        if !(self.may)(class.id, &class.shape) {
            return None;
        }
        let waiters = &class.waiters;
        match waiters.first_fit(&self.room.free, from, self.bound(), &mut self.steps) {
            Scan::Fits(found) => {
                self.best = Some(found);
                None
            }
            Scan::Nothing => None,
            Scan::GaveUp(place) => Some(place),
        }
    }

    /// Looks at the class whose head is first in order, as far as one descent of the tree can tell: a waiter that is
    /// found there rules out most of the other classes.
    fn begin_with_leader(&mut self) {
        let Some(open) = self.line.bunch(BUNCHES - 1, self.room) else {
            return;
        };
        let leader = open.leader(&self.room.free, &mut self.steps);
        let class = leader.and_then(|seat| self.line.class(open.class(seat)?));
        if let Some(class) = class.filter(|class| class.waiters.first() < Some(self.bound())) {
            // Where it gives up the walk comes to that class again, or the next round does.
            let _ = self.look(class, Key::FIRST);
        }
    }

    /// The place from which on no waiter can be better than what was found.
    #[inline]
    fn bound(&self) -> Key {
        match (self.best, self.sought.whom) {
            (None, _) => self.sought.before,
            (Some(best), Whom::First) => best,
            // One is enough.
            (Some(_), Whom::AnyStart) => Key::FIRST,
        }
    }
}
