//! How far a command on an instance's lifecycle is: a small state machine over events and listings, without IO.
//!
//! A command is over when the instance is as it was to be, when the scheduler or the launcher says that it failed, or
//! when the instance is gone. Looks at the scheduler's list stand in for events that never come.
//!
//! `suspend`, `resume`, `migrate` and `update` drive an [`Operation`], one for each command, see
//! [`crate::ctl::commands::lifecycle`]. When each is done:
//!
//! | command | done when the instance |
//! | --- | --- |
//! | suspend | is suspended |
//! | resume | runs |
//! | migrate | runs on another node than before |
//! | update | is reported as updated, or runs on another node |
//! | migrate or update of one in the queue | waits, is being placed or runs |

use proto_frames::payload::{
    CommandFailure, CommandFailureReason, InstanceQueued, InstanceStateEvent, InstanceView,
    LifecycleCommand, PhaseName, PlacementState,
};
use proto_frames::{FrameType, Kind};
use serde_json::{Value, json};

use crate::ctl::event::lifecycle::{because, queued};
use crate::ctl::event::{Event, refused_kind};
use crate::ctl::exit::Exit;
use crate::ctl::units::short;
use crate::printable::Printable;

/// A node as a line names it.
///
/// In a command this is written as [`NodeRef`] displays it: `node-a (4cb19522)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeRef {
    /// Its UUID; empty for none.
    pub node_uuid: String,
    /// Its host name; empty where it is not known.
    pub hostname: String,
}

/// A command on one instance, and how far it is.
///
/// Made before the command is sent, with the instance as the scheduler listed it.
#[derive(Debug, Clone)]
pub struct Operation {
    /// One of suspend, resume, migrate and update.
    command: LifecycleCommand,
    /// Events about other instances are ignored.
    instance_uuid: String,
    /// Where the instance was when it began; empty where it waited.
    from: NodeRef,
    /// Where it is to go, if that was said.
    ///
    /// Otherwise the first node that [`Operation::name`] names is kept here: only [`Operation::named`] reads it, for
    /// the host name.
    target: Option<NodeRef>,
    /// [`Operation::observe`] and [`Operation::look`] advance it; [`Operation::name`] only adds names of nodes.
    progress: CommandProgress,
    /// The instance was seen on its way to another node.
    ///
    /// InstanceStopped is then part of the move, and not an end.
    moved_off: bool,
}

/// How far a command is.
///
/// The last two are final.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandProgress {
    /// Sent; no event about it has come.
    ///
    /// The scheduler has taken the command in: it would have refused it before.
    Sent,
    /// Under way.
    UnderWay(LastHeard),
    /// The instance is as it was to be.
    Done(LastHeard),
    /// It is not, and this command will not change that.
    ///
    /// `reason` is a word of the protocol, or one of `ended`, `gone` and `failed`, which are this program's.
    Failed {
        reason: String,
        detail: String,
        exit: Exit,
    },
}

/// The last known state of an instance.
///
/// From an event or a listing, whichever came last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LastHeard {
    /// As the scheduler reports it. What is listed as running has `Running`.
    state: PhaseName,
    /// The node that has it; unknown while it waits.
    node: NodeRef,
    /// The node that it is moving to; unknown unless it moves.
    target: NodeRef,
    /// More about it; of one that waits, where in the queue.
    detail: String,
}

impl Operation {
    /// A command on an instance as the scheduler listed it, with the node it is to go to.
    ///
    /// The caller has resolved both names. Nothing was sent yet.
    #[must_use]
    pub fn new(
        command: LifecycleCommand,
        instance: &InstanceView,
        target: Option<NodeRef>,
    ) -> Self {
        Self {
            command,
            instance_uuid: instance.instance_uuid.clone(),
            from: NodeRef {
                node_uuid: instance.node_uuid.clone(),
                hostname: instance.hostname.clone(),
            },
            target,
            progress: CommandProgress::Sent,
            moved_off: false,
        }
    }

    /// The instance.
    #[must_use]
    pub fn instance_uuid(&self) -> &str {
        &self.instance_uuid
    }

    /// Whether it is over, one way or the other.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(
            self.progress,
            CommandProgress::Done(_) | CommandProgress::Failed { .. }
        )
    }

    /// How the command ends, as far as it is.
    ///
    /// Before the command is over this is [`Exit::Timeout`]: a caller that asks then has given up waiting.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match &self.progress {
            CommandProgress::Sent | CommandProgress::UnderWay(_) => Exit::Timeout,
            CommandProgress::Done(_) => Exit::Done,
            CommandProgress::Failed { exit, .. } => *exit,
        }
    }

    /// The nodes whose host names are not known.
    ///
    /// The caller looks them up and hands each to [`Operation::name`]. At most two; none once the command has failed.
    #[must_use]
    pub fn unnamed(&self) -> Vec<String> {
        let (CommandProgress::UnderWay(transition) | CommandProgress::Done(transition)) =
            &self.progress
        else {
            return Vec::new();
        };
        let places = [&transition.node, &transition.target].into_iter();
        let unnamed = places.filter(|place| place.is_known() && place.hostname.is_empty());
        unnamed.map(|place| place.node_uuid.clone()).collect()
    }

    /// Stores the host name of a node that was looked up.
    ///
    /// Without effect on the line if the command has failed or nothing was heard of it.
    pub fn name(&mut self, node_uuid: &str, hostname: &str) {
        self.target = self.target.take().or_else(|| {
            Some(NodeRef {
                node_uuid: node_uuid.to_owned(),
                hostname: hostname.to_owned(),
            })
        });
        let (CommandProgress::UnderWay(transition) | CommandProgress::Done(transition)) =
            &mut self.progress
        else {
            return;
        };
        for place in [&mut transition.node, &mut transition.target] {
            if place.node_uuid == node_uuid {
                hostname.clone_into(&mut place.hostname);
            }
        }
    }

    /// Takes an event in; whether there is news.
    ///
    /// A refusal counts if it is of this kind of command and names this instance or none. Any other event counts only
    /// if it is about this instance. Once the command is over, events are ignored.
    pub fn observe(&mut self, event: &Event) -> bool {
        if self.is_over() {
            return false;
        }
        if let Event::Refused(refused) = event {
            let named = refused.instance_uuid.as_deref();
            let is_ours = refused_kind(refused) == self.kind()
                && named.is_none_or(|id| id == self.instance_uuid);
            return is_ours && self.fail(refused.reason.as_str(), &refused.detail, Exit::Refused);
        }
        if event.instance_uuid() != Some(&self.instance_uuid) {
            return false;
        }
        match event {
            Event::Transition(transition) => self.transition(transition),
            Event::Queued(event) => self.queued(event),
            Event::CommandFailure(failure) => self.failure(failure),
            // It leaves this node to go on elsewhere.
            Event::InstanceStopped(_) if self.moved_off => false,
            Event::InstanceStopped(_) => self.fail("ended", "it stopped by itself", Exit::Refused),
            Event::InstanceDeleted(_) => self.fail("ended", "it was deleted", Exit::Refused),
            Event::StartFailure(failure) => {
                let detail = failure.detail.as_deref().unwrap_or_default();
                self.fail(failure.reason.as_str(), detail, Exit::Refused)
            }
            _ => false,
        }
    }

    /// Takes in how the scheduler lists the instance, `None` where it does not; whether there is news. Only for looks
    /// that were asked for after the command was.
    ///
    /// Three things can come of it: the instance is gone, it is back on its old node after a failed move, or the
    /// command is done. Anything else in a listing is no news, because events say more.
    pub fn look(&mut self, listed: Option<&InstanceView>) -> bool {
        if self.is_over() {
            return false;
        }
        let Some(view) = listed else {
            if self.from.node_uuid.is_empty() {
                return false; // what waits need not be listed as an instance
            }
            return self.fail("gone", "the scheduler no longer knows it", Exit::Refused);
        };
        let is_plain = view.life.is_empty() && view.state == PlacementState::Running;
        let transition = LastHeard {
            state: match view.life.as_str() {
                "" if is_plain => PhaseName::Running,
                "" => PhaseName::Placing,
                life => life.into(),
            },
            node: NodeRef {
                node_uuid: view.node_uuid.clone(),
                hostname: view.hostname.clone(),
            },
            target: self.named(&view.target_node_uuid),
            detail: String::new(),
        };
        let is_back = transition.state == PhaseName::Running && transition.node == self.from;
        if self.command == LifecycleCommand::Migrate && self.moved_off && is_back {
            let detail = format!("it is back on {}", transition.node);
            return self.fail("failed", &detail, Exit::Refused);
        }
        // An update is claimed before it is carried out, so that a list cannot tell; and of what is under way the list
        // says no more than events did.
        if self.command != LifecycleCommand::Update && self.is_goal(&transition) {
            self.progress = CommandProgress::Done(transition);
            return true;
        }
        false
    }

    /// To recognise refusals, which carry the kind of the command that was refused.
    fn kind(&self) -> Kind {
        let operand = match self.command {
            LifecycleCommand::Suspend => Kind::SUSPEND.operand,
            LifecycleCommand::Resume => Kind::RESUME.operand,
            LifecycleCommand::Update => Kind::UPDATE.operand,
            _ => Kind::MIGRATE.operand,
        };
        Kind::new(FrameType::COMMAND.0, operand)
    }

    /// `Gone` ends it, whatever the command was.
    fn transition(&mut self, event: &InstanceStateEvent) -> bool {
        let transition = LastHeard {
            state: event.state.clone(),
            node: self.named(&event.node_uuid),
            target: self.named(&event.target_node_uuid),
            detail: event.detail.clone(),
        };
        if transition.state == PhaseName::Gone {
            return self.fail("ended", &transition.detail, Exit::Refused);
        }
        self.moved_off |= matches!(
            transition.state,
            PhaseName::Migrating | PhaseName::Stopping | PhaseName::Placing
        );
        self.advance(transition)
    }

    /// For example a migration that found no room: the instance waits for it.
    fn queued(&mut self, event: &InstanceQueued) -> bool {
        self.advance(LastHeard {
            state: PhaseName::Waiting,
            detail: queued(event),
            ..LastHeard::default()
        })
    }

    /// `true` if this differs from what was known, so that it is worth a line.
    fn advance(&mut self, transition: LastHeard) -> bool {
        let next = if self.is_goal(&transition) {
            CommandProgress::Done(transition)
        } else {
            CommandProgress::UnderWay(transition)
        };
        let is_news = self.progress != next;
        self.progress = next;
        is_news
    }

    /// Whether the command is done when its instance is there.
    ///
    /// The table at the head of this file, in code. If the node of a running instance is not said, it counts as
    /// elsewhere once it has been seen leaving.
    fn is_goal(&self, transition: &LastHeard) -> bool {
        let has_waited = self.from.node_uuid.is_empty();
        let runs = matches!(transition.state, PhaseName::Running | PhaseName::Updated);
        let is_elsewhere = match transition.node.node_uuid.as_str() {
            "" => self.moved_off,
            node => node != self.from.node_uuid,
        };
        match self.command {
            LifecycleCommand::Suspend => transition.state == PhaseName::Suspended,
            LifecycleCommand::Resume => runs,
            // What waits is only told where to go, and may go there at once.
            _ if has_waited => {
                runs || matches!(transition.state, PhaseName::Waiting | PhaseName::Placing)
            }
            LifecycleCommand::Update => {
                transition.state == PhaseName::Updated || runs && is_elsewhere
            }
            _ => runs && is_elsewhere,
        }
    }

    /// A failure of another command on the same instance, for example of another operator, is ignored.
    fn failure(&mut self, failure: &CommandFailure) -> bool {
        // An update may move the instance, and fail by that.
        let is_part = self.command == LifecycleCommand::Update
            && matches!(failure.command, LifecycleCommand::Migrate);
        if failure.command != self.command && !is_part {
            return false;
        }
        let exit = match failure.reason {
            CommandFailureReason::NoInstance => Exit::NotFound,
            CommandFailureReason::Timeout => Exit::Timeout,
            _ => Exit::Refused,
        };
        self.fail(failure.reason.as_str(), &failure.detail, exit)
    }

    /// Always news: the command ends with it.
    fn fail(&mut self, reason: &str, detail: &str, exit: Exit) -> bool {
        self.progress = CommandProgress::Failed {
            reason: reason.to_owned(),
            detail: detail.to_owned(),
            exit,
        };
        true
    }

    /// A node with its host name, where that is known from the beginning.
    ///
    /// Only the old node and the target are known from the beginning. Others get their names by [`Operation::name`].
    fn named(&self, node_uuid: &str) -> NodeRef {
        let known = [Some(&self.from), self.target.as_ref()];
        let same = |place: &&NodeRef| place.node_uuid == node_uuid;
        known
            .into_iter()
            .flatten()
            .find(same)
            .cloned()
            .unwrap_or_else(|| NodeRef {
                node_uuid: node_uuid.to_owned(),
                hostname: String::new(),
            })
    }
}

impl Operation {
    /// One line for people: `UUID migrating from node-a (4cb19522) to node-b (beef0000)`.
    ///
    /// Printed whenever something changed, and once more at the end.
    #[must_use]
    pub fn line(&self) -> Printable {
        let what = match &self.progress {
            CommandProgress::Sent => format!("asked to {}", self.command),
            CommandProgress::UnderWay(transition) => transition.text(),
            CommandProgress::Done(transition) if self.command == LifecycleCommand::Migrate => {
                match transition.state {
                    PhaseName::Waiting if transition.target.is_known() => {
                        format!("waits for room on {}", transition.target)
                    }
                    PhaseName::Waiting => transition.text(),
                    _ => format!("moved to {}", transition.node),
                }
            }
            CommandProgress::Done(transition) => transition.text(),
            CommandProgress::Failed { reason, detail, .. } => {
                let not = match self.command {
                    LifecycleCommand::Suspend => "not suspended",
                    LifecycleCommand::Resume => "not resumed",
                    LifecycleCommand::Update => "not updated",
                    _ => "not moved",
                };
                format!("{not}: {reason}{}", because(detail))
            }
        };
        Printable::new(format_args!("{} {what}", self.instance_uuid))
    }

    /// What goes on when it is not waited for any more, and how to undo it.
    ///
    /// For Ctrl-C: the scheduler carries the command out without this program. Commands to copy are in backquotes.
    #[must_use]
    pub fn aftermath(&self) -> String {
        let id = &self.instance_uuid;
        let back = match (&*self.from.hostname, &*self.from.node_uuid) {
            ("", "") => None,
            ("", uuid) => Some(uuid),
            (host, _) => Some(host),
        };
        let undo = match (&self.command, back) {
            (LifecycleCommand::Suspend, _) => format!("`ciaoctl resume {id}` undoes it"),
            (LifecycleCommand::Resume, _) => format!("`ciaoctl suspend {id}` undoes it"),
            (LifecycleCommand::Migrate, Some(host)) => {
                format!("`ciaoctl migrate {id} --to {host}` moves it back once it has moved")
            }
            (LifecycleCommand::Migrate, None) => {
                format!("`ciaoctl delete {id}` takes it from the queue")
            }
            _ => format!("`ciaoctl update {id}` with what it had before undoes it"),
        };
        format!(
            "{} of instance {id} goes on; `ciaoctl history {id}` shows how far it is, {undo}",
            self.command
        )
    }

    /// An object with stable names.
    ///
    /// `outcome` is `sent`, `under_way`, `done` or `failed`. What is not known is null. `reason` is there for a
    /// failure only.
    #[must_use]
    pub fn json(&self) -> Value {
        let none = LastHeard::default();
        let (outcome, transition, reason, detail) = match &self.progress {
            CommandProgress::Sent => ("sent", &none, None, None),
            CommandProgress::UnderWay(transition) => {
                ("under_way", transition, None, Some(&transition.detail))
            }
            CommandProgress::Done(transition) => {
                ("done", transition, None, Some(&transition.detail))
            }
            CommandProgress::Failed { reason, detail, .. } => {
                ("failed", &none, Some(reason), Some(detail))
            }
        };
        let known = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "instance_uuid": self.instance_uuid,
            "command": self.command.as_str(),
            "outcome": outcome,
            "state": known(transition.state.as_str()),
            "node_uuid": known(&transition.node.node_uuid),
            "hostname": known(&transition.node.hostname),
            "reason": reason,
            "detail": detail.and_then(|detail| known(detail)),
        })
    }
}

impl LastHeard {
    /// What waits is described by its place in the queue instead of a node.
    fn text(&self) -> String {
        if self.state == PhaseName::Waiting && !self.detail.is_empty() {
            return self.detail.clone();
        }
        let place = match (self.node.is_known(), self.target.is_known()) {
            (false, false) => String::new(),
            (true, false) => format!(" on {}", self.node),
            (false, true) => format!(" to {}", self.target),
            (true, true) => format!(" from {} to {}", self.node, self.target),
        };
        format!("{}{place}{}", self.state, because(&self.detail))
    }
}

impl NodeRef {
    fn is_known(&self) -> bool {
        !self.node_uuid.is_empty()
    }
}

impl std::fmt::Display for NodeRef {
    /// `node-a (4cb19522)`, or what is known of it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.hostname.as_str(), short(&self.node_uuid)) {
            ("", "") => f.write_str("its node"),
            ("", uuid) => f.write_str(uuid),
            (host, uuid) => write!(f, "{host} ({uuid})"),
        }
    }
}

#[cfg(test)]
mod tests;
