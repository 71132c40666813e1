//! Every way in which a key of the sections may be wrong, and what is said of it.

use super::mistake;

/// Policies, and what is said of them.
const POLICY: &[(&str, &str)] = &[
    (
        "{preset: fastest}",
        "policy.preset, line 4 column 22: expected first-fit, spread or pack, found `fastest`",
    ),
    (
        "{presett: spread}",
        "policy.presett, line 4 column 14: unknown key, expected one of `preset`, `filters`, `weighers`, `candidates`, `subset_size`, `seed`, `preemption`, `relocation`, `pressure`",
    ),
    (
        "spread",
        "policy, line 4 column 13: expected a mapping, found string \"spread\"",
    ),
    (
        "",
        "policy, line 4 column 12: expected a mapping, found nothing",
    ),
    (
        "[]",
        "policy, line 4 column 13: expected a mapping, found a list",
    ),
    (
        "{preset: pack, preset: pack}",
        "policy.preset, line 4 column 13: stands twice",
    ),
    (
        "{preset: null}",
        "policy.preset, line 4 column 22: expected first-fit, spread or pack, found nothing",
    ),
    (
        "{filters: pin}",
        "policy.filters, line 4 column 23: expected a list, found string \"pin\"",
    ),
    (
        "{filters: [pni]}",
        "policy.filters[0], line 4 column 24: there is no filter 'pni'; there are pin, ",
    ),
    (
        "{filters: [5]}",
        "policy.filters[0], line 4 column 24: expected the name of a filter, or {name: …, max: …}, found integer `5`",
    ),
    (
        "{filters: [{max: 5}]}",
        "policy.filters[0].name, line 4 column 24: missing",
    ),
    (
        "{filters: [{name: load, mx: 5}]}",
        "policy.filters[0].mx, line 4 column 37: unknown key, expected `name` or `max`",
    ),
    (
        "{filters: [{name: load, max: -5}]}",
        "policy.filters[0].max, line 4 column 42: expected a whole number from 0",
    ),
    (
        "{filters: [load]}",
        "policy.filters[0], line 4 column 24: filter 'load' needs a max",
    ),
    (
        "{weighers: [prefer, lod]}",
        "policy.weighers[1], line 4 column 33: there is no weigher 'lod'; there are free-memory, ",
    ),
    (
        "{weighers: [prefer, {name: load, multiplier: much}]}",
        "policy.weighers[1].multiplier, line 4 column 58: expected a number, at most 1000000000 either way, found `much`",
    ),
    (
        "{weighers: [{name: load, multiplier: .inf}]}",
        "policy.weighers[0].multiplier, ",
    ),
    (
        "{weighers: [{name: load, multiplier: nan}]}",
        "policy.weighers[0].multiplier, ",
    ),
    (
        "{weighers: [{name: load, multiplier: 1e10}]}",
        "policy.weighers[0].multiplier, ",
    ),
    (
        "{weighers: [{name: [load]}]}",
        "policy.weighers[0].name, line 4 column 32: expected a name, found a list",
    ),
    (
        "{candidates: 0}",
        "policy.candidates, line 4 column 26: expected a whole number from 1, or all, found `0`",
    ),
    (
        "{candidates: none}",
        "policy.candidates, line 4 column 26: expected a whole number from 1, or all, found `none`",
    ),
    (
        "{subset_size: 0}",
        "policy.subset_size, line 4 column 27: expected a whole number from 1, found `0`",
    ),
    (
        "{subset_size: 1.5}",
        "policy.subset_size, line 4 column 27: expected a whole number from 1, found `1.5`",
    ),
    (
        "{seed: -1}",
        "policy.seed, line 4 column 20: expected a whole number from 0, found `-1`",
    ),
];

#[test]
fn mistakes_in_the_policy_name_their_key() {
    for (keys, expected) in POLICY {
        let found = mistake(&format!("policy: {keys}"));
        assert!(found.starts_with(expected), "{keys}: {found}");
    }
}

/// Keys of the first aggregate, and what is said of them.
const AGGREGATES: &[(&str, &str)] = &[
    ("nodes: [a]", "[0].name, line 5 column 7: missing"),
    (
        "name: ''",
        "[0].name, line 5 column 14: expected a name of 1 to 118 letters, digits and . _ / -, found ``",
    ),
    (
        "name: a b",
        "[0].name, line 5 column 14: expected a name of 1 to 118 letters, digits and . _ / -, found `a b`",
    ),
    (
        "name: a, zone: ''",
        "[0].zone, line 5 column 23: expected text of 1 to 255 bytes, found ``",
    ),
    (
        "name: a, zone: {}",
        "[0].zone, line 5 column 23: expected text of 1 to 255 bytes, found a mapping",
    ),
    (
        "name: a, nodes: b",
        "[0].nodes, line 5 column 24: expected a list, found string \"b\"",
    ),
    (
        "name: a, nodes: ['']",
        "[0].nodes[0], line 5 column 25: expected the UUID or host name of a node",
    ),
    (
        "name: a, nodes: [b, null]",
        "[0].nodes[1], line 5 column 28: expected the UUID or host name of a node, of at most 255 bytes, found nothing",
    ),
    (
        "name: a, select: [rack is r1]",
        "[0].select[0], line 5 column 26: column 6 of the expression: expected one of = != ",
    ),
    (
        "name: a, select: [node.load < 5]",
        "[0].select[0], line 5 column 26: 'node.load' cannot be selected by; ",
    ),
    (
        "name: a, labels: {a b: c}",
        "[0].labels.a b, line 5 column 26: expected a name of 1 to 128 letters",
    ),
    (
        "name: a, labels: {node.x: c}",
        "[0].labels.node.x, line 5 column 26: expected a name of 1 to 128 letters, digits and . _ / -, without 'node.' before it, found `node.x`",
    ),
    (
        "name: a, labels: {x: null}",
        "[0].labels.x, line 5 column 29: expected text of 1 to 255 bytes, found nothing",
    ),
    (
        "name: a, labels: {x: 1, x: 2}",
        "[0].labels.x, line 5 column 32: stands twice",
    ),
    (
        "name: a, labels: [x]",
        "[0].labels, line 5 column 25: expected a mapping, found a list",
    ),
    (
        "name: a, tenants: ['']",
        "[0].tenants[0], line 5 column 27: expected a tenant's UUID or name, found ``",
    ),
    (
        "name: a, tenant: [b]",
        "[0].tenant, line 5 column 17: unknown key, expected one of `name`, `zone`, ",
    ),
    (
        "name: a}\n- {name: b}\n- {name: a",
        "[2].name, line 7 column 14: expected a name of its own, found `a` of aggregates[0]",
    ),
];

#[test]
fn mistakes_in_aggregates_name_their_key() {
    for (keys, expected) in AGGREGATES {
        let found = mistake(&format!("aggregates:\n- {{{keys}}}"));
        let expected = format!("aggregates{expected}");
        assert!(found.starts_with(&expected), "{keys}: {found}");
    }
}

/// Keys of the first rule about capacity, and what is said of them.
const CAPACITY: &[(&str, &str)] = &[
    (
        "cpu_ratio: 0",
        "[0].cpu_ratio, line 5 column 19: expected a number above 0, at most 1000, found `0`",
    ),
    (
        "mem_ratio: 1000.5",
        "[0].mem_ratio, line 5 column 19: expected a number above 0, at most 1000, found `1000.5`",
    ),
    (
        "disk_ratio: -1",
        "[0].disk_ratio, line 5 column 20: expected a number above 0, at most 1000",
    ),
    (
        "disk_ratio: nan",
        "[0].disk_ratio, line 5 column 20: expected a number above 0, at most 1000",
    ),
    (
        "cpu_ratio: [1]",
        "[0].cpu_ratio, line 5 column 19: expected a number above 0, at most 1000, found a list",
    ),
    (
        "reserved_mem_mb: -1",
        "[0].reserved_mem_mb, line 5 column 25: expected a whole number from 0 to 1125899906842624, found `-1`",
    ),
    (
        "reserved_disk_mb: 1e3",
        "[0].reserved_disk_mb, line 5 column 26: expected a whole number from 0",
    ),
    (
        "reserved_cpus: two",
        "[0].reserved_cpus, line 5 column 23: expected a whole number from 0",
    ),
    (
        "select: zone = eu-1",
        "[0].select, line 5 column 16: expected a list, found string",
    ),
    (
        "select: ['zone = ']",
        "[0].select[0], line 5 column 17: column 8 of the expression: expected a value after '='",
    ),
    (
        "ratio: 1",
        "[0].ratio, line 5 column 8: unknown key, expected one of `select`, `cpu_ratio`",
    ),
];

#[test]
fn mistakes_in_capacity_name_their_key() {
    for (keys, expected) in CAPACITY {
        let found = mistake(&format!("capacity:\n- {{{keys}}}"));
        let expected = format!("capacity{expected}");
        assert!(found.starts_with(&expected), "{keys}: {found}");
    }
}
