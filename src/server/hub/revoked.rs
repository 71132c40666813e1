//! Ending the sessions of peers whose certificates were revoked while they were connected.
//!
//! Each session keeps what its peer's chain was made of ([`PeerChain`]); after a reload all of them are held against the
//! lists that are in force then. A connection whose handshake was made with the lists before is held against the new ones
//! once it is listed, so that between the two none is missed: the new lists are in force before the walk begins.

use std::fmt::{self, Display};
use std::sync::Arc;

use super::{Hub, PeerState};
use crate::net::tls::{PeerChain, Revocation, TrustAnchors};
use crate::server::notices::Weight;
use sched_core::SessionId;

/// Sessions that are ended in one hold of the core's lock: losing a node takes the core some time.
const AT_ONCE: usize = 32;

/// Why a session is ended, behind role and UUID in the log.
struct CertificateRevoked(Revocation);

impl Display for CertificateRevoked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "disconnected: its certificate, or a CA's above it, is {}",
            self.0
        )
    }
}

impl PeerState {
    fn chain(&self) -> &PeerChain {
        &self.origin.chain
    }
}

impl Hub {
    /// Ends the sessions whose peers' certificates these anchors' lists revoke. What waited for such a peer is answered as
    /// where its connection breaks off. Returns how many there were.
    pub(in crate::server) fn end_revoked(&self, anchors: &TrustAnchors) -> usize {
        if !anchors.has_crls() {
            return 0;
        }
        let found = self.peers.iter().filter_map(|peer| {
            let revocation = anchors.revocation(peer.chain())?;
            Some((*peer.key(), revocation))
        });
        let mut found: Vec<_> = found.collect();
        let count = found.len();
        while !found.is_empty() {
            let some = found.split_off(found.len().saturating_sub(AT_ONCE));
            self.end_these(some);
        }
        count
    }

    /// The same for one session that has just been listed.
    pub(in crate::server) fn end_if_revoked(
        &self,
        session: SessionId,
        peer: &Arc<PeerState>,
        anchors: &TrustAnchors,
    ) {
        if let Some(revocation) = anchors.revocation(peer.chain()) {
            self.end_these(vec![(session, revocation)]);
        }
    }

    fn end_these(&self, sessions: Vec<(SessionId, Revocation)>) {
        self.in_batch(None, |batch, scheduler| {
            for (session, revocation) in sessions {
                let why = CertificateRevoked(revocation);
                self.disconnect(scheduler, batch, session, Weight::Warning, why);
            }
            self.dispatch(scheduler, batch);
        });
    }
}
