//! Reading files again while the daemon runs: what a new handshake shows, what becomes of sessions, and what a mistake
//! changes, which is nothing.

use std::path::Path;

use ciao_scheduler::cert::{Anchor, CertifiedPem, Spec};
use proto_frames::{Encoding, Kind, Role};

use crate::certs::write_private;
use crate::peer::{Dialer, Peer};
use crate::site::Site;

mod levels;
pub(crate) mod load;
mod mistakes;
pub(crate) mod ways;

/// What is logged of a reload that is taken.
pub(crate) const TAKEN: &str = "event=files_reloaded";
/// What is logged of one that is not.
pub(crate) const REFUSED: &str = "event=reload_refused";

/// The serial number of the certificate that the scheduler shows to a new connection.
pub(crate) async fn shown_serial(dialer: &Dialer) -> Vec<u8> {
    let wire = dialer.tls().await.unwrap();
    let (_, tls) = wire.stream.get_ref();
    serial(&tls.peer_certificates().unwrap()[0])
}

/// That of a certificate in DER form.
pub(crate) fn serial(der: &[u8]) -> Vec<u8> {
    let (_, x509) = x509_parser::parse_x509_certificate(der).unwrap();
    x509.raw_serial().to_vec()
}

/// That of the first certificate in PEM text.
pub(crate) fn serial_of(pem: &str) -> Vec<u8> {
    let (_, block) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    serial(&block.contents)
}

/// Another certificate for the scheduler.
pub(crate) fn renewed(anchor: &Anchor) -> CertifiedPem {
    anchor.sign(&Spec::localhost(Role::SCHEDULER)).unwrap()
}

/// Puts a file in the place of another in one step, as tools do that renew certificates.
pub(crate) fn replace(path: &Path, contents: &str) {
    let next = path.with_extension("next");
    write_private(&next, contents);
    std::fs::rename(next, path).unwrap();
}

/// A peer that was there before still is, and is heard.
pub(crate) async fn is_heard(peer: &mut Peer) {
    peer.send(crate::peer::NO_SUCH_TYPE, "").await;
    peer.expect(Kind::INVALID_FRAME_TYPE).await;
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_who_connects_after_sighup_and_nobody_is_disconnected() {
    let site = Site::new();
    let daemon = site.start(&[]).await;
    let dialer = site.dialer(&daemon, Role::AGENT, Encoding::Native);
    let mut node = site.node(&daemon).await;
    let mut original = site.connect(&daemon, Role::AGENT, Encoding::Gob).await;
    let old = shown_serial(&dialer).await;
    let next = renewed(&site.ca.anchor);
    replace(&site.path("scheduler.pem"), next.pem());
    assert_eq!(shown_serial(&dialer).await, old, "nothing is read unasked");
    daemon.hang_up();
    daemon.logged(TAKEN).await;
    let new = shown_serial(&dialer).await;
    assert_eq!(new, serial_of(next.pem()));
    assert_ne!(new, old);
    is_heard(&mut node).await;
    is_heard(&mut original).await;
}
