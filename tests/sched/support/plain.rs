//! Placement evaluated as plainly as can be: nodes as lists of strings, expressions as an operator and words, every
//! condition looked at for every node. Shares nothing with the scheduler but the order in which nodes are tried.

use std::fmt::Write as _;

use sched_core::Resources;

/// An expression: `key operator words`.
#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) key: String,
    pub(crate) op: &'static str,
    /// Each with whether it is quoted.
    pub(crate) words: Vec<(String, bool)>,
}

impl Expr {
    pub(crate) fn text(&self) -> String {
        let quoted = |(word, is_quoted): &(String, bool)| match is_quoted {
            true => format!("\"{word}\""),
            false => word.clone(),
        };
        let words: Vec<String> = self.words.iter().map(quoted).collect();
        let mut text = format!("{} {}", self.key, self.op);
        if self.op.ends_with("in") {
            let _ = write!(text, " ({})", words.join(", "));
        } else if !words.is_empty() {
            let _ = write!(text, " {}", words[0]);
        }
        text
    }

    /// Whether it holds where its key has these addresses.
    fn holds_for_addresses(&self, addresses: &[String]) -> bool {
        let is_any = |address: &String| self.words.iter().any(|(it, _)| is_inside(address, it));
        match self.op {
            "=" | "in" => addresses.iter().any(is_any),
            "!=" | "not in" => !addresses.iter().any(is_any),
            "exists" => !addresses.is_empty(),
            "not exists" => addresses.is_empty(),
            _ => false,
        }
    }

    /// Whether it holds where its key has these values.
    pub(crate) fn holds(&self, values: &[String]) -> bool {
        let is_word = |value: &String| self.words.iter().any(|word| is_same(word, value));
        let compared = |holds: fn(f64, f64) -> bool| {
            let word = number(&self.words[0].0).expect("an order has a number");
            let mut numbers = values.iter().filter_map(|value| number(value));
            numbers.any(|value| holds(value, word))
        };
        match self.op {
            "=" | "in" => values.iter().any(is_word),
            "!=" | "not in" => !values.iter().any(is_word),
            "<" => compared(|value, word| value < word),
            "<=" => compared(|value, word| value <= word),
            ">" => compared(|value, word| value > word),
            ">=" => compared(|value, word| value >= word),
            "exists" => !values.is_empty(),
            "not exists" => values.is_empty(),
            other => panic!("no operator {other}"),
        }
    }
}

/// The bits of an IPv4 address, as text.
fn bits(address: &str) -> String {
    let octets = address
        .split('.')
        .map(|it| it.parse::<u8>().expect("an octet"));
    octets.map(|it| format!("{it:08b}")).collect()
}

/// Whether an address is in a network, or is the one that is written.
fn is_inside(address: &str, network: &str) -> bool {
    let (base, len) = network.split_once('/').unwrap_or((network, "32"));
    let len: usize = len.parse().expect("a length of a prefix");
    bits(address)[..len] == bits(base)[..len]
}

fn is_same((word, is_quoted): &(String, bool), value: &String) -> bool {
    let as_numbers = || match (number(word), number(value)) {
        (Some(word), Some(value)) => word == value,
        _ => false,
    };
    word == value || (!is_quoted && as_numbers())
}

fn number(text: &str) -> Option<f64> {
    let is_decimal = text.chars().all(|c| c.is_ascii_digit() || c == '.');
    (is_decimal && text.starts_with(|c: char| c.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

/// A label: key and value.
pub(crate) type Label = (String, String);

/// An aggregate.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) name: String,
    pub(crate) zone: Option<String>,
    /// Host names.
    pub(crate) nodes: Vec<String>,
    pub(crate) select: Vec<Expr>,
    pub(crate) labels: Vec<Label>,
    pub(crate) tenants: Vec<String>,
    pub(crate) images: Vec<String>,
    pub(crate) images_only: bool,
    pub(crate) max_instances: Option<i64>,
    pub(crate) max_starts: Option<i64>,
}

/// A capacity rule: memory ratio, memory reserved, CPUs reserved.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    pub(crate) select: Vec<Expr>,
    pub(crate) mem_ratio: Option<f64>,
    pub(crate) reserved_mem: Option<i64>,
    pub(crate) reserved_cpus: Option<i64>,
}

/// What the node file says of one host.
#[derive(Debug, Clone)]
pub(crate) struct Override {
    pub(crate) host: String,
    pub(crate) labels: Vec<(String, Option<String>)>,
    pub(crate) gpus: Option<i64>,
}

/// What is configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) sets: Vec<Set>,
    pub(crate) capacity: Vec<Capacity>,
    pub(crate) overrides: Vec<Override>,
}

/// An instance on a node.
#[derive(Debug, Clone)]
pub(crate) struct Instance {
    pub(crate) name: String,
    pub(crate) asked: Resources,
    pub(crate) gpus: i64,
    pub(crate) group: Option<String>,
    pub(crate) used_mem: i64,
    pub(crate) is_listed: bool,
}

/// A node that has reported.
#[derive(Debug, Clone)]
pub(crate) struct PlainNode {
    pub(crate) number: u64,
    pub(crate) uuid: String,
    pub(crate) host: String,
    pub(crate) is_ready: bool,
    /// What was released less what was claimed since it called itself full, while that is its latest word.
    pub(crate) released: Option<Resources>,
    pub(crate) has_listed: bool,
    pub(crate) total_mem: i64,
    pub(crate) available_mem: i64,
    pub(crate) disk: i64,
    pub(crate) cpus: i64,
    pub(crate) load: i64,
    pub(crate) reported: Vec<Label>,
    pub(crate) gpus: i64,
    /// Addresses of its interfaces.
    pub(crate) addresses: Vec<String>,
    /// Volumes and ports it reports.
    pub(crate) volumes: Vec<String>,
    pub(crate) instances: Vec<Instance>,
}

impl PlainNode {
    /// Its labels, with what the node file says.
    fn own_labels(&self, plan: &Plan) -> Vec<Label> {
        let mut own = self.reported.clone();
        own.retain(|(key, _)| !key.starts_with("node."));
        for rule in plan.overrides.iter().filter(|rule| rule.host == self.host) {
            for (key, value) in &rule.labels {
                own.retain(|(other, _)| other != key);
                own.extend(value.iter().map(|value| (key.clone(), value.clone())));
            }
        }
        own
    }

    /// Its labels, with what is configured.
    pub(crate) fn labels(&self, plan: &Plan) -> Vec<Label> {
        let own = self.own_labels(plan);
        let mut all = own.clone();
        let mut zone = None;
        for set in self.sets_with(plan, &own) {
            all.push((format!("aggregate.{}", set.name), "true".to_owned()));
            all.extend(set.labels.iter().cloned());
            let tenants = set.tenants.iter();
            all.extend(tenants.map(|tenant| ("node.tenant".to_owned(), tenant.clone())));
            zone = zone.or(set.zone.clone());
        }
        if let Some(zone) = zone {
            // No set here has a label `zone`, so that these are the node's own.
            all.retain(|(key, _)| key != "zone");
            all.push(("zone".to_owned(), zone));
        }
        all.sort();
        all.dedup();
        all
    }

    /// The sets it is in, having these labels of its own.
    fn sets_with<'p>(&self, plan: &'p Plan, own: &[Label]) -> Vec<&'p Set> {
        let is_in = |set: &&Set| {
            let is_selected =
                !set.select.is_empty() && set.select.iter().all(|it| self.holds(it, own, plan));
            is_selected || set.nodes.contains(&self.host)
        };
        plan.sets.iter().filter(is_in).collect()
    }

    /// The sets it is in.
    fn sets<'p>(&self, plan: &'p Plan) -> Vec<&'p Set> {
        self.sets_with(plan, &self.own_labels(plan))
    }

    /// Whether an expression holds for it, with these labels.
    pub(crate) fn holds(&self, expr: &Expr, labels: &[Label], plan: &Plan) -> bool {
        if !expr.key.starts_with("node.") || expr.key == "node.tenant" {
            return expr.holds(&values(labels, &expr.key));
        }
        if expr.key == "node.address" {
            return expr.holds_for_addresses(&self.addresses);
        }
        // Free amounts depend on labels, which depend on lasting facts: only those are asked for then.
        let free = || self.free(plan);
        let fact = match expr.key.as_str() {
            "node.uuid" => Some(self.uuid.clone()),
            "node.hostname" => Some(self.host.clone()),
            "node.cpus" => known(self.cpus),
            "node.load" => known(self.load),
            "node.mem_total_mb" => known(self.total_mem),
            "node.disk_total_mb" => known(self.disk),
            "node.mem_free_mb" => known(free().mem_mib),
            "node.disk_free_mb" => known(free().disk_mib),
            "node.vcpus_free" => known(free().vcpus),
            "node.instances" => known(self.instances.len() as i64),
            "node.starts_under_way" => known(self.under_way()),
            other => panic!("no fact {other}"),
        };
        expr.holds(&fact.into_iter().collect::<Vec<String>>())
    }

    /// STARTs of which nothing has been heard.
    pub(crate) fn under_way(&self) -> i64 {
        self.instances.iter().filter(|it| !it.is_listed).count() as i64
    }

    /// What it has free.
    pub(crate) fn free(&self, plan: &Plan) -> Resources {
        let sum = |of: fn(&Instance) -> i64| self.instances.iter().map(of).sum::<i64>();
        let unasked = self.unasked(plan);
        let capacity = unasked.mem_mib + sum(|it| it.asked.mem_mib);
        let unused = sum(|it| (it.asked.mem_mib - it.used_mem).max(0));
        let by_report = self.available_mem + capacity - self.total_mem - unused;
        Resources {
            mem_mib: by_report.min(unasked.mem_mib),
            ..unasked
        }
    }

    /// What was released since it called itself full, as far as its capacity is not asked for.
    fn room_again(&self, plan: &Plan) -> Option<Resources> {
        let released = self.released?;
        let is_any = released.mem_mib > 0 || released.vcpus > 0 || released.disk_mib > 0;
        let released = released.max(Resources::ZERO);
        is_any.then(|| released.min(self.unasked(plan)))
    }

    /// An instance has left it (1), or come (-1).
    pub(crate) fn note_released(&mut self, asked: &Resources, sign: i64) {
        if let Some(released) = &mut self.released {
            released.mem_mib += sign * asked.mem_mib;
            released.vcpus += sign * asked.vcpus;
            released.disk_mib += sign * asked.disk_mib;
        }
    }

    /// Its capacity less what its instances asked for.
    fn unasked(&self, plan: &Plan) -> Resources {
        let labels = self.labels(plan);
        let (mut ratio, mut reserved_mem, mut reserved_cpus) = (1.0, 0, 0);
        for rule in &plan.capacity {
            if rule.select.iter().all(|it| self.holds(it, &labels, plan)) {
                ratio = rule.mem_ratio.unwrap_or(ratio);
                reserved_mem = rule.reserved_mem.unwrap_or(reserved_mem);
                reserved_cpus = rule.reserved_cpus.unwrap_or(reserved_cpus);
            }
        }
        let sum = |of: fn(&Instance) -> i64| self.instances.iter().map(of).sum::<i64>();
        let capacity = ((self.total_mem - reserved_mem).max(0) as f64 * ratio) as i64;
        Resources {
            mem_mib: capacity - sum(|it| it.asked.mem_mib),
            vcpus: (self.cpus - reserved_cpus).max(0) - sum(|it| it.asked.vcpus),
            disk_mib: self.disk - sum(|it| it.asked.disk_mib),
        }
    }

    /// How many GPUs it has free.
    pub(crate) fn free_gpus(&self, plan: &Plan) -> i64 {
        let rules = plan.overrides.iter().filter(|rule| rule.host == self.host);
        let total = rules.filter_map(|rule| rule.gpus).next_back();
        let used: i64 = self.instances.iter().map(|it| it.gpus).sum();
        total.unwrap_or(self.gpus) - used
    }

    /// Whether an instance is on it.
    fn has_instance(&self, name: &str) -> bool {
        self.instances.iter().any(|it| it.name == name)
    }

    /// Members of a group on it.
    pub(crate) fn members(&self, group: &str) -> i64 {
        let groups = self.instances.iter().filter_map(|it| it.group.as_deref());
        groups.filter(|it| *it == group).count() as i64
    }
}

/// Whether a node may have one more by all the sets that it is in.
fn within_limits(node: &PlainNode, plan: &Plan) -> bool {
    let has_room = |set: &&Set| {
        set.max_instances
            .is_none_or(|max| (node.instances.len() as i64) < max)
            && set.max_starts.is_none_or(|max| node.under_way() < max)
    };
    node.sets(plan).iter().all(has_room)
}

fn known(figure: i64) -> Option<String> {
    (figure >= 0).then(|| figure.to_string())
}

/// The values of a key.
pub(crate) fn values(labels: &[Label], key: &str) -> Vec<String> {
    let of_key = labels.iter().filter(|(other, _)| other == key);
    of_key.map(|(_, value)| value.clone()).collect()
}

/// What a group is to do.
#[derive(Debug, Clone)]
pub(crate) struct Together {
    pub(crate) id: String,
    pub(crate) is_anti: bool,
    pub(crate) is_soft: bool,
    /// `node` or a label.
    pub(crate) scope: String,
    pub(crate) max: i64,
}

/// What a START asks for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) asked: Resources,
    pub(crate) gpus: i64,
    pub(crate) uuid: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) tenant: Option<String>,
    pub(crate) require: Vec<Expr>,
    pub(crate) prefer: Vec<Expr>,
    pub(crate) group: Option<Together>,
    /// Label, scope, whether it must be so.
    pub(crate) near: Vec<(String, String, bool)>,
    pub(crate) image: Option<String>,
    /// Instances.
    pub(crate) same_node: Vec<String>,
    pub(crate) different_node: Vec<String>,
    /// Volumes and ports.
    pub(crate) volumes: Vec<String>,
}

/// All nodes in order of connection, and which was used last.
#[derive(Debug, Default)]
pub(crate) struct Plain {
    pub(crate) nodes: Vec<PlainNode>,
    pub(crate) plan: Plan,
    pub(crate) most_recently_used: Option<u64>,
}

impl Plain {
    /// The nodes that may run it, in the order in which they are tried; if there are none, the first that called itself
    /// full before enough was released there.
    pub(crate) fn fitting(&self, wanted: &Wanted) -> Vec<&PlainNode> {
        let mru = self.most_recently_used;
        let at = self.nodes.iter().position(|node| Some(node.number) == mru);
        let (before, after) = self.nodes.split_at(at.map_or(0, |at| at + 1));
        let order = || after.iter().chain(before);
        let is_ready = |node: &&PlainNode| {
            node.is_ready && node.free(&self.plan).covers(&wanted.asked) && self.suits(node, wanted)
        };
        let has_room_again = |node: &&PlainNode| {
            let room = node.room_again(&self.plan);
            room.is_some_and(|room| room.covers(&wanted.asked)) && self.suits(node, wanted)
        };
        let ready: Vec<&PlainNode> = order().filter(is_ready).collect();
        if ready.is_empty() {
            return order().find(has_room_again).into_iter().collect();
        }
        ready
    }

    /// Whether a node is what is asked for, apart from memory, vcpus and disk.
    fn suits(&self, node: &PlainNode, wanted: &Wanted) -> bool {
        let plan = &self.plan;
        let labels = node.labels(plan);
        let tenants = values(&labels, "node.tenant");
        let is_own = |tenant: &String| tenants.contains(tenant);
        let is_pinned_elsewhere = wanted.uuid.as_ref().is_some_and(|it| *it != node.uuid)
            || wanted.host.as_ref().is_some_and(|it| *it != node.host);
        !is_pinned_elsewhere
            && (tenants.is_empty() || wanted.tenant.as_ref().is_some_and(is_own))
            && self.takes_image(node, wanted)
            && within_limits(node, plan)
            && (wanted.same_node.is_empty()
                || wanted.same_node.iter().any(|it| node.has_instance(it)))
            && !wanted.different_node.iter().any(|it| node.has_instance(it))
            && (wanted.gpus == 0 || node.free_gpus(plan) >= wanted.gpus)
            && wanted
                .require
                .iter()
                .all(|it| node.holds(it, &labels, plan))
            && wanted
                .near
                .iter()
                .all(|near| !near.2 || self.is_near(&labels, near))
            && wanted
                .group
                .as_ref()
                .is_none_or(|group| group.is_soft || self.joins(node, group))
    }

    fn takes_image(&self, node: &PlainNode, wanted: &Wanted) -> bool {
        let sets = node.sets(&self.plan);
        let is_isolated =
            |image: &&String| self.plan.sets.iter().any(|set| set.images.contains(image));
        match wanted.image.as_ref().filter(is_isolated) {
            Some(image) => sets.iter().any(|set| set.images.contains(image)),
            None => sets
                .iter()
                .all(|set| set.images.is_empty() || !set.images_only),
        }
    }

    /// How many of these volumes a node has, of those that any node has.
    pub(crate) fn volumes_at(&self, node: &PlainNode, wanted: &Wanted) -> i64 {
        let has_it = |volume: &&String| node.volumes.contains(volume);
        wanted.volumes.iter().filter(has_it).count() as i64
    }

    fn joins(&self, node: &PlainNode, group: &Together) -> bool {
        let has_place =
            group.scope == "node" || !values(&node.labels(&self.plan), &group.scope).is_empty();
        let members = self.members_at(node, group);
        let has_any = self.nodes.iter().any(|node| node.members(&group.id) > 0);
        let fits = if group.is_anti {
            members < group.max
        } else {
            members > 0 || !has_any
        };
        node.has_listed && has_place && fits
    }

    /// Members in the place where a node is; of several places, in the one with the most.
    pub(crate) fn members_at(&self, node: &PlainNode, group: &Together) -> i64 {
        if group.scope == "node" {
            return node.members(&group.id);
        }
        let in_place = |place: String| {
            let is_there = |other: &&PlainNode| {
                values(&other.labels(&self.plan), &group.scope).contains(&place)
            };
            let there = self.nodes.iter().filter(is_there);
            there.map(|other| other.members(&group.id)).sum()
        };
        let places = values(&node.labels(&self.plan), &group.scope);
        places.into_iter().map(in_place).max().unwrap_or(0)
    }

    /// Whether a node with these labels is near.
    pub(crate) fn is_near(
        &self,
        labels: &[Label],
        (label, scope, _): &(String, String, bool),
    ) -> bool {
        if scope == "node" {
            return !values(labels, label).is_empty();
        }
        let places = values(labels, scope);
        self.nodes.iter().any(|other| {
            let others = other.labels(&self.plan);
            let has_it = !values(&others, label).is_empty();
            has_it
                && values(&others, scope)
                    .iter()
                    .any(|place| places.contains(place))
        })
    }
}
