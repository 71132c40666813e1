//! What waits for peers that only listen, all of them together, and for controllers: each has a limit of its own
//! ([`super::delivery`]), but sessions cost nothing, so the limit of one says little about many.
//!
//! ```text
//! push to a listener ── counted in one budget ── exceeded? ── the certificate with most unread bytes, of it the session
//!                                                             with most, and so on, are disconnected until a quarter is free
//! ```
//!
//! So whoever opens hundreds of sessions and reads none of them loses those, and not the dashboard of another, which
//! has a second's events unread.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use proto_frames::Role;

use super::{Hub, InputBatch, LISTENER, PeerState};
use crate::net::budget::{Budget, Pace};
use crate::server::connection_limit::CertificateId;
use crate::server::limits::{MAX_UNREAD_CONTROLLERS, MAX_UNREAD_LISTENERS};
use crate::server::notices::Weight;
use sched_core::{Scheduler, SessionId};

/// Bytes that wait, by whom they wait for. Both are only counted in: nobody waits for them.
#[derive(Debug)]
pub(super) struct Unread {
    /// For operators and viewers.
    pub(super) listeners: Arc<Budget>,
    /// For controllers.
    controllers: Arc<Budget>,
}

impl Default for Unread {
    fn default() -> Self {
        Self {
            listeners: Budget::new(MAX_UNREAD_LISTENERS, Pace::Budget),
            controllers: Budget::new(MAX_UNREAD_CONTROLLERS, Pace::Budget),
        }
    }
}

impl Unread {
    fn of(&self, role: Role) -> Option<&Arc<Budget>> {
        if role.contains(Role::CONTROLLER) {
            Some(&self.controllers)
        } else if role.intersects(LISTENER) {
            Some(&self.listeners)
        } else {
            None
        }
    }
}

impl Hub {
    /// What the queue of a peer of this role counts in, beside its senders' budgets. `None` for launchers: there are as
    /// many as nodes, and what waits for one is its senders'.
    pub(in crate::server) fn unread_of(&self, role: Role) -> Option<Arc<Budget>> {
        self.unread.of(role).map(Arc::clone)
    }

    /// Whether more waits for peers of this role than may.
    pub(super) fn has_too_much_unread(&self, role: Role) -> bool {
        self.unread
            .of(role)
            .is_some_and(|budget| budget.is_exceeded())
    }

    /// Disconnects peers of this kind that do not read, until three quarters of what may wait for all of them are left.
    /// A walk over all peers, once in so many bytes.
    pub(super) fn disconnect_unread(
        &self,
        scheduler: &mut Scheduler,
        batch: &InputBatch<'_>,
        role: Role,
    ) {
        let Some(budget) = self.unread.of(role) else {
            return;
        };
        let mut total = 0;
        let mut by_certificate: BTreeMap<CertificateId, Sessions> = BTreeMap::new();
        for entry in &self.peers {
            let peer: &PeerState = entry.value();
            let bytes = peer.outbox.all_bytes();
            let is_one = self
                .unread
                .of(peer.role)
                .is_some_and(|its| Arc::ptr_eq(its, budget));
            if is_one && bytes > 0 {
                total += bytes;
                let of_certificate = by_certificate.entry(peer.origin.certificate).or_default();
                of_certificate.bytes += bytes;
                of_certificate.sessions.push((bytes, *entry.key()));
            }
        }
        for sessions in by_certificate.values_mut() {
            sessions.sessions.sort_unstable();
        }
        let most = budget.limit();
        while total > most / 4 * 3 {
            let largest = by_certificate
                .values_mut()
                .max_by_key(|sessions| sessions.bytes);
            let Some((sessions, (bytes, session))) =
                largest.and_then(|sessions| sessions.sessions.pop().map(|last| (sessions, last)))
            else {
                return;
            };
            sessions.bytes -= bytes;
            let why = TooMuchUnread { bytes, total, most };
            self.disconnect(scheduler, batch, session, Weight::Warning, why);
            total -= bytes;
        }
    }
}

/// The sessions of one certificate for which something waits.
#[derive(Default)]
struct Sessions {
    bytes: usize,
    /// With their bytes; in ascending order once all are in.
    sessions: Vec<(usize, SessionId)>,
}

/// Why a peer is disconnected although it is below its own limit.
struct TooMuchUnread {
    bytes: usize,
    total: usize,
    most: usize,
}

impl Display for TooMuchUnread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, total, most } = self;
        write!(
            f,
            "disconnected: {bytes} bytes wait for it, {total} for all peers of its kind, which may have {most} together; no \
             certificate has more of them unread"
        )
    }
}
