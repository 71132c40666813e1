//! Sessions behind which there is no connection of frames: those of the HTTP door. What the core says to one is taken
//! by what stands there for it, under the scheduler's lock and in the order of its decisions.
//!
//! A door is to the core a native peer like any other: it connects, gives commands, is sent messages and leaves. It has
//! no certificate of its own here; the opener has checked what the person behind it may do, and gives the door that
//! role.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proto_frames::{Role, Uuid};

use super::Hub;
use crate::net::budget::Budget;
use crate::server::connection_limit::CertificateId;
use sched_core::{Departure, Hello, Input, Message, Scheduler, SessionId, ShortText};

/// What takes in what the core says to a session. Implementations must not call the hub from `take`: its lock is held.
pub(in crate::server) trait Door: Debug + Send + Sync {
    /// Takes a message. Called under the scheduler's lock: it notes it and returns.
    /// Answers of the store of images come without that lock, from its thread.
    fn take(&self, message: Message);

    /// What its own commands may take up in others' queues; `None` for one that sends none, such as one that only reads
    /// events.
    fn budget(&self) -> Option<&Arc<Budget>>;

    /// The subject of the certificate behind it, by which the store of images notes who pushed something, and the history who
    /// deleted something; empty for one that pushes and deletes nothing.
    fn subject(&self) -> &str {
        ""
    }
}

impl Hub {
    /// Begins a session of a native peer of this name and role, behind which is a client with this certificate, if it
    /// is not one of the scheduler's own. The session ends with [`Hub::close_door`], not by
    /// itself.
    ///
    /// The entry is made before the core is told, so that the first message finds it. To the core its UUID is not bound
    /// to a certificate, and it has no address.
    pub(in crate::server) fn open_door(
        &self,
        (uuid, role): (Uuid, Role),
        certificate: Option<CertificateId>,
        door: Arc<dyn Door>,
    ) -> SessionId {
        let session = self.next_session();
        let subject = Some(door.subject()).filter(|subject| !subject.is_empty());
        let subject = subject.map(ShortText::from);
        self.doors.insert(session, door);
        let hello = Hello {
            certificate,
            subject,
            ..Hello::native(uuid, role)
        };
        self.handle([Input::Connect { session, hello }], None);
        session
    }

    /// Ends such a session. A door that is closed twice, or while the scheduler leaves, is nothing to the core. What
    /// the door was told and did not use is lost; nothing of a door is ever unsent.
    pub(in crate::server) fn close_door(&self, session: SessionId) {
        if self.doors.remove(&session).is_none() || self.is_shutting_down() {
            return;
        }
        let ended = Input::Disconnected {
            session,
            unsent: Vec::new(),
            departure: Departure::Closed,
        };
        self.handle([ended], None);
    }

    /// Reads from the core at this moment, and beside it with what holds as long as the core's lock is held. `Instant`
    /// is one moment for all that the closure reads. Counted as a time for which the lock was held.
    pub(in crate::server) fn read_now<T>(&self, read: impl FnOnce(&Scheduler, Instant) -> T) -> T {
        let scheduler = self.scheduler.lock();
        let begun = Instant::now();
        let found = read(&scheduler, begun);
        drop(scheduler);
        self.holds.note(begun.elapsed());
        found
    }

    /// As [`Hub::read_now`], but with the core to be changed: some questions fill sets that the core caches for the
    /// next one. `ask` must make no decisions, because no action is taken from the core afterwards.
    pub(in crate::server) fn ask_now<T>(
        &self,
        ask: impl FnOnce(&mut Scheduler, Instant) -> T,
    ) -> T {
        let mut scheduler = self.scheduler.lock();
        let begun = Instant::now();
        let found = ask(&mut scheduler, begun);
        drop(scheduler);
        self.holds.note(begun.elapsed());
        found
    }

    /// As [`Hub::read_now`], unless the lock is not free within this time: `None` then. For probes, which have to say
    /// within a deadline that the core does not answer. Blocks the thread meanwhile, so it is called on a thread for
    /// blocking work. Not counted among the holds.
    pub(in crate::server) fn read_within<T>(
        &self,
        time: Duration,
        read: impl FnOnce(&Scheduler, Instant) -> T,
    ) -> Option<T> {
        let scheduler = self.scheduler.try_lock_for(time)?;
        Some(read(&scheduler, Instant::now()))
    }

    /// Waits until the scheduler is about to leave.
    pub(in crate::server) async fn leaving(&self) {
        let mut leaving = self.leaving.subscribe();
        // The sender lives as long as the hub.
        let _ = leaving.wait_for(|is_leaving| *is_leaving).await;
    }

    /// Notifies those who wait for [`Hub::leaving`]. The flag beside it is set under the scheduler's lock before.
    pub(super) fn notify_leaving(&self) {
        debug_assert!(self.shutting_down.load(Ordering::SeqCst), "set before");
        self.leaving.send_replace(true);
    }
}
