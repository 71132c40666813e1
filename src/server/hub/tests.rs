//! The hub without sockets: who waits for whom, what is bounded by what, and how it leaves.

use std::time::Duration;

use proto_frames::payload::Topic;
use proto_frames::{Frame, Kind};

use super::*;
use crate::net::outbox::LONG_QUEUE;
use crate::net::peer::Flow;
use crate::server::limits::{
    CONTROLLER_BUDGET, LAUNCHER_BUDGET, MAX_UNCHARGED_CONTROLLER, MAX_UNCHARGED_LAUNCHER,
    MAX_UNCHARGED_OPERATOR, MAX_UNREAD_LISTENERS,
};
use crate::server::wire;
use sched_core::{
    ClusterConfiguration, Command, Config, Departure, Hello, Input, InstanceId, InstanceReport,
    InstanceState, NodeReport, Parcel, Report, StartRequest, StatsReport,
};

/// A START with as much cloud-init data as controllers really send.
const LARGE: usize = 20 * 1024;

pub(in crate::server) fn hub() -> Hub {
    let uuid = Uuid::from_u128(1);
    let config = Config::new(uuid);
    let core = Scheduler::new(config, ClusterConfiguration::default(), Instant::now());
    let limits = ServerLimits {
        drain_deadline: Duration::from_millis(200),
        ..ServerLimits::default()
    };
    Hub::new(core, uuid, limits)
}

/// A peer whose task does nothing.
pub(in crate::server) struct Joined {
    session: SessionId,
    state: Arc<PeerState>,
}

impl Joined {
    pub(in crate::server) fn new(hub: &Hub, role: Role) -> Self {
        let session = hub.next_session();
        let uuid = Uuid::from_u128(u128::from(session.0) + 100);
        let is_controller = role.intersects(Role::CONTROLLER | Role::OPERATOR);
        let budget = if is_controller {
            CONTROLLER_BUDGET
        } else {
            LAUNCHER_BUDGET
        };
        let mut certificate = [0; 32];
        certificate[..8].copy_from_slice(&session.0.to_be_bytes());
        Self::with_certificate(hub, (session, uuid, role), certificate, budget)
    }

    /// Another session with the certificate of number `certificate`.
    fn listener_of(hub: &Hub, certificate: u8) -> Self {
        let session = hub.next_session();
        let uuid = Uuid::from_u128(u128::from(session.0) + 100);
        let peer = (session, uuid, Role::VIEWER);
        Self::with_certificate(hub, peer, [certificate; 32], LAUNCHER_BUDGET)
    }

    fn with_certificate(
        hub: &Hub,
        (session, uuid, role): (SessionId, Uuid, Role),
        certificate: [u8; 32],
        budget: usize,
    ) -> Self {
        let origin = PeerOrigin {
            from: ([127, 0, 0, 1], 1).into(),
            subject: "O=ciao".into(),
            certificate,
            chain: PeerChain::default(),
        };
        let state = PeerState::new((uuid, role), origin, budget, hub.unread_of(role));
        hub.add_peer(session, Arc::clone(&state));
        let hello = Hello::native(uuid, role);
        hub.handle([Input::Connect { session, hello }], Some(&state.budget));
        Self { session, state }
    }

    /// A node with room for everything.
    pub(in crate::server) fn node(hub: &Hub) -> Self {
        let node = Self::new(hub, Role::AGENT);
        let report = NodeReport {
            addresses: Box::default(),
            mem_total_mib: 1 << 40,
            mem_available_mib: 1 << 40,
            disk_total_mb: 1 << 40,
            disk_available_mb: 1 << 40,
            load: 0,
            cpus_online: 1 << 30,
            hostname: "node".into(),
            extras: None,
        };
        node.report(hub, 0, Report::Ready(Box::new(report)));
        node
    }

    fn report(&self, hub: &Hub, len: usize, report: Report) {
        let input = Input::Report {
            session: self.session,
            report,
            parcel: self.parcel(len),
        };
        hub.handle([input], Some(&self.state.budget));
    }

    fn command(&self, hub: &Hub, len: usize, command: Command) {
        let input = Input::Command {
            session: self.session,
            command,
            parcel: self.parcel(len),
        };
        hub.handle([input], Some(&self.state.budget));
    }

    fn parcel(&self, len: usize) -> Parcel {
        let payload = vec![b'x'; len];
        wire::parcel(Frame::new(Kind::TRACE_REPORT, self.state.uuid, payload))
    }

    pub(in crate::server) fn start(&self, hub: &Hub, number: usize, len: usize) {
        let request = StartRequest::plain(InstanceId::new(&format!("i{number}")));
        self.command(hub, len, Command::Start(request.into()));
    }

    /// Has an instance started that this peer's node runs to its end.
    pub(in crate::server) fn run(&self, hub: &Hub, node: &Self, instance: &InstanceId) {
        let request = StartRequest::plain(instance.clone());
        self.command(hub, 0, Command::Start(request.into()));
        let listed = StatsReport {
            is_plain: true,
            node: node.state.uuid.to_string().into(),
            instances: vec![InstanceReport {
                instance: instance.clone(),
                state: InstanceState::Active,
                mem_used_mib: 1,
                disk_used_mib: 0,
                cpu_used_percent: 0,
                requested: None,
                custom: Vec::new(),
                run: None,
                group: None,
            }],
            ..StatsReport::default()
        };
        node.report(hub, 0, Report::Stats(Box::new(listed)));
        node.report(hub, 0, Report::InstanceStopped(instance.clone()));
    }

    fn watch(&self, hub: &Hub, topic: Topic) {
        self.command(hub, 0, Command::Watch(vec![topic]));
    }

    fn may_be_read(&self) -> bool {
        let cx = std::task::Context::from_waker(Waker::noop());
        self.state.budget.poll_ready(&cx).is_ready()
    }

    /// Takes everything queued, as a writer does.
    pub(in crate::server) fn take(&self) -> Vec<Message> {
        self.state.outbox.drain()
    }

    fn flow(&self, hub: &Hub, flow: Flow) {
        hub.flow(self.session, &self.state, flow);
    }

    fn is_connected(&self, hub: &Hub) -> bool {
        hub.peers.contains_key(&self.session)
    }
}

#[test]
fn a_watcher_that_does_not_read_does_not_hold_the_master_back_and_is_disconnected_in_the_end() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let watcher = Joined::new(&hub, Role::OPERATOR);
    let node = Joined::node(&hub);
    watcher.watch(&hub, Topic::Placements);
    let mut count = 0;
    while watcher.is_connected(&hub) {
        assert!(watcher.state.outbox.bytes() <= MAX_UNCHARGED_OPERATOR + CONTROLLER_BUDGET);
        master.start(&hub, count, 10);
        node.take();
        master.take();
        count += 1;
        assert!(master.may_be_read());
    }
    assert!(count > 10_000, "only {count}");
    assert_eq!(master.state.budget.used(), 0);
}

#[test]
fn many_sessions_that_read_nothing_cost_as_much_as_a_few_and_not_the_session_of_another_certificate()
 {
    const SESSIONS: usize = 100;
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let node = Joined::node(&hub);
    let silent: Vec<Joined> = (0..SESSIONS)
        .map(|_| Joined::listener_of(&hub, 1))
        .collect();
    let other = Joined::listener_of(&hub, 2);
    for listener in silent.iter().chain([&other]) {
        listener.watch(&hub, Topic::Placements);
    }
    let mut count = 0;
    while silent.iter().all(|silent| silent.is_connected(&hub)) {
        let unread: usize = silent.iter().map(|it| it.state.outbox.bytes()).sum();
        assert!(unread <= MAX_UNREAD_LISTENERS, "{unread}");
        master.start(&hub, count, 10);
        node.take();
        master.take();
        count += 1;
    }
    let left = silent.iter().filter(|silent| silent.is_connected(&hub));
    // Three quarters of what may wait, and with them as many of the sessions.
    let left = left.count();
    assert!((SESSIONS / 2..SESSIONS).contains(&left), "{left} are left");
    assert!(
        other.is_connected(&hub),
        "it has as much unread as each of them"
    );
    let unread = hub.unread.listeners.used();
    assert!(unread <= MAX_UNREAD_LISTENERS, "{unread}");
    drop((silent, other));
    assert!(master.may_be_read());
}

#[test]
fn chunks_of_images_that_nobody_reads_count_as_well() {
    let hub = hub();
    let full = Joined::listener_of(&hub, 1);
    let _held = hub.unread.listeners.charge(MAX_UNREAD_LISTENERS + 1);
    hub.send_behind(
        full.session,
        Frame::new(Kind::IMAGE, Uuid::nil(), vec![0; 100]),
    );
    assert_eq!(full.state.outbox.all_bytes(), full.state.outbox.bytes());
}

#[test]
fn an_operator_that_reads_no_answers_waits_for_itself() {
    let hub = hub();
    let operator = Joined::new(&hub, Role::OPERATOR);
    let mut count = 0;
    while operator.may_be_read() {
        operator.start(&hub, count, 10);
        count += 1;
    }
    operator.flow(&hub, Flow::Stalled);
    assert!(!operator.may_be_read());
    assert!(operator.is_connected(&hub));
}

#[test]
fn a_backup_holds_reports_back_until_it_stalls_and_is_disconnected_beyond_its_limit() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let backup = Joined::new(&hub, Role::CONTROLLER);
    let node = Joined::node(&hub);
    let report = || node.report(&hub, LARGE, Report::TraceReport);
    while node.may_be_read() {
        report();
        master.take();
    }
    backup.flow(&hub, Flow::Stalled);
    let mut reported = 0;
    while backup.is_connected(&hub) {
        assert!(node.may_be_read());
        assert!(reported <= MAX_UNCHARGED_CONTROLLER);
        report();
        master.take();
        reported += LARGE;
    }
    assert!(reported > MAX_UNCHARGED_CONTROLLER / 2);
}

#[test]
fn reports_wait_for_a_long_queue_of_a_controller_and_not_for_one_that_stalled() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let nodes: Vec<_> = (0..2 * LONG_QUEUE / LAUNCHER_BUDGET)
        .map(|_| Joined::node(&hub))
        .collect();
    master.take();
    let report = |node: &Joined| node.report(&hub, LARGE, Report::TraceReport);
    let held = |nodes: &[Joined]| nodes.iter().filter(|node| !node.may_be_read()).count();
    // Long before any node's own budget is used up…
    for _ in 0..LONG_QUEUE / LARGE / nodes.len() {
        nodes.iter().for_each(report);
    }
    assert_eq!(held(&nodes), 0);
    while master.state.outbox.bytes() <= LONG_QUEUE {
        report(&nodes[0]);
    }
    // …those wait that add to a long queue, and no others.
    assert_eq!(held(&nodes), 1);
    nodes.iter().skip(1).for_each(report);
    assert_eq!(held(&nodes), nodes.len());
    master.flow(&hub, Flow::Stalled);
    assert_eq!(held(&nodes), 0);
    nodes.iter().for_each(report);
    assert_eq!(held(&nodes), 0);
    // But all that they can say does not fill its queue at once, as long as there is no other to be told.
    while held(&nodes) < nodes.len() {
        assert!(master.state.outbox.bytes() < MAX_UNCHARGED_CONTROLLER / 2);
        nodes.iter().for_each(report);
    }
    let backup = Joined::new(&hub, Role::CONTROLLER);
    assert_eq!(held(&nodes), 0);
    nodes.iter().for_each(report);
    assert_eq!(held(&nodes), 0);
    backup.take();
    // It reads again: what is reported waits for it until its queue has been taken.
    master.flow(&hub, Flow::Moving);
    nodes.iter().for_each(report);
    assert_eq!(held(&nodes), nodes.len());
    master.take();
    assert_eq!(held(&nodes), 0);
    assert!(master.is_connected(&hub));
}

#[test]
fn a_controller_that_ends_lets_go_of_those_that_wait_for_it() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let nodes: Vec<_> = (0..2 * LONG_QUEUE / LAUNCHER_BUDGET)
        .map(|_| Joined::node(&hub))
        .collect();
    while master.state.outbox.bytes() <= LONG_QUEUE {
        for node in &nodes {
            node.report(&hub, LARGE, Report::TraceReport);
        }
    }
    assert!(nodes.iter().any(|node| !node.may_be_read()));
    hub.ended(
        master.session,
        master.state.outbox.shut(),
        Departure::Closed,
    );
    assert!(nodes.iter().all(Joined::may_be_read));
}

#[test]
fn a_controller_does_not_wait_for_the_long_queue_of_a_node() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let operator = Joined::new(&hub, Role::OPERATOR);
    let node = Joined::node(&hub);
    let mut count = 0;
    while node.state.outbox.bytes() <= LONG_QUEUE {
        master.start(&hub, count, LARGE);
        count += 1;
    }
    operator.start(&hub, count, LARGE);
    assert!(operator.may_be_read());
    // Nor does the node, which did not fill it.
    node.report(&hub, LARGE, Report::TraceReport);
    assert!(node.may_be_read());
    let starts = node.take().into_iter();
    let starts = starts.filter(|it| matches!(it, Message::Start(_)));
    assert_eq!(starts.count(), count + 1);
}

#[test]
fn a_node_that_trickles_does_not_collect_bytes_without_bound() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let node = Joined::node(&hub);
    let mut count = 0;
    for _ in 0..10 {
        while master.may_be_read() && node.state.queue.lock().is_open() {
            master.start(&hub, count, LARGE);
            count += 1;
        }
        node.flow(&hub, Flow::Stalled);
        assert!(master.may_be_read(), "a stalled node holds no peer back");
        node.flow(&hub, Flow::Moving);
    }
    let queued = node.state.outbox.bytes();
    assert!(
        queued <= MAX_UNCHARGED_LAUNCHER + CONTROLLER_BUDGET,
        "{queued}"
    );
}

#[test]
fn a_queue_that_drained_before_it_was_noted_as_long_is_not_long() {
    let hub = hub();
    let node = Joined::node(&hub);
    hub.in_batch(None, |batch, scheduler| {
        hub.look_at_queue(scheduler, batch, node.session, &node.state);
    });
    assert!(node.state.queue.lock().is_open());
}

#[test]
fn a_session_that_begins_during_shutdown_ends() {
    let hub = hub();
    hub.begin_shutdown();
    let peer = Joined::new(&hub, Role::CONTROLLER);
    let frame = Message::Forward(wire::parcel(Frame::new(
        Kind::STATS,
        Uuid::nil(),
        Vec::new(),
    )));
    assert!(peer.state.outbox.push(frame, 1, None).is_err());
    assert!(!peer.may_be_read());
}

#[test]
fn starts_during_shutdown_are_answered_and_not_swallowed() {
    let hub = hub();
    let master = Joined::new(&hub, Role::CONTROLLER);
    let node = Joined::node(&hub);
    hub.begin_shutdown();
    assert!(!master.may_be_read());
    master.take();
    for number in 0..100 {
        master.start(&hub, number, LARGE);
    }
    assert!(node.state.late.lock().is_empty());
    let answers = master.take();
    assert_eq!(answers.len(), 100);
    assert!(
        answers
            .iter()
            .all(|it| matches!(it, Message::StartFailure(_)))
    );
}

#[tokio::test]
async fn starts_that_a_node_does_not_take_before_the_end_fail() {
    let hub = Arc::new(hub());
    let master = Joined::new(&hub, Role::CONTROLLER);
    let node = Joined::node(&hub);
    // A second node that could have taken them, but ends at once.
    let other = Joined::node(&hub);
    other.take();
    for number in 0..10 {
        master.start(&hub, number, 10);
    }
    let waiting = 10 - other.take().len();
    assert_eq!(waiting, 5);
    master.take();
    let leaving = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move {
            hub.begin_shutdown();
            hub.leave().await;
        }
    });
    tokio::task::yield_now().await;
    hub.ended(other.session, Vec::new(), Departure::Closed);
    // Cut after half of the time; its task then hands in what it has.
    while !node.state.outbox.is_ended() {
        tokio::task::yield_now().await;
    }
    hub.ended(node.session, Vec::new(), Departure::Closed);
    let failures = master.take().into_iter();
    let failures = failures.filter(|it| matches!(it, Message::StartFailure(_)));
    assert_eq!(failures.count(), waiting);
    hub.ended(master.session, Vec::new(), Departure::Closed);
    leaving.await.unwrap();
}
