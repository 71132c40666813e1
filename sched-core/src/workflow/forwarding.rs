//! Every frame's way in: who may send it, what it means, and to whom it is carried.

use std::time::Instant;

use proto_frames::payload::guard;
use proto_frames::{Frame, FrameType, Kind};
use sched_model::Role;
use sched_model::{CommandRefused, RefusalReason, Topic};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice, PlacedStart};
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::Meaning;
use crate::cluster::ledger::Ended;
use crate::peers::permissions;
use crate::peers::session::Session;

/// Why a peer may not send a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denied {
    /// Its type is unknown.
    UnknownType,
    /// Its operand is unknown, or nothing for the scheduler to handle.
    UnknownKind,
    /// It is not for a peer in this role, or of this encoding.
    NotPermitted,
    /// It is for the master alone.
    NotMaster,
}

impl Scheduler {
    pub(crate) fn frame(&mut self, now: Instant, id: SessionId, frame: Frame, meaning: Meaning) {
        if frame.kind == Kind::STATS {
            // Until it has turned out to be one that can be used.
            self.peers.set_numbers_ends(id, false);
        }
        let is_refused = self.refuse_if_not_permitted(id, &frame, &meaning)
            || self.drop_if_out_of_place(id, &frame, &meaning)
            || self.refuse_if_unwritable(id, &frame, &meaning);
        if is_refused {
            return;
        }
        self.note_long(id, &frame);
        match meaning {
            Meaning::Start(request) => self.start(
                now,
                PlacedStart {
                    sender: id,
                    request: *request,
                    frame,
                    changes: None,
                },
            ),
            Meaning::Numbered { seq, told } => self.numbered(now, id, frame, seq, *told),
            Meaning::Ready(report) => self.ready(now, id, report),
            Meaning::Stats(report) => self.stats(now, id, frame, *report),
            Meaning::Status => self.status(now, id, frame.kind),
            Meaning::Delete(target) => self.delete(id, frame, target),
            Meaning::AttachVolume { target, volume } => {
                self.carry_to_holder(id, frame, target, Some(volume))
            }
            Meaning::Suspend(target) => self.suspend(id, &target),
            Meaning::Resume(target) => self.resume(id, &target),
            Meaning::Migrate(migrate) => self.migrate(id, &migrate),
            Meaning::Update(update) => self.update(id, &update),
            Meaning::Evacuate(evacuate) => self.evacuate(id, frame, &evacuate),
            Meaning::Restore(restore) => self.restore_node(id, frame, &restore),
            Meaning::CommandFailed(failure) => self.command_failed(id, &failure),
            Meaning::InstanceState(event) => self.instance_state(id, &event),
            Meaning::Concentrator { agent, otherwise } => {
                self.carry_to_concentrator(id, frame, &agent, otherwise)
            }
            Meaning::Configure(new) => self.configure(frame, *new),
            Meaning::InstanceGone(instance) => {
                self.instance_gone(id, frame, &instance, Ended::Gone)
            }
            Meaning::InstanceCutOff(instance) => {
                self.instance_gone(id, frame, &instance, Ended::CutOff)
            }
            Meaning::StartFailed {
                instance,
                reason,
                detail,
                ..
            } => self.start_failed(id, frame, instance, &reason, &detail),
            Meaning::DeleteFailed {
                instance,
                no_instance,
                ..
            } => self.delete_failed(id, frame, &instance, no_instance),
            Meaning::AttachVolumeFailed { instance, .. } => {
                self.attach_volume_failed(id, frame, instance);
            }
            // Whoever may send a command is not to see it taken for news.
            Meaning::Opaque if frame.kind.ty == FrameType::COMMAND => {
                let detail = format!("{} is not carried out by this scheduler", frame.kind);
                self.refuse(id, frame.kind, RefusalReason::Unsupported, detail, None);
            }
            Meaning::Opaque => self.broadcast(topic_of(frame.kind), id, frame),
            Meaning::Query(query) => self.query(now, id, &query),
            Meaning::Watch(topics) => self.peers.subscribe(id, &topics),
            Meaning::Malformed(malformed) => self.malformed(id, frame, malformed),
        }
    }

    /// Refuses a frame that its sender may not send: it is counted, logged once, and answered where the peer can understand
    /// an answer. Whether it did.
    fn refuse_if_not_permitted(&mut self, id: SessionId, frame: &Frame, meaning: &Meaning) -> bool {
        let kind = frame.kind;
        let Some(session) = self.peers.get(id) else {
            return true;
        };
        let Some(denied) = self.denied(id, session, kind) else {
            return false;
        };
        let role = session.role();
        match denied {
            Denied::UnknownType => {
                self.send(id, Message::InvalidFrameType);
                self.refuse_unknown(id, kind);
            }
            Denied::UnknownKind => self.refuse_unknown(id, kind),
            Denied::NotPermitted => {
                self.notice_once(id, kind, |session| {
                    Notice::NotPermitted(session.uuid(), session.role(), kind)
                });
                self.counters.refused += 1;
                let detail = format!("{kind} is not for a {role} to send");
                let reason = RefusalReason::NotPermitted;
                self.refuse(id, kind, reason, detail, instance_of(meaning));
            }
            Denied::NotMaster => {
                self.notice_once(id, kind, |session| Notice::NotMaster(session.uuid(), kind));
                self.counters.refused += 1;
                let detail = "this controller is backup: commands are the master's".to_owned();
                let reason = RefusalReason::NotMaster;
                self.refuse(id, kind, reason, detail, instance_of(meaning));
            }
        }
        true
    }

    /// Why a peer may not send frames of a kind; `None` if it may.
    fn denied(&self, id: SessionId, session: &Session, kind: Kind) -> Option<Denied> {
        let role = session.role();
        if !kind.ty.is_known() {
            Some(Denied::UnknownType)
        } else if !permissions::is_handled(kind) {
            Some(Denied::UnknownKind)
        } else if kind.is_added() && !session.is_native() || !permissions::may_send(role, kind) {
            Some(Denied::NotPermitted)
        } else if permissions::needs_master(kind)
            && role.contains(Role::CONTROLLER)
            && !self.peers.is_master(id)
        {
            Some(Denied::NotMaster)
        } else {
            None
        }
    }

    fn refuse_unknown(&mut self, id: SessionId, kind: Kind) {
        self.counters.unknown += 1;
        self.notice_once(id, kind, |session| {
            Notice::UnknownKind(session.uuid(), kind)
        });
    }

    /// Tells a native peer that its frame had no effect; original peers have no word for it.
    pub(crate) fn refuse(
        &mut self,
        id: SessionId,
        kind: Kind,
        reason: RefusalReason,
        detail: String,
        instance: Option<&InstanceId>,
    ) {
        if !self.peers.is_native(id) {
            return;
        }
        let refused = CommandRefused {
            ty: kind.ty.0,
            operand: kind.operand,
            name: kind.to_string(),
            reason,
            detail,
            instance_uuid: instance.map(ToString::to_string),
        };
        self.send(id, Message::CommandRefused(refused));
    }

    /// Whether a frame that is carried on is longer than a native peer is sent: its decoder would refuse it, and end the
    /// connection.
    pub(crate) fn is_too_long_for(&self, to: SessionId, frame: &Frame) -> bool {
        frame.payload.len() > max_carried(frame.kind) && self.peers.is_native(to)
    }

    /// Says that a launcher's frame is too long for some of those whom it concerns. What it means counts all the same.
    fn note_long(&mut self, id: SessionId, frame: &Frame) {
        let (kind, len, max) = (frame.kind, frame.payload.len(), max_carried(frame.kind));
        let is_carried = kind.ty != FrameType::COMMAND && len > max;
        if !is_carried {
            return;
        }
        let detail = format!("{len} bytes: peers of the native encoding are sent at most {max}");
        self.refuse(id, kind, RefusalReason::TooLong, detail, None);
        self.notice_once(id, kind, |session| {
            Notice::TooLong(session.uuid(), kind, len, max)
        });
    }

    /// Carries a frame to the original controllers: others are told of the same in other words.
    pub(crate) fn carry_to_originals(&mut self, from: SessionId, frame: Frame) {
        let mut originals = self.peers.controllers_to_tell(Some(from));
        while let Some((to, session)) = originals.next(&self.peers) {
            if !session.is_native() {
                self.send(to, Message::Forward(frame.clone()));
            }
        }
    }

    /// Carries a frame to all controllers but its sender, and to operators that watch its topic; one of an added kind
    /// only to those that can know it.
    pub(crate) fn broadcast(&mut self, topic: Topic, from: SessionId, frame: Frame) {
        self.broadcast_as(topic, from, |session| {
            let is_known = !frame.kind.is_added() || session.is_native();
            is_known.then(|| Message::Forward(frame.clone()))
        });
    }

    /// Tells the same peers in words fit for each.
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

    /// Tells all controllers, and operators that watch the topic, something in words fit for each.
    pub(crate) fn tell_controllers(
        &mut self,
        topic: Topic,
        message: impl Fn(&Session) -> Option<Message>,
    ) {
        let mut controllers = self.peers.controllers_to_tell(None);
        while let Some((to, session)) = controllers.next(&self.peers) {
            if let Some(message) = message(session) {
                // All hear it: nothing for `outcomes` to remember.
                self.act(Action::Send { to, message });
            }
        }
        self.tell_watchers(topic, None, message);
    }

    /// Tells operators that watch the topic, and do not hear of it as controllers.
    pub(crate) fn tell_watchers(
        &mut self,
        topic: Topic,
        except: Option<SessionId>,
        message: impl Fn(&Session) -> Option<Message>,
    ) {
        let mut subscribers = self.peers.subscribers_to_tell(&topic, except);
        while let Some((to, session)) = subscribers.next(&self.peers) {
            if let Some(message) = message(session) {
                self.send(to, message);
            }
        }
    }
}

/// Bytes of the payload of a frame that is carried to native peers: what they read of one of its kind at most. Original
/// peers are sent what is longer as well.
fn max_carried(kind: Kind) -> usize {
    match kind {
        Kind::STATS | Kind::TRACE_REPORT => guard::LARGE.max_len,
        _ => guard::SMALL.max_len,
    }
}

/// What operators call the frames that are only carried on.
fn topic_of(kind: Kind) -> Topic {
    match kind {
        Kind::ASSIGN_PUBLIC_IP_FAILURE
        | Kind::UNASSIGN_PUBLIC_IP_FAILURE
        | Kind::COMMAND_FAILURE => Topic::Failures,
        Kind::TRACE_REPORT => Topic::Stats,
        _ => Topic::Instances,
    }
}

fn instance_of(meaning: &Meaning) -> Option<&InstanceId> {
    match meaning {
        Meaning::Start(request) => Some(&request.instance),
        Meaning::Delete(target)
        | Meaning::Suspend(target)
        | Meaning::Resume(target)
        | Meaning::AttachVolume { target, .. } => Some(&target.instance),
        Meaning::Malformed(malformed) => malformed.instance.as_ref(),
        _ => None,
    }
}
