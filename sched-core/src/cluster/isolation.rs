//! What aggregates say beyond labels, zones and tenants: which images have their nodes to themselves, how much one of
//! their nodes takes, and how weighers count there. The filters are `placement::filters::{images, aggregate_limits}`.

use indexmap::IndexSet;

use crate::api::rules::Aggregate;

/// What all aggregates together say that concerns nodes outside them as well.
#[derive(Debug, Clone, Default)]
pub(crate) struct Isolation {
    /// Images that may run only on members of their aggregates, even where an aggregate has no member.
    images: IndexSet<Box<str>>,
    /// Whether any aggregate limits what one node takes.
    has_limits: bool,
}

/// What the aggregates that one node is in say of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ByAggregates {
    /// Most instances on it.
    max_instances: Option<i64>,
    /// Most STARTs under way to it.
    max_starts: Option<i64>,
    /// By how much weighers count there, in place of what the policy says; each weigher once.
    multipliers: Vec<(Box<str>, f64)>,
}

impl Isolation {
    /// Made once for each configuration.
    pub(crate) fn new(aggregates: &[Aggregate]) -> Self {
        let images = aggregates.iter().flat_map(|it| &it.images);
        let is_limit = |it: &Aggregate| it.max_instances.or(it.max_starts).is_some();
        Self {
            images: images.cloned().collect(),
            has_limits: aggregates.iter().any(is_limit),
        }
    }

    /// Whether nodes may be ruled out even for a START that asks for room alone.
    #[inline]
    pub(crate) fn concerns_all(&self) -> bool {
        self.has_limits || !self.images.is_empty()
    }

    /// Whether any aggregate limits what one node takes.
    pub(crate) fn has_limits(&self) -> bool {
        self.has_limits
    }

    /// Whether any image has nodes of its own.
    pub(crate) fn has_images(&self) -> bool {
        !self.images.is_empty()
    }

    /// Whether an image runs on the nodes for it alone.
    pub(crate) fn is_isolated(&self, image: &str) -> bool {
        self.images.contains(image)
    }
}

impl ByAggregates {
    /// Adds an aggregate that the node is in. Where several set a limit or a multiplier, the least counts.
    pub(crate) fn add(&mut self, aggregate: &Aggregate) {
        let least = |one: Option<i64>, two: Option<i64>| match (one, two) {
            (Some(one), Some(two)) => Some(one.min(two)),
            (one, two) => one.or(two),
        };
        self.max_instances = least(self.max_instances, aggregate.max_instances);
        self.max_starts = least(self.max_starts, aggregate.max_starts);
        for (name, multiplier) in &aggregate.multipliers {
            match self.multipliers.iter_mut().find(|(other, _)| other == name) {
                Some((_, least)) => *least = least.min(*multiplier),
                None => self.multipliers.push((name.clone(), *multiplier)),
            }
        }
    }

    /// Most instances on it.
    pub(crate) fn max_instances(&self) -> Option<i64> {
        self.max_instances
    }

    /// Most STARTs under way to it.
    pub(crate) fn max_starts(&self) -> Option<i64> {
        self.max_starts
    }

    /// By how much a weigher counts on this node; `None` for the policy's multiplier.
    pub(crate) fn multiplier(&self, weigher: &str) -> Option<f64> {
        let mut all = self.multipliers.iter();
        all.find(|(name, _)| **name == *weigher).map(|(_, it)| *it)
    }
}
