//! Snapshot sync: which controller that became master is being told how everything is, how much of the picture it was
//! shown, and which outcomes follow. What a page holds is for `query::snapshot` to say, and when the next one comes for
//! `workflow::sync`.

use crate::api::action::Message;
use crate::api::ids::SessionId;
use crate::api::input::Backlog;
use crate::peers::Peers;
use crate::peers::outcomes::Outcome;

/// The controller that is being told, if one is.
#[derive(Debug)]
pub(crate) struct SnapshotSync<Shown> {
    open: Option<Box<Synced<Shown>>>,
}

/// A controller that is being told.
#[derive(Debug)]
struct Synced<Shown> {
    to: SessionId,
    shown: Shown,
    /// What is to follow the last page.
    missed: Vec<Outcome>,
}

impl<Shown> Default for SnapshotSync<Shown> {
    /// No controller is being told.
    fn default() -> Self {
        Self { open: None }
    }
}

impl<Shown: Default> SnapshotSync<Shown> {
    /// Begins to tell a controller, and afterwards what it missed, in place of who was being told.
    pub(crate) fn begin(&mut self, to: SessionId, missed: Vec<Outcome>) {
        let shown = Shown::default();
        self.open = Some(Box::new(Synced { to, shown, missed }));
    }

    /// Who is being told, and how much of the picture it was shown.
    pub(crate) fn current(&mut self) -> Option<(SessionId, &mut Shown)> {
        let synced = self.open.as_mut()?;
        Some((synced.to, &mut synced.shown))
    }

    /// Ends it; what was to follow the last page.
    pub(crate) fn finish(&mut self) -> Vec<Outcome> {
        let synced = self.open.take();
        synced.map_or_else(Vec::new, |synced| synced.missed)
    }

    /// A connection has ended with this not written to it; whether it was not told everything that it was to be told. Its
    /// newer one then is, from the start.
    pub(crate) fn end_of(&mut self, session: SessionId, unsent: &[Message]) -> bool {
        let is_page = |message: &Message| matches!(message, Message::Snapshot(_));
        let synced = self.open.take_if(|synced| synced.to == session);
        synced.is_some() || unsent.iter().any(is_page)
    }

    /// Whether a controller is being sent a snapshot.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Whether the next page can be queued.
    pub(crate) fn is_page_due(&self, peers: &Peers) -> bool {
        let session = self.open.as_ref().and_then(|it| peers.get(it.to));
        session.is_some_and(|session| session.backlog() == Backlog::Clear)
    }
}
