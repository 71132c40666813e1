//! Several schedulers behind one name, in what the one that leads says of itself: who stands by, and how etcd is; and its
//! handing over to another ([`HandOver`]), as a peer asks.
//!
//! The core knows nothing of it. What is read from etcd now and then ([`Schedulers`]) is added to the answer of a query
//! on its way out, and to those over HTTP.

use std::fmt::Debug;
use std::sync::Arc;

use parking_lot::Mutex;
use proto_frames::payload::{LeadershipTransfer, Payload as _, TransferLeadership, TransferState};
use proto_frames::{Frame, Kind, Uuid};
use sched_core::{Action, Message, SessionId};
use sched_model::SchedulersView;
use tokio::sync::{Notify, watch};
use tokio::task::spawn_blocking;
use tracing::info;

use super::hub::Hub;
use super::sentences;

/// What was read last; `None` before that.
pub type Schedulers = watch::Receiver<Option<SchedulersView>>;

/// How a scheduler that leads several has another of them lead.
pub trait HandOver: Debug + Send + Sync {
    /// Where this scheduler is, as the others know it.
    fn address(&self) -> &str;

    /// Sees to it that the scheduler at this address, or any other where it is empty, leads as soon as this one has given its
    /// turn up, and this one not before it has had the time. Says which one that is; empty where any of several may. Blocks
    /// the calling thread.
    ///
    /// # Errors
    /// Why this scheduler goes on: none stands by, or not there, or that cannot be written.
    fn prepare(&self, to: &str) -> Result<String, String>;

    /// Has this scheduler end its sessions, and then its turn.
    fn begin(&self);
}

/// Who asks that another scheduler leads.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    /// One at a time.
    asked: Mutex<Option<(SessionId, TransferLeadership)>>,
    /// Told of it.
    has_been_asked: Notify,
}

impl Transfers {
    /// Adds one; what it is answered where another has just asked.
    pub(super) fn ask(
        &self,
        session: SessionId,
        transfer: TransferLeadership,
    ) -> Option<LeadershipTransfer> {
        let mut asked = self.asked.lock();
        if asked.is_some() {
            let why = "another transfer is under way".to_owned();
            return Some(refused(transfer.id, why));
        }
        *asked = Some((session, transfer));
        drop(asked);
        self.has_been_asked.notify_one();
        None
    }
}

/// Answers who asks that another scheduler leads, and has it be so. A task of the daemon, which never returns.
pub(super) async fn hand_over(hub: Arc<Hub>) {
    loop {
        hub.transfers.has_been_asked.notified().await;
        let Some((session, transfer)) = hub.transfers.asked.lock().clone() else {
            continue;
        };
        let (id, to) = (transfer.id, transfer.to);
        let by = hub.subject_of(session).unwrap_or_default();
        let answer = match hub.limits.hand_over.clone() {
            None => refused(id, "this scheduler is not one of several".to_owned()),
            Some(handler) => {
                let from = handler.address().to_owned();
                let prepared = spawn_blocking(move || handler.prepare(&to)).await;
                match prepared.unwrap_or_else(|panicked| Err(panicked.to_string())) {
                    Err(why) => refused(id, why),
                    Ok(to) => LeadershipTransfer {
                        id,
                        state: TransferState::Begun,
                        from,
                        to,
                        reason: String::new(),
                    },
                }
            }
        };
        *hub.transfers.asked.lock() = None;
        let is_begun = answer.state == TransferState::Begun;
        let to = match (&*answer.to, &*answer.reason) {
            ("", "") => "to any that stands by".to_owned(),
            (to, "") => format!("to {to}"),
            (_, why) => format!("it goes on: {why}"),
        };
        info!(
            event = "leadership_transfer",
            "{by} asks this scheduler to hand over: {to}"
        );
        // Before the sessions end, and not behind what is queued, which is dropped then.
        hub.send_in_order(session, frame(hub.uuid, answer));
        if let Some(handler) = hub.limits.hand_over.as_ref().filter(|_| is_begun) {
            handler.begin();
        }
    }
}

fn refused(id: u64, reason: String) -> LeadershipTransfer {
    LeadershipTransfer {
        id,
        state: TransferState::Refused,
        reason,
        ..LeadershipTransfer::default()
    }
}

/// The answer as a frame.
pub(super) fn frame(scheduler: Uuid, answer: LeadershipTransfer) -> Frame {
    Frame::new(Kind::LEADERSHIP_TRANSFER, scheduler, answer.encode())
}

impl Hub {
    /// The schedulers behind this one's name; `None` where it is alone, or has not looked yet.
    pub(super) fn schedulers(&self) -> Option<SchedulersView> {
        let schedulers = self.limits.schedulers.as_ref()?;
        schedulers.borrow().clone()
    }

    /// Adds them to an answer that says how the scheduler is.
    pub(super) fn add_schedulers(&self, action: &mut Action) {
        let Action::Send { message, .. } = action else {
            return;
        };
        let Message::QueryResult(page) = message else {
            return;
        };
        let Some(status) = &mut page.payload.status else {
            return;
        };
        status.schedulers = self.schedulers();
        if let Some(schedulers) = &status.schedulers {
            status
                .conditions
                .extend(sentences::of_schedulers(schedulers));
            status.well = Some(status.conditions.is_empty());
        }
    }
}
