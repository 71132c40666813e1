//! `nodes`, `instances` and `watch`.

use proto_frames::Kind;
use proto_frames::payload::{
    InstanceStopped, InstanceView, NodeConnected, NodeType, Payload, PlacementState, Query,
    QueryKind, QueryResult, RefusalReason, Stats, StoreState, StoreView, Topic, Watch,
};

use crate::scheduler::{DEADLINE, Scheduler, answer, instance, node, placed, refusal};

#[tokio::test]
async fn a_listing_is_whole_however_many_pages_it_has() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let nodes: Vec<_> = (0..25)
            .map(|i| node(&format!("{i:08}"), &format!("node-{i}")))
            .collect();
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 10));
    })
    .await;
    let quiet = scheduler.ctl(&["nodes", "--quiet"]).await;
    let expected: String = (0..25)
        .map(|i| node(&format!("{i:08}"), "").node_uuid + "\n")
        .collect();
    assert_eq!(quiet.out, expected);
    let ids: Vec<String> = scheduler.ctl(&["nodes", "--json"]).await.json()["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["node_uuid"].as_str().unwrap().to_owned() + "\n")
        .collect();
    assert_eq!(ids.concat(), expected);
    let table = scheduler.ctl(&["nodes"]).await.out;
    assert!(table.starts_with("NODE "), "{table}");
    assert_eq!(table.lines().count(), 26);
    assert_eq!(scheduler.seen(Kind::QUERY).len(), 9, "three pages each");
}

#[tokio::test]
async fn an_instance_that_comes_back_while_pages_are_read_is_listed_once() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let node = node("4c", "node-a");
        // The scheduler is in recovery: its first page has both as lost, and the node is back before the second one.
        let lost = ["11", "22"].map(|begin| InstanceView {
            state: PlacementState::Lost,
            ..instance(begin, &node)
        });
        let back = InstanceView {
            state: PlacementState::Running,
            ..instance("11", &node)
        };
        let rows = [&lost[..], &[back]].concat();
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &rows, 2));
    })
    .await;
    let listed = scheduler.ctl(&["instances", "--json"]).await.json();
    let states = listed["instances"].as_array().unwrap().iter();
    let states: Vec<_> = states
        .map(|it| {
            let text = |key: &str| it[key].as_str().unwrap().to_owned();
            (text("instance_uuid")[..2].to_owned(), text("state"))
        })
        .collect();
    let expected = [("22", "lost"), ("11", "running")];
    let expected = expected.map(|(id, state)| (id.to_owned(), state.to_owned()));
    assert_eq!(states, expected);
    let quiet = scheduler.ctl(&["instances", "--quiet"]).await;
    assert_eq!(quiet.out.lines().count(), 2, "{quiet:?}");
}

#[tokio::test]
async fn nodes_are_listed_by_host_name_as_people_count() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let hosts = ["node-10", "node-2", "db", "", "node-2", "node-1"];
        let nodes: Vec<_> = (10..)
            .zip(hosts)
            .map(|(begin, host)| node(&format!("{begin}"), host))
            .collect();
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 4));
    })
    .await;
    let ran = scheduler.ctl(&["nodes", "-o", "name"]).await;
    let nameless = node("13", "").node_uuid;
    let expected = format!("db\nnode-1\nnode-2\nnode-2\nnode-10\n{nameless}\n");
    assert_eq!(ran.out, expected, "{ran:?}");
    let ran = scheduler.ctl(&["nodes", "--json"]).await.json();
    let uuids = ran["nodes"].as_array().unwrap().iter();
    let uuids: Vec<_> = uuids
        .map(|node| node["node_uuid"].as_str().unwrap()[..2].to_owned())
        .collect();
    assert_eq!(uuids, ["12", "15", "11", "14", "10", "13"]);
}

#[tokio::test]
async fn instances_can_be_asked_for_by_host() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let (a, b) = (node("4c", "node-a"), node("be", "node-b"));
        let instances = [instance("11", &a), instance("22", &b), instance("33", &b)];
        peers.send(from, Kind::QUERY_RESULT, answer(frame, &[], &instances, 10));
    })
    .await;
    let ran = scheduler
        .ctl(&["instances", "node-b", "--no-headers"])
        .await;
    assert_eq!(ran.out.lines().count(), 2, "{ran:?}");
    assert!(
        ran.out.lines().all(|line| line.contains("node-b")),
        "{ran:?}"
    );
}

#[tokio::test]
async fn what_the_scheduler_cannot_list_is_an_error_with_its_words() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        assert_eq!(frame.kind, Kind::QUERY);
        let detail = refusal(Kind::QUERY, RefusalReason::NotPermitted, "not an operator");
        peers.send(from, Kind::COMMAND_REFUSED, detail);
    })
    .await;
    let ran = scheduler.ctl(&["nodes"]).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(
        ran.err,
        "ciaoctl: the scheduler refuses this: not an operator (not_permitted)\n"
    );
}

#[tokio::test]
async fn controllers_say_if_the_schedulers_state_directory_cannot_be_written() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let query = Query::decode(&frame.payload).unwrap();
        let store = StoreView {
            state: StoreState::Refused,
            since_s: Some(72),
            detail: "No space left on device".into(),
            waiting: 3,
        };
        let result = QueryResult {
            id: query.id,
            what: query.what,
            store: Some(store),
            ..QueryResult::default()
        };
        peers.send(from, Kind::QUERY_RESULT, result.encode());
    })
    .await;
    let ran = scheduler.ctl(&["controllers"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ran.out, "CONTROLLER  ROLE  CONNECTED\n");
    assert_eq!(
        ran.err,
        "ciaoctl: the scheduler has not been able to write its state directory for 1m 12s: No space left on device; 3 \
         things wait for it, and nothing is taken in that has to survive a restart\n"
    );
    let json = scheduler.ctl(&["controllers", "--json"]).await.json();
    let expected = serde_json::json!({
        "state": "refused",
        "since_s": 72,
        "detail": "No space left on device",
        "waiting": 3,
    });
    assert_eq!(json["store"], expected);
    assert_eq!(json["controllers"], serde_json::json!([]));
}

#[tokio::test]
async fn watch_prints_events_in_their_order_until_it_has_enough() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind == Kind::QUERY {
            let nodes = [node("aa", "node-1")];
            peers.send(from, Kind::QUERY_RESULT, answer(frame, &nodes, &[], 10));
            return;
        }
        assert_eq!(frame.kind, Kind::WATCH);
        let connected = NodeConnected {
            node_uuid: node("aa", "").node_uuid,
            node_type: NodeType::Compute,
        };
        peers.send(from, Kind::NODE_CONNECTED, connected.encode());
        peers.send(from, Kind::INSTANCE_PLACED, placed("i1"));
        let stopped = InstanceStopped {
            instance_uuid: "i1".into(),
            exit_code: Some(0),
            ..InstanceStopped::default()
        };
        peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
        peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
    })
    .await;
    let ran = scheduler.ctl(&["watch", "--count", "3", "--json"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let events: Vec<serde_json::Value> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["node_connected", "instance_placed", "instance_stopped"]
    );
    for event in &events {
        let time = event["time"].as_str().unwrap();
        assert!(time.parse::<jiff::Timestamp>().is_ok(), "{time}");
    }
    let lines = scheduler
        .ctl(&["watch", "--count", "2", "--topics", "nodes,stats"])
        .await;
    assert!(
        lines
            .out
            .lines()
            .next()
            .unwrap()
            .ends_with("node node-1 (aa000000) connected (compute_node)"),
        "{lines:?}"
    );
    let topics: Vec<_> = scheduler
        .seen(Kind::WATCH)
        .iter()
        .map(|p| Watch::decode(p).unwrap().topics)
        .collect();
    assert_eq!(
        topics[0],
        [
            Topic::Nodes,
            Topic::Instances,
            Topic::Failures,
            Topic::Placements,
            Topic::Scheduler
        ]
    );
    assert_eq!(topics[1], [Topic::Nodes, Topic::Stats]);
}

#[tokio::test]
async fn a_list_fits_the_terminal_unless_it_is_to_be_wide_or_for_programs() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        let nodes = [node("4c", "node-a")];
        let instances = [instance("11", &nodes[0])];
        peers.send(
            from,
            Kind::QUERY_RESULT,
            answer(frame, &nodes, &instances, 10),
        );
    })
    .await;
    let list = |args: &'static [&'static str], columns: &'static str| {
        let mut command = scheduler.command(args);
        command.env("COLUMNS", columns);
        async move {
            let ended = tokio::time::timeout(DEADLINE, command.output()).await;
            String::from_utf8(ended.unwrap().unwrap().stdout).unwrap()
        }
    };
    for lines in [
        list(&["nodes"], "80").await,
        list(&["instances"], "80").await,
    ] {
        assert!(
            lines.lines().all(|line| line.chars().count() <= 80),
            "{lines}"
        );
    }
    let whole = scheduler.ctl(&["nodes"]).await.out;
    assert!(whole.contains("CONNECTED"), "not a terminal: {whole}");
    assert!(
        list(&["nodes", "-o", "wide"], "80")
            .await
            .contains("LABELS")
    );
    assert!(list(&["nodes", "--wide"], "80").await.contains("LABELS"));
    let wide = list(&["queue", "-o", "wide"], "20").await;
    assert!(wide.contains("ATTEMPTS"), "{wide}");
    let narrow = list(&["queue"], "20").await;
    assert!(!narrow.contains("ATTEMPTS"), "{narrow}");
}

#[tokio::test]
async fn what_is_not_known_is_not_found_by_every_command() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        if frame.kind != Kind::QUERY {
            return;
        }
        let query = Query::decode(&frame.payload).unwrap();
        let error = (query.what == QueryKind::History).then(|| "no such instance".to_owned());
        let result = QueryResult {
            id: query.id,
            error,
            ..QueryResult::default()
        };
        peers.send(from, Kind::QUERY_RESULT, result.encode());
    })
    .await;
    for command in [
        "history",
        "delete",
        "migrate",
        "describe instance",
        "suspend",
    ] {
        for (name, says) in [
            ("nosuch", "no instance is called \"nosuch\""),
            (
                "66 77",
                "\"66 77\" is no name, UUID or beginning of one: white space at character 3\n",
            ),
            (
                "6\u{7}",
                "\"6\\u{7}\" is no name, UUID or beginning of one: a control character at character 2\n",
            ),
        ] {
            let words: Vec<&str> = command.split(' ').chain([name]).collect();
            let ran = scheduler.ctl(&words).await;
            assert_eq!(ran.code, Some(5), "{command} {name}: {ran:?}");
            assert!(ran.err.contains(says), "{command} {name}: {ran:?}");
        }
    }
    let ran = scheduler.ctl(&["set", "status", "nosuch"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.err.contains("there is no set nosuch"), "{ran:?}");
}

#[tokio::test]
async fn watch_runs_a_command_for_each_event_that_is_wanted() {
    let scheduler = Scheduler::playing(|peers, from, frame| {
        assert_eq!(frame.kind, Kind::WATCH);
        let watched = Watch::decode(&frame.payload).unwrap();
        if watched.topics.contains(&Topic::Stats) {
            return peers.send(from, Kind::STATS, Stats::default().encode());
        }
        for code in [7, 0] {
            peers.send(from, Kind::INSTANCE_PLACED, placed("i1"));
            let stopped = InstanceStopped {
                instance_uuid: "$(touch /tmp/never)".into(),
                exit_code: Some(code),
                ..InstanceStopped::default()
            };
            peers.send(from, Kind::INSTANCE_STOPPED, stopped.encode());
        }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("events");
    let at = file.display();
    let command = format!(
        "cat >>{at}; echo $CIAO_EVENT \"$CIAO_EVENT_INSTANCE_UUID\" >>{at}; exit $CIAO_EVENT_EXIT_CODE"
    );
    let args = [
        "watch",
        "--count",
        "2",
        "--events",
        "instance_stopped",
        "--exec",
        &command,
    ];
    let ran = scheduler.ctl(&args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let event: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(
        (&event["event"], &event["exit_code"]),
        (&"instance_stopped".into(), &7.into())
    );
    assert_eq!(lines[1], "instance_stopped $(touch /tmp/never)");
    assert_eq!(lines.len(), 4);
    let expected = r#"ciaoctl: the command for "instance_stopped" ended with exit status: 7"#;
    assert_eq!(ran.err.trim_end(), expected);
    // Reports are in a topic that is not watched by itself.
    let stats = scheduler
        .ctl(&["watch", "--count", "1", "--json", "--events", "stats"])
        .await;
    assert!(stats.out.contains(r#""event":"stats""#), "{stats:?}");
    let unknown = scheduler.ctl(&["watch", "--events", "instance_gone"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
}
