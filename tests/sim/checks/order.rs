//! The queue is served in its order: higher priorities first, and of one priority those that came first.

use std::collections::{BTreeMap, BTreeSet};

use proto_frames::payload::{PhaseName, QueryKind};

use super::Check;
use crate::facts::{Fact, Waiting};
use crate::names;
use crate::observer;
use crate::work::Amounts;
use crate::world::World;

/// Held against each other are those alone that may run anywhere: of others only the core can say whether a room was
/// theirs. Among those of one priority only those count that ask for the same: a small one may go first where a big one
/// does not fit, and the big one has the room reserved in the end.
#[derive(Default)]
pub(super) struct Order {
    /// Managed instances, in the order in which they came. What is on disk keeps its place over a crash.
    came: BTreeMap<u32, u64>,
    count: u64,
    /// Those that ended since the scheduler started: where one is on disk all the same, it is not known which START of it.
    ended: BTreeSet<u32>,
    /// Those that a scheduler found on its disk and of which it is not known when they came.
    unknown: BTreeSet<u32>,
}

impl Check for Order {
    fn name(&self) -> &'static str {
        "the queue is served in order"
    }

    fn see(&mut self, fact: &Fact, _world: &World) -> Result<(), String> {
        self.learn(fact)
    }

    fn at_rest(&mut self, world: &mut World) -> Result<(), String> {
        let queue = world.ask(&QueryKind::Queue).instances;
        let nodes = world.ask(&QueryKind::Nodes).nodes;
        let open = nodes
            .iter()
            .filter(|it| it.status == "READY" && !it.cordoned);
        for waits in queue.iter().filter_map(|row| world.waiting(row)) {
            let mut open = open.clone();
            if let Some(node) = open.find(|it| waits.asked.fits_into(observer::free(it))) {
                return Err(format!("{waits:?} while there is room on {node:?}"));
            }
        }
        Ok(())
    }
}

impl Order {
    fn learn(&mut self, fact: &Fact) -> Result<(), String> {
        match fact {
            Fact::Turned { instance, state } if *state == PhaseName::Gone => {
                self.came.remove(instance);
                self.unknown.remove(instance);
                self.ended.insert(*instance);
            }
            Fact::Turned { instance, .. } if !self.unknown.contains(instance) => {
                self.count += 1;
                self.came.entry(*instance).or_insert(self.count);
            }
            Fact::SchedulerStarted { restored } => self.starts(restored),
            Fact::Given {
                instance,
                priority,
                asked,
                room,
                waiting,
            } => {
                let given = Waiting {
                    instance: *instance,
                    priority: *priority,
                    asked: *asked,
                };
                return self.may_have(&given, *room, waiting);
            }
            _ => {}
        }
        Ok(())
    }

    /// A scheduler starts with what is on its disk.
    fn starts(&mut self, restored: &[u32]) {
        let ended = std::mem::take(&mut self.ended);
        let mut came = std::mem::take(&mut self.came);
        came.retain(|it, _| restored.contains(it) && !ended.contains(it));
        let is_unknown = |it: &&u32| !came.contains_key(it);
        self.unknown = restored.iter().filter(is_unknown).copied().collect();
        self.came = came;
    }

    fn may_have(&self, given: &Waiting, room: Amounts, waiting: &[Waiting]) -> Result<(), String> {
        if names::element_of(given.instance).is_some() {
            // Its place in the queue is that of its array.
            return Ok(());
        }
        let came = |it: &Waiting| self.came.get(&it.instance);
        let is_before = |it: &&Waiting| {
            it.priority > given.priority
                || (it.priority == given.priority
                    && it.asked == given.asked
                    && came(it)
                        .zip(came(given))
                        .is_some_and(|(one, two)| one < two))
        };
        let mut ahead = waiting.iter().filter(is_before);
        match ahead.find(|it| it.asked.fits_into(room)) {
            Some(first) => Err(format!("{given:?} was given {room:?} while {first:?}")),
            None => Ok(()),
        }
    }
}

#[test]
fn what_is_given_room_is_held_against_what_waits() {
    let room = Amounts {
        mem: 10,
        vcpus: 2,
        ..Amounts::default()
    };
    let too_much = Amounts { mem: 11, ..room };
    let waits = |instance, priority, asked| Waiting {
        instance,
        priority,
        asked,
    };
    let given = |instance, priority| Fact::Given {
        instance,
        priority,
        asked: room,
        room,
        waiting: vec![waits(2, 50, room), waits(3, 90, too_much)],
    };
    let mut order = Order::default();
    for instance in [1, 2, 3, 4] {
        let state = PhaseName::Waiting;
        let turned = Fact::Turned { instance, state };
        order.learn(&turned).expect("waiting is no fault");
    }
    assert_eq!(order.learn(&given(1, 50)), Ok(()), "it came before");
    assert!(order.learn(&given(4, 50)).is_err(), "it came later");
    assert!(order.learn(&given(1, 49)).is_err());

    let restored = vec![1, 2, 4];
    let started = Fact::SchedulerStarted { restored };
    order.learn(&started).expect("a start is no fault");
    assert_eq!(order.learn(&given(1, 50)), Ok(()), "it came before");
    assert!(order.learn(&given(4, 50)).is_err(), "it came later");
}

#[test]
fn of_what_ended_and_is_on_disk_it_is_not_known_when_it_came() {
    let mut order = Order::default();
    let asked = Amounts::default();
    let turned = |instance, state| Fact::Turned { instance, state };
    let given = Fact::Given {
        instance: 1,
        priority: 50,
        asked,
        room: asked,
        waiting: vec![Waiting {
            instance: 2,
            priority: 50,
            asked,
        }],
    };
    let restored = vec![1, 2];
    for fact in [
        turned(1, PhaseName::Waiting),
        turned(2, PhaseName::Waiting),
        turned(1, PhaseName::Gone),
        Fact::SchedulerStarted { restored },
        turned(1, PhaseName::Placing),
    ] {
        order.learn(&fact).expect("no instance is given room");
    }
    assert_eq!(order.learn(&given), Ok(()), "it may have come before");
    order.learn(&turned(1, PhaseName::Gone)).expect("an end");
    order
        .learn(&turned(1, PhaseName::Waiting))
        .expect("a START");
    assert!(order.learn(&given).is_err(), "it came later");
}
