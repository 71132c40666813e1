//! What a controller that becomes master is told first: all nodes and instances, in pages, and then the outcomes that only
//! masters before it were told of (`outcomes`).
//!
//! # How pages and events go together
//!
//! A row says how its node or instance stood when its page was queued for the controller. Pages stand in one line with all
//! events for it, in the order in which things happened: what comes after a row is newer than the row, what came before it is
//! contained in it. So a controller that takes in pages and events as they come, the later one overriding, has the right
//! picture with the last page, and keeps it. A row may come twice; the later one counts.
//!
//! - The first page follows the ControllerStatus at once. Where one page is enough, nothing comes between.
//! - A page has at most [`MAX_LIMIT`] rows, and no more than one is made in a turn: that is as long as a query holds up
//!   everybody else. Further ones follow in ticks that are due at once, whenever the controller's queue is short.
//! - An instance that is placed, moves or ends between two pages may be on none of them or on two. Of one that is looked
//!   after InstanceState tells, of a plain one the STATS, InstanceDeleted and the like that all controllers hear.
//! - Outcomes follow the last page.
//!
//! A controller that is first, and so master without having been backup, is told the same if there is something to tell: any
//! instance, or an outcome that nobody heard. It is what it needs after a restart of either side. A master's newer connection
//! takes the place of the older one, with what that was not sent: it is told only if the older one was still being told.
//! Original controllers know no snapshots.

use crate::Scheduler;
use crate::api::action::{Action, Message};
use crate::api::ids::SessionId;
use crate::api::input::Backlog;
use crate::peers::Peers;
use crate::peers::outcomes::Outcome;
use crate::query::snapshot::Shown;

/// The controller that is being told, if one is.
#[derive(Debug, Default)]
pub(crate) struct Briefing {
    open: Option<Box<Briefed>>,
}

/// A controller that is being told.
#[derive(Debug)]
struct Briefed {
    to: SessionId,
    shown: Shown,
    /// What is to follow the last page.
    missed: Vec<Outcome>,
}

impl Briefing {
    /// Begins to tell a controller, and afterwards what it missed, in place of who was being told.
    fn begin(&mut self, to: SessionId, missed: Vec<Outcome>) {
        let shown = Shown::default();
        self.open = Some(Box::new(Briefed { to, shown, missed }));
    }

    /// Who is being told, and how much of the picture it was shown.
    fn current(&mut self) -> Option<(SessionId, &mut Shown)> {
        let briefed = self.open.as_mut()?;
        Some((briefed.to, &mut briefed.shown))
    }

    /// Ends it; what was to follow the last page.
    fn finish(&mut self) -> Vec<Outcome> {
        let briefed = self.open.take();
        briefed.map_or_else(Vec::new, |briefed| briefed.missed)
    }

    /// A connection has ended with this not written to it; whether it was not told everything that it was to be told. Its
    /// newer one then is, from the start.
    pub(crate) fn end_of(&mut self, session: SessionId, unsent: &[Message]) -> bool {
        let is_page = |message: &Message| matches!(message, Message::Snapshot(_));
        let briefed = self.open.take_if(|briefed| briefed.to == session);
        briefed.is_some() || unsent.iter().any(is_page)
    }

    /// Whether the next page can be queued.
    pub(crate) fn is_page_due(&self, peers: &Peers) -> bool {
        let session = self.open.as_ref().and_then(|it| peers.get(it.to));
        session.is_some_and(|session| session.backlog() == Backlog::Clear)
    }
}

impl Scheduler {
    /// Begins to tell a controller that was promoted.
    pub(crate) fn brief(&mut self, to: SessionId) {
        self.briefing.finish();
        let session = self.peers.session(to);
        if !session.is_native() {
            return;
        }
        let missed = self.peers.missed_by(session.uuid(), self.now);
        self.briefing.begin(to, missed);
        self.brief_on();
    }

    /// Tells a controller that is master from the start, if there is something to tell.
    pub(crate) fn brief_first(&mut self, to: SessionId) {
        let uuid = self.peers.session(to).uuid();
        let is_news = self.cluster.placements().0 > 0
            || !self.instances.is_empty()
            || !self.peers.missed_by(uuid, self.now).is_empty();
        if is_news {
            self.brief(to);
        }
    }

    /// Queues the next page if the controller's queue is short.
    pub(crate) fn brief_if_due(&mut self) {
        if self.briefing.is_page_due(&self.peers) {
            self.brief_on();
        }
    }

    /// Queues the next page, and after the last one what was missed.
    fn brief_on(&mut self) {
        let mut briefing = std::mem::take(&mut self.briefing);
        let Some((to, shown)) = briefing.current() else {
            return;
        };
        let snapshot = self.snapshot_page(self.now, shown);
        let is_last = snapshot.last;
        let message = Message::Snapshot(Box::new(snapshot));
        self.act(Action::Send { to, message });
        if is_last {
            return self.replay(to, briefing.finish());
        }
        self.briefing = briefing;
    }
}
