//! Ends that the scheduler must hear of: InstanceStopped and InstanceDeleted, at least once each, also when they happen
//! while there is no connection.
//!
//! Nothing in the protocol is acknowledged, and bytes written to a socket prove nothing. A notice therefore counts as
//! heard when the connection it was sent on has lived for one more report interval; a connection that ends earlier has
//! it sent again on the next. Until then it is part of the instance's record, which bounds what is kept.

use std::time::{Duration, Instant};

use proto_frames::payload::{InstanceDeleted, InstanceStopped};

use super::instances::{Instance, State};
use super::{Agent, Link, Message, Outcome};

/// Whether the scheduler knows of an instance's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Notice {
    /// There is nothing it does not know.
    None,
    /// To be sent.
    Due,
    /// Sent on the present connection, then.
    Sent(Instant),
}

impl Notice {
    /// When a notice that was sent counts as heard.
    pub(super) fn heard_at(self, settle: Duration) -> Option<Instant> {
        match self {
            Self::Sent(at) => Some(at + settle),
            Self::None | Self::Due => None,
        }
    }
}

impl Agent {
    /// Sends what is due; called with a connection or without.
    pub(super) fn give_notice(&mut self, now: Instant, id: &str) {
        if matches!(self.link, Link::Down) {
            return;
        }
        let Some(instance) = self
            .instances
            .get_mut(id)
            .filter(|instance| instance.notice == Notice::Due)
        else {
            return;
        };
        if let Some(message) = message(id, instance) {
            instance.notice = Notice::Sent(now);
            self.send(message);
        }
    }

    /// Sends everything that is due, on a new connection.
    pub(super) fn give_all_notices(&mut self, now: Instant) {
        for id in self.ids(|instance| instance.notice == Notice::Due) {
            self.give_notice(now, &id);
        }
    }

    /// The connection is over: what was sent too late on it is due again.
    pub(super) fn lose_notices(&mut self) {
        for instance in self.instances.values_mut() {
            if let Notice::Sent(_) = instance.notice {
                instance.notice = Notice::Due;
            }
        }
    }

    /// Lets go of what counts as heard.
    pub(super) fn settle_notices(&mut self, now: Instant) {
        let settle = self.settings.report_interval;
        let heard =
            |instance: &Instance| instance.notice.heard_at(settle).is_some_and(|at| at <= now);
        let heard = self.ids(heard);
        if heard.is_empty() {
            return;
        }
        for id in heard {
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            instance.notice = Notice::None;
            if let State::Gone { .. } = instance.state {
                self.forget(&id);
            } else {
                self.persist(&id);
            }
        }
        self.limit_exited();
    }

    /// The ids of the instances that match, in order.
    pub(super) fn ids(&self, matches: impl Fn(&Instance) -> bool) -> Vec<String> {
        let matching = self
            .instances
            .iter()
            .filter(|(_, instance)| matches(instance));
        matching.map(|(id, _)| id.clone()).collect()
    }
}

/// What tells of the instance's end.
fn message(id: &str, instance: &Instance) -> Option<Message> {
    let instance_uuid = id.to_owned();
    match &instance.state {
        State::Exited { code, .. }
        | State::Gone {
            outcome: Outcome::Stopped,
            code,
        } => Some(Message::InstanceStopped(InstanceStopped {
            instance_uuid,
            exit_code: code.map(i64::from),
            cut_off: false,
        })),
        State::Gone {
            outcome: Outcome::CutOff,
            code,
        } => Some(Message::InstanceStopped(InstanceStopped {
            instance_uuid,
            exit_code: code.map(i64::from),
            cut_off: true,
        })),
        State::Gone {
            outcome: Outcome::Deleted,
            code,
        } => Some(Message::InstanceDeleted(InstanceDeleted {
            instance_uuid,
            exit_code: code.map(i64::from),
        })),
        State::Starting
        | State::Running
        | State::Suspending
        | State::Suspended
        | State::Resuming
        | State::Stopping { .. } => None,
    }
}
