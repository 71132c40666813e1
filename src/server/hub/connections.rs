//! What metrics tell of connections: how far they came, what is queued for them, and who takes nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use proto_frames::Role;

use super::{Hub, LISTENER};

/// How far a connection came. Each TLS handshake is counted once, when that is decided. The numbers of the variants are
/// indexes of [`Handshakes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Came {
    /// It is a session, or serves requests.
    In,
    /// It closed before its handshake was over.
    Closed,
    /// It had to leave for others, or was too slow.
    TurnedAway,
    /// It was refused.
    Refused,
}

/// How many connections came how far. In the order of [`Came`], which is the order of the words in [`Hub::handshakes`].
#[derive(Debug, Default)]
pub(super) struct Handshakes([AtomicU64; 4]);

impl Hub {
    /// Notes how far a connection came.
    pub(in crate::server) fn note_handshake(&self, came: Came) {
        self.handshakes.0[came as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many connections came how far since the process started, with the words that the metric has as values of its
    /// label.
    pub(in crate::server) fn handshakes(&self) -> [(&'static str, u64); 4] {
        let words = ["established", "closed", "turned_away", "refused"];
        let mut at = 0;
        words.map(|word| {
            let count = self.handshakes.0[at].load(Ordering::Relaxed);
            at += 1;
            (word, count)
        })
    }

    /// Bytes queued for peers by role, and how many peers take nothing. Not under the scheduler's lock. Takes each
    /// peer's `queue` lock in turn; the sums are of slightly different moments, which is good enough for a metric.
    pub(in crate::server) fn queue_totals(&self) -> ([(&'static str, u64); 4], u64) {
        let mut bytes = [
            ("controller", 0),
            ("operator", 0),
            ("launcher", 0),
            ("other", 0),
        ];
        let mut stalled = 0;
        for peer in &self.peers {
            let at = match peer.role {
                role if role.contains(Role::CONTROLLER) => 0,
                role if role.intersects(LISTENER) => 1,
                role if role.intersects(Role::AGENT | Role::NETAGENT) => 2,
                _ => 3,
            };
            bytes[at].1 += peer.outbox.bytes() as u64;
            stalled += u64::from(peer.queue.lock().is_stalled());
        }
        (bytes, stalled)
    }
}
