//! A world around the core: peers, a virtual clock, and everything the core said to whom.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::support::sending::gone;
use crate::support::store::Store;
use ciao_scheduler::server::sim_support;
use proto_frames::payload::{
    InstanceView, NodeView, Query, QueryKind, QueryResult, StartFailureReason, Topic,
};
use proto_frames::{Kind, Role, Uuid};
use sched_core::{
    Action, ClusterConfiguration, Command, Config, Departure, Dialect, Hello, Input, InstanceId,
    InstanceReport, InstanceState, KnownNode, Message, NodeExtras, NodeReport, Notice,
    RefusedConnect, Report, Resources, Rules, Scheduler, SessionId, StartRequest, StatsReport,
};

/// The core, its peers as far as the test made them, and what was said and not looked at yet.
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    begun: Instant,
    pub(crate) now: Instant,
    sessions: u64,
    said: Vec<(SessionId, Message)>,
    refused: Vec<(SessionId, RefusedConnect)>,
    /// Nodes that two launchers were said to report for.
    pub(crate) twins: Vec<Uuid>,
    /// Who asked something of the store of images.
    pub(crate) images_asked: Vec<SessionId>,
    peers: HashMap<SessionId, Uuid>,
    /// The most that each node ever said to have available: what it has in all.
    totals: HashMap<Uuid, Size>,
    /// What is on disk, if anything is put there.
    pub(crate) store: Store,
    /// What STARTs asked for, as their payloads would say.
    requests: HashMap<InstanceId, StartRequest>,
    /// Steps between two checks of all invariants.
    check_every: u32,
    steps: u32,
    ticks: usize,
    /// Inputs under way, each because what the one before had put on disk is there.
    nested: usize,
}

/// Most inputs that follow from each other so. A scheduler that puts ever more on disk because what it put there before
/// is there writes for ever.
const MAX_NESTED: usize = 100;

/// The wall clock when a world begins, in unix milliseconds.
pub(crate) const AT_THE_BEGINNING: u64 = 1_700_000_000_000;

/// What one node has: memory and disk in MiB, CPUs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) mem: i64,
    pub(crate) cpus: i64,
    pub(crate) disk: i64,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            mem: 1000,
            cpus: 100,
            disk: 10_000,
        }
    }
}

impl Size {
    /// So much memory, in MiB, and enough of everything else.
    pub(crate) fn of_mem(mem: i64) -> Self {
        Self {
            mem,
            ..Self::default()
        }
    }

    /// So many CPUs, and enough of everything else.
    pub(crate) fn of_cpus(cpus: i64) -> Self {
        Self {
            cpus,
            ..Self::default()
        }
    }
}

pub(crate) fn config() -> Config {
    Config {
        cpu_ratio: 1.0,
        ..Config::new(Uuid::from_u128(0x5c))
    }
}

pub(crate) fn id(name: &str) -> InstanceId {
    InstanceId::new(name)
}

pub(crate) fn node_uuid(number: u64) -> Uuid {
    Uuid::from_u128(0x0de0_0000 + u128::from(number))
}

/// A node that was connected before the scheduler was restarted.
pub(crate) fn known_node(number: u64) -> KnownNode {
    node_uuid(number).into()
}

/// A START for an instance with this name that asks for memory alone.
pub(crate) fn request(name: &str, mem: i64) -> StartRequest {
    StartRequest {
        asked: Resources {
            mem_mib: mem,
            ..Resources::ZERO
        },
        ..StartRequest::plain(id(name))
    }
}

/// What a node reports that has this much in all and available; without a name.
pub(crate) fn report(size: Size) -> NodeReport {
    NodeReport {
        addresses: Box::default(),
        mem_total_mib: size.mem,
        mem_available_mib: size.mem,
        disk_total_mb: size.disk,
        disk_available_mb: size.disk,
        load: 0,
        cpus_online: size.cpus,
        hostname: "".into(),
        extras: None,
    }
}

pub(crate) fn running(name: &str, used: i64) -> InstanceReport {
    InstanceReport {
        instance: id(name),
        state: InstanceState::Active,
        mem_used_mib: used,
        disk_used_mib: 0,
        cpu_used_percent: 0,
        requested: None,
        custom: Vec::new(),
        run: None,
        group: None,
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: Config) -> Self {
        Self::ruled(config, Rules::default())
    }

    /// One whose cluster configuration says this about nodes and placement.
    pub(crate) fn ruled(config: Config, rules: Rules) -> Self {
        let cluster = ClusterConfiguration {
            rules,
            ..ClusterConfiguration::default()
        };
        Self::configured(config, cluster)
    }

    pub(crate) fn configured(config: Config, cluster: ClusterConfiguration) -> Self {
        let now = Instant::now();
        let checked = cluster.rules.check();
        checked.expect("the test's rules hold together");
        Self {
            scheduler: Scheduler::new(config, cluster, now),
            begun: now,
            now,
            sessions: 0,
            said: Vec::new(),
            refused: Vec::new(),
            twins: Vec::new(),
            images_asked: Vec::new(),
            peers: HashMap::new(),
            totals: HashMap::new(),
            store: Store::default(),
            requests: HashMap::new(),
            check_every: 1,
            steps: 0,
            ticks: 0,
            nested: 0,
        }
    }

    /// Checks all invariants after every so many steps only: they cost far more than the steps.
    pub(crate) fn check_every(mut self, steps: u32) -> Self {
        self.check_every = steps;
        self
    }

    /// A scheduler that has just been started again, at the same time, and knows no one.
    pub(crate) fn restart(&mut self, config: Config, rules: Rules) {
        let cluster = ClusterConfiguration {
            rules,
            ..ClusterConfiguration::default()
        };
        self.scheduler = Scheduler::new(config, cluster, self.now);
        self.said.clear();
        self.peers.clear();
    }

    /// The scheduler dies, with what was not on disk, and another is started at once with what was.
    pub(crate) fn crash(&mut self, config: Config, rules: Rules) {
        let requests = &self.requests;
        let restored = self.store.crash(|name| requests.get(name).cloned());
        let config = Config {
            restored,
            durable: true,
            start_unix_ms: self.unix_ms(),
            ..config
        };
        self.restart(config, rules);
        self.handle(Input::Tick);
    }

    /// The wall clock, in unix milliseconds.
    pub(crate) fn unix_ms(&self) -> u64 {
        AT_THE_BEGINNING + self.now.duration_since(self.begun).as_millis() as u64
    }

    /// Hands in one thing and takes everything the core wants done; every invariant must hold afterwards.
    pub(crate) fn handle(&mut self, input: Input) {
        self.scheduler.handle(self.now, input);
        while let Some(mut action) = self.scheduler.poll_action() {
            sim_support::word(&mut action);
            match action {
                Action::Send { to, message } => self.said.push((to, message)),
                Action::Refuse { session, why } => self.refused.push((session, why)),
                Action::Notice(Notice::Twins { node, .. }) => self.twins.push(node),
                Action::Disconnect { session, .. } => {
                    let unsent = self.take_unsent(session);
                    let departure = Departure::Broken;
                    let ended = Input::Disconnected {
                        session,
                        unsent,
                        departure,
                    };
                    self.scheduler.handle(self.now, ended);
                }
                Action::Persist(change) => self.store.take(change),
                Action::Notice(Notice::IllegalTransition(illegal)) => panic!("{illegal}"),
                Action::Image { session, .. } => self.images_asked.push(session),
                _ => {}
            }
        }
        self.nested += 1;
        assert!(self.nested < MAX_NESTED, "what is on disk has no end");
        while let Some(ticket) = self.store.next_commit() {
            self.handle(Input::Committed(ticket));
        }
        self.nested -= 1;
        self.steps += 1;
        if self.steps.is_multiple_of(self.check_every) {
            self.check();
        }
    }

    /// Every invariant must hold.
    pub(crate) fn check(&self) {
        if let Err(broken) = self.scheduler.invariants() {
            panic!("{broken}");
        }
    }

    fn take_unsent(&mut self, session: SessionId) -> Vec<Message> {
        let (theirs, others) = std::mem::take(&mut self.said)
            .into_iter()
            .partition(|(to, _)| *to == session);
        self.said = others;
        let theirs: Vec<(SessionId, Message)> = theirs;
        theirs.into_iter().map(|(_, message)| message).collect()
    }

    /// Lets a peer in; says nothing of what it was told.
    pub(crate) fn join(&mut self, role: Role, uuid: Uuid, dialect: Dialect) -> SessionId {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.peers.insert(session, uuid);
        let hello = Hello {
            dialect,
            ..Hello::native(uuid, role)
        };
        self.handle(Input::Connect { session, hello });
        session
    }

    /// Lets a peer in with any hello; `Err` if it is refused.
    pub(crate) fn knock(&mut self, hello: Hello) -> Result<SessionId, RefusedConnect> {
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.peers.insert(session, hello.uuid);
        self.handle(Input::Connect { session, hello });
        match self.refused.pop() {
            Some((_, why)) => Err(why),
            None => Ok(session),
        }
    }

    pub(crate) fn controller(&mut self) -> SessionId {
        let uuid = Uuid::from_u128(0xc0_0000 + u128::from(self.sessions));
        self.join(Role::CONTROLLER, uuid, Dialect::Native)
    }

    pub(crate) fn original_controller(&mut self) -> SessionId {
        let uuid = Uuid::from_u128(0xc0_0000 + u128::from(self.sessions));
        self.join(Role::CONTROLLER, uuid, Dialect::Original)
    }

    pub(crate) fn operator(&mut self, topics: &[Topic]) -> SessionId {
        let uuid = Uuid::from_u128(0x0b_0000 + u128::from(self.sessions));
        let session = self.join(Role::OPERATOR, uuid, Dialect::Native);
        self.say(session, Command::Watch(topics.to_vec()));
        session
    }

    /// A compute node that is connected and has said nothing.
    pub(crate) fn silent_node(&mut self, number: u64) -> SessionId {
        self.join(Role::AGENT, node_uuid(number), Dialect::Native)
    }

    /// A compute node that takes work.
    pub(crate) fn node(&mut self, number: u64, size: Size) -> SessionId {
        let session = self.silent_node(number);
        self.ready(session, size);
        session
    }

    /// A node that has this much memory, and enough of everything else.
    pub(crate) fn node_with(&mut self, number: u64, mem: i64) -> SessionId {
        self.node(number, Size::of_mem(mem))
    }

    pub(crate) fn uuid_of(&self, session: SessionId) -> Uuid {
        self.peers[&session]
    }

    /// The node has this much available, and as much in all as it ever had available.
    pub(crate) fn ready(&mut self, node: SessionId, size: Size) {
        let total = self.totals.entry(self.peers[&node]).or_insert(size);
        total.mem = total.mem.max(size.mem);
        total.disk = total.disk.max(size.disk);
        let report = NodeReport {
            mem_total_mib: total.mem,
            disk_total_mb: total.disk,
            hostname: format!("host-{}", node.0).into(),
            ..report(size)
        };
        self.say(node, Report::Ready(Box::new(report)));
    }

    pub(crate) fn report(&mut self, node: SessionId, report: NodeReport) {
        self.say(node, Report::Ready(Box::new(report)));
    }

    pub(crate) fn status(&mut self, node: SessionId, kind: Kind) {
        let report = match kind {
            Kind::FULL => Report::Full,
            Kind::OFFLINE => Report::Offline,
            Kind::MAINTENANCE => Report::Maintenance,
            other => panic!("{other} is no status"),
        };
        self.say(node, report);
    }

    pub(crate) fn stats(&mut self, node: SessionId, instances: Vec<InstanceReport>) {
        self.stats_seen(node, None, instances);
    }

    pub(crate) fn stats_seen(
        &mut self,
        node: SessionId,
        starts_seen: Option<u64>,
        instances: Vec<InstanceReport>,
    ) {
        self.stats_as(node, starts_seen, None, instances);
    }

    pub(crate) fn stats_as(
        &mut self,
        node: SessionId,
        starts_seen: Option<u64>,
        extras: Option<NodeExtras>,
        instances: Vec<InstanceReport>,
    ) {
        let report = StatsReport {
            is_plain: true,
            node: self.uuid_of(node).to_string().into(),
            starts_seen,
            extras: extras.map(Box::new),
            instances,
            ..StatsReport::default()
        };
        self.say(node, Report::Stats(Box::new(report)));
    }

    pub(crate) fn start(&mut self, controller: SessionId, name: &str, mem: i64) {
        self.start_as(controller, request(name, mem));
    }

    /// Notes what the payload of a START would say.
    pub(super) fn note_request(&mut self, request: &StartRequest) {
        self.requests
            .insert(request.instance.clone(), request.clone());
    }

    pub(crate) fn start_as(&mut self, controller: SessionId, request: StartRequest) {
        self.note_request(&request);
        self.say(controller, Command::Start(request.into()));
    }

    pub(crate) fn start_failed(&mut self, node: SessionId, name: &str, reason: StartFailureReason) {
        let instance = (!name.is_empty()).then(|| id(name));
        let report = Report::StartFailed {
            detail: "".into(),
            node: self.uuid_of(node).to_string().into(),
            instance,
            reason,
        };
        self.say(node, report);
    }

    pub(crate) fn gone(&mut self, node: SessionId, kind: Kind, name: &str) {
        self.say(node, gone(kind, id(name)));
    }

    /// The peer's connection ends; everything it was told was written before.
    pub(crate) fn cut(&mut self, session: SessionId) {
        self.said.retain(|(to, _)| *to != session);
        self.handle(Input::Disconnected {
            session,
            unsent: Vec::new(),
            departure: Departure::Broken,
        });
    }

    /// The peer's connection ends before anything it was told since the test last looked could be written.
    pub(crate) fn cut_unsent(&mut self, session: SessionId) {
        let unsent = self.take_unsent(session);
        let departure = Departure::Broken;
        self.handle(Input::Disconnected {
            session,
            unsent,
            departure,
        });
    }

    /// The peer's connection ends before these could be written; [`World::take_said`] has taken everything else.
    pub(crate) fn cut_returning(&mut self, session: SessionId, unsent: Vec<Message>) {
        let departure = Departure::Broken;
        self.handle(Input::Disconnected {
            session,
            unsent,
            departure,
        });
    }

    /// Other rules about nodes and placement, from a controller that is master.
    pub(crate) fn configure_rules(&mut self, controller: SessionId, rules: Rules) {
        self.configure(controller, Some(rules));
    }

    /// All nodes (up to a thousand) as an operator sees them.
    pub(crate) fn nodes(&mut self, operator: SessionId) -> Vec<NodeView> {
        self.all(operator, QueryKind::Nodes).nodes
    }

    /// All instances (up to a thousand) as an operator sees them.
    pub(crate) fn instances(&mut self, operator: SessionId) -> Vec<InstanceView> {
        self.all(operator, QueryKind::Instances).instances
    }

    fn all(&mut self, operator: SessionId, what: QueryKind) -> QueryResult {
        let query = Query {
            what,
            limit: Some(1000),
            ..Query::default()
        };
        let others = std::mem::take(&mut self.said);
        self.say(operator, Command::Query(Box::new(query)));
        let mut answers = std::mem::replace(&mut self.said, others);
        match answers.pop() {
            Some((_, Message::QueryResult(result))) if answers.is_empty() => result.payload,
            other => panic!("{other:?}, {answers:?}"),
        }
    }

    /// What a test took away before as said is still to be said.
    pub(crate) fn put_back(&mut self, unsaid: Vec<(SessionId, Message)>) {
        self.said.extend(unsaid);
    }

    /// Everything that was said since the test last looked, in order.
    pub(crate) fn take_said(&mut self) -> Vec<(SessionId, Message)> {
        std::mem::take(&mut self.said)
    }

    /// Time passes, with every tick that is due on the way.
    pub(crate) fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        while let Some(due) = self.scheduler.poll_timeout()
            && due <= end
        {
            self.now = self.now.max(due);
            self.ticks += 1;
            self.handle(Input::Tick);
        }
        self.now = end;
    }

    /// Ticks that were due while time passed.
    pub(crate) fn ticks(&self) -> usize {
        self.ticks
    }

    /// What a peer was told since the test last looked.
    pub(crate) fn told(&mut self, session: SessionId) -> Vec<Message> {
        self.take_unsent(session)
    }

    /// What of it a test wants, of all that a peer was told since the test last looked.
    pub(crate) fn told_of<T>(
        &mut self,
        session: SessionId,
        pick: impl FnMut(Message) -> Option<T>,
    ) -> Vec<T> {
        self.told(session).into_iter().filter_map(pick).collect()
    }

    /// The only thing a peer was told.
    pub(crate) fn told_once(&mut self, session: SessionId) -> Message {
        let mut told = self.told(session);
        assert_eq!(told.len(), 1, "{told:#?}");
        told.remove(0)
    }

    /// Forgets what was said so far.
    pub(crate) fn look_away(&mut self) {
        self.said.clear();
    }

    /// Nothing was said that the test did not look at.
    pub(crate) fn nothing_else(&self) {
        assert!(self.said.is_empty(), "{:#?}", self.said);
    }

    /// The nodes that got a START since the test last looked, by instance.
    pub(crate) fn placements(&mut self) -> Vec<(String, SessionId)> {
        let (starts, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.said)
            .into_iter()
            .partition(|(_, message)| matches!(message, Message::Start(_)));
        self.said = others;
        let name = |message: &Message| match message {
            Message::Start(start) => start.request.instance.to_string(),
            _ => String::new(),
        };
        starts
            .iter()
            .map(|(to, message)| (name(message), *to))
            .collect()
    }

    /// The node that a START goes to; `None` if it fails.
    pub(crate) fn place(
        &mut self,
        controller: SessionId,
        name: &str,
        mem: i64,
    ) -> Option<SessionId> {
        self.place_as(controller, request(name, mem))
    }

    pub(crate) fn place_as(
        &mut self,
        controller: SessionId,
        request: StartRequest,
    ) -> Option<SessionId> {
        self.look_away();
        self.start_as(controller, request);
        self.placements().pop().map(|(_, node)| node)
    }

    /// The reasons of the StartFailures a peer was told, by instance.
    pub(crate) fn failures(&mut self, session: SessionId) -> Vec<(String, StartFailureReason)> {
        self.told_of(session, |message| match message {
            Message::StartFailure(failure) | Message::StartFailureCopy(failure) => {
                Some((failure.payload.instance_uuid, failure.payload.reason))
            }
            _ => None,
        })
    }
}
