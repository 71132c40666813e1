//! The sessions in which HTTP connections give commands, and the way of the core's answers to the requests that wait
//! for them.
//!
//! The core answers a session, not a request: an answer has the command's name and the instance or node that it is
//! about, and no request number. So each request registers a [`Subject`] before it hands its command in
//! ([`Caller::wait_for`]), and each message for the session goes to the first request whose subject it fits:
//!
//! ```text
//! handler ── wait_for(subject) ──▶ Waiter ◀── channel ── Answers ◀── Door::take ── core (its lock held)
//!         └─ Hub::handle(command) ─────────────────────────────────────────────────▲
//! ```
//!
//! What the core refuses it answers before `Hub::handle` returns, so that the refusal is in the channel by then. For as
//! long as a request hands in its command ([`Caller::hand_in`]), what is said about its subject is for that request,
//! whatever other requests wait for the same.
//!
//! A connection has one session, from its first command to its end; HTTP/2 may have many requests in it at once.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use indexmap::IndexMap;
use parking_lot::Mutex;
use proto_frames::payload::LifecycleCommand;
use proto_frames::{Role, Uuid};
use tokio::sync::mpsc;

use super::limits::MAX_ANSWERS;
use super::problem::Problem;
use crate::net::budget::{Budget, Pace};
use crate::net::identity::PeerIdentity;
use crate::server::hub::{Door, Hub};
use crate::server::wire;
use sched_core::{CommandName, Input, InstanceId, Message, Sent, SessionId};

thread_local! {
    /// The number of the request whose command this thread hands to the core: the core answers on the thread that gives
    /// it the command, under its lock.
    static HANDING_IN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The number of the latest request of any connection.
static LAST: AtomicU64 = AtomicU64::new(0);

/// A connection's session of the core. Dropped with the connection, which closes the session.
#[derive(Debug)]
pub(super) struct Caller {
    hub: Arc<Hub>,
    /// The name of the session to the core and in the log. Random: HTTP has no CONNECT frame in which a client names
    /// itself.
    pub(super) uuid: Uuid,
    /// To be given with each command.
    pub(super) session: SessionId,
    /// Shared with the hub, which hands it the core's messages, and with each [`Waiter`].
    answers: Arc<Answers>,
}

/// The end of the session at which the core's messages arrive.
#[derive(Debug)]
struct Answers {
    /// Of the client's certificate.
    subject: String,
    /// Bytes of this session's commands that are queued for launchers and other peers.
    budget: Arc<Budget>,
    /// The requests that wait, by a number that ascends, so that iteration begins with the one that came first. Locked
    /// under the core's lock by [`Door::take`]; never held while the core's is taken.
    open: Mutex<IndexMap<u64, (Subject, mpsc::Sender<Message>)>>,
}

/// What a command is about, by which its answers are known. Exactly one of `instance` and `node` is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Subject {
    pub(super) command: CommandName,
    /// For commands on an instance and for STARTs.
    pub(super) instance: Option<InstanceId>,
    /// For commands on a node: its UUID as text, as messages of the core have it.
    pub(super) node: Option<String>,
}

/// One request that waits for answers. Dropping it ends that: later answers about its subject are discarded, or go to a
/// later request about the same.
#[derive(Debug)]
pub(super) struct Waiter {
    number: u64,
    answers: Arc<Answers>,
    /// At most [`MAX_ANSWERS`] messages that were not read yet.
    received: mpsc::Receiver<Message>,
}

impl Caller {
    /// Opens a session in this role, under a random UUID, of a client with this certificate. The core knows of it when this returns. Called by
    /// `Connection::caller`, which has derived the role from the certificate.
    pub(super) fn new(hub: &Arc<Hub>, role: Role, identity: &PeerIdentity) -> Self {
        let uuid = Uuid::new_v4();
        let answers = Arc::new(Answers {
            subject: identity.subject.clone(),
            budget: Budget::new(hub.limits.controller_budget, Pace::Budget),
            open: Mutex::default(),
        });
        let door = Arc::clone(&answers) as Arc<dyn Door>;
        let session = hub.open_door((uuid, role), Some(identity.fingerprint), door);
        Self {
            hub: Arc::clone(hub),
            uuid,
            session,
            answers,
        }
    }

    /// How much of its commands may be queued at once (`--controller-budget`). Given to [`Hub::handle`] with each
    /// command, and waited for before the next.
    pub(super) fn budget(&self) -> &Arc<Budget> {
        &self.answers.budget
    }

    /// Hands in the command of a request that waits for its answers. Blocks as [`Hub::handle`] does.
    pub(super) fn hand_in(&self, input: Input, waiter: &Waiter) {
        let before = HANDING_IN.replace(Some(waiter.number));
        self.hub.handle([input], Some(self.budget()));
        HANDING_IN.set(before);
    }

    /// Begins to collect answers about this. To be called before the command is handed in: what the core says earlier
    /// is lost.
    pub(super) fn wait_for(&self, subject: Subject) -> Waiter {
        let number = LAST.fetch_add(1, Ordering::Relaxed);
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
    /// Hands a message to the first request that it answers; without one it is discarded. Called under the core's lock,
    /// so it only moves the message into a channel and never waits: what does not fit into the channel is discarded,
    /// because a request needs the first failure or the latest progress and not all of it.
    fn take(&self, message: Message) {
        // A failure that a launcher reported comes as a forwarded frame; this reads it as the core's own message of the
        // same kind.
        let message = wire::opened(message);
        let open = self.open.lock();
        // What is said while a command is handed in is said of that one. Of two requests that wait with the same command
        // on the same subject, the one that came first gets what is said later.
        let this = HANDING_IN.get().and_then(|number| open.get(&number));
        let mut all = this.into_iter().chain(open.values());
        let found = all.find(|(subject, _)| subject.is_of(&message));
        if let Some((_, sender)) = found {
            // A full channel drops the message, a closed one belongs to a request that has ended meanwhile.
            let _ = sender.try_send(message);
        }
    }

    fn subject(&self) -> &str {
        &self.subject
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        Some(&self.budget)
    }
}

impl Subject {
    /// Whether a message says what became of such a command: that it was refused or has failed, where a START went (dry
    /// runs), or how a drain goes on. A success has no message of its own; requests find it in the instance's row or in
    /// events.
    fn is_of(&self, message: &Message) -> bool {
        let is_instance = |text: &str| {
            let instance = self.instance.as_ref();
            instance.is_some_and(|instance| *instance == InstanceId::new(text))
        };
        match message {
            Message::CommandRefused(refused) => {
                // Refusals of commands on nodes, and of payloads that could not be read, name no instance.
                let is_ours = refused.instance.is_none() || refused.instance == self.instance;
                refused.sent == Sent::Command(self.command) && is_ours
            }
            Message::StartFailure(it) | Message::StartFailureCopy(it) => {
                matches!(self.command, CommandName::Start | CommandName::StartArray)
                    && is_instance(&it.instance_uuid)
            }
            Message::ArrayState(it) => {
                self.command == CommandName::StartArray && is_instance(&it.array_uuid)
            }
            Message::PlacementDecision(it) => {
                self.command == CommandName::Start && is_instance(&it.instance_uuid)
            }
            Message::DeleteFailure(it) => {
                self.command == CommandName::Delete && is_instance(&it.instance_uuid)
            }
            Message::CommandFailure(it) => {
                let command = match it.command {
                    LifecycleCommand::Suspend => CommandName::Suspend,
                    LifecycleCommand::Resume => CommandName::Resume,
                    LifecycleCommand::Migrate => CommandName::Migrate,
                    LifecycleCommand::Update => CommandName::Update,
                    // DRAIN is what a failure of EVACUATE with mode `relocate` calls the command; it names the node
                    // instead of an instance.
                    LifecycleCommand::Drain => {
                        let is_node = self.node.as_deref() == Some(&*it.node_uuid);
                        return self.command == CommandName::Evacuate && is_node;
                    }
                    LifecycleCommand::Other(_) => return false,
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
    /// An answer that has arrived already. Used right after [`Hub::handle`], to find a refusal without waiting.
    pub(super) fn try_next(&mut self) -> Option<Message> {
        self.received.try_recv().ok()
    }

    /// Waits for an answer, without a deadline: callers add their own.
    pub(super) async fn next(&mut self) -> Option<Message> {
        self.received.recv().await
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.answers.open.lock().shift_remove(&self.number);
    }
}

/// The problem document for a message that says that a command was refused or has failed; `None` for any other.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proto_frames::payload::{DeleteFailure, DeleteFailureReason};

    #[test]
    fn the_refusal_of_a_command_goes_to_the_request_that_gave_it() {
        let answers = Arc::new(Answers {
            subject: String::new(),
            budget: Budget::new(1024, Pace::Budget),
            open: Mutex::default(),
        });
        let waiter = || {
            let number = LAST.fetch_add(1, Ordering::Relaxed);
            let (sender, received) = mpsc::channel(MAX_ANSWERS);
            let subject = Subject {
                command: CommandName::Delete,
                instance: Some(InstanceId::new("a")),
                node: None,
            };
            answers.open.lock().insert(number, (subject, sender));
            Waiter {
                number,
                answers: Arc::clone(&answers),
                received,
            }
        };
        let refusal = || {
            Message::DeleteFailure(DeleteFailure {
                node_uuid: String::new(),
                instance_uuid: "a".into(),
                reason: DeleteFailureReason::NoInstance,
            })
        };
        let (mut first, mut second) = (waiter(), waiter());
        HANDING_IN.set(Some(second.number));
        answers.take(refusal());
        HANDING_IN.set(None);
        assert!(first.try_next().is_none());
        assert!(second.try_next().is_some());
        // What is said later is for the one that came first.
        answers.take(refusal());
        assert!(first.try_next().is_some());
        assert!(second.try_next().is_none());
    }
}
