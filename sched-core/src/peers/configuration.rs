//! The cluster configuration as peers are told it.

use bytes::Bytes;

use crate::api::input::Dialect;
use crate::peers::Peers;

/// The cluster configuration as peers are sent it, byte for byte.
#[derive(Debug, Default)]
pub(crate) struct ClusterPayload {
    /// For native peers.
    pub(crate) native: Bytes,
    /// For original peers.
    pub(crate) original: Bytes,
}

impl Peers {
    /// The cluster configuration, for a peer that understands this.
    pub(crate) fn configuration(&self, dialect: Dialect) -> Bytes {
        match dialect {
            Dialect::Native => self.configuration.native.clone(),
            Dialect::Original => self.configuration.original.clone(),
        }
    }

    /// Peers that connect from now on are told another configuration.
    pub(crate) fn set_configuration(&mut self, configuration: ClusterPayload) {
        self.configuration = configuration;
    }
}
