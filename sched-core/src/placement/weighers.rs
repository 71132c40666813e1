//! Weighers: of the nodes that may run a START, how good is each? The trait, and the list of all of them.
//!
//! A weigher's values are scaled to 0 … 1 over the nodes compared (the worst of them 0, the best 1), multiplied by its
//! multiplier and added up ([`super::policy::best`]). A negative multiplier reverses it, so that what spreads packs.
//! Example, with `free-memory` at 1.0 and `load` at -0.5:
//!
//! ```text
//!         free memory     load     score
//!  n1     8192 → 1.0      6 → 1.0    1.0 * 1.0 - 0.5 * 1.0 = 0.5
//!  n2     4096 → 0.5      2 → 0.0    1.0 * 0.5 - 0.5 * 0.0 = 0.5
//!  n3        0 → 0.0      4 → 0.5    1.0 * 0.0 - 0.5 * 0.5 = -0.25
//! ```
//!
//! To add one: a line in [`REGISTRY`] for a figure of the node alone, else a type that implements [`Weigher`].

use std::fmt::Debug;
use std::sync::Arc;

use sched_model::expression::is_name;

use crate::api::rules::{PREFER_MULTIPLIER, WeigherRule};
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;
use crate::placement::subset::Subset;

/// How good a node is for a START. Asked only about nodes that fit, and never a reason to reject one.
pub(crate) trait Weigher: Debug + Send + Sync {
    /// Its name in `policy.weighers` and in the multipliers of aggregates.
    fn name(&self) -> &str;

    /// Whether it can tell nodes apart for this START at all. Where no weigher does, nothing is weighed.
    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    /// How good the node is: the more, the better. Of any magnitude, since values are scaled, but finite.
    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64;
}

/// A weigher and by how much it counts.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    /// Shared, so that a copy for one search costs next to nothing.
    which: Which,
    /// By how much it counts where no aggregate of the node says otherwise; finite, and negative to prefer less.
    pub(super) multiplier: f64,
}

/// The weighers that tell nodes apart for one START.
pub(crate) type Weighing<'a> = Subset<'a, Weighted>;

/// A weigher: one of a fixed list, or one that the configuration made.
#[derive(Debug, Clone)]
enum Which {
    /// One of [`REGISTRY`].
    Fixed(&'static dyn Weigher),
    /// How much of a custom resource is free; its name comes from the configuration.
    Resource(Arc<FreeResource>),
}

impl Weighted {
    /// The weigher.
    pub(super) fn weigher(&self) -> &dyn Weigher {
        match &self.which {
            Which::Fixed(weigher) => *weigher,
            Which::Resource(weigher) => &**weigher,
        }
    }

    /// By how much it counts for a node: what an aggregate of that node says, else the policy. Of several aggregates
    /// the least counts.
    pub(super) fn multiplier_at(&self, node: &Candidate<'_>) -> f64 {
        let own = node.by_aggregates();
        own.and_then(|own| own.multiplier(self.weigher().name()))
            .unwrap_or(self.multiplier)
    }

    /// Whether this is the weigher for images, and it prefers nodes that have the image.
    pub(crate) fn wants_image(&self) -> bool {
        self.weigher().name() == Image.name() && self.multiplier > 0.0
    }
}

/// Every weigher that has a fixed name. Figures are per node and not relative to its size, as in Nova's weighers of RAM
/// and CPUs.
static REGISTRY: &[&dyn Weigher] = &[
    &figure("free-memory", |node| node.free.mem_mib as f64),
    &figure("free-cpu", |node| node.free.vcpus as f64),
    &figure("free-disk", |node| node.free.disk_mib as f64),
    &figure("starts-under-way", |node| node.starts_under_way() as f64),
    &figure("instances", |node| node.instances() as f64),
    &figure("load", |node| {
        node.report().map_or(0.0, |report| report.load as f64)
    }),
    &figure("cpu-use", |node| node.cpu_use() as f64),
    &figure("failures", |node| node.failures()),
    &Image,
    &Prefer,
    &SoftAffinity,
    &SoftNear,
    &Volumes,
];

/// The prefix of weighers of a custom resource: `resource.gpu` is how many are free.
const RESOURCE: &str = "resource.";

/// The weighers for what a START itself prefers. They count under every policy, with this multiplier unless the policy
/// lists them with another.
pub(crate) static PREFERENCES: [Weighted; 4] = [
    preference(&Prefer),
    preference(&SoftAffinity),
    preference(&SoftNear),
    preference(&Volumes),
];

/// A weigher for what a START itself prefers.
const fn preference(weigher: &'static dyn Weigher) -> Weighted {
    Weighted {
        which: Which::Fixed(weigher),
        multiplier: PREFER_MULTIPLIER,
    }
}

/// The keys of `start.scheduling` that no filter reads but only the weigher of the same name. Without it they have no
/// effect.
pub(crate) const ALONE: [&str; 2] = ["image", "prefer"];

/// The weigher that a line of the configuration names.
///
/// # Errors
/// What is wrong with the line (no such weigher, a multiplier that is not a finite number), for the operator. The
/// caller puts the key before it.
pub(crate) fn build(rule: &WeigherRule) -> Result<Weighted, String> {
    let Some(which) = find(&rule.name) else {
        let names: Vec<&str> = REGISTRY.iter().map(|weigher| weigher.name()).collect();
        let names = names.join(", ");
        return Err(format!(
            "there is no weigher '{}'; there are {names}, {RESOURCE}NAME",
            rule.name
        ));
    };
    if !rule.multiplier.is_finite() {
        return Err(format!(
            "multiplier is {}: expected a number",
            rule.multiplier
        ));
    }
    Ok(Weighted {
        which,
        multiplier: rule.multiplier,
    })
}

/// The weigher with this name; any name of a custom resource is accepted behind the prefix, whether or not a node has
/// any.
fn find(name: &str) -> Option<Which> {
    if let Some(resource) = name.strip_prefix(RESOURCE) {
        return is_name(resource)
            .then(|| Which::Resource(Arc::new(FreeResource { name: name.into() })));
    }
    let mut all = REGISTRY.iter();
    all.find(|weigher| weigher.name() == name)
        .map(|weigher| Which::Fixed(*weigher))
}

/// How much of a custom resource is free: `resource.NAME`. Counts for every START, whether or not it asks for any.
#[derive(Debug)]
struct FreeResource {
    /// The whole name, with the prefix.
    name: Box<str>,
}

impl Weigher for FreeResource {
    fn name(&self) -> &str {
        &self.name
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        asked.free_custom(node, &self.name[RESOURCE.len()..]) as f64
    }
}

/// How many of the START's volumes and ports the node reports. Only those count that some node reports.
#[derive(Debug)]
struct Volumes;

impl Weigher for Volumes {
    fn name(&self) -> &str {
        "volumes"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        !asked.volumes.is_empty()
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let volumes = asked.volumes.iter();
        volumes.filter(|it| node.has_volume(it)).count() as f64
    }
}

/// A figure of the node alone, whatever the START asks for.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// Reads the figure off a node.
    of: fn(&Candidate<'_>) -> f64,
}

/// Builds a figure; a function because struct literals would double the length of [`REGISTRY`].
const fn figure(name: &'static str, of: fn(&Candidate<'_>) -> f64) -> Figure {
    Figure { name, of }
}

impl Weigher for Figure {
    fn name(&self) -> &str {
        self.name
    }

    fn weigh(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> f64 {
        (self.of)(node)
    }
}

/// Whether the node has the START's image already: 1 or 0, by its label `image.NAME`.
#[derive(Debug)]
struct Image;

impl Weigher for Image {
    fn name(&self) -> &str {
        "image"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query.request().image.is_some()
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let image = asked.query.request().image.as_deref();
        f64::from(image.is_some_and(|image| node.has_image(image)))
    }
}

/// How many of the expressions in `scheduling.prefer` hold.
#[derive(Debug)]
struct Prefer;

impl Weigher for Prefer {
    fn name(&self) -> &str {
        "prefer"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked
            .scheduling()
            .is_some_and(|scheduling| !scheduling.prefer.is_empty())
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let prefer = asked
            .scheduling()
            .map_or(&[][..], |scheduling| &scheduling.prefer);
        prefer
            .iter()
            .filter(|expression| node.holds(expression))
            .count() as f64
    }
}

/// Members of the START's group on the node, or in its scope: more is better for soft affinity, worse for soft
/// anti-affinity.
#[derive(Debug)]
struct SoftAffinity;

impl Weigher for SoftAffinity {
    fn name(&self) -> &str {
        "soft-affinity"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.group().is_some_and(|group| !group.is_hard())
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let Some(group) = asked.group() else {
            return 0.0;
        };
        let members = f64::from(group.members_at(node));
        if group.is_together() {
            members
        } else {
            -members
        }
    }
}

/// How many entries of `scheduling.near` that need not hold (`hard: false`) do.
#[derive(Debug)]
struct SoftNear;

impl Weigher for SoftNear {
    fn name(&self) -> &str {
        "near"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.near.iter().any(|near| !near.asked().hard)
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let near = asked
            .near
            .iter()
            .filter(|near| !near.asked().hard && near.is_at(node));
        near.count() as f64
    }
}
