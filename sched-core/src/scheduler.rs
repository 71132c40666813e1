//! The state machine itself: its parts, and the three calls that drive it. What happens on each input is in the arms
//! beside this file: `connections`, `reports`, `placement`, `workloads`, `forwarding`, `timers`, `queries`.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use indexmap::{IndexMap, IndexSet};
use proto_frames::{Kind, Role, Uuid};

use super::action::{Action, Message, Notice};
use super::answers::Answers;
use super::batches::Batches;
use super::bindings::Bindings;
use super::columns::Columns;
use super::config::Config;
use super::cordons::Cordons;
use super::durable::Durable;
use super::ends::Ends;
use super::evictions::Evictions;
use super::explain::Explanations;
use super::full::FullNodes;
use super::groups::Groups;
use super::ids::{InstanceId, NodeKey, SessionId};
use super::input::{ClusterConfiguration, Input};
use super::instances::Instances;
use super::labels::LabelIndex;
use super::ledger::Measured;
use super::node::NodeStore;
use super::outcomes::{self, Outcomes};
use super::policy::Policy;
use super::queue::Queue;
use super::remembered::Remembered;
use super::session::Session;
use super::settle::Settling;
use super::snapshot::Briefing;
use super::table::Table;
use super::traits::Named;
use super::waiting::Sweep;
use super::woken::Woken;

/// The scheduler as a pure state machine: events in, actions out, time passed in.
///
/// Hand in each thing that happens with [`Scheduler::handle`], then take everything there is to do from
/// [`Scheduler::poll_action`], in order. [`Scheduler::poll_timeout`] says when to hand in [`Input::Tick`] at the
/// latest. The same inputs at the same times give the same actions.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: Config,
    pub(super) cluster: ClusterConfiguration,
    pub(super) sessions: IndexMap<SessionId, Session>,
    pub(super) identities: IndexMap<(Uuid, Role), SessionId>,
    /// UUIDs claimed with a certificate bound to them: nobody else may claim them any more.
    pub(super) bindings: Bindings,
    /// Controllers in order; the first is master.
    pub(super) controllers: Vec<SessionId>,
    /// Operators that want to hear of something.
    pub(super) watchers: Vec<SessionId>,
    pub(super) nodes: NodeStore,
    /// Compute and network nodes, as [`super::node::Pool`] numbers them.
    pub(super) tables: [Table; 2],
    /// The labels of the nodes in these.
    pub(super) labels: [LabelIndex; 2],
    /// Custom resources by name.
    pub(super) columns: Columns,
    pub(super) groups: Groups,
    /// What the configuration says of nodes by name.
    pub(super) named: Named,
    pub(super) policy: Policy,
    /// What a policy that leaves something to chance draws from; always the same, so that a run can be repeated.
    pub(super) chance: fastrand::Rng,
    /// Nodes that the latest choice looked at one by one.
    pub(super) looked_at: usize,
    /// Nodes whose queue is filling: outside the tables' offers, tried when nothing else fits.
    pub(super) filling: IndexSet<NodeKey>,
    /// Nodes that called themselves full before room was released there: tried when nothing READY fits.
    pub(super) full: FullNodes,
    /// The node that has, or was given, each instance.
    pub(super) holders: IndexMap<InstanceId, NodeKey>,
    /// Operators to whom the answer to a DELETE or AttachVolume is to be told.
    pub(super) answers: Answers,
    /// Lost nodes in order of loss, with the moment their time is up.
    pub(super) lost: VecDeque<(Instant, NodeKey)>,
    pub(super) settling: Settling,
    /// What is looked after.
    pub(super) instances: Instances,
    /// Those of them that wait for room.
    pub(super) queue: Queue,
    pub(super) woken: Woken,
    pub(super) sweep: Sweep,
    /// Nodes that failed often of late, as far as they were not found to do well since.
    pub(super) failing: IndexSet<NodeKey>,
    /// When to see whether a launcher with a lease still reports.
    pub(super) leases: BTreeSet<(Instant, NodeKey)>,
    pub(super) evictions: Evictions,
    pub(super) durable: Durable,
    /// Claims on original launchers, for when they or the scheduler were away.
    pub(super) remembered: Remembered,
    /// Which ends of each node are dealt with.
    pub(super) ends: Ends,
    /// What masters alone were told of late.
    pub(super) outcomes: Outcomes,
    /// The master, while it is told of everything there is.
    pub(super) briefing: Option<Box<Briefing>>,
    /// Whether it is about to stop: nothing is let wait any more that would not outlive it.
    pub(super) is_leaving: bool,
    /// Nodes that get no new work.
    pub(super) cordons: Cordons,
    pub(super) batches: Batches,
    pub(super) explanations: Explanations,
    pub(super) counters: Counters,
    /// When it was made.
    pub(super) started: Instant,
    /// The time of the input being handled.
    pub(super) now: Instant,
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
    /// Frames refused because of who sent them or what they claim.
    pub refused: u64,
    /// Frames of unknown type or operand.
    pub unknown: u64,
    /// Payloads that could not be read.
    pub malformed: u64,
    /// Instances that nodes spoke of and that are placed on other nodes.
    pub foreign: u64,
}

impl Scheduler {
    /// A scheduler without peers, whose settle window starts now. Rules that do not hold together
    /// ([`super::Rules::check`]) are as good as none.
    #[must_use]
    pub fn new(config: Config, cluster: ClusterConfiguration, now: Instant) -> Self {
        let settling = Settling::new(&config, now);
        let policy = Policy::new(&cluster.rules.policy).unwrap_or_default();
        let chance = fastrand::Rng::with_seed(cluster.rules.policy.seed);
        let named = Named::new(&config.nodes, &cluster.rules.aggregates);
        let durable = Durable::new(config.durable);
        let mut scheduler = Self {
            policy,
            chance,
            looked_at: 0,
            named,
            config,
            cluster,
            sessions: IndexMap::new(),
            identities: IndexMap::new(),
            bindings: Bindings::default(),
            controllers: Vec::new(),
            watchers: Vec::new(),
            nodes: NodeStore::default(),
            tables: Default::default(),
            labels: Default::default(),
            columns: Columns::default(),
            groups: Groups::default(),
            filling: IndexSet::new(),
            full: FullNodes::default(),
            holders: IndexMap::new(),
            answers: Answers::default(),
            lost: VecDeque::new(),
            settling,
            instances: Instances::default(),
            queue: Queue::default(),
            woken: Woken::default(),
            sweep: Sweep::default(),
            failing: IndexSet::new(),
            leases: BTreeSet::new(),
            evictions: Evictions::default(),
            durable,
            remembered: Remembered::default(),
            ends: Ends::default(),
            outcomes: Outcomes::default(),
            briefing: None,
            is_leaving: false,
            cordons: Cordons::default(),
            batches: Batches::default(),
            explanations: Explanations::default(),
            counters: Counters::default(),
            started: now,
            now,
            actions: VecDeque::new(),
        };
        scheduler.fix_columns();
        scheduler.restore();
        scheduler
    }

    /// Takes in one thing that happened at `now`. Times never go back.
    pub fn handle(&mut self, now: Instant, input: Input) {
        self.now = now;
        match input {
            Input::Frame {
                session,
                frame,
                meaning,
            } => self.frame(now, session, frame, meaning),
            Input::Connect { session, hello } => self.connect(now, session, hello),
            Input::Disconnected { session, unsent } => self.disconnected(now, session, unsent),
            Input::Backlog { session, backlog } => self.backlog(session, backlog),
            Input::Committed(ticket) => self.committed(ticket),
            Input::Disk(state) => self.disk_is(state),
            Input::Leaving => self.fail_waiting(),
            Input::Tick => self.tick(now),
        }
        let has_work = self.durable.has_work()
            || !self.woken.is_empty()
            || self.evictions.has_work()
            || self.cordons.is_stirred()
            || self.are_claims_due();
        if has_work {
            self.end_turn();
        }
    }

    /// Does what this input has made possible, and hands out what changed.
    fn end_turn(&mut self) {
        /// Rounds of things that make other things possible; what is left then is done in the tick that is due at once.
        const MAX_ROUNDS: usize = 16;
        for _ in 0..MAX_ROUNDS {
            let any = self.go_on() | self.go_on_draining();
            if !self.serve_waiting() && !self.seek_for_evicted() && !any {
                break;
            }
        }
        self.hand_out_changes();
    }

    /// The next thing to do, if any.
    pub fn poll_action(&mut self) -> Option<Action> {
        const KEEP_ACTIONS: usize = 4096;
        let action = self.actions.pop_front();
        if action.is_none() && self.actions.capacity() > KEEP_ACTIONS {
            self.actions.shrink_to(KEEP_ACTIONS);
        }
        action
    }

    /// When [`Input::Tick`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lost = self.lost.front().map(|(due, _)| *due);
        let batches = if self.settling.is_open() {
            None
        } else {
            self.batches.complete_due()
        };
        let due = [
            lost,
            self.settling.due(),
            self.durable.disk.due(),
            self.batches.due(),
            batches,
            self.instances.due(),
            self.queue.due(),
            self.sweep_due(),
            self.leases.first().map(|(due, _)| *due),
            self.evictions.due(),
            self.remembered.due(),
            self.cordons.due(self.now),
            (!self.woken.is_empty() || self.evictions.has_work()).then_some(self.now),
            self.is_page_due().then_some(self.now),
        ];
        due.into_iter().flatten().min()
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
        let ledgers = self.nodes.iter_from(0).map(|(_, node)| node.ledger.len());
        self.sessions.len()
            + self.holders.len()
            + self.answers.len()
            + self.instances.iter().count()
            + self.groups.len()
            + ledgers.sum::<usize>()
    }

    /// Whether an instance is placed, or the scheduler has it to place; one that is not may be listed by nodes all the same.
    /// For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn has_instance(&self, instance: &InstanceId) -> bool {
        self.instances.contains(instance) || self.holders.contains_key(instance)
    }

    /// The UUIDs of all nodes known, those expected back after a restart included, in no particular order.
    #[must_use]
    pub fn known_nodes(&self) -> Vec<Uuid> {
        self.nodes
            .iter_from(0)
            .map(|(_, node)| node.uuid)
            .chain(
                self.settling
                    .missing()
                    .filter(|&uuid| self.nodes.by_uuid(uuid).is_none()),
            )
            .collect()
    }

    pub(super) fn send(&mut self, to: SessionId, message: Message) {
        if outcomes::is_outcome(&message) {
            return self.tell_outcome(to, message);
        }
        if let Message::Forward(frame) = &message
            && self.is_too_long_for(to, frame)
        {
            return;
        }
        self.actions.push_back(Action::Send { to, message });
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.actions.push_back(Action::Notice(notice));
    }

    /// How running instances are counted now.
    pub(super) fn measured(&self) -> Measured {
        let flags = self.cluster.flags;
        Measured::new(self.config.accounting, flags.mem_limit, flags.disk_limit)
    }

    /// The standing of a controller: the first is master.
    pub(super) fn is_master(&self, session: SessionId) -> bool {
        self.controllers.first() == Some(&session)
    }

    /// Logs something refused once per session and kind.
    pub(super) fn notice_once(
        &mut self,
        session: SessionId,
        kind: Kind,
        notice: impl FnOnce(&Session) -> Notice,
    ) {
        let Some(peer) = self.sessions.get_mut(&session) else {
            return;
        };
        if peer.is_first_refusal(kind) {
            let notice = notice(peer);
            self.notice(notice);
        }
    }
}
