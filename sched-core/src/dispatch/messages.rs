//! The way in of all that peers send: who may send it, and which workflow deals with it.
//!
//! A command or report passes these checks in order: the role may send it and, for commands, the controller is master;
//! a report is about its sender's own node and instance (`effects::entitlement`); while the disk takes no writes, nothing is
//! taken in that needs one (`full_disk`). What fails a check is counted, logged once for each session and name, and
//! answered where the peer's encoding has an answer.

use std::time::Instant;

use sched_model::{
    CommandFailure, InstanceStateEvent, LifecycleCommand, PhaseName, QueryKind, Topic,
};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice};
use crate::api::command::Command;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::{InstanceState, Unknown};
use crate::api::malformed::Malformed;
use crate::api::parcel::{Parcel, Tag};
use crate::api::report::Report;
use crate::api::sent::{CommandName, ReportName, Sent};
use crate::api::start::PlacedStart;
use crate::cluster::ledger::Remains;
use crate::cluster::node::NodeStatus;
use crate::instance::State;
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
            Command::Array(array) => self.array(id, array, parcel.origin),
            Command::Delete(it) | Command::Stop(it) if self.arrays.has(&it.instance) => {
                self.delete_array(id, &it.instance);
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
                let name = CommandName::AssignPublicIp.into();
                let otherwise = Some(Message::AssignPublicIpFailure(otherwise));
                self.forward_to_concentrator(id, name, parcel, &agent, otherwise);
            }
            Command::ReleasePublicIp { agent, otherwise } => {
                let name = CommandName::ReleasePublicIp.into();
                let otherwise = Some(Message::UnassignPublicIpFailure(otherwise));
                self.forward_to_concentrator(id, name, parcel, &agent, otherwise);
            }
            Command::RefreshCnci { agent } => {
                let name = CommandName::RefreshCnci.into();
                self.forward_to_concentrator(id, name, parcel, &agent, None);
            }
            Command::Configure(new) => self.configure(Some(id), parcel.payload, *new),
            Command::Query(query) if query.what == QueryKind::Ends => {
                self.act(Action::ends(id, query));
            }
            Command::Query(query) => {
                let page = self.look_up(now, &query);
                self.send(id, Message::QueryResult(Box::new(page)));
            }
            Command::Watch(topics) => self.peers.subscribe(id, &topics),
            Command::ReadOutput(read) => self.read_output(now, id, *read, None),
            Command::DeleteOutput(delete) => {
                self.read_output(now, id, delete.as_read(), Some(delete));
            }
            Command::Image(_) => self.act(Action::image(id, parcel)),
            Command::Configuration(_) => self.act(Action::configuration(id, parcel)),
            Command::Reload(reload) => self.act(Action::reload(id, reload)),
            Command::TransferLeadership(transfer) => {
                let session = id;
                self.act(Action::TransferLeadership { session, transfer });
            }
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
                facts,
                told,
            } => {
                let end = KnownEnd::new(now, seq, (exit_code, facts), None);
                self.numbered(id, parcel, &end, *told);
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

    /// CommandFailure from a launcher: dealt with by the workflow of the command.
    fn command_failed(&mut self, id: SessionId, failure: &CommandFailure) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        match failure.command {
            LifecycleCommand::Suspend => self.suspend_failed(key, failure),
            LifecycleCommand::Resume => self.resume_failed(key, failure),
            LifecycleCommand::Migrate => self.move_failed(key, failure),
            LifecycleCommand::Update => self.update_failed(key, failure),
            _ => {}
        }
    }

    /// InstanceState from a launcher: confirms a SUSPEND, RESUME or UPDATE without waiting for the next STATS.
    fn instance_state(&mut self, id: SessionId, event: &InstanceStateEvent) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        let instance = InstanceId::new(&event.instance_uuid);
        let state = match event.state {
            PhaseName::Suspended => InstanceState::ExitPaused,
            PhaseName::Running => InstanceState::Active,
            PhaseName::Updated => return self.update_confirmed(key, &instance),
            _ => return,
        };
        if let Some(State::Placing(_)) = self.instances.state_of(&instance) {
            // It may be said of an earlier run. A STATS confirms the START, and has to bring this as news.
            return;
        }
        self.cluster.ledger_mut(key).hear(&instance, state);
        self.suspension_reported(key, &instance, state == InstanceState::ExitPaused);
    }
}
