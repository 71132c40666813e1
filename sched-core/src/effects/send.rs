//! Messages to sessions: one, all controllers, all that subscribe to a topic; refusals; and outcomes of commands. The
//! outcome of a command is sent to its sender; if that has left, to all controllers. What was sent to the master alone is
//! remembered for its successor (`peers::outcomes`).

use sched_model::Topic;

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::ids::{InstanceId, SessionId};
use crate::api::parcel::Parcel;
use crate::api::refused::{RefusalCause, Refused};
use crate::api::sent::{ReportName, Sent};
use crate::api::text::ShortText;
use crate::peers::outcomes;
use crate::peers::session::Session;
use crate::sight::Sight;

impl Scheduler {
    /// Sends a peer how its command ended; if it has left, all controllers whose protocol has the frame.
    fn send_outcome(&mut self, to: SessionId, message: Message) {
        let Some(session) = self.peers.get(to) else {
            return self.notify_successors(&message);
        };
        if self.peers.is_master(to) {
            let master = Some(session.uuid());
            self.peers.note_sent(self.now, master, &message);
        }
        self.act(Action::Send { to, message });
    }

    /// Sends all controllers an outcome whose asker has left; if there are none, it is remembered for the next one to
    /// connect.
    fn notify_successors(&mut self, message: &Message) {
        if !self.peers.has_controllers() {
            self.peers.note_sent(self.now, None, message);
        }
        self.notify_controllers(Topic::Failures, |session| copy_for(session, message));
    }

    /// Sends a native peer that its message had no effect, and why; original peers have no frame for it.
    pub(crate) fn refuse(
        &mut self,
        id: SessionId,
        sent: Sent,
        cause: RefusalCause,
        instance: Option<&InstanceId>,
    ) {
        if !self.peers.is_native(id) {
            return;
        }
        let refused = Refused {
            sent,
            cause,
            instance: instance.cloned(),
        };
        self.send(id, Message::CommandRefused(Box::new(refused)));
    }

    /// Reports that a payload is too long to be forwarded to native peers. Its content counts all the same. Nothing is
    /// said of STATS, because another follows soon.
    pub(crate) fn note_long(&mut self, id: SessionId, name: ReportName, parcel: &Parcel) {
        if name != ReportName::Stats && parcel.is_too_long_for_natives() {
            self.refuse_long(id, name.into(), parcel);
        }
    }

    /// Refuses a message whose payload is too long to be forwarded to native peers, and logs it the first time.
    pub(crate) fn refuse_long(&mut self, id: SessionId, sent: Sent, parcel: &Parcel) {
        let (len, max) = (parcel.payload.len(), parcel.native_limit as usize);
        let cause = RefusalCause::TooLong { len, max };
        self.refuse(id, sent, cause, None);
        self.notice_once(id, sent, |session| {
            Notice::TooLong(session.uuid(), sent, len, max)
        });
    }

    /// Sends original controllers something that native ones get in another form.
    pub(crate) fn notify_originals(
        &mut self,
        except: Option<SessionId>,
        message: impl Fn() -> Message,
    ) {
        let mut originals = self.peers.controllers_to_notify(except);
        while let Some((to, session)) = originals.next(&self.peers) {
            if !session.is_native() {
                self.send(to, message());
            }
        }
    }

    /// Forwards a report to all controllers but its sender, and to subscribers of its topic.
    pub(crate) fn broadcast(&mut self, topic: Topic, from: SessionId, parcel: Parcel) {
        self.broadcast_as(topic, from, |_| Some(Message::Forward(parcel.clone())));
    }

    /// The same with a message made for each session; `None` leaves a session out.
    pub(crate) fn broadcast_as(
        &mut self,
        topic: Topic,
        from: SessionId,
        message: impl Fn(&Session) -> Option<Message>,
    ) {
        let mut audience = self.peers.audience(&topic, Some(from));
        while let Some((to, session)) = audience.next(&self.peers) {
            if let Some(message) = message(session) {
                self.send(to, message);
            }
        }
    }

    /// Sends an event to all controllers, and to subscribers of its topic; `message` makes it for each session, and
    /// `None` leaves a session out.
    pub(crate) fn notify_controllers(
        &mut self,
        topic: Topic,
        message: impl Fn(&Session) -> Option<Message>,
    ) {
        let mut controllers = self.peers.controllers_to_notify(None);
        while let Some((to, session)) = controllers.next(&self.peers) {
            if let Some(message) = message(session) {
                // All hear it: nothing for `peers::outcomes` to remember.
                self.act(Action::Send { to, message });
            }
        }
        self.notify_subscribers(topic, None, message);
    }

    /// Sends an event to subscribers of its topic that are not sent it as controllers, but not to `except`.
    pub(crate) fn notify_subscribers(
        &mut self,
        topic: Topic,
        except: Option<SessionId>,
        message: impl Fn(&Session) -> Option<Message>,
    ) {
        let mut subscribers = self.peers.subscribers_to_notify(&topic, except);
        while let Some((to, session)) = subscribers.next(&self.peers) {
            if let Some(message) = message(session) {
                self.send(to, message);
            }
        }
    }

    /// Queues a message for a session. Outcomes of commands take the way of [`Scheduler::send_outcome`], which finds
    /// another receiver if the session has ended; a forwarded frame that is longer than a native peer's decoder takes
    /// is dropped, because it would end the connection.
    pub(crate) fn send(&mut self, to: SessionId, message: Message) {
        if outcomes::is_outcome(&message) {
            return self.send_outcome(to, message);
        }
        if let Message::Forward(parcel) = &message
            && self.peers.is_too_long_for(to, parcel)
        {
            return;
        }
        self.actions.push_back(Action::Send { to, message });
    }

    /// Queues an action as it is.
    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Queues something for the log.
    pub(crate) fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    /// Logs something refused, the first time for each session and name of a message: a peer that repeats it fills no
    /// log.
    pub(crate) fn notice_once(
        &mut self,
        session: SessionId,
        sent: Sent,
        notice: impl FnOnce(&Session) -> Notice,
    ) {
        if let Some(session) = self.peers.first_refusal(session, sent) {
            let notice = notice(session);
            self.notice(notice);
        }
    }
}

impl Sight<'_> {
    /// Who asks for the end of an instance, in words for its record, if it is placed or managed.
    pub(crate) fn who_ends(&self, id: SessionId, instance: &InstanceId) -> Option<ShortText> {
        let is_there =
            self.cluster.placement(instance).is_some() || self.instances.contains(instance);
        let session = self.peers.get(id).filter(|_| is_there)?;
        Some(session.who())
    }

    /// Whether an instance is placed or managed.
    pub(crate) fn is_there(&self, instance: &str) -> bool {
        let instance = InstanceId::new(instance);
        self.cluster.placement(&instance).is_some() || self.instances.contains(&instance)
    }
}

/// An outcome in a frame that a controller knows; `None` where its protocol has none.
fn copy_for(session: &Session, message: &Message) -> Option<Message> {
    match message {
        Message::DeleteFailure(failure) => Some(Message::DeleteFailure(failure.clone())),
        Message::AttachVolumeFailure(failure) => {
            Some(Message::AttachVolumeFailure(failure.clone()))
        }
        Message::CommandFailure(failure) if session.is_native() => {
            Some(Message::CommandFailure(failure.clone()))
        }
        Message::InstanceQueued(event) if session.is_native() => {
            Some(Message::InstanceQueued(event.clone()))
        }
        _ => None,
    }
}
