//! A scheduler, and peers behind it, whose texts are made to be obeyed by a terminal, a reader of lines or `xargs`.

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, ConditionView, ControllerView, DrainProgress, DrainState,
    HistoryRow, InstanceQueued, InstanceStateEvent, InstanceView, LifecycleCommand, NodeView,
    Payload, PhaseName, PlacementDecision, Query, QueryKind, QueryResult, Reason, ReasonKind,
    RefusalReason, SchedulersView, StartFailure, StartFailureReason, StatusView, StoreState,
    StoreView, UnmovableInstance,
};
use proto_frames::{Frame, Kind};

use crate::scheduler::{Ran, Scheduler, instance_of, refusal};

/// Clears the screen, forges a line, colours the rest, turns the direction of writing around, rings, and ends a text of C,
/// of JSON and of HTML.
const EVIL: &str =
    "x\u{1b}[2J\nforged y\r\u{9b}31m\u{202e}\u{7}\u{2028}\0\"'<script>alert(1)</script>z";

/// An instance's identifier with a second one in it, as `--quiet` would list them.
const TWO_IDS: &str = "11111111-evil\n22222222-victim";

fn nodes() -> Vec<NodeView> {
    let node = |uuid: String| NodeView {
        node_uuid: uuid,
        hostname: EVIL.into(),
        roles: EVIL.into(),
        status: EVIL.into(),
        labels: [(EVIL.to_owned(), vec![EVIL.to_owned()])].into(),
        resources_total: [(EVIL.to_owned(), 1)].into(),
        failures: EVIL.into(),
        drain: EVIL.into(),
        capabilities: vec![EVIL.into()],
        ..NodeView::default()
    };
    vec![node(format!("n1{EVIL}")), node(format!("n2{EVIL}"))]
}

fn instances() -> Vec<InstanceView> {
    let instance = |uuid: String| InstanceView {
        instance_uuid: uuid,
        node_uuid: format!("n1{EVIL}"),
        hostname: EVIL.into(),
        reported: Some(EVIL.into()),
        group: EVIL.into(),
        resources: [(EVIL.to_owned(), 1)].into(),
        life: EVIL.into(),
        waits_for: EVIL.into(),
        target_node_uuid: EVIL.into(),
        position: Some(1),
        failed: Some(EVIL.into()),
        run: Some(i64::MIN),
        earlier: true,
        program: EVIL.into(),
        ..InstanceView::default()
    };
    [
        TWO_IDS.into(),
        format!("i1{EVIL}"),
        format!("i2{EVIL}"),
        "--server=elsewhere".into(),
        "a b".into(),
        "33333333-good".into(),
    ]
    .map(instance)
    .into()
}

/// Not well, in all that can be.
fn status() -> StatusView {
    StatusView {
        uuid: EVIL.into(),
        version: EVIL.into(),
        uptime_s: i64::MIN,
        well: Some(false),
        conditions: vec![
            ConditionView {
                severity: EVIL.into(),
                kind: EVIL.into(),
                subject: EVIL.into(),
                name: EVIL.into(),
                what: EVIL.into(),
                since_s: Some(i64::MAX),
                advice: EVIL.into(),
            },
            ConditionView {
                what: EVIL.repeat(1000),
                ..ConditionView::default()
            },
        ],
        schedulers: Some(SchedulersView {
            cluster: EVIL.into(),
            leader: EVIL.into(),
            term: EVIL.into(),
            standby: vec![EVIL.into()],
            etcd_alarms: vec![EVIL.into()],
            ..SchedulersView::default()
        }),
        ..StatusView::default()
    }
}

/// All of a kind, whatever was asked for: names are the client's to resolve.
fn listing(query: &Frame) -> Vec<u8> {
    let query = Query::decode(&query.payload).unwrap();
    let mut result = QueryResult {
        id: query.id,
        what: query.what.clone(),
        ..QueryResult::default()
    };
    match query.what {
        QueryKind::Nodes => result.nodes = nodes(),
        QueryKind::Instances | QueryKind::Queue | QueryKind::Ended => {
            result.instances = instances()
        }
        QueryKind::Controllers => {
            result.controllers = vec![ControllerView {
                uuid: EVIL.into(),
                ..ControllerView::default()
            }];
            result.store = Some(StoreView {
                state: StoreState::Refused,
                since_s: Some(u64::MAX),
                detail: EVIL.into(),
                waiting: i64::MIN,
            });
        }
        QueryKind::Status => result.status = Some(status()),
        _ => {
            result.history = vec![HistoryRow {
                what: EVIL.into(),
                // A node's identifier is a UUID, or no history is shown.
                node_uuid: "33333333".into(),
                detail: EVIL.into(),
                failed: Some(EVIL.into()),
                run: Some(i64::MAX),
                ..HistoryRow::default()
            }]
        }
    }
    result.encode().to_vec()
}

/// Lists evil things, and answers each command with an evil failure.
async fn scheduler() -> Scheduler {
    Scheduler::playing(|peers, from, frame| match frame.kind {
        Kind::QUERY => peers.send(from, Kind::QUERY_RESULT, listing(frame)),
        Kind::WATCH => {
            for (kind, payload) in events() {
                peers.send(from, kind, payload);
            }
        }
        Kind::START => {
            let failure = start_failure(instance_of(frame));
            peers.send(from, Kind::START_FAILURE, failure.encode());
        }
        Kind::DELETE | Kind::SUSPEND | Kind::RESUME | Kind::MIGRATE | Kind::UPDATE => {
            let refused = refusal(frame.kind, RefusalReason::Other(EVIL.into()), EVIL);
            peers.send(from, Kind::COMMAND_REFUSED, refused);
        }
        _ => {}
    })
    .await
}

fn start_failure(instance_uuid: String) -> StartFailure {
    let reason = Reason {
        reason: ReasonKind::Resource,
        what: EVIL.into(),
        node_uuid: EVIL.into(),
        hostname: EVIL.into(),
        never: true,
        ..Reason::default()
    };
    let odd = Reason {
        reason: ReasonKind::Other(EVIL.into()),
        ..reason.clone()
    };
    StartFailure {
        instance_uuid,
        reason: StartFailureReason::Other(EVIL.into()),
        detail: Some(EVIL.into()),
        reasons: vec![reason, odd],
        never: true,
        ..StartFailure::default()
    }
}

/// What a watcher is told: one event of each kind with texts of peers in it.
fn events() -> Vec<(Kind, Vec<u8>)> {
    let failure = CommandFailure {
        command: LifecycleCommand::Migrate,
        instance_uuid: EVIL.into(),
        node_uuid: EVIL.into(),
        reason: CommandFailureReason::Other(EVIL.into()),
        detail: EVIL.into(),
    };
    let queued = InstanceQueued {
        instance_uuid: EVIL.into(),
        detail: EVIL.into(),
        ..InstanceQueued::default()
    };
    let event = InstanceStateEvent {
        instance_uuid: EVIL.into(),
        node_uuid: EVIL.into(),
        state: PhaseName::Other(EVIL.into()),
        detail: EVIL.into(),
        ..InstanceStateEvent::default()
    };
    let drain = DrainProgress {
        node_uuid: format!("n1{EVIL}"),
        state: DrainState::Incomplete,
        unmovable: vec![UnmovableInstance {
            instance_uuid: EVIL.into(),
            detail: EVIL.into(),
            ..UnmovableInstance::default()
        }],
        detail: EVIL.into(),
        ..DrainProgress::default()
    };
    let decision = PlacementDecision {
        instance_uuid: EVIL.into(),
        count: 1,
        detail: EVIL.into(),
        ..PlacementDecision::default()
    };
    vec![
        (
            Kind::START_FAILURE,
            start_failure(EVIL.into()).encode().to_vec(),
        ),
        (Kind::COMMAND_FAILURE, failure.encode().to_vec()),
        (Kind::INSTANCE_QUEUED, queued.encode().to_vec()),
        (Kind::INSTANCE_STATE, event.encode().to_vec()),
        (Kind::DRAIN_PROGRESS, drain.encode().to_vec()),
        (Kind::PLACEMENT_DECISION, decision.encode().to_vec()),
        (Kind::new(3, 0x7e), EVIL.as_bytes().to_vec()),
        (Kind::STATS, format!("[{EVIL}").into_bytes()),
    ]
}

/// The characters in a program's output that are orders to a terminal; line ends are its own.
fn orders(text: &str) -> Vec<char> {
    let is_order = |c: &char| {
        *c != '\n' && (c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2028}'))
    };
    text.chars().filter(is_order).collect()
}

fn obeys_nobody(args: &[&str], ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        assert_eq!(orders(text), [], "{args:?}: {ran:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("forged")),
            "{args:?} lets a peer write a line: {ran:?}"
        );
    }
}

#[tokio::test]
async fn no_command_passes_on_what_a_terminal_would_obey() {
    let scheduler = scheduler().await;
    let commands: &[&[&str]] = &[
        &["nodes"],
        &["nodes", "--wide", "--full"],
        &["nodes", "--quiet"],
        &["instances"],
        &["instances", "--wide", "--full"],
        &["instances", "--quiet"],
        &["instances", "--all"],
        &["instances", "--all", "--full"],
        &["status"],
        &["describe", "instance", "33333333-good"],
        &["describe", "node", "n1"],
        &["queue"],
        &["queue", "--quiet"],
        &["controllers"],
        &["controllers", "--quiet"],
        &["history", "i1"],
        &["history", "33333333-good"],
        &["watch", "--count", "8"],
        // Ambiguous names, with all that they can mean.
        &["delete", "i"],
        &["cordon", "n"],
        // Names that mean one.
        &["delete", "i1"],
        &["stop", "i1"],
        &["suspend", "i1"],
        &["resume", "i1"],
        &["migrate", "i1", "--to", "n2"],
        &["update", "i1", "--mem-mb", "1024"],
        &["cordon", "n1"],
        &["uncordon", "n1"],
        &["drain", "n1"],
        &["evacuate", "--yes", "n1"],
        &["restore", "n1"],
        &[
            "run",
            "--mem",
            "1",
            "--cpus",
            "1",
            "--verbose",
            "--",
            "true",
        ],
        &["run", "--mem", "1", "--cpus", "1", "--quiet", "--", "true"],
        &["explain", "--mem", "1", "--cpus", "1"],
        &["explain", "--mem", "1", "--node", "n1"],
    ];
    for args in commands {
        let ran = scheduler.ctl(args).await;
        obeys_nobody(args, &ran);
        assert_ne!(ran.code, Some(2), "{args:?} is used: {ran:?}");
        let json = scheduler.ctl(&[&["--json"], *args].concat()).await;
        obeys_nobody(args, &json);
    }
}

#[tokio::test]
async fn the_reason_of_a_start_that_failed_is_shown_as_text() {
    let scheduler = scheduler().await;
    let history = scheduler.ctl(&["history", "33333333-good"]).await;
    let shown = "could not be started: x\\u{1b}[2J";
    assert!(history.out.contains(shown), "{history:?}");
    let ended = scheduler.ctl(&["instances", "--all", "--full"]).await;
    assert!(ended.out.contains("failed"), "{ended:?}");
    for ran in [&history, &ended] {
        obeys_nobody(&["history", "instances"], ran);
    }
    // A program that reads JSON gets it as it is.
    let json = scheduler.ctl(&["instances", "--all", "--json"]).await;
    assert!(json.out.contains("\"failed\""), "{json:?}");
}

#[tokio::test]
async fn a_list_for_pipes_names_no_instance_that_is_not_there() {
    let scheduler = scheduler().await;
    let ran = scheduler.ctl(&["instances", "--quiet"]).await;
    assert_eq!(ran.out, "33333333-good\n", "{ran:?}");
    assert!(ran.err.contains("5 identifiers left out"), "{ran:?}");
    // A program that reads JSON gets them as they are.
    let json = scheduler.ctl(&["instances", "--json"]).await.json();
    assert_eq!(json["instances"][0]["instance_uuid"], TWO_IDS);
    assert_eq!(json["instances"][0]["hostname"], EVIL);
}
