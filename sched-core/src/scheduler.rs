//! The state machine itself: its parts, and the three calls that drive it. What happens on each input is in the arms
//! beside this file: `connections`, `reports`, `placement`, `workloads`, `forwarding`, `timers`, `queries`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use crate::api::action::{Action, Message, Notice};
use crate::api::config::Config;
use crate::api::ids::{InstanceId, SessionId};
use crate::api::input::{ClusterConfiguration, Input};
use crate::api::sent::Sent;
use crate::api::tally::{Reasons, Times};
use crate::batches::Batches;
use crate::cluster::Cluster;
use crate::instance::Instances;
use crate::journal::Journal;
use crate::peers::Peers;
use crate::peers::configuration::ClusterPayload;
use crate::peers::outcomes;
use crate::peers::session::Session;
use crate::placement::Placement;
use crate::query::snapshot::Shown;
use crate::queue::Queue;
use crate::recovery::Recovery;
use crate::sync::SnapshotSync;
use crate::timers::Timers;

/// The scheduler as a pure state machine: events in, actions out, time passed in.
///
/// Hand in each thing that happens with [`Scheduler::handle`], then take everything there is to do from
/// [`Scheduler::poll_action`], in order. [`Scheduler::poll_timeout`] says when to hand in [`Input::Tick`] at the
/// latest. The same inputs at the same times give the same actions.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) config: Arc<Config>,
    pub(crate) cluster: Cluster,
    pub(crate) peers: Peers,
    pub(crate) placement: Placement,
    pub(crate) recovery: Recovery,
    /// What is managed.
    pub(crate) instances: Instances,
    /// Those of them that wait for room, and the nodes they are to be asked about.
    pub(crate) queue: Queue,
    /// What is due when.
    pub(crate) timers: Timers,
    pub(crate) journal: Journal,
    pub(crate) sync: SnapshotSync<Shown>,
    pub(crate) batches: Batches,
    pub(crate) counters: Counters,
    /// When it was made.
    pub(crate) started: Instant,
    /// The time of the input being handled.
    pub(crate) now: Instant,
    actions: VecDeque<Action>,
}

/// What the core has done so far; all counts start at 0 with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// STARTs that came in and were not refused.
    pub starts: u64,
    /// STARTs given to a node, repeated ones included.
    pub placed: u64,
    /// StartFailures sent by the scheduler.
    pub failed: u64,
    /// Commands and reports refused because of who sent them or what they claim.
    pub refused: u64,
    /// Things sent that are neither commands nor reports.
    pub unknown: u64,
    /// Commands and reports that could not be read.
    pub malformed: u64,
    /// Instances that nodes spoke of and that are placed on other nodes.
    pub foreign: u64,
    /// Transitions of instances that were refused because their lifecycle does not have them: each is a defect here.
    pub illegal_transitions: u64,
    /// Times that a node came to be short of memory.
    pub pressures: u64,
    /// Instances moved away from such a node.
    pub relieved: u64,
    /// Failures of STARTs that their senders were told of, by this scheduler or by launchers, by reason.
    pub failures: Reasons,
    /// STARTs that nodes did not start, whatever became of them then, by reason.
    pub node_refusals: Reasons,
    /// Nodes whose connection ended.
    pub node_losses: u64,
    /// Instances that were suspended for one of higher priority.
    pub preempted_by_suspend: u64,
    /// Instances that were stopped for one of higher priority.
    pub preempted_by_stop: u64,
    /// How long nodes took from the choice to listing the instance.
    pub confirmed: Times,
}

impl Scheduler {
    /// A scheduler without peers, whose recovery window starts now. Rules that do not hold together
    /// ([`crate::Rules::check`]) are as good as none.
    #[must_use]
    pub fn new(mut config: Config, cluster: ClusterConfiguration, now: Instant) -> Self {
        let recovery = Recovery::new(&config, now);
        let placement = Placement::new(&cluster.rules.policy);
        let configuration = ClusterPayload {
            native: cluster.payload,
            original: cluster.original,
        };
        let restored = std::mem::take(&mut config.restored);
        let known_nodes = std::mem::take(&mut config.known_nodes);
        let config = Arc::new(config);
        let cluster = Cluster::new(Arc::clone(&config), cluster.flags, cluster.rules);
        let journal = Journal::new(config.durable);
        let mut scheduler = Self {
            placement,
            cluster,
            config,
            peers: Peers::new(configuration),
            recovery,
            instances: Instances::default(),
            queue: Queue::default(),
            timers: Timers::default(),
            journal,
            sync: SnapshotSync::default(),
            batches: Batches::default(),
            counters: Counters::default(),
            started: now,
            now,
            actions: VecDeque::new(),
        };
        scheduler.restore_known_nodes(known_nodes);
        scheduler.restore(restored);
        scheduler.set_recovery_timer();
        scheduler.set_timers();
        scheduler
    }

    /// Takes in one thing that happened at `now`. Times never go back.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Command {
                session,
                command,
                parcel,
            } => self.command(now, session, command, parcel),
            Input::Report {
                session,
                report,
                parcel,
            } => self.report(now, session, report, parcel),
            Input::Malformed {
                session,
                sent,
                malformed,
                parcel,
            } => self.unreadable(session, sent, malformed, parcel),
            Input::Unknown {
                session,
                tag,
                unknown,
            } => self.unknown(session, tag, unknown),
            Input::Connect { session, hello } => self.connect(now, session, hello),
            Input::Disconnected {
                session,
                unsent,
                departure,
            } => self.disconnected(now, session, unsent, departure),
            Input::Backlog { session, backlog } => self.backlog(session, backlog),
            Input::Committed(ticket) => self.committed(ticket),
            Input::Disk(state) => self.disk_is(state),
            Input::Leaving => self.fail_waiting(),
            Input::Tick => self.tick(now),
        }
        self.note_changes();
        let has_work = self.journal.has_work(self.now)
            || self.queue.has_work()
            || self.cluster.cordons().is_stirred();
        if has_work {
            self.finish_input();
        }
        self.set_timers();
    }

    /// Does what this input has made possible, and hands out what changed.
    fn finish_input(&mut self) {
        /// Rounds of things that make other things possible; what is left then is done in the tick that is due at once.
        const MAX_ROUNDS: usize = 16;
        for _ in 0..MAX_ROUNDS {
            let any = self.run_committed() | self.continue_drains();
            if !self.serve_waiting() && !self.seek_for_evicted() && !any {
                break;
            }
        }
        self.hand_out_changes();
    }

    /// The next thing to do, if any.
    pub fn poll_action(&mut self) -> Option<Action> {
        const KEEP_ACTIONS: usize = 4096;
        if self.actions.is_empty() {
            if self.actions.capacity() > KEEP_ACTIONS {
                self.actions.shrink_to(KEEP_ACTIONS);
            }
            return None;
        }
        self.actions.pop_front()
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Things remembered that peers can make more of, for tests: what a peer has said must go with it, or be bounded.
    #[doc(hidden)]
    #[must_use]
    pub fn entries(&self) -> usize {
        let ledgers = self
            .cluster
            .nodes()
            .iter_from(0)
            .map(|(_, node)| node.ledger().len());
        self.peers.len()
            + self.cluster.placements().0
            + self.peers.answers()
            + self.peers.reads().len()
            + self.instances.iter().count()
            + self.cluster.groups().len()
            + ledgers.sum::<usize>()
    }

    /// Whether an instance is placed, or the scheduler has it to place; one that is not may be listed by nodes all the same.
    /// For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn has_instance(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance) || self.cluster.placement(instance).is_some()
    }

    pub(crate) fn send(&mut self, to: SessionId, message: Message) {
        if outcomes::is_outcome(&message) {
            return self.send_outcome(to, message);
        }
        if let Message::Forward(parcel) = &message
            && self.is_too_long_for(to, parcel)
        {
            return;
        }
        self.actions.push_back(Action::Send { to, message });
    }

    pub(crate) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    /// Logs something refused once per session and name.
    pub(crate) fn notice_once(
        &mut self,
        session: SessionId,
        sent: Sent,
        notice: impl FnOnce(&Session) -> Notice,
    ) {
        if let Some(session) = self.peers.first_refusal(session, sent) {
            let notice = notice(session);
            self.notice(notice);
        }
    }
}
