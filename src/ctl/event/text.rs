//! Events as one line for people and as one object for programs.
//!
//! The line goes to `ciaoctl watch` and to followed commands, the object to `watch --json`. Names in the objects are
//! stable; a script dispatches on `event`.

use proto_frames::payload::{
    AttemptFailed, CommandRefused, PlacementDecision, StartFailure, Stats,
};
use serde_json::{Value, json};

use crate::ctl::event::Event;
use crate::ctl::event::lifecycle::{self, command_failure, drain, pressure, queued, transition};
use crate::ctl::explanation::reasons_json;
use crate::ctl::hosts::Hosts;
use crate::ctl::status::exit_status;
use crate::ctl::units::{elide, mebibytes, short};
use crate::printable::{Printable, counted};

/// Characters of an unknown payload that a line shows.
///
/// A payload may be large, and a line is to stay a line.
const MAX_SHOWN: usize = 120;

impl Event {
    /// One line for people, without the time.
    ///
    /// Nodes are named by their UUIDs alone.
    #[must_use]
    pub fn line(&self) -> Printable {
        self.line_with(&Hosts::default())
    }

    /// The same, with the host names of nodes where they are known.
    ///
    /// Everything that is not printable is escaped here, once for the whole line.
    #[must_use]
    pub fn line_with(&self, hosts: &Hosts) -> Printable {
        Printable::new(self.raw_line(hosts))
    }

    /// Not yet escaped: it has texts of peers as they came.
    fn raw_line(&self, hosts: &Hosts) -> String {
        match self {
            Self::NodeConnected(e) => {
                format!("{} connected ({})", node(&e.node_uuid, hosts), e.node_type)
            }
            Self::NodeDisconnected(e) => {
                format!(
                    "{} disconnected ({})",
                    node(&e.node_uuid, hosts),
                    e.node_type
                )
            }
            // The host name is in the payload: no look-up is needed.
            Self::Placed(e) => format!(
                "instance {} placed on {} ({})",
                e.instance_uuid,
                e.hostname,
                short(&e.node_uuid)
            ),
            Self::Decided(e) => format!("instance {} {}", e.instance_uuid, decision(e)),
            Self::StartFailure(e) => format!("instance {} {}", e.instance_uuid, start_failure(e)),
            Self::InstanceDeleted(e) => format!(
                "instance {} deleted{}",
                e.instance_uuid,
                status(e.exit_code)
            ),
            Self::InstanceStopped(e) => format!(
                "instance {} stopped{}",
                e.instance_uuid,
                status(e.exit_code)
            ),
            Self::Queued(e) => format!("instance {} {}", e.instance_uuid, queued(e)),
            Self::Transition(e) => format!("instance {} {}", e.instance_uuid, transition(e, hosts)),
            Self::CommandFailure(e) => command_failure(e, hosts),
            Self::Drain(e) => format!("{} {}", node(&e.node_uuid, hosts), drain(e)),
            Self::Pressure(e) => format!("{} {}", node(&e.node_uuid, hosts), pressure(e)),
            Self::Array(e) => lifecycle::array(e),
            Self::Reloaded(e) => lifecycle::reloaded(e),
            Self::Transfer(e) => lifecycle::transfer(e),
            Self::DeleteFailure(e) => {
                format!(
                    "instance {} not deleted on {}: {}",
                    e.instance_uuid,
                    hosts.named(&e.node_uuid),
                    e.reason
                )
            }
            Self::AttachVolumeFailure(e) => {
                format!(
                    "volume {} not attached to instance {}: {}",
                    e.volume_uuid, e.instance_uuid, e.reason
                )
            }
            Self::ConcentratorAdded(e) => {
                format!(
                    "concentrator instance {} is up at {}",
                    e.instance_uuid, e.concentrator_ip
                )
            }
            Self::Stats(e) => stats(e),
            Self::Refused(e) => refusal(e),
            Self::QueryResult(e) => format!("answer to query {}", e.id),
            Self::Output(e) => format!("output of {}", e.part.instance_uuid),
            Self::Image(e) => format!("image {}", e.part.digest),
            Self::ImageList(e) => counted(e.images.len(), "image"),
            Self::Configuration(e) => format!("configuration, version {}", e.part.current),
            Self::Other { kind, payload } => format!("{kind} {}", elide(payload, MAX_SHOWN)),
            Self::Unreadable { kind, error } => format!("{kind} that cannot be read: {error}"),
        }
    }

    /// One object with stable names; `event` says what it is.
    ///
    /// Texts are as they came: the output escapes them. Events that answer a request of this program (a query, output,
    /// images) are reduced to what identifies them, because their data is printed by the command that asked.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::NodeConnected(e) => {
                json!({"event": "node_connected", "node_uuid": e.node_uuid, "node_type": e.node_type.as_str()})
            }
            Self::NodeDisconnected(e) => {
                json!({"event": "node_disconnected", "node_uuid": e.node_uuid, "node_type": e.node_type.as_str()})
            }
            Self::Placed(e) => json!({
                "event": "instance_placed", "instance_uuid": e.instance_uuid, "node_uuid": e.node_uuid,
                "hostname": e.hostname,
            }),
            Self::Decided(e) => json!({
                "event": "placement_decision", "instance_uuid": e.instance_uuid, "count": e.count, "fits": e.fits,
                "reason": e.reason.as_str(), "detail": e.detail, "reasons": reasons_json(&e.reasons), "never": e.never,
            }),
            Self::StartFailure(e) => json!({
                "event": "start_failure", "instance_uuid": e.instance_uuid, "node_uuid": e.node_uuid,
                "reason": e.reason.as_str(), "restart": e.restart, "detail": e.detail,
                "reasons": reasons_json(&e.reasons), "never": e.never, "attempts": attempts_json(&e.attempts),
            }),
            Self::InstanceDeleted(e) => {
                json!({"event": "instance_deleted", "instance_uuid": e.instance_uuid, "exit_code": e.exit_code})
            }
            Self::InstanceStopped(e) => {
                json!({"event": "instance_stopped", "instance_uuid": e.instance_uuid, "exit_code": e.exit_code})
            }
            Self::Queued(e) => lifecycle::queued_json(e),
            Self::Transition(e) => lifecycle::transition_json(e),
            Self::CommandFailure(e) => lifecycle::command_failure_json(e),
            Self::Drain(e) => lifecycle::drain_json(e),
            Self::Pressure(e) => lifecycle::pressure_json(e),
            Self::Array(e) => lifecycle::array_json(e),
            Self::Reloaded(e) => lifecycle::reloaded_json(e),
            Self::Transfer(e) => lifecycle::transfer_json(e),
            Self::DeleteFailure(e) => json!({
                "event": "delete_failure", "instance_uuid": e.instance_uuid, "node_uuid": e.node_uuid,
                "reason": e.reason.as_str(),
            }),
            Self::AttachVolumeFailure(e) => json!({
                "event": "attach_volume_failure", "instance_uuid": e.instance_uuid, "volume_uuid": e.volume_uuid,
                "node_uuid": e.node_uuid, "reason": e.reason.as_str(),
            }),
            Self::ConcentratorAdded(e) => json!({
                "event": "concentrator_instance_added", "instance_uuid": e.instance_uuid,
                "tenant_uuid": e.tenant_uuid, "concentrator_ip": e.concentrator_ip,
                "concentrator_mac": e.concentrator_mac,
            }),
            Self::Stats(e) => stats_json(e),
            Self::Refused(e) => json!({
                "event": "command_refused", "command": e.name, "reason": e.reason.as_str(), "detail": e.detail,
                "instance_uuid": e.instance_uuid,
            }),
            // Answers: only what identifies them.
            Self::QueryResult(e) => json!({"event": "query_result", "id": e.id}),
            Self::Output(e) => json!({"event": "output", "instance_uuid": e.part.instance_uuid}),
            Self::Image(e) => json!({"event": "image", "digest": e.part.digest}),
            Self::ImageList(e) => json!({"event": "image_list", "images": e.images.len()}),
            Self::Configuration(e) => {
                json!({"event": "configuration", "current": e.part.current})
            }
            Self::Other { kind, payload } => {
                json!({"event": "other", "kind": kind.to_string(), "payload": payload})
            }
            Self::Unreadable { kind, error } => {
                json!({"event": "unreadable", "kind": kind.to_string(), "error": error.to_string()})
            }
        }
    }
}

/// `node node-a (4cb19522)`, or with the whole UUID where the name is not known.
///
/// Without a name the whole UUID is there, since eight characters of it are not enough to find the node in a log.
pub(super) fn node(uuid: &str, hosts: &Hosts) -> String {
    match hosts.named(uuid) {
        unnamed if unnamed == short(uuid) => format!("node {uuid}"),
        named => format!("node {named}"),
    }
}

/// `could not be started: full_cloud: 3 of 3 nodes lack memory`.
///
/// Follows the name of the instance. Also the text of the error that a single START ends with.
#[must_use]
pub fn start_failure(failure: &StartFailure) -> String {
    let tried = attempts(&failure.attempts);
    match &failure.detail {
        Some(detail) => format!("could not be started: {}: {detail}{tried}", failure.reason),
        None => format!("could not be started: {}{tried}", failure.reason),
    }
}

/// `; tried before on 4cb19522 (full_cn), beef0000 (launch_failure)`, or nothing.
///
/// Only managed instances are tried on more than one node.
#[must_use]
pub fn attempts(attempts: &[AttemptFailed]) -> String {
    let tried = |it: &AttemptFailed| format!("{} ({})", short(&it.node_uuid), it.reason);
    let tried: Vec<String> = attempts.iter().map(tried).collect();
    if tried.is_empty() {
        return String::new();
    }
    format!("; tried before on {}", tried.join(", "))
}

/// The nodes that a START was tried on, for programs.
///
/// In the order of the tries; `reason` is the protocol's word for why each failed.
#[must_use]
pub fn attempts_json(attempts: &[AttemptFailed]) -> Value {
    let tried = |it: &AttemptFailed| json!({"node_uuid": it.node_uuid, "reason": it.reason.as_str(), "detail": it.detail});
    attempts.iter().map(tried).collect()
}

/// `would fit on node-a (4cb19522)`, `2 of 3 would fit: …`.
///
/// For a single instance the node is named; for several, only how many nodes they are on.
#[must_use]
pub fn decision(decision: &PlacementDecision) -> String {
    let (fits, count, detail) = (decision.fits, decision.count, &decision.detail);
    match &decision.placements[..] {
        _ if fits < count && count > 1 => format!("{fits} of {count} would fit: {detail}"),
        _ if fits < count => format!("would not fit: {}: {detail}", decision.reason),
        [only] if count == 1 => {
            format!(
                "would fit on {} ({})",
                only.hostname,
                short(&only.node_uuid)
            )
        }
        places => format!("{fits} would fit, on {}", counted(places.len(), "node")),
    }
}

/// `COMMAND DELETE refused: no_such_node: …`.
///
/// `name` is the scheduler's text for the command, which is there even if this program does not know the kind.
#[must_use]
pub fn refusal(refused: &CommandRefused) -> String {
    format!(
        "{} refused: {}: {}",
        refused.name, refused.reason, refused.detail
    )
}

/// Nothing where the exit status is not known: an event that a process ended does not always have one.
fn status(exit_code: Option<i64>) -> String {
    exit_code.map_or_else(String::new, |_| format!(", {}", exit_status(exit_code)))
}

/// One line even for a node with many instances: they are counted. [`stats_json`] lists them.
fn stats(stats: &Stats) -> String {
    format!(
        "node {} ({}) {}, {} of {} memory available, load {}, {}",
        stats.hostname,
        short(&stats.node_uuid),
        stats.status,
        mebibytes(stats.mem_available_mb),
        mebibytes(stats.mem_total_mb),
        stats.load,
        counted(stats.instances.len(), "instance")
    )
}

/// Figures as the launcher reported them: memory in MiB, disk in units of 10⁶ bytes, and -1 for what it does not know.
fn stats_json(stats: &Stats) -> Value {
    let instances: Vec<Value> = stats
        .instances
        .iter()
        .map(|instance| {
            json!({
                "instance_uuid": instance.instance_uuid, "state": instance.state.as_str(),
                "memory_usage_mb": instance.memory_usage_mb, "disk_usage_mb": instance.disk_usage_mb,
                "cpu_usage": instance.cpu_usage, "suspended": instance.suspended,
            })
        })
        .collect();
    json!({
        "event": "stats", "node_uuid": stats.node_uuid, "hostname": stats.hostname, "status": stats.status.to_string(),
        "mem_total_mb": stats.mem_total_mb, "mem_available_mb": stats.mem_available_mb,
        "disk_total_mb": stats.disk_total_mb, "disk_available_mb": stats.disk_available_mb,
        "cpus_online": stats.cpus_online, "load": stats.load, "instances": instances,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proto_frames::payload::{InstanceStopped, NodeConnected, NodeType, Payload};
    use proto_frames::{Frame, Kind, Uuid};

    use super::*;

    fn event(kind: Kind, payload: impl Into<Bytes>) -> Event {
        Event::from_frame(&Frame::new(kind, Uuid::nil(), payload))
    }

    #[test]
    fn events_are_one_line_each() {
        let connected = NodeConnected {
            node_uuid: "n1".into(),
            node_type: NodeType::Compute,
        };
        let stopped = InstanceStopped {
            instance_uuid: "i1".into(),
            exit_code: Some(3),
            ..InstanceStopped::default()
        };
        for (kind, payload, line) in [
            (Kind::NODE_CONNECTED, connected.encode(), "node n1 connected (compute_node)"),
            (Kind::INSTANCE_STOPPED, stopped.encode(), "instance i1 stopped, exit status 3"),
            (
                Kind::START_FAILURE,
                "node_uuid: \"\"\ninstance_uuid: i1\nreason: full_cloud\nrestart: false\ndetail: \"a\\nb\"\n".into(),
                r"instance i1 could not be started: full_cloud: a\nb",
            ),
            (Kind::new(3, 0x7f), "x: 1".into(), "EVENT 0x7f x: 1"),
        ] {
            assert_eq!(event(kind, payload).line(), line);
        }
    }

    #[test]
    fn nodes_are_shown_with_their_host_names_where_they_are_known() {
        let hosts = Hosts::from([("4cb19522-aaaa", "node-a")]);
        for (kind, payload, line) in [
            (
                Kind::NODE_CONNECTED,
                "node_connected:\n  node_uuid: 4cb19522-aaaa\n  node_type: compute_node\n",
                "node node-a (4cb19522) connected (compute_node)",
            ),
            (
                Kind::NODE_CONNECTED,
                "node_connected:\n  node_uuid: beef0000-bbbb\n  node_type: compute_node\n",
                "node beef0000-bbbb connected (compute_node)",
            ),
            (
                Kind::INSTANCE_STATE,
                "instance_state:\n  instance_uuid: i1\n  state: migrating\n  node_uuid: 4cb19522-aaaa\n  target_node_uuid: \
                 beef0000-bbbb\n",
                "instance i1 migrating from node-a (4cb19522) to beef0000",
            ),
        ] {
            assert_eq!(event(kind, payload).line_with(&hosts), line);
        }
    }

    #[test]
    fn a_payload_that_cannot_be_read_is_shown_as_such() {
        let event = event(Kind::INSTANCE_PLACED, "[");
        assert!(
            event
                .line()
                .starts_with("EVENT InstancePlaced that cannot be read: "),
            "{}",
            event.line()
        );
        assert_eq!(event.json()["event"], "unreadable");
    }

    #[test]
    fn reports_of_nodes_are_summed_up_for_people_and_whole_for_programs() {
        let payload = "node_uuid: 4cb19522-aaaa\nstatus: READY\nmem_total_mb: 2048\nmem_available_mb: 512\nload: 1\n\
                       hostname: a\ninstances:\n- instance_uuid: i1\n  state: active\n  memory_usage_mb: 40\n";
        let event = event(Kind::STATS, payload);
        assert_eq!(
            event.line(),
            "node a (4cb19522) READY, 512 MiB of 2.0 GiB memory available, load 1, 1 instance"
        );
        assert_eq!(event.json()["instances"][0]["memory_usage_mb"], 40);
    }
}
