//! Payloads made to be slow or large are refused by what they hold, before a parser sees them.

use proptest::prelude::*;

use proto_frames::payload::guard::{
    self, LARGE, MAX_BRACKETS, MAX_ENTRIES, MAX_INDICATORS, MAX_NESTED_DASHES, MAX_TAG_DIRECTIVES,
    SMALL,
};
use proto_frames::payload::{Fault, Payload, PayloadError, Ready, Start, Stats, peek};

fn fault<T>(result: Result<T, PayloadError>) -> Option<Fault> {
    result.err().map(|error| error.fault)
}

#[test]
fn nested_brackets_and_braces_are_refused_unparsed() {
    let too_many = Some(Fault::TooMuch {
        what: "brackets and braces",
        max: MAX_BRACKETS,
    });
    for unit in ["[", "{", "{a: ", "[\"]\",", "\"[\" ", "# [\n"] {
        let payload = format!("start:\n  x: {}", unit.repeat(MAX_BRACKETS + 1));
        assert_eq!(fault(Start::decode(payload.as_bytes())), too_many, "{unit}");
        assert_eq!(fault(peek::start(payload.as_bytes())), too_many, "{unit}");
        assert_eq!(fault(peek::stats(payload.as_bytes())), too_many, "{unit}");
    }
}

#[test]
fn lists_that_are_empty_do_not_count_as_brackets() {
    let instance = "- instance_uuid: a\n  volumes: []\n  requested: {}\n";
    let payload = format!("instances:\n{}", instance.repeat(MAX_BRACKETS * 2));
    assert_eq!(
        Stats::decode(payload.as_bytes()).unwrap().instances.len(),
        MAX_BRACKETS * 2
    );
    assert_eq!(
        peek::stats(payload.as_bytes()).unwrap().instances.len(),
        MAX_BRACKETS * 2
    );
}

#[test]
fn lists_within_lists_on_one_line_are_refused_unparsed() {
    let too_many = Some(Fault::TooMuch {
        what: "lists within lists on one line",
        max: MAX_NESTED_DASHES,
    });
    for unit in ["- ", "? ", "-  ", "-\t", "- ? "] {
        let payload = unit.repeat(MAX_NESTED_DASHES + 2);
        assert_eq!(
            fault(Ready::decode(payload.as_bytes())),
            too_many,
            "{unit:?}"
        );
    }
}

#[test]
fn tag_directives_are_refused_unparsed() {
    let directives: String = (0..=MAX_TAG_DIRECTIVES)
        .map(|i| format!("%TAG !a{i}! x\n"))
        .collect();
    let payload = format!("{directives}---\nload: 1\n");
    let too_many = Some(Fault::TooMuch {
        what: "tag directives",
        max: MAX_TAG_DIRECTIVES,
    });
    assert_eq!(fault(Ready::decode(payload.as_bytes())), too_many);
}

#[test]
fn more_values_than_any_node_has_to_tell_are_refused_unparsed() {
    let payload = "-\n".repeat(MAX_INDICATORS + 1);
    let too_many = Some(Fault::TooMuch {
        what: "values",
        max: MAX_INDICATORS,
    });
    assert_eq!(fault(Stats::decode(payload.as_bytes())), too_many);
    assert_eq!(fault(peek::stats(payload.as_bytes())), too_many);
}

#[test]
fn documents_beyond_the_limit_are_refused_by_every_reader() {
    let payload = format!(
        "start:\n  instance_uuid: a\n#{}\n",
        "x".repeat(SMALL.max_len)
    );
    let too_long = Some(Fault::TooLong { max: SMALL.max_len });
    assert_eq!(fault(Start::decode(payload.as_bytes())), too_long);
    assert_eq!(fault(peek::start(payload.as_bytes())), too_long);
}

#[test]
fn what_stands_behind_the_first_document_is_not_looked_at() {
    let mut payload = b"start:\n  instance_uuid: a\n...\n".to_vec();
    payload.extend_from_slice(&b"[{".repeat(SMALL.max_len));
    payload.push(0xff);
    assert_eq!(
        guard::first_document(&payload, SMALL).unwrap(),
        b"start:\n  instance_uuid: a\n"
    );
    assert_eq!(peek::start(&payload).unwrap().instance_uuid, "a");
    assert_eq!(Start::decode(&payload).unwrap().instance_uuid, "a");
}

#[test]
fn the_first_document_ends_at_a_line_that_is_a_marker() {
    for (payload, document) in [
        ("a: b\n...\nc", "a: b\n"),
        ("a: b\n---\nc", "a: b\n"),
        ("---\na: b\n---\nc", "---\na: b\n"),
        ("--- # x\na: b\n... # y\nc", "--- # x\na: b\n"),
        (
            "# x\n\n%YAML 1.1\n---\na: b\n--- c",
            "# x\n\n%YAML 1.1\n---\na: b\n",
        ),
        ("---\r\na: b\r\n...\r\nc", "---\r\na: b\r\n"),
        ("a: b\n...c: d\n", "a: b\n...c: d\n"),
        ("a: |\n  ...\n  ---\n", "a: |\n  ...\n  ---\n"),
        ("a: b\n---", "a: b\n"),
        ("", ""),
    ] {
        assert_eq!(
            guard::first_document(payload.as_bytes(), SMALL).unwrap(),
            document.as_bytes(),
            "{payload:?}"
        );
    }
}

#[test]
fn aliases_cannot_make_a_small_payload_large() {
    let volumes = "  - v\n".repeat(1000);
    let copies = "- volumes: *v\n".repeat(1000);
    let payload = format!("instances:\n- volumes: &v\n{volumes}{copies}");
    assert_eq!(
        fault(Stats::decode(payload.as_bytes())),
        Some(Fault::AliasExpansion)
    );
    // What takes no text takes memory and time as well: entries that are null, and keys that no record has.
    let volumes = "  -\n".repeat(1000);
    let copies = "- volumes: *v\n".repeat(1000);
    let payload = format!("instances:\n- volumes: &v\n{volumes}{copies}");
    assert_eq!(
        fault(Stats::decode(payload.as_bytes())),
        Some(Fault::AliasExpansion)
    );
    for (key, expected) in [
        ("unknown", Fault::AliasExpansion),
        ("\"\"", Fault::AliasExpansion),
        ("id", Fault::DuplicateKey),
        ("size", Fault::DuplicateKey),
    ] {
        let keys = format!("    {key}:\n").repeat(1000);
        let copies = "  - *s\n".repeat(1000);
        let payload = format!("start:\n  storage:\n  - &s\n{keys}{copies}");
        assert_eq!(
            fault(Start::decode(payload.as_bytes())),
            Some(expected),
            "{key}"
        );
    }
    let text = "x".repeat(10_000);
    let copies = "- ip: *t\n".repeat(1000);
    let payload = format!("hostname: &t {text}\nnetworks:\n{copies}");
    assert_eq!(
        fault(Ready::decode(payload.as_bytes())),
        Some(Fault::AliasExpansion)
    );
    let few = b"hostname: &h host1\nnode_uuid: *h\n";
    assert_eq!(peek::ready(few).unwrap().node_uuid, "host1");
}

#[test]
fn what_stands_once_is_never_taken_for_an_expansion() {
    let flow = |entry: &str, ends: [&str; 2]| {
        let entries = vec![entry; 10_000].join(",");
        format!("{}{entries}{}", ends[0], ends[1])
    };
    let lists = [
        flow("a", ["[", "]"]),
        flow("~", ["[", "]"]),
        flow(r#""\L""#, ["[", "]"]),
        "\n  -".repeat(10_000),
    ];
    let keys: Vec<String> = (0..10_000).map(|number| format!("{number:x}")).collect();
    let documents = lists.map(|list| format!("start:\n  command: {list}\n"));
    let environment = format!("start:\n  env: {{{}}}\n", keys.join(","));
    let unknown = format!("start: {}\n", flow("a", ["{", "}"]));
    for document in documents.into_iter().chain([environment, unknown]) {
        let read = fault(Start::decode(document.as_bytes()));
        let beginning = &document[..40];
        // The UUID is what lacks.
        assert_eq!(read, Some(Fault::Missing), "{beginning}");
    }
}

#[test]
fn a_value_that_contains_itself_is_refused() {
    assert!(Stats::decode(b"instances: &i\n- requested: *i\n").is_err());
    assert!(Stats::decode(b"instances: &i [*i]\n").is_err());
}

#[test]
fn a_node_with_more_instances_than_a_launcher_can_run_is_refused() {
    let instance = "- instance_uuid: a\n  state: active\n  memory_usage_mb: 1\n";
    let most = format!("instances:\n{}", instance.repeat(MAX_ENTRIES));
    assert_eq!(
        peek::stats(most.as_bytes()).unwrap().instances.len(),
        MAX_ENTRIES
    );
    let payload = format!("{most}{instance}");
    assert!(payload.len() < LARGE.max_len);
    let too_many = Some(Fault::TooManyEntries { max: MAX_ENTRIES });
    assert_eq!(fault(Stats::decode(payload.as_bytes())), too_many);
    assert_eq!(fault(peek::stats(payload.as_bytes())), too_many);
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(payload in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = (peek::start(&payload), peek::ready(&payload), peek::stats(&payload));
    }

    #[test]
    fn no_yaml_like_text_makes_a_reader_panic(payload in "([-?:,&*!|>'\"%@#a~ \\[\\]{}\n]|start:\n|instances:\n|- |: |\\.\\.\\.\n){0,60}") {
        let payload = payload.as_bytes();
        let _ = (peek::start(payload), peek::ready(payload), peek::stats(payload));
    }
}
