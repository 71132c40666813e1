//! Two launchers that report for one node, by a wrong configuration or a process that was not stopped: the second one
//! is refused while the first is connected. Otherwise each would end the other's connection again and again, and
//! instances of both would be counted on one node.
//!
//! Which process a connection belongs to is known with its first report, and by then it has replaced the connection
//! before. So once a second process was found, every further connection is a candidate first: it is let in, sent
//! nothing more, and the node's connection stays. With its first report it replaces that connection, or is ended.

use std::time::Instant;

use sched_model::Uuid;

use crate::Scheduler;
use crate::api::action::{Action, DisconnectReason, Notice};
use crate::api::ids::SessionId;
use crate::api::input::Hello;

impl Scheduler {
    /// A launcher's READY or STATS names its process, or does not. For a candidate this decides whether it replaces the
    /// node's connection; for a node's connection, whether two processes report for the node. One that names none is
    /// let in.
    pub(crate) fn note_process(&mut self, now: Instant, id: SessionId, incarnation: Option<Uuid>) {
        if let Some(hello) = self.peers.take_candidate(id) {
            let admitted = incarnation.map_or(Ok(()), |incarnation| {
                self.cluster.admit_process(hello.uuid, incarnation, now)
            });
            if let Err(first) = admitted {
                let why = DisconnectReason::Twin { first };
                return self.act(Action::Disconnect { session: id, why });
            }
            self.attach_candidate(now, id, &hello);
        }
        let (Some(key), Some(incarnation)) = (self.peers.node_of(id), incarnation) else {
            return;
        };
        if let Some((newcomer, first)) = self.cluster.process_reports(key, incarnation, now) {
            let node = self.cluster.uuid(key);
            self.notice(Notice::Twins {
                node,
                first,
                newcomer,
            });
        }
    }

    fn attach_candidate(&mut self, now: Instant, id: SessionId, hello: &Hello) {
        self.notice(Notice::Connected(hello.uuid, hello.role));
        let old = self.peers.replace_by_candidate(id);
        self.connect_node(now, id, hello);
        if let Some(session) = old {
            let why = DisconnectReason::Replaced { by: id };
            self.act(Action::Disconnect { session, why });
        }
    }
}
