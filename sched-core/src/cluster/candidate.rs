//! One node with what it has free: what filters, weighers and expressions look at.

use std::time::Instant;

use sched_model::Uuid;

use crate::api::ids::NodeKey;
use crate::api::input::{Capabilities, NodeReport};
use crate::api::resources::Resources;
use crate::cluster::facts;
use crate::cluster::isolation::ByAggregates;
use crate::cluster::labels;
use crate::cluster::node::Node;
use crate::cluster::nodes::NodeStore;

/// What stands before an image's name in the label of nodes that have it.
const IMAGE: &str = "image.";

/// The key of the label of nodes that have an image.
pub(crate) fn image_label(name: &str) -> String {
    format!("{IMAGE}{name}")
}

/// One node that may be chosen, with what it has free.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) key: NodeKey,
    node: &'a Node,
    pub(crate) free: Resources,
    now: Instant,
}

impl<'a> Candidate<'a> {
    /// A node that has so much free.
    pub(crate) fn new(nodes: &'a NodeStore, key: NodeKey, free: Resources, now: Instant) -> Self {
        let node = nodes.node(key);
        Self {
            key,
            node,
            free,
            now,
        }
    }

    /// Its UUID.
    pub(crate) fn uuid(&self) -> Uuid {
        self.node.uuid
    }

    /// The host name it reported; empty before.
    pub(crate) fn hostname(&self) -> &'a str {
        self.node.hostname()
    }

    /// Its latest report.
    pub(crate) fn report(&self) -> Option<&'a NodeReport> {
        self.node.report.as_deref()
    }

    /// Its labels.
    pub(super) fn labels(&self) -> &'a [(Box<str>, Box<str>)] {
        &self.node.traits.labels
    }

    /// The values of one of its labels.
    pub(crate) fn label<'k>(&self, key: &'k str) -> impl Iterator<Item = &'a str> + use<'a, 'k> {
        labels::values_of(self.labels(), key)
    }

    /// Whether its launcher can do all of this.
    pub(crate) fn can(&self, what: Capabilities) -> bool {
        self.node.can(what)
    }

    /// Whether its launcher can be sent what the original's do not know.
    pub(crate) fn is_native(&self) -> bool {
        self.node.is_native
    }

    /// Whether it says that it has an image: by the label `image.NAME`.
    pub(crate) fn has_image(&self, name: &str) -> bool {
        let labels = self.labels();
        let of_images = &labels[labels.partition_point(|(key, _)| &**key < IMAGE)..];
        let mut names = of_images
            .iter()
            .map_while(|(key, _)| key.strip_prefix(IMAGE));
        names.any(|other| other == name)
    }

    /// Whether it reports a volume or port.
    pub(crate) fn has_volume(&self, id: &str) -> bool {
        self.label(facts::VOLUME).any(|it| it == id)
    }

    /// Instances in its ledger.
    pub(crate) fn instances(&self) -> usize {
        self.node.ledger.len()
    }

    /// STARTs given to it that have no outcome.
    pub(crate) fn starts_under_way(&self) -> usize {
        self.node.ledger.unconfirmed()
    }

    /// Processors that its instances use, as their launcher measured last, in per cent of one.
    pub(crate) fn cpu_use(&self) -> i64 {
        self.node.ledger.cpu_use()
    }

    /// What aggregates say of it; `None` where they say nothing.
    pub(crate) fn by_aggregates(&self) -> Option<&'a ByAggregates> {
        self.node.traits.by_aggregates.as_deref()
    }

    /// Its recent failures; each counts less with time.
    pub(crate) fn failures(&self) -> f64 {
        self.node.failures.at(self.now)
    }

    /// Whether it has said what runs on it.
    pub(crate) fn has_listed(&self) -> bool {
        self.node.has_listed
    }
}
