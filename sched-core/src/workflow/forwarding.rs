//! The way in of all that peers send: who may send it, which workflow deals with it; and the ways out to several peers
//! at once.
//!
//! A command or report passes these checks in order: the role may send it and, for commands, the controller is master;
//! a report is about its sender's own node and instance (`entitlement`); while the disk takes no writes, nothing is
//! taken in that needs one (`full_disk`). What fails a check is counted, logged once for each session and name, and
//! answered where the peer's encoding has an answer.

use std::time::Instant;

use sched_model::Topic;

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::command::Command;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::Unknown;
use crate::api::malformed::Malformed;
use crate::api::parcel::{Parcel, Tag};
use crate::api::refused::{RefusalCause, Refused};
use crate::api::report::Report;
use crate::api::sent::{CommandName, ReportName, Sent};
use crate::api::start::PlacedStart;
use crate::cluster::ledger::Remains;
use crate::cluster::node::NodeStatus;
use crate::peers::permissions::Denied;
use crate::peers::session::Session;
use crate::query::verdict::KnownEnd;

impl Scheduler {
    /// A command. The match below is the list of all commands and the workflows they go to.
    pub(crate) fn command(
        &mut self,
        now: Instant,
        id: SessionId,
        command: Command,
        parcel: Parcel,
    ) {
        let is_refused = !self.peers.is_viewers_question(id, &command)
            && self.refuse_if_not_permitted(id, command.name().into(), command.instance())
            || self.refuse_if_unwritable(id, &command);
        if is_refused {
            return;
        }
        match command {
            Command::Start(request) => {
                let start = PlacedStart {
                    sender: id,
                    request,
                    parcel,
                    changes: None,
                };
                self.start(now, Box::new(start));
            }
            Command::Delete(target) => self.delete(id, parcel, target, Remains::Nothing),
            Command::Stop(target) => self.delete(id, parcel, target, Remains::ForRestart),
            Command::Forget(target) => self.forget_lost(id, &target.instance),
            Command::AttachVolume { target, volume } => {
                self.forward_to_named_node(id, parcel, target, Some(volume))
            }
            Command::Suspend(target) => self.suspend(id, &target),
            Command::Resume(target) => self.resume(id, &target),
            Command::Migrate(migrate) => self.migrate(id, &migrate),
            Command::Update(update) => self.update(id, &update),
            Command::Evacuate(evacuate) => self.evacuate(id, parcel, &evacuate),
            Command::Restore(restore) => self.restore_node(id, parcel, &restore),
            Command::AssignPublicIp { agent, otherwise } => {
                let otherwise = Message::AssignPublicIpFailure(otherwise);
                self.forward_to_concentrator(
                    id,
                    CommandName::AssignPublicIp.into(),
                    parcel,
                    &agent,
                    Some(otherwise),
                );
            }
            Command::ReleasePublicIp { agent, otherwise } => {
                let otherwise = Message::UnassignPublicIpFailure(otherwise);
                self.forward_to_concentrator(
                    id,
                    CommandName::ReleasePublicIp.into(),
                    parcel,
                    &agent,
                    Some(otherwise),
                );
            }
            Command::RefreshCnci { agent } => {
                self.forward_to_concentrator(
                    id,
                    CommandName::RefreshCnci.into(),
                    parcel,
                    &agent,
                    None,
                );
            }
            Command::Configure(new) => self.configure(parcel, *new),
            Command::Query(query) => {
                let page = self.look_up(now, &query);
                self.send(id, Message::QueryResult(Box::new(page)));
            }
            Command::Watch(topics) => self.peers.subscribe(id, &topics),
            Command::ReadOutput(read) => self.read_output(now, id, *read),
            Command::Image(_) => self.act(Action::Image {
                session: id,
                parcel,
            }),
        }
    }

    /// A report. The match below is the list of all reports and the workflows they go to.
    pub(crate) fn report(&mut self, now: Instant, id: SessionId, report: Report, parcel: Parcel) {
        let name = report.name();
        self.doubt_ends_until_read(id, name.into());
        // `None` where a newer connection speaks for its node.
        let node = self.peers.node_of(id);
        let is_refused = self.refuse_if_not_permitted(id, name.into(), None)
            || self.drop_if_out_of_place((id, node), &parcel, (name, &report));
        if is_refused {
            return;
        }
        self.note_long(id, name, &parcel);
        match report {
            Report::Numbered {
                seq,
                exit_code,
                told,
            } => {
                let end = KnownEnd::new(now, seq, exit_code, None);
                self.numbered(id, parcel, end, *told);
            }
            Report::Ready(report) => self.ready(now, id, report),
            Report::Stats(report) => self.stats(now, id, parcel, *report),
            Report::Full => self.status(now, id, NodeStatus::Full),
            Report::Offline => self.status(now, id, NodeStatus::Offline),
            Report::Maintenance => self.status(now, id, NodeStatus::Maintenance),
            Report::CommandFailed(failure) => self.command_failed(id, &failure),
            Report::InstanceState(event) => self.instance_state(id, &event),
            Report::InstanceDeleted(_)
            | Report::InstanceStopped(_)
            | Report::InstanceExited(_)
            | Report::InstanceCutOff(_)
            | Report::StartFailed { .. } => self.take_end((id, node), parcel, report),
            Report::DeleteFailed {
                instance,
                no_instance,
                ..
            } => self.delete_failed(id, parcel, &instance, no_instance),
            Report::AttachVolumeFailed { instance, .. } => {
                self.attach_volume_failed(id, parcel, instance);
            }
            Report::TenantAdded { agent } | Report::TenantRemoved { agent } => {
                self.forward_to_concentrator(id, name.into(), parcel, &agent, None);
            }
            Report::ConcentratorInstanceAdded
            | Report::PublicIpAssigned
            | Report::PublicIpUnassigned => self.broadcast(Topic::Instances, id, parcel),
            Report::AssignPublicIpFailed | Report::UnassignPublicIpFailed => {
                self.broadcast(Topic::Failures, id, parcel);
            }
            Report::KeptRuns(managed) => self.kept_runs(id, *managed),
            Report::Workloads(workloads) => self.workloads(id, workloads),
            Report::TraceReport => self.broadcast(Topic::Stats, id, parcel),
            Report::Output(read) => self.output_read(id, read, parcel),
        }
    }

    /// Until a STATS has been read completely, its sender counts as one that does not number ends.
    fn doubt_ends_until_read(&mut self, id: SessionId, sent: Sent) {
        if sent == Sent::Report(ReportName::Stats) {
            self.peers.set_numbers_ends(id, false);
        }
    }

    /// A command or report that could not be read. Permission is checked first.
    pub(crate) fn unreadable(
        &mut self,
        id: SessionId,
        sent: Sent,
        malformed: Malformed,
        parcel: Parcel,
    ) {
        self.doubt_ends_until_read(id, sent);
        if self.refuse_if_not_permitted(id, sent, malformed.instance.as_ref()) {
            return;
        }
        if let Sent::Report(name) = sent {
            self.note_long(id, name, &parcel);
        }
        self.malformed(id, sent, parcel, malformed);
    }

    /// Something that is neither a command nor a report: counted, and logged once for each session and tag. It does not
    /// end the connection.
    pub(crate) fn unknown(&mut self, id: SessionId, tag: Tag, unknown: Unknown) {
        if self.peers.get(id).is_none() {
            return;
        }
        if unknown == Unknown::Sort {
            self.send(id, Message::InvalidFrameType);
        }
        self.counters.unknown += 1;
        let sent = Sent::Unknown(tag);
        self.notice_once(id, sent, |session| {
            Notice::UnknownKind(session.uuid(), sent)
        });
    }

    /// Refuses what its sender may not send; whether it did. Also `true`, without an answer, where the session has
    /// ended.
    pub(crate) fn refuse_if_not_permitted(
        &mut self,
        id: SessionId,
        sent: Sent,
        instance: Option<&InstanceId>,
    ) -> bool {
        let Some(session) = self.peers.get(id) else {
            return true;
        };
        let Some(denied) = self.peers.denied(id, session, sent) else {
            return false;
        };
        let role = session.role();
        self.notice_once(id, sent, |session| match denied {
            Denied::NotPermitted => Notice::NotPermitted(session.uuid(), session.role(), sent),
            Denied::NotMaster => Notice::NotMaster(session.uuid(), sent),
        });
        self.counters.refused += 1;
        let cause = match denied {
            Denied::NotPermitted => RefusalCause::NotPermitted(role),
            Denied::NotMaster => RefusalCause::Backup,
        };
        self.refuse(id, sent, cause, instance);
        true
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
                // All hear it: nothing for `outcomes` to remember.
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
}
