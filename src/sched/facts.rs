//! What the scheduler itself knows of a node, by the names that expressions use: `node.hostname`, `node.load` and so on.
//!
//! Labels of this prefix are the scheduler's; what a node reports under it is left out.

use std::borrow::Cow;
use std::fmt::Write as _;

use proto_frames::payload::Expression;

use super::view::Candidate;

/// What names of facts begin with.
pub(super) const PREFIX: &str = "node.";

/// The tenants a node is reserved for, as a label: unlike the facts it changes with the configuration alone.
pub(super) const TENANT: &str = "node.tenant";

/// A fact's value; `None` while it is not known.
type Value<'a> = Option<Cow<'a, str>>;

/// One fact: its name, and how it is read off a node.
struct Fact {
    name: &'static str,
    of: for<'a> fn(&Candidate<'a>) -> Value<'a>,
}

/// Every fact there is.
const FACTS: &[Fact] = &[
    Fact {
        name: "node.uuid",
        of: |node| Some(Cow::Owned(node.uuid().to_string())),
    },
    Fact {
        name: "node.hostname",
        of: |node| Some(Cow::Borrowed(node.hostname())),
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
        of: |node| Some(Cow::Owned(format!("{:.2}", node.failures()))),
    },
];

/// Whether an expression is about a fact rather than a label.
pub(super) fn is_fact(key: &str) -> bool {
    key.starts_with(PREFIX) && key != TENANT
}

/// Whether a fact has this name.
pub(super) fn is_known(name: &str) -> bool {
    FACTS.iter().any(|fact| fact.name == name)
}

/// The names of all facts, for people.
pub(super) fn names() -> String {
    let mut text = String::new();
    for fact in FACTS {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}{}", fact.name);
    }
    text
}

/// Whether an expression over a fact holds for a node. Of a fact that is not known nothing holds but what is negative.
pub(super) fn holds(node: &Candidate<'_>, expression: &Expression) -> bool {
    let fact = FACTS.iter().find(|fact| fact.name == expression.key());
    let value = fact.and_then(|fact| (fact.of)(node));
    let test = expression.test();
    value.is_some_and(|value| test.holds_for(&value)) != test.is_negative()
}

fn figure(figure: i64) -> Value<'static> {
    (figure >= 0).then(|| Cow::Owned(figure.to_string()))
}

fn count(count: usize) -> Value<'static> {
    Some(Cow::Owned(count.to_string()))
}
