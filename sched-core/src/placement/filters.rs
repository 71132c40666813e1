//! Filters: may this node run this START? Each is in a file of its own; this one has the trait and the list of all of
//! them.
//!
//! A filter answers in two ways, which must agree. [`Filter::narrow`] gives masks over all slots before the search, so
//! that nodes which cannot do are passed over 64 at a time. [`Filter::admits`] says yes or no for one node, and is what
//! counts: it is asked of each node that the masks let pass, and of every node when `placement::explain` counts
//! reasons. So `narrow` may leave nodes in that `admits` rejects, but must never rule out one that it admits.
//!
//! Whether a node takes work at all and what it has free is not asked here: the table's index knows that.
//!
//! To add one: a file with the type, a `mod` line, and a line in [`REGISTRY`].

use std::fmt::Debug;

use sched_model::ReasonKind;

use self::aggregate_limits::AggregateLimit;
use self::limits::{Limit, Limited};
pub(crate) use self::narrowing::Narrowing;
use crate::api::no_fit::Lack;
use crate::api::rules::FilterRule;
use crate::cluster::candidate::Candidate;
use crate::cluster::view::Asked;
use crate::placement::subset::Subset;

mod aggregate_limits;
mod avoid;
mod group;
mod hints;
mod image_fetch;
mod images;
mod labels;
mod lease;
mod limits;
mod load;
mod load_per_cpu;
mod narrowing;
mod near;
mod pin;
mod run_limits;
mod tenants;
mod vm_type;
mod volumes;

/// Whether a node may run a START. Implementations have no state but their limit from the configuration: the same node
/// and the same START give the same answer.
pub(crate) trait Filter: Debug + Send {
    /// Its name in `policy.filters` of the configuration.
    fn name(&self) -> &'static str;

    /// The keys of `start.scheduling` that only this filter reads. A policy without it does not understand them
    /// (`must_understand`).
    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it has to do with this START, as things are in the cluster now. If not, it is not asked about any node.
    fn concerns(&self, asked: &Asked<'_>) -> bool;

    /// Whether it has to do with every START whatever that asks for. A policy with such a filter has no short cut for
    /// plain STARTs.
    fn concerns_all(&self) -> bool {
        false
    }

    /// Whether this node may run it. Asked only where [`Filter::concerns`] says yes, under the core's lock
    /// and up to thousands of times for one START: it must be cheap.
    ///
    /// # Errors
    /// Which of the things it looks at the node failed for; [`Filter::lack`] and [`Filter::what`] turn that into an
    /// answer.
    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss>;

    /// How many members of the START's group have to leave this node for it to be admitted: 0 where it is admitted as it
    /// is. Preemption counts them among what its victims free.
    ///
    /// # Errors
    /// As [`Filter::admits`], where no one's leaving is known to help.
    fn members_in_the_way(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<u32, Miss> {
        self.admits(node, asked).map(|()| 0)
    }

    /// Narrows the search to where [`Filter::admits`] may say yes, by masks or a list of slots. Called once for each
    /// search. Need not rule out everything.
    fn narrow(&self, _asked: &Asked<'_>, _to: &mut Narrowing<'_>) {}

    /// The word for its misses in answers for programs; its name, unless `sched_model` has a kind for it.
    fn reason(&self) -> ReasonKind {
        ReasonKind::Other(self.name().to_owned())
    }

    /// What nodes lack for a miss; the server has the words for it.
    fn lack(&self, miss: Miss, asked: &Asked<'_>) -> Lack;

    /// What of its kind a miss was, for programs: the expression, the id of the group, the label; empty where the kind
    /// says it all.
    fn what(&self, _miss: Miss, _asked: &Asked<'_>) -> String {
        String::new()
    }

    /// Whether waiting alone does not help against a miss: labels and pins stay as they are, load does not.
    fn is_lasting(&self, _miss: Miss, _asked: &Asked<'_>) -> bool {
        false
    }
}

/// The filters of a policy that have to do with one START.
pub(crate) type Concerned<'a> = Subset<'a, Box<dyn Filter>>;

/// For which of the things that a filter looks at a node failed: the index of an expression, say, or a constant of the
/// filter. Only the filter that made it can read it. Nodes with the same miss of the same filter are counted as one
/// reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Miss(pub(crate) u32);

/// Makes a filter from its line in the configuration; the error is a text for the operator.
type Build = fn(&FilterRule) -> Result<Box<dyn Filter>, String>;

/// Every filter there is, in the order in which they are asked: cheap ones first. Those marked `Yes` are part of every
/// policy that does not list its filters.
const REGISTRY: &[(&str, Usual, Build)] = &[
    ("pin", Usual::Always, |rule| plain(rule, pin::Pin)),
    ("avoid", Usual::Always, |rule| plain(rule, avoid::Avoid)),
    ("tenants", Usual::Always, |rule| {
        plain(rule, tenants::Tenants)
    }),
    ("lease", Usual::Always, |rule| plain(rule, lease::Lease)),
    ("vm_type", Usual::Always, |rule| {
        plain(rule, vm_type::RunsVmType)
    }),
    ("images", Usual::Always, |rule| {
        plain(rule, images::IsolatedImages)
    }),
    ("image-fetch", Usual::Always, |rule| {
        plain(rule, image_fetch::FetchesImage)
    }),
    ("run-limits", Usual::Always, |rule| {
        plain(rule, run_limits::RunLimits)
    }),
    ("aggregate-instances", Usual::Always, |rule| {
        plain(rule, AggregateLimit::Instances)
    }),
    ("aggregate-starts", Usual::Always, |rule| {
        plain(rule, AggregateLimit::Starts)
    }),
    ("labels", Usual::Yes, |rule| plain(rule, labels::Required)),
    ("near", Usual::Yes, |rule| plain(rule, near::HardNear)),
    ("group", Usual::Yes, |rule| plain(rule, group::HardGroup)),
    ("same-node", Usual::Yes, |rule| plain(rule, hints::SameNode)),
    ("different-node", Usual::Yes, |rule| {
        plain(rule, hints::DifferentNode)
    }),
    ("volumes", Usual::No, |rule| plain(rule, volumes::Volumes)),
    ("starts-under-way", Usual::No, |rule| {
        limited(rule, |max| Limit::new(Limited::StartsUnderWay, max))
    }),
    ("instances", Usual::No, |rule| {
        limited(rule, |max| Limit::new(Limited::Instances, max))
    }),
    ("load", Usual::No, |rule| {
        limited(rule, |max| load::Load { max })
    }),
    ("load_per_cpu", Usual::No, |rule| {
        limited(rule, |max| load_per_cpu::LoadPerCpu {
            max: max.saturating_mul(100),
        })
    }),
];

/// Whether a filter is part of a policy that does not say which filters it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usual {
    /// Always, even where a policy lists its filters without it. Without it an instance could be placed where it must
    /// not be: on another node than asked for, or on one reserved for another tenant.
    Always,
    /// Only where the policy has no list.
    Yes,
    /// Only where the policy lists it.
    No,
}

/// The filters of a policy that does not list any.
pub(crate) fn usual() -> Vec<Box<dyn Filter>> {
    built(|usual| usual != Usual::No)
}

/// The filters of every policy, listed or not.
pub(crate) fn always() -> Vec<Box<dyn Filter>> {
    built(|usual| usual == Usual::Always)
}

/// The filters with these marks. Those that need a limit cannot be built without a rule, so none of them may be marked.
fn built(which: impl Fn(Usual) -> bool) -> Vec<Box<dyn Filter>> {
    let wanted = REGISTRY.iter().filter(|(_, usual, _)| which(*usual));
    wanted
        .filter_map(|(_, _, build)| build(&FilterRule::default()).ok())
        .collect()
}

/// The filter that a line of the configuration names.
///
/// # Errors
/// What is wrong with the line (no such filter, a `max` that is missing, negative or not wanted), for the operator. The
/// caller puts the key before it.
pub(crate) fn build(rule: &FilterRule) -> Result<Box<dyn Filter>, String> {
    match REGISTRY.iter().find(|(name, ..)| *name == &*rule.name) {
        Some((_, _, build)) => build(rule),
        None => Err(format!(
            "there is no filter '{}'; there are {}",
            rule.name,
            names().join(", ")
        )),
    }
}

/// The filter that takes nodes up to this load per CPU, in hundredths.
pub(crate) fn calm(max: i64) -> Box<dyn Filter> {
    Box::new(load_per_cpu::LoadPerCpu { max })
}

/// The names of all filters.
pub(crate) fn names() -> Vec<&'static str> {
    REGISTRY.iter().map(|(name, ..)| *name).collect()
}

/// The keys of `start.scheduling` that some filter of [`usual`] reads.
pub(crate) fn all_keys() -> impl Iterator<Item = &'static str> {
    let filters = usual();
    filters
        .into_iter()
        .flat_map(|filter| filter.keys().iter().copied())
}

/// A filter without a limit; its line must not have a `max`.
fn plain<F: Filter + 'static>(rule: &FilterRule, filter: F) -> Result<Box<dyn Filter>, String> {
    match rule.max {
        None => Ok(Box::new(filter)),
        Some(_) => Err(format!("filter '{}' has no max", rule.name)),
    }
}

/// A filter with a limit; its line must have a `max` of 0 or more. With 0 it admits no node, or only those with no
/// load.
fn limited<F: Filter + 'static>(
    rule: &FilterRule,
    filter: impl FnOnce(i64) -> F,
) -> Result<Box<dyn Filter>, String> {
    match rule.max {
        Some(max) if max >= 0 => Ok(Box::new(filter(max))),
        Some(max) => Err(format!("max is {max}: expected a number from 0")),
        None => Err(format!("filter '{}' needs a max", rule.name)),
    }
}
