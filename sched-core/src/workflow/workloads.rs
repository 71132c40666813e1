//! Commands about what runs already: carried to the node or concentrator they name, or answered if it is not there.

use proto_frames::{Frame, Kind};
use sched_model::{
    AttachVolumeFailure, AttachVolumeFailureReason, DeleteFailure, DeleteFailureReason,
    RefusalReason, StartFailureReason,
};
use sched_model::{Role, Uuid};

use crate::Scheduler;
use crate::api::action::{Message, Notice, TargetedCommand};
use crate::api::ids::{InstanceId, SessionId, canonical_uuid};
use crate::api::input::{ConfigurationFlags, Fault, Malformed, NewConfiguration, Target};
use crate::api::rules::Rules;
use crate::cluster::questions::Asker;
use crate::peers::configuration::ClusterPayload;
use crate::peers::session::LAUNCHER;
use crate::placement::explain::Explanation;
use crate::workflow::start::Refusal;

impl Scheduler {
    pub(crate) fn delete(&mut self, id: SessionId, frame: Frame, target: Target) {
        if self.settling.len() > 0
            && let Some(start) = self.settling.take_instance(&target.instance)
        {
            self.fail_start(&start, Refusal::Undone);
        }
        self.undo_held(&target.instance);
        self.undo_batch(&target.instance);
        if self.instances.contains(&target.instance) {
            return self.delete_kept(id, frame, &target);
        }
        self.carry_to_holder(id, frame, target, None);
    }

    /// DELETE, and AttachVolume with its volume: for the node the command names.
    pub(crate) fn carry_to_holder(
        &mut self,
        id: SessionId,
        frame: Frame,
        target: Target,
        volume: Option<Box<str>>,
    ) {
        let key = canonical_uuid(&target.node).and_then(|uuid| self.cluster.nodes().by_uuid(uuid));
        let session = key.and_then(|key| Some((key, self.cluster.nodes().node(key).session()?)));
        match session {
            Some((key, node)) => {
                if !self.expect_answer(id, frame.kind, &target.instance) {
                    return;
                }
                self.note_question(key, &target.instance, frame.kind, Asker::Peer);
                if volume.is_none() {
                    self.cluster.ledger_mut(key).stop_sent(&target.instance);
                }
                let command = TargetedCommand {
                    sender: id,
                    target,
                    is_readdressed: false,
                    volume,
                    frame,
                };
                self.send(node, Message::Targeted(Box::new(command)));
            }
            None => self.no_such_instance(id, frame.kind, &target, volume),
        }
    }

    /// Notes that an operator is to hear how its command ends; controllers hear of everything. Whether it is: if it waits
    /// for too many, its command is refused.
    pub(crate) fn expect_answer(
        &mut self,
        id: SessionId,
        kind: Kind,
        instance: &InstanceId,
    ) -> bool {
        match self.peers.expect_answer(id, kind, instance) {
            Ok(()) => true,
            Err(count) => {
                let detail =
                    format!("{count} commands wait for their answers, which is as many as may");
                self.refuse(id, kind, RefusalReason::TooMany, detail, Some(instance));
                false
            }
        }
    }

    /// Answers a command whose node is not there.
    pub(crate) fn no_such_instance(
        &mut self,
        id: SessionId,
        kind: Kind,
        target: &Target,
        volume: Option<Box<str>>,
    ) {
        self.notice(Notice::NoSuchPeer(kind, target.node.clone()));
        self.peers.take_asker(kind, target.instance.clone());
        let (node_uuid, instance_uuid) = (target.node.to_string(), target.instance.to_string());
        let message = match volume {
            Some(volume) => Message::AttachVolumeFailure(AttachVolumeFailure {
                node_uuid,
                instance_uuid,
                volume_uuid: volume.into(),
                reason: AttachVolumeFailureReason::NoInstance,
            }),
            None => {
                let reason = DeleteFailureReason::NoInstance;
                Message::DeleteFailure(DeleteFailure {
                    node_uuid,
                    instance_uuid,
                    reason,
                })
            }
        };
        self.send(id, message);
    }

    /// EVACUATE and Restore: for the node the command names.
    pub(crate) fn carry_to_node(&mut self, id: SessionId, frame: Frame, node: &str) {
        let session = canonical_uuid(node)
            .and_then(|uuid| self.cluster.nodes().by_uuid(uuid))
            .and_then(|key| self.cluster.nodes().node(key).session());
        match session {
            Some(node) => self.send(node, Message::Forward(frame)),
            None => {
                self.notice(Notice::NoSuchPeer(frame.kind, node.into()));
                let detail =
                    format!("no node '{node}' is connected; 'ciaoctl nodes' lists those that are");
                self.refuse(id, frame.kind, RefusalReason::NoSuchNode, detail, None);
            }
        }
    }

    /// Public address commands, RefreshCNCI, and launchers' tenant events: for the concentrator's agent they name.
    pub(crate) fn carry_to_concentrator(
        &mut self,
        id: SessionId,
        frame: Frame,
        agent: &str,
        otherwise: Option<Box<Message>>,
    ) {
        let session = canonical_uuid(agent).and_then(|uuid| self.concentrator(uuid));
        match session {
            Some(agent) => self.send(agent, Message::Forward(frame)),
            None => self.no_such_concentrator(id, frame.kind, agent, otherwise),
        }
    }

    /// The session of a concentrator's agent; it may be a launcher as well.
    fn concentrator(&self, uuid: Uuid) -> Option<SessionId> {
        let roles = [Role::CNCIAGENT, Role::CNCIAGENT | LAUNCHER];
        roles
            .iter()
            .filter_map(|&role| self.peers.by_identity(uuid, role))
            .find(|&id| self.peers.session(id).role().contains(Role::CNCIAGENT))
    }

    fn no_such_concentrator(
        &mut self,
        id: SessionId,
        kind: Kind,
        agent: &str,
        otherwise: Option<Box<Message>>,
    ) {
        self.notice(Notice::NoSuchPeer(kind, agent.into()));
        match otherwise {
            Some(failure) => self.send(id, *failure),
            None => {
                let detail = format!("no concentrator agent '{agent}' is connected");
                self.refuse(id, kind, RefusalReason::NoSuchNode, detail, None);
            }
        }
    }

    /// A new cluster configuration: later CONNECTED frames carry it.
    pub(crate) fn configure(&mut self, frame: Frame, new: NewConfiguration) {
        self.peers.set_configuration(ClusterPayload {
            native: frame.payload,
            original: new.original,
        });
        self.apply_configuration(new.flags, new.rules);
    }

    /// Puts new settings into force: how instances are limited, and if given, the rules about nodes and placement.
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

    /// Answers a frame whose payload could not be read, in the words that its kind has for it.
    pub(crate) fn malformed(&mut self, id: SessionId, frame: Frame, malformed: Malformed) {
        self.counters.malformed += 1;
        let kind = frame.kind;
        let uuid = self.peers.session(id).uuid();
        self.notice(Notice::Malformed(uuid, kind, malformed.detail.to_string()));
        let instance_uuid = malformed
            .instance
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        let is_payload = malformed.fault != Fault::Data;
        match kind {
            Kind::START => self.malformed_start(id, malformed),
            Kind::DELETE => {
                let reason = if is_payload {
                    DeleteFailureReason::InvalidPayload
                } else {
                    DeleteFailureReason::InvalidData
                };
                let failure = DeleteFailure {
                    node_uuid: String::new(),
                    instance_uuid,
                    reason,
                };
                self.send(id, Message::DeleteFailure(failure));
            }
            Kind::ATTACH_VOLUME => {
                let reason = if is_payload {
                    AttachVolumeFailureReason::InvalidPayload
                } else {
                    AttachVolumeFailureReason::InvalidData
                };
                let (node_uuid, volume_uuid) = (String::new(), String::new());
                let failure = AttachVolumeFailure {
                    node_uuid,
                    instance_uuid,
                    volume_uuid,
                    reason,
                };
                self.send(id, Message::AttachVolumeFailure(failure));
            }
            Kind::CONFIGURE => self.send(id, Message::InvalidConfiguration(frame.payload)),
            // The original's own word for a frame that is refused alone.
            _ if malformed.fault == Fault::TooLong && !self.peers.is_native(id) => {
                self.send(id, Message::InvalidFrameType);
            }
            // Also what a launcher says of an instance: of which one cannot be told, and so not whether that is its own.
            _ => self.refuse(
                id,
                kind,
                RefusalReason::InvalidPayload,
                malformed.detail.into(),
                malformed.instance.as_ref(),
            ),
        }
    }

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
            Explanation::of(&malformed.detail),
        );
    }
}
