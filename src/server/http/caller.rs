//! Who sends commands over HTTP: a session of an operator for each connection that does, from its first command to its end.
//! What the core answers is handed to the requests that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::Mutex;
use proto_frames::payload::LifeCommand;
use proto_frames::{Role, Uuid};
use tokio::sync::mpsc;

use super::limits::MAX_ANSWERS;
use super::problem::Problem;
use crate::net::budget::{Budget, Pace};
use crate::server::hub::{Door, Hub};
use crate::server::wire;
use sched_core::{CommandName, InstanceId, Message, Sent, SessionId};

/// The operator's session of a connection.
#[derive(Debug)]
pub(super) struct Caller {
    hub: Arc<Hub>,
    pub(super) uuid: Uuid,
    pub(super) session: SessionId,
    answers: Arc<Answers>,
}

/// The requests that wait for answers.
#[derive(Debug)]
struct Answers {
    budget: Arc<Budget>,
    open: Mutex<IndexMap<u64, (Subject, mpsc::Sender<Message>)>>,
    last: AtomicU64,
}

/// What a command is about, by which its answers are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) command: CommandName,
    pub(super) instance: Option<InstanceId>,
    pub(super) node: Option<String>,
}

/// One request that waits for answers.
#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    answers: Arc<Answers>,
    received: mpsc::Receiver<Message>,
}

impl Caller {
    /// A new session in this role.
    pub(super) fn new(hub: &Arc<Hub>, role: Role) -> Self {
        let uuid = Uuid::new_v4();
        let answers = Arc::new(Answers {
            budget: Budget::new(hub.limits.controller_budget, Pace::Budget),
            open: Mutex::default(),
            last: AtomicU64::new(0),
        });
        let session = hub.open_door((uuid, role), Arc::clone(&answers) as Arc<dyn Door>);
        Self {
            hub: Arc::clone(hub),
            uuid,
            session,
            answers,
        }
    }

    /// What its commands may take up in queues.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.answers.budget
    }

    /// Listens to answers about this from now on.
    pub(super) fn wait_for(&self, subject: Subject) -> Waiter {
        let number = self.answers.last.fetch_add(1, Ordering::Relaxed);
        let (sender, received) = mpsc::channel(MAX_ANSWERS);
        self.answers.open.lock().insert(number, (subject, sender));
        Waiter {
            number,
            answers: Arc::clone(&self.answers),
            received,
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.hub.close_door(self.session);
    }
}

impl Door for Answers {
    fn take(&self, message: Message) {
        let message = wire::opened(message);
        let open = self.open.lock();
        // Of the same command given twice at once, the earlier is answered first.
        let found = open.values().find(|(subject, _)| subject.is_of(&message));
        if let Some((_, sender)) = found {
            // More than a request keeps is more than it needs.
            let _ = sender.try_send(message);
        }
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        Some(&self.budget)
    }
}

impl Subject {
    /// Whether a message says what became of such a command.
    fn is_of(&self, message: &Message) -> bool {
        let is_instance = |text: &str| {
            let instance = self.instance.as_ref();
            instance.is_some_and(|instance| *instance == InstanceId::new(text))
        };
        match message {
            Message::CommandRefused(refused) => {
                let is_ours = refused.instance.is_none() || refused.instance == self.instance;
                refused.sent == Sent::Command(self.command) && is_ours
            }
            Message::StartFailure(it) | Message::StartFailureCopy(it) => {
                self.command == CommandName::Start && is_instance(&it.instance_uuid)
            }
            Message::PlacementDecision(it) => {
                self.command == CommandName::Start && is_instance(&it.instance_uuid)
            }
            Message::DeleteFailure(it) => {
                self.command == CommandName::Delete && is_instance(&it.instance_uuid)
            }
            Message::CommandFailure(it) => {
                let command = match it.command {
                    LifeCommand::Suspend => CommandName::Suspend,
                    LifeCommand::Resume => CommandName::Resume,
                    LifeCommand::Migrate => CommandName::Migrate,
                    LifeCommand::Update => CommandName::Update,
                    LifeCommand::Drain => {
                        let is_node = self.node.as_deref() == Some(&*it.node_uuid);
                        return self.command == CommandName::Evacuate && is_node;
                    }
                    LifeCommand::Other(_) => return false,
                };
                self.command == command && is_instance(&it.instance_uuid)
            }
            Message::DrainProgress(it) => {
                let is_node = self.node.as_deref() == Some(&*it.node_uuid);
                self.command == CommandName::Evacuate && is_node
            }
            _ => false,
        }
    }
}

impl Waiter {
    /// The next answer that is there already.
    pub(super) fn try_next(&mut self) -> Option<Message> {
        self.received.try_recv().ok()
    }

    /// The next answer.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.received.recv().await
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.answers.open.lock().shift_remove(&self.number);
    }
}

/// The problem that an answer is; `None` if it is none.
pub(super) fn problem_in(message: &Message) -> Option<Problem> {
    Some(match message {
        Message::CommandRefused(refused) => (&**refused).into(),
        Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
            (&failure.payload).into()
        }
        Message::DeleteFailure(failure) => failure.into(),
        Message::CommandFailure(failure) => (&failure.payload).into(),
        _ => return None,
    })
}
