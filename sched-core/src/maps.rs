//! The maps that every START looks something up in. They keep the order of insertion whatever the hash, and hash with
//! `foldhash`, several times faster for a UUID than the standard library's SipHash. Its seed is drawn at random by each
//! process, so that keys that collide cannot be chosen without seeing hashes; keys are chosen by controllers and
//! launchers with a certificate of the cluster.

use std::hash::{BuildHasher, Hash};

use foldhash::fast::RandomState;
use indexmap::{Equivalent, IndexMap};

/// An [`IndexMap`] with a fast hash.
pub(crate) type Map<K, V> = IndexMap<K, V, RandomState>;

/// Changes the value of a key, if it has one, and takes the key out where `stays` says that nothing is left of it.
pub(crate) fn change_or_drop<K, V, S: BuildHasher, Q: ?Sized + Hash + Equivalent<K>>(
    map: &mut IndexMap<K, V, S>,
    key: &Q,
    stays: impl FnOnce(&mut V) -> bool,
) {
    if map.get_mut(key).is_some_and(|value| !stays(value)) {
        map.swap_remove(key);
    }
}
