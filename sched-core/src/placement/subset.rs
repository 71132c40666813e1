//! Some of a list, in its order, without a list of their own: what one search picks from the filters and weighers of a
//! policy costs it no allocation.

/// Most entries of a list of which a [`Subset`] can be made: one bit for each.
pub(crate) const MAX_ENTRIES: usize = u64::BITS as usize;

/// Those entries of a list that were picked.
#[derive(Debug)]
pub(crate) struct Subset<'a, T> {
    all: &'a [T],
    /// Bit `n` stands for entry `n`.
    picked: u64,
}

impl<T> Clone for Subset<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Subset<'_, T> {}

impl<'a, T> Subset<'a, T> {
    /// The entries for which `pick` says yes, asked once for each. The list must not have more than [`MAX_ENTRIES`]:
    /// those behind are never picked.
    pub(crate) fn new(all: &'a [T], pick: impl Fn(&T) -> bool) -> Self {
        debug_assert!(all.len() <= MAX_ENTRIES);
        let mut picked = 0;
        for (at, entry) in all.iter().take(MAX_ENTRIES).enumerate() {
            picked |= u64::from(pick(entry)) << at;
        }
        Self { all, picked }
    }

    /// Whether none was picked.
    pub(crate) fn is_empty(self) -> bool {
        self.picked == 0
    }

    /// Those that were picked, in the order of the list.
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a T> {
        let mut left = self.picked;
        std::iter::from_fn(move || {
            let at = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            self.all.get(at)
        })
    }
}

impl<T> std::ops::Index<usize> for Subset<'_, T> {
    type Output = T;

    /// The entry with this place among those that were picked.
    ///
    /// # Panics
    /// Where fewer were picked, as a slice does.
    fn index(&self, at: usize) -> &T {
        self.iter().nth(at).expect("an index within the subset")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subset_has_what_was_picked_in_the_order_of_the_list() {
        let all: Vec<usize> = (0..MAX_ENTRIES).collect();
        let none = Subset::new(&all, |_| false);
        assert!(none.is_empty());
        assert_eq!(none.iter().count(), 0);
        for pick in [
            |n: &usize| n.is_multiple_of(3),
            |n: &usize| *n == 0,
            |n: &usize| *n == 63,
            |_: &usize| true,
        ] {
            let subset = Subset::new(&all, pick);
            assert!(!subset.is_empty());
            let expected: Vec<&usize> = all.iter().filter(|n| pick(n)).collect();
            assert_eq!(subset.iter().collect::<Vec<_>>(), expected);
            assert_eq!(&subset[expected.len() - 1], expected[expected.len() - 1]);
        }
        assert!(Subset::new(&[] as &[usize], |_| true).is_empty());
    }
}
