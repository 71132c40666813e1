//! Payloads: whatever is in them, they are read or refused; what was read is written as the same; the quick readers say
//! what the full parser says; and nothing that cannot be shown gets past the server's door as a name.

use bytes::Bytes;
use ciao_scheduler::printable::{is_unprintable, is_word};
use ciao_scheduler::server::sim_support::input;
use proto_frames::payload::peek::{self, ReadyPeek, StartPeek, StatsPeek};
use proto_frames::payload::*;
use proto_frames::{Frame, Kind, Uuid};
use sched_core::{Command, Input, InstanceId, Report, SessionId};

use crate::choice;

/// A type of payload.
pub struct Type {
    /// Its name.
    pub name: &'static str,
    /// The kind of frame that carries it.
    pub kind: Kind,
    /// An example: the smallest.
    pub example: fn() -> Bytes,
    /// Reads a payload, reads it with the full parser, and writes and reads it again.
    again: fn(&[u8]),
}

macro_rules! types {
    ($($name:ident of $kind:ident,)*) => {
        [$(Type {
            name: stringify!($name),
            kind: Kind::$kind,
            example: || $name::default().encode(),
            again: |payload| {
                if let Ok(value) = $name::decode(payload) {
                    let again = $name::decode(&value.encode());
                    assert_eq!(again.as_ref(), Ok(&value), "after encoding and decoding");
                    if let Some(commented) = commented(payload) {
                        let full = $name::decode(&commented);
                        assert_eq!(full.as_ref(), Ok(&value), "as the full parser reads it");
                    }
                }
            },
        }),*]
    };
}

/// The payload behind a comment, which leaves it to the full parser. `None` of one that has a byte order mark, which is
/// one at the beginning alone.
fn commented(payload: &[u8]) -> Option<Vec<u8>> {
    let has_mark = payload.starts_with(&[0xef, 0xbb, 0xbf]);
    (!has_mark).then(|| [b"#\n", payload].concat())
}

/// All types of payloads.
pub const TYPES: &[Type] = &types![
    Start of START,
    Ready of READY,
    Stats of STATS,
    StartFailure of START_FAILURE,
    Delete of DELETE,
    DeleteFailure of DELETE_FAILURE,
    AttachVolume of ATTACH_VOLUME,
    AttachVolumeFailure of ATTACH_VOLUME_FAILURE,
    Evacuate of EVACUATE,
    Restore of RESTORE,
    Suspend of SUSPEND,
    Resume of RESUME,
    Migrate of MIGRATE,
    Update of UPDATE,
    CommandFailure of COMMAND_FAILURE,
    InstanceDeleted of INSTANCE_DELETED,
    InstanceStopped of INSTANCE_STOPPED,
    InstancePlaced of INSTANCE_PLACED,
    InstanceQueued of INSTANCE_QUEUED,
    InstanceStateEvent of INSTANCE_STATE,
    DrainProgress of DRAIN_PROGRESS,
    LeaseRenewed of LEASE_RENEWED,
    ReportReceived of REPORT_RECEIVED,
    NodeCapacity of NODE_CAPACITY,
    KeptRuns of KEPT_RUNS,
    Workloads of WORKLOADS,
    ReadOutput of READ_OUTPUT,
    DeleteOutput of DELETE_OUTPUT,
    OutputChunk of OUTPUT,
    ReadImage of READ_IMAGE,
    ImageWrite of WRITE_IMAGE,
    DeleteImage of DELETE_IMAGE,
    ListImages of LIST_IMAGES,
    ImageChunk of IMAGE,
    ImageList of IMAGE_LIST,
    ReadConfiguration of READ_CONFIGURATION,
    ConfigurationWrite of WRITE_CONFIGURATION,
    ConfigurationAnswer of CONFIGURATION,
    NodePressure of NODE_PRESSURE,
    ConnectionAborted of CONNECTION_ABORTED,
    NodeConnected of NODE_CONNECTED,
    NodeDisconnected of NODE_DISCONNECTED,
    AssignPublicIp of ASSIGN_PUBLIC_IP,
    AssignPublicIpFailure of ASSIGN_PUBLIC_IP_FAILURE,
    ReleasePublicIp of RELEASE_PUBLIC_IP,
    UnassignPublicIpFailure of UNASSIGN_PUBLIC_IP_FAILURE,
    PublicIpAssigned of PUBLIC_IP_ASSIGNED,
    PublicIpUnassigned of PUBLIC_IP_UNASSIGNED,
    ConcentratorInstanceAdded of CONCENTRATOR_INSTANCE_ADDED,
    RefreshCnci of REFRESH_CNCI,
    TenantAdded of TENANT_ADDED,
    TenantRemoved of TENANT_REMOVED,
    Query of QUERY,
    QueryResult of QUERY_RESULT,
    Watch of WATCH,
    Snapshot of SNAPSHOT,
    ControllerStatus of CONTROLLER_STATUS,
    CommandRefused of COMMAND_REFUSED,
    PlacementDecision of PLACEMENT_DECISION,
    TraceReport of TRACE_REPORT,
    Configuration of CONFIGURE,
    Overrides of START,
];

/// First byte: the type. The rest is the payload.
pub fn payloads(data: &[u8]) {
    if let Some((which, payload)) = choice(data) {
        (TYPES[which % TYPES.len()].again)(payload);
    }
}

/// The quick readers and the full parser, of START, READY and STATS.
pub fn peek(payload: &[u8]) {
    let start = Start::decode(payload).map(StartPeek::from);
    assert_eq!(peek::start(payload), start, "START");
    if start.is_ok() {
        let given = overrides::decode_start(payload);
        assert_eq!(
            given,
            Start::decode_placed(payload),
            "a START is no overrides"
        );
        let behind = overrides::decode_start(&Overrides::default().before(payload));
        assert_eq!(behind, given, "a START behind overrides that say nothing");
    }
    let ready = Ready::decode(payload).map(ReadyPeek::from);
    assert_eq!(peek::ready(payload), ready, "READY");
    let stats = Stats::decode(payload).map(StatsPeek::from);
    assert_eq!(peek::stats(payload), stats, "STATS");
}

/// The kinds that the server reads.
pub const READ_BY_SERVER: &[Kind] = &[
    Kind::START,
    Kind::READY,
    Kind::STATS,
    Kind::DELETE,
    Kind::ATTACH_VOLUME,
    Kind::EVACUATE,
    Kind::RESTORE,
    Kind::SUSPEND,
    Kind::RESUME,
    Kind::MIGRATE,
    Kind::UPDATE,
    Kind::COMMAND_FAILURE,
    Kind::INSTANCE_STATE,
    Kind::CONFIGURE,
    Kind::ASSIGN_PUBLIC_IP,
    Kind::RELEASE_PUBLIC_IP,
    Kind::REFRESH_CNCI,
    Kind::TENANT_ADDED,
    Kind::TENANT_REMOVED,
    Kind::INSTANCE_DELETED,
    Kind::INSTANCE_STOPPED,
    Kind::START_FAILURE,
    Kind::DELETE_FAILURE,
    Kind::ATTACH_VOLUME_FAILURE,
    Kind::QUERY,
    Kind::WATCH,
];

/// What the server makes of a frame. First byte: its kind. The rest is its payload.
pub fn meaning(data: &[u8]) {
    let Some((which, payload)) = choice(data) else {
        return;
    };
    let frame = Frame::new(
        READ_BY_SERVER[which % READ_BY_SERVER.len()],
        Uuid::nil(),
        payload.to_vec(),
    );
    match input(SessionId(1), frame) {
        Input::Command { command, .. } => is_fit_command(&command),
        Input::Report { report, .. } => is_fit_report(&report),
        Input::Malformed { malformed, .. } => {
            assert!(
                !malformed.detail.is_empty(),
                "the sender is told what is wrong"
            );
            malformed.instance.iter().for_each(is_id);
        }
        other => panic!("{other:?} of a kind that the server reads"),
    }
}

fn is_fit_command(command: &Command) {
    match command {
        Command::Start(start) => {
            is_id(&start.instance);
            start
                .hostname
                .iter()
                .chain(&start.node_id)
                .for_each(|name| is_shown(name));
        }
        Command::Delete(target)
        | Command::Stop(target)
        | Command::Suspend(target)
        | Command::Resume(target) => {
            is_id(&target.instance);
            is_shown(&target.node);
        }
        _ => {}
    }
}

fn is_fit_report(report: &Report) {
    match report {
        Report::Ready(ready) => is_shown(&ready.hostname),
        Report::Stats(stats) => {
            is_shown(&stats.node);
            stats.instances.iter().for_each(|it| is_id(&it.instance));
        }
        Report::InstanceDeleted(instance)
        | Report::InstanceStopped(instance)
        | Report::InstanceExited(instance)
        | Report::InstanceCutOff(instance) => is_id(instance),
        _ => {}
    }
}

/// An identifier is empty, or one word; of quotes and a dash in front only lists for pipes take notice.
fn is_id(instance: &InstanceId) {
    let text = instance.to_string();
    let plain: String = text.chars().filter(|c| !"'\"\\-".contains(*c)).collect();
    assert!(
        plain.is_empty() || is_word(&plain),
        "{text:?} was taken for an identifier"
    );
}

fn is_shown(name: &str) {
    assert!(
        !name.contains(is_unprintable),
        "{name:?} was taken for a name"
    );
}
