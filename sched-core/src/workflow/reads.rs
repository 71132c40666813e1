//! What workloads wrote is read from their nodes: the node that has an instance, or had it last, is asked for a chunk, and
//! its answer goes to the asker alone. A reader asks for the next chunk once it has the last, which is all the flow control
//! there is: nothing here grows with what a workload writes.

use std::time::Instant;

use sched_model::{OutputFailure, ReadOutput, Uuid};

use crate::Scheduler;
use crate::api::action::Message;
use crate::api::ids::{InstanceId, NodeKey, SessionId};
use crate::api::input::Capabilities;
use crate::api::parcel::Parcel;
use crate::instance::Run;
use crate::peers::reads::{READ_TIMEOUT, Read};

/// Why no launcher is asked, and more about it.
type NoOutput = (OutputFailure, String);

impl Scheduler {
    /// ReadOutput from a controller, operator or viewer.
    pub(crate) fn read_output(&mut self, now: Instant, id: SessionId, request: ReadOutput) {
        let instance = InstanceId::new(&request.instance_uuid);
        let asked = self.node_to_read(&instance).and_then(|(key, session)| {
            let begun = self
                .peers
                .reads_mut()
                .begin(now, (id, key), request.clone());
            let busy = |open| {
                let detail = format!("{open} chunks of output are waited for already; try again");
                (OutputFailure::Busy, detail)
            };
            Ok((begun.map_err(busy)?, session))
        });
        match asked {
            Ok((read, session)) => {
                let message = Message::ReadOutput(Box::new(ReadOutput { read, ..request }));
                self.send(session, message);
            }
            Err((failure, detail)) => self.fail_read(id, &request, failure, detail),
        }
    }

    /// The answer of a launcher; dropped unless its node was asked and somebody waits for it.
    pub(crate) fn output_read(&mut self, id: SessionId, read: u64, parcel: Parcel) {
        let Some(key) = self.peers.node_of(id) else {
            return;
        };
        if let Some(read) = self.peers.reads_mut().answered(read, key) {
            self.send(read.asker, Message::Forward(parcel));
        }
    }

    /// A node's launcher will not answer what it was asked.
    pub(crate) fn fail_reads(&mut self, key: NodeKey) {
        for read in self.peers.reads_mut().of_node(key) {
            let node = self.node_text(key);
            let detail = format!("the connection to {node} has ended; it may come back");
            self.fail(&read, OutputFailure::NodeLost, detail);
        }
    }

    /// A launcher has not answered in time; how often that is so.
    pub(crate) fn fail_late_reads(&mut self, now: Instant, most: usize) {
        for _ in 0..most {
            let Some(read) = self.peers.reads_mut().late(now) else {
                return;
            };
            let node = self.node_text(read.node);
            let seconds = READ_TIMEOUT.as_secs();
            let detail = format!("the launcher of {node} has not answered within {seconds} s");
            self.fail(&read, OutputFailure::Timeout, detail);
        }
    }

    fn fail(&mut self, read: &Read, failure: OutputFailure, detail: String) {
        self.fail_read(read.asker, &read.request, failure, detail);
    }

    fn fail_read(
        &mut self,
        to: SessionId,
        request: &ReadOutput,
        failure: OutputFailure,
        detail: String,
    ) {
        let part = request.fail(failure, detail);
        self.send(to, Message::NoOutput(Box::new(part)));
    }

    /// The node whose launcher has the output of an instance, and its session.
    fn node_to_read(&self, instance: &InstanceId) -> Result<(NodeKey, SessionId), NoOutput> {
        let placed = self.cluster.placement(instance);
        let key = match placed {
            Some(key) => key,
            None => self.last_node(instance)?,
        };
        let node = self.cluster.nodes().node(key);
        let Some(session) = node.session() else {
            let detail = format!(
                "{} has it and is not connected; its output can be read once it is back",
                self.node_text(key)
            );
            return Err((OutputFailure::NodeLost, detail));
        };
        if !node.can(Capabilities::OUTPUT) {
            let detail = format!(
                "the launcher of {} cannot be asked for output: it is an original one or an older one; read the output on the \
                 node",
                self.node_text(key)
            );
            return Err((OutputFailure::NotSupported, detail));
        }
        Ok((key, session))
    }

    /// The node that keeps the output of the latest run of an instance that is on no node, or that had it last.
    fn last_node(&self, instance: &InstanceId) -> Result<NodeKey, NoOutput> {
        let known = self.instances.outputs(instance).last();
        let last_run = || self.instances.history(instance).filter_map(|(_, run)| run);
        let node = known
            .map(|output| output.node)
            .or_else(|| last_run().filter_map(Run::node).last());
        let Some(uuid) = node else {
            return Err(if self.instances.contains(instance) {
                let detail = "it waits for room and has not run yet; `ciaoctl queue` says for what";
                (OutputFailure::NeverBegan, detail.to_owned())
            } else if last_run().next().is_some() {
                (OutputFailure::NeverBegan, "it ran on no node".to_owned())
            } else {
                let detail = "no such instance is known, nor was recently; `ciaoctl instances` lists \
                              those that are";
                (OutputFailure::NoInstance, detail.to_owned())
            });
        };
        self.cluster.nodes().by_uuid(uuid).ok_or_else(|| {
            let detail = format!("node {uuid}, which had it last, is not known any more");
            (OutputFailure::NodeLost, detail)
        })
    }

    /// A node, for people.
    fn node_text(&self, key: NodeKey) -> String {
        let nodes = self.cluster.nodes();
        if !nodes.contains(key) {
            return "its node".to_owned();
        }
        let node = nodes.node(key);
        let uuid: Uuid = node.uuid();
        match node.hostname() {
            "" => format!("node {uuid}"),
            name => format!("node {name} ({uuid})"),
        }
    }
}
