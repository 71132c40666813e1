//! Weighers: of the nodes that may run a START, how good is each? The trait, and the list of all of them.
//!
//! A weigher's values are brought to 0 … 1 over the nodes compared (the worst of them 0, the best 1), multiplied by its
//! multiplier and added up; a negative multiplier turns it round, so that what spreads packs.

use std::fmt::Debug;
use std::sync::Arc;

use sched_model::expression::is_name;

use crate::api::rules::{PREFER_MULTIPLIER, WeigherRule};
use crate::cluster::view::{Asked, Candidate};

/// How good a node is for a START.
pub(crate) trait Weigher: Debug + Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &str;

    /// Whether it tells nodes apart for this START at all.
    fn concerns(&self, _asked: &Asked<'_>) -> bool {
        true
    }

    /// The more, the better; of any magnitude, but finite.
    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64;
}

/// A weigher and by how much it counts.
#[derive(Debug, Clone)]
pub(crate) struct Weighted {
    which: Which,
    pub(super) multiplier: f64,
}

/// A weigher.
#[derive(Debug, Clone)]
enum Which {
    /// One of those that there always are.
    Fixed(&'static dyn Weigher),
    /// How much of a custom resource is free.
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

    /// By how much it counts for a node: as much as an aggregate of that node says, or the policy.
    pub(super) fn multiplier_at(&self, node: &Candidate<'_>) -> f64 {
        let own = node.by_aggregates();
        own.and_then(|own| own.multiplier(self.weigher().name()))
            .unwrap_or(self.multiplier)
    }

    /// Whether nodes that have the image are wanted.
    pub(crate) fn wants_image(&self) -> bool {
        self.weigher().name() == Image.name() && self.multiplier > 0.0
    }
}

/// Every weigher there is.
static REGISTRY: &[&dyn Weigher] = &[
    &Figure {
        name: "free-memory",
        of: |node| node.free().mem_mib as f64,
    },
    &Figure {
        name: "free-cpu",
        of: |node| node.free().vcpus as f64,
    },
    &Figure {
        name: "free-disk",
        of: |node| node.free().disk_mib as f64,
    },
    &Figure {
        name: "starts-under-way",
        of: |node| node.starts_under_way() as f64,
    },
    &Figure {
        name: "instances",
        of: |node| node.instances() as f64,
    },
    &Figure {
        name: "load",
        of: |node| node.report().map_or(0.0, |report| report.load as f64),
    },
    &Figure {
        name: "cpu-use",
        of: |node| node.cpu_use() as f64,
    },
    &Figure {
        name: "failures",
        of: |node| node.failures(),
    },
    &Image,
    &Prefer,
    &SoftAffinity,
    &SoftNear,
    &Volumes,
];

/// What the name of a weigher begins with that looks at a custom resource.
const RESOURCE: &str = "resource.";

/// What a START itself prefers, weighed whether or not the policy has weighers.
pub(crate) static WISHES: [Weighted; 4] = [
    Weighted {
        which: Which::Fixed(&Prefer),
        multiplier: PREFER_MULTIPLIER,
    },
    Weighted {
        which: Which::Fixed(&SoftAffinity),
        multiplier: PREFER_MULTIPLIER,
    },
    Weighted {
        which: Which::Fixed(&SoftNear),
        multiplier: PREFER_MULTIPLIER,
    },
    Weighted {
        which: Which::Fixed(&Volumes),
        multiplier: PREFER_MULTIPLIER,
    },
];

/// The keys of `start.scheduling` that only the weigher of the same name reads: without it they have no effect.
pub(crate) const ALONE: [&str; 2] = ["image", "prefer"];

/// The weigher that a rule names.
///
/// # Errors
/// What is wrong with the rule, to be put behind its key.
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

/// The weigher with this name.
fn find(name: &str) -> Option<Which> {
    if let Some(resource) = name.strip_prefix(RESOURCE) {
        return is_name(resource)
            .then(|| Which::Resource(Arc::new(FreeResource { name: name.into() })));
    }
    let mut all = REGISTRY.iter();
    all.find(|weigher| weigher.name() == name)
        .map(|weigher| Which::Fixed(*weigher))
}

/// How much of a custom resource is free: `resource.NAME`.
#[derive(Debug)]
struct FreeResource {
    /// With the prefix.
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

/// How many of the START's volumes and ports the node reports, of those that any node reports.
#[derive(Debug)]
struct Volumes;

impl Weigher for Volumes {
    fn name(&self) -> &str {
        "volumes"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        !asked.volumes().is_empty()
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let volumes = asked.volumes().iter();
        volumes.filter(|it| node.has_volume(it)).count() as f64
    }
}

/// A figure of the node alone.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    of: fn(&Candidate<'_>) -> f64,
}

impl Weigher for Figure {
    fn name(&self) -> &str {
        self.name
    }

    fn weigh(&self, node: &Candidate<'_>, _asked: &Asked<'_>) -> f64 {
        (self.of)(node)
    }
}

/// Whether the image is there already: the label `image.NAME`.
#[derive(Debug)]
struct Image;

impl Weigher for Image {
    fn name(&self) -> &str {
        "image"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.query().request().image.is_some()
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let image = asked.query().request().image.as_deref();
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

/// Members of the START's group where the node is: more is better for soft affinity, worse for soft anti-affinity.
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

/// How much of `scheduling.near` that need not hold does.
#[derive(Debug)]
struct SoftNear;

impl Weigher for SoftNear {
    fn name(&self) -> &str {
        "near"
    }

    fn concerns(&self, asked: &Asked<'_>) -> bool {
        asked.near().iter().any(|near| !near.asked().hard)
    }

    fn weigh(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> f64 {
        let near = asked
            .near()
            .iter()
            .filter(|near| !near.asked().hard && near.is_at(node));
        near.count() as f64
    }
}
