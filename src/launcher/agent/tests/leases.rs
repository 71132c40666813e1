//! The lease: what renews it, what it costs when it is over.

use super::*;

/// With 2 s of it for killing.
const LEASE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_millis(1);

fn with_lease() -> World {
    let mut world = World::disconnected();
    world.lease = Some(LEASE);
    world.agent = world.new_agent();
    world.connect();
    world
}

fn leased(id: &str) -> Start {
    let scheduling = Scheduling {
        on_node_loss: OnNodeLoss::Restart,
        ..Scheduling::default()
    };
    Start {
        scheduling: Some(scheduling),
        ..process(id, 1)
    }
}

impl World {
    /// The number of the latest STATS among what was sent.
    fn latest(&mut self) -> u64 {
        let stats = std::mem::take(&mut self.sent);
        let seq = |message: &Message| match message {
            Message::Stats(stats) => stats.lease_seq,
            _ => None,
        };
        stats.iter().rev().find_map(seq).unwrap()
    }

    fn renewed(&mut self, seq: u64) {
        self.handle(Input::Command(Command::LeaseRenewed(Ok(LeaseRenewed {
            seq,
        }))));
    }

    /// Renews the lease by the latest STATS; when killing begins.
    fn renew(&mut self) -> Instant {
        let seq = self.latest();
        self.renewed(seq);
        let orders = self.orders();
        let [AgentAction::ExtendLease(until)] = orders.as_slice() else {
            panic!("{orders:?}")
        };
        *until
    }

    fn advance_to(&mut self, at: Instant) {
        self.advance(at - self.now);
    }

    /// Has an instance run under the lease, which is renewed for it; when killing begins.
    fn leased(&mut self, id: &str) -> Instant {
        self.advance(INTERVAL);
        let until = self.renew();
        self.start(leased(id));
        self.handle(Input::Started {
            instance: id.to_owned(),
        });
        self.forget_what_happened();
        until
    }
}

#[test]
fn a_lease_counts_from_the_report_that_was_heard_and_not_from_the_answer() {
    let mut world = with_lease();
    let made = world.now;
    let seq = world.latest();
    world.advance(Duration::from_secs(5));
    world.renewed(seq);
    let until = made + LEASE - MARGIN;
    assert_eq!(world.orders(), [AgentAction::ExtendLease(until)]);
    world.renewed(seq);
    world.renewed(seq + 7);
    world.frame(Kind::LEASE_RENEWED, "lease_renewed: [");
    assert!(world.orders().is_empty());
}

#[test]
fn answers_that_come_too_late_or_in_the_wrong_order_change_nothing() {
    let mut world = with_lease();
    let first = world.latest();
    world.advance(INTERVAL);
    let second = world.latest();
    world.renewed(second);
    world.renewed(first);
    assert_eq!(world.orders().len(), 1);
    world.advance(INTERVAL);
    let third = world.latest();
    world.advance(LEASE);
    world.renewed(third);
    assert!(world.orders().is_empty(), "it is over");
    let lost = world.latest();
    world.handle(Input::Disconnected);
    world.connect();
    world.renewed(lost);
    assert!(world.orders().is_empty(), "of another connection");
}

#[test]
fn a_workload_is_started_under_the_lease_only_while_there_is_one() {
    let mut world = with_lease();
    let seq = world.latest();
    world.start(leased("a"));
    assert_eq!(world.refusal(), StartFailureReason::LaunchFailure);
    world.renewed(seq);
    world.orders.clear();
    world.start(leased("a"));
    world.start(process("b", 1));
    let spawned = world.orders().into_iter().map(|order| match order {
        AgentAction::Spawn(workload) => (workload.instance, workload.leased),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        spawned.collect::<Vec<_>>(),
        [("a".to_owned(), true), ("b".to_owned(), false)]
    );
    assert!(world.records["a"].leased && !world.records["b"].leased);
}

#[test]
fn what_is_under_a_lease_that_is_over_is_killed_and_told_and_the_rest_runs_on() {
    let mut world = with_lease();
    world.leased("a");
    let until = world.leased("b");
    world.suspend("b");
    world.frozen("b", Ok(()));
    world.running("other", 1);
    world.handle(Input::Disconnected);
    world.forget_what_happened();
    world.advance_to(until - MOMENT);
    world.nothing_else();
    world.advance(MOMENT);
    assert_eq!(
        world.orders(),
        [
            AgentAction::Kill("a".to_owned()),
            AgentAction::Kill("b".to_owned())
        ]
    );
    world.exits("a", -9);
    world.advance(LEASE);
    assert!(world.orders().is_empty());
    world.connect();
    assert_eq!(world.sent[0].kind(), Kind::INSTANCE_STOPPED);
    world.sent.clear();
    world.exits("b", -9);
    assert_eq!(world.answer().kind(), Kind::INSTANCE_STOPPED);
    assert_eq!(world.stats().instances.len(), 1);
}

#[test]
fn a_lease_that_is_renewed_goes_on() {
    let mut world = with_lease();
    let mut until = world.leased("a");
    for _ in 0..20 {
        world.advance(INTERVAL);
        until = world.renew();
    }
    world.advance_to(until - MOMENT);
    assert!(world.orders().is_empty());
    world.advance(MOMENT);
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
}

#[test]
fn what_is_being_started_or_stopped_at_the_end_of_the_lease_is_killed_too() {
    let mut world = with_lease();
    let until = world.leased("stops");
    world.start(leased("starts"));
    world.advance_to(until - GRACE / 2);
    world.delete("stops", false);
    world.forget_what_happened();
    world.advance_to(until);
    assert_eq!(world.orders(), [AgentAction::Kill("stops".to_owned())]);
    world.handle(Input::Started {
        instance: "starts".to_owned(),
    });
    assert_eq!(world.orders(), [AgentAction::Kill("starts".to_owned())]);
    world.advance(GRACE * 2);
    assert!(world.orders().is_empty(), "once");
}

#[test]
fn the_next_launcher_goes_on_with_the_lease_it_is_told() {
    let mut world = with_lease();
    world.leased("a");
    let until = world.now + Duration::from_secs(3);
    world.restart(|_| ProcessFate::Running);
    world.agent.recover_lease(until);
    world.advance(Duration::from_secs(3) - MOMENT);
    world.nothing_else();
    world.advance(MOMENT);
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
}

#[test]
fn a_longer_lease_of_an_earlier_launcher_is_announced_until_it_is_over() {
    let mut world = with_lease();
    world.leased("a");
    world.lease = Some(Duration::from_secs(3));
    let until = world.now + Duration::from_secs(118);
    world.restart(|_| ProcessFate::Running);
    world.agent.recover_lease(until);
    world.connect();
    let announced = |message: &Message| match message {
        Message::Stats(stats) => stats.lease,
        Message::Ready(ready) => ready.lease,
        _ => None,
    };
    let both: Vec<_> = world.sent.iter().filter_map(announced).collect();
    assert_eq!(both.len(), 2, "{:?}", world.sent);
    assert!(both.iter().all(|lease| lease.ms() >= 118_000), "{both:?}");
    let earlier = world.stats().lease;
    assert_eq!(
        earlier,
        Some(both[0]),
        "one figure, not one for each report"
    );
    while world.now + INTERVAL < until {
        world.advance(INTERVAL);
        assert!(world.promised.unwrap() >= until);
        world.sent.clear();
    }
    assert_eq!(world.orders(), []);
    world.advance_to(until);
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
    assert_eq!(world.stats().lease.map(|it| it.ms()), Some(3000));
}

#[test]
fn a_node_without_leases_says_so_and_takes_such_workloads_as_any() {
    let mut world = World::connected();
    world.start(leased("a"));
    let orders = world.orders();
    let [AgentAction::Spawn(workload)] = orders.as_slice() else {
        panic!("{orders:?}")
    };
    assert!(!workload.leased);
    let stats = world.stats();
    assert_eq!((stats.lease, stats.lease_seq), (None, None));
    let always = ["suspend", "update", "run-limits", "capacity", "overrides"];
    assert_eq!(stats.capabilities, always);
    let mut world = with_lease();
    let stats = world.stats();
    assert_eq!(stats.lease.map(|span| span.ms()), Some(30_000));
    assert_eq!(stats.capabilities, [&always[..], &["lease"]].concat());
}

#[test]
fn a_lease_that_could_not_be_extended_ends_when_the_machine_says() {
    let mut world = with_lease();
    world.leased("a");
    let until = world.now + Duration::from_secs(1);
    world.handle(Input::LeaseNotExtended { until });
    world.advance(Duration::from_secs(1));
    assert_eq!(world.orders(), [AgentAction::Kill("a".to_owned())]);
    world.sent.clear();
    world.exits("a", -9);
    let Message::InstanceStopped(event) = world.answer() else {
        panic!("no InstanceStopped")
    };
    assert!(event.cut_off);
}
