//! What has become of an instance, as a line for people and as an object for programs.
//!
//! Also a few questions about an instance that only printing asks.

use proto_frames::payload::{AttemptFailed, Reason};
use serde_json::{Value, json};

use super::{Stage, Tracked};
use crate::ctl::event::lifecycle::queued;
use crate::ctl::event::text::{attempts, attempts_json, decision};
use crate::ctl::explanation::reasons_json;
use crate::ctl::status::exit_of;
use crate::ctl::units::short;
use crate::printable::Printable;

impl Tracked {
    /// One line for people: `UUID placed on node-a (4cb19522)`.
    ///
    /// The node is named where it is known. A failure names the nodes that were tried before it, without the one that
    /// the failure itself is about: the scheduler lists that one too.
    #[must_use]
    pub fn line(&self) -> Printable {
        Printable::new(format_args!("{} {}", self.instance_uuid, self.what()))
    }

    /// [`Tracked::line`] without the UUID, as it came: not escaped.
    pub(in crate::ctl) fn what(&self) -> String {
        let at = self.node.as_ref().map_or_else(String::new, |(uuid, host)| {
            format!(" on {host} ({})", short(uuid))
        });
        match &self.stage {
            Stage::Sent => match &self.incomplete {
                Some(batch) => format!("sent; {batch}"),
                None => "sent, no answer".to_owned(),
            },
            Stage::Waiting(event) => queued(event),
            Stage::Held { state, detail } if detail.is_empty() => format!("{state}{at}"),
            Stage::Held { state, detail } => format!("{state}{at}: {detail}"),
            Stage::Placed => format!("placed{at}"),
            Stage::Running => format!("running{at}"),
            Stage::Ended { exit_code } => {
                let node = self.node.as_ref().map(|(uuid, _)| uuid.as_str());
                format!("ended{at}: {}", exit_of(*exit_code, node))
            }
            Stage::Failed {
                reason,
                detail,
                attempts: tried,
                ..
            } => {
                let detail = detail.as_ref().map(|detail| format!(": {detail}"));
                let detail = detail.unwrap_or_default();
                // The last may be this failure itself.
                let is_this = |it: &AttemptFailed| {
                    it.reason.as_str() == reason
                        && self
                            .node
                            .as_ref()
                            .is_some_and(|(uuid, _)| *uuid == it.node_uuid)
                };
                let before = match &tried[..] {
                    [before @ .., last] if is_this(last) => before,
                    all => all,
                };
                format!("failed{at}: {reason}{detail}{}", attempts(before))
            }
            Stage::Decided(decided) => decision(decided),
            Stage::Vanished => {
                format!("vanished{at}: the scheduler no longer knows it, how it ended is unknown")
            }
        }
    }

    /// Whether it has ended, or will not begin.
    ///
    /// Such an instance is no longer named when the command is interrupted.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.stage.is_end()
    }

    /// Whether it was refused, or failed to start: it is no instance, and never was one.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.stage, Stage::Failed { .. })
    }

    /// Whether it is no instance that runs or ran, as far as is known: it was refused, or is not known any more.
    ///
    /// `start --quiet` says so of these on standard error, since standard output has UUIDs only.
    #[must_use]
    pub fn was_not_started(&self) -> bool {
        matches!(self.stage, Stage::Failed { .. } | Stage::Vanished)
    }

    /// Why nodes did not fit, if that is why it failed.
    ///
    /// Of a dry run also where it fits in part.
    #[must_use]
    pub fn reasons(&self) -> &[Reason] {
        match &self.stage {
            Stage::Failed { reasons, .. } => reasons,
            Stage::Decided(decision) => &decision.reasons,
            _ => &[],
        }
    }

    /// An object with stable names.
    ///
    /// `outcome` is the stage, or the protocol's word for the state of one that is held, such as `suspended`. Keys are
    /// always there; what is not known is null, except `reasons` and `attempts`, which are lists.
    #[must_use]
    pub fn json(&self) -> Value {
        let (outcome, exit_code, reason, detail) = match &self.stage {
            Stage::Sent => ("sent", None, None, None),
            Stage::Waiting(event) => ("queued", None, None, Some(&event.detail)),
            Stage::Held { state, detail } => (state.as_str(), None, None, Some(detail)),
            Stage::Placed => ("placed", None, None, None),
            Stage::Running => ("running", None, None, None),
            Stage::Ended { exit_code } => ("ended", *exit_code, None, None),
            Stage::Failed { reason, detail, .. } => ("failed", None, Some(reason), detail.as_ref()),
            Stage::Decided(_) => ("decided", None, None, None),
            Stage::Vanished => ("vanished", None, None, None),
        };
        json!({
            "name": self.name,
            "instance_uuid": self.instance_uuid,
            "node_uuid": self.node.as_ref().map(|(uuid, _)| uuid),
            "hostname": self.node.as_ref().map(|(_, hostname)| hostname),
            "outcome": outcome,
            "exit_code": exit_code,
            "reason": reason,
            "detail": detail,
            "reasons": reasons_json(self.reasons()),
            "position": self.position(),
            "attempts": attempts_json(self.attempts()),
        })
    }

    /// Its place in the queue, where it waits and the scheduler has said it.
    ///
    /// 0 means that the scheduler has not said it.
    fn position(&self) -> Option<u64> {
        match &self.stage {
            Stage::Waiting(event) => Some(event.position).filter(|position| *position > 0),
            _ => None,
        }
    }

    /// Empty unless it failed.
    fn attempts(&self) -> &[AttemptFailed] {
        match &self.stage {
            Stage::Failed { attempts, .. } => attempts,
            _ => &[],
        }
    }
}
