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
//! takes the place of the older one, with what that was not sent: it is told only if the older one was still being told. Original controllers know no snapshots.

use proto_frames::payload::Snapshot;
use proto_frames::payload::query::MAX_LIMIT;

use crate::Scheduler;
use crate::api::action::{Action, Message};
use crate::api::ids::SessionId;
use crate::api::input::Backlog;
use crate::query::page::{Allowance, InstanceCursor, NodeCursor};
use crate::workflow::outcomes::Outcome;

/// A controller that is being told.
#[derive(Debug)]
pub(crate) struct Briefing {
    to: SessionId,
    /// The number of the next page.
    page: u32,
    /// Where it begins among the nodes; `None` once all were told.
    nodes: Option<NodeCursor>,
    /// Where it begins among the instances.
    instances: InstanceCursor,
    /// What is to follow the last page.
    missed: Vec<Outcome>,
}

impl Scheduler {
    /// Begins to tell a controller that was promoted.
    pub(crate) fn brief(&mut self, to: SessionId) {
        self.briefing = None;
        let session = self.peers.session(to);
        if !session.is_native() {
            return;
        }
        let missed = self.outcomes.missed_by(session.uuid(), self.now);
        self.briefing = Some(Box::new(Briefing {
            to,
            page: 0,
            nodes: Some(NodeCursor::default()),
            instances: InstanceCursor::default(),
            missed,
        }));
        self.brief_on();
    }

    /// Tells a controller that is master from the start, if there is something to tell.
    pub(crate) fn brief_first(&mut self, to: SessionId) {
        let uuid = self.peers.session(to).uuid();
        let is_news = self.cluster.placements().0 > 0
            || !self.instances.is_empty()
            || !self.outcomes.missed_by(uuid, self.now).is_empty();
        if is_news {
            self.brief(to);
        }
    }

    /// A connection has ended; whether it was not told everything that it was to be told. Its newer one then is, from the
    /// start.
    pub(crate) fn end_briefing(&mut self, session: SessionId, unsent: &[Message]) -> bool {
        let is_page = |message: &Message| matches!(message, Message::Snapshot(_));
        let briefing = self.briefing.take_if(|briefing| briefing.to == session);
        briefing.is_some() || unsent.iter().any(is_page)
    }

    /// Whether the next page can be queued.
    pub(crate) fn is_page_due(&self) -> bool {
        let briefing = self.briefing.as_ref();
        briefing.is_some_and(|briefing| {
            let session = self.peers.get(briefing.to);
            session.is_some_and(|session| session.backlog() == Backlog::Clear)
        })
    }

    /// Queues the next page, and after the last one what was missed.
    pub(crate) fn brief_on(&mut self) {
        let Some(mut briefing) = self.briefing.take() else {
            return;
        };
        if self.peers.get(briefing.to).is_none() {
            return;
        }
        let (to, now) = (briefing.to, self.now);
        let mut allowance = Allowance::new(MAX_LIMIT as usize);
        let mut snapshot = Snapshot {
            page: briefing.page,
            ..Snapshot::default()
        };
        if let Some(from) = briefing.nodes {
            briefing.nodes = self.node_page(now, from, "", &mut allowance, &mut snapshot.nodes);
        }
        if briefing.nodes.is_none() {
            let from = std::mem::take(&mut briefing.instances);
            let rows = &mut snapshot.instances;
            match self.instance_page(now, from, "", &mut allowance, rows) {
                Some(next) => briefing.instances = next,
                None => snapshot.last = true,
            }
        }
        let is_last = snapshot.last;
        let message = Message::Snapshot(Box::new(snapshot));
        self.act(Action::Send { to, message });
        if is_last {
            return self.replay(to, briefing.missed);
        }
        briefing.page += 1;
        self.briefing = Some(briefing);
    }
}
