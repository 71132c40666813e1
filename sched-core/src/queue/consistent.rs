//! Whether the queue is as it should be: what is kept ready is what the waiters make it.

use super::rank::Key;
use super::{Queue, Waiter};
use crate::cluster::node::Pool;

impl Queue {
    /// Recomputes every order, sum and minimum and compares.
    ///
    /// # Errors
    /// Names the first thing that does not hold.
    pub(crate) fn invariants(&self) -> Result<(), &'static str> {
        let all = || {
            self.waiting
                .iter_from(0)
                .map(|(_, waiting)| &waiting.waiter)
        };
        let asked = |pool: Pool| {
            move |key: Key, class| {
                let waiting = self.waiting.at(key.number)?;
                let is_there = waiting.waiter.pool == pool
                    && waiting.class == class
                    && Key::new(waiting.waiter.rank(), key.number) == key;
                is_there.then_some(waiting.waiter.asked)
            }
        };
        for pool in Pool::ALL {
            let line = &self.lines[pool as usize];
            line.check(asked(pool))?;
            if line.order.len() != all().filter(|waiter| waiter.pool == pool).count() {
                return Err("an order does not have all who wait");
            }
            let mut ranks = self.rules[pool as usize].ranks();
            if !ranks.all(|rank| {
                line.order
                    .iter_from(Key::before(rank))
                    .next()
                    .is_some_and(|key| key < Key::behind(rank))
            }) {
                return Err("passes are counted of one who does not wait");
            }
        }
        let found = |waiter: &Waiter| self.waiter(&waiter.instance).map(Waiter::rank);
        if !all().all(|waiter| found(waiter) == Some(waiter.rank()))
            || self.waiting.len() != self.by_instance.len()
        {
            return Err("a waiter is not found by its instance");
        }
        if self.bytes != all().map(|waiter| waiter.bytes).sum::<usize>() {
            return Err("the bytes are not those of the waiters");
        }
        if !self.are_dependents_consistent() {
            return Err("what waits for others is not found by them");
        }
        if self.deadlines.len() != all().filter(|waiter| waiter.deadline.is_some()).count() {
            return Err("deadlines are not those of the waiters");
        }
        Ok(())
    }
}
