//! Tests of the coordinator without a scheduler, with a disk that takes no writes for a while.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use proto_frames::payload::{OnNodeLoss, Payload as _, Span, Start};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot};
use tonic::{Code, Status};

use super::{Coordinator, Order, Request, Settings};
use crate::definition::{Defaults, Definition};
use crate::instance::Fate;
use crate::requests::{Ask, Heard};
use crate::store::Store;
use crate::updates::Caller;

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
        };
        let mut coordinator = Coordinator::new(settings, Store::open(state.path()).unwrap());
        let (session, asked) = mpsc::unbounded_channel();
        coordinator.hear(Heard::Up(session));
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
        let (answer, answered) = oneshot::channel();
        let create = create.map(|json| Box::new(Definition::read(json).unwrap()));
        let request = Request {
            workload: "work".to_owned(),
            id: id.to_owned(),
            create,
        };
        let caller = Caller {
            owner: "".into(),
            address: None,
            knows_sets: true,
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
