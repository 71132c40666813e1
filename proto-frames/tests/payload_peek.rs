//! The peeks say what the full parser says, errors included, whatever the payload.

use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_yaml::Value;

use proto_frames::payload::peek::{self, ReadyPeek, StartPeek, StatsPeek};
use proto_frames::payload::{InstanceStateEvent, Payload, QueryResult, Ready, Start, Stats, guard};

use changes::{VALUES, apply, change, line_soup};
use documents::{ANSWERS, DOCUMENTS, FLOW, READY, SCHEDULING, STARTS, STATS};

#[path = "payload_peek/changes.rs"]
mod changes;
#[path = "payload_peek/documents.rs"]
mod documents;

fn agree(payload: &[u8]) -> Result<(), TestCaseError> {
    let text = String::from_utf8_lossy(&payload[..payload.len().min(4096)]);
    let full = Start::decode(payload).map(StartPeek::from);
    prop_assert_eq!(peek::start(payload), full, "START\n{}", text);
    let full = Ready::decode(payload).map(ReadyPeek::from);
    prop_assert_eq!(peek::ready(payload), full, "READY\n{}", text);
    let full = Stats::decode(payload).map(StatsPeek::from);
    prop_assert_eq!(peek::stats(payload), full, "STATS\n{}", text);
    plain_agrees(payload)?;
    cuts_agree(payload)
}

/// A START that is taken asks for what a reader of YAML finds in it, merge keys and all; one that leaves a choice is not
/// taken.
fn asks_for_what_it_seems_to(payload: &[u8]) -> Result<(), TestCaseError> {
    let Ok(start) = peek::start(payload) else {
        return Ok(());
    };
    let document = guard::first_document(payload, guard::SMALL).expect("it was read");
    // Refuses keys that stand twice, also those that mean nothing.
    let Ok(mut root) = serde_yaml::from_slice::<Value>(document) else {
        return Ok(());
    };
    if root.apply_merge().is_err() {
        return Ok(());
    }
    let requirements = &root["start"]["requirements"];
    for (key, read) in [("mem_mb", start.mem_mb), ("vcpus", start.vcpus)] {
        if let Some(amount) = requirements[key].as_i64() {
            let text = String::from_utf8_lossy(payload);
            prop_assert_eq!(amount, read, "{} of\n{}", key, text);
        }
    }
    Ok(())
}

/// What is read of a document of the plain style is what the full parser reads of it: a comment in its first line makes
/// it one of another style.
fn plain_agrees(payload: &[u8]) -> Result<(), TestCaseError> {
    fn agrees<T: Payload + PartialEq + std::fmt::Debug>(
        payload: &[u8],
    ) -> Result<(), TestCaseError> {
        // What is refused has been to the full parser.
        let Ok(read) = T::decode(payload) else {
            return Ok(());
        };
        let full = T::decode(&[b"#\n", payload].concat());
        let text = String::from_utf8_lossy(&payload[..payload.len().min(4096)]);
        prop_assert_eq!(Ok(read), full, "{}", text);
        Ok(())
    }
    // A byte order mark is one at the beginning alone.
    if payload.starts_with(&[0xef, 0xbb, 0xbf]) {
        return Ok(());
    }
    agrees::<Start>(payload)?;
    agrees::<Ready>(payload)?;
    agrees::<Stats>(payload)?;
    agrees::<QueryResult>(payload)?;
    agrees::<InstanceStateEvent>(payload)
}

/// What is cut out of a STATS as it came is what a rewritten one would leave out.
fn cuts_agree(payload: &[u8]) -> Result<(), TestCaseError> {
    let rows_in_all = match Stats::decode(payload) {
        Ok(stats) => stats.instances.len(),
        Err(_) => return Ok(()),
    };
    for rows in [
        vec![],
        vec![0],
        vec![1],
        vec![0, 1],
        vec![0, 2],
        vec![0, 1, 2],
    ] {
        let Some(cut) = peek::stats_without(payload, &rows) else {
            continue;
        };
        prop_assert!(rows.iter().all(|row| (*row as usize) < rows_in_all));
        let mut left = Stats::decode(payload).expect("it was read before");
        left.ended.clear();
        let mut at = 0..;
        left.instances
            .retain(|_| at.next().is_some_and(|at| !rows.contains(&at)));
        let text = String::from_utf8_lossy(&cut);
        prop_assert_eq!(
            Stats::decode(&cut),
            Ok(left),
            "without {:?}\n{}",
            rows,
            text
        );
    }
    Ok(())
}

/// So many cases, or more if `PROPTEST_CASES` says so.
fn at_least(cases: u32) -> ProptestConfig {
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: cases.max(default.cases),
        ..default
    }
}

proptest! {
    #![proptest_config(at_least(1500))]

    #[test]
    fn peeks_agree_with_the_full_parser_on_changed_payloads(
        which in select(DOCUMENTS),
        changes in vec(change(), 0..4),
    ) {
        let mut payload = which.as_bytes().to_vec();
        for change in &changes {
            apply(&mut payload, change);
        }
        agree(&payload)?;
    }

    #[test]
    fn plain_documents_are_read_as_the_full_parser_reads_them(
        which in select(ANSWERS),
        changes in vec(change(), 0..4),
    ) {
        let mut payload = which.as_bytes().to_vec();
        for change in &changes {
            apply(&mut payload, change);
        }
        plain_agrees(&payload)?;
    }

    #[test]
    fn peeks_agree_with_the_full_parser_on_lines_put_together_at_random(text in line_soup()) {
        agree(text.as_bytes())?;
        let start = format!("start:\n  instance_uuid: a\n{text}");
        agree(start.as_bytes())?;
        asks_for_what_it_seems_to(start.as_bytes())?;
    }
}

#[test]
fn peeks_agree_with_the_full_parser_on_every_single_value() {
    // A thread for each document: this is the longest test of its program.
    thread::scope(|scope| {
        for payload in DOCUMENTS {
            scope.spawn(|| agree_on_every_value(payload));
        }
    });
}

/// With each value in the place of that of each line.
fn agree_on_every_value(payload: &str) {
    let lines: Vec<&str> = payload.split_inclusive('\n').collect();
    for (at, line) in lines.iter().enumerate() {
        let Some((key, _)) = line.split_once(": ").or_else(|| line.split_once(":\n")) else {
            continue;
        };
        for value in VALUES {
            let other = format!("{key}:{value}\n");
            let mut changed = lines.clone();
            changed[at] = &other;
            let agreed = agree(changed.concat().as_bytes());
            agreed.expect("the peeks agree");
        }
    }
}

/// A record of a payload: its type, the source that declares it, and where it stands in a document.
type Place<'a> = (&'a str, &'a str, &'a [&'a str]);

const START_SOURCE: &str = include_str!("../src/payload/start.rs");
const RESOURCES_SOURCE: &str = include_str!("../src/payload/requested_resources.rs");
const SCHEDULING_SOURCE: &str = include_str!("../../sched-model/src/scheduling.rs");
const READY_SOURCE: &str = include_str!("../src/payload/ready.rs");
const STATS_SOURCE: &str = include_str!("../src/payload/stats.rs");
const LIMITS_SOURCE: &str = include_str!("../../sched-model/src/scheduling/limits.rs");
const FACTS_SOURCE: &str = include_str!("../../sched-model/src/end_facts.rs");
const END_SOURCE: &str = include_str!("../src/payload/instance_end.rs");

const IN_START: &[Place<'_>] = &[
    ("Stop", LIMITS_SOURCE, &["start", "scheduling", "stop"]),
    (
        "RestartPolicy",
        LIMITS_SOURCE,
        &["start", "scheduling", "restart"],
    ),
    ("Start", START_SOURCE, &["start"]),
    ("Networking", START_SOURCE, &["start", "networking"]),
    ("Storage", START_SOURCE, &["start", "storage"]),
    ("Requirements", START_SOURCE, &["start", "requirements"]),
    (
        "RequestedResource",
        RESOURCES_SOURCE,
        &["start", "requested_resources"],
    ),
    ("Scheduling", SCHEDULING_SOURCE, &["start", "scheduling"]),
    (
        "Group",
        SCHEDULING_SOURCE,
        &["start", "scheduling", "group"],
    ),
    ("Near", SCHEDULING_SOURCE, &["start", "scheduling", "near"]),
    (
        "Batch",
        SCHEDULING_SOURCE,
        &["start", "scheduling", "batch"],
    ),
];

const IN_READY: &[Place<'_>] = &[
    ("Ready", READY_SOURCE, &[]),
    ("Network", READY_SOURCE, &["networks"]),
];

const IN_STATS: &[Place<'_>] = &[
    ("Stats", STATS_SOURCE, &[]),
    ("Network", READY_SOURCE, &["networks"]),
    ("InstanceStat", STATS_SOURCE, &["instances"]),
    ("Requested", STATS_SOURCE, &["instances", "requested"]),
    ("InstanceEnd", END_SOURCE, &["ended"]),
    ("EndFacts", FACTS_SOURCE, &["ended", "facts"]),
    (
        "RunProgress",
        include_str!("../../sched-model/src/run_progress.rs"),
        &["instances", "run"],
    ),
];

/// The keys that a type declares in its source.
fn declared<'a>(name: &str, source: &'a str) -> Vec<&'a str> {
    let begin = format!("pub struct {name} {{\n");
    let (_, rest) = source.split_once(&begin).expect("the source declares it");
    let (fields, _) = rest.split_once("\n    }\n").expect("it ends");
    let after = fields.split(" as \"").skip(1);
    after.filter_map(|it| Some(it.split_once('"')?.0)).collect()
}

/// What stands at a place of a document; of lists, in each of their entries.
fn standing_at(root: &Value, path: &[&str]) -> Vec<Value> {
    let mut found = vec![root.clone()];
    for key in path {
        let below = found.iter().filter_map(|it| it.get(*key));
        found = below
            .flat_map(|it| match it {
                Value::Sequence(entries) => entries.clone(),
                other => vec![other.clone()],
            })
            .collect();
    }
    found
}

/// A key that only one of the two readers knows is found by the tests above where a document has it, in its own place:
/// a key of the same name elsewhere goes another way.
#[test]
fn the_documents_of_a_payload_have_every_key_of_it_in_its_place() {
    let mut missing = Vec::new();
    for (documents, places) in [
        (STARTS, IN_START),
        (&[READY][..], IN_READY),
        (&[STATS][..], IN_STATS),
    ] {
        let first = |document: &&str| {
            let first = guard::first_document(document.as_bytes(), guard::SMALL).unwrap();
            serde_yaml::from_slice::<Value>(first).unwrap()
        };
        let roots: Vec<Value> = documents.iter().map(first).collect();
        for (name, source, path) in places {
            let keys = declared(name, source);
            assert!(!keys.is_empty(), "{name} has no keys");
            let found: Vec<Value> = roots.iter().flat_map(|it| standing_at(it, path)).collect();
            let lacks = |key: &&str| !found.iter().any(|it| it.get(*key).is_some());
            missing.extend(keys.into_iter().filter(lacks).map(|it| (*name, it)));
        }
    }
    assert_eq!(missing, [] as [(&str, &str); 0]);
}

#[test]
fn only_the_first_document_of_a_start_counts() {
    let payload = include_bytes!("golden/start-three-documents.yaml");
    let start = peek::start(payload).unwrap();
    assert_eq!(start.instance_uuid, "0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01");
    assert_eq!(
        (start.mem_mb, start.vcpus, start.disk_mib),
        (512, 2, 20 * 1024)
    );
    assert_eq!(
        (
            start.node_id,
            start.hostname,
            start.network_node,
            start.restart
        ),
        (None, None, false, false)
    );
    assert_eq!(
        Start::decode(payload).unwrap().storage[0].id,
        "67d86208-b46c-4465-9018-e14187d4010"
    );
}

#[test]
fn further_images_are_read_by_both_readers_in_either_style_up_to_their_limit() {
    let digest = |number: usize| format!("sha256:{number:064x}");
    let image = format!("  image: {}\n", digest(0));
    for count in [0, 1, 2, 16, 17] {
        let digests: Vec<String> = (1..=count).map(digest).collect();
        let flow = format!("  more_images: [{}]\n", digests.join(", "));
        let lines: String = digests.iter().map(|it| format!("  - {it}\n")).collect();
        let block = format!("  more_images:\n{lines}");
        for style in [flow, block] {
            for more in [format!("{image}{style}"), format!("{style}{image}")] {
                let payload = format!("start:\n  instance_uuid: a\n{more}");
                agree(payload.as_bytes()).unwrap();
                let read = peek::start(payload.as_bytes()).map(|it| it.more_images.len());
                assert_eq!(read.ok(), (count <= 16).then_some(count), "{payload}");
            }
            let alone = format!("start:\n  instance_uuid: a\n{style}");
            agree(alone.as_bytes()).unwrap();
            let read = peek::start(alone.as_bytes());
            assert_eq!(read.is_ok(), count == 0, "{alone}");
        }
    }
}

#[test]
fn keys_that_stand_twice_are_refused_by_both_readers_in_either_style() {
    for rest in [
        "  vm_type: a\n  vm_type: a\n",
        "  requirements:\n    mem_mb: 1\n    vcpus: 1\n    mem_mb: 1\n",
        "  requirements: {mem_mb: 1, vcpus: 1, mem_mb: 2}\n",
        "  requirements: {vcpus: 1}\n  requirements: {mem_mb: 1}\n",
        "  env:\n    A: b\n    B: b\n    A: c\n",
        "  env: {B: b, A: b, B: c}\n",
        "  scheduling:\n    resources: {gpu: 1, gpu: 2}\n",
        "  scheduling:\n    group: {id: a, id: b}\n",
        "  instance_uuid: a\n",
        "start:\n  instance_uuid: b\n",
        "  storage:\n  - size: 1\n    size: 1\n",
        "  requirements:\n    <<: {mem_mb: 1}\n",
        "  env: {<<: {A: b}}\n",
        "<<: {x: 1}\n",
    ] {
        let payload = format!("start:\n  instance_uuid: a\n{rest}");
        agree(payload.as_bytes()).unwrap();
        assert!(peek::start(payload.as_bytes()).is_err(), "{payload}");
    }
    for count in [1, 15, 16, 17, 40] {
        // In order and not, and with one of them twice.
        let keys: Vec<String> = (0..count).map(|it| format!("    K{it:02}: v\n")).collect();
        let backwards: Vec<String> = keys.iter().rev().cloned().collect();
        for keys in [keys, backwards] {
            for (twice, is_taken) in [("", true), (&*keys[0], false), (&*keys[count - 1], false)] {
                let env = keys.concat();
                let payload = format!("start:\n  instance_uuid: a\n  env:\n{env}{twice}");
                agree(payload.as_bytes()).unwrap();
                assert_eq!(
                    peek::start(payload.as_bytes()).is_ok(),
                    is_taken,
                    "{payload}"
                );
            }
        }
    }
}

#[test]
fn both_styles_of_scheduling_are_read_by_both_readers() {
    for payload in [SCHEDULING, FLOW] {
        agree(payload.as_bytes()).unwrap();
        let scheduling = peek::start(payload.as_bytes()).unwrap().scheduling.unwrap();
        assert_eq!(scheduling.require[1].key(), "cpu.model");
        assert_eq!(scheduling.group.unwrap().id, "web");
        assert_eq!(scheduling.near[1].scope, "node");
        assert_eq!(scheduling.resources["gpu"], 1);
        assert_eq!(scheduling.queue.unwrap().ms(), 30_000);
    }
}

#[test]
fn comments_and_quotes_hold_no_more_for_the_peeks_than_for_the_guard() {
    for (unit, count) in [("- ", 300), (": ", 530_000)] {
        let text = unit.repeat(count);
        agree(format!("load: 1\n# {text}\n").as_bytes()).unwrap();
        agree(format!("hostname: \"{text}\"\n").as_bytes()).unwrap();
    }
}

#[test]
fn as_many_lists_on_one_line_are_read_by_both_readers() {
    for count in [255, 256, 257] {
        let storage = vec!["{size: 1, local: true}"; count - 1].join(", ");
        let payload = format!("start:\n  instance_uuid: a\n  storage: [{storage}]\n");
        agree(payload.as_bytes()).unwrap();
    }
}

#[test]
fn instances_are_cut_out_and_every_other_byte_stays() {
    let listed = "node_uuid: n\ninstances:\n- instance_uuid: a\n  volumes:\n  - v\n# of b\n- instance_uuid: b\n\
                  load: 3\nended:\n- seq: 1\n  instance_uuid: c\nunknown: x\n";
    let cut = |rows: &[u32]| {
        peek::stats_without(listed.as_bytes(), rows)
            .map(|cut| String::from_utf8(cut.into()).unwrap())
    };
    let head = "node_uuid: n\ninstances:\n";
    let tail = "load: 3\nunknown: x\n";
    assert_eq!(cut(&[0]), Some(format!("{head}- instance_uuid: b\n{tail}")));
    assert_eq!(
        cut(&[1]),
        Some(format!(
            "{head}- instance_uuid: a\n  volumes:\n  - v\n# of b\n{tail}"
        ))
    );
    assert_eq!(
        cut(&[0, 1]),
        Some(format!("node_uuid: n\ninstances: []\n{tail}"))
    );
    assert_eq!(cut(&[2]), None);
    assert_eq!(
        peek::stats_without(b"instances: [{instance_uuid: a}]\n", &[0]),
        None
    );
}

#[test]
fn of_stats_that_tell_of_ends_alone_nothing_is_left_to_be_cut() {
    for text in [
        "ended:\n- {seq: 3, how: deleted}\n",
        "---\n# it: ended\nended:\n- {seq: 3, how: deleted}\n",
    ] {
        agree(text.as_bytes()).unwrap();
        assert_eq!(peek::stats_without(text.as_bytes(), &[]), None, "{text}");
    }
}
