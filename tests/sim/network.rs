//! Connections as peers and the scheduler see them: queues, and frames on their way as the bytes that a real one would
//! carry.
//!
//! Frames of one direction arrive in order, each after a time of its own. What the scheduler has not begun to write when
//! a connection ends comes back to it; of what was written some arrives and the rest is lost. What a peer has not begun to
//! write, because it is not read from, is lost with it. Each end learns that it is
//! over at another time (`endings`), so that a peer may be back on a new connection while its old one still stands.

mod endings;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use ciao_scheduler::server::sim_support;
use proto_frames::{Connect, Decoder, Encoder, Encoding, Frame, Limits, Role, Term, Uuid};
use sched_core::{Backlog, Dialect, Hello, Input, Message, SessionId};

use crate::agenda::Event;
use crate::cluster::Process;
use crate::controller;
use crate::facts::Fact;
use crate::names::{self, SCHEDULER};
use crate::world::World;

/// Longest time until an end of a broken connection learns of it, in ms; the scheduler may take longer than the peer.
const PEER_LEARNS_MS: u64 = 2_000;
const SCHEDULER_LEARNS_MS: u64 = 10_000;

/// Longest time until an end of a silent connection finds out, in ms: by what is not acknowledged, as both ends do.
const SILENCE_MS: u64 = 40_000;

/// After how long without progress a queue counts as stalled.
const STALL_TIME: Duration = Duration::from_secs(1);

/// Longest time for which a peer does not read, in ms.
const STALL_MS: u64 = 20_000;

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Machine(usize),
    Controller(usize),
    Liar(usize),
}

impl Peer {
    pub(crate) fn uuid(self) -> Uuid {
        match self {
            Self::Machine(number) => names::machine_uuid(number),
            Self::Controller(number) => names::controller_uuid(number),
            Self::Liar(number) => names::liar_uuid(number),
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Machine(_) | Self::Liar(_) => Role::AGENT,
            Self::Controller(_) => Role::CONTROLLER,
        }
    }
}

/// In which directions nothing arrives any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// From the peer to the scheduler.
    Up,
    /// From the scheduler to the peer.
    Down,
    Both,
}

impl Silence {
    pub(crate) const ALL: [Self; 3] = [Self::Up, Self::Down, Self::Both];

    fn is_up(self) -> bool {
        self != Self::Down
    }

    fn is_down(self) -> bool {
        self != Self::Up
    }
}

/// One process of a scheduler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Server {
    /// Which of several it is.
    pub(crate) place: usize,
    /// Which of its processes.
    pub(crate) life: u64,
}

/// The number of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link(pub(crate) u64);

/// All connections of which an end is left.
#[derive(Debug, Default)]
pub(crate) struct Network {
    links: BTreeMap<Link, Connection>,
    count: u64,
    /// The scheduler that leads.
    pub(crate) serving: Server,
    /// The one that was tried last and takes peers in.
    pub(crate) dialled: Server,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    /// The scheduler, and under which term it leads where it is one of several.
    server: Server,
    term: Option<Term>,
    /// The scheduler's end; `None` before it has arrived and once it is over.
    session: Option<SessionId>,
    /// Whether the peer's end is left.
    is_held: bool,
    /// Whether nothing that is written arrives any more.
    is_broken: bool,
    /// In which directions nothing arrives any more, although neither end knows it.
    silence: Option<Silence>,
    /// What the scheduler has for the peer and has not begun to write.
    outbox: VecDeque<Message>,
    down: Lane,
    up: Lane,
    /// Whether the scheduler does not read, and what the peer has for it since: nothing else knows that it was sent.
    is_held_back: bool,
    queued: VecDeque<Flying>,
    /// Whether the peer reads, and the frames that wait for that.
    reads: bool,
    waiting: usize,
    /// Frames written to a broken connection: as many as its buffers take.
    voided: usize,
    backlog: Backlog,
    is_stalled: bool,
}

/// One direction.
#[derive(Debug)]
struct Lane {
    encoder: Encoder,
    decoder: Decoder,
    wire: VecDeque<Flying>,
    /// When the last frame arrives.
    last: Instant,
}

/// A frame on its way.
#[derive(Debug)]
struct Flying {
    bytes: BytesMut,
    /// Instances of which it tells what became of them.
    told: Vec<u32>,
}

impl Lane {
    fn new(encoding: Encoding, decoder: Decoder, now: Instant) -> Self {
        Self {
            encoder: Encoder::new(encoding),
            decoder,
            wire: VecDeque::new(),
            last: now,
        }
    }

    fn decode(&mut self) -> Option<proto_frames::Message> {
        let mut flying = self.wire.pop_front()?;
        let message = self.decoder.decode(&mut flying.bytes);
        let message = message.expect("what was encoded can be decoded");
        assert!(flying.bytes.is_empty(), "a frame is decoded whole");
        Some(message.expect("it is a whole message"))
    }
}

impl Network {
    /// The connection with this session, while the scheduler has it.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<Link> {
        let mut links = self.links.iter();
        let found = links.find(|(_, it)| it.session == Some(session));
        found.map(|(link, _)| *link)
    }

    /// Who is at the other end of the connection with this session, and what is spoken on it.
    pub(crate) fn receiver(&self, session: SessionId) -> Option<(Uuid, Encoding)> {
        let connection = &self.links[&self.of_session(session)?];
        Some((connection.peer.uuid(), connection.down.encoder.encoding()))
    }

    /// Connections of which both ends stand.
    pub(crate) fn open_links(&self) -> Vec<Link> {
        let stands = |it: &Connection| it.is_held && !it.is_broken && it.session.is_some();
        let links = self.links.iter().filter(|(_, it)| stands(it));
        links.map(|(link, _)| *link).collect()
    }

    /// The scheduler's session with a machine's launcher, if it believes in one.
    pub(crate) fn session_of(&self, peer: Peer) -> Option<SessionId> {
        let is_of = |it: &&Connection| it.peer == peer && it.server == self.serving;
        let mut links = self.links.values().filter(is_of);
        links.find_map(|it| it.session)
    }

    /// The connection of a peer of which both ends stand.
    pub(crate) fn link_of(&self, peer: Peer) -> Option<Link> {
        let mut links = self.open_links().into_iter();
        links.find(|link| self.links[link].peer == peer)
    }

    /// Whether a START of this instance may still reach a machine.
    pub(crate) fn has_start_for(&self, machine: usize, instance: u32) -> bool {
        let of_machine = |it: &&Connection| it.peer == Peer::Machine(machine) && it.is_held;
        let mut links = self.links.values().filter(of_machine);
        links.any(|it| it.down.wire.iter().any(|it| it.told.contains(&instance)))
    }

    /// The connections that end at a scheduler.
    pub(crate) fn links_of(&self, server: Server) -> Vec<Link> {
        let links = self.links.iter().filter(|(_, it)| it.server == server);
        links.map(|(link, _)| *link).collect()
    }

    /// The scheduler at the other end of a connection.
    pub(crate) fn server_of(&self, link: Link) -> Option<Server> {
        self.links.get(&link).map(|it| it.server)
    }

    fn get_mut(&mut self, link: Link) -> Option<&mut Connection> {
        self.links.get_mut(&link)
    }
}

impl World {
    /// A peer opens a connection, which reaches the scheduler in a moment.
    pub(crate) fn open(&mut self, peer: Peer) -> Link {
        let encoding = match peer {
            Peer::Machine(_) => Encoding::Native,
            Peer::Controller(number) => self.controllers[number].encoding,
            Peer::Liar(number) => [Encoding::Gob, Encoding::Native][number % 2],
        };
        let limits = Limits::default();
        let down = Lane::new(encoding, Decoder::client(encoding, limits), self.now);
        let up = Lane::new(encoding, Decoder::server(limits), self.now);
        self.network.count += 1;
        let link = Link(self.network.count);
        let connection = Connection {
            peer,
            server: self.network.dialled,
            term: None,
            session: None,
            is_held: true,
            is_broken: false,
            silence: None,
            outbox: VecDeque::new(),
            down,
            up,
            is_held_back: false,
            queued: VecDeque::new(),
            reads: true,
            waiting: 0,
            voided: 0,
            backlog: Backlog::Clear,
            is_stalled: false,
        };
        self.network.links.insert(link, connection);
        let connect = Connect::new(peer.role(), peer.uuid());
        self.fly_up(link, &proto_frames::Message::Connect(connect), false);
        let at = self.soon();
        self.agenda.put(at, Event::Arrives(link));
        link
    }

    /// A peer's connection reaches the scheduler.
    pub(crate) fn arrives(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        let server = connection.server;
        if !self.is_served_by(server) {
            return self.lose_session(link);
        }
        let process = self.cluster.as_ref().and_then(|it| it.process(server));
        let term = process.and_then(Process::wire_term);
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.term = term;
        let Some(proto_frames::Message::Connect(connect)) = connection.up.decode() else {
            unreachable!("a connection begins with CONNECT");
        };
        let encoding = connection.up.decoder.encoding();
        let hello = Hello {
            uuid: connect.source,
            role: connect.role,
            dialect: match encoding.expect("it has decoded a message") {
                Encoding::Native => Dialect::Native,
                Encoding::Gob => Dialect::Original,
            },
            bound: true,
            certificate_ends_s: None,
            address: None,
            certificate: None,
            subject: None,
        };
        self.sessions += 1;
        let session = SessionId(self.sessions);
        connection.session = Some(session);
        let is_over = connection.is_broken;
        self.note(format_args!("{link:?} is {session:?} of {}", hello.uuid));
        self.hand_in_by(server, Input::Connect { session, hello });
        if is_over {
            let at = self.within_ms(SCHEDULER_LEARNS_MS);
            self.agenda.put(at, Event::SchedulerLearns(link));
        }
    }

    /// A peer sends a frame on its connection.
    pub(crate) fn send_up(&mut self, link: Link, frame: Frame) {
        self.note(format_args!("{link:?} sends {}", frame.kind));
        self.fly_up(link, &proto_frames::Message::Frame(frame), true);
    }

    fn fly_up(&mut self, link: Link, message: &proto_frames::Message, arrives: bool) {
        let at = self.soon();
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        let mut bytes = BytesMut::new();
        connection.up.encoder.encode(message, &mut bytes);
        let told = match message {
            proto_frames::Message::Frame(frame) => controller::news_of(frame),
            _ => None,
        };
        let told = told.map(|(instance, _)| instance).into_iter().collect();
        let flying = Flying { bytes, told };
        if connection.is_broken || connection.silence.is_some_and(Silence::is_up) {
            return;
        }
        if connection.is_held_back {
            return connection.queued.push_back(flying);
        }
        connection.up.wire.push_back(flying);
        connection.up.last = connection.up.last.max(at);
        let at = connection.up.last;
        if arrives {
            self.agenda.put(at, Event::ReachesScheduler(link));
        }
    }

    /// The scheduler puts a message into a peer's queue.
    pub(crate) fn queue(&mut self, link: Link, message: Message) {
        if let Some(connection) = self.network.get_mut(link) {
            connection.outbox.push_back(message);
            if connection.silence.is_some_and(Silence::is_down) {
                self.agenda.put(self.now + STALL_TIME, Event::Stalls(link));
            }
            self.pump(link);
            self.look_at.push(link);
        }
    }

    /// The writer of a peer's queue writes what the connection takes.
    pub(crate) fn pump(&mut self, link: Link) {
        loop {
            let server = self.network.server_of(link);
            if !server.is_some_and(|it| self.may_send(it)) {
                return;
            }
            let at = self.soon();
            let window = self.settings.window;
            let leader = self.cluster.as_ref().and_then(|it| it.etcd.leader());
            let Some(connection) = self.network.get_mut(link) else {
                return;
            };
            if connection.down.wire.len() + connection.voided >= window {
                return;
            }
            let Some(message) = connection.outbox.pop_front() else {
                return;
            };
            let told = told(&message);
            let mut bytes = BytesMut::new();
            let (peer, encoder) = (connection.peer, &mut connection.down.encoder);
            let own = (SCHEDULER, connection.term);
            sim_support::encode(&message, own, peer.uuid(), encoder, &mut bytes);
            if let Some(term) = connection.term {
                let leader = leader.map(i64::unsigned_abs);
                self.facts.push(Fact::Left { term, leader });
            }
            if connection.is_broken || connection.silence.is_some_and(Silence::is_down) {
                connection.voided += 1;
                self.unheard(peer, &told);
            } else {
                let flying = Flying { bytes, told };
                connection.down.wire.push_back(flying);
                connection.down.last = connection.down.last.max(at);
                let at = connection.down.last;
                self.agenda.put(at, Event::ReachesPeer(link));
            }
        }
    }

    /// The next frame reaches the peer, if it reads.
    pub(crate) fn reaches_peer(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        if !connection.reads {
            connection.waiting += 1;
            return;
        }
        let peer = connection.peer;
        if !connection.is_held {
            // It has closed its end, which the other has not learned: nothing that is written arrives any more.
            let lost = connection.down.wire.pop_front();
            return self.unheard(peer, &lost.map_or_else(Vec::new, |flying| flying.told));
        }
        let Some(message) = connection.down.decode() else {
            return;
        };
        let term = connection.term;
        self.pump(link);
        self.look_at.push(link);
        if let (Peer::Machine(machine), Some(term)) = (peer, term)
            && matches!(message, proto_frames::Message::Frame(_))
        {
            self.facts.push(Fact::Commanded { machine, term });
        }
        match peer {
            Peer::Machine(machine) => self.launcher_receives(machine, message),
            Peer::Controller(number) => self.controller_receives(number, message),
            Peer::Liar(number) => self.liar_receives(number, &message),
        }
        self.look_at_queues();
    }

    /// The next frame reaches the scheduler.
    pub(crate) fn reaches_scheduler(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        let Some(session) = connection.session else {
            return;
        };
        let (peer, message) = (connection.peer, connection.up.decode());
        let Some(proto_frames::Message::Frame(mut frame)) = message else {
            return;
        };
        if frame.origin.is_nil() {
            frame.origin = peer.uuid();
        }
        let server = connection.server;
        if server == self.network.serving {
            return self.scheduler_receives(peer, session, frame);
        }
        self.hand_in_by(server, sim_support::input(session, frame));
    }

    /// What a peer sends from now on is under way for this much longer.
    pub(crate) fn hold_up(&mut self, link: Link, by: Duration) {
        let now = self.now;
        if let Some(connection) = self.network.get_mut(link) {
            connection.up.last = connection.up.last.max(now + by);
            self.note(format_args!("what {link:?} says is held up by {by:?}"));
        }
    }

    /// A peer does not read for a while.
    pub(crate) fn stall(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        if std::mem::take(&mut connection.reads) {
            self.note(format_args!("{link:?} is not read from"));
            self.agenda.put(self.now + STALL_TIME, Event::Stalls(link));
            let at = self.within_ms(STALL_MS);
            self.agenda.put(at, Event::Reads(link));
        }
    }

    /// The scheduler does not read from a peer for a while, at the end of which the connection `breaks` or goes on.
    pub(crate) fn hold(&mut self, link: Link, breaks: bool) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        if std::mem::replace(&mut connection.is_held_back, true) {
            return;
        }
        self.note(format_args!(
            "{link:?} is held back, and then breaks: {breaks}"
        ));
        let at = self.within_ms(STALL_MS);
        let event = match breaks {
            true => Event::Breaks(link),
            false => Event::IsReadFrom(link),
        };
        self.agenda.put(at, event);
    }

    /// The scheduler reads from a peer again: what the peer had for it follows.
    pub(crate) fn is_read_from(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.is_held_back = false;
        for flying in std::mem::take(&mut connection.queued) {
            let at = self.soon();
            let Some(connection) = self.network.get_mut(link).filter(|it| !it.is_broken) else {
                return;
            };
            connection.up.wire.push_back(flying);
            connection.up.last = connection.up.last.max(at);
            let at = connection.up.last;
            self.agenda.put(at, Event::ReachesScheduler(link));
        }
    }

    /// Nothing has left a queue for a while, if that is still so.
    pub(crate) fn stalls(&mut self, link: Link) {
        if let Some(connection) = self.network.get_mut(link)
            && (!connection.reads || connection.silence.is_some_and(Silence::is_down))
            && !connection.outbox.is_empty()
        {
            connection.is_stalled = true;
            self.look_at.push(link);
            self.look_at_queues();
        }
    }

    /// A peer reads again.
    pub(crate) fn reads(&mut self, link: Link) {
        let Some(connection) = self.network.get_mut(link) else {
            return;
        };
        connection.reads = true;
        connection.is_stalled = false;
        for _ in 0..std::mem::take(&mut connection.waiting) {
            self.agenda.put(self.now, Event::ReachesPeer(link));
        }
        self.look_at.push(link);
        self.look_at_queues();
    }

    /// Tells the core how queues stand, where that has changed.
    pub(crate) fn look_at_queues(&mut self) {
        while let Some(link) = self.look_at.pop() {
            let high_water = self.settings.high_water;
            let Some(connection) = self.network.get_mut(link) else {
                continue;
            };
            let queued = connection.outbox.len();
            let backlog = match connection.backlog {
                _ if connection.is_stalled => Backlog::Stalled,
                Backlog::Clear if queued > high_water => Backlog::Filling,
                before if queued > high_water / 2 => before,
                _ => Backlog::Clear,
            };
            if let Some(session) = connection.session
                && std::mem::replace(&mut connection.backlog, backlog) != backlog
            {
                let server = connection.server;
                self.note(format_args!("{link:?} queue is {backlog:?}"));
                self.hand_in_by(server, Input::Backlog { session, backlog });
            }
        }
    }

    /// A moment within the time that frames take.
    pub(crate) fn soon(&mut self) -> Instant {
        let latency = self.settings.latency.as_millis() as u64;
        self.within_ms(latency)
    }

    /// A moment within that time.
    pub(crate) fn within_ms(&mut self, ms: u64) -> Instant {
        self.now + Duration::from_micros(self.chance.u64(..=ms * 1000))
    }
}

/// The instances that a message is about.
fn told(message: &Message) -> Vec<u32> {
    let instance = match message {
        Message::Start(start) => names::instance_of(&start.request.instance.to_string()),
        Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
            names::instance_of(&failure.instance_uuid)
        }
        Message::InstanceDeleted(deleted) => names::instance_of(&deleted.instance_uuid),
        Message::Forward(parcel) => {
            let news = controller::news_of(&sim_support::frame_of(parcel));
            news.map(|(instance, _)| instance)
        }
        _ => None,
    };
    instance.into_iter().collect()
}
