//! What is remembered of a node while it is not connected.

use core::net::SocketAddr;
use std::fmt;

use sched_model::{Role, Uuid};

/// A node as it is remembered over a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownNode {
    /// Its UUID.
    pub uuid: Uuid,
    /// Its roles; [`Role`] 0 where they are not known.
    pub roles: Role,
    /// The host name it reported; empty where it is not known.
    pub hostname: Box<str>,
    /// Where its last connection came from.
    pub address: Option<SocketAddr>,
    /// Instances it had when its connection ended; 0 while it is connected.
    pub instances: u64,
    /// Since when it is lost, milliseconds of Unix time; `None` while it is connected or expected back.
    pub lost_since_ms: Option<u64>,
    /// Whether it was known for less than an hour when it was lost, with nothing on it: then it is forgotten an hour
    /// later. Anyone with a launcher's certificate can make such nodes, as many as they like.
    pub is_brief: bool,
}

impl From<Uuid> for KnownNode {
    /// A node of which no more is known, and that is expected back.
    fn from(uuid: Uuid) -> Self {
        Self {
            uuid,
            roles: Role(0),
            hostname: "".into(),
            address: None,
            instances: 0,
            lost_since_ms: None,
            is_brief: false,
        }
    }
}

impl fmt::Display for KnownNode {
    /// `node host-3 (4cb19522-…) at 10.0.0.3:40112`, as far as that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.hostname {
            "" => write!(f, "node {}", self.uuid)?,
            hostname => write!(f, "node {hostname} ({})", self.uuid)?,
        }
        match self.address {
            Some(address) => write!(f, " at {address}"),
            None => Ok(()),
        }
    }
}
