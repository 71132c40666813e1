//! Commands about what exists already, which the scheduler only forwards: DELETE and AttachVolume to the node they
//! name, EVACUATE and Restore to the node, public addresses to a concentrator's agent; and the cluster configuration.
//! If the receiver is not there, the answer is the failure that its launcher would have sent. Also here: how malformed
//! messages are answered.

use bytes::Bytes;
use sched_model::{
    AttachVolumeFailure, AttachVolumeFailureReason, DeleteFailure, DeleteFailureReason,
    StartFailureReason,
};

use crate::Scheduler;
use crate::api::action::{Action, Message, Notice, TargetedCommand};
use crate::api::cause::Cause;
use crate::api::command::Target;
use crate::api::ids::{InstanceId, SessionId, canonical_uuid};
use crate::api::input::{ConfigurationFlags, NewConfiguration};
use crate::api::malformed::{Fault, Malformed};
use crate::api::parcel::Parcel;
use crate::api::refused::RefusalCause;
use crate::api::rules::Rules;
use crate::api::sent::{CommandName, Sent};
use crate::cluster::ledger::Remains;
use crate::cluster::questions::Asker;
use crate::peers::configuration::ClusterPayload;
use crate::placement::explain::Explanation;
use crate::sight::Sight;

impl Scheduler {
    /// DELETE. What waits somewhere without being managed (in the recovery window, for the disk, in a batch) is
    /// cancelled first: its START fails. Then the managed instance is deleted, or the command goes to the node it
    /// names.
    pub(crate) fn delete(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        target: Target,
        remains: Remains,
    ) {
        self.cancel_pending(&target.instance);
        if let Some(who) = self.sight().who_ends(id, &target.instance) {
            self.instances.note_ended_by(&target.instance, who);
        }
        if let Some(key) = self.cluster.placement(&target.instance) {
            let mut ledger = self.cluster.ledger_mut(key);
            ledger.set_remains(&target.instance, remains);
        }
        if self.instances.contains(&target.instance) {
            return self.delete_managed(id, parcel, &target);
        }
        if self.peers.is_native(id) && self.sight().is_plain_of_lost(&target.instance) {
            let cause = RefusalCause::OnLostNode;
            return self.refuse(
                id,
                CommandName::Delete.into(),
                cause,
                Some(&target.instance),
            );
        }
        self.forward_to_named_node(id, parcel, target, None);
    }

    /// Forwards a DELETE, or with `volume` an AttachVolume, of an instance that is not managed to the node that the
    /// command names.
    pub(crate) fn forward_to_named_node(
        &mut self,
        id: SessionId,
        parcel: Parcel,
        target: Target,
        volume: Option<Box<str>>,
    ) {
        let command = match &volume {
            Some(_) => CommandName::AttachVolume,
            None => CommandName::Delete,
        };
        let key = self.cluster.by_name(&target.node);
        let session = key.and_then(|key| Some((key, self.cluster.session(key)?)));
        match session {
            Some((key, node)) => {
                if !self.expect_answer(id, command, &target.instance) {
                    return;
                }
                self.note_question(key, &target.instance, command, Asker::Peer);
                if volume.is_none() {
                    self.cluster.ledger_mut(key).stop_sent(&target.instance);
                }
                let command = TargetedCommand {
                    sender: id,
                    target,
                    is_readdressed: false,
                    volume,
                    parcel,
                };
                self.send(node, Message::Targeted(Box::new(command)));
            }
            None => self.no_such_instance(id, &target, volume),
        }
    }

    /// EVACUATE and Restore: for the node the command names.
    pub(crate) fn forward_to_node(
        &mut self,
        id: SessionId,
        command: CommandName,
        parcel: Parcel,
        node: &str,
    ) {
        let session = canonical_uuid(node)
            .and_then(|uuid| self.cluster.by_uuid(uuid))
            .and_then(|key| self.cluster.session(key));
        match session {
            Some(node) => self.forward_command(id, command.into(), parcel, node),
            None => {
                self.notice(Notice::NoSuchPeer(command.into(), node.into()));
                let cause = RefusalCause::NodeNotConnected(node.into());
                self.refuse(id, command.into(), cause, None);
            }
        }
    }

    /// Public address commands, RefreshCNCI, and launchers' tenant events: for the concentrator's agent they name.
    pub(crate) fn forward_to_concentrator(
        &mut self,
        id: SessionId,
        sent: Sent,
        parcel: Parcel,
        agent: &str,
        otherwise: Option<Message>,
    ) {
        let session = canonical_uuid(agent).and_then(|uuid| self.peers.concentrator(uuid));
        match session {
            Some(agent) => self.forward_command(id, sent, parcel, agent),
            None => self.no_such_concentrator(id, sent, agent, otherwise),
        }
    }

    /// Forwards a message to one peer. A native peer is not sent a payload that is too long for it: the sender is refused
    /// instead.
    fn forward_command(&mut self, id: SessionId, sent: Sent, parcel: Parcel, to: SessionId) {
        if self.peers.is_too_long_for(to, &parcel) {
            return self.refuse_long(id, sent, &parcel);
        }
        self.send(to, Message::Forward(parcel));
    }

    /// Answers a message for an agent that is not connected: with the failure the wire has for it (`otherwise`), else a
    /// refusal.
    fn no_such_concentrator(
        &mut self,
        id: SessionId,
        sent: Sent,
        agent: &str,
        otherwise: Option<Message>,
    ) {
        self.notice(Notice::NoSuchPeer(sent, agent.into()));
        match otherwise {
            Some(failure) => self.send(id, failure),
            None => {
                let cause = RefusalCause::AgentNotConnected(agent.into());
                self.refuse(id, sent, cause, None);
            }
        }
    }

    /// A new configuration, by CONFIGURE or from the server: peers that connect later get the new payload with their
    /// CONNECT's answer, and what of it concerns the scheduler applies from now on. The server learns of one by CONFIGURE,
    /// which it has not kept.
    pub(crate) fn configure(
        &mut self,
        by: Option<SessionId>,
        payload: Bytes,
        new: NewConfiguration,
    ) {
        if let Some(session) = by {
            let payload = payload.clone();
            self.act(Action::Configured { session, payload });
        }
        self.peers.set_configuration(ClusterPayload {
            native: payload,
            original: new.original,
        });
        self.apply_configuration(new.flags, new.rules);
    }

    /// Applies how instances are limited, and, if the configuration has any, the rules for nodes and placement. Rules
    /// that do not hold together are logged, and the ones before stay.
    fn apply_configuration(&mut self, flags: ConfigurationFlags, rules: Option<Rules>) {
        let (old_flags, old_rules) = self.cluster.configuration();
        let mut new_rules = rules.filter(|rules| rules != old_rules);
        if old_flags == flags && new_rules.is_none() {
            return;
        }
        if let Some(rules) = &new_rules
            && let Err(error) = self.placement.set_rules(&rules.policy)
        {
            self.notice(Notice::BadRules(error));
            new_rules = None;
        }
        self.cluster.configure(flags, new_rules, self.now);
        self.note_changes();
    }

    /// Answers a message that could not be read. Each command has its own failure on the wire; what has none is refused
    /// in the native encoding. Original peers are sent an error frame where a payload was too long, and nothing
    /// otherwise: their protocol has no refusal.
    pub(crate) fn malformed(
        &mut self,
        id: SessionId,
        sent: Sent,
        parcel: Parcel,
        malformed: Malformed,
    ) {
        self.counters.malformed += 1;
        let uuid = self.peers.session(id).uuid();
        self.notice(Notice::Malformed(uuid, sent, malformed.detail.clone()));
        let instance_uuid = malformed
            .instance
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let is_payload = malformed.fault != Fault::Data;
        match sent {
            Sent::Command(CommandName::Start) => self.malformed_start(id, malformed),
            Sent::Command(CommandName::Delete) => {
                let reason = if is_payload {
                    DeleteFailureReason::InvalidPayload
                } else {
                    DeleteFailureReason::InvalidData
                };
                let failure = DeleteFailure {
                    node_uuid: malformed.node.into(),
                    instance_uuid,
                    reason,
                };
                self.send(id, Message::DeleteFailure(failure));
            }
            Sent::Command(CommandName::AttachVolume) => {
                let reason = if is_payload {
                    AttachVolumeFailureReason::InvalidPayload
                } else {
                    AttachVolumeFailureReason::InvalidData
                };
                let failure = AttachVolumeFailure {
                    node_uuid: malformed.node.into(),
                    instance_uuid,
                    // Without it the original's controllers leave the volume as one that is being attached.
                    volume_uuid: malformed.volume.into(),
                    reason,
                };
                self.send(id, Message::AttachVolumeFailure(failure));
            }
            Sent::Command(CommandName::Configure) => {
                self.send(id, Message::InvalidConfiguration(parcel.payload));
            }
            // The original's own word for something that is refused alone.
            _ if malformed.fault == Fault::TooLong && !self.peers.is_native(id) => {
                self.send(id, Message::InvalidFrameType);
            }
            // Also what a launcher says of an instance: of which one cannot be told, and so not whether that is its own.
            _ => {
                let cause = RefusalCause::Malformed(malformed.detail);
                self.refuse(id, sent, cause, malformed.instance.as_ref());
            }
        }
    }

    /// A START that could not be read fails as any START does, with an empty instance if not even that could be read.
    fn malformed_start(&mut self, id: SessionId, malformed: Malformed) {
        let reason = match malformed.fault {
            Fault::Payload | Fault::TooLong => StartFailureReason::InvalidPayload,
            Fault::Data => StartFailureReason::InvalidData,
        };
        let instance = malformed.instance.unwrap_or_else(|| InstanceId::new(""));
        self.answer_start(
            id,
            &instance,
            reason,
            false,
            Explanation::of(Cause::from(&*malformed.detail)),
        );
    }
}

impl Sight<'_> {
    /// Whether a plain instance is listed as lost with its node, so that no one can end it now.
    fn is_plain_of_lost(&self, instance: &InstanceId) -> bool {
        match self.cluster.placement(instance) {
            Some(key) => self.cluster.session(key).is_none(),
            None => self.lost_plain(instance).is_some(),
        }
    }
}
