//! The core's messages as bytes for one peer: payloads written, frames built, traces stamped.
//!
//! [`encode`] is called by each receiver's writer task when it comes to the message, outside every lock, so that a
//! slow encoding holds up its receiver alone; [`cost`] is called when a message is queued, under the core's lock, and
//! therefore counts rather than writes wherever a message may be large. A queue's bytes are counted as what the message
//! takes up there, which is about what it takes when written.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proto_frames::payload::{
    ArrayView, AttemptFailed, CountedAs, InstanceStopped, InstanceView, NodeCapacity, NodeView,
    Payload, QueryResult, Ratio, Reason,
};
use proto_frames::{Connected, Encoder, Encoding, Frame, Kind, Term, Uuid};

use super::parcels::frame_of;
use super::{changes, parcels, refusals, withheld};
use crate::server::session::stamp_sent;
use sched_core::{Accounting, LauncherCommand, Message, OfferRules};

/// What a message the scheduler words itself counts in a queue, in bytes: a frame and its short payload. Texts in it
/// count beside that.
const OWN_MESSAGE_COST: usize = 384;

/// What one row of a query's answer counts in a queue beside its texts, in bytes.
const ROW_COST: usize = 512;

/// What one entry of a row's maps counts in a queue beside its text, in bytes: its key and value as strings of their
/// own.
const ENTRY_COST: usize = 96;

/// What a message counts in a queue, in bytes: at least what it takes up there, and about what it takes when written.
pub(in crate::server) fn cost(message: &Message) -> usize {
    match message {
        Message::Start(start) => parcels::cost(&start.parcel) + changes::cost(start),
        Message::Targeted(command) => parcels::cost(&command.parcel),
        Message::Forward(parcel) => parcels::cost(parcel),
        Message::StatsWithout(stats) => parcels::cost(&stats.parcel),
        // Everything else the scheduler words itself.
        own_words => OWN_MESSAGE_COST + text_len(own_words),
    }
}

/// Bytes of the texts in what the scheduler says in its own words: others chose them, and how long they are. Texts in a
/// message come from others (identifiers, host names, details), so their length has to be counted; fixed parts are in
/// [`OWN_MESSAGE_COST`].
fn text_len(message: &Message) -> usize {
    let all = |texts: &[&String]| texts.iter().map(|text| text.len()).sum::<usize>();
    let optional = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    match message {
        Message::Connected { configuration } | Message::InvalidConfiguration(configuration) => {
            configuration.len()
        }
        Message::QueryResult(result) => rows_len(result),
        Message::ReadOutput(it) => all(&[&it.instance_uuid, &it.file, &it.after]),
        Message::DeleteOutput(it) => all(&[&it.instance_uuid, &it.node_uuid]),
        Message::NoOutput(it) => all(&[&it.instance_uuid, &it.file, &it.detail]),
        Message::StartFailure(it) | Message::StartFailureCopy(it) => {
            all(&[&it.node_uuid, &it.instance_uuid])
                + optional(&it.detail)
                + reasons_len(&it.reasons)
                + attempts_len(&it.attempts)
        }
        Message::PlacementDecision(it) => {
            let hosts = it.placements.iter().map(|it| ROW_COST + it.hostname.len());
            it.instance_uuid.len()
                + it.detail.len()
                + reasons_len(&it.reasons)
                + hosts.sum::<usize>()
        }
        Message::DeleteFailure(it) => all(&[&it.node_uuid, &it.instance_uuid]),
        Message::AttachVolumeFailure(it) => {
            all(&[&it.node_uuid, &it.instance_uuid, &it.volume_uuid])
        }
        Message::InstancePlaced(it) => all(&[&it.instance_uuid, &it.node_uuid, &it.hostname]),
        // Large messages are counted by their rows, without being written.
        Message::Snapshot(it) => {
            node_rows_len(&it.nodes) + array_rows_len(&it.arrays) + instance_rows_len(&it.instances)
        }
        Message::CommandRefused(refused) => {
            let it = refusals::refused(refused);
            all(&[&it.name, &it.detail]) + optional(&it.instance_uuid)
        }
        // Few and short: written once more to be counted.
        Message::InstanceDeleted(_)
        | Message::InstanceStopped(_)
        | Message::InstanceQueued(_)
        | Message::InstanceState(_)
        | Message::AssignPublicIpFailure(_)
        | Message::UnassignPublicIpFailure(_)
        | Message::DrainProgress(_)
        | Message::NodePressure(_)
        | Message::Reloaded(_)
        | Message::ArrayState(_)
        | Message::CommandFailure(_)
        | Message::LauncherCommand(_)
        | Message::EndsRecorded(_)
        | Message::OfferRules(_)
        | Message::LeaseRenewed(_)
        | Message::ReportReceived(_) => payload(message).1.len(),
        // Frames are counted whole; the others have texts of the scheduler alone, which are short.
        Message::Start(_)
        | Message::Targeted(_)
        | Message::Forward(_)
        | Message::StatsWithout(_)
        | Message::InvalidFrameType
        | Message::NodeConnected(_)
        | Message::NodeDisconnected(_)
        | Message::ControllerStatus(_) => 0,
    }
}

/// What a failure says that nodes lacked, one entry a reason.
fn reasons_len(reasons: &[Reason]) -> usize {
    let texts = reasons.iter().map(|it| it.what.len() + it.hostname.len());
    ROW_COST * reasons.len() + texts.sum::<usize>()
}

/// Attempts on other nodes that failed before.
fn attempts_len(attempts: &[AttemptFailed]) -> usize {
    let texts = attempts.iter().map(|it| it.detail.len());
    ROW_COST * attempts.len() + texts.sum::<usize>()
}

/// A page of a query: rows of whichever kind it has. Each row counts for itself and for the texts in it, because pages
/// are bounded by rows and bytes in the core.
fn rows_len(result: &QueryResult) -> usize {
    let said = [&result.next, &result.error].map(|it| it.as_ref().map_or(0, String::len));
    let history = result.history.iter().map(|it| ROW_COST + it.detail.len());
    let status = result.status.iter().map(|it| {
        let files = it.certificates.iter().map(|it| ROW_COST + it.file.len());
        ROW_COST + files.sum::<usize>()
    });
    node_rows_len(&result.nodes)
        + status.sum::<usize>()
        + instance_rows_len(&result.instances)
        + array_rows_len(&result.arrays)
        + ROW_COST * result.controllers.len()
        + history.sum::<usize>()
        + said.iter().sum::<usize>()
}

/// Rows about nodes.
fn node_rows_len(nodes: &[NodeView]) -> usize {
    let rows = nodes.iter().map(|it| {
        let amounts = amounts_len(&it.resources_total) + amounts_len(&it.resources_free);
        let capabilities: usize = it.capabilities.iter().map(String::len).sum();
        let left_out = it.resources_left_out.iter();
        let left_out: usize = left_out.map(|name| ENTRY_COST + name.len()).sum();
        let texts = it.hostname.len() + it.drain.len() + capabilities + left_out;
        ROW_COST + texts + amounts + labels_len(&it.labels)
    });
    rows.sum()
}

/// Rows about arrays.
fn array_rows_len(arrays: &[ArrayView]) -> usize {
    let rows = arrays.iter().map(|it| {
        let names = it.array_uuid.len() + it.name.len() + it.tenant.len();
        ROW_COST + names + it.indexes.len() + it.queued_instance_uuid.len()
    });
    rows.sum()
}

/// Rows about instances.
fn instance_rows_len(instances: &[InstanceView]) -> usize {
    let rows = instances.iter().map(|it| {
        let reported = it.reported.as_ref().map_or(0, String::len);
        let names = it.instance_uuid.len() + it.hostname.len() + it.group.len();
        ROW_COST + names + reported + it.waits_for.len() + amounts_len(&it.resources)
    });
    rows.sum()
}

/// The keys of a map of amounts: the numbers are fixed in size.
fn amounts_len(amounts: &BTreeMap<String, i64>) -> usize {
    amounts.keys().map(|name| ENTRY_COST + name.len()).sum()
}

/// The keys and values of a map of labels.
fn labels_len(labels: &BTreeMap<String, Vec<String>>) -> usize {
    let of_key = |(key, values): (&String, &Vec<String>)| {
        let values = values.iter().map(|value| ENTRY_COST + value.len());
        ENTRY_COST + key.len() + values.sum::<usize>()
    };
    labels.iter().map(of_key).sum()
}

/// The scheduler as its peers know it.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Own {
    pub(in crate::server) uuid: Uuid,
    /// Where it is one of several.
    pub(in crate::server) term: Option<Term>,
}

/// Appends a message's bytes. `peer` is the receiver's UUID. Called once for each message and receiver.
pub(in crate::server) fn encode(
    message: &Message,
    Own { uuid: own, term }: Own,
    peer: Uuid,
    encoder: &mut Encoder,
    dst: &mut BytesMut,
) {
    // Frames that are carried on: payloads of peers, as far as they still apply.
    match message {
        Message::Start(start) => forward(changes::frame(start), own, encoder, dst),
        Message::Targeted(command) => forward(changes::command(command), own, encoder, dst),
        Message::Forward(parcel) => forward(frame_of(parcel), own, encoder, dst),
        Message::StatsWithout(stats) => forward(withheld::frame(stats), own, encoder, dst),
        // The answer to CONNECT is the only message that is not a frame: it has no payload of a peer, and native peers
        // are told here that this scheduler records ends and answers reports, and under which term it leads.
        Message::Connected { configuration } => {
            let mut connected = Connected::new(own, peer, configuration.clone());
            if encoder.encoding() == Encoding::Native {
                connected = connected.answering_reports();
                if let Some(term) = term {
                    connected = connected.under(term);
                }
            }
            encoder.encode(&proto_frames::Message::Connected(connected), dst);
        }
        own_words => {
            let (kind, payload) = payload(own_words);
            encoder.encode_frame(&Frame::new(kind, own, payload), dst);
        }
    }
}

/// Sends a frame of another peer on, with the time at which it left, where it carries a trace. The UUID in the trace is
/// the scheduler's: it is one of the entities on the path.
fn forward(mut frame: Frame, own: Uuid, encoder: &mut Encoder, dst: &mut BytesMut) {
    stamp_sent(&mut frame, own);
    encoder.encode_frame(&frame, dst);
}

/// Kind and payload of what the scheduler says in its own words. The match names every variant, so that a message that
/// is added has to be given its frame here.
fn payload(message: &Message) -> (Kind, Bytes) {
    match message {
        Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
            (Kind::START_FAILURE, failure.encode())
        }
        Message::DeleteFailure(failure) => (Kind::DELETE_FAILURE, failure.encode()),
        Message::AttachVolumeFailure(failure) => (Kind::ATTACH_VOLUME_FAILURE, failure.encode()),
        Message::AssignPublicIpFailure(failure) => {
            (Kind::ASSIGN_PUBLIC_IP_FAILURE, failure.encode())
        }
        Message::UnassignPublicIpFailure(failure) => {
            (Kind::UNASSIGN_PUBLIC_IP_FAILURE, failure.encode())
        }
        Message::InvalidConfiguration(configuration) => {
            (Kind::INVALID_CONFIGURATION, configuration.clone())
        }
        Message::NodeConnected(event) => (Kind::NODE_CONNECTED, event.encode()),
        Message::NodeDisconnected(event) => (Kind::NODE_DISCONNECTED, event.encode()),
        Message::ControllerStatus(status) => (Kind::CONTROLLER_STATUS, status.encode()),
        Message::CommandRefused(refused) => {
            (Kind::COMMAND_REFUSED, refusals::refused(refused).encode())
        }
        Message::InstancePlaced(placed) => (Kind::INSTANCE_PLACED, placed.encode()),
        Message::PlacementDecision(decision) => (Kind::PLACEMENT_DECISION, decision.encode()),
        Message::QueryResult(result) => (Kind::QUERY_RESULT, result.encode()),
        Message::ReadOutput(read) => (Kind::READ_OUTPUT, read.encode()),
        Message::DeleteOutput(delete) => (Kind::DELETE_OUTPUT, delete.encode()),
        Message::NoOutput(part) => (Kind::OUTPUT, part.encode()),
        Message::InstanceDeleted(event) => (Kind::INSTANCE_DELETED, event.encode()),
        Message::InstanceStopped(instance) => {
            let stopped = InstanceStopped {
                instance_uuid: instance.to_string(),
                ..InstanceStopped::default()
            };
            (Kind::INSTANCE_STOPPED, stopped.encode())
        }
        Message::InstanceQueued(event) => (Kind::INSTANCE_QUEUED, event.encode()),
        Message::InstanceState(event) => (Kind::INSTANCE_STATE, event.encode()),
        Message::DrainProgress(event) => (Kind::DRAIN_PROGRESS, event.encode()),
        Message::NodePressure(event) => (Kind::NODE_PRESSURE, event.encode()),
        Message::Reloaded(event) => (Kind::RELOADED, event.encode()),
        Message::ArrayState(view) => (Kind::ARRAY_STATE, view.encode()),
        Message::Snapshot(snapshot) => (Kind::SNAPSHOT, snapshot.encode()),
        Message::CommandFailure(failure) => (Kind::COMMAND_FAILURE, failure.encode()),
        Message::EndsRecorded(recorded) => (Kind::ENDS_RECORDED, recorded.encode()),
        Message::OfferRules(rules) => (Kind::NODE_CAPACITY, node_capacity(rules).encode()),
        Message::LeaseRenewed(renewed) => (Kind::LEASE_RENEWED, renewed.encode()),
        Message::ReportReceived(received) => (Kind::REPORT_RECEIVED, received.encode()),
        Message::LauncherCommand(order) => match &**order {
            LauncherCommand::Suspend(suspend) => (Kind::SUSPEND, suspend.encode()),
            LauncherCommand::Resume(resume) => (Kind::RESUME, resume.encode()),
            LauncherCommand::Migrate(migrate) => (Kind::MIGRATE, migrate.encode()),
            LauncherCommand::Update(update) => (Kind::UPDATE, update.encode()),
            LauncherCommand::Stop(delete) => (Kind::DELETE, delete.encode()),
        },
        // These have no payload of the scheduler's: `encode` writes their frame. The others are frames already;
        // `encode` does not ask about them.
        Message::InvalidFrameType
        | Message::Start(_)
        | Message::Targeted(_)
        | Message::Forward(_)
        | Message::StatsWithout(_)
        | Message::Connected { .. } => (Kind::INVALID_FRAME_TYPE, Bytes::new()),
    }
}

/// NodeCapacity: the rules by which the scheduler computes what a node offers, so that its launcher admits STARTs by
/// the same. A ratio that is out of range is sent as the default.
fn node_capacity(rules: &OfferRules) -> NodeCapacity {
    let ratio = |ratio: f64| Ratio::new(ratio).unwrap_or_default();
    NodeCapacity {
        cpu_ratio: ratio(rules.cpu_ratio),
        mem_ratio: ratio(rules.mem_ratio),
        disk_ratio: ratio(rules.disk_ratio),
        reserved_mem_mb: rules.reserved_mem_mib,
        reserved_disk_mb: rules.reserved_disk_mib,
        reserved_cpus: rules.reserved_cpus,
        accounting: match rules.accounting {
            Accounting::Requested => CountedAs::Requested,
            Accounting::Measured => CountedAs::Measured,
        },
        mem_limit: rules.limited.mem_limit,
        disk_limit: rules.limited.disk_limit,
    }
}

#[cfg(test)]
mod tests {
    use proto_frames::payload::{
        AttemptFailed, DeleteFailure, DeleteFailureReason, InstancePlaced, InstanceView, NodeView,
        QueryResult, StartFailure,
    };

    use super::{cost, payload};
    use sched_core::Message;

    #[test]
    fn long_texts_count() {
        let long = || "x".repeat(100_000);
        let failure = DeleteFailure {
            node_uuid: long(),
            instance_uuid: long(),
            reason: DeleteFailureReason::NoInstance,
        };
        let placed = InstancePlaced {
            hostname: long(),
            ..InstancePlaced::default()
        };
        let row = InstanceView {
            instance_uuid: long(),
            group: long(),
            resources: [(long(), 1)].into(),
            ..InstanceView::default()
        };
        let node = NodeView {
            labels: [(long(), vec![long(), long()])].into(),
            resources_total: [(long(), 1)].into(),
            resources_free: [(long(), 1)].into(),
            resources_left_out: vec![long()],
            ..NodeView::default()
        };
        let result = QueryResult {
            instances: vec![row; 3],
            nodes: vec![node; 3],
            next: Some(long()),
            error: Some(long()),
            ..QueryResult::default()
        };
        let attempt = AttemptFailed {
            detail: long(),
            ..AttemptFailed::default()
        };
        let start = StartFailure {
            attempts: vec![attempt; 10],
            ..StartFailure::default()
        };
        for message in [
            Message::DeleteFailure(failure),
            Message::InstancePlaced(placed),
            Message::QueryResult(Box::new(result.into())),
            Message::StartFailure(Box::new(start.into())),
        ] {
            let len = payload(&message).1.len();
            assert!(cost(&message) >= len, "{} for {len}", cost(&message));
        }
    }
}
