//! What tells one START of an instance from another.

use core::num::NonZeroU64;
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;

/// A hash of a START's whole payload, not a cryptographic one: a sender that makes two STARTs collide harms only itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content(NonZeroU64);

impl Content {
    /// That of a payload.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        let hash = FixedState::default().hash_one(payload);
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }
}
