//! Places for requests that take something for long, with a limit in all and a limit for each caller: a semaphore alone
//! would let one client hold all places. Used for readers of output and for uploads of images.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// A caller: the SHA-256 of its certificate. Connections of one client count together, however many it opens.
pub(super) type CallerId = [u8; 32];

/// Places that are taken and given back.
#[derive(Debug)]
pub(super) struct Shares {
    /// Places in all.
    most: usize,
    /// Places that one caller may have.
    most_each: usize,
    taken: Mutex<Taken>,
}

/// Which are taken. The sum of `by_caller` is `count`; a caller without any has no entry, so that the map is no larger
/// than the number of places.
#[derive(Debug, Default)]
struct Taken {
    count: usize,
    by_caller: BTreeMap<CallerId, usize>,
}

/// One place; given back when dropped, so also when a request is cancelled.
#[derive(Debug)]
pub(super) struct Place {
    shares: Arc<Shares>,
    caller: CallerId,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoPlace {
    /// All are taken.
    Full,
    /// The caller has as many as one caller may have, which is this number.
    OwnShare(usize),
}

impl Shares {
    /// `most` places, of which one caller has at most `most_each`.
    pub(super) fn new(most: usize, most_each: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            most_each,
            taken: Mutex::default(),
        })
    }

    /// Takes a place, without waiting.
    ///
    /// # Errors
    /// [`NoPlace`], the caller's own limit first: that is the one that it can do something about.
    pub(super) fn take(self: &Arc<Self>, caller: CallerId) -> Result<Place, NoPlace> {
        let mut taken = self.taken.lock();
        let own = taken.by_caller.get(&caller).copied().unwrap_or_default();
        if own >= self.most_each {
            return Err(NoPlace::OwnShare(self.most_each));
        }
        if taken.count >= self.most {
            return Err(NoPlace::Full);
        }
        taken.count += 1;
        taken.by_caller.insert(caller, own + 1);
        Ok(Place {
            shares: Arc::clone(self),
            caller,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.shares.taken.lock();
        taken.count -= 1;
        let own = taken.by_caller.get(&self.caller).copied();
        match own.unwrap_or_default() {
            0 | 1 => drop(taken.by_caller.remove(&self.caller)),
            own => drop(taken.by_caller.insert(self.caller, own - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_caller_does_not_take_every_place_and_what_is_given_back_is_taken_again() {
        let shares = Shares::new(3, 2);
        let (a, b) = ([1; 32], [2; 32]);
        let first = shares.take(a).unwrap();
        let _second = shares.take(a).unwrap();
        assert_eq!(shares.take(a).unwrap_err(), NoPlace::OwnShare(2));
        let other = shares.take(b).unwrap();
        assert_eq!(shares.take(b).unwrap_err(), NoPlace::Full);
        drop(first);
        assert!(shares.take(b).is_ok());
        drop(other);
        assert!(!shares.taken.lock().by_caller.contains_key(&b));
    }
}
