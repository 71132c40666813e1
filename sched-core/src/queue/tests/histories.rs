//! Random histories, in which every answer is that of the [`Oracle`]. A seed that fails is named and fails again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sched_model::Uuid;

use super::super::{
    AllowedNodes, Begin, Found, MAX_ASKED, Purpose, Queue, Rank, Room, Shape, Waiter,
};
use super::oracle::Oracle;
use super::{amounts, epoch, instance, label, labelled, request, room, shape_of};
use crate::api::ids::NodeKey;
use crate::api::resources::Resources;
use crate::api::start::StartRequest;
use crate::cluster::node::Pool;

/// Nodes in play.
const NODES: u32 = 6;

/// What a history is like.
#[derive(Debug, Clone, Copy)]
struct Kind {
    steps: usize,
    /// Instances in play, so at most so many wait.
    instances: u64,
    /// Labels in play: the more, the more classes.
    labels: u64,
    /// One in so many is pinned in some way.
    pins: u64,
    /// Priorities in play.
    priorities: u8,
}

const SMALL: Kind = Kind {
    steps: 400,
    instances: 40,
    labels: 3,
    pins: 3,
    priorities: 3,
};

const MANY_CLASSES: Kind = Kind {
    steps: 1_500,
    instances: 400,
    labels: 200,
    pins: 20,
    priorities: 2,
};

/// Enough in one class for many chunks.
const LONG: Kind = Kind {
    steps: 6_000,
    instances: 3_000,
    labels: 1,
    pins: 50,
    priorities: 4,
};

struct History {
    kind: Kind,
    chance: fastrand::Rng,
    start: Instant,
    queue: Queue,
    oracle: Oracle,
    taken: Vec<Waiter>,
}

impl History {
    fn new(kind: Kind, seed: u64) -> Self {
        Self {
            kind,
            chance: fastrand::Rng::with_seed(seed),
            start: epoch(),
            queue: Queue::default(),
            oracle: Oracle::default(),
            taken: Vec::new(),
        }
    }

    fn run(mut self) {
        let checked = (self.kind.steps / 200).max(1);
        for step in 0..self.kind.steps {
            // Fills first, drains last.
            let fullness = 12 - 9 * step / self.kind.steps;
            match self.chance.usize(0..20) {
                roll if roll < fullness => self.push(),
                12..=14 => self.remove(),
                15 => self.put_back(),
                16 => self.take_due(),
                17 => self.ask_outranks(),
                _ => self.ask_candidate(),
            }
            if step % checked == 0 {
                self.compare();
                self.queue.invariants().unwrap();
            }
        }
        self.compare_pages();
    }

    fn waiter(&mut self) -> Waiter {
        let number = self.chance.u64(0..self.kind.instances);
        let place = match self.chance.u64(0..self.kind.pins * 4) {
            0 => AllowedNodes::Only(self.node()),
            _ => AllowedNodes::Anywhere,
        };
        let purpose = match place {
            AllowedNodes::Only(_) if self.chance.bool() => Purpose::Resume,
            _ => Purpose::Start,
        };
        let deadline = self
            .chance
            .bool()
            .then(|| self.start + Duration::from_secs(self.chance.u64(0..1_000)));
        Waiter {
            instance: instance(number),
            pool: if self.chance.u8(0..4) == 0 {
                Pool::Network
            } else {
                Pool::Compute
            },
            priority: self.chance.u8(0..self.kind.priorities),
            order: self.queue.next_order(),
            asked: self.amounts(),
            place,
            purpose,
            shape: Arc::new(self.shape()),
            bytes: self.chance.usize(0..1_000),
            is_operators: false,
            deadline,
        }
    }

    fn shape(&mut self) -> Shape {
        match self.chance.u64(0..self.kind.pins * 4) {
            0 => shape_of(StartRequest {
                node_id: Some(self.uuid().to_string().into()),
                ..request(0)
            }),
            1 => shape_of(StartRequest {
                hostname: Some(self.room(Resources::ZERO).hostname.into()),
                ..request(0)
            }),
            2 => shape_of(StartRequest {
                node_id: Some(self.uuid().to_string().into()),
                hostname: Some("host-1".into()),
                ..request(0)
            }),
            3 => shape_of(StartRequest {
                node_id: Some("nowhere".into()),
                ..request(0)
            }),
            _ => labelled(self.chance.u64(0..self.kind.labels)),
        }
    }

    fn uuid(&mut self) -> Uuid {
        self.room(Resources::ZERO).uuid
    }

    fn node(&mut self) -> NodeKey {
        NodeKey(self.chance.u32(0..NODES))
    }

    fn room(&mut self, free: Resources) -> Room<'static> {
        room(self.chance.u32(0..NODES), free)
    }

    /// Small amounts, of which many are alike; large ones, of which one kind is on offer where the other is asked for.
    fn amounts(&mut self) -> Resources {
        match self.chance.u8(0..8) {
            0..=3 => amounts(
                self.chance.i64(0..6),
                self.chance.i64(0..4),
                self.chance.i64(0..6),
            ),
            4 => amounts(1_000, 1, self.chance.i64(0..3)),
            5 => amounts(self.chance.i64(0..3), 1, 1_000),
            6 => amounts(0, self.chance.i64(0..4), 0),
            _ => amounts(self.chance.i64(0..2_000), 2, self.chance.i64(0..2_000)),
        }
    }

    fn push(&mut self) {
        let waiter = self.waiter();
        self.oracle.remove(&waiter.instance);
        self.oracle.all.push(waiter.clone());
        self.queue.push(waiter).unwrap();
    }

    fn remove(&mut self) {
        let number = self.chance.u64(0..self.kind.instances);
        self.take(number);
    }

    fn take(&mut self, number: u64) {
        let (taken, expected) = (
            self.queue.remove(&instance(number)),
            self.oracle.remove(&instance(number)),
        );
        assert_eq!(
            taken.as_ref().map(Waiter::rank),
            expected.as_ref().map(Waiter::rank)
        );
        self.taken.extend(taken);
    }

    /// Puts one back that was taken out, with the order it had.
    fn put_back(&mut self) {
        let Some(waiter) = self.taken.pop() else {
            return;
        };
        if !self.queue.contains(&waiter.instance) {
            self.oracle.all.push(waiter.clone());
            self.queue.push(waiter).unwrap();
        }
    }

    fn take_due(&mut self) {
        let now = self.start + Duration::from_secs(self.chance.u64(0..100));
        while let Some(waiter) = self.queue.due(now).cloned() {
            self.queue.remove(waiter.instance());
            assert_eq!(waiter.deadline, self.oracle.due(), "the earliest first");
            assert!(waiter.deadline <= Some(now));
            assert!(self.oracle.remove(&waiter.instance).is_some());
        }
        assert!(self.oracle.due().is_none_or(|due| due > now));
    }

    fn ask_candidate(&mut self) {
        let free = self.amounts() + amounts(self.chance.i64(0..2), 1, self.chance.i64(0..2));
        let room = self.room(free);
        let pool = Pool::ALL[self.chance.usize(0..2)];
        let allowed = self.chance.u64(1..4);
        let may = |shape: &Shape| label(shape).is_none_or(|label| label % 3 < allowed);
        let after = if self.chance.bool() {
            let order = self.chance.u64(0..=self.oracle.all.len() as u64 * 2);
            Some(Rank::new(self.chance.u8(0..self.kind.priorities), order))
        } else {
            None
        };
        let mut begin = after.map_or(Begin::AtHead, Begin::After);
        let mut rounds = 0;
        let found = loop {
            let mut asks = 0;
            let found = self.queue.candidate(pool, &room, begin, |_, shape| {
                asks += 1;
                may(shape)
            });
            assert!(asks <= MAX_ASKED);
            rounds += 1;
            match found {
                Found::GaveUp(cursor) => begin = Begin::GoOn(cursor),
                Found::First(instance) => break Some(instance),
                Found::Nothing => break None,
            }
            assert!(rounds < 100, "it comes to an end");
        };
        assert_eq!(found, self.oracle.candidate(pool, &room, after, may));
    }

    fn ask_outranks(&mut self) {
        let capacity = self.amounts();
        let room = self.room(capacity);
        let pool = Pool::ALL[self.chance.usize(0..2)];
        let priority = self.chance.u8(0..self.kind.priorities);
        let allowed = self.chance.u64(0..4);
        let may = |shape: &Shape| label(shape).is_none_or(|label| label % 3 < allowed);
        assert_eq!(
            self.queue
                .outranks(pool, &room, priority, |_, shape| may(shape)),
            self.oracle.outranks(pool, &room, priority, may)
        );
    }

    fn compare(&mut self) {
        let number = self.chance.u64(0..self.kind.instances);
        let instance = instance(number);
        assert_eq!(
            self.queue.position(&instance),
            self.oracle.position(&instance)
        );
        assert_eq!(self.queue.len(), self.oracle.all.len());
        assert_eq!(self.queue.bytes(), self.oracle.bytes());
        assert_eq!(self.queue.deadline_due(), self.oracle.due());
        let node = self.node();
        let mut waiting = self.queue.waiting_for(node);
        waiting.sort();
        assert_eq!(waiting, self.oracle.waiting_for(node));
    }

    fn compare_pages(&self) {
        for pool in Pool::ALL {
            let expected = self.oracle.in_order(pool);
            assert_eq!(self.queue.len_of(pool), expected.len());
            let (mut read, mut after) = (Vec::new(), None);
            loop {
                let page = self.queue.iter_after(pool, after).take(7);
                let before = read.len();
                read.extend(page.map(Waiter::rank));
                after = read.last().copied();
                if read.len() == before {
                    break;
                }
            }
            let expected: Vec<Rank> = expected.into_iter().map(Waiter::rank).collect();
            assert_eq!(read, expected);
        }
    }
}

fn run(kind: Kind, seeds: u64) {
    for seed in 0..seeds {
        let history = std::panic::AssertUnwindSafe(|| History::new(kind, seed).run());
        if std::panic::catch_unwind(history).is_err() {
            panic!("seed {seed} of {kind:?}");
        }
    }
}

#[test]
fn short_histories_go_as_a_sorted_list_would() {
    run(SMALL, 100);
}

#[test]
fn histories_with_many_classes_go_as_a_sorted_list_would() {
    run(MANY_CLASSES, 8);
}

#[test]
fn long_histories_go_as_a_sorted_list_would() {
    run(LONG, 2);
}
