//! Connections of peers with one of several schedulers.

use super::ClusterEvent;
use crate::agenda::Event;
use crate::network::{Link, Server, Silence};
use crate::world::World;

impl World {
    /// A peer tries one of the schedulers; whether that one takes it in.
    pub(crate) fn finds_scheduler(&mut self) -> bool {
        let (now, elapsed) = (self.now, self.elapsed());
        let Some(cluster) = &self.cluster else {
            return self.core.is_some();
        };
        let process = &cluster.processes[self.chance.usize(..cluster.processes.len())];
        // Nothing of the handshake comes back while the fence is shut.
        let answers = process.journal.is_some() && process.may_send(now, elapsed);
        let is_cut_off = process.cut_off.is_some_and(|until| until > now);
        if answers && !is_cut_off {
            self.network.dialled = process.server;
        }
        answers && !is_cut_off
    }

    /// Whether there is still the scheduler that a connection was made to.
    pub(crate) fn is_served_by(&self, server: Server) -> bool {
        match &self.cluster {
            Some(cluster) => cluster
                .process(server)
                .is_some_and(|it| it.journal.is_some()),
            None => self.core.is_some(),
        }
    }

    /// Whether a scheduler may write to its connections now.
    pub(crate) fn may_send(&self, server: Server) -> bool {
        let Some(cluster) = &self.cluster else {
            return true;
        };
        let process = cluster.process(server);
        process.is_some_and(|it| it.may_send(self.now, self.elapsed()))
    }

    /// The writers of all connections of a scheduler write what they may.
    pub(super) fn pump_all(&mut self, server: Server) {
        if self.may_send(server) {
            for link in self.network.links_of(server) {
                self.pump(link);
                self.look_at.push(link);
            }
            self.look_at_queues();
        }
    }

    /// A scheduler has something to write to etcd, which another thread of it does.
    pub(crate) fn records_soon(&mut self, server: Server) {
        let event = Event::Cluster(ClusterEvent::Due(server));
        self.agenda.put(self.now, event);
    }

    /// No peer reaches a scheduler any more, or none is reached by it.
    pub(super) fn cut_off(&mut self, server: Server) {
        for link in self.network.links_of(server) {
            let silence = Silence::ALL[self.chance.usize(..Silence::ALL.len())];
            self.fall_silent(link, silence);
        }
    }

    /// Until when the scheduler's end of a connection stands still, if it does.
    pub(crate) fn stands_still(&self, link: Link) -> Option<std::time::Instant> {
        let cluster = self.cluster.as_ref()?;
        cluster.stopped(self.network.server_of(link)?, self.now)
    }
}
