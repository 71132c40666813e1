//! What a notice of the core says, in words for the log.
//!
//! The sentences about causes come from [`Why`]; those about events that no peer is told of are here. A notice names
//! identifiers as they came: the caller makes them printable before they are written. The arms are in groups, one
//! function each, for the length of functions alone.

use std::fmt;

use proto_frames::Uuid;

use crate::printable::counted;
use crate::server::sentences::Why;
use crate::server::wire::{PeerAddress, kind_of};
use sched_core::{Cause, MAX_BINDINGS, Notice, PressureNews};

/// A notice as a line for people, without a full stop. What has no arm in a group's function writes nothing: the caller
/// `fmt` hands each group only its own variants.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct NoticeText<'a>(pub(in crate::server) &'a Notice);

impl NoticeText<'_> {
    /// Notices about instances on a node, and their claims.
    fn fmt_about_claims(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // STARTs that were written to it and not confirmed: they wait for it to come back.
            Notice::InDoubt(node, count) => {
                let starts = counted(*count, "START");
                write!(f, "node {node} is lost with {starts} in doubt")
            }
            Notice::Dropped(instance, node) => {
                write!(f, "node {node} no longer lists {instance}: claim dropped")
            }
            // It has been away for too long, or too many claims are remembered.
            Notice::ClaimsForgotten(node, count) => write!(
                f,
                "node {node} has not come back: what {} on it asked for is forgotten",
                counted(*count, "instance")
            ),
            // Said once on each connection of the node.
            Notice::ClaimsUnknown(node, count) => write!(
                f,
                "node {node} lists {} not started by this scheduler, or by one without --state-dir, and its launcher does \
                 not say what was asked for: each counts as what it uses, and as one vcpu while it runs",
                counted(*count, "instance")
            ),
            // A launcher that could not read a START does not say which one.
            Notice::UnmatchedFailure(node) => {
                write!(
                    f,
                    "StartFailure without an instance from node {node} matches no single START: left to STATS"
                )
            }
            _ => Ok(()),
        }
    }
}

/// Notices about a node that is short of memory. `node` is by UUID; its host name is not in the notice.
fn fmt_pressure(node: &Uuid, news: &PressureNews, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match news {
        PressureNews::Begun(why) => write!(f, "node {node} gets no new work: {why}"),
        PressureNews::Over => write!(f, "node {node} is not short of memory any more"),
        PressureNews::Moved(instance) => write!(
            f,
            "instance {instance} is moved away from node {node}, which is short of memory"
        ),
        PressureNews::Stuck => write!(
            f,
            "node {node} is short of memory, and nothing on it can be moved: other nodes have no room, or how to start it \
             again is not known ('ciaoctl explain', 'scheduling.relocate')"
        ),
    }
}

impl NoticeText<'_> {
    /// Notices about nodes that are not connected, or connected twice.
    fn fmt_about_losses(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Notice::NodeLost(node) => write!(
                f,
                "{node} is lost: its connection broke off; it has {}",
                counted(node.instances, "instance")
            ),
            // After `in_doubt_time`: what it had is decided without it.
            Notice::NodeGivenUp(node) => write!(
                f,
                "{node} has not returned: it is given up with {}, and stays listed as LOST until it returns or 'ciaoctl \
                 node forget' removes it",
                counted(node.instances, "instance")
            ),
            // Known before the restart, and not there at the end of the recovery window.
            Notice::NodeNotBack(node) => write!(
                f,
                "{node} has not returned since the scheduler started: it is listed as LOST until it returns or 'ciaoctl \
                 node forget' removes it"
            ),
            // By command, or because too many nodes are listed.
            Notice::NodeForgotten(node) => {
                write!(f, "{node} is forgotten: it is not listed any more")
            }
            Notice::Twins {
                node,
                first,
                newcomer,
            } => write!(
                f,
                "node {node}: two launchers report for it: the one at {}, and a newcomer at {}, which is refused while the \
                 other is connected. Its state directory is a copy, or both were given one --uuid: give it a state \
                 directory of its own",
                PeerAddress(*first),
                PeerAddress(*newcomer)
            ),
            _ => Ok(()),
        }
    }
}

impl NoticeText<'_> {
    /// Notices about frames that were refused, dropped or not carried on.
    fn fmt_about_frames(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            // This and most others here are said once per session and kind, so that a peer cannot fill the log.
            Notice::NotPermitted(uuid, role, sent) => {
                let kind = kind_of(*sent);
                write!(f, "refused {kind} from {uuid}: not for a {role} to send")
            }
            Notice::NotMaster(uuid, sent) => {
                let kind = kind_of(*sent);
                write!(f, "ignored {kind} from {uuid}: a backup controller")
            }
            Notice::UnknownKind(uuid, sent) => write!(
                f,
                "dropped {} from {uuid}: not a frame this scheduler knows",
                kind_of(*sent)
            ),
            Notice::Malformed(uuid, sent, detail) => {
                write!(f, "unusable {} from {uuid}: {detail}", kind_of(*sent))
            }
            // `node` is a text of the peer's.
            Notice::Forged(uuid, sent, node) => {
                let kind = kind_of(*sent);
                write!(f, "refused {kind} from {uuid}: it speaks for node '{node}'")
            }
            Notice::TooLong(uuid, sent, len, max) => write!(
                f,
                "{} from {uuid} has {len} bytes: not carried to native peers, which take {max}",
                kind_of(*sent)
            ),
            Notice::Foreign(node, sent, instance) => write!(
                f,
                "dropped {} from node {node}: it speaks of instance {instance}, which is placed on another node",
                kind_of(*sent)
            ),
            Notice::NoSuchPeer(sent, peer) => {
                write!(
                    f,
                    "{} is for '{peer}', which is not connected",
                    kind_of(*sent)
                )
            }
            _ => Ok(()),
        }
    }
}

/// All notices in one line each. Groups of one subject are written by the methods above.
impl fmt::Display for NoticeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Notice::Connected(uuid, role) => write!(f, "{role} {uuid} connected"),
            Notice::Left(uuid, role) => write!(f, "{role} {uuid} left"),
            Notice::NodeLost(_)
            | Notice::NodeGivenUp(_)
            | Notice::NodeNotBack(_)
            | Notice::NodeForgotten(_)
            | Notice::Twins { .. } => self.fmt_about_losses(f),
            Notice::Master(uuid) => write!(f, "controller {uuid} is master"),
            Notice::NotPermitted(..)
            | Notice::NotMaster(..)
            | Notice::UnknownKind(..)
            | Notice::Malformed(..)
            | Notice::Forged(..)
            | Notice::TooLong(..)
            | Notice::Foreign(..)
            | Notice::NoSuchPeer(..) => self.fmt_about_frames(f),
            Notice::Placed(instance, node) => write!(f, "START {instance} given to node {node}"),
            // A launcher's failure has no cause of the core's; its own detail is shown then.
            Notice::Failed(failure) => {
                let (instance, reason) = (&failure.instance_uuid, &failure.reason);
                write!(f, "START {instance} failed: {reason}: ")?;
                match &failure.detail {
                    Some(said) if failure.cause == Cause::Plain => f.write_str(said),
                    _ => Why(&failure.cause).fmt(f),
                }
            }
            Notice::Restored(count) => write!(
                f,
                "{} taken up from before the restart: nodes' STATS will say how they are",
                counted(*count, "instance")
            ),
            Notice::Disk(silence) => silence.fmt(f),
            // The binding holds while it is connected.
            Notice::NotBound(uuid) => write!(
                f,
                "{uuid} is bound to its certificate, which is not remembered once it has left: {MAX_BINDINGS} others are"
            ),
            Notice::InDoubt(..)
            | Notice::Dropped(..)
            | Notice::ClaimsForgotten(..)
            | Notice::ClaimsUnknown(..)
            | Notice::UnmatchedFailure(_) => self.fmt_about_claims(f),
            Notice::Pressure(node, news) => fmt_pressure(node, news, f),
            // Its STARTs that came are answered with StartFailures.
            Notice::LateBatch(id, came, count) => {
                write!(f, "batch '{id}' given up: {came} of {count} STARTs came")
            }
            Notice::TwoZones(node, zone) => write!(
                f,
                "node {node} is in a zone already, by an earlier aggregate: not in zone '{zone}' as well"
            ),
            // Part of what a node reports does not count; said once on each of its connections.
            Notice::LeftOut(node, why) => write!(f, "node {node}: {why}"),
            Notice::BadRules(error) => write!(f, "configuration left out: {error}"),
            // A defect of the core; the instance stays in the state that it had.
            Notice::IllegalTransition(illegal) => illegal.fmt(f),
            Notice::HeldForRecovery(instance) => write!(
                f,
                "START {instance} waits for nodes that are still coming back"
            ),
        }
    }
}
