//! Random labels, expressions, sets of nodes, rules of the node file, groups and the like, for the tests of conditions.
//! Few words are used, so that much of it meets.

use fastrand::Rng;

use crate::support::plain::{Expr, Label, Override, Set, Together};

const KEYS: [&str; 5] = ["zone", "rack", "cores", "ssd", "image.ub"];
const VALUES: [&str; 7] = ["a", "b", "c", "2", "2.0", "10", "true"];
pub(crate) const FACTS: [&str; 11] = [
    "node.hostname",
    "node.address",
    "node.cpus",
    "node.mem_total_mb",
    "node.disk_total_mb",
    "node.load",
    "node.mem_free_mb",
    "node.disk_free_mb",
    "node.vcpus_free",
    "node.instances",
    "node.starts_under_way",
];
/// Of these, those by which sets of nodes may be selected: the first so many.
pub(crate) const LASTING: usize = 5;
const OPERATORS: [&str; 10] = [
    "=",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "exists",
    "not exists",
];

pub(crate) fn pick<'a>(chance: &mut Rng, of: &[&'a str]) -> &'a str {
    of[chance.usize(..of.len())]
}

pub(crate) fn some_labels(chance: &mut Rng) -> Vec<Label> {
    let mut labels: Vec<Label> = Vec::new();
    for key in KEYS {
        if chance.u8(..3) > 0 {
            labels.push((key.to_owned(), pick(chance, &VALUES).to_owned()));
        }
    }
    if chance.u8(..8) == 0 {
        // Not for a node to say.
        labels.push(("node.tenant".to_owned(), "t1".to_owned()));
    }
    labels
}

/// A few expressions over labels and the first so many facts.
pub(crate) fn some_exprs(chance: &mut Rng, below: usize, facts: usize) -> Vec<Expr> {
    (0..chance.usize(..below))
        .map(|_| an_expr(chance, facts))
        .collect()
}

pub(crate) fn an_expr(chance: &mut Rng, facts: usize) -> Expr {
    let is_fact = chance.u8(..3) == 0;
    let key = if is_fact {
        pick(chance, &FACTS[..facts])
    } else {
        pick(chance, &KEYS)
    };
    let op = pick(chance, &OPERATORS);
    let mut word = |is_number: bool| {
        if key == "node.address" && !is_number {
            return (a_network(chance), chance.bool());
        }
        if is_number || key != "node.hostname" && is_fact {
            return (chance.u8(..40).to_string(), false);
        }
        if is_fact {
            return (format!("h{}", chance.u8(..24)), false);
        }
        (pick(chance, &VALUES).to_owned(), chance.u8(..5) == 0)
    };
    let words = match op {
        "exists" | "not exists" => Vec::new(),
        "in" | "not in" => (0..3).map(|_| word(false)).collect(),
        "=" | "!=" => vec![word(false)],
        _ => vec![word(true)],
    };
    Expr {
        key: key.to_owned(),
        op,
        words,
    }
}

pub(crate) fn a_set(at: usize, chance: &mut Rng) -> Set {
    let tenants = if chance.u8(..3) == 0 {
        chance.u8(..3)
    } else {
        0
    };
    Set {
        name: format!("s{at}"),
        zone: chance.bool().then(|| pick(chance, &VALUES).to_owned()),
        nodes: (0..chance.u8(..4))
            .map(|_| format!("h{}", chance.u8(..24)))
            .collect(),
        select: some_exprs(chance, 2, LASTING),
        labels: (0..chance.u8(..2))
            .map(|_| ("rack".to_owned(), pick(chance, &VALUES).to_owned()))
            .collect(),
        tenants: (0..tenants).map(|tenant| format!("t{tenant}")).collect(),
        images: if chance.u8(..4) == 0 {
            vec![an_image(chance)]
        } else {
            Vec::new()
        },
        images_only: chance.bool(),
        max_instances: (chance.u8(..5) == 0).then(|| chance.i64(0..6)),
        max_starts: (chance.u8(..5) == 0).then(|| chance.i64(0..4)),
    }
}

/// An address, or a network around a few.
fn a_network(chance: &mut Rng) -> String {
    let prefix = ["", "/8", "/16", "/23", "/32"][chance.usize(..5)];
    format!("10.{}.{}.7{prefix}", chance.u8(..2), chance.u8(..3))
}

/// The addresses of a node.
pub(crate) fn some_addresses(chance: &mut Rng) -> Vec<String> {
    let count = chance.u8(..3);
    (0..count)
        .map(|_| format!("10.{}.{}.7", chance.u8(..2), chance.u8(..3)))
        .collect()
}

/// One of a few images.
pub(crate) fn an_image(chance: &mut Rng) -> String {
    format!("image-{}", chance.u8(..3))
}

/// Some of a few volumes and ports.
pub(crate) fn some_volumes(chance: &mut Rng) -> Vec<String> {
    let all = (0..4).map(|at| format!("volume-{at}"));
    all.filter(|_| chance.u8(..3) == 0).collect()
}

pub(crate) fn an_override(chance: &mut Rng) -> Override {
    let mut label = || {
        let value = chance.bool().then(|| pick(chance, &VALUES).to_owned());
        (pick(chance, &KEYS).to_owned(), value)
    };
    Override {
        labels: vec![label(), label()],
        host: format!("h{}", chance.u8(..24)),
        gpus: chance.bool().then(|| chance.i64(0..5)),
    }
}

pub(crate) fn a_group(chance: &mut Rng, may_be_soft: bool) -> Together {
    Together {
        id: format!("g{}", chance.u8(..5)),
        is_anti: chance.u8(..3) > 0,
        is_soft: may_be_soft && chance.bool(),
        scope: pick(chance, &["node", "node", "rack", "zone"]).to_owned(),
        max: chance.i64(1..4),
    }
}

pub(crate) fn a_near(chance: &mut Rng, may_be_soft: bool) -> (String, String, bool) {
    let label = pick(chance, &["ssd", "image.ub", "cores"]).to_owned();
    let scope = pick(chance, &["node", "rack", "zone"]).to_owned();
    (label, scope, !may_be_soft || chance.bool())
}
