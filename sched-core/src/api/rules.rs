//! What the cluster's configuration and the node file say about nodes and placement, as values: aggregates, capacity by
//! label, what single nodes have, and the policy. Checked here where names matter; read from files elsewhere.

use std::fmt;

use sched_model::{Expression, OnNodeLoss, Span, Uuid};

use crate::api::config::Accounting;
use crate::api::ids::{InstanceId, canonical_uuid};
use crate::api::input::ConfigurationFlags;
use crate::api::pressure::PressurePolicy;

/// Nodes from which the best is taken, unless the policy says otherwise.
pub const CANDIDATES: usize = 64;

/// Everything that is configured about nodes and placement.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// Named sets of nodes, in order.
    pub aggregates: Vec<Aggregate>,
    /// Ratios and reserved amounts by label, in order; of several rules for one node, a later one's values count.
    pub capacity: Vec<CapacityRule>,
    /// How a node is chosen.
    pub policy: PolicyRules,
    /// What single nodes have; of several entries for one node, a later one's values count, and all of them over those of
    /// the node file.
    pub nodes: Vec<NodeRule>,
}

/// What is wrong with configured rules: the key, below the configuration's own, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct RuleError {
    /// Such as `policy.filters[2]`.
    pub key: String,
    /// What is wrong with its value, and what is expected.
    pub problem: String,
}

/// A named set of nodes with labels of its own: an aggregate or an availability zone.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Aggregate {
    /// Its name; every member has the label `aggregate.NAME`.
    pub name: Box<str>,
    /// The availability zone it is, if it is one: every member has the label `zone` with this value.
    pub zone: Option<Box<str>>,
    /// Members by name.
    pub nodes: Vec<NodeName>,
    /// Members by what they report: nodes for which all of these hold, if there are any.
    pub select: Vec<Expression>,
    /// Labels of every member, beside its own.
    pub labels: Vec<(Box<str>, Box<str>)>,
    /// The tenants its nodes are reserved for; empty = anybody's.
    pub tenants: Vec<TenantId>,
    /// Images, as labels name them, that run on its nodes and nowhere else.
    pub images: Vec<Box<str>>,
    /// Whether nothing but these images runs on its nodes; counts only where there are any.
    pub images_only: bool,
    /// Most instances on one of its nodes.
    pub max_instances: Option<i64>,
    /// Most STARTs under way to one of its nodes.
    pub max_starts: Option<i64>,
    /// By how much weighers of the policy count on its nodes, by their names, in place of what the policy says.
    pub multipliers: Vec<(Box<str>, f64)>,
}

/// A tenant, as STARTs name it.
pub type TenantId = InstanceId;

/// A node as configuration names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NodeName {
    /// By its UUID.
    Uuid(Uuid),
    /// By its host name.
    Hostname(Box<str>),
}

impl NodeName {
    /// A UUID in its usual form, else a host name.
    #[must_use]
    pub fn new(text: &str) -> Self {
        canonical_uuid(text).map_or_else(|| Self::Hostname(text.into()), Self::Uuid)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Hostname(name) => f.write_str(name),
        }
    }
}

/// Ratios and reserved amounts of the nodes for which all of `select` hold; `None` leaves a value as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CapacityRule {
    /// Which nodes; all of them if empty.
    pub select: Vec<Expression>,
    /// Virtual CPUs per CPU online.
    pub cpu_ratio: Option<f64>,
    /// Memory offered per memory present.
    pub mem_ratio: Option<f64>,
    /// Disk offered per disk present.
    pub disk_ratio: Option<f64>,
    /// Memory that is never offered, in MiB.
    pub reserved_mem_mib: Option<i64>,
    /// Disk that is never offered, in MiB.
    pub reserved_disk_mib: Option<i64>,
    /// CPUs online that are never offered.
    pub reserved_cpus: Option<i64>,
}

/// What a node offers and how what runs there is counted, for its launcher to admit STARTs by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OfferRules {
    /// Virtual CPUs per CPU online.
    pub cpu_ratio: f64,
    /// Memory offered per memory present.
    pub mem_ratio: f64,
    /// Disk offered per disk present.
    pub disk_ratio: f64,
    /// Memory that is never offered, in MiB.
    pub reserved_mem_mib: i64,
    /// Disk that is never offered, in the unit that nodes report it in.
    pub reserved_disk_mib: i64,
    /// CPUs online that are never offered.
    pub reserved_cpus: i64,
    /// How an instance that runs is counted.
    pub accounting: Accounting,
    /// What is limited at all.
    pub limited: ConfigurationFlags,
}

/// What the node file or the configuration says of one node; it counts over what the node reports.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeRule {
    /// Which node.
    pub node: NodeName,
    /// Labels it has, or with `None` has not.
    pub labels: Vec<(Box<str>, Option<Box<str>>)>,
    /// Custom resources it has, or with `None` has not.
    pub resources: Vec<(Box<str>, Option<i64>)>,
    /// The node whose resources it shares.
    pub shares: Option<Uuid>,
}

/// How a node is chosen among those that fit.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyRules {
    /// The filters asked, in order, instead of the usual ones.
    pub filters: Option<Vec<FilterRule>>,
    /// What makes one node better than another; empty = the first that fits is taken.
    pub weighers: Vec<WeigherRule>,
    /// How many nodes that fit are weighed; `None` = all.
    pub candidates: Option<usize>,
    /// One of so many of the best is taken by chance; 1 = the best.
    pub subset_size: usize,
    /// What the chance begins with.
    pub seed: u64,
    /// Whether a START that fits nowhere may take the room of instances of strictly lower priority.
    pub preemption: bool,
    /// Whether every instance may be moved to another node, not only those that say so: their STARTs are kept.
    pub relocation: bool,
    /// What is done about a node that is short of memory.
    pub pressure: PressurePolicy,
    /// The highest load per CPU online at which a node takes a START, in hundredths; `None` = any.
    pub load_per_cpu: Option<i64>,
    /// What STARTs ask for that do not say it themselves.
    pub defaults: StartDefaults,
    /// The same for STARTs of these tenants; what is not said here is as for all.
    pub tenants: Vec<(TenantId, StartDefaults)>,
}

/// What a START asks for where it does not say it itself; `None` leaves a key as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StartDefaults {
    /// How long it may wait for room.
    pub queue: Option<Span>,
    /// How urgent it is.
    pub priority: Option<i64>,
    /// On how many nodes it may be tried.
    pub attempts: Option<u32>,
    /// Whether it is started on another node when its own is lost.
    pub on_node_loss: Option<OnNodeLoss>,
    /// Whether it may be moved to another node.
    pub relocate: Option<bool>,
    /// How long it may run.
    pub time_limit: Option<Span>,
}

impl Default for PolicyRules {
    /// First fit.
    fn default() -> Self {
        Self {
            filters: None,
            weighers: Vec::new(),
            candidates: Some(CANDIDATES),
            subset_size: 1,
            seed: 0,
            preemption: false,
            relocation: false,
            pressure: PressurePolicy::Keep,
            load_per_cpu: None,
            defaults: StartDefaults::default(),
            tenants: Vec::new(),
        }
    }
}

/// One filter of a policy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FilterRule {
    /// Its name.
    pub name: Box<str>,
    /// The limit it compares with, for those that have one.
    pub max: Option<i64>,
}

/// One weigher of a policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeigherRule {
    /// Its name.
    pub name: Box<str>,
    /// By how much it counts; a negative one turns it round.
    pub multiplier: f64,
}

impl PolicyRules {
    /// Whether a node may be ruled out for its load.
    pub(crate) fn goes_by_load(&self) -> bool {
        let mut listed = self.filters.iter().flatten();
        self.load_per_cpu.is_some() || listed.any(|it| matches!(&*it.name, "load" | "load_per_cpu"))
    }

    /// The preset with this name: `first-fit`, `spread` or `pack`.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        let sign = match name {
            "first-fit" => return Some(Self::default()),
            "spread" => 1.0,
            "pack" => -1.0,
            _ => return None,
        };
        let weigher = |(name, multiplier): (&str, f64)| WeigherRule {
            name: name.into(),
            multiplier,
        };
        let weighers = [
            ("free-memory", sign),
            ("free-cpu", sign),
            ("free-disk", sign),
            ("starts-under-way", -1.0),
            // Large, as in Nova: a node that keeps failing is the last choice, however empty it is.
            ("failures", -1_000_000.0),
            ("prefer", PREFER_MULTIPLIER),
            ("soft-affinity", PREFER_MULTIPLIER),
            ("near", PREFER_MULTIPLIER),
        ];
        Some(Self {
            weighers: weighers.into_iter().map(weigher).collect(),
            ..Self::default()
        })
    }
}

/// What a START itself asks to be preferred counts more than all that spreads or packs.
pub(crate) const PREFER_MULTIPLIER: f64 = 10.0;
