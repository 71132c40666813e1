//! How the scheduler leaves: nothing more is read or placed, queues are written out, and every START that its node did
//! not get is answered while its sender can still be told.
//!
//! Time is `--drain-deadline` in all: half of it for nodes to take what is queued for them, up to three quarters for
//! the sessions of nodes that were cut, the rest for everyone else. The store has a deadline of its own behind that.
//!
//! Steps of [`Hub::leave`], in order:
//!
//! ```text
//! begin_shutdown   before: flag, Input::Leaving, budgets closed: nothing is read or placed; nodes' queues run empty
//! half time        nodes that are still there are cut; their unsent messages go back to the core
//! three quarters   whatever is answered by then is queued
//! flush            answers that wait for the disk are released
//! finish           the queues of all others run empty
//! deadline         the process stops waiting for peers
//! close_store      at most five seconds more
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto_frames::Role;
use tokio::time::{Instant, timeout_at};
use tracing::warn;

use super::{Hub, PeerState};
use sched_core::{Backlog, Input, KnownNode};

/// How long the store may take for its last transaction. A disk that writes at all needs milliseconds.
pub const STORE_DEADLINE: Duration = Duration::from_secs(5);

/// The roles of those who are given STARTs. Their queues are emptied first, because what they do not take is answered
/// to the others.
const NODES: Role = Role(Role::AGENT.0 | Role::NETAGENT.0);

impl PeerState {
    /// Nodes for compute and for networks alike.
    fn is_node(&self) -> bool {
        self.role.intersects(NODES)
    }
}

impl Hub {
    /// Ends every session once what is queued for it is written, or its time is up; behind [`Hub::begin_shutdown`].
    ///
    /// Nodes first, within half of the deadline. What they did not take by then the core answers; a quarter is theirs
    /// to end. The rest of the time is for those who wait for the answers, among them what is answered only once it is
    /// on disk. The store is closed last.
    pub(in crate::server) async fn leave(self: &Arc<Self>) {
        // Counted for the log line at the end.
        let peers = self.peer_count();
        let deadline = self.limits.drain_deadline;
        let begun = Instant::now();
        let mut late = 0;
        if !self
            .all_gone(PeerState::is_node, begun + deadline / 2)
            .await
        {
            // What these nodes did not take, their sessions hand back to the core, which answers the senders.
            late = self.cut_nodes();
            self.all_gone(PeerState::is_node, begun + deadline * 3 / 4)
                .await;
        }
        // Answers that the core withholds until they are on disk are queued by this.
        self.flush((begun + deadline).saturating_duration_since(Instant::now()))
            .await;
        self.finish(|_| true);
        if !self.all_gone(|_| true, begun + deadline).await {
            // A node that was cut is counted already.
            late += self.peers.iter().filter(|peer| !peer.is_node()).count();
        }
        if late > 0 {
            warn!(
                event = "peers_not_drained",
                "{late} of {peers} peers did not take what was queued within {deadline:?}"
            );
        }
        self.close_store(STORE_DEADLINE).await;
    }

    /// No peer is read from, nothing is placed any more, and what is queued for nodes is finished. The flag, the core's
    /// knowledge and the closed budgets change under one lock, so that no START is placed after it. Returns the nodes that
    /// are known at this moment, before any of them leaves because the scheduler does.
    pub(in crate::server) fn begin_shutdown(&self) -> Vec<KnownNode> {
        let mut nodes = Vec::new();
        self.in_batch(None, |batch, scheduler| {
            nodes = scheduler.known_nodes();
            self.shutting_down.store(true, Ordering::SeqCst);
            scheduler.handle(batch.now, Input::Leaving);
            for peer in &self.peers {
                // To the core a stalled node is one on which nothing is placed.
                peer.budget.close();
                if peer.is_node() {
                    let (session, backlog) = (*peer.key(), Backlog::Stalled);
                    scheduler.handle(batch.now, Input::Backlog { session, backlog });
                }
            }
            self.dispatch(scheduler, batch);
        });
        self.finish(PeerState::is_node);
        self.notify_leaving();
        nodes
    }

    /// Read by every task without the lock. True from [`Hub::begin_shutdown`] until the process ends.
    pub(in crate::server) fn is_shutting_down(&self) -> bool {
        self.shutting_down.load(Ordering::SeqCst)
    }

    /// Lets the queues of some peers run empty, and their connections end. An outbox that is finished takes nothing
    /// more; its connection is closed once it is empty.
    fn finish(&self, which: impl Fn(&PeerState) -> bool) {
        for peer in &self.peers {
            if which(&peer) {
                peer.outbox.finish();
            }
        }
    }

    /// Ends the nodes' connections at once; how many there were. Their sessions hand in what was not sent.
    ///
    /// What is unsent is moved to `late` here, and the session's task picks it up in [`Hub::ended`]; the peers stay in
    /// the map until then.
    fn cut_nodes(&self) -> usize {
        let mut cut = 0;
        for peer in &self.peers {
            if peer.is_node() {
                cut += 1;
                // Under its own lock, so that nothing is put there before what was queued earlier.
                let mut late = peer.late.lock();
                let mut unsent = peer.outbox.shut();
                unsent.append(&mut late);
                *late = unsent;
            }
        }
        cut
    }

    /// Waits until none of some peers is left; `false` if the time is up first. Looks again each time a session ends.
    /// Ends between the look and the wait are not missed: the notification is kept.
    async fn all_gone(&self, which: impl Fn(&PeerState) -> bool, deadline: Instant) -> bool {
        loop {
            if !self.peers.iter().any(|peer| which(&peer)) {
                return true;
            }
            if timeout_at(deadline, self.left.notified()).await.is_err() {
                return false;
            }
        }
    }
}
