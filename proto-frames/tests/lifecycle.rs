//! The payloads of an instance's life: commands, events, failures. What is written, read back and refused.

use proto_frames::payload::drain_progress::MAX_UNMOVABLE;
use proto_frames::payload::evacuate::{DEFAULT_PARALLEL, MAX_PARALLEL};
use proto_frames::payload::query::MAX_LIMIT;
use proto_frames::payload::scheduling::MAX_RESOURCES;
use proto_frames::payload::{
    ArrayView, AttemptFailed, CommandFailure, CommandFailureReason, ConnectionAborted, CountedAs,
    DeleteImage, DeleteOutput, DrainProgress, DrainState, EndWhy, Evacuate, EvacuateMode,
    HistoryRow, ImageFailure, ImageList, ImagePart, ImageRow, InstanceQueued, InstanceStateEvent,
    InstanceView, KeptRun, KeptRuns, LeaseRenewed, LifecycleCommand, ListImages, MAX_DEADLINE,
    Migrate, NodeCapacity, NodePressure, NodeView, OutputFailure, OutputPart, OutputStream,
    Payload, PayloadError, PayloadErrorKind, PhaseName, PressureState, QueryKind, QueryResult,
    Ratio, ReadImage, ReadOutput, ReportReceived, Restore, RestoreMode, Resume, Snapshot, Span,
    StartFailure, StartFailureReason, Suspend, UnmovableInstance, Update, Workload, Workloads,
    WriteImage,
};

fn text(text: &str) -> String {
    text.to_owned()
}

/// The value is written like this, and read back from it.
macro_rules! written {
    ($type:ident $value:expr, $text:expr) => {
        let value: $type = $value;
        assert_eq!(value.encode(), $text);
        assert_eq!($type::decode(&value.encode()), Ok(value));
    };
}

#[test]
fn commands_are_written_as_documented() {
    written!(
        Suspend Suspend { instance_uuid: text("a"), ..Suspend::default() },
        "suspend:\n  instance_uuid: a\n  workload_agent_uuid: \"\"\n"
    );
    written!(
        Resume Resume { instance_uuid: text("a"), workload_agent_uuid: text("h1") },
        "resume:\n  instance_uuid: a\n  workload_agent_uuid: h1\n"
    );
    written!(
        Migrate Migrate { instance_uuid: text("a"), ..Migrate::default() },
        "migrate:\n  instance_uuid: a\n  workload_agent_uuid: \"\"\n"
    );
    written!(
        Migrate Migrate {
            instance_uuid: text("a"),
            workload_agent_uuid: text("h1"),
            target_node_uuid: text("h2"),
            deadline: Some(Span::from_ms(90_000)),
        },
        "migrate:\n  instance_uuid: a\n  workload_agent_uuid: h1\n  target_node_uuid: h2\n  deadline: 90s\n"
    );
    written!(
        Update Update {
            instance_uuid: text("a"),
            mem_mb: Some(512),
            disk_mb: Some(0),
            resources: [(text("gpu"), 0)].into(),
            priority: Some(7),
            may_move: true,
            ..Update::default()
        },
        "update:\n  instance_uuid: a\n  workload_agent_uuid: \"\"\n  mem_mb: 512\n  disk_mb: 0\n  resources:\n    gpu: 0\n  priority: 7\n  move: true\n"
    );
}

#[test]
fn what_nodes_count_and_suffer_is_written_as_documented() {
    written!(
        NodeCapacity NodeCapacity {
            cpu_ratio: Ratio::new(16.0).unwrap(),
            mem_ratio: Ratio::new(1.5).unwrap(),
            reserved_mem_mb: 512,
            accounting: CountedAs::Measured,
            disk_limit: false,
            ..NodeCapacity::default()
        },
        "node_capacity:\n  cpu_ratio: \"16\"\n  mem_ratio: \"1.5\"\n  disk_ratio: \"1\"\n  reserved_mem_mb: 512\n  accounting: measured\n  mem_limit: true\n  disk_limit: false\n"
    );
    written!(
        NodePressure NodePressure {
            node_uuid: text("h1"),
            hostname: text("host"),
            state: PressureState::Moved,
            instance_uuid: text("a"),
            ..NodePressure::default()
        },
        "node_pressure:\n  node_uuid: h1\n  hostname: host\n  state: moved\n  instance_uuid: a\n"
    );
    written!(
        Workloads Workloads {
            instances: vec![Workload {
                instance_uuid: text("a"),
                name: text("web-1"),
                program: text("sh -c true"),
                age_s: 60,
                ..Workload::default()
            }],
        },
        "workloads:\n  instances:\n  - instance_uuid: a\n    name: web-1\n    program: sh -c true\n    age_s: 60\n"
    );
    written!(
        KeptRuns KeptRuns {
            complete: true,
            runs: vec![KeptRun {
                instance_uuid: text("a"),
                seq: 41,
                ended_at_ms: 1_795_000_000_123,
                exit_code: Some(-9),
                output: text("/var/lib/ciao/kept/a.1"),
            }],
        },
        "kept_runs:\n  complete: true\n  runs:\n  - instance_uuid: a\n    seq: 41\n    ended_at_ms: 1795000000123\n    exit_code: -9\n    output: /var/lib/ciao/kept/a.1\n"
    );
    written!(ReportReceived ReportReceived { seq: 7 }, "report_received:\n  seq: 7\n");
    written!(LeaseRenewed LeaseRenewed { seq: u64::MAX }, "lease_renewed:\n  seq: 18446744073709551615\n");
}

#[test]
fn connections_that_end_and_output_are_written_as_documented() {
    written!(
        ConnectionAborted ConnectionAborted { detail: text("why") },
        "connection_aborted:\n  detail: why\n"
    );
    written!(
        ReadOutput ReadOutput {
            id: 3,
            instance_uuid: text("a"),
            tail: Some(0),
            follow: true,
            ..ReadOutput::default()
        },
        "read_output:\n  id: 3\n  instance_uuid: a\n  tail: 0\n  follow: true\n"
    );
    written!(
        ReadOutput ReadOutput {
            id: 4,
            instance_uuid: text("a"),
            run: 7,
            stream: OutputStream::Stderr,
            file: text("b/c"),
            after: text("d"),
            ..ReadOutput::default()
        },
        "read_output:\n  id: 4\n  instance_uuid: a\n  run: 7\n  stream: stderr\n  file: b/c\n  after: d\n"
    );
    written!(
        DeleteOutput DeleteOutput { id: 5, read: 8, instance_uuid: text("a"), node_uuid: text("b") },
        "delete_output:\n  id: 5\n  read: 8\n  instance_uuid: a\n  node_uuid: b\n"
    );
    written!(
        OutputPart OutputPart {
            id: 5,
            instance_uuid: text("a"),
            stream: OutputStream::Stdout,
            split: true,
            file: text("b"),
            deleted: Some(0),
            ..OutputPart::default()
        },
        "output:\n  id: 5\n  instance_uuid: a\n  stream: stdout\n  split: true\n  file: b\n  deleted: 0\n"
    );
    written!(
        OutputPart OutputPart {
            id: 3,
            read: 9,
            instance_uuid: text("a"),
            failure: OutputFailure::NotKept,
            detail: text("why"),
            ..OutputPart::default()
        },
        "output:\n  id: 3\n  read: 9\n  instance_uuid: a\n  failure: not_kept\n  detail: why\n"
    );
}

#[test]
fn what_is_said_of_images_is_written_as_documented() {
    written!(
        ReadImage ReadImage { id: 1, digest: text("sha256:0"), offset: 65_536 },
        "read_image:\n  id: 1\n  digest: sha256:0\n  offset: 65536\n"
    );
    written!(
        DeleteImage DeleteImage { id: 2, digest: text("sha256:0") },
        "delete_image:\n  id: 2\n  digest: sha256:0\n"
    );
    written!(
        ListImages ListImages { id: 3, after: text("sha256:0") },
        "list_images:\n  id: 3\n  after: sha256:0\n"
    );
    written!(
        WriteImage WriteImage { id: 4, digest: text("sha256:0"), total: 9, tenant: text("t"), ..WriteImage::default() },
        "write_image:\n  id: 4\n  digest: sha256:0\n  total: 9\n  tenant: t\n"
    );
    written!(
        ImagePart ImagePart::fail(5, "sha256:0", ImageFailure::NoImage, "why"),
        "image:\n  id: 5\n  digest: sha256:0\n  failure: no_image\n  detail: why\n"
    );
    written!(
        ImageList ImageList {
            id: 6,
            images: vec![ImageRow {
                digest: text("sha256:0"),
                bytes: 9,
                tenant: text("t"),
                pushed_by: text("me"),
                pushed_at_ms: 1,
                used_at_ms: 2,
                in_use: true,
            }],
            quota: 10,
            next: text("sha256:0"),
            ..ImageList::default()
        },
        "image_list:\n  id: 6\n  images:\n  - digest: sha256:0\n    bytes: 9\n    tenant: t\n    pushed_by: me\n    pushed_at_ms: 1\n    used_at_ms: 2\n    in_use: true\n  quota: 10\n  next: sha256:0\n"
    );
}

#[test]
fn the_original_s_evacuate_and_restore_stay_as_they_were() {
    let plain = Evacuate {
        workload_agent_uuid: text("h1"),
        ..Evacuate::default()
    };
    assert_eq!(plain.parallel(), DEFAULT_PARALLEL);
    written!(Evacuate plain, "evacuate:\n  workload_agent_uuid: h1\n");
    written!(
        Restore Restore { workload_agent_uuid: text("h1"), ..Restore::default() },
        "restore:\n  workload_agent_uuid: h1\n"
    );
    written!(
        Evacuate Evacuate {
            workload_agent_uuid: text("h1"),
            mode: EvacuateMode::Relocate,
            deadline: Some(Span::from_ms(600_000)),
            parallel: Some(4),
        },
        "evacuate:\n  workload_agent_uuid: h1\n  mode: relocate\n  deadline: 10m\n  parallel: 4\n"
    );
    written!(
        Restore Restore { workload_agent_uuid: text("h1"), mode: RestoreMode::Uncordon },
        "restore:\n  workload_agent_uuid: h1\n  mode: uncordon\n"
    );
}

#[test]
fn events_are_written_as_documented() {
    written!(
        InstanceQueued InstanceQueued {
            instance_uuid: text("a"),
            position: 3,
            priority: 50,
            waiting: 12,
            deadline_ms: Some(30_000),
            detail: text("no room"),
        },
        "instance_queued:\n  instance_uuid: a\n  position: 3\n  priority: 50\n  waiting: 12\n  deadline_ms: 30000\n  detail: no room\n"
    );
    written!(
        InstanceStateEvent InstanceStateEvent {
            instance_uuid: text("a"),
            state: PhaseName::Suspended,
            ..InstanceStateEvent::default()
        },
        "instance_state:\n  instance_uuid: a\n  state: suspended\n"
    );
    written!(
        InstanceStateEvent InstanceStateEvent {
            instance_uuid: text("a"),
            node_uuid: text("h1"),
            state: PhaseName::Migrating,
            detail: text("drain"),
            priority: Some(0),
            target_node_uuid: text("h2"),
        },
        "instance_state:\n  instance_uuid: a\n  node_uuid: h1\n  state: migrating\n  detail: drain\n  priority: 0\n  target_node_uuid: h2\n"
    );
    written!(
        CommandFailure CommandFailure {
            command: LifecycleCommand::Resume,
            instance_uuid: text("a"),
            node_uuid: text("h1"),
            reason: CommandFailureReason::NoRoom,
            detail: String::new(),
        },
        "command_failure:\n  command: resume\n  instance_uuid: a\n  node_uuid: h1\n  reason: no_room\n"
    );
    written!(
        DrainProgress DrainProgress {
            node_uuid: text("h1"),
            state: DrainState::Moving,
            total: 4,
            moved: 1,
            moving: 2,
            left: 1,
            unmovable: vec![UnmovableInstance { instance_uuid: text("a"), detail: text("no gpu"), ..UnmovableInstance::default() }],
            unmovable_count: 1,
            ..DrainProgress::default()
        },
        "drain_progress:\n  node_uuid: h1\n  state: moving\n  total: 4\n  moved: 1\n  moving: 2\n  left: 1\n  misfits:\n  - instance_uuid: a\n    detail: no gpu\n  misfit_count: 1\n"
    );
}

#[test]
fn a_failure_tells_which_nodes_were_tried() {
    written!(
        StartFailure StartFailure {
            instance_uuid: text("a"),
            reason: StartFailureReason::LaunchFailure,
            attempts: vec![
                AttemptFailed {
                    node_uuid: text("h1"),
                    reason: StartFailureReason::FullComputeNode,
                    ..AttemptFailed::default()
                },
                AttemptFailed {
                    node_uuid: text("h2"),
                    reason: StartFailureReason::LaunchFailure,
                    detail: text("no such program"),
                },
            ],
            ..StartFailure::default()
        },
        "node_uuid: \"\"\ninstance_uuid: a\nreason: launch_failure\nrestart: false\nattempts:\n- node_uuid: h1\n  reason: full_cn\n- node_uuid: h2\n  reason: launch_failure\n  detail: no such program\n"
    );
    assert!(StartFailureReason::from("queue_timeout").is_fatal());
    assert!(StartFailureReason::from("not_recorded").is_fatal());
}

#[test]
fn only_drains_that_are_over_are_over() {
    let over = [
        DrainState::Done,
        DrainState::Incomplete,
        DrainState::Aborted,
    ];
    assert!(over.iter().all(DrainState::is_over));
    let under_way = [DrainState::Checking, DrainState::Moving, "else".into()];
    assert!(!under_way.iter().any(DrainState::is_over));
}

/// An instance and a node with all that was added to their views.
fn views() -> (InstanceView, NodeView) {
    let instance = InstanceView {
        instance_uuid: text("0c7a5f7e-55f1-4f0c-9a53-6f9b7d2f3a01"),
        priority: Some(0),
        attempts: Some(2),
        life: PhaseName::Waiting.to_string(),
        waits_for: text("4 nodes with too little memory"),
        position: Some(1),
        deadline_ms: Some(29_000),
        target_node_uuid: text("h1"),
        ..InstanceView::default()
    };
    let node = NodeView {
        cordoned: true,
        drain: text("2 of 40 moved"),
        capabilities: vec![text("suspend"), text("lease")],
        lease_ms: Some(30_000),
        ..NodeView::default()
    };
    (instance, node)
}

#[test]
fn views_histories_and_snapshots_come_back_as_they_were() {
    let (instance, node) = views();
    for result in [
        QueryResult {
            what: QueryKind::Queue,
            instances: vec![instance.clone()],
            ..QueryResult::default()
        },
        QueryResult {
            what: QueryKind::History,
            history: vec![
                HistoryRow {
                    at_ms: 1_795_000_000_000,
                    what: text("placed"),
                    node_uuid: text("h1"),
                    detail: text("attempt 1"),
                    exit_code: Some(-9),
                    failed: None,
                    why: EndWhy::default(),
                    run: None,
                },
                HistoryRow::default(),
            ],
            ..QueryResult::default()
        },
    ] {
        assert_eq!(QueryResult::decode(&result.encode()), Ok(result));
    }
    let page = Snapshot {
        page: 2,
        last: true,
        nodes: vec![node; 2],
        arrays: vec![ArrayView::default()],
        instances: vec![instance],
    };
    assert_eq!(Snapshot::decode(&page.encode()), Ok(page));
}

#[test]
fn the_largest_payloads_fit_what_is_read() {
    let (instance, node) = views();
    let page = Snapshot {
        nodes: vec![node; MAX_LIMIT as usize / 2],
        instances: vec![instance; MAX_LIMIT as usize / 2],
        ..Snapshot::default()
    };
    assert_eq!(Snapshot::decode(&page.encode()), Ok(page));
    let unmovable = UnmovableInstance {
        instance_uuid: "i".repeat(255),
        detail: "too little memory, ".repeat(50),
        name: "n".repeat(255),
    };
    let drain = DrainProgress {
        unmovable: vec![unmovable; MAX_UNMOVABLE],
        ..DrainProgress::default()
    };
    assert_eq!(DrainProgress::decode(&drain.encode()), Ok(drain));
}

#[track_caller]
fn refused(result: Result<(), PayloadError>, words: &str) {
    let error = result.expect_err(words);
    assert_eq!(error.to_string(), words);
    let is_length = words.ends_with(" entries");
    assert_eq!(error.kind() == PayloadErrorKind::InvalidPayload, is_length);
}

#[test]
fn commands_that_name_no_instance_or_node_are_refused() {
    refused(
        Suspend::default().check(),
        "suspend.instance_uuid: missing or empty",
    );
    refused(
        Resume::default().check(),
        "resume.instance_uuid: missing or empty",
    );
    refused(
        Migrate::default().check(),
        "migrate.instance_uuid: missing or empty",
    );
    refused(
        Update::default().check(),
        "update.instance_uuid: missing or empty",
    );
    refused(
        Evacuate::default().check(),
        "evacuate.workload_agent_uuid: missing or empty",
    );
    refused(
        Restore::default().check(),
        "restore.workload_agent_uuid: missing or empty",
    );
}

#[test]
fn an_evacuate_that_makes_no_sense_is_refused_by_its_key() {
    let check = |rest: &str| {
        let payload = format!("evacuate:\n  workload_agent_uuid: h1\n  {rest}\n");
        Evacuate::decode(payload.as_bytes()).unwrap().check()
    };
    for fine in [
        "mode: \"\"",
        "mode: abort",
        "mode: check",
        "parallel: 64",
        "deadline: 168h",
        "deadline: 0",
    ] {
        assert_eq!(check(fine), Ok(()), "{fine}");
    }
    refused(
        check("mode: drain"),
        "evacuate.mode: `drain` is none of relocate, cordon, abort, check, forget",
    );
    refused(
        check("parallel: 0"),
        "evacuate.parallel: 0 is outside 1 to 64",
    );
    refused(
        check(&format!("parallel: {}", MAX_PARALLEL + 1)),
        "evacuate.parallel: 65 is outside 1 to 64",
    );
    refused(
        check("deadline: 604800001ms"),
        "evacuate.deadline: longer than 168h",
    );
    let restore = Restore::decode(b"restore: {workload_agent_uuid: n, mode: undrain}\n").unwrap();
    refused(
        restore.check(),
        "restore.mode: `undrain` is none of uncordon",
    );
}

#[test]
fn a_migrate_or_update_that_makes_no_sense_is_refused_by_its_key() {
    let migrate = |ms| Migrate {
        instance_uuid: text("a"),
        deadline: Some(Span::from_ms(ms)),
        ..Migrate::default()
    };
    assert_eq!(migrate(MAX_DEADLINE.ms()).check(), Ok(()));
    refused(
        migrate(MAX_DEADLINE.ms() + 1).check(),
        "migrate.deadline: longer than 168h",
    );
    let update = |rest: &str| {
        let payload = format!("update:\n  instance_uuid: a\n  {rest}\n");
        Update::decode(payload.as_bytes()).unwrap()
    };
    assert_eq!(update("priority: 100").check(), Ok(()));
    for (rest, words) in [
        ("mem_mb: -1", "update.mem_mb: negative: -1"),
        ("vcpus: -2", "update.vcpus: negative: -2"),
        ("disk_mb: -3", "update.disk_mb: negative: -3"),
        ("priority: 101", "update.priority: 101 is outside 0 to 100"),
        ("priority: -1", "update.priority: -1 is outside 0 to 100"),
        ("resources: {gpu: -1}", "update.resources.gpu: negative: -1"),
        (
            "resources: {a b: 1}",
            "update.resources: `a b` is no name: names are 1 to 128 letters, digits and . _ / -",
        ),
    ] {
        refused(update(rest).check(), words);
    }
    let many: String = (0..=MAX_RESOURCES)
        .map(|at| format!("\n    r{at}: 1"))
        .collect();
    refused(
        update(&format!("resources:{many}")).check(),
        "update.resources: more than 16 entries",
    );
}

#[test]
fn an_update_that_asks_for_nothing_changes_nothing() {
    let plain = Update {
        instance_uuid: text("a"),
        may_move: true,
        ..Update::default()
    };
    assert!(plain.changes_nothing());
    let vcpus = Some(0);
    assert!(
        !Update {
            vcpus,
            ..plain.clone()
        }
        .changes_nothing()
    );
    let resources = [(text("gpu"), 1)].into();
    assert!(!Update { resources, ..plain }.changes_nothing());
}

#[test]
fn words_that_no_one_here_knows_survive() {
    let bytes = b"instance_state:\n  instance_uuid: a\n  state: dreaming\n";
    let event = InstanceStateEvent::decode(bytes).unwrap();
    assert_eq!(event.state, PhaseName::Other(text("dreaming")));
    assert_eq!(event.encode(), &bytes[..]);
    let bytes = b"command_failure:\n  command: dream\n  instance_uuid: a\n  node_uuid: h1\n  reason: awake\n";
    let failure = CommandFailure::decode(bytes).unwrap();
    assert_eq!(failure.encode(), &bytes[..]);
}
