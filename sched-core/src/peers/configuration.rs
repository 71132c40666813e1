//! The cluster configuration as peers are told it.

use bytes::Bytes;
use proto_frames::Encoding;

use crate::peers::Peers;

/// The cluster configuration as CONNECTED and CONFIGURE carry it, byte for byte.
#[derive(Debug, Default)]
pub(crate) struct ClusterPayload {
    /// For native peers.
    pub(crate) native: Bytes,
    /// For original peers.
    pub(crate) original: Bytes,
}

impl Peers {
    /// The cluster configuration, for a peer of this encoding.
    pub(crate) fn configuration(&self, encoding: Encoding) -> Bytes {
        match encoding {
            Encoding::Native => self.configuration.native.clone(),
            Encoding::Gob => self.configuration.original.clone(),
        }
    }

    /// Peers that connect from now on are told another configuration.
    pub(crate) fn set_configuration(&mut self, configuration: ClusterPayload) {
        self.configuration = configuration;
    }
}
