//! Filters: may this node run this START? Each in a file of its own; this one has the trait and the list of all of them.
//!
//! Whether a node takes work at all and what it has free is not asked here: the table's index knows.

use std::fmt::Debug;

use sched_model::ReasonKind;

use self::aggregate_limits::AggregateLimit;
use crate::api::no_fit::Lack;
use crate::api::rules::FilterRule;
use crate::cluster::labels::{LabelIndex, Mask};
use crate::cluster::table::Slot;
use crate::cluster::view::{Asked, Candidate, View};

mod aggregate_limits;
mod avoid;
mod group;
mod hints;
mod images;
mod instances;
mod labels;
mod lease;
mod load;
mod near;
mod pin;
mod starts;
mod tenants;
mod vm_type;
mod volumes;

/// Whether a node may run a START.
pub(crate) trait Filter: Debug + Send {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// The keys of `start.scheduling` that no one else reads: without this filter they have no effect.
    fn keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether it has anything to do with this START; if not, it is not asked about any node.
    fn concerns(&self, asked: &Asked<'_>) -> bool;

    /// Whether it has to do with every START, whatever that asks for.
    fn concerns_all(&self) -> bool {
        false
    }

    /// Whether this node may run it.
    ///
    /// # Errors
    /// Why not; see [`Filter::lack`].
    fn admits(&self, node: &Candidate<'_>, asked: &Asked<'_>) -> Result<(), Miss>;

    /// Narrows the search to where [`Filter::admits`] may say yes. Need not rule out everything: every node that is
    /// found is asked about.
    fn narrow(&self, _asked: &Asked<'_>, _to: &mut Narrowing<'_>) {}

    /// The word for its misses in answers.
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

/// Which of the things a filter looks at a node failed for: the number of an expression, say, or 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Miss(pub(crate) u16);

/// Where a search looks.
pub(crate) struct Narrowing<'a> {
    /// What is known of labels.
    pub(super) labels: &'a mut LabelIndex,
    pub(super) view: View<'a>,
    /// Slots must be allowed by all of these.
    pub(super) masks: Vec<Mask>,
    /// If there is a list, only these slots are looked at.
    pub(super) list: Option<Vec<Slot>>,
}

impl Narrowing<'_> {
    /// Only these slots.
    pub(crate) fn only(&mut self, slots: Vec<Slot>) {
        match &mut self.list {
            Some(list) => list.retain(|slot| slots.contains(slot)),
            None => self.list = Some(slots),
        }
    }
}

type Build = fn(&FilterRule) -> Result<Box<dyn Filter>, String>;

/// Every filter there is, cheap ones first; those marked are part of every policy that does not list its filters.
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
        limited(rule, |max| starts::StartsUnderWay { max })
    }),
    ("instances", Usual::No, |rule| {
        limited(rule, |max| instances::Instances { max })
    }),
    ("load", Usual::No, |rule| {
        limited(rule, |max| load::Load { max })
    }),
];

/// Whether a filter is asked where the policy does not say which ones are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Usual {
    /// Always, also where a policy lists its filters without it: leaving it out would place what must not be there.
    Always,
    Yes,
    No,
}

/// The filters asked where the policy does not say which ones are.
pub(crate) fn usual() -> Vec<Box<dyn Filter>> {
    built(|usual| usual != Usual::No)
}

/// The filters asked whatever the policy says.
pub(crate) fn always() -> Vec<Box<dyn Filter>> {
    built(|usual| usual == Usual::Always)
}

fn built(which: impl Fn(Usual) -> bool) -> Vec<Box<dyn Filter>> {
    let wanted = REGISTRY.iter().filter(|(_, usual, _)| which(*usual));
    wanted
        .filter_map(|(_, _, build)| build(&FilterRule::default()).ok())
        .collect()
}

/// The filter that a rule names.
///
/// # Errors
/// What is wrong with the rule, to be put behind its key.
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

/// The names of all filters.
pub(crate) fn names() -> Vec<&'static str> {
    REGISTRY.iter().map(|(name, ..)| *name).collect()
}

/// The keys of `start.scheduling` that some filter reads.
pub(crate) fn all_keys() -> impl Iterator<Item = &'static str> {
    let filters = usual();
    filters
        .into_iter()
        .flat_map(|filter| filter.keys().iter().copied())
}

fn plain<F: Filter + 'static>(rule: &FilterRule, filter: F) -> Result<Box<dyn Filter>, String> {
    match rule.max {
        None => Ok(Box::new(filter)),
        Some(_) => Err(format!("filter '{}' has no max", rule.name)),
    }
}

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
