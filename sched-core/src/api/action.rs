//! What the core wants done: frames sent, connections ended, things remembered, people told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use proto_frames::{Frame, Kind};
use sched_model::{
    AssignPublicIpFailure, AttachVolumeFailure, CommandFailure, CommandRefused, ControllerStatus,
    Delete, DeleteFailure, DrainProgress, EndsRecorded, InstanceDeleted, InstancePlaced,
    InstanceQueued, InstanceStateEvent, LeaseRenewed, Migrate, NodeConnected, NodeDisconnected,
    PlacementDecision, QueryResult, Resume, Scheduling, Snapshot, StartFailure, Suspend,
    UnassignPublicIpFailure, Update,
};
use sched_model::{Role, Uuid};

use crate::api::config::MAX_BINDINGS;
use crate::api::disk::DiskSilence;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::{StartRequest, Target};
use crate::api::known_node::KnownNode;
use crate::api::phase::IllegalTransition;
use crate::api::record::{Change, Demand};
use crate::api::rules::{OfferRules, RuleError};
use crate::api::text::ShortText;

/// One thing to do, in the order the core decided them.
#[derive(Debug)]
pub enum Action {
    /// Queue a message for a peer. Everything decided while one frame was handled is charged to its sender.
    Send {
        /// For whom.
        to: SessionId,
        /// What.
        message: Message,
    },
    /// Refuse a peer that asked to be let in, and forget it; it was never a session.
    Refuse {
        /// Which one.
        session: SessionId,
        /// Why, for people.
        why: RefusedConnect,
    },
    /// End a connection at once and hand in [`crate::Input::Disconnected`] with what was still queued for it.
    Disconnect {
        /// Which one.
        session: SessionId,
        /// Why, for people.
        why: DisconnectReason,
    },
    /// The set of known nodes changed: where there is a state directory, remember it
    /// ([`crate::Scheduler::known_nodes`]).
    RememberNodes,
    /// Records changed: keep them, in the order of these actions, and hand in [`crate::Input::Committed`] once they are
    /// on disk. Comes only with [`crate::Config::durable`].
    Persist(Change),
    /// Something people may want to know.
    Notice(Notice),
}

/// A message to a peer. Turned into bytes by the peer's writer, in the peer's encoding.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// The answer to an accepted CONNECT: always the first message of a session.
    Connected {
        /// The cluster configuration of that moment.
        configuration: Bytes,
    },
    /// A START for the node that was chosen; given back if it could not be written.
    Start(Box<PlacedStart>),
    /// A command for an instance on a node; answered with a failure if it could not be written.
    Targeted(Box<TargetedCommand>),
    /// Any other frame, carried on as it came.
    Forward(Frame),
    /// A STATS, carried on without some of the instances that it lists.
    StatsWithout(Arc<StatsWithout>),
    /// A START failed; for its sender alone.
    StartFailure(Box<StartFailure>),
    /// A START failed; one of the copies for everybody who is to hear of it.
    StartFailureCopy(Box<StartFailure>),
    /// A DELETE failed.
    DeleteFailure(DeleteFailure),
    /// An AttachVolume failed.
    AttachVolumeFailure(AttachVolumeFailure),
    /// An AssignPublicIP failed.
    AssignPublicIpFailure(Box<AssignPublicIpFailure>),
    /// A ReleasePublicIP failed.
    UnassignPublicIpFailure(Box<UnassignPublicIpFailure>),
    /// A frame was of none of the four types.
    InvalidFrameType,
    /// A CONFIGURE could not be read; carries it back.
    InvalidConfiguration(Bytes),
    /// A node is there.
    NodeConnected(NodeConnected),
    /// A node is gone.
    NodeDisconnected(NodeDisconnected),
    /// A controller's standing (native encoding only).
    ControllerStatus(ControllerStatus),
    /// A frame was refused (native encoding only).
    CommandRefused(CommandRefused),
    /// A START was given to a node (native encoding only).
    InstancePlaced(InstancePlaced),
    /// An instance is gone that was on no node.
    InstanceDeleted(InstanceDeleted),
    /// A START waits for room (native encoding only).
    InstanceQueued(Box<InstanceQueued>),
    /// What became of an instance that is looked after (native encoding only).
    InstanceState(Box<InstanceStateEvent>),
    /// How far a drain is (native encoding only).
    DrainProgress(Box<DrainProgress>),
    /// Part of what a controller that becomes master has to know (native encoding only).
    Snapshot(Box<Snapshot>),
    /// A command for an instance failed after it was taken in (native encoding only).
    CommandFailure(Box<CommandFailure>),
    /// A command for a launcher that announced that it can carry it out (native encoding only).
    Order(Box<Order>),
    /// Ends that a launcher told are on record (native encoding only).
    EndsRecorded(EndsRecorded),
    /// What a launcher is to admit STARTs by (native encoding only).
    OfferRules(Box<OfferRules>),
    /// A launcher's lease is extended (native encoding only).
    LeaseRenewed(LeaseRenewed),
    /// The answer to a dry run (native encoding only).
    PlacementDecision(Box<PlacementDecision>),
    /// The answer to a query (native encoding only).
    QueryResult(Box<QueryResult>),
}

/// A START on its way to a node.
#[derive(Debug, Clone, PartialEq)]
pub struct PlacedStart {
    /// Who sent it.
    pub sender: SessionId,
    /// What it asks for.
    pub request: StartRequest,
    /// The frame, as it came.
    pub frame: Frame,
    /// What its payload does not say, because it came to be so since; `None` as long as the payload says it all.
    pub changes: Option<Box<StartChanges>>,
}

impl PlacedStart {
    /// Makes it a restart: its instance ran before.
    pub(crate) fn set_restart(&mut self) {
        if !self.request.restart {
            self.request.restart = true;
            self.changes.get_or_insert_default().restart = true;
        }
    }

    /// Makes it ask for other amounts.
    pub(crate) fn set_demand(&mut self, demand: Demand) {
        self.request.asked = demand.base();
        let resources = demand.resources.iter();
        let resources = resources.map(|(name, amount)| (name.to_string(), *amount));
        let resources: BTreeMap<_, _> = resources.collect();
        match &mut self.request.scheduling {
            Some(scheduling) => scheduling.resources = resources,
            None if resources.is_empty() => {}
            none => {
                let scheduling = Scheduling {
                    resources,
                    ..Scheduling::default()
                };
                *none = Some(Box::new(scheduling));
            }
        }
        self.changes.get_or_insert_default().demand = Some(demand);
    }
}

/// A STATS that lists instances which are not for its sender to speak of.
#[derive(Debug, PartialEq)]
pub struct StatsWithout {
    /// The frame, as it came.
    pub frame: Frame,
    /// Where the instances to be left out stand among those listed, counted from 0, in order.
    pub rows: Vec<u32>,
}

/// What of a START is no longer as its payload says: to be written into it before a launcher reads it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartChanges {
    /// Whether it has become a restart.
    pub restart: bool,
    /// The amounts that it asks for since an UPDATE; `None` = those of the payload.
    pub demand: Option<Demand>,
}

/// What a launcher is to do with an instance.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// To suspend it.
    Suspend(Suspend),
    /// To resume it.
    Resume(Resume),
    /// To ship it to another node.
    Migrate(Migrate),
    /// To change what it has.
    Update(Update),
    /// To stop it, and keep nothing running of it: DELETE with `stop`.
    Stop(Delete),
}

/// A DELETE or AttachVolume on its way to a node.
#[derive(Debug, PartialEq)]
pub struct TargetedCommand {
    /// Who sent it.
    pub sender: SessionId,
    /// Instance and node.
    pub target: Target,
    /// Whether that is another node than the payload names: the one that has the instance.
    pub is_readdressed: bool,
    /// The volume of an AttachVolume; `None` for a DELETE.
    pub volume: Option<Box<str>>,
    /// The frame, as it came.
    pub frame: Frame,
}

/// Why a peer was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedConnect {
    /// It claims no role.
    #[error("claims no role")]
    NoRole,
    /// It claims OPERATOR in an encoding that has no such role.
    #[error("claims OPERATOR, which only the native encoding has")]
    OperatorInGob,
    /// It claims to be both a controller, which may become master, and an operator, which never does.
    #[error("claims CONTROLLER and OPERATOR at once")]
    OperatorAndController,
    /// Another certificate is bound to the UUID it claims.
    #[error(
        "claims the UUID of a peer whose certificate is bound to it, with a certificate that is not"
    )]
    BoundElsewhere,
}

/// Why the core ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// The same peer has connected anew.
    #[error("replaced by a newer connection of the same peer")]
    Replaced {
        /// The newer connection.
        by: SessionId,
    },
    /// A launcher has not reported for longer than its lease: what runs under it has been stopped by now, and nobody is
    /// there to say so.
    #[error("no report for longer than its lease")]
    Silent,
}

/// Something people may want to know, worded by its `Display`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The disk does not answer, or does again.
    Disk(DiskSilence),
    /// A peer was let in.
    Connected(Uuid, Role),
    /// A peer has left in order.
    Left(Uuid, Role),
    /// A node's connection broke off.
    NodeLost(Box<KnownNode>),
    /// A lost node has not returned in time and is given up.
    NodeGivenUp(Box<KnownNode>),
    /// A node that was known before the restart has not returned.
    NodeNotBack(Box<KnownNode>),
    /// A node is not listed any more: by command, or because too many are.
    NodeForgotten(Box<KnownNode>),
    /// A controller became master.
    Master(Uuid),
    /// A frame was refused because of who sent it; said once per session and kind.
    NotPermitted(Uuid, Role, Kind),
    /// A command of a backup was refused; said once per session and kind.
    NotMaster(Uuid, Kind),
    /// A frame of unknown type or operand; said once per session and kind.
    UnknownKind(Uuid, Kind),
    /// A payload could not be read.
    Malformed(Uuid, Kind, String),
    /// A report speaks for another node than its sender; said once per session and kind.
    Forged(Uuid, Kind, Box<str>),
    /// A frame's payload has so many bytes, more than native peers are sent; said once per session and kind.
    TooLong(Uuid, Kind, usize, usize),
    /// A node speaks of an instance that is placed on another; said once per session and kind.
    Foreign(Uuid, Kind, InstanceId),
    /// A frame is for a peer that is not connected.
    NoSuchPeer(Kind, Box<str>),
    /// A START was given to a node.
    Placed(InstanceId, Uuid),
    /// A START failed here.
    Failed(InstanceId, String),
    /// So many instances were taken up from before the restart.
    Restored(usize),
    /// A peer's certificate is bound to its UUID, which is not remembered because too many are.
    NotBound(Uuid),
    /// STARTs of an ended connection wait for the node to come back.
    InDoubt(Uuid, usize),
    /// A claim was dropped because its node no longer lists the instance.
    Dropped(InstanceId, Uuid),
    /// So many claims on a node are forgotten: it has been away for too long, or too many are remembered.
    ClaimsForgotten(Uuid, usize),
    /// So many instances on a node were not started by this scheduler, and their launcher does not say what they asked
    /// for; said once on each of its connections.
    ClaimsUnknown(Uuid, usize),
    /// A StartFailure without an instance could not be matched with a START.
    UnmatchedFailure(Uuid),
    /// A START waits for nodes that were there before the restart.
    Settling(InstanceId),
    /// A batch was given up because so many of its STARTs are all that came.
    LateBatch(Box<str>, usize, u32),
    /// A node is in two availability zones; the one named here is left out.
    TwoZones(Uuid, Box<str>),
    /// Part of what a node reports does not count, and why; said once on each of its connections.
    LeftOut(Uuid, ShortText),
    /// Rules that do not hold together came with a configuration, and were left out.
    BadRules(RuleError),
    /// A transition of an instance was refused, because its lifecycle does not have it.
    IllegalTransition(IllegalTransition),
}

impl Notice {
    /// Whether an operator should look at it.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        !matches!(
            self,
            Self::Connected(..)
                | Self::Left(..)
                | Self::NodeForgotten(_)
                | Self::Master(_)
                | Self::Placed(..)
                | Self::Settling(_)
                | Self::Restored(_)
                | Self::Disk(DiskSilence::Over)
        )
    }
}

impl Notice {
    /// What is said of instances on a node, and what they lay claim to.
    fn fmt_about_claims(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InDoubt(node, count) => {
                write!(f, "node {node} is lost with {count} STARTs in doubt")
            }
            Self::Dropped(instance, node) => {
                write!(f, "node {node} no longer lists {instance}: claim dropped")
            }
            Self::ClaimsForgotten(node, count) => write!(
                f,
                "node {node} has not come back: what {count} instances on it asked for is forgotten"
            ),
            Self::ClaimsUnknown(node, count) => write!(
                f,
                "node {node} lists {count} instances that were not started by this scheduler, or by one without \
                 --state-dir, and its launcher does not say what they asked for: they count as what they use, and as \
                 one vcpu each while they run"
            ),
            Self::UnmatchedFailure(node) => {
                write!(
                    f,
                    "StartFailure without an instance from node {node} matches no single START: left to STATS"
                )
            }
            _ => Ok(()),
        }
    }
}

impl Notice {
    /// What is said of nodes that are not connected.
    fn fmt_about_losses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeLost(node) => write!(
                f,
                "{node} is lost: its connection broke off; it has {} instances",
                node.instances
            ),
            Self::NodeGivenUp(node) => write!(
                f,
                "{node} has not returned: it is given up with {} instances, and stays listed as LOST until it returns or \
                 'ciaoctl node forget' removes it",
                node.instances
            ),
            Self::NodeNotBack(node) => write!(
                f,
                "{node} has not returned since the scheduler started: it is listed as LOST until it returns or 'ciaoctl \
                 node forget' removes it"
            ),
            Self::NodeForgotten(node) => {
                write!(f, "{node} is forgotten: it is not listed any more")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(uuid, role) => write!(f, "{role} {uuid} connected"),
            Self::Left(uuid, role) => write!(f, "{role} {uuid} left"),
            Self::NodeLost(_)
            | Self::NodeGivenUp(_)
            | Self::NodeNotBack(_)
            | Self::NodeForgotten(_) => self.fmt_about_losses(f),
            Self::Master(uuid) => write!(f, "controller {uuid} is master"),
            Self::NotPermitted(uuid, role, kind) => {
                write!(f, "refused {kind} from {uuid}: not for a {role} to send")
            }
            Self::NotMaster(uuid, kind) => {
                write!(f, "ignored {kind} from {uuid}: a backup controller")
            }
            Self::UnknownKind(uuid, kind) => write!(
                f,
                "dropped {kind} from {uuid}: not a frame this scheduler knows"
            ),
            Self::Malformed(uuid, kind, detail) => {
                write!(f, "unusable {kind} from {uuid}: {detail}")
            }
            Self::Forged(uuid, kind, node) => {
                write!(f, "refused {kind} from {uuid}: it speaks for node '{node}'")
            }
            Self::TooLong(uuid, kind, len, max) => write!(
                f,
                "{kind} from {uuid} has {len} bytes: not carried to native peers, which take {max}"
            ),
            Self::Foreign(node, kind, instance) => write!(
                f,
                "dropped {kind} from node {node}: it speaks of instance {instance}, which is placed on another node"
            ),
            Self::NoSuchPeer(kind, peer) => {
                write!(f, "{kind} is for '{peer}', which is not connected")
            }
            Self::Placed(instance, node) => write!(f, "START {instance} given to node {node}"),
            Self::Failed(instance, why) => write!(f, "START {instance} failed: {why}"),
            Self::Restored(count) => write!(
                f,
                "{count} instances taken up from before the restart: nodes' STATS will say how they are"
            ),
            Self::Disk(silence) => silence.fmt(f),
            Self::NotBound(uuid) => write!(
                f,
                "{uuid} is bound to its certificate, which is not remembered once it has left: {MAX_BINDINGS} others are"
            ),
            Self::InDoubt(..)
            | Self::Dropped(..)
            | Self::ClaimsForgotten(..)
            | Self::ClaimsUnknown(..)
            | Self::UnmatchedFailure(_) => self.fmt_about_claims(f),
            Self::LateBatch(id, came, count) => {
                write!(f, "batch '{id}' given up: {came} of {count} STARTs came")
            }
            Self::TwoZones(node, zone) => write!(
                f,
                "node {node} is in a zone already, by an earlier aggregate: not in zone '{zone}' as well"
            ),
            Self::LeftOut(node, why) => write!(f, "node {node}: {why}"),
            Self::BadRules(error) => write!(f, "configuration left out: {error}"),
            Self::IllegalTransition(illegal) => illegal.fmt(f),
            Self::Settling(instance) => write!(
                f,
                "START {instance} waits for nodes that are still coming back"
            ),
        }
    }
}
