//! What the scheduler itself knows of a node, by the names that expressions use: `node.hostname`, `node.load` and so
//! on.
//!
//! Labels with the prefix `node.` are the scheduler's; what a node reports under it is left out. Some of them are kept
//! as labels ([`TENANT`], [`IMAGE`] and the like), because they change with the configuration or a report alone and the
//! search has to find nodes by them. All others are read off a node when an expression asks.
//!
//! To add a fact: an entry in [`FACTS`], and in [`LASTING`] if it changes only when someone changes the node.

use core::net::IpAddr;
use std::fmt::Write as _;

use ipnet::IpNet;
use sched_model::{Expression, Number, Test, Uuid};

use crate::cluster::candidate::Candidate;
use crate::cluster::labels;

/// The prefix of labels that say which aggregates a node is in: `aggregate.NAME` with the value `true`.
pub(crate) const AGGREGATE: &str = "aggregate.";

/// Whether only the scheduler gives labels with this key. Nodes that report one are ignored in that.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with(PREFIX) || key.starts_with(AGGREGATE)
}

/// What names of facts begin with.
pub(crate) const PREFIX: &str = "node.";

/// The tenants a node is reserved for, as a label: unlike the facts it changes with the configuration alone.
pub(crate) const TENANT: &str = "node.tenant";

/// The types of workload that a node does not run, as a label. Kept by absence, because most nodes run all types that
/// are asked of the cluster.
pub(crate) const LACKS_VM_TYPE: &str = "node.lacks_vm_type";

/// The images that run on the nodes of an aggregate and nowhere else, as a label of these nodes.
pub(crate) const IMAGE: &str = "node.image";

/// The label of nodes on which nothing but such images runs.
pub(crate) const IMAGES_ONLY: &str = "node.images_only";

/// The volumes and ports that a node reports, as a label.
pub(crate) const VOLUME: &str = "node.volume";

/// What is kept as labels although it has the prefix of facts.
const MADE_LABELS: [&str; 4] = [TENANT, IMAGE, IMAGES_ONLY, VOLUME];

/// The addresses that a node reported.
pub(crate) const ADDRESS: &str = "node.address";

/// The node's UUID.
pub(crate) const UUID: &str = "node.uuid";

/// The host name it reported.
pub(crate) const HOSTNAME: &str = "node.hostname";

/// The facts that change only when someone changes the node. Aggregates and capacity rules may select by these.
pub(crate) const LASTING: [&str; 6] = [
    UUID,
    HOSTNAME,
    ADDRESS,
    "node.cpus",
    "node.mem_total_mb",
    "node.disk_total_mb",
];

/// A fact's value. A test compares texts and UUIDs by equality, numbers by order too, and addresses with networks.
enum Value<'a> {
    Text(&'a str),
    Uuid(Uuid),
    Number(f64),
    Addresses(&'a [IpAddr]),
}

/// One fact: its name, and how it is read off a node.
struct Fact {
    name: &'static str,
    /// `None` while it is not known.
    of: for<'a> fn(&Candidate<'a>) -> Option<Value<'a>>,
}

/// Builds a fact; a function because struct literals would triple the table's length.
const fn fact(name: &'static str, of: for<'a> fn(&Candidate<'a>) -> Option<Value<'a>>) -> Fact {
    Fact { name, of }
}

/// Every fact there is.
const FACTS: &[Fact] = &[
    fact(UUID, |node| Some(Value::Uuid(node.uuid()))),
    fact(HOSTNAME, |node| Some(Value::Text(node.hostname()))),
    fact(ADDRESS, |node| {
        Some(Value::Addresses(&node.report()?.addresses))
    }),
    fact("node.cpus", |node| figure(node.report()?.cpus_online)),
    fact("node.load", |node| figure(node.report()?.load)),
    fact("node.mem_total_mb", |node| {
        figure(node.report()?.mem_total_mib)
    }),
    fact("node.disk_total_mb", |node| {
        figure(node.report()?.disk_total_mb)
    }),
    fact("node.mem_free_mb", |node| figure(node.free.mem_mib)),
    fact("node.disk_free_mb", |node| figure(node.free.disk_mib)),
    fact("node.vcpus_free", |node| figure(node.free.vcpus)),
    fact("node.instances", |node| count(node.instances())),
    fact("node.starts_under_way", |node| {
        count(node.starts_under_way())
    }),
    fact("node.cpu_use", |node| figure(node.cpu_use())),
    fact("node.failures", |node| Some(Value::Number(node.failures()))),
];

/// Whether an expression is about a fact rather than a label.
pub(crate) fn is_fact(key: &str) -> bool {
    key.starts_with(PREFIX) && !MADE_LABELS.contains(&key)
}

/// Whether the values of a key change only when someone changes the node: those of labels, and some facts. Where an
/// expression over such a key fails, waiting does not help.
pub(crate) fn is_lasting(key: &str) -> bool {
    !is_fact(key) || LASTING.contains(&key)
}

/// Whether a fact has this name.
pub(crate) fn is_known(name: &str) -> bool {
    FACTS.iter().any(|fact| fact.name == name)
}

/// The names of all facts, for people.
pub(crate) fn names() -> String {
    let mut text = String::new();
    for fact in FACTS {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{}", fact.name);
    }
    text
}

impl Candidate<'_> {
    /// Whether an expression over its labels or facts holds.
    pub(crate) fn holds(&self, expression: &Expression) -> bool {
        self.holds_with(self.labels(), expression)
    }

    /// The same if it had these labels.
    pub(super) fn holds_with(
        &self,
        labels: &[(Box<str>, Box<str>)],
        expression: &Expression,
    ) -> bool {
        match is_fact(expression.key()) {
            true => fact_holds(self, expression),
            false => labels::holds(labels, expression),
        }
    }
}

/// Whether an expression over a fact holds for a node. If the fact is not known for the node, only negative expressions
/// hold.
fn fact_holds(node: &Candidate<'_>, expression: &Expression) -> bool {
    let fact = FACTS.iter().find(|fact| fact.name == expression.key());
    let test = expression.test();
    let meets = |value| match value {
        Value::Text(text) => test.holds_for(text),
        Value::Uuid(uuid) => {
            test.holds_for(uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
        }
        Value::Number(number) => {
            Number::new(number).is_some_and(|number| test.holds_for_number(number))
        }
        Value::Addresses(addresses) => holds_for_addresses(test, addresses),
    };
    fact.and_then(|fact| (fact.of)(node)).is_some_and(meets) != test.is_negative()
}

/// Whether a test holds for one of some addresses, of its values each being an address or a network in CIDR notation
/// (RFC 4632, RFC 4291); of a negative test, whether its counterpart holds. No order holds for addresses.
fn holds_for_addresses(test: &Test, addresses: &[IpAddr]) -> bool {
    if let Test::Exists | Test::Absent = test {
        return !addresses.is_empty();
    }
    let mut networks = test.words().iter().filter_map(|word| network(word.text()));
    networks.any(|network| addresses.iter().any(|it| network.contains(it)))
}

/// A network in CIDR notation, or an address as the network of itself. Bits behind the prefix may be set, as in Nova.
/// `None` for any other text, which then matches nothing.
fn network(text: &str) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
    text.parse().ok().or_else(address)
}

/// A reported figure; below 0 it is not known.
fn figure(figure: i64) -> Option<Value<'static>> {
    (figure >= 0).then_some(Value::Number(figure as f64))
}

/// A count that the scheduler keeps, which is always known.
fn count(count: usize) -> Option<Value<'static>> {
    Some(Value::Number(count as f64))
}
