//! What the scheduler itself knows of a node, by the names that expressions use: `node.hostname`, `node.load` and so on.
//!
//! Labels of this prefix are the scheduler's; what a node reports under it is left out.

use std::fmt::Write as _;

use sched_model::{Expression, Number, Uuid};

use crate::cluster::view::Candidate;

/// What labels begin with that say which aggregates a node is in.
pub(crate) const AGGREGATE: &str = "aggregate.";

/// Whether a label is the scheduler's to give, whatever a node says of itself.
pub(crate) fn is_reserved(key: &str) -> bool {
    key.starts_with(PREFIX) || key.starts_with(AGGREGATE)
}

/// What names of facts begin with.
pub(crate) const PREFIX: &str = "node.";

/// The tenants a node is reserved for, as a label: unlike the facts it changes with the configuration alone.
pub(crate) const TENANT: &str = "node.tenant";

/// The types of workload that a node does not run, as a label, so that they are found by their absence: most run all that
/// is asked of the cluster.
pub(crate) const LACKS_VM_TYPE: &str = "node.lacks_vm_type";

/// The node's UUID.
pub(crate) const UUID: &str = "node.uuid";

/// The host name it reported.
pub(crate) const HOSTNAME: &str = "node.hostname";

/// The facts that do not change by themselves.
pub(crate) const LASTING: [&str; 5] = [
    UUID,
    HOSTNAME,
    "node.cpus",
    "node.mem_total_mb",
    "node.disk_total_mb",
];

/// A fact's value.
enum Value<'a> {
    Text(&'a str),
    Uuid(Uuid),
    Number(f64),
}

/// One fact: its name, and how it is read off a node.
struct Fact {
    name: &'static str,
    /// `None` while it is not known.
    of: for<'a> fn(&Candidate<'a>) -> Option<Value<'a>>,
}

/// Every fact there is.
const FACTS: &[Fact] = &[
    Fact {
        name: UUID,
        of: |node| Some(Value::Uuid(node.uuid())),
    },
    Fact {
        name: HOSTNAME,
        of: |node| Some(Value::Text(node.hostname())),
    },
    Fact {
        name: "node.cpus",
        of: |node| figure(node.report()?.cpus_online),
    },
    Fact {
        name: "node.load",
        of: |node| figure(node.report()?.load),
    },
    Fact {
        name: "node.mem_total_mb",
        of: |node| figure(node.report()?.mem_total_mib),
    },
    Fact {
        name: "node.disk_total_mb",
        of: |node| figure(node.report()?.disk_total_mb),
    },
    Fact {
        name: "node.mem_free_mb",
        of: |node| figure(node.free().mem_mib),
    },
    Fact {
        name: "node.disk_free_mb",
        of: |node| figure(node.free().disk_mib),
    },
    Fact {
        name: "node.vcpus_free",
        of: |node| figure(node.free().vcpus),
    },
    Fact {
        name: "node.instances",
        of: |node| count(node.instances()),
    },
    Fact {
        name: "node.starts_under_way",
        of: |node| count(node.starts_under_way()),
    },
    Fact {
        name: "node.failures",
        of: |node| Some(Value::Number(node.failures())),
    },
];

/// Whether an expression is about a fact rather than a label.
pub(crate) fn is_fact(key: &str) -> bool {
    key.starts_with(PREFIX) && key != TENANT
}

/// Whether the values of a key stay as they are unless somebody changes the node: those of labels, and some facts.
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

/// Whether an expression over a fact holds for a node. Of a fact that is not known nothing holds but what is negative.
pub(crate) fn holds(node: &Candidate<'_>, expression: &Expression) -> bool {
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
    };
    fact.and_then(|fact| (fact.of)(node)).is_some_and(meets) != test.is_negative()
}

fn figure(figure: i64) -> Option<Value<'static>> {
    (figure >= 0).then_some(Value::Number(figure as f64))
}

fn count(count: usize) -> Option<Value<'static>> {
    Some(Value::Number(count as f64))
}
