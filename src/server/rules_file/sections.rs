//! The shapes of the sections: their keys, what each may be, and how many; and how they become the core's rules.
//!
//! Each `struct` is one mapping of the file, with the file's key for each field; each `From` makes the core's rule of
//! it. That is all there is to a key that is added, beside its row in `docs/reference/configuration.md`, which lists
//! every key for operators. Values, with what was expected of each, are the `scalars!` at the end.
//!
//! [`Maybe`] is a key that may be absent or null, [`List`] and [`Pairs`] have at most as many entries as their constant
//! says, and [`Plain`] is a scalar that knows its place in the text: see [`crate::server::strict`].

use proto_frames::payload::expression::{ExpressionError, is_name};
use proto_frames::payload::scheduling::limits::{MAX_TIME_LIMIT, MIN_TIME_LIMIT};
use proto_frames::payload::scheduling::{MAX_ATTEMPTS, MAX_EXPRESSIONS, MAX_PRIORITY, MAX_QUEUE};
use proto_frames::payload::{Expression, OnNodeLoss, Span};
use serde::Deserialize;

use crate::server::limits::parse_ratio;
use crate::server::node_file::Entry as NodeEntry;
use crate::server::strict::names::{Amount, LabelKey, LabelValue, NodeText};
use crate::server::strict::{
    ByName, List, Mapping, Maybe, Named, Pairs, Plain, required, scalars, shorten, unexpected,
};
use crate::server::wire::label_of_image;
use sched_core::{
    Aggregate, CapacityRule, FilterRule, NodeName, PolicyRules, PressurePolicy, Rules,
    StartDefaults, TenantId, WeigherRule,
};

/// Aggregates in one configuration. Each is looked at when a node joins.
const MAX_AGGREGATES: usize = 1024;

/// Nodes listed in one aggregate.
const MAX_NODES: usize = 10_000;

/// Tenants for which one aggregate is reserved.
const MAX_TENANTS: usize = 10_000;

/// Labels of one aggregate: as many as a node may report.
const MAX_LABELS: usize = 64;

/// Images that have one aggregate for themselves. Each is a label of every member.
const MAX_IMAGES: usize = 64;

/// Rules about capacity. Each is looked at when a node joins.
const MAX_CAPACITY_RULES: usize = 256;

/// Filters, and weighers, of one policy: more than there are.
const MAX_POLICY_PARTS: usize = 32;

/// Largest multiplier, either way: a thousand times the largest of the presets. Sums of such stay exact enough to tell
/// nodes apart.
const MAX_MULTIPLIER: f64 = 1e9;

/// All sections. Other keys beside them are passed over.
#[derive(Deserialize)]
#[serde(expecting = "a mapping")]
pub(super) struct Sections {
    /// Which nodes fit and which is best; `None` keeps the core's default policy.
    #[serde(default)]
    policy: Maybe<Mapping<Policy>>,
    /// Groups of nodes, in order: a node is in the zone of the first of them that has one.
    #[serde(default)]
    aggregates: Maybe<List<Mapping<AggregateEntry>, MAX_AGGREGATES>>,
    /// Capacity rules, in order.
    #[serde(default)]
    capacity: Maybe<List<Mapping<CapacityEntry>, MAX_CAPACITY_RULES>>,
    /// What single nodes have, over what they report and over the node file.
    #[serde(default)]
    nodes: Maybe<List<Mapping<NodeEntry>, MAX_NODES>>,
}

impl Sections {
    /// What they say; `None` if there are none. A section that is not there is empty. A configuration with one section
    /// is one with all of them: rules replace each other as a whole, and are never merged with those of an earlier
    /// configuration.
    pub(super) fn into_rules(self) -> Option<Rules> {
        let (policy, aggregates, capacity) = (self.policy.0, self.aggregates.0, self.capacity.0);
        let nodes = self.nodes.0;
        if policy.is_none() && aggregates.is_none() && capacity.is_none() && nodes.is_none() {
            return None;
        }
        let aggregates = aggregates.map_or_else(Vec::new, |list| list.0);
        let capacity = capacity.map_or_else(Vec::new, |list| list.0);
        Some(Rules {
            policy: policy.map_or_else(PolicyRules::default, |policy| policy.0.into()),
            aggregates: aggregates.into_iter().map(|it| it.0.into()).collect(),
            capacity: capacity.into_iter().map(|it| it.0.into()).collect(),
            nodes: nodes
                .map_or_else(Vec::new, |list| list.0)
                .into_iter()
                .map(|it| it.0.into())
                .collect(),
        })
    }
}

/// `policy`: how nodes are filtered, weighed and chosen.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct Policy {
    /// What the other keys start from; see [`PolicyRules::preset`].
    #[serde(default)]
    preset: Maybe<Plain<Preset>>,
    /// Replaces the whole list of filters, in this order.
    #[serde(default)]
    filters: Maybe<List<Named<FilterEntry>, MAX_POLICY_PARTS>>,
    /// Replaces the whole list of weighers.
    #[serde(default)]
    weighers: Maybe<List<Named<WeigherEntry>, MAX_POLICY_PARTS>>,
    /// How many nodes that pass the filters are weighed.
    #[serde(default)]
    candidates: Maybe<Plain<Candidates>>,
    /// Among how many of the best the choice is random.
    #[serde(default)]
    subset_size: Maybe<Plain<Count>>,
    /// The same seed and the same inputs give the same choices, which is what replays need.
    #[serde(default)]
    seed: Maybe<Plain<Seed>>,
    /// Whether a START may preempt others of lower priority.
    #[serde(default)]
    preemption: Maybe<Plain<Switch>>,
    /// Whether the START of every instance is kept, so that it can be started elsewhere.
    #[serde(default)]
    relocation: Maybe<Plain<Switch>>,
    /// What is done about nodes that report a shortage of memory.
    #[serde(default)]
    pressure: Maybe<Plain<Pressure>>,
    /// The highest load per CPU at which a node takes a START.
    #[serde(default)]
    load_per_cpu: Maybe<Plain<LoadPerCpu>>,
    /// What STARTs ask for that do not say it themselves.
    #[serde(default)]
    defaults: Maybe<Mapping<Defaults>>,
    /// The same for tenants, over that for all.
    #[serde(default)]
    tenants: Maybe<List<Mapping<TenantEntry>, MAX_TENANTS>>,
}

impl From<Policy> for PolicyRules {
    fn from(policy: Policy) -> Self {
        // The preset first; each key that is there replaces one part of it.
        let mut rules = policy.preset.0.map(|preset| preset.0.0).unwrap_or_default();
        if let Some(filters) = policy.filters.0 {
            rules.filters = Some(filters.0.into_iter().map(|it| it.0.into()).collect());
        }
        if let Some(weighers) = policy.weighers.0 {
            rules.weighers = weighers.0.into_iter().map(|it| it.0.into()).collect();
        }
        if let Some(Plain(Candidates(candidates))) = policy.candidates.0 {
            rules.candidates = candidates;
        }
        if let Some(Plain(Count(size))) = policy.subset_size.0 {
            rules.subset_size = size;
        }
        if let Some(Plain(Seed(seed))) = policy.seed.0 {
            rules.seed = seed;
        }
        if let Some(Plain(Switch(preemption))) = policy.preemption.0 {
            rules.preemption = preemption;
        }
        if let Some(Plain(Switch(relocation))) = policy.relocation.0 {
            rules.relocation = relocation;
        }
        if let Some(Plain(Pressure(pressure))) = policy.pressure.0 {
            rules.pressure = pressure;
        }
        if let Some(Plain(LoadPerCpu(max))) = policy.load_per_cpu.0 {
            rules.load_per_cpu = Some(max);
        }
        if let Some(Mapping(defaults)) = policy.defaults.0 {
            rules.defaults = defaults.into();
        }
        let tenants = policy.tenants.0.map_or_else(Vec::new, |list| list.0);
        let tenants = tenants.into_iter().map(|Mapping(it)| it.into());
        rules.tenants = tenants.collect();
        rules
    }
}

/// What a START asks for where it does not say it itself: keys of `start.scheduling`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct Defaults {
    /// How long it may wait for room.
    #[serde(default)]
    queue: Maybe<Plain<Queue>>,
    /// How urgent it is.
    #[serde(default)]
    priority: Maybe<Plain<Priority>>,
    /// On how many nodes it may be tried.
    #[serde(default)]
    attempts: Maybe<Plain<Attempts>>,
    /// What is done when its node is lost.
    #[serde(default)]
    on_node_loss: Maybe<Plain<NodeLoss>>,
    /// Whether it may be moved.
    #[serde(default)]
    relocate: Maybe<Plain<Switch>>,
    /// How long it may run.
    #[serde(default)]
    time_limit: Maybe<Plain<TimeLimit>>,
}

impl From<Defaults> for StartDefaults {
    fn from(defaults: Defaults) -> Self {
        Self {
            queue: defaults.queue.0.map(|it| it.0.0),
            priority: defaults.priority.0.map(|it| it.0.0),
            attempts: defaults.attempts.0.map(|it| it.0.0),
            on_node_loss: defaults.on_node_loss.0.map(|it| it.0.0),
            relocate: defaults.relocate.0.map(|it| it.0.0),
            time_limit: defaults.time_limit.0.map(|it| it.0.0),
        }
    }
}

/// What STARTs of one tenant ask for where they do not say it themselves.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct TenantEntry {
    #[serde(deserialize_with = "required")]
    tenant: Plain<Tenant>,
    /// As in `defaults`, and so on for the others.
    #[serde(default)]
    queue: Maybe<Plain<Queue>>,
    #[serde(default)]
    priority: Maybe<Plain<Priority>>,
    #[serde(default)]
    attempts: Maybe<Plain<Attempts>>,
    #[serde(default)]
    on_node_loss: Maybe<Plain<NodeLoss>>,
    #[serde(default)]
    relocate: Maybe<Plain<Switch>>,
    #[serde(default)]
    time_limit: Maybe<Plain<TimeLimit>>,
}

impl From<TenantEntry> for (TenantId, StartDefaults) {
    fn from(entry: TenantEntry) -> Self {
        let defaults = Defaults {
            queue: entry.queue,
            priority: entry.priority,
            attempts: entry.attempts,
            on_node_loss: entry.on_node_loss,
            relocate: entry.relocate,
            time_limit: entry.time_limit,
        };
        (entry.tenant.0.0, defaults.into())
    }
}

/// A filter, by its name alone or as `{name, max}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a name or a mapping")]
struct FilterEntry {
    #[serde(deserialize_with = "required")]
    name: Plain<PartName>,
    /// Only for filters that have a limit; [`Rules::check`] refuses it for others.
    #[serde(default)]
    max: Maybe<Plain<Amount>>,
}

impl ByName for FilterEntry {
    const EXPECTED: &'static str = "the name of a filter, or {name: …, max: …}";

    fn by_name(name: &str) -> Self {
        Self {
            name: Plain(PartName(name.into())),
            max: Maybe(None),
        }
    }
}

impl From<FilterEntry> for FilterRule {
    fn from(entry: FilterEntry) -> Self {
        Self {
            name: entry.name.0.0,
            max: entry.max.0.map(|max| max.0.0),
        }
    }
}

/// A weigher, by its name alone or as `{name, multiplier}`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a name or a mapping")]
struct WeigherEntry {
    #[serde(deserialize_with = "required")]
    name: Plain<PartName>,
    /// How much it counts, 1 if absent; negative prefers what it would avoid.
    #[serde(default)]
    multiplier: Maybe<Plain<Multiplier>>,
}

impl ByName for WeigherEntry {
    const EXPECTED: &'static str = "the name of a weigher, or {name: …, multiplier: …}";

    fn by_name(name: &str) -> Self {
        Self {
            name: Plain(PartName(name.into())),
            multiplier: Maybe(None),
        }
    }
}

impl From<WeigherEntry> for WeigherRule {
    fn from(entry: WeigherEntry) -> Self {
        Self {
            name: entry.name.0.0,
            multiplier: entry.multiplier.0.map_or(1.0, |multiplier| multiplier.0.0),
        }
    }
}

/// A group of nodes, and what holds for its members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct AggregateEntry {
    #[serde(deserialize_with = "required")]
    name: Plain<AggregateName>,
    /// The availability zone of its members: a node is in one zone at most.
    #[serde(default)]
    zone: Maybe<Plain<LabelValue>>,
    /// Members by UUID or host name, beside those that `select` finds.
    #[serde(default)]
    nodes: Maybe<List<Plain<NodeText>, MAX_NODES>>,
    /// Members by labels and facts: a node for which all expressions hold.
    #[serde(default)]
    select: Maybe<Select>,
    /// Labels that members have because of it.
    #[serde(default)]
    labels: Maybe<Pairs<LabelKey, Plain<LabelValue>, MAX_LABELS>>,
    /// Tenants that its members are reserved for; empty = for all.
    #[serde(default)]
    tenants: Maybe<List<Plain<Tenant>, MAX_TENANTS>>,
    /// Images that its members are for; each becomes a label of the member.
    #[serde(default)]
    images: Maybe<List<Plain<ImageName>, MAX_IMAGES>>,
    /// Whether members run nothing else. True if absent, because that is what a list of images is for.
    #[serde(default)]
    images_only: Maybe<Plain<Switch>>,
    /// Instances that one member may have.
    #[serde(default)]
    max_instances: Maybe<Plain<Amount>>,
    /// STARTs on their way to one member at a time.
    #[serde(default)]
    max_starts_under_way: Maybe<Plain<Amount>>,
    /// By how much weighers count on its members, in place of what the policy says.
    #[serde(default)]
    multipliers: Maybe<Pairs<WeigherName, Plain<Multiplier>, MAX_POLICY_PARTS>>,
}

impl From<AggregateEntry> for Aggregate {
    fn from(entry: AggregateEntry) -> Self {
        let nodes = entry.nodes.0.map_or_else(Vec::new, |list| list.0);
        let labels = entry.labels.0.map_or_else(Vec::new, |pairs| pairs.0);
        let tenants = entry.tenants.0.map_or_else(Vec::new, |list| list.0);
        let images = entry.images.0.map_or_else(Vec::new, |list| list.0);
        let multipliers = entry.multipliers.0.map_or_else(Vec::new, |pairs| pairs.0);
        Self {
            name: entry.name.0.0,
            zone: entry.zone.0.map(|zone| zone.0.0),
            nodes: nodes
                .into_iter()
                .map(|Plain(NodeText(node))| node)
                .collect::<Vec<NodeName>>(),
            select: expressions(entry.select),
            labels: labels
                .into_iter()
                .map(|(LabelKey(key), Plain(LabelValue(value)))| (key, value))
                .collect(),
            tenants: tenants.into_iter().map(|Plain(Tenant(id))| id).collect(),
            // Without a list of images there is nothing to be reserved for, whatever the switch says.
            images_only: !images.is_empty()
                && entry.images_only.0.is_none_or(|Plain(Switch(only))| only),
            images: images.into_iter().map(|Plain(ImageName(it))| it).collect(),
            max_instances: entry.max_instances.0.map(|max| max.0.0),
            max_starts: entry.max_starts_under_way.0.map(|max| max.0.0),
            multipliers: multipliers
                .into_iter()
                .map(|(WeigherName(name), Plain(Multiplier(by)))| (name, by))
                .collect(),
        }
    }
}

/// What a share of the nodes offers: ratios of overcommitment, and what is kept back. Of several rules that select a
/// node, a later one's values count.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a mapping")]
struct CapacityEntry {
    /// The nodes it is for; absent = all.
    #[serde(default)]
    select: Maybe<Select>,
    /// Vcpus offered for each CPU online.
    #[serde(default)]
    cpu_ratio: Maybe<Plain<Ratio>>,
    /// Memory offered for each MiB present.
    #[serde(default)]
    mem_ratio: Maybe<Plain<Ratio>>,
    /// Disk offered, likewise.
    #[serde(default)]
    disk_ratio: Maybe<Plain<Ratio>>,
    /// In MiB, as all memory here.
    #[serde(default)]
    reserved_mem_mb: Maybe<Plain<Amount>>,
    /// In MiB.
    #[serde(default)]
    reserved_disk_mb: Maybe<Plain<Amount>>,
    #[serde(default)]
    reserved_cpus: Maybe<Plain<Amount>>,
}

impl From<CapacityEntry> for CapacityRule {
    fn from(entry: CapacityEntry) -> Self {
        // Absent stays absent: the value of an earlier rule, or the default, is left as it is.
        let ratio = |it: Maybe<Plain<Ratio>>| it.0.map(|ratio| ratio.0.0);
        let amount = |it: Maybe<Plain<Amount>>| it.0.map(|amount| amount.0.0);
        Self {
            select: expressions(entry.select),
            cpu_ratio: ratio(entry.cpu_ratio),
            mem_ratio: ratio(entry.mem_ratio),
            disk_ratio: ratio(entry.disk_ratio),
            reserved_mem_mib: amount(entry.reserved_mem_mb),
            reserved_disk_mib: amount(entry.reserved_disk_mb),
            reserved_cpus: amount(entry.reserved_cpus),
        }
    }
}

/// Expressions that must all hold for a node.
type Select = List<Plain<Condition>, MAX_EXPRESSIONS>;

/// No `select` is no expression, which holds for every node.
fn expressions(select: Maybe<Select>) -> Vec<Expression> {
    let select = select.0.map_or_else(Vec::new, |list| list.0);
    select.into_iter().map(|it| it.0.0).collect()
}

// Every value that can stand in the sections: what it becomes, what was expected where it does not fit, and how the
// text is read. The sentence after the colon is what the operator is shown.
scalars! {
    /// The policy that a preset is.
    Preset(PolicyRules): "first-fit, spread or pack", |text| {
        let preset = PolicyRules::preset(text).map(Self);
        preset.ok_or_else(|| unexpected::<Self>(text))
    };
    /// The name of a filter or weigher; which there are, the core knows.
    PartName(Box<str>): "a name", |text| Ok(Self(text.into()));
    /// How many nodes are weighed; `None` = all.
    Candidates(Option<usize>): "a whole number from 1, or all", |text| match text {
        "all" => Ok(Self(None)),
        text => Count::parse(text)
            .map(|Count(count)| Self(Some(count)))
            .map_err(|_| unexpected::<Self>(text)),
    };
    /// A number of nodes.
    Count(usize): "a whole number from 1", |text| match text.parse() {
        Ok(count @ 1..) => Ok(Self(count)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// What chance begins with.
    Seed(u64): "a whole number from 0", |text| {
        text.parse().map(Self).map_err(|_| unexpected::<Self>(text))
    };
    /// Whether something is done.
    Switch(bool): "true or false", |text| match text {
        "true" => Ok(Self(true)),
        "false" => Ok(Self(false)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// What is done about nodes that are short of memory.
    Pressure(PressurePolicy): "keep or evict", |text| match text {
        "keep" => Ok(Self(PressurePolicy::Keep)),
        "evict" => Ok(Self(PressurePolicy::Evict)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// A load per CPU, in hundredths.
    LoadPerCpu(i64): "a number from 0.01 to 1000", |text| match text.parse::<f64>() {
        Ok(load) if (0.01..=1000.0).contains(&load) => Ok(Self((load * 100.0).round() as i64)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// How long a START may wait.
    Queue(Span): "a time such as 10m, at most 30d", |text| match text.parse() {
        Ok(span) if span <= MAX_QUEUE => Ok(Self(span)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// How long an instance may run.
    TimeLimit(Span): "a time such as 10m, from 1s to 365d", |text| match text.parse() {
        Ok(span) if (MIN_TIME_LIMIT..=MAX_TIME_LIMIT).contains(&span) => Ok(Self(span)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// A priority.
    Priority(i64): "a whole number from 0 to 100", |text| match text.parse() {
        Ok(priority @ 0..=MAX_PRIORITY) => Ok(Self(priority)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// A number of nodes that a START is tried on.
    Attempts(u32): "a whole number from 1 to 10", |text| match text.parse() {
        Ok(attempts @ 1..=MAX_ATTEMPTS) => Ok(Self(attempts)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// What is done about an instance whose node is lost.
    NodeLoss(OnNodeLoss): "report or restart", |text| match text.into() {
        known @ (OnNodeLoss::Report | OnNodeLoss::Restart) => Ok(Self(known)),
        OnNodeLoss::Other(_) => Err(unexpected::<Self>(text)),
    };
    /// By how much a weigher counts.
    Multiplier(f64): "a number, at most 1000000000 either way", |text| match text.parse::<f64>() {
        Ok(number) if number.abs() <= MAX_MULTIPLIER => Ok(Self(number)),
        _ => Err(unexpected::<Self>(text)),
    };
    /// A ratio of overcommitment.
    Ratio(f64): "a number above 0, at most 1000", |text| {
        let found = |expected| format!("{expected}, found `{}`", shorten(text));
        parse_ratio(text).map(Self).map_err(found)
    };
    /// The name of an aggregate, which is part of a label.
    AggregateName(Box<str>): "a name of 1 to 118 letters, digits and . _ / -", |text| {
        // The name is part of the label `aggregate.<name>`, so that the whole must be a label's key: that is where 118
        // comes from.
        if is_name(&format!("aggregate.{text}")) && !text.is_empty() {
            Ok(Self(text.into()))
        } else {
            Err(unexpected::<Self>(text))
        }
    };
    /// A tenant, as STARTs name it.
    Tenant(TenantId): "a tenant's UUID or name", |text| match text {
        "" => Err(unexpected::<Self>(text)),
        text => Ok(Self(TenantId::new(text))),
    };
    /// The name of an image, as labels name it.
    ImageName(Box<str>): "the name of an image", |text| match text {
        "" => Err(unexpected::<Self>(text)),
        text => Ok(Self(label_of_image(text))),
    };
    /// The name of a weigher, as a key; which there are, the core knows.
    WeigherName(Box<str>): "the name of a weigher", |text| Ok(Self(text.into()));
    /// An expression over what a node has.
    Condition(Expression): "an expression such as zone = eu-1", |text| {
        let parsed = text.parse().map(Self);
        parsed.map_err(|ExpressionError { column, problem }| {
            format!("column {column} of the expression: {problem}")
        })
    };
}
