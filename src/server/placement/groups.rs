//! Request groups: what nodes are asked to have, in the words of Placement.
//!
//! A request may ask for several groups of resources, told apart by a suffix of each parameter: `resources1`, `required1`,
//! `member_of1` and `in_tree1` are one group, `resources` and the others without a suffix another. Placement looks for a
//! provider for each group within one tree of providers. Here every node is a tree of its own, without children and
//! without providers that share with it, and so:
//!
//! - one node has to provide all groups: amounts are added up, and every trait and aggregate is required of it;
//! - `group_policy=isolate`, which wants another provider for each group with a suffix, can be met by one such group only;
//! - `same_subtree` is met by every node that provides all groups;
//! - `root_required` asks for traits as `required` does.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::Uuid;

use super::fault::{Fault, repeated};
use super::limits::MAX_NAMED;
use super::params::{AnyOf, Params, member_of, required, resources};
use super::version::Version;

/// The version from which on a group may ask for traits and aggregates alone, if `same_subtree` names it.
const WITHOUT_RESOURCES: Version = Version(36);

/// What is asked for: all groups must be provided.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// By suffix; empty for the group without one.
    groups: BTreeMap<String, Group>,
    /// From `root_required`.
    root_traits: Vec<AnyOf<String>>,
    /// Whether each group with a suffix and resources is to have a provider of its own.
    is_isolated: bool,
}

/// One group.
#[derive(Debug, Default)]
struct Group {
    /// Amounts by class, in the class's unit.
    resources: BTreeMap<String, i64>,
    /// From `required`.
    traits: Vec<AnyOf<String>>,
    /// From `member_of`.
    aggregates: Vec<AnyOf<Uuid>>,
    /// The one node that may provide it, from `in_tree`: a node is its whole tree here.
    node: Option<Uuid>,
}

impl Group {
    /// The group with this suffix.
    fn read(params: &Params, suffix: &str, version: Version) -> Result<Self, Fault> {
        let key = |base: &str| format!("{base}{suffix}");
        let traits_key = key("required");
        let traits = traits_of(params, &traits_key, version)?;
        if let Some(name) = conflict(&traits) {
            return Err(Fault::bad(format!(
                "Conflicting required and forbidden traits found in the following traits keys: {traits_key}: ({name})"
            )));
        }
        let aggregates_key = key("member_of");
        let aggregates = params.all(&aggregates_key);
        Ok(Self {
            resources: params
                .text(&key("resources"))
                .map_or(Ok(BTreeMap::new()), resources)?,
            traits,
            aggregates: aggregates
                .map(|text| member_of(text, version))
                .collect::<Result<_, _>>()?,
            node: params.uuid(&key("in_tree"))?,
        })
    }

    /// How many resources, traits and aggregates it names.
    fn named(&self) -> usize {
        let traits = self.traits.iter().map(|any| any.names.len());
        let aggregates = self.aggregates.iter().map(|any| any.names.len());
        self.resources.len() + traits.sum::<usize>() + aggregates.sum::<usize>()
    }
}

impl Params {
    /// What nodes are asked to have. Parameters that the path does not have are absent here.
    ///
    /// # Errors
    /// 400: a value in a form that this version does not have, a trait that is required and forbidden, or more than
    /// [`MAX_NAMED`] names in all.
    pub(super) fn wanted(&self, version: Version) -> Result<Wanted, Fault> {
        let mut wanted = Wanted {
            root_traits: traits_of(self, "root_required", version)?,
            is_isolated: self.is_isolated()?,
            ..Wanted::default()
        };
        if let Some(name) = conflict(&wanted.root_traits) {
            return Err(Fault::bad(format!(
                "Conflicting required and forbidden traits found in root_required: {name}"
            )));
        }
        for suffix in self.suffixes() {
            let group = Group::read(self, suffix, version)?;
            wanted.groups.insert(suffix.to_owned(), group);
        }
        let root = wanted.root_traits.iter().map(|any| any.names.len());
        let named = wanted.groups.values().map(Group::named);
        if named.chain(root).sum::<usize>() > MAX_NAMED || wanted.groups.len() > MAX_NAMED {
            let detail = format!(
                "at most {MAX_NAMED} groups, and {MAX_NAMED} resources, traits and aggregates, can be named in one request"
            );
            return Err(Fault::bad(detail));
        }
        Ok(wanted)
    }

    /// The suffixes of the groups, without repetition.
    fn suffixes(&self) -> BTreeSet<&str> {
        const KEYS: [&str; 4] = ["resources", "required", "member_of", "in_tree"];
        let suffix = |name| KEYS.iter().find_map(|key| str::strip_prefix(name, key));
        self.names().filter_map(suffix).collect()
    }

    fn is_isolated(&self) -> Result<bool, Fault> {
        match self.text("group_policy") {
            None | Some("none") => Ok(false),
            Some("isolate") => Ok(true),
            Some(other) => Err(Fault::bad(format!(
                "Invalid query string parameters: group_policy: '{}' is not one of ['none', 'isolate']",
                repeated(other)
            ))),
        }
    }

    /// The suffixes that each `same_subtree` names.
    fn same_subtrees(&self) -> impl Iterator<Item = Vec<&str>> {
        let lists = self.all("same_subtree");
        lists.map(|list| list.split(',').collect())
    }
}

impl Wanted {
    /// Checks the groups of a search for candidates, in which each must ask for resources, or be named by
    /// `same_subtree`.
    ///
    /// # Errors
    /// 400: no group asks for resources, one has none that must, `group_policy` is missing, or `same_subtree` names a
    /// group that is not there.
    pub(super) fn check(&self, params: &Params, version: Version) -> Result<(), Fault> {
        if self.groups.values().all(|group| group.resources.is_empty()) {
            let detail = match version >= WITHOUT_RESOURCES {
                true => "There must be at least one resources or resources[$S] parameter.",
                false => {
                    "At least one request group (`resources` or `resources{$S}`) is required, e.g. \
                     resources=VCPU:1,MEMORY_MB:512."
                }
            };
            let without = self.orphans("");
            return Err(Fault::missing(format!("{detail}{without}")));
        }
        let mut connected = BTreeSet::new();
        for list in params.same_subtrees() {
            if list.contains(&"") {
                return Err(Fault::bad(
                    "Empty string (unsuffixed group) can not be specified in `same_subtree`",
                ));
            }
            if let Some(other) = list.iter().find(|it| !self.groups.contains_key(**it)) {
                return Err(Fault::bad(format!(
                    "Real suffixes should be specified in `same_subtree`: {} not found in {:?}",
                    repeated(other),
                    self.groups.keys().collect::<Vec<_>>()
                )));
            }
            connected.extend(list);
        }
        let is_bare = |(suffix, group): &(&String, &Group)| {
            group.resources.is_empty() && !connected.contains(suffix.as_str())
        };
        if let Some((suffix, _)) = self.groups.iter().find(is_bare) {
            let detail = match version >= WITHOUT_RESOURCES && !suffix.is_empty() {
                true => format!(
                    "Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) - \
                     {suffix}"
                ),
                false => format!(
                    "All request groups must specify resources.{}",
                    self.orphans(suffix)
                ),
            };
            return Err(Fault::bad(detail));
        }
        if self.with_own_provider().count() > 1 && params.text("group_policy").is_none() {
            return Err(Fault::bad(
                "The \"group_policy\" parameter is required when specifying more than one \"resources{N}\" parameter.",
            ));
        }
        Ok(())
    }

    /// The parameters that belong to no resources, for people: of one group, or of all if there are no resources at all.
    fn orphans(&self, only: &str) -> String {
        let bare = self.groups.iter().filter(|(suffix, group)| {
            group.resources.is_empty() && (only.is_empty() || only == *suffix)
        });
        let mut text = String::new();
        let (mut traits, mut aggregates) = (Vec::new(), Vec::new());
        for (suffix, group) in bare {
            if !group.traits.is_empty() {
                traits.push(format!("required{suffix}"));
            }
            if !group.aggregates.is_empty() {
                aggregates.push(format!("member_of{suffix}"));
            }
        }
        for (what, keys) in [("traits", traits), ("member_of", aggregates)] {
            if !keys.is_empty() {
                text += &format!(
                    " Found the following orphaned {what} keys: {}.",
                    keys.join(", ")
                );
            }
        }
        text
    }

    /// The groups that `group_policy` is about: with a suffix, and with resources.
    fn with_own_provider(&self) -> impl Iterator<Item = &Group> {
        let suffixed = self.groups.iter().filter(|(suffix, _)| !suffix.is_empty());
        suffixed
            .map(|(_, group)| group)
            .filter(|group| !group.resources.is_empty())
    }

    /// Whether no single node can provide it, whatever the node has: groups are to be on different providers, or in
    /// different trees.
    pub(super) fn needs_several_nodes(&self) -> bool {
        let nodes: BTreeSet<Uuid> = self.groups.values().filter_map(|it| it.node).collect();
        nodes.len() > 1 || (self.is_isolated && self.with_own_provider().count() > 1)
    }

    /// The one node that may provide it.
    pub(super) fn node(&self) -> Option<Uuid> {
        self.groups.values().find_map(|group| group.node)
    }

    /// What all groups ask for together, by class.
    pub(super) fn resources(&self) -> BTreeMap<&str, i64> {
        let mut sums = BTreeMap::new();
        let all = self.groups.values().flat_map(|group| &group.resources);
        for (class, amount) in all {
            *sums.entry(class.as_str()).or_default() += amount;
        }
        sums
    }

    /// The traits that all groups ask for.
    pub(super) fn traits(&self) -> impl Iterator<Item = &AnyOf<String>> {
        let groups = self.groups.values().flat_map(|group| &group.traits);
        groups.chain(&self.root_traits)
    }

    /// The aggregates that all groups ask for.
    pub(super) fn aggregates(&self) -> impl Iterator<Item = &AnyOf<Uuid>> {
        self.groups.values().flat_map(|group| &group.aggregates)
    }

    /// The suffix of each group, empty for the one without.
    pub(super) fn group_names(&self) -> impl Iterator<Item = &str> {
        self.groups.keys().map(String::as_str)
    }
}

/// The traits that all values of a parameter ask for.
fn traits_of(params: &Params, key: &str, version: Version) -> Result<Vec<AnyOf<String>>, Fault> {
    let mut traits = Vec::new();
    for text in params.all(key) {
        traits.extend(required(text, version)?);
    }
    Ok(traits)
}

/// A trait that is required by itself and forbidden.
fn conflict(traits: &[AnyOf<String>]) -> Option<&str> {
    let forbidden = traits.iter().filter(|any| any.is_forbidden);
    let mut names = forbidden.flat_map(|any| &any.names);
    let is_required = |name: &&String| {
        let mut alone = traits.iter().filter(|any| !any.is_forbidden);
        alone.any(|any| any.names.as_slice() == std::slice::from_ref(*name))
    };
    names.find(is_required).map(String::as_str)
}
