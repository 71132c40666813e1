//! Host names of nodes by their UUIDs, for lines that would show a UUID alone.
//!
//! The cache lives as long as a command. A node can get another host name when it connects again: `watch` then forgets
//! it.

use std::collections::HashMap;

use proto_frames::payload::{NodeView, QueryKind};

use crate::ctl::client::{Client, ClientError};
use crate::ctl::units::short;

/// Up to so many nodes are asked about one by one; of more, all are listed.
const FEW: usize = 8;

/// Most names that are remembered: those of the largest cluster there may be.
///
/// Beyond it everything is forgotten and learned as it is needed.
const MAX_HOSTS: usize = 100_000;

/// What is known of host names.
///
/// From node UUID to host name. A node that is not in it is shown by the beginning of its UUID.
#[derive(Debug, Clone, Default)]
pub struct Hosts(HashMap<String, String>);

impl Hosts {
    /// The host names of these nodes, as far as the scheduler has them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn of<'a>(
        client: &mut Client,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<Self, ClientError> {
        let mut hosts = Self::default();
        hosts.learn(client, nodes).await?;
        Ok(hosts)
    }

    /// Asks for the host names of those of these nodes that are not known.
    ///
    /// One query for each unknown node if they are few, else one for all nodes. Empty UUIDs and known nodes cost
    /// nothing.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn learn<'a>(
        &mut self,
        client: &mut Client,
        nodes: impl Iterator<Item = &'a str>,
    ) -> Result<(), ClientError> {
        let mut unknown: Vec<&str> = Vec::new();
        for node in nodes.filter(|node| !node.is_empty()) {
            if !self.0.contains_key(node) && !unknown.contains(&node) {
                unknown.push(node);
            }
        }
        if self.0.len() + unknown.len() > MAX_HOSTS {
            self.0.clear();
        }
        if unknown.len() > FEW {
            let listing = client.list(QueryKind::Nodes, None).await?;
            let named = listing.nodes.into_iter();
            self.take(named);
        } else {
            for node in &unknown {
                let listing = client.list(QueryKind::Nodes, Some(node)).await?;
                self.take(listing.nodes.into_iter());
            }
        }
        Ok(())
    }

    /// Stores the names of nodes that have one.
    ///
    /// Only names are stored. An empty one is not, so that the node is looked up again.
    fn take(&mut self, nodes: impl Iterator<Item = NodeView>) {
        let named = nodes.filter(|node| !node.hostname.is_empty());
        self.0.extend(named.map(|it| (it.node_uuid, it.hostname)));
    }

    /// Forgets a node whose name may come to be known, or be another one.
    pub fn forget(&mut self, node_uuid: &str) {
        self.0.remove(node_uuid);
    }

    /// `node-a (4cb19522)`, or what is known of it.
    ///
    /// Empty for an empty UUID.
    #[must_use]
    pub fn named(&self, node_uuid: &str) -> String {
        match self.0.get(node_uuid).map(String::as_str) {
            None => short(node_uuid).to_owned(),
            Some(host) => format!("{host} ({})", short(node_uuid)),
        }
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Hosts {
    /// Nodes and their names.
    ///
    /// For tests.
    fn from(named: [(&str, &str); N]) -> Self {
        let owned = named.map(|(node, host)| (node.to_owned(), host.to_owned()));
        Self(owned.into())
    }
}
