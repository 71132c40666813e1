//! What the core wants done: messages sent, connections ended, records kept, events logged.
//!
//! An [`Action`] is made by a workflow while one input is handled, queued in the `Scheduler`, and taken out by its
//! caller (`src/server/hub.rs`) with `Scheduler::poll_action`. The server turns a [`Message`] into a frame in
//! `src/server/wire/render.rs` and a [`Notice`] into a log line; nothing here knows either form.

use core::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use sched_model::{
    ArrayView, AssignPublicIpFailure, AttachVolumeFailure, CommandFailure, ControllerStatus,
    Delete, DeleteFailure, DeleteOutput, DrainProgress, EndsRecorded, InstanceDeleted,
    InstancePlaced, InstanceQueued, InstanceStateEvent, LeaseRenewed, Migrate, NodeConnected,
    NodeDisconnected, NodePressure, OutputPart, PlacementDecision, Query, QueryResult, ReadOutput,
    Reload, Reloaded, ReportReceived, Resume, Snapshot, StartFailure, Suspend, TransferLeadership,
    UnassignPublicIpFailure, Update,
};
use sched_model::{Role, Uuid};

use crate::api::command::Target;
use crate::api::disk::DiskSilence;
use crate::api::explained::{DrainCauses, Explained, RowCauses};
use crate::api::ids::{InstanceId, SessionId};
use crate::api::known_node::KnownNode;
use crate::api::parcel::Parcel;
use crate::api::phase::IllegalTransition;
use crate::api::pressure::PressureNews;
use crate::api::record::Change;
use crate::api::refused::Refused;
use crate::api::rules::{OfferRules, RuleError};
use crate::api::sent::Sent;
use crate::api::start::PlacedStart;
use crate::api::text::ShortText;
use crate::api::unread::Unread;

/// One thing to do, in the order the core decided them.
#[derive(Debug)]
pub enum Action {
    /// Queue a message for a peer. Everything decided while one input was handled is charged to its sender.
    Send {
        /// For whom.
        to: SessionId,
        /// The message.
        message: Message,
    },
    /// Refuse a peer that asked to be let in, and forget it; it was never a session.
    Refuse {
        /// The session concerned.
        session: SessionId,
        /// The reason, which is logged and decides what the peer is sent.
        why: RefusedConnect,
    },
    /// End a connection at once and hand in [`crate::Input::Disconnected`] with what was still queued for it.
    Disconnect {
        /// The session concerned.
        session: SessionId,
        /// The reason, which is logged and decides what the peer is sent.
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
    /// Have the store of images do what a peer, who may ask for it, sent; the answer is the store's to send.
    Image {
        /// The session that sent the query.
        session: SessionId,
        /// The frame as it was received.
        parcel: Parcel,
    },
    /// Look up ends on record for a peer, who may ask for them; the answer is the server's to send.
    Ends {
        /// The session that sent the query.
        session: SessionId,
        /// The query.
        query: Box<Query>,
    },
    /// Have the versions of the configuration do what a peer, who may ask for it, sent; the answer is theirs to send.
    Configuration {
        /// The session that sent it.
        session: SessionId,
        /// The frame as it was received.
        parcel: Parcel,
    },
    /// A CONFIGURE is in force: its payload is the newest version of the configuration.
    Configured {
        /// The session that sent it.
        session: SessionId,
        /// The payload.
        payload: Bytes,
    },
    /// Read all files again, as a peer asks who may; the answer is the reader's to send.
    Reload {
        /// The session that asks.
        session: SessionId,
        /// How.
        reload: Box<Reload>,
    },
    /// Have another of several schedulers lead, as a peer asks who may; the answer is the daemon's to send.
    TransferLeadership {
        /// The session that asks.
        session: SessionId,
        /// To which.
        transfer: Box<TransferLeadership>,
    },
}

impl Action {
    /// Something for the store of images.
    pub(crate) fn image(session: SessionId, parcel: Parcel) -> Self {
        Self::Image { session, parcel }
    }

    /// A query about ends on record.
    pub(crate) fn ends(session: SessionId, query: Box<Query>) -> Self {
        Self::Ends { session, query }
    }

    /// Reading all files again.
    pub(crate) fn reload(session: SessionId, reload: Box<Reload>) -> Self {
        Self::Reload { session, reload }
    }

    /// Something about the versions of the configuration.
    pub(crate) fn configuration(session: SessionId, parcel: Parcel) -> Self {
        Self::Configuration { session, parcel }
    }
}

/// A message to a peer. The writer task of the peer's connection turns it into bytes, in the peer's encoding.
///
/// A message that was queued and never written comes back in [`crate::Input::Disconnected`]; what becomes of each kind
/// then is decided in `workflow::connections`. Where a variant says "native encoding only", the core never sends it to
/// an original peer, whose decoder would end the connection on it.
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
    /// Anything else that a peer sent, carried on as it came.
    Forward(Parcel),
    /// A STATS, carried on without some of the instances that it lists.
    StatsWithout(Arc<StatsWithout>),
    /// A START failed; for its sender alone.
    /// If the sender leaves before it is written, the failure goes to the other controllers as copies.
    StartFailure(Box<Explained<StartFailure>>),
    /// A START failed; one of the copies for the other controllers and the subscribers. Unlike the one for the sender,
    /// a copy that could not be written is dropped.
    StartFailureCopy(Box<Explained<StartFailure>>),
    /// A DELETE failed.
    DeleteFailure(DeleteFailure),
    /// An AttachVolume failed.
    AttachVolumeFailure(AttachVolumeFailure),
    /// An AssignPublicIP failed.
    AssignPublicIpFailure(Box<AssignPublicIpFailure>),
    /// A ReleasePublicIP failed.
    UnassignPublicIpFailure(Box<UnassignPublicIpFailure>),
    /// What a peer sent was of no known sort: the original's answer, which carries no payload.
    InvalidFrameType,
    /// A CONFIGURE could not be read; carries the payload back to its sender.
    InvalidConfiguration(Bytes),
    /// A node has connected. Original controllers learn a node's roles by adding up these events, so a node with two
    /// roles is announced by two.
    NodeConnected(NodeConnected),
    /// A node's connection has ended. One event for all its roles: original controllers crash on a second one.
    NodeDisconnected(NodeDisconnected),
    /// A controller's role, master or backup: after it has connected and when it is promoted (native encoding only).
    ControllerStatus(ControllerStatus),
    /// A command or report was refused (native peers only).
    CommandRefused(Box<Refused>),
    /// A START was given to a node (native encoding only).
    InstancePlaced(InstancePlaced),
    /// An instance was deleted that was on no node; for one on a node its launcher's report is forwarded instead.
    InstanceDeleted(InstanceDeleted),
    /// An instance has left its node and waits (original controllers only, which know no other word for it).
    InstanceStopped(InstanceId),
    /// A START waits for room (native encoding only).
    InstanceQueued(Box<Explained<InstanceQueued>>),
    /// How far an array is: for who asked for it, and for those who watch instances (native encoding only).
    ArrayState(Box<ArrayView>),
    /// What became of an instance that is managed (native encoding only).
    InstanceState(Box<Explained<InstanceStateEvent>>),
    /// How far a drain is (native encoding only).
    DrainProgress(Box<Explained<DrainProgress, DrainCauses>>),
    /// A node is short of memory, or something has happened about that.
    NodePressure(Box<NodePressure>),
    /// What came of reading all files again (native encoding only).
    Reloaded(Box<Reloaded>),
    /// Part of what a controller that becomes master has to know (native encoding only).
    Snapshot(Box<Explained<Snapshot, RowCauses>>),
    /// A command for an instance failed after it was taken in (native encoding only).
    CommandFailure(Box<Explained<CommandFailure>>),
    /// A command that the core itself decided, for a launcher whose capabilities include it (native encoding only). It
    /// moves to a newer connection of the node; with none, it is dropped and its deadline decides.
    LauncherCommand(Box<LauncherCommand>),
    /// Ends that a launcher reported are on record: it need not report them again (native encoding only).
    EndsRecorded(EndsRecorded),
    /// What a launcher is to admit STARTs by (native encoding only).
    OfferRules(Box<OfferRules>),
    /// A launcher's lease is extended; carries the number of the STATS that asked for it (native encoding only).
    LeaseRenewed(LeaseRenewed),
    /// A launcher's STATS has come; carries its number (native encoding only).
    ReportReceived(ReportReceived),
    /// The answer to a dry run (native encoding only).
    PlacementDecision(Box<Explained<PlacementDecision>>),
    /// The answer to a query (native encoding only).
    QueryResult(Box<Explained<QueryResult, RowCauses>>),
    /// A launcher is asked for a chunk of what a workload wrote; sent only to launchers that announced the capability.
    ReadOutput(Box<ReadOutput>),
    /// A launcher is to delete what an instance has left; sent only to launchers that announced the capability.
    DeleteOutput(DeleteOutput),
    /// Why what a workload wrote cannot be read (native encoding only).
    NoOutput(Box<Explained<OutputPart, Unread>>),
}

/// A STATS that lists instances of other nodes. It is forwarded without them: a controller would take the sender for
/// their node.
#[derive(Debug, PartialEq)]
pub struct StatsWithout {
    /// The STATS as it came.
    pub parcel: Parcel,
    /// Indexes, ascending from 0, of the listed instances to be left out.
    pub rows: Vec<u32>,
    /// Whether its text has the plain layout that ciao's encoder writes, in which rows can be cut out of the bytes.
    /// Any other text is decoded and encoded again.
    pub is_plain: bool,
}

/// A command that the core gives a launcher on its own decision. A client's DELETE is not one: it is forwarded as it
/// came ([`TargetedCommand`]).
#[derive(Debug, Clone, PartialEq)]
pub enum LauncherCommand {
    /// Suspend it: by a SUSPEND command, or because it is preempted.
    Suspend(Suspend),
    /// Resume it. Its vcpus are claimed before this is sent.
    Resume(Resume),
    /// Move it to another node with its state. Sent only where both launchers announced the capability.
    Migrate(Migrate),
    /// Change the amounts it has, in place. The larger of both amounts is claimed until the launcher confirms.
    Update(Update),
    /// Stop it and keep nothing running of it, for it to start elsewhere or to end a copy: a DELETE with `stop: true`.
    Stop(Delete),
}

/// A client's DELETE or AttachVolume on its way to a node.
#[derive(Debug, PartialEq)]
pub struct TargetedCommand {
    /// Who sent it.
    pub sender: SessionId,
    /// Instance and node.
    pub target: Target,
    /// Whether the node is another than the payload names: the instance has moved, so the payload is edited before a
    /// launcher reads it.
    pub is_readdressed: bool,
    /// The volume of an AttachVolume; `None` for a DELETE.
    pub volume: Option<Box<str>>,
    /// The same as it came.
    pub parcel: Parcel,
}

/// Why a peer was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RefusedConnect {
    /// It claims no role.
    #[error("claims no role")]
    NoRole,
    /// It claims OPERATOR or VIEWER, roles that original peers do not know, and is one.
    #[error("claims OPERATOR or VIEWER, which only the native encoding has")]
    OriginalOperator,
    /// It claims to be something else beside one that commands nothing.
    #[error("claims VIEWER, which commands nothing, and another role at once")]
    ViewerAndOther,
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
    /// The same peer has connected again.
    #[error("replaced by a newer connection of the same peer")]
    Replaced {
        /// The newer connection.
        by: SessionId,
    },
    /// A launcher has not reported for longer than its lease: what runs under it has been stopped by now, and no one is
    /// there to say so.
    #[error("no report for longer than its lease")]
    Silent,
    /// A launcher's process reports for a node that the process of another launcher reports for, which was there first
    /// and is connected. It is told so.
    #[error("another launcher is connected with its UUID")]
    Twin {
        /// Where that one's connection comes from, if that is known.
        first: Option<SocketAddr>,
    },
}

/// Something for the log, as data. Its sentence is made in `src/server/sentences`; its level follows from
/// [`Notice::is_warning`]. Notices "once per session and name" are limited so that a peer cannot fill the log.
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
    /// A lost node has not returned within [`crate::Config::in_doubt_time`] and is given up: what it had is decided
    /// without it.
    NodeGivenUp(Box<KnownNode>),
    /// A node that was known before the restart of the scheduler has not returned within the recovery window.
    NodeNotBack(Box<KnownNode>),
    /// A node is not listed any more: by command, or because too many are.
    NodeForgotten(Box<KnownNode>),
    /// A controller became master.
    Master(Uuid),
    /// Something was refused because of who sent it; said once per session and name.
    NotPermitted(Uuid, Role, Sent),
    /// A command of a backup was refused; said once per session and name.
    NotMaster(Uuid, Sent),
    /// Something is neither a command nor a report; said once per session and tag.
    UnknownKind(Uuid, Sent),
    /// A payload could not be read.
    Malformed(Uuid, Sent, ShortText),
    /// A report speaks for another node than its sender; said once per session and name.
    Forged(Uuid, Sent, Box<str>),
    /// A report's payload has so many bytes, more than native peers are sent; said once per session and name.
    TooLong(Uuid, Sent, usize, usize),
    /// A node reports on an instance that is placed on another; logged once per session and name.
    Foreign(Uuid, Sent, InstanceId),
    /// Something is for a peer that is not connected.
    NoSuchPeer(Sent, Box<str>),
    /// A START was given to a node.
    Placed(InstanceId, Uuid),
    /// A START failed here.
    Failed(Box<Explained<StartFailure>>),
    /// So many instances were taken up from before the restart.
    Restored(usize),
    /// A peer's certificate is bound to its UUID, which is not remembered because too many are.
    NotBound(Uuid),
    /// So many STARTs had been written to a node and were not confirmed when its connection ended: they wait for it to
    /// come back.
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
    /// A START waits, in the recovery window, for nodes that were there before the restart.
    HeldForRecovery(InstanceId),
    /// A batch was given up because so many of its STARTs are all that came.
    LateBatch(Box<str>, usize, u32),
    /// A node is in two availability zones; the one named here is left out.
    TwoZones(Uuid, Box<str>),
    /// Part of what a node reports does not count, and why; said once on each of its connections.
    LeftOut(Uuid, ShortText),
    /// Rules that do not hold together came with a configuration, and were left out.
    BadRules(RuleError),
    /// A transition of an instance was refused, because its lifecycle does not have it: a defect of the core.
    IllegalTransition(IllegalTransition),
    /// A node is short of memory, or something has happened about that.
    Pressure(Uuid, PressureNews),
    /// The processes of two launchers report for one node: the one that was there first has come back.
    Twins {
        /// The node.
        node: Uuid,
        /// Where the first one is.
        first: Option<SocketAddr>,
        /// Where the newcomer was.
        newcomer: Option<SocketAddr>,
    },
}

impl Notice {
    /// Whether an operator should look at it. What happens in the ordinary course (peers come and go, STARTs are
    /// placed) is listed; everything else is a warning, so that a new variant is one unless it is added to the list.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        if let Self::Pressure(_, news) = self {
            return news.is_warning();
        }
        !matches!(
            self,
            Self::Connected(..)
                | Self::Left(..)
                | Self::NodeForgotten(_)
                | Self::Master(_)
                | Self::Placed(..)
                | Self::HeldForRecovery(_)
                | Self::Restored(_)
                | Self::Disk(DiskSilence::Over)
        )
    }
}
