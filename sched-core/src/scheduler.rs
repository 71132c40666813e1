//! The state machine itself: its parts, and the three calls that drive it. It dispatches each input to a workflow
//! (`dispatch::messages` for commands and reports, `workflow::connections` for peers, `dispatch::time` for time)
//! and holds no policy of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use sched_model::Topic;

use crate::api::action::{Action, Message};
use crate::api::clock::Clock;
use crate::api::config::Config;
use crate::api::ids::InstanceId;
use crate::api::input::{ClusterConfiguration, Input};
use crate::api::tally::{Reasons, Times};
use crate::arrays::Arrays;
use crate::cluster::Cluster;
use crate::instance::Instances;
use crate::journal::Journal;
use crate::peers::Peers;
use crate::peers::configuration::ClusterPayload;
use crate::pending::Pending;
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
    /// What the server was started with; never changes. The cluster configuration, which does, is in `cluster` and
    /// `placement`.
    pub(crate) config: Arc<Config>,
    /// Nodes, their claims, and where each instance is placed.
    pub(crate) cluster: Cluster,
    /// Sessions, and who gets which events.
    pub(crate) peers: Peers,
    /// The policy in force, the search, and explanations.
    pub(crate) placement: Placement,
    /// The recovery window after a restart.
    pub(crate) recovery: Recovery,
    /// Managed instances, and what is remembered of runs that are over.
    pub(crate) instances: Instances,
    /// STARTs that wait for room, and the nodes that have become free for them.
    pub(crate) queue: Queue,
    /// What is due when: [`Scheduler::poll_timeout`] is its first entry.
    pub(crate) timers: Timers,
    /// What has changed and is not on disk yet, and what waits for that.
    pub(crate) journal: Journal,
    /// The controller that is being sent the snapshot, if any.
    pub(crate) sync: SnapshotSync<Shown>,
    /// STARTs that are on no node and not managed, each with what it waits for.
    pub(crate) pending: Pending,
    /// Arrays, and how far each of their elements is.
    pub(crate) arrays: Arrays,
    /// Totals for the metrics; nothing is decided by them.
    pub(crate) counters: Counters,
    /// When it was made, and how moments and unix time are converted.
    pub(crate) clock: Clock,
    /// The time of the input being handled; set first thing in [`Scheduler::handle`], so that all that one input causes
    /// has one time.
    pub(crate) now: Instant,
    /// Decided and not yet taken by the caller, in order.
    pub(crate) actions: VecDeque<Action>,
}

/// What the core has done so far; all counts start at 0 with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// STARTs that came in and were not refused.
    pub starts: u64,
    /// STARTs given to a node, resent ones included.
    pub placed: u64,
    /// StartFailures sent by the scheduler.
    pub failed: u64,
    /// Commands and reports refused because of who sent them or what they claim.
    pub refused: u64,
    /// Things sent that are neither commands nor reports.
    pub unknown: u64,
    /// Commands and reports that could not be read.
    pub malformed: u64,
    /// Instances that nodes reported on and that are placed on other nodes.
    pub foreign: u64,
    /// Transitions of instances that were refused because their lifecycle does not have them: each is a defect of the
    /// core.
    pub illegal_transitions: u64,
    /// Times that a node came to be short of memory.
    pub pressures: u64,
    /// Instances moved away from such a node.
    pub relieved: u64,
    /// StartFailures that senders of STARTs were sent, by this scheduler or forwarded from launchers, by reason.
    pub failures: Reasons,
    /// StartFailures that launchers reported, by reason, whether or not the START was then placed elsewhere.
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
    /// A scheduler without peers, whose recovery window starts now. What `config` brings from before a restart (known
    /// nodes, records) is taken out of it and restored. Rules that do not hold together ([`crate::Rules::check`]) are
    /// replaced by the defaults.
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
        let clock = Clock::new(now, config.start_unix_ms);
        let config = Arc::new(config);
        let cluster = Cluster::new(Arc::clone(&config), cluster.flags, cluster.rules);
        let journal = Journal::new(config.durable, config.disk_patience);
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
            pending: Pending::default(),
            arrays: Arrays::default(),
            counters: Counters::default(),
            clock,
            now,
            actions: VecDeque::new(),
        };
        // Known nodes first: a record of an instance may name one of them.
        scheduler.restore_known_nodes(known_nodes);
        scheduler.restore(restored);
        scheduler.set_recovery_timer();
        scheduler.set_timers();
        scheduler
    }

    /// Takes in one thing that happened at `now`. Times never go back. What is to be done about it is then in
    /// [`Scheduler::poll_action`]; the caller takes all of it before the next input.
    ///
    /// After the input itself: changes of the cluster wake those that wait (`note_changes`), work that has
    /// become possible is done and changed records are handed out (`finish_input`), and the timers are set
    /// to what components have due. STATS are most inputs and change nothing as a rule, so the second step is skipped
    /// where no component has work.
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
            Input::Configure(new) => {
                let (payload, new) = new.into_parts();
                self.configure(None, payload, new);
            }
            Input::NodeRules(rules) => self.cluster.set_node_rules(rules, now),
            Input::Committed(ticket) => self.committed(ticket),
            Input::Disk(state) => self.disk_is(state),
            Input::ConfigurationVersion(version) => {
                let about = &mut Arc::make_mut(&mut self.config).about;
                about.configuration = Some(*version);
            }
            Input::Reloaded { news, reread } => {
                // Components that share the settings do not look at what is said of the process.
                let about = &mut Arc::make_mut(&mut self.config).about;
                about.reloaded(now, &news, reread.map(|it| *it));
                self.notify_controllers(Topic::Scheduler, |session| {
                    let event = || Message::Reloaded(news.clone());
                    session.is_native().then(event)
                });
            }
            Input::Leaving => self.fail_waiting(),
            Input::Tick => self.tick(now),
        }
        self.note_changes();
        let has_work = self.journal.has_work(self.now)
            || self.queue.has_work()
            || self.has_array_work()
            || self.cluster.has_stirred_drains();
        if has_work {
            self.finish_input();
        }
        self.instances.forget_oldest_runs();
        self.set_timers();
    }

    /// Does what this input has made possible, and hands out the records that changed.
    ///
    /// What the input has set free is placed again first. One step may enable another: a commit lets a START be given, its
    /// failure frees room, the room serves the queue, and an instance that had to leave finds another node. The steps are
    /// repeated until none does anything.
    fn finish_input(&mut self) {
        /// Rounds of the steps for one input, so that a defect cannot make it loop for ever; what is left is done in
        /// the tick that is due at once (`Timer::Rest`).
        const MAX_ROUNDS: usize = 16;
        for _ in 0..MAX_ROUNDS {
            let any = self.place_collected()
                | self.run_committed()
                | self.continue_drains()
                | self.settle_elements()
                | self.start_elements();
            if !self.serve_waiting(None) && !any {
                break;
            }
        }
        self.hand_out_changes();
    }

    /// The next thing to do, in the order decided; `None` once all of one input is taken.
    pub fn poll_action(&mut self) -> Option<Action> {
        /// Places kept for actions when all are taken: more than a usual input makes, so that a rare large one (a node
        /// with thousands of instances is lost) does not hold its memory for good.
        const KEEP_ACTIONS: usize = 4096;
        if self.actions.is_empty() {
            if self.actions.capacity() > KEEP_ACTIONS {
                self.actions.shrink_to(KEEP_ACTIONS);
            }
            return None;
        }
        self.actions.pop_front()
    }

    /// When [`Input::Tick`] is due at the latest; `None` while nothing is. It may lie in the past: a tick that left
    /// work over is due at once.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Totals since the process began, for the metrics.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Number of entries that peers can make grow, for tests: all that a peer's messages add goes with the peer, or has
    /// a limit.
    #[doc(hidden)]
    #[must_use]
    pub fn entries(&self) -> usize {
        let ledgers = self
            .cluster
            .nodes_from(0)
            .map(|(_, node)| node.ledger().len());
        self.peers.len()
            + self.cluster.placements().0
            + self.peers.answers()
            + self.peers.reads().len()
            + self.instances.iter().count()
            + self.cluster.groups().len()
            + ledgers.sum::<usize>()
    }

    /// Whether an instance is placed or managed. One that is neither may still be listed by a node whose STATS has not
    /// come. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn has_instance(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance) || self.cluster.placement(instance).is_some()
    }
}
