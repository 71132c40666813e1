//! What the store of images is asked, on its way there, and its answers on their way to peers; and who asks for a reload, or
//! that another scheduler leads, which is answered on the same way.
//!
//! Requests for images (READ_IMAGE, WRITE_IMAGE and the like) are permitted by the core and carried out here, beside
//! it: the core never sees their contents. The store of images has a thread of its own; answers do not pass through the
//! core.

use std::io;
use std::sync::Arc;
use std::task::Waker;

use proto_frames::Frame;
use proto_frames::payload::{Reload, TransferLeadership};
use tracing::error;

use super::{Hub, InputBatch};
use crate::server::images::{self, Opened};
use crate::server::reload;
use crate::server::schedulers;
use crate::server::wire;
use sched_core::{Message, Parcel, SessionId};

impl Hub {
    /// Keeps images in this store from now on. Called once, before anything is accepted.
    ///
    /// # Errors
    /// The system has no thread for it.
    pub(in crate::server) fn keep_images_in(self: &Arc<Self>, opened: Opened) -> io::Result<()> {
        let images = opened.start(Arc::downgrade(self))?;
        if self.images.set(images).is_err() {
            error!(
                event = "internal_error",
                "there is a store of images already"
            );
        }
        Ok(())
    }

    /// Has the store of images do what a peer asks for. Under the scheduler's lock: nothing waits. The store of images
    /// answers by [`Hub::send_behind`]; only a refusal (no store, or too many requests wait) is queued here.
    pub(super) fn ask_images(
        &self,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        parcel: Parcel,
    ) {
        let refused = match self.images.get() {
            Some(images) => images.ask(session, parcel).err(),
            None => Some(images::not_offered(&parcel)),
        };
        if let Some(refused) = refused
            && let Some(writer) = self.queue_behind(session, refused)
        {
            batch.wakers.push(writer);
        }
    }

    /// Has all files read again, as a peer asks. Under the scheduler's lock: nothing waits. Only that too many ask is
    /// queued here.
    pub(super) fn ask_reload(
        &self,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        asked: &Reload,
    ) {
        if !self.reloads.ask_for(session, asked)
            && let Some(writer) = self.queue_behind(
                session,
                reload::frame(self.uuid, asked.id, reload::too_many()),
            )
        {
            batch.wakers.push(writer);
        }
    }

    /// Has another scheduler lead, as a peer asks. Under the scheduler's lock: nothing waits. Only that another has just
    /// asked is queued here.
    pub(super) fn ask_transfer(
        &self,
        batch: &mut InputBatch<'_>,
        session: SessionId,
        asked: TransferLeadership,
    ) {
        if let Some(refused) = self.transfers.ask(session, asked)
            && let Some(writer) = self.queue_behind(session, schedulers::frame(self.uuid, refused))
        {
            batch.wakers.push(writer);
        }
    }

    /// Sends a frame that leaves behind all else that waits for the peer; dropped where as many wait as may, which is
    /// so only for one that has asked for more than its kind does. Chunks of images are large and not urgent: a START
    /// is not to wait behind them.
    pub(in crate::server) fn send_behind(&self, session: SessionId, frame: Frame) {
        if let Some(writer) = self.queue_behind(session, frame) {
            writer.wake();
        }
    }

    /// Sends a frame in the order of all else that is queued for the peer, also where the scheduler is about to leave; the
    /// peer's own budget holds it. Dropped where the connection has ended.
    pub(in crate::server) fn send_in_order(&self, session: SessionId, frame: Frame) {
        let message = Message::Forward(wire::parcel(frame));
        if let Some(door) = self.doors.get(&session).map(|door| Arc::clone(&door)) {
            door.take(message);
            return;
        }
        let Some(peer) = self.peers.get(&session).map(|peer| Arc::clone(&peer)) else {
            return;
        };
        let cost = wire::cost(&message);
        let charge = peer.budget.charge(cost);
        if let Ok(pushed) = peer.outbox.push(message, cost, Some(charge)) {
            pushed.writer.into_iter().for_each(Waker::wake);
        }
    }

    /// Hands a frame to a session, whatever stands behind it; the writer that is to be woken.
    pub(super) fn queue_behind(&self, session: SessionId, frame: Frame) -> Option<Waker> {
        let door = self.doors.get(&session).map(|door| Arc::clone(&door));
        if let Some(door) = door {
            door.take(Message::Forward(wire::parcel(frame)));
            return None;
        }
        let peer = self.peers.get(&session).map(|peer| Arc::clone(&peer))?;
        // The same for all peers of its kind: chunks that nobody reads are not to have others disconnected.
        if self.has_too_much_unread(peer.role) {
            return None;
        }
        push_behind(&peer, frame)
    }

    /// The subject of a peer's certificate, while it is connected. The store of images names it in the log and beside
    /// an image that was pushed.
    pub(in crate::server) fn subject_of(&self, session: SessionId) -> Option<String> {
        if let Some(door) = self.doors.get(&session) {
            return Some(door.subject().to_owned());
        }
        let peer = self.peers.get(&session)?;
        Some(peer.origin.subject.to_string())
    }
}

/// Queues a frame behind all others; the writer that is to be woken, if there is one waiting. Nothing is charged to a
/// sender. `None` as well where the outbox is shut or has as many such frames as it takes: the frame is dropped then.
fn push_behind(peer: &super::PeerState, frame: Frame) -> Option<Waker> {
    let message = Message::Forward(wire::parcel(frame));
    let cost = wire::cost(&message);
    peer.outbox.push_behind(message, cost).ok().flatten()
}
