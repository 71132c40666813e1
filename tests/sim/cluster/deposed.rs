//! A leader that another has replaced and that does not know it yet: its core goes on with the connections it has, and
//! what it wants to say waits for a fence that does not open again. None of it is a fact.

use std::time::Instant;

use ciao_scheduler::server::sim_support;
use sched_core::{Action, Departure, Input, Scheduler};

use crate::network::Server;
use crate::world::World;

/// It.
#[derive(Debug)]
pub(super) struct Deposed {
    pub(super) server: Server,
    core: Scheduler,
}

impl Deposed {
    pub(super) fn new(server: Server, core: Scheduler) -> Self {
        Self { server, core }
    }
}

impl World {
    /// Hands something to the core of a scheduler, whether it leads or was deposed.
    pub(crate) fn hand_in_by(&mut self, server: Server, input: Input) {
        if server == self.network.serving {
            return self.hand_in(input);
        }
        let now = self.now;
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let Some(at) = cluster.deposed.iter().position(|it| it.server == server) else {
            return;
        };
        let mut deposed = cluster.deposed.swap_remove(at);
        deposed.core.handle(now, input);
        while let Some(mut action) = deposed.core.poll_action() {
            sim_support::word(&mut action);
            self.act_for(&mut deposed, action);
        }
        if let Err(why) = deposed.core.invariants() {
            panic!("the core's parts agree, also of one that was deposed: {why}");
        }
        self.cluster_mut().deposed.push(deposed);
        self.look_at_queues();
    }

    /// When one of them is due next, and which.
    pub(crate) fn deposed_due(&self) -> Option<(Instant, Server)> {
        let cluster = self.cluster.as_ref()?;
        let due = cluster.deposed.iter().filter_map(|it| {
            let at = it.core.poll_timeout()?;
            let stopped = cluster.stopped(it.server, self.now);
            Some((stopped.map_or(at, |until| until.max(at)), it.server))
        });
        due.min()
    }

    fn act_for(&mut self, deposed: &mut Deposed, action: Action) {
        let server = deposed.server;
        match action {
            Action::Send { to, message } => {
                if let Some(link) = self.network.of_session(to) {
                    self.queue(link, message);
                }
            }
            Action::Disconnect { session, .. } => {
                let link = self.network.of_session(session);
                let taken = link.and_then(|link| self.take_session(link));
                if let Some((session, unsent)) = taken {
                    let input = Input::Disconnected {
                        session,
                        unsent,
                        departure: Departure::Broken,
                    };
                    deposed.core.handle(self.now, input);
                }
            }
            Action::RememberNodes => {
                let nodes = deposed.core.known_nodes();
                if let Some(journal) = self.journal_of(server) {
                    journal.remember_nodes(nodes);
                }
            }
            Action::Persist(change) => {
                if let Some(journal) = self.journal_of(server) {
                    journal.push(change);
                }
            }
            _ => {}
        }
    }

    /// Where a scheduler writes.
    pub(crate) fn journal_of(&mut self, server: Server) -> Option<&mut super::Journal> {
        let process = self.cluster.as_mut()?.process_mut(server)?;
        process.journal.as_mut()
    }
}
