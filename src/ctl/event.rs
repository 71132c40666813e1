//! Frames from the scheduler as events. [`crate::ctl::client`] makes an [`Event`] of every frame that it receives.
//!
//! ```text
//! Frame ──Event::from_frame──▶ Event ──┬─ text: Event::line (people), Event::json (programs)
//!                                      ├─ track::Tracker, operation::Operation: how far an instance or a command is
//!                                      └─ Client: answers to queries and commands
//! ```
//!
//! An event holds the payload as it was decoded. Texts in it come from peers: whatever prints them must make them
//! printable, as [`text`] does.

use proto_frames::payload::{
    ArrayView, AttachVolumeFailure, CommandFailure, CommandRefused, ConcentratorInstanceAdded,
    ConfigurationAnswer, DeleteFailure, DrainProgress, ImageChunk, ImageList, InstanceDeleted,
    InstancePlaced, InstanceQueued, InstanceStateEvent, InstanceStopped, NodeConnected,
    NodeDisconnected, NodePressure, OutputChunk, Payload, PayloadError, PlacementDecision,
    QueryResult, StartFailure, Stats,
};
use proto_frames::payload::{LeadershipTransfer, Reloaded};
use proto_frames::{Frame, Kind};

pub mod lifecycle;
pub mod text;

/// What a watcher can be sent, as `event` of [`Event::json`] calls it.
pub const NAMES: [&str; 21] = [
    "array_state",
    "attach_volume_failure",
    "command_failure",
    "command_refused",
    "concentrator_instance_added",
    "delete_failure",
    "drain_progress",
    "instance_deleted",
    "instance_placed",
    "instance_queued",
    "instance_state",
    "instance_stopped",
    "node_connected",
    "node_disconnected",
    "node_pressure",
    "other",
    "placement_decision",
    "reloaded",
    "start_failure",
    "stats",
    "unreadable",
];

/// One frame from the scheduler.
///
/// Large payloads are boxed, so that the backlog of a client, which can hold many events, stays small.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event {
    /// A launcher connected.
    NodeConnected(NodeConnected),
    /// A launcher is gone.
    ///
    /// Its instances may still run: the connection ended, not necessarily the machine.
    NodeDisconnected(NodeDisconnected),
    /// A START was given to a node.
    ///
    /// The node has not confirmed it: it can still fail to start it.
    Placed(InstancePlaced),
    /// A START failed.
    ///
    /// Either the scheduler found no node, or a launcher could not start it.
    StartFailure(Box<StartFailure>),
    /// An instance is gone for good.
    ///
    /// Its exit status is there if the launcher told it.
    InstanceDeleted(InstanceDeleted),
    /// An instance no longer runs on its node.
    ///
    /// Also when it is moved: it then goes on elsewhere. [`Event::Transition`] says so before.
    InstanceStopped(InstanceStopped),
    /// A START waits for room.
    ///
    /// Its position is 0 where the scheduler says only that it waits.
    Queued(Box<InstanceQueued>),
    /// A managed instance has changed its state, for example to suspended or migrating.
    Transition(Box<InstanceStateEvent>),
    /// A command on an instance's lifecycle, or a drain, failed.
    CommandFailure(Box<CommandFailure>),
    /// How far the drain of a node is.
    Drain(Box<DrainProgress>),
    /// A node has become short of memory, is no longer, or an instance was moved away for it.
    Pressure(Box<NodePressure>),
    /// How far an array is.
    Array(Box<ArrayView>),
    /// The scheduler has read its files again, or has left it at a mistake in one.
    Reloaded(Box<Reloaded>),
    /// An instance could not be deleted.
    DeleteFailure(DeleteFailure),
    /// A volume could not be attached.
    AttachVolumeFailure(AttachVolumeFailure),
    /// A concentrator instance is up.
    ConcentratorAdded(ConcentratorInstanceAdded),
    /// What a node and its instances use.
    Stats(Box<Stats>),
    /// The scheduler refused a command of ours.
    ///
    /// Names the kind of the command, and the instance where it was about one. [`refused_kind`] gives the kind as a
    /// [`Kind`].
    Refused(CommandRefused),
    /// The decision about a START that was a dry run.
    Decided(Box<PlacementDecision>),
    /// The answer to a query of ours.
    ///
    /// Carries the number of the query. A result that is not waited for any more is dropped by the client.
    QueryResult(Box<QueryResult>),
    /// A chunk of what a workload wrote, which was asked for.
    ///
    /// Subject to the same rule as the result of a query, as are the three that follow.
    Output(Box<OutputChunk>),
    /// The answer to a request about an image.
    Image(Box<ImageChunk>),
    /// The images that there are, which were asked for.
    ImageList(Box<ImageList>),
    /// The configuration that was asked for, or what became of a new one.
    Configuration(Box<ConfigurationAnswer>),
    /// What comes of having another scheduler lead, which was asked for.
    Transfer(Box<LeadershipTransfer>),
    /// A frame of a kind that this program does not know.
    ///
    /// For example of a later version of the scheduler.
    Other {
        /// Its kind.
        kind: Kind,
        /// Its payload as text, invalid UTF-8 replaced.
        payload: String,
    },
    /// A frame whose payload is not what its kind promises.
    ///
    /// The connection goes on: one bad payload does not affect the frames after it.
    Unreadable {
        /// Its kind.
        kind: Kind,
        /// What is wrong with it.
        error: PayloadError,
    },
}

impl Event {
    /// Reads a frame. Never fails: what cannot be read is an event too, so that an operator sees it.
    ///
    /// A kind that is not known becomes [`Event::Other`]; a payload that does not decode becomes
    /// [`Event::Unreadable`]. Neither can end a session.
    #[must_use]
    pub fn from_frame(frame: &Frame) -> Self {
        let payload = &frame.payload;
        let event = match frame.kind {
            Kind::NODE_CONNECTED => NodeConnected::decode(payload).map(Self::NodeConnected),
            Kind::NODE_DISCONNECTED => {
                NodeDisconnected::decode(payload).map(Self::NodeDisconnected)
            }
            Kind::INSTANCE_PLACED => InstancePlaced::decode(payload).map(Self::Placed),
            Kind::START_FAILURE => {
                StartFailure::decode(payload).map(|failure| Self::StartFailure(Box::new(failure)))
            }
            Kind::INSTANCE_DELETED => InstanceDeleted::decode(payload).map(Self::InstanceDeleted),
            Kind::INSTANCE_STOPPED => InstanceStopped::decode(payload).map(Self::InstanceStopped),
            Kind::INSTANCE_QUEUED => {
                InstanceQueued::decode(payload).map(|it| Self::Queued(Box::new(it)))
            }
            Kind::INSTANCE_STATE => {
                InstanceStateEvent::decode(payload).map(|it| Self::Transition(Box::new(it)))
            }
            Kind::COMMAND_FAILURE => {
                CommandFailure::decode(payload).map(|it| Self::CommandFailure(Box::new(it)))
            }
            Kind::DRAIN_PROGRESS => {
                DrainProgress::decode(payload).map(|it| Self::Drain(Box::new(it)))
            }
            Kind::NODE_PRESSURE => {
                NodePressure::decode(payload).map(|it| Self::Pressure(Box::new(it)))
            }
            Kind::ARRAY_STATE => ArrayView::decode(payload).map(|it| Self::Array(Box::new(it))),
            Kind::LEADERSHIP_TRANSFER => {
                LeadershipTransfer::decode(payload).map(|it| Self::Transfer(Box::new(it)))
            }
            Kind::RELOADED => Reloaded::decode(payload).map(|it| Self::Reloaded(Box::new(it))),
            Kind::DELETE_FAILURE => DeleteFailure::decode(payload).map(Self::DeleteFailure),
            Kind::ATTACH_VOLUME_FAILURE => {
                AttachVolumeFailure::decode(payload).map(Self::AttachVolumeFailure)
            }
            Kind::CONCENTRATOR_INSTANCE_ADDED => {
                ConcentratorInstanceAdded::decode(payload).map(Self::ConcentratorAdded)
            }
            Kind::STATS => Stats::decode(payload).map(|stats| Self::Stats(Box::new(stats))),
            Kind::OUTPUT => OutputChunk::decode(payload).map(|it| Self::Output(Box::new(it))),
            Kind::IMAGE => ImageChunk::decode(payload).map(|it| Self::Image(Box::new(it))),
            Kind::IMAGE_LIST => ImageList::decode(payload).map(|it| Self::ImageList(Box::new(it))),
            Kind::CONFIGURATION => {
                ConfigurationAnswer::decode(payload).map(|it| Self::Configuration(Box::new(it)))
            }
            Kind::COMMAND_REFUSED => CommandRefused::decode(payload).map(Self::Refused),
            Kind::PLACEMENT_DECISION => {
                PlacementDecision::decode(payload).map(|decision| Self::Decided(Box::new(decision)))
            }
            Kind::QUERY_RESULT => {
                QueryResult::decode(payload).map(|result| Self::QueryResult(Box::new(result)))
            }
            kind => {
                return Self::Other {
                    kind,
                    payload: String::from_utf8_lossy(payload).into_owned(),
                };
            }
        };
        event.unwrap_or_else(|error| Self::Unreadable {
            kind: frame.kind,
            error,
        })
    }

    /// The nodes it names without their host names.
    ///
    /// [`crate::ctl::hosts::Hosts`] looks up the host names of these before a line is printed. An event whose payload
    /// carries the host name gives none; at most two nodes are named, the node of an instance and the target of its
    /// move.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let (node, target) = match self {
            Self::NodeConnected(e) => (&*e.node_uuid, ""),
            Self::NodeDisconnected(e) => (&*e.node_uuid, ""),
            Self::Transition(e) => (&*e.node_uuid, &*e.target_node_uuid),
            Self::CommandFailure(e) => (&*e.node_uuid, ""),
            Self::Drain(e) => (&*e.node_uuid, ""),
            Self::DeleteFailure(e) => (&*e.node_uuid, ""),
            _ => ("", ""),
        };
        [node, target].into_iter().filter(|node| !node.is_empty())
    }

    /// The instance it is about, if it is about one.
    ///
    /// `None` also for a refused command that names no instance. The text may be empty: a StartFailure for a START
    /// that could not be read names no instance.
    #[must_use]
    pub fn instance_uuid(&self) -> Option<&str> {
        match self {
            Self::Placed(e) => Some(&e.instance_uuid),
            Self::Decided(e) => Some(&e.instance_uuid),
            Self::StartFailure(e) => Some(&e.instance_uuid),
            Self::InstanceDeleted(e) => Some(&e.instance_uuid),
            Self::InstanceStopped(e) => Some(&e.instance_uuid),
            Self::Queued(e) => Some(&e.instance_uuid),
            Self::Transition(e) => Some(&e.instance_uuid),
            Self::CommandFailure(e) => Some(&e.instance_uuid),
            Self::DeleteFailure(e) => Some(&e.instance_uuid),
            Self::AttachVolumeFailure(e) => Some(&e.instance_uuid),
            Self::ConcentratorAdded(e) => Some(&e.instance_uuid),
            Self::Array(e) => Some(&e.array_uuid),
            Self::Refused(e) => e.instance_uuid.as_deref(),
            _ => None,
        }
    }
}

/// The kind of the command that was refused.
///
/// The payload has its frame type and its operand as two numbers.
#[must_use]
pub fn refused_kind(refused: &CommandRefused) -> Kind {
    Kind::new(refused.ty, refused.operand)
}

#[cfg(test)]
mod tests {
    use super::NAMES;

    #[test]
    fn every_name_of_an_event_is_listed() {
        let answers = [
            "configuration",
            "image",
            "image_list",
            "leadership_transfer",
            "output",
            "query_result",
        ];
        let sources = [
            include_str!("event/text.rs"),
            include_str!("event/lifecycle.rs"),
        ];
        let mut named = std::collections::BTreeSet::new();
        for source in sources {
            for mark in ["\"event\": \"", "[\"event\"] = \""] {
                let names = source.split(mark).skip(1);
                named.extend(names.filter_map(|rest| rest.split('"').next()));
            }
        }
        named.retain(|name| !answers.contains(name));
        assert!(named.iter().eq(NAMES.iter()), "{named:?}");
    }
}
