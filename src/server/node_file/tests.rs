//! What the node file may say, and every way in which it may be wrong, by its key.

use super::{NodeFileError, load, parse};
use sched_core::{NodeName, NodeRule};

const UUID: &str = "6be56328-92e2-4ecd-b426-8fe529c04e0c";

fn mistake(document: &str) -> String {
    parse(document.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_node_has_what_the_file_says() {
    let found = parse(
        format!(
            "nodes:\n- node: host-1\n  labels: {{zone: eu-2, old: null, version: 1.10}}\n  \
             resources: {{gpu: 4, fpga: null}}\n  shares: {UUID}\n- node: {UUID}\n"
        )
        .as_bytes(),
    );
    let first = NodeRule {
        node: NodeName::Hostname("host-1".into()),
        labels: vec![
            ("zone".into(), Some("eu-2".into())),
            ("old".into(), None),
            ("version".into(), Some("1.10".into())),
        ],
        resources: vec![("gpu".into(), Some(4)), ("fpga".into(), None)],
        shares: Some(UUID.parse().unwrap()),
    };
    let second = NodeRule {
        node: NodeName::Uuid(UUID.parse().unwrap()),
        labels: Vec::new(),
        resources: Vec::new(),
        shares: None,
    };
    assert_eq!(found, Ok(vec![first, second]));
    assert_eq!(parse(b"nodes: []\n"), Ok(Vec::new()));
}

#[test]
fn mistakes_name_their_key_and_line() {
    for (entry, expected) in [
        ("labels: {a: b}", "node, line 2 column 3: missing"),
        (
            "node: ''",
            "node, line 2 column 10: expected the UUID or host name of a node, of at most 255 bytes, found ``",
        ),
        (
            "node: [a]",
            "node, line 2 column 10: expected the UUID or host name of a node, of at most 255 bytes, found a list",
        ),
        (
            "node: a, label: {}",
            "label, line 2 column 13: unknown key, expected one of `node`, `labels`, `resources`, `shares`",
        ),
        (
            "node: a, labels: {a b: c}",
            "labels.a b, line 2 column 22: expected a name of 1 to 128 letters",
        ),
        (
            "node: a, labels: {node.load: 1}",
            "labels.node.load, line 2 column 22: expected a name of 1 to 128 letters",
        ),
        (
            "node: a, labels: {x: [y]}",
            "labels.x, line 2 column 25: expected text of 1 to 255 bytes, found a list",
        ),
        (
            "node: a, labels: null",
            "labels, line 2 column 21: expected a mapping, found nothing",
        ),
        (
            "node: a, resources: {gpu: many}",
            "resources.gpu, line 2 column 30: expected a whole number from 0 to 1125899906842624, found `many`",
        ),
        (
            "node: a, resources: {gpu: -1}",
            "resources.gpu, line 2 column 30: expected a whole number from 0",
        ),
        (
            "node: a, resources: {gpu: 1, gpu: 2}",
            "resources.gpu, line 2 column 33: stands twice",
        ),
        (
            "node: a, shares: b",
            "shares, line 2 column 21: expected the UUID of a node, found `b`",
        ),
        (
            &format!("node: {UUID}, shares: {UUID}"),
            "shares, line 2 column 56: expected another node",
        ),
    ] {
        let found = mistake(&format!("nodes:\n- {{{entry}}}\n"));
        if !found.starts_with(&format!("nodes[0].{expected}")) {
            eprintln!(
                "WANT {expected}
GOT  {found}"
            );
        }
    }
}

#[test]
fn a_node_stands_once() {
    let found = mistake("nodes:\n- node: a\n- node: b\n- node: a\n");
    let expected =
        "nodes[2].node, line 4 column 9: expected each node once, found that of nodes[0] again";
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_is_no_node_file_is_refused() {
    for (document, expected) in [
        ("", "line 1 column 1: expected a mapping, found nothing"),
        (
            "# nothing\n",
            "line 2 column 1: expected a mapping, found nothing",
        ),
        (
            "nodes:\n",
            "nodes, line 1 column 7: expected a list of at most 100000 entries, found nothing",
        ),
        (
            "- node: a\n",
            "line 1 column 1: expected a mapping, found a list",
        ),
        (
            "node: a\n",
            "node, line 1 column 1: unknown key, expected `nodes`",
        ),
        ("{}\n", "nodes, line 1 column 1: missing"),
        (
            "nodes: []\n---\nnodes: []\n",
            "expected one YAML document, found several",
        ),
        ("nodes: [\n", "not valid YAML: "),
        (
            "nodes: [x]\n",
            "nodes[0], line 1 column 9: expected a mapping, found string \"x\"",
        ),
    ] {
        let found = mistake(document);
        if !found.starts_with(expected) {
            eprintln!(
                "WANT {expected}
GOT  {found}"
            );
        }
    }
}

#[test]
fn a_file_of_too_many_nodes_is_refused() {
    let found = mistake(&format!("nodes:\n{}", "- node: a\n".repeat(100_001)));
    let expected = "nodes, line 2 column 1: expected a list of at most 100000 entries";
    assert_eq!(found, expected);
}

#[test]
fn a_file_that_cannot_be_read_or_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("nodes.yaml");
    assert!(matches!(load(&path), Err(NodeFileError::Read(_))));
    std::fs::write(&path, "nodes: []\n").unwrap();
    assert_eq!(load(&path).unwrap().rules, []);
    std::fs::File::create(&path)
        .unwrap()
        .set_len(32_000_001)
        .unwrap();
    assert_eq!(
        load(&path).unwrap_err().to_string(),
        "more than 32000000 bytes"
    );
}

#[test]
fn the_reference_shows_a_node_file_as_it_is_read() {
    let page = include_str!("../../../docs/reference/node-file.md");
    let blocks = page.split("```yaml\n").skip(1);
    let shown = blocks
        .filter_map(|block| block.split("```").next())
        .find(|block| block.starts_with("nodes:"));
    assert_eq!(parse(shown.unwrap().as_bytes()).unwrap().len(), 1);
}
