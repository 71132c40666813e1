//! UUIDs that belong to certificates. Once a UUID was claimed with a certificate that is bound to it, it is never given
//! to a peer with another certificate, also after a restart of the scheduler.
//!
//! Only data; `peers` decides with it who is let in, and `workflow::commit` puts it on disk.

use std::collections::BTreeSet;

use sched_model::Uuid;

use crate::api::config::MAX_BINDINGS;

/// The UUIDs known to be bound.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    uuids: BTreeSet<Uuid>,
}

/// What became of a UUID that was to be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// It is remembered from now on.
    Now,
    /// It was remembered before.
    Already,
    /// There are [`MAX_BINDINGS`] already. None of them is forgotten for it: that would let anyone claim that UUID.
    NoRoom,
}

impl Bindings {
    /// Whether a UUID is remembered.
    pub(crate) fn contains(&self, uuid: Uuid) -> bool {
        self.uuids.contains(&uuid)
    }

    /// Whether no further one is remembered.
    pub(crate) fn is_full(&self) -> bool {
        self.uuids.len() >= MAX_BINDINGS
    }

    /// Remembers a UUID.
    pub(crate) fn insert(&mut self, uuid: Uuid) -> Bound {
        if self.contains(uuid) {
            Bound::Already
        } else if self.is_full() {
            Bound::NoRoom
        } else {
            self.uuids.insert(uuid);
            Bound::Now
        }
    }
}
