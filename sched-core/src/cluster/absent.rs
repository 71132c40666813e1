//! Nodes that are not connected and were: lost and given up, or known before a restart and expected back.
//!
//! They stay in lists until they return or an operator forgets them, so that the loss of a machine is visible as long
//! as it matters. Bounded, and kept over restarts as part of the known nodes (`workflow::absent`). Claims on them are
//! not kept here.

use std::collections::{BTreeMap, BTreeSet};

use sched_model::Uuid;
use sched_model::cut::cut;

use crate::api::known_node::KnownNode;
use crate::cluster::query::Query;

/// Absent nodes that are remembered: as many as the largest cluster this is built for has nodes. Beyond that the one
/// that has been absent longest is forgotten.
pub const MAX_ABSENT_NODES: usize = 100_000;

/// Bytes of a host name that are remembered of an absent node: the longest that DNS allows is 253.
pub const MAX_HOSTNAME_LEN: usize = 255;

/// All absent nodes, by UUID; nodes in the store are never among them.
#[derive(Debug, Clone, Default)]
pub(crate) struct AbsentNodes {
    by_uuid: BTreeMap<Uuid, KnownNode>,
    /// The lost ones by the time of their loss.
    by_loss: BTreeSet<(u64, Uuid)>,
    /// Those of them that were known only briefly.
    brief: BTreeSet<(u64, Uuid)>,
}

impl AbsentNodes {
    /// Remembers a node, in place of what was known of it. Returns the one that was forgotten to make room: the one
    /// lost longest ago, or any if none of them is lost. A long host name is cut.
    pub(super) fn insert(&mut self, mut node: KnownNode) -> Option<KnownNode> {
        self.remove(node.uuid);
        if node.hostname.len() > MAX_HOSTNAME_LEN {
            node.hostname = cut(&node.hostname, MAX_HOSTNAME_LEN).into();
        }
        let forgotten = if self.by_uuid.len() >= MAX_ABSENT_NODES {
            let longest = self.by_loss.first().map(|(_, uuid)| *uuid);
            let any = || self.by_uuid.keys().next().copied();
            longest.or_else(any).and_then(|uuid| self.remove(uuid))
        } else {
            None
        };
        if let Some(since_ms) = node.lost_since_ms {
            self.by_loss.insert((since_ms, node.uuid));
            if node.is_brief {
                self.brief.insert((since_ms, node.uuid));
            }
        }
        self.by_uuid.insert(node.uuid, node);
        forgotten
    }

    /// Forgets a node; returns what was known of it.
    pub(super) fn remove(&mut self, uuid: Uuid) -> Option<KnownNode> {
        let node = self.by_uuid.remove(&uuid)?;
        if let Some(since_ms) = node.lost_since_ms {
            self.by_loss.remove(&(since_ms, uuid));
            self.brief.remove(&(since_ms, uuid));
        }
        Some(node)
    }

    /// Since when the first one is lost that was known only briefly, in unix milliseconds.
    pub(super) fn first_brief(&self) -> Option<u64> {
        self.brief.first().map(|(since_ms, _)| *since_ms)
    }

    /// Forgets that one.
    pub(super) fn forget_first_brief(&mut self) -> Option<KnownNode> {
        let (_, uuid) = *self.brief.first()?;
        self.remove(uuid)
    }

    /// Whether the one node or host that a query names is absent: then it may come back, and waiting could help. By
    /// host name this walks over all of them.
    pub(super) fn has_what_is_named_by(&self, query: &Query) -> bool {
        let by_uuid = |uuid| self.get(uuid).is_some();
        let by_host = |host: &str| self.iter_from(Uuid::nil()).any(|it| *it.hostname == *host);
        match query.node() {
            Some(node) => node.is_some_and(by_uuid),
            None => query.hostname().is_some_and(by_host),
        }
    }

    /// One of them.
    pub(super) fn get(&self, uuid: Uuid) -> Option<&KnownNode> {
        self.by_uuid.get(&uuid)
    }

    /// Those from a UUID on, in order.
    pub(super) fn iter_from(&self, first: Uuid) -> impl Iterator<Item = &KnownNode> {
        self.by_uuid.range(first..).map(|(_, node)| node)
    }

    /// Whether its index has the lost ones, each once.
    pub(super) fn is_consistent(&self) -> bool {
        let lost = self.by_uuid.values();
        let mut lost = lost.filter_map(|node| Some((node.lost_since_ms?, node.uuid)));
        let count = lost.clone().count();
        count == self.by_loss.len() && lost.all(|lost| self.by_loss.contains(&lost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(number: u128, since_ms: u64) -> KnownNode {
        KnownNode {
            lost_since_ms: Some(since_ms),
            ..KnownNode::from(Uuid::from_u128(number))
        }
    }

    #[test]
    fn beyond_the_limit_the_one_absent_longest_is_forgotten() {
        let mut absent = AbsentNodes::default();
        for number in 0..MAX_ABSENT_NODES as u64 {
            let node = lost(number.into(), 1_000_000 - number);
            assert_eq!(absent.insert(node), None);
        }
        let longest = MAX_ABSENT_NODES as u64 - 1;
        let forgotten = absent.insert(lost(1 << 64, 5)).map(|node| node.uuid);
        assert_eq!(forgotten, Some(Uuid::from_u128(longest.into())));
        assert_eq!(absent.by_uuid.len(), MAX_ABSENT_NODES);
        assert!(absent.is_consistent());
    }

    #[test]
    fn a_node_is_remembered_once_and_its_host_name_is_cut() {
        let mut absent = AbsentNodes::default();
        absent.insert(lost(1, 7));
        let name = "ä".repeat(MAX_HOSTNAME_LEN);
        absent.insert(KnownNode {
            hostname: name.into(),
            ..lost(1, 9)
        });
        assert_eq!((absent.by_uuid.len(), absent.by_loss.len()), (1, 1));
        let node = absent.get(Uuid::from_u128(1)).unwrap();
        assert!(node.hostname.len() <= MAX_HOSTNAME_LEN);
        assert!(node.hostname.ends_with('…'));
        assert_eq!(
            absent.remove(Uuid::from_u128(1)).unwrap().lost_since_ms,
            Some(9)
        );
        assert_eq!((absent.by_uuid.len(), absent.by_loss.len()), (0, 0));
    }
}
