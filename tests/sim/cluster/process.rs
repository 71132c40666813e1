//! One scheduler's process: its clocks, its election and its fence, and what of it waits for etcd.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ciao_etcd::election::{Answer, Election, Term};
use ciao_scheduler::cluster::{Left, Records, Written};
use ciao_scheduler::net::fence::Fence;

use super::calls::Calls;
use super::journal::Journal;
use crate::network::Server;

/// One scheduler's process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) server: Server,
    /// How fast its clock goes, in percent.
    pub(super) pace: u32,
    /// By how much its clock is ahead of others'.
    pub(super) ahead: Duration,
    /// While it runs.
    pub(crate) election: Option<Election>,
    pub(super) fence: Fence,
    pub(super) calls: Calls,
    pub(super) tasks: Vec<Task>,
    /// Once it has taken over.
    pub(crate) journal: Option<Journal>,
    /// Under which it serves.
    pub(crate) term: Option<Term>,
    /// When its election is looked at next.
    pub(super) due: Option<Instant>,
    /// When the last change that it is told of arrives.
    pub(super) watched: Option<Instant>,
    /// Until when it stands still.
    pub(crate) stopped: Option<Instant>,
    /// Until when what it sends to etcd is lost.
    pub(super) mute: Option<Instant>,
    /// Until when what etcd sends to it is lost.
    pub(super) deaf: Option<Instant>,
    /// Until when it watches nothing: its watch has ended, as where its revision was compacted.
    pub(super) blind: Option<Instant>,
    /// Until when no peer reaches it.
    pub(crate) cut_off: Option<Instant>,
}

/// What waits for etcd.
pub(super) struct Task(pub(super) Pin<Box<dyn Future<Output = Done>>>);

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}

/// What came of it.
pub(super) enum Done {
    Answered(u64, Answer),
    TakenOver(Rc<Records<Calls, Calls>>, Result<Left, String>, Written),
    Wrote(Result<(), String>, Written),
    WroteNodes(String, Result<(), String>, Written),
}

impl Process {
    pub(super) fn new(place: usize, pace: u32) -> Self {
        Self {
            server: Server { place, life: 0 },
            pace,
            ahead: Duration::ZERO,
            election: None,
            fence: Fence::default(),
            calls: Calls::default(),
            tasks: Vec::new(),
            journal: None,
            term: None,
            due: None,
            watched: None,
            stopped: None,
            mute: None,
            deaf: None,
            blind: None,
            cut_off: None,
        }
    }

    /// What its clock shows when so much time has passed.
    pub(super) fn clock(&self, elapsed: Duration) -> Duration {
        elapsed * self.pace / 100
    }

    /// Under which its election says that it leads.
    pub(super) fn term(&self) -> Option<Term> {
        self.election.as_ref().and_then(Election::term)
    }

    /// Whether it may send.
    pub(crate) fn may_send(&self, now: Instant, elapsed: Duration) -> bool {
        let stands = self.stopped.is_some_and(|until| until > now);
        !stands && self.fence.is_open_at(self.clock(elapsed))
    }

    /// Under which term it says that it leads.
    pub(crate) fn wire_term(&self) -> Option<proto_frames::Term> {
        self.term.map(|term| proto_frames::Term {
            generation: term.generation,
            revision: u64::try_from(term.create_revision).expect("revisions ascend from 1"),
        })
    }
}
