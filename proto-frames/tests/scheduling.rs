//! `start.scheduling`: what is read, what is written, and in which words the rest is refused.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use proto_frames::payload::scheduling::{
    MAX_ALTERNATES, MAX_ATTEMPTS, MAX_BATCH, MAX_COUNT, MAX_EXPRESSIONS, MAX_IMAGE_CHARS,
    MAX_MUST_UNDERSTAND, MAX_NEAR, MAX_RESOURCES,
};
use proto_frames::payload::{
    After, AttemptFailed, Backoff, Batch, DecidedPlacement, Expression, Group, GroupPolicy, Near,
    OnNodeLoss, Payload, PayloadErrorKind, PlacementDecision, Reason, ReasonKind, RestartPolicy,
    RetryPolicy, Scheduling, Span, Start, StartFailure, StartFailureReason, Stop, peek,
};

/// A START with these lines in its `scheduling`, which begin in line 4.
fn start(lines: &str) -> String {
    let lines: Vec<String> = lines.lines().map(|it| format!("    {it}\n")).collect();
    format!(
        "start:\n  instance_uuid: a\n  scheduling:\n{}",
        lines.concat()
    )
}

fn read(lines: &str) -> Scheduling {
    let payload = start(lines);
    let start = Start::decode(payload.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    start.scheduling.expect("there is the key")
}

#[track_caller]
fn refused(lines: &str, words: &str) {
    let payload = start(lines);
    let error = Start::decode(payload.as_bytes()).expect_err(&payload);
    assert_eq!(error.to_string(), format!("start.scheduling.{words}"));
    let kind = match words {
        words if words.ends_with(" entries") || words.contains(", found ") => {
            PayloadErrorKind::InvalidPayload
        }
        _ => PayloadErrorKind::InvalidData,
    };
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(peek::start(payload.as_bytes()).as_ref(), Err(&error));
}

#[test]
fn a_key_that_is_not_known_is_refused_with_what_it_was_meant_to_be() {
    refused(
        "requires: [zone = a]\n",
        "requires, line 4 column 15: no such key; did you mean `require`?",
    );
    refused(
        "group: {id: a, polcy: affinity, policy: affinity}\n",
        "group.polcy, line 4 column 27: no such key; did you mean `policy`?",
    );
    refused(
        "near:\n- label: a\n  colour: red\n",
        "near[0].colour, line 6 column 15: no such key; expected one of label, scope, hard",
    );
    // What makes no sense otherwise is said first: of a newer version, its keys may be unknown.
    refused(
        "version: 9\norbit: low\n",
        "version, line 4 column 14: version 9 is not understood; this scheduler understands 1",
    );
    let newer = start("orbit: low\n");
    assert!(Start::decode_placed(newer.as_bytes()).is_ok());
}

#[test]
fn absent_keys_have_their_default() {
    assert_eq!(read("{}"), Scheduling::default());
    assert_eq!(read("dry_run: true\ncount: 7\n").instances(), 7);
    let group = read("group: {id: a, policy: soft-affinity}").group.unwrap();
    assert_eq!((group.scope.as_str(), group.max_in_place()), ("node", 1));
    assert!(group.policy.is_soft() && !group.policy.is_anti());
    let near = &read("near:\n- label: a\n").near[0];
    assert_eq!((near.scope.as_str(), near.hard), ("node", false));
    let empty = Start::decode(b"start:\n  instance_uuid: a\n  scheduling:\n").unwrap();
    assert_eq!(empty.scheduling, None);
}

#[test]
fn the_known_keys_are_the_ones_that_are_read() {
    assert_eq!(
        Scheduling::KEYS,
        [
            "version",
            "must_understand",
            "priority",
            "queue",
            "require",
            "prefer",
            "resources",
            "group",
            "near",
            "same_node",
            "different_node",
            "batch",
            "attempts",
            "relocate",
            "on_node_loss",
            "time_limit",
            "stop",
            "restart",
            "retry",
            "after",
            "labels",
            "split_output",
            "image",
            "name",
            "dry_run",
            "count",
            "alternates",
        ]
    );
    let all = format!("must_understand: [{}]", Scheduling::KEYS.join(", "));
    assert_eq!(read(&all).must_understand, Scheduling::KEYS);
}

#[test]
fn versions_and_keys_that_are_not_understood_are_refused() {
    assert_eq!(read("version: 1").version, Some(1));
    refused(
        "version: 2",
        "version, line 4 column 14: version 2 is not understood; this scheduler understands 1",
    );
    refused(
        "version: 0",
        "version, line 4 column 14: version 0 is not understood; this scheduler understands 1",
    );
    refused(
        "must_understand: [group, teleport]",
        "must_understand[1], line 4 column 30: the key `teleport` is not understood",
    );
    refused(
        "must_understand:\n- \"\"\n",
        "must_understand[0], line 5 column 7: the key `` is not understood",
    );
}

#[test]
fn numbers_outside_their_range_are_refused() {
    for (lines, words) in [
        (
            "priority: 101",
            "priority, line 4 column 15: 101 is outside 0 to 100",
        ),
        (
            "priority: -1",
            "priority, line 4 column 15: -1 is outside 0 to 100",
        ),
        (
            "batch: {id: b, count: 0}",
            "batch.count, line 4 column 27: 0 is outside 1 to 1024",
        ),
        (
            "batch:\n  id: b\n  count: 1025\n",
            "batch.count, line 6 column 14: 1025 is outside 1 to 1024",
        ),
        (
            "dry_run: true\ncount: 10001\n",
            "count, line 5 column 12: 10001 is outside 1 to 10000",
        ),
        (
            "dry_run: true\nalternates: 101\n",
            "alternates, line 5 column 17: 101 is outside 0 to 100",
        ),
        (
            "dry_run: true\ncount: 0\n",
            "count, line 5 column 12: 0 is outside 1 to 10000",
        ),
        (
            "group: {id: a, policy: anti-affinity, max: 0}",
            "group.max, line 4 column 48: 0 is outside 1 to 4294967295",
        ),
        (
            "resources: {gpu: 1, gpu.a100: -2}",
            "resources.gpu.a100, line 4 column 35: negative: -2",
        ),
        (
            "attempts: -1",
            "attempts, line 4 column 15: expected a whole number from 0 to 4294967295, found `-1`",
        ),
    ] {
        refused(lines, words);
    }
    assert_eq!(
        read("batch: {id: b, count: 1024}").batch.unwrap().count,
        MAX_BATCH
    );
    assert_eq!(read("dry_run: true\ncount: 10000\n").count, Some(MAX_COUNT));
}

#[test]
fn keys_without_the_one_they_need_are_refused() {
    refused(
        "count: 3",
        "count, line 4 column 12: makes sense only with dry_run: true",
    );
    refused(
        "group: {id: a, policy: soft-affinity, max: 1}",
        "group.max, line 4 column 48: makes sense only with policy anti-affinity or soft-anti-affinity",
    );
}

#[test]
fn names_and_words_that_no_one_can_mean_are_refused() {
    let long = "n".repeat(129);
    for (lines, words) in [
        (
            "group: {policy: affinity}",
            "group.id, line 4 column 12: missing or empty",
        ),
        (
            "group: {id: a}",
            "group.policy, line 4 column 12: missing or empty",
        ),
        (
            "group: {id: a, policy: antiaffinity}",
            "group.policy, line 4 column 28: `antiaffinity` is none of affinity, anti-affinity, soft-affinity, \
             soft-anti-affinity",
        ),
        (
            "group: {id: a b, policy: affinity}",
            "group.id, line 4 column 17: `a b` is no name: names are 1 to 128 letters, digits and . _ / -",
        ),
        (
            "group: {id: a, policy: affinity, scope: \"\"}",
            "group.scope, line 4 column 45: missing or empty",
        ),
        (
            "near:\n- label: a\n- hard: yes\n",
            "near[1].label, line 6 column 7: missing or empty",
        ),
        (
            "near:\n- label: a\n  scope: é\n",
            "near[0].scope, line 6 column 14: `é` is no name: names are 1 to 128 letters, digits and . _ / -",
        ),
        (
            "same_node: [a, \"\"]",
            "same_node[1], line 4 column 20: missing or empty",
        ),
        (
            "different_node: [a b]",
            "different_node[0], line 4 column 22: `a b` is no name: names are 1 to 128 letters, digits and . _ / -",
        ),
        (
            "batch: {count: 2}",
            "batch.id, line 4 column 12: missing or empty",
        ),
        (
            "resources: {\"\": 1}",
            "resources, line 4 column 16: `` is no name: names are 1 to 128 letters, digits and . _ / -",
        ),
        (
            "image: ubuntu 24",
            "image, line 4 column 12: `ubuntu 24` is no image: images are at most 512 characters without blanks",
        ),
    ] {
        refused(lines, words);
    }
    let payload = start(&format!("batch: {{id: {long}, count: 2}}"));
    let error = Start::decode(payload.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("is no name") && error.len() < 200, "{error}");
    assert_eq!(
        read(&format!("batch: {{id: {}, count: 2}}", &long[1..]))
            .batch
            .unwrap()
            .id,
        long[1..]
    );
}

#[test]
fn times_that_are_none_or_too_long_are_refused() {
    assert_eq!(read("queue: 30s").queue, Some(Span::from_ms(30_000)));
    assert_eq!(read("queue: 0").queue, Some(Span::from_ms(0)));
    assert_eq!(read("queue: 720h").queue.unwrap().ms(), 2_592_000_000);
    refused(
        "queue: 2592000001ms",
        "queue, line 4 column 12: longer than 720h",
    );
    refused(
        "queue: 30",
        "queue, line 4 column 12: expected a length of time such as 30s, found `30`",
    );
    refused(
        "queue: [1s]",
        "queue, line 4 column 12: expected a length of time such as 30s, found a list",
    );
}

#[test]
fn what_is_to_happen_when_a_node_fails_is_checked() {
    let kept = read("attempts: 10\nrelocate: yes\non_node_loss: restart\n");
    assert_eq!(
        (kept.max_attempts(), kept.relocate),
        (MAX_ATTEMPTS, Some(true))
    );
    assert!(kept.restarts_on_node_loss());
    for plain in ["{}", "on_node_loss: report", "on_node_loss: \"\""] {
        let plain = read(plain);
        assert_eq!((plain.max_attempts(), plain.relocate), (1, None));
        assert!(!plain.restarts_on_node_loss());
    }
    assert_eq!(
        read("on_node_loss: report").on_node_loss,
        OnNodeLoss::Report
    );
    read("must_understand: [relocate, on_node_loss, attempts]");
    for (lines, words) in [
        (
            "attempts: 0",
            "attempts, line 4 column 15: 0 is outside 1 to 10",
        ),
        (
            "attempts: 11",
            "attempts, line 4 column 15: 11 is outside 1 to 10",
        ),
        (
            "on_node_loss: retry",
            "on_node_loss, line 4 column 19: `retry` is none of report, restart",
        ),
    ] {
        refused(lines, words);
        let placed = Start::decode_placed(start(lines).as_bytes());
        assert!(placed.is_ok(), "{placed:?}");
    }
}

#[test]
fn bad_expressions_are_refused_with_both_places() {
    refused(
        "require: [\"zone = eu-1\", \"rack in (r1\"]",
        "require[1], line 4 column 30: column 12 of the expression: expected ',' or ')'",
    );
    refused(
        "prefer:\n- zone =\n",
        "prefer[0], line 5 column 7: column 7 of the expression: expected a value after '='",
    );
    refused(
        "require:\n- ~\n",
        "require[0], line 5 column 5: column 1 of the expression: expected a key of letters, digits and . _ / -",
    );
    refused(
        "require:\n- {a: b}\n",
        "require[0], line 5 column 7: expected an expression, found a mapping",
    );
}

#[test]
fn lists_have_limits_that_can_be_reached() {
    let list = |key: &str, entry: &str, count: usize| {
        format!("{key}:\n{}", format!("- {entry}\n").repeat(count))
    };
    for (key, entry, max) in [
        ("require", "a = b", MAX_EXPRESSIONS),
        ("prefer", "a = b", MAX_EXPRESSIONS),
        ("near", "label: a", MAX_NEAR),
        ("must_understand", "near", MAX_MUST_UNDERSTAND),
    ] {
        read(&list(key, entry, max));
        refused(
            &list(key, entry, max + 1),
            &format!("{key}, line 5 column 5: more than {max} entries"),
        );
    }
    let resources = |count: usize| {
        let lines: String = (0..count).map(|i| format!("  r{i}: 1\n")).collect();
        format!("resources:\n{lines}")
    };
    read(&resources(MAX_RESOURCES));
    refused(
        &resources(MAX_RESOURCES + 1),
        "resources, line 5 column 7: more than 16 entries",
    );
    read(&format!("image: {}", "i".repeat(MAX_IMAGE_CHARS)));
    let payload = start(&format!("image: {}", "i".repeat(MAX_IMAGE_CHARS + 1)));
    assert!(Start::decode(payload.as_bytes()).is_err());
}

#[test]
fn a_failure_for_original_controllers_has_nothing_that_they_do_not_know() {
    let failure = StartFailure {
        instance_uuid: "a".to_owned(),
        reason: StartFailureReason::FullCloud,
        detail: Some("no room".to_owned()),
        reasons: vec![Reason::default()],
        never: true,
        attempts: vec![AttemptFailed::default()],
        ..StartFailure::default()
    };
    let waited = StartFailure {
        reason: StartFailureReason::QueueTimeout,
        ..failure.clone()
    };
    let unrecorded = StartFailure {
        reason: StartFailureReason::NotRecorded,
        ..failure.clone()
    };
    assert_eq!(
        unrecorded.to_original().encode(),
        "node_uuid: \"\"\ninstance_uuid: a\nreason: full_cloud\nrestart: false\ndetail: no room\n"
    );
    for failure in [failure, waited] {
        assert_eq!(
            failure.to_original().encode(),
            "node_uuid: \"\"\ninstance_uuid: a\nreason: full_cloud\nrestart: false\n"
        );
    }
}

#[test]
fn a_decision_is_written_as_documented() {
    let decision = PlacementDecision {
        instance_uuid: "a".to_owned(),
        count: 3,
        fits: 2,
        placements: vec![DecidedPlacement {
            node_uuid: "n".to_owned(),
            hostname: "host1".to_owned(),
            count: 2,
        }],
        alternates: vec![DecidedPlacement {
            node_uuid: "m".to_owned(),
            hostname: "host3".to_owned(),
            count: 1,
        }],
        reason: StartFailureReason::FullCloud,
        reasons: vec![
            Reason {
                reason: ReasonKind::Memory,
                nodes: 5,
                asked: Some(512),
                best: Some(0),
                capacity: Some(256),
                hostname: "host2".to_owned(),
                never: true,
                ..Reason::default()
            },
            Reason {
                reason: ReasonKind::Labels,
                what: "zone = eu-1".to_owned(),
                nodes: 1,
                ..Reason::default()
            },
        ],
        ..PlacementDecision::default()
    };
    let written = decision.encode();
    assert_eq!(
        written,
        "placement_decision:
  instance_uuid: a
  count: 3
  fits: 2
  placements:
  - node_uuid: \"n\"
    hostname: host1
    count: 2
  alternates:
  - node_uuid: m
    hostname: host3
    count: 1
  reason: full_cloud
  reasons:
  - reason: memory
    nodes: 5
    asked: 512
    best: 0
    capacity: 256
    hostname: host2
    never: true
  - reason: labels
    what: zone = eu-1
    nodes: 1
"
    );
    assert_eq!(PlacementDecision::decode(&written), Ok(decision));
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9._/-]{1,10}"
}

fn expressions() -> impl Strategy<Value = Vec<Expression>> {
    let texts = &[
        "zone = eu-1",
        "a in (b, 'c d', \"e\\\"\")",
        "cores >= 32",
        "ssd not exists",
        "a = é",
        "  a!=b  ",
        "a = yes",
    ][..];
    vec(
        select(texts).prop_map(|text| text.parse().expect("each is one")),
        0..4,
    )
}

prop_compose! {
    fn stop()(
        signal in select(&["", "TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH"][..]),
        grace in option::of((0..=3_600_000_u64).prop_map(Span::from_ms)),
    ) -> Stop {
        Stop { signal: signal.into(), grace }
    }
}

prop_compose! {
    fn restart()(
        when in select(&["on-failure", "always"][..]),
        max in option::of(1..=100_u32),
        backoff in option::of((100..80_000_000_u64, 0..6_400_000_u64)),
        window in option::of((1000..=2_592_000_000_u64).prop_map(Span::from_ms)),
    ) -> RestartPolicy {
        let backoff = backoff.map(|(first, more)| Backoff {
            first: Span::from_ms(first),
            longest: Span::from_ms(first + more),
        });
        let window = window.filter(|_| max.is_some());
        RestartPolicy { when: when.into(), max, backoff, window }
    }
}

fn retry() -> impl Strategy<Value = RetryPolicy> {
    let on = select(&["75", "1-255", "100-120", "signal"][..]);
    let on = on.prop_map(|text| text.parse().expect("each is one"));
    (vec(on, 1..4), option::of(1..=100_u32)).prop_map(|(on, max)| RetryPolicy { on, max })
}

fn after() -> impl Strategy<Value = After> {
    let end = select(&["", "ok", "any", "failed"][..]);
    let which = prop_oneof![(name(), ""), ("", name())];
    (which, end).prop_map(|((instance, array), end)| After {
        instance,
        array,
        end: end.into(),
    })
}

prop_compose! {
    fn scheduling()(
        (version, must_understand) in (option::of(Just(1)), vec(select(Scheduling::KEYS).prop_map(str::to_owned), 0..3)),
        (priority, queue) in (option::of(0..=100_i64), option::of((0..=2_592_000_000_u64).prop_map(Span::from_ms))),
        (require, prefer) in (expressions(), expressions()),
        resources in btree_map(name(), 0..i64::MAX, 0..4),
        group in option::of((name(), select(GroupPolicy::KNOWN), name(), option::of(1..u32::MAX))),
        near in vec((name(), name(), any::<bool>()), 0..3),
        (same_node, different_node) in (vec(name(), 0..3), vec(name(), 0..3)),
        batch in option::of((name(), 1..=MAX_BATCH)),
        (attempts, relocate) in (option::of(1..=MAX_ATTEMPTS), any::<bool>()),
        on_node_loss in select(&["", "report", "restart"][..]),
        time_limit in option::of((1000..=31_536_000_000_u64).prop_map(Span::from_ms)),
        (stop, restart) in (option::of(stop()), option::of(restart())),
        (retry, after) in (option::of(retry()), vec(after(), 0..3)),
        image in "[!-~]{0,12}",
        count in option::of(1..=MAX_COUNT),
        alternates in option::of(0..=MAX_ALTERNATES),
        called in "([a-z0-9][A-Za-z0-9._-]{0,20})?",
        dry_run in any::<bool>(),
        (split_output, labels) in (any::<bool>(), btree_map(name(), name(), 0..3)),
    ) -> Scheduling {
        let group = group.map(|(id, policy, scope, max)| {
            let policy = GroupPolicy::from(policy);
            Group { id, max: max.filter(|_| policy.is_anti()), policy, scope }
        });
        let near = near.into_iter().map(|(label, scope, hard)| Near { label, scope, hard });
        Scheduling {
            version, must_understand, priority, queue, require, prefer, resources, group,
            near: near.collect(),
            same_node, different_node,
            batch: batch.map(|(id, count)| Batch { id, count }),
            attempts, relocate: relocate.then_some(true), image, dry_run,
            name: called,
            on_node_loss: on_node_loss.into(),
            time_limit, stop, restart, retry, after, split_output, labels,
            count: count.filter(|_| dry_run),
            alternates: alternates.filter(|_| dry_run),
        }
    }
}

proptest! {
    #[test]
    fn scheduling_that_is_written_is_read_back_by_both_readers(scheduling in scheduling()) {
        let start = Start {
            instance_uuid: "a".to_owned(),
            scheduling: Some(scheduling.clone()),
            ..Start::default()
        };
        let written = start.encode();
        let peek = peek::start(&written).unwrap();
        prop_assert_eq!(peek.scheduling, Some(Box::new(scheduling)));
        prop_assert_eq!(Start::decode(&written), Ok(start));
    }
}
