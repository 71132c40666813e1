//! All the ways in which a connection ends, at each of its ends, and what is lost with it.

use sched_core::{Departure, Input, Message, SessionId};

use super::{
    Connection, Link, PEER_LEARNS_MS, Peer, SCHEDULER_LEARNS_MS, SILENCE_MS, STALL_TIME, Server,
    Silence, told,
};
use crate::agenda::Event;
use crate::facts::Fact;
use crate::world::World;

impl World {
    /// A connection breaks. Of what is on its way some arrives.
    pub(crate) fn break_link(&mut self, link: Link) {
        self.note(format_args!("{link:?} breaks"));
        self.lose_down(link);
        self.lose_up(link);
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.is_broken = true;
        let (down, up) = (connection.down.last, connection.up.last);
        let at = down.max(self.within_ms(PEER_LEARNS_MS));
        self.agenda.put(at, Event::PeerLearns(link));
        let at = up.max(self.within_ms(SCHEDULER_LEARNS_MS));
        self.agenda.put(at, Event::SchedulerLearns(link));
    }

    /// Nothing arrives any more in some directions, and no end is told: each finds out by itself, some time later, and
    /// what it does then does not reach the other. What is on its way already arrives.
    pub(crate) fn fall_silent(&mut self, link: Link, silence: Silence) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        if connection.silence.is_some() {
            return;
        }
        connection.silence = Some(silence);
        self.note(format_args!("{link:?} falls silent: {silence:?}"));
        let at = self.within_ms(SILENCE_MS);
        self.agenda.put(at, Event::PeerLearns(link));
        let at = self.within_ms(SILENCE_MS);
        self.agenda.put(at, Event::SchedulerLearns(link));
    }

    /// The peer's end is closed: of what it sent some arrives, nothing reaches it any more.
    pub(crate) fn let_go(&mut self, link: Link) {
        self.lose_up(link);
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.is_held = false;
        connection.is_broken = true;
        connection.queued.clear();
        let (peer, up) = (connection.peer, connection.up.last);
        let is_silent = connection.silence.is_some_and(Silence::is_up);
        let lost = std::mem::take(&mut connection.down.wire);
        for flying in lost {
            self.unheard(peer, &flying.told);
        }
        if !is_silent {
            let at = up.max(self.within_ms(PEER_LEARNS_MS));
            self.agenda.put(at, Event::SchedulerLearns(link));
        }
        self.tidy(link);
    }

    /// The scheduler learns that a connection is over, and gets back what was not written.
    pub(crate) fn scheduler_learns(&mut self, link: Link) {
        let server = self.network.server_of(link).unwrap_or_default();
        if let Some((session, unsent)) = self.take_session(link) {
            self.hand_in_by(
                server,
                Input::Disconnected {
                    session,
                    unsent,
                    departure: Departure::Broken,
                },
            );
        }
    }

    /// Ends the scheduler's end of a connection; what it had not begun to write.
    pub(crate) fn take_session(&mut self, link: Link) -> Option<(SessionId, Vec<Message>)> {
        let connection = self.network.get_mut(link)?;
        let session = connection.session.take()?;
        let unsent: Vec<Message> = std::mem::take(&mut connection.outbox).into();
        let peer = connection.peer;
        self.note(format_args!(
            "{link:?} is over with {} unsent",
            unsent.len()
        ));
        for message in &unsent {
            // It may be passed on, or said again; what is heard is known from who hears it.
            self.unheard(peer, &told(message));
        }
        self.lose_session(link);
        Some((session, unsent))
    }

    /// The scheduler's end is gone: what was written may arrive, and the peer learns of it.
    pub(crate) fn lose_session(&mut self, link: Link) {
        self.lose_down(link);
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.session = None;
        connection.is_broken = true;
        connection.queued.clear();
        connection.up.wire.clear();
        connection.outbox.clear();
        let down = connection.down.last;
        if !connection.silence.is_some_and(Silence::is_down) {
            let at = down.max(self.within_ms(PEER_LEARNS_MS));
            self.agenda.put(at, Event::PeerLearns(link));
        }
        self.tidy(link);
    }

    /// The peer learns that its connection is over.
    pub(crate) fn peer_learns(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        if !connection.reads {
            // It reads what came before the end first.
            let at = self.now + STALL_TIME;
            return self.agenda.put(at, Event::PeerLearns(link));
        }
        if !std::mem::take(&mut connection.is_held) {
            return;
        }
        let peer = connection.peer;
        // What it has not read when a clock that jumped ends its patience it never will.
        let lost = std::mem::take(&mut connection.down.wire);
        for flying in lost {
            self.unheard(peer, &flying.told);
        }
        self.note(format_args!("{link:?} is over for {peer:?}"));
        self.tidy(link);
        match peer {
            Peer::Machine(machine) => self.launcher_is_cut_off(machine, link),
            Peer::Controller(number) => self.controller_is_cut_off(number, link),
            Peer::Liar(number) => self.liar_is_cut_off(number, link),
        }
    }

    /// All connections of the scheduler end because it does.
    pub(crate) fn lose_all_sessions(&mut self) {
        self.lose_sessions_of(self.network.serving);
    }

    /// All connections of a scheduler end because it does.
    pub(crate) fn lose_sessions_of(&mut self, server: Server) {
        for link in self.network.links_of(server) {
            let Some(connection) = self.network.get_mut(link) else {
                continue;
            };
            let Some(_) = connection.session.take() else {
                continue;
            };
            let peer = connection.peer;
            for message in std::mem::take(&mut connection.outbox) {
                self.unheard(peer, &told(&message));
            }
            self.lose_session(link);
        }
    }

    /// Loses some of what is on its way to the peer.
    fn lose_down(&mut self, link: Link) {
        let Some(connection) = self.network.links.get_mut(&link) else {
            return;
        };
        if connection.is_broken {
            return;
        }
        let wire = &mut connection.down.wire;
        let arriving = self.chance.usize(..=wire.len()).max(connection.waiting);
        let (peer, lost) = (connection.peer, wire.split_off(arriving.min(wire.len())));
        for flying in lost {
            self.unheard(peer, &flying.told);
        }
    }

    /// Loses some of what is on its way to the scheduler.
    fn lose_up(&mut self, link: Link) {
        if let Some(connection) = self.network.links.get_mut(&link)
            && !connection.is_broken
        {
            // CONNECT, before it has arrived, is what the connection is known by.
            let least = usize::from(connection.session.is_none());
            let wire = &mut connection.up.wire;
            let arriving = self.chance.usize(..=wire.len()).max(least);
            wire.truncate(arriving);
            connection.queued.clear();
        }
    }

    pub(super) fn unheard(&mut self, peer: Peer, told: &[u32]) {
        if let Peer::Controller(_) = peer {
            let unheard = told.iter().map(|&instance| Fact::Unheard { instance });
            self.facts.extend(unheard);
        }
    }

    /// Forgets a connection of which no end is left, with what was on its way to a peer that closed its end.
    fn tidy(&mut self, link: Link) {
        let is_over = |connection: &Connection| {
            !connection.is_held && connection.session.is_none() && connection.up.wire.is_empty()
        };
        if self.network.links.get(&link).is_some_and(is_over)
            && let Some(connection) = self.network.links.remove(&link)
        {
            for flying in connection.down.wire {
                self.unheard(connection.peer, &flying.told);
            }
        }
    }
}
