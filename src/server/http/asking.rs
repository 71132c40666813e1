//! A request that asks what a thread beside the core answers: the store of images, the keeper of the configuration.
//!
//! Each opens a session of its own in the core, in the role that the route is for, and asks through it as a peer of SSNTP
//! does: the core says whether it may, the one thread does it, and the answer comes back to the session.
//!
//! ```text
//! handler ── Asking::ask ──▶ core: may it? ──▶ server::images, server::configuration: a thread
//!               ▲──────────── Inbox ◀── IMAGE, CONFIGURATION, … ◀──┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use proto_frames::{Frame, Role, Uuid};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::call::Call;
use super::caller::problem_in;
use super::limits::MAX_ANSWERS;
use super::problem::Problem;
use super::serve::App;
use crate::net::budget::Budget;
use crate::server::hub::Door;
use crate::server::wire;
use sched_core::{Command, Input, Message, SessionId};

/// Longest time until there is an answer. Each thread does one thing after the other, and the store of images reads all
/// that is there of an image when an upload of it goes on after a restart: some gigabytes.
const ANSWER_DEADLINE: Duration = Duration::from_secs(120);

/// A session that asks one thing at a time. Dropping it closes the session.
pub(super) struct Asking {
    app: Arc<App>,
    session: SessionId,
    received: mpsc::Receiver<Message>,
}

/// Takes the answers for a session.
#[derive(Debug)]
struct Inbox {
    messages: mpsc::Sender<Message>,
    /// Of the client's certificate.
    subject: String,
}

impl Door for Inbox {
    fn take(&self, message: Message) {
        // One answer is waited for at a time; what does not fit is of no use.
        let _ = self.messages.try_send(message);
    }

    fn budget(&self) -> Option<&Arc<Budget>> {
        None
    }

    fn subject(&self) -> &str {
        &self.subject
    }
}

impl Asking {
    /// Opens a session in this role, which the route has checked.
    ///
    /// # Errors
    /// 503 `leaving`.
    pub(super) fn open(call: &Call, role: Role) -> Result<Self, Problem> {
        let app = Arc::clone(&call.app);
        if app.hub.is_shutting_down() {
            return Err(Problem::leaving());
        }
        let (messages, received) = mpsc::channel(MAX_ANSWERS);
        let subject = call.connection.identity.subject.clone();
        let certificate = Some(call.connection.identity.fingerprint);
        let inbox = Arc::new(Inbox { messages, subject });
        let session = app
            .hub
            .open_door((Uuid::new_v4(), role), certificate, inbox);
        Ok(Self {
            app,
            session,
            received,
        })
    }

    /// Asks for something and waits for the answer.
    ///
    /// # Errors
    /// What the core says where the session may not; 504 `timeout` after [`ANSWER_DEADLINE`].
    pub(super) async fn ask(&mut self, command: Command, frame: Frame) -> Result<Frame, Problem> {
        let input = Input::Command {
            session: self.session,
            command,
            parcel: wire::parcel(frame),
        };
        self.app.hub.handle([input], None);
        let answer = timeout(ANSWER_DEADLINE, self.answer()).await;
        answer.unwrap_or_else(|_| {
            let detail = format!("there was no answer within {ANSWER_DEADLINE:?}");
            Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "timeout", detail))
        })
    }

    /// The next answer, without a deadline. Messages of other kinds are passed over.
    async fn answer(&mut self) -> Result<Frame, Problem> {
        loop {
            match self.received.recv().await {
                Some(Message::Forward(parcel)) => return Ok(wire::frame_of(&parcel)),
                Some(message) => {
                    if let Some(problem) = problem_in(&message) {
                        return Err(problem);
                    }
                }
                // The hub holds the sender until the session is closed, which happens when this is dropped.
                None => std::future::pending().await,
            }
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.app.hub.close_door(self.session);
    }
}

/// An answer that is none. Cannot be: it is of this process.
pub(super) fn unreadable(error: impl std::fmt::Display) -> Problem {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    Problem::new(status, "internal_error", error)
}
