//! Tests of the coordinator without a scheduler, with a disk that takes no writes for a while.

mod refused;

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ciao_adapter::sent::at_any_time;
use ciao_scheduler::ctl::client::Ended;
use ciao_scheduler::ctl::event::Event;
use futures_core::Stream as _;
use proto_frames::payload::{
    DeleteFailure, DeleteFailureReason, InstanceView, OnNodeLoss, Payload as _, PlacementState,
    Span, Start, StartFailure, StartFailureReason,
};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::{Action, Coordinator, News, Order, Request, Settings};
use crate::definition::{Defaults, Definition};
use crate::instance::Fate;
use crate::requests::{Ask, Listing, SessionEvent};
use crate::rpc::common::ResourceStatus;
use crate::rpc::common::worker_status::Status as Subject;
use crate::store::Store;
use crate::updates::{Caller, Updates};

/// A coordinator that is connected, and its disk.
struct World {
    coordinator: Coordinator,
    asked: mpsc::UnboundedReceiver<Ask>,
    state: TempDir,
}

type Answered = oneshot::Receiver<Result<Option<String>, Status>>;

/// What a controller was told.
fn outcome(mut answered: Answered) -> Result<(), Code> {
    let answer = answered.try_recv().expect("it is answered");
    answer.map(drop).map_err(|status| status.code())
}

/// The scheduler's refusal of an instance's START.
fn refusal(instance: &Arc<str>, reason: StartFailureReason) -> Event {
    Event::StartFailure(Box::new(StartFailure {
        instance_uuid: instance.to_string(),
        reason,
        ..StartFailure::default()
    }))
}

fn web(replicas: u32, image: &str) -> String {
    format!(r#"{{"name": "web", "replicas": {replicas}, "spec": {{"image": "{image}"}}}}"#)
}

impl World {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let settings = Settings {
            defaults: Defaults {
                mem_mb: 1,
                vcpus: 1,
                queue: Span::from_ms(0),
                on_node_loss: OnNodeLoss::default(),
                tenant: String::new(),
            },
            return_time: Duration::ZERO,
            max_down: 1,
            unwanted: crate::unwanted::Unwanted::default(),
        };
        let mut coordinator = Coordinator::new(settings, Store::open(state.path()).unwrap());
        let (session, asked) = mpsc::unbounded_channel();
        coordinator.hear(SessionEvent::Up(session));
        Self {
            coordinator,
            asked,
            state,
        }
    }

    fn file(&self) -> PathBuf {
        self.state.path().join("instances.redb")
    }

    /// From now on the disk takes no writes.
    fn break_disk(&mut self) {
        self.coordinator.store.close();
        std::fs::rename(self.file(), self.state.path().join("aside")).unwrap();
        std::fs::create_dir(self.file()).unwrap();
    }

    fn mend_disk(&mut self) {
        std::fs::remove_dir(self.file()).unwrap();
        std::fs::rename(self.state.path().join("aside"), self.file()).unwrap();
    }

    /// Gives an order; a set is meant where the id is empty.
    fn order(&mut self, id: &str, create: Option<&str>) -> Answered {
        self.order_of(true, id, create)
    }

    /// The same, of a controller that says that it knows sets, or of RIK's own, which does not.
    fn order_of(&mut self, knows_sets: bool, id: &str, create: Option<&str>) -> Answered {
        let (answer, answered) = oneshot::channel();
        let action = match create {
            Some(json) => Action::Create(Box::new(Definition::read(json).unwrap())),
            None => Action::Destroy,
        };
        let request = Request {
            workload: "work".to_owned(),
            id: id.to_owned(),
            action,
        };
        let caller = Caller {
            owner: "".into(),
            address: None,
            knows_sets,
        };
        self.coordinator.order(Order::Schedule {
            request,
            caller,
            answer,
        });
        answered
    }

    /// The same in a round of its own.
    fn ordered(&mut self, id: &str, create: Option<&str>) -> Result<(), Code> {
        let answer = self.order(id, create);
        self.coordinator.end_round();
        outcome(answer)
    }

    /// The program is killed, and started again with what is on disk.
    fn restart(mut self) -> Self {
        self.coordinator.store.close();
        let settings = self.coordinator.settings.clone();
        let kept = Store::open(self.state.path()).unwrap();
        self.coordinator = Coordinator::new(settings, kept);
        self.reconnect();
        self
    }

    /// A new connection in place of the earlier one.
    fn reconnect(&mut self) {
        let (session, asked) = mpsc::unbounded_channel();
        self.asked = asked;
        self.coordinator.hear(SessionEvent::Up(session));
    }

    fn event(&mut self, event: Event) {
        self.coordinator.hear(SessionEvent::Event(Box::new(event)));
    }

    /// A listing; the history of ends has no gap for this time.
    fn lists(&mut self, instances: &[InstanceView], complete_for: Duration) {
        self.coordinator
            .hear(SessionEvent::Listing(Box::new(Listing {
                instances: instances.to_vec(),
                ended: Ended {
                    instances: Vec::new(),
                    complete_for: Some(complete_for),
                    forgotten: 0,
                },
            })));
    }

    /// UUIDs of the instances that may run.
    fn living(&self) -> Vec<Arc<str>> {
        let all = self.coordinator.instances.iter();
        let living = all.filter(|(_, it)| it.is_living());
        living.map(|(instance, _)| Arc::clone(instance)).collect()
    }

    /// How many STARTs and DELETEs were sent since the last look.
    fn sent(&mut self) -> (usize, usize) {
        let mut sent = (0, 0);
        while let Ok(ask) = self.asked.try_recv() {
            match ask {
                Ask::Start(start) => {
                    Start::decode(&start).unwrap();
                    sent.0 += 1;
                }
                Ask::Delete(_) => sent.1 += 1,
            }
        }
        sent
    }

    /// The fates of all instances, and how many sets there are with how many replicas in all.
    fn is(&self) -> (usize, usize, usize, u32) {
        let fates = self
            .coordinator
            .instances
            .values()
            .map(|it| &it.record.fate);
        let run = fates.filter(|it| **it == Fate::Run).count();
        let sets = self.coordinator.sets.values().map(|it| it.replicas);
        let count = self.coordinator.instances.len();
        (count, run, self.coordinator.sets.len(), sets.sum())
    }
}

#[test]
fn what_is_accepted_while_the_connection_breaks_is_sent_over_the_next() {
    let mut world = World::new();
    // The session has lost its connection; its report of that is still in the channel.
    world.asked.close();
    world.ordered("a", Some("{}")).unwrap();
    world.ordered("", Some(&web(2, "1"))).unwrap();
    world
        .coordinator
        .hear(SessionEvent::Down("broken off".to_owned()));
    world.reconnect();
    assert_eq!(world.sent(), (3, 0));
    // The same for what the cluster could not take at first.
    for instance in world.living() {
        world.event(refusal(&instance, StartFailureReason::FullCloud));
    }
    world.asked.close();
    world.coordinator.try_again();
    world.reconnect();
    assert_eq!(world.sent(), (3, 0));
}

#[test]
fn what_was_never_sent_is_sent_by_the_program_that_is_started_next() {
    let mut world = World::new();
    world
        .coordinator
        .hear(SessionEvent::Down("not there".to_owned()));
    world.ordered("a", Some("{}")).unwrap();
    let mut world = world.restart();
    assert_eq!(world.sent(), (0, 0), "it is written first that it is sent");
    world.coordinator.end_round();
    assert_eq!(world.sent(), (1, 0));
    world.coordinator.store.close();
    let (_, kept) = Store::open(world.state.path()).unwrap();
    assert!(kept.instances[0].sent_ms.is_some());
}

#[test]
fn what_was_sent_and_is_not_there_is_sent_again_only_if_it_never_ran() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    let mut world = world.restart();
    world.coordinator.end_round();
    assert_eq!(world.sent(), (0, 0));
    // The scheduler remembers all ends of the last day, and none of it.
    world.lists(&[], Duration::from_secs(24 * 3600));
    assert_eq!((world.sent(), world.is()), ((1, 0), (1, 1, 0, 0)));
    // What ended before the scheduler was started just now it does not know.
    world.reconnect();
    world.lists(&[], Duration::ZERO);
    assert_eq!((world.sent(), world.is()), ((0, 0), (1, 0, 0, 0)));
}

#[test]
fn what_an_earlier_version_may_have_sent_at_any_time_is_not_sent_again() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    let instance = world.living().remove(0);
    let record = &mut world
        .coordinator
        .instances
        .get_mut(&instance)
        .unwrap()
        .record;
    record.sent_ms = at_any_time();
    world.coordinator.keep(&instance);
    world.coordinator.end_round();
    let mut world = world.restart();
    // However far back the scheduler remembers.
    world.lists(&[], Duration::MAX);
    assert_eq!((world.sent(), world.is()), ((0, 0), (1, 0, 0, 0)));
    let (status, why) = world.coordinator.instances[&instance].status();
    assert_eq!(status, ResourceStatus::Failed);
    assert!(
        why.contains("whether it ran, and how it ended, is not known"),
        "{why}"
    );
    // Its controller can have it away.
    world.ordered("a", None).unwrap();
    assert_eq!(world.living(), Vec::<Arc<str>>::new());
}

#[test]
fn a_start_of_an_instance_that_is_there_is_not_sent_again() {
    for reason in [
        StartFailureReason::AlreadyRunning,
        StartFailureReason::InstanceExists,
    ] {
        let mut world = World::new();
        world.ordered("a", Some("{}")).unwrap();
        let instance = world.living().remove(0);
        assert_eq!(world.sent(), (1, 0));
        world.event(refusal(&instance, reason));
        world.coordinator.try_again();
        assert_eq!(world.sent(), (0, 0));
        // It is destroyed like any that the scheduler has.
        world.ordered("a", None).unwrap();
        assert_eq!(world.sent(), (0, 1));
        assert_eq!(world.living(), [instance]);
    }
}

#[test]
fn a_destroyed_instance_with_a_lease_is_over_only_when_the_scheduler_says_so() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    let instance = world.living().remove(0);
    assert_eq!(world.sent(), (1, 0));
    world
        .coordinator
        .hear(SessionEvent::Down("gone".to_owned()));
    world.ordered("a", None).unwrap();
    // The lease lets the scheduler, once it is back, place the instance on another worker.
    world.coordinator.news(News::Gone {
        worker: "worker-1".into(),
        ended: Vec::new(),
        moves: vec![Arc::clone(&instance)],
    });
    assert_eq!(world.living(), [Arc::clone(&instance)]);
    world.reconnect();
    assert_eq!(world.sent(), (0, 1));
    let failure = DeleteFailure {
        node_uuid: String::new(),
        instance_uuid: instance.to_string(),
        reason: DeleteFailureReason::NoInstance,
    };
    world.event(Event::DeleteFailure(failure));
    assert_eq!(world.living(), Vec::<Arc<str>>::new());
}

#[test]
fn what_the_scheduler_runs_and_no_controller_wants_is_deleted() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    let wanted = world.living().remove(0);
    let unwanted = world.coordinator.family.new_instance().to_string();
    let listed = |state, instance: &str| InstanceView {
        instance_uuid: instance.to_owned(),
        state,
        ..InstanceView::default()
    };
    assert_eq!(world.sent(), (1, 0));
    let mut listing = [
        listed(PlacementState::Running, &wanted),
        listed(PlacementState::Running, &unwanted),
    ];
    world.lists(&listing, Duration::MAX);
    assert_eq!(world.sent(), (0, 1));
    // Of a lost node it is not known whether it comes back, and it cannot be asked.
    listing[1].state = PlacementState::Lost;
    world.lists(&listing, Duration::MAX);
    assert_eq!(world.sent(), (0, 0));
}

#[test]
fn another_definition_for_an_instance_that_is_there_is_refused() {
    let mut world = World::new();
    world.ordered("a", Some(&web(1, "1"))).unwrap();
    assert_eq!(world.ordered("a", Some(&web(1, "1"))), Ok(()));
    assert_eq!(
        world.ordered("a", Some(&web(3, "1"))),
        Ok(()),
        "replicas do not count"
    );
    assert_eq!(
        world.ordered("a", Some(&web(1, "2"))),
        Err(Code::FailedPrecondition)
    );
    assert_eq!(world.sent(), (1, 0));
}

#[test]
fn a_banned_token_gets_no_stream_whichever_comes_first() {
    let mut world = World::new();
    let subscribe = |world: &mut World, owner: &str| {
        let (answer, mut answered) = oneshot::channel();
        let caller = Caller {
            owner: owner.into(),
            address: None,
            knows_sets: false,
        };
        world.coordinator.order(Order::Subscribe { caller, answer });
        answered
            .try_recv()
            .unwrap()
            .map(drop)
            .map_err(|it| it.code())
    };
    world
        .coordinator
        .order(Order::Banned(vec!["anna".to_owned()]));
    assert_eq!(subscribe(&mut world, "anna"), Err(Code::PermissionDenied));
    assert_eq!(subscribe(&mut world, "berta"), Ok(()));
}

/// A stream for a controller with this token's name.
fn subscribe(world: &mut World, owner: &str, knows_sets: bool) -> Updates {
    let (answer, mut answered) = oneshot::channel();
    let caller = Caller {
        owner: owner.into(),
        address: None,
        knows_sets,
    };
    world.coordinator.order(Order::Subscribe { caller, answer });
    answered.try_recv().unwrap().unwrap().0
}

/// Id and status of each update that waits in a stream.
fn read(updates: &mut Updates) -> Vec<(String, ResourceStatus)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut all = Vec::new();
    while let Poll::Ready(Some(Ok(update))) = Pin::new(&mut *updates).poll_next(&mut context) {
        if let Some(Subject::Instance(it)) = update.status {
            all.push((it.instance_id.clone(), it.status()));
        }
    }
    all
}

#[test]
fn an_end_that_was_read_from_a_stream_that_broke_is_told_again_in_the_next() {
    let over = |id: &str| (id.to_owned(), ResourceStatus::Terminated);
    let mut world = World::new();
    let mut updates = subscribe(&mut world, "", true);
    for id in ["a", "b"] {
        world.ordered(id, Some("{}")).unwrap();
        let instance = world.living().remove(0);
        world.coordinator.finish(&instance);
    }
    assert_eq!(read(&mut updates), [over("a"), over("b")]);
    drop(updates);
    // This id is another instance's by now.
    world.coordinator.tidy();
    world.ordered("b", Some("{}")).unwrap();
    let heard = read(&mut subscribe(&mut world, "", true));
    assert_eq!(
        heard,
        [("b".to_owned(), ResourceStatus::Pending), over("a")]
    );
    // Neither another's controller is told, nor RIK's own, which ends over an id that it has no more.
    assert_eq!(read(&mut subscribe(&mut world, "anna", true)), []);
    let heard = read(&mut subscribe(&mut world, "", false));
    assert_eq!(heard, [("b".to_owned(), ResourceStatus::Pending)]);
}

#[test]
fn members_of_a_set_are_found_by_its_key_alone() {
    let mut world = World::new();
    world.ordered("", Some(&web(3, "1"))).unwrap();
    world.ordered("web-x", Some("{}")).unwrap();
    let key = super::sets::key("", "work");
    assert_eq!(world.coordinator.members(&key, |_| true).len(), 3);
    let first = world.coordinator.members(&key, |_| true).remove(0);
    world.coordinator.finish(&first);
    assert_eq!(world.coordinator.members(&key, |_| true).len(), 2);
    world.coordinator.end_round();
    assert_eq!(world.coordinator.members(&key, |_| true).len(), 3);
    // What is read from the disk is found too.
    world.coordinator.store.close();
    let kept = Store::open(world.state.path()).unwrap();
    let again = Coordinator::new(world.coordinator.settings.clone(), kept);
    assert_eq!(again.members(&key, |_| true).len(), 3);
}

#[test]
fn what_cannot_be_written_is_refused_and_nothing_comes_of_it() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    world.ordered("", Some(&web(2, "1"))).unwrap();
    assert_eq!(world.sent(), (3, 0));
    let before = world.is();
    assert_eq!(before, (3, 3, 1, 2));
    world.break_disk();
    for (id, create) in [
        ("a", None),
        ("b", Some("{}".to_owned())),
        ("", Some(web(4, "1"))),
        ("", Some(web(1, "2"))),
        ("", None),
    ] {
        let refused = world.ordered(id, create.as_deref());
        assert_eq!(refused, Err(Code::Unavailable), "{id} {create:?}");
        assert_eq!(
            (world.sent(), world.is()),
            ((0, 0), before),
            "{id} {create:?}"
        );
    }
    world.mend_disk();
    assert_eq!(world.ordered("a", None), Ok(()));
    assert_eq!(world.sent(), (0, 1));
    assert_eq!(world.ordered("", Some(&web(4, "1"))), Ok(()));
    assert_eq!(world.sent(), (2, 0), "in the same round");
    assert_eq!(world.ordered("", None), Ok(()));
    assert_eq!((world.sent(), world.is()), ((0, 4), (5, 0, 0, 0)));
    // The disk has the same.
    world.coordinator.store.close();
    let (_, kept) = Store::open(world.state.path()).unwrap();
    let destroyed = kept.instances.iter().filter(|it| it.fate == Fate::Destroy);
    assert_eq!((destroyed.count(), kept.sets.len()), (5, 0));
}

#[test]
fn what_waits_for_the_disk_has_a_bound() {
    let mut world = World::new();
    world.ordered("", Some(&web(2, "1"))).unwrap();
    assert_eq!(world.sent(), (2, 0));
    world.break_disk();
    for image in 2..50 {
        let refused = world.ordered("", Some(&web(2, &image.to_string())));
        assert_eq!(refused, Err(Code::Unavailable));
        assert_eq!(world.coordinator.changes.len(), 0);
    }
    // An end is no request: it has happened, and is to be written. What takes its place could not be kept.
    let member: Arc<str> = world.coordinator.instances.keys().next().unwrap().clone();
    world.coordinator.finish(&member);
    for _ in 0..50 {
        world.coordinator.is_unwritten = false; // as each look begins
        world.coordinator.end_round();
        assert_eq!((world.coordinator.changes.len(), world.sent()), (1, (0, 0)));
        assert_eq!(world.is(), (2, 1, 1, 2));
    }
    world.mend_disk();
    world.coordinator.is_unwritten = false;
    world.coordinator.end_round();
    assert_eq!((world.coordinator.changes.len(), world.sent()), (0, (1, 0)));
    assert_eq!(world.is(), (3, 2, 1, 2));
}

#[test]
fn requests_of_one_round_about_the_same_are_carried_out_in_their_order() {
    let mut world = World::new();
    world.ordered("a", Some("{}")).unwrap();
    let answers = [
        world.order("a", None),
        world.order("a", Some("{}")),
        world.order("", Some(&web(2, "1"))),
        world.order("", Some(&web(3, "2"))),
        world.order("b", Some("{}")),
        world.order("b", None),
    ];
    world.coordinator.end_round();
    let outcomes = answers.map(outcome);
    assert_eq!(outcomes[0], Ok(()));
    assert_eq!(
        outcomes[1],
        Err(Code::FailedPrecondition),
        "it is being destroyed"
    );
    assert_eq!(outcomes[2..], [Ok(()); 4]);
    assert_eq!(world.sent(), (1 + 3, 1), "b is over before it was sent");
    assert_eq!(world.is(), (5, 3, 1, 3));
}
