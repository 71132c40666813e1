//! One peer's session: what it sends is read, understood and handed to the core in batches.
//!
//! It implements [`Handler`]: [`crate::net::peer`] reads the socket, decodes frames and calls in; this reads their
//! payloads ([`wire`]), logs commands ([`audit`]) and gives the hub a batch. The reverse way goes past it: the hub puts
//! messages into the peer's outbox, and the connection's task calls [`Handler::encode`] for each.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Waker;
use std::time::SystemTime;

use bytes::BytesMut;
use proto_frames::{Encoder, Frame, Kind, Role, Timestamp, TooLong, TraceNode, Uuid};
use tracing::debug;

use super::hub::{Hub, PeerOrigin, PeerState};
use super::notices::{Class, Weight, Who};
use super::{audit, wire};
use crate::net::peer::{End, EndReason, Flow, Handler};
use sched_core::{Command, Departure, Input, Message, SessionId};

/// A payload that makes a session panic, in tests of what happens then.
#[cfg(test)]
pub(super) const INJECTED: &[u8] = b"# this session is to panic";

/// Inputs that room is kept for between two batches; a larger buffer, of a burst, is given back.
const KEEP_INPUTS: usize = 1024;

thread_local! {
    /// Room for the inputs of a batch, which all connections of a thread have in turn.
    static INPUTS: Cell<Vec<Input>> = Cell::default();
}

/// The daemon's end of one connection.
#[derive(Debug)]
pub(super) struct Session {
    hub: Arc<Hub>,
    id: SessionId,
    peer: Arc<PeerState>,
    /// Writers to be woken at the end of the turn.
    wakers: Vec<Waker>,
    /// Whether [`Session::ended`] ran: if not, `Drop` tells the core.
    has_ended: bool,
}

impl Drop for Session {
    /// A session whose task was cut short, by a panic for one, ends for everybody else all the same.
    fn drop(&mut self) {
        self.wakers.drain(..).for_each(Waker::wake);
        if !self.has_ended {
            self.hub
                .ended(self.id, self.peer.outbox.shut(), Departure::Broken);
        }
    }
}

impl Session {
    /// The peer must have been added to the hub before ([`Hub::add_peer`]).
    pub(super) fn new(hub: Arc<Hub>, id: SessionId, peer: Arc<PeerState>) -> Self {
        Self {
            hub,
            id,
            peer,
            wakers: Vec::new(),
            has_ended: false,
        }
    }

    /// The connection is over: tells the core, and the log why. Who closed in order has left; anything else counts as
    /// broken off.
    pub(super) fn ended(mut self, end: End<Message>) {
        self.turn_over();
        let (role, uuid) = (self.peer.role, self.peer.uuid);
        match &end.reason {
            EndReason::Closed | EndReason::Broken | EndReason::Finished | EndReason::Shut => {
                debug!("{role} {uuid}: connection {}", end.reason);
            }
            reason => {
                let line = format_args!("{role} {uuid}: connection ended: {reason}");
                let who = Who::Peer(uuid);
                self.hub.note(Class::Ended, who, Weight::Warning, line);
            }
        }
        let departure = match &end.reason {
            EndReason::Closed | EndReason::Finished | EndReason::Shut => Departure::Closed,
            _ => Departure::Broken,
        };
        self.has_ended = true;
        self.hub.ended(self.id, end.unsent, departure);
    }

    /// What a frame says, as the core takes it; with the origin filled in and the trace stamped. Parsing happens here,
    /// outside the core's lock.
    fn input(&self, mut frame: Frame) -> Input {
        if frame.origin.is_nil() {
            // The native encoding does not repeat the sender in each frame.
            frame.origin = self.peer.uuid;
        }
        // A trace grows by a node at each peer, up to a limit of the format.
        if let Some(path) = frame.trace.as_mut().and_then(|trace| trace.path.as_mut())
            && path.len() < proto_frames::limits::MAX_TRACE_NODES
        {
            let (uuid, role) = (self.hub.uuid, Role::SCHEDULER);
            path.push(TraceNode {
                rx: wall_clock(),
                ..TraceNode::new(uuid, role)
            });
        }
        #[cfg(test)]
        assert_ne!(&frame.payload[..], INJECTED, "injected");
        let kind = frame.kind;
        let input = wire::input(self.id, frame);
        if let Input::Command { command, .. } = &input {
            self.audit(kind, command);
        }
        input
    }

    /// Logs who asks for what; whether it may is said by what follows. Only of controllers and operators: commands from
    /// others are refused by the core, with a line of its own.
    fn audit(&self, kind: Kind, command: &Command) {
        let PeerState {
            uuid, role, origin, ..
        } = &*self.peer;
        let PeerOrigin { from, subject, .. } = origin;
        if let Command::Start(request) = command {
            // They come by the thousand in a second.
            let instance = &request.instance;
            debug!("{kind} of instance {instance} by {subject} ({role} {uuid}, {from})");
            return;
        }
        if role.intersects(Role::CONTROLLER | Role::OPERATOR)
            && let Some(object) = audit::object(command)
        {
            let line = format_args!("{kind} of {object} by {subject} ({role} {uuid}, {from})");
            let who = Who::Peer(*uuid);
            self.hub.note(Class::Command, who, Weight::News, line);
        }
    }
}

impl Handler for Session {
    type Outgoing = Message;

    /// One batch is what the connection has decoded in one go. The buffer is the thread's, so that an idle
    /// connection holds none.
    fn received(&mut self, messages: &mut Vec<proto_frames::Message>) {
        let mut inputs = INPUTS.take();
        inputs.reserve(messages.len());
        inputs.extend(messages.drain(..).filter_map(|message| match message {
            proto_frames::Message::Frame(frame) => Some(self.input(frame)),
            // The decoder hands out nothing else once CONNECT is through.
            proto_frames::Message::Connect(_) | proto_frames::Message::Connected(_) => None,
        }));
        self.hub
            .handle_then_wake(inputs.drain(..), &self.peer.budget, &mut self.wakers);
        if inputs.capacity() <= KEEP_INPUTS {
            INPUTS.set(inputs);
        }
    }

    /// The decoder skipped the payload; it is answered like one that cannot be read.
    fn too_long(&mut self, refused: TooLong) {
        let input = wire::too_long(self.id, self.peer.uuid, &refused);
        self.hub
            .handle_then_wake([input], &self.peer.budget, &mut self.wakers);
    }

    fn encode(&mut self, message: &Message, encoder: &mut Encoder, dst: &mut BytesMut) {
        let own = wire::Own {
            uuid: self.hub.uuid,
            term: self.hub.limits.term,
        };
        wire::encode(message, own, self.peer.uuid, encoder, dst);
    }

    /// Only now are the writers woken: until here several batches of this peer may have added to the same queues.
    fn turn_over(&mut self) {
        std::mem::take(&mut self.wakers)
            .into_iter()
            .for_each(Waker::wake);
    }

    fn written(&mut self, queued: usize) {
        self.hub.written(self.id, &self.peer, queued);
    }

    fn flow(&mut self, flow: Flow) {
        self.hub.flow(self.id, &self.peer, flow);
    }
}

/// Now, for traces. The clock of the machine, which may be wrong or before 1970: then the time is 0.
pub(super) fn wall_clock() -> Timestamp {
    let since_epoch = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_unix_ns(i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX))
}

/// Writes the time of sending into the last node of a trace, if that is this scheduler's own, which [`Session::input`]
/// added when the frame came. No other frame is changed.
pub(super) fn stamp_sent(frame: &mut Frame, own: Uuid) {
    if let Some(path) = frame.trace.as_mut().and_then(|trace| trace.path.as_mut())
        && let Some(last) = path.last_mut()
        && last.uuid == own
    {
        last.tx = wall_clock();
    }
}
