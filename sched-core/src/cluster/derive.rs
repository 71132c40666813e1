//! Derives what a node is from three sources, where a later one counts over an earlier one: what the node reports, the
//! node file, and the aggregates and capacity rules of the configuration. Derived again when one of them changes, never
//! while a START is placed.
//!
//! ```text
//!  report {zone: a, ssd}  +  node file {ssd: null, rack: r1}  +  aggregate "gpu" {zone: b}
//!    = {zone: b, rack: r1, aggregate.gpu: true}
//! ```

use indexmap::IndexMap;
use sched_model::{Expression, Uuid};

use crate::api::config::Config;
use crate::api::input::NodeExtras;
use crate::api::resources::MAX_REPORTED;
use crate::api::rules::{Aggregate, NodeName, NodeRule, Rules};
use crate::api::vm_types::{VmType, VmTypes};
use crate::cluster::candidate::Candidate;
use crate::cluster::columns::{Amounts, Columns};
use crate::cluster::facts;
use crate::cluster::isolation::ByAggregates;
use crate::cluster::traits::{Limits, Traits};

/// The label that says which availability zone a node is in.
const ZONE: &str = "zone";

/// Which rules and aggregates name which nodes, by host name or UUID: positions in the configuration's lists. So a
/// report does not have to be compared with every rule.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    /// Rules about single nodes.
    rules: IndexMap<NodeName, Vec<usize>>,
    /// Aggregates.
    aggregates: IndexMap<NodeName, Vec<usize>>,
}

impl Named {
    /// Made once for each configuration.
    pub(crate) fn new(rules: &[NodeRule], aggregates: &[Aggregate]) -> Self {
        let mut named = Self::default();
        for (at, rule) in rules.iter().enumerate() {
            named.rules.entry(rule.node.clone()).or_default().push(at);
        }
        for (at, aggregate) in aggregates.iter().enumerate() {
            for node in &aggregate.nodes {
                named.aggregates.entry(node.clone()).or_default().push(at);
            }
        }
        named
    }

    /// The positions that name a node by its UUID or its host name, in ascending order, each once.
    fn of(by_name: &IndexMap<NodeName, Vec<usize>>, node: &Candidate<'_>) -> Vec<usize> {
        if by_name.is_empty() {
            return Vec::new();
        }
        let names = [
            NodeName::Uuid(node.uuid()),
            NodeName::Hostname(node.hostname().into()),
        ];
        let mut said: Vec<usize> = names
            .iter()
            .filter_map(|name| by_name.get(name))
            .flatten()
            .copied()
            .collect();
        said.sort_unstable();
        said.dedup();
        said
    }
}

/// Everything that is configured about nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) config: &'a Config,
    pub(crate) rules: &'a Rules,
    /// What is said of single nodes.
    pub(crate) overrides: &'a [NodeRule],
    pub(crate) named: &'a Named,
}

/// What a node is, and what is said of it that does not count.
#[derive(Debug)]
pub(crate) struct Derived {
    /// What it is; it shares what the node file says.
    pub(crate) traits: Traits,
    /// The node whose resources it says that it shares. That counts once the other node says so as well. `None` where
    /// the node file decides it.
    pub(crate) says_shares: Option<Uuid>,
    /// If two zones claim it, the first has it, and this is the second.
    pub(crate) second_zone: Option<Box<str>>,
    /// Custom resources for whose names there is no room.
    pub(crate) left_out: Vec<Box<str>>,
}

/// What a node is by its report and the configuration. Depends on nothing else, except for custom resources, for whose
/// names there may be no more numbers; these are returned in `left_out` for a message to its launcher.
///
/// Aggregates and capacity rules may select nodes by labels. Aggregates select by what a node has without any
/// aggregate; capacity rules select by the final labels.
pub(crate) fn derive(node: &Candidate<'_>, sources: Sources<'_>, columns: &mut Columns) -> Derived {
    let Sources {
        config,
        rules,
        overrides,
        named,
    } = sources;
    let reported = node.report().and_then(|report| report.extras.as_deref());
    let overrides: Vec<&NodeRule> = Named::of(&named.rules, node)
        .into_iter()
        .map(|at| &overrides[at])
        .collect();
    let mut own = own_labels(reported, &overrides);
    let member_of = Named::of(&named.aggregates, node);
    let mut by_aggregates = ByAggregates::default();
    let second_zone = add_aggregates(node, rules, &member_of, &mut own, &mut by_aggregates);
    let ruled = overrides.iter().rev().find_map(|rule| rule.shares);
    let of_another = |whole: &Uuid| *whole != node.uuid();
    add_vm_types(node, reported, &mut own);
    add_volumes(reported, &mut own);
    let (resources, left_out) = own_resources(reported, &overrides, columns);
    let says_shares = reported.and_then(|reported| reported.shares);
    Derived {
        traits: Traits {
            resources,
            shares: ruled.filter(of_another),
            limits: limits(node, config, rules, &own),
            labels: own.into(),
            by_aggregates: (by_aggregates != ByAggregates::default())
                .then(|| Box::new(by_aggregates)),
        },
        says_shares: says_shares.filter(|whole| ruled.is_none() && of_another(whole)),
        second_zone,
        left_out,
    }
}

/// Adds the types of workload that a node does not run, as labels. An original launcher never says, and runs what the
/// original runs. A native launcher that does not say lacks nothing as far as is known, since old versions do not
/// report types.
fn add_vm_types(node: &Candidate<'_>, reported: Option<&NodeExtras>, own: &mut Pairs) {
    let said = reported.and_then(|reported| reported.vm_types);
    let Some(runs) = said.or_else(|| (!node.is_native()).then_some(VmTypes::ORIGINAL)) else {
        return;
    };
    let lacking = VmType::ALL.into_iter().filter(|one| !runs.contains(*one));
    own.extend(lacking.map(|one| (facts::LACKS_VM_TYPE.into(), one.name().into())));
    own.sort_unstable();
}

/// Adds the volumes and ports that a node reports.
fn add_volumes(reported: Option<&NodeExtras>, own: &mut Pairs) {
    let volumes = reported.map_or(&[][..], |reported| &reported.volumes);
    if !volumes.is_empty() {
        own.extend(volumes.iter().map(|it| (facts::VOLUME.into(), it.clone())));
        own.sort_unstable();
        own.dedup();
    }
}

/// Labels while they are put together: key and value.
type Pairs = Vec<(Box<str>, Box<str>)>;

/// A node's labels without aggregates: those it reports, except for keys that only the scheduler may give, changed by
/// the node file. A key in the node file replaces all values of that key, or removes it.
fn own_labels(reported: Option<&NodeExtras>, overrides: &[&NodeRule]) -> Pairs {
    let mut own: Pairs = reported.map_or_else(Vec::new, |reported| {
        let is_free = |(key, _): &&(Box<str>, Box<str>)| !facts::is_reserved(key);
        reported.labels.iter().filter(is_free).cloned().collect()
    });
    for (key, value) in overrides.iter().flat_map(|rule| &rule.labels) {
        own.retain(|(other, _)| other != key);
        if let Some(value) = value {
            own.push((key.clone(), value.clone()));
        }
    }
    own.sort_unstable();
    own.dedup();
    own
}

/// A node's custom resources in the same way, and the names that got no number. Amounts are cut to `MAX_REPORTED`.
fn own_resources(
    reported: Option<&NodeExtras>,
    overrides: &[&NodeRule],
    columns: &mut Columns,
) -> (Amounts, Vec<Box<str>>) {
    let mut own: Vec<(&str, i64)> = reported.map_or_else(Vec::new, |reported| {
        let amounts = reported.resources.iter();
        amounts
            .map(|(name, amount)| (&**name, (*amount).min(MAX_REPORTED)))
            .collect()
    });
    for (name, amount) in overrides.iter().flat_map(|rule| &rule.resources) {
        own.retain(|(other, _)| *other != &**name);
        if let Some(amount) = amount {
            own.push((name, *amount));
        }
    }
    columns.offered(own.into_iter())
}

/// Adds the labels of the aggregates that a node is in, and what they say of limits and weighers. A node is in an
/// aggregate that names it or whose `select` holds; for the latter only its labels without aggregates count, so the
/// order of aggregates does not matter. Returns the second zone if two aggregates with different zones have it: the
/// first counts.
fn add_aggregates(
    node: &Candidate<'_>,
    rules: &Rules,
    member_of: &[usize],
    own: &mut Pairs,
    by_aggregates: &mut ByAggregates,
) -> Option<Box<str>> {
    let mut added = Pairs::new();
    let mut zone: Option<&str> = None;
    let mut second_zone = None;
    for (at, aggregate) in rules.aggregates.iter().enumerate() {
        let is_named = || member_of.binary_search(&at).is_ok();
        let is_selected = || !aggregate.select.is_empty() && selects(node, &aggregate.select, own);
        if !is_named() && !is_selected() {
            continue;
        }
        added.push((
            format!("{}{}", facts::AGGREGATE, aggregate.name).into(),
            "true".into(),
        ));
        added.extend(aggregate.labels.iter().cloned());
        let tenants = aggregate.tenants.iter();
        added.extend(tenants.map(|tenant| (facts::TENANT.into(), tenant.to_string().into())));
        let images = aggregate.images.iter();
        added.extend(images.map(|image| (facts::IMAGE.into(), image.clone())));
        if aggregate.images_only && !aggregate.images.is_empty() {
            added.push((facts::IMAGES_ONLY.into(), "true".into()));
        }
        by_aggregates.add(aggregate);
        match (&aggregate.zone, zone) {
            (Some(name), None) => zone = Some(name),
            (Some(name), Some(first)) if &**name != first => second_zone = Some(name.clone()),
            _ => {}
        }
    }
    if let Some(zone) = zone {
        own.retain(|(key, _)| &**key != ZONE);
        added.push((ZONE.into(), zone.into()));
    }
    own.append(&mut added);
    own.sort_unstable();
    own.dedup();
    second_zone
}

/// The limits for a node: the configuration's, changed by each capacity rule that selects it, later rules over earlier
/// ones.
fn limits(
    node: &Candidate<'_>,
    config: &Config,
    rules: &Rules,
    labels: &[(Box<str>, Box<str>)],
) -> Limits {
    let mut limits = Limits::new(config);
    for rule in &rules.capacity {
        if !selects(node, &rule.select, labels) {
            continue;
        }
        limits = Limits {
            cpu_ratio: rule.cpu_ratio.unwrap_or(limits.cpu_ratio),
            mem_ratio: rule.mem_ratio.unwrap_or(limits.mem_ratio),
            disk_ratio: rule.disk_ratio.unwrap_or(limits.disk_ratio),
            reserved_mem_mib: rule.reserved_mem_mib.unwrap_or(limits.reserved_mem_mib),
            reserved_disk_mib: rule.reserved_disk_mib.unwrap_or(limits.reserved_disk_mib),
            reserved_cpus: rule.reserved_cpus.unwrap_or(limits.reserved_cpus),
        };
    }
    limits
}

/// Whether all expressions hold for a node that has these labels.
fn selects(node: &Candidate<'_>, select: &[Expression], labels: &[(Box<str>, Box<str>)]) -> bool {
    let mut select = select.iter();
    select.all(|expression| node.holds_with(labels, expression))
}
