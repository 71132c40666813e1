//! What the sections may say, how much of it, and what becomes of files that cannot be read. Every way in which a key
//! may be wrong is in `mistakes`.

use proptest::prelude::{any, proptest};
use proto_frames::payload::OnNodeLoss;

use super::{read, unknown_keys};
use sched_core::{
    Aggregate, CapacityRule, FilterRule, NodeName, PolicyRules, Rules, StartDefaults, TenantId,
    WeigherRule,
};

mod mistakes;

/// The configuration with these sections, each line of them indented to where it belongs.
fn with(sections: &str) -> String {
    let mut text = "configure:\n  scheduler:\n    storage_uri: x\n".to_owned();
    for line in sections.lines() {
        text.push_str(&format!("    {line}\n"));
    }
    text
}

fn rules(sections: &str) -> Rules {
    read(with(sections).as_bytes()).unwrap().unwrap()
}

fn policy(keys: &str) -> PolicyRules {
    rules(&format!("policy: {keys}")).policy
}

/// What is said of these sections; the keys above them left out.
fn mistake(sections: &str) -> String {
    let mistake = read(with(sections).as_bytes()).unwrap_err().to_string();
    match mistake.strip_prefix("configure.scheduler.") {
        Some(below) => below.to_owned(),
        None => panic!("{mistake}"),
    }
}

fn weigher(name: &str, multiplier: f64) -> WeigherRule {
    WeigherRule {
        name: name.into(),
        multiplier,
    }
}

fn filter(name: &str, max: Option<i64>) -> FilterRule {
    FilterRule {
        name: name.into(),
        max,
    }
}

#[test]
fn a_configuration_without_sections_has_no_rules() {
    for text in [
        "",
        "# nothing\n",
        "configure:\n",
        "configure:\n  scheduler:\n",
        "configure:\n  scheduler: {storage_uri: x, more: [1]}\n",
        "configure:\n  launcher: {mem_limit: false}\n",
        "configure: x\n",
        "other: {scheduler: {policy: {preset: fastest}}}\n",
        "policy: {preset: fastest}\n",
        "configure: [\n",
        "configure:\n  scheduler: {}\n---\nconfigure: {scheduler: {policy: 1}}\n",
    ] {
        assert_eq!(read(text.as_bytes()), Ok(None), "{text}");
    }
}

#[test]
fn any_section_makes_rules_and_the_others_are_empty() {
    assert_eq!(rules("aggregates: []"), Rules::default());
    assert_eq!(rules("capacity: []"), Rules::default());
    assert_eq!(rules("policy: {}"), Rules::default());
    assert_eq!(policy("{preset: first-fit}"), PolicyRules::default());
}

#[test]
fn a_preset_is_the_whole_policy_and_keys_replace_parts_of_it() {
    let spread = PolicyRules::preset("spread").unwrap();
    assert_eq!(policy("{preset: spread}"), spread);
    let found = policy(
        "\n  preset: spread\n  filters: [pin, {name: starts-under-way, max: 8}]\n  candidates: all\n  \
         subset_size: 3\n  seed: 42",
    );
    let expected = PolicyRules {
        filters: Some(vec![
            filter("pin", None),
            filter("starts-under-way", Some(8)),
        ]),
        candidates: None,
        subset_size: 3,
        seed: 42,
        ..spread
    };
    assert_eq!(found, expected);
    let found =
        policy("{preset: pack, weighers: [prefer, {name: load, multiplier: -2.5}], candidates: 7}");
    let expected = PolicyRules {
        weighers: vec![weigher("prefer", 1.0), weigher("load", -2.5)],
        candidates: Some(7),
        ..PolicyRules::preset("pack").unwrap()
    };
    assert_eq!(found, expected);
}

#[test]
fn defaults_are_for_all_and_for_tenants_and_values_out_of_range_are_refused() {
    let found = policy(
        "\n  load_per_cpu: 1.5\n  defaults: {queue: 10m, attempts: 3, on_node_loss: restart}\n  tenants:\n  - {tenant: blue, \
         priority: 70, relocate: true, time_limit: 2h}",
    );
    let defaults = StartDefaults {
        queue: Some("10m".parse().unwrap()),
        attempts: Some(3),
        on_node_loss: Some(OnNodeLoss::Restart),
        ..StartDefaults::default()
    };
    let blue = StartDefaults {
        priority: Some(70),
        relocate: Some(true),
        time_limit: Some("2h".parse().unwrap()),
        ..StartDefaults::default()
    };
    let expected = PolicyRules {
        load_per_cpu: Some(150),
        defaults,
        tenants: vec![(TenantId::new("blue"), blue)],
        ..PolicyRules::default()
    };
    assert_eq!(found, expected);
    for (text, part) in [
        ("{load_per_cpu: 0}", "policy.load_per_cpu"),
        ("{defaults: {queue: 10}}", "policy.defaults.queue"),
        ("{defaults: {queue: 31d}}", "at most 30d"),
        (
            "{defaults: {priority: 101}}",
            "a whole number from 0 to 100",
        ),
        ("{defaults: {attempts: 0}}", "a whole number from 1 to 10"),
        ("{defaults: {on_node_loss: move}}", "report or restart"),
        ("{defaults: {time_limit: 0s}}", "policy.defaults.time_limit"),
        ("{defaults: {time_limit: 366d}}", "from 1s to 365d"),
        (
            "{defaults: {time_limits: 1h}}",
            "policy.defaults.time_limits",
        ),
        ("{tenants: [{queue: 1m}]}", "policy.tenants[0]"),
        (
            "{tenants: [{tenant: a}, {tenant: a}]}",
            "policy.tenants[1].tenant",
        ),
    ] {
        let text = format!("configure:\n  scheduler:\n    policy: {text}\n");
        let mistake = read(text.as_bytes()).unwrap_err().to_string();
        assert!(mistake.contains(part), "{text}: {mistake}");
    }
}

#[test]
fn an_aggregate_has_what_it_says() {
    let uuid = "6be56328-92e2-4ecd-b426-8fe529c04e0c";
    let found = rules(&format!(
        "policy: {{weighers: [load]}}\naggregates:\n- name: ssd-hosts\n  zone: eu-1\n  nodes: [host-1, {uuid}, {}, 12]\n  \
         select: ['rack in (r1, r2)']\n  labels: {{ssd: true, version: 1.10}}\n  tenants: [{uuid}, blue]\n  \
         images: [windows 2025, linux]\n  max_instances: 20\n  max_starts_under_way: 0\n  multipliers: {{load: -2.5}}\n- name: b\n  \
         images: [x]\n  images_only: false\n- name: c\n",
        uuid.to_uppercase()
    ));
    let by_uuid = NodeName::Uuid(uuid.parse().unwrap());
    let first = Aggregate {
        name: "ssd-hosts".into(),
        zone: Some("eu-1".into()),
        nodes: vec![
            NodeName::Hostname("host-1".into()),
            by_uuid.clone(),
            by_uuid,
            NodeName::Hostname("12".into()),
        ],
        select: vec!["rack in (r1, r2)".parse().unwrap()],
        labels: vec![
            ("ssd".into(), "true".into()),
            ("version".into(), "1.10".into()),
        ],
        tenants: vec![TenantId::new(uuid), TenantId::new("blue")],
        images: vec!["windows_2025".into(), "linux".into()],
        images_only: true,
        max_instances: Some(20),
        max_starts: Some(0),
        multipliers: vec![("load".into(), -2.5)],
    };
    let second = Aggregate {
        name: "b".into(),
        images: vec!["x".into()],
        ..Aggregate::default()
    };
    let third = Aggregate {
        name: "c".into(),
        ..Aggregate::default()
    };
    assert_eq!(found.aggregates, [first, second, third]);
}

#[test]
fn a_capacity_rule_has_what_it_says() {
    let found = rules(
        "capacity:\n- select: [zone = eu-1]\n  cpu_ratio: 4\n  mem_ratio: 1.2\n  disk_ratio: 1e0\n  \
         reserved_mem_mb: 4096\n  reserved_disk_mb: 10000\n  reserved_cpus: 2\n- cpu_ratio: 1000\n",
    );
    let first = CapacityRule {
        select: vec!["zone = eu-1".parse().unwrap()],
        cpu_ratio: Some(4.0),
        mem_ratio: Some(1.2),
        disk_ratio: Some(1.0),
        reserved_mem_mib: Some(4096),
        reserved_disk_mib: Some(10_000),
        reserved_cpus: Some(2),
    };
    let second = CapacityRule {
        cpu_ratio: Some(1000.0),
        ..CapacityRule::default()
    };
    assert_eq!(found.capacity, [first, second]);
}

#[test]
fn names_of_aggregates_are_no_longer_than_labels_let_them() {
    let named = |len: usize| format!("aggregates:\n- name: {}", "n".repeat(len));
    assert_eq!(rules(&named(118)).aggregates.len(), 1);
    let found = mistake(&named(119));
    assert!(
        found.contains("expected a name of 1 to 118 letters"),
        "{found}"
    );
}

#[test]
fn every_list_has_a_limit() {
    let list = |entry: &str, count: usize| format!("[{}]", vec![entry; count].join(", "));
    let refused = |sections: &str, key: &str, max: usize| {
        let found = mistake(sections);
        assert!(
            found.starts_with(&format!("{key}, line ")),
            "{key}: {found}"
        );
        let expected = format!("expected a list of at most {max} entries");
        assert!(found.ends_with(&expected), "{key}: {found}");
    };
    for (key, entry) in [("filters", "pin"), ("weighers", "load")] {
        let sections = format!("policy: {{{key}: {}}}", list(entry, 33));
        refused(&sections, &format!("policy.{key}"), 32);
    }
    for (key, entry, max) in [
        ("nodes", "b", 10_000),
        ("tenants", "b", 10_000),
        ("images", "b", 64),
        ("select", "a exists", 32),
    ] {
        let sections = format!("aggregates: [{{name: a, {key}: {}}}]", list(entry, max + 1));
        refused(&sections, &format!("aggregates[0].{key}"), max);
    }
    for (key, entry, max) in [
        ("aggregates", "- name: a\n", 1024),
        ("capacity", "- cpu_ratio: 1\n", 256),
    ] {
        refused(&format!("{key}:\n{}", entry.repeat(max + 1)), key, max);
    }
    let labels: Vec<String> = (0..65).map(|at| format!("l{at}: x")).collect();
    let found = mistake(&format!(
        "aggregates: [{{name: a, labels: {{{}}}}}]",
        labels.join(", ")
    ));
    assert!(
        found.starts_with("aggregates[0].labels.l64, line 4 "),
        "{found}"
    );
    assert!(found.ends_with("expected at most 64 keys here"), "{found}");
}

#[test]
fn aliases_do_not_make_much_of_little() {
    let list = vec!["a"; 2000].join(", ");
    let mut text = format!("aggregates:\n- name: first\n  nodes: &all [{list}]\n");
    for at in 0..10 {
        text.push_str(&format!("- name: a{at}\n  nodes: *all\n"));
    }
    let found = read(with(&text).as_bytes()).unwrap_err().to_string();
    assert_eq!(
        found,
        "configure.scheduler, line 3 column 5: aliases expand to more than twice the document"
    );
    let few = "aggregates:\n- {name: a, nodes: &all [host-1, host-2]}\n- {name: b, nodes: *all}\n";
    let found = rules(few).aggregates;
    assert_eq!(found[0].nodes, found[1].nodes);
}

#[test]
fn a_document_that_cannot_be_read_is_a_mistake_only_if_it_seems_to_have_sections() {
    let broken = "configure:\n  scheduler:\n    policy: [\n";
    let found = read(broken.as_bytes()).unwrap_err().to_string();
    assert!(found.starts_with("not valid YAML: "), "{found}");
    assert_eq!(read(&broken.as_bytes()[..22]), Ok(None));
    for seems in [
        "configure: {scheduler: {policy: [}}",
        "{\"configure\": {\"scheduler\": {\"capacity\": [}}}",
    ] {
        assert!(read(seems.as_bytes()).is_err(), "{seems}");
    }
    let large = format!("{}{}", with("policy: {}"), "#".repeat(300 * 1024));
    assert!(read(large.as_bytes()).is_err());
    assert!(read(b"\xff\npolicy: x").is_err());
    assert_eq!(read(b"\xff\npolicy"), Ok(None));
}

#[test]
fn what_is_wrong_elsewhere_is_left_to_others() {
    let text = format!(
        "{}  launcher: {{mem_limit: maybe}}\n",
        with("policy: {preset: pack}")
    );
    let found = read(text.as_bytes()).unwrap().unwrap();
    assert_eq!(Some(found.policy), PolicyRules::preset("pack"));
}

#[test]
fn what_is_unusual_elsewhere_hides_no_policy() {
    for beside in [
        "extra: !tag x",
        "extra: !tag [1]",
        "extra: 99999999999999999999999",
        "9: .nan",
        "'': {}",
    ] {
        let found = rules(&format!("{beside}\npolicy: {{preset: pack}}"));
        assert_eq!(Some(found.policy), PolicyRules::preset("pack"), "{beside}");
        let found = mistake(&format!("{beside}\npolicy: {{preset: pakc}}"));
        assert!(
            found.starts_with("policy.preset, line 5 "),
            "{beside}: {found}"
        );
    }
    for hiding in ["? [a]\n: 1", "extra: !!int x"] {
        let text = with(&format!("{hiding}\npolicy: {{preset: pack}}"));
        assert!(read(text.as_bytes()).is_err(), "{hiding}");
        assert_eq!(read(with(hiding).as_bytes()), Ok(None), "{hiding}");
    }
}

#[test]
fn keys_that_nobody_knows_beside_the_sections_are_found() {
    let text = with("later: {preset: spread}\npolicy: {}\naggregates: []\ncapacity: []");
    let found = unknown_keys(text.as_bytes());
    assert_eq!(found, ["configure.scheduler.later"]);
    assert!(read(text.as_bytes()).is_ok());
}

#[test]
fn a_section_that_is_misspelt_is_a_mistake() {
    for (key, meant) in [
        ("polcy", "policy"),
        ("polices", "policy"),
        ("aggregate", "aggregates"),
        ("Capacity", "capacity"),
    ] {
        let text = with(&format!("{key}: {{}}\ncapacity: []"));
        let mistake = read(text.as_bytes()).unwrap_err();
        assert_eq!(mistake.key, format!("configure.scheduler.{key}"));
        assert!(mistake.position.is_some(), "{key}");
        assert_eq!(
            mistake.problem,
            format!("unknown key; did you mean `{meant}`?")
        );
    }
}

#[test]
fn the_reference_shows_a_configuration_as_it_is_read() {
    let page = include_str!("../../../docs/reference/configuration.md");
    let blocks = page.split("```yaml\n").skip(1);
    let shown = blocks
        .filter_map(|block| block.split("```").next())
        .find(|block| block.starts_with("configure:"));
    let rules = read(shown.unwrap().as_bytes()).unwrap().unwrap();
    assert_eq!((rules.aggregates.len(), rules.capacity.len()), (2, 1));
    assert_eq!(rules.policy.subset_size, 3);
}

/// The example, which has every key.
const EXAMPLE: &str = include_str!("../../../examples/cluster/configuration.yaml");

proptest! {
    #[test]
    fn a_configuration_with_errors_in_it_is_read_or_refused_with_a_reason(
        at in 0..EXAMPLE.len(), cut in 0..4_usize, put in any::<char>(),
    ) {
        let mut text = EXAMPLE.as_bytes().to_vec();
        let end = text.len().min(at + cut);
        text.splice(at..end, put.to_string().into_bytes());
        if let Err(mistake) = read(&text) {
            assert!(!mistake.problem.is_empty());
        }
        unknown_keys(&text);
    }
}
