//! Two launchers that report for one node: the newcomer is refused while the other is connected.
//!
//! Which process a connection is of is known with its first report, and by then a connection has taken the place of the one
//! before. So once newcomers were found, a further connection is a candidate first: it is let in, told nothing, and its
//! node's connection stands. With its first report it takes that one's place, or is ended.

use std::time::Instant;

use sched_model::{Role, Uuid};

use crate::Scheduler;
use crate::api::action::{Action, DisconnectReason, Message, Notice};
use crate::api::ids::SessionId;
use crate::api::input::{Dialect, Hello};
use crate::peers::session::LAUNCHER;

impl Scheduler {
    /// Lets a launcher in that may take the place of another process; whether it is to say first which one it is.
    pub(crate) fn connect_candidate(&mut self, now: Instant, id: SessionId, hello: &Hello) -> bool {
        let is_launcher =
            hello.role.intersects(LAUNCHER) && Role(hello.role.0 & !LAUNCHER.0).is_empty();
        if !is_launcher
            || hello.dialect == Dialect::Original
            || self.cluster.asks_process(hello).is_none()
        {
            return false;
        }
        let configuration = self.peers.configuration(hello.dialect);
        self.send(id, Message::Connected { configuration });
        self.peers.connect_candidate(id, *hello, now);
        true
    }

    /// A launcher's report says, or not, which process it is of: what follows for a candidate, and for the node.
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
            let node = self.cluster.nodes().node(key).uuid();
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
