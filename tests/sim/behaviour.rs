//! What the scheduler does, as one hash in which no words count: a measure for changes that move and rename.
//!
//! It holds what passes the scheduler's border, with the time of each: peers that come and go, frames in and out as the
//! bytes of the wire say them, connections it ends and why, what it has the disk keep. So that it does not depend on how the
//! core names or prints anything, every part of it is a number, a UUID or a payload without its sentences
//! ([`payload`]), and numbers for the core's own enums are given here. Notices do not count, nor does what a
//! record on the disk contains: that shows when a scheduler is restarted from it. What is asked of the core and changes
//! nothing (a tick at which nothing is due) does not count either. Payloads are read for it, which takes longer than the
//! run itself: it is done where somebody asks for it.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::BytesMut;
use ciao_scheduler::server::sim_support;
use proto_frames::{Decoder, Encoder, Encoding, Frame, Limits, Uuid};
use sched_core::{
    Backlog, Change, DisconnectReason, DiskState, Hello, Input, KnownNode, Message, RecordKey,
    SessionId,
};

use crate::names::SCHEDULER;
use crate::payload;
use crate::recipients::{self, Of, Streams};

/// Whether a run is to be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    No,
    Whole,
    /// With a line for each thing that happens, to find the first that differs.
    Steps,
    /// Each recipient for itself ([`recipients`](crate::recipients)).
    Recipients,
    /// The same, with a line for each thing.
    RecipientSteps,
}

/// What a run that was measured came to.
#[derive(Debug, Clone, Default)]
pub(crate) struct Measured {
    pub(crate) hash: u64,
    /// One line for each thing that happened, if that was asked for.
    pub(crate) steps: String,
}

/// What happens at the border. The numbers are part of the hash: a new one is added at the end.
#[derive(Debug, Clone, Copy)]
enum What {
    SchedulerStarts = 1,
    SchedulerCrashes = 2,
    Connects = 3,
    Disconnected = 4,
    Receives = 5,
    Backlog = 6,
    Committed = 7,
    Disk = 8,
    Sends = 9,
    Disconnects = 10,
    RemembersNodes = 11,
    Persists = 12,
    Configured = 13,
    NodeRules = 14,
}

/// Everything that a run's scheduler was told and did so far.
#[derive(Debug)]
pub(crate) struct Behaviour {
    streams: Streams,
    /// For each session a connection on which everything arrives at once.
    wires: BTreeMap<SessionId, Wire>,
}

/// A connection from the scheduler to a peer. Both ends have a memory: CONNECTED comes first, and gob describes types once.
#[derive(Debug)]
struct Wire {
    encoder: Encoder,
    decoder: Decoder,
}

impl Wire {
    fn new(encoding: Encoding) -> Self {
        Self {
            encoder: Encoder::new(encoding),
            decoder: Decoder::client(encoding, Limits::default()),
        }
    }

    /// A message of the core as the peer gets it.
    fn carry(&mut self, message: &Message, peer: Uuid) -> proto_frames::Message {
        let mut bytes = BytesMut::new();
        sim_support::encode(
            message,
            (SCHEDULER, None),
            peer,
            &mut self.encoder,
            &mut bytes,
        );
        let message = self.decoder.decode(&mut bytes);
        let message = message.expect("what was encoded can be decoded");
        message.expect("it is a whole message")
    }
}

impl Behaviour {
    pub(crate) fn new(measure: Measure) -> Option<Self> {
        (measure != Measure::No).then(|| Self {
            streams: Streams::new(measure),
            wires: BTreeMap::new(),
        })
    }

    /// What all of it comes to.
    pub(crate) fn measured(&self) -> Measured {
        self.streams.measured()
    }

    /// Whether recipients are told apart.
    pub(crate) fn is_by_recipient(&self) -> bool {
        self.streams.are_apart()
    }

    pub(crate) fn scheduler_starts(&mut self, at: Duration) {
        self.begin(at, Of::Scheduler, What::SchedulerStarts);
    }

    pub(crate) fn scheduler_crashes(&mut self, at: Duration) {
        self.begin(at, Of::Scheduler, What::SchedulerCrashes);
        self.wires.clear();
    }

    /// The core is told something.
    pub(crate) fn told(&mut self, at: Duration, input: &Input) {
        match input {
            Input::Connect { session, hello } => self.connects(at, *session, hello),
            Input::Disconnected {
                session, unsent, ..
            } => {
                self.begin(at, self.streams.of(*session), What::Disconnected);
                self.session(*session);
                self.number(unsent.len() as u64);
                self.wires.remove(session);
            }
            Input::Command {
                session, parcel, ..
            }
            | Input::Report {
                session, parcel, ..
            }
            | Input::Malformed {
                session, parcel, ..
            } => {
                self.begin(at, self.streams.of(*session), What::Receives);
                self.session(*session);
                self.frame(&sim_support::frame_of(parcel));
            }
            Input::Unknown { session, tag, .. } => {
                self.begin(at, self.streams.of(*session), What::Receives);
                self.session(*session);
                self.number(u64::from(tag.0));
            }
            Input::Backlog { session, backlog } => {
                self.begin(at, self.streams.of(*session), What::Backlog);
                self.session(*session);
                self.number(match backlog {
                    Backlog::Clear => 0,
                    Backlog::Filling => 1,
                    Backlog::Stalled => 2,
                });
            }
            Input::Committed(ticket) => {
                self.begin(at, Of::Disk, What::Committed);
                self.number(ticket.0);
            }
            Input::Disk(state) => {
                self.begin(at, Of::Disk, What::Disk);
                self.number(u64::from(matches!(state, DiskState::Refuses(_))));
            }
            Input::Configure(new) => {
                self.begin(at, Of::Scheduler, What::Configured);
                self.number(new.payload.len() as u64);
            }
            Input::NodeRules(rules) => {
                self.begin(at, Of::Scheduler, What::NodeRules);
                self.number(rules.len() as u64);
            }
            Input::Leaving
            | Input::Tick
            | Input::Reloaded { .. }
            | Input::ConfigurationVersion(_) => {}
        }
    }

    fn connects(&mut self, at: Duration, session: SessionId, hello: &Hello) {
        self.streams.belongs(session, hello.uuid);
        self.begin(at, self.streams.of(session), What::Connects);
        self.session(session);
        self.uuid(hello.uuid);
        self.number(u64::from(hello.role.0));
    }

    /// The core sends a message to a peer that speaks this encoding.
    pub(crate) fn sends(
        &mut self,
        at: Duration,
        to: SessionId,
        peer: Uuid,
        encoding: Encoding,
        message: &Message,
    ) {
        self.begin(at, Of::Peer(peer), What::Sends);
        self.session(to);
        let wires = &mut self.wires;
        let wire = wires.entry(to).or_insert_with(|| Wire::new(encoding));
        match wire.carry(message, peer) {
            proto_frames::Message::Frame(frame) => self.frame(&frame),
            proto_frames::Message::Connected(connected) => {
                self.uuid(connected.source);
                self.number(u64::from(connected.records_ends()));
                self.number(payload::hash(&connected.payload));
            }
            proto_frames::Message::Connect(_) => unreachable!("a scheduler sends none"),
        }
    }

    /// The core ends a connection.
    pub(crate) fn disconnects(&mut self, at: Duration, session: SessionId, why: DisconnectReason) {
        self.begin(at, self.streams.of(session), What::Disconnects);
        self.session(session);
        match why {
            DisconnectReason::Replaced { by } => {
                self.number(1);
                self.session(by);
            }
            DisconnectReason::Silent => self.number(2),
            DisconnectReason::Twin { .. } => self.number(3),
        }
    }

    /// The core has the nodes that it knows remembered.
    pub(crate) fn remembers(&mut self, at: Duration, nodes: &[KnownNode]) {
        self.begin(at, Of::Disk, What::RemembersNodes);
        self.number(nodes.len() as u64);
        nodes.iter().for_each(|node| self.uuid(node.uuid));
    }

    /// The core has records put or deleted.
    pub(crate) fn persists(&mut self, at: Duration, change: &Change) {
        self.begin(at, Of::Disk, What::Persists);
        self.number(change.ticket.0);
        let mut entries: Vec<_> = change.entries.iter().collect();
        let is_by_recipient = self.is_by_recipient();
        if is_by_recipient {
            entries.sort_by_key(|(key, _)| key);
        }
        for (key, record) in entries {
            let (kind, uuid) = match key {
                RecordKey::Instance(id) => (1, Uuid::try_parse(id).unwrap_or_default()),
                RecordKey::Node(uuid) => (2, *uuid),
                RecordKey::Binding(uuid) => (3, *uuid),
                RecordKey::Claims(uuid) => (4, *uuid),
                RecordKey::Array(uuid) => (5, *uuid),
                RecordKey::ArrayProgress(uuid) => (6, *uuid),
                // What is remembered for people alone.
                RecordKey::Run(_) => continue,
            };
            self.number(kind);
            self.uuid(uuid);
            self.number(u64::from(record.is_some()));
            if is_by_recipient {
                self.number(record.as_ref().map_or(0, recipients::content));
            }
        }
    }

    fn begin(&mut self, at: Duration, of: Of, what: What) {
        let (before, seconds) = (self.streams.turn_to(of), at.as_secs_f64());
        self.streams
            .say(format_args!("\n{before:016x} {seconds:>10.3} {what:?}"));
        self.streams.write(&at.as_nanos().to_le_bytes());
        self.number(what as u64);
    }

    fn frame(&mut self, frame: &Frame) {
        let (kind, version) = (frame.kind, frame.version);
        self.streams.say(format_args!(" {kind}"));
        let head = [kind.ty.0, kind.operand, version.major, version.minor];
        self.streams.write(&head);
        self.uuid(frame.origin);
        self.number(u64::from(frame.trace.is_some()));
        self.number(payload::hash(&frame.payload));
    }

    fn session(&mut self, session: SessionId) {
        self.number(session.0);
    }

    fn number(&mut self, number: u64) {
        self.streams.write(&number.to_le_bytes());
    }

    fn uuid(&mut self, uuid: Uuid) {
        self.streams.write(uuid.as_bytes());
    }
}
