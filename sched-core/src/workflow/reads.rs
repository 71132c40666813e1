//! What workloads wrote is read from their nodes. The node that has an instance, or had it last, is asked for a chunk,
//! and its answer goes to the asker alone.
//!
//! ```text
//!  operator ──ReadOutput──▶ scheduler ──ReadOutput, read: N──▶ launcher
//!           ◀────Output────           ◀────Output, read: N────
//! ```
//!
//! A reader asks for the next chunk once it has the last one. That is all the flow control there is, and nothing here
//! grows with what a workload writes. The reads that are open, and their limits, are in `peers::reads`. What an instance
//! has left is deleted in the same way, by DeleteOutput.

use std::time::Instant;

use sched_model::{DeleteOutput, ReadOutput, Role, Uuid};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::explained::Explained;
use crate::api::ids::{InstanceId, NodeKey, SessionId, canonical_uuid};
use crate::api::input::Capabilities;
use crate::api::parcel::Parcel;
use crate::api::unread::{NamedNode, Unread};
use crate::cluster::node::Node;
use crate::instance::{Run, State};
use crate::peers::reads::READ_TIMEOUT;
use crate::peers::session::Session;
use crate::sight::Sight;

impl Scheduler {
    /// ReadOutput from a controller, operator or viewer, or with `delete` DeleteOutput from a controller or operator: passes
    /// it on to the node's launcher under a number of the scheduler, or answers that there is no output, with the reason:
    /// no such instance, too many reads, node not connected, launcher too old; or nothing to delete, of what is not over.
    pub(crate) fn read_output(
        &mut self,
        now: Instant,
        id: SessionId,
        request: ReadOutput,
        delete: Option<DeleteOutput>,
    ) {
        let to = match &delete {
            Some(delete) => self.sight().node_to_delete_on(delete),
            None => self.sight().node_to_read_for(id, &request),
        };
        let certificate = self.peers.get(id).and_then(Session::certificate);
        let begun = to.and_then(|(key, session)| {
            let reads = self.peers.reads_mut();
            let begun = reads.begin(now, (id, certificate), key, request.clone());
            Ok((begun.map_err(Unread::Busy)?, session))
        });
        match begun {
            Ok((read, session)) => {
                let message = match delete {
                    Some(delete) => Message::DeleteOutput(DeleteOutput { read, ..delete }),
                    None => Message::ReadOutput(Box::new(ReadOutput { read, ..request })),
                };
                self.send(session, message);
            }
            Err(why) => self.fail_read(id, &request, why),
        }
    }

    /// A launcher's answer. It goes to the asker byte for byte. Dropped unless this node was asked under this number
    /// and the asker still waits, so that a launcher cannot send output to anyone who did not ask for it.
    pub(crate) fn output_read(&mut self, id: SessionId, read: u64, parcel: Parcel) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        if let Some(read) = self.peers.reads_mut().answered(read, key) {
            self.send(read.asker, Message::Forward(parcel));
        }
    }

    /// A node's connection has ended: all reads that it was asked for fail.
    pub(crate) fn fail_reads(&mut self, key: NodeKey) {
        for read in self.peers.reads_mut().of_node(key) {
            let why = Unread::ConnectionEnded(self.sight().named(key));
            self.fail_read(read.asker, &read.request, why);
        }
    }

    /// Fails reads whose launchers have not answered within `READ_TIMEOUT`, at most `most` of them.
    pub(crate) fn fail_late_reads(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(read) = self.peers.reads_mut().late(now) else {
                return;
            };
            let why = Unread::NotAnswered(self.sight().named(read.node), READ_TIMEOUT);
            self.fail_read(read.asker, &read.request, why);
        }
    }

    /// Answers a read with a chunk that says why there is none.
    fn fail_read(&mut self, to: SessionId, request: &ReadOutput, why: Unread) {
        let part = request.fail(why.failure(), "");
        let explained = Explained::new(part, why);
        self.send(to, Message::NoOutput(Box::new(explained)));
    }
}

impl Sight<'_> {
    /// The node whose launcher is asked for this, for this peer.
    fn node_to_read_for(
        &self,
        id: SessionId,
        request: &ReadOutput,
    ) -> Result<(NodeKey, SessionId), Unread> {
        let is_file = !request.file.is_empty();
        let may_read_files = |session: &Session| {
            let files = Role::CONTROLLER | Role::OPERATOR;
            session.role().intersects(files)
        };
        if is_file && !self.peers.get(id).is_some_and(may_read_files) {
            return Err(Unread::NotPermitted);
        }
        let needs = match is_file || !request.stream.as_str().is_empty() {
            true => Capabilities::RESULTS,
            false => Capabilities::OUTPUT,
        };
        self.node_to_read(&InstanceId::new(&request.instance_uuid), None, needs)
    }

    /// The node whose launcher is to delete what an instance has left, if that is over.
    fn node_to_delete_on(&self, delete: &DeleteOutput) -> Result<(NodeKey, SessionId), Unread> {
        let instance = InstanceId::new(&delete.instance_uuid);
        if self.is_not_over(&instance) {
            return Err(Unread::NotOver);
        }
        let named = match &*delete.node_uuid {
            "" => None,
            named => {
                let uuid = canonical_uuid(named).unwrap_or_default();
                let key = self.cluster.by_uuid(uuid);
                Some(key.ok_or_else(|| self.away(uuid))?)
            }
        };
        self.node_to_read(&instance, named, Capabilities::RESULTS)
    }

    /// The node whose launcher has the output of an instance, or this one, and its session.
    fn node_to_read(
        &self,
        instance: &InstanceId,
        node: Option<NodeKey>,
        needs: Capabilities,
    ) -> Result<(NodeKey, SessionId), Unread> {
        let key = match node.or_else(|| self.cluster.placement(instance)) {
            Some(key) => key,
            None => self.last_node(instance)?,
        };
        let node = self.cluster.node(key);
        let named = || NamedNode::from(node);
        let Some(session) = node.session() else {
            return Err(Unread::NotConnected(named()));
        };
        if !node.can(Capabilities::OUTPUT) {
            return Err(Unread::NotSupported(named()));
        }
        if !node.can(needs) {
            return Err(Unread::NoResults(named()));
        }
        Ok((key, session))
    }

    /// Whether an instance is on a node, may be, waits, or is to be placed again.
    fn is_not_over(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance)
            || self.cluster.placement(instance).is_some()
            || self.lost_plain(instance).is_some()
            || self.queue.contains(instance)
            || self.pending.has(instance)
    }

    /// The node that keeps the output of the latest run of an instance that is on no node. In this order: the lost node
    /// it is on, the node of the latest run if output of it is listed, else that of the latest output that is, the node of
    /// the latest remembered run.
    fn last_node(&self, instance: &InstanceId) -> Result<NodeKey, Unread> {
        if let Some(State::Lost { node, .. }) = self.instances.state_of(instance) {
            let key = self.cluster.by_uuid(node);
            return key.ok_or_else(|| self.away(node));
        }
        if let Some(lost) = self.lost_plain(instance) {
            return Err(self.away(lost.node));
        }
        let last = self.instances.last_run_of(instance).and_then(Run::node);
        let last = last.filter(|_| !self.instances.contains(instance));
        // That of the outcome, whatever the clocks of nodes say; a run that goes on elsewhere has no outcome yet.
        let known = self.instances.outputs(instance);
        let known = known.max_by_key(|output| (Some(output.node) == last, output.at_ms));
        let last_run = || self.instances.history(instance).filter_map(|(_, run)| run);
        let node = known
            .map(|output| output.node)
            .or_else(|| last_run().filter_map(Run::node).last());
        let Some(uuid) = node else {
            return Err(if self.instances.contains(instance) {
                Unread::Waits
            } else if last_run().next().is_some() {
                Unread::NeverBegan
            } else {
                Unread::NoInstance
            });
        };
        let key = self.cluster.by_uuid(uuid);
        key.ok_or_else(|| self.away(uuid))
    }

    /// Why nothing can be read from a node that is not in the store: it is lost, or not known any more.
    fn away(&self, uuid: Uuid) -> Unread {
        match self.cluster.absent(uuid) {
            Some(node) => Unread::NotConnected(NamedNode {
                uuid,
                hostname: node.hostname.clone(),
            }),
            None => Unread::NodeForgotten(uuid),
        }
    }

    /// A node, for people; `None` if it is not known any more.
    fn named(&self, key: NodeKey) -> Option<NamedNode> {
        let cluster = &self.cluster;
        cluster.contains(key).then(|| cluster.node(key).into())
    }
}

impl From<&Node> for NamedNode {
    fn from(node: &Node) -> Self {
        Self {
            uuid: node.uuid(),
            hostname: node.hostname().into(),
        }
    }
}
