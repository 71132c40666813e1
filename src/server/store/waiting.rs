//! What waits for the next transaction: the newest record of each key, and ends that only wait here.
//!
//! The end of a run is put on record also where the core has forgotten the run before the disk took it. That leaves it
//! in the core's own table until the core, once it is restarted, forgets it again. Such ends are beyond what the core
//! has in memory, so that they have a limit of their own; what is beyond it is lost, and counted.

use std::collections::HashSet;

use super::Batch;
use sched_core::{Record, RecordKey};

/// Most ended runs that wait for the disk after the core has forgotten them: some 64 MiB, as much as the core itself
/// remembers. They come only while a disk takes no writes for as long as that.
pub(super) const MAX_FORGOTTEN: usize = 100_000;

/// Changes that wait for the disk.
#[derive(Debug)]
pub(super) struct Waiting {
    /// What the next transaction is to write; later changes of a key replace earlier ones.
    pub(super) batch: Batch,
    /// Runs in it that the core has forgotten.
    forgotten: HashSet<u64>,
    /// See [`MAX_FORGOTTEN`].
    pub(super) most: usize,
    /// Ends that were lost because that many waited.
    pub(super) lost: u64,
}

impl Default for Waiting {
    fn default() -> Self {
        Self::of_at_most(MAX_FORGOTTEN)
    }
}

impl Waiting {
    /// Nothing yet, and never more than so many runs that the core has forgotten.
    fn of_at_most(most: usize) -> Self {
        Self {
            batch: Batch::new(),
            forgotten: HashSet::new(),
            most,
            lost: 0,
        }
    }

    /// Everything, which leaves nothing.
    pub(super) fn take(&mut self) -> Self {
        let nothing = Self::of_at_most(self.most);
        std::mem::replace(self, nothing)
    }

    /// Adds changes; how many ends are lost by that.
    pub(super) fn merge(
        &mut self,
        entries: impl IntoIterator<Item = (RecordKey, Option<Record>)>,
    ) -> u64 {
        let before = self.lost;
        for (key, record) in entries {
            match (&key, &record) {
                (RecordKey::Run(number), None) if self.has_end(&key) => {
                    let number = *number;
                    self.forget(number, key);
                }
                _ => {
                    self.batch.insert(key, record);
                }
            }
        }
        self.lost - before
    }

    /// Adds what came later, and how many ends were lost of that; how many more are lost by that.
    pub(super) fn merge_later(&mut self, later: Self) -> u64 {
        let lost = self.merge(later.batch);
        self.lost += later.lost;
        // Only now, so that they count as those of this batch.
        let more: u64 = later
            .forgotten
            .into_iter()
            .map(|number| self.forget(number, RecordKey::Run(number)))
            .sum();
        lost + more
    }

    fn has_end(&self, key: &RecordKey) -> bool {
        matches!(self.batch.get(key), Some(Some(_)))
    }

    /// The core forgets a run of which the end waits; how many ends are lost by that.
    fn forget(&mut self, number: u64, key: RecordKey) -> u64 {
        if self.forgotten.contains(&number) {
            return 0;
        }
        if self.forgotten.len() < self.most {
            self.forgotten.insert(number);
            return 0;
        }
        self.batch.insert(key, None);
        self.lost += 1;
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    fn ended(number: u64) -> (RecordKey, Option<Record>) {
        let run = Record::Run(Box::default());
        (RecordKey::Run(number), Some(run))
    }

    fn forgotten(number: u64) -> (RecordKey, Option<Record>) {
        (RecordKey::Run(number), None)
    }

    /// The ends that would be written.
    fn ends(waiting: &Waiting) -> usize {
        waiting.batch.values().flatten().count()
    }

    #[test]
    fn only_ends_that_the_core_has_forgotten_count_towards_their_limit() {
        let mut waiting = Waiting::of_at_most(MOST);
        let others = (0..100).map(|it| (RecordKey::Instance(format!("{it}").into()), None));
        assert_eq!(waiting.merge(others), 0);
        // Those that are remembered wait as any record does.
        assert_eq!(waiting.merge((1..=50).map(ended)), 0);
        let lost = waiting.merge((1..=3).map(forgotten));
        assert_eq!((lost, ends(&waiting)), (0, 50));
    }

    #[test]
    fn ends_beyond_the_limit_are_lost_and_counted() {
        let mut waiting = Waiting::of_at_most(MOST);
        waiting.merge((1..=5).map(ended));
        assert_eq!(waiting.merge((1..=5).map(forgotten)), 2);
        assert_eq!((waiting.lost, ends(&waiting)), (2, 3));
        // Said twice of one, it is one.
        assert_eq!(waiting.merge([forgotten(1), forgotten(5)]), 0);
    }

    #[test]
    fn the_limit_is_one_for_what_is_tried_again_and_what_came_meanwhile() {
        let mut tried = Waiting::of_at_most(MOST);
        tried.merge((1..=2).map(ended));
        tried.merge((1..=2).map(forgotten));
        let mut meanwhile = Waiting::of_at_most(MOST);
        meanwhile.merge((3..=7).map(ended));
        assert_eq!(meanwhile.merge((3..=6).map(forgotten)), 1);
        let rest = meanwhile.take();
        assert_eq!((meanwhile.lost, ends(&meanwhile)), (0, 0));
        assert_eq!(tried.merge_later(rest), 2);
        // Those of 1, 2, one of 3 to 5, and 7, which is remembered.
        assert_eq!((tried.lost, ends(&tried)), (3, 4));
        assert_eq!(tried.forgotten.len(), MOST);
    }

    #[test]
    fn an_end_of_which_the_first_try_failed_stays_once_it_is_forgotten() {
        let mut tried = Waiting::of_at_most(MOST);
        tried.merge([ended(1)]);
        let mut meanwhile = Waiting::of_at_most(MOST);
        meanwhile.merge([forgotten(1)]);
        assert_eq!(tried.merge_later(meanwhile.take()), 0);
        assert_eq!(ends(&tried), 1);
    }
}
