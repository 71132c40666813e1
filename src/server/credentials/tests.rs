//! Credentials for tests of doors without handshakes.

use std::path::Path;

use rustls::pki_types::UnixTime;

use super::*;
use crate::cert::{Anchor, Spec};
use crate::net::tls::KeyFiles;

/// Credentials made on the spot, with the tokens in a file if there is one. For doors that are tested without
/// handshakes.
pub(in crate::server) fn live(tokens: Option<&Path>) -> Arc<Live> {
    let anchor = Anchor::new(&Spec::localhost(Role::SCHEDULER)).unwrap();
    let (path, now) = (Path::new("test.pem"), UnixTime::now());
    let pem = anchor.certified().pem();
    let identity = Identity::from_pem(pem.as_bytes(), path, now).unwrap();
    let anchors = TrustAnchors::from_pem(anchor.ca_pem().as_bytes(), path, now).unwrap();
    let tokens = tokens.map(|path| Digests::load(path, KeyFiles::Lenient).unwrap());
    let tls = || tls::token_config(&identity).unwrap();
    Live::new(Credentials {
        frames: tls(),
        http: Some(tls()),
        placement: tokens.map(|tokens| (tls(), Arc::new(tokens))),
        fingerprint: identity.peer().fingerprint,
        certificates: vec![identity.expiry(), anchors.expiry()],
        anchors,
    })
}
