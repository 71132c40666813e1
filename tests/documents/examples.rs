//! YAML that documents show, and the files in `examples`, is read by the readers of the programs.

use std::fs;

use ciao_scheduler::server::fuzz_support;
use ciao_scheduler::start_warnings::UnknownKeys;
use proto_frames::payload::Start;

use crate::{documents, root, text};

/// What a document of YAML is, by its first key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Start,
    Configuration,
    Nodes,
}

/// What a YAML document is; `None` for a part of one, or a payload that only the wire has.
fn kind(yaml: &str) -> Option<Kind> {
    let is_key = |line: &&str| !line.is_empty() && !line.starts_with(['#', ' ', '-']);
    match yaml.lines().find(is_key)?.trim_end() {
        "start:" => Some(Kind::Start),
        "configure:" => Some(Kind::Configuration),
        "nodes:" => Some(Kind::Nodes),
        _ => None,
    }
}

/// What is wrong with it.
fn mistake(kind: Kind, yaml: &[u8]) -> Option<String> {
    match kind {
        Kind::Start => {
            let unknown = UnknownKeys::of(yaml);
            let first = unknown.named.first().map(ToString::to_string);
            let refused = Start::decode_template(yaml).err();
            refused.map(|error| error.to_string()).or(first)
        }
        Kind::Configuration => {
            let unknown = fuzz_support::unknown_keys(yaml);
            let first = unknown.first().map(|key| format!("unknown key {key}"));
            let refused = fuzz_support::rules(yaml).err();
            refused.map(|error| error.to_string()).or(first)
        }
        Kind::Nodes => fuzz_support::node_file(yaml)
            .err()
            .map(|error| error.to_string()),
    }
}

#[test]
fn yaml_in_documents_is_what_the_programs_read() {
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for name in documents() {
        let text = text(&name);
        for block in text.split("```yaml\n").skip(1) {
            let yaml = block.split("```").next().unwrap();
            let Some(kind) = kind(yaml) else { continue };
            seen.push(kind);
            if let Some(mistake) = mistake(kind, yaml.as_bytes()) {
                wrong.push(format!("{name}: {mistake}:\n{yaml}"));
            }
        }
    }
    for kind in [Kind::Start, Kind::Configuration, Kind::Nodes] {
        assert!(seen.contains(&kind), "{kind:?} is shown");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn example_files_are_what_the_programs_read() {
    let mut seen = 0;
    for directory in ["examples", "examples/cluster"] {
        for entry in fs::read_dir(root().join(directory)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|it| it != "yaml") {
                continue;
            }
            let yaml = fs::read_to_string(&path).unwrap();
            let kind = kind(yaml.trim_start_matches("---\n")).unwrap();
            assert_eq!(mistake(kind, yaml.as_bytes()), None, "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 4, "the examples are there");
}

#[test]
fn a_mistake_is_noticed() {
    let start = b"start:\n  scheduling: {prioritty: 5}\n";
    assert!(mistake(Kind::Start, start).is_some());
    let start = b"start:\n  requirments: {mem_mb: 5}\n";
    assert!(mistake(Kind::Start, start).is_some());
    let configuration = b"configure:\n  scheduler:\n    policy: {filter: [pin]}\n";
    assert!(mistake(Kind::Configuration, configuration).is_some());
    assert!(mistake(Kind::Nodes, b"nodes: [{nod: a}]\n").is_some());
}
