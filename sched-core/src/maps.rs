//! The maps that every START looks something up in. They keep the order of insertion whatever the hash, and hash with
//! `foldhash`, several times faster for a UUID than the standard library's SipHash. Its seed is drawn at random by each
//! process, so that keys that collide cannot be chosen without seeing hashes; keys are chosen by controllers and
//! launchers with a certificate of the cluster.

use foldhash::fast::RandomState;
use indexmap::IndexMap;

/// An [`IndexMap`] with a fast hash.
pub(crate) type Map<K, V> = IndexMap<K, V, RandomState>;
