//! Whether the certificate of a connection by HTTP has been revoked since its handshake.

use crate::net::tls::{PeerChain, Revocation};
use crate::server::credentials::Live;

/// Waits until a list that is in force revokes one of these certificates. Looks at once, because there may be a new list
/// since the handshake began, and after each reload.
pub(super) async fn revoked(credentials: &Live, chain: PeerChain) -> Revocation {
    let mut taken = credentials.taken();
    loop {
        taken.borrow_and_update();
        if let Some(revocation) = credentials.now().anchors.revocation(&chain) {
            return revocation;
        }
        if taken.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
