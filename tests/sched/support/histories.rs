//! Random histories: what drives them, one seed after another, and what a launcher in them has and was told.

use std::collections::{BTreeMap, VecDeque};

use sched_core::{Message, SessionId};

use super::seeds::for_each_seed_and;

/// A world in which one thing after another happens by chance.
pub(crate) trait History {
    /// How it begins.
    fn new(seed: u64) -> Self;

    /// The next thing happens.
    fn step(&mut self);

    /// What must hold after each step.
    fn check(&self) {}

    /// No more than what was begun goes on; what must have become of it in the end.
    fn come_to_rest(&mut self);
}

/// Runs histories of so many steps: of the seeds that once found a defect, and of so many others.
pub(crate) fn run_histories<H: History>(found: &[u64], usual: u64, steps: usize) {
    for_each_seed_and(found, usual, |seed| {
        let mut history = H::new(seed);
        for _ in 0..steps {
            history.step();
            history.check();
        }
        history.come_to_rest();
    });
}

/// A launcher, as simple as can be; what it knows of each of its instances is a `G`.
pub(crate) struct Host<G> {
    pub(crate) number: u64,
    pub(crate) session: SessionId,
    pub(crate) has: BTreeMap<String, G>,
    /// What it was told and has not come to.
    pub(crate) told: VecDeque<Message>,
    /// STARTs it has come to on this connection.
    pub(crate) seen: u64,
}

impl<G> Host<G> {
    /// One that has nothing.
    pub(crate) fn new(number: u64, session: SessionId) -> Self {
        Self {
            number,
            session,
            has: BTreeMap::new(),
            told: VecDeque::new(),
            seen: 0,
        }
    }
}
