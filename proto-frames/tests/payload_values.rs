//! Values are read as the original's peers (Go's yaml.v2) read them, and written so that any YAML reader gets back what
//! was meant.

use std::collections::BTreeMap;

use proptest::prelude::*;

use proto_frames::payload::peek::{self, ReadyPeek, StartPeek, StatsPeek};
use proto_frames::payload::{
    CommandRefused, DeleteFailure, EndFacts, EndKind, EndWhy, InstanceDeleted, InstanceEnd,
    InstancePlaced, InstanceStat, InstanceState, Network, NodeConnected, NodeType, NodeView,
    Payload, Query, QueryKind, QueryResult, Ready, RefreshCnci, RefusalReason, Requested,
    Requirements, RunProgress, Start, StartFailure, StartFailureReason, Stats, Storage,
    TenantAdded, Topic, Watch,
};

fn start(rest: &str) -> Start {
    Start::decode(format!("start:\n  instance_uuid: a\n{rest}").as_bytes())
        .expect("a START that can be read")
}

#[test]
fn null_is_the_zero_value_of_every_type() {
    for null in ["", " ~", " null", " Null", " NULL", " # nothing"] {
        let rest = [
            "tenant_uuid",
            "restart",
            "networking",
            "storage",
            "env",
            "command",
        ]
        .map(|key| format!("  {key}:{null}\n"))
        .concat();
        let read = start(&format!("{rest}  requirements:\n    mem_mb:{null}\n"));
        assert_eq!(
            read,
            Start {
                instance_uuid: "a".to_owned(),
                ..Start::default()
            },
            "{null:?}"
        );
    }
}

#[test]
fn a_fraction_is_cut_off_and_numbers_and_truth_values_stand_in_no_quotes() {
    // As the original's launchers read it, so that both sides count the same.
    for (written, mem_mb) in [("1.5", 1), ("64.99", 64), ("6.4e1", 64), ("0.5", 0)] {
        for rest in [
            format!("  requirements:\n    mem_mb: {written}\n"),
            format!("  requirements: {{mem_mb: {written}}}\n"),
        ] {
            assert_eq!(start(&rest).requirements.mem_mb, mem_mb, "{rest}");
        }
    }
    for rest in [
        "  requirements:\n    mem_mb: \"64\"\n",
        "  requirements:\n    mem_mb: '64'\n",
        "  requirements: {mem_mb: \"64\"}\n",
        "  requirements:\n    mem_mb: \"1.5\"\n",
        "  restart: \"true\"\n",
        "  restart: 'false'\n",
        "  requirements:\n    mem_mb: 1e300\n",
        "  requirements:\n    mem_mb: .inf\n",
        "  requirements:\n    mem_mb: .nan\n",
    ] {
        let payload = format!("start:\n  instance_uuid: a\n{rest}");
        let full = Start::decode(payload.as_bytes()).unwrap_err();
        let peeked = peek::start(payload.as_bytes()).unwrap_err();
        assert_eq!(full, peeked, "{rest}");
        let said = full.to_string();
        assert!(
            said.contains("requirements.mem_mb") || said.contains("restart"),
            "{said}"
        );
        assert!(
            !rest.contains(['"', '\'']) || said.contains("the text \""),
            "{said}"
        );
    }
}

#[test]
fn words_and_numbers_of_yaml_1_1_are_understood() {
    let read = start(
        "  restart: yes\n  requirements:\n    network_node: On\n    mem_mb: 1_000\n    vcpus: 2.0\n",
    );
    assert!(read.restart && read.requirements.network_node);
    assert_eq!(
        (read.requirements.mem_mb, read.requirements.vcpus),
        (1000, 2)
    );
    assert_eq!(
        start("  requirements: {mem_mb: 010, vcpus: 0x10}\n")
            .requirements
            .mem_mb,
        8
    );
    let refresh =
        RefreshCnci::decode(b"cnci_refresh:\n  cncis:\n  - tunnel_id: 2694387109\n").unwrap();
    assert_eq!(refresh.cncis[0].tunnel_id, 2_694_387_109);
}

#[test]
fn text_is_what_is_written() {
    for text in [
        "8",
        "67e86208",
        "010",
        "yes",
        "1.50",
        "true",
        "0x1f",
        "2017-07-14",
        "'null'",
        "\"~\"",
        "1_0",
        ".inf",
        "02:00:15:03:06:49",
    ] {
        let read = start(&format!("  networking:\n    subnet_key: {text}\n"));
        assert_eq!(
            read.networking.subnet_key,
            text.trim_matches(['\'', '"']),
            "{text}"
        );
    }
}

#[test]
fn unknown_keys_are_ignored_also_where_they_are_repeated() {
    let read = start("  restart: true\n  zone: {a: [b]}\n  1: 2\n  zone: c\n  vm_type: docker\n");
    assert!(read.restart);
    assert_eq!(read.vm_type, "docker");
}

#[test]
fn of_several_documents_the_first_is_read_in_every_payload() {
    assert_eq!(
        InstanceDeleted::decode(b"instance_deleted:\n  instance_uuid: a\n---\nx: [\n")
            .unwrap()
            .instance_uuid,
        "a"
    );
}

#[test]
fn reasons_no_one_here_knows_survive() {
    let bytes = b"node_uuid: a\ninstance_uuid: b\nreason: out_of_luck\nrestart: true\n";
    let failure = StartFailure::decode(bytes).unwrap();
    assert_eq!(
        failure.reason,
        StartFailureReason::Other("out_of_luck".to_owned())
    );
    assert!(!failure.reason.is_fatal());
    assert_eq!(failure.encode(), &bytes[..]);
}

#[test]
fn added_keys_are_written_only_where_there_is_something_to_say() {
    let event = |exit_code| InstanceDeleted {
        instance_uuid: "a".to_owned(),
        exit_code,
        ..InstanceDeleted::default()
    };
    assert_eq!(
        event(None).encode(),
        "instance_deleted:\n  instance_uuid: a\n"
    );
    assert_eq!(
        event(Some(-9)).encode(),
        "instance_deleted:\n  instance_uuid: a\n  exit_code: -9\n"
    );
    assert_eq!(
        Watch {
            topics: vec![Topic::Nodes, Topic::Placements]
        }
        .encode(),
        "watch:\n  topics:\n  - nodes\n  - placements\n"
    );
    assert_eq!(Watch::default().encode(), "watch:\n  topics: []\n");
    let refused = CommandRefused {
        ty: 0,
        operand: 4,
        name: "COMMAND DELETE".to_owned(),
        reason: RefusalReason::NotMaster,
        detail: "node-1 is: master".to_owned(),
        instance_uuid: None,
    };
    assert_eq!(
        refused.encode(),
        "command_refused:\n  type: 0\n  operand: 4\n  name: COMMAND DELETE\n  reason: not_master\n  detail: \"node-1 is: master\"\n"
    );
    assert_eq!(CommandRefused::decode(&refused.encode()), Ok(refused));
}

#[test]
fn answers_to_queries_come_back_as_they_were() {
    let result = QueryResult {
        id: 7,
        what: QueryKind::Nodes,
        nodes: vec![
            NodeView {
                node_uuid: "a".to_owned(),
                mem_total_mb: 1 << 40,
                labels: [("tenant".to_owned(), vec!["1e3".to_owned(), "~".to_owned()])].into(),
                resources_total: [("gpu".to_owned(), 4)].into(),
                resources_free: [("gpu".to_owned(), 0)].into(),
                failures: "1.50".to_owned(),
                ..NodeView::default()
            },
            NodeView::default(),
        ],
        next: Some("a".to_owned()),
        ..QueryResult::default()
    };
    assert_eq!(QueryResult::decode(&result.encode()), Ok(result));
    let query = Query {
        matching: Some("0c7a".to_owned()),
        limit: Some(2),
        ..Query::default()
    };
    assert_eq!(Query::decode(&query.encode()), Ok(query));
}

/// Text that YAML could take for something else.
const ODD: &[&str] = &[
    "",
    " ",
    "null",
    "~",
    "Null",
    "yes",
    "NO",
    "y",
    "n",
    "on",
    "true",
    "1",
    "-1",
    "010",
    "1.5",
    "1e3",
    ".5",
    "0x1f",
    "0o7",
    "0b1",
    "1_000",
    "inf",
    ".inf",
    ".nan",
    "67e86208",
    "12:30",
    "1:20:30",
    "2017-07-14",
    "a: b",
    "a:",
    ": a",
    "a #b",
    "#a",
    "- a",
    "-",
    "--",
    "---",
    "...",
    "? a",
    "[a]",
    "{a}",
    "a, b",
    "&a",
    "*a",
    "!a",
    "|",
    ">",
    "'a'",
    "\"a\"",
    "%a",
    "@a",
    "`a",
    " a",
    "a ",
    "a  b",
    "a\nb",
    "\n",
    "\r\n",
    "\t",
    "\\",
    "\u{0}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\u{fffe}",
    "\u{1f600}",
    "é",
    "<<",
    "=",
    "a=b",
    "a@b",
    "+1",
    "/",
    "_",
    "_1",
    "1_",
    "0",
    "00",
    "a\u{2029}b",
    "192.168.1.1",
    "1.2",
    "172.16.0.0/24",
];

/// Any text, and above all [`ODD`].
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(ODD).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => "[ -~]{0,12}",
        1 => "[0-9a-fA-Fox_.:+-]{1,8}",
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(texts in prop::collection::vec(text(), 8), numbers in any::<[i64; 4]>()) {
        let mut texts = texts.into_iter();
        let mut text = || texts.next().unwrap_or_default();
        let failure = StartFailure { node_uuid: text(), instance_uuid: text(), reason: text().as_str().into(), restart: true, detail: Some(text()), ..StartFailure::default() };
        prop_assert_eq!(StartFailure::decode(&failure.encode()), Ok(failure.clone()));
        let placed = InstancePlaced { instance_uuid: text(), node_uuid: text(), hostname: text() };
        prop_assert_eq!(InstancePlaced::decode(&placed.encode()), Ok(placed));
        let tenant = TenantAdded { agent_ip: text(), subnet_key: numbers[0], ..TenantAdded::default() };
        prop_assert_eq!(TenantAdded::decode(&tenant.encode()), Ok(tenant));
        let connected = NodeConnected { node_uuid: failure.node_uuid, node_type: NodeType::Network };
        prop_assert_eq!(NodeConnected::decode(&connected.encode()), Ok(connected));
        let failure = DeleteFailure { node_uuid: failure.instance_uuid, ..DeleteFailure::default() };
        prop_assert_eq!(DeleteFailure::decode(&failure.encode()), Ok(failure));
    }

    #[test]
    fn a_start_that_is_written_is_read_back(
        texts in prop::collection::vec(text(), 9),
        command in prop::collection::vec(text(), 0..4),
        env in prop::collection::btree_map(text(), text(), 0..4),
        disks in prop::collection::vec((text(), any::<bool>(), any::<bool>(), 0..1000_i64), 0..4),
        amounts in [0..=i64::MAX, 0..=i64::MAX],
        restart in any::<bool>(),
    ) {
        let storage = disks.into_iter().map(|(tag, local, boot, size)| Storage { tag, local, boot, size, ..Storage::default() });
        let start = Start {
            instance_uuid: format!("x{}", texts[0]),
            tenant_uuid: texts[1].clone(),
            vm_type: texts[2].clone(),
            image: if restart { format!("sha256:{:064x}", amounts[0]) } else { String::new() },
            more_images: if restart { vec![format!("sha256:{:064x}", amounts[1]); command.len()] } else { Vec::new() },
            working_dir: texts[3].clone(),
            requirements: Requirements {
                mem_mb: amounts[0],
                vcpus: amounts[1],
                node_id: texts[4].clone(),
                hostname: texts[5].clone(),
                ..Requirements::default()
            },
            storage: storage.collect(),
            restart,
            command,
            env,
            ..Start::default()
        };
        let written = start.encode();
        prop_assert_eq!(peek::start(&written), Ok(StartPeek::from(start.clone())));
        prop_assert_eq!(Start::decode(&written), Ok(start));
    }

    #[test]
    fn ready_and_stats_that_are_written_are_read_back(
        texts in prop::collection::vec(text(), 6),
        labels in prop::collection::btree_map(text(), text(), 0..3),
        resources in prop::collection::btree_map(text(), any::<i64>(), 0..3),
        capabilities in prop::collection::vec(text(), 0..3),
        starts_seen in any::<Option<u64>>(),
        states in prop::collection::vec((text(), any::<i64>(), any::<bool>()), 0..4),
        ends in prop::collection::vec((any::<u64>(), text(), any::<Option<i64>>(), any::<bool>()), 0..4),
    ) {
        let networks = vec![Network { ip: texts[0].clone(), mac: texts[1].clone() }];
        let ready = Ready {
            node_uuid: texts[2].clone(),
            hostname: texts[3].clone(),
            networks: networks.clone(),
            labels: labels.clone(),
            resources: resources.clone(),
            capabilities: capabilities.clone(),
            starts_seen,
            shares: texts[5].clone(),
            vm_types: capabilities.clone(),
            fault: texts[0].clone(),
            ..Ready::default()
        };
        let written = ready.encode();
        prop_assert_eq!(peek::ready(&written), Ok(ReadyPeek::from(ready.clone())));
        prop_assert_eq!(Ready::decode(&written), Ok(ready));
        let instances = states.into_iter().map(|(state, used, asks)| InstanceStat {
            instance_uuid: state.clone(),
            state: InstanceState::from(state.as_str()),
            memory_usage_mb: used,
            requested: asks.then(|| Requested { mem_mb: used, resources: resources.clone(), ..Requested::default() }),
            volumes: capabilities.clone(),
            group: texts[3].clone(),
            ..InstanceStat::default()
        });
        let ended = ends.into_iter().map(|(seq, text, exit_code, restart)| InstanceEnd {
            seq,
            instance_uuid: text.clone(),
            how: EndKind::from(text.as_str()),
            exit_code,
            reason: StartFailureReason::from(text.as_str()),
            age_ms: restart.then_some(seq),
            detail: text.clone(),
            restart,
            facts: restart.then(|| Box::new(EndFacts {
                ran_ms: Some(seq),
                why: EndWhy::from(text.as_str()),
                cpu_ms: exit_code.map(|_| seq),
                ..EndFacts::default()
            })),
        });
        let stats = Stats {
            instances: instances.collect(),
            networks,
            labels,
            status: texts[4].clone(),
            shares: texts[5].clone(),
            vm_types: capabilities.clone(),
            fault: texts[1].clone(),
            ends_incarnation: texts[0].clone(),
            ends_seq: starts_seen,
            ended: ended.collect(),
            ..Stats::default()
        };
        let written = stats.encode();
        prop_assert_eq!(peek::stats(&written), Ok(StatsPeek::from(stats.clone())));
        prop_assert_eq!(Stats::decode(&written), Ok(stats));
    }
}

/// Random texts mostly need quotation marks, with which the reader of the plain style leaves a STATS to the full parser.
#[test]
fn every_field_of_an_instance_and_of_an_end_is_read_in_the_plain_style() {
    let end = InstanceEnd {
        seq: 4,
        instance_uuid: "a".to_owned(),
        how: EndKind::Failed,
        exit_code: Some(3),
        age_ms: Some(1500),
        reason: "full_cn".into(),
        detail: "no room".to_owned(),
        restart: true,
        facts: Some(Box::new(EndFacts {
            ran_ms: Some(1),
            why: EndWhy::Oom,
            peak_kib: Some(2),
            cpu_ms: Some(3),
            output_bytes: Some(4),
            restarts: 5,
            time_used_ms: Some(6),
            program: "sleep 5".to_owned(),
            labels: BTreeMap::from([("project".to_owned(), "apollo".to_owned())]),
        })),
    };
    let instance = InstanceStat {
        instance_uuid: "b".to_owned(),
        state: "running".into(),
        ssh_ip: "192.0.2.1".to_owned(),
        ssh_port: 22,
        memory_usage_mb: 1,
        disk_usage_mb: 2,
        cpu_usage: 3,
        volumes: vec!["v".to_owned()],
        requested: Some(Requested {
            mem_mb: 4,
            vcpus: 5,
            disk_mb: 6,
            resources: BTreeMap::from([("gpu".to_owned(), 7)]),
        }),
        group: "web".to_owned(),
        suspended: true,
        run: Some(Box::new(RunProgress {
            restarts: 8,
            last_exit_code: Some(-9),
            next_try_ms: Some(10),
            time_used_ms: Some(11),
            time_limit_ms: Some(12),
            cpus: "0-3".to_owned(),
            unpinned: true,
        })),
    };
    let stats = Stats {
        ends_incarnation: "1f5b2fe6-4493-4561-904a-8f4e956218d9".to_owned(),
        ends_seq: Some(4),
        ended: vec![end],
        instances: vec![instance],
        ..Stats::default()
    };
    let written = stats.encode();
    let full = StatsPeek::from(stats);
    assert_eq!(peek::plain_stats(&written), Some(full));
}

#[test]
fn keys_too_long_for_one_line_are_written_so_that_they_are_read_back() {
    let env: BTreeMap<String, String> = [
        ("k".repeat(5000), "v".to_owned()),
        ("é\n".repeat(600), String::new()),
    ]
    .into_iter()
    .collect();
    let start = Start {
        instance_uuid: "a".to_owned(),
        env,
        ..Start::default()
    };
    assert_eq!(Start::decode(&start.encode()), Ok(start));
}

#[test]
fn a_uuid_that_begins_like_a_number_is_written_as_go_writes_it() {
    for uuid in [
        "0b82ddbe-ae83-4b34-93f1-5f42c37ff54c",
        "0b101010-1010-4b34-93f1-5f42c37ff54c",
    ] {
        let failure = StartFailure {
            instance_uuid: uuid.to_owned(),
            ..Default::default()
        };
        let text = String::from_utf8(failure.encode().to_vec()).unwrap();
        assert!(text.contains(&format!("instance_uuid: {uuid}\n")), "{text}");
    }
}
